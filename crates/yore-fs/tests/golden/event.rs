//! How the tests of images with a past in old trees describe an event.

use super::seen::tree_of;
use std::fmt::Write as _;
use yore_fs::{Event, View};

/// Describes an event, and what it has seen.
pub fn event(view: &View, event: &Event, out: &mut String) {
    let row = &event.row;
    let time = (row.time.seconds, row.time.nanos);
    let held = if row.held { ", held" } else { "" };
    writeln!(out, "event {} {:?} {:?} of {} at {time:?}{held}", event.number, row.kind, row.name, row.root)
        .unwrap();
    tree_of(view, event, out);
}
