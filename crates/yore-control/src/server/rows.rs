//! How many rows an answer has room for.

use crate::wire::{size, ROWS};
use serde::Serialize;

/// Whether an answer has room for a row.
pub(super) fn fits<T: Serialize>(row: &T) -> bool {
    size(row).is_some_and(|size| size <= ROWS)
}

/// As many rows as fit, and the first that is left over.
pub(super) fn fitting<T: Serialize>(rows: impl Iterator<Item = T>) -> (Vec<T>, Option<T>) {
    let (mut fitting, mut bytes) = (Vec::new(), 0);
    for row in rows {
        bytes += size(&row).unwrap_or(ROWS + 1);
        if bytes > ROWS {
            return (fitting, Some(row));
        }
        fitting.push(row);
    }
    (fitting, None)
}
