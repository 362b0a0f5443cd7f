#!/usr/bin/env bash
# package.sh: makes the Debian package as `make deb` does, of the debug binary or of YORE, and tries what is in
# it: unpacked, and installed and removed by dpkg below a directory of its own. Nothing of this system is
# changed.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in dpkg-deb dpkg strip; do
    command -v "$tool" >/dev/null || {
        echo "SKIPPED: the Debian package, for there is no $tool here"
        [ "${CI:-}" != true ]
        exit
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "package.sh: failed at line $LINENO" >&2' ERR

binary=${YORE:-}
if [ -z "$binary" ]; then
    cargo build --locked --quiet -p yore-cli
    binary=${CARGO_TARGET_DIR:-target}/debug/yore
fi
make --no-print-directory deb BINARY="$binary" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
package=target/debian/yore.deb

echo 'unpacked:'
dpkg-deb -x "$package" "$work/unpacked"
yore=$work/unpacked/usr/bin/yore
"$yore" --version
"$yore" mkfs "$work/v.yore" --size 64M >/dev/null
echo content >"$work/file"
"$yore" put "$work/file" "$work/v.yore:/file"
[ "$("$yore" cat "$work/v.yore:/file")" = content ]
if readelf -S "$yore" | grep -q '\.symtab'; then echo 'the program has symbols' >&2; exit 1; fi
# What mount(8) and fsck(8) call is the program.
for helper in mount.yore mount.fuse.yore fsck.yore fsck.fuse.yore; do
    [ "$work/unpacked/usr/sbin/$helper" -ef "$yore" ]
    zcat -f "$work/unpacked/usr/share/man/man8/$helper.8"* | grep -q '^\.so man1/yore-[a-z]*\.1$'
done
"$work/unpacked/usr/sbin/fsck.yore" -a "$work/v.yore" | grep -q clean
# Each command has its page.
"$yore" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' | grep -vx help >"$work/commands"
[ "$(wc -l <"$work/commands")" -gt 30 ]
while read -r command; do
    page=$(echo "$work/unpacked/usr/share/man/man1/yore-$command.1"*)
    [ -s "$page" ] || { echo "no man page for yore $command" >&2; exit 1; }
    zcat -f "$page" | grep -q '^\.SH SYNOPSIS'
done <"$work/commands"
bash -n "$work/unpacked/usr/share/bash-completion/completions/yore"
grep -q '^#compdef yore' "$work/unpacked/usr/share/zsh/vendor-completions/_yore"
grep -q '^complete -c yore' "$work/unpacked/usr/share/fish/vendor_completions.d/yore.fish"
for script in check-volume scrub-volume; do sh -n "$work/unpacked/usr/libexec/yore/$script"; done
if grep -r '@[A-Z]*DIR@' "$work/unpacked/usr/lib/systemd" "$work/unpacked/usr/libexec"; then exit 1; fi
if command -v systemd-analyze >/dev/null; then
    # It looks for the programs where they will be; here they are elsewhere.
    for unit in yore@.service yore-check@.service yore-check@.timer yore-scrub@.service yore-scrub@.timer; do
        sed "s|/usr/bin/yore|$yore|g; s|/usr/libexec|$work/unpacked/usr/libexec|g" \
            "$work/unpacked/usr/lib/systemd/system/$unit" >"$work/$unit"
    done
    systemd-analyze verify --man=no "$work/yore@one.service" "$work/yore-check@one.timer" "$work/yore-scrub@one.timer" 2>"$work/units" || true
    if grep -i 'yore.*\(unknown\|failed to\|not executable\|invalid\|ignoring\)' "$work/units" >&2; then exit 1; fi
fi

echo 'installed and removed:'
root=$work/root
mkdir -p "$root"/var/lib/dpkg/{info,updates} "$root/var/log"
touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
dpkg=(dpkg --root="$root" --force-not-root --force-depends --force-script-chrootless --log="$root/var/log/dpkg.log")
"${dpkg[@]}" -i "$package" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
[ "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Status}' yore)" = 'install ok installed' ]
"$root/usr/bin/yore" check "$work/v.yore" >/dev/null
"${dpkg[@]}" --purge yore >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
left=$(find "$root" -name '*yore*')
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }

echo 'installed by make, and removed:'
make --no-print-directory install uninstall BINARY="$binary" DESTDIR="$work/make" >/dev/null
left=$(find "$work/make" ! -type d)
[ -z "$left" ] || { echo "left behind: $left" >&2; exit 1; }
echo "package: passed ($(du -h "$package" | cut -f 1) as a package)"
