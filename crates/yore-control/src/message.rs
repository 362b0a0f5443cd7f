//! Requests and answers.

use serde::{Deserialize, Serialize};
use yore_fs::{ListedCut, NewSnapshot, Number, OperationRow, Timestamp};

/// Most snapshots that one [`Request::Forget`] names.
pub const FORGET_MAX: usize = 256;

/// What is asked about the directory that is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Takes a snapshot of the directory. For root, the daemon's user and the directory's owner. [`Answer::Taken`].
    Take(Take),
    /// Changes what is said of a snapshot, or whether it is held, through any directory of the volume. For root, the daemon's user, and the
    /// owner of the directory that was cut, if nobody else took it; if the directory is gone, not for owners any more. The owner may hold
    /// what nobody else holds already, and release what nobody else holds (of a hold by nobody known: took). Durable when it returns.
    /// [`Answer::Done`].
    Describe {
        /// The snapshot.
        number: Number,
        /// What it gets.
        saying: Saying,
    },
    /// Forgets snapshots, all of them or none, through any directory of the volume, of the past, too. For root, the daemon's user, and the
    /// owner of the directory that was cut, if nobody else took the snapshot. When it returns they are forgotten for good; the space
    /// that they alone held is given back in the background. [`Answer::Done`].
    Forget {
        /// Which, 1 to [`FORGET_MAX`].
        numbers: Vec<Number>,
    },
    /// Lists snapshots. For everybody who may open the directory: those in which the directory can be seen, and those of directories below
    /// of which the asker could take one himself. Of what is above or beside nobody learns anything that `name@TIME` would not tell.
    /// [`Answer::Page`].
    List {
        /// The least number to list.
        from: Number,
    },
    /// That snapshot as of which the directory is seen; none in the present. [`Answer::Page`] with at most one row.
    Seen,
    /// Lists the snapshots of a file in the directory: the versions that a policy made. [`Answer::Page`].
    Versions {
        /// The file's name, which may have a time.
        name: Vec<u8>,
        /// The least number to list.
        from: Number,
    },
    /// That snapshot or version as of which a file is seen under a name; none in the present. [`Answer::Page`] with at most one row.
    VersionSeen {
        /// The file's name, which may have a time.
        name: Vec<u8>,
    },
    /// Who did what to the past of the volume, the latest first. Root and the daemon's user see all; others what they did, and what
    /// concerns directories and files that are theirs. [`Answer::Operations`].
    Operations {
        /// Only those before this place in the list; `None`: from the latest.
        before: Option<u64>,
    },
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
    /// It is not forgotten as long as the process that asks lives, not even for want of room. A process that the daemon cannot see, in
    /// another namespace of processes, takes one that can be forgotten like others.
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
        number: Number,
        /// Its time.
        time: Timestamp,
    },
    /// A part of a list of snapshots.
    Page(Page<ListedCut>),
    /// A part of the list of who did what, each with its place.
    Operations {
        /// The rows, the latest first.
        rows: Vec<(u64, OperationRow)>,
        /// The place before which to go on; `None` at the end of the list.
        next: Option<u64>,
    },
}

/// A part of a list, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows. None does not mean the end.
    pub rows: Vec<T>,
    /// The number to go on from; `None` at the end of the list.
    pub next: Option<Number>,
}
