//! Puts back one file, or a tree name by name: replaces what has the name now, and leaves other names alone.
//!
//! A file is written beside the one it replaces, complete with its attributes, and renamed over it, so a
//! reader sees either the one or the other. A directory stays the same directory. Flags are set last, because
//! what they protect cannot be changed afterwards.

use super::ground::Ground;
use crate::args;
use crate::command::copy::Copy;
use crate::content::{room_beside, same_content, sorted_xattrs};
use crate::side::{Facts, Side};
use crate::timed_path::root_of;
use anyhow::Context as _;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use yore_fs::{FileKind, InodeFlags};

/// For how many names the check for room counts a block of metadata, which covers inodes, entries, and
/// changes of directories.
const NAMES_PER_BLOCK: u64 = 8;

/// How many names are tried for a file until it is renamed.
const TEMPORARY_NAMES: u32 = 1000;

/// Puts files back.
pub struct Putter<'g> {
    ground: &'g Ground,
    copy: Copy,
    /// Files with several names that were put back: by their identity in the past, a name that they have now.
    linked: HashMap<(u64, u64), PathBuf>,
    /// What gets its former flags at the end: its path in the past, and its path now.
    flagged: Vec<(PathBuf, PathBuf)>,
}

/// What was done with a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Done {
    Nothing,
    Made,
    Replaced,
    /// Only the flags differed.
    Flagged,
}

/// Whether a file of this type can have flags.
fn has_flags(facts: &Facts) -> bool {
    matches!(facts.kind, FileKind::Regular | FileKind::Directory)
}

/// Whether something could not be made because its name is taken.
fn is_taken(error: &anyhow::Error) -> bool {
    let on_host = error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::AlreadyExists);
    on_host || root_of(error).is_some_and(|error| matches!(error, yore_fs::Error::Exists))
}

impl<'g> Putter<'g> {
    /// A putter that has put nothing back yet.
    pub fn new(ground: &'g Ground, progress: args::Progress) -> anyhow::Result<Putter<'g>> {
        Ok(Putter { ground, copy: ground.copy(progress)?, linked: HashMap::new(), flagged: Vec::new() })
    }

    /// A putter that only examines, and puts nothing back.
    pub fn dry_run_only(ground: &'g Ground) -> anyhow::Result<Putter<'g>> {
        Putter::new(ground, args::Progress { quiet: true, progress_fd: None })
    }

    /// Tells the progress what is going to be put back.
    pub fn expect(&mut self, then: &[&Path]) {
        self.copy.expect(self.ground.side(), then);
    }

    /// Sets the flags of everything that was put back, and ends the progress.
    pub fn finish(self) -> anyhow::Result<()> {
        let (mut left_out, mut first) = (0u64, None);
        for (then, now) in &self.flagged {
            let (was, is) = (self.side().flags(then)?, self.side().flags(now)?);
            let wanted = self.may_have(was, is);
            // No other flag of an immutable file can be changed, so the file loses this flag first.
            let loose = wanted - InodeFlags::IMMUTABLE;
            let is_free = wanted == is
                || !(wanted & is).contains(InodeFlags::IMMUTABLE)
                || self.side().set_flags(now, loose)?;
            let is_set = wanted == is || (is_free && self.side().set_flags(now, wanted)?);
            if !is_set || wanted != was {
                left_out += 1;
                first.get_or_insert_with(|| (self.side().name(now), was));
            }
        }
        if let Some((name, was)) = first {
            let others =
                if left_out > 1 { format!(", and of {} others", left_out - 1) } else { String::new() };
            self.copy.warn(&format!(
                "{name}: its flags of then, {}, are left out{others}: only root may set them (`chattr`)",
                crate::output::flags_text(was)
            ));
        }
        self.copy.finish();
        Ok(())
    }

    /// The former flags, as far as the user may set them; the other ones stay as they are.
    fn may_have(&self, was: InodeFlags, is: InodeFlags) -> InodeFlags {
        match self.ground.sets_owners() {
            true => was,
            false => (was - InodeFlags::PROTECTED) | (is & InodeFlags::PROTECTED),
        }
    }

    /// Refuses to begin if something immutable or append-only would have to be changed.
    pub fn check_unprotected(&self, done: Done, is_directory: bool, now: &Path) -> anyhow::Result<()> {
        // If the directory exists, only its attributes are set.
        let above = now.parent().filter(|_| done == Done::Made || (done == Done::Replaced && !is_directory));
        let itself = Some(now).filter(|_| done == Done::Replaced);
        for path in itself.into_iter().chain(above) {
            let Some(facts) = self.side().facts(path)? else { continue };
            if has_flags(&facts) && self.side().flags(path)?.intersects(InodeFlags::PROTECTED) {
                let path = self.side().name(path);
                return Err(yore_fs::Error::Protected { path }.into());
            }
        }
        Ok(())
    }

    fn side(&self) -> &'g dyn Side {
        self.ground.side()
    }

    /// The attributes of something in the past, which must exist.
    pub fn facts(&self, then: &Path) -> anyhow::Result<Facts> {
        self.side().facts(then)?.with_context(|| format!("{} is not there any more", self.side().name(then)))
    }

    /// What would be done with a file. Reads both if everything else is the same.
    pub fn compare(&self, then: &Path, now: &Path) -> anyhow::Result<Done> {
        let facts = self.facts(then)?;
        let Some(found) = self.side().facts(now)? else { return Ok(Done::Made) };
        let is_directory = facts.kind == FileKind::Directory;
        if is_directory != (found.kind == FileKind::Directory) {
            let (what, was) =
                if is_directory { ("a file", "a directory") } else { ("a directory", "a file") };
            anyhow::bail!(
                "{} is {what} now and was {was} then: it is not replaced; move it away, or put the other one elsewhere with --to",
                self.side().name(now)
            );
        }
        if !self.same(then, &facts, now, &found)? {
            return Ok(Done::Replaced);
        }
        if has_flags(&facts) {
            let (was, is) = (self.side().flags(then)?, self.side().flags(now)?);
            if self.may_have(was, is) != is {
                return Ok(Done::Flagged);
            }
        }
        Ok(Done::Nothing)
    }

    fn same(&self, then: &Path, facts: &Facts, now: &Path, found: &Facts) -> anyhow::Result<bool> {
        let of = |f: &Facts| {
            let size = if f.kind == FileKind::Directory { 0 } else { f.size };
            (f.kind as u32, f.permissions, f.uid, f.gid, size, f.rdev, f.mtime)
        };
        if of(facts) != of(found) {
            return Ok(false);
        }
        if sorted_xattrs(self.side(), then)? != sorted_xattrs(self.side(), now)? {
            return Ok(false);
        }
        same_content(self.side(), facts.kind, then, now)
    }

    /// Puts back anything but a directory. With `replace`, it replaces what has the name now. With
    /// `original`, it becomes another name of that file.
    pub fn file(
        &mut self,
        then: &Path,
        now: &Path,
        replace: bool,
        original: Option<&Path>,
    ) -> anyhow::Result<()> {
        let side = self.side();
        let process = std::process::id();
        for n in 0..TEMPORARY_NAMES {
            let temporary = now.with_file_name(format!(".yore-{process}-{n}"));
            let mut is_made = false;
            let done = match original {
                Some(original) => side.hard_link(original, &temporary).inspect(|()| is_made = true),
                None => self.facts(then).and_then(|facts| {
                    self.copy.make(side, then, side, (&temporary, None), &facts, &mut is_made)
                }),
            };
            match done {
                Err(error) if !is_made && is_taken(&error) => continue,
                // This process made nothing, so it removes nothing.
                Err(error) if !is_made => return Err(error),
                _ => {}
            }
            let renamed = done.and_then(|()| side.rename(&temporary, now, replace));
            // A failure must leave nothing behind. A rename between two names of one file leaves both, so the
            // temporary one goes here.
            if side.facts(&temporary)?.is_some() {
                let removed = side.remove(&temporary);
                return renamed.and(removed);
            }
            return renamed;
        }
        anyhow::bail!("there is no free name beside {}", side.name(now))
    }

    /// About how many bytes [`Putter::tree`] will write: data, and metadata for it. Fails if the tree would
    /// change something that flags protect.
    pub fn room(&self, then: &Path, now: &Path) -> anyhow::Result<u64> {
        let (mut bytes, mut names, mut met) = (0u64, 0u64, HashSet::new());
        let mut left = vec![(then.to_path_buf(), now.to_path_buf())];
        while let Some((then, now)) = left.pop() {
            let facts = self.facts(&then)?;
            names += 1;
            let done = self.compare(&then, &now)?;
            self.check_unprotected(done, facts.kind == FileKind::Directory, &now)?;
            if facts.kind == FileKind::Directory {
                let below = self.side().list(&then)?.into_iter();
                left.extend(below.map(|name| (then.join(&name), now.join(&name))));
                continue;
            }
            let is_first = facts.links <= 1 || met.insert(facts.identity);
            let is_copied = matches!(done, Done::Made | Done::Replaced);
            if facts.kind != FileKind::Regular || !is_first || !is_copied {
                continue;
            }
            bytes = bytes.saturating_add(room_beside(self.side().open(&then)?.as_ref(), facts.size)?);
        }
        Ok(bytes.saturating_add((names / NAMES_PER_BLOCK + 1) * yore_device::BLOCK_SIZE as u64))
    }

    /// Puts a file, or a directory with all that was below it, back under a name.
    pub fn tree(&mut self, then: &Path, now: &Path) -> anyhow::Result<()> {
        enum Task {
            Put(PathBuf, PathBuf),
            Finish(PathBuf, PathBuf),
        }
        let mut tasks = vec![Task::Put(then.into(), now.into())];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Finish(then, now) => self.attributes(&then, &now, true)?,
                Task::Put(then, now) => {
                    let facts = self.facts(&then)?;
                    let done = self.compare(&then, &now)?;
                    if facts.kind == FileKind::Directory {
                        if done == Done::Made {
                            self.side().make_directory(&now)?;
                        }
                        let names = self.side().list(&then)?;
                        tasks.push(Task::Finish(then.clone(), now.clone()));
                        tasks.extend(
                            names.into_iter().map(|name| Task::Put(then.join(&name), now.join(&name))),
                        );
                        continue;
                    }
                    if done != Done::Nothing && has_flags(&facts) {
                        self.flagged.push((then.clone(), now.clone()));
                    }
                    if matches!(done, Done::Nothing | Done::Flagged) {
                        self.copy.skip(&facts);
                        if facts.links > 1 {
                            self.linked.entry(facts.identity).or_insert(now);
                        }
                        continue;
                    }
                    let original = self.linked.get(&facts.identity).filter(|_| facts.links > 1).cloned();
                    self.file(&then, &now, true, original.as_deref())?;
                    if facts.links > 1 {
                        self.linked.insert(facts.identity, now);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a directory, and missing directories above it, with the attributes that they had then.
    pub fn directories(&mut self, then: Option<&Path>, now: &Path) -> anyhow::Result<()> {
        let (mut then, mut now) = (then.map(Path::to_path_buf), now.to_path_buf());
        let mut missing = Vec::new();
        while self.side().facts(&now)?.is_none() {
            missing.push((then.clone(), now.clone()));
            then = then.and_then(|then| then.parent().map(Path::to_path_buf));
            let Some(above) = now.parent() else { break };
            now = above.to_path_buf();
        }
        for (_, now) in missing.iter().rev() {
            self.side().make_directory(now)?;
        }
        for (then, now) in &missing {
            if let Some(then) = then.as_ref().filter(|then| self.ground.is_past(then)) {
                self.attributes(then, now, false)?;
            }
        }
        Ok(())
    }

    /// Sets the attributes of then, with the times only if `times` says so.
    pub fn attributes(&mut self, then: &Path, now: &Path, times: bool) -> anyhow::Result<()> {
        self.flagged.push((then.into(), now.into()));
        let (then_facts, found) = (self.facts(then)?, self.facts(now)?);
        let held = self.side().hold(now, then_facts.kind)?;
        if self.ground.sets_owners() && (then_facts.uid, then_facts.gid) != (found.uid, found.gid) {
            self.side().set_owner(&held, &then_facts)?;
        }
        let (wanted, present) = (self.side().xattrs(then)?, self.side().xattrs(now)?);
        for (name, _) in present.iter().filter(|(name, _)| !wanted.iter().any(|(other, _)| other == name)) {
            self.side().remove_xattr(&held, name)?;
        }
        for (name, value) in wanted.iter().filter(|one| !present.contains(one)) {
            let set = self.side().set_xattr(&held, name, value);
            set.with_context(|| {
                format!("cannot set the attribute {} of {}", name.to_string_lossy(), self.side().name(now))
            })?;
        }
        let wanted = match times {
            true => then_facts,
            false => Facts { atime: found.atime, mtime: found.mtime, ..then_facts },
        };
        let differ = |f: &Facts| (f.permissions, f.mtime);
        if differ(&wanted) == differ(&self.facts(now)?) {
            return Ok(());
        }
        self.side().set_facts(&held, &wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Promises that a temporary name which somebody else has taken is neither written through nor removed:
    /// the next one is used.
    #[test]
    fn temporary_name_is_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let taken = |n: u32| path(&format!(".yore-{}-{n}", std::process::id()));
        fs::write(path("then"), "then").unwrap();
        fs::write(path("victim"), "victim").unwrap();
        symlink(path("victim"), taken(0)).unwrap();
        symlink(path("absent"), taken(1)).unwrap();
        fs::write(taken(2), "other").unwrap();

        let ground = Ground::of_host();
        let mut putter = Putter::dry_run_only(&ground).unwrap();
        putter.file(&path("then"), &path("now"), true, None).unwrap();
        putter.file(&path("then"), &path("name"), true, Some(&path("now"))).unwrap();

        assert_eq!(fs::read_to_string(path("now")).unwrap(), "then");
        assert_eq!(fs::read_to_string(path("name")).unwrap(), "then");
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "victim");
        assert!(!path("absent").exists());
        assert_eq!(fs::read_link(taken(0)).unwrap(), path("victim"));
        assert_eq!(fs::read_link(taken(1)).unwrap(), path("absent"));
        assert_eq!(fs::read_to_string(taken(2)).unwrap(), "other");
        assert!(!taken(3).exists());
    }

    /// Promises that a failure removes nothing but what this process has made.
    #[test]
    fn failure_removes_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let taken = |n: u32| path(&format!(".yore-{}-{n}", std::process::id()));
        fs::write(path("then"), "then").unwrap();
        fs::write(path("now"), "now").unwrap();
        fs::write(taken(0), "other").unwrap();

        let ground = Ground::of_host();
        let mut putter = Putter::dry_run_only(&ground).unwrap();
        putter.file(&path("then"), &path("now"), false, None).unwrap_err();
        putter.file(&path("then"), &path("now"), true, Some(&path("absent"))).unwrap_err();

        assert_eq!(fs::read_to_string(path("now")).unwrap(), "now");
        assert_eq!(fs::read_to_string(taken(0)).unwrap(), "other");
        assert!(!taken(1).exists());
    }
}
