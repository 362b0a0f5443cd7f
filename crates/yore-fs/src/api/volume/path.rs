//! From a path to inodes.
//!
//! One walk serves all calls: it ends at a [`Located`], which is the directory that holds (or would hold) the
//! last name, the name, and what it means now. The target of a symbolic link is spliced into the list of
//! components still to go, so that neither the nesting of links nor their length needs recursion; forty links
//! end the walk.
//!
//! The walk holds the [`Node`] of every directory in which it stands, so no inode number is reused meanwhile.
//!
//! **The past.** A name may have a time behind an `@` ([`crate::resolve_name`]; `.@TIME` is the directory
//! itself). The walk then goes on as of that event; each [`Node`] knows its event. `..` leads back through
//! the name. Links that begin with `/` lead to where the walk began.

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
    NoFollow,
}

/// Where a path leads.
pub(super) struct Located {
    /// The directory of the last name. For a path that ends in `/`, `.` or `..` alone, the directory itself.
    pub directory: Node,
    /// The last name; `None` for the root, `.` and `..`.
    last: Option<Vec<u8>>,
    /// Whether the path ended in `.` or `..`, and does not name the root.
    dots: bool,
    /// The node that is there.
    pub found: Option<Node>,
    /// Whether the path ended in a slash.
    pub slash: bool,
    /// The absolute path without links, `.` and `..`.
    pub path: PathBuf,
}

impl Located {
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
pub(super) fn locate(view: &View, path: &[u8], links: Links) -> Result<Located> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    if path.contains(&0) {
        return Err(Error::Invalid { what: "a path cannot contain the byte 0" });
    }
    let mut walk = Walk {
        view,
        current: view.node(view.root(), None)?,
        names: Vec::new(),
        origins: Vec::new(),
        pending: Pending(Vec::new()),
        slash: path.ends_with(b"/"),
        followed: 0,
    };
    walk.pending.splice(path);
    let mut dots = false;
    while let Some(name) = walk.pending.0.pop() {
        if walk.current.attr().kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        dots = name == b"." || name == b"..";
        if dots {
            if name == b".." {
                walk.up()?;
            }
            continue;
        }
        let last = walk.pending.0.is_empty();
        let node = match view.of(&walk.current).named(walk.current.inode(), &name) {
            Err(Error::NotFound) if last => return Ok(walk.end(name, None)),
            found => found?,
        };
        if node.attr().kind == FileKind::Symlink && (!last || walk.slash || links == Links::Follow) {
            walk.follow(&node, last)?;
        } else if !last {
            walk.down(name, node);
        } else if walk.slash && node.attr().kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        } else {
            return Ok(walk.end(name, Some(node)));
        }
    }
    walk.end_at_directory(dots)
}

/// A walk under way.
struct Walk<'v> {
    view: &'v View,
    /// The directory in which it stands.
    current: Node,
    /// The names of the directories above, below the root.
    names: Vec<Vec<u8>>,
    /// For each of the names, where it was looked up, if that belongs to another time.
    origins: Vec<Option<Node>>,
    pending: Pending,
    /// Whether the path ended in a slash.
    slash: bool,
    /// How many symbolic links it has followed.
    followed: u32,
}

impl Walk<'_> {
    fn up(&mut self) -> Result<()> {
        self.names.pop();
        self.current = match self.origins.pop().flatten() {
            Some(back) => back,
            None => {
                let seen = self.view.of(&self.current);
                seen.node(seen.parent(self.current.inode())?, None)?
            }
        };
        Ok(())
    }

    fn down(&mut self, name: Vec<u8>, node: Node) {
        self.names.push(name);
        let other = node.event() != self.current.event();
        let above = std::mem::replace(&mut self.current, node);
        self.origins.push(other.then_some(above));
    }

    /// Goes on along a symbolic link, which may be the last name of the path.
    fn follow(&mut self, link: &Node, last: bool) -> Result<()> {
        self.followed += 1;
        if self.followed > LINKS_MAX {
            return Err(Error::Loop);
        }
        let target = self.view.of(link).readlink(link.inode())?;
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.starts_with(b"/") {
            self.current = self.view.node(self.view.root(), None)?;
            self.names.clear();
            self.origins.clear();
        } else if link.event() != self.current.event() {
            // The target belongs to the link's own time.
            self.current = self.view.of(link).node(self.current.inode(), None)?;
        }
        self.slash |= last && target.ends_with(b"/");
        self.pending.splice(&target);
        Ok(())
    }

    /// Ends at a name in the directory in which the walk stands.
    fn end(mut self, name: Vec<u8>, found: Option<Node>) -> Located {
        self.names.push(name.clone());
        let path = absolute(&self.names);
        Located { directory: self.current, last: Some(name), dots: false, found, slash: self.slash, path }
    }

    /// Ends at the directory in which the walk stands: the root, or the end of a path that ended in dots.
    fn end_at_directory(self, dots: bool) -> Result<Located> {
        let found = self.view.of(&self.current).node(self.current.inode(), None)?;
        let path = absolute(&self.names);
        Ok(Located { directory: self.current, last: None, dots, found: Some(found), slash: self.slash, path })
    }
}
