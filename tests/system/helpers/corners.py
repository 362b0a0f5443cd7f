"""The corners of a file system: corners.py DIR [NAME...] runs all checks, or those named.

Each check is a function that gets a directory of its own and raises when a promise is broken. Lines of output:
`ok - NAME`, `not ok - NAME: REASON`, `skip - REASON`.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import time
import traceback

CHECKS = []
libc = ctypes.CDLL(None, use_errno=True)
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE = 1, 2, 16
ROOT = os.geteuid() == 0


class Skip(Exception):
    """The check cannot be made here."""


def check(function):
    CHECKS.append(function)
    return function


def expect(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        if error.errno != number:
            raise AssertionError(f"{errno.errorcode[error.errno]}, not {errno.errorcode[number]}") from error
        return
    raise AssertionError(f"succeeded, not {errno.errorcode[number]}")


def system_call(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    system_call(libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


def fallocate(fd, mode, offset, length):
    system_call(libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))


def put(path, content=b""):
    with open(path, "wb") as file:
        file.write(content)


def get(path):
    with open(path, "rb") as file:
        return file.read()


@check
def names_of_every_byte(base):
    base = os.fsencode(base)
    for byte in range(1, 256):
        if byte == ord("/"):
            continue
        for name in (bytes([byte]), b"x" + bytes([byte]) * 200 + b"y"):
            if name == b".":
                continue
            put(os.path.join(base, name), name)
    names = os.listdir(base)
    assert len(names) == 2 * 254 - 1, len(names)
    for name in names:
        assert get(os.path.join(base, name)) == name, name
        os.rename(os.path.join(base, name), os.path.join(base, name + b"~"))
    for name in names:
        os.unlink(os.path.join(base, name + b"~"))
    assert os.listdir(base) == []


@check
def long_names(base):
    base = os.fsencode(base)
    for name in (b"a" * 255, b"\xff" * 255, "ü".encode() * 127, b"\n" * 255, b" " * 255):
        put(os.path.join(base, name), name)
        assert get(os.path.join(base, name)) == name
        os.mkdir(os.path.join(base, name[:-1] + b"d"))
        os.symlink(name, os.path.join(base, name[:-1] + b"l"))
    expect(errno.ENAMETOOLONG, put, os.path.join(base, b"a" * 256))
    expect(errno.ENAMETOOLONG, os.mkdir, os.path.join(base, b"a" * 256))
    expect(errno.ENAMETOOLONG, os.stat, os.path.join(base, b"a" * 256))
    expect(errno.ENAMETOOLONG, os.rename, os.path.join(base, b"a" * 255), os.path.join(base, b"b" * 256))
    assert os.statvfs(base).f_namemax == 255


@check
def names_that_look_alike(base):
    # Bytes are bytes: no case folding, no normalisation, no time syntax for what is there literally.
    names = ["A", "a", "é", "e\u0301", "name@", "@", "@@", "mail@example.org", "-", "--help", "a\\b", "...", ". .", "\u202e"]
    for name in names:
        put(os.path.join(base, name), name.encode())
    assert sorted(os.listdir(base)) == sorted(names)
    for name in names:
        assert get(os.path.join(base, name)) == name.encode(), name


@check
def names_that_share_a_hash_bucket_or_not(base):
    # Names of one pattern, removed and made again in another order: each lookup finds its own file.
    rng = random.Random(1)
    names = [f"{i:08x}" * rng.randint(1, 30) for i in range(3000)]
    for name in names:
        put(os.path.join(base, name), name.encode())
    rng.shuffle(names)
    for name in names[:1500]:
        os.unlink(os.path.join(base, name))
    for name in names[:750]:
        put(os.path.join(base, name), b"again")
    assert len(os.listdir(base)) == 2250
    for i, name in enumerate(names):
        path = os.path.join(base, name)
        if 750 <= i < 1500:
            assert not os.path.exists(path)
        else:
            assert get(path) == (b"again" if i < 750 else name.encode())


@check
def deep_directories(base):
    depth = 1500
    fds = [os.open(base, os.O_RDONLY)]
    for level in range(depth):
        os.mkdir("deeper", dir_fd=fds[-1])
        fds.append(os.open("deeper", os.O_RDONLY, dir_fd=fds[-1]))
        if level >= 10:
            os.close(fds.pop(0))
    fd = os.open("bottom", os.O_WRONLY | os.O_CREAT, dir_fd=fds[-1])
    os.write(fd, b"reached")
    os.close(fd)
    # Up again by "..", all the way.
    fd = fds[-1]
    for _ in range(depth):
        fd = os.open("..", os.O_RDONLY, dir_fd=fd)
        os.close(fds.pop(0))
        fds.append(fd)
    assert os.fstat(fd).st_ino == os.stat(base).st_ino
    for fd in fds:
        os.close(fd)
    found = subprocess.run(["find", base, "-name", "bottom"], capture_output=True, check=True).stdout
    assert found.count(b"deeper") == depth
    subprocess.run(["rm", "-rf", os.path.join(base, "deeper")], check=True)


@check
def hundred_thousand_files_in_one_directory(base):
    count = 100_000
    for i in range(count):
        os.close(os.open(f"{base}/file-{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    assert len(os.listdir(base)) == count
    rng = random.Random(2)
    for i in rng.sample(range(count), 2000):
        os.stat(f"{base}/file-{i}")
    assert not os.path.exists(f"{base}/file-{count}")
    # Reading a directory while it changes: what is not touched shows up exactly once.
    seen = {}
    with os.scandir(base) as entries:
        for n, entry in enumerate(entries):
            seen[entry.name] = seen.get(entry.name, 0) + 1
            if n % 50 == 0 and n // 50 < 1000:
                os.unlink(f"{base}/file-{n // 50}")
                put(f"{base}/new-{n // 50}")
    for i in range(1000, count):
        assert seen.get(f"file-{i}") == 1, (i, seen.get(f"file-{i}"))
    left = os.listdir(base)
    assert len(left) == len(set(left)) == count, len(left)
    for name in left:
        os.unlink(f"{base}/{name}")
    assert os.listdir(base) == []
    os.rmdir(base)
    os.mkdir(base)


@check
def a_thousand_hard_links(base):
    put(f"{base}/first", b"one file")
    os.mkdir(f"{base}/d")
    for i in range(1000):
        os.link(f"{base}/first", f"{base}/{'d/' if i % 2 else ''}link-{i}")
    assert os.stat(f"{base}/first").st_nlink == 1001
    with open(f"{base}/d/link-501", "ab") as file:
        file.write(b", many names")
    assert get(f"{base}/link-0") == b"one file, many names"
    os.unlink(f"{base}/first")
    for i in range(999):
        os.unlink(f"{base}/{'d/' if i % 2 else ''}link-{i}")
    assert os.stat(f"{base}/d/link-999").st_nlink == 1
    expect(errno.EPERM, os.link, f"{base}/d", f"{base}/e")


@check
def many_directories_count_links(base):
    for i in range(500):
        os.mkdir(f"{base}/d{i}")
    links = os.stat(base).st_nlink
    assert links in (1, 502), links
    for i in range(500):
        os.rmdir(f"{base}/d{i}")
    assert os.stat(base).st_nlink in (1, 2)


def ranges(fd, size):
    """The data ranges of a file, as SEEK_DATA and SEEK_HOLE tell them."""
    at, found = 0, []
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == errno.ENXIO
            break
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        assert at > begin
        found.append((begin, at))
    return found


@check
def sparse_files(base):
    path = f"{base}/sparse"
    size = 1 << 40
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    spots = [0, 1 << 20, (1 << 32) + 5, (1 << 39) - 1, size - 7]
    for spot in spots:
        os.pwrite(fd, b"x" * 7, spot)
    assert os.fstat(fd).st_size == size
    os.fsync(fd)
    assert os.fstat(fd).st_blocks * 512 < 1 << 20, os.fstat(fd).st_blocks
    data = ranges(fd, size)
    for spot in spots:
        assert any(begin <= spot and spot + 7 <= end for begin, end in data), (spot, data)
        assert os.pread(fd, 7, spot) == b"x" * 7
        if spot:
            assert os.pread(fd, 4096, spot - 4096) == bytes(4096)
    assert sum(end - begin for begin, end in data) < 1 << 20, data
    os.ftruncate(fd, 10)
    os.ftruncate(fd, 100)
    assert os.pread(fd, 200, 0) == b"x" * 7 + bytes(93)
    expect(errno.EFBIG, os.ftruncate, fd, (1 << 63) - 1)
    os.close(fd)


@check
def fallocate_punch_and_zero(base):
    fd = os.open(f"{base}/file", os.O_RDWR | os.O_CREAT)
    fallocate(fd, 0, 0, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    assert os.fstat(fd).st_blocks * 512 >= 1 << 20
    assert os.pread(fd, 1 << 20, 0) == bytes(1 << 20)
    fallocate(fd, FALLOC_KEEP_SIZE, 1 << 20, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    content = bytearray(random.Random(3).randbytes(1 << 20))
    os.pwrite(fd, content, 0)
    for mode, offset, length in (
        (FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4096, 8192),
        (FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 100_001, 50_003),
        (FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 1, 1),
        (FALLOC_ZERO_RANGE, 500_000, 100_000),
    ):
        try:
            fallocate(fd, mode, offset, length)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP and mode == FALLOC_ZERO_RANGE:
                continue
            raise
        content[offset : offset + length] = bytes(length)
        assert os.pread(fd, 1 << 20, 0) == bytes(content), (mode, offset, length)
    os.fsync(fd)
    holes = ranges(fd, 1 << 20)
    assert not any(begin < 12_288 and end > 4096 for begin, end in holes), holes
    fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 4 << 20)
    assert os.fstat(fd).st_size == 1 << 20 and ranges(fd, 1 << 20) == []
    os.close(fd)


@check
def mmap_shared_and_private(base):
    size = 3 * 1024 * 1024 + 123
    content = bytearray(random.Random(4).randbytes(size))
    put(f"{base}/file", content)
    with open(f"{base}/file", "r+b") as file:
        shared = mmap.mmap(file.fileno(), size)
        private = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE)
        assert shared[:] == bytes(content)
        for at in (0, 4095, 4096, 1 << 20, size - 4):
            shared[at : at + 4] = b"EDIT"
            content[at : at + 4] = b"EDIT"
        private[10:14] = b"MINE"
        os.pwrite(file.fileno(), b"WRIT", 20_000)
        content[20_000:20_004] = b"WRIT"
        assert shared[20_000:20_004] == b"WRIT"
        shared.flush()
        assert os.pread(file.fileno(), size, 0) == bytes(content)
        shared.close()
        private.close()
    assert get(f"{base}/file") == bytes(content)
    # Code is mapped as well: a program on the volume runs.
    shutil.copy("/bin/true", f"{base}/program")
    assert subprocess.run([f"{base}/program"], check=False).returncode == 0


@check
def rename_noreplace_and_exchange(base):
    put(f"{base}/a", b"a")
    put(f"{base}/b", b"b")
    os.makedirs(f"{base}/d/e")
    expect(errno.EEXIST, renameat2, f"{base}/a", f"{base}/b", RENAME_NOREPLACE)
    renameat2(f"{base}/a", f"{base}/c", RENAME_NOREPLACE)
    renameat2(f"{base}/c", f"{base}/b", RENAME_EXCHANGE)
    assert (get(f"{base}/b"), get(f"{base}/c")) == (b"a", b"b")
    # A file with a directory, across directories: link counts and ".." follow.
    renameat2(f"{base}/d/e", f"{base}/b", RENAME_EXCHANGE)
    assert os.path.isdir(f"{base}/b") and get(f"{base}/d/e") == b"a"
    assert os.stat(f"{base}/b/..").st_ino == os.stat(base).st_ino
    assert os.stat(f"{base}/d").st_nlink in (1, 2)
    expect(errno.ENOENT, renameat2, f"{base}/b", f"{base}/none", RENAME_EXCHANGE)
    expect(errno.EINVAL, renameat2, f"{base}/d", f"{base}/d/f", 0)
    expect(errno.EINVAL, renameat2, f"{base}/b", f"{base}/c", RENAME_EXCHANGE | RENAME_NOREPLACE)


@check
def unlinked_files_live_while_open(base):
    fd = os.open(f"{base}/file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"before")
    os.unlink(f"{base}/file")
    put(f"{base}/file", b"another")
    os.write(fd, b" and after")
    assert os.pread(fd, 100, 0) == b"before and after"
    assert os.fstat(fd).st_nlink == 0
    os.ftruncate(fd, 1 << 20)
    os.fsync(fd)
    os.close(fd)
    assert get(f"{base}/file") == b"another"
    target = os.open(f"{base}/over", os.O_RDWR | os.O_CREAT)
    os.write(target, b"replaced")
    os.rename(f"{base}/file", f"{base}/over")
    assert os.pread(target, 100, 0) == b"replaced" and get(f"{base}/over") == b"another"
    os.close(target)
    gone = os.open(base, os.O_RDONLY)
    os.mkdir("dir", dir_fd=gone)
    inside = os.open("dir", os.O_RDONLY, dir_fd=gone)
    os.rmdir("dir", dir_fd=gone)
    expect(errno.ENOENT, lambda: os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
    assert os.listdir(inside) == []
    os.close(inside)
    os.close(gone)


@check
def extended_attributes(base):
    path = f"{base}/file"
    put(path, b"x")
    values = {"user.empty": b"", "user.small": b"1", "user." + "n" * 250: b"long name", "user.big": os.urandom(3000)}
    for name, value in values.items():
        os.setxattr(path, name, value)
    assert set(os.listxattr(path)) >= set(values)
    for name, value in values.items():
        assert os.getxattr(path, name) == value
    expect(errno.EEXIST, os.setxattr, path, "user.small", b"2", os.XATTR_CREATE)
    expect(errno.ENODATA, os.setxattr, path, "user.none", b"2", os.XATTR_REPLACE)
    expect(errno.ENODATA, os.getxattr, path, "user.none")
    expect(errno.ENODATA, os.removexattr, path, "user.none")
    expect(errno.ERANGE, os.setxattr, path, "user." + "n" * 251, b"")
    os.setxattr(path, "user.small", b"replaced", os.XATTR_REPLACE)
    assert os.getxattr(path, "user.small") == b"replaced"
    for name in values:
        os.removexattr(path, name)
    assert not [name for name in os.listxattr(path) if name.startswith("user.")]
    os.symlink("file", f"{base}/link")
    expect(errno.EPERM, lambda: os.setxattr(f"{base}/link", "user.x", b"", follow_symlinks=False))
    if ROOT:
        os.setxattr(f"{base}/link", "trusted.x", b"1", follow_symlinks=False)
        os.setxattr(path, "trusted.x", b"2")
        assert os.getxattr(f"{base}/link", "trusted.x", follow_symlinks=False) == b"1"
    os.mkdir(f"{base}/dir")
    for i in range(50):
        os.setxattr(f"{base}/dir", f"user.{i}", b"%d" % i)
    assert len([n for n in os.listxattr(f"{base}/dir") if n.startswith("user.")]) == 50


@check
def access_control_lists(base):
    if not ROOT or not shutil.which("setfacl"):
        raise Skip("access control lists need root and setfacl")
    os.chmod(base, 0o755)
    put(f"{base}/file", b"secret")
    os.chmod(f"{base}/file", 0o600)

    def nobody_reads(path):
        return subprocess.run(["runuser", "-u", "nobody", "--", "cat", path], capture_output=True, check=False).returncode == 0

    def setfacl(*arguments):
        result = subprocess.run(["setfacl", *arguments], capture_output=True, text=True, check=False)
        if result.returncode and "not supported" in result.stderr:
            raise Skip("access control lists: this file system has none")
        assert result.returncode == 0, result.stderr

    assert not nobody_reads(f"{base}/file")
    setfacl("-m", "u:nobody:r", f"{base}/file")
    assert nobody_reads(f"{base}/file")
    assert stat.S_IMODE(os.stat(f"{base}/file").st_mode) == 0o640, "the mask shows as the group's bits"
    os.chmod(f"{base}/file", 0o600)
    assert not nobody_reads(f"{base}/file"), "chmod changes the mask"
    os.mkdir(f"{base}/dir")
    setfacl("-d", "-m", "u:nobody:rw", f"{base}/dir")
    put(f"{base}/dir/inherits", b"x")
    os.mkdir(f"{base}/dir/sub")
    listed = subprocess.run(["getfacl", "-cp", f"{base}/dir/inherits", f"{base}/dir/sub"], capture_output=True, text=True, check=True).stdout
    assert listed.count("user:nobody:rw") == 3, listed
    setfacl("-b", f"{base}/dir/inherits")
    assert "nobody" not in subprocess.run(["getfacl", "-cp", f"{base}/dir/inherits"], capture_output=True, text=True, check=True).stdout


@check
def set_id_bits_fall(base):
    if not ROOT:
        raise Skip("set-id bits fall: needs root to make a file of another")
    path = f"{base}/program"
    os.chmod(base, 0o777)
    for action in ("write", "truncate", "chown"):
        put(path, b"x" * 100)
        os.chown(path, 65534, 65534)
        os.chmod(path, 0o6777)
        script = {
            "write": "import os,sys; os.pwrite(os.open(sys.argv[1], os.O_WRONLY), b'y', 0)",
            "truncate": "import os,sys; os.truncate(sys.argv[1], 10)",
            "chown": "import os,sys; os.chown(sys.argv[1], -1, os.getgid())",
        }[action]
        subprocess.run(["runuser", "-u", "nobody", "--", sys.executable, "-c", script, path], check=True)
        mode = stat.S_IMODE(os.stat(path).st_mode)
        assert not mode & 0o4000, f"{action} left {mode:o}"


@check
def special_files(base):
    os.mkfifo(f"{base}/fifo")
    assert stat.S_ISFIFO(os.lstat(f"{base}/fifo").st_mode)
    child = os.fork()
    if child == 0:
        put(f"{base}/fifo", b"through the pipe")
        os._exit(0)
    assert get(f"{base}/fifo") == b"through the pipe"
    os.waitpid(child, 0)
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(base)
    server.bind("socket")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect("socket")
    os.chdir(here)
    assert stat.S_ISSOCK(os.lstat(f"{base}/socket").st_mode)
    target = "t" * 4095
    os.symlink(target, f"{base}/link")
    assert os.readlink(f"{base}/link") == target and os.lstat(f"{base}/link").st_size == 4095
    expect(errno.ENOENT, os.symlink, "", f"{base}/empty")
    if ROOT:
        os.mknod(f"{base}/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        assert os.lstat(f"{base}/null").st_rdev == os.makedev(1, 3)


@check
def times(base):
    path = f"{base}/file"
    put(path)
    for seconds in (0, 1, 1 << 31, (1 << 33) - 1):
        os.utime(path, ns=(seconds * 10**9 + 123_456_789, seconds * 10**9 + 987_654_321))
        at = os.stat(path)
        assert (at.st_atime_ns, at.st_mtime_ns) == (seconds * 10**9 + 123_456_789, seconds * 10**9 + 987_654_321), seconds
    os.utime(path, ns=(-(10**9) - 5, -5))
    assert os.stat(path).st_mtime_ns == -5
    before = os.stat(base).st_mtime_ns
    while time.time_ns() < before + 20_000_000:
        pass
    put(f"{base}/new")
    assert os.stat(base).st_mtime_ns > before
    changed = os.stat(path).st_ctime_ns
    os.chmod(path, 0o600)
    assert os.stat(path).st_ctime_ns >= changed


@check
def two_processes(base):
    """Two writers in one file under a lock, appends that never overlap, a file seen at once by the other."""
    put(f"{base}/counter", b"0")
    children = []
    for who in range(2):
        child = os.fork()
        if child == 0:
            try:
                for turn in range(400):
                    fd = os.open(f"{base}/counter", os.O_RDWR)
                    (fcntl.flock if turn % 2 else fcntl.lockf)(fd, fcntl.LOCK_EX)
                    os.close(fd)
                    fd = os.open(f"{base}/counter", os.O_RDWR)
                    fcntl.lockf(fd, fcntl.LOCK_EX)
                    value = int(os.pread(fd, 20, 0)) + 1
                    os.pwrite(fd, b"%d" % value, 0)
                    os.close(fd)
                    fd = os.open(f"{base}/appended", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                    os.write(fd, b"%d:%05d\n" % (who, turn))
                    os.close(fd)
                    os.mkdir(f"{base}/{who}-{turn}")
                    if turn:
                        os.rmdir(f"{base}/{who}-{turn - 1}")
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert get(f"{base}/counter") == b"800"
    lines = get(f"{base}/appended").splitlines()
    assert len(lines) == 800 and sorted(set(lines)) == sorted(lines)
    for who in (b"0", b"1"):
        own = [line for line in lines if line.startswith(who)]
        assert own == sorted(own)
    assert sorted(n for n in os.listdir(base) if "-" in n) == ["0-399", "1-399"]


@check
def many_processes_create_and_remove(base):
    children = []
    for who in range(4):
        child = os.fork()
        if child == 0:
            rng = random.Random(who)
            for i in range(1500):
                name = f"{base}/{rng.randint(0, 30)}"
                try:
                    action = rng.randint(0, 4)
                    if action == 0:
                        put(name, b"%d" % i)
                    elif action == 1:
                        os.unlink(name)
                    elif action == 2:
                        os.rename(name, f"{base}/{rng.randint(0, 30)}")
                    elif action == 3:
                        os.link(name, f"{base}/{rng.randint(0, 30)}")
                    else:
                        get(name)
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EEXIST):
                        traceback.print_exc()
                        os._exit(1)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    names = os.listdir(base)
    counts = {}
    for name in names:
        counts.setdefault(os.stat(f"{base}/{name}").st_ino, []).append(name)
    for same in counts.values():
        assert os.stat(f"{base}/{same[0]}").st_nlink == len(same), same


@check
def direct_io(base):
    path = f"{base}/file"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Skip("O_DIRECT: refused by this file system") from error
        raise
    buffer = mmap.mmap(-1, 1 << 20)
    content = random.Random(5).randbytes(1 << 20)
    buffer[:] = content
    os.pwritev(fd, [buffer], 0)
    buffer[:] = bytes(1 << 20)
    os.preadv(fd, [buffer], 0)
    assert buffer[:] == content
    assert get(path) == content, "buffered reads see direct writes"
    os.close(fd)


@check
def large_file(base):
    """256 MiB written in an odd order of pieces, so that extents split and merge."""
    piece = 1 << 20
    order = list(range(256))
    random.Random(6).shuffle(order)
    fd = os.open(f"{base}/large", os.O_RDWR | os.O_CREAT)
    for n in order:
        os.pwrite(fd, bytes([n]) * piece, n * piece)
    os.fsync(fd)
    for n in range(256):
        assert os.pread(fd, piece, n * piece) == bytes([n]) * piece, n
    os.close(fd)
    os.unlink(f"{base}/large")


def main():
    base, wanted = sys.argv[1], sys.argv[2:]
    for function in CHECKS:
        if wanted and function.__name__ not in wanted:
            continue
        name = function.__name__.replace("_", " ")
        directory = os.path.join(base, function.__name__)
        os.mkdir(directory)
        try:
            function(directory)
            print(f"ok - {name}")
        except Skip as reason:
            print(f"skip - {reason}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"not ok - {name}: {type(error).__name__} {str(error)[:200]} ({os.path.basename(where.filename)}:{where.lineno})")
            traceback.print_exc()
        sys.stdout.flush()


main()
