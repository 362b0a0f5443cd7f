//! Random sequences of operations.
//!
//! Names and directories are few, so that operations meet. The generator runs the model along, so that most
//! operations are possible, and sizes stay within the volume. The seed determines the sequence, whatever the
//! file system under test does.

use crate::model::{Ino, State, FILE_MAX, ROOT};
use crate::op::{EntryPath, Name, Op, Target, SLOTS};
use crate::subject::ModelSubject;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use yore_fs::{
    Caller, FallocateMode, FileKind, RenameMode, SeekTo, SetAttr, SetTime, SetXattrMode, Timestamp,
};

/// The purpose of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Profile {
    /// Comparison with the model: all operations, also those that only read.
    Model,
    /// A volume that is too small: large writes, and nothing that frees space.
    Full,
    /// Crashes: every short sequence, by number ([`crate::systematic`]).
    Systematic,
    /// Crashes: operations that change something, small files, and many syncs.
    Crash,
    /// Crashes: small writes to few files, most of them with an fsync, so that a small log fills up and
    /// wraps.
    Fsync,
    /// Crashes: pairs of operations with a sync between them, and operations behind a snapshot that is
    /// forgotten, by number ([`crate::systematic::across`]).
    Across,
    /// Crashes: few files, which are copied, so that they share blocks, and changed.
    Shared,
    /// Crashes: files and directories are made, moved and removed, and one in five operations is an fsync of
    /// one of them, beside others that leave their changes pending. There are hardly any syncs.
    Part,
}

/// Above this many bytes in files the generator frees space first.
const USED_MAX: u64 = 5 << 20;
/// The same for volumes that are meant to be full: more than they hold.
const USED_MAX_FULL: u64 = 40 << 20;
/// Above this many directories it seldom creates more.
const DIRECTORIES: usize = 8;
/// Permissions to ask for.
const PERMISSIONS: [u32; 10] = [0o644, 0o600, 0o755, 0o777, 0o4755, 0o2755, 0o6777, 0o2644, 0o1777, 0o000];
const CALLERS: [Caller; 4] = [
    Caller { uid: 0, gid: 0, umask: 0o022, keeps_set_id: true },
    Caller { uid: 1000, gid: 1000, umask: 0o027, keeps_set_id: false },
    Caller { uid: 1001, gid: 50, umask: 0, keeps_set_id: false },
    Caller { uid: 4_000_000_000, gid: 4_000_000_001, umask: 0o777, keeps_set_id: false },
];

/// Sizes at which the way of storing changes: out of the inode, into another block.
const BOUNDARIES: [u64; 8] = [107, 108, 109, 4095, 4096, 4097, 8192, 16_384];

/// Draws operations.
pub struct Generator {
    random: Xoshiro256PlusPlus,
    profile: Profile,
    state: State,
    next_tag: u64,
}

/// The operations of a sequence.
pub fn sequence(seed: u64, count: usize, profile: Profile) -> Vec<Op> {
    let by_number = match profile {
        Profile::Systematic => Some(crate::systematic::case(seed)),
        Profile::Across => Some(crate::systematic::across(seed)),
        _ => None,
    };
    if let Some(mut ops) = by_number {
        ops.truncate(count);
        return ops;
    }
    let mut generator = Generator::new(seed, profile);
    (0..count).map(|_| generator.next_op()).collect()
}

impl Generator {
    /// A generator at the beginning of the sequence of this seed.
    pub fn new(seed: u64, profile: Profile) -> Generator {
        Generator {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            profile,
            state: State::new(&ModelSubject::root()),
            next_tag: seed.wrapping_mul(1_000_003),
        }
    }

    /// The next operation.
    pub fn next_op(&mut self) -> Op {
        let most = if self.profile == Profile::Full { USED_MAX_FULL } else { USED_MAX };
        let op = match self.state.used() > most {
            true => self.make_room(),
            false => self.draw(),
        };
        self.state.apply(&op);
        op
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    fn tag(&mut self) -> u64 {
        self.next_tag = self.next_tag.wrapping_add(1);
        self.next_tag
    }

    fn draw(&mut self) -> Op {
        if self.profile == Profile::Shared {
            return self.draw_shared();
        }
        if self.profile == Profile::Part {
            return self.draw_part();
        }
        let (reads, syncs) = match self.profile {
            Profile::Model => (25, 4),
            Profile::Full => (10, 4),
            _ => (3, 12),
        };
        let weights = match self.profile {
            Profile::Fsync => [14, 8, 40, 6, 3, 3, 2, 50, 1],
            _ => [24, 18, 26, 16, 8, 8, 4, syncs, reads],
        };
        let mut rest = self.random.random_range(0..weights.iter().sum::<u32>());
        let choice = weights.iter().position(|weight| match rest.checked_sub(*weight) {
            Some(left) => {
                rest = left;
                false
            }
            None => true,
        });
        match choice.unwrap_or(0) {
            0 => self.make(),
            1 => self.remove_or_link(),
            2 => self.write(),
            3 => self.rename(),
            4 => self.set_attr(),
            5 => self.xattr(),
            6 => self.hold(),
            7 => self.sync(),
            _ => self.read_op(),
        }
    }

    /// An operation on one of a few files of some blocks. One that does not exist is created first.
    fn draw_shared(&mut self) -> Op {
        let mut names: Vec<Name> = (b'a'..b'f').map(|name| Arc::from(vec![name])).collect();
        let name = names.swap_remove(self.random.random_range(0..names.len()));
        let (target, at) = (
            Target::Path(vec![name.clone()]),
            EntryPath { directory: Target::Path(Vec::new()), name: name.clone() },
        );
        if self.state.resolve(&target).is_err() {
            let (kind, caller) = (FileKind::Regular, CALLERS[0]);
            return Op::Create { at, kind, permissions: 0o644, rdev: 0, caller };
        }
        let size = self.size_of(&target);
        let block = 4096 * self.random.random_range(0..size / 4096 + 2);
        let len = 4096 * self.random.random_range(1..12);
        match self.random.random_range(0..20) {
            // A file without content, or a part of one that has some.
            0..=5 => {
                let (offset, len) = match size {
                    0 => (0, self.random.random_range(16_384..50_000)),
                    _ if self.chance(3) => (block + 100, self.random.random_range(1..9000)),
                    _ => (block, len),
                };
                let (tag, len) = (self.tag(), len as usize);
                Op::Write { target, offset, len, tag, append: false, kill_set_id: false }
            }
            6..=11 => {
                let to = Target::Path(vec![self.pick(&names)]);
                let to_size = self.size_of(&to);
                let whole = 4096 * self.random.random_range(0..to_size / 4096 + 2);
                let (from_offset, to_offset, len) = match self.random.random_range(0..3) {
                    0 => (0, 0, 200_000),
                    1 => (block, whole, 200_000),
                    _ => (block, whole, len.max(16_384)),
                };
                Op::Copy { from: target, from_offset, to, to_offset, len }
            }
            12 => Op::Unlink { at },
            13 => {
                let size = if self.chance(2) { block } else { block + 1000 };
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                Op::SetAttr { target, set, caller: CALLERS[0] }
            }
            14 => {
                let modes = [FallocateMode::PunchHole, FallocateMode::ZeroRange { keep_size: true }];
                Op::Fallocate { target, offset: block, len, mode: self.pick(&modes) }
            }
            15 => {
                let to = EntryPath { name: self.pick(&names), ..at.clone() };
                Op::Rename { from: at, to, mode: RenameMode::Replace }
            }
            16..=17 => Op::Fsync { target, data_only: self.chance(2) },
            18 => Op::Sync,
            _ => Op::Defragment { target },
        }
    }

    /// An operation on names, mostly below directories that are new, or an fsync.
    fn draw_part(&mut self) -> Op {
        use FileKind::*;
        let caller = CALLERS[0];
        match self.random.random_range(0..40) {
            0..=5 => {
                let at = self.entry_path();
                Op::Create { at, kind: Regular, permissions: 0o644, rdev: 0, caller }
            }
            6..=9 => Op::Mkdir { at: self.entry_path(), permissions: 0o755, caller },
            10..=15 => {
                let (target, len, tag) = (self.file(), self.random.random_range(1..9000), self.tag());
                Op::Write { target, offset: 0, len, tag, append: !self.chance(4), kill_set_id: false }
            }
            16..=18 => Op::Link { target: self.file(), at: self.entry_path() },
            19..=23 => {
                let from = self.existing(&[Regular, Directory]);
                match self.chance(5) {
                    true => Op::Rename { from, to: self.existing(&[]), mode: RenameMode::Exchange },
                    false => Op::Rename { from, to: self.entry_path(), mode: RenameMode::Replace },
                }
            }
            24..=27 => self.remove_or_link(),
            28 => self.set_attr(),
            29 => self.xattr(),
            30..=33 => Op::Fsync { target: self.file(), data_only: self.chance(4) },
            34..=36 => Op::Fsync { target: self.target(&[Directory]), data_only: false },
            37 => Op::Fsync { target: self.anything(), data_only: false },
            38 => self.hold(),
            _ => Op::Sync,
        }
    }

    fn caller(&mut self) -> Caller {
        match self.chance(2) {
            true => CALLERS[0],
            false => self.pick(&CALLERS),
        }
    }

    fn name(&mut self) -> Name {
        match self.random.random_range(0..40) {
            0 => Arc::from(vec![b'n'; 255]),
            1 => Arc::from(vec![b'n'; 256]),
            2 => Arc::from(&b"\xff\xfe bad utf-8 \x01"[..]),
            3 => Arc::from(&b"sp ace\nline"[..]),
            4 => Arc::from(&b"..."[..]),
            5 => Arc::from(format!("{:0>120}", self.random.random_range(0..4)).into_bytes()),
            6..=9 => Arc::from(format!("longer-name-{}", self.random.random_range(0..6)).into_bytes()),
            _ => Arc::from(vec![b'a' + self.random.random_range(0..9)]),
        }
    }

    /// All inodes with a path, with that path.
    fn paths(&self) -> Vec<(Vec<Name>, Ino)> {
        let mut paths = vec![(Vec::new(), ROOT)];
        let mut at = 0;
        while at < paths.len() {
            let (path, ino) = paths[at].clone();
            let entries = self.state.get(ino).and_then(|inode| inode.entries());
            for (name, child) in entries.into_iter().flatten() {
                let mut longer = path.clone();
                longer.push(name.clone());
                paths.push((longer, *child));
            }
            at += 1;
        }
        paths
    }

    fn kind(&self, ino: Ino) -> FileKind {
        self.state.get(ino).map_or(FileKind::Regular, |inode| inode.kind)
    }

    /// A target of one of these kinds if there is any; now and then anything else, or nothing.
    fn target(&mut self, wanted: &[FileKind]) -> Target {
        if self.chance(30) {
            return Target::Path(vec![self.name(), self.name()]);
        }
        if self.chance(8) {
            let filled: Vec<usize> = (0..SLOTS).filter(|slot| self.state.slot(*slot).is_some()).collect();
            if !filled.is_empty() {
                return Target::Slot(self.pick(&filled));
            }
        }
        let mut paths = self.paths();
        if !self.chance(25) {
            let fitting: Vec<_> =
                paths.iter().filter(|(_, ino)| wanted.contains(&self.kind(*ino))).cloned().collect();
            if !fitting.is_empty() {
                paths = fitting;
            }
        }
        Target::Path(self.pick(&paths).0)
    }

    fn file(&mut self) -> Target {
        self.target(&[FileKind::Regular])
    }

    fn anything(&mut self) -> Target {
        use FileKind::*;
        self.target(&[Regular, Regular, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice])
    }

    /// A place for a new name, perhaps taken.
    fn entry_path(&mut self) -> EntryPath {
        EntryPath { directory: self.target(&[FileKind::Directory]), name: self.name() }
    }

    /// The place of an existing file or directory, if there is any of these kinds.
    fn existing(&mut self, wanted: &[FileKind]) -> EntryPath {
        if !self.chance(20) {
            let fits = |ino: Ino| wanted.is_empty() || wanted.contains(&self.kind(ino));
            let paths: Vec<_> = self.paths().into_iter().skip(1).filter(|(_, ino)| fits(*ino)).collect();
            if !paths.is_empty() {
                let mut path = self.pick(&paths).0;
                if let Some(name) = path.pop() {
                    return EntryPath { directory: Target::Path(path), name };
                }
            }
        }
        self.entry_path()
    }

    fn make(&mut self) -> Op {
        use FileKind::*;
        let (at, caller) = (self.entry_path(), self.caller());
        let directories = self.paths().iter().filter(|(_, ino)| self.kind(*ino) == Directory).count();
        let permissions = self.pick(&PERMISSIONS);
        match self.random.random_range(0..20) {
            0..=4 if directories < DIRECTORIES || self.chance(4) => {
                Op::Mkdir { at, permissions: permissions & 0o1777, caller }
            }
            5..=7 => {
                let len = self.pick(&[1, 20, 107, 108, 109, 500, 4000, 4095, 4096]);
                let len = if self.chance(2) { 12 } else { len };
                Op::Symlink { at, to: Arc::from(vec![b's'; len]), caller }
            }
            8..=9 => {
                let kind = self.pick(&[Fifo, Socket, CharDevice, BlockDevice]);
                let is_device = matches!(kind, CharDevice | BlockDevice);
                let rdev = if is_device { self.random.random_range(1..u32::MAX) } else { 0 };
                Op::Create { at, kind, permissions, rdev, caller }
            }
            _ => Op::Create { at, kind: Regular, permissions, rdev: 0, caller },
        }
    }

    fn remove_or_link(&mut self) -> Op {
        use FileKind::*;
        match self.random.random_range(0..10) {
            0..=4 => Op::Unlink { at: self.existing(&[Regular, Regular, Symlink, Fifo, Socket, CharDevice]) },
            5..=6 => Op::Rmdir { at: self.existing(&[Directory]) },
            _ => {
                let target = self.target(&[Regular, Regular, Symlink, Fifo]);
                Op::Link { target, at: self.entry_path() }
            }
        }
    }

    /// Bytes of a write.
    fn len(&mut self) -> usize {
        match self.random.random_range(0..20) {
            _ if self.profile == Profile::Full && self.chance(3) => self.random.random_range(1..1_500_000),
            2..=16 if self.profile == Profile::Fsync => self.random.random_range(60..9000),
            0..=5 => self.random.random_range(1..109),
            6 => self.pick(&[0, 107, 108, 109, 4095, 4096, 4097, 8192]),
            7..=11 => self.random.random_range(1..4097),
            12..=16 => self.random.random_range(4096..30_000),
            17..=18 => self.random.random_range(30_000..120_000),
            _ if matches!(self.profile, Profile::Model | Profile::Full) => {
                self.random.random_range(100_000..700_000)
            }
            _ => self.random.random_range(60_000..200_000),
        }
    }

    fn size_of(&self, target: &Target) -> u64 {
        let ino = self.state.resolve(target).ok();
        let inode = ino.and_then(|ino| self.state.get(ino));
        inode.and_then(|inode| inode.data()).map_or(0, |data| data.size())
    }

    /// Where in a file: mostly within it or at its end.
    fn offset(&mut self, size: u64) -> u64 {
        let within = self.random.random_range(0..=size);
        match self.random.random_range(0..12) {
            0..=2 => 0,
            3..=5 => size,
            6 => within - within % 4096,
            7..=9 => within,
            10 => size + self.random.random_range(0..100_000),
            _ if self.chance(4) => {
                self.pick(&[1 << 32, (1 << 40) + 5, FILE_MAX - 4096, FILE_MAX - 1, FILE_MAX])
            }
            _ => size.next_multiple_of(4096) + 4096 * self.random.random_range(0..20),
        }
    }

    fn write(&mut self) -> Op {
        let target = self.file();
        let size = self.size_of(&target);
        let mut offset = self.offset(size);
        match self.random.random_range(0..20) {
            0..=12 => {
                let (mut len, tag) = (self.len(), self.tag());
                if self.chance(6) {
                    // Exactly up to a size at which the way of storing changes.
                    let end = self.pick(&BOUNDARIES);
                    offset = offset.min(self.random.random_range(0..end));
                    len = (end - offset) as usize;
                }
                let (append, kill_set_id) = (self.chance(4), self.chance(4));
                Op::Write { target, offset, len, tag, append, kill_set_id }
            }
            13..=14 => {
                let size = match self.random.random_range(0..4) {
                    0 => 0,
                    1 => self.pick(&BOUNDARIES),
                    _ => offset,
                };
                let set = SetAttr { size: Some(size), kill_set_id: self.chance(4), ..SetAttr::default() };
                Op::SetAttr { target, set, caller: self.caller() }
            }
            15..=17 => {
                let keep_size = self.chance(2);
                let mode = self.pick(&[
                    FallocateMode::Allocate { keep_size },
                    FallocateMode::PunchHole,
                    FallocateMode::PunchHole,
                    FallocateMode::ZeroRange { keep_size },
                ]);
                // Allocation takes space that the model does not count, so it must stay small.
                let offset = if offset > 1 << 24 { size } else { offset };
                Op::Fallocate { target, offset, len: self.len().min(120_000) as u64, mode }
            }
            _ => {
                let to = self.file();
                let to_size = self.size_of(&to);
                let to_offset = self.offset(to_size);
                // At the far end of a sparse file there is nothing to copy that would fit into memory.
                let from_offset = if offset > 1 << 24 { 0 } else { offset };
                Op::Copy { from: target, from_offset, to, to_offset, len: self.len().min(200_000) as u64 }
            }
        }
    }

    fn rename(&mut self) -> Op {
        use FileKind::*;
        let from = if self.chance(3) { self.existing(&[Directory]) } else { self.existing(&[]) };
        let to = match self.random.random_range(0..3) {
            0 => self.existing(&[Regular, Symlink]),
            1 => self.existing(&[]),
            _ => self.entry_path(),
        };
        let modes = [
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ];
        let mode = self.pick(&modes);
        Op::Rename { from, to, mode }
    }

    fn set_attr(&mut self) -> Op {
        let target = self.anything();
        let mut set = SetAttr::default();
        let explicit = Timestamp {
            seconds: self.pick(&[0, 1, -1, 1_057_845_484, 4_102_444_800, 15_000_000_000]),
            nanos: self.pick(&[0, 1, 999_999_999]),
        };
        let time = match self.chance(3) {
            true => SetTime::Now,
            false => SetTime::To(explicit),
        };
        match self.random.random_range(0..6) {
            0..=2 => set.permissions = Some(self.pick(&PERMISSIONS)),
            3 => {
                set.uid = Some(self.random.random_range(0..3) * 1000);
                if self.chance(2) {
                    set.gid = Some(self.random.random_range(0..3) * 50);
                }
            }
            4 => {
                set.mtime = Some(time);
                if self.chance(2) {
                    set.atime = Some(time);
                }
            }
            _ => {
                set.atime = Some(time);
                if self.chance(3) {
                    set.ctime = Some(SetTime::To(explicit));
                }
            }
        }
        Op::SetAttr { target, set, caller: self.caller() }
    }

    fn xattr_name(&mut self) -> Name {
        let names: [&[u8]; 5] =
            [b"trusted.a", b"trusted.b", b"trusted.c", b"security.capability", b"trusted.a-rather-long-name"];
        match self.chance(40) {
            true => Arc::from([&b"trusted."[..], &[b'x'; 250]].concat()),
            false => Arc::from(self.pick(&names)),
        }
    }

    fn xattr(&mut self) -> Op {
        let (target, name) = (self.anything(), self.xattr_name());
        if self.chance(4) {
            return Op::RemoveXattr { target, name };
        }
        let len = match self.random.random_range(0..10) {
            0..=6 => self.random.random_range(0..60),
            7 => self.random.random_range(60..1000),
            8 => self.random.random_range(1000..9000),
            _ if self.chance(3) => self.pick(&[65_535, 65_536, 65_537]),
            _ => self.pick(&[0, 3000, 4096, 4097]),
        };
        let mode =
            self.pick(&[SetXattrMode::Any, SetXattrMode::Any, SetXattrMode::Create, SetXattrMode::Replace]);
        Op::SetXattr { target, name, len, tag: self.tag(), mode }
    }

    fn hold(&mut self) -> Op {
        let slot = self.random.random_range(0..SLOTS);
        match self.chance(3) {
            true => Op::Drop { slot },
            false => Op::Hold { target: self.anything(), slot },
        }
    }

    fn sync(&mut self) -> Op {
        use FileKind::*;
        match self.random.random_range(0..10) {
            0..=2 if self.profile == Profile::Fsync && !self.chance(6) => {
                Op::Fsync { target: self.file(), data_only: true }
            }
            2 if self.profile != Profile::Fsync => Op::Defragment { target: self.file() },
            0..=2 => Op::Sync,
            3..=6 => Op::Fsync { target: self.file(), data_only: false },
            7..=8 => Op::Fsync { target: self.file(), data_only: true },
            _ => Op::Fsync { target: self.target(&[Directory, Symlink, Fifo]), data_only: false },
        }
    }

    fn read_op(&mut self) -> Op {
        use FileKind::*;
        match self.random.random_range(0..12) {
            0..=1 => Op::Lookup { at: self.existing(&[]) },
            2 => Op::Readlink { target: self.target(&[Symlink]) },
            3 => Op::Readdir { target: self.target(&[Directory]), batch: self.random.random_range(1..6) },
            4..=7 => {
                let target = self.file();
                let size = self.size_of(&target);
                let (offset, len) = (self.offset(size), self.len());
                Op::Read { target, offset, len }
            }
            8..=9 => {
                let target = self.file();
                let size = self.size_of(&target);
                let offset = self.offset(size);
                Op::Seek { target, offset, to: self.pick(&[SeekTo::Data, SeekTo::Hole]) }
            }
            10 => Op::GetXattr { target: self.anything(), name: self.xattr_name() },
            _ => Op::ListXattr { target: self.anything() },
        }
    }

    /// Truncates one of the larger files.
    fn make_room(&mut self) -> Op {
        let used = |ino: Ino| self.state.get(ino).and_then(|i| i.data()).map_or(0, |data| data.used());
        let paths = self.paths();
        let largest = paths.into_iter().max_by_key(|(_, ino)| used(*ino));
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        match largest {
            Some((path, ino)) if used(ino) > 0 => {
                Op::SetAttr { target: Target::Path(path), set, caller: CALLERS[0] }
            }
            // All space is in files that only slots hold.
            _ => Op::Drop { slot: self.random.random_range(0..SLOTS) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::expect::Expect;

    /// A seed means one sequence, and most of its operations do something.
    #[test]
    fn sequences_are_reproducible_and_mostly_possible() {
        let (mut failed, mut all) = (0, 0);
        for seed in 0..20 {
            let ops = sequence(seed, 200, Profile::Model);
            assert_eq!(ops, sequence(seed, 200, Profile::Model));
            let mut state = State::new(&ModelSubject::root());
            for op in &ops {
                all += 1;
                failed += u32::from(matches!(state.apply(op).0, Expect::Fails(_) | Expect::Skip));
            }
        }
        assert!(failed * 3 < all, "{failed} of {all} operations are impossible");
    }
}
