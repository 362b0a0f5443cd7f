//! Damages of a volume with a past, each with the problems that it must show.

use super::common::past::*;
use super::*;

/// Damages of the trees of the past.
pub(super) const PAST_TREES: &[Plant] = &[
    ("the roots of the past do not exist", &[BlockMissing], |b| {
        superblock(b, |sb| sb.history_root = MetaAddr(400))
    }),
    ("the roots of the past are another's block", &[BlockWrong], |b| {
        let other = b.sb.orphan_root;
        b.on_superblock.push(Box::new(move |sb| sb.history_root = other))
    }),
    ("the roots of the past have an owner that they cannot have", &[BlockDamaged], |b| {
        on_roots(b, |block| BlockHeader::of_mut(block).owner = 2.into())
    }),
    ("nothing refers to roots of the past", &[BlockUnreachable], |b| {
        let addr = b.address(2);
        let block = block(BlockKind::HistoryRoots, 0, addr, InodeNo::HISTORY, 0);
        b.zones.get_mut(&2).unwrap().blocks.insert(addr.index(), block);
    }),
    ("a root of the past is that of another tree", &[BlockWrong], |b| {
        on_roots(b, |block| {
            let (root, level) = HistoryRoots::get(block, HistoryTree::EventIndex);
            HistoryRoots::set(block, HistoryTree::Events, root, level);
        })
    }),
    ("a root of the past does not exist", &[BlockMissing], |b| {
        on_roots(b, |block| {
            HistoryRoots::set(block, HistoryTree::Changes(0), MetaAddr(400), 0);
        })
    }),
    ("two roots of the past are one", &[BlockReachedTwice], |b| {
        on_roots(b, |block| {
            let (root, level) = HistoryRoots::get(block, HistoryTree::Events);
            HistoryRoots::set(block, HistoryTree::EventIndex, root, level);
        })
    }),
    ("a root of the past has another level", &[BlockWrong], |b| {
        on_roots(b, |block| {
            let (root, level) = HistoryRoots::get(block, HistoryTree::Events);
            HistoryRoots::set(block, HistoryTree::Events, root, level + 1);
        })
    }),
    ("data blocks that only the past holds", &[HistorySpace], |b| b.past.held.0 -= 1),
    ("nodes that only the past holds", &[HistorySpace], |b| b.past.held.1 += 1),
    ("nodes of the trees of the past", &[HistorySpace], |b| {
        on_roots(b, |block| {
            HistoryRoots::count(block, HistoryGrowth { trees: -1, ..HistoryGrowth::default() });
        })
    }),
    ("a node of the past is another's", &[BlockWrong], |b| {
        on_root(b, changes_of(GONE), |n| BlockHeader::of_mut(n).owner = 2.into())
    }),
    ("a node of forgotten events is another's", &[BlockWrong], |b| {
        on_root(b, HistoryTree::Forgotten, |n| BlockHeader::of_mut(n).owner = 3.into())
    }),
    ("a node of forgotten events is damaged", &[BlockDamaged], |b| {
        on_root(b, HistoryTree::Forgotten, |n| BlockHeader::of_mut(n).addr = 77.into())
    }),
    ("forgotten events are the others", &[BlockReachedTwice], |b| {
        on_roots(b, |block| {
            let (root, level) = HistoryRoots::get(block, HistoryTree::Events);
            HistoryRoots::set(block, HistoryTree::Forgotten, root, level);
        })
    }),
    ("a node of the past has an incarnation", &[BlockWrong], |b| {
        on_root(b, HistoryTree::EventIndex, |n| BlockHeader::of_mut(n).owner_incarnation = 1.into())
    }),
    ("a node of the past was born in the future", &[FutureNumber], |b| {
        on_root(b, names_of(ROOT), |n| BlockHeader::of_mut(n).birth = 10.into())
    }),
    ("a tree of the past has keys of another width", &[TreeKeyWidth], |b| {
        on_root(b, names_of(ROOT), |n| {
            NodeMut::init(n, 16);
        })
    }),
    ("a key of the past is beyond its leaf's bounds", &[TreeBounds], |b| {
        on_root(b, HistoryTree::EventIndex, |n| {
            let mut key: [u8; 16] = NodeRef::new(n).key(1).try_into().unwrap();
            key[15] += 1;
            NodeMut::new(n).set_key(1, &key);
        })
    }),
];

/// Puts an unfinished rollback in place of an event, or adds it to the events.
fn rollback(b: &mut Builder, number: u64, root: u64, intent: &str, change: impl FnOnce(&mut EventRow)) {
    let incarnation = b.inodes[&InodeNo(root)].incarnation.0;
    let mut row =
        event(b.past.events.get(&number).map_or(99, |event| event.time.seconds), root, incarnation, intent);
    row.kind = EventKind::Rollback;
    row.state = yore_format::EventState::Dying;
    change(&mut row);
    b.past.events.insert(number, row);
    b.past.events.get_mut(&4).unwrap().kind = EventKind::Undo;
}

/// Replaces the forgotten event 8 by one that says that the history of a file is being given up.
fn expunge(b: &mut Builder, inode: u64) {
    let row = event(50, inode, b.inodes[&InodeNo(inode)].incarnation.0, "");
    b.past
        .events
        .insert(8, EventRow { kind: EventKind::Expunge, state: yore_format::EventState::Dying, ..row });
}

pub(super) const EVENTS: &[Plant] = &[
    ("an event is of no kind", &[CellDamaged], |b| {
        on_cells(b, HistoryTree::Events, |cells| cells[0].1[12] = 9)
    }),
    ("an event with the number 0", &[EventNumber], |b| {
        let first = b.past.events.remove(&2).unwrap();
        b.past.events.insert(0, first);
    }),
    ("an event with a number not given yet", &[EventNumber], |b| {
        let late = event(99, ROOT, 17, "late");
        b.past.events.insert(9, late);
    }),
    ("an event at the time of the one before it", &[EventTime], |b| {
        b.past.events.get_mut(&4).unwrap().time = b.past.events[&3].time
    }),
    ("an event earlier than the one before it", &[EventTime], |b| {
        b.past.events.get_mut(&7).unwrap().time.seconds = -1
    }),
    ("two kept events of one name", &[EventName], |b| {
        b.past.events.get_mut(&7).unwrap().name = "first".into()
    }),
    ("an event of an incarnation not given yet", &[FutureIncarnation], |b| {
        b.past.events.get_mut(&3).unwrap().root_incarnation = Incarnation(100)
    }),
    ("an event is not found by its root", &[EventIndex], |b| {
        on_cells(b, HistoryTree::EventIndex, |cells| {
            cells.remove(0);
        })
    }),
    ("an event is not found by its name", &[EventIndex], |b| {
        on_cells(b, HistoryTree::EventIndex, |cells| {
            cells.pop();
        })
    }),
    ("there is no index of the events", &[EventIndex], |b| on_cells(b, HistoryTree::EventIndex, Vec::clear)),
    ("an event that there is not is found by a root", &[EventIndex], |b| {
        on_cells(b, HistoryTree::EventIndex, |cells| {
            cells.push((event_index_by_root(InodeNo(ROOT), EventNo(6)).to_vec(), vec![]))
        })
    }),
    ("an event is found by a name that it does not have", &[EventIndex], |b| {
        on_cells(b, HistoryTree::EventIndex, |cells| {
            cells.push((event_index_by_name(&SEED, "other", EventNo(2)).to_vec(), vec![]))
        })
    }),
    ("there is something in a cell of an index", &[CellDamaged], |b| {
        on_cells(b, HistoryTree::EventIndex, |cells| cells[0].1.push(0))
    }),
    ("a forgotten event is of no state", &[CellDamaged], |b| {
        on_cells(b, HistoryTree::Forgotten, |cells| cells[0].1[13] = 4)
    }),
    ("a forgotten event with a number not given yet", &[EventNumber], |b| {
        let late = EventRow { state: yore_format::EventState::Forgotten, ..event(99, ROOT, 17, "late") };
        b.past.events.insert(9, late);
    }),
    ("a forgotten event of an incarnation not given yet", &[FutureIncarnation], |b| {
        b.past.events.get_mut(&8).unwrap().root_incarnation = Incarnation(100)
    }),
    ("an event is forgotten, and is not", &[EventTwice], |b| {
        let both = EventRow { state: yore_format::EventState::Forgotten, ..b.past.events[&4].clone() };
        let cell = event_cell(4, &both);
        b.past.on_cells.push((HistoryTree::Forgotten, Box::new(move |cells| cells.push(cell.clone()))));
    }),
    ("a forgotten event is among the others", &[EventState], |b| {
        on_cells(b, HistoryTree::Events, |cells| cells[0].1[13] = 3)
    }),
    ("a kept event is among the forgotten ones", &[EventState], |b| {
        on_cells(b, HistoryTree::Forgotten, |cells| cells[0].1[13] = 1)
    }),
    ("an event that expunges is kept", &[EventState], |b| {
        on_cells(b, HistoryTree::Events, |cells| cells[0].1[12] = 6)
    }),
    ("an event that expunged is remembered", &[EventState], |b| {
        on_cells(b, HistoryTree::Forgotten, |cells| cells[0].1[12] = 6)
    }),
    ("an event that rolls back is kept", &[EventState], |b| {
        rollback(b, 8, ROOT, "4 2", |row| row.state = yore_format::EventState::Kept)
    }),
    ("a rollback says nothing that can be done", &[CellDamaged], |b| rollback(b, 8, ROOT, "4", |_| ())),
    ("a rollback to an event that there is not", &[RollbackEvent], |b| rollback(b, 8, ROOT, "4 5", |_| ())),
    ("a rollback to a later event", &[RollbackEvent], |b| rollback(b, 8, ROOT, "4 8", |_| ())),
    ("a rollback without an event of the same directory before it", &[RollbackEvent], |b| {
        rollback(b, 8, DIRECTORY, "4 2", |_| ())
    }),
    ("a rollback without an event before it that can be undone", &[RollbackEvent], |b| {
        rollback(b, 8, ROOT, "2 4", |_| ())
    }),
    ("an inode and its entry are older than what expunges it", &[Expunged], |b| expunge(b, REUSED)),
    ("an entry is older than what expunges its inode", &[Expunged], |b| expunge(b, VERSIONED)),
    ("a rollback of what is no directory", &[RollbackEvent, RollbackRoot], |b| {
        rollback(b, 8, VERSIONED, "4 2", |_| ())
    }),
    ("a rollback of a directory that was before", &[RollbackRoot], |b| {
        rollback(b, 8, ROOT, "4 2", |row| row.root_incarnation = Incarnation(2))
    }),
    ("a dying event is among the forgotten ones", &[EventState], |b| {
        on_cells(b, HistoryTree::Forgotten, |cells| cells[1].1[13] = 2)
    }),
    ("a forgotten event earlier than the one before it", &[EventTime], |b| {
        b.past.events.get_mut(&5).unwrap().time.seconds = 19
    }),
    ("an event at the time of the forgotten one before it", &[EventTime], |b| {
        b.past.events.get_mut(&5).unwrap().time = b.past.events[&6].time
    }),
    ("a forgotten event is found by its root", &[EventIndex], |b| {
        on_cells(b, HistoryTree::EventIndex, |cells| {
            cells.push((event_index_by_root(InodeNo(ROOT), EventNo(5)).to_vec(), vec![]))
        })
    }),
    ("a forgotten event is found by its name", &[EventIndex], |b| {
        on_cells(b, HistoryTree::EventIndex, |cells| {
            cells.push((event_index_by_name(&SEED, "old", EventNo(5)).to_vec(), vec![]))
        })
    }),
];

pub(super) const VERSIONS: &[Plant] = &[
    ("a version is short", &[CellDamaged], |b| {
        on_cells(b, versions_of(VERSIONED), |cells| cells.iter_mut().for_each(|c| c.1.truncate(15)))
    }),
    ("a version of what is no file", &[CellDamaged], |b| {
        on_cells(b, versions_of(REUSED), |cells| {
            let mut version = cells[0].clone();
            version.0[..8].copy_from_slice(&3u64.to_be_bytes());
            cells.push(version);
        })
    }),
    ("a version in another shard", &[HistoryShard], |b| {
        let cells = Rc::new(RefCell::new(vec![]));
        let taken = Rc::clone(&cells);
        let (from, to) =
            (versions_of(GONE), other_shard(version_shard(InodeNo(GONE)), HistoryTree::Versions));
        b.past.on_cells.push((from, Box::new(move |cells| taken.borrow_mut().append(cells))));
        b.past.on_cells.push((to, Box::new(move |other| other.append(&mut cells.borrow_mut()))));
    }),
    ("versions overlap", &[VersionOrder], |b| {
        let again = Inode { born: EventNo(4), ..b.was(DIRECTORY, 1).clone() };
        b.version(DIRECTORY, 5, again);
    }),
    ("a version ended after the inode in use was born", &[VersionOrder], |b| {
        b.inode(DIRECTORY).born = EventNo(4)
    }),
    ("a version of an incarnation after the one in use", &[VersionOrder], |b| {
        b.was(DIRECTORY, 1).incarnation = Incarnation(99)
    }),
    ("a version of an incarnation not given yet", &[FutureIncarnation], |b| {
        b.was(GONE, 1).incarnation = Incarnation(101);
        b.was(GONE, 4).incarnation = Incarnation(101);
    }),
    ("a version ended in the future", &[FutureNumber], |b| {
        b.past.versions.get_mut(&(GONE, 4)).unwrap().end = EventNo(10)
    }),
    ("a version's own event is in the future", &[FutureNumber], |b| b.was(GONE, 4).own_event = EventNo(10)),
    ("a version is of another type than its inode", &[VersionKind], |b| b.was(DIRECTORY, 1).mode = 0o010_755),
    ("a version of a directory has entries", &[ContentKind], |b| {
        let inline = b.inodes[&InodeNo(DIRECTORY)].inline().to_vec();
        b.was(DIRECTORY, 1).set_inline(&inline);
    }),
    ("a version's count of blocks", &[InodeBlocks], |b| b.was(GONE, 4).blocks += 1),
    ("the count of blocks of a version that shares nodes", &[InodeBlocks], |b| {
        b.was(VERSIONED, 5).blocks += 1
    }),
    ("a version's size", &[InodeSize], |b| b.was(LONG, 1).size += 1),
    ("an immutable version without the feature", &[Feature], |b| {
        b.was(VERSIONED, 5).flags = InodeFlags::IMMUTABLE
    }),
    ("a version's flags", &[XattrFlags], |b| b.was(VERSIONED, 5).flags = InodeFlags::ACCESS_ACL),
    ("the flags of a version with other attributes", &[XattrFlags], |b| {
        b.was(VERSIONED, 3).flags = InodeFlags::CAPABILITY
    }),
    ("a device number on a version of a file", &[DeviceNumber], |b| b.was(GONE, 4).rdev = 1),
    ("a version's extents overlap in the file", &[ExtentOrder], |b| {
        let mut extents = extents_of(b, GONE, 4);
        extents[1].0 = 1;
        ExtentValue::encode_inline(b.was(GONE, 4), &extents);
    }),
    ("a version's node does not exist", &[BlockMissing], |b| {
        b.was(VERSIONED, 1).set_tree_root(MetaAddr(400), 1)
    }),
    ("a version's tree has another level", &[BlockWrong], |b| b.was(VERSIONED, 1).content_level = 2),
    ("a tree that states share has another level in one of them", &[BlockWrong], |b| {
        b.was(BIG, 1).content_level = 2
    }),
    ("a version's root is a leaf of the inode in use", &[BlockWrong], |b| {
        let leaf = child_of(b, tree_of(b, VERSIONED), 0);
        b.was(VERSIONED, 1).set_tree_root(leaf, 1);
    }),
    (
        "a shared leaf is out of the bounds of one of its branches",
        &[TreeBounds, InodeBlocks, SpaceLeaked],
        |b| {
            let branch = b.was(VERSIONED, 3).tree_root();
            on_block(b, branch, |n| {
                NodeMut::new(n).set_key(1, &15u64.to_be_bytes());
            })
        },
    ),
    ("an end is not among the changes", &[ChangeIndex], |b| {
        on_cells(b, changes_of(GONE), |cells| cells.retain(|c| c.0[7] != 4))
    }),
    ("nothing is among the changes", &[ChangeIndex], |b| on_cells(b, changes_of(VERSIONED), Vec::clear)),
    ("an end that is none is among the changes", &[ChangeIndex], |b| {
        on_cells(b, changes_of(GONE), |cells| {
            cells.push((version_end_key(EventNo(5), InodeNo(GONE)).to_vec(), vec![]))
        })
    }),
    ("an end is among another shard's changes", &[HistoryShard], |b| {
        let to = other_shard(version_shard(InodeNo(GONE)), HistoryTree::Changes);
        on_cells(b, to, |cells| cells.push((version_end_key(EventNo(4), InodeNo(GONE)).to_vec(), vec![])))
    }),
];

/// Damages of policies.
pub(super) const POLICIES: &[Plant] = &[
    ("an inode says that it has a policy", &[Policy], |b| b.inode(LONG).has_policy = true),
    ("an inode has a policy and does not say so", &[Policy], |b| b.inode(DIRECTORY).has_policy = false),
    ("a policy is missing", &[Policy], |b| on_cells(b, HistoryTree::Policies, |cells| drop(cells.remove(0)))),
    ("a policy is of another incarnation", &[Policy], |b| {
        on_cells(b, HistoryTree::Policies, |cells| cells[0].1[0] ^= 0x40)
    }),
    ("a policy cannot be", &[CellDamaged], |b| on_cells(b, HistoryTree::Policies, |cells| cells[0].1[4] = 9)),
    ("a node of policies is another's", &[BlockWrong], |b| {
        on_root(b, HistoryTree::Policies, |n| BlockHeader::of_mut(n).owner = 2.into())
    }),
];

fn operation() -> (Vec<u8>, Vec<u8>) {
    let row = OperationRow {
        time: Timestamp { seconds: 5, nanos: 0 },
        kind: OperationKind::Snapshot,
        uid: 0,
        first: EventNo(2),
        last: EventNo(2),
        count: 1,
        bytes: 0,
        path: b"letters".to_vec(),
        note: String::new(),
    };
    (operation_key(RowClass::Done, 1).to_vec(), row.encode())
}

/// Damages of what format 2.2 added.
pub(super) const EXTENDED: &[Plant] = &[
    ("there are operations without the feature", &[Feature], |b| {
        on_cells(b, HistoryTree::Operations, |cells| cells.push(operation()))
    }),
    ("an event has a description without the feature", &[Feature], |b| {
        b.past.events.get_mut(&2).unwrap().more.description = "before the upgrade".into()
    }),
    ("a policy excludes something without the feature", &[Feature], |b| {
        b.past.policies.get_mut(&DIRECTORY).unwrap().policy.exclude = Some(vec!["*.swp".into()])
    }),
    ("an operation cannot be", &[CellDamaged], |b| {
        b.sb.features = WriteFeatures::EXTENDED_PAST;
        on_cells(b, HistoryTree::Operations, |cells| {
            let (key, mut value) = operation();
            value[48] = 99;
            cells.push((key, value));
        })
    }),
    ("an operation is of no class", &[CellDamaged], |b| {
        b.sb.features = WriteFeatures::EXTENDED_PAST;
        on_cells(b, HistoryTree::Operations, |cells| {
            let (mut key, value) = operation();
            key[7] = 9;
            cells.push((key, value));
        })
    }),
];

pub(super) const PAST_NAMES: &[Plant] = &[
    ("a past name died before it was born", &[CellDamaged], |b| b.past.names[0].value[0] = 1),
    ("a past name in another shard", &[HistoryShard], |b| {
        let to = other_shard(name_shard(InodeNo(ROOT)), HistoryTree::Names);
        let name = past_name(ROOT, "elsewhere", (1, 2), (GONE, 60));
        let key = name_key(InodeNo(ROOT), name.cookie, EventNo(1)).to_vec();
        let end = name.end();
        b.past.on_cells.push((to, Box::new(move |cells| cells.push((key.clone(), name.value.clone())))));
        b.past.on_cells.push((changes_in(ROOT), Box::new(move |cells| cells.push(end.clone()))));
    }),
    ("a past name died in the future", &[FutureNumber], |b| b.past.names[1].value[0] = 10),
    ("a past name of an incarnation not given yet", &[FutureIncarnation], |b| {
        b.past.names[0] = past_name(DIRECTORY, "gone", (1, 4), (GONE, 100))
    }),
    ("a past name under another's cookie", &[EntryKey], |b| b.past.names[0].cookie += 256),
    ("two lives of a name overlap", &[PastNameOrder], |b| b.past.names[0].value[0] = 5),
    ("two lives under one cookie overlap", &[PastNameOrder], |b| {
        b.past.names[0].value[0] = 5;
        b.past.names[1].cookie = b.past.names[0].cookie;
    }),
    ("two names have one cookie and end at once", &[EntryKey, PastNameOrder], |b| {
        let hard = b.past.names[2].cookie;
        b.past.names[0] = NameModel { cookie: hard, ..past_name(DIRECTORY, "gone", (2, 3), (GONE, 60)) };
    }),
    ("a name in use is older than the death of the past one", &[PastNameOrder], |b| hard_since(b, 2)),
    ("a cookie in use is older than the death of what it stood for", &[EntryKey, PastNameOrder], |b| {
        let hard = b.past.names[2].cookie;
        b.past.names[0] = NameModel { cookie: hard, ..past_name(DIRECTORY, "gone", (3, 4), (GONE, 60)) };
    }),
    ("the end of a name is not among the changes", &[ChangeIndex], |b| {
        let end = b.past.names[0].end();
        b.past.on_cells.push((changes_in(DIRECTORY), Box::new(move |cells| cells.retain(|c| *c != end))));
    }),
    ("the end of a name that there is not is among the changes", &[ChangeIndex], |b| {
        let end = past_name(DIRECTORY, "gone", (4, 5), (GONE, 60)).end();
        b.past.on_cells.push((changes_in(DIRECTORY), Box::new(move |cells| cells.push(end.clone()))));
    }),
    ("the end of a name is among the changes of another shard", &[HistoryShard], |b| {
        let (to, end) = (other_shard(name_shard(InodeNo(ROOT)), HistoryTree::Changes), b.past.names[3].end());
        b.past.on_cells.push((to, Box::new(move |cells| cells.push(end.clone()))));
    }),
    ("the end of a name is of another cookie", &[ChangeIndex], |b| {
        on_cells(b, changes_in(DIRECTORY), |cells| {
            let name = cells.iter_mut().find(|c| c.0[16..] != [0; 8]).unwrap();
            name.0[23] ^= 1;
        })
    }),
    ("there is something in a cell of the changes", &[CellDamaged], |b| {
        on_cells(b, changes_in(DIRECTORY), |cells| cells[0].1.push(0))
    }),
];

pub(super) const SHARING: &[Plant] = &[
    ("a version has another file's block", &[SpaceOwnedTwice, SpaceLeaked], |b| {
        let start = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0].1.start;
        ExtentValue::encode_inline(b.was(REUSED, 1), &[(0, written(start.0, 2, 1))]);
    }),
    ("a block is at two places of two states", &[SpaceOwnedTwice, VersionGap], |b| {
        let mut extents = extents_of(b, GONE, 1);
        extents[0].0 = 1;
        ExtentValue::encode_inline(b.was(GONE, 1), &extents);
    }),
    ("a block has two births in two states", &[SpaceOwnedTwice, VersionGap], |b| {
        let mut extents = extents_of(b, GONE, 4);
        extents[0].1.birth = EventNo(2);
        ExtentValue::encode_inline(b.was(GONE, 4), &extents);
    }),
    ("a version has a block twice", &[SpaceOwnedTwice, SpaceLeaked, VersionGap], |b| {
        let mut extents = extents_of(b, GONE, 4);
        extents[1].1 = written(extents[0].1.start.0, 2, 1);
        ExtentValue::encode_inline(b.was(GONE, 4), &extents);
        b.was(GONE, 4).blocks = 4;
    }),
    ("a version has a block that was never written in the file in use", &[SpaceOwnedTwice], |b| {
        let leaf = child_of(b, b.past.versions[&(VERSIONED, 1)].inode.tree_root(), 1);
        on_block(b, leaf, |n| {
            let hole = ExtentValue::decode(NodeRef::new(n).value(1)).unwrap();
            NodeMut::new(n).replace(1, &ExtentValue { unwritten: false, ..hole }.encode());
        })
    }),
    ("a hole of a version lies beyond the volume", &[SpacePlace], |b| {
        let hole = (20, extent(BlockNo(BLOCKS), 1, true));
        let mut extents = extents_of(b, GONE, 4);
        extents.push(hole);
        ExtentValue::encode_inline(b.was(GONE, 4), &extents);
        b.was(GONE, 4).blocks += 1;
    }),
    ("a block that only a version has is marked free", &[SpaceMarkedFree], |b| {
        let start = extents_of(b, GONE, 4)[1].1.start;
        b.used.retain(|(first, _)| *first != start);
    }),
    ("what only a lost version had is left", &[BlockUnreachable, SpaceLeaked], |b| {
        b.past.versions.remove(&(VERSIONED, 1));
    }),
    ("a version has a node of another inode", &[BlockReachedTwice], |b| {
        let xattrs = b.was(VERSIONED, 3).xattr_root;
        b.was(GONE, 4).xattr_root = xattrs;
    }),
    ("a version names a node twice", &[BlockReachedTwice], |b| {
        let xattrs = b.was(VERSIONED, 3).xattr_root;
        let first = child_of(b, xattrs, 0).0.to_le_bytes();
        b.on_block.push((
            xattrs,
            Box::new(move |n| {
                NodeMut::new(n).replace(1, &first);
            }),
        ));
    }),
    ("a version names a node twice that it shares", &[BlockReachedTwice, TreeBounds], |b| {
        let root = b.was(VERSIONED, 3).tree_root();
        let second = child_of(b, root, 1).0.to_le_bytes();
        b.on_block.push((
            root,
            Box::new(move |n| {
                NodeMut::new(n).replace(0, &second);
            }),
        ));
    }),
    ("a version's tree of extents is one of attributes", &[BlockWrong], |b| {
        let xattrs = b.was(VERSIONED, 3).xattr_root;
        b.was(VERSIONED, 3).set_tree_root(xattrs, 1);
    }),
    ("an extent was born after its version", &[VersionBirth], |b| {
        let mut extents = extents_of(b, GONE, 4);
        extents[1].1.birth = EventNo(6);
        ExtentValue::encode_inline(b.was(GONE, 4), &extents);
    }),
    ("a version's root was born after it", &[VersionBirth], |b| {
        let root = b.was(VERSIONED, 3).tree_root();
        on_block(b, root, |n| BlockHeader::of_mut(n).birth = 5.into())
    }),
    ("a leaf that two versions share was born after the first", &[VersionBirth], |b| {
        let leaf = child_of(b, b.past.versions[&(VERSIONED, 3)].inode.tree_root(), 1);
        on_block(b, leaf, |n| BlockHeader::of_mut(n).birth = 5.into())
    }),
    ("the inode in use has a node born before the newest version's end", &[VersionGap], |b| {
        let root = tree_of(b, VERSIONED);
        on_block(b, root, |n| BlockHeader::of_mut(n).birth = 7.into())
    }),
    ("the inode in use has a block born before the newest version's end", &[VersionGap], |b| {
        let leaf = child_of(b, tree_of(b, VERSIONED), 0);
        on_block(b, leaf, |n| {
            let late = ExtentValue::decode(NodeRef::new(n).value(1)).unwrap();
            NodeMut::new(n).replace(1, &ExtentValue { birth: EventNo(7), ..late }.encode());
        })
    }),
    ("attributes were born before the end of a version without them", &[VersionGap], |b| {
        let leaf = child_of(b, b.past.versions[&(VERSIONED, 5)].inode.xattr_root, 1);
        on_block(b, leaf, |n| BlockHeader::of_mut(n).birth = 4.into())
    }),
    ("a node was born before the end of another incarnation", &[VersionGap], |b| {
        let root = b.was(REUSED, 4).tree_root();
        on_block(b, root, |n| BlockHeader::of_mut(n).birth = 2.into())
    }),
    ("a version lacks a block that those before and after it have", &[VersionGap], |b| {
        let extents = extents_of(b, GONE, 4);
        b.version(GONE, 8, file_of(&extents, 60, 6));
        b.version(GONE, 6, file_of(&extents[1..], 60, 4));
    }),
    ("a version lacks a node that those before and after it have", &[VersionGap], |b| {
        let was = b.was(BIG, 1).clone();
        b.version(BIG, 3, was.clone());
        let mut without = Inode { born: EventNo(3), blocks: 0, ..was };
        without.set_inline(b"");
        b.version(BIG, 6, without);
    }),
];

/// The first extents of a version that has them in its inode.
pub(super) fn extents_of(b: &mut Builder, inode: u64, born: u64) -> Vec<(u64, ExtentValue)> {
    ExtentValue::decode_inline(b.was(inode, born)).unwrap()
}

pub(super) fn on_roots(b: &mut Builder, change: fn(&mut Block)) {
    let roots = b.sb.history_root;
    on_block(b, roots, change);
}

pub(super) fn on_root(b: &mut Builder, tree: HistoryTree, change: fn(&mut Block)) {
    b.past.on_root.push((tree, Box::new(change)));
}

pub(super) fn on_cells(b: &mut Builder, tree: HistoryTree, change: fn(&mut Vec<Cell>)) {
    b.past.on_cells.push((tree, Box::new(change)));
}

pub(super) fn versions_of(inode: u64) -> HistoryTree {
    HistoryTree::Versions(version_shard(InodeNo(inode)))
}

pub(super) fn names_of(directory: u64) -> HistoryTree {
    HistoryTree::Names(name_shard(InodeNo(directory)))
}

/// The tree with the ends of an inode's versions.
pub(super) fn changes_of(inode: u64) -> HistoryTree {
    HistoryTree::Changes(version_shard(InodeNo(inode)))
}

/// The tree with the ends of names in a directory.
pub(super) fn changes_in(directory: u64) -> HistoryTree {
    HistoryTree::Changes(name_shard(InodeNo(directory)))
}

/// The tree of another shard, which is written after this one.
pub(super) fn other_shard(than: usize, kind: fn(usize) -> HistoryTree) -> HistoryTree {
    let last = HISTORY_SHARDS - 1;
    assert_ne!(than, last, "the last shard");
    kind(last)
}
