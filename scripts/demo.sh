#!/usr/bin/env bash
# The demo: a real source tree is unpacked and built on a Yore volume; in the middle of the compilation the
# file system's process is killed; it comes back with everything that was synced, and the build is finished. Then a
# part of the tree is destroyed, looked at as of before, put back, and that is undone and done again.
# Works as root and as an ordinary user. Where there is no FUSE, the library commands show the same.
# YORE=FILE shows that program, and builds none.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
PATH=$PATH:/usr/sbin:/sbin

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' off=$'\e[0m'; else bold='' dim='' green='' red='' off=''; fi
step() { printf '\n%s== %s%s\n' "$bold" "$*" "$off"; }
tell() { printf '   %s\n' "$*"; }
good() { printf '   %s✓ %s%s\n' "$green" "$*" "$off"; }
stop() { printf '   %s✗ %s%s\n' "$red" "$*" "$off" >&2; exit 1; }
# Shows a command, then runs it.
run() { printf '   %s$ %s%s\n' "$dim" "${*//$work\//}" "$off"; "$@" 2>&1 | sed 's/^/     /'; }

work=$(mktemp -d "${TMPDIR:-/var/tmp}/yore-demo.XXXXXX")
dir=$work/mnt
vol=$work/demo.yore
daemon='' build=''
cleanup() {
    [ -z "$build" ] || kill "$build" 2>/dev/null || true
    if mountpoint -q "$dir" 2>/dev/null || grep -q " $dir " /proc/self/mounts; then
        "$yore" umount "$dir" >/dev/null 2>&1 || umount -l "$dir" 2>/dev/null || fusermount3 -uz "$dir" 2>/dev/null || true
    fi
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
trap 'echo "demo.sh: failed at line $LINENO" >&2' ERR

# The daemon behind the mount.
pid_of() {
    "$yore" info --json "$vol" | sed -n 's/.*"pid" *: *\([0-9][0-9]*\).*/\1/p' | head -n 1
}
gone() { ! kill -0 "$1" 2>/dev/null; }
# until_true SECONDS COMMAND...
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}
sums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
objects() { find "$1" -name '*.o' | wc -l; }

step 'What is needed'
fuse=yes
{ [ -r /dev/fuse ] && [ -w /dev/fuse ]; } || fuse=no
if scripts/install-deps.sh demo; then
    good 'a compiler, make, the FUSE helper: all here'
else
    [ "$fuse" = no ] || stop 'the programs named above are missing'
fi

step 'Building Yore and fetching a source tree to work on'
yore=${YORE:-$target/release/yore}
[ -n "${YORE:-}" ] || cargo build --release --locked --quiet -p yore-cli
good "built: $("$yore" --version)"
sources=$target/sources
scripts/fetch-sources.sh "$sources"
scripts/build-package.sh "$sources" "$work/host" unpack
sums "$work/host" >"$work/host.sums"
good "LuaJIT, $(wc -l <"$work/host.sums") files, with a checksum of each on the host"

step 'A volume'
run "$yore" mkfs "$vol" --size 1G

# the_past TREE GET: the tree at TREE, as commands call it; `GET PATH DIRECTORY` copies it out.
the_past() {
    local tree=$1 get=$2
    step 'A snapshot, and then a mistake: the sources are gone'
    run "$yore" snapshot "$tree" -n before
    "$yore" rm -r "$tree/dynasm" 2>/dev/null || rm -r "$tree/dynasm"
    run "$yore" diff --stat "$tree@before"
    "$get" "$tree@before/dynasm" "$work/then"
    diff -r "$work/host/dynasm" "$work/then" || stop 'the past is not what was'
    good 'as of before they are all there'

    step 'Putting the tree back, undoing that, doing it again'
    run "$yore" rollback "$tree@before"
    "$get" "$tree/dynasm" "$work/now"
    diff -r "$work/host/dynasm" "$work/now" || stop 'the rollback is not what was'
    good 'the tree is what it was'
    run "$yore" undo "$tree"
    if "$get" "$tree/dynasm" "$work/undone" 2>/dev/null; then stop 'undo left the sources where they were'; fi
    good 'the sources are gone again'
    run "$yore" redo "$tree"
    "$get" "$tree/dynasm" "$work/again"
    diff -r "$work/host/dynasm" "$work/again" || stop 'redo is not what was'
    good 'and back'
}
copy_mounted() { cp -r "$1" "$2"; }
copy_by_command() { "$yore" get -r "$1" "$2"; }

demo_by_mount() {
    step 'Mounting it, unpacking the source tree on it'
    mkdir "$dir"
    run "$yore" mount "$vol" "$dir"
    daemon=$(pid_of)
    [ -n "$daemon" ] || stop 'yore info does not tell which process serves the volume'
    good "served by process $daemon"
    scripts/build-package.sh "$sources" "$dir/luajit" unpack
    run df -h "$dir"
    step 'sync: from here on the tree is promised'
    # Pages stored through mappings first; then, for sync(2) does not reach a FUSE daemon, an fsync of the root.
    sync -f "$dir"; sync "$dir"
    sums "$dir/luajit" >"$work/synced.sums"
    good "$(wc -l <"$work/synced.sums") files synced"

    step 'Compiling, and in the middle of it: kill -9'
    (exec scripts/build-package.sh "$sources" "$dir/luajit" >"$work/make.out" 2>&1) &
    build=$!
    enough() { [ "$(objects "$dir/luajit")" -ge 15 ]; }
    until_true 180 enough || stop "the compilation makes no progress: $(tail -n 3 "$work/make.out")"
    tell "$(objects "$dir/luajit") object files so far"
    run kill -9 "$daemon"
    until_true 20 gone "$daemon" || stop 'the daemon did not die'
    wait "$build" && stop 'the compilation did not notice' || good "the compiler has lost its file system: $(grep -m 1 -i -E 'not connected|error' "$work/make.out" | cut -c -90)"
    build=
    ls "$dir" 2>&1 | sed 's/^/     /' || true

    step 'One command brings it back: no repair, no scan'
    run "$yore" mount "$vol" "$dir"
    daemon=$(pid_of)
    (cd "$dir/luajit" && sha256sum --quiet --strict -c "$work/synced.sums") || stop 'a synced file has changed'
    good "all $(wc -l <"$work/synced.sums") synced files are whole"
    (cd "$dir/luajit" && sha256sum --quiet --strict -c "$work/host.sums") || stop 'a source file differs from the host'
    good "all $(wc -l <"$work/host.sums") source files are those of the host"
    case $(objects "$dir/luajit") in
        0) tell 'no object file survived, for none had been synced; so the compilation begins anew' ;;
        *)
            tell "$(objects "$dir/luajit") object files of the compilation survived without having been synced;"
            tell 'some may be half written, as after any crash, so the compilation begins anew'
            ;;
    esac
    make -s -C "$dir/luajit" clean >/dev/null 2>&1
    scripts/build-package.sh "$sources" "$dir/luajit" >"$work/make.out" 2>&1 || stop "the build fails: $(tail -n 3 "$work/make.out")"
    good "built to the end, and what was built runs on the volume: $("$dir/luajit/src/luajit" -e 'print(jit.version)')"

    the_past "$dir/luajit" copy_mounted

    step 'Unmounting and checking'
    run "$yore" umount "$dir"
    run "$yore" check "$vol"
    good 'the checker finds nothing'
}

demo_by_commands() {
    if [ -e /dev/fuse ]; then
        step "/dev/fuse is not open to $(id -un): the same by the library commands, without a mount"
        tell '(root can open it: chmod 666 /dev/fuse)'
    else
        step 'No /dev/fuse here: the same by the library commands, without a mount'
        tell '(in a container, run it with --device /dev/fuse --cap-add SYS_ADMIN to see it mounted)'
    fi
    run "$yore" put -r "$work/host" "$vol:/luajit"
    run "$yore" ls "$vol:/luajit"
    step 'Putting an archive of it through a pipe, and in the middle of it: kill -9'
    mkfifo "$work/pipe"
    "$yore" put - "$vol:/archive" <"$work/pipe" &
    build=$!
    # The pipe stays open, so the archive has no end yet: the command is at work however quick it is.
    exec 3>"$work/pipe"
    tar -C "$work/host" -cf - . >&3
    kill -9 "$build" || stop 'the command ended before its input did'
    good "killed process $build"
    exec 3>&-
    wait "$build" 2>/dev/null || true
    build=
    step 'Checking, then reading everything back'
    run "$yore" check "$vol"
    good 'the checker finds nothing after the crash'
    run "$yore" get -r "$vol:/luajit" "$work/back"
    sums "$work/back" | cmp -s - "$work/host.sums" || stop 'what came back differs'
    good "all $(wc -l <"$work/host.sums") files came back the same"
    [ "$("$yore" cat "$vol:/luajit/README" | sha256sum)" = "$(sha256sum <"$work/host/README")" ] || stop 'yore cat differs'
    "$yore" rm "$vol:/archive" 2>/dev/null || true
    run "$yore" put -r "$work/host" "$vol:/second"
    run "$yore" check "$vol"
    good 'and a second copy goes through'
    the_past "$vol:/luajit" copy_by_command
    run "$yore" check "$vol"
    good 'the checker finds nothing'
}

if [ "$fuse" = yes ]; then demo_by_mount; else demo_by_commands; fi
step "${green}That was the demo. The volume was one file, $(du -h "$vol" | cut -f 1) of it used; it is removed now.${off}"
