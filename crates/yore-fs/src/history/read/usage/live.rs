//! What is in use, beside what history takes.
//!
//! *Of the volume* nobody looks at a file: data blocks in use follow from the volume's totals
//! ([`yore_core::alloc::Alloc::data_in_use`]), metadata blocks are counted, and history's part of both is
//! counted, too. Files without a name that programs have open are in it; what was removed and is being freed
//! is in it until it is free. What was written and has no block yet is not.
//!
//! *Below a directory* it is what du(1) says: the sum of what each file says of itself, so that blocks which
//! two files share count twice.

use crate::go_on::{goes_on, GoOn};
use crate::store::Store;
use crate::{DirItem, Error, FileKind, InodeNo, Node, Result, View};
use hashbrown::HashSet;
use std::sync::Arc;
use yore_format::BLOCK_SIZE;

/// Bytes in use on the volume. O(1), but the first time O(groups). While files change it may be off by what
/// these changes take and free.
///
/// # Errors
/// Reading the zone table may fail.
pub(super) fn of_volume(store: &Arc<Store>) -> Result<u64> {
    store.settle_set_aside();
    let (data, metadata) = (store.alloc.data_in_use(&store.meta)?, store.meta.totals.metadata_blocks.get());
    let history = store.past.space();
    let of_past = history.nodes.saturating_add(history.trees);
    let blocks = data.saturating_sub(history.data).saturating_add(metadata.saturating_sub(of_past));
    Ok(blocks.saturating_mul(BLOCK_SIZE as u64))
}

/// Bytes in use at and below a directory, each file once. O(entries).
///
/// # Errors
/// `Refused` if `go_on` breaks; damage and device errors.
pub(super) fn below(view: &View, directory: InodeNo, go_on: GoOn<'_>) -> Result<u64> {
    let view = view.present();
    let (mut left, mut met, mut several) = (vec![directory], HashSet::new(), HashSet::new());
    let bytes = |blocks_512: u64| blocks_512.saturating_mul(512);
    let mut live = match view.getattr(directory) {
        Ok(attr) => bytes(attr.blocks_512),
        Err(Error::Stale) => return Ok(0),
        Err(e) => return Err(e),
    };
    while let Some(directory) = left.pop() {
        goes_on(go_on, 0)?;
        // This also stops at a circle, which is damage.
        if !met.insert(directory) {
            continue;
        }
        let mut add = |item: DirItem<'_>, node: Option<Node>| {
            let Some(attr) = node.as_ref().map(Node::attr).filter(|_| !matches!(item.name, b"." | b".."))
            else {
                return true;
            };
            if attr.kind == FileKind::Directory {
                left.push(attr.inode);
            } else if attr.links > 1 && !several.insert(attr.inode) {
                return true;
            }
            live = live.saturating_add(bytes(attr.blocks_512));
            true
        };
        match view.readdir_plus(directory, 0, &mut add) {
            // Removed meanwhile.
            Err(Error::Stale | Error::NotFound) => {}
            other => other?,
        }
    }
    Ok(live)
}
