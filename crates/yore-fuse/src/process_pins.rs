//! Pins snapshots as long as a process lives.
//!
//! `restore` may have to go back to a snapshot, so the space that `restore` itself takes must not cause that
//! snapshot to be forgotten. The kernel does not tell a daemon that a directory was closed, because it opens
//! directories without asking. So a thread watches the process and waits for its end.
//!
//! Everybody may pin what he may read, so nobody may have all the room: each ordinary user has a share, and
//! some is left for root and the daemon's user. These two may also take back what others have pinned. That
//! takes a pin and not the place: the thread goes on waiting.

use crate::privilege::{may_all, process_of};
use parking_lot::Mutex;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::collections::HashMap;
use std::io::{pipe, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use yore_fs::{Error, EventNo, Pin, Result};

/// Most snapshots pinned at a time. Each takes a thread.
const MOST: usize = 64;
/// Most that all ordinary users together have.
const ORDINARY_MOST: usize = 48;
/// Most that one ordinary user has.
const EACH_MOST: usize = 8;
/// As many of these are left for snapshots that must stay, and are not only read.
const EACH_TO_STAY: usize = 2;

/// The process that wants a snapshot to stay.
#[derive(Clone, Copy)]
pub(crate) struct Wanting {
    /// The user.
    pub(crate) uid: u32,
    /// The thread that waits for the answer.
    pub(crate) thread: u32,
    /// The process only reads the snapshot, and goes on if it does not stay.
    pub(crate) only_reads: bool,
}

/// Pins snapshots. It releases them all when it is dropped.
#[derive(Default)]
pub(crate) struct ProcessPins {
    /// Each thread holds a clone of this.
    places: Arc<Places>,
    /// The reading end hangs up when the writing end goes, which is when this is dropped.
    end: OnceLock<(PipeReader, PipeWriter)>,
}

/// The places that are taken.
#[derive(Default)]
struct Places(Mutex<Vec<Place>>);

/// A place that is taken. It is found by the address of what it and its slot share.
struct Place {
    id: Arc<()>,
    uid: u32,
    /// The process, and its number; `None` if it cannot be seen, and so cannot be watched.
    process: Option<(u32, Arc<OwnedFd>)>,
    /// `None`: there is none yet, or it was taken back.
    pin: Option<Pin>,
}

/// Room to pin one snapshot as long as a process lives. It is given back when this is dropped.
pub(crate) struct PinSlot {
    id: Arc<()>,
    process: Option<(u32, Arc<OwnedFd>)>,
    end: PipeReader,
    places: Arc<Places>,
}

impl Drop for PinSlot {
    fn drop(&mut self) {
        self.places.leave(&self.id);
    }
}

impl Places {
    fn leave(&self, id: &Arc<()>) {
        let mut places = self.0.lock();
        let at = places.iter().position(|place| Arc::ptr_eq(&place.id, id));
        let left = at.map(|at| places.swap_remove(at));
        drop(places);
        // A pin that ends may close the volume.
        drop(left);
    }

    /// Takes a place, if the user may have one more.
    fn enter(&self, want: &Wanting, process: &Option<(u32, Arc<OwnedFd>)>) -> Result<Arc<()>> {
        let mut places = self.0.lock();
        let is_ordinary = |place: &&Place| !may_all(place.uid);
        let of_user = |place: &&Place| place.uid == want.uid;
        let each_most = EACH_MOST - if want.only_reads { EACH_TO_STAY } else { 0 };
        if !may_all(want.uid) && places.iter().filter(of_user).count() >= each_most {
            return Err(too_many(&format!("of user {}", want.uid), places.iter().filter(of_user)));
        }
        if !may_all(want.uid) && places.iter().filter(is_ordinary).count() >= ORDINARY_MOST {
            return Err(too_many("of all users together", places.iter().filter(is_ordinary)));
        }
        if places.len() >= MOST {
            return Err(too_many("together", places.iter()));
        }
        let id = Arc::new(());
        places.push(Place { id: id.clone(), uid: want.uid, process: process.clone(), pin: None });
        Ok(id)
    }

    /// Gives the pin to a place, unless the process has one of the same snapshot. Returns whether it did.
    fn put(&self, id: &Arc<()>, pin: Pin) -> bool {
        let mut places = self.0.lock();
        let Some(at) = places.iter().position(|place| Arc::ptr_eq(&place.id, id)) else { return false };
        let pid = |place: &Place| place.process.as_ref().map(|(pid, _)| *pid);
        let has_it = |place: &Place| {
            pid(place) == pid(&places[at])
                && place.pin.as_ref().is_some_and(|has| has.event() == pin.event())
                && place.process.as_ref().is_some_and(|(_, process)| !has_ended(process))
        };
        let is_new = !places.iter().any(has_it);
        if is_new {
            places[at].pin = Some(pin);
        }
        is_new
    }
}

/// Whether a process has ended. Its number may be another process's then.
fn has_ended(process: &OwnedFd) -> bool {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)), Ok(0))
}

/// Why there is no room, and who has most of it.
fn too_many<'p>(of_whom: &str, places: impl Iterator<Item = &'p Place>) -> Error {
    let (mut count, mut by_process) = (0, HashMap::new());
    for place in places {
        count += 1;
        let pid = place.process.as_ref().map(|(pid, _)| *pid);
        *by_process.entry((place.uid, pid)).or_insert(0) += 1;
    }
    let most = by_process.into_iter().max_by_key(|(who, has)| (*has, *who));
    let who = match most {
        Some(((uid, Some(pid)), has)) => format!("process {pid} of user {uid} has {has} of them"),
        Some(((uid, None), has)) => format!("a process of user {uid} that cannot be seen has {has} of them"),
        None => "none is free".to_string(),
    };
    Error::Refused(format!(
        "programs {of_whom} want {count} snapshots to stay, and more cannot be watched: {who}; try again when it has ended"
    ))
}

fn cannot_watch(error: impl std::fmt::Display) -> Error {
    Error::Refused(format!(
        "no snapshot stays as long as the process lives, which cannot be watched: {error}"
    ))
}

impl ProcessPins {
    /// Reserves room for one more snapshot, for the process of a thread, which waits for the answer.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no room: it says who has it.
    pub(crate) fn slot(&self, want: &Wanting) -> Result<PinSlot> {
        let end = match self.end.get() {
            Some((end, _)) => end,
            None => {
                let new = pipe().map_err(cannot_watch)?;
                &self.end.get_or_init(|| new).0
            }
        };
        let end = end.try_clone().map_err(cannot_watch)?;
        let process = process_of(want.thread).and_then(|process| {
            let opened = pidfd_open(Pid::from_raw(process as i32)?, PidfdFlags::empty()).ok()?;
            Some((process, Arc::new(opened)))
        });
        let id = self.places.enter(want, &process)?;
        Ok(PinSlot { id, process, end, places: self.places.clone() })
    }

    /// Takes back what processes of ordinary users have pinned of a snapshot. Returns whether any had.
    pub(crate) fn release(&self, event: EventNo) -> bool {
        let mut places = self.places.0.lock();
        let of_event = |place: &&mut Place| {
            !may_all(place.uid) && place.pin.as_ref().is_some_and(|pin| pin.event() == event)
        };
        let taken: Vec<Pin> =
            places.iter_mut().filter(of_event).filter_map(|place| place.pin.take()).collect();
        drop(places);
        !taken.is_empty()
    }
}

impl PinSlot {
    /// Keeps the pin, unless the process has one of the same snapshot already.
    ///
    /// # Errors
    /// [`Error::Refused`] if no thread can be started for it.
    pub(crate) fn put(self, pin: Pin) -> Result<()> {
        if self.process.is_none() || !self.places.put(&self.id, pin) {
            return Ok(());
        }
        // The pin and the place go with the slot.
        let work = move || self.wait();
        std::thread::Builder::new().name("yore-keep".into()).spawn(work).map(drop).map_err(cannot_watch)
    }

    /// Waits until the process has ended, or all pins are released.
    fn wait(&self) {
        let Some((_, process)) = &self.process else { return };
        let mut ends = [PollFd::new(&**process, PollFlags::IN), PollFd::new(&self.end, PollFlags::empty())];
        while let Err(rustix::io::Errno::INTR) = poll(&mut ends, None) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};
    use yore_fs::{NewSnapshot, PinnedBy, View, Volume};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    /// A user without rights.
    const NOBODY: u32 = 65534;

    fn wanting(uid: u32, by: &Child) -> Wanting {
        Wanting { uid, thread: by.id(), only_reads: false }
    }

    fn taken(view: &View) -> EventNo {
        view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number
    }

    fn pin(process_pins: &ProcessPins, view: &View, event: EventNo, want: &Wanting) -> Result<()> {
        process_pins.slot(want)?.put(view.pin(event, PinnedBy::Work).unwrap())
    }

    fn kept(process_pins: &ProcessPins, view: &View, by: &Child) -> EventNo {
        let event = taken(view);
        pin(process_pins, view, event, &wanting(0, by)).unwrap();
        assert!(matches!(view.forget(&[event]), Err(Error::Pinned { .. })));
        event
    }

    #[track_caller]
    fn is_refused<T>(result: Result<T>, parts: &[&str]) {
        match result.map(drop) {
            Err(Error::Refused(why)) => assert!(parts.iter().all(|part| why.contains(*part)), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn is_forgotten_soon(view: &View, event: EventNo) {
        let start = Instant::now();
        while let Err(error) = view.forget(&[event]) {
            assert!(matches!(error, Error::Pinned { .. }), "{error}");
            assert!(start.elapsed() < Duration::from_secs(20), "it is still pinned");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A pin lasts as long as both the process and the [`ProcessPins`] live, and the number of pins is
    /// limited.
    #[test]
    fn what_a_process_wants_stays_until_it_ends() {
        let volume = Volume::memory(64 << 20).unwrap();
        let (view, process_pins) = (volume.view(), ProcessPins::default());
        let mut process = sleeper();
        let event = kept(&process_pins, view, &process);
        process.kill().unwrap();
        process.wait().unwrap();
        is_forgotten_soon(view, event);

        let process = sleeper();
        let event = kept(&process_pins, view, &process);
        drop(process_pins);
        is_forgotten_soon(view, event);

        let process_pins = ProcessPins::default();
        let root = wanting(0, &process);
        let slots: Vec<PinSlot> = (0..MOST).map(|_| process_pins.slot(&root).unwrap()).collect();
        is_refused(process_pins.slot(&root), &[&format!("process {} of user 0", process.id())]);
        drop(slots);
        assert!(process_pins.slot(&root).is_ok());
        end(process);
    }

    fn end(mut process: Child) {
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// One user pinned 64 snapshots and slept: then nobody could restore anything, root included, and nobody
    /// was told whom to end. Each user has a share now, of which a part is for what must stay; some room is
    /// root's; and whoever is refused learns which process has most.
    #[test]
    fn nobody_has_all_the_room() {
        let process_pins = ProcessPins::default();
        let process = sleeper();
        let of = |uid, only_reads| Wanting { only_reads, ..wanting(uid, &process) };
        let pid = process.id().to_string();
        let mut slots = Vec::new();
        for _ in 0..EACH_MOST - EACH_TO_STAY {
            slots.push(process_pins.slot(&of(NOBODY, true)).unwrap());
        }
        is_refused(process_pins.slot(&of(NOBODY, true)), &["user 65534", &pid]);
        for _ in 0..EACH_TO_STAY {
            slots.push(process_pins.slot(&of(NOBODY, false)).unwrap());
        }
        is_refused(process_pins.slot(&of(NOBODY, false)), &["user 65534", &pid, "has 8"]);
        for uid in 0..(ORDINARY_MOST / EACH_MOST) as u32 - 1 {
            slots.extend((0..EACH_MOST).map(|_| process_pins.slot(&of(60_000 + uid, false)).unwrap()));
        }
        is_refused(process_pins.slot(&of(61_000, false)), &["all users", &pid]);
        slots.extend((ORDINARY_MOST..MOST).map(|_| process_pins.slot(&of(0, false)).unwrap()));
        slots.clear();
        assert!(process_pins.places.0.lock().is_empty());
        end(process);
    }

    /// A process that wants the same snapshot again has one pin of it, and takes one place.
    #[test]
    fn one_process_pins_a_snapshot_once() {
        let volume = Volume::memory(64 << 20).unwrap();
        let (view, process_pins) = (volume.view(), ProcessPins::default());
        let (process, other) = (sleeper(), sleeper());
        let events = [taken(view), taken(view)];
        for _ in 0..3 * EACH_MOST {
            for event in events {
                pin(&process_pins, view, event, &wanting(NOBODY, &process)).unwrap();
            }
        }
        assert_eq!(process_pins.places.0.lock().len(), 2);
        pin(&process_pins, view, events[0], &wanting(NOBODY, &other)).unwrap();
        assert_eq!(process_pins.places.0.lock().len(), 3);
        end(process);
        is_forgotten_soon(view, events[1]);
        assert!(matches!(view.forget(&[events[0]]), Err(Error::Pinned { .. })));
        end(other);
        is_forgotten_soon(view, events[0]);
    }

    /// What ordinary users' processes have pinned is taken back, and what root's have is not. The process
    /// keeps its place, because its thread goes on.
    #[test]
    fn pins_are_taken_back() {
        let volume = Volume::memory(64 << 20).unwrap();
        let (view, process_pins) = (volume.view(), ProcessPins::default());
        let process = sleeper();
        let events = [taken(view), taken(view)];
        pin(&process_pins, view, events[0], &wanting(NOBODY, &process)).unwrap();
        pin(&process_pins, view, events[1], &wanting(0, &process)).unwrap();
        assert!(process_pins.release(events[0]) && !process_pins.release(events[0]));
        assert!(!process_pins.release(events[1]));
        view.forget(&[events[0]]).unwrap();
        assert!(matches!(view.forget(&[events[1]]), Err(Error::Pinned { .. })));
        assert_eq!(process_pins.places.0.lock().len(), 2);
        end(process);
        is_forgotten_soon(view, events[1]);
    }

    /// Nothing waits for a process that cannot be seen.
    #[test]
    fn what_nobody_to_be_seen_wants_does_not_stay() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
        let process_pins = ProcessPins::default();
        let unseen = Wanting { uid: 0, thread: 0, only_reads: false };
        pin(&process_pins, view, event, &unseen).unwrap();
        view.forget(&[event]).unwrap();
    }
}
