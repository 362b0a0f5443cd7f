//! A news server: articles arrive in all groups, and the oldest are deleted (Journaling versus Soft Updates,
//! §7.3.2: 520,000 files, 2 GB, 7,000 directories, more than memory holds).
//!
//! The paper replays traces of a server. Here the groups of articles are drawn at random, so that, as there,
//! calls that follow each other are seldom in the same directory. A seventh of the articles are new, and as
//! many old ones as three times that are deleted, which are the proportions of a server that keeps them for a
//! few days.

use super::scale::Scale;
use crate::workload::script::{Action, Calls, Per, Script};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Files to a directory, as in the paper.
const IN_DIRECTORY: usize = 75;

pub(super) fn script(scale: &Scale) -> Script {
    let mut random = StdRng::seed_from_u64(31);
    let mut script = Script::default();
    let groups = script.make_directories("group", scale.news.div_ceil(IN_DIRECTORY));
    let mut article = |script: &mut Script, number: usize| {
        let group = groups[random.random_range(0..groups.len())];
        // Most articles are short, a few long; 4 KB in the mean.
        let bytes = match random.random_range(0..10) {
            0 => random.random_range(8_000..24_000),
            _ => random.random_range(500..4_800),
        };
        (script.file(group, number.to_string()), bytes)
    };
    let old: Vec<(u32, u64)> = (0..scale.news).map(|i| article(&mut script, i)).collect();
    let new: Vec<(u32, u64)> =
        (0..(scale.news / 7).max(1)).map(|i| article(&mut script, scale.news + i)).collect();
    let make = |articles: &[(u32, u64)]| {
        let mut actions = Vec::with_capacity(3 * articles.len());
        for (file, bytes) in articles {
            actions.make(*file, *bytes);
        }
        actions
    };
    script.prepare(make(&old));
    script.measure("", "unbatch", Per::Operations(new.len() as u64), make(&new));
    script.cold();
    let expired = &old[..(3 * new.len()).min(old.len())];
    let delete = expired.iter().map(|(file, _)| Action::Remove(*file)).collect();
    script.measure("", "expire", Per::Operations(expired.len() as u64), delete);
    script
}
