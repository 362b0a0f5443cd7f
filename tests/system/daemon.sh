#!/usr/bin/env bash
# The life of the daemon: a dead one is replaced by the next mount, signals unmount cleanly, mount(8) and
# fstab know the type, an ordinary user can do all of it, and umount waits for nobody who is not there.
. "$(dirname "$0")/../lib.sh"
begin "$@"
[ "$BACKEND" = yore ] || { skip "all of daemon: it is about the yore daemon, not a mounted $BACKEND"; exit 0; }

helper=/sbin/mount.fuse.yore
campaign_cleanup() {
    [ -n "${installed:-}" ] && rm -f "$helper"
    [ -n "${own:-}" ] && mountpoint -q "$own/mnt" && umount -l "$own/mnt"
}

volume_new 256M
mounts() { grep -c " $MNT " /proc/self/mounts; }

# --- death
echo before >"$MNT/file" && sync "$MNT/file" "$MNT"
volume_crash
check 'a dead mount says so' bash -c '! ls "$1" 2>/dev/null' - "$MNT"
check 'yore mount replaces the mount of a dead daemon' volume_mount
check 'exactly one mount is there' [ "$(mounts)" = 1 ]
check 'what was synced is there' grep -q before "$MNT/file"
exec 9<"$MNT/file"
volume_crash
check 'yore mount replaces a dead mount that is still in use' volume_mount
check 'exactly one mount is there' [ "$(mounts)" = 1 ]
exec 9<&-
volume_crash
check 'yore umount clears away a dead mount' "$YORE" umount "$MNT"
check 'nothing is mounted' not_mounted "$MNT"
check 'the checker finds nothing' volume_check
check 'mounts' volume_mount

# --- signals
for signal in TERM INT HUP; do
    echo "$signal" >"$MNT/$signal"
    pid=$DAEMON
    kill -"$signal" "$pid"
    check "SIG$signal ends the daemon" wait_until 30 gone "$pid"
    check "SIG$signal unmounts" wait_until 10 not_mounted "$MNT"
    check "SIG$signal leaves a clean volume" volume_check
    check "mounts after SIG$signal" volume_mount
    check "what was written before SIG$signal is there" grep -q "$signal" "$MNT/$signal"
done

# --- umount in all its ways
check 'umount(8) unmounts' umount "$MNT"
check 'the daemon ends after umount(8)' wait_until 30 gone "$DAEMON"
DAEMON=
check 'the checker finds nothing' volume_check
check 'mounts' volume_mount
exec 9>"$MNT/busy"
check 'umount of a busy mount is refused' bash -c '! "$1" umount "$2" 2>"$3/err" && grep -q -i busy "$3/err"' - "$YORE" "$MNT" "$WORK"
check 'and the mount still works' touch "$MNT/x"
exec 9>&-
check 'unmounts when no longer busy' volume_umount
check 'mounts read-only' volume_mount ro
check 'ro refuses writes' bash -c '! touch "$1/y" 2>/dev/null' - "$MNT"
check 'unmounts' volume_umount

# --- in the foreground
"$YORE" mount "$VOL" "$MNT" --foreground >"$WORK/foreground.out" 2>&1 &
foreground=$!
child $foreground
check 'mounts with --foreground' wait_until 30 mountpoint -q "$MNT"
kill -TERM $foreground
check 'SIGTERM ends it with status 0' wait $foreground
check 'and unmounts' not_mounted "$MNT"
CHILDREN=()

# --- from another directory, by relative names
check 'relative names work' bash -c 'cd "$1" && "$2" mount volume.yore mnt && grep -q before mnt/file && "$2" umount mnt' - "$WORK" "$YORE"

# --- mount(8)
if [ "$(id -u)" = 0 ]; then
    if [ ! -e "$helper" ]; then ln -s "$YORE" "$helper" && installed=1; fi
    check 'mount -t fuse.yore' mount -t fuse.yore -o noatime,allow_other "$VOL" "$MNT"
    check 'it is mounted, as fuse.yore' bash -c '[ "$(findmnt -n -o FSTYPE "$1")" = fuse.yore ]' - "$MNT"
    check 'with noatime' bash -c 'findmnt -n -o OPTIONS "$1" | grep -q noatime' - "$MNT"
    check 'the source is the volume' bash -c '[ "$(findmnt -n -o SOURCE "$1")" = "$2" ]' - "$MNT" "$VOL"
    check 'it works' grep -q before "$MNT/file"
    check 'mount -o remount,ro' mount -o remount,ro "$MNT"
    check 'then writes are refused' bash -c '! touch "$1/z" 2>/dev/null' - "$MNT"
    check 'mount -o remount,rw' mount -o remount,rw "$MNT"
    check 'then writes are taken' touch "$MNT/z"
    check 'umount' umount "$MNT"
    printf '%s %s fuse.yore defaults,nofail,_netdev,x-systemd.automount,commit=7 0 0\n' "$VOL" "$MNT" >"$WORK/fstab"
    check 'by fstab: mount -T fstab -a' mount -T "$WORK/fstab" -a
    check 'it is mounted' mountpoint -q "$MNT"
    check 'a second mount -a changes nothing' mount -T "$WORK/fstab" -a
    check 'exactly one mount is there' [ "$(mounts)" = 1 ]
    check 'umount' umount "$MNT"
    wait_until 30 "$YORE" check "$VOL"
    check 'the checker finds nothing' volume_check
else
    skip 'mount -t fuse.yore: needs root'
fi

# --- an ordinary user
if [ "$(id -u)" = 0 ] && id tests >/dev/null 2>&1 && command -v fusermount3 >/dev/null; then
    open_fuse_to_all
    own=$WORK/own
    mkdir "$own" "$own/mnt" && chown -R tests "$own"
    chmod 755 "$own"
    as_user() { timeout -k 5 60 runuser -u tests -- "$@"; }
    check 'an ordinary user: mkfs' as_user "$YORE" mkfs "$own/v.yore" --size 64M
    check 'an ordinary user: mount' as_user "$YORE" mount "$own/v.yore" "$own/mnt"
    check 'an ordinary user: the root of the volume is his' [ "$(as_user stat -c %U "$own/mnt")" = tests ]
    check 'an ordinary user: write and read' as_user sh -c 'mkdir "$1/d" && echo mine >"$1/d/f" && grep -q mine "$1/d/f"' - "$own/mnt"
    check 'an ordinary user: others are kept out' bash -c '! ls "$1" 2>/dev/null' - "$own/mnt"
    mkdir "$own/then" && chown tests "$own/then"
    check 'an ordinary user: a snapshot' as_user "$YORE" snapshot "$own/mnt" -n then
    as_user sh -c 'echo other >"$1/d/f"' - "$own/mnt"
    check 'an ordinary user: mounts it beside' as_user "$YORE" mount "$own/v.yore" "$own/then" --at then
    check 'an ordinary user: it is as it was' as_user grep -q mine "$own/then/d/f"
    check 'an ordinary user: one daemon serves both' [ "$(pgrep -c -u tests -f "^$YORE mount")" = 1 ]
    check 'an ordinary user: unmounts it' as_user "$YORE" umount "$own/then"
    check 'root: asks his daemon for it' "$YORE" mount "$own/v.yore" "$own/then" --at then
    check 'root: it is his' as_user grep -q mine "$own/then/d/f"
    check 'an ordinary user: unmounts that, too' as_user "$YORE" umount "$own/then"
    check 'another user: is not even heard' bash -c '! runuser -u nobody -- "$1" mount "$2" "$3" --at then' - "$YORE" "$own/v.yore" "$own/then"
    pid=$(as_user "$YORE" info --json "$own/v.yore" | "$PYTHON" -c 'import json,sys; print(json.load(sys.stdin)["pid"])')
    check 'an ordinary user: the daemon is his' [ "$(stat -c %U "/proc/${pid:-0}" 2>/dev/null)" = tests ]
    kill -9 "${pid:-0}" 2>/dev/null
    wait_until 20 gone "${pid:-0}"
    check 'an ordinary user: replaces the mount of his dead daemon' as_user "$YORE" mount "$own/v.yore" "$own/mnt"
    check 'an ordinary user: umount' as_user "$YORE" umount "$own/mnt"
    check 'an ordinary user: check' as_user "$YORE" check "$own/v.yore"
    check 'an ordinary user: nothing stays mounted' not_mounted "$own/mnt"
elif [ "$(id -u)" != 0 ]; then
    skip 'a mount as another user: needs root to become one (the whole script ran as an ordinary user, though)'
else
    skip 'a mount as an ordinary user: no user `tests` or no fusermount3 (scripts/install-deps.sh test)'
fi
finish
