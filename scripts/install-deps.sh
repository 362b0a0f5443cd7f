#!/usr/bin/env bash
# install-deps.sh demo|test: installs what is missing, and only that, on Debian 12 and its relatives.
#
#   demo   what building Yore and showing it needs
#   test   that, and the programs the system tests work with
#
# As root it installs; otherwise it tries `sudo -n`; otherwise it says what to install and fails. Where
# nothing is missing it needs neither root nor apt. Rust (cargo) is taken as present: https://rustup.rs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
set_name=${1:-test}
PATH=$PATH:/usr/sbin:/sbin

# A package, and what tells that it is there: a program, or a file.
demo='gcc:gcc make:make libc6-dev:/usr/include/stdio.h fuse3:fusermount3 util-linux:mountpoint'
test="$demo python3:python3 e2fsprogs:mkfs.ext4 util-linux:runuser attr:setfattr acl:setfacl libacl1-dev:/usr/include/sys/acl.h
    git:git sqlite3:sqlite3 stress-ng:stress-ng postgresql:/usr/lib/postgresql/*/bin/pg_amcheck
    samba:smbd samba-vfs-modules:/usr/lib/*/samba/vfs/shadow_copy2.so smbclient:smbclient rsync:rsync
    dbench:dbench strace:strace binutils:strip dpkg:dpkg-deb
    procps:pgrep passwd:useradd mount:losetup diffutils:diff"
# A tool for the tests, from crates.io, kept in the target directory.
tools='pjdfstest@0.2.2 fsx@0.3.2 cargo-deb@3.8.0'

case $set_name in
    demo) wanted=$demo ;;
    test) wanted=$test ;;
    *) echo "usage: $0 demo|test" >&2; exit 2 ;;
esac

present() {
    case $1 in
        /*) compgen -G "$1" >/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing=()
set -f
for pair in $wanted; do
    set +f
    present "${pair#*:}" || missing+=("${pair%%:*}")
done
set +f

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}
can_be_root() { [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; }

if [ ${#missing[@]} -gt 0 ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    if ! command -v apt-get >/dev/null; then
        echo "missing, by their Debian names: ${missing[*]}. Install them with this system's package manager." >&2
        exit 1
    fi
    if ! can_be_root; then
        echo "missing: ${missing[*]}" >&2
        echo "install them as root with: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}")
    as_root "${install[@]}" >/tmp/install-deps.$$ 2>&1 \
        || { as_root apt-get update -q >/dev/null && as_root "${install[@]}" >/tmp/install-deps.$$ 2>&1; }
    status=$?
    [ "$status" = 0 ] || tail -n 20 /tmp/install-deps.$$ >&2
    rm -f /tmp/install-deps.$$
    [ "$status" = 0 ] || exit 1
fi

if ! command -v cargo >/dev/null; then
    echo 'cargo is missing: install Rust from https://rustup.rs' >&2
    exit 1
fi
[ "$set_name" = test ] || exit 0

target=${CARGO_TARGET_DIR:-target}
for tool in $tools; do
    name=${tool%@*} version=${tool#*@}
    if [ ! -x "$target/tools/bin/$name" ] || ! grep -q "\"$name $version " "$target/tools/.crates.toml" 2>/dev/null; then
        echo "building $name $version"
        # Built apart from the workspace, so that neither rebuilds for the other. They wait for the disk and
        # the kernel; to optimise them takes much longer than that saves.
        CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_DEBUG=0 \
            CARGO_TARGET_DIR=$target/tools/build cargo install --quiet --locked --root "$target/tools" "$name" --version "=$version" || exit 1
    fi
done

# pjdfstest becomes these users to see what they may not do.
if can_be_root; then
    getent group nogroup >/dev/null || as_root groupadd -r nogroup
    for user in nobody tests pjdfstest; do
        id "$user" >/dev/null 2>&1 || as_root useradd -r -U -M -d / -s /usr/sbin/nologin "$user" || exit 1
    done
fi
exit 0
