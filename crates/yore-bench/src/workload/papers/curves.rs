//! Creating, reading, overwriting and deleting files, by their size: 128 MB or 512 files of each size,
//! whichever are more files, 50 in a directory, always in the same order, each with cold caches
//! (Journaling versus Soft Updates, §7.2).

use super::scale::Scale;
use crate::workload::script::{Action, Calls, Per, Script, ROOT};

const SIZES: [u64; 9] =
    [1 << 10, 4 << 10, 16 << 10, 64 << 10, 96 << 10, 104 << 10, 256 << 10, 1 << 20, 4 << 20];
const BYTES: usize = 128 << 20;
const LEAST_FILES: usize = 512;
const FILES_IN_DIRECTORY: usize = 50;

pub(super) fn script(scale: &Scale) -> Script {
    let mut script = Script::default();
    for size in SIZES {
        // The larger half needs time that nothing is learnt from when the rest is a sample, too.
        if scale.share < 0.5 && matches!(size >> 10, 96 | 256 | 4096) {
            continue;
        }
        let files = scale.of((BYTES / size as usize).max(LEAST_FILES), 8);
        of_size(&mut script, size, files);
    }
    script
}

fn of_size(script: &mut Script, size: u64, count: usize) {
    let directories: Vec<u32> = (0..count.div_ceil(FILES_IN_DIRECTORY))
        .map(|i| script.directory(ROOT, format!("{size}-{i:04}")))
        .collect();
    script.prepare(directories.iter().map(|dir| Action::MakeDirectory(*dir)).collect());
    let files: Vec<u32> =
        (0..count).map(|i| script.file(directories[i / FILES_IN_DIRECTORY], format!("f{i:06}"))).collect();
    let column = if size < 1 << 20 { format!("{} KiB", size >> 10) } else { format!("{} MiB", size >> 20) };
    let bytes = Per::Bytes(size * count as u64);
    let mut phase = |table, per, each: &dyn Fn(&mut Vec<Action>, u32)| {
        let mut actions = Vec::new();
        for file in &files {
            each(&mut actions, *file);
        }
        script.measure(table, column.clone(), per, actions);
        script.cold();
    };
    phase("create", bytes, &|actions, file| actions.make(file, size));
    phase("read", bytes, &|actions, file| actions.read_whole(file, size));
    phase("write", bytes, &|actions, file| {
        actions.push(Action::Open(file));
        actions.write(file, 0, size);
        actions.push(Action::Close(file));
    });
    phase("delete", Per::Operations(count as u64), &|actions, file| actions.push(Action::Remove(file)));
}
