#!/usr/bin/env python3
"""Holds the code to the layers of the architecture.

1. Between crates: only the edges of the table below, which is the one in docs (ARCHITECTURE, "The layers").
   Development dependencies may go further only in crates whose tests wire whole systems together.
2. Inside yore-fs: modules refer downwards only, ops -> history -> {dir, file} -> inode -> {extent, alloc} -> btree.
   A path such as `crate::ops`, or `super::ops` from a neighbouring file, in a lower module is a failure.

`check-layers.py --self-test` proves on made-up input that both kinds of breach are seen.
"""
import json
import os
import re
import subprocess
import sys

ALL = {
    "yore-format", "yore-device", "yore-log", "yore-meta", "yore-fs",
    "yore-check", "yore-fuse", "yore-cli", "yore-bench", "yore-crash",
}
EDGES = {
    "yore-format": set(),
    "yore-device": set(),
    "yore-log": {"yore-device"},
    "yore-meta": {"yore-format", "yore-device", "yore-log"},
    "yore-fs": {"yore-meta", "yore-device", "yore-format"},
    "yore-check": {"yore-format", "yore-device", "yore-meta"},
    "yore-fuse": {"yore-fs"},
    "yore-cli": ALL - {"yore-crash"},
    "yore-bench": {"yore-fs", "yore-fuse", "yore-check", "yore-device"},
    "yore-crash": {"yore-fs", "yore-check", "yore-device"},
}
# Their tests may use any part, but no test uses one of these. (Only the command line starts benchmarks.)
FREE_TESTS = NEVER_USED = {"yore-bench", "yore-crash", "yore-cli"}

MODULES = [{"ops"}, {"history"}, {"dir", "file"}, {"inode"}, {"extent", "alloc"}, {"btree"}]
LEVEL = {name: len(MODULES) - n for n, names in enumerate(MODULES) for name in names}


def crate_breaches(packages):
    """Edges that are not in the table. packages: [(name, [(dependency, kind)])]"""
    for name, dependencies in packages:
        if name not in EDGES:
            yield f"{name}: a crate the architecture does not know; add it to scripts/check-layers.py and to the docs"
            continue
        for dependency, kind in dependencies:
            if dependency not in ALL:
                continue
            if dependency in EDGES[name]:
                continue
            if kind == "dev" and name in FREE_TESTS and dependency not in NEVER_USED:
                continue
            yield f"{name} -> {dependency}{' (in tests)' if kind == 'dev' else ''}: not an edge of the architecture"


def without_comments_and_strings(source):
    """The code, with comments and string contents blanked and line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


def references(source, depth):
    """Top-level modules of its crate that a file refers to: [(line, name)]. depth: modules it is nested in."""
    source = without_comments_and_strings(source)
    ups = f"crate::|(?:self::)?(?:super::){{{depth},}}"
    for match in re.finditer(rf"\b(?:{ups})(\{{|[a-z_]+)", source):
        line = source.count("\n", 0, match.start()) + 1
        if match.group(1) != "{":
            yield line, match.group(1)
            continue
        # `use crate::{a, b::{c, d}}`: the names at the outer level of the braces.
        level, name = 1, ""
        for char in source[match.end() :]:
            if char == "{":
                level += 1
            elif char == "}":
                level -= 1
            if level == 1 and (char.isalnum() or char == "_"):
                name += char
            elif name:
                yield line, name
                name = "" if level == 1 and char in ",{} \n" else "\0"
            if level == 1 and char == ",":
                name = ""
            if level == 0:
                break


def module_breaches(files):
    """Upward references. files: [(path below src, source)]"""
    for path, source in files:
        parts = path.removesuffix(".rs").split("/")
        if parts[-1] == "mod":
            parts.pop()
        own = parts[0] if parts else ""
        if own not in LEVEL:
            continue
        for line, name in references(source, len(parts)):
            if name not in LEVEL or name == own:
                continue
            if LEVEL[name] > LEVEL[own]:
                yield f"yore-fs/src/{path}:{line}: {own} refers upwards to {name}"


def self_test():
    packages = [
        ("yore-check", [("yore-fs", None), ("yore-meta", None)]),
        ("yore-crash", [("yore-meta", "dev"), ("yore-bench", "dev")]),
        ("yore-new", []),
    ]
    assert len(list(crate_breaches(packages))) == 3, list(crate_breaches(packages))
    files = [
        ("btree.rs", "use crate::ops::X;"),
        ("btree/node.rs", "use super::super::dir;\nuse super::ops;\nfn f() { crate::history::g() }\nmod tests { use super::super::super::ops::X; }"),
        ("inode/mod.rs", "use crate::{btree, extent::{self, ops}, file::F};\n// use crate::ops\n"),
        ("dir.rs", 'use super::file::F; const S: &str = "crate::ops"; use super::inode;'),
        ("error.rs", "use crate::ops;"),
        ("ops/rename.rs", "use crate::{dir, file, history};"),
    ]
    found = list(module_breaches(files))
    assert len(found) == 5, found
    print("check-layers: self-test ok")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
            cwd=root, check=True, stdout=subprocess.PIPE,
        ).stdout
    )
    packages = [
        (package["name"], [(dependency["name"], dependency["kind"]) for dependency in package["dependencies"]])
        for package in metadata["packages"]
    ]
    sources = os.path.join(root, "crates/yore-fs/src")
    files = []
    for directory, _, names in os.walk(sources):
        for name in names:
            if name.endswith(".rs"):
                path = os.path.join(directory, name)
                with open(path, encoding="utf-8") as file:
                    files.append((os.path.relpath(path, sources), file.read()))
    breaches = sorted(crate_breaches(packages)) + sorted(module_breaches(files))
    for breach in breaches:
        print(f"check-layers: {breach}", file=sys.stderr)
    if breaches:
        sys.exit(1)
    print(f"check-layers: {len(packages)} crates and {len(files)} files of yore-fs keep to the layers")


if __name__ == "__main__":
    self_test() if sys.argv[1:] == ["--self-test"] else main()
