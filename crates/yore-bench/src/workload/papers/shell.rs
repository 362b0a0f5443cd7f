//! Scripts of people who develop programs, as SPEC's SDET has them: each in a directory of its own edits
//! files, compiles, copies, lists, looks for text, and removes all again. Several run at once.

use super::scale::Scale;
use crate::workload::script::{Action, Calls, Per, Script, ROOT};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const CONCURRENCY: [usize; 5] = [1, 2, 4, 8, 16];

pub(super) fn script(scale: &Scale) -> Script {
    let mut random = StdRng::seed_from_u64(5);
    let mut script = Script::default();
    for clients in CONCURRENCY {
        let each = scale.of(20, 2);
        let homes: Vec<u32> =
            (0..clients).map(|client| script.directory(ROOT, format!("home{clients}-{client}"))).collect();
        script.prepare(homes.iter().map(|home| Action::MakeDirectory(*home)).collect());
        let work = homes
            .iter()
            .map(|home| {
                let mut actions = Vec::new();
                for turn in 0..each {
                    one(&mut script, &mut actions, *home, turn, &mut random);
                }
                actions
            })
            .collect();
        script.measure_clients(
            "",
            format!("{clients} at once"),
            Per::Operations((each * clients) as u64),
            work,
        );
    }
    script
}

/// One script: what is there before is there after it.
fn one(script: &mut Script, actions: &mut Vec<Action>, home: u32, turn: usize, random: &mut StdRng) {
    let work = script.directory(home, format!("work{turn}"));
    let copy = script.directory(work, "copy");
    actions.extend([Action::MakeDirectory(work), Action::MakeDirectory(copy)]);
    let mut left = Vec::new();
    for i in 0..8 {
        let bytes = random.random_range(1_000..12_000);
        let file = script.file(work, format!("{i}.c"));
        actions.make(file, bytes);
        // An editor writes a new file over the old one.
        let edited = script.file(work, format!("{i}.c.new"));
        actions.read_whole(file, bytes);
        actions.make(edited, bytes + 200);
        actions.push(Action::Rename { file: edited, to: file });
        // A compiler.
        let (temporary, object) =
            (script.file(work, format!("cc{i}.s")), script.file(work, format!("{i}.o")));
        actions.read_whole(file, bytes + 200);
        actions.make(temporary, 2 * bytes);
        actions.read_whole(temporary, 2 * bytes);
        actions.make(object, bytes);
        actions.push(Action::Remove(temporary));
        // A copy.
        let copied = script.file(copy, format!("{i}.c"));
        actions.read_whole(file, bytes + 200);
        actions.make(copied, bytes + 200);
        left.extend([(file, bytes + 200), (object, bytes), (copied, bytes + 200)]);
    }
    // `ls -l`, `grep`, `rm -r`.
    actions.extend([Action::List(work), Action::List(copy)]);
    actions.extend(left.iter().map(|(file, _)| Action::Stat(*file)));
    for (file, bytes) in &left {
        actions.read_whole(*file, *bytes);
    }
    actions.extend(left.iter().map(|(file, _)| Action::Remove(*file)));
    actions.extend([Action::RemoveDirectory(copy), Action::RemoveDirectory(work)]);
}
