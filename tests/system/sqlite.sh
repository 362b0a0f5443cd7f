#!/usr/bin/env bash
# SQLite with a write-ahead log and with a rollback journal: a workload that ends well, then writers that
# are crashed in the middle of transactions. Every transaction whose COMMIT returned under
# synchronous=EXTRA is there afterwards, none by half, and PRAGMA integrity_check is content.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command sqlite3
ROUNDS=${ROUNDS:-3}
deadline=$((SECONDS + ${BUDGET:-0}))

volume_new 1G
sound() { [ "$(sqlite3 "$1" 'PRAGMA integrity_check')" = ok ]; }
sum_of() { sqlite3 "$1" 'SELECT count(*), sum(a), sum(length(b)) FROM t'; }

for mode in wal delete truncate persist; do
    db=$MNT/bulk-$mode.db
    check "$mode: tables, indexes, updates, deletes" sqlite3 -bail "$db" "
        PRAGMA journal_mode=$mode; PRAGMA synchronous=NORMAL;
        CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b BLOB); CREATE INDEX ta ON t(a);
        BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            INSERT INTO t SELECT i, i * 7919 % 10007, randomblob(i % 400) FROM n; COMMIT;
        UPDATE t SET a = a + 1, b = randomblob(500) WHERE id % 7 = 0;
        DELETE FROM t WHERE id % 5 = 0;
        BEGIN; DELETE FROM t; ROLLBACK;
        VACUUM;"
    check "$mode: integrity_check" sound "$db"
    sum_of "$db" >"$WORK/sum.$mode"
done
volume_cycle
for mode in wal delete truncate persist; do
    check "$mode: the same after a remount" [ "$(sum_of "$MNT/bulk-$mode.db")" = "$(cat "$WORK/sum.$mode")" ]
    check "$mode: integrity_check after a remount" sound "$MNT/bulk-$mode.db"
done

if ! can_crash; then
    skip 'the crashes: a directory cannot be crashed'
    finish
fi
acknowledged() { local n; n=$(cat "$WORK"/ack.* 2>/dev/null | wc -l); [ "$n" -ge "$1" ]; }
for ((round = 1; round <= ROUNDS || SECONDS < deadline; round++)); do
    pids=()
    for mode in wal delete; do
        "$PYTHON" "$HELPERS/sqlite_writer.py" write "$MNT/crash-$mode.db" "$WORK/ack.$mode" "$mode" "$SEED.$round" \
            2>"$WORK/writer.$mode.err" &
        pids+=($!)
        child $!
    done
    before=$(cat "$WORK"/ack.* 2>/dev/null | wc -l)
    wait_until 60 acknowledged $((before + 100 + RANDOM % 300)) || fail "round $round: commits go on" "$(cat "$WORK"/writer.*.err)"
    for pid in "${pids[@]}"; do
        kill -0 "$pid" 2>/dev/null || fail "round $round: the writers run until the crash" "$(cat "$WORK"/writer.*.err | tail -n 1)"
    done
    volume_crash
    for pid in "${pids[@]}"; do
        wait "$pid" || fail "round $round: a writer ended otherwise than by the crash" "$(cat "$WORK"/writer.*.err | tail -n 1)"
    done
    CHILDREN=()
    check "round $round: mounts" volume_recover || finish
    for mode in wal delete; do
        check "round $round, $mode: every acknowledged transaction is there" \
            "$PYTHON" "$HELPERS/sqlite_writer.py" verify "$MNT/crash-$mode.db" "$WORK/ack.$mode" "$mode"
    done
done
say "$(cat "$WORK"/ack.* | wc -l) transactions in $((round - 1)) rounds"
volume_end
finish
