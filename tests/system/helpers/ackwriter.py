"""Writes files, makes them durable, and only then says so in a log on the host.

ackwriter.py write DIR LOG SEED     works below DIR until the file system dies under it
ackwriter.py verify DIR LOG         holds everything below DIR against the log

The log has a line per step, appended with a single write:

    I NUMBER KIND PATH HASH...      about to start; what the path may hold if there is no answer
    A NUMBER                        the step is durable: fsync of the file and of its directory returned

After a crash a path must hold what its last acknowledged step left, or what a step begun after that would
leave. Per kind of step, an unanswered one may leave:

    create    nothing, or a file with anything in it (its fsync had not returned)
    replace   the old file or the whole new one: it was fsynced before the rename
    append    the old contents and then anything
    remove    the old file or nothing
    move      the file under either name, never under none (both, only where the promise of the engine says so)
"""
import errno
import hashlib
import os
import random
import sys

DEAD = {errno.EIO, errno.EROFS, errno.ENOTCONN, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENODEV}


def digest(content):
    return f"{len(content)}:{hashlib.sha256(content).hexdigest()[:24]}"


def file_digest(path):
    with open(path, "rb") as file:
        return digest(file.read())


def parse(log):
    """(settled, pending): path -> digest as acknowledged, and the steps without an answer."""
    settled, pending = {}, {}
    try:
        lines = open(log, encoding="utf-8").read().splitlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        kind, number, *rest = line.split(" ")
        if kind == "I":
            pending[number] = rest
        elif kind == "R":  # what a verification found an unanswered step to have left
            for step in [s for s, r in pending.items() if number in (r[1], r[2] if r[0] == "move" else None)]:
                del pending[step]
            settled.pop(number, None)
            if rest[0] != "-":
                settled[number] = rest[0]
        else:
            step = pending.pop(number)
            if step[0] == "remove":
                del settled[step[1]]
            elif step[0] == "move":
                settled[step[2]] = settled.pop(step[1])
            else:
                settled[step[1]] = step[2]
    return settled, pending


class Writer:
    def __init__(self, base, log, seed):
        self.base, self.rng, self.number = base, random.Random(seed), 0
        self.settled, pending = parse(log)
        if pending:
            sys.exit(f"{log}: steps without an answer: verify first")
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.prefix = f"{os.getpid()}-"

    def say(self, *words):
        line = (" ".join(map(str, words)) + "\n").encode()
        if os.write(self.log, line) != len(line):
            sys.exit("short write to the host's log")

    def at(self, path):
        return os.path.join(self.base, path)

    def sync_directory(self, path):
        fd = os.open(os.path.dirname(self.at(path)), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def put(self, path, content, flags):
        fd = os.open(self.at(path), os.O_WRONLY | flags, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view[: self.rng.randint(1, 1 << 17)]) :]
            os.fsync(fd)
        finally:
            os.close(fd)

    def content(self):
        size = self.rng.choice([0, 1, 100, 3000, 4096, 5000, 20_000, 65_536, 200_000])
        return self.rng.randbytes(size + self.rng.randint(0, 50))

    def new_path(self):
        depth = self.rng.randint(0, 3)
        parts = [f"d{self.rng.randint(0, 6)}" for _ in range(depth)]
        directory = os.path.join(self.base, *parts)
        if not os.path.isdir(directory):
            os.makedirs(directory, exist_ok=True)
            for level in range(len(parts) + 1):
                fd = os.open(os.path.join(self.base, *parts[:level]), os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)
        return os.path.join(*parts, f"f{self.prefix}{self.number}")

    def step(self):
        self.number += 1
        number = f"{self.prefix}{self.number}"
        kind = self.rng.choices(["create", "replace", "append", "remove", "move"], [6, 4, 3, 2, 2])[0]
        if not self.settled or len(self.settled) < 5:
            kind = "create"
        old = self.rng.choice(sorted(self.settled)) if kind != "create" else None
        if kind == "create":
            path, content = self.new_path(), self.content()
            self.say("I", number, kind, path, digest(content))
            self.put(path, content, os.O_CREAT | os.O_EXCL)
            self.sync_directory(path)
            self.settled[path] = digest(content)
        elif kind == "replace":
            content = self.content()
            self.say("I", number, kind, old, digest(content))
            temporary = old + ".new"
            self.put(temporary, content, os.O_CREAT | os.O_TRUNC)
            os.rename(self.at(temporary), self.at(old))
            self.sync_directory(old)
            self.settled[old] = digest(content)
        elif kind == "append":
            with open(self.at(old), "rb") as file:
                before = file.read()
            content = self.content()
            self.say("I", number, kind, old, digest(before + content), digest(before))
            self.put(old, content, os.O_APPEND)
            self.settled[old] = digest(before + content)
        elif kind == "remove":
            self.say("I", number, kind, old)
            os.unlink(self.at(old))
            self.sync_directory(old)
            del self.settled[old]
        else:
            new = self.new_path()
            self.say("I", number, kind, old, new)
            os.rename(self.at(old), self.at(new))
            self.sync_directory(new)
            self.sync_directory(old)
            self.settled[new] = self.settled.pop(old)
        self.say("A", number)


def write(base, log, seed):
    os.makedirs(base, exist_ok=True)
    writer = Writer(base, log, seed)
    while True:
        try:
            writer.step()
        except OSError as error:
            if error.errno in DEAD:
                return
            raise


def judge(base, log):
    """Yields what is wrong; settles unanswered steps in the log as they are found."""
    settled, pending = parse(log)
    found = {}
    for directory, _, names in os.walk(base, onerror=lambda error: found.setdefault(str(error), "unreadable")):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), base)
            found[path] = file_digest(os.path.join(base, path))
    allowed = {path: {value} for path, value in settled.items()}
    notes = []
    for kind, path, *rest in pending.values():
        if kind == "create":
            allowed[path] = {None, "any"}
        elif kind == "replace":
            allowed[path].add(rest[0])
            found.pop(path + ".new", None)
            notes.append(path)
        elif kind == "append":
            size = int(rest[1].split(":")[0])
            try:
                with open(os.path.join(base, path), "rb") as file:
                    if digest(file.read(size)) == rest[1]:
                        allowed[path].add("any")
            except FileNotFoundError:
                pass
        elif kind == "remove":
            allowed[path].add(None)
        elif kind == "move":
            value = settled[path]
            if (path in found) == (rest[0] in found):
                yield f"{path} and {rest[0]}: an unanswered rename left {'both names' if path in found else 'neither'}"
            allowed[path], allowed[rest[0]] = {value, None}, {value, None}
            notes.append(rest[0])
        notes.append(path)
    for path in sorted(set(allowed) | set(found)):
        have, may = found.get(path), allowed.get(path, {None})
        if have not in may and not (have is not None and "any" in may):
            yield f"{path}: has {have or 'vanished'}, allowed {sorted(map(str, may))}"
    with open(log, "a", encoding="utf-8") as out:
        for path in dict.fromkeys(notes):
            out.write(f"R {path} {found.get(path, '-')}\n")


def verify(base, log):
    wrong = list(judge(base, log))
    for line in wrong[:20]:
        print(line)
    settled, _ = parse(log)
    print(f"{len(settled)} files are as acknowledged" if not wrong else f"{len(wrong)} contradictions")
    # Left-overs of unanswered replacements are not part of any promise.
    for directory, _, names in os.walk(base):
        for name in names:
            if name.endswith(".new"):
                os.unlink(os.path.join(directory, name))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], sys.argv[4])
    else:
        verify(sys.argv[2], sys.argv[3])
