//! Files without content: metadata alone.

use super::scale::Scale;
use crate::workload::script::{Action, Per, Script};

/// Each file is deleted as soon as it is there (Journaling versus Soft Updates, §7.2: 50,000).
pub(super) fn empty(scale: &Scale) -> Script {
    let mut script = Script::default();
    let directory = script.make_directories("empty", 1)[0];
    let count = scale.of(50_000, 500);
    let mut actions = Vec::with_capacity(3 * count);
    for i in 0..count {
        let file = script.file(directory, format!("f{i:06}"));
        actions.extend([Action::Create(file), Action::Close(file), Action::Remove(file)]);
    }
    script.measure("", "create + delete", Per::Operations(count as u64), actions);
    script
}

/// 100,000 files in 1,000 directories, created and deleted, three times (metadata snapshotting, §V).
pub(super) fn thrice(scale: &Scale) -> Script {
    let mut script = Script::default();
    let directories = script.make_directories("many", scale.of(1000, 10));
    let count = scale.of(100_000, 1000);
    let files: Vec<u32> =
        (0..count).map(|i| script.file(directories[i % directories.len()], format!("f{i:06}"))).collect();
    for time in ["first", "second", "third"] {
        let create = files.iter().flat_map(|file| [Action::Create(*file), Action::Close(*file)]).collect();
        script.measure("", format!("create, {time}"), Per::Operations(count as u64), create);
        let delete = files.iter().map(|file| Action::Remove(*file)).collect();
        script.measure("", format!("delete, {time}"), Per::Operations(count as u64), delete);
    }
    script
}
