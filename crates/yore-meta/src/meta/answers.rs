//! Making durable what was done, for a caller that does not wait: the thread that leads for the answers that
//! are left (`log/line.rs`). It keeps the volume open only while there are any.

use super::Meta;
use crate::error::MetaError;
use crate::log::line::{Answer, Line, Task};
use std::sync::{Arc, Weak};

impl Meta {
    /// As [`Meta::force`], for a caller that must not wait while others do: `answer` is called once with the
    /// outcome, before this returns or later on another thread. Closing the volume answers what is left
    /// first.
    pub fn force_then(self: &Arc<Meta>, answer: Answer) {
        let start = |line: &Arc<Line>| {
            let (line, of) = (line.clone(), Arc::downgrade(self));
            std::thread::Builder::new().name("yore-log".into()).spawn(move || answer_left(&line, &of))
        };
        self.rooms.log.force_then(&self.rooms.blocks, answer, start);
    }
}

/// The body of the thread.
fn answer_left(line: &Line, of: &Weak<Meta>) {
    let _fail = FailAtPanic(line);
    loop {
        let mut next = match line.await_task() {
            Task::End => return,
            Task::Call(answers) => {
                answers.into_iter().for_each(|answer| answer(Ok(())));
                continue;
            }
            Task::Lead(lead, arrival) => Some((lead, arrival)),
        };
        let Some(of) = of.upgrade() else {
            return line.fail(&MetaError::Refused("the volume is closed".into()));
        };
        while let Some((lead, arrival)) = next {
            let outcome = of.rooms.log.lead_for_left(&of.rooms.blocks, arrival);
            let (own, served) = line.take_led(arrival);
            if let Some(answer) = own {
                answer(outcome);
            }
            served.into_iter().for_each(|answer| answer(Ok(())));
            next = line.go_on(lead);
        }
    }
}

/// Nobody else calls what is left by a thread that panicked. Its leader has stopped all writing before.
struct FailAtPanic<'l>(&'l Line);

impl Drop for FailAtPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = "writing a record of the intent log panicked, which is a bug";
            self.0.fail(&MetaError::Refused(why.into()));
        }
    }
}
