#!/bin/sh
# fetch-versions.sh DIR: many versions of a few packages, by name, version and checksum (tests/sources/versions), into DIR;
# nothing to do when they are there and of today's list.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
list=$here/tests/sources/versions
if cmp -s "$list" "$1/.complete"; then exit 0; fi
rm -rf "$1"
wanted=$(mktemp -d)
trap 'rm -rf "$wanted"' EXIT
# One graph of dependencies has each package once among compatible versions: so each version has a graph of its own.
set -- "$1" --manifest-path "$wanted/first/Cargo.toml"
manifest() {
    mkdir -p "$wanted/$1/src"
    : >"$wanted/$1/src/lib.rs"
    printf '[package]\nname = "wanted"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n%s\n' "$2" \
        >"$wanted/$1/Cargo.toml"
}
manifest first ''
while read -r name version _; do
    manifest "$name-$version" "$name = { version = \"=$version\", default-features = false }"
    set -- "$@" --sync "$wanted/$name-$version/Cargo.toml"
done <"$list"
directory=$1
shift
cargo vendor --quiet --versioned-dirs "$@" "$directory" >/dev/null
while read -r name version checksum; do
    grep -q "\"package\":\"$checksum\"" "$directory/$name-$version/.cargo-checksum.json" || {
        echo "$name $version is not what it was when it was listed in $list" >&2
        exit 1
    }
done <"$list"
cp "$list" "$directory/.complete"
