#!/usr/bin/env bash
# run.sh [NAME...]: runs the campaigns (all, or those named) on BACKEND (yore by default; ext4 to
# prove the tests themselves) and tells how long each took. Builds the binary unless YORE names one.
#
# A campaign that hangs is ended after LIMIT seconds (default 300): killing the daemon first turns every
# wait on its mount into an error, so that nothing is left behind in uninterruptible sleep.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
export BACKEND=${BACKEND:-yore} PROFILE=${PROFILE:-debug} SEED=${SEED:-$RANDOM} TEST_TMP=${TEST_TMP:-/var/tmp}
LIMIT=${LIMIT:-300}
ALL=(commands refusals daemon corners pjdfstest fsx stress full git build sqlite postgres past history samba syscalls kill)
names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${ALL[@]}")

if [ "$BACKEND" = yore ] && [ -z "${YORE:-}" ]; then
    profile=$PROFILE
    [ "$profile" = debug ] && profile=dev
    cargo build --locked --quiet --profile "$profile" -p yore-cli || exit 1
fi

failed=() results=() pid='' watch=''
trap 'kill $pid $watch 2>/dev/null; wait $pid; exit 130' INT TERM
for name in "${names[@]}"; do
    script=tests/system/$name.sh
    [ -f "$script" ] || { echo "no campaign $name; there are: ${ALL[*]}" >&2; exit 2; }
    begin=$SECONDS
    "$script" &
    pid=$!
    (
        trap 'kill "$!" 2>/dev/null; exit' TERM
        sleep "$LIMIT" &
        wait
        echo "  FAILED   $name took more than $LIMIT s: ended"
        for file in "$TEST_TMP/yore-$name".*/daemon.pid; do
            [ -e "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null
        done
        sleep 20
        kill "$pid" 2>/dev/null
    ) &
    watch=$!
    if wait "$pid"; then verdict=ok; else verdict=FAILED; failed+=("$name"); fi
    kill "$watch" 2>/dev/null
    wait "$watch" 2>/dev/null
    results+=("$(printf '%-12s %-7s %4d s' "$name" "$verdict" $((SECONDS - begin)))")
    echo
done

printf '%s\n' "${results[@]}" "$(printf '%-12s %-7s %4d s' 'all' "$([ ${#failed[@]} = 0 ] && echo ok || echo FAILED)" "$SECONDS")"
printf 'system tests on %s, seed %s: %d passed, %d failed%s\n' "$BACKEND" "$SEED" \
    $((${#names[@]} - ${#failed[@]})) ${#failed[@]} "${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} = 0 ]
