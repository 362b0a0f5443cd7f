//! What others do while versions are given up.

use super::give_up;
use crate::history::reclaim::forget;
use crate::history::reclaim::rows::BEFORE_STATES;
use crate::{NewSnapshot, SetXattrMode, Volume};
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::Duration;
use yore_format::EventNo;

const NAME: &str = "user.large";
/// So long that it takes nodes of its own.
const LONG: usize = 5000;

/// A volume with a directory that has a long attribute, and with two events. Only the first one, which is
/// returned, has seen the one version of the directory that has the attribute; the other one has seen the
/// directory in use.
fn seen_twice() -> (Volume, EventNo) {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view().clone();
    let take = |name| view.take_snapshot(view.root(), &NewSnapshot::named(name)).unwrap().number;
    volume.create_dir("d").unwrap();
    // Until its generation is complete, what ends goes to the old trees.
    take("the first");
    volume.sync().unwrap();
    volume.set_xattr("d", NAME, vec![1; LONG], SetXattrMode::Any).unwrap();
    let one = take("one");
    volume.set_permissions("d", 0o700).unwrap();
    take("two");
    (volume, one)
}

/// Makes another version of the directory, which has the attribute's nodes, and takes them from the inode in
/// use. Neither waits for the directory's io lock.
fn go_on(volume: &Volume) {
    volume.rename("d", "e").unwrap();
    volume.set_xattr("e", NAME, vec![2; LONG], SetXattrMode::Any).unwrap();
}

fn assert_seen(volume: &Volume) {
    volume.sync().unwrap();
    assert_eq!(volume.get_xattr("e", NAME).unwrap(), Some(vec![2; LONG]), "it has not come between");
    assert_eq!(volume.get_xattr("/.@two/d", NAME).unwrap(), Some(vec![1; LONG]));
}

/// Which state comes next was asked before the state of the inode was locked. A directory that was renamed
/// in between had become a version, which nobody looked at: nodes of attributes that it has were freed,
/// though an event had seen it.
#[test]
fn a_directory_may_become_a_version_before_a_group_locks_it() {
    let (volume, one) = seen_twice();
    let store = volume.view().store().clone();
    let other = volume.clone();
    BEFORE_STATES.set(Some(Box::new(move || {
        std::thread::spawn(move || go_on(&other)).join().unwrap();
    })));
    forget::begin(&store, &[one]).unwrap();
    let done = forget::finish(&store, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((done.forgotten, done.given_up), (1, 1));
    assert_seen(&volume);
}

/// The same where a version is given up alone.
#[test]
fn a_directory_may_become_a_version_before_it_is_locked() {
    let (volume, one) = seen_twice();
    let (volume, store) = (&volume, volume.view().store().clone());
    let no = volume.node("d").unwrap().inode();
    let version = store.past.version(&store.meta, no, one).unwrap().unwrap();
    forget::begin(&store, &[one]).unwrap();
    let (done, is_done) = mpsc::channel();
    std::thread::scope(|scope| {
        let given_up = give_up(&store, (no, &version), &|| {
            let later = store.past.version_after(&store.meta, no, version.end)?;
            let done = done.clone();
            scope.spawn(move || {
                go_on(volume);
                let _ = done.send(());
            });
            // Where nothing of the kind can come between, it waits until the version is gone.
            let _ = is_done.recv_timeout(Duration::from_millis(100));
            Ok(later)
        });
        given_up.unwrap();
    });
    assert_seen(volume);
}
