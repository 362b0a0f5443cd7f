# shellcheck shell=bash
# What every system test shares: a volume to work on, counting, and cleaning up.
#
# A campaign is a script in tests/system/ that sources this file, asks for a volume and makes
# promises about it with `check`. It never says which file system it runs on. BACKEND does:
#
#   yore   (default) a fresh volume file, mounted by the `yore` binary;
#   ext4   a fresh image on a loop device. A campaign that fails here has a wrong test, not a found bug;
#   dir    the directory given as the script's first argument, whatever is mounted there. What needs
#          a crash or a fresh volume is then skipped.
#
# A crash is made as hard as each backend allows: `kill -9` of the daemon for yore, the file
# system's own shutdown ioctl (log not flushed) for ext4.
#
# Rules that hold for all of them: whatever way a script ends, its volumes are unmounted and its files
# are gone (KEEP=1 keeps them); a thing that cannot be tested here prints SKIPPED, and with CI=true a
# skip is a failure; the last line is `NAME: N passed, M failed, K skipped` and the exit status says the same.
#
# ENGINE and JOURNAL say what kind of volume yore makes: ENGINE=journal; JOURNAL=elsewhere, with the log on a file beside it.
#
# Environment: YORE (binary), BACKEND, TEST_TMP (where volumes are put, /var/tmp), SEED (replays random
# choices), BUDGET (seconds, for campaigns that can go on longer), KEEP, CI, MOUNT_OPTIONS (added to every mount).

set -uo pipefail
export LC_ALL=C.UTF-8

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
HELPERS=$ROOT/tests/system/helpers
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
TOOLS=${TOOLS:-$TARGET/tools}
BACKEND=${BACKEND:-yore}
TEST_TMP=${TEST_TMP:-/var/tmp}
SEED=${SEED:-$RANDOM}
export SEED
CAMPAIGN=$(basename "$0" .sh)
PYTHON=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}
PATH=$TOOLS/bin:$PATH:/usr/sbin:/sbin

PASSED=0 FAILED=0 SKIPPED=0
WORK='' VOL='' MNT='' DAEMON='' MOUNTED_ONCE=0
CHILDREN=()

# --- counting ------------------------------------------------------------------------------------

pass() { PASSED=$((PASSED + 1)); printf '  ok       %s\n' "$1"; }

# fail NAME [REASON]
fail() {
    FAILED=$((FAILED + 1))
    printf '  FAILED   %s%s\n' "$1" "${2:+: $2}"
}

# A thing that cannot be tested here. Loud everywhere, and a failure where nobody reads the output.
skip() {
    SKIPPED=$((SKIPPED + 1))
    printf '  SKIPPED: %s\n' "$1"
    if [ "${CI:-}" = true ]; then fail "$1" 'skipped, and CI=true forbids skipping'; fi
}

# check NAME COMMAND...: passes when the command succeeds, otherwise shows the end of what it said.
check() {
    local name=$1 status
    shift
    "$@" >"$WORK/check.out" 2>&1 && status=0 || status=$?
    if [ "$status" = 0 ]; then
        pass "$name"
    else
        fail "$name" "exit status $status"
        tail -n 25 "$WORK/check.out" | sed 's/^/           | /'
    fi
    return "$status"
}

# Runs a helper that prints `ok - NAME` and `not ok - NAME: REASON` lines, and counts them as its own.
check_lines() {
    local line status count=0
    "$@" >"$WORK/lines.out" 2>"$WORK/lines.err" && status=0 || status=$?
    while IFS= read -r line; do
        case $line in
            'ok - '*) pass "${line#ok - }"; count=$((count + 1)) ;;
            'not ok - '*) fail "${line#not ok - }"; count=$((count + 1)) ;;
            'skip - '*) skip "${line#skip - }" ;;
            *) printf '           | %s\n' "$line" ;;
        esac
    done <"$WORK/lines.out"
    if [ "$status" != 0 ] || [ "$count" = 0 ]; then
        fail "$(basename -- "$2") ran to its end" "exit status $status after $count checks"
        tail -n 25 "$WORK/lines.err" | sed 's/^/           | /'
    fi
}

say() { printf '  ........ %s\n' "$*"; }

# Ends the script when the rest would make no sense.
abort() {
    fail "$1" "${2:-cannot go on}"
    exit 1
}

finish() { exit 0; }

# --- beginning and end -----------------------------------------------------------------------------

# begin [DIR]: call it first, with the script's own arguments.
begin() {
    if [ -n "${1:-}" ]; then
        BACKEND=dir
        [ -d "$1" ] || { echo "$CAMPAIGN: $1 is not a directory" >&2; exit 2; }
    fi
    # Short, for what is mounted there has sockets, whose paths have 107 bytes at most.
    WORK=$(mktemp -d "$TEST_TMP/$CAMPAIGN.XXX") || exit 2
    # Other users (postgres, the unprivileged mount) must be able to get through.
    chmod 755 "$WORK"
    trap on_exit EXIT
    trap 'exit 130' INT TERM HUP
    printf '%s on %s, seed %s\n' "$CAMPAIGN" "$BACKEND${1:+ $1}${ENGINE:+, engine $ENGINE}${JOURNAL:+, log $JOURNAL}" "$SEED"
    case $BACKEND in
        yore) find_yore ;;
        ext4) need_root; need_command mkfs.ext4 ;;
        dir) MNT=$(mktemp -d "$1/yore-$CAMPAIGN.XXXXXX") || exit 2; chmod 755 "$MNT" ;;
        *) echo "unknown BACKEND $BACKEND (yore, ext4 or a directory as the first argument)" >&2; exit 2 ;;
    esac
}

# The binary is copied, so that a rebuild during the test changes nothing and other users can reach it.
find_yore() {
    if [ ! -c /dev/fuse ]; then
        skip "all of $CAMPAIGN: there is no /dev/fuse here"
        exit 0
    fi
    if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
        skip "all of $CAMPAIGN: /dev/fuse is not open to $(id -un) (root can say: chmod 666 /dev/fuse)"
        exit 0
    fi
    local from=${YORE:-$TARGET/${PROFILE:-debug}/yore}
    [ -x "$from" ] || { echo "$CAMPAIGN: no binary at $from: build it or set YORE" >&2; exit 2; }
    mkdir -p "$WORK/bin" && cp "$from" "$WORK/bin/yore" && chmod 755 "$WORK/bin" "$WORK/bin/yore" || exit 2
    YORE=$WORK/bin/yore
}

# shellcheck disable=SC2317  # called by the trap
on_exit() {
    local status=$?
    trap - EXIT INT TERM HUP
    local pid
    for pid in "${CHILDREN[@]:-}"; do
        [ -n "$pid" ] && kill_tree "$pid"
    done
    wait 2>/dev/null
    declare -F campaign_cleanup >/dev/null && campaign_cleanup
    if [ "$FAILED" != 0 ] && [ -s "$WORK/daemon.log" ]; then
        echo '           | the end of the daemon log:'
        tail -n 30 "$WORK/daemon.log" | sed 's/^/           | /'
    fi
    volume_detach
    [ -z "${FUSE_MODE:-}" ] || chmod "$FUSE_MODE" /dev/fuse
    if [ "${KEEP:-}" = 1 ] && [ "$BACKEND" != dir ]; then
        echo "  kept: $WORK"
    else
        [ "$BACKEND" = dir ] && rm -rf "$MNT"
        rm -rf --one-file-system "$WORK"
    fi
    if [ "$status" != 0 ] && [ "$FAILED" = 0 ]; then
        fail "$CAMPAIGN ran to its end" "stopped with status $status"
    fi
    if [ $((PASSED + FAILED + SKIPPED)) = 0 ]; then fail "$CAMPAIGN checked something"; fi
    printf '%s: %d passed, %d failed, %d skipped\n' "$CAMPAIGN" "$PASSED" "$FAILED" "$SKIPPED"
    [ "$FAILED" = 0 ] || exit 1
    exit 0
}

# Skips the whole campaign unless the condition holds.
need_root() {
    if [ "$(id -u)" != 0 ]; then
        skip "all of $CAMPAIGN: it needs root"
        exit 0
    fi
}

need_command() {
    local command
    for command; do
        if ! command -v "$command" >/dev/null; then
            skip "all of $CAMPAIGN: $command is not installed (scripts/install-deps.sh test)"
            exit 0
        fi
    done
}

# Ordinary users may open /dev/fuse on every system with udev; where nobody has seen to that, it is
# granted for as long as the script runs. Root only.
open_fuse_to_all() {
    FUSE_MODE=$(stat -c %a /dev/fuse)
    case $FUSE_MODE in *6) FUSE_MODE= ;; *) say "/dev/fuse is $FUSE_MODE: opened to all for this test"; chmod a+rw /dev/fuse ;; esac
}

# Remembers a background process, to be ended whatever happens.
child() { CHILDREN+=("$1"); }

# wait_until SECONDS COMMAND...: polls a condition; fails when it does not come true in time.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

# A process and all it started.
tree_of() {
    local below
    echo "$1"
    for below in $(pgrep -P "$1"); do tree_of "$below"; done
}
# From the top, so that nobody is there to start more.
kill_tree() {
    local pid
    for pid in $(tree_of "$1"); do kill -9 "$pid" 2>/dev/null; done
}
stopped() { [ ! -e "/proc/$1" ] || grep -q '^State:.[TtZ]' "/proc/$1/status"; }

gone() { ! kill -0 "$1" 2>/dev/null; }
not_mounted() { ! mountpoint -q "$1"; }

# --- the volume --------------------------------------------------------------------------------------

# volume_new SIZE [OPTIONS]: a fresh volume, mounted at $MNT. On `dir`, the directory given.
volume_new() {
    VOLUME_OPTIONS=${2:-}
    [ "$BACKEND" = dir ] && return 0
    volume_drop
    MNT=$WORK/mnt
    mkdir -p "$MNT"
    case $BACKEND in
        yore)
            VOL=$WORK/volume.yore
            # POLICY=usual: as people get it. Most campaigns take their snapshots themselves, or compare what is free.
            local policy=(--policy none)
            [ "${POLICY:-none}" = usual ] && policy=()
            local kind=(${ENGINE:+--engine "$ENGINE"})
            case ${JOURNAL:-inside} in
                inside) ;;
                elsewhere) rm -f "$VOL.log"; kind+=(--journal "$VOL.log") ;;
                *) abort "JOURNAL is inside or elsewhere, not $JOURNAL" ;;
            esac
            "$YORE" mkfs "$VOL" --size "$1" "${policy[@]}" "${kind[@]}" >"$WORK/mkfs.out" 2>&1 || { cat "$WORK/mkfs.out"; abort "yore mkfs $1"; }
            ;;
        ext4)
            VOL=$WORK/volume.ext4
            truncate -s "$1" "$VOL" && mkfs.ext4 -q -F -m 0 -E lazy_itable_init=0 "$VOL" || abort "mkfs.ext4 $1"
            ;;
    esac
    volume_mount || abort "the new volume mounts"
    chmod 755 "$MNT"
}

# volume_mount [OPTIONS]: mounts $VOL at $MNT. Also the way back after volume_crash.
volume_mount() {
    local options=${1:-$VOLUME_OPTIONS}
    options=${options:+$options,}${MOUNT_OPTIONS:+$MOUNT_OPTIONS,}
    case $BACKEND in
        dir) return 0 ;;
        yore)
            [ "$(id -u)" = 0 ] && options=${options}allow_other,
            timeout -k 5 120 "$YORE" mount "$VOL" "$MNT" -o "${options}log=$WORK/daemon.log" >"$WORK/mount.out" 2>&1 \
                || { sed 's/^/           | /' "$WORK/mount.out"; return 1; }
            mountpoint -q "$MNT" || { echo "           | yore mount returned 0 but nothing is mounted"; return 1; }
            DAEMON=$(daemon_pid "$VOL" "$MNT")
            [ -n "$DAEMON" ] || { echo '           | cannot tell which process serves the mount'; return 1; }
            echo "$DAEMON" >"$WORK/daemon.pid"
            ;;
        ext4) mount -o "${options}loop" "$VOL" "$MNT" ;;
    esac
    MOUNTED_ONCE=1
}

# The process that serves a mount: what `yore info --json` says, else who was started with that volume.
daemon_pid() {
    local pid
    pid=$(timeout 10 "$YORE" info --json "$1" 2>/dev/null \
        | "$PYTHON" -c 'import json,sys; print(json.load(sys.stdin).get("pid") or "")' 2>/dev/null)
    [ -n "$pid" ] || pid=$(pgrep -n -f -- "^$YORE mount .*$2")
    echo "$pid"
}

# A clean unmount. The daemon must be gone afterwards.
volume_umount() {
    case $BACKEND in
        dir) sync ;;
        yore)
            timeout -k 5 120 "$YORE" umount "$MNT" || return 1
            [ -z "$DAEMON" ] || wait_until 60 gone "$DAEMON" || { echo "daemon $DAEMON still runs after umount"; return 1; }
            DAEMON=
            ;;
        ext4) wait_until 20 umount "$MNT" ;;
    esac
}

can_crash() { [ "$BACKEND" != dir ]; }

# The crash. Processes that use the mount get errors from here on; volume_mount brings it back.
volume_crash() {
    case $BACKEND in
        yore)
            kill -9 "$DAEMON" || abort "the daemon $DAEMON was alive to be killed"
            wait_until 30 gone "$DAEMON" || abort "the daemon $DAEMON dies of kill -9"
            DAEMON=
            ;;
        ext4)
            # An fsync that runs into ext4's shutdown can return 0 without having kept its promise: the
            # journal's thread drops the aborted transaction, and the waiter finds nothing to wait for. So
            # nobody is in one: the campaign's processes are stopped meanwhile.
            local pid pids
            pids=$(for pid in "${CHILDREN[@]}"; do tree_of "$pid"; done)
            for pid in $pids; do kill -STOP "$pid" 2>/dev/null; done
            for pid in $pids; do wait_until 30 stopped "$pid"; done
            "$PYTHON" "$HELPERS/shutdown.py" "$MNT" || abort "ext4 shutdown"
            for pid in $pids; do kill -CONT "$pid" 2>/dev/null; done
            ;;
    esac
}

# After volume_crash, once those who used the mount have gone. yore must replace the dead mount itself.
volume_recover() {
    if [ "$BACKEND" = ext4 ]; then wait_until 20 umount "$MNT" || abort "the shut-down ext4 unmounts"; fi
    volume_mount
}

# The checker on the unmounted volume: nothing found. After a crash under an engine that orders changes a repair comes
# first, for such an engine leaves leaks and counts that are too high.
volume_check() {
    case $BACKEND in
        dir) return 0 ;;
        yore)
            case ${ENGINE:-} in
                soft-updates | sync)
                    timeout -k 5 300 "$YORE" check "$VOL" >/dev/null && return 0
                    timeout -k 5 300 "$YORE" check --repair --undo-file "$WORK/undo.$RANDOM" "$VOL" >"$WORK/repair.log" 2>&1
                    cat "$WORK/repair.log" | tail -n 25
                    ;;
            esac
            timeout -k 5 300 "$YORE" check "$VOL"
            ;;
        # A replayed journal is what mount leaves behind; -n changes nothing.
        ext4) e2fsck -f -n "$VOL" ;;
    esac
}

# Unmount, check, mount again: what a campaign ends with, and may do in between.
volume_cycle() {
    check "${1:-}unmounts" volume_umount || return 1
    [ "$BACKEND" = dir ] || check "${1:-}the checker finds nothing" volume_check
    check "${1:-}mounts again" volume_mount
}

volume_end() {
    check 'unmounts at the end' volume_umount
    [ "$BACKEND" = dir ] || check 'the checker finds nothing at the end' volume_check
}

# By force, quietly: only for the ends of scripts.
volume_detach() {
    [ "$BACKEND" = dir ] && return 0
    [ -n "$MNT" ] && [ "$MOUNTED_ONCE" = 1 ] || return 0
    if mountpoint -q "$MNT" 2>/dev/null || [ -n "$DAEMON" ]; then
        if [ "$BACKEND" = yore ]; then
            timeout -k 2 20 "$YORE" umount "$MNT" >/dev/null 2>&1
            [ -z "$DAEMON" ] || wait_until 5 gone "$DAEMON" || kill -9 "$DAEMON" 2>/dev/null
            DAEMON=
        fi
        while mountpoint -q "$MNT" || grep -q " $MNT " /proc/self/mounts; do
            umount "$MNT" 2>/dev/null || umount -l "$MNT" 2>/dev/null || fusermount3 -uz "$MNT" 2>/dev/null || break
        done
    fi
    return 0
}

volume_drop() {
    volume_detach
    [ -n "$VOL" ] && rm -f "$VOL" "$VOL.log"
    VOL=
    return 0
}

# --- things to work on ---------------------------------------------------------------------------------

# Real source trees, fetched once by package name (tests/sources) into the target directory.
SOURCES=$TARGET/sources
sources_fetch() { "$ROOT/scripts/fetch-sources.sh" "$SOURCES"; }

# A list `sha256  ./path` of all files below a directory, and the symbolic links with their targets.
tree_sums() {
    (cd "$1" && find . -type f -not -name .complete -print0 | sort -z | xargs -0 -r sha256sum \
        && find . -type l -printf '%p -> %l\n' | sort)
}
