//! Making a volume shorter: finds what lies beyond the new end, and moves it or names it.
//!
//! **What moves**: blocks of files that belong to the present alone ([`crate::file::relocate`]), also those
//! that several files have, if the walk over all files finds as many references as are counted: then no
//! version has any. **What does not**: inodes, because their numbers are addresses; the trees of directories,
//! files and history, which are named by where they lie; blocks that versions of the past have, alone or with
//! the present, because one Op would have to change everything that names them. If any of these lies beyond
//! the new end, the volume stays as it is, and the refusal says what lies there.
//!
//! **Nothing is half done.** Before anything moves, it is known that everything can move and has room.
//! Ordinary Ops move it, and each of them leaves the volume whole at its old length. One Op after them
//! changes the length. A crash or an error in between leaves files elsewhere on the volume, and everything
//! else as it was.

use crate::api::inodes::each_inode;
use crate::file::{Copies, History as _, Owner};
use crate::history::reclaim::forget;
use crate::store::Store;
use crate::{file, Error, InodeNo, Result, View};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use yore_core::alloc::{Beyond, ClosedEnd, Run};
use yore_core::inode::InodeCell;
use yore_format::layout::Geometry;
use yore_format::{BlockNo, ContentKind, WriteFeatures, BLOCK_SIZE};

/// How many paths a refusal names.
const NAMED: usize = 10;
const BLOCK: u64 = BLOCK_SIZE as u64;

/// See [`View::shorten`].
pub(crate) fn shorten(view: &View, bytes: u64, told: &mut dyn FnMut(u64, u64)) -> Result<bool> {
    let store = view.store();
    store.check_writable()?;
    let (new, old) = (Geometry::new(bytes / BLOCK), store.meta.geometry());
    if new.blocks >= old.blocks {
        return Ok(false);
    }
    // Events that somebody has begun to forget must not be in the way.
    if store.past.is_forgetting() {
        forget::finish(store, &mut |_| ControlFlow::Continue(()))?;
    }
    // Makes freed blocks free: no block is on its way.
    store.sync()?;
    store.meta.sync()?;
    store.alloc.give_back_tables(&store.meta, Some(BlockNo(new.blocks)))?;
    store.alloc.give_back_checksum_tables(&store.meta, BlockNo(new.blocks))?;
    store.alloc.give_back_zones(&store.meta)?;
    store.meta.sync()?;
    let closed = store.alloc.close_end(&store.meta, new)?;
    let beyond = closed.beyond()?;
    if beyond.data + beyond.metadata > 0 {
        let found = Found::survey(view, new)?;
        if found.stays(&beyond) {
            drop(closed);
            return Err(Error::Refused(found.text(view, &beyond)?));
        }
        if let Some(missing) = move_all(store, closed.room(), BlockNo(new.blocks), &found, told)? {
            drop(closed);
            return Err(no_room(view, missing));
        }
        // The blocks come back with the generation that freed them. Nothing there is shared any more.
        store.alloc.give_back_tables(&store.meta, Some(BlockNo(new.blocks)))?;
        store.alloc.give_back_checksum_tables(&store.meta, BlockNo(new.blocks))?;
        store.meta.sync()?;
    }
    store.meta.extend(WriteFeatures::RESIZED)?;
    finish(store, closed)?;
    Ok(true)
}

fn finish(store: &Store, closed: ClosedEnd<'_>) -> Result<()> {
    closed.truncate()?;
    Ok(store.meta.sync()?)
}

/// Moves what was found. If there is no room for all of it, moves nothing, and returns how many bytes are
/// missing.
fn move_all(
    store: &Store,
    room: u64,
    end: BlockNo,
    found: &Found,
    told: &mut dyn FnMut(u64, u64),
) -> Result<Option<u64>> {
    let needed = found.own + found.several + found.apart;
    if needed > room {
        return Ok(Some((needed - room) * BLOCK));
    }
    let mut promise = match store.alloc.promise(&store.meta, yore_format::GroupNo(0), needed) {
        Err(Error::NoSpace | Error::NeverFits { .. }) => {
            // There is no room for the metadata.
            return Ok(Some(yore_format::layout::ZONE_BLOCKS * BLOCK));
        }
        other => other?,
    };
    let (mut done, all) = (0, (found.own + found.references) * BLOCK);
    let mut copies = Copies::default();
    for no in &found.moves {
        let Some(cell) = store.cell_if_used(*no)? else { continue };
        file::relocate(store, &cell, end, (&mut promise, &mut copies), &mut |blocks| {
            done += blocks * BLOCK;
            told(done, all);
        })?;
    }
    Ok(None)
}

fn no_room(view: &View, missing: u64) -> Error {
    let least = least(view).map(|least| format!("; as things are it can be made {least} bytes long"));
    Error::Refused(format!(
        "{missing} bytes are missing before the new end for what files have beyond the new end. Deleting files frees them if no \
         snapshot has them, else `yore forget`{}",
        least.unwrap_or_default()
    ))
}

/// The shortest length that the volume could have now, in bytes.
fn least(view: &View) -> Result<u64> {
    let store = view.store();
    let (mut own, mut several) = (Vec::new(), Vec::new());
    let walk = each_inode(view, &mut |cell| {
        file::blocks(&**store, cell, &mut |run, owner| match owner {
            Owner::Alone => own.push(run),
            Owner::Several => several.push(run),
            Owner::Past => {}
        })?;
        Ok(ControlFlow::Continue(()))
    })?;
    debug_assert!(walk.is_continue(), "nothing breaks it off");
    own.append(&mut in_use_alone(store, &several)?);
    Ok(store.alloc.least(&store.meta, &mut own)? * BLOCK)
}

/// Those of the blocks that have no other references than these, each once.
fn in_use_alone(store: &Store, references: &[Run]) -> Result<Vec<Run>> {
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    for run in references {
        *changes.entry(run.start.0).or_default() += 1;
        *changes.entry(run.end()).or_default() -= 1;
    }
    let (mut alone, mut found): (Vec<Run>, i64) = (Vec::new(), 0);
    let ends = changes.keys().skip(1).copied().collect::<Vec<_>>();
    for ((start, by), end) in changes.iter().zip(ends) {
        found += by;
        if found == 0 {
            continue;
        }
        let run = Run { start: BlockNo(*start), len: (end - start) as u32 };
        for (block, counted) in (*start..).zip(store.alloc.references(&store.meta, run)?) {
            if i64::from(counted) != found {
                continue;
            }
            match alone.last_mut() {
                Some(last) if last.end() == block => last.len += 1,
                _ => alone.push(Run { start: BlockNo(block), len: 1 }),
            }
        }
    }
    Ok(alone)
}

/// How many blocks of a run are in `runs`, which are in ascending order.
fn overlap(run: Run, runs: &[Run]) -> u64 {
    let first = runs.partition_point(|other| other.end() <= run.start.0);
    let near = runs[first..].iter().take_while(|other| other.start.0 < run.end());
    near.map(|other| other.end().min(run.end()) - other.start.0.max(run.start.0)).sum()
}

/// What files have beyond the new end.
#[derive(Default)]
struct Found {
    /// Files with blocks of the present alone there, which move.
    moves: Vec<InodeNo>,
    /// How many blocks these files have there, each file by itself.
    own: u64,
    /// How many blocks several of these files have.
    several: u64,
    /// How often these files name them.
    references: u64,
    /// How often files name them that get copies of their own.
    apart: u64,
    /// Blocks that versions of the past have, too, by the files that have them.
    shared: u64,
    /// Files that have such blocks, in the order of the walk.
    sharing: Vec<InodeNo>,
    /// Inodes that lie there themselves, or whose trees have their roots there.
    lying: Vec<InodeNo>,
}

impl Found {
    fn survey(view: &View, new: Geometry) -> Result<Found> {
        let store = view.store();
        let end = new.blocks;
        let (mut found, mut files) = (Found::default(), Vec::new());
        let part = |run: Run| {
            let start = run.start.0.max(end);
            (start < run.end()).then(|| Run { start: BlockNo(start), len: (run.end() - start) as u32 })
        };
        let walk = each_inode(view, &mut |cell| {
            let (mut own, mut past, mut several) = (0, 0, Vec::new());
            file::blocks(&**store, cell, &mut |run, owner| {
                let Some(run) = part(run) else { return };
                match owner {
                    Owner::Alone => own += u64::from(run.len),
                    Owner::Several => several.push(run),
                    Owner::Past => past += u64::from(run.len),
                }
            })?;
            if own + past > 0 || !several.is_empty() {
                let is_apart = !several.is_empty() && store.must_preserve(cell, &cell.state.read())?;
                files.push((cell.no, (own, past, several), is_apart));
            }
            if lies_beyond(store, cell, end)? {
                found.lying.push(cell.no);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        debug_assert!(walk.is_continue(), "nothing breaks it off");
        let references: Vec<Run> =
            files.iter().flat_map(|(_, (_, _, several), _)| several).copied().collect();
        let alone = in_use_alone(store, &references)?;
        found.several = alone.iter().map(|run| u64::from(run.len)).sum();
        for (no, (own, past, several), is_apart) in files {
            let all: u64 = several.iter().map(|run| u64::from(run.len)).sum();
            let moving: u64 = several.iter().map(|run| overlap(*run, &alone)).sum();
            let stays = past + all - moving;
            if own + moving > 0 {
                found.moves.push(no);
            }
            if stays > 0 {
                found.sharing.push(no);
            }
            found.own += own;
            found.references += moving;
            found.apart += if is_apart { moving } else { 0 };
            found.shared += stays;
        }
        Ok(found)
    }

    /// Whether something does not move.
    fn stays(&self, beyond: &Beyond) -> bool {
        beyond.metadata > beyond.count_tables || beyond.data != self.own + self.several
    }

    fn text(&self, view: &View, beyond: &Beyond) -> Result<String> {
        let history = beyond.data.saturating_sub(self.own + self.several + self.shared) * BLOCK;
        let (mut what, mut help) = (Vec::new(), Vec::new());
        if !self.lying.is_empty() {
            what.push(format!(
                "{} of files or directories themselves ({})",
                self.lying.len(),
                named(view, &self.lying)?
            ));
            help.push("copying such a file and removing the original moves it");
        }
        let metadata = beyond.metadata.saturating_sub(beyond.count_tables);
        if metadata > 0 && self.lying.is_empty() {
            what.push(format!("{metadata} blocks of directories, of the past, or of the volume's tables"));
        }
        if self.shared > 0 {
            what.push(format!(
                "{} bytes that files have in common with their past or with that of other files ({})",
                self.shared * BLOCK,
                named(view, &self.sharing)?
            ));
        }
        if history > 0 {
            what.push(format!("{history} bytes of history alone"));
        }
        if self.shared + history > 0 {
            help.push("`yore forget` frees what the past has");
        }
        let help = if help.is_empty() { String::new() } else { format!(": {}", help.join("; ")) };
        Ok(format!(
            "beyond the new end lie {}, which do not move{help}. As things are it can be made {} bytes long",
            what.join(", and "),
            least(view)?
        ))
    }
}

/// Up to ten paths, and how many more there are.
fn named(view: &View, inodes: &[InodeNo]) -> Result<String> {
    let mut paths = Vec::new();
    for inode in inodes.iter().take(NAMED) {
        let path = view.path_now(*inode)?;
        paths.push(
            path.map_or_else(
                || format!("inode {inode}, which has no name"),
                |path| path.display().to_string(),
            ),
        );
    }
    let more = match inodes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" … and {more} more"),
    };
    Ok(format!("{}{more}", paths.join(", ")))
}

/// Whether an inode, or the root of one of its trees, lies at block `end` of the volume or beyond.
fn lies_beyond(store: &Store, cell: &InodeCell, end: u64) -> Result<bool> {
    let mut addrs = vec![cell.no.addr()];
    {
        let state = cell.state.read();
        if state.inode.content_kind == ContentKind::Tree {
            addrs.push(state.inode.tree_root());
        }
        addrs.extend(Some(state.inode.xattr_root).filter(|root| !root.is_none()));
    }
    for addr in addrs {
        if store.meta.zone_of(addr)?.0 >= end {
            return Ok(true);
        }
    }
    Ok(false)
}
