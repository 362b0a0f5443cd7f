#!/usr/bin/env python3
"""Checks that the documents name what is there.

Every path of this repository that a document has between backquotes exists, and where it goes on with `::name`, the file has a function,
type, constant or module of that name. Also shorter: `yore-fs/src/store.rs`, `yore-fs/store.rs`.

`check-docs.py --self-test` proves on made-up input that both kinds of mistake are seen.
"""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
NAMED = re.compile(r"`((?:crates/)?yore-[a-z]+(?:/[A-Za-z0-9_.-]+)+|scripts/[A-Za-z0-9_.-]+|docs/[A-Za-z0-9_.-]+)((?:::[A-Za-z_0-9]+)?)`")


def breaches(text, exists, read):
    """Yields (line, what is wrong)."""
    for number, line in enumerate(text.split("\n"), 1):
        for match in NAMED.finditer(line):
            path, name = match.group(1), match.group(2).removeprefix("::")
            path = f"crates/{path}" if path.startswith("yore-") else path
            if not exists(path):
                # `yore-meta/space.rs` for crates/yore-meta/src/space.rs
                path = re.sub(r"^(crates/[^/]+)/", r"\1/src/", path)
            if not exists(path):
                yield number, f"{path} is not there"
            elif name and not re.search(rf"\b(?:fn|struct|enum|trait|type|const|static|mod|macro_rules!) {name}\b", read(path)):
                yield number, f"{path} has no {name}"


def self_test():
    files = {"crates/yore-fs/src/store.rs": "pub(crate) struct Store;\nfn find() {}", "scripts/x.py": ""}
    text = "`yore-fs/src/store.rs::find` `yore-fs/store.rs`\n`crates/yore-fs/src/store.rs::Store` `scripts/x.py`\n`yore-fs/src/gone.rs`\n`yore-fs/src/store.rs::lost`"
    found = [number for number, _ in breaches(text, files.__contains__, files.__getitem__)]
    assert found == [3, 4], found
    print("check-docs: self-test ok")


def main():
    def read(path):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return file.read()

    wrong, count = 0, 0
    documents = ["README.md"] + sorted(f"docs/{name}" for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
    for document in documents:
        text = read(document)
        count += len(NAMED.findall(text))
        for line, what in breaches(text, lambda path: os.path.exists(os.path.join(ROOT, path)), read):
            print(f"check-docs: {document}:{line}: {what}", file=sys.stderr)
            wrong += 1
    if wrong:
        sys.exit(1)
    print(f"check-docs: {count} files and functions named in {len(documents)} documents are there")


if __name__ == "__main__":
    self_test() if sys.argv[1:] == ["--self-test"] else main()
