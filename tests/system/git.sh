#!/usr/bin/env bash
# git, as a heavy and self-verifying user: a history of several hundred commits made from a real
# source tree is cloned onto the volume, walked back and forth, changed, repacked and pushed back.
# git's own checksums must hold at every step and after a remount.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command git cargo
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t \
    GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
sources_fetch || abort 'source trees are fetched by cargo vendor'

volume_new 2G
origin=$WORK/origin.git clone=$MNT/clone
git init -q --bare -b main "$origin"
check 'a history of 300 commits is made' bash -c \
    '"$1" "$2" "$3" 300 | git -C "$4" fast-import --quiet' - "$PYTHON" "$HELPERS/history.py" "$SOURCES" "$origin"
say "$(git -C "$origin" rev-list --count main) commits, $(git -C "$origin" ls-tree -r main | wc -l) files"

status_clean() { local out; out=$(git -C "$clone" status --porcelain) && echo "$out" && [ -z "$out" ]; }
same_tree() { diff -r --no-dereference --exclude=.git "$clone" "$WORK/reference"; }
reference() {
    rm -rf "$WORK/reference" && mkdir "$WORK/reference"
    git -C "$origin" archive "$1" | tar -x -C "$WORK/reference"
}

check 'clone' git clone -q "file://$origin" "$clone"
check 'fsck --full' git -C "$clone" fsck --full --strict --no-dangling
check 'status is clean' status_clean
for back in 299 150 30 0; do
    check "checkout main~$back" git -C "$clone" checkout -q --detach "main~$back"
    check "status at main~$back is clean" status_clean
done
reference main
check 'the tree is that of git archive' same_tree

check 'on a branch: commit, amend, merge' bash -ec '
    cd "$1"; git checkout -q -b work main~100
    for i in $(seq 20); do echo "$i" > "new $i"; git add -A; git commit -q -m "$i"; done
    git mv "new 1" renamed; git rm -q "new 2"; git commit -q --amend -m renamed
    git merge -q -m merge main
    git stash list; echo x >> renamed; git stash -q; git stash pop -q; git commit -q -am popped' - "$clone"
check 'gc' git -C "$clone" gc -q --prune=now
check 'fsck --full after gc' git -C "$clone" fsck --full --strict --no-dangling
check 'push' git -C "$clone" push -q origin work
check 'fsck of what was pushed' git -C "$origin" fsck --full --no-dangling
check 'status is clean at the end' status_clean

volume_cycle
check 'status is clean after a remount' status_clean
check 'fsck --full after a remount' git -C "$clone" fsck --full --strict --no-dangling
reference work
check 'the tree is what was pushed' same_tree
check 'the clone can be removed' rm -rf "$clone"
volume_end
finish
