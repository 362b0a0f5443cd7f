//! Promises for copies from file to file through the library: what a copy takes from its target, and offsets
//! beyond all files.

use yore_fs::{Caller, Error, File, OpenOptions, SetXattrMode, Volume};

const CAPABILITY: &str = "security.capability";
const ORDINARY: Caller = Caller { uid: 7, gid: 7, umask: 0o022, keeps_set_id: false };

/// A copy into a file takes its set-user-id bit and its capability, as a write does. It took neither, so a
/// user who may write to a program of another one could give it other content and keep its privileges.
#[test]
fn a_copy_takes_privileges() {
    let volume = Volume::memory(32 << 20).unwrap().as_caller(Caller::superuser());
    volume.write("from", vec![5; 100_000]).unwrap();
    volume.sync().unwrap();
    for (caller, falls) in [(ORDINARY, true), (Caller::superuser(), false)] {
        volume.write("to", "old").unwrap();
        volume.set_permissions("to", 0o4755).unwrap();
        volume.set_xattr("to", CAPABILITY, [1; 20], SetXattrMode::Any).unwrap();
        let state = || {
            let capability = volume.get_xattr("to", CAPABILITY).unwrap();
            (volume.metadata("to").unwrap().permissions(), capability.is_some())
        };
        let other = volume.as_caller(caller);
        let from = File::open(&other, "from").unwrap();
        let to = OpenOptions::new().write(true).open(&other, "to").unwrap();
        assert_eq!(to.copy_from(&from, 100_000, 10).unwrap(), 0, "there is nothing to copy");
        assert_eq!(state(), (0o4755, true));
        assert_eq!(to.copy_from(&from, 0, 100_000).unwrap(), 100_000);
        assert_eq!(state(), if falls { (0o755, false) } else { (0o4755, true) });
        assert_eq!(volume.read("to").unwrap(), vec![5; 100_000]);
        drop(to);
        volume.remove_file("to").unwrap();
    }
}

/// A copy to an offset near the end of all numbers is refused. Where blocks could be shared, its end came out
/// as a small number.
#[test]
fn a_copy_beyond_all_files_is_refused() {
    let volume = Volume::memory(32 << 20).unwrap();
    volume.write("from", vec![5; 100_000]).unwrap();
    volume.write("to", "old").unwrap();
    volume.sync().unwrap();
    let view = volume.view();
    let [from, to] = ["from", "to"].map(|name| volume.node(name).unwrap().inode());
    for offset in [u64::MAX - 4095, u64::MAX - 65_535, 1 << 63] {
        let error = view.copy_file_range(from, 0, to, offset, 100_000).unwrap_err();
        assert!(matches!(error.root(), Error::FileTooLarge), "{error}");
    }
    assert_eq!(volume.read("to").unwrap(), b"old");
}
