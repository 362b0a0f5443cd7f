//! One large file, as Bonnie has it: written in sequence, read and written again piece by piece, read in
//! sequence, read at random places.

use super::scale::Scale;
use crate::workload::script::{Action, Calls, Per, Script, BUFFER, ROOT};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub(super) fn script(scale: &Scale) -> Script {
    let bytes = (scale.of(1 << 30, 16 << 20) as u64).next_multiple_of(u64::from(BUFFER));
    let seeks = scale.of(4000, 200);
    let mut random = StdRng::seed_from_u64(7);
    let mut script = Script::default();
    let file = script.file(ROOT, "stream");
    let open = |work: &mut dyn FnMut(&mut Vec<Action>)| {
        let mut actions = vec![Action::Open(file)];
        work(&mut actions);
        actions.push(Action::Close(file));
        actions
    };
    let mut write = vec![Action::Create(file)];
    write.write(file, 0, bytes);
    write.extend([Action::Sync(file), Action::Close(file)]);
    script.measure("", "write", Per::Bytes(bytes), write);
    let rewrite = open(&mut |actions| {
        for i in 0..bytes / u64::from(BUFFER) {
            actions.read(file, i * u64::from(BUFFER), u64::from(BUFFER));
            actions.write(file, i * u64::from(BUFFER), u64::from(BUFFER));
        }
        actions.push(Action::Sync(file));
    });
    script.measure("", "rewrite", Per::Bytes(bytes), rewrite);
    script.cold();
    script.measure("", "read", Per::Bytes(bytes), open(&mut |actions| actions.read(file, 0, bytes)));
    script.cold();
    let mut place = || random.random_range(0..bytes / 4096) * 4096;
    let read = open(&mut |actions| (0..seeks).for_each(|_| actions.read(file, place(), 4096)));
    script.measure("", "random read", Per::Bytes(4096 * seeks as u64), read);
    script.cold();
    let write = open(&mut |actions| {
        (0..seeks).for_each(|_| actions.write(file, place(), 4096));
        actions.push(Action::Sync(file));
    });
    script.measure("", "random write", Per::Bytes(4096 * seeks as u64), write);
    script
}
