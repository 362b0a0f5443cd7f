"""Writes a git fast-import stream: history.py SOURCES COMMITS.

All files of SOURCES come in over the commits; each commit also changes some files that are there, moves one
and removes one, so that a checkout of any commit differs widely from that of another.
"""
import os
import random
import sys

sources, commits = sys.argv[1], int(sys.argv[2])
rng = random.Random(int(os.environ.get("SEED", "1")))
out = sys.stdout.buffer

paths = []
for base, _, names in os.walk(sources):
    for name in names:
        path = os.path.join(base, name)
        if os.path.isfile(path) and not os.path.islink(path):
            paths.append(os.path.relpath(path, sources))
paths.sort()
rng.shuffle(paths)


def data(content):
    out.write(b"data %d\n" % len(content) + content + b"\n")


def quoted(path):
    return ('"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"').encode()


def modify(path, content, mode=b"100644"):
    out.write(b"M " + mode + b" inline " + quoted(path) + b"\n")
    data(content)


present = {}
per_commit = -(-len(paths) // commits)
for number in range(commits):
    out.write(b"commit refs/heads/main\n")
    out.write(b"committer t <t@t> %d +0000\n" % (1_700_000_000 + number * 60))
    data(b"commit %d\n" % number)
    if number == 0:
        modify("link", b"a/target/that/may/not/be/there", b"120000")
    for path in paths[number * per_commit : (number + 1) * per_commit]:
        with open(os.path.join(sources, path), "rb") as file:
            present[path] = file.read()
        modify(path, present[path], b"100755" if os.access(os.path.join(sources, path), os.X_OK) else b"100644")
    for path in rng.sample(sorted(present), min(5, len(present))):
        present[path] += b"changed by commit %d\n" % number
        modify(path, present[path])
    if len(present) > 10:
        moved, removed = rng.sample(sorted(present), 2)
        target = f"moved/{number}/{os.path.basename(moved)}"
        present[target] = present.pop(moved)
        out.write(b"R " + quoted(moved) + b" " + quoted(target) + b"\n")
        del present[removed]
        out.write(b"D " + quoted(removed) + b"\n")
