//! Policies by ioctl(2): of any open directory or regular file of a mount. The form of requests is that of [`super`].
//!
//! # What applies: `_IOWR('Y', 8, 10536 bytes)`
//!
//! The request is zeros.
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..4 | flags: 1, closes make versions on this mount; 2, what is asked of is excluded itself |
//! | 8..1168 | the policy of its own: 4 bytes of length, then a policy as it is on the medium (`FORMAT.md`), with incarnation 0 |
//! | 1168..2328 | in the same form what applies |
//! | 2328..4380 | 4 bytes of length, then the path on the volume of the directory or file that says when versions are made; no bytes: nobody says anything |
//! | 4380..6432 | the same of who says how long they are kept |
//! | 6432..8484 | the same of who says for how long what policies take is held |
//! | 8484..10536 | the same of who says what is excluded |
//!
//! For everybody who may open it. The present only: EROFS in the past.
//!
//! # Give another one: `_IOWR('Y', 9, 1160 bytes)`
//!
//! The request is the policy, in the same form; the answer begins with the flags. Durable when it returns. For root, the daemon's user,
//! and the owner; EPERM for others. Only root and the daemon's user may give one that says anything else of holding than
//! before, and only root one with which what policies take is held for a shorter time: EPERM. EDQUOT: the owner has as many
//! policies as one user may. EINVAL: it cannot be. EAGAIN: the daemon cannot
//! start the thread that finds out when files are closed. EROFS, ENOSPC, EIO as elsewhere.

use super::{call, check_writable, malformed, may_all, may_snapshot, put, u32_at, Failure};
use fuser::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use yore_fs::{Doing, FileKind, Incarnation, InodeNo, Number, Policy, PolicyRow, User, Versioning, View};

/// A policy, the longest patterns and all.
const ROW_BYTES: usize = 1160;
const PATH_BYTES: usize = 2052;
const OWN_AT: usize = 8;
const IN_FORCE_AT: usize = OWN_AT + ROW_BYTES;
const VERSIONING_AT: usize = IN_FORCE_AT + ROW_BYTES;
const RETENTION_AT: usize = VERSIONING_AT + PATH_BYTES;
const HOLD_AT: usize = RETENTION_AT + PATH_BYTES;
const EXCLUDE_AT: usize = HOLD_AT + PATH_BYTES;
const GET_BYTES: usize = EXCLUDE_AT + PATH_BYTES;
const GET: Opcode = opcode::read_write::<[u8; GET_BYTES]>(b'Y', 8);
const SET: Opcode = opcode::read_write::<[u8; ROW_BYTES]>(b'Y', 9);

/// Said by all mounts; those of before found out nothing of closes that they were not told of.
const CLOSES: u32 = 1;
/// What is asked of is excluded.
const EXCLUDED: u32 = 2;

/// What a mount says of an open directory or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyHere {
    /// Its own policy; one that says nothing if it has none.
    pub own: Policy,
    /// What applies: both halves are said.
    pub in_force: Policy,
    /// Who says when versions are made: a path on the volume.
    pub versioning_by: Option<PathBuf>,
    /// Who says how long they are kept.
    pub retention_by: Option<PathBuf>,
    /// Who says for how long they are held.
    pub hold_by: Option<PathBuf>,
    /// Who says what is excluded.
    pub exclude_by: Option<PathBuf>,
    /// It is excluded itself.
    pub excluded: bool,
}

/// What applies to an open directory or file of a mount.
///
/// # Errors
/// ENOTTY if Yore does not serve it; EROFS in the past; `InvalidData` for an answer that is none.
pub fn policy(of: &File) -> io::Result<PolicyHere> {
    let mut buffer = Box::new([0; GET_BYTES]);
    call::<GET, GET_BYTES>(of, &mut buffer)?;
    let row = |at: usize| decode_row(buffer.get(at..at + ROW_BYTES)?);
    let decoded = || {
        Some(PolicyHere {
            own: row(OWN_AT)?,
            in_force: row(IN_FORCE_AT)?,
            versioning_by: decode_path(&buffer[VERSIONING_AT..RETENTION_AT])?,
            retention_by: decode_path(&buffer[RETENTION_AT..HOLD_AT])?,
            hold_by: decode_path(&buffer[HOLD_AT..EXCLUDE_AT])?,
            exclude_by: decode_path(&buffer[EXCLUDE_AT..])?,
            excluded: u32_at(&buffer[..], 0)? & EXCLUDED != 0,
        })
    };
    decoded().ok_or_else(malformed)
}

/// Gives an open directory or file of a mount a policy, or with one that says nothing none.
///
/// # Errors
/// As the text above; ENOTTY if Yore does not serve it.
pub fn set_policy(of: &File, policy: &Policy) -> io::Result<()> {
    check_writable(of)?;
    // What cannot be is not encoded either.
    yore_fs::check_patterns(policy.exclude.as_deref().unwrap_or_default())
        .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    let mut buffer = [0; ROW_BYTES];
    encode_row(&mut buffer, policy);
    call::<SET, ROW_BYTES>(of, &mut buffer)?;
    Ok(())
}

/// Whether a request is one of these.
pub(crate) fn is_ours(number: Opcode) -> bool {
    [GET, SET].contains(&number)
}

/// The daemon's half.
pub(crate) fn answer(
    view: &View,
    inode: InodeNo,
    (user, read_only): (User, bool),
    want_closes: &dyn Fn() -> io::Result<()>,
    number: Opcode,
    request: &[u8],
) -> Result<Vec<u8>, Failure> {
    if view.cut().is_some() {
        return Err(yore_fs::Error::ReadOnly.into());
    }
    if !matches!(view.getattr(inode)?.kind, FileKind::Directory | FileKind::Regular) {
        return Err(Failure::Number(Errno::ENOTTY));
    }
    if number == SET {
        let policy = decode_row(request).ok_or(Failure::Number(Errno::EINVAL))?;
        let holds_otherwise = || Ok::<_, Failure>(policy.hold != view.policy(inode)?.hold);
        let may = may_snapshot(view, inode, None, user.uid)?
            && (user.uid == 0 || !view.shortens_hold(inode, &policy)?)
            && (may_all(user.uid) || !holds_otherwise()?);
        if !may {
            return Err(Failure::Number(Errno::EPERM));
        }
        if read_only {
            return Err(yore_fs::Error::ReadOnly.into());
        }
        if policy.versioning == Some(Versioning::Close) {
            want_closes().map_err(|_| Failure::Number(Errno::EAGAIN))?;
        }
        let doing = Doing { view, uid: user.uid };
        let row = doing.setting(inode, &policy)?;
        view.set_policy_for(&user, inode, &policy)?;
        doing.note([row]);
        let mut bytes = vec![0; ROW_BYTES];
        put(&mut bytes, 0, &CLOSES.to_le_bytes());
        return Ok(bytes);
    }
    if request.len() != GET_BYTES || request.iter().any(|b| *b != 0) {
        return Err(Failure::Number(Errno::EINVAL));
    }
    let in_force = view.policy_in_force(inode)?;
    let mut bytes = vec![0; GET_BYTES];
    let flags = CLOSES | if in_force.excluded { EXCLUDED } else { 0 };
    put(&mut bytes, 0, &flags.to_le_bytes());
    encode_row(&mut bytes[OWN_AT..], &view.policy(inode)?);
    let applies = Policy {
        versioning: Some(in_force.versioning),
        retention: Some(in_force.retention.clone()),
        hold: Some(in_force.hold),
        exclude: Some(in_force.exclude.clone()),
    };
    encode_row(&mut bytes[IN_FORCE_AT..], &applies);
    let said_by = [
        (VERSIONING_AT, in_force.versioning_by),
        (RETENTION_AT, in_force.retention_by),
        (HOLD_AT, in_force.hold_by),
        (EXCLUDE_AT, in_force.exclude_by),
    ];
    for (at, by) in said_by {
        let path = by.map(|by| view.path_now(by)).transpose()?.flatten();
        let path = path.as_deref().map_or(&b""[..], |path| path.as_os_str().as_bytes());
        let path = if path.len() > PATH_BYTES - 4 { b"" } else { path };
        put(&mut bytes, at, &(path.len() as u32).to_le_bytes());
        put(&mut bytes, at + 4, path);
    }
    Ok(bytes)
}

fn encode_row(bytes: &mut [u8], policy: &Policy) {
    let (incarnation, excluding_since) = (Incarnation(0), Number(0));
    let row = PolicyRow { incarnation, policy: policy.clone(), excluding_since }.encode();
    put(bytes, 0, &(row.len() as u32).to_le_bytes());
    put(bytes, 4, &row);
}

fn decode_row(bytes: &[u8]) -> Option<Policy> {
    let end = 4 + usize::try_from(u32_at(bytes, 0)?).ok().filter(|len| *len <= ROW_BYTES - 4)?;
    let row = PolicyRow::decode(bytes.get(4..end)?).ok()?;
    let clear = bytes.len() == ROW_BYTES && bytes.iter().skip(end).all(|b| *b == 0);
    (clear && (row.incarnation, row.excluding_since) == (Incarnation(0), Number(0))).then_some(row.policy)
}

/// `None`: no answer of ours.
fn decode_path(bytes: &[u8]) -> Option<Option<PathBuf>> {
    let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let path = bytes.get(4..4usize.checked_add(len)?)?;
    Some((!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path.to_vec()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::{KeepRules, Retention};

    /// The numbers are those that other programs were told, and the rows fit.
    #[test]
    fn numbers_and_sizes() {
        assert_eq!((GET, SET), (0xe928_5908, 0xc488_5909));
        let rules = KeepRules { last: 1, within: "1".repeat(64), ..KeepRules::default() };
        for retention in [None, Some(Retention::Everything), Some(Retention::Rules(rules))] {
            let exclude = Some(vec!["x".repeat(yore_fs::EXCLUDE_MAX - 1)]);
            let versioning = Some(Versioning::Interval(u64::MAX));
            let policy = Policy { versioning, retention, exclude, hold: Some(u64::MAX) };
            let mut bytes = [0; ROW_BYTES];
            encode_row(&mut bytes, &policy);
            assert_eq!(decode_row(&bytes), Some(policy));
            bytes[ROW_BYTES - 1] ^= 0x80;
            assert_eq!(decode_row(&bytes), None, "bytes without a meaning, or with another");
        }
        assert_eq!(decode_row(&[0xff; ROW_BYTES]), None);
        assert_eq!(decode_row(&[]), None);
    }
}
