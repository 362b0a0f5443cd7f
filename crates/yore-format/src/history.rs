//! What is kept of the past: the roots of its trees, and the cells in them.
//!
//! | tree | key | value |
//! |---|---|---|
//! | cuts, forgotten | number (8) | [`CutRow`] |
//! | cut index | root inode, number (8, 8); or name hash with its first bit set, number | nothing |
//! | versions | inode, born (8, 8) | [`Version`] |
//! | names | directory, cookie, birth (8, 8, 8) | [`PastName`] |
//! | changes | number, inode, 0; or number, directory, cookie (8, 8, 8) | nothing |
//! | policies | inode (8) | [`crate::PolicyRow`] |
//! | operations | class, sequence (8, 8) | [`crate::OperationRow`] |
//!
//! Keys are big-endian, so that they sort as bytes. Versions, names and changes are in [`HISTORY_SHARDS`]
//! trees each: an inode's versions and changes and a directory's names are in those of [`version_shard`] and
//! [`name_shard`], so that threads at work on different files seldom meet. One block ([`HistoryRoots`]), made
//! with the first cut or policy, holds all roots, and how many blocks the past alone holds
//! ([`HistorySpace`]).

use crate::{
    Block, BlockHeader, Corruption, DirEntry, Incarnation, Inode, InodeNo, MetaAddr, Number, Timestamp,
    Touched, BLOCK_SIZE, HEADER_BYTES, INODE_BYTES, NAME_MAX,
};
mod more;
mod operations;

pub use more::{CutMore, ForgottenFor, DESCRIPTION_MAX, HOLD_REASON_MAX};
pub use operations::{
    operation_key, OperationKind, OperationRow, RowClass, OPERATION_NOTE_MAX, OPERATION_PATH_MAX,
};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Trees of versions, of names, and of changes.
pub const HISTORY_SHARDS: usize = 16;
/// Roots in the block of roots.
pub const HISTORY_ROOTS: usize = FIRST_ROOTS + LATER_ROOTS;
/// Those in front of the counts of blocks.
const FIRST_ROOTS: usize = 4 + 3 * HISTORY_SHARDS;
/// Those behind them, which format 2.2 added.
const LATER_ROOTS: usize = 1;
/// Bytes of a version before the words of its inode.
pub const VERSION_FIXED_BYTES: usize = 16;
/// Bytes of a cut's row before its name.
pub const CUT_FIXED_BYTES: usize = 32;
/// Bytes of a past name before its entry.
const DEATH_BYTES: usize = 8;
const ROOTS_AT: usize = HEADER_BYTES;
const NAME_HASH: u64 = 1 << 63;

/// The trees of the past, as their roots stand in the block of roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HistoryTree {
    /// The events that are kept or being forgotten, by number.
    Cuts,
    /// The same by root and by name.
    CutIndex,
    /// What inodes were.
    Versions(usize),
    /// What names meant.
    Names(usize),
    /// Which inodes have a version, and which directories a past name, that ended when.
    Changes(usize),
    /// The events that were forgotten, by number.
    Forgotten,
    /// How often versions are made of what, and how long they are kept, by inode.
    Policies,
    /// Who did what to the past, and what a full volume gave up.
    Operations,
}

impl HistoryTree {
    /// Its place among the roots.
    ///
    /// # Panics
    /// For a shard that there is not.
    pub fn index(self) -> usize {
        let shard = |s: usize| {
            assert!(s < HISTORY_SHARDS, "a shard of the history below {HISTORY_SHARDS}, not {s}");
            3 * s
        };
        match self {
            HistoryTree::Cuts => 0,
            HistoryTree::CutIndex => 1,
            HistoryTree::Versions(s) => 2 + shard(s),
            HistoryTree::Names(s) => 3 + shard(s),
            HistoryTree::Changes(s) => 4 + shard(s),
            HistoryTree::Forgotten => FIRST_ROOTS - 2,
            HistoryTree::Policies => FIRST_ROOTS - 1,
            HistoryTree::Operations => FIRST_ROOTS,
        }
    }

    /// All of them, in the order of their roots.
    pub fn all() -> impl Iterator<Item = HistoryTree> {
        let shards = (0..HISTORY_SHARDS)
            .flat_map(|s| [HistoryTree::Versions(s), HistoryTree::Names(s), HistoryTree::Changes(s)]);
        let first = [HistoryTree::Cuts, HistoryTree::CutIndex];
        let last = [HistoryTree::Forgotten, HistoryTree::Policies, HistoryTree::Operations];
        first.into_iter().chain(shards).chain(last)
    }

    /// What its nodes are.
    pub fn kind(self) -> crate::BlockKind {
        match self {
            HistoryTree::Cuts | HistoryTree::Forgotten => crate::BlockKind::Cuts,
            HistoryTree::CutIndex => crate::BlockKind::CutIndex,
            HistoryTree::Versions(_) => crate::BlockKind::Versions,
            HistoryTree::Names(_) => crate::BlockKind::Names,
            HistoryTree::Changes(_) => crate::BlockKind::Changes,
            HistoryTree::Policies => crate::BlockKind::Policies,
            HistoryTree::Operations => crate::BlockKind::Operations,
        }
    }

    /// Whom its nodes belong to.
    pub fn owner(self) -> InodeNo {
        match self {
            HistoryTree::Cuts | HistoryTree::CutIndex | HistoryTree::Forgotten => InodeNo::CUTS,
            _ => InodeNo::HISTORY,
        }
    }

    /// Bytes of its keys.
    pub fn key_width(self) -> usize {
        match self {
            HistoryTree::Cuts | HistoryTree::Forgotten | HistoryTree::Policies => 8,
            HistoryTree::Names(_) | HistoryTree::Changes(_) => 24,
            HistoryTree::CutIndex | HistoryTree::Versions(_) | HistoryTree::Operations => 16,
        }
    }
}

/// The shard that keeps the versions of an inode: the same for those of 64 numbers, which are often made and
/// removed together and then are neighbours in it.
pub fn version_shard(inode: InodeNo) -> usize {
    shard(inode.0 / 64)
}

/// The shard that keeps the past names in a directory.
pub fn name_shard(directory: InodeNo) -> usize {
    shard(directory.0)
}

fn shard(of: u64) -> usize {
    (of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRoot {
    root: U64,
    level: u8,
    reserved: [u8; 7],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSpace {
    data: U64,
    nodes: U64,
    trees: U64,
}

const ROOT_BYTES: usize = size_of::<RawRoot>();
const ROOTS_END: usize = ROOTS_AT + FIRST_ROOTS * ROOT_BYTES;
const SPACE_END: usize = ROOTS_END + size_of::<RawSpace>();
const LATER_END: usize = SPACE_END + LATER_ROOTS * ROOT_BYTES;

/// Where the root of this index stands in the block of roots.
fn root_at(index: usize) -> usize {
    match index.checked_sub(FIRST_ROOTS) {
        None => ROOTS_AT + index * ROOT_BYTES,
        Some(later) => SPACE_END + later * ROOT_BYTES,
    }
}

/// Blocks that would be free if there were no past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistorySpace {
    /// Data blocks that versions name and no inode in use.
    pub data: u64,
    /// Nodes of inodes' trees that versions name and no inode in use.
    pub nodes: u64,
    /// Nodes of the trees of the past themselves, and the block of their roots.
    pub trees: u64,
}

impl HistorySpace {
    /// All of them.
    pub fn blocks(&self) -> u64 {
        self.data.saturating_add(self.nodes).saturating_add(self.trees)
    }
}

/// A change of [`HistorySpace`]: what came (or, below zero, went) of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryGrowth {
    /// Data blocks.
    pub data: i64,
    /// Nodes of inodes' trees.
    pub nodes: i64,
    /// Nodes of the trees of the past.
    pub trees: i64,
}

impl HistoryGrowth {
    /// Whether nothing came or went.
    pub fn is_none(&self) -> bool {
        *self == HistoryGrowth::default()
    }
}

/// The block of roots.
pub struct HistoryRoots;

impl HistoryRoots {
    /// Root and level of a tree; no root: it has no cells.
    pub fn get(block: &Block, tree: HistoryTree) -> (MetaAddr, u8) {
        let raw = Self::raw(block, tree.index());
        (MetaAddr(raw.root.get()), raw.level)
    }

    /// Changes a root.
    pub fn set(block: &mut Block, tree: HistoryTree, root: MetaAddr, level: u8) -> Touched {
        let at = root_at(tree.index());
        let raw = RawRoot { root: root.0.into(), level, reserved: [0; 7] };
        block[at..at + ROOT_BYTES].copy_from_slice(raw.as_bytes());
        (at..at + ROOT_BYTES).into()
    }

    /// What the past alone holds.
    pub fn space(block: &Block) -> HistorySpace {
        let raw = RawSpace::ref_from_bytes(&block[ROOTS_END..SPACE_END]).expect("the sizes are equal");
        HistorySpace { data: raw.data.get(), nodes: raw.nodes.get(), trees: raw.trees.get() }
    }

    /// Counts what came or went. A count that damage has made too small stays at 0: it must keep nobody from
    /// freeing blocks.
    pub fn count(block: &mut Block, growth: HistoryGrowth) -> Touched {
        let space = Self::space(block);
        let raw = RawSpace {
            data: space.data.saturating_add_signed(growth.data).into(),
            nodes: space.nodes.saturating_add_signed(growth.nodes).into(),
            trees: space.trees.saturating_add_signed(growth.trees).into(),
        };
        block[ROOTS_END..SPACE_END].copy_from_slice(raw.as_bytes());
        (ROOTS_END..SPACE_END).into()
    }

    fn raw(block: &Block, index: usize) -> &RawRoot {
        let at = root_at(index);
        RawRoot::ref_from_bytes(&block[at..at + ROOT_BYTES]).expect("the sizes are equal")
    }

    /// The verifier.
    ///
    /// # Errors
    /// [`Corruption`] naming the first impossible root.
    pub fn verify(block: &Block) -> Result<(), Box<Corruption>> {
        let bad = |field, expected: &str, found: String| {
            Err(Corruption::new("roots of the history", field, expected, found))
        };
        for index in 0..HISTORY_ROOTS {
            let raw = Self::raw(block, index);
            let root = MetaAddr(raw.root.get());
            if !root.is_plausible() || root.zone().is_root() {
                return bad("root", "a metadata address", root.to_string());
            }
            if root.is_none() && raw.level != 0 {
                return bad("level", "0 without a root", raw.level.to_string());
            }
            if raw.reserved != [0; 7] {
                return bad("reserved bytes", "zero", "something else".into());
            }
        }
        if block[LATER_END..BLOCK_SIZE].iter().any(|b| *b != 0) {
            return bad("rest", "zeros", "something else".into());
        }
        if BlockHeader::of(block).owner.get() != InodeNo::HISTORY.0 {
            return bad("owner", "3", BlockHeader::of(block).owner.get().to_string());
        }
        Ok(())
    }
}

/// What made an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum CutKind {
    /// Somebody asked for a snapshot.
    Snapshot = 1,
    /// A file was closed, under a policy that makes a version then.
    Close = 2,
    /// The time of a policy had come.
    Interval = 3,
    /// Something that can be undone was about to change much.
    Undo = 4,
    /// A file lost its last name, under a policy that makes a version when it is closed. It is as of this one
    /// no more.
    Removed = 5,
    /// The history of a file, up to this number, is being given up. Nobody sees anything as of it: it is
    /// dying from the beginning, and nothing remembers it when that is done.
    Expunge = 6,
    /// A directory is being made what it was, and that is not finished. Nobody sees anything as of it: it is
    /// dying from the beginning, and nothing remembers it when that is done. What is to be done stands where
    /// others have their name ([`RollbackIntent`]).
    Rollback = 7,
}

impl CutKind {
    /// The kind with this number on the medium.
    pub fn from_u8(kind: u8) -> Option<CutKind> {
        use CutKind::*;
        let all = [Snapshot, Close, Interval, Undo, Removed, Expunge, Rollback];
        all.into_iter().find(|k| *k as u8 == kind)
    }

    /// Whether it is of a single file or directory, and covers nothing below.
    pub fn is_of_file(self) -> bool {
        matches!(self, CutKind::Close | CutKind::Removed | CutKind::Expunge | CutKind::Rollback)
    }

    /// Whether it says that something is under way, and is no event that can be looked at: dying from the
    /// beginning, and never forgotten.
    pub fn is_work(self) -> bool {
        matches!(self, CutKind::Expunge | CutKind::Rollback)
    }
}

/// What has become of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum CutState {
    /// It can be seen.
    Kept = 1,
    /// It is being forgotten: it cannot be seen, and what it alone held is being given back.
    Dying = 2,
    /// It was forgotten. Its name and its time are remembered, so that nobody is silently given an older one.
    Forgotten = 3,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCut {
    seconds: I64,
    nanos: U32,
    kind: u8,
    state: u8,
    held: u8,
    name_length: u8,
    root: U64,
    root_incarnation: U32,
    more_length: U16,
    reserved: U16,
}

const _: () = assert!(size_of::<RawCut>() == CUT_FIXED_BYTES);

/// The row of an event in the table of cuts; its key is the number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutRow {
    /// When it was. Later numbers have later times.
    pub time: Timestamp,
    /// What made it.
    pub kind: CutKind,
    /// What has become of it.
    pub state: CutState,
    /// It is not forgotten unless released.
    pub held: bool,
    /// The directory or file that was cut.
    pub root: InodeNo,
    /// Its incarnation.
    pub root_incarnation: Incarnation,
    /// Its name, or nothing.
    pub name: String,
    /// What only some have.
    pub more: CutMore,
}

impl CutRow {
    /// The row as a value.
    ///
    /// # Panics
    /// For texts that are too long ([`CutMore`]).
    pub fn encode(&self) -> Vec<u8> {
        let more = self.more.encode();
        let raw = RawCut {
            seconds: self.time.seconds.into(),
            nanos: self.time.nanos.into(),
            kind: self.kind as u8,
            state: self.state as u8,
            held: u8::from(self.held),
            name_length: self.name.len() as u8,
            root: self.root.0.into(),
            root_incarnation: self.root_incarnation.0.into(),
            more_length: (more.len() as u16).into(),
            reserved: 0.into(),
        };
        [raw.as_bytes(), self.name.as_bytes(), &more].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<CutRow, Box<Corruption>> {
        let bad = |field, expected: &str, found: String| Err(Corruption::new("cut", field, expected, found));
        let Ok((raw, rest)) = RawCut::ref_from_prefix(bytes) else {
            return bad("length", "at least 32 bytes", bytes.len().to_string());
        };
        let Some(kind) = CutKind::from_u8(raw.kind) else {
            return bad("kind", "1 to 7", raw.kind.to_string());
        };
        let state = match raw.state {
            1 => CutState::Kept,
            2 => CutState::Dying,
            3 => CutState::Forgotten,
            s => return bad("state", "1 to 3", s.to_string()),
        };
        if raw.held > 1 {
            return bad("hold", "0 or 1", raw.held.to_string());
        }
        if raw.nanos.get() >= 1_000_000_000 {
            return bad("nanoseconds", "below 10^9", raw.nanos.to_string());
        }
        if raw.reserved.get() != 0 {
            return bad("reserved bytes", "zero", raw.reserved.to_string());
        }
        let root = InodeNo(raw.root.get());
        if !root.is_file() {
            return bad("root", "a file's number", root.to_string());
        }
        let name_length = usize::from(raw.name_length);
        if rest.len() != name_length + usize::from(raw.more_length.get()) {
            return bad("lengths", "the rest of the row", format!("{name_length} and {}", raw.more_length));
        }
        let (name, more) = rest.split_at(name_length);
        let name = match std::str::from_utf8(name) {
            Ok(name) if !name.contains(['/', '\0', '@']) => name.to_string(),
            _ => {
                return bad("name", "UTF-8 without /, @ and NUL", String::from_utf8_lossy(name).into_owned())
            }
        };
        Ok(CutRow {
            time: Timestamp { seconds: raw.seconds.get(), nanos: raw.nanos.get() },
            kind,
            state,
            held: raw.held == 1,
            root,
            root_incarnation: Incarnation(raw.root_incarnation.get()),
            name,
            more: CutMore::decode(more)?,
        })
    }
}

/// What a cut of kind [`CutKind::Rollback`] says is to be done with its root: that it becomes what it was as
/// of another cut. If it is *held*, it was given up for now, and is not finished unless somebody asks for
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackIntent {
    /// The cut taken before anything was changed, whose name says what is being done.
    pub before: Number,
    /// What the directory becomes what it was as of.
    pub target: Number,
    /// What others changed between these two cuts is left alone.
    pub others: Option<(Number, Number)>,
}

impl RollbackIntent {
    /// The cuts without which it cannot be finished.
    pub fn needs(&self) -> impl Iterator<Item = Number> {
        let (from, to) = self.others.unzip();
        [Some(self.before), Some(self.target), from, to].into_iter().flatten()
    }

    /// As it stands in place of a name: two numbers, or four, in decimal, with a blank between each two.
    pub fn encode(&self) -> String {
        let RollbackIntent { before, target, others } = self;
        match others {
            None => format!("{} {}", before.0, target.0),
            Some((from, to)) => format!("{} {} {} {}", before.0, target.0, from.0, to.0),
        }
    }

    /// What a row says is to be done.
    ///
    /// # Errors
    /// [`Corruption`] if there is something else in place of the numbers.
    pub fn decode(name: &str) -> Result<RollbackIntent, Box<Corruption>> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0).map(Number);
        let numbers: Option<Vec<Number>> = name.split(' ').map(number).collect();
        let intent = match numbers.as_deref() {
            Some([before, target]) => Some((*before, *target, None)),
            Some([before, target, from, to]) => Some((*before, *target, Some((*from, *to)))),
            _ => None,
        };
        let intent = intent.map(|(before, target, others)| RollbackIntent { before, target, others });
        // As it is written, and in no other way.
        let intent = intent.filter(|intent| intent.encode() == name);
        intent.ok_or_else(|| Corruption::new("cut", "rollback", "two or four numbers", format!("{name:?}")))
    }
}

/// The longest name of a snapshot, in bytes.
pub const CUT_NAME_MAX: usize = NAME_MAX;

/// The key of an event in the index of its root.
pub fn cut_index_by_root(root: InodeNo, number: Number) -> [u8; 16] {
    pair(root.0, number.0)
}

/// The key of an event in the index of its name: 63 bits of SipHash-2-4 of the name.
pub fn cut_index_by_name(seed: &[u8; 16], name: &str, number: Number) -> [u8; 16] {
    let hash = siphasher::sip::SipHasher24::new_with_key(seed).hash(name.as_bytes());
    pair(hash | NAME_HASH, number.0)
}

/// The key of a version.
pub fn version_key(inode: InodeNo, born: Number) -> [u8; 16] {
    pair(inode.0, born.0)
}

/// The key that says that a version of an inode ended at this number.
pub fn version_end_key(end: Number, inode: InodeNo) -> [u8; 24] {
    triple(end.0, inode.0, 0)
}

/// The key that says that what this cookie stood for in a directory ended at this number.
pub fn name_end_key(death: Number, directory: InodeNo, cookie: u64) -> [u8; 24] {
    triple(death.0, directory.0, cookie)
}

/// The key of a past name.
pub fn name_key(directory: InodeNo, cookie: u64, birth: Number) -> [u8; 24] {
    triple(directory.0, cookie, birth.0)
}

fn triple(first: u64, second: u64, third: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&pair(first, second));
    key[16..].copy_from_slice(&third.to_be_bytes());
    key
}

fn pair(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..].copy_from_slice(&second.to_be_bytes());
    key
}

/// The numbers in a key, most significant first.
///
/// # Errors
/// [`Corruption`] if the key does not have that many.
pub fn key_parts<const N: usize>(key: &[u8]) -> Result<[u64; N], Box<Corruption>> {
    if key.len() != 8 * N {
        return Err(Corruption::new("key of the history", "length", 8 * N, key.len()));
    }
    let mut parts = [0; N];
    for (part, bytes) in parts.iter_mut().zip(key.chunks_exact(8)) {
        *part = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(parts)
}

/// What an inode was from the number in the key on, until it changed or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The number from which on it was so no longer.
    pub end: Number,
    /// The inode. Of directories the content is empty: the entries tell by their births and deaths when they
    /// were.
    pub inode: Inode,
}

/// Bytes of a word of an inode.
const WORD: usize = 4;
/// Words of an inode.
const WORDS: usize = INODE_BYTES / WORD;
const _: () = assert!(INODE_BYTES.is_multiple_of(WORD) && WORDS < 64);

impl Version {
    /// The version as a value: its end, which words of the inode are not zero, and those. Half of most inodes
    /// is zeros.
    pub fn encode(&self) -> Vec<u8> {
        let mut slot = [0; INODE_BYTES];
        self.inode.encode(&mut slot);
        let mut bytes = Vec::with_capacity(VERSION_FIXED_BYTES + INODE_BYTES);
        bytes.extend(self.end.0.to_le_bytes());
        bytes.extend([0; 8]);
        let mut there = 0u64;
        for (i, word) in slot.chunks_exact(WORD).enumerate().filter(|(_, word)| *word != [0; WORD]) {
            there |= 1 << i;
            bytes.extend(word);
        }
        bytes[8..VERSION_FIXED_BYTES].copy_from_slice(&there.to_le_bytes());
        bytes
    }

    /// Decodes the version of `inode` that was born at `born`.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value, or one that is not of this key.
    pub fn decode(no: InodeNo, born: Number, bytes: &[u8]) -> Result<Version, Box<Corruption>> {
        let bad = |field, expected: String, found: String| {
            Err(Corruption::new("version", field, expected, found).of(no))
        };
        let Some((end, rest)) = bytes.split_first_chunk::<8>() else {
            return bad("length", format!("at least {VERSION_FIXED_BYTES}"), bytes.len().to_string());
        };
        let Some((there, words)) = rest.split_first_chunk::<8>() else {
            return bad("length", format!("at least {VERSION_FIXED_BYTES}"), bytes.len().to_string());
        };
        let there = u64::from_le_bytes(*there);
        if there >> WORDS != 0 {
            return bad("words", format!("of the first {WORDS}"), format!("{there:#x}"));
        }
        let expected = VERSION_FIXED_BYTES + WORD * there.count_ones() as usize;
        if bytes.len() != expected {
            return bad("length", expected.to_string(), bytes.len().to_string());
        }
        let mut slot = [0; INODE_BYTES];
        let places = slot.chunks_exact_mut(WORD).enumerate().filter(|(i, _)| there & (1 << i) != 0);
        for ((_, place), word) in places.zip(words.chunks_exact(WORD)) {
            if word == [0; WORD] {
                return bad("words", "none that is zero".into(), "one".into());
            }
            place.copy_from_slice(word);
        }
        let end = Number(u64::from_le_bytes(*end));
        let inode = Inode::decode(&slot).map_err(|c| c.of(no))?;
        if inode.mode == 0 {
            return bad("mode", "that of a file".into(), "0".into());
        }
        if inode.born != born {
            return bad("birth", format!("{} as in its key", born.0), inode.born.0.to_string());
        }
        if end <= born {
            return bad("end", format!("after its birth at {}", born.0), end.0.to_string());
        }
        Ok(Version { end, inode })
    }
}

/// What a name meant until it was removed or came to mean something else; its birth is in the key and in the
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastName<'a> {
    /// The number from which on the name did not mean this any more.
    pub death: Number,
    /// The entry.
    pub entry: DirEntry<'a>,
}

impl<'a> PastName<'a> {
    /// The name as a value.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.death.0.to_le_bytes().to_vec();
        self.entry.encode(&mut bytes);
        bytes
    }

    /// Decodes the name born at `birth`.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value, or one that is not of this key.
    pub fn decode(birth: Number, bytes: &'a [u8]) -> Result<PastName<'a>, Box<Corruption>> {
        let bad = |field, expected: String, found: String| {
            Err(Corruption::new("past name", field, expected, found))
        };
        let Some((death, entry)) = bytes.split_first_chunk::<DEATH_BYTES>() else {
            return bad("length", "at least 8 bytes".into(), bytes.len().to_string());
        };
        let death = Number(u64::from_le_bytes(*death));
        let entry = DirEntry::decode(entry)?;
        if entry.birth != birth {
            return bad("birth", format!("{} as in its key", birth.0), entry.birth.0.to_string());
        }
        if death <= birth {
            return bad("death", format!("after its birth at {}", birth.0), death.0.to_string());
        }
        Ok(PastName { death, entry })
    }
}

/// The layouts of what has a fixed size.
pub(crate) fn layouts() -> Vec<crate::StructLayout> {
    vec![
        crate::tables::layout!("History root", RawRoot: root, level, reserved),
        crate::tables::layout!("History space", RawSpace: data, nodes, trees),
        operations::layout(),
        crate::tables::layout!("Cut", RawCut: seconds, nanos, kind, state, held, name_length, root, root_incarnation, more_length, reserved),
    ]
}

#[cfg(test)]
mod tests;
