//! Puts back the names of a directory that are gone or were changed or renamed, and leaves others alone.

use super::ground::Ground;
use super::one::{Done, Putter};
use super::operation;
use super::paths::{below, is_listed, tell_all};
use crate::args;
use crate::output::List;
use crate::status;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use yore_fs::rollback::{ancestors, Back, Verb};
use yore_fs::{Change, Difference, EventNo, FileKind};

/// Restores what was in a directory as of an event.
pub fn restore(
    ground: &Ground,
    then: &Path,
    now: &Path,
    event: Option<EventNo>,
    args: &args::Restore,
    list: &mut List,
) -> anyhow::Result<()> {
    let mut chosen = Chosen::of(&ground.diff(now, event, None)?);
    let putter = Putter::new(ground, args.progress)?;
    chosen.leave_out_same(&putter, then, now)?;
    if is_listed(args.dry_run, list) {
        tell_all(list, &chosen.wanted, &Back::new(&[]))?;
        if args.dry_run {
            return Ok(());
        }
    }
    if chosen.wanted.is_empty() {
        status::tell(format_args!("{}: all that was there then is there, as it was", ground.name(now)));
        return Ok(());
    }
    ground.check_nothing_mounted_below(now)?;
    ground.check_writable(now)?;
    let _source = ground.pin_source(then)?;
    ground.check_room(now, chosen.check(&putter, then, now)?)?;
    operation::run(ground, now, Verb::Restore, || chosen.put(ground, putter, then, now))
}

/// What is put back below a directory.
struct Chosen {
    /// As differences, a directory before what is below it.
    wanted: Vec<Difference>,
    /// The paths of directories that come back with all that was below them.
    whole: HashSet<Vec<u8>>,
}

impl Chosen {
    /// What is to be put back, according to these differences.
    fn of(all: &[Difference]) -> Chosen {
        let back = Back::new(all);
        let mut wanted: Vec<Difference> = Vec::new();
        let mut whole: HashSet<Vec<u8>> = HashSet::new();
        for one in all {
            let (Some(path), change) = (back.of(one), one.change) else { continue };
            let mut one = one.clone();
            if change == Change::Renamed {
                // The new name came since, so it stays. The old name gets a file or directory of its own.
                (one.change, one.old_path, one.after) = (Change::Removed, None, None);
                if one.kind == FileKind::Directory {
                    whole.insert(path.clone());
                }
            }
            one.path = path;
            wanted.push(one);
        }
        wanted.retain(|one| !ancestors(&one.path).skip(1).any(|above| whole.contains(above)));
        wanted.sort_by(|a, b| a.path.split(|b| *b == b'/').cmp(b.path.split(|b| *b == b'/')));
        Chosen { wanted, whole }
    }

    /// Whether a directory comes back without its content: what was below it is chosen name by name.
    fn is_alone(&self, one: &Difference) -> bool {
        one.kind == FileKind::Directory && !self.whole.contains(&one.path)
    }

    /// Leaves out what looks the same now as it did then.
    fn leave_out_same(&mut self, putter: &Putter<'_>, then: &Path, now: &Path) -> anyhow::Result<()> {
        for one in std::mem::take(&mut self.wanted) {
            let done = putter.compare(&below(then, &one.path), &below(now, &one.path))?;
            if done != Done::Nothing || self.whole.contains(&one.path) {
                self.wanted.push(one);
            }
        }
        Ok(())
    }

    /// Fails if flags protect what would be changed. Returns how much room the rest needs.
    fn check(&self, putter: &Putter<'_>, then: &Path, now: &Path) -> anyhow::Result<u64> {
        let (alone, trees): (Vec<_>, Vec<_>) = self.wanted.iter().partition(|one| self.is_alone(one));
        let mut room = 0u64;
        for one in trees {
            room = room.saturating_add(putter.room(&below(then, &one.path), &below(now, &one.path))?);
        }
        for one in alone {
            let now = below(now, &one.path);
            putter.check_unprotected(putter.compare(&below(then, &one.path), &now)?, true, &now)?;
        }
        Ok(room)
    }

    /// Puts the chosen names back. Directories get their attributes last, because putting names into them
    /// changes these.
    fn put(&self, ground: &Ground, mut putter: Putter<'_>, then: &Path, now: &Path) -> anyhow::Result<()> {
        let trees = self.wanted.iter().filter(|one| !self.is_alone(one));
        let trees: Vec<PathBuf> = trees.map(|one| below(then, &one.path)).collect();
        putter.expect(&trees.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        let mut directories = Vec::new();
        for one in &self.wanted {
            let (then, now) = (below(then, &one.path), below(now, &one.path));
            if !self.is_alone(one) {
                putter.tree(&then, &now)?;
                continue;
            }
            if ground.side().facts(&now)?.is_none() {
                ground.side().make_directory(&now)?;
            }
            directories.push((then, now));
        }
        for (then, now) in directories.iter().rev() {
            putter.attributes(then, now, true)?;
        }
        putter.finish()
    }
}
