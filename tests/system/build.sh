#!/usr/bin/env bash
# A real package (jemalloc, from the crate tikv-jemalloc-sys) is unpacked, configured and built on the
# volume, as on the host: every file the build leaves must be the same in both places, and again after a remount.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command gcc make cargo
sources_fetch || abort 'source trees are fetched by cargo vendor'

# The build writes no absolute path anywhere but in configure's logs and the files made from them.
build() { "$ROOT/scripts/build-package.sh" "$SOURCES" "$1"; }
products() {
    (cd "$1" && find . -type f -not -name 'config.log' -not -name 'config.status' -not -name '*.d' \
        -not -path './Makefile' -not -path './bin/*' -not -name '*.pc' \
        -not -path './doc/*.xsl' -not -path './test/test.sh' -print0 | sort -z | xargs -0 sha256sum)
}

volume_new 2G
# The host's build is kept in the target directory: it is the same every time.
reference=$TARGET/reference-build
host=
if [ ! -s "$reference.sums" ] || [ "$SOURCES/.complete" -nt "$reference.sums" ]; then
    rm -rf "$reference"
    build "$reference" >"$WORK/host.out" 2>&1 &
    host=$!
    child $host
fi
check 'configure and make on the volume' build "$MNT/package"
if [ -n "$host" ]; then
    wait "$host" || abort 'the same on the host' "$(tail -n 3 "$WORK/host.out")"
    products "$reference" >"$reference.sums"
    rm -rf "$reference"
fi
cp "$reference.sums" "$WORK/host.sums"
products "$MNT/package" >"$WORK/volume.sums"
say "$(wc -l <"$WORK/volume.sums") files compared"
check 'the build left the same files with the same bytes' diff "$WORK/host.sums" "$WORK/volume.sums"

volume_cycle
products "$MNT/package" >"$WORK/volume.sums"
check 'still the same after a remount' diff "$WORK/host.sums" "$WORK/volume.sums"
check 'make has nothing to do after a remount' make -q -C "$MNT/package" build_lib_static
check 'make clean' make -s -C "$MNT/package" clean
volume_end
finish
