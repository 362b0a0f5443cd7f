//! The client of a daemon that is asked beside the mount, through its socket: to check or to scrub the
//! volume, or to give its data checksums.
//!
//! These take long. If they were asked for through an open directory, the mount would be busy for umount(8)
//! until they end. So nothing of the mount is open meanwhile; whoever unmounts closes the volume, and that
//! breaks them off.

use super::requests::{self, ask};
use crate::live::{self, Daemon};
use std::path::Path;
use yore_control::{Answer, Client, Request};
use yore_fs::{Error, Result};

/// A daemon that is asked through its socket.
pub struct Beside(Daemon);

impl Beside {
    /// The daemon of the mount on a directory; `None` if this user cannot ask it there.
    pub fn at(directory: &Path) -> Option<Beside> {
        let daemon = live::daemon_at(directory).filter(|daemon| daemon.socket.is_some())?;
        let user = rustix::process::geteuid().as_raw();
        (user == 0 || live::user_of(daemon.pid) == Some(user)).then_some(Beside(daemon))
    }
}

impl Client for Beside {
    fn ask(&self, request: &Request) -> Result<Answer> {
        let refused = |why: String| Err(Error::Refused(why));
        // Whoever asks waits as long as it takes: the daemon answers, or ends.
        match ask(&self.0, &requests::Request::Ask(request.clone()), &mut || Ok(())) {
            Ok(Some(requests::Answer::Said(answer))) => *answer,
            Ok(Some(_)) => refused("the daemon's answer is not understood".into()),
            Ok(None) => refused("the daemon of the mount has ended".into()),
            Err(error) => refused(format!("{error:#}")),
        }
    }
}
