//! Requests and answers.

mod expunge;
mod policy;

pub use expunge::{Known, KnownFile, Named};
pub use policy::PolicyHere;

use serde::{Deserialize, Serialize};
use yore_fs::rollback::{Plan, RolledBack, UnfinishedRollback};
use yore_fs::{
    EventNo, ListedEvent, MissedVersions, NewSnapshot, OperationRow, Policy, SpaceRules, Timestamp, WouldFree,
};

/// Most snapshots that one [`Request::Forget`] names.
pub const FORGET_MAX: usize = 256;

/// What is asked about the directory that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Takes a snapshot of the directory. For root, the daemon's user and the directory's owner.
    /// [`Answer::Taken`].
    Take(Take),
    /// Changes what is said of a snapshot, or whether it is held, through any directory of the volume. For
    /// root, the daemon's user, and the owner of the directory that the event is of, if nobody else took it;
    /// if the directory is gone, not for owners any more. The owner may hold what nobody else holds already,
    /// and release what nobody else holds (of a hold by nobody known: took). Durable when it returns.
    /// [`Answer::Done`].
    Describe {
        /// The snapshot.
        number: EventNo,
        /// What it gets.
        saying: Saying,
    },
    /// Forgets snapshots, all of them or none, through any directory of the volume, of the past, too. For
    /// root, the daemon's user, and the owner of the directory that the event is of, if nobody else took the
    /// snapshot. When it returns they are forgotten for good; the space that they alone held is given back in
    /// the background. [`Answer::Done`].
    Forget {
        /// Which, 1 to [`FORGET_MAX`].
        numbers: Vec<EventNo>,
    },
    /// Lists snapshots. For everybody who may open the directory: those in which the directory can be seen,
    /// and those of directories below of which the asker could take one himself. Of what is above or beside
    /// nobody learns anything that `name@TIME` would not tell. [`Answer::Page`].
    List {
        /// The least number to list.
        from: EventNo,
    },
    /// That snapshot as of which the directory is seen; none in the present. [`Answer::Page`] with at most
    /// one row.
    Seen,
    /// Lists the snapshots of a file in the directory: the versions that a policy made. [`Answer::Page`].
    Versions {
        /// The file's name, which may have a time.
        name: Vec<u8>,
        /// The least number to list.
        from: EventNo,
    },
    /// That snapshot or version as of which a file is seen under a name; none in the present.
    /// [`Answer::Page`] with at most one row.
    VersionSeen {
        /// The file's name, which may have a time.
        name: Vec<u8>,
    },
    /// Who did what to the past of the volume, the latest first. Root and the daemon's user see all; others
    /// what they did, and what concerns directories and files that are theirs. [`Answer::Operations`].
    Operations {
        /// Only those before this place in the list; `None`: from the latest.
        before: Option<u64>,
    },
    /// The snapshot as of which what is asked is seen is not forgotten, and not given up, as long as the
    /// process that asks lives. Of files, too, and for everybody who may open it. [`Answer::Pinned`].
    Pin,
    /// How much history a full volume keeps. Of files, too, and for everybody. [`Answer::SpaceRules`].
    SpaceRules,
    /// Changes that. For root and the daemon's user. Durable when it returns. [`Answer::Done`].
    SetSpaceRules(SpaceRules),
    /// What the volume gave up because it was full, the oldest first. Root and the daemon's user see it,
    /// others an empty list. [`Answer::Operations`].
    GivenUp {
        /// The least place in the list.
        from: u64,
    },
    /// What a full volume gives up by itself, and what would free more. For root and the daemon's user. It
    /// takes time for all versions on the volume. [`Answer::WouldFree`].
    WouldFree,
    /// The versions that policies asked for and that were not made since the volume became full. For
    /// everybody. [`Answer::MissedVersions`].
    MissedVersions,
    /// Makes the volume longer; its image file is made as long, a block device must be. For root and the
    /// daemon's user. Durable when it returns. [`Answer::Length`].
    Lengthen {
        /// How many bytes the volume shall have.
        bytes: u64,
    },
    /// Erases what nothing names any more, after giving up what is being given up. For root and the daemon's
    /// user. It is answered when all is durable; others go on meanwhile. [`Answer::Shredded`].
    Shred,
    /// The policy of the directory, and what applies to it; of files, too, and of the present only. For
    /// everybody who may open it. [`Answer::Policy`].
    Policy,
    /// Gives the directory or file another policy, or with one that says nothing none. For root, the daemon's
    /// user, and the owner. Only root and the daemon's user may say anything else of holding than before, and
    /// only root so that what policies take is held for a shorter time. Durable when it returns.
    /// [`Answer::Done`].
    SetPolicy(Policy),
    /// Makes the directory what it was. For root and the daemon's user; for the directory's owner if all that
    /// is changed, removed or brought back is the owner's. It is answered when all is durable and the kernel
    /// knows what is not as it was any more; requests that concern the directory wait meanwhile.
    /// [`Answer::RolledBack`].
    RollBack(Plan),
    /// The rollbacks that did not end, the first one first. For root and the daemon's user; others see those
    /// of their own directories. [`Answer::UnfinishedRollbacks`].
    UnfinishedRollbacks {
        /// The least place in the list.
        from: u64,
    },
    /// What the history knows of a name. For root, the daemon's user, and who owns all of it, now and in
    /// every version; others learn nothing of names in directories that are not theirs. Each part of the list
    /// is made anew. [`Answer::HistoryOf`].
    HistoryOf {
        /// The name.
        of: Named,
        /// The least place in the list.
        from: u64,
    },
    /// Gives that up, in all snapshots at once. For the same; who owns it gives it up in snapshots that
    /// others took only on a mount that allows it. Nobody sees any of it when it returns, and that is
    /// durable; the space is given back in the background. [`Answer::Expunged`].
    Expunge(Named),
    /// Whether an error has stopped all writing to the volume. Of files, too, and for everybody.
    /// [`Answer::Stopped`].
    Stopped,
}

impl Request {
    /// Whether it changes something.
    pub(crate) fn changes(&self) -> bool {
        use Request::*;
        let of_history = matches!(self, Take(_) | Describe { .. } | Forget { .. } | RollBack(_) | Expunge(_));
        of_history || matches!(self, SetPolicy(_) | SetSpaceRules(_) | Lengthen { .. } | Shred)
    }

    /// Whether all that programs have written must be on the volume before.
    pub(crate) fn needs_what_was_written(&self) -> bool {
        matches!(self, Request::Take(_) | Request::Shred | Request::RollBack(_))
    }

    /// Whether what programs have stored through mappings must be on the volume before, too.
    pub fn needs_stores(&self) -> bool {
        matches!(self, Request::Take(_) | Request::RollBack(_))
    }

    /// Whether it waits for what other requests do, or long, so that no thread that serves others may answer
    /// it.
    pub fn waits(&self) -> bool {
        self.needs_what_was_written()
    }

    /// Whether files are asked, too, and not only directories.
    pub(crate) fn is_of_files(&self) -> bool {
        use Request::*;
        let of_space =
            matches!(self, SpaceRules | SetSpaceRules(_) | GivenUp { .. } | WouldFree | MissedVersions);
        of_space || matches!(self, Pin | Policy | SetPolicy(_) | Stopped)
    }
}

/// A snapshot to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// Its name; empty: it has none.
    pub name: String,
    /// What is said of it.
    pub description: String,
    /// It is held.
    pub held: bool,
    /// Why.
    pub hold_reason: String,
    /// When it says it was taken, of the root directory alone. `None`: now.
    pub time: Option<Timestamp>,
    /// It is taken before, or after, something that can be undone.
    pub undo: bool,
    /// It is durable when the answer comes.
    pub wait: bool,
    /// It is not forgotten as long as the process that asks lives, not even for want of room. A process that
    /// the daemon cannot see, in another namespace of processes, takes one that can be forgotten like others.
    pub stays: bool,
}

impl Take {
    /// As the library wants it, for nobody yet.
    pub fn new_snapshot(&self) -> NewSnapshot<'_> {
        NewSnapshot {
            name: &self.name,
            description: &self.description,
            held: self.held,
            hold_reason: &self.hold_reason,
            user: None,
            time: self.time,
            undo: self.undo,
            wait: self.wait,
        }
    }
}

/// What a snapshot gets. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saying {
    /// Another name; an empty one: none.
    pub name: Option<String>,
    /// Another description; an empty one: none.
    pub description: Option<String>,
    /// It is held for this reason, or (`Some(None)`) released.
    pub hold: Option<Option<String>>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// A snapshot was taken.
    Taken {
        /// Its number.
        number: EventNo,
        /// Its time.
        time: Timestamp,
    },
    /// A part of a list of snapshots.
    Page(Page<ListedEvent>),
    /// A part of a list of operations, each with its place.
    Operations {
        /// The rows, in the order of the list.
        rows: Vec<(u64, OperationRow)>,
        /// The place to go on from, or before which to; `None` at the end of the list.
        next: Option<u64>,
    },
    /// Whether there is a snapshot to keep, and one process more can be watched.
    Pinned(bool),
    /// How much history a full volume keeps.
    SpaceRules(SpaceRules),
    /// What would free space.
    WouldFree(WouldFree),
    /// Versions that were not made; `None`: there are none.
    MissedVersions(Option<MissedVersions>),
    /// The volume's length.
    Length {
        /// In bytes.
        bytes: u64,
        /// It was shorter before.
        longer: bool,
    },
    /// It is erased.
    Shredded {
        /// Free blocks that had to be left out, because all that is free was promised to writers. They are
        /// erased by asking again later.
        blocks_left_out: u64,
    },
    /// A policy.
    Policy(Box<PolicyHere>),
    /// What was rolled back.
    RolledBack(RolledBack),
    /// A part of a list of rollbacks that did not end.
    UnfinishedRollbacks {
        /// Each with the path of its directory on the volume as it is now, if it is still there.
        rows: Vec<(UnfinishedRollback, Option<Vec<u8>>)>,
        /// The place to go on from; `None` at the end of the list.
        next: Option<u64>,
    },
    /// What the history knows of a name.
    HistoryOf {
        /// All in all.
        known: Known,
        /// A part of the files.
        rows: Vec<KnownFile>,
        /// The place to go on from; `None` at the end of the list.
        next: Option<u64>,
    },
    /// How much history was given up.
    Expunged(Known),
    /// Why nothing is written any more; `None`: the volume is written.
    Stopped(Option<Stopped>),
}

/// An error has stopped all writing to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The error that came first, for people.
    pub why: String,
    /// When it came, in seconds since 1970.
    pub since_seconds: u64,
}

/// A part of a list, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows. None does not mean the end.
    pub rows: Vec<T>,
    /// The number to go on from; `None` at the end of the list.
    pub next: Option<EventNo>,
}
