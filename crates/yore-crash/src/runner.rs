//! Runs operations on a subject and on the model side by side, and compares after each.

use crate::model::expect::Expect;
use crate::model::{Effects, Ino, State};
use crate::op::Op;
use crate::outcome::{Kind, Outcome};
use crate::subject::Subject;
use crate::tree::{list, Facts, Tree};
use yore_fs::{Attr, FileKind, Timestamp};

/// A subject and the state that it should be in.
pub struct Runner<S> {
    /// The expected state.
    pub model: State,
    /// The subject under test.
    pub subject: S,
    /// How many operations failed for want of space, of which the model knows nothing.
    pub full: u64,
}

impl<S: Subject> Runner<S> {
    /// Begins with a subject that has only a root directory with these attributes.
    pub fn new(subject: S, root: &Attr) -> Runner<S> {
        Runner { model: State::new(root), subject, full: 0 }
    }

    /// Carries out one operation on both, compares the results, and learns what only the subject knows.
    ///
    /// # Errors
    /// The difference, in words.
    pub fn step(&mut self, op: &Op) -> Result<Effects, String> {
        let before = self.model.clone();
        let (expect, effects) = self.model.apply(op);
        if let Expect::Skip = expect {
            return Ok(effects);
        }
        let begin = self.subject.now();
        let outcome = self.subject.apply(op);
        let end = self.subject.now();
        if let Outcome::Failed(Kind::NoSpace, message) = &outcome {
            if !needs_space(op) {
                return Err(format!("{op}: failed for want of space, though it needs none: {message}"));
            }
            self.full += 1;
            self.model = before;
            return Ok(Effects::default());
        }
        if let (Some(ino), Outcome::Node(attr)) = (effects.created, &outcome) {
            self.model.learn_identity(ino, (attr.inode.0, attr.incarnation));
        }
        self.compare_outcome(&expect, &outcome).map_err(|difference| format!("{op}: {difference}"))?;
        self.learn(&effects, begin, end).map_err(|difference| format!("after {op}: {difference}"))?;
        if let Outcome::Node(attr) = &outcome {
            // The attributes that the call returned must be those that stay.
            let now = self.subject.attr(attr.inode.0)?;
            if Facts::of(&now) != Facts::of(attr) {
                return Err(format!(
                    "{op}: returned {:?}, but getattr says {:?}",
                    Facts::of(attr),
                    Facts::of(&now)
                ));
            }
        }
        Ok(effects)
    }

    /// Compares the whole tree.
    ///
    /// # Errors
    /// The difference, in words.
    pub fn compare(&self) -> Result<(), String> {
        let differences = self.subject.observe()?.differences(&Tree::of(&self.model), true);
        match differences.is_empty() {
            true => self.compare_held(),
            false => Err(list(&differences)),
        }
    }

    /// Compares the attributes of held inodes, which may have no name.
    fn compare_held(&self) -> Result<(), String> {
        for slot in 0..crate::op::SLOTS {
            let Some(ino) = self.model.slot(slot) else { continue };
            let attr = self.subject.attr(self.number(ino)?)?;
            self.compare_attr(ino, &attr).map_err(|difference| format!("slot{slot}: {difference}"))?;
        }
        Ok(())
    }

    fn learn(&mut self, effects: &Effects, begin: Timestamp, end: Timestamp) -> Result<(), String> {
        for &ino in &effects.touched {
            if self.model.get(ino).is_none() {
                continue;
            }
            let attr = self.subject.attr(self.number(ino)?)?;
            self.model.learn_times(ino, &attr, begin, end)?;
            self.compare_attr(ino, &attr)?;
        }
        Ok(())
    }

    fn number(&self, ino: Ino) -> Result<u64, String> {
        let identity = self.model.get(ino).and_then(|inode| inode.identity);
        Ok(identity.ok_or("an inode has no number: its creation returned none")?.0)
    }

    fn compare_attr(&self, ino: Ino, attr: &Attr) -> Result<(), String> {
        let Some(inode) = self.model.get(ino) else { return Ok(()) };
        let size = inode.data().map_or(attr.size, |data| data.size());
        let found = (attr.kind, attr.permissions, attr.links, attr.uid, attr.gid, attr.rdev, attr.size);
        let wanted = (inode.kind, inode.permissions, inode.links, inode.uid, inode.gid, inode.rdev, size);
        if found != wanted || inode.identity != Some((attr.inode.0, attr.incarnation)) {
            return Err(format!(
                "inode {}: (kind, permissions, links, uid, gid, rdev, size) are {found:?}, should be {wanted:?}; \
                 identity {:?}, should be {:?} (permissions in octal: {:o}, should be {:o})",
                attr.inode,
                (attr.inode, attr.incarnation),
                inode.identity,
                attr.permissions,
                inode.permissions,
            ));
        }
        Ok(())
    }

    fn compare_outcome(&self, expect: &Expect, outcome: &Outcome) -> Result<(), String> {
        let right = match (expect, outcome) {
            (Expect::Fails(kinds), Outcome::Failed(kind, _)) => kinds.contains(*kind),
            // An attribute call returns the attributes; `learn` compares them.
            (Expect::Done, Outcome::Done | Outcome::Node(_)) => true,
            (Expect::Created(_), Outcome::Node(_)) => true,
            (Expect::Found(ino), Outcome::Node(attr)) => {
                let found = self.model.get(*ino).and_then(|inode| inode.identity);
                found == Some((attr.inode.0, attr.incarnation))
            }
            (Expect::Bytes(wanted), Outcome::Bytes(bytes)) => {
                if wanted != bytes {
                    let at = wanted.iter().zip(bytes).position(|(a, b)| a != b);
                    return Err(format!(
                        "gave {} bytes, should be {}; the first difference is at {at:?}",
                        bytes.len(),
                        wanted.len()
                    ));
                }
                true
            }
            (Expect::Number(wanted), Outcome::Number(number)) => wanted == number,
            (Expect::Names(wanted), Outcome::Names(names)) => {
                let mut names = names.clone();
                names.sort_unstable();
                *wanted == names
            }
            (Expect::Entries(wanted), Outcome::Entries(entries)) => self.same_entries(wanted, entries),
            (Expect::Data { offset, data }, Outcome::Number(at)) => {
                let data_first = data.first_nonzero(*offset).unwrap_or(u64::MAX);
                *at >= *offset && *at < data.size() && *at <= data_first
            }
            (Expect::Data { offset, data }, Outcome::Failed(Kind::NoDataThere, _)) => {
                data.first_nonzero(*offset).is_none()
            }
            (Expect::Hole { offset, data }, Outcome::Number(at)) => {
                *at == data.size()
                    || *at >= *offset && *at < data.size() && data.first_nonzero(*at) != Some(*at)
            }
            _ => false,
        };
        match right {
            true => Ok(()),
            false => Err(format!("gave {}, should be {}", show(outcome), show(expect))),
        }
    }

    fn same_entries(
        &self,
        wanted: &[(crate::op::Name, Ino, FileKind)],
        found: &[(crate::op::Name, u64, FileKind)],
    ) -> bool {
        let mut found = found.to_vec();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        wanted.len() == found.len()
            && wanted.iter().zip(&found).all(|(wanted, found)| {
                let number = self.number(wanted.1).ok();
                (&wanted.0, number, wanted.2) == (&found.0, Some(found.1), found.2)
            })
    }
}

/// Whether an operation may fail on a full volume.
fn needs_space(op: &Op) -> bool {
    !matches!(
        op,
        Op::Read { .. }
            | Op::Readdir { .. }
            | Op::Readlink { .. }
            | Op::Lookup { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::Seek { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Hold { .. }
            | Op::Drop { .. }
            | Op::Fsync { .. }
            | Op::Sync
    )
}

fn show(value: &impl std::fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 400 {
        let end = (0..=400).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}
