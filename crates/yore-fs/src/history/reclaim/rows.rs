//! How rows of the annals are given up together: several in one Op.
//!
//! Whoever forgets reads rows in their order, and what happened together ends together. So rows that go lie
//! in few leaves, their keys, too, and often their blocks. One Op for all of them changes each of these once.
//!
//! **Inodes in use.** What a version holds alone depends on the inode in use, whose locks must be held (F1 of
//! `alone.rs`). A group mixes files and directories, in no order that the order of locks knows. So these
//! locks are *tried*, and nobody who has one waits for another. Rows of an inode that somebody else works
//! with are left over, all of them, and are given up behind all others, one by one: then its locks are waited
//! for. So are those of an inode that has become a version before its state was locked: another state comes
//! next then. A group with inodes in use takes no further row after [`HELD`], since a cold tree may be read
//! meanwhile.

use crate::history::reclaim::alone::{give_up_version, Alone, Freed};
use crate::history::record::{Ended, LeavingRow};
use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_core::inode::InodeCell;
use yore_format::Version;

/// Data blocks that one Op lets go of, from which on it takes no further version.
const BLOCKS_OF_ROWS: u64 = 4096;
/// For how long the first lock of an inode in use is held before a group takes no further row.
const HELD: Duration = Duration::from_millis(2);

/// Gives up facts of rows of one shard, in ascending order, with everything that the versions among them
/// alone hold. Returns the number of blocks freed.
///
/// Of two versions of one chain that follow each other, what both hold goes with the later one.
///
/// # Errors
/// Damage and device errors. Some of the rows may have been given up.
pub(crate) fn give_up_rows(store: &Arc<Store>, mut leaving: &[LeavingRow]) -> Result<u64> {
    let (mut blocks, mut busy, mut left_over) = (0, HashSet::new(), Vec::new());
    while !leaving.is_empty() {
        let cells = leaving.iter().map(|leaving| cell_of(store, leaving)).collect::<Result<Vec<_>>>()?;
        let group = {
            let _work = store.past.annals_work();
            give_up_group(store, leaving, &cells, &mut busy)?
        };
        blocks += group.blocks;
        left_over.extend(group.left_over.into_iter().map(|row| &leaving[row]));
        leaving = &leaving[group.rows..];
    }
    for leaving in left_over {
        blocks += give_up_alone(store, leaving)?;
    }
    Ok(blocks)
}

/// The inode in use with the number of that whose version goes.
fn cell_of(store: &Store, leaving: &LeavingRow) -> Result<Option<Arc<InodeCell>>> {
    match version_of(leaving) {
        Some((no, _)) => store.cell_if_used(no),
        None => Ok(None),
    }
}

fn version_of(leaving: &LeavingRow) -> Option<(InodeNo, &Version)> {
    leaving.row.version.as_ref().filter(|_| leaving.version_goes).map(|(no, version)| (*no, version))
}

/// The facts of one row, each in an Op of its own.
fn give_up_alone(store: &Arc<Store>, leaving: &LeavingRow) -> Result<u64> {
    let blocks = match version_of(leaving) {
        Some((no, version)) => give_up_version(store, no, version)?,
        None => 0,
    };
    if let Some(name) = leaving.row.name.as_ref().filter(|_| leaving.name_goes) {
        let ended = Ended { end: name.death, inode: name.directory, cookie: name.cookie };
        let _work = store.past.annals_work();
        store.past.remove_name(store, &ended, name.birth)?;
    }
    Ok(blocks)
}

/// What has become of rows.
struct Group {
    /// How many were looked at, from the first on.
    rows: usize,
    /// Which of these are left over.
    left_over: Vec<usize>,
    /// How many blocks were freed.
    blocks: u64,
}

/// A version of a group.
struct Leaving<'s> {
    row: usize,
    alone: Alone<'s>,
    /// The next version of its chain.
    later: Option<Version>,
    /// No version of this inode is newer.
    is_newest: bool,
}

/// Whether an inode in use, whose state is locked, has become a version since it was asked what comes after
/// this one. A regular file has not, since its io lock is held (F1).
fn is_recorded_since(store: &Store, Leaving { alone, is_newest, .. }: &Leaving<'_>) -> Result<bool> {
    if !is_newest || alone.version.inode.is_regular() {
        return Ok(false);
    }
    Ok(store.past.version_after(&store.meta, alone.no, alone.version.end)?.is_some())
}

#[cfg(test)]
thread_local! {
    /// What comes between, once, before a group of this thread locks the states of its inodes.
    pub(super) static BEFORE_STATES: std::cell::RefCell<Option<Box<dyn FnOnce()>>> =
        const { std::cell::RefCell::new(None) };
}

/// Gives up the first of these rows: as many as hold few blocks. Those of busy inodes are left over, also of
/// such as turn out to be.
fn give_up_group(
    store: &Arc<Store>,
    leaving: &[LeavingRow],
    cells: &[Option<Arc<InodeCell>>],
    busy: &mut HashSet<InodeNo>,
) -> Result<Group> {
    let meta = &store.meta;
    let mut versions: Vec<Leaving<'_>> = Vec::new();
    let mut latest: HashMap<InodeNo, usize> = HashMap::new();
    let mut ios = HashMap::new();
    let mut held_since: Option<Instant> = None;
    let (mut rows, mut blocks) = (0, 0);
    for (row, (leaving, cell)) in leaving.iter().zip(cells).enumerate() {
        if blocks >= BLOCKS_OF_ROWS || held_since.is_some_and(|since| since.elapsed() >= HELD) {
            break;
        }
        rows += 1;
        let Some((no, version)) = version_of(leaving).filter(|(no, _)| !busy.contains(no)) else { continue };
        if let Some(cell) = cell.as_ref().filter(|_| !ios.contains_key(&no)) {
            let Some(io) = cell.io.try_lock() else {
                busy.insert(no);
                continue;
            };
            held_since.get_or_insert_with(Instant::now);
            ios.insert(no, (io, cell));
        }
        let mut alone = Alone::new(store, no, version)?;
        let before = latest.get(&no).map(|at| &versions[*at].alone);
        if let Some(before) = before.filter(|before| before.version.end == alone.from()) {
            alone = alone.since(before.from());
        }
        let later = store.past.version_after(meta, no, version.end)?;
        let is_newest = later.is_none();
        let later = later.filter(|later| later.inode.incarnation == version.inode.incarnation);
        let same = cell.as_ref().filter(|cell| cell.incarnation == version.inode.incarnation);
        match (&later, same) {
            (Some(later), _) => alone.content(Some(&later.inode))?,
            (None, Some(cell)) => {
                let Some(state) = cell.state.try_read() else {
                    busy.insert(no);
                    continue;
                };
                alone.content(Some(&state.inode).filter(|_| !state.gone))?;
            }
            (None, None) => alone.content(None)?,
        }
        alone.prepare()?;
        let (data, nodes) = alone.blocks();
        blocks += data + nodes;
        latest.insert(no, versions.len());
        versions.push(Leaving { row, alone, later, is_newest });
    }
    let near = versions.first().map_or(InodeNo::ROOT, |version| version.alone.no);
    let reserved = store.reserve_freely(store.near(near), 0)?;
    #[cfg(test)]
    BEFORE_STATES.take().into_iter().for_each(|come| come());
    let mut states = HashMap::new();
    for (no, (_, cell)) in &ios {
        if busy.contains(no) {
            continue;
        }
        match cell.state.try_write() {
            Some(state) => drop(states.insert(*no, (state, cell.incarnation))),
            None => drop(busy.insert(*no)),
        }
    }
    for version in versions.iter().filter(|version| states.contains_key(&version.alone.no)) {
        if is_recorded_since(store, version)? {
            busy.insert(version.alone.no);
        }
    }
    versions.retain(|version| !busy.contains(&version.alone.no));
    let mut nodes = HashSet::new();
    for Leaving { alone, later, .. } in &mut versions {
        let incarnation = alone.version.inode.incarnation;
        let in_use = states.get(&alone.no).filter(|(state, of)| *of == incarnation && !state.gone);
        let next = later.as_ref().map(|later| &later.inode).or(in_use.map(|(state, _)| &state.inode));
        alone.attributes(next)?;
        alone.enter_nodes(&mut nodes)?;
    }
    let is_left_over = |row: &usize| version_of(&leaving[*row]).is_some_and(|(no, _)| busy.contains(&no));
    let (left_over, taken): (Vec<usize>, Vec<usize>) = (0..rows).partition(is_left_over);
    if taken.is_empty() {
        return Ok(Group { rows, left_over, blocks: 0 });
    }
    let taken: Vec<&LeavingRow> = taken.into_iter().map(|row| &leaving[row]).collect();
    let removal = store.past.prepare_removal_of_rows(meta, &taken)?;
    let mut freed = Freed::default();
    let mut op = meta.begin(reserved);
    let removed = removal.apply(&mut op);
    let mut given_up = Vec::with_capacity(versions.len());
    for Leaving { row, alone, is_newest, .. } in versions {
        given_up.push((alone.no, alone.version.inode.born, is_newest));
        let change = removed[row - left_over.partition_point(|left| *left < row)];
        freed.add(alone.free(&mut op, change));
    }
    freed.count(&mut op);
    store.past.note_given_up();
    drop(op);
    for (no, born, is_newest) in given_up {
        if let Some((state, _)) = states.get_mut(&no).filter(|_| is_newest) {
            state.ask_recorded_anew();
        }
        store.versions.forget(no, born);
    }
    Ok(Group { rows, left_over, blocks: freed.blocks })
}

#[cfg(test)]
mod tests {
    use super::Alone;
    use crate::history::reclaim::forget;
    use crate::history::record::{EndedBatch, EndsWalk, Forgetting};
    use crate::store::Store;
    use crate::{InodeNo, MkfsOptions, MountOptions, NewSnapshot, SetXattrMode, Volume};
    use hashbrown::HashSet;
    use std::collections::BTreeSet;
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use yore_device::{Device, MemoryDevice};
    use yore_format::EventNo;

    const FILES: usize = 20;

    fn name(i: usize) -> String {
        format!("file{i}")
    }

    /// A volume with files of which events have seen two older contents each, and these events.
    fn overwritten() -> (Volume, Vec<EventNo>) {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
        let volume = Volume::open(device, &MountOptions::default()).unwrap();
        let view = volume.view();
        let take = |name| view.take_snapshot(view.root(), &NewSnapshot::named(name)).unwrap().number;
        // Until its generation is complete, what ends goes to the old trees.
        let mut events = vec![take("the first")];
        volume.sync().unwrap();
        for content in ["one", "two", "three"] {
            for i in 0..FILES {
                volume.write(name(i), content.repeat(3000)).unwrap();
            }
            volume.sync().unwrap();
            events.push(take(content));
        }
        (volume, events)
    }

    /// The inodes that have versions. All are in rows: whoever forgets once met the first rows of each shard
    /// as single ends, and gave them up one by one.
    fn with_versions(store: &Store) -> BTreeSet<InodeNo> {
        let (mut walk, mut inodes) = (EndsWalk::of(EventNo(0), store.number()), BTreeSet::new());
        while let Some(batch) = store.past.next_batch(&store.meta, &mut walk, 64).unwrap() {
            let EndedBatch::Rows(rows) = batch else { panic!("a row was met as the ends that it has") };
            inodes.extend(rows.iter().filter_map(|row| row.version.as_ref()).map(|(no, _)| *no));
        }
        inodes
    }

    fn forget_all(store: &Arc<Store>, events: &[EventNo]) -> Forgetting {
        forget::begin(store, events).unwrap();
        forget::finish(store, &mut |_| ControlFlow::Continue(())).unwrap()
    }

    /// Versions of inodes in use used to be given up one by one, each in an Op of its own. Now they go
    /// together, whatever they share with each other and with the present, which stays as it is.
    #[test]
    fn versions_of_files_in_use_go_together() {
        let (volume, events) = overwritten();
        let store = volume.view().store().clone();
        let used = store.alloc.free_blocks();
        let forgotten = forget_all(&store, &events);
        assert_eq!(forgotten.forgotten, 4);
        let of_a_file =
            ["one", "two"].map(|content| (content.len() * 3000).div_ceil(4096)).iter().sum::<usize>();
        assert_eq!(forgotten.blocks, (FILES * of_a_file) as u64);
        volume.sync().unwrap();
        assert_eq!(store.alloc.free_blocks() - used, forgotten.blocks);
        assert_eq!(with_versions(&store), BTreeSet::new());
        assert_eq!(store.past.space().data, 0, "no data is left that only the past has");
        for i in 0..FILES {
            assert_eq!(volume.read(name(i)).unwrap(), "three".repeat(3000).as_bytes());
        }
    }

    /// On a damaged medium two versions can lead to the same node. Given up together they freed it twice,
    /// which ended the process; each alone would have found it gone.
    #[test]
    fn a_node_of_two_versions_is_damage() {
        let (volume, _) = overwritten();
        let store = volume.view().store().clone();
        volume.set_xattr(name(0), "user.large", vec![7; 5000], SetXattrMode::Any).unwrap();
        volume.view().take_snapshot(volume.view().root(), &NewSnapshot::named("large")).unwrap();
        volume.set_xattr(name(0), "user.large", vec![8; 5000], SetXattrMode::Any).unwrap();
        let no = volume.node(name(0)).unwrap().inode();
        let (mut version, mut next) = (None, EventNo(0));
        while let Some(found) = store.past.version_after(&store.meta, no, next).unwrap() {
            next = found.end;
            version = Some(found);
        }
        let version = version.unwrap();
        let mut alone = Alone::new(&store, no, &version).unwrap();
        alone.attributes(None).unwrap();
        assert!(alone.blocks().1 > 0, "the version has no nodes of its own");
        let mut seen = HashSet::new();
        alone.enter_nodes(&mut seen).unwrap();
        let again = alone.enter_nodes(&mut seen).unwrap_err();
        assert!(matches!(again, crate::Error::Corruption(_)), "{again}");
    }

    /// Who works with a file holds up its own versions alone; the others of the group go meanwhile.
    #[test]
    fn a_file_that_is_locked_holds_up_only_its_own_versions() {
        for of_state in [false, true] {
            let (volume, events) = overwritten();
            let store = volume.view().store().clone();
            // Of the last shard that has any.
            let inode = |i: usize| volume.node(name(i)).unwrap().inode();
            let busy = (0..FILES).map(inode).max().unwrap();
            let cell = store.cell(busy).unwrap();
            std::thread::scope(|scope| {
                let io = (!of_state).then(|| cell.io.lock());
                let state = of_state.then(|| cell.state.read());
                let forgetting = scope.spawn(|| forget_all(&store, &events));
                let start = Instant::now();
                while with_versions(&store) != BTreeSet::from([busy]) {
                    let left = with_versions(&store);
                    assert!(start.elapsed() < Duration::from_secs(20), "{left:?} wait for {busy}");
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(!forgetting.is_finished());
                drop((io, state));
                assert_eq!(forgetting.join().unwrap().forgotten, 4);
            });
            assert_eq!(with_versions(&store), BTreeSet::new());
            assert_eq!(store.past.space().data, 0);
            (0..FILES)
                .for_each(|i| assert_eq!(volume.read(name(i)).unwrap(), "three".repeat(3000).as_bytes()));
        }
    }
}
