//! What is tried with the state that a crash has left, besides looking at it.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// What else to do with a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Change something, unmount, and check again.
    pub use_it: bool,
    /// Repair the volume in the end. (What other engines leave is clean as it is.)
    pub repair: bool,
    /// Recount what the crash has left while the volume is in use (engines that order changes).
    pub recount: bool,
    /// Mount it under another engine.
    pub change: bool,
    /// Crash again while mounting: the seed of where and how.
    pub again: Option<u64>,
    /// Crash a third time, while mounting after the second.
    pub third: Option<u64>,
    /// Run the sequence of this seed after the crash, and crash that.
    pub more: Option<u64>,
}

impl Trial {
    /// The same for an engine that orders changes.
    pub(crate) fn draw_ordered(random: &mut Xoshiro256PlusPlus) -> Trial {
        let trial = Trial::draw(random);
        let is_plain = trial.again.is_none() && trial.more.is_none();
        let (repair, change) = (random.random_range(0..6) == 0, random.random_range(0..6) == 0);
        // A volume is repaired before another sequence begins on it.
        let repair = trial.again.is_none() && (repair || trial.more.is_some());
        let recount = random.random_range(0..6) == 0 && is_plain && !repair && !trial.use_it;
        Trial { repair, recount, change: change && is_plain, ..trial }
    }

    /// About one state in four is tried in one more way.
    pub(crate) fn draw(random: &mut Xoshiro256PlusPlus) -> Trial {
        let seed = random.random_range(0..1_000_000);
        let none = Trial::default();
        match random.random_range(0..64) {
            0..=4 => Trial { use_it: true, ..none },
            5..=8 => Trial { again: Some(seed), ..none },
            9..=11 => Trial { again: Some(seed), third: Some(seed + 1), ..none },
            12 => Trial { more: Some(seed), ..none },
            _ => none,
        }
    }
}
