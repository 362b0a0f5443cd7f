//! Making a directory what it was, from the differences between then and now.
//!
//! **In which order.** First everything that has to leave its place does so, from the bottom up. What was
//! added is removed. What was renamed is set aside in a directory of its own, so that no order of renames can
//! be wrong, not even a cycle. Then, from the top down, everything gets its past place: directories are made
//! again, and what was set aside is renamed to its place, and stays the same file. Files follow, and in the
//! end the attributes and times of the directories in which something was done.
//!
//! **An interrupted rollback** goes on by beginning again: it computes the remaining differences anew, and
//! what was set aside is by then only something else that was renamed.

use super::plan::{depth, parent, Back, Changed, Plan, Rights};
use super::trees::Trees;
use crate::history::read::at_time::PRESENT;
use crate::history::read::query;
use crate::{Attr, Change, Difference, Error, FileKind, InodeNo, Result, View, What};
use std::collections::{BTreeSet, HashMap, HashSet};
use yore_format::{EventNo, Incarnation, InodeFlags};

type Of = (InodeNo, Incarnation);

fn of(one: &Difference) -> Of {
    (one.inode, one.incarnation)
}

/// The set-group-id bit of what the group may execute; without that, it only marks mandatory locking.
const SETS_GROUP: u32 = 0o2010;

/// Whether something that was so would get the set-group-id bit of none of these groups, which it has not
/// now.
fn gains_group(was: &Attr, is: Option<&Attr>, groups: &[u32]) -> bool {
    let sets = |attr: &Attr| attr.permissions & SETS_GROUP == SETS_GROUP;
    let has = is.is_some_and(|is| sets(is) && is.gid == was.gid);
    sets(was) && !has && !groups.contains(&was.gid)
}

/// A directory that is being rolled back.
pub(super) struct Roll {
    trees: Trees,
    /// The differences that are to be put back.
    wanted: Vec<Difference>,
    /// Present names that are left alone.
    alone: HashSet<Vec<u8>>,
    back: Back,
    aside: Vec<u8>,
    /// What was set aside: its number, and its past path.
    moved: Vec<(usize, Vec<u8>)>,
    /// Files that were made again, by their past inodes.
    made: HashMap<Of, Vec<u8>>,
    /// Directories of which names or the attributes were changed, by their past paths.
    touched: BTreeSet<Vec<u8>>,
    /// Present names of files that had several, by their inodes.
    live: HashMap<InodeNo, Vec<u8>>,
    /// Inode numbers that now belong to other inodes than then.
    taken: HashSet<InodeNo>,
}

type Both = (Vec<Difference>, Vec<Difference>);

/// All differences of a directory, including what moved to the same path; and the differences of excluded
/// inodes, about which the event says nothing.
fn diff(view: &View, directory: InodeNo, from: EventNo, to: Option<EventNo>) -> Result<Both> {
    query::diff::with_moved(view.store(), directory, from, to.unwrap_or(PRESENT))
}

impl Roll {
    /// Computes what a plan requires in a directory at which the gate is closed.
    ///
    /// # Errors
    /// Those of [`View::diff`]; damage and device errors.
    pub(super) fn new(view: &View, directory: InodeNo, plan: &Plan) -> Result<Roll> {
        let (view, trees) = (view.inside(), Trees::new(view, directory, plan));
        let (mut all, unknown) = diff(&view, directory, plan.target, None)?;
        // What the target says nothing about is left alone, with the directories that contain it.
        all.extend(unknown.iter().cloned());
        let differences = super::plan::without_still(super::plan::real(&all, |path| trees.is_same(path))?);
        let mut others = unknown;
        if let Some((from, to)) = plan.others {
            let (known, unknown) = diff(&view, directory, from, to)?;
            others.extend(known.into_iter().chain(unknown));
        }
        let (wanted, alone) = match others.is_empty() && plan.others.is_none() {
            true => (differences, HashSet::new()),
            false => super::plan::leave_alone(&differences, &others),
        };
        let back = Back::new(&all);
        let is_there = all.iter().filter(|one| one.change != Change::Removed);
        let there: HashMap<InodeNo, Incarnation> = is_there.map(of).collect();
        let other = |one: &&Difference| there.get(&one.inode).is_some_and(|is| *is != one.incarnation);
        let taken = all.iter().filter(other).map(|one| one.inode).collect();
        Ok(Roll {
            aside: trees.free_name()?,
            trees,
            wanted,
            alone,
            back,
            moved: Vec::new(),
            made: HashMap::new(),
            touched: BTreeSet::new(),
            live: HashMap::new(),
            taken,
        })
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Refuses to change, remove or bring back files that are not the caller's, and to bring back what he
    /// could not have made.
    ///
    /// # Errors
    /// [`Error::NotYours`], [`Error::Protected`]; damage and device errors.
    pub(super) fn check(&self, rights: &Rights) -> Result<()> {
        let (uid, groups) = match rights {
            Rights::All => return Ok(()),
            Rights::Unprotected => return self.check_protection(),
            Rights::Owner { uid, groups } => (uid, groups),
        };
        let not_yours = |path: &[u8]| Error::NotYours { path: String::from_utf8_lossy(path).into_owned() };
        let mut directories = BTreeSet::new();
        for one in &self.wanted {
            let (is_mine, is_my_group) = (|owner: u32| owner == *uid, |group: &u32| groups.contains(group));
            if ![one.before, one.after].into_iter().flatten().all(|facts| is_mine(facts.uid)) {
                return Err(not_yours(&one.path));
            }
            if one.change != Change::Modified {
                directories.insert(parent(&one.path).to_vec());
            }
            let (Some(then), Some(before)) = (self.back.of(one), one.before) else { continue };
            directories.insert(self.back.now(parent(&then)));
            // A file that comes back, or whose content is written again, gets its past group when it is made.
            // Other files only need it if the group changed.
            let is_made = one.change == Change::Removed || one.what.contains(What::CONTENT);
            let sets_group = is_made || one.after.is_none_or(|after| after.gid != before.gid);
            if sets_group && !is_my_group(&before.gid) {
                return Err(not_yours(&one.path));
            }
            let was = self.trees.was(&then)?;
            let is_no = (one.change != Change::Removed).then_some(one.inode);
            let was_no = was.as_ref().map_or(one.inode, |was| was.inode);
            let [privileged_then, privileged_now] = self.trees.privileged(was_no, is_no)?;
            let is_reserved = match &was {
                Some(was) => {
                    was.flags.intersects(InodeFlags::PROTECTED) || self.is_reserved(one, was, groups)?
                }
                None => false,
            };
            if privileged_then != privileged_now || is_reserved {
                return Err(not_yours(&one.path));
            }
        }
        for path in directories {
            // A directory that does not exist comes back, and was checked above.
            let Some(is) = self.trees.is(&path)? else { continue };
            let was = self.trees.was(&self.back.then(&path))?.filter(|_| !self.alone.contains(&path));
            if is.uid != *uid || was.is_some_and(|was| gains_group(&was, Some(&is), groups)) {
                return Err(not_yours(if path.is_empty() { b"." } else { &path }));
            }
        }
        self.check_protection()
    }

    /// Whether only an administrator may give something what it was: it is a device that comes back, or gets
    /// the set-group-id bit of a group that is not the caller's.
    fn is_reserved(&self, one: &Difference, was: &Attr, groups: &[u32]) -> Result<bool> {
        let comes_back = one.change == Change::Removed;
        if comes_back && matches!(one.kind, FileKind::BlockDevice | FileKind::CharDevice) {
            return Ok(true);
        }
        let is = if comes_back { None } else { self.trees.is(&one.path)? };
        Ok(gains_group(was, is.as_ref(), groups))
    }

    /// Refuses to change immutable and append-only files.
    fn check_protection(&self) -> Result<()> {
        let mut changing = BTreeSet::new();
        for one in &self.wanted {
            if one.change != Change::Removed {
                changing.insert(one.path.clone());
            }
            // A file that gets new content is a new file under its name.
            if one.change != Change::Modified || one.what.contains(What::CONTENT) {
                changing.insert(parent(&one.path).to_vec());
                changing.extend(self.back.of(one).map(|then| self.back.now(parent(&then))));
            }
        }
        for path in changing {
            if self.trees.is(&path)?.is_some_and(|is| is.flags.intersects(InodeFlags::PROTECTED)) {
                let path = if path.is_empty() { b".".to_vec() } else { path };
                return Err(Error::Protected { path: String::from_utf8_lossy(&path).into_owned() });
            }
        }
        Ok(())
    }

    /// How many data blocks the rollback takes. Removing frees none, because the event before it has all of
    /// them. A file that is gone, and whose other names are all outside the directory, is copied, too: the
    /// search does not look for names outside.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(super) fn data_blocks(&self) -> Result<u64> {
        let added = self.wanted.iter().filter(|one| one.change == Change::Added);
        let leaving: HashSet<&[u8]> = added.map(|one| &one.path[..]).collect();
        let staying = self.live_names(&leaving)?;
        let (mut counted, mut blocks) = (HashSet::new(), 0);
        for one in self.wanted.iter().filter(|one| one.kind == FileKind::Regular) {
            let is_made = match one.change {
                Change::Removed => self.other_name(&staying, one).is_none(),
                _ => one.what.contains(What::CONTENT),
            };
            let Some(then) = self.back.of(one).filter(|_| is_made) else { continue };
            if counted.insert(of(one)) {
                blocks += self.trees.data_blocks(&then)?;
            }
        }
        Ok(blocks)
    }

    /// Rolls back.
    ///
    /// # Errors
    /// The first step that fails. What was done stays.
    pub(super) fn run(&mut self) -> Result<()> {
        self.clear()?;
        self.restore_names()?;
        // This comes before new files are made, which may get the numbers of those that are gone.
        self.live = self.live_names(&HashSet::new())?;
        self.change_files()?;
        self.make_files()?;
        if !self.moved.is_empty() {
            self.trees.remove_directory(&self.aside)?;
        }
        self.finish()
    }

    /// What was changed so far, for callers that cache it.
    pub(super) fn into_changed(self) -> Changed {
        self.trees.into_changed()
    }

    /// Removes what was added and sets aside what was renamed, from the bottom up.
    fn clear(&mut self) -> Result<()> {
        let leaves = |one: &&Difference| matches!(one.change, Change::Added | Change::Renamed);
        let mut leaving: Vec<Difference> = self.wanted.iter().filter(leaves).cloned().collect();
        leaving.sort_by_key(|one| std::cmp::Reverse(depth(&one.path)));
        for one in leaving {
            self.touched.insert(self.back.then(parent(&one.path)));
            match (one.change, &one.old_path) {
                (Change::Renamed, Some(old)) => {
                    self.set_aside(&one.path, old.clone())?;
                }
                _ if one.kind == FileKind::Directory => {
                    self.preserve_directory(&one.path)?;
                    self.trees.remove_directory(&one.path)?;
                }
                _ => self.trees.remove(&one.path)?,
            }
        }
        Ok(())
    }

    fn aside(&self, number: usize) -> Vec<u8> {
        [&self.aside[..], b"/", number.to_string().as_bytes()].concat()
    }

    fn set_aside(&mut self, path: &[u8], then: Vec<u8>) -> Result<()> {
        if self.moved.is_empty() {
            self.trees.make_aside(&self.aside)?;
            self.touched.insert(Vec::new());
        }
        let number = self.moved.len();
        self.trees.rename(path, &self.aside(number))?;
        self.moved.push((number, then));
        Ok(())
    }

    /// Sets aside what is still in a directory that was added. File by file, it looks the same as what was
    /// under the same path in another directory at that time.
    fn preserve_directory(&mut self, dir: &[u8]) -> Result<()> {
        for name in self.trees.list(dir)? {
            let path = [dir, b"/", &name].concat();
            self.set_aside(&path, path.clone())?;
        }
        Ok(())
    }

    /// Gives directories, and everything that was set aside, their past places, from the top down.
    fn restore_names(&mut self) -> Result<()> {
        let made =
            self.wanted.iter().filter(|one| one.change == Change::Removed && one.kind == FileKind::Directory);
        let mut coming: Vec<(Vec<u8>, Option<usize>)> = made.map(|one| (one.path.clone(), None)).collect();
        coming.extend(self.moved.iter().map(|(number, then)| (then.clone(), Some(*number))));
        coming.sort_by_key(|(path, _)| depth(path));
        for (path, moved) in coming {
            self.touched.insert(parent(&path).to_vec());
            match moved {
                Some(number) => self.trees.rename(&self.aside(number), &path)?,
                None => {
                    self.trees.make_directory(&path)?;
                    self.touched.insert(path);
                }
            }
        }
        Ok(())
    }

    /// Puts back the changes of files that still exist.
    fn change_files(&mut self) -> Result<()> {
        for one in self.wanted.iter().filter(|one| !one.what.is_empty()) {
            let Some(then) = self.back.of(one) else { continue };
            if one.kind == FileKind::Directory {
                self.touched.insert(then);
                continue;
            }
            if one.kind == FileKind::Regular && one.what.contains(What::CONTENT) {
                self.touched.insert(parent(&then).to_vec());
                self.trees.remove(&then)?;
                match self.made.get(&of(one)) {
                    Some(made) => self.trees.link(made, &then)?,
                    None => self.trees.copy(&then, &then)?,
                }
                self.made.entry(of(one)).or_insert(then);
            } else {
                self.trees.attributes(&then, &then, true)?;
            }
        }
        Ok(())
    }

    /// Makes files again that are gone. If a file still has another name, it only makes the name.
    fn make_files(&mut self) -> Result<()> {
        let gone = self.wanted.iter();
        for one in gone.filter(|one| one.change == Change::Removed && one.kind != FileKind::Directory) {
            self.touched.insert(parent(&one.path).to_vec());
            let original = match self.made.get(&of(one)) {
                Some(made) => Some(made.clone()),
                None => self.other_name(&self.live, one).cloned(),
            };
            match original {
                Some(original) => self.trees.link(&original, &one.path)?,
                None => self.trees.copy(&one.path, &one.path)?,
            }
            self.made.entry(of(one)).or_insert_with(|| one.path.clone());
        }
        Ok(())
    }

    /// For each file that had several names and lost one, a present name below the directory. Names that are
    /// `leaving` do not count; but what is in a directory that goes, stays.
    fn live_names(&self, leaving: &HashSet<&[u8]>) -> Result<HashMap<InodeNo, Vec<u8>>> {
        let gone = self.wanted.iter().filter(|one| one.change == Change::Removed);
        let several = gone.filter(|one| one.before.is_some_and(|before| before.links > 1));
        let files = several.filter(|one| one.kind != FileKind::Directory);
        let sought: HashSet<InodeNo> = files.map(|one| one.inode).collect();
        let mut left = match sought.is_empty() {
            true => Vec::new(),
            false => vec![Vec::new()],
        };
        let mut live = HashMap::new();
        // This also stops at a circle, which is damage.
        let mut met = HashSet::new();
        while let Some(dir) = left.pop() {
            for name in self.trees.list(&dir)? {
                let path = if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() };
                match self.trees.is(&path)? {
                    Some(is) if is.kind == FileKind::Directory => {
                        left.extend(met.insert(is.inode).then_some(path))
                    }
                    Some(is) if sought.contains(&is.inode) && !leaving.contains(&path[..]) => {
                        live.insert(is.inode, path);
                    }
                    _ => {}
                }
            }
        }
        Ok(live)
    }

    /// Another name below the directory, for a file that lost one.
    fn other_name<'l>(&self, live: &'l HashMap<InodeNo, Vec<u8>>, one: &Difference) -> Option<&'l Vec<u8>> {
        // The number may now belong to another file, which was made since.
        let is_sought = one.before.is_some_and(|before| before.links > 1) && !self.taken.contains(&one.inode);
        live.get(&one.inode).filter(|_| is_sought)
    }

    /// Restores attributes and times of directories.
    fn finish(&mut self) -> Result<()> {
        // A directory's time says when its names last changed; with names of others among them, the past time
        // would be wrong.
        let of_others: HashSet<Vec<u8>> =
            self.alone.iter().map(|path| self.back.then(parent(path))).collect();
        for dir in &self.touched {
            let (Some(was), Some(is)) = (self.trees.was(dir)?, self.trees.is(dir)?) else { continue };
            let are_directories = was.kind == FileKind::Directory && is.kind == FileKind::Directory;
            if !are_directories || self.alone.contains(dir) {
                continue;
            }
            self.trees.attributes(dir, dir, !of_others.contains(dir))?;
        }
        self.trees.set_flags()
    }
}
