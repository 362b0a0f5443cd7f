//! What the cell of an inode remembers for history: which event covers it, when versions are made of it, and
//! whether policies exclude it. The layer above says what these mean, and finds them out
//! (`history/record/cover.rs`, `history/versioning.rs`, `history/exclude.rs`).

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::{EventNo, Inode, InodeNo};

/// What a cell remembers of its cover.
#[derive(Default)]
pub struct CoverMemo {
    known: KnownCover,
    /// Where it lies; for directories. This and the next two fields can be read without the inode's lock.
    /// Whoever needs both reads this first, with `Acquire`: the event is then no older than the place.
    pub parent: AtomicU64,
    /// The number of its own last event; 0: none.
    pub own_event: AtomicU64,
    /// Whether it has a policy.
    pub has_policy: AtomicBool,
    /// When versions are made of it (`history/policy.rs`), and as of which epochs this is known.
    pub versioning: Mutex<Option<(Epochs, Ruled)>>,
    /// Whether policies exclude it.
    pub excluded: ExcludedMemo,
}

/// Epochs of policies and of events.
pub type Epochs = (u64, u64);

impl CoverMemo {
    /// Takes the parent, the own event and the policy from the inode, which has just changed.
    pub fn follow(&self, inode: &Inode) {
        self.own_event.store(inode.own_event.0, Ordering::Relaxed);
        // An inode that moves takes along what covered it. With its new parent and its old event less would
        // cover it than before.
        self.parent.store(inode.parent.0, Ordering::Release);
        self.has_policy.store(inode.has_policy, Ordering::Relaxed);
        self.known.clear();
        *self.versioning.lock() = None;
        self.excluded.follow(inode);
    }

    /// The event that covers it, if that is known as of this epoch.
    pub fn get(&self, epoch: u64) -> Option<EventNo> {
        self.known.get(epoch)
    }

    /// Remembers the event, unless one is known as of a later epoch.
    pub fn set(&self, epoch: u64, event: EventNo) {
        self.known.set(epoch, event);
    }
}

/// An event that covers something, and the epoch as of which that is known. A reader gets an event with the
/// epoch that it was found for, or nothing: with an older event under a later epoch, a state that a new event
/// has seen would not be kept. Each write looks here, so readers wait for nobody.
#[derive(Default)]
struct KnownCover {
    /// Grows with each change; odd while there is one.
    turn: AtomicU64,
    /// The epoch of `event`, plus one; 0: none.
    epoch: AtomicU64,
    event: AtomicU64,
    /// Held by whoever changes them.
    changing: Mutex<()>,
}

impl KnownCover {
    fn get(&self, epoch: u64) -> Option<EventNo> {
        // A reader that meets a value of a change sees that change's odd turn below, or a later turn.
        let turn = self.turn.load(Ordering::Acquire);
        let is_of_epoch = self.epoch.load(Ordering::Acquire) == epoch + 1;
        let event = EventNo(self.event.load(Ordering::Acquire));
        let is_whole = turn.is_multiple_of(2) && self.turn.load(Ordering::Relaxed) == turn;
        (is_of_epoch && is_whole).then_some(event)
    }

    fn set(&self, epoch: u64, event: EventNo) {
        let _changing = self.changing.lock();
        if self.epoch.load(Ordering::Relaxed) <= epoch + 1 {
            self.change(epoch + 1, event);
        }
    }

    fn clear(&self) {
        let _changing = self.changing.lock();
        self.change(0, EventNo(0));
    }

    fn change(&self, epoch: u64, event: EventNo) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn + 1, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Release);
        self.event.store(event.0, Ordering::Release);
        self.turn.store(turn + 2, Ordering::Release);
    }
}

/// Where a directory lies, as patterns see it.
#[derive(Debug)]
pub struct ExclusionScope {
    /// The nearest policy upwards that says what is excluded, with its directory.
    decides: Option<(InodeNo, Arc<Patterns>)>,
    /// The path from that directory.
    path: Vec<u8>,
    /// The directory is excluded, and so is everything below it.
    pub excluded: bool,
}

impl ExclusionScope {
    /// The scope of the root directory, on a volume where its policy does not say what is excluded.
    pub fn undecided() -> ExclusionScope {
        ExclusionScope { decides: None, path: Vec::new(), excluded: false }
    }

    /// The place of a directory whose own policy says what is excluded below it.
    pub fn deciding(by: InodeNo, patterns: Arc<Patterns>) -> ExclusionScope {
        ExclusionScope { decides: Some((by, patterns)), path: Vec::new(), excluded: false }
    }

    /// The place of a directory in this one.
    pub fn of_directory(&self, name: &[u8]) -> ExclusionScope {
        let excluded = self.excludes(name, true);
        ExclusionScope { decides: self.decides.clone(), path: self.path_of(name), excluded }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match self.path.is_empty() {
            true => name.to_vec(),
            false => [&self.path[..], b"/", name].concat(),
        }
    }

    /// The directory whose policy says what is excluded in this one.
    pub fn decided_by(&self) -> Option<InodeNo> {
        self.decides.as_ref().map(|(by, _)| *by)
    }

    /// Whether a file or directory of this name in the directory is excluded.
    pub fn excludes(&self, name: &[u8], is_directory: bool) -> bool {
        let Some((_, patterns)) = &self.decides else { return false };
        self.excluded || patterns.exclude(&self.path_of(name), is_directory)
    }
}

/// What is known of an inode.
#[derive(Clone)]
pub enum Known {
    /// Of a directory.
    Directory(Arc<ExclusionScope>),
    /// Of anything else: whether its name is excluded.
    Other(bool),
}

impl Known {
    /// Whether it is excluded.
    pub fn excluded(&self) -> bool {
        match self {
            Known::Directory(scope) => scope.excluded,
            Known::Other(excluded) => *excluded,
        }
    }
}

/// What a cell remembers about exclusion.
#[derive(Default)]
pub struct ExcludedMemo {
    /// The cookie of its name.
    pub(crate) cookie: AtomicU64,
    /// Counts changes of its name and of its policy.
    followed: AtomicU64,
    /// What is known, with the epoch as of which it is known.
    known: Mutex<Option<(u64, Known)>>,
    /// Its place in the order of the inodes that were born anew without a version; 0: it was not.
    pub renewed: AtomicU64,
}

impl ExcludedMemo {
    /// Notes that the inode has another name, or another policy.
    pub(crate) fn follow(&self, inode: &Inode) {
        self.cookie.store(inode.parent_cookie, Ordering::Relaxed);
        self.followed.fetch_add(1, Ordering::AcqRel);
        *self.known.lock() = None;
    }

    /// What [`ExcludedMemo::set`] compares.
    pub fn followed(&self) -> u64 {
        self.followed.load(Ordering::Acquire)
    }

    /// Its place in the order of the inodes that were born anew without a version; 0: it was not.
    pub fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Acquire)
    }

    /// The cookie of its name.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Ordering::Relaxed)
    }

    /// What is known as of an epoch.
    pub fn get(&self, epoch: u64) -> Option<Known> {
        self.known.lock().as_ref().filter(|(of, _)| *of == epoch).map(|(_, known)| known.clone())
    }

    /// Remembers what the caller has found out since it read `followed`, unless the name has changed since.
    pub fn set(&self, epoch: u64, followed: u64, known: Known) {
        let mut memo = self.known.lock();
        if self.followed() == followed {
            *memo = Some((epoch, known));
        }
    }
}

/// The patterns of one policy.
#[derive(Debug)]
pub struct Patterns(Gitignore);

impl Patterns {
    /// Compiles patterns. A pattern that cannot be compiled excludes nothing: no other program of this format
    /// accepts such a pattern, so it is damage, and too many versions harm nobody.
    pub fn new(of: InodeNo, patterns: &[String]) -> Patterns {
        let mut builder = builder();
        for pattern in patterns {
            if let Err(error) = builder.add_line(None, pattern) {
                tracing::warn!("the policy of inode {of} has a pattern that excludes nothing: {error}");
            }
        }
        Patterns(builder.build().unwrap_or_else(|error| {
            tracing::warn!("the patterns of the policy of inode {of} exclude nothing: {error}");
            Gitignore::empty()
        }))
    }

    /// Whether a path below the directory of the policy is excluded by itself, whatever is above it.
    fn exclude(&self, path: &[u8], is_directory: bool) -> bool {
        self.0.matched(OsStr::from_bytes(path), is_directory).is_ignore()
    }
}

/// A builder that reads patterns by the rules of policies.
pub fn builder() -> GitignoreBuilder {
    let mut builder = GitignoreBuilder::new(".");
    builder.allow_unclosed_class(false);
    builder
}

/// When versions are made of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ruled {
    /// When it is closed.
    pub at_close: bool,
    /// The directory or file that gets an event so many nanoseconds after it has changed.
    pub interval: Option<(InodeNo, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The event and the epoch were stored one after the other. A writer that lagged behind put its older
    /// event under the later epoch of another one, so a file was written over in place although a new
    /// snapshot had seen it.
    #[test]
    fn an_event_is_known_as_of_its_own_epoch() {
        const LAST: u64 = 100_000;
        let (memo, now) = (CoverMemo::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for epoch in 1..=LAST {
                    memo.set(epoch, EventNo(epoch));
                    now.store(epoch, Ordering::Release);
                }
            });
            scope.spawn(|| loop {
                let epoch = now.load(Ordering::Acquire);
                std::thread::yield_now();
                memo.set(epoch, EventNo(epoch));
                if epoch == LAST {
                    break;
                }
            });
            loop {
                let epoch = now.load(Ordering::Acquire);
                if let Some(event) = memo.get(epoch) {
                    assert!(event.0 >= epoch, "event {event} as of epoch {epoch}");
                }
                if epoch == LAST {
                    break;
                }
            }
        });
        assert_eq!(memo.get(LAST), Some(EventNo(LAST)));
    }

    /// An event of an earlier epoch does not replace one of a later epoch. A change of the inode clears both.
    #[test]
    fn what_is_known_later_stays() {
        let known = KnownCover::default();
        assert_eq!(known.get(0), None);
        known.set(6, EventNo(6));
        known.set(5, EventNo(5));
        assert_eq!((known.get(5), known.get(6)), (None, Some(EventNo(6))));
        known.clear();
        assert_eq!(known.get(6), None);
        known.set(6, EventNo(7));
        assert_eq!(known.get(6), Some(EventNo(7)));
    }
}
