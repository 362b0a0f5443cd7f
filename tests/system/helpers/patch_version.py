"""patch_version.py IMAGE: makes both superblock slots of a volume say they are of the next major version.

Offsets are those of docs/FORMAT.md ("Superblock"). The slots stay valid otherwise: their checksum is made anew,
so that it is the version that is refused, not the damage.
"""
import struct
import sys

BLOCK = 4096
MAGIC = b"YORE\x89V\r\n"
MAJOR, CRC = 8, 16  # 32 bits each; the checksum is crc32c of the block with its own field taken as zero


def crc32c(content):
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def checksum(block):
    return crc32c(block[:CRC] + bytes(4) + block[CRC + 4 :])


with open(sys.argv[1], "r+b") as image:
    found = 0
    size = image.seek(0, 2)
    # The slots are looked for where superblocks may be: at the beginning and at the end.
    places = [n * BLOCK for n in range(64)] + [size // BLOCK * BLOCK - n * BLOCK for n in range(1, 64)]
    for place in places:
        image.seek(place)
        block = bytearray(image.read(BLOCK))
        if len(block) != BLOCK or block[: len(MAGIC)] != MAGIC:
            continue
        if struct.unpack_from("<I", block, CRC)[0] != checksum(block):
            sys.exit(f"the superblock at {place} has another checksum than docs/FORMAT.md says: this program is out of date")
        major = struct.unpack_from("<I", block, MAJOR)[0]
        struct.pack_into("<I", block, MAJOR, major + 1)
        struct.pack_into("<I", block, CRC, checksum(block))
        image.seek(place)
        image.write(block)
        found += 1
    if not found:
        sys.exit("no superblock found: tests/system/helpers/patch_version.py is out of date")
