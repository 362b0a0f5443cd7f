//! Names against links, directories against the root, and the tree of orphans.

use crate::checker::Checker;
use crate::known::Known;
use crate::tree::Tree;
use crate::walk::Walk;
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{FileKind, Incarnation, InodeNo};

impl Checker<'_> {
    /// Reads the tree of orphans. An inode there has no links, or is a file that is losing blocks beyond its
    /// size.
    pub(crate) fn orphans(&mut self) -> Result<(), CheckError> {
        let Some(tree) = Tree::of_orphans(&self.sb) else { return Ok(()) };
        let mut walk = Walk::new(tree);
        while let Some(leaf) = walk.next_leaf(self)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.cell(i);
                let number = InodeNo(key);
                self.counts.orphans += 1;
                let Ok(incarnation) = <[u8; 4]>::try_from(value).map(u32::from_le_bytes) else {
                    let finding = Finding::new(Problem::CellDamaged, "4 bytes", value.len() as u64);
                    self.add_incomplete(finding.at(leaf.addr).of(number));
                    continue;
                };
                let at = self.known(number)?;
                let known = at.map(|at| self.inodes.get(at)).transpose()?;
                let hidden = known.is_none() && self.is_hidden(number)?;
                let found = match known {
                    Some(known) if known.incarnation.0 != incarnation => {
                        format!("incarnation {incarnation}, where {} is in use", known.incarnation)
                    }
                    Some(known) if known.links > 0 && known.kind != FileKind::Regular => {
                        format!("{:?} with {} links", known.kind, known.links)
                    }
                    Some(_) => {
                        at.map(|at| self.inodes.update(at, |known| known.orphan = true)).transpose()?;
                        continue;
                    }
                    None if hidden => continue,
                    None => "no inode in use".to_string(),
                };
                let expected = "an inode without links, or a file";
                let finding = Finding::new(Problem::OrphanEntry, expected, found);
                self.add(finding.at(leaf.addr).of(number));
            }
        }
        Ok(())
    }

    /// Compares links and parents with the names that were found.
    pub(crate) fn links(&mut self) -> Result<(), CheckError> {
        let root = self.known_inode(InodeNo::ROOT)?;
        match root.map(|root| root.kind) {
            Some(FileKind::Directory) => {}
            None if self.is_hidden(InodeNo::ROOT)? => {}
            found => {
                let found = found.map_or("nothing".to_string(), |k| format!("{k:?}"));
                let finding = Finding::new(Problem::RootMissing, "a directory", found);
                self.add_incomplete(finding.at(InodeNo::ROOT.addr()).of(InodeNo::ROOT));
            }
        }
        for at in 0..self.inodes.len() {
            let known = self.inodes.get(at)?;
            for finding in self.link_findings(&known)? {
                self.add(finding.at(known.number.addr()).of(known.number));
            }
        }
        self.below_root()
    }

    /// What is wrong with one inode's links.
    fn link_findings(&self, known: &Known) -> Result<Vec<Finding>, CheckError> {
        let mut findings = Vec::new();
        let is_root = known.number == InodeNo::ROOT;
        let (inode, incarnation) = (known.number, known.incarnation);
        let unnamed = Recount::Unnamed { inode, incarnation, links: known.links };
        if known.links == 0 {
            if !known.orphan && !self.incomplete {
                let finding = Finding::new(Problem::OrphanUnlisted, "among the orphans", "no links");
                findings.push(finding.recounted(unnamed.clone()));
            }
            if known.entries > 0 {
                findings.push(Finding::new(Problem::OrphanNotEmpty, 0u64, known.entries));
            }
        }
        if known.names == 0 && known.links > 0 && !is_root {
            if !self.incomplete {
                let found = format!("{} links", known.links);
                let finding = Finding::new(Problem::InodeUnnamed, "a name", found);
                findings.push(finding.recounted(unnamed));
            }
            return Ok(findings);
        }
        let most = u64::from(!is_root);
        if known.is_directory() && known.names > most {
            let finding = Finding::new(Problem::DirectoryNamedTwice, most, known.names);
            findings.push(match is_root {
                true => finding,
                false => finding.recounted(self.named_twice(known)),
            });
        }
        let expected = match known.is_directory() {
            // A removed directory has neither names nor links.
            true if known.links == 0 && known.names == 0 => 0,
            true => 2 + known.subdirectories,
            false => known.names,
        };
        let links = u64::from(known.links);
        if links < expected {
            findings.push(Finding::new(Problem::LinksTooFew, expected, links));
        } else if links > expected && !self.incomplete {
            // Both are counts of names, of which a volume has fewer than 2^32.
            let by = u32::try_from(links - expected).unwrap_or(u32::MAX);
            let finding = Finding::new(Problem::LinksTooMany, expected, links);
            findings.push(finding.recounted(Recount::Links {
                inode,
                incarnation,
                by,
                is_remembered: known.is_remembered,
            }));
        }
        findings.extend(self.parent_finding(known)?);
        Ok(findings)
    }

    /// Checks that the parent of a directory, or of a file with one name, is where that name is.
    fn parent_finding(&self, known: &Known) -> Result<Option<Finding>, CheckError> {
        let is_root = known.number == InodeNo::ROOT;
        let directory = if is_root { known.number } else { known.named_in };
        let one_name = is_root || known.names == 1;
        let may_have_none = !known.is_directory() && known.parent == InodeNo::NONE;
        if !one_name || may_have_none || (!known.is_directory() && known.links != 1) {
            return Ok(None);
        }
        let Some(incarnation) = self.known_inode(directory)?.map(|known| known.incarnation) else {
            return Ok(None);
        };
        let cookie = if is_root { known.parent_cookie } else { known.named_at };
        let same = known.parent == directory
            && known.parent_incarnation == incarnation
            && known.parent_cookie == cookie;
        let text = |d: InodeNo, i: Incarnation, c: u64| format!("inode {d}, incarnation {i}, cookie {c:#x}");
        Ok((!same).then(|| {
            let found = text(known.parent, known.parent_incarnation, known.parent_cookie);
            let finding = Finding::new(Problem::Parent, text(directory, incarnation, cookie), found);
            let (inode, of) = (known.number, known.incarnation);
            match is_root {
                true => finding,
                false => finding.recounted(Recount::Parent { inode, incarnation: of, directory, cookie }),
            }
        }))
    }

    /// What a directory of several names keeps: the name that it remembers, and else the last one that was
    /// met, as a repair does.
    fn named_twice(&self, known: &Known) -> Recount {
        let last = (known.named_in, known.named_at);
        let kept = if known.is_remembered { (known.parent, known.parent_cookie) } else { last };
        let mut others = self.further_names.get(&known.number).cloned().unwrap_or_default();
        others.push(last);
        others.retain(|name| *name != kept);
        Recount::NamedTwice { inode: known.number, incarnation: known.incarnation, kept, others }
    }

    /// Checks that every directory with a name is below the root: the path up by names ends there. Each
    /// directory is passed once, because what is found at the end of a path is then known for all directories
    /// on it. A directory on the current path counts as not below the root, so a path that meets itself ends.
    fn below_root(&mut self) -> Result<(), CheckError> {
        for start in 0..self.inodes.len() {
            let first = self.inodes.get(start)?;
            if !first.is_directory() || first.names == 0 {
                continue;
            }
            let (mut at, mut steps) = (Some(start), 0u64);
            let below = loop {
                let Some(here) = at else { break true };
                let known = self.inodes.get(here)?;
                // A directory that has no name is a finding of its own, or a removed one; not a cycle.
                if known.number == InodeNo::ROOT || known.names == 0 {
                    break true;
                }
                if let Some(below) = known.below_root {
                    if !below && self.is_on_path(start, steps, here)? {
                        let number = known.number;
                        let found = "its own ancestor";
                        let finding = Finding::new(Problem::DirectoryCycle, "below the root", found);
                        self.add(finding.at(number.addr()).of(number));
                    }
                    break below;
                }
                self.inodes.update(here, |known| known.below_root = Some(false))?;
                steps += 1;
                at = self.known(known.named_in)?;
            };
            // The same path once more, for it may be as long as there are directories.
            let mut at = Some(start);
            for _ in 0..steps {
                let Some(here) = at else { break };
                let above = self.inodes.update(here, |known| {
                    known.below_root = Some(below);
                    known.named_in
                })?;
                at = self.known(above)?;
            }
        }
        Ok(())
    }

    /// Whether a directory is among the first ones, so many, on the path up from another one.
    fn is_on_path(&self, start: usize, steps: u64, wanted: usize) -> Result<bool, CheckError> {
        let mut at = Some(start);
        for _ in 0..steps {
            let Some(here) = at else { break };
            if here == wanted {
                return Ok(true);
            }
            at = self.known(self.inodes.get(here)?.named_in)?;
        }
        Ok(false)
    }
}
