//! Operations on attributes: owners, permissions, sizes, times, extended attributes.

use super::{maybe, Body, Effects, Ino, State, Time, FILE_MAX, NAME_MAX};
use crate::model::expect::Expect;
use crate::op::{payload, Name};
use crate::outcome::{Kind, Kinds};
use std::sync::Arc;
use yore_fs::{Caller, FileKind, SetAttr, SetTime, SetXattrMode};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
/// The longest value of an extended attribute in bytes.
const VALUE_MAX: usize = 65_536;
/// Holds a program's capabilities, which are dropped together with set-id bits.
const CAPABILITY: &[u8] = b"security.capability";

impl State {
    pub(super) fn set_attr(
        &mut self,
        ino: Ino,
        set: &SetAttr,
        caller: &Caller,
        effects: &mut Effects,
    ) -> Expect {
        let inode = self.see(ino);
        let kind = inode.kind;
        if kind == FileKind::Symlink && set.permissions.is_some() {
            // Linux refuses it above the file system; others allow it.
            return Expect::Skip;
        }
        if let Some(size) = set.size {
            let bad = self.bad_content(ino);
            if !bad.is_empty() {
                return Expect::Fails(bad);
            }
            if size > FILE_MAX {
                return Expect::Fails(Kinds::of(&[Kind::FileTooLarge]));
            }
        }
        let owner = set.uid.is_some() || set.gid.is_some();
        if owner && kind != FileKind::Directory {
            let foreign = !caller.keeps_set_id && self.see(ino).gid != caller.gid;
            self.drop_set_id(ino, foreign);
        } else if set.kill_set_id && set.size.is_some() {
            self.drop_set_id(ino, false);
        }
        let foreign = !caller.keeps_set_id && self.see(ino).gid != caller.gid;
        let inode = self.at(ino);
        if let Some(permissions) = set.permissions {
            inode.permissions = permissions & 0o7777;
            if foreign {
                inode.permissions &= !SET_GROUP_ID;
            }
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if let (Some(size), Body::File(data)) = (set.size, &mut inode.body) {
            // If the size is set to its present value, the call decides whether mtime changes.
            inode.mtime = if size == data.size() { maybe(inode.mtime) } else { Time::Now };
            // Growing may be delayed as a write is: the data below the new end comes first.
            if size < data.size() {
                effects.truncated = Some((ino, size));
                effects.mtime_set = Some(ino);
            }
            data.truncate(size);
        }
        inode.atime = set.atime.map_or(inode.atime, explicit);
        if let Some(time) = set.mtime {
            inode.mtime = explicit(time);
            effects.mtime_set = Some(ino);
        }
        let before = inode.ctime;
        let unclear = matches!(inode.mtime, Time::Maybe(_));
        let only_size = *set == (SetAttr { size: set.size, ..SetAttr::default() });
        self.touch_inode(ino, effects);
        if let Some(time) = set.ctime {
            self.at(ino).ctime = explicit(time);
        } else if only_size && unclear {
            self.at(ino).ctime = maybe(before);
        }
        if only_size && effects.truncated.is_none() {
            effects.ctime_set.clear();
        }
        Expect::Done
    }

    /// The effect of a write by an ordinary user, and of a change of owner. `foreign`: the bit goes even
    /// without execution.
    pub(super) fn drop_set_id(&mut self, ino: Ino, foreign: bool) {
        let inode = self.at(ino);
        inode.permissions &= !SET_USER_ID;
        if inode.permissions & GROUP_EXECUTE != 0 || foreign {
            inode.permissions &= !SET_GROUP_ID;
        }
        inode.xattrs.remove(CAPABILITY);
    }

    /// Reasons why the content of an inode cannot be changed.
    pub(super) fn bad_content(&self, ino: Ino) -> Kinds {
        match self.see(ino).kind {
            FileKind::Regular => Kinds::default(),
            FileKind::Directory => Kinds::of(&[Kind::IsADirectory]),
            _ => Kinds::of(&[Kind::Invalid, Kind::NotPermitted, Kind::Unsupported]),
        }
    }

    pub(super) fn get_xattr(&self, ino: Ino, name: &Name) -> Expect {
        match self.see(ino).xattrs.get(name) {
            Some(value) => Expect::Bytes(value.to_vec()),
            None if name.len() > NAME_MAX => {
                Expect::Fails(Kinds::of(&[Kind::AttributeTooLarge, Kind::NoAttribute]))
            }
            None => Expect::Fails(Kinds::of(&[Kind::NoAttribute])),
        }
    }

    pub(super) fn set_xattr(
        &mut self,
        ino: Ino,
        name: &Name,
        value: (u64, usize),
        mode: SetXattrMode,
        effects: &mut Effects,
    ) -> Expect {
        let (tag, len) = value;
        let there = self.see(ino).xattrs.contains_key(name);
        let mut bad = Kinds::default();
        bad.add_if(len > VALUE_MAX || name.len() > NAME_MAX, Kind::AttributeTooLarge);
        bad.add_if(there && mode == SetXattrMode::Create, Kind::Exists);
        bad.add_if(!there && mode == SetXattrMode::Replace, Kind::NoAttribute);
        if !bad.is_empty() {
            return Expect::Fails(bad);
        }
        self.at(ino).xattrs.insert(name.clone(), Arc::from(payload(tag, len)));
        self.touch_inode(ino, effects);
        Expect::Done
    }

    pub(super) fn list_xattr(&self, ino: Ino) -> Expect {
        Expect::Names(self.see(ino).xattrs.keys().cloned().collect())
    }

    pub(super) fn remove_xattr(&mut self, ino: Ino, name: &Name, effects: &mut Effects) -> Expect {
        if !self.see(ino).xattrs.contains_key(name) {
            let mut bad = Kinds::of(&[Kind::NoAttribute]);
            bad.add_if(name.len() > NAME_MAX, Kind::AttributeTooLarge);
            return Expect::Fails(bad);
        }
        self.at(ino).xattrs.remove(name);
        self.touch_inode(ino, effects);
        Expect::Done
    }
}

fn explicit(time: SetTime) -> Time {
    match time {
        SetTime::Now => Time::Now,
        SetTime::To(time) => Time::Known(time),
    }
}
