//! Laying files together on request: first it is said what that takes, and then it is done
//! ([`crate::file`], `defrag.rs`).

use crate::api::inodes::each_below;
use crate::file::{self, Laid, STRETCH};
use crate::store::Store;
use crate::{Error, InodeNo, Progress, Result, View};
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_format::BLOCK_SIZE;

/// In how many pieces a stretch of 4 MiB of a file may lie before it counts as scattered. A shorter one may
/// lie in one for each 128 blocks, but in four.
pub const PIECES_MOST: u32 = file::PIECES;

/// How files lie on the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scattered {
    /// Regular files.
    pub files: u64,
    /// Those of them of which some part is scattered.
    pub scattered: u64,
    /// In how many pieces these lie. A piece ends after 4 MiB of the file, however long its run of blocks is.
    pub pieces: u64,
    /// How many blocks it takes to lay them together.
    pub blocks: u64,
    /// By how many of these history grows: versions have what is there now.
    pub history: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Defragmented {
    /// How the files lay before.
    pub before: Scattered,
    /// In how many pieces the scattered ones lie now.
    pub pieces: u64,
    /// How many of them are still scattered: there are no free runs that are long enough, or others wrote to
    /// them.
    pub left: u64,
    /// Blocks that were moved.
    pub moved: u64,
}

/// How one file lies.
#[derive(Clone, Copy, Default)]
struct Lies {
    pieces: u64,
    blocks: u64,
    history: u64,
    is_scattered: bool,
}

impl Lies {
    fn of(store: &Store, cell: &InodeCell, most: u32) -> Result<Lies> {
        let (mut lies, mut from) = (Lies::default(), 0);
        while let Some(stretch) = file::stretch(store, cell, from)? {
            from = stretch.next;
            lies.pieces += stretch.pieces();
            if stretch.is_scattered(most) {
                lies.is_scattered = true;
                lies.blocks += stretch.moves();
                lies.history += stretch.history();
            }
        }
        Ok(lies)
    }
}

/// How the files below an inode lie, and which of them are scattered. `ask` says before each whether to go
/// on.
fn survey(
    view: &View,
    start: InodeNo,
    most: u32,
    ask: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<(Scattered, Vec<InodeNo>)> {
    let (store, mut found, mut which) = (view.store(), Scattered::default(), Vec::new());
    let walk = each_below(view, start, &mut |cell| {
        if ask().is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if !cell.state.read().inode.is_regular() {
            return Ok(ControlFlow::Continue(()));
        }
        found.files += 1;
        let lies = Lies::of(store, cell, most)?;
        if lies.is_scattered {
            found.scattered += 1;
            found.pieces += lies.pieces;
            found.blocks += lies.blocks;
            found.history += lies.history;
            which.push(cell.no);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    match walk {
        ControlFlow::Continue(()) => Ok((found, which)),
        ControlFlow::Break(()) => Err(Error::Refused("it was broken off before anything had moved".into())),
    }
}

impl View {
    /// How a file lies on the volume, or all files below a directory; nothing else has any pieces. `most`: in
    /// so many pieces a stretch of 4 MiB may lie ([`PIECES_MOST`]). `ask` is called before each file, and
    /// says whether to go on. O(extents).
    ///
    /// # Errors
    /// [`Error::Refused`] if it was broken off; [`Error::ReadOnly`] for a view of the past; damage and device
    /// errors.
    pub fn scattered(
        &self,
        inode: InodeNo,
        most: u32,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Scattered> {
        self.live()?;
        Ok(survey(self, inode, most, ask)?.0)
    }

    /// Lays a file together, or all files below a directory: what lies in too many pieces is copied to runs
    /// of free blocks. Nothing else changes: neither content nor times nor the past. Blocks that versions
    /// have, too, become blocks of history alone; others are freed. Blocks that files share stay. History is
    /// not given up for it. `progress` counts blocks; `ask` is called now and then, and says whether to go
    /// on.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is not enough room, before anything has moved; [`Error::ReadOnly`]; damage
    /// and device errors. What has moved stays moved.
    pub fn defragment(
        &self,
        inode: InodeNo,
        most: u32,
        progress: &Progress,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Defragmented> {
        let store = self.live()?;
        store.check_writable()?;
        let (before, which) = survey(self, inode, most, ask)?;
        let mut done = Defragmented { before, ..Defragmented::default() };
        // What the present alone has comes back after each stretch.
        let needed = before.history + before.blocks.min(STRETCH);
        let free = store.alloc.available(&store.meta, 0);
        if needed > free {
            return Err(no_room(needed, free));
        }
        progress.restart(before.blocks);
        for no in which {
            let Some(cell) = store.cell_if_used(no)? else { continue };
            let broken_off = lay_file(store, &cell, most, progress, &mut done, ask)?.is_break();
            let lies = Lies::of(store, &cell, most)?;
            done.pieces += lies.pieces;
            done.left += u64::from(lies.is_scattered);
            if broken_off {
                return Err(Error::Refused("it was broken off; what was laid together stays so".into()));
            }
        }
        Ok(done)
    }
}

fn lay_file(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    most: u32,
    progress: &Progress,
    done: &mut Defragmented,
    ask: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let mut from = 0;
    while let Some(stretch) = file::stretch(&**store, cell, from)? {
        let at = std::mem::replace(&mut from, stretch.next);
        if !stretch.is_scattered(most) {
            continue;
        }
        if ask().is_break() {
            return Ok(ControlFlow::Break(()));
        }
        // The old blocks come back with the generation that freed them.
        if store.alloc.free_now() < stretch.moves() && store.alloc.pending() > 0 {
            store.meta.sync()?;
        }
        let no_room = || no_room(stretch.moves(), store.alloc.available(&store.meta, 0));
        let promised = store.alloc.promise(&store.meta, store.near(cell.no), stretch.moves());
        let mut promise = promised.map_err(|e| match e {
            Error::NoSpace | Error::NeverFits { .. } => no_room(),
            other => other,
        })?;
        let laid = {
            let _io = cell.io.lock();
            file::lay_together(&**store, cell, (at, most), &mut promise, &|| false)
        };
        match laid {
            Ok(Laid::Moved(blocks)) => done.moved += blocks,
            Ok(_) => {}
            Err(Error::NoSpace) => return Err(no_room()),
            Err(e) => return Err(e),
        }
        progress.add(stretch.moves());
    }
    Ok(ControlFlow::Continue(()))
}

fn no_room(needed: u64, free: u64) -> Error {
    let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
    Error::Refused(format!(
        "laying it together takes {} bytes, and {} are free: name less of it, or make room. Deleting files frees them if no \
         snapshot has them, else `yore forget`",
        bytes(needed),
        bytes(free)
    ))
}
