#!/usr/bin/env python3
"""run-tests.py: builds the tests of the workspace and runs them, as many programs at a time as there are processors.

`cargo test --workspace` runs one test program behind the other. The largest ones wait for mounts, clocks and disks part
of the time, and others can work meanwhile. What a program prints is shown when it has ended. All of them run, whatever
fails, and the end says which ones did. Documentation tests come last.

A program that has not ended after YORE_TEST_LIMIT seconds (1200) hangs: it is ended, and has failed. The end says which
of its tests were running, and what its threads were doing (limited.py).

CARGO names the cargo to use. `run-tests.py --self-test` proves with a small program that what hangs is told.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time

# Nothing is left in the sources.
sys.dont_write_bytecode = True
import limited  # noqa: E402

CARGO = os.environ.get("CARGO", "cargo")
WHAT = ["test", "--workspace", "--locked"]
LIMIT = float(os.environ.get("YORE_TEST_LIMIT", 1200))
ENDED = re.compile(r"\btest (\S+)(?: - should panic)? \.\.\. (?:ok|FAILED|ignored)")


def programs():
    """Builds the test programs. Yields (what is tested, program, directory of its package)."""
    build = subprocess.Popen(
        [CARGO, *WHAT, "--no-run", "--message-format=json-render-diagnostics"], stdout=subprocess.PIPE, text=True
    )
    for line in build.stdout:
        made = json.loads(line)
        if made["reason"] == "compiler-artifact" and made["profile"]["test"] and made["executable"]:
            package = os.path.dirname(made["manifest_path"])
            yield f"{os.path.basename(package)} {made['target']['name']}", made["executable"], package
    if build.wait() != 0:
        sys.exit("run-tests: the tests cannot be built")


def all_of(file):
    """What is in a file to which others may still be writing, at its own place."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def running(program, process, output):
    """The tests that a program has begun and not ended. It begins them in the order of its list, and runs as many at a
    time as it may; each has a thread of its own with the first letters of its name."""
    listed = limited.briefly([program, "--list", "--format", "terse"], 30).splitlines()
    tests = [line.removesuffix(": test") for line in listed if line.endswith(": test")]
    ended = set(ENDED.findall(output))
    at_once = int(os.environ.get("RUST_TEST_THREADS", len(os.sched_getaffinity(0))))
    first = [test for test in tests if test not in ended][:at_once]
    threads = {name for _, name in limited.threads_of(process.pid)}
    return [test for test in first if at_once == 1 or test[:15] in threads]


def run(what, program, package, limit=LIMIT, graces=limited.GRACES):
    """Runs a test program where cargo does. Returns whether it has passed, and what is to be told at the end."""
    began = time.monotonic()
    # A pipe would have its end when all have ended that have inherited it, daemons that were left behind, too.
    with tempfile.TemporaryFile() as said:
        process, mark = limited.started(
            [program], cwd=package, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
        report = []
        if not limited.waited(process, limit):
            tests = running(program, process, all_of(said).decode(errors="replace"))
            report = [f"{what} has not ended after {limit:g} s, and was ended. These tests had begun, and not ended:"]
            report += [f"  {test}" for test in tests or ["none is known"]]
            report += ["This is what it was doing:", *limited.end(process, mark, graces=graces)]
        status = "none: it hangs" if report else process.returncode
        sys.stdout.buffer.write(
            b"\n     Running %s\n%s%s: %.1f s, status %s\n"
            % (program.encode(), all_of(said), what.encode(), time.monotonic() - began, str(status).encode())
        )
        sys.stdout.buffer.flush()
    return not report and process.returncode == 0, report


def main():
    # The large ones first: a program `all` has nearly all tests of its crate.
    found = sorted(programs(), key=lambda of: (not of[0].endswith(" all"), -os.path.getsize(of[1])))
    if not found:
        sys.exit("run-tests: there are no tests")
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        ended = list(pool.map(lambda of: run(*of), found))
    failed = [what for (what, _, _), (is_passed, _) in zip(found, ended) if not is_passed]
    if limited.run([CARGO, *WHAT, "--doc"], "documentation tests", LIMIT) != 0:
        failed.append("documentation tests")
    for _, report in ended:
        if report:
            print("\n" + "\n  | ".join(report))
    if failed:
        sys.stdout.flush()
        sys.exit(f"run-tests: FAILED: {', '.join(failed)}")
    print(f"run-tests: all of {len(found)} programs passed, and the documentation tests")


# What a test program does, as far as this needs it: a test ends, one has begun a daemon, and one will never begin.
LONG = f"sleep {200_000 + os.getpid()}"
HANGS = f"""#!/bin/bash
if [ "$1" = --list ]; then printf '%s: test\\n' a::ends b::hangs c::waits; exit; fi
echo 'test a::ends ... ok'
echo 'b::hangs' >/proc/self/task/$$/comm
setsid {LONG} &
while true; do sleep 0.1; done
"""


def self_test():
    os.environ["RUST_TEST_THREADS"] = "2"
    sys.stdout = open(os.devnull, "w")
    with tempfile.TemporaryDirectory() as work:

        def tried(script, limit):
            program = os.path.join(work, "program")
            with open(program, "w") as file:
                file.write(script)
            os.chmod(program, 0o755)
            return run("a program", program, work, limit, graces=(1, 1, 5))

        assert tried("#!/bin/sh\nexit 0", 60) == (True, []) and tried("#!/bin/sh\nexit 1", 60) == (False, [])
        # A daemon that is left behind keeps nobody waiting.
        assert tried("#!/bin/sh\nsetsid sleep 5 &", 4) == (True, [])
        is_passed, report = tried(HANGS, 4)
        tests = report[1 : report.index("This is what it was doing:")]
        assert not is_passed and tests == ["  b::hangs"], report
        assert any(LONG in line for line in report), report
        assert LONG not in limited.commands()
    sys.stdout = sys.__stdout__
    print("run-tests.py: a program that hangs is ended, and its tests are named")


if __name__ == "__main__":
    self_test() if sys.argv[1:] == ["--self-test"] else main()
