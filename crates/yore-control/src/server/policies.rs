//! Policies: what applies to a directory or file, and how it gets another policy.

use super::who::Who;
use crate::{Answer, PolicyHere};
use std::os::unix::ffi::OsStrExt as _;
use yore_fs::{Error, InodeNo, Policy, Result, Versioning, View};

/// The longest path that an answer contains, half as long as any that a call takes: four of them fit into an
/// answer.
const PATH_MAX: usize = 2048;

const NOT_YOURS: Error = Error::NotPermitted {
    what: "policies are set by the owner, by root, and by the user who mounted the volume; what is said of `hold` by root and that user \
           only, and only root makes it shorter, also by a policy further down",
};

fn check_present(view: &View) -> Result<()> {
    match view.event() {
        None => Ok(()),
        Some(_) => Err(Error::NotPermitted { what: "what is of the past has no policies" }),
    }
}

/// The policy that applies.
pub(super) fn policy(view: &View, inode: InodeNo) -> Result<Answer> {
    check_present(view)?;
    let path = |of: Option<InodeNo>| {
        let path = of.map(|of| view.path_now(of)).transpose()?.flatten();
        let bytes = path.map(|path| path.as_os_str().as_bytes().to_vec());
        Ok::<_, Error>(bytes.filter(|path| path.len() <= PATH_MAX))
    };
    let found = view.policy_in_force(inode)?;
    Ok(Answer::Policy(Box::new(PolicyHere {
        own: view.policy(inode)?,
        versioning_by: path(found.versioning_by)?,
        retention_by: path(found.retention_by)?,
        hold_by: path(found.hold_by)?,
        exclude_by: path(found.exclude_by)?,
        excluded: found.excluded,
        in_force: Policy {
            versioning: Some(found.versioning),
            retention: Some(found.retention),
            hold: Some(found.hold),
            exclude: Some(found.exclude),
        },
    })))
}

/// Sets another policy.
pub(super) fn set(view: &View, inode: InodeNo, who: &Who<'_>, policy: &Policy) -> Result<Answer> {
    check_present(view)?;
    let holds_otherwise = || Ok::<_, Error>(policy.hold != view.policy(inode)?.hold);
    let may = || {
        let may = who.may_take(view, inode, None)?
            && (who.as_root || !view.shortens_hold(inode, policy)?)
            && (who.may_all || !holds_otherwise()?);
        match may {
            true => Ok(()),
            false => Err(NOT_YOURS),
        }
    };
    may()?;
    who.check_writable()?;
    if policy.versioning == Some(Versioning::Close) {
        who.host.want_closes()?;
    }
    let doing = who.doing(view);
    let row = doing.setting(inode, policy)?;
    match who.as_root {
        // Nobody else's change keeps root waiting.
        true => view.set_policy_for(&who.user(), inode, policy)?,
        // Somebody may have set another policy since.
        false => view.set_policy_if(&who.user(), inode, policy, &may)?,
    }
    doing.note([row]);
    Ok(Answer::Done)
}
