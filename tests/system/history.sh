#!/usr/bin/env bash
# The history of a real project, commit by commit: each is checked out over the one before, in a directory of the volume, and a
# snapshot is taken of it. Then every past tree must be what `git archive` says of its commit: names, kinds, modes, content, links;
# also after a remount, and beside the present, which must be the last. What it takes is told beside the repository and full copies;
# when all of it is forgotten, the room must be there again.
#
# The project is four published packages side by side, one of which each commit brings to its next published version (101
# commits; tests/sources/versions). REPOSITORY=DIR takes the first parents of another repository's HEAD instead. The last COMMITS of them are
# used (40), or with a BUDGET all.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command git cargo tar diff
[ "$BACKEND" = yore ] || { skip "all of history: it is about snapshots, which $BACKEND has not"; exit 0; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t \
    GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
umask 022
project=$WORK/project reference=$WORK/reference
mkdir "$reference"

# make_project: a commit for each line of the list.
make_project() {
    local versions=$TARGET/versions number=0 name version
    "$ROOT/scripts/fetch-versions.sh" "$versions" || return 1
    git init -q -b main "$project" || return 1
    while read -r name version _; do
        rm -rf "${project:?}/$name" && cp -r "$versions/$name-$version" "$project/$name" || return 1
        rm -f "$project/$name/.cargo-checksum.json"
        number=$((number + 1))
        export GIT_AUTHOR_DATE="$((1700000000 + number * 60)) +0000" GIT_COMMITTER_DATE="$((1700000000 + number * 60)) +0000"
        git -C "$project" add -A -f && git -C "$project" commit -q -m "$name $version" || return 1
    done <"$ROOT/tests/sources/versions"
    unset GIT_AUTHOR_DATE GIT_COMMITTER_DATE
}
if [ -n "${REPOSITORY:-}" ]; then
    check "a clone of $REPOSITORY" git clone -q --no-local --no-checkout "$REPOSITORY" "$project" || finish
else
    check 'a project of published versions' make_project || abort 'versions are fetched by cargo vendor'
fi
# What git archive would leave out or fill in.
mkdir -p "$project/.git/info" && echo '* -export-ignore -export-subst' >"$project/.git/info/attributes"
git -C "$project" config tar.umask 0022
git -C "$project" repack -adq

mapfile -t commits < <(git -C "$project" rev-list --first-parent --reverse HEAD)
wanted=${COMMITS:-40}
[ -z "${BUDGET:-}" ] || wanted=${#commits[@]}
[ "$wanted" -ge "${#commits[@]}" ] || commits=("${commits[@]: -$wanted}")
check 'there are commits to check out' [ "${#commits[@]}" -gt 0 ] || finish

volume_new 4G
tree=$MNT/tree
mkdir "$tree"
# The repository stays outside, so that the volume has the trees alone.
in_tree() { git --git-dir="$project/.git" --work-tree="$tree" "$@"; }
rm -f "$project/.git/index"
check_out_all() {
    local i
    for i in "${!commits[@]}"; do
        # Files that are alike stay; the others git removes and makes anew, as in every working tree.
        in_tree checkout -q --force --detach "${commits[i]}" || return 1
        "$YORE" snapshot --no-wait "$tree" -n "c$i" >/dev/null || return 1
    done
}
check "${#commits[@]} commits checked out, with a snapshot after each" check_out_all || finish

# Kind, mode, length (not of directories) and target of everything.
tree_list() { (cd "$1" && find . -mindepth 1 \( -type d -printf '%y %m %p\n' -o -printf '%y %m %s %p %l\n' \) | sort); }
same_tree() { diff -r --no-dereference "$1" "$2" && diff <(tree_list "$1") <(tree_list "$2"); }
# The tree of a commit, as git has it.
copy_of() {
    rm -rf "$reference" && mkdir "$reference" && git -C "$project" archive "$1" | tar -x -p -C "$reference"
}
copies=0 files=0
# same_history STEP: each commit, or one of so many.
same_history() {
    local i
    for ((i = 0; i < ${#commits[@]}; i += $1)); do
        copy_of "${commits[i]}" || return 1
        same_tree "$tree@c$i" "$reference" || { echo "c$i is not ${commits[i]}"; return 1; }
        if [ "$1" = 1 ]; then
            copies=$((copies + $(du -s -B 1 "$reference" | cut -f 1)))
            files=$((files + $(find "$reference" -type f | wc -l)))
        fi
    done
}
check 'every past tree is what git archive says of its commit' same_history 1
copy_of "${commits[-1]}" && check 'the present is the last one' same_tree "$tree" "$reference"
volume_cycle
check 'past trees after a remount' same_history 7
check 'the present after it' bash -c '[ "$(git --git-dir="$1/.git" --work-tree="$2" status --porcelain | wc -l)" = 0 ]' - "$project" "$tree"

# Bytes in use of the volume that is not mounted, and those of metadata.
in_use() { "$YORE" info --json "$VOL" | "$PYTHON" -c '
import json, sys
info = json.load(sys.stdin)
print(info["space"]["used"], info["metadata_blocks"] * 4096)'; }
mib() { awk -v bytes="$1" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }
check 'unmounts' volume_umount
read -r all metadata < <(in_use)
check 'all of its history is forgotten' "$YORE" forget "$VOL:/tree" --before now --names --quiet
read -r present present_metadata < <(in_use)
repository=$(du -s -B 1 "$project/.git" | cut -f 1)
say "${#commits[@]} trees, $files files: as history $(mib $((all - present))), of it $(mib $((metadata - present_metadata))) metadata"
say "as full copies $(mib "$copies"), the repository with all of its commits $(mib "$repository")"
# Of a few commits most is the first tree, which is no history.
if [ "${#commits[@]}" -ge 20 ]; then
    check 'forgetting has given room back' [ "$all" -gt "$present" ]
    check 'the history took less than half of what copies would' [ $((2 * (all - present))) -lt "$copies" ]
fi
check 'the checker finds nothing' volume_check
check 'mounts again' volume_mount
copy_of "${commits[-1]}" && check 'the present without its history' same_tree "$tree" "$reference"
volume_end
finish
