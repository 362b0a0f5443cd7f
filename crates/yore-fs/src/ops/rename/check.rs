//! What a rename does not allow.

use super::locked::Dirs;
use crate::dir::{self, Found};
use crate::ops::protected::{check_changeable, check_takes_names};
use crate::{Error, FileKind, InodeNo, RenameMode, Result};
use yore_core::inode::InodeState;

/// Fails if one of the names cannot take the other's place. `above` has what is above the old and above the
/// new directory, if they are two.
pub(super) fn check_shape(
    mode: RenameMode,
    above: (&[InodeNo], &[InodeNo]),
    source: &Found,
    target: Option<&Found>,
) -> Result<()> {
    let (above_from, above_to) = above;
    // Damage may have made the entry of a directory one of something else.
    if above_to.contains(&source.inode) {
        return Err(Error::Invalid { what: "a directory cannot be moved into itself" });
    }
    let Some(target) = target else { return Ok(()) };
    if above_from.contains(&target.inode) {
        return Err(match mode {
            RenameMode::Exchange => Error::Invalid { what: "a directory cannot be moved into itself" },
            _ => Error::NotEmpty,
        });
    }
    if mode == RenameMode::Replace && source.inode != target.inode {
        match (source.kind == FileKind::Directory, target.kind == FileKind::Directory) {
            (true, false) => return Err(Error::NotADirectory),
            (false, true) => return Err(Error::IsADirectory),
            _ => {}
        }
    }
    Ok(())
}

/// Fails if one of the names may not go, or may not come to its new directory.
pub(super) fn check_protection(
    mode: RenameMode,
    dirs: &mut Dirs<'_>,
    state: &InodeState,
    other: Option<&InodeState>,
) -> Result<()> {
    check_changeable(dirs.from())?;
    check_changeable(state)?;
    let Some(other) = other else { return check_takes_names(dirs.to()) };
    check_changeable(dirs.to())?;
    check_changeable(other)?;
    if mode == RenameMode::Replace && other.inode.is_directory() && !dir::is_empty(other) {
        return Err(Error::NotEmpty);
    }
    Ok(())
}
