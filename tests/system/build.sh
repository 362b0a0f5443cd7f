#!/usr/bin/env bash
# A real package (LuaJIT, from the crate luajit-src) is unpacked and built on the volume, as on the host:
# every file the build leaves must be the same in both places, and again after a remount.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command gcc make cargo
sources_fetch || abort 'source trees are fetched by cargo vendor'

build() { "$ROOT/scripts/build-package.sh" "$SOURCES" "$1"; }
products() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
runs() { [ "$("$MNT/package/src/luajit" -e 'local s = 0 for i = 1, 1e6 do s = s + i end print(s)')" = 500000500000 ]; }

volume_new 2G
# The host's build is kept in the target directory: it is the same every time.
reference=$TARGET/reference-build
host=
if [ ! -s "$reference.sums" ] || [ "$ROOT/tests/sources/Cargo.lock" -nt "$reference.sums" ]; then
    rm -rf "$reference"
    build "$reference" >"$WORK/host.out" 2>&1 &
    host=$!
    child $host
fi
check 'unpack and make on the volume' build "$MNT/package"
if [ -n "$host" ]; then
    wait "$host" || abort 'the same on the host' "$(tail -n 3 "$WORK/host.out")"
    products "$reference" >"$reference.sums"
    rm -rf "$reference"
fi
cp "$reference.sums" "$WORK/host.sums"
products "$MNT/package" >"$WORK/volume.sums"
say "$(wc -l <"$WORK/volume.sums") files compared"
check 'the build left the same files with the same bytes' diff "$WORK/host.sums" "$WORK/volume.sums"

check 'what was built runs' runs

volume_cycle
check 'it runs after a remount' runs
products "$MNT/package" >"$WORK/volume.sums"
check 'still the same after a remount' diff "$WORK/host.sums" "$WORK/volume.sums"
nothing_made() { local out; out=$(build "$MNT/package" 2>&1) && ! echo "$out" | grep -q -E '^(CC|HOSTCC|LINK) '; }
check 'make has nothing to compile after a remount' nothing_made
check 'make clean' make -s -C "$MNT/package" clean
volume_end
finish
