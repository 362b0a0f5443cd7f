#!/usr/bin/env bash
# The full disk: filled with files of many sizes until nothing fits, twice. What was written
# without an error is whole, before and after a remount; the full volume can be emptied, the space comes back,
# and the checker is content, full and empty.
. "$(dirname "$0")/../lib.sh"
begin "$@"
[ "$BACKEND" = dir ] && { skip 'all of full: it would fill a file system that is not its own'; exit 0; }
SIZE=${SIZE:-192M}
volume_new "$SIZE"
free_kib() { df -k --output=avail "$MNT" | tail -n 1 | tr -d ' '; }
sync -f "$MNT"
first=$(free_kib)

for round in 1 2; do
    check "round $round: fills up, with no error but ENOSPC" "$PYTHON" "$HELPERS/fill.py" fill "$MNT" "$WORK/list" "$SEED.$round"
    sed 's/^/           | /' "$WORK/check.out"
    check "round $round: syncs when full" sync -f "$MNT"
    check "round $round: what was written is whole" "$PYTHON" "$HELPERS/fill.py" verify "$MNT" "$WORK/list"
    check "round $round: at least half of the volume was usable" \
        [ "$(du -s -k "$MNT" | cut -f 1)" -ge $((first / 2)) ]
    check "round $round: overwriting in place and appending to a full volume keep what is there" bash -c '
        file=$(find "$1" -type f -size +64k | sort | head -n 1); cp "$file" "$2"
        dd if="$2" of="$file" bs=4k count=8 conv=notrunc status=none || exit 1
        head -c 100000000 /dev/zero 2>/dev/null >>"$file"; cmp -n "$(stat -c %s "$2")" "$file" "$2" && truncate -r "$2" "$file"' - "$MNT" "$WORK/copy"
    check "round $round: statfs says so" [ "$(free_kib)" -lt $((first / 10)) ]
    volume_cycle "round $round, full: "
    check "round $round: whole after a remount" "$PYTHON" "$HELPERS/fill.py" verify "$MNT" "$WORK/list"
    check "round $round: can be emptied" bash -c 'rm -rf "$1"/d*' - "$MNT"
    volume_cycle "round $round, emptied: "
    sync -f "$MNT"
    check "round $round: at least nine tenths of the space is back ($(free_kib) of $first KiB)" \
        wait_until 30 bash -c '[ "$(df -k --output=avail "$1" | tail -n 1)" -ge "$2" ]' - "$MNT" $((first * 9 / 10))
done
volume_end
finish
