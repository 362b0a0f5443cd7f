//! Snapshots of a mount, by ioctl as programs see it: take, list, hold, forget.

mod common;

use common::asking::{hold, number_of, snapshot};
use common::{as_user, errno_of, Mounted, NOBODY};
use rustix::ioctl::{ioctl, opcode, Updater};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use yore_control::{Client, Mounted as Asked, Request, Take, FORGET_MAX};
use yore_fs::{Error, EventNo, ListedEvent, MountOptions, NewSnapshot, Result, Timestamp, View};

fn snapshots(dir: &File, from: EventNo) -> Result<(Vec<ListedEvent>, Option<EventNo>)> {
    Asked(dir).snapshots(from).map(|page| (page.rows, page.next))
}

fn seen(dir: &File) -> Result<Option<ListedEvent>> {
    Asked(dir).seen()
}

fn forget(dir: &File, numbers: &[EventNo]) -> Result<()> {
    Asked(dir).ask(&Request::Forget { numbers: numbers.to_vec() }).map(drop)
}

fn names(dir: &File) -> Vec<String> {
    let (rows, next) = snapshots(dir, EventNo(0)).expect("a list");
    assert_eq!(next, None);
    rows.into_iter().map(|row| row.event.row.name).collect()
}

/// Programs take and list snapshots through any directory. A snapshot contains what was written just before
/// it, and survives a remount. With the kernel's write-back cache, which could once be requested, a snapshot
/// sometimes lacked a `write` that had returned before.
#[test]
fn taken_and_listed() {
    let Some(mounted) = Mounted::new() else { return };
    fs::create_dir_all(mounted.path("d/e")).unwrap();
    let new = |name: &str| {
        File::options().create_new(true).read(true).write(true).open(mounted.path(name)).unwrap()
    };
    let file = new("d/f");
    file.write_all_at(b"then", 0).unwrap();
    let open = |name: &str| File::open(mounted.path(name)).unwrap();
    let (number, time) = Asked(&open("d"))
        .take(Take { name: "first".into(), held: true, wait: true, ..Take::default() })
        .unwrap();
    file.write_all_at(b"THEN", 0).unwrap();
    let (second, later) = snapshot(&open(""), "").unwrap();
    file.write_all_at(b"now.", 0).unwrap();
    assert!(second > number && later > time);

    let (rows, next) = snapshots(&open("d/e"), EventNo(0)).unwrap();
    assert_eq!((rows.len(), next), (2, None));
    assert_eq!((rows[0].event.number, rows[0].event.row.time), (number, time));
    assert!(rows[0].event.row.held && rows[0].covers && rows[0].event.row.name == "first");
    assert_eq!(rows[0].next, Some(later));
    assert_eq!(rows[0].path.as_deref(), Some("/d".as_ref()));
    assert_eq!(snapshots(&open("d/e"), second).unwrap().0, rows[1..]);
    assert_eq!(number_of(snapshot(&open("d"), "first")), libc::EEXIST);

    drop(file);
    let view = View::open(mounted.end(), &MountOptions::default()).unwrap();
    for (event, content) in [(number, b"then"), (second, b"THEN")] {
        let then = view.as_of(event);
        let root =
            if event == number { then.lookup(view.root(), b"d") } else { view.lookup(view.root(), b"d") };
        let root = root.unwrap().inode();
        let node = then.lookup(root, b"f").unwrap();
        let mut bytes = [0; 4];
        assert_eq!(then.read(node.inode(), 0, &mut bytes).unwrap(), 4);
        assert_eq!(&bytes, content);
    }
}

/// Snapshots contain earlier stores through mappings. Today's kernels do not wait in syncfs for pages of
/// FUSE, so that one snapshot in ten lacked such stores on a busy machine.
#[test]
fn stores_through_mappings() {
    use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
    let Some(mounted) = Mounted::new() else { return };
    let mut mapped: Vec<&mut [u8]> = Vec::new();
    for i in 0..4 {
        let path = mounted.path(&format!("f{i}"));
        let file = File::options().create_new(true).read(true).write(true).open(path).unwrap();
        file.set_len(4096).unwrap();
        // SAFETY: a new mapping at an address that the kernel chooses, of a file that nobody truncates
        // meanwhile.
        mapped.push(unsafe {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            let at = mmap(std::ptr::null_mut(), 4096, rights, MapFlags::SHARED, &file, 0).unwrap();
            std::slice::from_raw_parts_mut(at.cast(), 4096)
        });
    }
    let root = File::open(mounted.root()).unwrap();
    let taken: Vec<(EventNo, u8)> = (1..=20u8)
        .map(|round| {
            mapped.iter_mut().for_each(|bytes| bytes[7] = round);
            (snapshot(&root, "").unwrap().0, round)
        })
        .collect();
    for (event, round) in taken {
        let then = mounted.view.as_of(event);
        for i in 0..4 {
            let node = then.lookup(mounted.view.root(), format!("f{i}").as_bytes()).unwrap();
            let mut byte = [0];
            assert_eq!(node.read(7, &mut byte).unwrap(), 1);
            assert_eq!(byte[0], round, "f{i}");
        }
    }
    for bytes in mapped {
        // SAFETY: a mapping made above, which nobody uses any more.
        unsafe { munmap(bytes.as_mut_ptr().cast(), 4096) }.unwrap();
    }
    drop(root);
    mounted.end();
}

/// A daemon that was told to end by a signal lost what programs had just stored through mappings that they
/// still had: before the end it has the kernel hand over what that keeps, and the kernel did not wait for
/// these.
#[test]
fn stores_through_mappings_are_handed_over() {
    use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
    let Some(mounted) = Mounted::new() else { return };
    let file = File::options().create_new(true).read(true).write(true).open(mounted.path("f")).unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: a new mapping at an address that the kernel chooses, of a file that nobody truncates meanwhile.
    let bytes: &mut [u8] = unsafe {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap(std::ptr::null_mut(), 4096, rights, MapFlags::SHARED, &file, 0).unwrap();
        std::slice::from_raw_parts_mut(at.cast(), 4096)
    };
    let inode = mounted.view.lookup(mounted.view.root(), b"f").unwrap().inode();
    for round in 1..=20u8 {
        bytes[7] = round;
        mounted.session().handle().sync().unwrap();
        let mut byte = [0];
        assert_eq!(mounted.view.read(inode, 7, &mut byte).unwrap(), 1);
        assert_eq!(byte[0], round);
    }
    // SAFETY: the mapping made above, which nobody uses any more.
    unsafe { munmap(bytes.as_mut_ptr().cast(), 4096) }.unwrap();
    drop(file);
    mounted.end();
}

/// Root and the owner of a directory take snapshots of it; others cannot. Everybody who may open a directory
/// sees the snapshots that show it, and of those of directories below only their own.
#[test]
fn rights() {
    let Some(mounted) = Mounted::with(|config| config.allow_other = true) else { return };
    for name in ["mine", "mine/others", "mine/closed"] {
        fs::create_dir(mounted.path(name)).unwrap();
    }
    std::os::unix::fs::chown(mounted.path("mine"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(mounted.path("mine/closed"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let open = |name: &str| File::open(mounted.path(name)).unwrap();
    as_user(NOBODY, || {
        Asked(&open("mine")).take(Take { name: "a".into(), wait: true, ..Take::default() }).unwrap();
        for not_mine in ["", "mine/others"] {
            assert_eq!(number_of(snapshot(&open(not_mine), "")), libc::EPERM);
        }
        assert_eq!(errno_of(File::open(mounted.path("mine/closed"))), libc::EACCES);
    });
    snapshot(&open("mine/closed"), "b").unwrap();
    snapshot(&open("mine"), "c").unwrap();
    snapshot(&open(""), "d").unwrap();
    assert_eq!(names(&open("")), ["a", "b", "c", "d"]);
    as_user(NOBODY, || {
        assert_eq!(names(&open("")), ["a", "c", "d"]);
        assert_eq!(names(&open("mine/others")), ["a", "c", "d"]);
    });
    as_user(4711, || {
        assert_eq!(names(&open("")), ["d"]);
        assert_eq!(names(&open("mine")), ["a", "c", "d"]);
    });
    let number = |name: &str| {
        let (rows, _) = snapshots(&open(""), EventNo(0)).unwrap();
        rows.into_iter().find(|row| row.event.row.name == name).unwrap().event.number
    };
    let [a, b, c, d] = ["a", "b", "c", "d"].map(number);
    as_user(4711, || assert_eq!(number_of(forget(&open("mine"), &[a])), libc::EPERM));
    as_user(NOBODY, || {
        for not_mine in [b, d] {
            assert_eq!(number_of(forget(&open("mine"), &[a, not_mine])), libc::EPERM);
            assert_eq!(number_of(hold(&open("mine"), not_mine, true)), libc::EPERM);
        }
        hold(&open("mine"), a, true).unwrap();
        assert_eq!(number_of(forget(&open(""), &[c])), libc::EPERM, "root took it");
        hold(&open("mine"), a, false).unwrap();
        forget(&open(""), &[a]).unwrap();
    });
    assert_eq!(names(&open("")), ["b", "c", "d"]);
    mounted.end();
}

/// A forgotten snapshot cannot be seen any more through any directory, and does not come back with the
/// volume. A held snapshot is not forgotten, and neither are the others in the same request.
#[test]
fn held_and_forgotten() {
    let Some(mounted) = Mounted::new() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/f"), "then").unwrap();
    let open = |name: &str| File::open(mounted.path(name)).unwrap();
    let (first, _) =
        Asked(&open("d")).take(Take { name: "first".into(), wait: true, ..Take::default() }).unwrap();
    let (second, _) =
        Asked(&open("")).take(Take { name: "second".into(), wait: true, ..Take::default() }).unwrap();
    fs::write(mounted.path("d/f"), "now").unwrap();

    let then = open("d@first");
    let row = seen(&then).unwrap().unwrap();
    assert_eq!((row.event.number, row.own, row.next.is_some()), (first, true, true));
    assert!(!seen(&open("d@second")).unwrap().unwrap().own);
    assert_eq!(seen(&open("d")).unwrap(), None);

    hold(&open(""), first, true).unwrap();
    assert!(seen(&then).unwrap().unwrap().event.row.held);
    assert_eq!(number_of(forget(&open("d"), &[second, first])), libc::EBUSY);
    assert_eq!(names(&open("")), ["first", "second"]);
    hold(&then, first, false).unwrap();
    forget(&open("d@second"), &[first]).unwrap();
    assert_eq!(names(&open("")), ["second"]);
    assert_eq!(errno_of(File::open(mounted.path("d@first"))), libc::ENOENT);
    assert_eq!(number_of(seen(&then)), libc::ESTALE);
    assert_eq!(fs::read(mounted.path("d@second/f")).unwrap(), b"then");
    assert_eq!(number_of(forget(&open(""), &[first])), libc::ENOENT);
    assert_eq!(number_of(hold(&open(""), first, true)), libc::ENOENT);
    for numbers in [&[][..], &[second; FORGET_MAX + 1]] {
        assert_eq!(number_of(forget(&open(""), numbers)), libc::EINVAL);
    }
    assert_eq!(number_of(forget(&open("d/f"), &[second])), libc::ENOTDIR);

    drop(then);
    let view = View::open(mounted.end(), &MountOptions::default()).unwrap();
    assert!(view.events().unwrap().iter().map(|event| event.number).eq([second]));
}

/// A number that the channel does not know gets the answer of a file system without one, and bytes that are
/// no request are refused.
#[test]
fn other_requests() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("f"), "").unwrap();
    let (root, file) = (File::open(mounted.root()).unwrap(), File::open(mounted.path("f")).unwrap());
    assert_eq!(number_of(snapshot(&file, "")), libc::ENOTDIR);
    assert_eq!(number_of(snapshots(&file, EventNo(0))), libc::ENOTDIR);
    assert_eq!(number_of(snapshot(&root, "yesterday")), libc::EINVAL);
    assert_eq!(number_of(snapshot(&root, &"n".repeat(256))), libc::EINVAL);
    const OTHER: rustix::ioctl::Opcode = opcode::read_write::<[u8; 8]>(b'Y', 1);
    let mut buffer = [0; 8];
    // SAFETY: the number includes the size of the buffer.
    let refused = unsafe { ioctl(&root, Updater::<OTHER, [u8; 8]>::new(&mut buffer)) };
    assert_eq!(refused, Err(rustix::io::Errno::NOTTY));
    let elsewhere = snapshots(&File::open("/").unwrap(), EventNo(0)).unwrap_err();
    assert!(elsewhere.to_string().contains("not on a mount that yore serves"), "{elsewhere}");
    // Bytes that are no request, and a request of another version, whose answer contains only the version.
    let raw = |request: &[u8]| {
        let mut buffer = Box::new([0; yore_control::BYTES]);
        buffer[..request.len()].copy_from_slice(request);
        // SAFETY: the number includes the size of the buffer.
        let asked = unsafe {
            ioctl(&root, Updater::<{ yore_control::OPCODE }, [u8; yore_control::BYTES]>::new(&mut buffer))
        };
        asked.map(|()| buffer[..16].to_vec())
    };
    assert_eq!(raw(&[]), Err(rustix::io::Errno::INVAL));
    let version = yore_control::VERSION.to_le_bytes();
    let unknown = [&b"yore"[..], &version, b"\x01\0\0\0\0\0\0\0\xff"].concat();
    assert_eq!(raw(&unknown), Err(rustix::io::Errno::INVAL));
    let expected = [&b"yore"[..], &version, &[0; 8]].concat();
    assert_eq!(raw(b"yore\xff\0\0\0\x01\0\0\0\0\0\0\0\x05"), Ok(expected));
    assert_eq!(names(&root), Vec::<String>::new());
    drop((root, file));
    mounted.end();
}

/// A mount that refuses changes takes no snapshots and forgets none, even if the view would allow it; it
/// lists them.
#[test]
fn read_only() {
    let Some(mounted) = Mounted::with(|config| config.read_only = true) else { return };
    let root = File::open(mounted.root()).unwrap();
    assert_eq!(number_of(snapshot(&root, "")), libc::EROFS);
    mounted.view.take_snapshot(mounted.view.root(), &NewSnapshot::named("by the view")).unwrap();
    assert_eq!(names(&root), ["by the view"]);
    let number = mounted.view.events().unwrap()[0].number;
    assert_eq!(number_of(forget(&root, &[number])), libc::EROFS);
    assert_eq!(number_of(hold(&root, number, true)), libc::EROFS);
    assert_eq!(names(&root), ["by the view"]);
    drop(root);
    mounted.end();
}

/// Errors arrive as the library gave them: they say which snapshot is held, and when the last one was taken.
/// EBUSY and ERANGE, from which commands had to guess, said neither.
#[test]
fn errors_arrive_whole() {
    let Some(mounted) = Mounted::new() else { return };
    let root = File::open(mounted.root()).unwrap();
    let (_, _) = snapshot(&root, "free").unwrap();
    let (held, time) =
        Asked(&root).take(Take { name: "held".into(), held: true, ..Take::default() }).unwrap();
    assert!(matches!(forget(&root, &[held]), Err(Error::Held { event }) if event == held.0));
    let early = Some(Timestamp { seconds: 1, nanos: 0 });
    let late = Asked(&root).take(Take { time: early, ..Take::default() });
    assert!(matches!(late, Err(Error::OutOfOrder { last }) if last == time), "{late:?}");
    let long = Asked(&root).take(Take { description: "x".repeat(513), ..Take::default() });
    assert!(matches!(long, Err(Error::Invalid { what }) if what.contains("512")), "{long:?}");
    drop(root);
    mounted.end();
}
