//! Help for errors that come from another process: serde knows no static texts of the program, and no bound
//! on how deep a value is nested in itself.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::cell::Cell;

/// How deep an error is nested in errors at most.
pub const DEEPEST: u32 = 16;

/// A text of the program. Under its own name serde would borrow it from what it reads.
pub type Text = &'static str;

/// Kinds of files that are no devices.
pub(crate) mod kinds {
    pub const DIRECTORY: &str = "directory";
    pub const CHARACTER_DEVICE: &str = "character device";
    pub const PIPE: &str = "pipe";
    pub const SOCKET: &str = "socket";
    pub const ALL: [&str; 4] = [DIRECTORY, CHARACTER_DEVICE, PIPE, SOCKET];
}

/// Reads a kind of file that is no device: one of [`kinds::ALL`].
pub(crate) fn kind_of_file<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    let found = String::deserialize(from)?;
    kinds::ALL.into_iter().find(|known| *known == found).ok_or_else(|| D::Error::custom("no kind of file"))
}

/// Reads a value that is nested in its own kind, for `#[serde(deserialize_with)]`. It reads at most
/// [`DEEPEST`] levels, so no bytes exhaust the stack.
///
/// # Errors
/// The errors of the value itself, and one for a value that is nested too deep.
pub fn nested<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Box<T>, D::Error> {
    thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
    struct Level;
    impl Drop for Level {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _level = Level;
    match DEPTH.get() > DEEPEST {
        true => Err(D::Error::custom("errors nested too deep")),
        false => Box::deserialize(from),
    }
}
