#!/usr/bin/env bash
# stress-ng's file-system stressors, verifying what they do, in groups that run side by side for a few
# seconds each; the volume is sound afterwards. Left out: those that test no file system on the mount
# (bind-mount, binderfs, eventfd, procfs, ioprio) and fs-verity, which few file systems have.
. "$(dirname "$0")/../lib.sh"
begin "$@"
need_command stress-ng
SECONDS_EACH=${SECONDS_EACH:-$(( ${BUDGET:-32} / 4 ))}
volume_new 4G

group() {
    local name=$1 arguments=() stressor status
    shift
    for stressor; do arguments+=("--$stressor" 1); done
    mkdir "$MNT/$name"
    timeout -k 10 $((SECONDS_EACH * 4 + 60)) stress-ng "${arguments[@]}" --temp-path "$MNT/$name" --verify \
        --hdd-bytes 32m --iomix-bytes 32m --fallocate-bytes 32m --sync-file-bytes 32m \
        --timeout "${SECONDS_EACH}s" --no-rand-seed --oomable >"$WORK/stress.out" 2>&1
    status=$?
    # 0 all well; 3 and 4: a stressor says it cannot run here (told below); anything else is a failure.
    grep -E 'skipped|skipping|not implemented' "$WORK/stress.out" | sed 's/^/           | /'
    if grep -q -E 'stress-ng: fail:' "$WORK/stress.out" || [ "$status" != 0 ] && [ "$status" != 3 ] && [ "$status" != 4 ]; then
        fail "stressors of $name" "exit status $status"
        grep -E 'fail:|error:' "$WORK/stress.out" | head -n 20 | sed 's/^/           | /'
    else
        pass "stressors of $name: $*"
    fi
    # A stressor that its time limit killed in the middle may have left a file immutable.
    chattr -R -f -i -a "$MNT/$name"
    check "everything of $name can be removed" rm -rf "$MNT/$name"
}

group names access chdir chmod chown dentry dir dirdeep dirmany filename getdent link rename symlink mknod open touch utime
group data copy-file fallocate fiemap fpunch fsize hdd io iomix sync-file
group locks dnotify dup fcntl flock inotify lease locka lockf lockofd
group attributes chattr file-ioctl fstat handle inode-flags xattr

volume_end
finish
