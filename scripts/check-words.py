#!/usr/bin/env python3
"""Holds code and documents to the dictionary: fails on words that docs/GLOSSARY.md says are not used.

The last table of GLOSSARY.md has the words: the first column those that are banned, the second what to say, the third phrases that are
allowed all the same. A word is found in prose and as a part of identifiers, `own_cut` and `CutRow` alike.

`check-words.py --self-test` proves on made-up input that words are found, and phrases let through.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GLOSSARY = "docs/GLOSSARY.md"
HEADING = "## Words that are not used"
# What is not the project's own prose: recorded bytes, lists of others, what is built.
SKIPPED = {"target", "corpus", "sources", "artifacts", "found", ".git"}
KINDS = (".rs", ".md")


def table(glossary):
    """The last table: [(word, what to say, [allowed phrases])]."""
    rows = []
    for line in glossary.split(HEADING, 1)[1].splitlines():
        columns = [column.strip() for column in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(columns) == 3:
            allowed = [phrase.strip() for phrase in columns[2].split(",") if phrase.strip()]
            rows += [(word, columns[1], allowed) for word in re.findall(r"`([^`]+)`", columns[0])]
    return rows


def words_of(line):
    """The line with identifiers taken apart into words, in lower case."""
    line = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", line)
    return line.replace("_", " ").lower()


def found_in(text, rows):
    """Where banned words are: [(line, word, what to say)]."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = words_of(line)
        for word, say, allowed in rows:
            rest = words
            for phrase in allowed:
                rest = re.sub(rf"\b{re.escape(phrase)}s?\b", " ", rest)
            if re.search(rf"\b{re.escape(word)}\b", rest):
                found.append((number, word, say))
    return found


def files():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if name.endswith(KINDS) and path not in (GLOSSARY, "scripts/check-words.py"):
                yield path


def self_test():
    rows = table(f"| `x` | y | |\n{HEADING}\n| word | say | but |\n|---|---|---|\n| `cut`, `cuts` | event | power cut, cut -f |\n")
    assert rows == [("cut", "event", ["power cut", "cut -f"]), ("cuts", "event", ["power cut", "cut -f"])], rows
    text = "let own_cut = CutRow;\na power cut\nexecute\nthe cuts\npower cuts and a cut\ncut -f 1"
    assert [(line, word) for line, word, _ in found_in(text, rows)] == [(1, "cut"), (4, "cuts"), (5, "cut")]


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    with open(os.path.join(ROOT, GLOSSARY), encoding="utf-8") as glossary:
        rows = table(glossary.read())
    bad = 0
    for path in files():
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            for line, word, say in found_in(file.read(), rows):
                print(f"{path}:{line}: \"{word}\" is not used; say: {say} ({GLOSSARY})")
                bad += 1
    if not rows:
        print(f"{GLOSSARY}: no words below {HEADING!r}")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
