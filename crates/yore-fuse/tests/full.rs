//! Promises of a full mount: fsync says that there is no space, and nothing worse.

mod common;

use common::{new_device, Mounted};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU32, Ordering};
use yore_control::{Client as _, Mounted as Asked, Take};
use yore_fs::rollback::{Plan, Verb};
use yore_fs::{Policy, Versioning};

/// Random numbers, the same ones in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Whether a full volume may answer this. Other refusals have causes that the caller knows.
fn is_usual<T>(outcome: io::Result<T>) -> bool {
    let usual = [libc::ENOSPC, libc::ENOENT, libc::EEXIST, libc::ENOTDIR, libc::EISDIR, libc::ENOTEMPTY];
    outcome.err().and_then(|error| error.raw_os_error()).is_none_or(|number| usual.contains(&number))
}

/// One call on one of a few files. `synced` counts the answers of fsync: success, and no space.
fn call(m: &Mounted, random: &mut Random, synced: &[AtomicU32; 2]) {
    let path = |n: usize| m.path(&format!("d/{n}"));
    let one = path(random.below(8));
    let sync = |file: &File| match file.sync_all() {
        Ok(()) => synced[0].fetch_add(1, Ordering::Relaxed),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{one:?}");
            synced[1].fetch_add(1, Ordering::Relaxed)
        }
    };
    let bits = random.below(22);
    let length = random.below(1 << bits);
    match random.below(8) {
        0..=4 => {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&one);
            if let Ok(file) = &file {
                assert!(is_usual(file.write_all_at(&vec![7; length], random.below(1 << 20) as u64)));
                sync(file);
            }
            assert!(is_usual(file));
        }
        5 => {
            let file = OpenOptions::new().write(true).open(&one);
            if let Ok(file) = &file {
                assert!(is_usual(file.set_len(length as u64)));
                sync(file);
            }
            assert!(is_usual(file));
        }
        6 => assert!(is_usual(fs::rename(&one, path(random.below(8))))),
        _ => {
            let open = File::open(&one);
            assert!(is_usual(fs::remove_file(&one)));
            if let Ok(file) = &open {
                sync(file);
            }
        }
    }
}

/// A program made random calls on a full volume with a version at each close and rollbacks. fsync once
/// answered EIO, and nobody knew why. In this situation fsync succeeds or says that there is no space.
#[test]
fn fsync_knows_no_worse_than_no_space() {
    if !common::can_mount() {
        return;
    }
    let m = Mounted::on(new_device(24 << 20), |config| config.close_events = true);
    fs::create_dir(m.path("d")).unwrap();
    let inode = m.view.lookup(m.view.root(), b"d").unwrap().inode();
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    m.view.set_policy(inode, &close).unwrap();
    let synced = [AtomicU32::new(0), AtomicU32::new(0)];
    std::thread::scope(|scope| {
        let callers = [1u64, 2].map(|seed| {
            let (m, synced) = (&m, &synced);
            scope.spawn(move || {
                let mut random = Random(seed);
                (0..600).for_each(|_| call(m, &mut random, synced));
            })
        });
        let dir = File::open(m.path("d")).unwrap();
        let number = |error| io::Error::from_raw_os_error(yore_fuse::errno(&error).code());
        let mut taken = Vec::new();
        while callers.iter().any(|caller| !caller.is_finished()) {
            match Asked(&dir).take(Take::default()).map_err(number) {
                Ok((number, _)) => taken.push(number),
                outcome => assert!(is_usual(outcome)),
            }
            if let Some(target) = taken.last() {
                let plan = Plan { verb: Verb::Rollback, of: None, target: *target, others: None };
                // A rollback that stops because the volume is full says so; the snapshot may be given up
                // meanwhile.
                assert!(is_usual(Asked(&dir).roll_back(&plan).map_err(number)));
            }
            if taken.len() > 3 {
                assert!(is_usual(Asked(&dir).forget(&[taken.remove(0)]).map_err(number)));
            }
        }
    });
    let [fine, full] = synced.map(AtomicU32::into_inner);
    assert!(fine > 0, "{fine} {full}");
    m.end();
}
