"""Writes files, makes them durable, and only then says so in a log on the host.

ackwriter.py write DIR LOG SEED     works below DIR until the file system dies under it
ackwriter.py verify DIR LOG         holds everything below DIR against the log

The log has a line per step, appended with a single write:

    H PATH HASH                     held when the log was begun: each verification begins it anew
    I NUMBER KIND PATH HASH...      about to start; what the path may hold if there is no answer
    A NUMBER                        the step is durable: fsync of the file and of its directory returned

After a crash a path must hold what its last acknowledged step left, or what a step begun after that would
leave. Per kind of step, an unanswered one may leave:

    create    nothing, or a file with anything in it (its fsync had not returned)
    replace   the old file or the whole new one: it was fsynced before the rename
    append    the old contents and then anything
    change    a file of the old length with anything in it
    remove    the old file or nothing
    move      the file under either name, never under none (both, only where the promise of the engine says so)

Some files lie in a directory that all writers share, so that they fsync one directory at once. Beside the steps
each writer has a thread that makes noise: it creates, appends, truncates, renames, links and removes files that
nobody syncs. They are promised to be readable, and to hold nobody else's bytes: each is filled with one byte that follows
from its inode number, and may have zeros where the crash came before its data.
"""
import errno
import hashlib
import os
import random
import sys
import threading

# Files that a writer keeps at most: campaigns that go on for hours must not fill the volume.
FILES_MOST = 250
NOISE_MOST = 100

# Where all writers' shared files lie, and what is added to a writer's directory for its noise.
SHARED, NOISE = "shared", ".noise"

# The engine of the volume, and those under which a crash may leave both names of a rename (docs/SEMANTICS.md).
ENGINE = os.environ.get("ENGINE", "snapshot")
LEAVE_BOTH = {"soft-updates", "sync"}

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
        elif kind == "H":
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
        self.seed = seed
        self.prefix = f"{os.path.basename(base)}-{seed}-"

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

    def put(self, path, content, flags, offset=None):
        fd = os.open(self.at(path), os.O_WRONLY | flags, 0o644)
        try:
            if offset is not None:
                os.lseek(fd, offset, os.SEEK_SET)
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
        if self.rng.random() < 0.3:
            return os.path.join("..", SHARED, f"f{self.prefix}{self.number}")
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
        kinds = ["create", "replace", "append", "change", "remove", "move"]
        kind = self.rng.choices(kinds, [6, 4, 3, 2, 2, 2])[0]
        if len(self.settled) < 5:
            kind = "create"
        elif len(self.settled) > FILES_MOST and kind in ("create", "append"):
            kind = "remove"
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
        elif kind == "change":
            with open(self.at(old), "rb") as file:
                before = file.read()
            at = self.rng.randint(0, len(before))
            piece = self.content()[: len(before) - at]
            after = before[:at] + piece + before[at + len(piece) :]
            self.say("I", number, kind, old, digest(after))
            self.put(old, piece, 0, at)
            self.settled[old] = digest(after)
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


class Noise(threading.Thread):
    """Changes that nobody syncs, in a directory of their own, whatever is there already."""

    def __init__(self, base, seed):
        super().__init__(daemon=True)
        self.base, self.rng, self.number, self.seed = base, random.Random(seed + ".noise"), 0, seed
        os.makedirs(os.path.join(base, "sub"), exist_ok=True)
        self.files = sorted(f for f in found_in(base))

    def at(self, path):
        return os.path.join(self.base, path)

    def new_path(self):
        self.number += 1
        return os.path.join(self.rng.choice(["", "sub"]), f"{self.seed}-{self.number}")

    def step(self):
        kind = self.rng.choice(["create", "append", "overwrite", "truncate", "rename", "link", "unlink"])
        if len(self.files) < 5:
            kind = "create"
        elif len(self.files) > NOISE_MOST:
            kind = "unlink"
        at = self.rng.randrange(len(self.files)) if self.files else 0
        if kind == "create":
            self.files.append(self.new_path())
            with open(self.at(self.files[-1]), "xb") as file:
                file.write(own_byte(file.fileno()) * self.rng.choice([0, 50, 5000, 40_000]))
        elif kind in ("append", "overwrite"):
            with open(self.at(self.files[at]), "r+b", buffering=0) as file:
                file.seek(0, os.SEEK_END if kind == "append" else os.SEEK_SET)
                most = 30_000 if kind == "append" else os.fstat(file.fileno()).st_size
                file.write(own_byte(file.fileno()) * self.rng.randint(0, most))
        elif kind == "truncate":
            os.truncate(self.at(self.files[at]), self.rng.randint(0, os.stat(self.at(self.files[at])).st_size))
        elif kind == "rename":
            new = self.new_path()
            os.rename(self.at(self.files[at]), self.at(new))
            self.files[at] = new
        elif kind == "link":
            new = self.new_path()
            os.link(self.at(self.files[at]), self.at(new))
            self.files.append(new)
        else:
            os.unlink(self.at(self.files.pop(at)))

    def run(self):
        try:
            while True:
                self.step()
        except OSError as error:
            if error.errno not in DEAD:
                print(f"the thread that makes noise: {error}", file=sys.stderr, flush=True)
                os._exit(1)


def own_byte(file):
    return bytes([os.stat(file).st_ino % 255 + 1])


def found_in(base):
    for directory, _, names in os.walk(base):
        for name in names:
            yield os.path.relpath(os.path.join(directory, name), base)


def write(base, log, seed):
    # The file system may end before the thread has begun.
    noise = None
    try:
        os.makedirs(base, exist_ok=True)
        os.makedirs(os.path.join(base, "..", SHARED), exist_ok=True)
        writer = Writer(base, log, seed)
        noise = Noise(base + NOISE, seed)
        noise.start()
        while True:
            writer.step()
    except OSError as error:
        if error.errno not in DEAD:
            raise
    if noise is not None:
        noise.join()


def judge(base, log):
    """(what is wrong, path -> digest as it is to be from now on)."""
    settled, pending = parse(log)
    found, wrong = {}, []
    shared = os.path.join(base, "..", SHARED)
    ours = f"f{os.path.basename(base)}-"
    for top, below in ((base, ""), (shared, os.path.join("..", SHARED))):
        unreadable = lambda error: wrong.append(f"unreadable: {error}")
        for directory, _, names in os.walk(top, onerror=unreadable):
            for name in names:
                path = os.path.normpath(os.path.join(below, os.path.relpath(os.path.join(directory, name), top)))
                if top == base or name.startswith(ours):
                    found[path] = file_digest(os.path.join(base, path))
    allowed = {path: {value} for path, value in settled.items()}
    for kind, path, *rest in pending.values():
        if kind == "create":
            allowed[path] = {None, "any"}
        elif kind == "replace":
            allowed[path].add(rest[0])
            if found.pop(path + ".new", None):
                os.unlink(os.path.join(base, path + ".new"))
        elif kind == "append":
            size = int(rest[1].split(":")[0])
            try:
                with open(os.path.join(base, path), "rb") as file:
                    if digest(file.read(size)) == rest[1]:
                        allowed[path].add("any")
            except FileNotFoundError:
                pass
        elif kind == "change":
            if found.get(path, "").split(":")[0] == rest[0].split(":")[0]:
                allowed[path].add("any")
        elif kind == "remove":
            allowed[path].add(None)
        elif kind == "move":
            value = settled[path]
            if path not in found and rest[0] not in found:
                wrong.append(f"{path} and {rest[0]}: an unanswered rename left neither")
            if path in found and rest[0] in found:
                old, new = (os.stat(os.path.join(base, name)).st_ino for name in (path, rest[0]))
                if ENGINE not in LEAVE_BOTH or old != new:
                    wrong.append(f"{path} and {rest[0]}: an unanswered rename left both names")
            allowed[path], allowed[rest[0]] = {value, None}, {value, None}
    for path in sorted(set(allowed) | set(found)):
        have, may = found.get(path), allowed.get(path, {None})
        if have not in may and not (have is not None and "any" in may):
            wrong.append(f"{path}: has {have or 'vanished'}, allowed {sorted(map(str, may))}")
    return wrong, found


def judge_noise(base):
    wrong = []
    for path in found_in(base):
        try:
            with open(os.path.join(base, path), "rb") as file:
                strange = set(file.read()) - {0, *own_byte(file.fileno())}
            if strange:
                wrong.append(f"{path} in {base}: holds what was never written to it: {sorted(strange)}")
        except OSError as error:
            wrong.append(f"unsynced and unreadable: {error}")
    return wrong


def verify(base, log):
    wrong, found = judge(base, log)
    wrong += judge_noise(base + NOISE)
    for line in wrong[:20]:
        print(line)
    print(f"{len(found)} files are as acknowledged" if not wrong else f"{len(wrong)} contradictions")
    if wrong:
        sys.exit(1)
    # Begun anew, whole or not at all, so that it does not grow for as long as a campaign goes on.
    with open(log + ".new", "w", encoding="utf-8") as out:
        out.writelines(f"H {path} {value}\n" for path, value in found.items())
    os.replace(log + ".new", log)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], sys.argv[4])
    else:
        verify(sys.argv[2], sys.argv[3])
