#!/bin/sh
# build-package.sh SOURCES DIR [unpack]: unpacks LuaJIT from the vendored crate into DIR (unless it is
# there already) and builds it with its own makefiles: first an assembler that runs on the spot, then what
# that generates, the library and the interpreter. Used by the build test and the demo.
set -eu
package=$(echo "$1"/luajit-src-*)
dir=$2
if [ ! -e "$dir/.unpacked" ]; then
    mkdir -p "$dir"
    cp -r "$package/luajit2/." "$dir/"
    cp "$package/luajit_relver.txt" "$dir/.relver"
    : >"$dir/.unpacked"
fi
[ "${3:-build}" = build ] || exit 0
# Without optimisation: it is the file system that is to work here, not the compiler.
make -s -C "$dir" -j"$(nproc)" BUILDMODE=static CCOPT=-O0
