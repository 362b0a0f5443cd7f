//! Directories against a map of names, from a few entries in the inode to a tree and back to nothing; and
//! damage.

use super::*;
use std::collections::BTreeMap;
use yore_core::testing::{Ground, Random};

const NO: InodeNo = InodeNo(400);
const SEED: [u8; 16] = [9; 16];

/// Stores the inode, as it were: the list of orphans stays as it is.
fn store(op: &mut Op<'_>, unstored: Unstored) {
    let pointer = op.set_orphan_root(yore_format::MetaAddr::NONE, 0);
    unstored.stored(op, pointer);
}

fn directory() -> Inode {
    let mut inode = Inode::free();
    (inode.mode, inode.links, inode.incarnation) = (0o040_755, 2, Incarnation(4));
    inode
}

fn entry(name: &[u8], inode: u64) -> DirEntry<'_> {
    let (incarnation, birth) = (Incarnation(inode as u32), EventNo(3));
    DirEntry { inode: InodeNo(inode), incarnation, birth, kind: FileKind::Regular, name }
}

fn free(ground: &Ground, dir: &Inode, name: &[u8], pins: &mut Pins) -> (Spot, u32) {
    match lookup_in(&ground.meta, &SEED, dir, NO, name, pins).unwrap() {
        Lookup::Free(spot, blocks) => (spot, blocks),
        _ => panic!("{name:?} is not free"),
    }
}

fn taken(ground: &Ground, dir: &Inode, name: &[u8], pins: &mut Pins) -> Spot {
    match lookup_in(&ground.meta, &SEED, dir, NO, name, pins).unwrap() {
        Lookup::Taken(found, spot) => {
            assert_eq!(found.cookie, spot.cookie());
            spot
        }
        _ => panic!("{name:?} is not there"),
    }
}

fn add(ground: &mut Ground, dir: &mut Inode, name: &[u8], inode: u64) -> u64 {
    let mut pins = Pins::new();
    let (spot, blocks) = free(ground, dir, name, &mut pins);
    let cookie = spot.cookie();
    let reserved = ground.reserve(blocks);
    let mut op = ground.meta.begin(reserved);
    let unstored = insert_in(&mut op, dir, NO, spot, &entry(name, inode), EventNo(3));
    store(&mut op, unstored);
    cookie
}

fn delete(ground: &mut Ground, dir: &mut Inode, name: &[u8]) {
    let mut pins = Pins::new();
    let spot = taken(ground, dir, name, &mut pins);
    let reserved = ground.reserve(0);
    let mut op = ground.meta.begin(reserved);
    let unstored = remove_in(&mut op, dir, NO, spot);
    store(&mut op, unstored);
}

fn delete_at(ground: &mut Ground, dir: &mut Inode, cookie: u64) {
    let (mut pins, key) = (Pins::new(), cookie.to_be_bytes());
    tree(dir, NO).prepare(&ground.meta, &key, &key, &mut pins).unwrap();
    let reserved = ground.reserve(0);
    let mut op = ground.meta.begin(reserved);
    let unstored = remove_in(&mut op, dir, NO, Spot { cookie, path: None });
    store(&mut op, unstored);
}

fn all(ground: &Ground, dir: &Inode, after: u64) -> Vec<(u64, Vec<u8>, u64)> {
    let mut found = Vec::new();
    list_in(&ground.meta, dir, NO, after, &mut |cookie, entry| {
        found.push((cookie, entry.name.to_vec(), entry.inode.0));
        Ok(true)
    })
    .unwrap();
    found
}

/// A directory behaves like a map of names; a listing goes on after any cookie; the count is the number of
/// entries.
#[test]
fn behaves_as_a_map_of_names() {
    let (mut ground, mut random) = (Ground::new(), Random(77));
    let (mut dir, mut map) = (directory(), BTreeMap::<Vec<u8>, (u64, u64)>::new());
    for round in 0..6 {
        let most = [2, 4, 20, 300, 2000, 60][round];
        for step in 0..3000 {
            let n = random.below(most);
            let mut name = format!("name-{n}").into_bytes();
            name.resize(name.len() + (n as usize * 37) % 240, b'x');
            match map.get(&name).copied() {
                None if step < 2000 => {
                    let inode = 16 + random.below(500 * 16);
                    let cookie = add(&mut ground, &mut dir, &name, inode);
                    map.insert(name.clone(), (cookie, inode));
                }
                Some(_) if step >= 1000 => {
                    delete(&mut ground, &mut dir, &name);
                    map.remove(&name);
                }
                Some((cookie, _)) if step % 5 == 0 => {
                    let mut pins = Pins::new();
                    let spot = taken(&ground, &dir, &name, &mut pins);
                    let reserved = ground.reserve(0);
                    let mut op = ground.meta.begin(reserved);
                    let unstored = repoint_in(&mut op, &mut dir, NO, spot, &entry(&name, 99));
                    store(&mut op, unstored);
                    map.insert(name.clone(), (cookie, 99));
                }
                _ => {}
            }
            let found = find_in(&ground.meta, &SEED, &dir, NO, &name).unwrap();
            assert_eq!(found.map(|f| (f.cookie, f.inode.0)), map.get(&name).copied());
            assert_eq!(dir.size, map.len() as u64);
        }
        let mut want: Vec<_> = map.iter().map(|(n, (c, i))| (*c, n.clone(), *i)).collect();
        want.sort();
        assert_eq!(all(&ground, &dir, 0), want);
        let middle = want.get(want.len() / 2).map_or(5, |w| w.0);
        want.retain(|w| w.0 > middle);
        assert_eq!(all(&ground, &dir, middle), want);
        assert!(all(&ground, &dir, u64::MAX).is_empty());
    }
    for name in std::mem::take(&mut map).into_keys() {
        delete(&mut ground, &mut dir, &name);
    }
    assert_eq!((dir.content_kind, dir.blocks, dir.size), (ContentKind::Empty, 0, 0));
}

/// A rename within one directory, in either order, in one Op, with the blocks that the insert needs.
#[test]
fn renames_within_one_directory_in_one_op() {
    for entries in [1, 2, 3, 5, 40] {
        for insert_first in [true, false] {
            let (mut ground, mut dir) = (Ground::new(), directory());
            let old: Vec<_> = (0..entries).map(|i| format!("{i}{}", "o".repeat(20)).into_bytes()).collect();
            for name in &old {
                add(&mut ground, &mut dir, name, 50);
            }
            let name = [b'n'; 250];
            let mut pins = Pins::new();
            let (new, blocks) = free(&ground, &dir, &name, &mut pins);
            let gone = taken(&ground, &dir, &old[0], &mut pins);
            let reserved = ground.reserve(blocks);
            let mut op = ground.meta.begin(reserved);
            let entry = entry(&name, 50);
            if insert_first {
                let unstored = insert_in(&mut op, &mut dir, NO, new, &entry, EventNo(3));
                store(&mut op, unstored);
                let unstored = remove_in(&mut op, &mut dir, NO, gone);
                store(&mut op, unstored);
            } else {
                let unstored = remove_in(&mut op, &mut dir, NO, gone);
                store(&mut op, unstored);
                let unstored = insert_in(&mut op, &mut dir, NO, new, &entry, EventNo(3));
                store(&mut op, unstored);
            }
            drop(op);
            assert_eq!(all(&ground, &dir, 0).len(), entries);
            assert!(find_in(&ground.meta, &SEED, &dir, NO, &name).unwrap().is_some());
        }
    }
}

/// Names of one hash take the run's cookies one after another, and keep them when others go; 257 do not fit.
#[test]
fn names_of_one_hash_share_its_run() {
    let (mut ground, mut dir) = (Ground::new(), directory());
    let name = b"the name";
    let first = name_cookie(&SEED, name);
    let plant = |ground: &mut Ground, dir: &mut Inode, cookie: u64, name: &[u8]| {
        let mut pins = Pins::new();
        let blocks = match dir.content_kind {
            ContentKind::Tree => {
                let key = cookie.to_be_bytes();
                tree(dir, NO).prepare(&ground.meta, &key, &key, &mut pins).unwrap();
                8
            }
            _ => 1,
        };
        let reserved = ground.reserve(blocks);
        let mut op = ground.meta.begin(reserved);
        let spot = Spot { cookie, path: None };
        let unstored = insert_in(&mut op, dir, NO, spot, &entry(name, 60), EventNo(3));
        store(&mut op, unstored);
    };
    for n in 0..255 {
        plant(&mut ground, &mut dir, first + n, format!("other {n}").as_bytes());
    }
    let cookie = add(&mut ground, &mut dir, name, 70);
    assert_eq!(cookie, first + 255);
    assert_eq!(find_in(&ground.meta, &SEED, &dir, NO, name).unwrap().unwrap().cookie, cookie);
    taken(&ground, &dir, name, &mut Pins::new());
    for n in [0, 7, 254] {
        delete_at(&mut ground, &mut dir, first + n);
    }
    assert_eq!(find_in(&ground.meta, &SEED, &dir, NO, name).unwrap().unwrap().cookie, cookie);
    delete(&mut ground, &mut dir, name);
    let (spot, _) = free(&ground, &dir, name, &mut Pins::new());
    assert_eq!(spot.cookie(), first);
    for n in [0, 7, 254, 255] {
        plant(&mut ground, &mut dir, first + n, format!("again {n}").as_bytes());
    }
    let full = lookup_in(&ground.meta, &SEED, &dir, NO, name, &mut Pins::new()).unwrap();
    assert!(matches!(full, Lookup::Full));
}

/// Whatever bytes the content area holds, every call returns.
#[test]
fn damaged_entries_in_the_inode_give_errors() {
    let (mut ground, mut random) = (Ground::new(), Random(5));
    let mut dir = directory();
    add(&mut ground, &mut dir, b"one", 20);
    add(&mut ground, &mut dir, b"two", 21);
    let mut errors = 0;
    for _ in 0..5000 {
        let mut bytes = dir.inline().to_vec();
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.below(256) as u8;
        bytes.truncate(bytes.len() - random.below(3) as usize);
        let mut damaged = dir.clone();
        damaged.set_inline(&bytes);
        let results = [
            find_in(&ground.meta, &SEED, &damaged, NO, b"none").is_err(),
            list_in(&ground.meta, &damaged, NO, 0, &mut |_, _| Ok(true)).is_err(),
            lookup_in(&ground.meta, &SEED, &damaged, NO, b"n", &mut Pins::new()).is_err(),
        ];
        assert!(results.iter().all(|r| *r == results[0]));
        errors += u32::from(results[0]);
    }
    assert!(errors > 1000);
}
