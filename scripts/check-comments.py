#!/usr/bin/env python3
"""Holds comments to the width of the code, which is `max_width` in rustfmt.toml. (rustfmt leaves comments alone.)

`check-comments.py` fails on wider lines in all crates, their tests included. `--fix CRATE|FILE...` rewraps the
paragraphs that have a wider line, and leaves all others as they are. `--self-test` proves both on made-up input.

Exempt, because no wrapping helps them: tables, code blocks, definitions of links, and words that alone are too long.
`--fix` leaves these whole, as well as headings and the structure of lists. It does not join lines that were broken on
purpose: a line stays the last of its paragraph if it ends a sentence and has ample room for the next word. A comment
after code on the same line is reported; its place is the line above, and that is for a human to judge.
"""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
CRATES = sorted(os.listdir(os.path.join(ROOT, "crates")))

# Strings and characters are here so that what looks like a comment in them is none.
TOKENS = re.compile(
    r"""(?P<line>//[^\n]*)|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n']+|[^'\\\n])'""",
    re.S,
)
COMMENT = re.compile(r"(?P<indent>\s*)(?P<marker>//[/!]?)(?P<text>(?!/).*)$")
ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s+")
# What begins a line of its own kind, so that no wrapped line may begin with it.
STRUCTURE = re.compile(r"(?:[-*+]|\d+[.)]|#+|>|\|.*|=+|-+|```.*|~~~.*)$")
# A code span is one word, however many words are in it, unless it is very long.
WORDS = re.compile(r"(?:[^\s`]|(`+)(?:(?!\1)[^\n]){1,50}?\1|`)+")
# Room after the end of a sentence that says that the line was broken there on purpose.
AMPLE = 15


def max_width():
    with open(os.path.join(ROOT, "rustfmt.toml"), encoding="utf-8") as file:
        return int(re.search(r"^max_width\s*=\s*(\d+)", file.read(), re.M).group(1))


def comment_lines(source):
    """What each line has of a comment: {line number from 0: column at which it begins}. Block comments count by line."""
    found = {}
    for match in TOKENS.finditer(source):
        if not match.group().startswith(("//", "/*")):
            continue
        first = source.count("\n", 0, match.start())
        for number in range(first, first + match.group().count("\n") + 1):
            found[number] = match.start() - (source.rfind("\n", 0, match.start()) + 1) if number == first else 0
    return found


def blocks(source):
    """Comments of whole lines with one marker and one indent: [(first line, prefix, [text without the prefix])]."""
    lines, columns, found = source.split("\n"), comment_lines(source), []
    for number, line in enumerate(lines):
        match = COMMENT.match(line)
        if number not in columns or not match or columns[number] != len(match.group("indent")):
            continue
        prefix = match.group("indent") + match.group("marker")
        last = found[-1] if found else None
        if last and last[1] == prefix and last[0] + len(last[2]) == number:
            last[2].append(match.group("text"))
        else:
            found.append((number, prefix, [match.group("text")]))
    return found


def is_whole(text):
    """Whether a line is of a kind that is never wrapped: a row of a table, a definition of a link, a heading."""
    text = text.strip()
    return text.startswith(("|", "#", ">")) or bool(re.match(r"\[[^\]]+\]:\s", text))


def paragraphs(texts):
    """Runs of lines that belong together: [(first, end, kind)]; kind is `code`, `whole`, `blank` or `text`."""
    found, at, item = [], 0, 0
    while at < len(texts):
        text, first = texts[at], at
        fence = re.match(r"\s*(```+|~~~+)", text)
        at += 1
        if fence:
            while at < len(texts) and not texts[at].strip().startswith(fence.group(1)):
                at += 1
            at = min(at + 1, len(texts))
            found.append((first, at, "code"))
        elif not text.strip():
            found.append((first, at, "blank"))
        elif is_whole(text):
            found.append((first, at, "whole"))
        else:
            start = len(text) - len(text.lstrip())
            # Four more spaces than the paragraph before has: code, or a drawing.
            if start >= 5 and start >= item + 4:
                found.append((first, at, "code"))
                continue
            mark = ITEM.match(text.lstrip())
            item = start + (len(mark.group()) if mark else 0)
            hang = item
            while at < len(texts) and texts[at].strip() and not is_whole(texts[at]):
                more = texts[at]
                indent = len(more) - len(more.lstrip())
                if ITEM.match(more.lstrip()) or re.match(r"\s*(```|~~~)", more):
                    break
                # The lines of an item are indented as its text is, those of a paragraph as its first.
                if indent != hang:
                    break
                at += 1
            found.append((first, at, "text"))
    return found


def wrap(words, first, hang, width):
    """Words in lines: the first begins with `first`, the others with `hang`."""
    lines, line = [], first
    empty = True
    for at, word in enumerate(words):
        grown = line + ("" if empty else " ") + word
        # A word that would be taken for structure at the beginning of a line stays with the word after it.
        follows = words[at + 1] if at + 1 < len(words) else ""
        must_fit = len(grown)
        if follows and STRUCTURE.match(follows):
            must_fit += 1 + len(follows)
        if not empty and must_fit > width and not STRUCTURE.match(word):
            lines.append(line)
            grown = hang + word
        line, empty = grown, False
    return lines + [line]


def rewrap(texts, prefix, width):
    """One paragraph, without its prefix, in lines that fit."""
    text = texts[0].lstrip()
    start = texts[0][: len(texts[0]) - len(text)]
    mark = ITEM.match(text)
    mark = mark.group() if mark else ""
    words = [[]]
    for at, line in enumerate(texts):
        here = [match.group() for match in WORDS.finditer(line.strip()[len(mark) if at == 0 else 0 :])]
        words[-1] += here
        if at + 1 < len(texts) and here:
            follows = texts[at + 1].split()[0]
            room = width - len(prefix) - len(line.rstrip()) - 1 - len(follows)
            if here[-1][-1] in ".:;" and room >= AMPLE:
                words.append([])
    lines = []
    for at, part in enumerate(words):
        hang = prefix + start + " " * len(mark)
        lines += wrap(part, hang if at else prefix + start + mark, hang, width)
    return lines


def fixed(source, width):
    """The source with all paragraphs rewrapped that have a wider line."""
    lines = source.split("\n")
    for first, prefix, texts in reversed(blocks(source)):
        for begin, end, kind in reversed(paragraphs(texts)):
            if kind == "text" and any(len(prefix + text) > width for text in texts[begin:end]):
                lines[first + begin : first + end] = rewrap(texts[begin:end], prefix, width)
    return "\n".join(lines)


def wide_lines(source, width):
    """Numbers, from 1, of the lines with comments that are wider than code may be and need not be."""
    lines, columns = source.split("\n"), comment_lines(source)
    exempt = set()
    for first, prefix, texts in blocks(source):
        for begin, end, kind in paragraphs(texts):
            for at in range(begin, end):
                # Alone on its line, or with no more than the mark of an item.
                words = [match.group() for match in WORDS.finditer(texts[at])]
                alone = len(words) - bool(ITEM.match(texts[at].lstrip())) <= 1
                heading = texts[at].strip().startswith(("#", ">"))
                if kind == "code" or (kind == "whole" and not heading) or alone:
                    exempt.add(first + at)
    return [at + 1 for at, line in enumerate(lines) if at in columns and at not in exempt and len(line) > width]


def sources(of):
    """The Rust files of a crate, or the one file of that name."""
    if of.endswith(".rs"):
        return [of]
    home = os.path.join(ROOT, "crates", of)
    if not os.path.isdir(home):
        sys.exit(f"check-comments: {of}: neither a crate nor a Rust file; name one of those in crates/")
    found = []
    for directory, names, files in os.walk(home):
        names[:] = sorted(name for name in names if name != "target")
        found += [os.path.join(directory, name) for name in sorted(files) if name.endswith(".rs")]
    return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def check(width):
    count, files = 0, [path for crate in CRATES for path in sources(crate)]
    for path in files:
        for line in wide_lines(read(path), width):
            count += 1
            name = os.path.relpath(path, ROOT)
            print(f"check-comments: {name}:{line}: a comment wider than {width}; `--fix {name}` rewraps", file=sys.stderr)
    if count:
        sys.exit(1)
    print(f"check-comments: {len(files)} files of {len(CRATES)} crates keep to {width} columns")


def fix(names, width):
    for path in [path for name in names for path in sources(name)]:
        before = read(path)
        after = fixed(before, width)
        if after != before:
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)
            print(f"check-comments: {os.path.relpath(path)}: rewrapped")
        for line in wide_lines(after, width):
            print(f"check-comments: {os.path.relpath(path)}:{line}: still too wide; rewrap it by hand", file=sys.stderr)


def self_test():
    before = '''\
//! One two three four five six seven eight nine.
//! Ten.

/// Short.
///
/// A paragraph that is wider than it may be, and
/// goes on here.
/// - an item of a list that is much too wide
///   and goes on
/// - another
///
/// | a table | that is wider than it may be |
/// ```text
/// a drawing that is wider than it may be: kept
/// ```
/// [link]: https://example.org/that/is/too/long/to/wrap
fn f() {
    // It ends.
    // The code span `let a_name = value` moves as one word.
    let s = "// not a comment, however wide this line may be";
    let c = '"'; // A comment after code that is too wide.
    // With a dash at the place where it breaks - no item.
    // https://example.org/one/word/that/no/wrapping/helps
}
'''
    after = '''\
//! One two three four five six seven
//! eight nine. Ten.

/// Short.
///
/// A paragraph that is wider than it
/// may be, and goes on here.
/// - an item of a list that is much
///   too wide and goes on
/// - another
///
/// | a table | that is wider than it may be |
/// ```text
/// a drawing that is wider than it may be: kept
/// ```
/// [link]: https://example.org/that/is/too/long/to/wrap
fn f() {
    // It ends.
    // The code span
    // `let a_name = value` moves as
    // one word.
    let s = "// not a comment, however wide this line may be";
    let c = '"'; // A comment after code that is too wide.
    // With a dash at the place where
    // it breaks - no item.
    // https://example.org/one/word/that/no/wrapping/helps
}
'''
    assert wide_lines(before, 38) == [1, 6, 8, 19, 21, 22], wide_lines(before, 38)
    found = fixed(before, 38)
    assert found == after, found
    assert wide_lines(found, 38) == [23], wide_lines(found, 38)
    assert fixed(found, 38) == found
    # No line begins with what would be taken for an item.
    assert fixed("// aaaa bbbb - cccc dddd\n", 12) == "// aaaa\n// bbbb -\n// cccc dddd\n", fixed("// aaaa bbbb - cccc dddd\n", 12)
    assert 0 < max_width() < 1000
    print("check-comments: self-test ok")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        self_test()
    elif arguments[:1] == ["--fix"] and arguments[1:]:
        fix(arguments[1:], max_width())
    elif not arguments:
        check(max_width())
    else:
        sys.exit("usage: check-comments.py [--self-test | --fix CRATE|FILE...]")


if __name__ == "__main__":
    main()
