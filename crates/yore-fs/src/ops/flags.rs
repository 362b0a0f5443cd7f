//! Sets the flags that people give to files and directories (`chattr`). `protected.rs` has what they forbid.
//! A server decides who may set them. Two forbid nothing: one says that no times of access are kept, the
//! other that backups leave the file out; new files get both from their directory.

use super::attr::change_inode;
use super::protected::IMMUTABLE;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::{InodeFlags, WriteFeatures};

/// Sets the flags that people choose. The caller decides who may.
pub(crate) fn set_flags(store: &Arc<Store>, no: InodeNo, flags: InodeFlags) -> Result<()> {
    store.check_writable()?;
    if !InodeFlags::CHOSEN.contains(flags) {
        return Err(Error::Invalid { what: "not one of the flags that can be set" });
    }
    let cell = store.cell(no)?;
    {
        let state = cell.state.read();
        state.check_alive()?;
        if !state.inode.is_regular() && !state.inode.is_directory() {
            return Err(Error::NotPermitted { what: "only files and directories have flags" });
        }
        let is = state.inode.flags & InodeFlags::CHOSEN;
        if is == flags {
            return Ok(());
        }
        if !state.unbound && is.contains(InodeFlags::IMMUTABLE) && flags.contains(InodeFlags::IMMUTABLE) {
            return Err(IMMUTABLE);
        }
    }
    // Done before the first inode has a flag: older programs would take it for damage.
    store.meta.extend(WriteFeatures::INODE_FLAGS)?;
    change_inode(store, &cell, &|state| {
        state.inode.flags = (state.inode.flags - InodeFlags::CHOSEN) | flags;
        state.touch_ctime();
    })
}
