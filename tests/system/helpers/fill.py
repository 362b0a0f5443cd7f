"""Fills a file system to the brim: fill.py fill DIR LIST SEED | fill.py verify DIR LIST.

Files of many sizes are written until not even a small one fits. LIST gets the name and digest of each file all
of whose writes, and whose close, returned without an error: those must be whole. `fill` fails on any error
but ENOSPC.
"""
import errno
import hashlib
import os
import random
import sys


def fill(base, listing, seed):
    rng = random.Random(seed)
    count, total, refused, size_max = 0, 0, 0, 4 << 20
    with open(listing, "w", encoding="ascii") as out:
        while size_max >= 1 and refused < 200:
            count += 1
            size = int(size_max ** rng.random())
            directory = os.path.join(base, f"d{count % 40}")
            name = os.path.join(directory, f"f{count}")
            content = rng.randbytes(size)
            try:
                os.makedirs(directory, exist_ok=True)
                with open(name, "wb", buffering=0) as file:
                    view = memoryview(content)
                    while view:
                        view = view[file.write(view[: 1 << 16]) :]
                    if count % 16 == 0:
                        os.fsync(file.fileno())
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                refused += 1
                # Smaller ones may still fit.
                size_max = max(size // 2, size_max // 2)
                continue
            total += size
            out.write(f"{os.path.relpath(name, base)} {hashlib.sha256(content).hexdigest()}\n")
    if not refused:
        sys.exit("never refused")
    print(f"{total >> 20} MiB in {count - refused} files, then {refused} refusals")


def verify(base, listing):
    wrong = 0
    with open(listing, encoding="ascii") as lines:
        for line in lines:
            name, digest = line.split()
            try:
                with open(os.path.join(base, name), "rb") as file:
                    have = hashlib.sha256(file.read()).hexdigest()
            except OSError as error:
                have = str(error)
            if have != digest:
                wrong += 1
                print(f"{name}: {have}, not {digest}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    {"fill": fill, "verify": verify}[sys.argv[1]](*sys.argv[2:])
