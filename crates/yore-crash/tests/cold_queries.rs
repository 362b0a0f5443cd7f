//! Promises that a look at a name as of each snapshot, with nothing in memory, finds what the name meant
//! then: by the index alone (A7b), by rows that have no keys, and by the entry in use. A walk does not show
//! that, for it brings the rows into memory first.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Error, EventNo, MkfsOptions, MountOptions, NewSnapshot, View, Volume};

const NAMES: u8 = 6;
const SNAPSHOTS: u8 = 24;

fn open(device: &Arc<MemoryDevice>) -> Volume {
    // Nothing works in the background.
    let options = MountOptions { commit_interval: Duration::from_secs(24 * 3600), ..MountOptions::default() };
    Volume::open(device.clone(), &options).unwrap()
}

/// Makes a past in which names come and go, with keys for some of the rows, and looks at each name as of each
/// snapshot on a volume that was just opened. Returns the first answer that is wrong.
fn query(seed: u64) -> Result<(), String> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let made: Arc<dyn Device> = device.clone();
    View::mkfs(&made, &MkfsOptions::default()).unwrap();
    let mut volume = open(&device);
    volume.create_dir("d").unwrap();
    let mut now: BTreeMap<u8, u8> = BTreeMap::new();
    let mut past: Vec<(EventNo, BTreeMap<u8, u8>)> = Vec::new();
    for step in 0..SNAPSHOTS {
        for _ in 0..random.random_range(1..4) {
            let (name, other) = (random.random_range(0..NAMES), random.random_range(0..NAMES));
            let (path, to) = (format!("d/{name}"), format!("d/{other}"));
            match (now.contains_key(&name), random.random_range(0..3)) {
                (true, 0) => {
                    volume.remove_file(path).unwrap();
                    now.remove(&name);
                }
                (true, 1) if name != other => {
                    volume.rename(path, to).unwrap();
                    let moved = now.remove(&name).unwrap();
                    now.insert(other, moved);
                }
                _ => {
                    volume.write(path, [step]).unwrap();
                    now.insert(name, step);
                }
            }
        }
        let root = volume.view().root();
        let taken = volume.view().take_snapshot(root, &NewSnapshot::default()).unwrap();
        past.push((taken.number, now.clone()));
        if random.random_range(0..3) == 0 {
            volume.view().index_history(random.random_range(1..16)).unwrap();
        }
        if random.random_range(0..6) == 0 {
            volume.close().unwrap();
            volume = open(&device);
        }
    }
    volume.close().unwrap();
    for (event, names) in &past {
        for name in 0..NAMES {
            let volume = open(&device);
            let then = volume.view().as_of(*event);
            let directory = then.lookup(then.root(), b"d").unwrap().inode();
            let found = match then.lookup(directory, name.to_string().as_bytes()) {
                Ok(node) => {
                    let mut byte = [0];
                    node.read(0, &mut byte).map(|_| Some(byte[0]))
                }
                Err(Error::NotFound) => Ok(None),
                Err(error) => Err(error),
            };
            let wanted = names.get(&name).copied();
            if !matches!(&found, Ok(found) if *found == wanted) {
                return Err(format!(
                    "seed {seed}, event {event}: {name} was {wanted:?}, and {found:?} is found"
                ));
            }
            drop(then);
            volume.close().unwrap();
        }
    }
    Ok(())
}

#[test]
fn cold_queries_find_what_was() {
    (0..8).try_for_each(query).unwrap();
    #[cfg(feature = "mutations")]
    {
        use yore_fs::mutation::{set, Mutation};
        set(Mutation::LaterNameAccepted);
        let found = (0..8).try_for_each(query);
        set(Mutation::None);
        println!("{}", found.expect_err("LaterNameAccepted"));
    }
}
