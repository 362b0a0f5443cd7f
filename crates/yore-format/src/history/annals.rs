//! The annals: rows of what ended, appended in the order in which it ended, and the indexes that lead to
//! them.

mod decode;
mod encode;
mod keys;
mod row;

pub use keys::{AnnalsKey, IndexValue, InodeIndexCell, NameIndexCell, SpanCell};
pub use row::{AnnalsRow, RowName, RowValue, ROW_BYTES_MAX};
