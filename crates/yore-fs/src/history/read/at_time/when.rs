//! Which event a time means, for a directory and for a name in it.

use super::count::counted;
use super::events::{above_then_and_now, covers, last_kept, live};
use super::named;
use super::tree::{entry, inode, lookup, PastInode};
use crate::history::record::Event;
use crate::store::Store;
use crate::time::{nanoseconds, When};
use crate::{dir, Error, InodeNo, Result};
use std::num::NonZeroU32;
use std::sync::Arc;
use yore_format::{EventNo, EventState, Incarnation, Timestamp};

/// If events have times that have not come yet, a time that was up to so many seconds ago still means the
/// present: whoever asks for now read the clock a moment before the time is looked up.
const PRESENT: i64 = 5;

/// What a time means: the last event up to a number, unless the event that the time names has been forgotten.
struct Asked {
    most: EventNo,
    gone: Option<Event>,
    /// The last event up to the time, even if it has been forgotten.
    until: EventNo,
}

impl Asked {
    /// The last event up to a time.
    ///
    /// # Errors
    /// `NotFound` if the time can mean no kept event; damage and device errors.
    fn at(store: &Arc<Store>, time: Timestamp) -> Result<Asked> {
        // In this order: what is taken meanwhile is not ahead of a clock that is right.
        let last_time = store.past.last_time();
        Asked::at_present(store, time, (last_time, crate::clock::now()))
    }

    /// As [`Asked::at`], if it is `now`, and the last event was taken at `last_time`.
    fn at_present(
        store: &Arc<Store>,
        time: Timestamp,
        (last_time, now): (Timestamp, Timestamp),
    ) -> Result<Asked> {
        let (meta, past) = (&store.meta, &store.past);
        let until = |time| -> Result<(Option<Event>, Option<Event>)> {
            let last = last_until(store.number(), time, &mut |most| past.floor(meta, most))?;
            Ok((last, last_until(store.number(), time, &mut |most| past.floor_forgotten(meta, most))?))
        };
        let (mut last, mut gone) = until(time)?;
        // Times are later than the present if a clock was ahead. All the same what has them is of the past;
        // and the time that was printed for it means it.
        let is_present = time.seconds >= now.seconds.saturating_sub(PRESENT);
        if is_present && last_time > now {
            let is_named = |event: &Event| is_named_by(time, event.row.time);
            if !last.iter().chain(&gone).any(is_named) {
                (last, gone) = until(Timestamp { seconds: i64::MAX, nanos: 999_999_999 })?;
            }
        }
        let until = last.iter().chain(&gone).map(|event| event.number).max().unwrap_or_default();
        let dying = last.clone().filter(|event| event.row.state == EventState::Dying);
        let gone = gone.into_iter().chain(dying);
        let gone = gone.filter(|event| !event.row.kind.is_work() && is_named_by(time, event.row.time));
        let gone = gone.max_by_key(|event| event.number);
        last.map(|last| Asked { most: last.number, gone, until }).ok_or(Error::NotFound)
    }

    /// The event that is meant in a directory, which is itself seen as of `from` (`None`: the present): one
    /// that covers the directory. O(depth · log events), more where events of other directories come between.
    fn covering(
        &self,
        store: &Arc<Store>,
        directory: InodeNo,
        from: Option<EventNo>,
    ) -> Result<Option<EventNo>> {
        let Asked { most, gone, .. } = self;
        let most = *most;
        let mut found = None;
        let roots = above_then_and_now(store, directory, from.map_or(most, |from| from.min(most)))?;
        for root in &roots {
            let last = last_kept(store, *root, most, &mut |event| covers(store, event, directory))?;
            found = found.max(last.map(|event| event.number));
        }
        // The event that the time names does not exist any more. An earlier one would be something else.
        let is_gone =
            gone.as_ref().is_some_and(|gone| Some(gone.number) > found && roots.contains(&gone.row.root));
        Ok(found.filter(|_| !is_gone))
    }

    /// The number of the very event that the time names, if that was one of this inode itself and does not
    /// exist any more.
    fn gone_of(&self, no: InodeNo, incarnation: Incarnation) -> Option<EventNo> {
        let gone = self.gone.as_ref()?;
        ((gone.row.root, gone.row.root_incarnation) == (no, incarnation)).then_some(gone.number)
    }

    /// The event that is meant, among those of one inode itself.
    fn of_inode(&self, store: &Arc<Store>, no: InodeNo) -> Result<Option<Event>> {
        let found = last_kept(store, no, self.most, &mut |_| Ok(true))?;
        let is_later = |gone: &Event| {
            gone.row.root == no && found.as_ref().is_none_or(|found| gone.number > found.number)
        };
        Ok(if self.gone.as_ref().is_some_and(is_later) { None } else { found })
    }
}

/// The event that a time means in a directory, which is itself seen as of `from` (`None`: the present): the
/// last kept event up to that time that covers the directory.
///
/// # Errors
/// `NotFound` if there is none, or if the snapshot that the time names does not cover the directory; damage
/// and device errors.
pub(crate) fn event_for(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<EventNo>,
    when: &When,
) -> Result<EventNo> {
    let asked = match when {
        When::Last(count) => return Ok(counted(store, directory, from, None, *count)?.event.number),
        When::Named(name) => return Ok(named::covering(store, directory, from, name)?.number),
        When::At(time) => Asked::at(store, *time)?,
    };
    asked.covering(store, directory, from)?.ok_or(Error::NotFound)
}

/// What a name meant in a directory at a time, and the event that shows it: the last event up to that time
/// that covers the directory, or that is of the very inode that the name means. `.` is the directory itself.
///
/// # Errors
/// `NotFound` if there is no such event, or if nothing was there then; damage and device errors.
pub(crate) fn lookup_at(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<EventNo>,
    name: &[u8],
    when: &When,
) -> Result<(EventNo, PastInode)> {
    let asked = match when {
        When::Last(count) => return lookup_nth_last(store, directory, from, name, *count),
        When::Named(event_name) => return lookup_named(store, directory, from, name, event_name),
        When::At(time) => Asked::at(store, *time)?,
    };
    let of_directory = asked.covering(store, directory, from)?;
    if name == b"." {
        let event = of_directory.ok_or(Error::NotFound)?;
        return Ok((event, inode(store, directory, event)?));
    }
    let live = live(store, directory, from, name)?;
    match own_event_then(store, &asked, (directory, name), live.as_ref(), of_directory)? {
        Some(OwnEvent::At(own)) => return Ok((own.number, inode(store, own.row.root, own.number)?)),
        Some(OwnEvent::Gone) => return Err(Error::NotFound),
        None => {}
    }
    let inode_of_name = match from {
        Some(from) => entry(store, directory, name, from)?,
        None => live.as_ref().map(|found| (found.inode, found.incarnation)),
    };
    let mut own = None;
    if let Some((no, incarnation)) = inode_of_name {
        own = asked.of_inode(store, no)?.filter(|event| event.row.root_incarnation == incarnation);
    }
    match own.filter(|own| of_directory.is_none_or(|event| own.number > event)) {
        Some(own) => Ok((own.number, inode(store, own.row.root, own.number)?)),
        None => {
            let event = of_directory.ok_or(Error::NotFound)?;
            Ok((event, lookup(store, directory, name, event)?))
        }
    }
}

/// As [`lookup_at`], as of an event that is counted back from the last one.
fn lookup_nth_last(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<EventNo>,
    name: &[u8],
    count: NonZeroU32,
) -> Result<(EventNo, PastInode)> {
    let name = (name != b".").then_some(name);
    let shown = counted(store, directory, from, name, count)?;
    let number = shown.event.number;
    let found = match name {
        Some(_) if shown.own => inode(store, shown.event.row.root, number),
        Some(name) => lookup(store, directory, name, number),
        None => inode(store, directory, number),
    };
    Ok((number, found?))
}

/// As [`lookup_at`], as of an event that has a name: an event of the named file or directory itself, or else
/// of the nearest directory above.
fn lookup_named(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<EventNo>,
    name: &[u8],
    event_name: &str,
) -> Result<(EventNo, PastInode)> {
    if name == b"." {
        let number = named::covering(store, directory, from, event_name)?.number;
        return Ok((number, inode(store, directory, number)?));
    }
    if let Some(own) = named::own(store, (directory, name), from, event_name)? {
        return Ok((own.number, inode(store, own.row.root, own.number)?));
    }
    let number = named::covering(store, directory, from, event_name)?.number;
    Ok((number, lookup(store, directory, name, number)?))
}

/// The last event of the very inode that a name meant.
enum OwnEvent {
    /// The inode had the name as of this event.
    At(Event),
    /// The inode had lost the name before its event, or the event that the time names was forgotten. An
    /// earlier event would be something else.
    Gone,
}

/// The last event of the very inode that the name meant then, if that event is later than the directory's;
/// `None` if there is none. O(log history), and as much again for each meaning since the directory's event
/// that no event has seen.
fn own_event_then(
    store: &Arc<Store>,
    asked: &Asked,
    (directory, name): (InodeNo, &[u8]),
    live: Option<&dir::Found>,
    of_directory: Option<EventNo>,
) -> Result<Option<OwnEvent>> {
    let mut most = asked.most;
    loop {
        let (inode, incarnation, birth, death) = match live {
            Some(found) if found.birth <= most => {
                (found.inode, found.incarnation, found.birth, EventNo(u64::MAX))
            }
            _ => match store.past.last_meaning(store, directory, name, most)? {
                Some(e) => (e.inode, e.incarnation, e.birth, e.death),
                None => return Ok(None),
            },
        };
        let own = asked.of_inode(store, inode)?.filter(|event| {
            event.row.root_incarnation == incarnation
                && event.number >= birth
                && of_directory.is_none_or(|of_directory| event.number > of_directory)
        });
        if let Some(own) = own {
            let was_there =
                own.number < death && !ended_before(store, asked, (directory, name), live, (birth, death))?;
            return Ok(Some(match was_there {
                true => OwnEvent::At(own),
                false => OwnEvent::Gone,
            }));
        }
        let gone = asked.gone_of(inode, incarnation);
        if gone.is_some_and(|gone| gone >= birth && of_directory.is_none_or(|event| gone > event)) {
            return Ok(Some(OwnEvent::Gone));
        }
        match birth.0.checked_sub(1) {
            // The directory's event has seen what was before, so no event of that is later.
            Some(before) if of_directory.is_none_or(|event| before > event.0) => most = EventNo(before),
            _ => return Ok(None),
        }
    }
}

/// Whether a meaning of a name had ended by the time that is asked for, and the name meant nothing since. Any
/// event after the end tells that, even one of something else, or one that has been forgotten.
fn ended_before(
    store: &Arc<Store>,
    asked: &Asked,
    (directory, name): (InodeNo, &[u8]),
    live: Option<&dir::Found>,
    (birth, death): (EventNo, EventNo),
) -> Result<bool> {
    if asked.until < death || live.is_some_and(|found| found.birth <= asked.until) {
        return Ok(false);
    }
    let last = store.past.last_meaning(store, directory, name, asked.until)?;
    Ok(last.is_none_or(|last| last.birth <= birth))
}

/// The last event whose time is not after `time`. `floor` finds the last event up to a number. O(log²
/// events), because times ascend with numbers.
fn last_until(
    next: EventNo,
    time: Timestamp,
    floor: &mut dyn FnMut(EventNo) -> Result<Option<Event>>,
) -> Result<Option<Event>> {
    let (mut low, mut high) = (0, next.0);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match floor(EventNo(middle))? {
            Some(event) if event.row.time > time => high = (event.number.0 - 1).min(high),
            _ => low = middle,
        }
    }
    Ok(floor(EventNo(low))?.filter(|event| event.row.time <= time))
}

/// Whether a time that was written to the minute or more exactly, and ends at `end`, contains `time`:
/// snapshots are named so by when they were taken. The end shows how exactly the time was written.
fn is_named_by(end: Timestamp, time: Timestamp) -> bool {
    let next = nanoseconds(end) + 1;
    let stretches = std::iter::once(60_000_000_000).chain((0..10).rev().map(|digits| 10i128.pow(digits)));
    let stretch = stretches.into_iter().find(|stretch| next % stretch == 0).unwrap_or(1);
    (next - stretch..next).contains(&nanoseconds(time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewSnapshot, Volume};

    /// A clock had been ahead by years, and was put right. What was taken since has times of the wrong clock,
    /// so `now` and `today` led to what was there before the clock went wrong. They mean the last snapshot
    /// again; other times are as they were.
    #[test]
    fn a_clock_that_was_ahead() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let take = |time| {
            let new = NewSnapshot { time, ..NewSnapshot::default() };
            view.take_snapshot(view.root(), &new).unwrap()
        };
        // The clock that is right says that it is 2011.
        let (before, now) = (at(1_300_000_000), at(1_300_010_000));
        let right = take(Some(before)).number;
        let (first, last) = (take(None), take(None).number);
        let store = view.store();
        let last_time = store.past.last_time();
        let shown = |time| Asked::at_present(store, time, (last_time, now)).unwrap().most;
        assert_eq!(shown(now), last);
        assert_eq!(shown(at(now.seconds - 1)), last, "a moment passes between reading and looking up");
        assert_eq!(shown(at(now.seconds + 40_000)), last, "the end of today");
        assert_eq!(shown(at(now.seconds - 3600)), right);
        assert_eq!(shown(first.row.time), first.number, "as it was printed");
        let earlier = Asked::at_present(store, at(before.seconds - 1), (last_time, now));
        assert!(matches!(earlier, Err(Error::NotFound)));
        // Where the clock is right, a moment ago is a moment ago.
        let later = at(crate::clock::now().seconds + 3600);
        let shown = |now| Asked::at_present(store, at(before.seconds + 5), (last_time, now)).unwrap().most;
        assert_eq!((shown(at(before.seconds + 9)), shown(later)), (last, right));
        // A time that was printed means what it was printed for, also if the clock is behind by a moment.
        let moment = at(before.seconds + 1);
        assert_eq!(Asked::at_present(store, before, (last_time, moment)).unwrap().most, right);
        // Somebody takes a snapshot while a time is looked up: it is later than the clock said.
        let earlier = (before, at(before.seconds + 1));
        assert_eq!(Asked::at_present(store, at(before.seconds), earlier).unwrap().most, right);
    }
}
