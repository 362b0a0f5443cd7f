#!/usr/bin/env python3
"""Holds code and documents to the dictionary: fails on words that docs/GLOSSARY.md says are not used.

The last table of GLOSSARY.md has the words: the first column those that are banned, the second what to say, the third phrases that are
allowed all the same. A word is found in prose and as a part of identifiers, `own_cut` and `CutRow` alike. The table after it, whose
first column is `name`, has words that only names in code must not have as a part; names of tests are sentences and may.

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


def tables(glossary):
    """The last two tables, of words and of names: [(word, what to say, [allowed phrases])] each."""
    words, names = glossary.split(HEADING, 1)[1].split("\n| name |", 1)
    return table(words), table(names)


def table(text):
    rows = []
    for line in text.splitlines():
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
            # Most lines end here, without a regular expression.
            if word not in words:
                continue
            rest = words
            for phrase in allowed:
                rest = re.sub(rf"\b{re.escape(phrase)}s?\b", " ", rest)
            if re.search(rf"\b{re.escape(word)}\b", rest):
                found.append((number, word, say))
    return found


# What is not code: characters that are quotes, raw strings, strings, comments.
NOT_CODE = re.compile(r"""'\\?"'|\br(#*)".*?"\1|"(?:\\.|[^"\\])*"|//[^\n]*""", re.DOTALL)


def names_in(text):
    """The code's identifiers with their lines, as words; sentences, which name tests, left out."""
    code = NOT_CODE.sub(lambda part: "\n" * part.group().count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        for name in re.findall(r"[A-Za-z_][A-Za-z0-9_]*", line):
            if len(words_of(name).split()) < 5:
                yield number, name


def bad_names(text, rows):
    """Names occur again and again, so each is judged once."""
    judged = {}
    for number, name in names_in(text):
        if name not in judged:
            judged[name] = found_in(name, rows)
        yield from ((number, word, say) for _, word, say in judged[name])


def files():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), ROOT)
            if name.endswith(KINDS) and path not in (GLOSSARY, "scripts/check-words.py"):
                yield path


def self_test():
    glossary = (
        f"| `x` | y | |\n{HEADING}\n| word | say | but |\n|---|---|---|\n| `cut`, `cuts` | event | power cut, cut -f |\n"
        "\nNames:\n\n| name | say | but |\n|---|---|---|\n| `look` | query | |\n"
    )
    words, names = tables(glossary)
    assert words == [("cut", "event", ["power cut", "cut -f"]), ("cuts", "event", ["power cut", "cut -f"])], words
    text = "let own_cut = CutRow;\na power cut\nexecute\nthe cuts\npower cuts and a cut\ncut -f 1"
    assert [(line, word) for line, word, _ in found_in(text, words)] == [(1, "cut"), (4, "cuts"), (5, "cut")]
    code = 'struct LookBack; // look\nlet s = "do not\n look"; let c = \'"\'; look();\nfn who_may_look_at_it_now() {}\nx.look'
    assert [(line, word) for line, word, _ in bad_names(code, names)] == [(1, "look"), (3, "look"), (5, "look")]


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    with open(os.path.join(ROOT, GLOSSARY), encoding="utf-8") as glossary:
        words, names = tables(glossary.read())
    bad = 0
    for path in files():
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        found = found_in(text, words) + list(bad_names(text, names) if path.endswith(".rs") else [])
        for line, word, say in found:
            print(f"{path}:{line}: \"{word}\" is not used; say: {say} ({GLOSSARY})")
            bad += 1
    if not words or not names:
        print(f"{GLOSSARY}: no words below {HEADING!r}")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
