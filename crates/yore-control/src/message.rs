//! Requests and answers.

mod expunge;
mod policy;
mod query;

pub use expunge::{Known, KnownFile, Named, Shown};
pub use policy::PolicyHere;
pub use query::{HistoryBytes, Identity, Query, QueryResult};

use serde::{Deserialize, Serialize};
use yore_fs::rollback::{Plan, RolledBack, UnfinishedRollback};
use yore_fs::{
    ChecksumsEntered, Defragmented, EventNo, FindingsRecord, ListedEvent, MissedVersions, NewSnapshot,
    OperationRow, Policy, Scrub, ScrubRecord, Scrubbed, SpaceRules, Timestamp, WouldFree,
};

/// Most snapshots that one [`Request::Forget`] names.
pub const FORGET_MAX: usize = 256;

/// A request. It goes to one directory, which is "the directory" below.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Takes a snapshot of the directory. For root, the daemon's user and the directory's owner.
    /// [`Answer::Taken`].
    Take(Take),
    /// Changes the description of a snapshot, or whether it is held, through any directory of the volume. For
    /// root, the daemon's user, and the owner of the event's directory, if nobody else took the snapshot;
    /// once that directory is gone, no longer for owners. The owner may hold the snapshot unless somebody
    /// else holds it, and release it unless somebody else holds it (or, if nobody knows who holds it, took
    /// it). Durable when it returns. [`Answer::Done`].
    Describe {
        /// The snapshot.
        number: EventNo,
        /// What changes.
        saying: Saying,
    },
    /// Forgets snapshots, all of them or none, through any directory of the volume, including directories of
    /// the past. For root, the daemon's user, and the owner of the event's directory, if nobody else took the
    /// snapshot. When it returns they are forgotten for good; the space that only they used is freed in the
    /// background. [`Answer::Done`].
    Forget {
        /// The snapshots, 1 to [`FORGET_MAX`].
        numbers: Vec<EventNo>,
    },
    /// Lists snapshots. For everybody who may open the directory: those in which the directory can be seen,
    /// and those of directories below of which the asker could take one too. Of directories above or beside
    /// it nobody learns anything that `name@TIME` would not reveal. [`Answer::Page`].
    List {
        /// The least number to list.
        from: EventNo,
    },
    /// The snapshot as of which the directory is seen; none in the present. [`Answer::Page`] with at most one
    /// row.
    Seen,
    /// Lists the snapshots of a file in the directory: the versions that a policy made. [`Answer::Page`].
    Versions {
        /// The file's name, which may have a time.
        name: Vec<u8>,
        /// The least number to list.
        from: EventNo,
    },
    /// The snapshot or version as of which a file is seen under a name; none in the present. [`Answer::Page`]
    /// with at most one row.
    VersionSeen {
        /// The file's name, which may have a time.
        name: Vec<u8>,
    },
    /// The last snapshot that has seen the directory, if any has. [`Answer::Page`] with at most one row.
    Last,
    /// Something about the past of the directory. [`Answer::QueryResult`].
    Query(Query),
    /// How far a question of the same user is that is being answered, or the volume with giving up what
    /// forgotten snapshots held, whoever has forgotten them. For everybody. [`Answer::HowFar`].
    HowFar {
        /// The question's name; `None`: the volume.
        question: Option<u64>,
    },
    /// The next part of a long answer to the same user. [`Answer::Part`].
    Rest {
        /// The answer's.
        key: u64,
        /// How many bytes of it there are already.
        at: u64,
    },
    /// The operations on the past of the volume, and who did them, the latest first. Root and the daemon's
    /// user see all; others see their own, and those that concern their directories and files.
    /// [`Answer::Operations`].
    Operations {
        /// Only rows before this place in the list; `None`: from the latest.
        before: Option<u64>,
    },
    /// Pins the snapshot as of which the file or directory is seen: it is neither forgotten nor given up as
    /// long as the asking process lives. But root and the daemon's user forget and expunge also what
    /// processes of others have pinned. For everybody who may open the file or directory, as far as there is
    /// room for the user. [`Answer::Pinned`].
    Pin,
    /// How much history a full volume keeps. Also on files, and for everybody. [`Answer::SpaceRules`].
    SpaceRules,
    /// Changes how much history a full volume keeps. For root and the daemon's user. Durable when it returns.
    /// [`Answer::Done`].
    SetSpaceRules(SpaceRules),
    /// The history that the volume gave up because it was full, the oldest first. Root and the daemon's user
    /// see it, others an empty list. [`Answer::Operations`].
    GivenUp {
        /// The least place in the list.
        from: u64,
    },
    /// The history that a full volume gives up by itself, and what would free more. For root and the daemon's
    /// user. The time it takes grows with all versions on the volume. [`Answer::WouldFree`].
    WouldFree,
    /// The versions that policies asked for and that were not made since the volume became full. For
    /// everybody. [`Answer::MissedVersions`].
    MissedVersions,
    /// Makes the volume longer. An image file grows to that length; a block device must already have it. For
    /// root and the daemon's user. Durable when it returns. [`Answer::Length`].
    Lengthen {
        /// The new length of the volume in bytes.
        bytes: u64,
    },
    /// Erases everything that no name leads to any more, after reclaiming what is being given up. For root
    /// and the daemon's user. The answer comes when all is durable; other requests go on meanwhile.
    /// [`Answer::Shredded`].
    Shred {
        /// A name for [`Request::BreakOff`]; 0 for none.
        question: u64,
    },
    /// The policy of the directory or file, and what applies to it. Only in the present. For everybody who
    /// may open it. [`Answer::Policy`].
    Policy,
    /// Gives the directory or file another policy. A policy that says nothing removes its own. For root, the
    /// daemon's user, and the owner. Only root and the daemon's user may change what it says of holds, and
    /// only root may shorten the time for which events are held. Durable when it returns. [`Answer::Done`].
    SetPolicy(Policy),
    /// Rolls the directory back. For root and the daemon's user; for the directory's owner if everything that
    /// is changed, removed or brought back belongs to the owner. The answer comes when all is durable and the
    /// kernel knows what has changed. Requests that concern the directory wait meanwhile.
    /// [`Answer::RolledBack`].
    RollBack(Plan),
    /// The rollbacks that have not ended, the first one first. For root and the daemon's user; others see
    /// those of their own directories. [`Answer::UnfinishedRollbacks`].
    UnfinishedRollbacks {
        /// The least place in the list.
        from: u64,
    },
    /// Everything the history knows of a name. For root, the daemon's user, and the user who owns all of it,
    /// now and in every version; others learn nothing of names in directories that are not theirs. Each part
    /// of the list is computed anew. [`Answer::HistoryOf`].
    HistoryOf {
        /// The name.
        of: Named,
        /// The least place in the list.
        from: u64,
        /// A name for [`Request::BreakOff`]; 0 for none.
        question: u64,
    },
    /// Gives that history up, in all snapshots at once. For the same users; an owner gives it up in snapshots
    /// that others took only on a mount that allows it. When it returns nobody sees any of it, and that is
    /// durable; the space is freed in the background. [`Answer::Expunged`], or [`Answer::OtherFiles`].
    Expunge {
        /// The name.
        of: Named,
        /// The files that the user agreed to. Nothing is given up if the name now covers other files.
        shown: Shown,
    },
    /// Whether an error has stopped all writing to the volume. Also on files, and for everybody.
    /// [`Answer::Stopped`].
    Stopped,
    /// Lays the file together, or all files below the directory, or tells what that takes. Breaks off if the
    /// volume is unmounted meanwhile. For root and the daemon's user. Other requests go on meanwhile.
    /// [`Answer::Defragmented`].
    Defragment {
        /// Only tells.
        dry_run: bool,
        /// A name for [`Request::HowFar`]; 0 for none.
        question: u64,
    },
    /// Checks the whole volume while it is in use, repairs what can be repaired at once, and records the
    /// rest. [`Request::HowFar`] has milliseconds. For root and the daemon's user. Other requests go on
    /// meanwhile, but for another check. [`Answer::Checked`], or [`Answer::CheckBrokenOff`].
    Check {
        /// How many findings the answer has at most.
        findings_max: u64,
        /// Bytes of metadata that the check holds at most.
        memory: u64,
        /// A name for [`Request::HowFar`]; 0 for none.
        question: u64,
    },
    /// What the last check found and left. For root and the daemon's user. [`Answer::Findings`].
    Findings,
    /// Reads the volume's metadata, and all data that has checksums, and tells what is damaged. For root and
    /// the daemon's user. Other requests go on meanwhile. [`Answer::Scrubbed`].
    Scrub {
        /// How fast, where it begins, and how often it is recorded where it is.
        how: Scrub,
        /// A name for [`Request::HowFar`]; 0 for none.
        question: u64,
    },
    /// Whether the volume keeps checksums of file data; if asked to, it does so from now on, and what has
    /// none gets one, unless the volume is unmounted meanwhile. For root and the daemon's user. Other
    /// requests go on meanwhile. [`Answer::Checksums`].
    Checksums {
        /// Whether it shall.
        enable: bool,
        /// A name for [`Request::HowFar`]; 0 for none.
        question: u64,
    },
    /// Whether leaks of a crash may be pending, and how far the recount of them is. [`Answer::Leaks`].
    Leaks,
    /// Breaks off a scrub of the same user, or another question that takes long. Its own answer then says so,
    /// or where it goes on; or it is an error. [`Answer::Done`], whether there is one or not.
    BreakOff {
        /// The question's name.
        question: u64,
    },
    /// How far a scrub is, and how the last one ended. For root and the daemon's user. [`Answer::Scrubs`].
    Scrubs,
}

impl Request {
    /// Whether the request changes something, so that it is refused where the mount is read-only.
    pub fn changes(&self) -> bool {
        use Request::*;
        let of_history =
            matches!(self, Take(_) | Describe { .. } | Forget { .. } | RollBack(_) | Expunge { .. });
        of_history
            || matches!(self, SetPolicy(_) | SetSpaceRules(_) | Lengthen { .. } | Shred { .. })
            || matches!(self, Defragment { dry_run: false, .. } | Checksums { enable: true, .. })
    }

    /// Whether everything that programs have written must be on the volume first.
    pub(crate) fn needs_what_was_written(&self) -> bool {
        matches!(self, Request::Take(_) | Request::Shred { .. } | Request::RollBack(_))
    }

    /// Whether stores through mappings must be on the volume first, too.
    pub fn needs_stores(&self) -> bool {
        matches!(self, Request::Take(_) | Request::RollBack(_))
    }

    /// Whether it waits for other requests, or may take long, so that no thread that serves others may answer
    /// it.
    pub fn waits(&self) -> bool {
        use Request::*;
        self.needs_what_was_written()
            || match self {
                Defragment { .. } | Check { .. } | Scrub { .. } | Checksums { .. } | WouldFree => true,
                Query(query) => query.takes_long(),
                HistoryOf { of, .. } | Expunge { of, .. } => of.below,
                _ => false,
            }
    }

    /// The name under which [`Request::BreakOff`] breaks it off, if it may take long.
    pub(crate) fn question_mut(&mut self) -> Option<&mut u64> {
        use Request::*;
        match self {
            Defragment { question, .. }
            | Check { question, .. }
            | Scrub { question, .. }
            | Checksums { question, .. }
            | Shred { question }
            | HistoryOf { question, .. } => Some(question),
            Query(query) => query.question_mut(),
            _ => None,
        }
    }

    /// Whether it works on files, too, and not only on directories.
    pub(crate) fn is_of_files(&self) -> bool {
        use Request::*;
        let of_space =
            matches!(self, SpaceRules | SetSpaceRules(_) | GivenUp { .. } | WouldFree | MissedVersions);
        of_space || matches!(self, Pin | Policy | SetPolicy(_) | Stopped | Defragment { .. })
    }
}

/// A snapshot to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// Its name; empty for none.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Whether it is held.
    pub held: bool,
    /// Why it is held.
    pub hold_reason: String,
    /// The time that it gets, on the root directory only. `None`: now.
    pub time: Option<Timestamp>,
    /// It is taken before, or after, something that can be undone.
    pub undo: bool,
    /// It is durable when the answer comes.
    pub wait: bool,
    /// It is not forgotten as long as the asking process lives, not even for want of space, as after
    /// [`Request::Pin`]; it is not taken if there is no room for that. If the daemon cannot see that process,
    /// because it is in another namespace of processes, the snapshot can be forgotten like others.
    pub stays: bool,
}

impl Take {
    /// The library's form of it, which names no user yet.
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

/// Changes to a snapshot. A field that is `None` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saying {
    /// Another name; empty for none.
    pub name: Option<String>,
    /// Another description; empty for none.
    pub description: Option<String>,
    /// Hold it for this reason, or (`Some(None)`) release it.
    pub hold: Option<Option<String>>,
}

/// An answer.
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
    /// Something about the past of the directory.
    QueryResult(QueryResult),
    /// What is done, and all that there is to do as far as that is known: in no unit, but in proportion to
    /// time. `None`: nobody asks such a question now, or nothing is left to be given up.
    HowFar(Option<(u64, u64)>),
    /// A part of the bytes of an answer that is too long for one buffer.
    Part {
        /// To ask for the rest.
        key: u64,
        /// Bytes of the whole answer.
        length: u64,
        /// Those of the part.
        bytes: Vec<u8>,
    },
    /// A part of a list of operations, each with its place.
    Operations {
        /// The rows, in the order of the list.
        rows: Vec<(u64, OperationRow)>,
        /// The place to go on from, or to stop before; `None` at the end of the list.
        next: Option<u64>,
    },
    /// Whether there is a snapshot to pin, and one more process can be watched.
    Pinned(bool),
    /// How much history a full volume keeps.
    SpaceRules(SpaceRules),
    /// What would free space.
    WouldFree(WouldFree),
    /// Versions that were not made; `None` if there are none.
    MissedVersions(Option<MissedVersions>),
    /// The volume's length.
    Length {
        /// In bytes.
        bytes: u64,
        /// Whether it was shorter before.
        longer: bool,
    },
    /// The free space is erased.
    Shredded {
        /// Free blocks that had to be left out, because all free space was promised to writers. Another
        /// request later erases them.
        blocks_left_out: u64,
    },
    /// A policy.
    Policy(Box<PolicyHere>),
    /// What was rolled back.
    RolledBack(RolledBack),
    /// A part of a list of rollbacks that have not ended.
    UnfinishedRollbacks {
        /// Each with the present path of its directory on the volume, if it is still there.
        rows: Vec<(UnfinishedRollback, Option<Vec<u8>>)>,
        /// The place to go on from; `None` at the end of the list.
        next: Option<u64>,
    },
    /// What the history knows of a name.
    HistoryOf {
        /// The totals.
        known: Known,
        /// A part of the files.
        rows: Vec<KnownFile>,
        /// The place to go on from; `None` at the end of the list.
        next: Option<u64>,
    },
    /// How much history was given up.
    Expunged(Known),
    /// The name covers other files than those that were shown. Nothing was given up.
    OtherFiles,
    /// Why nothing is written any more; `None` if writing goes on.
    Stopped(Option<Stopped>),
    /// How files lay, and how they lie now. Nothing has moved if it was only to be told.
    Defragmented(Defragmented),
    /// The volume was checked.
    Checked(Checked),
    /// The check was broken off, because the volume is to be unmounted. Nothing was recorded.
    CheckBrokenOff,
    /// What the last check found and left; `None` if nothing is recorded.
    Findings(Option<FindingsRecord>),
    /// How far a scrub is, and how the last one ended.
    Scrubs {
        /// What the volume says.
        record: ScrubRecord,
        /// One is under way now.
        is_under_way: bool,
    },
    /// What a scrub has found.
    Scrubbed(Box<Scrubbed>),
    /// Whether the volume keeps checksums of file data, and what was done for that.
    Checksums {
        /// It does.
        kept: bool,
        /// What was done.
        entered: ChecksumsEntered,
    },
    /// What is known of leaks that a crash has left.
    Leaks {
        /// There may be some.
        pending: bool,
        /// How far they are recounted, in percent; `None` if that is not under way.
        percent: Option<u8>,
    },
}

/// The result of a check of a volume in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Nothing that was found is left.
    pub is_clean: bool,
    /// The report as JSON, as `yore check --json` has it.
    pub json: String,
    /// The same for people.
    pub text: String,
}

/// An error has stopped all writing to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The first error, for people.
    pub why: String,
    /// When it came, in seconds since 1970.
    pub since_seconds: u64,
}

/// A part of a list, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows. An empty page does not mean the end.
    pub rows: Vec<T>,
    /// The number to go on from; `None` at the end of the list.
    pub next: Option<EventNo>,
}
