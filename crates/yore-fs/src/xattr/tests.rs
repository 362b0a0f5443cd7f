//! Attributes against a map: values from nothing to the largest, in trees shared with others; and impossible
//! names.

use super::*;
use std::collections::BTreeMap;
use yore_core::testing::{Ground, Random};
use yore_format::Incarnation;
use yore_format::MetaAddr;

const NO: InodeNo = InodeNo(400);
const SEED: [u8; 16] = [9; 16];

/// Stores the inode, as it were: the list of orphans stays as it is.
fn store(op: &mut Op<'_>, unstored: Unstored) {
    let pointer = op.set_orphan_root(yore_format::MetaAddr::NONE, 0);
    unstored.stored(op, pointer);
}

fn file() -> Inode {
    let mut inode = Inode::free();
    (inode.mode, inode.links, inode.incarnation) = (0o100_644, 1, Incarnation(4));
    inode
}

fn at<'a>(ground: &'a Ground, inode: &'a Inode) -> Attributes<'a> {
    Attributes { meta: &ground.meta, seed: &SEED, inode, no: NO, recorded_until: EventNo(0) }
}

fn put(
    ground: &mut Ground,
    inode: &mut Inode,
    name: &[u8],
    value: Option<&[u8]>,
    mode: SetXattrMode,
) -> Result<()> {
    let mut pins = Pins::new();
    let plan = at(ground, inode).plan(Name::parse(name)?, value, mode, &mut pins)?;
    assert!(plan.blocks <= 32, "{} blocks in one Op", plan.blocks);
    let reserved = ground.reserve(plan.blocks);
    let mut op = ground.meta.begin(reserved);
    let unstored = plan.apply(&mut op, inode, EventNo(3));
    store(&mut op, unstored);
    Ok(())
}

fn value(random: &mut Random) -> Vec<u8> {
    let most = [10, 200, 1024, 1025, 5000, 65_537][random.below(6) as usize];
    let len = match random.below(8) {
        0 => XATTR_VALUE_MAX,
        _ => random.below(most) as usize,
    };
    vec![random.below(256) as u8; len]
}

/// An attribute that is set is read back, listed and removed; replacing works between all sizes; blocks are
/// counted exactly.
#[test]
fn behaves_as_a_map() {
    let (mut ground, mut random) = (Ground::new(), Random(31));
    let (mut inode, mut map) = (file(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    for step in 0..1200 {
        let n = random.below(25) as usize;
        let prefix = ["user.", "trusted.", "security."][n % 3];
        let mut name = format!("{prefix}{n}").into_bytes();
        name.resize((name.len() + n * 11).min(255), b'a');
        let there = map.contains_key(&name);
        if there && random.below(3) == 0 {
            let refused = put(&mut ground, &mut inode, &name, Some(b"x"), SetXattrMode::Create);
            assert!(matches!(refused, Err(Error::Exists)));
            put(&mut ground, &mut inode, &name, None, SetXattrMode::Replace).unwrap();
            map.remove(&name);
        } else {
            let mode = if there { SetXattrMode::Replace } else { SetXattrMode::Create };
            let value = value(&mut random);
            put(&mut ground, &mut inode, &name, Some(&value), mode).unwrap();
            map.insert(name.clone(), value);
        }
        assert_eq!(at(&ground, &inode).get(Name::parse(&name).unwrap()).unwrap().as_ref(), map.get(&name));
        if step % 40 == 0 {
            for (name, value) in &map {
                let got = at(&ground, &inode).get(Name::parse(name).unwrap()).unwrap();
                assert_eq!(got.as_ref(), Some(value));
            }
            let mut names = at(&ground, &inode).list().unwrap();
            names.sort();
            assert!(names.iter().eq(map.keys()));
        }
    }
    for name in map.into_keys() {
        put(&mut ground, &mut inode, &name, None, SetXattrMode::Replace).unwrap();
        let gone = put(&mut ground, &mut inode, &name, None, SetXattrMode::Replace);
        assert!(matches!(gone, Err(Error::NoAttribute)));
    }
    assert_eq!((inode.xattr_root, inode.blocks), (MetaAddr::NONE, 0));
}

/// The inode says which attributes exist among those that every write or permission check would look for.
#[test]
fn flags_follow_the_attributes() {
    let (mut ground, mut inode) = (Ground::new(), file());
    let named: [(&[u8], InodeFlags); 3] = [
        (b"security.capability", InodeFlags::CAPABILITY),
        (b"system.posix_acl_access", InodeFlags::ACCESS_ACL),
        (b"system.posix_acl_default", InodeFlags::DEFAULT_ACL),
    ];
    for (name, flag) in named {
        put(&mut ground, &mut inode, name, Some(b"v"), SetXattrMode::Any).unwrap();
        assert!(inode.flags.contains(flag));
        put(&mut ground, &mut inode, name, Some(&[7; 3000]), SetXattrMode::Any).unwrap();
        assert!(inode.flags.contains(flag));
    }
    for (name, flag) in named {
        put(&mut ground, &mut inode, name, None, SetXattrMode::Any).unwrap();
        assert!(!inode.flags.contains(flag));
        assert_eq!(at(&ground, &inode).get(Name::parse(name).unwrap()).unwrap(), None);
    }
}

/// A crash under soft updates left the cell of an ACL without the flag in the inode. The list had the
/// attribute, and reading it said that there was none; to create it was refused, and to replace it was not.
#[test]
fn without_its_flag_an_attribute_is_not_there() {
    let (mut ground, mut inode) = (Ground::new(), file());
    for name in [&b"security.capability"[..], b"system.posix_acl_access", b"system.posix_acl_default"] {
        put(&mut ground, &mut inode, name, Some(b"old"), SetXattrMode::Create).unwrap();
        inode.flags.remove(Name::parse(name).unwrap().flag());
        let all = at(&ground, &inode);
        assert_eq!(all.get(Name::parse(name).unwrap()).unwrap(), None);
        assert!(all.list().unwrap().is_empty());
        let replaced = put(&mut ground, &mut inode, name, Some(b"new"), SetXattrMode::Replace);
        assert!(matches!(replaced, Err(Error::NoAttribute)));
        put(&mut ground, &mut inode, name, Some(b"new"), SetXattrMode::Create).unwrap();
        assert_eq!(
            at(&ground, &inode).get(Name::parse(name).unwrap()).unwrap().as_deref(),
            Some(&b"new"[..])
        );
        put(&mut ground, &mut inode, name, None, SetXattrMode::Any).unwrap();
    }
}

#[test]
fn inherited_acls_take_no_more_blocks_than_asked_for() {
    let mut ground = Ground::new();
    for (access, default) in [
        (None, None),
        (Some(44), None),
        (Some(44), Some(52)),
        (Some(1000), Some(8004)),
        (Some(8004), Some(8004)),
    ] {
        let of = |len: Option<usize>| len.map(|len| vec![5; len]);
        let inherited = Inherited { mode: 0, access: of(access), default: of(default) };
        let blocks = blocks_for_inherited(&inherited);
        assert!(blocks <= 20);
        let (mut inode, reserved) = (file(), ground.reserve(blocks));
        let mut op = ground.meta.begin(reserved);
        let unstored = store_inherited_in(&mut op, &SEED, &mut inode, NO, &inherited, EventNo(3));
        store(&mut op, unstored);
        drop(op);
        for (name, want) in [(ACCESS, &inherited.access), (DEFAULT, &inherited.default)] {
            let name = Name { namespace: XattrNamespace::System, name };
            assert_eq!(&at(&ground, &inode).get(name).unwrap(), want);
        }
    }
}

#[test]
fn names_are_checked() {
    assert!(matches!(Name::parse(b"user."), Err(Error::Invalid { .. })));
    assert!(matches!(Name::parse(b"user.a\0b"), Err(Error::Invalid { .. })));
    assert!(matches!(Name::parse(b"plain"), Err(Error::Unsupported { .. })));
    assert!(matches!(Name::parse(b"system.other"), Err(Error::Unsupported { .. })));
    assert!(matches!(Name::parse(&[b'u'; 256]), Err(Error::AttributeTooLarge)));
    assert!(Name::parse(&[&b"user."[..], &[b'n'; 250]].concat()).is_ok());
    let mut link = file();
    link.mode = 0o120_777;
    for (name, on_file, on_link) in [
        (&b"user.a"[..], true, false),
        (b"trusted.a", true, true),
        (b"system.posix_acl_access", true, false),
        (b"system.posix_acl_default", false, false),
    ] {
        let name = Name::parse(name).unwrap();
        assert_eq!((name.suits(&file()), name.suits(&link)), (on_file, on_link));
    }
}

/// A chunk missing from a long value, or a first chunk that is not one: an error, not a shorter value.
#[test]
fn damaged_values_give_errors() {
    let (mut ground, mut inode) = (Ground::new(), file());
    let name = Name::parse(b"user.long").unwrap();
    put(&mut ground, &mut inode, b"user.long", Some(&[3; 5000]), SetXattrMode::Any).unwrap();
    let slot = name.key(&SEED);
    let change = |ground: &mut Ground, inode: &mut Inode, key: u64, cell: Option<&[u8]>| {
        let mut tree = tree(&ground.meta, inode, NO).unwrap();
        let mut pins = Pins::new();
        tree.prepare(&ground.meta, &key.to_be_bytes(), &key.to_be_bytes(), &mut pins).unwrap();
        let reserved = ground.reserve(4);
        let mut op = ground.meta.begin(reserved);
        let delta = match cell {
            Some(cell) => tree.replace(&mut op, &key.to_be_bytes(), cell),
            None => tree.remove(&mut op, &key.to_be_bytes()),
        };
        let _ = store_tree(inode, &tree, delta);
    };
    change(&mut ground, &mut inode, slot + 2, None);
    assert!(matches!(at(&ground, &inode).get(name), Err(Error::Corruption(_))));
    // It can still be removed, all of it.
    put(&mut ground, &mut inode, b"user.long", None, SetXattrMode::Replace).unwrap();
    assert!(inode.xattr_root.is_none());
    put(&mut ground, &mut inode, b"user.long", Some(&[3; 5000]), SetXattrMode::Any).unwrap();
    for damage in [&[0u8, 1, 2][..], &[9], &[]] {
        change(&mut ground, &mut inode, slot, Some(damage));
        assert!(matches!(at(&ground, &inode).get(name), Err(Error::Corruption(_))));
        let refused = put(&mut ground, &mut inode, b"user.long", Some(b"v"), SetXattrMode::Any);
        assert!(matches!(refused, Err(Error::Corruption(_))));
    }
}
