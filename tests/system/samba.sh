#!/usr/bin/env bash
# Windows' "Previous Versions": Samba's shadow_copy2 on a mount with a directory of snapshots, with the smb.conf of
# docs/TIME.md. The client lists the versions of files and directories, and gets what was.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_root
need_command smbd smbclient
[ "$BACKEND" = yore ] || { skip "all of samba: it is about snapshots, which $BACKEND has not"; exit 0; }
export TZ=America/New_York # Samba's times are UTC whatever the zone.

volume_new 256M snapdir=.yore
mkdir -p "$MNT/share/letters"
echo first >"$MNT/share/letters/anna"
echo gone >"$MNT/share/letters/to be deleted"
head -c 3000000 /dev/urandom >"$MNT/share/large"
sha256sum <"$MNT/share/large" >"$WORK/large.sum"
check 'a snapshot' "$YORE" snapshot "$MNT" -n first
echo second >"$MNT/share/letters/anna"
rm "$MNT/share/letters/to be deleted"
: >"$MNT/share/large"
# Versions have whole seconds: of two in one, the last counts. The second has just begun then.
sleep 1.1
early() { case $(date +%N) in 0* | 1* | 2*) ;; *) return 1 ;; esac; }
wait_until 5 early
check 'two in one second' bash -c '"$1" snapshot --no-wait "$2" && "$1" snapshot --no-wait "$2" -n second' - "$YORE" "$MNT"
echo third >"$MNT/share/letters/anna"

# The part between the marks is what docs/TIME.md says.
port=$((20000 + RANDOM % 20000))
samba=$WORK/samba
mkdir -p "$samba"/{private,lock,state,cache,pid,ncalrpc} && chmod 755 "$samba"
cat >"$samba/global" <<CONF
[global]
    smb ports = $port
    bind interfaces only = yes
    interfaces = lo
    private dir = $samba/private
    lock directory = $samba/lock
    state directory = $samba/state
    cache directory = $samba/cache
    pid directory = $samba/pid
    ncalrpc dir = $samba/ncalrpc
    log file = $samba/log
    disable spoolss = yes
    load printers = no
    map to guest = Bad User
    guest account = root
CONF
sed -n '/^\[letters\]/,/^```/p' "$ROOT/docs/TIME.md" | grep -v '^```' | sed "s|/mnt|$MNT|g" >"$samba/share"
check 'the documentation has a share' grep -q shadow_copy2 "$samba/share"
{ cat "$samba/global" "$samba/share"; echo '    guest ok = yes'; } >"$samba/smb.conf"
check 'testparm takes it' testparm -s "$samba/smb.conf"
# In a process group of its own, which it ends with itself.
smbd --foreground --configfile="$samba/smb.conf" </dev/null >"$samba/out" 2>&1 &
smbd=$!
child "$smbd"
client() { timeout 30 smbclient //127.0.0.1/letters -p "$port" -N -c "$1"; }
wait_until 20 client ls || abort 'smbd serves' "$(tail -n 5 "$samba/log" "$samba/out")"
pass 'smbd serves'

versions() { client "allinfo \"$1\"" | grep -o '^@GMT-[0-9.-]*' | sort; }
check 'the root has two versions' [ "$(versions '\' | wc -l)" = 2 ]
versions 'letters\anna' >"$WORK/versions"
check 'a changed file has two versions' [ "$(wc -l <"$WORK/versions")" = 2 ]
say "$(paste -sd ' ' "$WORK/versions")"
{ read -r first; read -r second; } <"$WORK/versions"
content() { rm -f "$WORK/got"; client "get \"$1\" $WORK/got" >/dev/null && cat "$WORK/got"; }
same() { [ "$(content "$1")" = "$2" ]; }
check 'the present is the present' same 'letters\anna' third
check 'the first version' same "$first\\letters\\anna" first
check 'the second one' same "$second\\letters\\anna" second
check 'what was deleted' same "$first\\letters\\to be deleted" gone
names() { client "ls \"$1\\letters\\*\"" | grep -c 'anna\|to be deleted'; }
check 'and is not in the second one' [ "$(names "$second")" = 1 ]
check 'a listing of then' [ "$(names "$first")" = 2 ]
refused() { local said; said=$(client "$1" 2>&1); echo "$said"; [[ $said = *NT_STATUS* ]]; }
large() { content "$first\\large" | sha256sum | cmp - "$WORK/large.sum"; }
check 'a large file of then' large
check 'what was cannot be changed' refused "put $WORK/versions \"$first\letters\new\""
check 'nor removed' refused "rm \"$first\letters\anna\""
check 'it is still there' same "$first\\letters\\anna" first
check 'the present can be' client "put $WORK/versions letters\\new"
check 'a snapshot that is forgotten' "$YORE" forget "$MNT/.@first"
check 'is no version any more' [ "$(versions 'letters\anna' | paste -sd ' ')" = "$second" ]
check 'and is not got' refused "get \"$first\letters\anna\" $WORK/none"

kill "$smbd" && wait "$smbd"
CHILDREN=()
volume_end
finish
