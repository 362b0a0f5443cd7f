//! Questions that take long: whether they go on.

use crate::{Error, Result};
use std::ops::ControlFlow;

/// Asked now and then whether a question goes on, by whatever thread works on it. It gets how many bytes have
/// been collected since it was asked last, as far as these may become part of the answer.
pub(crate) type GoOn<'a> = &'a (dyn Fn(usize) -> ControlFlow<()> + Sync);

/// For questions that nobody breaks off.
pub(crate) const GO_ON: GoOn<'static> = &|_| ControlFlow::Continue(());

/// What a row counts beside the names in it: about as much as it takes in an answer.
pub(crate) const ROW_COST: usize = 64;

/// Fails if a question does not go on.
///
/// # Errors
/// `Refused` if it was broken off.
pub(crate) fn goes_on(go_on: GoOn<'_>, bytes: usize) -> Result<()> {
    match go_on(bytes) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            Err(Error::Refused("the question was broken off before it was answered; ask again".into()))
        }
    }
}
