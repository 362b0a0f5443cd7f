//! The sound volume that most tests damage: something of everything.

use super::*;

pub const DIR: u32 = 0o040_755;
pub const FILE: u32 = 0o100_644;
pub const LINK: u32 = 0o120_777;

/// Inodes of the sound volume by name.
pub const ROOT: u64 = 16;
pub const INLINE: u64 = 17;
pub const EXTENTS: u64 = 18;
pub const BIG: u64 = 19;
pub const SHORT: u64 = 20;
pub const LONG: u64 = 21;
pub const DIRECTORY: u64 = 22;
pub const SUB: u64 = 23;
pub const DEVICE: u64 = 24;
pub const FIFO: u64 = 25;
pub const ATTRS: u64 = 26;
pub const REMOVED: u64 = 27;
pub const SHRINKING: u64 = 28;
pub const REMOVED_DIR: u64 = 29;
/// An inode in an inode block of zone 2.
pub const FAR: u64 = (2 << 9 | 1) << 4;
pub const FREE_SLOT: u64 = 31;

/// A volume with something of everything: three groups, one of them never used, a further zone, two root
/// zones, every type of file, every kind of content, trees of one and of two levels, attributes, and orphans.
pub fn sound() -> Builder {
    let mut b = Builder::empty(BLOCKS);
    b.add_zone(0, ZONE_BLOCKS, 0);
    b.add_zone(1, 3 * ZONE_BLOCKS, 0);
    b.add_zone(2, GROUP_BLOCKS, 1);
    let root1 = GROUP_BLOCKS + 2 * ZONE_BLOCKS;
    b.used.push((BlockNo(root1), ZONE_BLOCKS));
    b.sb.root_zones.push(None);
    b.sb.root_zones.push(Some(RootZone {
        start: BlockNo(root1),
        generation: GENERATION,
        crc: 0,
        header_slot: 1,
    }));
    for (n, mode, links) in [
        (ROOT, DIR, 3),
        (INLINE, FILE, 2),
        (EXTENTS, FILE, 1),
        (BIG, FILE, 1),
        (SHORT, LINK, 1),
        (LONG, LINK, 1),
        (DIRECTORY, DIR, 3),
        (SUB, DIR, 2),
        (DEVICE, 0o020_600, 1),
        (FIFO, 0o010_600, 1),
        (ATTRS, FILE, 1),
        (REMOVED, FILE, 0),
        (SHRINKING, FILE, 1),
        (REMOVED_DIR, DIR, 0),
        (FAR, FILE, 1),
    ] {
        b.inodes.insert(InodeNo(n), empty_inode(mode, links, (n % 50) as u32 + 1));
    }
    b.left_incarnations.insert(InodeNo(FREE_SLOT), 50);
    files(&mut b);
    attributes(&mut b);
    directories(&mut b);
    let orphans: Vec<(u64, Vec<u8>)> = [REMOVED, SHRINKING, REMOVED_DIR]
        .map(|n| (n, orphan_value(b.inodes[&InodeNo(n)].incarnation).to_vec()))
        .to_vec();
    let (root, level, _) = b.tree(0, BlockKind::Orphans, (InodeNo::ORPHANS, 0), &[orphans]);
    (b.sb.orphan_root, b.sb.orphan_level) = (root, level);
    b
}

fn files(b: &mut Builder) {
    b.inode(INLINE).set_inline(b"the content itself");
    b.inode(INLINE).size = 100;
    let (first, second) = (b.data(5), b.data(2));
    let inode = b.inode(EXTENTS);
    ExtentValue::encode_inline(inode, &[(0, extent(first, 5, false)), (9, extent(second, 2, true))]);
    (inode.size, inode.blocks) = (11 * 4096, 7);
    let cells: Vec<(u64, Vec<u8>)> =
        (0..6).map(|i| (i * 70, extent(b.data(65), 65, false).encode().to_vec())).collect();
    let owner = (InodeNo(BIG), b.inodes[&InodeNo(BIG)].incarnation.0);
    let (root, level, nodes) =
        b.tree(1, BlockKind::Extents, owner, &[cells[..3].to_vec(), cells[3..].to_vec()]);
    let inode = b.inode(BIG);
    inode.set_tree_root(root, level);
    (inode.size, inode.blocks) = (420 * 4096, 6 * 65 + nodes);
    b.inode(SHORT).set_inline(b"some/where");
    b.inode(SHORT).size = 10;
    let owner = (InodeNo(LONG), b.inodes[&InodeNo(LONG)].incarnation.0);
    let chunks = [1024usize, 1024, 300].iter().enumerate().map(|(i, n)| (i as u64, vec![b'x'; *n]));
    let (root, level, nodes) = b.tree(0, BlockKind::Symlink, owner, &[chunks.collect()]);
    let inode = b.inode(LONG);
    inode.set_tree_root(root, level);
    (inode.size, inode.blocks) = (2348, nodes);
    b.inode(DEVICE).rdev = 0x103;
    for (n, len) in [(REMOVED, 4), (SHRINKING, 6)] {
        let start = b.data(len);
        let inode = b.inode(n);
        ExtentValue::encode_inline(inode, &[(0, extent(start, len as u32, false))]);
        inode.blocks = len;
    }
    let far = BlockNo(GROUP_BLOCKS + 5 * ZONE_BLOCKS);
    b.used.push((far, 8));
    let inode = b.inode(FAR);
    ExtentValue::encode_inline(inode, &[(0, extent(far, 8, false))]);
    (inode.size, inode.blocks) = (8 * 4096, 8);
}

/// The cells of one attribute.
pub fn attribute(namespace: XattrNamespace, name: &str, value: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let key = xattr_key(&SEED, namespace, name.as_bytes());
    let (chunk, rest) = value.split_at(value.len().min(XATTR_CHUNK_BYTES));
    let first = XattrCell::First { namespace, name: name.as_bytes(), value_len: value.len() as u32, chunk };
    let mut cells = vec![(key, first.encode())];
    for (i, bytes) in rest.chunks(XATTR_CHUNK_BYTES).enumerate() {
        cells.push((key + 1 + i as u64, XattrCell::Rest(bytes).encode()));
    }
    cells
}

pub fn attribute_cells() -> Vec<(u64, Vec<u8>)> {
    let mut cells = attribute(XattrNamespace::User, "big", &[7; 2500]);
    cells.extend(attribute(XattrNamespace::User, "empty", b""));
    cells.extend(attribute(XattrNamespace::Security, "capability", b"caps"));
    cells.extend(attribute(XattrNamespace::System, "posix_acl_access", b"acl"));
    cells.sort();
    cells
}

fn attributes(b: &mut Builder) {
    set_attributes(b, &attribute_cells());
    b.inode(ATTRS).flags = InodeFlags::ACCESS_ACL | InodeFlags::CAPABILITY;
}

/// Gives the file of attributes a tree with these cells.
pub fn set_attributes(b: &mut Builder, cells: &[(u64, Vec<u8>)]) {
    let owner = (InodeNo(ATTRS), b.inodes[&InodeNo(ATTRS)].incarnation.0);
    let (root, _, nodes) = b.tree(0, BlockKind::Xattrs, owner, &[cells.to_vec()]);
    let inode = b.inode(ATTRS);
    (inode.xattr_root, inode.blocks) = (root, nodes);
}

/// The root's entries, in the order of their cookies.
pub fn root_cells(b: &Builder) -> Vec<(u64, Vec<u8>)> {
    let mut cells: Vec<(u64, Vec<u8>)> = [
        ("inline", INLINE),
        ("extents", EXTENTS),
        ("big", BIG),
        ("short", SHORT),
        ("long", LONG),
        ("directory", DIRECTORY),
        ("device", DEVICE),
        ("fifo", FIFO),
        ("attrs", ATTRS),
        ("shrinking", SHRINKING),
        ("far", FAR),
    ]
    .map(|(name, n)| b.entry(name, n))
    .to_vec();
    cells.sort();
    cells
}

fn directories(b: &mut Builder) {
    let cells = root_cells(b);
    b.set_parents(ROOT, &cells);
    set_root(b, &[cells[..6].to_vec(), cells[6..].to_vec()]);
    let root = b.inodes[&InodeNo(ROOT)].incarnation;
    let inode = b.inode(ROOT);
    (inode.parent, inode.parent_incarnation) = (InodeNo(ROOT), root);
    let cells = directory_cells(b);
    b.set_parents(DIRECTORY, &cells);
    set_directory(b, &cells);
    // The name in this directory was made first; the latest one is in the root.
    let cookie = name_cookie(&SEED, b"inline");
    let inode = b.inode(INLINE);
    (inode.parent, inode.parent_incarnation, inode.parent_cookie) = (InodeNo(ROOT), root, cookie);
}

pub fn directory_cells(b: &Builder) -> Vec<(u64, Vec<u8>)> {
    let mut cells = vec![b.entry("sub", SUB), b.entry("hard", INLINE)];
    cells.sort();
    cells
}

/// Gives the root directory a tree with these leaves.
pub fn set_root(b: &mut Builder, leaves: &[Vec<(u64, Vec<u8>)>]) {
    let owner = (InodeNo(ROOT), b.inodes[&InodeNo(ROOT)].incarnation.0);
    let (root, level, nodes) = b.tree(0, BlockKind::Directory, owner, leaves);
    let inode = b.inode(ROOT);
    inode.set_tree_root(root, level);
    (inode.size, inode.blocks) = (leaves.iter().map(Vec::len).sum::<usize>() as u64, nodes);
}

/// Gives the directory in the root these entries, inline.
pub fn set_directory(b: &mut Builder, cells: &[(u64, Vec<u8>)]) {
    let bytes: Vec<u8> = cells.iter().flat_map(|(k, v)| [&k.to_be_bytes()[..], v].concat()).collect();
    let inode = b.inode(DIRECTORY);
    inode.set_inline(&bytes);
    inode.size = cells.len() as u64;
}
