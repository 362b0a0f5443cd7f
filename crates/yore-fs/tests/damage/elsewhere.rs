//! Damage of an inode matters to those who ask about the directory that has it, and to nobody else.

use super::*;

/// A file had changed since a snapshot, and its inode was damaged then. Every diff and every rollback from
/// that snapshot failed, also of directories that had nothing to do with the file.
#[test]
fn a_damaged_inode_elsewhere_is_no_concern_of_a_diff() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    for directory in ["here", "here/below", "there", "there/below"] {
        volume.create_dir(directory).unwrap();
    }
    volume.write("here/below/file", "one").unwrap();
    // The inode block in the middle has none but of these.
    (0..60).for_each(|n| volume.write(format!("there/below/{n}"), "one").unwrap());
    let view = volume.view();
    let [here, there] = ["here", "there"].map(|name| volume.node(name).unwrap().inode());
    let damaged = volume.node("there/below/30").unwrap().inode();
    let then = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    volume.write("here/below/file", "another").unwrap();
    volume.write("there/below/30", "another").unwrap();
    volume.close().unwrap();

    let device = device.snapshot();
    spoil(&device, damaged.addr(), BlockKind::Inodes);
    let volume = open(device).unwrap();
    let view = volume.view();
    let paths = |directory| {
        let mut paths = Vec::new();
        let outcome = view.diff(directory, Some(then), None, &mut |one| {
            paths.push(String::from_utf8(one.path).unwrap());
            ControlFlow::Continue(())
        });
        outcome.map(|()| paths)
    };
    corruption(volume.metadata("there/below/30").unwrap_err());
    assert_eq!(paths(here).unwrap(), ["below/file"]);
    // Where the inode is, nobody can say what has become of it.
    for directory in [there, view.root()] {
        corruption(paths(directory).unwrap_err());
    }
    let plan = Plan { verb: Verb::Rollback, of: None, target: then, others: None };
    assert!(view.rollback(&Rights::All, there, &plan, &mut |_| ()).is_err());
    view.rollback(&Rights::All, here, &plan, &mut |_| ()).unwrap();
    assert_eq!(volume.read_to_string("here/below/file").unwrap(), "one");
    volume.close().unwrap();
}
