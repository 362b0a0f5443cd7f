//! The model: a file system as a plain value, written to be obviously right.
//!
//! A [`State`] is a table of inodes; cloning it costs one reference count per inode, so every prefix of a
//! sequence of operations can be kept. Inodes are numbered in order of creation and never reused. The model
//! learns the number that the file system under test gave to each when it is created ([`Identity`]).
//!
//! **Times.** The model cannot know what the clock showed, only which operation set a time. An operation sets
//! it to [`Time::Now`] (it must lie between the operation's begin and end), or to [`Time::Maybe`] if POSIX
//! leaves open whether it changes. After the operation the model asks the file system, keeps the answer as
//! [`Time::Known`], and expects the same until the next operation that sets it.

mod apply;
mod attributes;
mod data;
pub mod expect;
mod found;
mod names;

pub use data::{Block, FileData, BLOCK};

use crate::op::{EntryPath, Name, Target, SLOTS};
use crate::outcome::{Kind, Kinds};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_fs::{Attr, FileKind, InodeFlags, InodeNo, Timestamp};

/// The largest file in bytes: block numbers of a file have 32 bits, and the last of them is not used.
pub const FILE_MAX: u64 = u32::MAX as u64 * BLOCK as u64;
/// The longest name in bytes.
pub const NAME_MAX: usize = 255;

/// An inode of the model: its place in the table.
pub type Ino = usize;
/// The root directory.
pub const ROOT: Ino = 0;

/// The identity of an inode in the file system under test: its number and incarnation.
pub type Identity = (u64, u32);

/// A time in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Set by the last operation, to the present.
    Now,
    /// Possibly set by the last operation, to the present; else this.
    Maybe(Timestamp),
    /// This.
    Known(Timestamp),
}

/// What an inode is, by kind.
#[derive(Clone, Debug)]
pub enum Body {
    /// Names, and the directory this one is in.
    Directory {
        /// By name.
        entries: Arc<BTreeMap<Name, Ino>>,
        /// `..`.
        parent: Ino,
    },
    /// Content.
    File(FileData),
    /// Target.
    Symlink(Name),
    /// Nothing besides the attributes.
    Special,
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number and incarnation in the file system under test, once learned.
    pub identity: Option<Identity>,
    /// Its type.
    pub kind: FileKind,
    /// 12 bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names; directories: 2 + subdirectories; 0 if only held.
    pub links: u32,
    /// Device number.
    pub rdev: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
    /// Extended attributes.
    pub xattrs: BTreeMap<Name, Arc<[u8]>>,
    /// The rest.
    pub body: Body,
}

impl Inode {
    /// The attributes as the file system shows them, if it knows these times.
    pub fn attr(&self, known: impl Fn(Time) -> Timestamp) -> Attr {
        let (number, incarnation) = self.identity.unwrap_or_default();
        Attr {
            inode: InodeNo(number),
            incarnation,
            kind: self.kind,
            permissions: self.permissions,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.data().map_or(0, |data| data.size()),
            blocks_512: 0,
            atime: known(self.atime),
            mtime: known(self.mtime),
            ctime: known(self.ctime),
            btime: known(self.btime),
            flags: InodeFlags::empty(),
        }
    }

    /// The content of a regular file.
    pub fn data(&self) -> Option<&FileData> {
        match &self.body {
            Body::File(data) => Some(data),
            _ => None,
        }
    }

    /// The entries of a directory.
    pub fn entries(&self) -> Option<&BTreeMap<Name, Ino>> {
        match &self.body {
            Body::Directory { entries, .. } => Some(entries),
            _ => None,
        }
    }
}

/// Effects of an operation, for those who must know more than the state after it.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Inodes with times to learn.
    pub touched: Vec<Ino>,
    /// The inode it created.
    pub created: Option<Ino>,
    /// The file that it truncated, and to what size. Unlike a write, a truncation is never delayed.
    pub truncated: Option<(Ino, u64)>,
    /// Inodes whose ctime it set other than by changing content.
    pub ctime_set: Vec<Ino>,
    /// The inode whose mtime it set explicitly.
    pub mtime_set: Option<Ino>,
    /// The inode it made durable, and whether only its content.
    pub synced: Option<(Ino, bool)>,
    /// Whether it made everything durable.
    pub synced_all: bool,
    /// The inode it renamed over an existing name.
    pub replaced_by: Option<Ino>,
}

/// A whole file system.
#[derive(Clone, Debug)]
pub struct State {
    inodes: Vec<Option<Arc<Inode>>>,
    slots: [Option<Ino>; SLOTS],
}

/// Why a target leads to nothing.
pub(crate) enum Unresolved {
    /// An empty slot.
    Skip,
    /// A path that does not lead anywhere.
    Fails(Kinds),
}

impl Unresolved {
    /// With further reasons to fail.
    fn or(mut self, more: Kinds) -> Unresolved {
        if let Unresolved::Fails(kinds) = &mut self {
            kinds.add(more);
        }
        self
    }
}

impl State {
    /// A file system that consists of a root directory with these attributes.
    pub fn new(root: &Attr) -> State {
        let root = Inode {
            identity: Some((root.inode.0, root.incarnation)),
            kind: FileKind::Directory,
            permissions: root.permissions,
            uid: root.uid,
            gid: root.gid,
            links: root.links,
            rdev: 0,
            atime: Time::Known(root.atime),
            mtime: Time::Known(root.mtime),
            ctime: Time::Known(root.ctime),
            btime: Time::Known(root.btime),
            xattrs: BTreeMap::new(),
            body: Body::Directory { entries: Arc::default(), parent: ROOT },
        };
        State { inodes: vec![Some(Arc::new(root))], slots: [None; SLOTS] }
    }

    /// Sets all times of an inode, for one that other threads change as well.
    pub fn set_times(&mut self, ino: Ino, time: Timestamp) {
        let inode = self.at(ino);
        let known = Time::Known(time);
        (inode.atime, inode.mtime, inode.ctime, inode.btime) = (known, known, known, known);
    }

    /// An inode, if it still exists.
    pub fn get(&self, ino: Ino) -> Option<&Arc<Inode>> {
        self.inodes.get(ino)?.as_ref()
    }

    /// All inodes that exist, held ones without a name included.
    pub fn inodes(&self) -> impl Iterator<Item = (Ino, &Arc<Inode>)> {
        self.inodes.iter().enumerate().filter_map(|(ino, inode)| Some((ino, inode.as_ref()?)))
    }

    /// How many numbers have been used.
    pub fn numbers(&self) -> usize {
        self.inodes.len()
    }

    /// What a slot holds.
    pub fn slot(&self, slot: usize) -> Option<Ino> {
        self.slots[slot]
    }

    /// Bytes in all files, to keep within a volume.
    pub fn used(&self) -> u64 {
        self.inodes().filter_map(|(_, inode)| inode.data()).map(FileData::used).sum()
    }

    /// Forgets the slots, as a crash and a clean unmount do.
    pub fn without_slots(&self) -> State {
        let mut state = self.clone();
        for slot in 0..SLOTS {
            state.empty_slot(slot);
        }
        state
    }

    /// Records the identity of an inode in the file system under test.
    pub fn learn_identity(&mut self, ino: Ino, identity: Identity) {
        self.at(ino).identity = Some(identity);
    }

    /// Records the times of an inode in the file system under test; fails if they are impossible, given that
    /// the last operation ran from `begin` to `end`.
    pub fn learn_times(
        &mut self,
        ino: Ino,
        attr: &Attr,
        begin: Timestamp,
        end: Timestamp,
    ) -> Result<(), String> {
        let inode = self.at(ino);
        let times = [
            ("atime", &mut inode.atime, attr.atime),
            ("mtime", &mut inode.mtime, attr.mtime),
            ("ctime", &mut inode.ctime, attr.ctime),
            ("btime", &mut inode.btime, attr.btime),
        ];
        for (name, time, found) in times {
            let fits = match *time {
                Time::Known(known) => found == known,
                Time::Now => begin <= found && found <= end,
                Time::Maybe(known) => found == known || begin <= found && found <= end,
            };
            if !fits {
                return Err(format!(
                    "{name} of inode {} is {found:?}, expected {time:?} (the operation ran from {begin:?} to {end:?})",
                    attr.inode
                ));
            }
            *time = Time::Known(found);
        }
        Ok(())
    }

    /// The inode, to change it. It exists: the callers found it in a directory or a slot.
    fn at(&mut self, ino: Ino) -> &mut Inode {
        Arc::make_mut(self.inodes[ino].as_mut().expect("the inode is in use"))
    }

    /// The same for reading.
    fn see(&self, ino: Ino) -> &Inode {
        self.inodes[ino].as_ref().expect("the inode is in use")
    }

    /// The inode to which a target leads.
    pub(crate) fn resolve(&self, target: &Target) -> Result<Ino, Unresolved> {
        match target {
            Target::Slot(slot) => self.slots[*slot].ok_or(Unresolved::Skip),
            Target::Path(names) => {
                let mut ino = ROOT;
                for name in names {
                    ino = self.find(ino, name).map_err(Unresolved::Fails)?;
                }
                Ok(ino)
            }
        }
    }

    /// Looks a name up.
    pub(crate) fn find(&self, directory: Ino, name: &[u8]) -> Result<Ino, Kinds> {
        let mut bad = self.bad_name(directory, name);
        if !bad.is_empty() {
            return Err(bad);
        }
        let entries = self.see(directory).entries();
        entries.and_then(|entries| entries.get(name)).copied().ok_or_else(|| {
            bad.add_if(true, Kind::NotFound);
            bad
        })
    }

    /// Checks a name in a directory, without looking it up.
    fn bad_name(&self, directory: Ino, name: &[u8]) -> Kinds {
        let mut bad = Kinds::default();
        let inode = self.see(directory);
        bad.add_if(inode.kind != FileKind::Directory, Kind::NotADirectory);
        // Only a holder can name something that is neither a directory nor exists any more.
        bad.add_if(inode.kind != FileKind::Directory && inode.links == 0, Kind::NotFound);
        bad.add_if(name.len() > NAME_MAX, Kind::NameTooLong);
        bad
    }

    /// The directory of a place, and the inode that has the name there now.
    fn resolve_entry(&self, at: &EntryPath) -> Result<(Ino, Option<Ino>), Unresolved> {
        let directory = self.resolve(&at.directory)?;
        let bad = self.bad_name(directory, &at.name);
        if !bad.is_empty() {
            return Err(Unresolved::Fails(bad));
        }
        let entries = self.see(directory).entries();
        Ok((directory, entries.and_then(|entries| entries.get(&at.name)).copied()))
    }

    fn entries_mut(&mut self, directory: Ino) -> &mut BTreeMap<Name, Ino> {
        match &mut self.at(directory).body {
            Body::Directory { entries, .. } => Arc::make_mut(entries),
            _ => unreachable!("the callers checked that it is a directory"),
        }
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.see(ino).kind == FileKind::Directory
    }

    /// Whether `ino` is `top` or lies below it.
    fn is_below(&self, mut ino: Ino, top: Ino) -> bool {
        loop {
            if ino == top {
                return true;
            }
            match &self.see(ino).body {
                Body::Directory { parent, .. } if *parent != ino => ino = *parent,
                _ => return false,
            }
        }
    }

    /// Frees an inode that has neither a name nor a holder.
    fn free_if_unused(&mut self, ino: Ino) {
        if self.see(ino).links == 0 && !self.slots.contains(&Some(ino)) {
            self.inodes[ino] = None;
        }
    }

    fn empty_slot(&mut self, slot: usize) {
        if let Some(ino) = self.slots[slot].take() {
            self.free_if_unused(ino);
        }
    }

    /// Sets mtime and ctime.
    fn touch_content(&mut self, ino: Ino, effects: &mut Effects) {
        let inode = self.at(ino);
        inode.mtime = Time::Now;
        inode.ctime = Time::Now;
        effects.touched.push(ino);
        if self.is_directory(ino) {
            effects.ctime_set.push(ino);
        }
    }

    /// Sets ctime.
    fn touch_inode(&mut self, ino: Ino, effects: &mut Effects) {
        self.at(ino).ctime = Time::Now;
        effects.touched.push(ino);
        effects.ctime_set.push(ino);
    }

    /// Says that mtime and ctime may be set.
    fn touch_maybe(&mut self, ino: Ino, effects: &mut Effects) {
        let inode = self.at(ino);
        inode.mtime = maybe(inode.mtime);
        inode.ctime = maybe(inode.ctime);
        effects.touched.push(ino);
    }
}

fn maybe(time: Time) -> Time {
    match time {
        Time::Known(known) => Time::Maybe(known),
        other => other,
    }
}
