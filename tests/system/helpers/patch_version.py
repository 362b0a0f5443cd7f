"""patch_version.py IMAGE: makes both superblock slots of a volume say they are of the next major version.

Offsets are those of docs/FORMAT.md ("Superblock"). The slots stay valid otherwise: their checksum is made anew,
so that it is the version that is refused, not the damage.
"""
import sys

# To be filled in from docs/FORMAT.md: place of each slot in the image, of the version and the checksum within
# a slot, and what the checksum covers.
SLOTS = ()


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


if not SLOTS:
    sys.exit("the place of the version is not known to tests/system/helpers/patch_version.py yet")
