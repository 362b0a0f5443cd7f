//! A copy writes over nothing that it reads: not over the file itself under another name, not over a volume
//! that it has open, and not into a directory that it is copying, which would never end. Paths do not tell,
//! because of hard links, symbolic links, `..` and mounts: identities do.

use crate::opened::directory_of;
use crate::side::{is_same_side, Facts, Identity, Side};
use std::collections::HashSet;
use std::path::Path;
use yore_fs::FileKind;

/// Refuses a target that is the source, or one of the files that hold the volumes which are open.
///
/// # Errors
/// What the target is.
pub fn refuse_source(
    (source, from, facts): (&dyn Side, &Path, &Facts),
    (target, to, existing): (&dyn Side, &Path, &Facts),
    volumes: &HashSet<Identity>,
) -> anyhow::Result<()> {
    anyhow::ensure!(
        facts.identity != existing.identity || !is_same_side(source, target),
        "{} and {} are the same file; nothing was written to it: name another target",
        source.name(from),
        target.name(to)
    );
    anyhow::ensure!(
        target.volume().is_some() || !volumes.contains(&existing.identity),
        "{} is the volume that is copied from; nothing was written to it: name another target",
        target.name(to)
    );
    Ok(())
}

/// The directories in which the copy of a tree is at work. It is empty if the sides are not the same.
#[derive(Default)]
pub struct Nesting {
    /// The directories that are being copied, one in the other.
    sources: HashSet<Identity>,
    /// The directories that are being copied into, and everything that these lie in.
    targets: HashSet<Identity>,
}

/// What one directory has added.
#[derive(Default)]
pub struct Entered {
    source: Option<Identity>,
    targets: Vec<Identity>,
}

impl Nesting {
    /// Begins the copy of a directory. The target may be there, or may be made when this returns.
    ///
    /// # Errors
    /// The target is, or lies in, a directory that is being copied.
    pub fn enter(
        &mut self,
        (source, from, facts): (&dyn Side, &Path, &Facts),
        (target, to): (&dyn Side, &Path),
    ) -> anyhow::Result<Entered> {
        if !is_same_side(source, target) {
            return Ok(Entered::default());
        }
        let new = self.new_targets(target, to)?;
        let is_copied = |one: &Identity| *one == facts.identity || self.sources.contains(one);
        anyhow::ensure!(
            !self.targets.contains(&facts.identity) && !new.iter().any(is_copied),
            "{} cannot be copied into itself ({}); name a target that is not in it",
            source.name(from),
            target.name(to)
        );
        Ok(Entered {
            source: self.sources.insert(facts.identity).then_some(facts.identity),
            targets: new.into_iter().filter(|one| self.targets.insert(*one)).collect(),
        })
    }

    /// Ends the copy of a directory. What was entered last ends first.
    pub fn leave(&mut self, entered: Entered) {
        if let Some(source) = entered.source {
            self.sources.remove(&source);
        }
        for one in entered.targets {
            self.targets.remove(&one);
        }
    }

    /// The directory at `to`, and what it lies in, as far as that may be unknown yet. A directory that is
    /// still to be made is nothing that is being copied; only the first one lies in something unknown.
    fn new_targets(&self, target: &dyn Side, to: &Path) -> anyhow::Result<Vec<Identity>> {
        let is_first = self.targets.is_empty();
        match target.facts(to)? {
            Some(found) if found.kind == FileKind::Directory && !is_first => Ok(vec![found.identity]),
            // The first directory, or a symbolic link that leads to one anywhere.
            Some(_) if target.is_directory(to) => target.lineage(to),
            _ if is_first && target.is_directory(directory_of(to)) => target.lineage(directory_of(to)),
            _ => Ok(Vec::new()),
        }
    }
}
