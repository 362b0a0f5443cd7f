//! Making a volume shorter: finds what lies beyond the new end, and moves it or names it.
//!
//! **What moves**: blocks of files that belong to the present alone ([`crate::file::relocate`]). **What does
//! not**: inodes, because their numbers are addresses; the trees of directories, files and history, which are
//! named by where they lie; blocks that versions of the past have, alone or with the present, because one Op
//! would have to change everything that names them. If any of these lies beyond the new end, the volume stays
//! as it is, and the refusal says what lies there.
//!
//! **Nothing is half done.** Before anything moves, it is known that everything can move and has room.
//! Ordinary Ops move it, and each of them leaves the volume whole at its old length. One Op after them
//! changes the length. A crash or an error in between leaves files elsewhere on the volume, and everything
//! else as it was.

use crate::history::reclaim::forget;
use crate::store::Store;
use crate::{file, DirItem, Error, FileKind, InodeNo, Node, Result, View};
use hashbrown::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::Arc;
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
    store.alloc.give_back_tables(&store.meta, Some(BlockNo(new.blocks)))?;
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
        // The blocks come back with the generation that freed them.
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
    if found.own > room {
        return Ok(Some((found.own - room) * BLOCK));
    }
    let mut promise = match store.alloc.promise(&store.meta, yore_format::GroupNo(0), found.own) {
        Err(Error::NoSpace | Error::NeverFits { .. }) => {
            // There is no room for the metadata.
            return Ok(Some(yore_format::layout::ZONE_BLOCKS * BLOCK));
        }
        other => other?,
    };
    let (mut done, all) = (0, found.own * BLOCK);
    for no in &found.moves {
        let cell = match store.cell(*no) {
            Err(Error::Stale) => continue,
            other => other?,
        };
        file::relocate(store, &cell, end, &mut promise, &mut |blocks| {
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
    let mut own = Vec::new();
    each_inode(view, &mut |cell| {
        file::blocks(&**store, cell, &mut |run, is_own| {
            if is_own {
                own.push(run);
            }
        })
    })?;
    Ok(store.alloc.least(&store.meta, &mut own)? * BLOCK)
}

/// What files have beyond the new end.
#[derive(Default)]
struct Found {
    /// Files with blocks of their own there, which move.
    moves: Vec<InodeNo>,
    /// How many blocks these files have there.
    own: u64,
    /// Blocks that versions of the past or other files have, too.
    shared: u64,
    /// Files that have shared blocks, in the order of the walk.
    sharing: Vec<InodeNo>,
    /// Inodes that lie there themselves, or whose trees have their roots there.
    lying: Vec<InodeNo>,
}

impl Found {
    fn survey(view: &View, new: Geometry) -> Result<Found> {
        let store = view.store();
        let end = new.blocks;
        let mut found = Found::default();
        let part = |run: Run| run.end().saturating_sub(run.start.0.max(end));
        each_inode(view, &mut |cell| {
            let (mut own, mut shared) = (0, 0);
            file::blocks(&**store, cell, &mut |run, is_own| match is_own {
                true => own += part(run),
                false => shared += part(run),
            })?;
            if own > 0 {
                found.moves.push(cell.no);
            }
            if shared > 0 {
                found.sharing.push(cell.no);
            }
            (found.own, found.shared) = (found.own + own, found.shared + shared);
            if lies_beyond(store, cell, end)? {
                found.lying.push(cell.no);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Whether something does not move.
    fn stays(&self, beyond: &Beyond) -> bool {
        beyond.metadata > 0 || beyond.data != self.own
    }

    fn text(&self, view: &View, beyond: &Beyond) -> Result<String> {
        let history = beyond.data.saturating_sub(self.own + self.shared) * BLOCK;
        let (mut what, mut help) = (Vec::new(), Vec::new());
        if !self.lying.is_empty() {
            what.push(format!(
                "{} of files or directories themselves ({})",
                self.lying.len(),
                named(view, &self.lying)?
            ));
            help.push("copying such a file and removing the original moves it");
        }
        if beyond.metadata > 0 && self.lying.is_empty() {
            what.push(format!(
                "{} blocks of directories, of the past, or of the volume's tables",
                beyond.metadata
            ));
        }
        if self.shared > 0 {
            what.push(format!(
                "{} bytes that files have in common with their past or with other files ({})",
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

/// All inodes that have a name, each once, and those without a name that are in use. O(inodes).
fn each_inode(view: &View, each: &mut dyn FnMut(&Arc<InodeCell>) -> Result<()>) -> Result<()> {
    let (view, store) = (view.present(), view.store());
    let (mut left, mut met, mut several) = (vec![view.root()], HashSet::new(), HashSet::new());
    each(&store.cell(view.root())?)?;
    while let Some(directory) = left.pop() {
        // This also ends where damage makes a circle.
        if !met.insert(directory) {
            continue;
        }
        let mut below = Vec::new();
        let mut add = |item: DirItem<'_>, node: Option<Node>| {
            if let Some(node) = node.filter(|_| !matches!(item.name, b"." | b"..")) {
                let attr = node.attr();
                below.push((attr.inode, attr.kind, attr.links));
            }
            true
        };
        view.readdir_plus(directory, 0, &mut add)?;
        for (no, kind, links) in below {
            if kind == FileKind::Directory {
                left.push(no);
            } else if links > 1 && !several.insert(no) {
                continue;
            }
            each(&store.cell(no)?)?;
        }
    }
    for cell in store.inodes.select(|cell| cell.unlinked.load(Ordering::Acquire)) {
        each(&cell)?;
    }
    Ok(())
}
