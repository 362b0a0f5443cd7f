//! Three mixes of Filebench: a file server, a web server, a mail server. Sizes, counts and orders of calls
//! are those of its personalities; the sizes are drawn from a gamma distribution there, and here from an even
//! one with the same mean.

use super::scale::Scale;
use crate::workload::script::{Action, Calls, Per, Script};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A set of files, of which some do not exist.
struct Set {
    files: Vec<u32>,
    /// Bytes of each file; `None` if it does not exist.
    sizes: Vec<Option<u64>>,
    mean: u64,
    random: StdRng,
}

impl Set {
    /// Makes the set in a phase that is not measured; every fifth file of a set for changing does not exist.
    fn new(script: &mut Script, count: usize, in_directory: usize, mean: u64, changes: bool) -> Set {
        let directories = script.make_directories("set", count.div_ceil(in_directory));
        let files =
            (0..count).map(|i| script.file(directories[i % directories.len()], format!("f{i:06}"))).collect();
        let mut set = Set { files, sizes: vec![None; count], mean, random: StdRng::seed_from_u64(11) };
        let mut actions = Vec::new();
        for i in 0..count {
            if !changes || i % 5 > 0 {
                set.make(&mut actions, i);
            }
        }
        script.prepare(actions);
        set
    }

    /// A file of `mine` that exists, or does not; `None` if there is none.
    fn pick(&mut self, mine: &[usize], exists: bool) -> Option<usize> {
        let start = self.random.random_range(0..mine.len());
        let turned = mine[start..].iter().chain(&mine[..start]);
        turned.copied().find(|i| self.sizes[*i].is_some() == exists)
    }

    fn make(&mut self, actions: &mut Vec<Action>, i: usize) {
        let bytes = self.random.random_range(1..2 * self.mean);
        self.sizes[i] = Some(bytes);
        actions.make(self.files[i], bytes);
    }

    fn append(&mut self, actions: &mut Vec<Action>, i: usize, mean: u64) {
        let bytes = self.random.random_range(1..2 * mean);
        let size = self.sizes[i].get_or_insert(0);
        actions.write(self.files[i], *size, bytes);
        *size += bytes;
    }

    fn read(&mut self, actions: &mut Vec<Action>, i: usize) {
        actions.read_whole(self.files[i], self.sizes[i].unwrap_or(0));
    }

    fn remove(&mut self, actions: &mut Vec<Action>, i: usize) {
        self.sizes[i] = None;
        actions.push(Action::Remove(self.files[i]));
    }
}

/// The files of each client: none works on another's, so that what each finds does not depend on who is
/// first.
fn shares(files: usize, clients: usize) -> Vec<Vec<usize>> {
    (0..clients).map(|client| (client..files).step_by(clients).collect()).collect()
}

/// 50 clients; 10,000 files of 128 KiB. Each makes a file, appends 16 KiB to one, reads one, deletes one, and
/// asks for the attributes of one.
pub(super) fn fileserver(scale: &Scale) -> Script {
    let mut script = Script::default();
    let clients = scale.of(50, 4);
    let count = scale.of(10_000, 200).max(10 * clients);
    let mut set = Set::new(&mut script, count, 20, 128 << 10, true);
    let loops = scale.of(200, 20);
    let work = shares(count, clients).into_iter().map(|mine| {
        let mut actions = Vec::new();
        for _ in 0..loops {
            if let Some(i) = set.pick(&mine, false) {
                set.make(&mut actions, i);
            }
            if let Some(i) = set.pick(&mine, true) {
                actions.push(Action::Open(set.files[i]));
                set.append(&mut actions, i, 16 << 10);
                actions.push(Action::Close(set.files[i]));
            }
            if let Some(i) = set.pick(&mine, true) {
                set.read(&mut actions, i);
            }
            if let Some(i) = set.pick(&mine, true) {
                set.remove(&mut actions, i);
            }
            if let Some(i) = set.pick(&mine, true) {
                actions.push(Action::Stat(set.files[i]));
            }
        }
        actions
    });
    let work = work.collect();
    script.measure_clients("", "loops", Per::Operations((loops * clients) as u64), work);
    script
}

/// 100 clients; 1,000 files of 16 KiB. Each reads ten files and appends 16 KiB to a log.
pub(super) fn webserver(scale: &Scale) -> Script {
    let mut script = Script::default();
    let clients = scale.of(100, 4);
    let count = scale.of(1000, 100);
    let mut set = Set::new(&mut script, count, 20, 16 << 10, false);
    let logs = script.make_directories("log", 1)[0];
    let loops = scale.of(100, 20);
    let all: Vec<usize> = (0..count).collect();
    let mut work = Vec::new();
    for client in 0..clients {
        let log = script.file(logs, format!("log{client}"));
        let mut actions = vec![Action::Create(log)];
        for turn in 0..loops as u64 {
            for _ in 0..10 {
                if let Some(i) = set.pick(&all, true) {
                    set.read(&mut actions, i);
                }
            }
            actions.write(log, turn * (16 << 10), 16 << 10);
        }
        actions.push(Action::Close(log));
        work.push(actions);
    }
    script.measure_clients("", "loops", Per::Operations((loops * clients) as u64), work);
    script
}

/// 16 clients; 1,000 files of 16 KiB in one directory. Each deletes a message; makes one, and forces it;
/// reads one, appends to it, and forces it; reads one.
pub(super) fn varmail(scale: &Scale) -> Script {
    let mut script = Script::default();
    let clients = scale.of(16, 4);
    let count = scale.of(1000, 160);
    let mut set = Set::new(&mut script, count, count, 16 << 10, true);
    let loops = scale.of(400, 40);
    let work = shares(count, clients).into_iter().map(|mine| {
        let mut actions = Vec::new();
        for _ in 0..loops {
            if let Some(i) = set.pick(&mine, true) {
                set.remove(&mut actions, i);
            }
            if let Some(i) = set.pick(&mine, false) {
                actions.push(Action::Create(set.files[i]));
                set.append(&mut actions, i, 16 << 10);
                actions.extend([Action::Sync(set.files[i]), Action::Close(set.files[i])]);
            }
            if let Some(i) = set.pick(&mine, true) {
                actions.push(Action::Open(set.files[i]));
                actions.read(set.files[i], 0, set.sizes[i].unwrap_or(0));
                set.append(&mut actions, i, 16 << 10);
                actions.extend([Action::Sync(set.files[i]), Action::Close(set.files[i])]);
            }
            if let Some(i) = set.pick(&mine, true) {
                set.read(&mut actions, i);
            }
        }
        actions
    });
    let work = work.collect();
    script.measure_clients("", "loops", Per::Operations((loops * clients) as u64), work);
    script
}
