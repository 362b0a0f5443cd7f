//! The directory of snapshots (`-o snapdir=NAME`): a name in the root of a mount. It leads to a directory in
//! which every kept snapshot of the root directory is a directory. It is for programs that look for the past
//! in such a place.
//!
//! The root does not list it, and a file that really has the name takes precedence. The directory lists each
//! snapshot by its shortest time, by its name if it has one, and by the time as Samba writes it
//! (`@GMT-2026.11.20-14.05.30`), if that second means this snapshot: of several in one second it means the
//! last. A TIME that is not listed leads to what `.@TIME` would. Nothing is created or kept for a name before
//! somebody looks it up; a listing returns entries without their nodes, as long as nobody asks for those.
//!
//! The kernel keeps a listing until the directory's time of change is another. So that time is when this
//! mount first saw that snapshots had been taken or forgotten.

use fuser::INodeNo;
use parking_lot::Mutex;
use std::time::SystemTime;
use yore_fs::time::{print, print_gmt, TimeZone};
use yore_fs::{Event, EventNo, Result, Timestamp, View};

/// Its node; inode numbers up to 15 belong to no file.
pub(crate) const NODE: INodeNo = INodeNo(2);

/// Number of events read together.
const BATCH: usize = 64;
/// The cookies of `.` and `..`; all others are greater.
pub(crate) const DOT: u64 = 1;
pub(crate) const DOT_DOT: u64 = 2;
/// How many low bits of a cookie hold the form of the name; the event number is above them.
const FORM_BITS: u32 = 2;

/// What is known of the directory between requests.
pub(crate) struct SnapDir {
    name: Vec<u8>,
    /// The state of the directory when it was last read, and when that state was first seen.
    seen: Mutex<Option<((EventNo, usize), SystemTime)>>,
}

/// A name in the directory.
pub(crate) struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The event that it means.
    pub event: EventNo,
    /// Where the listing goes on behind it.
    pub cookie: u64,
}

impl SnapDir {
    pub(crate) fn new(name: Vec<u8>) -> SnapDir {
        SnapDir { name, seen: Mutex::new(None) }
    }

    /// Whether this is its name.
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        self.name == name
    }

    /// When the directory changed last.
    pub(crate) fn changed(&self, view: &View) -> SystemTime {
        let stamp = view.events_stamp();
        let mut seen = self.seen.lock();
        match *seen {
            Some((then, when)) if then == stamp => when,
            _ => {
                let now = SystemTime::now();
                *seen = Some((stamp, now));
                now
            }
        }
    }
}

/// Calls `each` with the entries behind a cookie, without `.` and `..`, until it returns false. O(log²
/// events) for each entry.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn list(view: &View, cookie: u64, each: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()> {
    let (mut from, mut done) = match cookie {
        0..=DOT_DOT => (EventNo(0), None),
        cookie => (EventNo(cookie >> FORM_BITS), Some(cookie)),
    };
    loop {
        let events = view.events_of(view.root(), from, BATCH)?;
        for (event, next) in &events {
            for (form, name) in (0..).zip(names(view, event, *next)?) {
                let cookie = event.number.0 << FORM_BITS | form;
                let Some(name) = name.filter(|_| done.is_none_or(|done| cookie > done)) else { continue };
                if !each(Entry { name: name.as_bytes(), event: event.number, cookie }) {
                    return Ok(());
                }
            }
        }
        match events.last() {
            Some((last, _)) if events.len() == BATCH => from = EventNo(last.number.0.saturating_add(1)),
            _ => return Ok(()),
        }
        done = None;
    }
}

/// The names of an event of the root directory.
fn names(view: &View, event: &Event, next: Option<Timestamp>) -> Result<[Option<String>; 3]> {
    let time = print(event.row.time, next, &TimeZone::system());
    let gmt = format!("@{}", print_gmt(event.row.time));
    let means = match when(gmt.as_bytes()) {
        Some(when) => match view.event_for(view.root(), &when) {
            Ok(found) => found == event.number,
            Err(yore_fs::Error::NotFound) => false,
            Err(error) => return Err(error),
        },
        None => false,
    };
    Ok([Some(time), Some(event.row.name.clone()).filter(|name| !name.is_empty()), means.then_some(gmt)])
}

/// The time that a name in the directory asks for.
pub(crate) fn when(name: &[u8]) -> Option<yore_fs::time::When> {
    let of_root = [b".@", name].concat();
    let (of, when) = yore_fs::split_time(&of_root)?;
    (of == b".").then_some(when)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use yore_device::{Device, MemoryDevice};
    use yore_fs::{MkfsOptions, MountOptions, NewSnapshot};

    fn listed(view: &View, mut page: usize) -> Vec<(String, EventNo)> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        page = page.max(1);
        loop {
            let before = all.len();
            list(view, cookie, &mut |entry| {
                if all.len() == before + page {
                    return false;
                }
                all.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.event));
                cookie = entry.cookie;
                true
            })
            .unwrap();
            if all.len() == before {
                return all;
            }
        }
    }

    /// Every entry leads to its own snapshot, whatever was taken and forgotten. Pages of any length give the
    /// same list, without events of other directories.
    #[test]
    fn entries_mean_what_they_are_listed_for() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        View::mkfs(&device, &MkfsOptions::default()).unwrap();
        let view = View::open(device, &MountOptions::default()).unwrap();
        assert!(listed(&view, 9).is_empty());
        let caller = yore_fs::Caller { uid: 0, gid: 0, umask: 0, keeps_set_id: false };
        let below = view.mkdir(&caller, view.root(), b"below", 0o755).unwrap().inode();
        let mut events = Vec::new();
        for i in 0..150 {
            let name = if i % 10 == 0 { format!("n{i}") } else { String::new() };
            events.push(view.take_snapshot(view.root(), &NewSnapshot::named(&name)).unwrap().number);
            view.take_snapshot(below, &NewSnapshot::default()).unwrap();
        }
        for step in [1, 7] {
            let all = listed(&view, 1000);
            for page in [1, 2, 5] {
                assert_eq!(listed(&view, page), all);
            }
            for (name, event) in &all {
                let found = view.event_for(view.root(), &when(name.as_bytes()).unwrap()).unwrap();
                assert_eq!(found, *event, "{name}");
            }
            let (times, others): (Vec<_>, Vec<_>) =
                all.iter().partition(|(name, _)| name.starts_with(|c: char| c.is_ascii_digit()));
            assert!(times.iter().map(|(_, event)| *event).eq(events.iter().copied()));
            let (gmt, named): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|(name, _)| name.starts_with("@GMT-"));
            assert_eq!(named.len(), if step == 1 { 15 } else { 13 });
            assert_eq!(gmt.last().map(|(_, event)| *event), events.last().copied(), "the last of a second");
            let gone: Vec<EventNo> = events.iter().copied().step_by(7).take(20).collect();
            if step == 1 {
                view.forget(&gone).unwrap();
                events.retain(|event| !gone.contains(event));
            }
        }
    }
}
