//! The host's files for a copy that others must not lead astray.
//!
//! Root restores files in a directory whose owner can at any time swap a directory on the way for a symbolic
//! link to `/etc`. So the directory that the user named is resolved once and stays open. Everything below it
//! is reached from there, name by name, and no symbolic link is followed: one that stands where a directory
//! is needed is "not a directory".

use super::{OnHost, Reached};
use rustix::fs::{Mode, OFlags, CWD};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// The host's files, reached from directories that stay open.
pub struct Anchored {
    /// The device of the mount that all directories must be on, if there is one.
    device: Option<u64>,
    /// Directories that the user named: their absolute paths as they were given, and what these led to.
    anchors: RefCell<Vec<(PathBuf, Rc<File>)>>,
}

impl Anchored {
    /// Nothing is resolved yet.
    pub fn new(device: Option<u64>) -> Anchored {
        Anchored { device, anchors: RefCell::default() }
    }

    /// The anchor that lies nearest above a path, and the names from there on. A `..` among these could lead
    /// out of the anchor, so an anchor before a `..` does not count.
    fn nearest(&self, path: &Path) -> Option<(Rc<File>, PathBuf)> {
        let anchors = self.anchors.borrow();
        let below = anchors.iter().filter_map(|(above, opened)| {
            let rest = path.strip_prefix(above).ok()?;
            rest.components().all(|name| matches!(name, Component::Normal(_))).then_some((opened, rest))
        });
        let (opened, rest) = below.min_by_key(|(_, rest)| rest.components().count())?;
        Some((opened.clone(), rest.to_path_buf()))
    }

    /// Makes an anchor of a directory or, if it does not exist, of the nearest one above it. `None` if that
    /// is not on the mount.
    fn anchor<'p>(&self, path: &'p Path) -> io::Result<Option<(Rc<File>, &'p Path)>> {
        let there = path.ancestors().find(|above| above.is_dir()).ok_or(io::ErrorKind::NotFound)?;
        let opened = open_directory(CWD, there.as_os_str(), OFlags::empty())?;
        let device = opened.metadata()?.dev();
        if self.device.is_some_and(|wanted| wanted != device) {
            return Ok(None);
        }
        let opened = Rc::new(opened);
        self.anchors.borrow_mut().push((there.to_path_buf(), opened.clone()));
        Ok(Some((opened, path.strip_prefix(there).unwrap_or(Path::new("")))))
    }

    /// Opens a directory. `None` if it is not on the mount.
    fn directory(&self, path: &Path) -> io::Result<Option<Rc<File>>> {
        let (mut directory, rest) = match self.nearest(path) {
            Some(found) => found,
            None => match self.anchor(path)? {
                Some((anchor, rest)) => (anchor, rest.to_path_buf()),
                None => return Ok(None),
            },
        };
        for name in rest.components() {
            directory = Rc::new(open_directory(&*directory, name.as_os_str(), OFlags::NOFOLLOW)?);
        }
        Ok(Some(directory))
    }
}

impl OnHost for Anchored {
    fn reach(&self, path: &Path) -> io::Result<Reached> {
        let path = std::path::absolute(path)?;
        if let (Some(above), Some(name)) = (path.parent(), path.file_name()) {
            if let Some(directory) = self.directory(above)? {
                return Ok(Reached::in_directory(directory, name));
            }
        }
        // It may be the directory that the volume is mounted on: what is above is not on the mount.
        match self.directory(&path)? {
            Some(directory) => Ok(Reached::in_directory(directory, OsStr::new("."))),
            None => Err(io::Error::other("it is not on the mounted volume")),
        }
    }

    fn resolve(&self, directory: &Path) -> io::Result<()> {
        let directory = std::path::absolute(directory)?;
        let is_anchor = self.anchors.borrow().iter().any(|(path, _)| *path == directory);
        if !is_anchor {
            self.anchor(&directory)?;
        }
        Ok(())
    }
}

/// Opens a directory to go on from there, which needs no permission to read it.
fn open_directory(from: impl AsFd, path: &OsStr, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(from, path, flags, Mode::empty())?.into())
}
