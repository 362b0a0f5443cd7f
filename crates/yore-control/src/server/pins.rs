//! Pins that processes have: what a user pins, and who goes past that.

use super::who::Who;
use crate::Answer;
use yore_fs::{Error, EventNo, PinnedBy, Result, View};

/// How often a pin is taken back for one request. Whoever pins the snapshot again and again meanwhile wins.
const TRIES: usize = 64;

/// Pins the snapshot as of which a directory is seen, for the asking process.
pub(super) fn pin(view: &View, who: &Who<'_>) -> Result<Answer> {
    let Some(event) = view.event() else { return Ok(Answer::Pinned(false)) };
    let pin = view.pin(event, PinnedBy::Work)?;
    Ok(Answer::Pinned(who.host.room_to_read().and_then(|pin_it| pin_it(pin)).is_ok()))
}

/// Gives up history, also what ordinary users' processes have pinned if the user may do everything. Those
/// processes go on, and find that the snapshot is gone, as they would if it had never been pinned: whoever
/// reads as of a snapshot keeps it from becoming invisible during each single read, and pins do nothing for
/// that. So nothing is freed below a reader. What is mounted, or what a rollback needs, has pins that are no
/// process's, and stays.
///
/// # Errors
/// Those of `give_up`; [`Error::Pinned`] if another pin is left.
pub(super) fn past_pins(who: &Who<'_>, give_up: &dyn Fn() -> Result<()>) -> Result<()> {
    for _ in 0..TRIES {
        match give_up() {
            Err(Error::Pinned { event }) if who.may_all && who.host.release(EventNo(event)) => {}
            done => return done,
        }
    }
    give_up()
}
