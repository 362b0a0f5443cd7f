//! From a path to inodes.
//!
//! One walk serves all calls: it ends at a [`Place`], which is the directory that holds (or would hold) the last name, the
//! name, and what it means now. Symbolic links are spliced into the list of components still to go, so that neither
//! their nesting nor their length needs recursion; forty of them end the walk.
//!
//! The walk holds the [`Node`] of every directory it stands in, so no inode number can be reused under it.
//!
//! **The past.** A name that no directory has, and that has an `@` in it, means what is in front of the last `@` as of the time
//! behind it, in the same directory (`.@TIME`: the directory itself). The walk goes on as of that cut; a [`Node`] knows its own.
//! `..` leads back through the name. Links that begin with `/` lead to where the walk began.

use crate::history::read::at_time;
use crate::types::absolute;
use crate::{Error, Node, Result, View};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use yore_format::FileKind;

/// Symbolic links that one walk follows, as Linux does.
const LINKS_MAX: u32 = 40;

/// What to do with a symbolic link in the last place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Follow,
    Keep,
}

/// Where a path leads.
pub(super) struct Place {
    /// The directory of the last name; of a path that ends in `/`, `.` or `..` alone, the directory itself.
    pub directory: Node,
    /// The last name; `None` for the root, `.` and `..`.
    last: Option<Vec<u8>>,
    /// Whether the path ended in `.` or `..` rather than naming the root.
    dots: bool,
    /// What is there.
    pub found: Option<Node>,
    /// The path ended in a slash.
    pub slash: bool,
    /// The absolute path without links, `.` and `..`.
    pub path: PathBuf,
}

impl Place {
    /// The last name, for calls that change it.
    pub fn name(&self, root: &'static str) -> Result<&[u8]> {
        match &self.last {
            Some(name) => Ok(name),
            None if self.dots => Err(Error::Invalid { what: "the path must not end in \".\" or \"..\"" }),
            None => Err(Error::NotPermitted { what: root }),
        }
    }

    /// The directory and the last name.
    pub fn into_named(self, root: &'static str) -> Result<(Node, Vec<u8>)> {
        self.name(root)?;
        Ok((self.directory, self.last.unwrap_or_default()))
    }
}

/// The bytes of a path.
pub(super) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Components still to go, the next one last.
struct Pending(Vec<Vec<u8>>);

impl Pending {
    fn splice(&mut self, path: &[u8]) {
        let components = path.split(|b| *b == b'/').filter(|c| !c.is_empty());
        self.0.extend(components.rev().map(<[u8]>::to_vec));
    }
}

/// Walks `path` from the root.
pub(super) fn locate(view: &View, path: &[u8], links: Links) -> Result<Place> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    if path.contains(&0) {
        return Err(Error::Invalid { what: "a path cannot contain the byte 0" });
    }
    let root = || view.node(view.root(), None);
    let mut current = root()?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    // For each of the names, where it was looked up, if that is of another time.
    let mut ways_back: Vec<Option<Node>> = Vec::new();
    let mut pending = Pending(Vec::new());
    pending.splice(path);
    let mut slash = path.ends_with(b"/");
    let mut dots = false;
    let mut followed = 0;
    while let Some(name) = pending.0.pop() {
        if current.attr().kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        dots = name == b"." || name == b"..";
        if dots {
            if name == b".." {
                names.pop();
                let seen = view.of(&current);
                current = match ways_back.pop().flatten() {
                    Some(back) => back,
                    None => seen.node(seen.parent(current.inode())?, None)?,
                };
            }
            continue;
        }
        let last = pending.0.is_empty();
        let seen = view.of(&current);
        let node = match seen.lookup(current.inode(), &name) {
            Err(Error::NotFound) => match look_back(&seen, &current, &name)? {
                Some(node) => node,
                None if last => return Ok(finish(current, names, name, None, slash)),
                None => return Err(Error::NotFound),
            },
            other => other?,
        };
        if node.attr().kind == FileKind::Symlink && (!last || slash || links == Links::Follow) {
            followed += 1;
            if followed > LINKS_MAX {
                return Err(Error::Loop);
            }
            let target = view.of(&node).readlink(node.inode())?;
            if target.is_empty() {
                return Err(Error::NotFound);
            }
            if target.starts_with(b"/") {
                current = root()?;
                names.clear();
                ways_back.clear();
            } else if node.cut() != current.cut() {
                // What it leads to is of its own time.
                current = view.of(&node).node(current.inode(), None)?;
            }
            slash |= last && target.ends_with(b"/");
            pending.splice(&target);
            continue;
        }
        if last {
            if slash && node.attr().kind != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            return Ok(finish(current, names, name, Some(node), slash));
        }
        names.push(name);
        let other = node.cut() != current.cut();
        ways_back.push(other.then_some(std::mem::replace(&mut current, node)));
    }
    // The root, or a path that ended in dots.
    let found = view.of(&current).node(current.inode(), None)?;
    Ok(Place { directory: current, last: None, dots, found: Some(found), slash, path: absolute(&names) })
}

/// What a name with a time means in a directory that has no such name; `None` if it has no time, or nothing was there then.
fn look_back(view: &View, directory: &Node, name: &[u8]) -> Result<Option<Node>> {
    let Some((of, when)) = at_time::split_time(name) else { return Ok(None) };
    match view.look_back(directory.inode(), of, &when) {
        Err(Error::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

fn finish(
    directory: Node,
    mut names: Vec<Vec<u8>>,
    name: Vec<u8>,
    found: Option<Node>,
    slash: bool,
) -> Place {
    names.push(name.clone());
    Place { directory, last: Some(name), dots: false, found, slash, path: absolute(&names) }
}
