"""past_refusals.py MOUNT PAST PRESENT: every kind of change of the past is refused with EROFS, and what would join times with EXDEV."""

import errno
import mmap
import os
import socket
import sys
import time

os.chdir(sys.argv[1])
past, present = sys.argv[2:]
file, directory = f"{past}/answer.c", f"{past}/luajit"
made = f"{past}/made"


def refused(name, call, number=errno.EROFS):
    try:
        call()
        print(f"not ok - {name}: it was done")
    except OSError as error:
        same = error.errno in (number if isinstance(number, tuple) else (number,))
        print(f"ok - {name}" if same else f"not ok - {name}: {errno.errorcode[error.errno]}")


def with_open(flags, call):
    def run():
        descriptor = os.open(file, flags)
        try:
            call(descriptor)
        finally:
            os.close(descriptor)

    return run


def mapped(descriptor):
    # What is stored through a map is refused when it is written back. The kernel may call any refusal EIO.
    with mmap.mmap(descriptor, 0, mmap.MAP_SHARED) as m:
        m[0:1] = b"x"
        m.flush()


def reads_as_before():
    # The kernel drops what was refused a moment later.
    end = time.monotonic() + 60
    while open(file, "rb").read() != before:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


before = open(file, "rb").read()
refused("write", with_open(os.O_WRONLY, lambda fd: os.write(fd, b"x")))
refused("append", with_open(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")))
refused("write of nothing but zeros beyond the end", with_open(os.O_RDWR, lambda fd: os.pwrite(fd, b"\0", 1 << 20)))
refused("open with O_TRUNC", with_open(os.O_WRONLY | os.O_TRUNC, lambda fd: None))
refused("ftruncate", with_open(os.O_RDWR, lambda fd: os.ftruncate(fd, 0)))
refused("fallocate", with_open(os.O_RDWR, lambda fd: os.posix_fallocate(fd, 0, 1 << 20)))
refused("fchmod", with_open(os.O_RDONLY, lambda fd: os.fchmod(fd, 0o600)))
refused("copy_file_range into it", with_open(os.O_RDWR, lambda fd: os.copy_file_range(fd, fd, 4, 0, 1 << 20)))
refused("a store through a map", with_open(os.O_RDWR, mapped), (errno.EROFS, errno.EIO))
print("ok - what was stored through a map is gone" if reads_as_before() else "not ok - what was stored through a map is read")
refused("create", lambda: os.close(os.open(made, os.O_CREAT | os.O_WRONLY)))
refused("mkdir", lambda: os.mkdir(made))
refused("mkfifo", lambda: os.mkfifo(made))
refused("a socket", lambda: socket.socket(socket.AF_UNIX).bind(made))
refused("symlink", lambda: os.symlink("x", made))
refused("link", lambda: os.link(file, made))
refused("unlink", lambda: os.unlink(file))
refused("rmdir", lambda: os.rmdir(directory))
refused("rename", lambda: os.rename(file, made))
refused("rename of a directory", lambda: os.rename(directory, made))
refused("chmod", lambda: os.chmod(file, 0o600))
refused("chown", lambda: os.chown(file, 1, 1))
refused("utime", lambda: os.utime(file))
refused("truncate", lambda: os.truncate(file, 0))
refused("setxattr", lambda: os.setxattr(file, "user.x", b"y"))
refused("removexattr", lambda: os.removexattr(file, "user.x"))
refused("rename into the present", lambda: os.rename(file, f"{present}/joined"), errno.EXDEV)
refused("rename into the past", lambda: os.rename(f"{present}/joining", made), errno.EXDEV) if not open(
    f"{present}/joining", "w"
).close() else None
refused("link into the present", lambda: os.link(file, f"{present}/joined"), errno.EXDEV)
refused("link into the past", lambda: os.link(f"{present}/joining", made), errno.EXDEV)
refused("rename to another time", lambda: os.rename(file, f"{present}@t2/joined"), errno.EXDEV)
same = open(file, "rb").read() == before and not os.path.exists(made)
print("ok - nothing has changed" if same else "not ok - nothing has changed: it has")
