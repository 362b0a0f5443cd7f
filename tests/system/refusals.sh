#!/usr/bin/env bash
# What yore must refuse, and how: a message on stderr that names the thing, an exit status that is
# neither a panic's (101) nor a signal's, and not a byte of the image changed.
. "$(dirname "$0")/../lib.sh"
begin "$@"
[ "$BACKEND" = yore ] || { skip "all of refusals: it is about the yore command, not a mounted $BACKEND"; exit 0; }

campaign_cleanup() {
    [ -n "${ro_dir:-}" ] && umount "$ro_dir" 2>/dev/null
    [ -n "${ro_mnt:-}" ] && mountpoint -q "$ro_mnt" && "$YORE" umount "$ro_mnt"
    [ -n "${loop:-}" ] && losetup -d "$loop"
}

sum() { sha256sum <"$1"; }

# refused NAME IMAGE PATTERN COMMAND...: fails with a message matching PATTERN, IMAGE unchanged ('' for none).
refused() {
    local name=$1 image=$2 pattern=$3 before='' status
    shift 3
    [ -n "$image" ] && [ -e "$image" ] && before=$(sum "$image")
    timeout -k 5 60 "$@" >"$WORK/out" 2>"$WORK/err"
    status=$?
    if [ "$status" = 0 ]; then
        fail "$name is refused" "exit status 0: $(head -n 1 "$WORK/out")"
    elif [ "$status" -ge 101 ]; then
        fail "$name is refused" "exit status $status: $(tail -n 2 "$WORK/err" | tr '\n' ' ')"
    elif grep -q -i -E 'panicked|RUST_BACKTRACE' "$WORK/err"; then
        fail "$name is refused" "a panic: $(head -n 2 "$WORK/err" | tr '\n' ' ')"
    elif ! grep -q -i -E -- "$pattern" "$WORK/err"; then
        fail "$name is refused with a clear message" "no match for /$pattern/ in: $(head -c 300 "$WORK/err" | tr '\n' ' ')"
    elif [ -n "$before" ] && [ "$before" != "$(sum "$image")" ]; then
        fail "$name is refused and changes nothing" 'the image changed'
    else
        pass "$name: status $status, $(head -n 1 "$WORK/err" | sed "s#$WORK/##g" | head -c 150)"
    fi
    # A mount that should not have been must not disturb what follows.
    if [ "$status" = 0 ] && [ "${2:-}" = mount ] && mountpoint -q "$4"; then umount "$4"; fi
    return 0
}

v=$WORK/v.yore
mkdir "$WORK/mnt" "$WORK/mnt2"
MNT=$WORK/mnt

# --- mkfs
refused 'mkfs of 15 MiB' '' '16 ?MiB|too small' "$YORE" mkfs "$WORK/small.yore" --size 15M
check 'nothing is left of a refused mkfs' [ ! -e "$WORK/small.yore" ]
refused 'mkfs with a size that is no size' '' 'size|banana' "$YORE" mkfs "$WORK/x.yore" --size banana
refused 'mkfs in a directory that does not exist' '' 'no such|not exist|not found' "$YORE" mkfs "$WORK/none/x.yore" --size 64M
refused 'mkfs onto a directory' '' 'directory' "$YORE" mkfs "$WORK/mnt" --size 64M
check 'mkfs of 16 MiB' "$YORE" mkfs "$WORK/least.yore" --size 16M
check 'a volume is made' "$YORE" mkfs "$v" --size 64M
printf 'kept' >"$WORK/content"
check 'put' "$YORE" put "$WORK/content" "$v:/kept"
refused 'mkfs over a volume' "$v" '--force' "$YORE" mkfs "$v" --size 64M
cp "$v" "$WORK/forced.yore"
check 'mkfs --force over a volume' "$YORE" mkfs "$WORK/forced.yore" --size 64M --force

# --- files that are no volumes
head -c 64M /dev/urandom >"$WORK/noise"
refused 'mounting a file of noise' "$WORK/noise" 'noise' "$YORE" mount "$WORK/noise" "$MNT"
refused 'checking a file of noise' "$WORK/noise" 'noise' "$YORE" check "$WORK/noise"
refused 'listing a file of noise' "$WORK/noise" 'noise' "$YORE" ls "$WORK/noise:/"
truncate -s 64M "$WORK/zeros"
refused 'mounting a file of zeros' "$WORK/zeros" 'zeros' "$YORE" mount "$WORK/zeros" "$MNT"
: >"$WORK/empty"
refused 'mounting an empty file' "$WORK/empty" 'empty' "$YORE" mount "$WORK/empty" "$MNT"
refused 'mounting what does not exist' '' 'absent.yore.*(no such|not exist|not found|there is no)' "$YORE" mount "$WORK/absent.yore" "$MNT"
refused 'mounting a directory' '' 'mnt2' "$YORE" mount "$WORK/mnt2" "$MNT"
refused 'mounting a character device' '' '/dev/null' "$YORE" mount /dev/null "$MNT"

# --- damaged or foreign volumes
for cut in 1 $((4 << 20)) $((60 << 20)) $((64 * 1024 * 1024 - 4096)); do
    cp "$v" "$WORK/truncated.yore"
    truncate -s -$cut "$WORK/truncated.yore"
    refused "mounting a volume short of $cut bytes" "$WORK/truncated.yore" 'truncated.yore' "$YORE" mount "$WORK/truncated.yore" "$MNT"
done
cp "$v" "$WORK/newer.yore"
if "$PYTHON" "$HELPERS/patch_version.py" "$WORK/newer.yore" 2>"$WORK/patch.err"; then
    refused 'mounting a volume of a newer version' "$WORK/newer.yore" 'version|newer' "$YORE" mount "$WORK/newer.yore" "$MNT"
    refused 'checking a volume of a newer version' "$WORK/newer.yore" 'version|newer' "$YORE" check "$WORK/newer.yore"
    refused 'mounting a newer version read-only' "$WORK/newer.yore" 'version|newer' "$YORE" mount "$WORK/newer.yore" "$MNT" -o ro
else
    skip "a newer version: $(tail -n 1 "$WORK/patch.err")"
fi

# --- mount points and options
refused 'a mount point that does not exist' "$v" 'none' "$YORE" mount "$v" "$WORK/none"
refused 'a mount point that is a file' "$v" 'content' "$YORE" mount "$v" "$WORK/content"
mkdir "$WORK/full" && touch "$WORK/full/file"
refused 'a mount point that is not empty' "$v" 'empty' "$YORE" mount "$v" "$WORK/full"
refused 'an unknown mount option' "$v" 'nonsense' "$YORE" mount "$v" "$MNT" -o nonsense
refused 'an unknown engine' "$v" 'nonsense' "$YORE" mount "$v" "$MNT" -o engine=nonsense
refused 'an unknown command' '' 'nonsense' "$YORE" nonsense
refused 'umount of what is not mounted' '' 'mnt2' "$YORE" umount "$WORK/mnt2"
refused 'ls of what is not there' "$v" 'absent' "$YORE" ls "$v:/absent"
refused 'get of what is not there' "$v" 'absent' "$YORE" get "$v:/absent" "$WORK/got"
refused 'put of what is not there' "$v" 'absent' "$YORE" put "$WORK/absent" "$v:/x"

# --- a volume that is in use
VOL=$v VOLUME_OPTIONS=
check 'the volume mounts after all that' volume_mount
check 'what was in it is in it' grep -q kept "$MNT/kept"
refused 'a second mount of the same volume' '' "(^|[^0-9])$DAEMON([^0-9]|\$)" "$YORE" mount "$v" "$WORK/mnt2"
ln -s v.yore "$WORK/alias.yore"
ln "$v" "$WORK/hard.yore"
refused 'a second mount by a symbolic link' '' "(^|[^0-9])$DAEMON([^0-9]|\$)" "$YORE" mount "$WORK/alias.yore" "$WORK/mnt2"
refused 'a second mount by a hard link' '' "(^|[^0-9])$DAEMON([^0-9]|\$)" "$YORE" mount "$WORK/hard.yore" "$WORK/mnt2"
refused 'put into a mounted volume file' '' "(^|[^0-9])$DAEMON([^0-9]|\$)" "$YORE" put "$WORK/content" "$v:/x"
refused 'mkfs --force of a mounted volume' '' "(^|[^0-9])$DAEMON([^0-9]|\$)" "$YORE" mkfs "$v" --size 64M --force
check 'the mount is none the worse' grep -q kept "$MNT/kept"
check 'unmounts' volume_umount
check 'the checker finds nothing' volume_check

# --- no FUSE
if [ "$(id -u)" = 0 ]; then
    # A /dev of its own, with everything but fuse.
    # shellcheck disable=SC2016
    refused 'mounting without /dev/fuse' "$v" '/dev/fuse' unshare -m sh -c '
        mkdir "$1/dev" && mount -t tmpfs none "$1/dev" || exit 0
        for node in null zero full random urandom tty; do
            touch "$1/dev/$node" && mount --bind "/dev/$node" "$1/dev/$node" || exit 0
        done
        mount --move "$1/dev" /dev || exit 0
        shift; exec "$@"' - "$WORK" "$YORE" mount "$v" "$MNT"
    # shellcheck disable=SC2016
    refused 'mounting with a /dev/fuse that is something else' "$v" 'fuse' \
        unshare -m sh -c 'mount --bind /dev/null /dev/fuse || exit 0; exec "$@"' - "$YORE" mount "$v" "$MNT"
    check 'the volume is usable without FUSE' unshare -m sh -c \
        'mount --bind /dev/null /dev/fuse; [ "$("$1" cat "$2:/kept")" = kept ]' - "$YORE" "$v"
    if command -v fusermount3 >/dev/null && id tests >/dev/null 2>&1; then
        open_fuse_to_all
        mkdir "$WORK/own" && cp "$v" "$WORK/own/" && mkdir "$WORK/own/mnt" && chown -R tests "$WORK/own"
        # shellcheck disable=SC2016
        refused 'an ordinary user without fusermount3' "$WORK/own/v.yore" 'fusermount3|permi' unshare -m sh -c \
            'mount --bind /dev/null "$(command -v fusermount3)" || exit 0; exec "$@"' - \
            runuser -u tests -- "$YORE" mount "$WORK/own/v.yore" "$WORK/own/mnt"
    fi
else
    skip 'mounting without FUSE: needs root to hide it'
fi

# --- read-only images
if [ "$(id -u)" = 0 ]; then
    ro_dir=$WORK/ro ro_mnt=$WORK/mnt2
    mkdir "$ro_dir" && cp "$v" "$ro_dir/v.yore"
    mount --bind "$ro_dir" "$ro_dir" && mount -o remount,bind,ro "$ro_dir" || abort 'a read-only directory'
    refused 'mounting a read-only image for writing' "$ro_dir/v.yore" 'read-only|ro' "$YORE" mount "$ro_dir/v.yore" "$MNT"
    before=$(sum "$ro_dir/v.yore")
    check 'a read-only image mounts with -o ro' "$YORE" mount "$ro_dir/v.yore" "$ro_mnt" -o ro
    check 'it can be read' grep -q kept "$ro_mnt/kept"
    check 'it cannot be written' bash -c '! touch "$1/x" 2>/dev/null' - "$ro_mnt"
    check 'it unmounts' "$YORE" umount "$ro_mnt"
    check 'the read-only image is unchanged' [ "$(sum "$ro_dir/v.yore")" = "$before" ]
    check 'the checker works on it' "$YORE" check "$ro_dir/v.yore"
    umount "$ro_dir"
    before=$(sum "$v")
    check 'a writable image mounts with -o ro' "$YORE" mount "$v" "$ro_mnt" -o ro
    check 'it cannot be written' bash -c '! touch "$1/x" 2>/dev/null' - "$ro_mnt"
    check 'it unmounts' "$YORE" umount "$ro_mnt"
    check 'a mount with -o ro changes nothing' [ "$(sum "$v")" = "$before" ]
else
    cp "$v" "$WORK/ro.yore" && chmod 444 "$WORK/ro.yore"
    refused 'mounting a read-only image for writing' "$WORK/ro.yore" 'read-only|permission|ro' "$YORE" mount "$WORK/ro.yore" "$MNT"
fi

# --- a block device is a volume as well, and is refused when something else has it
if [ "$(id -u)" = 0 ]; then
    cp "$v" "$WORK/disk.img"
    if loop=$(losetup -f --show "$WORK/disk.img" 2>/dev/null); then
        VOL=$loop
        check 'a block device mounts' volume_mount
        check 'what was in it is in it' grep -q kept "$MNT/kept"
        refused 'a second mount of the block device' '' "(^|[^0-9])$DAEMON([^0-9]|\$)" "$YORE" mount "$loop" "$WORK/mnt2"
        check 'it unmounts' volume_umount
        check 'the checker reads the device' volume_check
        losetup -d "$loop" && loop=
        VOL=
    else
        loop=
        skip 'a block device: no loop device to be had'
    fi
fi
finish
