//! Which names entries can have.

use crate::{Error, Result};
use yore_format::NAME_MAX;

/// Fails for names that no entry can have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    // Looks at all bytes, without leaving early: the processor does that many at a time.
    let odd = name.iter().fold(false, |odd, b| odd | (*b == 0) | (*b == b'/'));
    if name.is_empty() || odd {
        return Err(Error::Invalid { what: "a name is 1 to 255 bytes without `/` and NUL" });
    }
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    Ok(())
}
