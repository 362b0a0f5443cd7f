//! Which kept events have seen a version, as the spans in which events of one directory or file see it.
//!
//! The rule is that of [`crate::history::reclaim::needed`], which only asks whether there is any such event:
//! an event of the inode itself; one of the root directory; one of a directory above it at that moment. Where
//! the place is not known, one of any directory.
//!
//! A version has ended before the next event is taken, so no later event sees it, and what is found here
//! never becomes more. States of directories that ended by then do not change any more either, so the spans
//! of a directory are remembered for as long as no event comes or goes.

use crate::history::read::at_time::each_state;
use crate::history::reclaim::needed::has_one_name;
use crate::history::record::{Kept, Seers, Span, ELSEWHERE};
use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::HashSet;
use std::sync::Arc;
use yore_format::{EventNo, Inode, Version};

/// How many directories are remembered.
const DIRECTORIES_MOST: usize = 4096;

/// The spans in which events see a version, joined; none if nobody needs it. O(log events); where events are
/// of directories below the root, also O(states of the directories above), once for each directory.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn of(store: &Arc<Store>, seers: &mut Seers, no: InodeNo, version: &Version) -> Result<Vec<Span>> {
    let (inode, from, to) = (&version.inode, version.inode.born, version.end);
    let last = seers.refresh(&store.past);
    if to.0 > last.0.saturating_add(1) {
        // A number was taken by something that is no event; what was remembered does not reach so far.
        seers.above.clear();
    }
    let mut spans = Vec::with_capacity(1);
    let mut add = |kept: &Kept, root: InodeNo, from: EventNo, to: EventNo| {
        if kept.any(root, from, to) {
            spans.push(Span { root, from, to });
        }
    };
    add(&seers.kept, no, from, to);
    if no != InodeNo::ROOT {
        add(&seers.kept, InodeNo::ROOT, from, to);
        if seers.kept.any(ELSEWHERE, from, to) {
            if has_one_name(inode) {
                let last = last.max(EventNo(to.0.saturating_sub(1)));
                for span in above(store, seers, inode.parent, last)?.iter() {
                    add(&seers.kept, span.root, span.from.max(from), span.to.min(to));
                }
            } else {
                add(&seers.kept, ELSEWHERE, from, to);
            }
        }
    }
    seers.kept.join(&mut spans);
    Ok(spans)
}

/// The spans in which events see what a directory holds, up to this number. Events of the root directory are
/// left out.
fn above(store: &Arc<Store>, seers: &mut Seers, directory: InodeNo, last: EventNo) -> Result<Arc<[Span]>> {
    if let Some(known) = seers.above.get(&directory) {
        return Ok(known.clone());
    }
    let kept = &seers.kept;
    let until = EventNo(last.0.saturating_add(1));
    let (mut left, mut met) = (vec![(directory, EventNo(0), until)], HashSet::new());
    let mut spans: Vec<Span> = Vec::new();
    while let Some((at, from, to)) = left.pop() {
        // This also stops at a circle, which is damage.
        if at == InodeNo::ROOT || !kept.any(ELSEWHERE, from, to) || !met.insert((at, from, to)) {
            continue;
        }
        each_state(store, at, from, to, &mut |inode: &Inode, from, to| {
            let root = match has_one_name(inode) {
                true => {
                    left.push((inode.parent, from, to));
                    at
                }
                false => ELSEWHERE,
            };
            if kept.any(root, from, to) {
                spans.push(Span { root, from, to });
            }
            true
        })?;
    }
    kept.join(&mut spans);
    if seers.above.len() >= DIRECTORIES_MOST {
        seers.above.clear();
    }
    let spans: Arc<[Span]> = spans.into();
    seers.above.insert(directory, spans.clone());
    Ok(spans)
}
