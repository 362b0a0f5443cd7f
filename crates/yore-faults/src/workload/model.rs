//! The model: what must be there after the steps so far.

use super::step::Step;
use crate::sample::content;
use std::collections::BTreeMap;
use yore_fs::FileKind;

/// What the model knows of one inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    pub(super) kind: FileKind,
    pub(super) permissions: u32,
    pub(super) links: u32,
    pub(super) target: Vec<u8>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of regular files.
    pub(super) content: Vec<u8>,
}

/// Paths, and what they lead to.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(super) names: BTreeMap<String, u64>,
    pub(super) inodes: BTreeMap<u64, Inode>,
    next: u64,
}

/// The facts that are compared for a name.
pub(super) type Facts<'a> = (FileKind, u32, u32, &'a [u8], &'a BTreeMap<Vec<u8>, Vec<u8>>);

impl Inode {
    pub(super) fn facts(&self) -> Facts<'_> {
        let links = if self.kind == FileKind::Directory { 0 } else { self.links };
        (self.kind, self.permissions, links, &self.target, &self.xattrs)
    }
}

impl Model {
    pub(super) fn at(&mut self, path: &str) -> Option<&mut Inode> {
        self.inodes.get_mut(self.names.get(path)?)
    }

    pub(super) fn get(&self, path: &str) -> Option<&Inode> {
        self.inodes.get(self.names.get(path)?)
    }

    fn add(&mut self, path: &str, kind: FileKind, permissions: u32) -> &mut Inode {
        self.next += 1;
        let id = self.next << 32;
        self.names.insert(path.into(), id);
        self.inodes.entry(id).or_insert(Inode {
            kind,
            permissions,
            links: 1,
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            content: Vec::new(),
        })
    }

    fn drop_name(&mut self, path: &str) {
        let Some(id) = self.names.remove(path) else { return };
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        inode.links -= 1;
        if inode.links == 0 {
            self.inodes.remove(&id);
        }
    }

    /// Applies a step. A step that must fail changes nothing.
    pub(super) fn apply(&mut self, step: &Step) {
        match *step {
            Step::Create { path } => drop(self.add(path, FileKind::Regular, 0o644)),
            Step::Mkdir { path } => drop(self.add(path, FileKind::Directory, 0o755)),
            Step::Write { path, offset, len, tag } => self.change(path, |file| {
                let end = offset as usize + len;
                file.resize(file.len().max(end), 0);
                file[end - len..end].copy_from_slice(&content(tag, len));
            }),
            Step::Truncate { path, size } => self.change(path, |file| file.resize(size as usize, 0)),
            Step::Punch { path, offset, len } => self.change(path, |file| {
                let end = file.len().min((offset + len) as usize);
                file[(offset as usize).min(end)..end].fill(0);
            }),
            Step::Allocate { path, offset, len } => self.change(path, |file| {
                file.resize(file.len().max((offset + len) as usize), 0);
            }),
            Step::Symlink { path, len } => {
                self.add(path, FileKind::Symlink, 0o777).target = target(len);
            }
            Step::Link { from, to } => {
                let id = self.names[from];
                self.names.insert(to.into(), id);
                self.inodes.get_mut(&id).expect("a name leads to an inode").links += 1;
            }
            Step::Unlink { path } | Step::Rmdir { path } => self.drop_name(path),
            Step::Rename { from, to } => {
                self.drop_name(to);
                if let Some(id) = self.names.remove(from) {
                    self.names.insert(to.into(), id);
                }
            }
            Step::Exchange { from, to } => {
                let swap = |path: &str, a: &str, b: &str| {
                    let rest = path.strip_prefix(a)?;
                    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{b}{rest}"))
                };
                let names = std::mem::take(&mut self.names);
                let moved =
                    |path: String| swap(&path, from, to).or_else(|| swap(&path, to, from)).unwrap_or(path);
                self.names = names.into_iter().map(|(path, id)| (moved(path), id)).collect();
            }
            Step::SetXattr { path, name, len } => {
                if let Some(inode) = self.at(path) {
                    inode.xattrs.insert(name.as_bytes().to_vec(), content(len as u64, len));
                }
            }
            Step::RemoveXattr { path, name } => {
                if let Some(inode) = self.at(path) {
                    inode.xattrs.remove(name.as_bytes());
                }
            }
            Step::Chmod { path, permissions } => {
                if let Some(inode) = self.at(path) {
                    inode.permissions = permissions;
                }
            }
            Step::Read { .. }
            | Step::Fsync { .. }
            | Step::Sync
            | Step::Snapshot { .. }
            | Step::Forget { .. } => {}
        }
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(inode) = self.at(path) {
            change(&mut inode.content);
        }
    }

    /// Whether names and attributes are the same. Contents are not compared.
    pub fn same_names(&self, other: &Model) -> bool {
        self.names.len() == other.names.len()
            && self.names.keys().all(|path| match (self.get(path), other.get(path)) {
                (Some(a), Some(b)) => a.facts() == b.facts(),
                _ => false,
            })
    }

    /// A path whose content is not the same.
    pub(super) fn other_content(&self, other: &Model) -> Option<&str> {
        let content = |model: &Model, path| model.get(path).map(|inode| inode.content.clone());
        self.names.keys().map(String::as_str).find(|path| content(self, path) != content(other, path))
    }

    /// What differs, for messages.
    pub fn difference(&self, other: &Model) -> String {
        let paths = self.names.keys().chain(other.names.keys());
        for path in paths {
            let [a, b] = [self, other].map(|model| model.get(path).map(Inode::facts));
            if a != b {
                let mut text = format!("{path}: {a:?} and {b:?}");
                text.truncate(text.char_indices().nth(300).map_or(text.len(), |(at, _)| at));
                return text;
            }
        }
        "nothing".into()
    }
}

/// The target of a symbolic link of this length.
pub(super) fn target(len: usize) -> Vec<u8> {
    vec![b't'; len]
}
