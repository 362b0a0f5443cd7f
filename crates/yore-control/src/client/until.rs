//! A client that does not wait for ever.

use super::methods::Client;
use super::watched::{named, new_name};
use crate::{Answer, Request};
use std::sync::atomic::AtomicBool;
use yore_fs::Result;

/// Asks another client, and breaks off what takes long once `stop` is true: the answer then soon comes, and
/// for most requests it is an error that says so.
pub struct Until<'c> {
    client: &'c dyn Client,
    stop: &'c AtomicBool,
}

impl<'c> Until<'c> {
    /// For a program that sets `stop` when it gets a signal, for instance.
    pub fn new(client: &'c dyn Client, stop: &'c AtomicBool) -> Until<'c> {
        Until { client, stop }
    }
}

impl Client for Until<'_> {
    fn ask(&self, request: &Request) -> Result<Answer> {
        let mut with_name = request.clone();
        let Some(question) = with_name.question_mut() else { return self.client.ask(request) };
        if *question == 0 {
            *question = new_name();
        }
        let name = *question;
        named(&|request| self.client.ask(request), None, self.stop, (name, &with_name))
    }
}
