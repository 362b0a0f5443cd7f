#!/usr/bin/env bash
# Rounds of crashes under load: four writers acknowledge each step in a log on the host once its fsync has
# returned, each with a second thread whose changes nobody syncs (helpers/ackwriter.py says what each step may
# leave behind); the daemon is killed after a random number of steps, or some seconds. Each time, the volume checks clean as it
# lies, mounts without repair, and everything acknowledged is there. The writers go on in the same tree, so damage
# of one round shows in another; it is kept at a size that lets a campaign go on for hours (BUDGET).
. "$(dirname "$0")/../lib.sh"
begin "$@"
can_crash || { skip 'all of kill: a directory cannot be crashed'; exit 0; }
ROUNDS=${ROUNDS:-20}
WRITERS=${WRITERS:-4}
deadline=$((SECONDS + ${BUDGET:-0}))
RANDOM=$((SEED % 32768))

steps() { cat "$WORK"/log.* 2>/dev/null | grep -c '^A'; }
steps_reached() { [ "$(steps)" -ge "$1" ] || ! alive; }
alive() { local pid; for pid in "${writers[@]}"; do kill -0 "$pid" 2>/dev/null || return 1; done; }

total=0
POLICY=usual
volume_new 1G
for ((round = 1; round <= ROUNDS || SECONDS < deadline; round++)); do
    writers=()
    for ((w = 0; w < WRITERS; w++)); do
        "$PYTHON" "$HELPERS/ackwriter.py" write "$MNT/w$w" "$WORK/log.$w" "$SEED.$round" 2>"$WORK/writer.$w.err" &
        writers+=($!)
        child $!
    done
    goal=$((20 + RANDOM % 300))
    # On a slow machine a round ends before: twenty shall not take more than three minutes.
    wait_until 4 steps_reached "$goal" || wait_until 60 steps_reached 20 || fail "round $round: 20 steps in 60 s" "$(steps) done"
    alive || fail "round $round: the writers run until the crash" "$(cat "$WORK"/writer.*.err | tail -n 1)"
    volume_crash
    for w in "${!writers[@]}"; do
        wait "${writers[$w]}" || fail "round $round: writer $w ends with the file system" "$(tail -n 1 "$WORK/writer.$w.err")"
    done
    CHILDREN=()
    total=$((total + $(steps)))
    # Half of the rounds the checker sees the volume as the crash left it. (ext4 has a journal to replay first.)
    if [ "$BACKEND" = yore ] && ((round % 2)); then
        check "round $round: the checker finds nothing after the crash" volume_check
    fi
    check "round $round: mounts" volume_recover || break
    for ((w = 0; w < WRITERS; w++)); do
        check "round $round: all that writer $w had acknowledged is there" \
            "$PYTHON" "$HELPERS/ackwriter.py" verify "$MNT/w$w" "$WORK/log.$w"
    done
    if ((round % 2 == 0)); then volume_cycle "round $round: "; fi
done
say "$total acknowledged steps in $((round - 1)) rounds"
volume_end
finish
