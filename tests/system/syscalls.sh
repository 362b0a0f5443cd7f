#!/usr/bin/env bash
# An ordinary user at work at random on root's mount: every call on files there is, from two processes, while a third one
# takes snapshots, sets policies, rolls back, undoes, restores, forgets. Once with room, once with policies, once on a volume that is
# too small for all of it. Nothing hangs, fails for reasons that are none of the user's, or stays half done; the log has
# no complaint, and the checker is content.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_root
[ "$BACKEND" = yore ] || { skip "all of syscalls: it is about commands that $BACKEND has not"; exit 0; }
SECONDS_EACH=${SECONDS_EACH:-$(( ${BUDGET:-24} / 3 ))}
USER_ID=${USER_ID:-1000}

# What the daemon may complain of: nothing, but on the full volume for what fullness stopped, and its end.
complaints() { grep -E ' (WARN|ERROR) ' "$WORK/daemon.log" | grep -v -E "$1"; }
no_complaints() { ! complaints "$1"; }
nothing_unfinished() { ! "$YORE" info "$MNT" | grep 'did not end'; }

# load NAME SIZE OPTIONS COMPLAINTS [full]
load() {
    local name=$1 size=$2 options=$3 may=$4
    : >"$WORK/daemon.log"
    volume_new "$size" "$options"
    mkdir "$MNT/owner" && chown "$USER_ID:$USER_ID" "$MNT/owner"
    [ "$name" != policies ] || "$YORE" policy "$MNT/owner" version=close keep=last:20 >/dev/null || fail "$name: a policy is set"
    # A copy, for the user may not be able to reach the helpers.
    install -m 644 "$HELPERS/syscalls.py" "$WORK/syscalls.py"
    check_lines setpriv --reuid="$USER_ID" --regid="$USER_ID" --clear-groups \
        "$PYTHON" "$WORK/syscalls.py" "$MNT/owner" "$SECONDS_EACH" "$SEED.$name" "$YORE" "${@:5}"
    check "$name: the log has no complaint" no_complaints "$may"
    [ -n "${5:-}" ] || check "$name: no rollback is left unfinished" nothing_unfinished
    check "$name: unmounts" volume_umount
    check "$name: the checker finds nothing" volume_check
    check "$name: mounts again" volume_mount
    check "$name: and can be emptied" rm -rf "$MNT/owner"
    volume_end
}

load room 16G '' '^$'
load policies 16G closes '^$'
load full 64M '' 'did not end|could not be finished|the volume is full|there is room again|forgot|no space' full
finish
