//! Operations on names: create, link, unlink, rename.

use super::{Body, Effects, FileData, Ino, Inode, State, Time, Unresolved};
use crate::model::expect::Expect;
use crate::op::{EntryPath, Name};
use crate::outcome::{Kind, Kinds};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_fs::{Caller, FileKind, RenameMode};

/// The longest target of a symbolic link in bytes.
const LINK_TARGET_MAX: usize = 4095;

/// Set-group-id and group-execute.
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// What to make.
pub(super) struct New<'a> {
    pub(super) kind: FileKind,
    pub(super) permissions: u32,
    pub(super) rdev: u32,
    pub(super) caller: &'a Caller,
    pub(super) body: Body,
}

impl State {
    /// A new inode under a new name; for directories `permissions` are without set-id bits.
    pub(super) fn make(
        &mut self,
        at: &EntryPath,
        new: New<'_>,
        effects: &mut Effects,
    ) -> Result<Expect, Unresolved> {
        let New { kind, permissions, rdev, caller, body } = new;
        let mut bad = Kinds::default();
        if let Body::Symlink(target) = &body {
            bad.add_if(target.len() > LINK_TARGET_MAX, Kind::NameTooLong);
        }
        let (directory, existing) = self.resolve_entry(at).map_err(|why| why.or(bad))?;
        bad.add_if(existing.is_some(), Kind::Exists);
        bad.add_if(self.see(directory).links == 0, Kind::NotFound);
        if !bad.is_empty() {
            return Ok(Expect::Fails(bad));
        }
        let above = self.see(directory);
        let inherits = above.permissions & SET_GROUP_ID != 0;
        let gid = if inherits { above.gid } else { caller.gid };
        let mut permissions = match kind {
            FileKind::Symlink => 0o777,
            _ => permissions & 0o7777 & !caller.umask,
        };
        if inherits && kind == FileKind::Directory {
            permissions |= SET_GROUP_ID;
        } else if inherits && gid != caller.gid && !caller.keeps_set_id {
            // An ordinary user must not make a set-group-id program of a group that is not theirs.
            let both = SET_GROUP_ID | GROUP_EXECUTE;
            if permissions & both == both {
                permissions &= !SET_GROUP_ID;
            }
        }
        let is_directory = kind == FileKind::Directory;
        let body = match body {
            Body::Directory { entries, .. } => Body::Directory { entries, parent: directory },
            other => other,
        };
        let inode = Inode {
            identity: None,
            kind,
            permissions,
            uid: caller.uid,
            gid,
            links: if is_directory { 2 } else { 1 },
            rdev,
            atime: Time::Now,
            mtime: Time::Now,
            ctime: Time::Now,
            btime: Time::Now,
            xattrs: BTreeMap::new(),
            body,
        };
        let ino = self.inodes.len();
        self.inodes.push(Some(Arc::new(inode)));
        self.entries_mut(directory).insert(at.name.clone(), ino);
        if is_directory {
            self.at(directory).links += 1;
        }
        effects.created = Some(ino);
        effects.touched.push(ino);
        effects.ctime_set.push(ino);
        self.touch_content(directory, effects);
        Ok(Expect::Created(ino))
    }

    pub(super) fn link(
        &mut self,
        ino: Ino,
        at: &EntryPath,
        effects: &mut Effects,
    ) -> Result<Expect, Unresolved> {
        let mut bad = Kinds::default();
        bad.add_if(self.is_directory(ino), Kind::NotPermitted);
        bad.add_if(self.see(ino).links == 0, Kind::NotFound);
        let (directory, existing) = self.resolve_entry(at).map_err(|why| why.or(bad))?;
        bad.add_if(self.see(directory).links == 0, Kind::NotFound);
        bad.add_if(existing.is_some(), Kind::Exists);
        if !bad.is_empty() {
            return Ok(Expect::Fails(bad));
        }
        self.entries_mut(directory).insert(at.name.clone(), ino);
        self.at(ino).links += 1;
        self.touch_inode(ino, effects);
        self.touch_content(directory, effects);
        Ok(Expect::Found(ino))
    }

    pub(super) fn unlink(&mut self, at: &EntryPath, effects: &mut Effects) -> Result<Expect, Unresolved> {
        let (directory, existing) = self.resolve_entry(at)?;
        let Some(ino) = existing else {
            return Ok(Expect::Fails(Kinds::of(&[Kind::NotFound])));
        };
        if self.is_directory(ino) {
            return Ok(Expect::Fails(Kinds::of(&[Kind::IsADirectory])));
        }
        self.entries_mut(directory).remove(&at.name);
        self.touch_content(directory, effects);
        self.lose_name(ino, effects);
        Ok(Expect::Done)
    }

    pub(super) fn rmdir(&mut self, at: &EntryPath, effects: &mut Effects) -> Result<Expect, Unresolved> {
        let (directory, existing) = self.resolve_entry(at)?;
        let Some(ino) = existing else {
            return Ok(Expect::Fails(Kinds::of(&[Kind::NotFound])));
        };
        let mut bad = Kinds::default();
        match self.see(ino).entries() {
            None => bad.add_if(true, Kind::NotADirectory),
            Some(entries) => bad.add_if(!entries.is_empty(), Kind::NotEmpty),
        }
        if !bad.is_empty() {
            return Ok(Expect::Fails(bad));
        }
        self.entries_mut(directory).remove(&at.name);
        self.at(directory).links -= 1;
        self.touch_content(directory, effects);
        self.lose_name(ino, effects);
        Ok(Expect::Done)
    }

    /// Removes one name; directories have only one.
    fn lose_name(&mut self, ino: Ino, effects: &mut Effects) {
        let is_directory = self.is_directory(ino);
        let inode = self.at(ino);
        inode.links = if is_directory { 0 } else { inode.links - 1 };
        self.touch_inode(ino, effects);
        self.free_if_unused(ino);
    }

    pub(super) fn rename(
        &mut self,
        from: &EntryPath,
        to: &EntryPath,
        mode: RenameMode,
        effects: &mut Effects,
    ) -> Result<Expect, Unresolved> {
        let (source_directory, source) = match self.resolve_entry(from) {
            Ok(found) => found,
            // The other place may be wrong as well, and either error is right.
            Err(Unresolved::Fails(mut bad)) => {
                match self.resolve_entry(to) {
                    Err(Unresolved::Fails(more)) => bad.add(more),
                    Err(Unresolved::Skip) => return Err(Unresolved::Skip),
                    Ok((directory, existing)) => {
                        bad.add_if(self.see(directory).links == 0, Kind::NotFound);
                        bad.add_if(existing.is_some() && mode == RenameMode::NoReplace, Kind::Exists);
                        bad.add_if(existing.is_none() && mode == RenameMode::Exchange, Kind::NotFound);
                    }
                }
                return Ok(Expect::Fails(bad));
            }
            Err(skip) => return Err(skip),
        };
        let (target_directory, target) = match self.resolve_entry(to) {
            Ok(found) => found,
            Err(Unresolved::Fails(mut bad)) => {
                bad.add_if(source.is_none(), Kind::NotFound);
                return Ok(Expect::Fails(bad));
            }
            Err(skip) => return Err(skip),
        };
        let bad = self.bad_rename(source, target_directory, source_directory, target, mode);
        let Some(source) = source.filter(|_| bad.is_empty()) else {
            return Ok(Expect::Fails(bad));
        };
        if target == Some(source) {
            // Two names of one file: both stay (POSIX).
            return Ok(Expect::Done);
        }
        if let (Some(target), RenameMode::Exchange) = (target, mode) {
            self.entries_mut(source_directory).insert(from.name.clone(), target);
            self.move_parent(target, target_directory, source_directory);
            self.touch_inode(target, effects);
        } else {
            self.entries_mut(source_directory).remove(&from.name);
        }
        self.entries_mut(target_directory).insert(to.name.clone(), source);
        self.move_parent(source, source_directory, target_directory);
        self.touch_inode(source, effects);
        self.touch_content(source_directory, effects);
        self.touch_content(target_directory, effects);
        if let (Some(target), RenameMode::Replace) = (target, mode) {
            if self.is_directory(target) {
                self.at(target_directory).links -= 1;
            }
            effects.replaced_by = Some(source);
            self.lose_name(target, effects);
        }
        Ok(Expect::Done)
    }

    fn bad_rename(
        &self,
        source: Option<Ino>,
        target_directory: Ino,
        source_directory: Ino,
        target: Option<Ino>,
        mode: RenameMode,
    ) -> Kinds {
        let mut bad = Kinds::default();
        bad.add_if(source.is_none(), Kind::NotFound);
        bad.add_if(self.see(target_directory).links == 0, Kind::NotFound);
        bad.add_if(target.is_some() && mode == RenameMode::NoReplace, Kind::Exists);
        bad.add_if(target.is_none() && mode == RenameMode::Exchange, Kind::NotFound);
        let Some(source) = source else { return bad };
        let moves_below_itself =
            self.is_directory(source) && self.is_below(target_directory, source) && target != Some(source);
        bad.add_if(moves_below_itself, Kind::Invalid);
        let Some(target) = target.filter(|target| *target != source) else { return bad };
        if mode == RenameMode::Exchange {
            let above = self.is_directory(target) && self.is_below(source_directory, target);
            bad.add_if(above, Kind::Invalid);
        }
        if mode == RenameMode::Replace {
            match self.see(target).entries() {
                Some(entries) => {
                    bad.add_if(!self.is_directory(source), Kind::IsADirectory);
                    bad.add_if(!entries.is_empty(), Kind::NotEmpty);
                }
                None => bad.add_if(self.is_directory(source), Kind::NotADirectory),
            }
        }
        bad
    }

    /// A directory's `..`, and the counts of the directories it leaves and enters.
    fn move_parent(&mut self, ino: Ino, old: Ino, new: Ino) {
        if let Body::Directory { parent, .. } = &mut self.at(ino).body {
            *parent = new;
            self.at(old).links -= 1;
            self.at(new).links += 1;
        }
    }
}

/// What a new inode of a kind holds.
pub(super) fn empty_body(kind: FileKind) -> Body {
    match kind {
        FileKind::Directory => Body::Directory { entries: Arc::default(), parent: 0 },
        FileKind::Regular => Body::File(FileData::default()),
        _ => Body::Special,
    }
}

/// What a new symbolic link holds.
pub(super) fn link_body(target: &Name) -> Body {
    Body::Symlink(target.clone())
}
