"""past_maps.py PAST COPY: reads every regular file of PAST through a map, in pieces from its end, and compares it with COPY."""

import mmap
import os
import sys

past, copy = sys.argv[1:]
count = 0
for directory, _, names in os.walk(past):
    for name in names:
        path = os.path.join(directory, name)
        if os.path.islink(path) or os.path.getsize(path) == 0:
            continue
        with open(path, "rb") as file, open(os.path.join(copy, os.path.relpath(path, past)), "rb") as other:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                wanted = other.read()
                if len(mapped) != len(wanted):
                    sys.exit(f"{path}: {len(mapped)} bytes instead of {len(wanted)}")
                for start in reversed(range(0, len(wanted), 65536)):
                    if mapped[start : start + 65536] != wanted[start : start + 65536]:
                        sys.exit(f"{path}: differs in the 64 KiB from {start}")
        count += 1
if count < 100:
    sys.exit(f"only {count} files were there")
