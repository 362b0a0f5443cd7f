#!/usr/bin/env python3
"""run-tests.py: builds the tests of the workspace and runs them, as many programs at a time as there are processors.

`cargo test --workspace` runs one test program behind the other. The largest ones wait for mounts, clocks and disks part
of the time, and others can work meanwhile. What a program prints is shown when it has ended. All of them run, whatever
fails, and the end says which ones did. Documentation tests come last.

CARGO names the cargo to use.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import time

CARGO = os.environ.get("CARGO", "cargo")
WHAT = ["test", "--workspace", "--locked"]


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


def run(what, program, package):
    """Runs a test program where cargo does. Returns whether it has passed."""
    began = time.monotonic()
    ended = subprocess.run(
        [program], cwd=package, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    sys.stdout.buffer.write(
        b"\n     Running %s\n%s%s: %.1f s, status %d\n"
        % (program.encode(), ended.stdout, what.encode(), time.monotonic() - began, ended.returncode)
    )
    sys.stdout.buffer.flush()
    return ended.returncode == 0


def main():
    # The large ones first: a program `all` has nearly all tests of its crate.
    found = sorted(programs(), key=lambda of: (not of[0].endswith(" all"), -os.path.getsize(of[1])))
    if not found:
        sys.exit("run-tests: there are no tests")
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        passed = list(pool.map(lambda of: run(*of), found))
    failed = [what for (what, _, _), is_passed in zip(found, passed) if not is_passed]
    if subprocess.run([CARGO, *WHAT, "--doc"]).returncode != 0:
        failed.append("documentation tests")
    if failed:
        sys.exit(f"run-tests: FAILED: {', '.join(failed)}")
    print(f"run-tests: all of {len(found)} programs passed, and the documentation tests")


if __name__ == "__main__":
    main()
