//! What the fast pass could not prove.

use crate::CheckError;

/// Why the fast pass proves nothing: something is wrong, or is of a kind that it does not know. The walk then
/// says what, so this is for tests and for whoever looks for the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt(pub(crate) &'static str);

/// The volume has a past, of which something must be known before blocks are summed up.
pub(crate) const A_PAST: Doubt = Doubt("a past");
/// The volume has shared blocks, of which the same is true.
pub(crate) const SHARED: Doubt = Doubt("shared blocks");

/// On a volume of which the last two are true, a block has two owners.
pub(crate) const TWO_OWNERS: Doubt =
    Doubt("a block with two owners, on a volume with a past or with shared blocks");

/// What is read now differs from what was read before.
pub(crate) const ODD: Doubt = Doubt("metadata that is another now");

/// That something holds, or a doubt.
pub(crate) type Certain<T = ()> = Result<T, Doubt>;

/// Why the fast pass ends early.
pub(crate) enum Stop {
    Doubt(Doubt),
    Failed(CheckError),
}

impl From<Doubt> for Stop {
    fn from(doubt: Doubt) -> Stop {
        Stop::Doubt(doubt)
    }
}

impl From<CheckError> for Stop {
    fn from(error: CheckError) -> Stop {
        Stop::Failed(error)
    }
}

/// A doubt unless this holds.
#[inline]
pub(crate) fn ensure(holds: bool, otherwise: &'static str) -> Certain {
    match holds {
        true => Ok(()),
        false => Err(Doubt(otherwise)),
    }
}

/// A doubt in place of what the format's decoders say.
#[inline]
pub(crate) fn sound<T, E>(decoded: Result<T, E>, otherwise: &'static str) -> Certain<T> {
    decoded.map_err(|_| Doubt(otherwise))
}
