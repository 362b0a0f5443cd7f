//! Switches that make the engine wrong, one way at a time, for tests that prove that crash tests find the
//! mistake.
//!
//! They exist only with the feature `mutations`, which no release has. A switch is for the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutation {
    /// Nothing.
    None,
    /// Blocks that a generation freed are given back before its superblock is written (R2, R3).
    BlocksReusedEarly,
    /// Slots that the last complete generation uses count as free (R2).
    SlotsReusedEarly,
    /// The part of the log that a generation makes superfluous is given back before its superblock is written
    /// (R2).
    LogReusedEarly,
    /// Superblocks do not say where replay starts (R9).
    StalePosition,
    /// Data that only the log has is not carried over into the next generation (R9).
    OutstandingForgotten,
    /// A record that says that data is at home is written without a flush of that data (R4).
    HomeTooEarly,
    /// A batch of the log is believed by its header alone (R10).
    TornRecordAccepted,
    /// Changes are written without the order between them, each block as it was frozen.
    EdgesDropped,
    /// The rounds of a pass are written without a flush between them.
    RoundsUnflushed,
    /// Indexes and inodes that were freed are used again in the same generation (U2).
    HeldReusedEarly,
    /// A new block is written in the same round as the header that names it.
    NamedAtOnce,
    /// Changes in place that name data, or need numbers, are written before the flush behind the superblock.
    AheadOfData,
    /// A pass writes no superblock whatever the last one says.
    BoundsIgnored,
    /// What an fsync writes of a generation lacks what it waits for.
    PartWithoutFirsts,
    /// It has the number of the running generation.
    PartNumberedLate,
    /// A mount after a crash believes the header that the table names, although there is a newer one.
    OlderBelieved,
    /// A rename over a file does not write the new file's data first (R12).
    RenameBeforeData,
    /// What versions name is written over and freed as if it belonged to the present alone (P3).
    RecordedReused,
    /// An inode that has a version is changed after another event without keeping it again (P1).
    RecordedOnce,
    /// A version is kept before the file's data is written back (P4).
    RecordedBeforeData,
    /// A snapshot that is waited for is not waited for.
    SnapshotNotForced,
    /// A version that kept events have seen is given up with others (V9).
    ForgottenNeeded,
    /// What the next state has, too, is freed with a version that is given up (V9).
    ForgottenShared,
    /// What an event has seen is changed before it has died on the medium (V13).
    ForgottenUnforced,
    /// What only the past holds is not counted when a file lets go of it.
    HistoryUncounted,
    /// A file gains blocks of another without counting the reference.
    CountNotRaised,
    /// Blocks that another file has, too, are written over in place.
    SharedWrittenOver,
    /// A block with more than two references loses two when one ends.
    CountLoweredTwice,
    /// A block that was shared until this generation is written over before the generation is complete.
    LoweredForgotten,
    /// A flush leaves late data where it is (L2).
    LateLeftOut,
    /// Late data is written behind the flush that was to cover it (L2).
    LateBehindFlush,
    /// What is late of a block comes over newer bytes (L3).
    LateOverwritten,
    /// No row is appended for what ends (A1).
    RowDropped,
    /// The last row of a batch gets no keys, and the watermark goes up to it (A3).
    WatermarkAhead,
    /// A row is removed, and its keys stay (A5).
    KeyLeft,
    /// A row goes whole when one of its two facts is not needed any more (A6).
    BothForgotten,
    /// A look-up asks the index alone (A7).
    IndexAlone,
    /// What a name means next, as the index has it, is the answer, though it began later (A7b).
    LaterNameAccepted,
    /// Some of what files leave to their versions is not noted for the sums of what snapshots hold.
    SpanLeftOut,
    /// What a walk has just counted for these sums is counted again from the notes.
    SpanTwice,
    /// Blocks that a generation freed are discarded before its superblock is written (R2, R3).
    DiscardedEarly,
    /// Blocks are discarded some time after they have become available.
    DiscardedLate,
    /// A file that is laid together gets blocks to which nothing was copied.
    MovedUncopied,
    /// The checksum of a block that gets new data is not entered.
    ChecksumNotEntered,
    /// It is entered by a later Op than the one that names the block.
    ChecksumLate,
    /// Blocks with checksums are written over in place.
    ChecksummedInPlace,
    /// `journal` writes blocks in place before the log is forced.
    BlocksBeforeLog,
    /// `journal` writes in place what the log does not have.
    UnloggedInPlace,
    /// `journal` gets no record of what changed last before a generation.
    LastRecordDropped,
    /// A record names data that is not flushed (R4).
    NamedUnflushed,
    /// Data that was written over blocks in use is not flushed before a record in a log elsewhere (R4).
    OverwrittenUnflushed,
    /// A log elsewhere is accepted whatever session its anchor has.
    OldSessionAccepted,
    /// A log that moves is given up before a superblock names the new one.
    OldLogGivenUpEarly,
    /// Replay puts an older record in place over a newer one.
    RecordsSwapped,
    /// Records follow a generation that is not in the log as a whole, before its superblock (R9).
    ContinuedEarly,
    /// Replay ends at a generation whose superblock is missing, though the log has all of it.
    ContinuedIgnored,
    /// A call that should be durable when it returns does not wait.
    Unsettled,
    /// That versions of a file share blocks with others is not noted for the sums of what snapshots hold.
    SharingUnnoted,
    /// What a hint says that snapshots hold is believed whenever the volume was closed with it.
    OldHintBelieved,
    /// Such a hint is written though something changed while it was.
    HintUnasked,
    /// What a shadow needs is saved behind the write that goes over it (W1).
    SavedBehindWrite,
    /// A recount that begins says that the volume has no leaks, before anything is repaired.
    LeaksDeniedEarly,
}

static NOW: AtomicU8 = AtomicU8::new(Mutation::None as u8);

/// Makes the engine wrong in this way, and in no other, from now on.
pub fn set(mutation: Mutation) {
    NOW.store(mutation as u8, Ordering::SeqCst);
    yore_log::mutation::ACCEPT_TORN.store(mutation == Mutation::TornRecordAccepted, Ordering::SeqCst);
}

/// Whether it is wrong in this way.
pub fn is(mutation: Mutation) -> bool {
    NOW.load(Ordering::SeqCst) == mutation as u8
}
