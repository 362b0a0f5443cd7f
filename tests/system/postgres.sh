#!/usr/bin/env bash
# PostgreSQL with its data on the volume: initdb, pgbench, a clean restart; then pgbench is crashed in
# the middle. The server must recover on what the volume kept: balances agree in all four tables, no
# transaction that a client saw committed is missing, and pg_amcheck finds every heap and index sound.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_root
need_command runuser
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$bin" ] && id postgres >/dev/null 2>&1 || { skip 'all of postgres: not installed (scripts/install-deps.sh test)'; exit 0; }
ROUNDS=${ROUNDS:-2}
deadline=$((SECONDS + ${BUDGET:-0}))

volume_new 2G
# Sockets and logs live on the host: they are not what is tested.
mkdir "$WORK/socket" "$MNT/pg" && chown postgres "$WORK/socket" "$MNT/pg" && chmod 700 "$MNT/pg"
data=$MNT/pg/data

as_postgres() { (cd / && exec timeout 120 runuser -u postgres -- "$@"); }
query() { as_postgres "$bin/psql" -h "$WORK/socket" -d "${2:-bench}" -v ON_ERROR_STOP=1 -Atc "$1"; }
server_start() { as_postgres "$bin/pg_ctl" -D "$data" -w -t 60 -l "$WORK/socket/log" -o "-k $WORK/socket -c listen_addresses=" start; }
server_stop() { as_postgres "$bin/pg_ctl" -D "$data" -w -t 60 -m fast stop; }
# The processes of a server whose files are gone: none of them can be asked nicely.
server_kill() {
    local pid pids
    pids=$(pgrep -u postgres -f "^$bin/postgres -D $data")
    for pid in $pids $(for pid in $pids; do pgrep -P "$pid"; done); do kill -9 "$pid" 2>/dev/null; done
    wait_until 20 bash -c '! pgrep -u postgres -f "$1"' - "^$bin/postgres -D $data"
}
campaign_cleanup() { server_kill; tail -n 5 "$WORK/socket/log" 2>/dev/null | sed 's/^/           | /' | { [ "$FAILED" = 0 ] && cat >/dev/null || cat; }; }

consistent() {
    local sums
    sums=$(query 'SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
        (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)') || return 1
    echo "$sums"
    # shellcheck disable=SC2086
    [ "$(echo $sums | tr '|' '\n' | sort -u | wc -l)" = 1 ]
}
sound() { as_postgres "$bin/pg_amcheck" -h "$WORK/socket" -d bench --install-missing --heapallindexed; }
history() { query 'SELECT count(*) FROM pgbench_history'; }
history_reached() { [ "$(history 2>/dev/null || echo 0)" -ge "$1" ]; }

check 'initdb' as_postgres "$bin/initdb" -D "$data" -E UTF8 --locale=C.UTF-8 --auth=trust --data-checksums || finish
check 'starts' server_start || finish
query 'CREATE DATABASE bench' postgres >/dev/null || abort 'create database'
check 'pgbench -i' as_postgres "$bin/pgbench" -h "$WORK/socket" -i -q -s 2 bench
check 'pgbench, 4 clients, 1,000 transactions' as_postgres "$bin/pgbench" -h "$WORK/socket" -n -c 4 -j 2 -t 250 bench
check 'balances agree' consistent
check 'pg_amcheck' sound
check 'stops' server_stop
volume_cycle
check 'starts after a remount' server_start || finish
check 'all 1,000 transactions are there' [ "$(history)" = 1000 ]

if ! can_crash; then
    skip 'the crashes: a directory cannot be crashed'
    server_stop >/dev/null
    finish
fi
for ((round = 1; round <= ROUNDS || SECONDS < deadline; round++)); do
    before=$(history)
    as_postgres "$bin/pgbench" -h "$WORK/socket" -n -c 4 -j 2 -T 60 bench >"$WORK/pgbench.out" 2>&1 &
    load=$!
    child $load
    wait_until 50 history_reached $((before + 300 + RANDOM % 500)) || fail "round $round: pgbench makes progress" "$(tail -n 1 "$WORK/pgbench.out")"
    acknowledged=$(history)
    volume_crash
    server_kill
    wait "$load"
    CHILDREN=()
    check "round $round: mounts" volume_recover || finish
    # What a reboot would clear away: the dead server's lock files name a process number that may live again.
    rm -f "$data/postmaster.pid" "$WORK"/socket/.s.PGSQL.*
    check "round $round: the server recovers" server_start || finish
    check "round $round: at least the $acknowledged transactions seen before the crash" history_reached "$acknowledged"
    check "round $round: balances agree" consistent
    check "round $round: pg_amcheck" sound
done
check 'stops at the end' server_stop
volume_end
finish
