#!/usr/bin/env bash
# One file under random reads, writes, maps, truncations, holes and copies: every read returns what
# was written last. 200,000 operations over several seeds, two files at a time; then the same bytes
# after a remount. A failure names its seed: fsx -f tests/system/fsx.toml -S SEED -N OPS FILE replays it.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command fsx
OPERATIONS=${OPERATIONS:-200000}
SEEDS=${SEEDS:-4}
each=$((OPERATIONS / SEEDS))
config=$HELPERS/../fsx.toml

volume_new 1G
one() { timeout 900 fsx -f "$config" -S "$1" -N "$each" -P "$WORK" "$MNT/fsx.$1" >"$WORK/fsx.$1.out" 2>&1; }

deadline=$((SECONDS + ${BUDGET:-0}))
for ((i = 0; i < SEEDS || SECONDS < deadline; i += 2)); do
    pids=() seeds=()
    for ((j = i; j < i + 2; j++)); do
        seed=$((SEED * 100 + j))
        one "$seed" &
        pids+=($!) seeds+=("$seed")
        child $!
    done
    for n in "${!pids[@]}"; do
        if wait "${pids[$n]}"; then
            pass "$each operations, seed ${seeds[$n]}"
        else
            fail "$each operations, seed ${seeds[$n]}" "$(tail -n 1 "$WORK/fsx.${seeds[$n]}.out")"
            tail -n 15 "$WORK/fsx.${seeds[$n]}.out" | sed 's/^/           | /'
        fi
        # Of the many files of a long run only the last ones are kept.
        ((i + 2 < SEEDS)) || [ "$SECONDS" -ge "$deadline" ] || rm -f "$MNT/fsx.${seeds[$n]}"
    done
done

tree_sums "$MNT" >"$WORK/before"
volume_cycle
tree_sums "$MNT" >"$WORK/after"
check 'the files are the same after a remount' cmp "$WORK/before" "$WORK/after"
volume_end
finish
