#!/usr/bin/env python3
"""Holds the code to the layers of the architecture.

1. Between crates: only the edges of the table below, which is the one in docs (ARCHITECTURE, "The layers").
   Tests may also use what their crate reaches by these edges over others (a test of the mount makes a device), and
   crates whose tests wire whole systems together may use nearly anything.
2. Inside yore-fs: modules refer downwards only, usage -> {ops, look} -> history -> {dir, file} -> inode -> {extent, alloc, pages} ->
   btree -> held -> time (the grammar of times, which knows nothing of volumes). A path such as `crate::ops`, or `super::ops`
   from a neighbouring file, in a lower module is a failure. Tests are exempt, as the compiler leaves them out:
   `#[cfg(test)] mod tests`, in a file of its own or not.

`check-layers.py --self-test` proves on made-up input that both kinds of breach are seen.
"""
import json
import os
import re
import subprocess
import sys

ALL = {
    "yore-format", "yore-device", "yore-log", "yore-meta", "yore-fs",
    "yore-check", "yore-fuse", "yore-cli", "yore-bench", "yore-crash", "yore-faults",
}
EDGES = {
    "yore-format": set(),
    "yore-device": set(),
    "yore-log": {"yore-device"},
    "yore-meta": {"yore-format", "yore-device", "yore-log"},
    "yore-fs": {"yore-meta", "yore-device", "yore-format"},
    "yore-check": {"yore-format", "yore-device", "yore-meta"},
    "yore-fuse": {"yore-fs"},
    "yore-cli": ALL - {"yore-crash", "yore-faults"},
    "yore-bench": {"yore-fs", "yore-fuse", "yore-check", "yore-device"},
    "yore-crash": {"yore-fs", "yore-check", "yore-device"},
    # Damages media by the format's own definitions, and feeds them to whoever reads them.
    "yore-faults": {"yore-fs", "yore-check", "yore-device", "yore-format", "yore-log"},
}
# Their tests may use any part, but no test uses one of these. (Only the command line starts benchmarks.)
FREE_TESTS = NEVER_USED = {"yore-bench", "yore-crash", "yore-faults", "yore-cli"}

MODULES = [
    {"usage"}, {"ops", "look"}, {"access"}, {"history"}, {"dir", "file"}, {"inode", "past"}, {"extent", "alloc", "pages"}, {"btree", "locks"}, {"held"}, {"time"},
]
LEVEL = {name: len(MODULES) - n for n, names in enumerate(MODULES) for name in names}


def below(name):
    """All crates that a crate reaches over the table's edges."""
    reached, ways = set(), list(EDGES[name])
    while ways:
        crate = ways.pop()
        if crate not in reached:
            reached.add(crate)
            ways.extend(EDGES[crate])
    return reached


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
            if kind == "dev" and dependency in below(name):
                continue
            if kind == "dev" and name in FREE_TESTS and dependency not in NEVER_USED:
                continue
            yield f"{name} -> {dependency}{' (in tests)' if kind == 'dev' else ''}: not an edge of the architecture"


def without_comments_and_strings(source):
    """The code, with comments and string contents blanked and line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z ]+\))?\s+)?mod\s+([a-z_]+)\s*(\{|;)")


def without_test_modules(source):
    """The code without comments and strings, `#[cfg(test)] mod name { ... }` blanked too; line numbers are kept."""
    source = without_comments_and_strings(source)
    while match := next((m for m in TEST_MODULE.finditer(source) if m.group(2) == "{"), None):
        level, at = 1, match.end()
        while level and at < len(source):
            level += {"{": 1, "}": -1}.get(source[at], 0)
            at += 1
        blank = re.sub(r"[^\n]", " ", source[match.start() : at])
        source = source[: match.start()] + blank + source[at:]
    return source


def test_modules(files):
    """Paths, without `.rs`, of the modules in files of their own that only tests have."""
    found = set()
    for path, source in files:
        home = path.removesuffix(".rs").removesuffix("mod").rstrip("/")
        home = "" if home == "lib" else home + "/"
        for match in TEST_MODULE.finditer(without_comments_and_strings(source)):
            if match.group(2) == ";":
                found.add(home + match.group(1))
    return found


def references(source, depth):
    """Top-level modules of its crate that a file refers to: [(line, name)]. depth: modules it is nested in."""
    source = without_test_modules(source)
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
    tests = test_modules(files)
    for path, source in files:
        parts = path.removesuffix(".rs").split("/")
        if parts[-1] == "mod":
            parts.pop()
        if any("/".join(parts[: n + 1]) in tests for n in range(len(parts))):
            continue
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
        ("yore-fuse", [("yore-device", "dev"), ("yore-device", None), ("yore-check", "dev")]),
    ]
    expected = {
        "yore-check -> yore-fs", "yore-crash -> yore-bench (in tests)", "yore-new",
        "yore-fuse -> yore-device", "yore-fuse -> yore-check (in tests)",
    }
    found = [breach.split(":")[0] for breach in crate_breaches(packages)]
    assert len(found) == len(expected) and set(found) == expected, found
    files = [
        ("btree.rs", "use crate::ops::X;"),
        ("btree/node.rs", "use super::super::dir;\nuse super::ops;\nfn f() { crate::history::g() }\nmod tests { use super::super::super::ops::X; }"),
        ("inode/mod.rs", "use crate::{btree, extent::{self, ops}, file::F};\n// use crate::ops\n"),
        ("dir.rs", 'use super::file::F; const S: &str = "crate::ops"; use super::inode;'),
        ("error.rs", "use crate::ops;"),
        ("ops/rename.rs", "use crate::{dir, file, history};"),
        # Tests may refer upwards, what is beside them may not: only `inode` below is a breach, in line 3.
        ("alloc.rs", "#[cfg(test)]\nmod tests { fn f() { crate::ops::g() } }\nuse crate::extent::X; use crate::inode;"),
        ("file.rs", "#[cfg(test)]\nmod tests;\nmod cache;"),
        ("file/tests.rs", "use crate::ops::create;"),
        ("file/tests/random.rs", "use crate::ops::create;"),
        # No `#[cfg(test)]` announces this one.
        ("inode/tests.rs", "use crate::ops::create;"),
        ("pages.rs", "use crate::inode::InodeCell;"),
        ("time/point.rs", "use super::Why;\nuse crate::btree::Tree;"),
        ("btree/key.rs", "use crate::time::parse; use std::time::Duration;"),
    ]
    found = [breach.split(": ")[0].removeprefix("yore-fs/src/") for breach in module_breaches(files)]
    expected = [
        "btree.rs:1", "btree/node.rs:1", "btree/node.rs:3", "btree/node.rs:4", "inode/mod.rs:1",
        "alloc.rs:3", "inode/tests.rs:1", "pages.rs:1", "time/point.rs:2",
    ]
    assert found == expected, found
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
