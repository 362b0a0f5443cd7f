//! The client of a daemon that is asked beside the mount, through its socket: to check or to scrub the
//! volume, to give its data checksums, or to lay files together.
//!
//! These take long. If they were asked for through an open file or directory, the mount would be busy for
//! umount(8) until they end. So nothing of the mount is open meanwhile; whoever unmounts closes the volume,
//! and that breaks them off.

use super::requests::{self, ask};
use crate::live::{self, Daemon, Mount};
use crate::timed_path::PAST;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yore_control::{check_writable, Answer, Client, Request};
use yore_fs::{Error, Result};

/// A daemon that is asked through its socket.
pub struct Beside {
    daemon: Daemon,
    /// Where its mount is.
    directory: PathBuf,
    /// The number of the file or directory that it is asked about; `None`: about the whole volume.
    inode: Option<u64>,
}

impl Beside {
    /// The daemon of the mount on a directory; `None` if this user cannot ask it there.
    pub fn at(directory: &Path) -> Option<Beside> {
        let daemon = live::daemon_at(directory).filter(|daemon| daemon.socket.is_some())?;
        let user = rustix::process::geteuid().as_raw();
        let may_ask = user == 0 || live::user_of(daemon.pid) == Some(user);
        may_ask.then(|| Beside { daemon, directory: directory.to_path_buf(), inode: None })
    }

    /// The same for what is asked about a file or directory of the present, which the caller has opened on
    /// this mount and closes before asking. `None` for what is of the past, too. If the file is gone when the
    /// daemon is asked, and another one has its number, the question is about that one.
    ///
    /// # Errors
    /// What the host says.
    pub fn about(mount: &Mount, opened: &File) -> io::Result<Option<Beside>> {
        let found = opened.metadata()?;
        let is_there = found.dev() == rustix::fs::makedev(0, mount.connection) && found.ino() & PAST == 0;
        let beside = Beside::at(&mount.directory).filter(|_| is_there);
        // On a mount of a snapshot files have the numbers that they have in the present.
        let beside = beside.filter(|beside| beside.daemon.snapshot_at(&mount.directory).is_none());
        Ok(beside.map(|beside| Beside { inode: Some(found.ino()), ..beside }))
    }

    fn check_writable(&self) -> Result<()> {
        let refused = |error| Error::Refused(format!("the mount cannot be asked: {error}"));
        check_writable(&rustix::fs::statvfs(&self.directory).map_err(refused)?)
    }
}

impl Client for Beside {
    fn ask(&self, request: &Request) -> Result<Answer> {
        if request.changes() {
            self.check_writable()?;
        }
        let refused = |why: String| Err(Error::Refused(why));
        let request = match self.inode {
            None => requests::Request::Ask(request.clone()),
            Some(inode) => requests::Request::AskAbout { inode, request: request.clone() },
        };
        // Whoever asks waits as long as it takes: the daemon answers, or ends.
        match ask(&self.daemon, &request, &mut || Ok(())) {
            Ok(Some(requests::Answer::Said(answer))) => *answer,
            Ok(Some(_)) => refused("the daemon's answer is not understood".into()),
            Ok(None) => refused("the daemon of the mount has ended".into()),
            Err(error) => refused(format!("{error:#}")),
        }
    }
}
