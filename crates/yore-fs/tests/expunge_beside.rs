//! Expunging beside people who take snapshots all the time: it ends, and takes nothing from them.

use std::ops::ControlFlow;
use std::sync::Barrier;
use yore_fs::{Error, InodeNo, NewSnapshot, User, Volume};

const ME: u32 = 7;
/// Files whose history goes.
const FILES: usize = 300;
const OTHERS: u32 = 3;
/// All of them together take fewer snapshots than a file is examined for at most, so I am not told to do it
/// again.
const EACH: usize = 300;

/// Each snapshot that anybody took, of whatever directory, meant that all files that were left were examined
/// again, with a lock held that everybody needs: beside others who went on, that had no end. Now it is the
/// file whose turn it is.
#[test]
fn it_ends_beside_the_snapshots_of_others() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    let take = |uid: u32, directory: InodeNo, name: &str| {
        let user = User { uid, limits: None };
        let new = NewSnapshot { user: Some(&user), ..NewSnapshot::named(name) };
        view.take_snapshot(directory, &new).unwrap();
    };
    volume.create_dir("mine").unwrap();
    volume.create_dir("theirs").unwrap();
    volume.write("theirs/file", "theirs").unwrap();
    let [mine, theirs] = ["mine", "theirs"].map(|path| volume.node(path).unwrap().inode());
    let paths: Vec<String> = (0..FILES).map(|n| format!("mine/{n}")).collect();
    paths.iter().for_each(|path| volume.write(path, "one").unwrap());
    take(ME, mine, "first");
    paths.iter().for_each(|path| volume.write(path, "two").unwrap());
    let identity = |path: &String| {
        let attr = *volume.node(path).unwrap().attr();
        (attr.inode, attr.incarnation)
    };
    let files: Vec<(InodeNo, u32)> = paths.iter().map(identity).collect();

    let snapshots = |other: u32| (0..EACH).map(move |n| format!("other{other}n{n}"));
    let begin = Barrier::new(OTHERS as usize + 1);
    std::thread::scope(|scope| {
        for other in 0..OTHERS {
            let (begin, take, snapshots) = (&begin, &take, &snapshots);
            scope.spawn(move || {
                begin.wait();
                snapshots(other).for_each(|name| take(100 + other, theirs, &name));
            });
        }
        begin.wait();
        view.expunge_taken_by(&files, ME).unwrap();
    });
    let done = view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((done.expunged, done.expunging), (FILES as u64, 0));

    for (n, path) in paths.iter().enumerate() {
        assert_eq!(volume.read(path).unwrap(), b"two");
        let then = volume.read(format!("mine@first/{n}"));
        assert!(matches!(then.as_ref().map_err(Error::root), Err(Error::NotFound)), "{path}: {then:?}");
    }
    for name in (0..OTHERS).flat_map(snapshots) {
        assert_eq!(volume.read(format!("theirs@{name}/file")).unwrap(), b"theirs");
    }
}
