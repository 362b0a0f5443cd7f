"""syscalls.py DIR SECONDS SEED YORE [full]: an ordinary user at work in a directory of his own, at random.

Two processes make any call there is for files: create, write, map, rename (exchange, no replace), link, remove, attributes,
allocate, punch, cut, change permissions, pipes and sockets, files that are open and have no name, fsync. A third one takes snapshots,
sets policies, puts back, rolls back, undoes, does again, forgets. Calls may be refused for what a program may
expect. EIO and damage are none of these, nor is ENOSPC unless the volume may be full. A command ends with a
message that says why, or does what it was told; a rollback ends unless the volume is full.

Prints `ok - NAME` and `not ok - NAME: REASON` lines. Processes that call are killed when the time is over and they do not end.
"""

import ctypes
import errno
import mmap
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time

NAMES = ["a", "b", "c", "d", "e", "f", "g", "h", ".yore-rollback-0", "0", "n" * 255]
REFUSALS = {
    "ENOENT", "EEXIST", "ENOTDIR", "EISDIR", "ENOTEMPTY", "EINVAL", "EPERM", "EACCES", "ELOOP", "ENAMETOOLONG", "EMLINK", "ENODATA",
    "EFBIG", "ENXIO", "EOPNOTSUPP", "EBUSY", "E2BIG", "ENOTSUP", "ETXTBSY", "EXDEV", "EADDRINUSE", "ESPIPE", "EAGAIN",
    # What a rollback took away while a call was waiting for it.
    "ESTALE",
}  # fmt: skip
PUNCH, KEEP, ZERO = 2, 1, 16
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def checked(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Caller:
    """One process that calls at random."""

    def __init__(self, base, seed, full):
        self.base, self.rng, self.full = base, random.Random(seed), full
        self.open, self.count = [], 0
        self.calls = [
            (self.write, 8), (self.create, 4), (self.mkdir, 4), (self.rename, 6), (self.link, 2), (self.symlink, 1), (self.unlink, 5),
            (self.rmdir, 2), (self.mknod, 1), (self.attribute, 3), (self.allocate, 2), (self.truncate, 2), (self.chmod, 2), (self.times, 1),
            (self.keep_open, 2), (self.use_open, 4), (self.let_go, 1), (self.map, 2), (self.read, 3), (self.list, 2), (self.fsync, 2),
        ]  # fmt: skip

    def path(self):
        depth = self.rng.choice([0, 0, 1, 1, 1, 2, 3])
        return os.path.join(self.base, *[self.rng.choice(NAMES[:4]) for _ in range(depth)], self.rng.choice(NAMES))

    def size(self):
        return int((4 << 20 if self.full else 1 << 20) ** self.rng.random())

    def with_file(self, flags, do):
        fd = os.open(self.path(), flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
        try:
            return do(fd)
        finally:
            os.close(fd)

    def write(self):
        flags = self.rng.choice([os.O_WRONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND])
        at, content = self.rng.choice([0, self.size()]), self.rng.randbytes(self.size())
        self.with_file(flags, lambda fd: os.pwrite(fd, content, at))

    def create(self):
        flags = os.O_RDWR | os.O_CREAT | self.rng.choice([0, os.O_EXCL, os.O_TRUNC])
        self.with_file(flags, lambda fd: os.write(fd, self.rng.randbytes(self.rng.randrange(200))))

    def mkdir(self):
        os.mkdir(self.path(), self.rng.choice([0o700, 0o755, 0o2770]))

    def rename(self):
        flags = self.rng.choice([0, 0, 1, 2])
        checked(libc.renameat2(-100, self.path().encode(), -100, self.path().encode(), flags))

    def link(self):
        os.link(self.path(), self.path(), follow_symlinks=False)

    def symlink(self):
        os.symlink(self.rng.choice(["a", "../b", "/", "x" * self.rng.randrange(1, 4000)]), self.path())

    def unlink(self):
        os.unlink(self.path())

    def rmdir(self):
        os.rmdir(self.path())

    def mknod(self):
        if self.rng.random() < 0.5:
            os.mkfifo(self.path())
        else:
            with socket.socket(socket.AF_UNIX) as it:
                path = self.path()
                if len(path) < 100:
                    it.bind(path)

    def attribute(self):
        name = "user." + self.rng.choice("abc")
        if self.rng.random() < 0.7:
            os.setxattr(self.path(), name, self.rng.randbytes(self.rng.choice([0, 10, 900, 5000])), follow_symlinks=False)
        else:
            os.removexattr(self.path(), name, follow_symlinks=False)

    def allocate(self):
        mode = self.rng.choice([0, KEEP, PUNCH | KEEP, ZERO])
        self.with_file(os.O_RDWR, lambda fd: checked(libc.fallocate(fd, mode, self.size(), self.size())))

    def truncate(self):
        # Not what waits for the other end of a pipe.
        self.with_file(os.O_RDWR, lambda fd: os.ftruncate(fd, self.size()))

    def chmod(self):
        os.chmod(self.path(), self.rng.choice([0o600, 0o644, 0o755, 0o700, 0o4755, 0o2750, 0o1777]))

    def times(self):
        os.utime(self.path(), (self.rng.randrange(2**31), self.rng.randrange(2**31)), follow_symlinks=False)

    def keep_open(self):
        fd = os.open(self.path(), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
        self.open.append(fd)
        if self.rng.random() < 0.5:
            os.unlink(self.path())

    def use_open(self):
        if self.open:
            fd = self.rng.choice(self.open)
            self.rng.choice(
                [
                    lambda: os.pwrite(fd, self.rng.randbytes(self.size()), 0),
                    lambda: os.pread(fd, 1 << 16, 0),
                    lambda: os.fsync(fd),
                    lambda: os.ftruncate(fd, self.size()),
                ]
            )()

    def let_go(self):
        while self.open:
            os.close(self.open.pop())

    def map(self):
        """Writes through a mapping, in a process of its own: the file may be cut, or the volume be full, which is SIGBUS."""

        def do(fd):
            size = min(os.fstat(fd).st_size, 1 << 16)
            if size == 0:
                os.ftruncate(fd, 8192)
                size = 8192
            child = os.fork()
            if child == 0:
                try:
                    with mmap.mmap(fd, size) as memory:
                        for at in range(0, size, 4096):
                            memory[at] = 7
                        if self.rng.random() < 0.5:
                            memory.flush()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            if self.rng.random() < 0.5:
                os.fsync(fd)

        self.with_file(os.O_RDWR, do)

    def read(self):
        self.with_file(os.O_RDONLY, lambda fd: os.read(fd, 1 << 17))

    def list(self):
        for entry in os.scandir(os.path.dirname(self.path())):
            entry.stat(follow_symlinks=False)

    def fsync(self):
        self.with_file(self.rng.choice([os.O_RDONLY, os.O_RDWR]), os.fsync)

    def run(self, end, results):
        weights = [weight for _, weight in self.calls]
        bad = {}
        while time.monotonic() < end and len(bad) < 10:
            call = self.rng.choices(self.calls, weights)[0][0]
            self.count += 1
            try:
                call()
            except OSError as error:
                name = errno.errorcode.get(error.errno, str(error.errno))
                if name not in REFUSALS and not (name == "ENOSPC" and self.full):
                    bad[(call.__name__, name)] = str(error)
            if self.rng.random() < 0.002 or len(self.open) > 100:
                self.let_go()
        results.put((self.count, [f"{call}: {name}: {text}" for (call, name), text in bad.items()]))


class Commander:
    """One process that asks Yore for what an owner may."""

    def __init__(self, base, seed, yore, full):
        self.base, self.rng, self.yore, self.full = base, random.Random(seed), yore, full

    def directory(self):
        return os.path.join(self.base, *self.rng.choice([[], [], ["a"], ["b"], ["a", "c"]]))

    def command(self):
        rng, of = self.rng, self.directory()
        at = rng.choice(["@last", f"@s{rng.randrange(8)}", f"@{rng.randrange(1, 9)}s", "@1m"])
        name = rng.choice(NAMES[:8])
        return rng.choice(
            [
                ["snapshot", of],
                ["snapshot", of],
                ["snapshot", "--hold", of],
                ["snapshot", "-n", f"s{rng.randrange(8)}", of],
                ["rollback", of + at],
                ["rollback", of + at],
                ["rollback", of + at],
                ["undo", of],
                ["undo", of],
                ["undo", "--force", of],
                ["redo", of],
                ["redo", of],
                ["redo", "--force", of],
                ["restore", os.path.join(of, name) + at],
                ["restore", os.path.join(of, "*") + at],
                ["undelete", os.path.join(of, name)],
                ["policy", of, f"version={rng.choice(['close', '1s', 'snapshot', 'inherit'])}"],
                ["policy", of, f"keep={rng.choice(['last:3', 'all', 'inherit'])}"],
                ["forget", of + at],
                ["forget", of, "--keep-last", "2"],
                ["release", of + at],
                ["log", os.path.join(of, name)],
                ["deleted", "-r", of],
                ["status", of],
                ["diff", of + at],
                ["du", "--history", of],
            ]
        )

    def run(self, end, results):
        count, bad, done = 0, {}, {}
        while time.monotonic() < end and len(bad) < 10:
            command = self.command()
            count += 1
            try:
                ended = subprocess.run([self.yore, *command], capture_output=True, text=True, errors="replace", timeout=60)
            except subprocess.TimeoutExpired:
                bad[command[0]] = f"{command} took more than a minute"
                continue
            said = ended.stderr.strip()
            done.setdefault(command[0], [0, 0])[ended.returncode == 0] += 1
            unfinished = "did not end (" in said and not (self.full and "no space" in said.lower())
            if ended.returncode not in (0, 1, 2, 3) or unfinished or "nput/output error" in said or (ended.returncode and not said):
                bad[command[0]] = f"{command}: status {ended.returncode}: {said[-600:]}"
        summary = ", ".join(f"{name} {yes} of {no + yes}" for name, (no, yes) in sorted(done.items()))
        results.put((count, list(bad.values()), summary))


def main():
    base, seconds, seed, yore = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
    full = "full" in sys.argv[5:]
    end = time.monotonic() + seconds
    processes = []
    for role in ("first", "second", "commands"):
        it = Commander(base, f"{seed} {role}", yore, full) if role == "commands" else Caller(base, f"{seed} {role}", full)
        results = multiprocessing.Queue()
        process = multiprocessing.Process(target=it.run, args=(end, results), daemon=True)
        process.start()
        processes.append((role, process, results))
    for role, process, results in processes:
        what = f"{role}: nothing but what may be refused is refused"
        try:
            count, bad, *more = results.get(timeout=seconds + 120)
        except Exception:
            print(f"not ok - {role}: ends: it hangs, or was killed ({process.exitcode})")
            process.kill()
            continue
        print(f"not ok - {what}: {' | '.join(bad)}" if bad else f"ok - {what} ({count})")
        if more:
            print(f"done: {more[0]}")


main()
