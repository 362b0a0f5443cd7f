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
    /// The epoch of `event`, plus one; 0: none.
    epoch: AtomicU64,
    event: AtomicU64,
    /// Where it lies; for directories. This and the next two fields can be read without the inode's lock.
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

    /// Remembers the event. Events only grow with epochs, so a reader that finds a later one errs on the side
    /// of keeping.
    pub fn set(&self, epoch: u64, event: EventNo) {
        self.event.store(event.0, Ordering::Release);
        self.epoch.store(epoch + 1, Ordering::Release);
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
