#!/usr/bin/env python3
"""limited.py [--below DIR] SECONDS NAME COMMAND...: runs a command that has an end.

A command that has not ended by then hangs, or is far too slow. This prints what its processes are doing, ends all of
them, and exits with status 124: a failure that has a name. Otherwise the status is that of the command.

Its processes are those with a mark in their environment, which daemons inherit, too, and the children of these. What
they mount is unmounted by force: a thread that waits for a file system of its own process can otherwise not be killed.
With --below its processes are also those whose program or working directory is below that directory; all that is
mounted there is unmounted; and the last lines of logs there are shown.

`limited.py --self-test` proves it with small commands that hang.
"""
import contextlib
import io
import itertools
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

VARIABLE = "LIMITED_BY"
STATUS = 124
COUNT = itertools.count()
# How long, in seconds, the command may take to end by itself when nobody serves its mounts any more; when it is asked
# to; and when it is killed.
GRACES = (20, 40, 10)
# What serves a mount. Whoever waits for the mount gets an error when it is killed, and ends.
DAEMON = "yore"


class Stopped(Exception):
    """A signal asks this program to end."""


def started(command, **how):
    """Starts a command. Returns its process, and the mark that all its processes have."""
    mark = f"{os.getpid()}-{next(COUNT)}-{secrets.token_hex(4)}"
    environment = {**os.environ, VARIABLE: f"{os.environ.get(VARIABLE, '')} {mark}".strip()}
    return subprocess.Popen(command, env=environment, **how), mark


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def patiently(path):
    """Reads a file of a process whose memory may be locked by a thread that hangs: then it has nothing to say."""
    answer = []
    reader = threading.Thread(target=lambda: answer.append(read(path)), daemon=True)
    reader.start()
    reader.join(2)
    return answer[0] if answer else ""


def waited(process, seconds):
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def briefly(command, seconds):
    """What a command prints within so many seconds."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        if not waited(process, seconds):
            process.kill()
            waited(process, 5)
        return os.pread(said.fileno(), 1 << 20, 0).decode(errors="replace")


# --- processes ---------------------------------------------------------------------------------------------------


def stat_of(pid):
    """State and parent of a process; None if it is gone."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1])) if len(fields) > 1 else None


def has_mark(pid, mark):
    for variable in patiently(f"/proc/{pid}/environ").split("\0"):
        name, _, value = variable.partition("=")
        if name == VARIABLE:
            return mark in value.split()
    return False


def is_below(path, below):
    return below is not None and f"{path}/".startswith(f"{below}/")


def works_below(pid, below):
    for link in ("exe", "cwd") if below else ():
        with contextlib.suppress(OSError):
            if is_below(os.readlink(f"/proc/{pid}/{link}"), below):
                return True
    return False


def processes_of(mark, below=None):
    """The numbers of the processes with a mark, and of their children, but for this one and those that are dead."""
    stats = {int(pid): stat_of(pid) for pid in os.listdir("/proc") if pid.isdigit()}
    living = {pid: stat[1] for pid, stat in stats.items() if stat and stat[0] not in "ZX" and pid != os.getpid()}
    found = {pid for pid in living if has_mark(pid, mark) or works_below(pid, below)}
    grows = True
    while grows:
        children = {pid for pid, parent in living.items() if parent in found} - found
        found |= children
        grows = bool(children)
    return sorted(found)


def threads_of(pid):
    """The threads of a process: [(number, name)]."""
    try:
        threads = sorted(int(thread) for thread in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []
    return [(thread, read(f"/proc/{pid}/task/{thread}/comm")) for thread in threads]


def command_of(pid):
    return patiently(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def commands():
    """What all processes were called with."""
    return [command_of(pid) for pid in os.listdir("/proc") if pid.isdigit()]


def describe(pid):
    """A process and its threads: name, state, what the thread waits for in the kernel, and which call that is."""
    lines = [f"process {pid}, {read(f'/proc/{pid}/comm')}: {command_of(pid)[:300]}"]
    for thread, name in threads_of(pid):
        of = f"/proc/{pid}/task/{thread}"
        waits, call = read(f"{of}/wchan"), read(f"{of}/syscall").split(" ")[0]
        lines.append(f"  thread {thread} {name}: {state_of(of)}, waits in {waits or '?'}, system call {call or '?'}")
        lines += [f"    {frame}" for frame in read(f"{of}/stack").splitlines()[:12]]
    return lines


def state_of(task):
    state = re.search(r"^State:\s*(\S)", read(f"{task}/status"), re.MULTILINE)
    return state[1] if state else "gone"


def can_be_traced(pid):
    """Whether it is a program of ours, of which no thread waits where a debugger cannot stop it."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    tasks = [f"/proc/{pid}/task/{thread}" for thread, _ in threads_of(pid)]
    stuck = any(state_of(task) == "D" or read(f"{task}/wchan") == "request_wait_answer" for task in tasks)
    return not stuck and not program.startswith(("/usr/", "/bin/", "/sbin/", "/lib"))


def backtraces(pid):
    """Where the threads are in the program, if there is a debugger."""
    if not shutil.which("gdb") or not can_be_traced(pid):
        return []
    debugger = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid)]
    said = briefly([*debugger, "-ex", "thread apply all backtrace 30"], 90)
    kept = [line for line in said.splitlines() if line.startswith(("Thread ", "#", "ptrace"))]
    return [f"  {line[:240]}" for line in kept]


def logs(below):
    """The last lines of what was written last below a directory."""
    files = []
    for work in [below, *(entry.path for entry in os.scandir(below) if entry.is_dir(follow_symlinks=False))]:
        # What is mounted deeper might make this hang, too; and it may go meanwhile.
        with contextlib.suppress(OSError):
            for file in os.scandir(work):
                is_log = file.name.endswith((".out", ".log", ".err")) or file.name.startswith("log.")
                if is_log and file.is_file(follow_symlinks=False):
                    files.append((file.stat(follow_symlinks=False).st_mtime, file.path))
    lines = []
    for _, path in sorted(files)[-6:]:
        lines += [f"the end of {path}:", *(f"  {line[:240]}" for line in read(path).splitlines()[-20:])]
    return lines


def show(mark, below=None):
    """What the processes are doing: lines."""
    pids = processes_of(mark, below)
    for pid in pids:
        yield from describe(pid)
    for pid in pids[:10]:
        found = backtraces(pid)
        yield from [f"process {pid}, in the program:", *found] if found else []
    yield from logs(below) if below else []


# --- the end -----------------------------------------------------------------------------------------------------


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_all(mark, below):
    """Kills the processes, and those that they start meanwhile. Returns those that stay all the same."""
    left = processes_of(mark, below)
    for _ in range(5):
        if not left:
            break
        kill(left)
        until = time.monotonic() + 2
        while time.monotonic() < until and any((stat_of(pid) or "Z")[0] not in "ZX" for pid in left):
            time.sleep(0.05)
        left = processes_of(mark, below)
    return left


def served_by(pids):
    """The numbers of the FUSE file systems that processes serve, where the kernel says it."""
    numbers = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fdinfo"):
                numbers.update(re.findall(r"^fuse_connection:\s*(\d+)", read(f"/proc/{pid}/fdinfo/{fd}"), re.MULTILINE))
    return numbers


def unmount(below, pids=()):
    """Unmounts what is below a directory, or served by one of the processes: by force, so that who waits for an answer
    from there gets an error. Returns lines."""
    points, served = [], served_by(pids)
    for line in read("/proc/self/mountinfo").splitlines():
        device, _, point = line.split()[2:5]
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
        is_served = device.startswith("0:") and device[2:] in served
        points += [point] if is_served or is_below(point, below) else []
    for point in reversed(points):
        briefly(["umount", "-f", "-l", point] if os.geteuid() == 0 else ["fusermount3", "-u", "-z", point], 20)
    return [f"unmounted {point}" for point in points]


def end(process, mark, below=None, graces=GRACES):
    """Ends a command that hangs. Yields lines: what its processes were doing, and what could not be ended."""
    yield from show(mark, below)
    pids = processes_of(mark, below)
    yield from unmount(below, pids)
    daemons = [pid for pid in pids if read(f"/proc/{pid}/comm") == DAEMON]
    kill(daemons)
    if not daemons or not waited(process, graces[0]):
        # A script hears it when what it waits for has ended; then it cleans up.
        process.terminate()
        kill(pid for pid in processes_of(mark, below) if pid != process.pid)
        waited(process, graces[1])
    left = kill_all(mark, below)
    yield from unmount(below)
    waited(process, graces[2])
    for pid in left:
        yield from ("even kill -9 does not end this:", *describe(pid))


def run(command, name, limit, below=None, graces=GRACES):
    """Runs a command in the place of this program. Returns the status to exit with."""
    # What make gives to commands that it starts, they get.
    process, mark = started(command, close_fds=False)
    try:
        try:
            status = process.wait(limit)
            return status if status >= 0 else 128 - status
        except subprocess.TimeoutExpired:
            print(f"limited: {name} has not ended after {limit:g} s. This is what it was doing:", flush=True)
            try:
                for line in end(process, mark, below, graces):
                    print(f"  | {line}", flush=True)
            finally:
                # Whatever happens to the report.
                kill_all(mark, below)
            print(f"limited: FAILED: {name} has not ended after {limit:g} s, and was ended", flush=True)
            return STATUS
    except Stopped as stopped:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        process.terminate()
        waited(process, 60)
        pids = processes_of(mark, below)
        list(unmount(below, pids))
        kill_all(mark, below)
        return 128 + stopped.args[0]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def be_stopped(number, _frame):
    raise Stopped(number)


# --- self-test ---------------------------------------------------------------------------------------------------


def self_test():
    def tried(script, limit, below=None):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = run(["bash", "-c", script], "a test", limit, below, graces=(2, 2, 2))
        return status, said.getvalue()

    assert tried("exit 0", 60) == (0, "") and tried("exit 3", 60) == (3, "")
    assert tried("kill -9 $$", 60)[0] == 137
    # Nobody else sleeps for so long.
    one, two, three, four = (f"sleep {100_000 + os.getpid()}.{number}" for number in range(4))
    with tempfile.TemporaryDirectory() as below:
        below = os.path.realpath(below)
        os.mkdir(f"{below}/work")
        # The command hears no request to end, a daemon has left it, and another has forgotten its environment.
        script = f"""trap '' TERM
            echo last words >{below}/work/check.out
            setsid {one} & cd {below}/work; env -i setsid {two} & cd /; {three}"""
        status, said = tried(script, 5, below)
        assert status == STATUS, status
        for word in ("a test has not ended after 5 s", one, two, three, "last words", "thread "):
            assert word in said, f"{word} is not in {said}"
        assert not {one, two, three} & set(commands())
    # One within the other: the outer one ends both.
    status, said = tried(f"{sys.executable} {os.path.abspath(__file__)} 600 inner {four}", 5)
    assert status == STATUS and four in said and four not in commands(), said
    print("limited.py: what hangs is shown and ended")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    below = None
    if arguments[:1] == ["--below"]:
        below, arguments = os.path.realpath(arguments[1]), arguments[2:]
    if len(arguments) < 3:
        sys.exit(__doc__)
    for number in SIGNALS:
        # A shell has what it starts in the background ignore an interrupt, which is its own to tell.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, be_stopped)
    limit, name, *command = arguments
    return run(command, name, float(limit), below)


if __name__ == "__main__":
    sys.exit(main())
