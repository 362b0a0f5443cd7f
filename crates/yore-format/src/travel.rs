//! Texts of the program in errors that come from another process.
//!
//! An error says what is wrong in texts that are part of the program, so its fields are `&'static str`. When
//! a process reads such an error from bytes, it keeps each text for the rest of its life, once, however often
//! it comes. There are only as many texts as the other program has. A program that lies about that does not
//! fill memory: beyond [`MOST`] texts, and for a text longer than [`LONGEST`], the reader gives [`UNKNOWN`].

use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Most texts that are kept.
pub const MOST: usize = 1024;
/// The longest text that is kept, in bytes.
pub const LONGEST: usize = 1024;
/// What stands for a text that is not kept.
pub const UNKNOWN: &str = "something that this program has no words for";

/// A text of the program. Under its own name serde would borrow it from what it reads.
pub type Text = &'static str;

static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Reads a text of the program: for `#[serde(deserialize_with)]`. O(log of the texts kept).
///
/// # Errors
/// If the bytes are no text.
pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    let text = String::deserialize(from)?;
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text.as_str()) {
        return Ok(known);
    }
    if text.len() > LONGEST || kept.len() >= MOST {
        return Ok(UNKNOWN);
    }
    let text: Text = text.leak();
    kept.insert(text);
    Ok(text)
}
