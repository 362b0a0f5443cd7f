#!/usr/bin/env bash
# POSIX, as pjdfstest understands it: every test passes. The suite runs in two parts, because the
# tests that remount read-only find the mount busy while anything else is going on:
#   385 tests in one process (13 `erofs` tests skipped), then the 13 alone: 398 on Linux.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_root
need_command pjdfstest
for user in tests nobody; do
    id "$user" >/dev/null 2>&1 || { skip "all of pjdfstest: no user $user (scripts/install-deps.sh test)"; exit 0; }
done

AT_LEAST=376
config=$HELPERS/../pjdfstest.toml

campaign_cleanup() { umount "$WORK/second" 2>/dev/null; }

volume_new 1G
mkdir "$WORK/second"
mount -t tmpfs -o size=64M second "$WORK/second" || abort 'a second file system for EXDEV'

# run CONFIG PATTERN...: results as plain text in $WORK/out.
run() {
    local config=$1
    shift
    NO_COLOR=1 timeout 600 pjdfstest -c "$config" -s "$WORK/second" -p "$MNT" -- "$@" 2>&1 \
        | sed 's/\x1b\[[0-9;]*m//g' >"$WORK/out"
    summary=$(grep '^Summary:' "$WORK/out")
    sed -n 's/^\([a-z0-9_:]*\) *ok$/\1/p' "$WORK/out" | sort >>"$WORK/passed"
    # shellcheck disable=SC2046,SC2086
    set -- $(echo "${summary:-}" | tr -dc '0-9 ')
    failed=${1:-none} skipped=${2:-none} passed=${3:-0}
    say "${summary:-no summary: $(tail -n 1 "$WORK/out")}"
    grep -A 2 -E ' (FAILED|PASSED UNEXPECTEDLY)$' "$WORK/out" | sed 's/^/           | /'
}

: >"$WORK/passed"
sed 's/^allow_remount = true/allow_remount = false/' "$config" >"$WORK/main.toml"
run "$WORK/main.toml"
check 'no test fails' [ "$failed" = 0 ]
check "at least $AT_LEAST tests pass ($passed)" [ "$passed" -ge "$AT_LEAST" ]

# mount(8) hands a remount of a fuse type to a helper; -i asks the kernel itself.
if [ "$BACKEND" != dir ]; then
    mkdir "$WORK/shim"
    printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$WORK/shim/mount"
    chmod +x "$WORK/shim/mount"
    PATH=$WORK/shim:$PATH run "$config" erofs
    check 'no read-only test fails' [ "$failed" = 0 ]
    check "all 13 read-only tests pass ($passed)" [ "$passed" -eq 13 ]
    mount -i -o remount,rw "$MNT" 2>/dev/null

    sort -u "$WORK/passed" >"$WORK/passed.sorted"
    # pathconf(3) knows no limit of links on a FUSE mount (there is no request to ask for it), and without one the
    # suite passes over link_count_max.
    sort "$HELPERS/../pjdfstest.expected" >"$WORK/expected"
    [ "$BACKEND" = ext4 ] || sed -i '/^link::link_count_max$/d' "$WORK/expected"
    check 'no test that passes on ext4 is missing' \
        bash -ec '[ -s "$1" ]; missing=$(comm -23 "$1" "$2"); echo "$missing"; [ -z "$missing" ]' - "$WORK/expected" "$WORK/passed.sorted"
    [ -z "${RECORD:-}" ] || cp "$WORK/passed.sorted" "$RECORD"
fi
volume_end
finish
