//! Rolls a directory back, and lists the rollbacks that have not ended.

use super::rows::{fits, fitting};
use super::told::visible_part;
use super::who::Who;
use crate::Answer;
use std::os::unix::ffi::OsStrExt as _;
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{Error, InodeNo, Result, View};

/// Rolls a directory back.
pub(super) fn roll_back(view: &View, directory: InodeNo, who: &Who<'_>, plan: &Plan) -> Result<Answer> {
    let rights = rights(view, directory, who)?;
    who.check_writable()?;
    if view.event().is_some() {
        return Err(Error::ReadOnly);
    }
    if !matches!(plan.verb, Verb::Rollback | Verb::Undo | Verb::Redo) {
        return Err(Error::Invalid { what: "a directory is rolled back by a rollback, an undo or a redo" });
    }
    let mut changed = |changed| who.host.changed(changed);
    let done = view.rollback_for(Some(&who.user()), &rights, directory, plan, &mut changed);
    // Files of others may be in places that the user may not see.
    let told = |path: &str| visible_part(view, who.access, directory, plan.target, path);
    let done = match done {
        Err(Error::NotYours { path }) => Err(Error::NotYours { path: told(&path)? }),
        Err(Error::Protected { path }) => Err(Error::Protected { path: told(&path)? }),
        done => done,
    };
    let name = match &done {
        Ok(done) => &done.name,
        Err(Error::Unfinished { name, .. }) => name,
        Err(_) => "",
    };
    let doing = who.doing(view);
    doing.note(doing.rolling(directory, name)?);
    done.map(Answer::RolledBack)
}

/// Whose files the rollback may change, if the user may ask for one at all.
fn rights(view: &View, directory: InodeNo, who: &Who<'_>) -> Result<Rights> {
    if who.as_root {
        return Ok(Rights::All);
    }
    if who.may_all {
        return Ok(Rights::Unprotected);
    }
    match view.getattr(directory)?.uid == who.uid {
        true => Ok(Rights::Owner { uid: who.uid, groups: who.groups.to_vec() }),
        false => Err(Error::NotPermitted {
            what: "a directory is rolled back by its owner, by root, or by the user who mounted the volume",
        }),
    }
}

/// The rollbacks that have not ended.
pub(super) fn unfinished(view: &View, who: &Who<'_>, from: u64) -> Result<Answer> {
    let view = view.present();
    let mut rows = Vec::new();
    for one in view.unfinished_rollbacks()? {
        let is_owner = || match view.node(one.directory, Some(one.incarnation)) {
            Ok(node) => Ok(node.attr().uid == who.uid),
            Err(Error::Stale) => Ok(false),
            Err(e) => Err(e),
        };
        if who.may_all || is_owner()? {
            let path = view.path_now(one.directory)?.map(|path| path.as_os_str().as_bytes().to_vec());
            let row = (one, path);
            // Leaves out a path that would not fit into any answer.
            rows.push(if fits(&row) { row } else { (row.0, None) });
        }
    }
    let wanted = (0u64..).zip(rows).filter(|(index, _)| *index >= from);
    let (rows, left) = fitting(wanted);
    let next = left.map(|(index, _)| index);
    Ok(Answer::UnfinishedRollbacks { rows: rows.into_iter().map(|(_, row)| row).collect(), next })
}
