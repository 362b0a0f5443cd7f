//! What each operation does to a state: dispatch, and the operations on content.

use super::names::{empty_body, link_body, New};
use super::{Body, Effects, FileData, Ino, State, Unresolved, FILE_MAX};
use crate::model::expect::Expect;
use crate::op::{payload, Op, Target};
use crate::outcome::{Kind, Kinds};
use yore_fs::{FallocateMode, FileKind, SeekTo};

impl State {
    /// Carries the operation out and returns what to expect of it.
    pub fn apply(&mut self, op: &Op) -> (Expect, Effects) {
        let mut effects = Effects::default();
        let expect = match self.dispatch(op, &mut effects) {
            Ok(expect) => expect,
            Err(Unresolved::Skip) => Expect::Skip,
            Err(Unresolved::Fails(kinds)) => Expect::Fails(kinds),
        };
        effects.touched.sort_unstable();
        effects.touched.dedup();
        (expect, effects)
    }

    /// This has one arm for each operation and nothing else. It is long because there are many operations.
    fn dispatch(&mut self, op: &Op, effects: &mut Effects) -> Result<Expect, Unresolved> {
        Ok(match op {
            Op::Create { at, kind, permissions, rdev, caller } => {
                let (kind, permissions, rdev) = (*kind, *permissions, *rdev);
                self.make(at, New { kind, permissions, rdev, caller, body: empty_body(kind) }, effects)?
            }
            Op::Mkdir { at, permissions, caller } => {
                let kind = FileKind::Directory;
                let (permissions, body) = (*permissions, empty_body(kind));
                self.make(at, New { kind, permissions, rdev: 0, caller, body }, effects)?
            }
            Op::Symlink { at, to, caller } => {
                let (kind, body) = (FileKind::Symlink, link_body(to));
                self.make(at, New { kind, permissions: 0o777, rdev: 0, caller, body }, effects)?
            }
            Op::Link { target, at } => {
                let ino = match self.resolve(target) {
                    Err(Unresolved::Fails(mut bad)) => {
                        if let Err(Unresolved::Fails(more)) = self.resolve(&at.directory) {
                            bad.add(more);
                        }
                        return Ok(Expect::Fails(bad));
                    }
                    resolved => resolved?,
                };
                self.link(ino, at, effects)?
            }
            Op::Unlink { at } => self.unlink(at, effects)?,
            Op::Rmdir { at } => self.rmdir(at, effects)?,
            Op::Rename { from, to, mode } => self.rename(from, to, *mode, effects)?,
            Op::Lookup { at } => {
                let directory = self.resolve(&at.directory)?;
                Expect::Found(self.find(directory, &at.name).map_err(Unresolved::Fails)?)
            }
            Op::Readlink { target } => match &self.see(self.resolve(target)?).body {
                Body::Symlink(to) => Expect::Bytes(to.to_vec()),
                _ => Expect::Fails(Kinds::of(&[Kind::Invalid])),
            },
            Op::Readdir { target, .. } => self.read_directory(target)?,
            Op::Sync => {
                effects.synced_all = true;
                Expect::Done
            }
            // The snapshot shows the state after it, which the judge has.
            Op::Snapshot { wait, .. } => {
                effects.synced_all = *wait;
                Expect::Done
            }
            // The promises of the other snapshots do not change, or of all.
            Op::Forget { .. } | Op::Index { .. } => Expect::Done,
            // Where blocks lie is nothing that the model knows.
            Op::Defragment { target } => {
                self.resolve(target)?;
                Expect::Done
            }
            // The present stays; the judge knows about the past.
            Op::Expunge { .. } => Expect::Done,
            Op::Fsync { target, data_only } => {
                effects.synced = Some((self.resolve(target)?, *data_only));
                Expect::Done
            }
            Op::Hold { target, slot } => {
                let ino = self.resolve(target)?;
                if self.slots[*slot] != Some(ino) {
                    self.empty_slot(*slot);
                    self.slots[*slot] = Some(ino);
                }
                Expect::Done
            }
            Op::Drop { slot } => {
                self.empty_slot(*slot);
                Expect::Done
            }
            Op::SetAttr { target, set, caller } => {
                let ino = self.resolve(target)?;
                self.set_attr(ino, set, caller, effects)
            }
            Op::GetXattr { target, name } => self.get_xattr(self.resolve(target)?, name),
            Op::SetXattr { target, name, len, tag, mode } => {
                let ino = self.resolve(target)?;
                self.set_xattr(ino, name, (*tag, *len), *mode, effects)
            }
            Op::ListXattr { target } => self.list_xattr(self.resolve(target)?),
            Op::RemoveXattr { target, name } => {
                let ino = self.resolve(target)?;
                self.remove_xattr(ino, name, effects)
            }
            Op::Copy { from, from_offset, to, to_offset, len } => {
                let (from, to) = (self.resolve(from)?, self.resolve(to)?);
                self.copy((from, *from_offset), (to, *to_offset), *len, effects)
            }
            Op::Read { .. } | Op::Write { .. } | Op::Fallocate { .. } | Op::Seek { .. } => {
                self.content(op, effects)?
            }
        })
    }

    fn read_directory(&self, target: &Target) -> Result<Expect, Unresolved> {
        let inode = self.see(self.resolve(target)?);
        Ok(match inode.entries() {
            None => {
                let mut bad = Kinds::of(&[Kind::NotADirectory]);
                bad.add_if(inode.links == 0, Kind::NotFound);
                Expect::Fails(bad)
            }
            // For a removed directory, POSIX leaves open whether `.` and `..` are listed.
            Some(_) if inode.links == 0 => Expect::Skip,
            Some(entries) => Expect::Entries(
                entries.iter().map(|(name, ino)| (name.clone(), *ino, self.see(*ino).kind)).collect(),
            ),
        })
    }

    /// Read, write, fallocate and seek.
    fn content(&mut self, op: &Op, effects: &mut Effects) -> Result<Expect, Unresolved> {
        let (Op::Read { target, .. }
        | Op::Write { target, .. }
        | Op::Fallocate { target, .. }
        | Op::Seek { target, .. }) = op
        else {
            unreachable!("the caller passes no others");
        };
        let ino = self.resolve(target)?;
        let mut bad = self.bad_content(ino);
        if !bad.is_empty() {
            // A directory may answer that it is one, or that it has no such operation.
            if matches!(op, Op::Seek { .. } | Op::Fallocate { .. }) {
                bad.add(Kinds::of(&[Kind::Invalid, Kind::Unsupported]));
            }
            return Ok(Expect::Fails(bad));
        }
        Ok(match op {
            Op::Read { offset, len, .. } => Expect::Bytes(self.data(ino).read(*offset, *len as u64)),
            Op::Seek { offset, to, .. } => seek(self.data(ino).clone(), *offset, *to),
            Op::Fallocate { offset, len, mode, .. } => self.fallocate(ino, *offset, *len, *mode, effects),
            Op::Write { offset, len, tag, append, kill_set_id, .. } => {
                let offset = if *append { self.data(ino).size() } else { *offset };
                if *len == 0 {
                    return Ok(Expect::Number(offset));
                }
                if offset.saturating_add(*len as u64) > FILE_MAX {
                    return Ok(Expect::Fails(Kinds::of(&[Kind::FileTooLarge])));
                }
                self.data_mut(ino).write(offset, &payload(*tag, *len));
                if *kill_set_id {
                    self.drop_set_id(ino, false);
                }
                self.touch_content(ino, effects);
                Expect::Number(offset)
            }
            _ => unreachable!("matched above"),
        })
    }

    fn fallocate(
        &mut self,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: FallocateMode,
        effects: &mut Effects,
    ) -> Expect {
        if len == 0 {
            return Expect::Fails(Kinds::of(&[Kind::Invalid]));
        }
        let end = offset.saturating_add(len);
        if end > FILE_MAX {
            return Expect::Fails(Kinds::of(&[Kind::FileTooLarge]));
        }
        let before = self.data(ino).clone();
        let data = self.data_mut(ino);
        let grows = match mode {
            FallocateMode::Allocate { keep_size } => !keep_size && end > data.size(),
            FallocateMode::PunchHole => {
                data.zero(offset, len);
                false
            }
            FallocateMode::ZeroRange { keep_size } => {
                data.zero(offset, len);
                !keep_size && end > data.size()
            }
        };
        if grows {
            data.truncate(end);
        }
        // A change that does not show in the content need not show in the times.
        if *data == before {
            self.touch_maybe(ino, effects);
        } else {
            self.touch_content(ino, effects);
        }
        Expect::Done
    }

    fn copy(&mut self, from: (Ino, u64), to: (Ino, u64), len: u64, effects: &mut Effects) -> Expect {
        let mut bad = self.bad_content(from.0);
        bad.add(self.bad_content(to.0));
        if !bad.is_empty() {
            bad.add(Kinds::of(&[Kind::Invalid]));
            return Expect::Fails(bad);
        }
        let count = len.min(self.data(from.0).size().saturating_sub(from.1));
        let overlap = |len: u64| {
            from.0 == to.0 && from.1 < to.1.saturating_add(len) && to.1 < from.1.saturating_add(len)
        };
        if overlap(count) {
            return Expect::Fails(Kinds::of(&[Kind::Invalid]));
        }
        if overlap(len) {
            // It is not specified whether the end of the source counts.
            return Expect::Skip;
        }
        if count == 0 {
            return Expect::Number(0);
        }
        if to.1.saturating_add(count) > FILE_MAX {
            return Expect::Fails(Kinds::of(&[Kind::FileTooLarge]));
        }
        let bytes = self.data(from.0).read(from.1, count);
        self.data_mut(to.0).write(to.1, &bytes);
        self.touch_content(to.0, effects);
        Expect::Number(count)
    }

    /// The content of a regular file.
    fn data(&self, ino: Ino) -> &FileData {
        self.see(ino).data().expect("the callers checked that it is a regular file")
    }

    fn data_mut(&mut self, ino: Ino) -> &mut FileData {
        match &mut self.at(ino).body {
            Body::File(data) => data,
            _ => unreachable!("the callers checked that it is a regular file"),
        }
    }
}

fn seek(data: FileData, offset: u64, to: SeekTo) -> Expect {
    if offset >= data.size() {
        return Expect::Fails(Kinds::of(&[Kind::NoDataThere]));
    }
    match to {
        SeekTo::Data => Expect::Data { offset, data },
        SeekTo::Hole => Expect::Hole { offset, data },
    }
}
