//! Making a directory as it was, from the differences between then and now.
//!
//! **In which order.** What has to go from its place goes first, from the bottom up: what was added is removed, what was renamed is set
//! aside in a directory of its own, so that no order of renames can be wrong, cycles neither. Then, from the top down, everything gets its
//! place of then: directories are made again, what was set aside is renamed there, and keeps being the file that it is. Then come files,
//! and at last the attributes and times of the directories in which something was done.
//!
//! **Interrupted**, it is done by doing it again: the differences that are left are asked for anew, and what was set aside is by then only
//! something else that was renamed.

use super::ground::Ground;
use super::one::{Done, Putter};
use crate::command::look;
use crate::output::bytes_of;
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_fs::{Change, Difference, FileKind, Incarnation, InodeNo, What};

type Of = (InodeNo, Incarnation);

/// The path of then of what has a path now, by the directories that were renamed since (paths of now and then).
pub struct Back(BTreeMap<Vec<u8>, Vec<u8>>);

impl Back {
    /// From all differences.
    pub fn new(differences: &[Difference]) -> Back {
        let renamed = differences.iter().filter(|one| one.kind == FileKind::Directory);
        Back(renamed.filter_map(|one| Some((one.path.clone(), one.old_path.clone()?))).collect())
    }

    /// Where this was then, if the name itself is of then.
    pub fn then(&self, now: &[u8]) -> Vec<u8> {
        for above in ancestors(now) {
            if let Some(old) = self.0.get(above) {
                return [&old[..], &now[above.len()..]].concat();
            }
        }
        now.to_vec()
    }

    /// The path of then of a difference; `None` of what was added.
    pub fn of(&self, one: &Difference) -> Option<Vec<u8>> {
        match one.change {
            Change::Added => None,
            Change::Removed => Some(one.path.clone()),
            Change::Renamed => one.old_path.clone(),
            Change::Modified => Some(self.then(&one.path)),
        }
    }
}

/// A path and those above it, the longest first, without the empty one.
pub fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut next = (!path.is_empty()).then_some(path);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.iter().rposition(|b| *b == b'/').map(|at| &this[..at]);
        Some(this)
    })
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|b| **b == b'/').count()
}

fn parent(path: &[u8]) -> &[u8] {
    ancestors(path).nth(1).unwrap_or_default()
}

/// A path below a directory.
pub fn below(dir: &Path, path: &[u8]) -> PathBuf {
    match path {
        b"" => dir.to_path_buf(),
        path => dir.join(OsStr::from_bytes(path)),
    }
}

fn of(one: &Difference) -> Of {
    (one.inode, one.incarnation)
}

/// The differences without those that are none to look at: where another file took a name that has the same content and
/// attributes, as after putting it back. Files of several names stay, for which names are one file is not looked at.
pub fn real(
    putter: &Putter<'_>,
    now: &Path,
    then: &Path,
    all: &[Difference],
) -> anyhow::Result<Vec<Difference>> {
    let back = Back::new(all);
    let one_name = |one: &Difference| {
        one.kind == FileKind::Directory || one.before.or(one.after).is_some_and(|facts| facts.links == 1)
    };
    let of = |change: Change| {
        let those = all.iter().filter(move |one| one.change == change && one_name(one));
        those.map(|one| (one.path.as_slice(), one.kind)).collect::<HashSet<_>>()
    };
    let (added, mut same) = (of(Change::Added), HashSet::new());
    for (path, kind) in of(Change::Removed).intersection(&added) {
        if back.then(path) == *path && putter.compare(&below(then, path), &below(now, path))? == Done::Nothing
        {
            same.insert((path.to_vec(), *kind));
        }
    }
    let is_none = |one: &Difference| {
        matches!(one.change, Change::Added | Change::Removed) && same.contains(&(one.path.clone(), one.kind))
    };
    Ok(all.iter().filter(|one| !is_none(one)).cloned().collect())
}

/// A directory that is made as it was.
pub struct Roll<'a> {
    ground: &'a Ground,
    now: &'a Path,
    then: &'a Path,
    /// What is to be put back.
    wanted: &'a [Difference],
    /// Names of now at which nothing is done.
    alone: &'a HashSet<Vec<u8>>,
    back: Back,
    putter: Putter<'a>,
    aside: PathBuf,
    /// What was set aside: its number, and the path of then.
    moved: Vec<(usize, Vec<u8>)>,
    /// Files that were made again.
    made: HashMap<Of, PathBuf>,
    /// Directories in which names or that themselves were changed, by their path of then.
    touched: BTreeSet<Vec<u8>>,
    /// Names of now of files that had several, by their inodes' numbers.
    live: HashMap<u64, PathBuf>,
    /// The paths of then of what is put back.
    coming: HashSet<Vec<u8>>,
    /// Numbers that inodes of then had, and others have now.
    taken: HashSet<InodeNo>,
}

impl<'a> Roll<'a> {
    /// Makes `now` as `then`, as far as the wanted ones of all differences say.
    pub fn new(
        ground: &'a Ground,
        (now, then): (&'a Path, &'a Path),
        all: &[Difference],
        wanted: &'a [Difference],
        alone: &'a HashSet<Vec<u8>>,
    ) -> anyhow::Result<Roll<'a>> {
        let putter = Putter::new(ground)?;
        let back = Back::new(all);
        let is_there = all.iter().filter(|one| one.change != Change::Removed);
        let there: HashMap<InodeNo, Incarnation> = is_there.map(of).collect();
        let other = |one: &&Difference| there.get(&one.inode).is_some_and(|is| *is != one.incarnation);
        let taken = all.iter().filter(other).map(|one| one.inode).collect();
        let aside = putter.beside(&now.join("aside"))?;
        Ok(Roll {
            ground,
            now,
            then,
            wanted,
            alone,
            putter,
            aside,
            moved: Vec::new(),
            made: HashMap::new(),
            touched: BTreeSet::new(),
            live: HashMap::new(),
            coming: wanted.iter().filter_map(|one| back.of(one)).collect(),
            back,
            taken,
        })
    }

    /// Refuses what can be known to fail.
    pub fn check(&self) -> anyhow::Result<()> {
        self.ground.check_nothing_mounted_below(self.now)?;
        let mut dirs = BTreeSet::from([Vec::new()]);
        for one in self.wanted {
            if matches!(one.change, Change::Added | Change::Renamed) {
                dirs.insert(parent(&one.path).to_vec());
            }
        }
        for dir in dirs {
            self.ground.check_writable(&below(self.now, &dir))?;
        }
        Ok(())
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        below(self.now, path)
    }

    fn was(&self, path: &[u8]) -> PathBuf {
        below(self.then, path)
    }

    /// Does it.
    pub fn run(mut self) -> anyhow::Result<()> {
        self.clear()?;
        self.place()?;
        self.find_live()?;
        self.change_files()?;
        self.make_files()?;
        if !self.moved.is_empty() {
            self.ground.side().remove_directory(&self.aside)?;
        }
        self.finish()
    }

    /// Removes what was added and sets aside what was renamed, from the bottom up.
    fn clear(&mut self) -> anyhow::Result<()> {
        let mut going: Vec<&Difference> =
            self.wanted.iter().filter(|one| matches!(one.change, Change::Added | Change::Renamed)).collect();
        going.sort_by_key(|one| std::cmp::Reverse(depth(&one.path)));
        for one in going {
            self.touched.insert(self.back.then(parent(&one.path)));
            let path = self.at(&one.path);
            match (one.change, &one.old_path) {
                (Change::Renamed, Some(old)) => {
                    if one.kind == FileKind::Directory {
                        self.keep_what_stays(&one.path, old)?;
                    }
                    self.set_aside(&path, old.clone())?;
                }
                _ if one.kind == FileKind::Directory => {
                    self.keep_what_was_there(&one.path)?;
                    self.ground.side().remove_directory(&path)?;
                }
                _ => self.ground.side().remove(&path)?,
            }
        }
        Ok(())
    }

    fn set_aside(&mut self, path: &Path, then: Vec<u8>) -> anyhow::Result<()> {
        if self.moved.is_empty() {
            self.ground.side().make_directory(&self.aside)?;
            self.touched.insert(Vec::new());
        }
        let number = self.moved.len();
        self.ground.side().rename(path, &self.aside.join(number.to_string()), false)?;
        self.moved.push((number, then));
        Ok(())
    }

    /// Sets aside what is in a directory that came since, but was under the same path in another one of then: such names do not differ.
    fn keep_what_was_there(&mut self, dir: &[u8]) -> anyhow::Result<()> {
        for name in self.ground.side().list(&self.at(dir))? {
            let path = [dir, b"/", name.as_bytes()].concat();
            let then = self.ground.side().facts(&self.was(&path))?;
            anyhow::ensure!(
                then.is_some(),
                "{} came meanwhile; do it again",
                self.ground.name(&self.at(&path))
            );
            self.set_aside(&self.at(&path), path)?;
        }
        Ok(())
    }

    /// The same in a directory that came to its path by a rename: such names do not go back with it.
    fn keep_what_stays(&mut self, dir: &[u8], old: &[u8]) -> anyhow::Result<()> {
        let was_directory = self.ground.side().facts(&self.was(dir))?;
        if was_directory.is_none_or(|was| was.kind != FileKind::Directory) {
            return Ok(());
        }
        for name in self.ground.side().list(&self.at(dir))? {
            let [path, with_it] = [dir, old].map(|dir| [dir, b"/", name.as_bytes()].concat());
            let was_here = self.ground.side().facts(&self.was(&path))?.is_some();
            let was_there = self.ground.side().facts(&self.was(&with_it))?.is_some();
            if was_here && !self.alone.contains(&path) && (!was_there || self.coming.contains(&with_it)) {
                self.set_aside(&self.at(&path), path)?;
            }
        }
        Ok(())
    }

    /// Gives directories, and all that was set aside, their places of then, from the top down.
    fn place(&mut self) -> anyhow::Result<()> {
        let made =
            self.wanted.iter().filter(|one| one.change == Change::Removed && one.kind == FileKind::Directory);
        let mut coming: Vec<(Vec<u8>, Option<usize>)> = made.map(|one| (one.path.clone(), None)).collect();
        coming.extend(self.moved.iter().map(|(number, then)| (then.clone(), Some(*number))));
        coming.sort_by_key(|(path, _)| depth(path));
        for (path, moved) in coming {
            self.touched.insert(parent(&path).to_vec());
            let to = self.at(&path);
            match moved {
                Some(number) => {
                    self.ground.side().rename(&self.aside.join(number.to_string()), &to, false)?
                }
                None => {
                    self.touched.insert(path);
                    self.ground.side().make_directory(&to)?;
                }
            }
        }
        Ok(())
    }

    /// Puts back what was changed in files that are still there.
    fn change_files(&mut self) -> anyhow::Result<()> {
        for one in self.wanted.iter().filter(|one| !one.what.is_empty()) {
            let Some(then) = self.back.of(one) else { continue };
            if one.kind == FileKind::Directory {
                self.touched.insert(then);
                continue;
            }
            let path = self.at(&then);
            if one.kind == FileKind::Regular && one.what.contains(What::CONTENT) {
                self.touched.insert(parent(&then).to_vec());
                let original = self.made.get(&of(one)).cloned();
                self.putter.file(&self.was(&then), &path, true, original.as_deref())?;
                self.made.entry(of(one)).or_insert(path);
            } else {
                self.putter.attributes(&self.was(&then), &path, true)?;
            }
        }
        Ok(())
    }

    /// Makes files again that are gone. Of a file that has other names still, the name only.
    fn make_files(&mut self) -> anyhow::Result<()> {
        let gone = self.wanted.iter();
        for one in gone.filter(|one| one.change == Change::Removed && one.kind != FileKind::Directory) {
            self.touched.insert(parent(&one.path).to_vec());
            let path = self.at(&one.path);
            let original = match self.made.get(&of(one)) {
                Some(made) => Some(made.clone()),
                None if one.before.is_some_and(|before| before.links > 1) => self.alive(one),
                None => None,
            };
            self.putter.file(&self.was(&one.path), &path, false, original.as_deref())?;
            self.made.entry(of(one)).or_insert(path);
        }
        Ok(())
    }

    /// Finds the names that files of several names have still below the directory. That is before new files are made, which may get the
    /// numbers of those that are gone.
    fn find_live(&mut self) -> anyhow::Result<()> {
        let gone = self.wanted.iter().filter(|one| one.change == Change::Removed);
        let several = gone.filter(|one| one.before.is_some_and(|before| before.links > 1));
        let files = several.filter(|one| one.kind != FileKind::Directory);
        let sought: HashSet<u64> = files.map(|one| one.inode.0).collect();
        let mut left = match sought.is_empty() {
            true => Vec::new(),
            false => vec![self.now.to_path_buf()],
        };
        while let Some(dir) = left.pop() {
            for name in self.ground.side().list(&dir)? {
                let path = dir.join(name);
                match self.ground.side().facts(&path)? {
                    Some(facts) if facts.kind == FileKind::Directory => left.push(path),
                    Some(facts) if sought.contains(&facts.identity.1) => {
                        self.live.insert(facts.identity.1, path);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Another name that a file has now below the directory.
    fn alive(&self, one: &Difference) -> Option<PathBuf> {
        // The number may be another file's now, which then came since.
        match self.taken.contains(&one.inode) {
            true => None,
            false => self.live.get(&one.inode.0).cloned(),
        }
    }

    /// Attributes and times of directories.
    fn finish(&mut self) -> anyhow::Result<()> {
        for dir in &self.touched {
            let (was, is) = (self.was(dir), self.at(dir));
            let (Some(then), Some(now)) = (self.ground.side().facts(&was)?, self.ground.side().facts(&is)?)
            else {
                continue;
            };
            if then.kind != FileKind::Directory || now.kind != FileKind::Directory || self.alone.contains(dir)
            {
                continue;
            }
            // A time says when names changed last; with those of others among them it is not that of then.
            let others = self.alone.iter().any(|path| self.back.then(parent(path)) == *dir);
            self.putter.attributes(&was, &is, !others)?;
        }
        Ok(())
    }
}

/// What differs the other way round: what is done to get from now to then.
pub fn reversed(one: &Difference, back: &Back) -> Difference {
    let mut one = one.clone();
    std::mem::swap(&mut one.before, &mut one.after);
    match one.change {
        Change::Added => one.change = Change::Removed,
        Change::Removed => one.change = Change::Added,
        Change::Renamed => {
            if let Some(old) = one.old_path.take() {
                one.old_path = Some(std::mem::replace(&mut one.path, old));
            }
        }
        Change::Modified => one.path = back.then(&one.path),
    }
    one
}

/// Prints what is done.
pub fn print(listing: crate::args::Listing, wanted: &[Difference], back: &Back) -> anyhow::Result<()> {
    let mut list = crate::output::List::new(listing);
    let mut done: Vec<Difference> = wanted.iter().map(|one| reversed(one, back)).collect();
    done.sort_by(|a, b| a.path.cmp(&b.path));
    for one in &done {
        look::line(&mut list, one)?;
    }
    list.done()
}

/// The path of a directory as of a snapshot.
pub fn as_of(dir: &Path, at: &str) -> PathBuf {
    dir.join(format!(".@{at}"))
}

/// The name of a path's last component.
pub fn name_of(path: &Path) -> anyhow::Result<&[u8]> {
    path.file_name()
        .map(OsStr::as_bytes)
        .with_context(|| format!("{} does not end in a name", String::from_utf8_lossy(bytes_of(path))))
}
