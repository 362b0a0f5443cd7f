#!/usr/bin/env bash
# The library commands, on a volume that is not mounted: what they put in is what a mount sees, and back.
# Needs no FUSE but for the last part.
. "$(dirname "$0")/../lib.sh"
{ [ -r /dev/fuse ] && [ -w /dev/fuse ]; } || NO_FUSE=1
if [ "${NO_FUSE:-}" = 1 ]; then find_yore() { YORE=$(realpath "${YORE:-$TARGET/${PROFILE:-debug}/yore}"); }; fi
begin "$@"
[ "$BACKEND" = yore ] || { skip "all of commands: it is about the yore command, not a mounted $BACKEND"; exit 0; }

VOL=$WORK/volume.yore MNT=$WORK/mnt VOLUME_OPTIONS=
mkdir "$MNT" "$WORK/tree" "$WORK/tree/sub" "$WORK/tree/empty"
head -c 3000000 /dev/urandom >"$WORK/tree/large"
printf 'small\n' >"$WORK/tree/sub/small"
: >"$WORK/tree/sub/nothing"
printf 'odd\n' >"$WORK/tree/sub/$(printf 'a name\nof two: lines')"
ln -s sub/small "$WORK/tree/link"

same() { diff -r --no-dereference "$1" "$2"; }
out_is() { local want=$1; shift; [ "$("$@")" = "$want" ]; }

check mkfs "$YORE" mkfs "$VOL" --size 128M
check 'info tells the size' bash -c '"$1" info "$2" | grep -q -i 128' - "$YORE" "$VOL"
check 'info --json is JSON' bash -c '"$1" info --json "$2" | "$3" -m json.tool' - "$YORE" "$VOL" "$PYTHON"
check 'put of a file' "$YORE" put "$WORK/tree/large" "$VOL:/large"
check 'cat' bash -c '"$1" cat "$2:/large" | cmp - "$3"' - "$YORE" "$VOL" "$WORK/tree/large"
check 'mkdir' "$YORE" mkdir "$VOL:/dir"
check 'put -r of a tree' "$YORE" put -r "$WORK/tree" "$VOL:/dir/tree"
check 'get -r of the tree' "$YORE" get -r "$VOL:/dir/tree" "$WORK/back"
check 'it came back the same' same "$WORK/tree" "$WORK/back"
check 'ls' bash -c '"$1" ls "$2:/dir/tree" | grep -q large' - "$YORE" "$VOL"
check 'find' bash -c '"$1" find "$2:/" | grep -q sub/small' - "$YORE" "$VOL"
check 'stat' bash -c '"$1" stat "$2:/large" | grep -q 3000000' - "$YORE" "$VOL"
check 'cp within the volume' "$YORE" cp "$VOL:/large" "$VOL:/copy"
check 'the copy is the same' bash -c '"$1" cat "$2:/copy" | cmp - "$3"' - "$YORE" "$VOL" "$WORK/tree/large"
check 'rm' "$YORE" rm "$VOL:/copy"
check 'it is gone' bash -c '! "$1" cat "$2:/copy" 2>/dev/null' - "$YORE" "$VOL"
check 'df' bash -c '"$1" df "$2" | grep -q "%"' - "$YORE" "$VOL"
check 'check' "$YORE" check "$VOL"
if [ "${NO_FUSE:-}" = 1 ]; then
    skip 'the same through a mount: no /dev/fuse, or none for this user'
    finish
fi
check 'mounts' volume_mount
check 'a mount sees what was put' same "$WORK/tree" "$MNT/dir/tree"
cp -a "$WORK/tree" "$MNT/by-mount"
check 'unmounts' volume_umount
check 'get -r of what was written through the mount' "$YORE" get -r "$VOL:/by-mount" "$WORK/back2"
check 'it came back the same' same "$WORK/tree" "$WORK/back2"
check 'rm -r' "$YORE" rm -r "$VOL:/dir"
check 'the checker finds nothing' "$YORE" check "$VOL"
finish
