//! What the cell of an inode remembers for history: which event covers it, when versions are made of it, and
//! whether policies exclude it. What these mean, and who finds them out, is above (`history/record/cover.rs`,
//! `history/versioning.rs`, `history/exclude.rs`).

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
    /// The epoch of `event`, plus one; 0: none.
    epoch: AtomicU64,
    event: AtomicU64,
    /// Of directories: what is above, to be read without its lock, as what follows.
    pub parent: AtomicU64,
    /// The last event of its own; 0: none.
    pub own_event: AtomicU64,
    /// Whether it has a policy.
    pub has_policy: AtomicBool,
    /// When versions are made of it (`history/policy.rs`), and as of which epochs that is known.
    pub versioning: Mutex<Option<(Epochs, Ruled)>>,
    /// Whether policies exclude it.
    pub excluded: ExcludedMemo,
}

/// Epochs of policies and of events.
pub type Epochs = (u64, u64);

impl CoverMemo {
    /// The inode's place or own event is this now.
    pub fn follow(&self, inode: &Inode) {
        self.parent.store(inode.parent.0, Ordering::Relaxed);
        self.own_event.store(inode.own_event.0, Ordering::Relaxed);
        self.has_policy.store(inode.has_policy, Ordering::Relaxed);
        self.epoch.store(0, Ordering::Release);
        *self.versioning.lock() = None;
        self.excluded.follow(inode);
    }

    /// The event that covers it, if that is known as of this epoch.
    pub fn get(&self, epoch: u64) -> Option<EventNo> {
        let known = self.epoch.load(Ordering::Acquire) == epoch + 1;
        known.then(|| EventNo(self.event.load(Ordering::Acquire)))
    }

    /// Events only grow with epochs, so a reader that finds a later one errs on the side of keeping.
    pub fn set(&self, epoch: u64, event: EventNo) {
        self.event.store(event.0, Ordering::Release);
        self.epoch.store(epoch + 1, Ordering::Release);
    }
}

/// Where a directory is, as patterns see it.
#[derive(Debug)]
pub struct Place {
    /// The nearest policy upwards that says what is excluded, with whose it is.
    decides: Option<(InodeNo, Arc<Patterns>)>,
    /// The path from there.
    path: Vec<u8>,
    /// The directory is excluded, and so is what is below it.
    pub excluded: bool,
}

impl Place {
    /// Of the root directory of a volume whose policy says nothing of this.
    pub fn undecided() -> Place {
        Place { decides: None, path: Vec::new(), excluded: false }
    }

    /// Of a directory whose own policy says what is excluded below it.
    pub fn deciding(by: InodeNo, patterns: Arc<Patterns>) -> Place {
        Place { decides: Some((by, patterns)), path: Vec::new(), excluded: false }
    }

    /// Of a directory in this one.
    pub fn of_directory(&self, name: &[u8]) -> Place {
        let excluded = self.excludes(name, true);
        Place { decides: self.decides.clone(), path: self.path_of(name), excluded }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match self.path.is_empty() {
            true => name.to_vec(),
            false => [&self.path[..], b"/", name].concat(),
        }
    }

    /// Whose policy says what is excluded in it.
    pub fn decided_by(&self) -> Option<InodeNo> {
        self.decides.as_ref().map(|(by, _)| *by)
    }

    /// Whether what has this name in the directory is excluded.
    pub fn excludes(&self, name: &[u8], is_directory: bool) -> bool {
        let Some((_, patterns)) = &self.decides else { return false };
        self.excluded || patterns.exclude(&self.path_of(name), is_directory)
    }
}

/// What is known of an inode.
#[derive(Clone)]
pub enum Known {
    /// Of a directory.
    Directory(Arc<Place>),
    /// Of anything else: whether its name is excluded.
    Other(bool),
}

impl Known {
    /// Whether it is excluded.
    pub fn excluded(&self) -> bool {
        match self {
            Known::Directory(place) => place.excluded,
            Known::Other(excluded) => *excluded,
        }
    }
}

/// What a cell remembers of it.
#[derive(Default)]
pub struct ExcludedMemo {
    /// The cookie of its name.
    pub(crate) cookie: AtomicU64,
    /// Counts its names and policies.
    followed: AtomicU64,
    /// With the epoch as of which it is known.
    known: Mutex<Option<(u64, Known)>>,
    /// The place in the order of those that were born anew without a version; 0: it was not.
    pub renewed: AtomicU64,
}

impl ExcludedMemo {
    /// The inode has another name, or another policy.
    pub(crate) fn follow(&self, inode: &Inode) {
        self.cookie.store(inode.parent_cookie, Ordering::Relaxed);
        self.followed.fetch_add(1, Ordering::AcqRel);
        *self.known.lock() = None;
    }

    /// What is compared by [`ExcludedMemo::set`].
    pub fn followed(&self) -> u64 {
        self.followed.load(Ordering::Acquire)
    }

    /// Its place in the order of those that were born anew without a version; 0: it was not.
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

    /// Remembers what was found out since `followed` was read, unless it has another name since.
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
    /// Compiles patterns. What cannot be compiled excludes nothing: no other program of this format takes
    /// such a pattern, so it is damage, and too many versions harm nobody.
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

    /// Whether a path below the directory of the policy is excluded by itself, whatever is above.
    fn exclude(&self, path: &[u8], is_directory: bool) -> bool {
        self.0.matched(OsStr::from_bytes(path), is_directory).is_ignore()
    }
}

/// What reads patterns, by the rules of policies.
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
    /// The directory or file that is cut so many nanoseconds after it has changed.
    pub interval: Option<(InodeNo, u64)>,
}
