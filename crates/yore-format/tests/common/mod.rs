//! Values of all kinds, for tests that encode them and decode them again.

#![allow(dead_code)]

use proptest::collection::vec;
use proptest::prelude::*;
use yore_format::*;

pub fn address() -> impl Strategy<Value = MetaAddr> {
    (0u32..1 << 30, 0u16..510).prop_map(|(zone, index)| MetaAddr::new(ZoneNo(zone), index))
}

pub fn file() -> impl Strategy<Value = InodeNo> {
    (address(), 0u8..16)
        .prop_map(|(addr, slot)| InodeNo::new(addr, slot))
        .prop_filter("a file", |n| n.is_file())
}

pub fn kind() -> impl Strategy<Value = FileKind> {
    (0u8..16).prop_filter_map("a kind", FileKind::from_repr)
}

pub fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

pub fn extent() -> impl Strategy<Value = ExtentValue> {
    (1u64..1 << 60, 1..=EXTENT_LEN_MAX, any::<bool>(), any::<bool>(), any::<u64>()).prop_map(
        |(start, len, unwritten, shared, birth)| ExtentValue {
            start: BlockNo(start),
            len,
            unwritten,
            shared,
            birth: EventNo(birth),
        },
    )
}

/// What an inode's content may be.
#[derive(Clone, Debug)]
pub enum Content {
    Inline(Vec<u8>),
    Extents(Vec<(u64, ExtentValue)>),
    Tree(MetaAddr, u8),
}

pub fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        vec(any::<u8>(), 0..=INLINE_BYTES).prop_map(Content::Inline),
        vec((0u64..1 << 32, extent()), 0..=4).prop_map(Content::Extents),
        (address().prop_filter("some", |a| !a.is_none()), any::<u8>()).prop_map(|(a, l)| Content::Tree(a, l)),
    ]
}

prop_compose! {
    pub fn inode()(
        kind in kind(),
        (permissions, links, uid, gid) in (0u32..0o10000, any::<u32>(), any::<u32>(), any::<u32>()),
        (size, blocks, incarnation) in (0..=layout::FILE_SIZE_MAX, any::<u64>(), 1..=u32::MAX),
        flags in 0u32..8,
        (atime, mtime, ctime, btime) in (time(), time(), time(), time()),
        (parent, parent_incarnation, parent_cookie) in (any::<u64>(), any::<u32>(), any::<u64>()),
        (own_event, born, has_policy, rdev) in (any::<u64>(), any::<u64>(), any::<bool>(), any::<u32>()),
        xattr_root in address(),
        content in content(),
    ) -> Inode {
        let mut inode = Inode {
            mode: kind.mode() | permissions,
            links,
            uid,
            gid,
            size,
            blocks,
            incarnation: Incarnation(incarnation),
            flags: InodeFlags::from_bits_truncate(flags),
            atime,
            mtime,
            ctime,
            btime,
            parent: InodeNo(parent),
            parent_incarnation: Incarnation(parent_incarnation),
            parent_cookie,
            own_event: EventNo(own_event),
            born: EventNo(born),
            has_policy,
            rdev,
            xattr_root,
            ..Inode::free()
        };
        match content {
            Content::Inline(bytes) => inode.set_inline(&bytes),
            Content::Extents(extents) => ExtentValue::encode_inline(&mut inode, &extents),
            Content::Tree(root, level) => inode.set_tree_root(root, level),
        }
        inode
    }
}
