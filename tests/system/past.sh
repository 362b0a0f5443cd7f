#!/usr/bin/env bash
# Programs that know nothing of Yore, in the past: a real source tree is copied onto the volume, and changed between snapshots; a
# full copy is made outside at each. While writers change the present, tar, rsync, grep, diff, find, gcc, SQLite, maps of
# files and a shell's completion must find in `dir@time`, in the directory of snapshots and in a snapshot mounted by itself
# what is in the copy. Nothing of it can be changed.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command tar rsync gcc sqlite3 diff
[ "$BACKEND" = yore ] || { skip "all of past: it is about snapshots, which $BACKEND has not"; exit 0; }
sources_fetch || abort 'source trees are fetched by cargo vendor'

volume_new 2G snapdir=.yore
src=$MNT/src copies=$WORK/copies then=$WORK/then
mkdir "$copies" "$then"
# Large enough to be real, small enough for two copies and a minute.
mkdir "$src" && cp -a "$SOURCES"/libz-sys* "$SOURCES"/luajit-src* "$src" || abort 'the sources are copied'
(cd "$src" && mv libz-sys* zlib && mv luajit-src* luajit && ln zlib/Cargo.toml hard && ln -s zlib/Cargo.toml link)
truncate -s 10M "$src/sparse" && echo end >>"$src/sparse"
for i in $(seq 500); do echo "$i" >"$src/name $i"; done
cat >"$src/answer.c" <<'C'
#include <stdio.h>
#include "answer.h"
int main(void) { return printf("%d\n", ANSWER) < 0; }
C
echo '#define ANSWER 41' >"$src/answer.h"
gcc -o "$src/answer" "$src/answer.c" || abort 'gcc works'
sqlite3 "$src/data.db" 'CREATE TABLE t(i INTEGER PRIMARY KEY, v TEXT);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO t SELECT i, "one " || i FROM n;' \
    || abort 'sqlite3 works'

# snapshot NAME: of the volume, and a copy of what it should hold.
snapshot() { cp -a "$src" "$copies/$1" && "$YORE" snapshot "$MNT" -n "$1"; }
check 'a snapshot' snapshot t1
check 'changes: content, names, modes, lengths' bash -ec '
    cd "$1"
    sed -i s/41/42/ answer.h && gcc -o answer answer.c
    mv zlib renamed && rm "name 1"* && chmod 600 "name 2" && rm hard && echo new >"name 1" && ln -sf nowhere link
    find luajit -name "*.c" | head -n 40 | while read -r file; do sed -i "1i // changed" "$file"; done
    find luajit -name "*.h" | head -n 10 | xargs rm
    truncate -s 100 sparse
    sqlite3 data.db "UPDATE t SET v = \"two\" WHERE i % 3 = 0; DELETE FROM t WHERE i % 5 = 0;"' - "$src"
check 'another snapshot' snapshot t2
check 'and one mounted by itself' "$YORE" mount "$VOL" "$then" --at t1 -o allow_other
campaign_cleanup() { mountpoint -q "$then" && { "$YORE" umount "$then" || umount -l "$then"; }; }

# From here on the present changes all the time; snapshots come and go.
touch "$WORK/go"
"$PYTHON" "$HELPERS/past_writer.py" "$src" "$WORK/go" "$SEED" >"$WORK/writer.out" 2>&1 &
child $!
(
    while [ -e "$WORK/go" ]; do
        "$YORE" snapshot --no-wait "$MNT" >/dev/null && "$YORE" forget "$MNT" --keep-last 2 >/dev/null || exit 1
        sleep 0.2
    done
) >"$WORK/snapshots.out" 2>&1 &
snapshots=$!
child "$snapshots"

same_list() { diff <(tree_list "$1") <(tree_list "$2"); }
# Type, mode, owner, links, length and time of everything, with its name. A directory has another length elsewhere.
tree_list() { (cd "$1" && find . -type d -printf '%y %m %U %G %p %TY-%Tm-%Td_%TT\n' -o -printf '%y %m %U %G %n %s %p %l %TY-%Tm-%Td_%TT\n' | sort); }
for t in t1 t2; do
    places=("$src@$t" "$MNT/.yore/$t/src")
    [ "$t" = t1 ] && places+=("$then/src")
    copy=$copies/$t
    for place in "${places[@]}"; do
        shown=${place#"$WORK"/}
        check "$shown: diff -r finds no difference" diff -r --no-dereference "$place" "$copy"
        check "$shown: find tells the same of each" same_list "$place" "$copy"
    done
    check "$t: tar" bash -ec 'mkdir "$3" && tar -C "$1" --format=posix -cf - . | tar -C "$3" -xf - && diff -r --no-dereference "$2" "$3"' - "$src@$t" "$copy" "$WORK/tar.$t"
    check "$t: with links, modes and times" same_list "$WORK/tar.$t" "$copy"
    check "$t: rsync -aH" bash -ec 'rsync -aH "$1/" "$3" && diff -r --no-dereference "$2" "$3"' - "$src@$t" "$copy" "$WORK/rsync.$t"
    check "$t: with links, modes and times" same_list "$WORK/rsync.$t" "$copy"
    check "$t: rsync has nothing to do then" bash -ec '[ -z "$(rsync -aHci --omit-dir-times "$1/" "$2")" ]' - "$src@$t" "$WORK/rsync.$t"
    check "$t: grep -r" diff <(cd "$src@$t" && grep -rIl 'changed\|include' . | sort) <(cd "$copy" && grep -rIl 'changed\|include' . | sort)
    check "$t: a program of then runs" [ "$("$src@$t/answer")" = "$("$copy/answer")" ]
    check "$t: gcc compiles what was" bash -ec 'gcc -o "$3" "$1/answer.c" && [ "$("$3")" = "$("$2/answer")" ]' - "$src@$t" "$copy" "$WORK/compiled"
    check "$t: with its headers by option" bash -ec 'cp "$2/answer.c" "$4" && gcc -I "$1" -o "$3" "$4" && [ "$("$3")" = "$("$2/answer")" ]' - "$src@$t" "$copy" "$WORK/compiled" "$WORK/alone.c"
    query='SELECT count(*), sum(i), max(v) FROM t; PRAGMA integrity_check;'
    for mode in mode=ro immutable=1; do
        check "$t: sqlite3 with $mode" diff <(sqlite3 "file:$src@$t/data.db?$mode" "$query") <(sqlite3 "$copy/data.db" "$query")
    done
    check "$t: maps" "$PYTHON" "$HELPERS/past_maps.py" "$src@$t" "$copy"
    check "$t: a shell completes names" diff <(cd "$MNT" && compgen -f "src@$t/name 1" | sort) <(cd "$copies" && compgen -f "$t/name 1" | sed 's/^/src@/' | sort)
    check "$t: a shell's pattern" diff <(cd "$src@$t" && echo */*.toml) <(cd "$copy" && echo */*.toml)
done
check 'diff -r of two times' diff <(cd "$MNT" && diff -rq --no-dereference src@t1 src@t2 | sed 's/src@//g' | sort) <(cd "$copies" && diff -rq --no-dereference t1 t2 | sort)
check 'gcc writes nothing there' bash -c '! gcc -o "$1/out" "$1/answer.c" 2>/dev/null' - "$src@t1"
check_lines "$PYTHON" "$HELPERS/past_refusals.py" "$MNT" "src@t1" src

check 'the writers wrote until here' kill -0 "${CHILDREN[@]}"
rm "$WORK/go"
check 'and ended well' wait "${CHILDREN[@]}"
CHILDREN=()
tail -n 1 "$WORK/writer.out" | sed 's/^/  ........ /'
check 'the mounted snapshot is unmounted' "$YORE" umount "$then"
volume_cycle
for t in t1 t2; do
    check "$t: the same after a remount" diff -r --no-dereference "$src@$t" "$copies/$t"
done
volume_end
finish
