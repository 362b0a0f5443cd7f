#!/usr/bin/env bash
# run.sh [NAME...]: runs the campaigns (all, or those named) on BACKEND (yore by default; ext4 to
# prove the tests themselves) and tells how long each took. Builds the binary unless YORE names one.
#
# A campaign that has not ended after LIMIT seconds (600, and BUDGET) hangs. scripts/limited.py shows then what its
# processes are doing, kills the daemon first, which turns every wait on the mount into an error, then all that is
# left, and unmounts what is mounted; and the next campaign begins.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
export BACKEND=${BACKEND:-yore} PROFILE=${PROFILE:-debug} SEED=${SEED:-$RANDOM}
LIMIT=${LIMIT:-$((600 + ${BUDGET:-0}))}
ALL=(commands refusals daemon corners pjdfstest fsx stress full git build sqlite postgres past history samba syscalls kill)
names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${ALL[@]}")

if [ "$BACKEND" = yore ] && [ -z "${YORE:-}" ]; then
    profile=$PROFILE
    [ "$profile" = debug ] && profile=dev
    cargo build --locked --quiet --profile "$profile" -p yore-cli || exit 1
fi

# A directory of this run's own: the same campaign may run in another one at the same time. Other users pass through. Its
# name is short (tests/lib.sh).
TEST_TMP=$(mktemp -d "${TEST_TMP:-/var/tmp}/y.XXXX") && chmod 755 "$TEST_TMP" || exit 2
export TEST_TMP
at_exit() {
    [ "${KEEP:-}" = 1 ] || timeout -k 5 60 rm -rf --one-file-system "$TEST_TMP"/*
    rmdir "$TEST_TMP" 2>/dev/null
}

failed=() results=() pid=''
trap at_exit EXIT
trap '[ -z "$pid" ] || { kill $pid 2>/dev/null; wait $pid; }; exit 130' INT TERM
for name in "${names[@]}"; do
    script=tests/system/$name.sh
    [ -f "$script" ] || { echo "no campaign $name; there are: ${ALL[*]}" >&2; exit 2; }
    begin=$SECONDS
    python3 scripts/limited.py --below "$TEST_TMP" "$LIMIT" "$name" "$script" &
    pid=$!
    if wait "$pid"; then verdict=ok; else verdict=FAILED; failed+=("$name"); fi
    results+=("$(printf '%-12s %-7s %4d s' "$name" "$verdict" $((SECONDS - begin)))")
    echo
done

printf '%s\n' "${results[@]}" "$(printf '%-12s %-7s %4d s' 'all' "$([ ${#failed[@]} = 0 ] && echo ok || echo FAILED)" "$SECONDS")"
printf 'system tests on %s, seed %s: %d passed, %d failed%s\n' "$BACKEND" "$SEED" \
    $((${#names[@]} - ${#failed[@]})) ${#failed[@]} "${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} = 0 ]
