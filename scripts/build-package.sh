#!/bin/sh
# build-package.sh SOURCES DIR: unpacks jemalloc from the vendored crate into DIR (unless it is
# there already), configures and builds its static library. Used by the build test and the demo.
set -eu
package=$(echo "$1"/tikv-jemalloc-sys-*)
dir=$2
version=$(basename "$package" | sed 's/.*+//')
if [ ! -e "$dir/.unpacked" ]; then
    mkdir -p "$dir"
    cp -r "$package/jemalloc/." "$dir/"
    cp "$package/configure/"* "$dir/"
    : >"$dir/.unpacked"
fi
cd "$dir"
[ -e Makefile ] || ./configure --quiet --with-version="$version" --disable-cxx --disable-doc EXTRA_CFLAGS='-O0 -g0'
make -s -j"$(nproc)" build_lib_static
