//! Names that requests bring.

use yore_fs::{Error, Result, NAME_MAX};

/// Refuses what no file in a directory can be called.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match (1..=NAME_MAX).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0) {
        true => Ok(()),
        false => {
            Err(Error::Invalid { what: "a file in a directory has a name of 1 to 255 bytes without `/`" })
        }
    }
}
