//! What an unfinished rollback still has to do, as its row says.

use crate::{Corruption, EventNo};

/// What an event of kind [`crate::EventKind::Rollback`] does with its root: it makes the root what it was as
/// of another event. If the event is *held*, the rollback was suspended, and goes on only if somebody asks
/// for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollbackIntent {
    /// The event taken before anything was changed. Its name tells users what is being done.
    pub before: EventNo,
    /// The event to which the directory is rolled back.
    pub target: EventNo,
    /// What others changed between these two events is left as it is.
    pub others: Option<(EventNo, EventNo)>,
}

impl RollbackIntent {
    /// The events that it needs to finish.
    pub fn needs(&self) -> impl Iterator<Item = EventNo> {
        let (from, to) = self.others.unzip();
        [Some(self.before), Some(self.target), from, to].into_iter().flatten()
    }

    /// The text in place of a name: two or four numbers in decimal, separated by blanks.
    pub fn encode(&self) -> String {
        let RollbackIntent { before, target, others } = self;
        match others {
            None => format!("{} {}", before.0, target.0),
            Some((from, to)) => format!("{} {} {} {}", before.0, target.0, from.0, to.0),
        }
    }

    /// Decodes the text in place of a name.
    ///
    /// # Errors
    /// [`Corruption`] if there is something else in place of the numbers.
    pub fn decode(name: &str) -> Result<RollbackIntent, Box<Corruption>> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0).map(EventNo);
        let numbers: Option<Vec<EventNo>> = name.split(' ').map(number).collect();
        let intent = match numbers.as_deref() {
            Some([before, target]) => Some((*before, *target, None)),
            Some([before, target, from, to]) => Some((*before, *target, Some((*from, *to)))),
            _ => None,
        };
        let intent = intent.map(|(before, target, others)| RollbackIntent { before, target, others });
        // Only the very text that `encode` writes is accepted.
        let intent = intent.filter(|intent| intent.encode() == name);
        intent.ok_or_else(|| Corruption::new("event", "rollback", "two or four numbers", format!("{name:?}")))
    }
}
