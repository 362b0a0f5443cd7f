//! Carries out a [`Script`] on a file system: with one client after the other, or with a thread for each.

use super::script::{Action, Phase, Script, ROOT};
use super::steps::{check, noise};
use crate::{Result, Target};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What is open while a phase runs, and the bytes that it writes.
pub(crate) struct Player<'s, T: Target> {
    script: &'s Script,
    target: &'s T,
    /// Directories that are open, by number. Opened when they are first used.
    directories: Vec<Mutex<Option<Arc<T::Dir>>>>,
    data: Vec<u8>,
}

impl<'s, T: Target> Player<'s, T> {
    pub(crate) fn new(script: &'s Script, target: &'s T) -> Player<'s, T> {
        let directories = (0..script.directory_count()).map(|_| Mutex::new(None)).collect();
        Player { script, target, directories, data: noise(script.largest_transfer(), 42) }
    }

    /// Seconds that `phase` takes with a thread for each client.
    pub(crate) fn with_threads(&self, phase: &Phase) -> Result<f64> {
        let start = Instant::now();
        match &phase.clients[..] {
            [alone] => self.client().all(alone)?,
            several => std::thread::scope(|scope| {
                let threads: Vec<_> =
                    several.iter().map(|actions| scope.spawn(|| self.client().all(actions))).collect();
                let mut outcome = Ok(());
                for thread in threads {
                    let ended = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    outcome = outcome.and(ended);
                }
                outcome
            })?,
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Carries out `phase` in this thread: the clients take turns, a call each. `after` is told behind every
    /// call.
    pub(crate) fn by_turns(&self, phase: &Phase, mut after: impl FnMut() -> Result<()>) -> Result<()> {
        let mut clients: Vec<_> =
            phase.clients.iter().map(|actions| (self.client(), actions.iter())).collect();
        while !clients.is_empty() {
            let mut ended = false;
            for (client, actions) in &mut clients {
                match actions.next() {
                    Some(action) => {
                        client.act(*action)?;
                        after()?;
                    }
                    None => ended = true,
                }
            }
            if ended {
                clients.retain(|(_, actions)| !actions.as_slice().is_empty());
            }
        }
        Ok(())
    }

    fn client(&self) -> Client<'_, 's, T> {
        Client { player: self, open: HashMap::new(), buffer: vec![0; self.data.len()] }
    }

    /// A directory, opened if it is not.
    fn directory(&self, number: u32) -> Result<Arc<T::Dir>> {
        let mut place = self.directories[number as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*place {
            return Ok(open.clone());
        }
        let opened = match self.script.directory_name(number) {
            None => self.target.root()?,
            // A parent has a lower number than what is in it, so nobody waits in a circle.
            Some((parent, name)) => self.target.open_dir(&*self.directory(parent)?, name)?,
        };
        Ok(place.insert(Arc::new(opened)).clone())
    }

    fn forget_directory(&self, number: u32) {
        *self.directories[number as usize].lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// One client: what it has open, and where it reads to.
struct Client<'p, 's, T: Target> {
    player: &'p Player<'s, T>,
    open: HashMap<u32, T::File>,
    buffer: Vec<u8>,
}

impl<T: Target> Client<'_, '_, T> {
    fn all(&mut self, actions: &[Action]) -> Result<()> {
        actions.iter().try_for_each(|action| self.act(*action))
    }

    fn act(&mut self, action: Action) -> Result<()> {
        let (player, target) = (self.player, self.player.target);
        match action {
            Action::MakeDirectory(number) => {
                let (parent, name) = player.script.directory_name(number).unwrap_or((ROOT, "."));
                target.mkdir(&*player.directory(parent)?, name)
            }
            Action::RemoveDirectory(number) => {
                let (parent, name) = player.script.directory_name(number).unwrap_or((ROOT, "."));
                player.forget_directory(number);
                target.rmdir(&*player.directory(parent)?, name)
            }
            Action::List(number) => target.list(&*player.directory(number)?).map(drop),
            Action::Create(file) => {
                let opened = self.named(file, |target, dir, name| target.create(dir, name))?;
                self.open.insert(file, opened);
                Ok(())
            }
            Action::Open(file) => {
                let opened = self.named(file, |target, dir, name| target.open(dir, name))?;
                self.open.insert(file, opened);
                Ok(())
            }
            Action::Close(file) => {
                self.open.remove(&file);
                Ok(())
            }
            Action::Write { file, at, bytes } => {
                target.write_at(self.opened(file), at, &player.data[..bytes as usize])
            }
            Action::Read { file, at, bytes } => {
                let Client { open, buffer, .. } = self;
                let found = target.read_at(&open[&file], at, &mut buffer[..bytes as usize])?;
                check(
                    found == bytes as usize,
                    format_args!("{found} bytes at {at}"),
                    format_args!("{bytes} bytes"),
                )
            }
            Action::Truncate { file, bytes } => target.truncate(self.opened(file), bytes),
            Action::Sync(file) => target.fsync(self.opened(file)),
            Action::Stat(file) => self.named(file, |target, dir, name| target.stat(dir, name)).map(drop),
            Action::Missing(file) => {
                let found = self.named(file, |target, dir, name| target.exists(dir, name))?;
                check(!found, format_args!("a file"), format_args!("none of that name"))
            }
            Action::Rename { file, to } => {
                let (to_directory, new_name) = player.script.file_name(to);
                let to_directory = player.directory(to_directory)?;
                self.named(file, |target, dir, name| target.rename(dir, name, &to_directory, new_name))
            }
            Action::Remove(file) => self.named(file, |target, dir, name| target.unlink(dir, name)),
        }
    }

    /// Does something to a file by its name.
    fn named<R>(&self, file: u32, what: impl FnOnce(&T, &T::Dir, &str) -> Result<R>) -> Result<R> {
        let (directory, name) = self.player.script.file_name(file);
        what(self.player.target, &*self.player.directory(directory)?, name)
    }

    fn opened(&self, file: u32) -> &T::File {
        &self.open[&file]
    }
}
