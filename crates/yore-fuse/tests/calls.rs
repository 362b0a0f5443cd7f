//! Every file-system call, made on a mount by an ordinary program.

mod common;

use common::{c_path, errno_of, Mounted};
use rustix::fs::{
    copy_file_range, fallocate, renameat_with, seek, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags,
    SeekFrom, Timespec, Timestamps, XattrFlags, CWD,
};
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{
    symlink, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use yore_fuse::MountConfig;

/// Both ways of serving: without and with requests for open and close.
fn both(test: impl Fn(&Mounted)) {
    for close_events in [false, true] {
        let Some(mounted) = Mounted::with(|c: &mut MountConfig| c.close_events = close_events) else {
            return;
        };
        test(&mounted);
        mounted.end();
    }
}

/// Writes at any offset can be read back, also after a remount.
#[test]
fn contents_survive_a_remount() {
    let Some(mounted) = Mounted::new() else { return };
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 + i / 1000) as u8).collect();
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/big"), &big).unwrap();
    fs::write(mounted.path("d/small"), b"hello").unwrap();
    let mut appended = OpenOptions::new().append(true).open(mounted.path("d/small")).unwrap();
    appended.write_all(b", world").unwrap();
    drop(appended);
    File::open(mounted.path("d/big")).unwrap().sync_all().unwrap();
    let inode = fs::metadata(mounted.path("d/small")).unwrap().ino();

    let mounted = Mounted::on(mounted.end(), |_| {});
    assert!(fs::read(mounted.path("d/big")).unwrap() == big);
    assert_eq!(fs::read(mounted.path("d/small")).unwrap(), b"hello, world");
    assert_eq!(fs::metadata(mounted.path("d/small")).unwrap().ino(), inode);
    mounted.end();
}

/// Opens with every combination that a program uses, with and without open requests. Truncation matters most:
/// a kernel that opens without asking must send it separately.
#[test]
fn files_are_opened_as_asked() {
    both(|m| {
        let path = m.path("f");
        fs::write(&path, b"0123456789").unwrap();
        File::create(&path).unwrap().write_all(b"ab").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ab");
        assert_eq!(errno_of(OpenOptions::new().write(true).create_new(true).open(&path)), libc::EEXIST);
        assert_eq!(errno_of(File::open(m.path("none"))), libc::ENOENT);
        assert_eq!(errno_of(OpenOptions::new().write(true).open(m.root())), libc::EISDIR);
        assert_eq!(errno_of(File::open(path.join("below"))), libc::ENOTDIR);

        // A new file may be written through the descriptor that created it, whatever its permissions.
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o400).open(m.path("r")).unwrap();
        file.write_all(b"once").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "once");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o400);
    });
}

/// Sizes, sparse files, truncation in both directions.
#[test]
fn sizes() {
    both(|m| {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(m.path("s")).unwrap();
        file.write_all_at(b"end", 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 3);
        let mut start = [1u8; 4096];
        file.read_exact_at(&mut start, 4096).unwrap();
        assert_eq!(start, [0; 4096]);
        file.set_len(5000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5000);
        file.set_len(8192).unwrap();
        let mut rest = vec![1u8; 8192];
        assert_eq!(file.read_at(&mut rest, 0).unwrap(), 8192);
        assert!(rest.iter().all(|b| *b == 0));
        assert_eq!(file.read_at(&mut rest, 8192).unwrap(), 0);
        assert_eq!(errno_of(file.set_len(1 << 62)), libc::EFBIG);
    });
}

/// A listing has ten thousand names once each, with the type and the inode number that stat returns, and also
/// `.` and `..`.
#[test]
fn large_directories() {
    let Some(m) = Mounted::new() else { return };
    let dir = m.path("many");
    fs::create_dir(&dir).unwrap();
    for i in 0..10_000 {
        File::create(dir.join(format!("a name of some length {i}"))).unwrap();
    }
    fs::create_dir(dir.join("sub")).unwrap();
    let mut seen = HashSet::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.file_type().unwrap().is_dir(), entry.file_name() == "sub");
        assert!(seen.insert(entry.file_name()), "{:?} twice", entry.file_name());
        if seen.len() % 100 == 0 {
            assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
        }
    }
    assert_eq!(seen.len(), 10_001);
    let mut dots = Vec::new();
    for entry in rustix::fs::Dir::read_from(File::open(dir.join("sub")).unwrap()).unwrap() {
        let entry = entry.unwrap();
        dots.push((entry.file_name().to_bytes().to_vec(), entry.ino()));
    }
    dots.sort();
    let inode = |p| fs::metadata(p).unwrap().ino();
    assert_eq!(dots, [(b".".to_vec(), inode(dir.join("sub"))), (b"..".to_vec(), inode(dir.clone()))]);

    // Removing files while listing them leaves nothing behind.
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "sub" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    fs::remove_dir(dir.join("sub")).unwrap();
    fs::remove_dir(&dir).unwrap();
    m.end();
}

/// The root shows its true inode number, not FUSE's 1, in stat and in listings.
#[test]
fn the_root_has_its_own_number() {
    let Some(m) = Mounted::new() else { return };
    let root = m.view.root().0;
    assert_eq!(fs::metadata(m.root()).unwrap().ino(), root);
    fs::create_dir(m.path("d")).unwrap();
    let parent = rustix::fs::Dir::read_from(File::open(m.path("d")).unwrap())
        .unwrap()
        .map(Result::unwrap)
        .find(|e| e.file_name().to_bytes() == b"..")
        .unwrap();
    assert_eq!(parent.ino(), root);
    m.end();
}

/// Links, removal, and what directories refuse.
#[test]
fn names() {
    let Some(m) = Mounted::new() else { return };
    fs::create_dir(m.path("d")).unwrap();
    assert_eq!(fs::metadata(m.path("d")).unwrap().nlink(), 2);
    fs::write(m.path("d/f"), b"x").unwrap();
    fs::hard_link(m.path("d/f"), m.path("g")).unwrap();
    assert_eq!(fs::metadata(m.path("g")).unwrap().nlink(), 2);
    assert_eq!(errno_of(fs::hard_link(m.path("d"), m.path("h"))), libc::EPERM);
    assert_eq!(errno_of(fs::hard_link(m.path("g"), m.path("d/f"))), libc::EEXIST);
    assert_eq!(errno_of(fs::remove_dir(m.path("d"))), libc::ENOTEMPTY);
    assert_eq!(errno_of(fs::remove_dir(m.path("g"))), libc::ENOTDIR);
    assert_eq!(errno_of(fs::remove_file(m.path("d"))), libc::EISDIR);
    assert_eq!(errno_of(fs::create_dir(m.path("d"))), libc::EEXIST);
    fs::remove_file(m.path("d/f")).unwrap();
    assert_eq!(fs::metadata(m.path("g")).unwrap().nlink(), 1);
    fs::remove_dir(m.path("d")).unwrap();
    // The kernel remembers that the name is gone, and that it came back.
    assert_eq!(errno_of(fs::metadata(m.path("d"))), libc::ENOENT);
    assert_eq!(errno_of(fs::metadata(m.path("d"))), libc::ENOENT);
    fs::write(m.path("d"), b"now a file").unwrap();
    assert!(fs::metadata(m.path("d")).unwrap().is_file());

    let longest = "n".repeat(255);
    fs::write(m.path(&longest), b"").unwrap();
    assert!(fs::metadata(m.path(&longest)).is_ok());
    assert_eq!(errno_of(fs::write(m.path(&"n".repeat(256)), b"")), libc::ENAMETOOLONG);

    symlink("some/where", m.path("l")).unwrap();
    assert_eq!(fs::read_link(m.path("l")).unwrap().to_str(), Some("some/where"));
    assert_eq!(fs::symlink_metadata(m.path("l")).unwrap().len(), 10);
    let target = "t".repeat(4095);
    symlink(&target, m.path("long")).unwrap();
    assert_eq!(fs::read_link(m.path("long")).unwrap().to_str(), Some(&target[..]));
    symlink("loop", m.path("loop")).unwrap();
    assert_eq!(errno_of(fs::metadata(m.path("loop"))), libc::ELOOP);
    m.end();
}

/// rename replaces, refuses to, or swaps, as the flags say.
#[test]
fn renaming() {
    let Some(m) = Mounted::new() else { return };
    let rename = |a: &str, b: &str, flags| {
        renameat_with(CWD, m.path(a), CWD, m.path(b), flags).map_err(std::io::Error::from)
    };
    fs::write(m.path("a"), b"a").unwrap();
    fs::write(m.path("b"), b"b").unwrap();
    assert_eq!(errno_of(rename("a", "b", RenameFlags::NOREPLACE)), libc::EEXIST);
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.path("a")).unwrap(), b"b");
    assert_eq!(fs::read(m.path("b")).unwrap(), b"a");
    rename("a", "b", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(m.path("b")).unwrap(), b"b");
    assert_eq!(errno_of(fs::metadata(m.path("a"))), libc::ENOENT);
    rename("b", "c", RenameFlags::NOREPLACE).unwrap();
    assert_eq!(errno_of(rename("c", "none", RenameFlags::EXCHANGE)), libc::ENOENT);
    assert_eq!(errno_of(rename("c", "w", RenameFlags::WHITEOUT)), libc::EINVAL);

    fs::create_dir_all(m.path("d/e")).unwrap();
    assert_eq!(errno_of(fs::rename(m.path("d"), m.path("d/e/f"))), libc::EINVAL);
    assert_eq!(errno_of(fs::rename(m.path("c"), m.path("d"))), libc::EISDIR);
    assert_eq!(errno_of(fs::rename(m.path("d"), m.path("c"))), libc::ENOTDIR);
    fs::create_dir(m.path("empty")).unwrap();
    assert_eq!(errno_of(fs::rename(m.path("empty"), m.path("d"))), libc::ENOTEMPTY);
    fs::rename(m.path("d/e"), m.path("empty")).unwrap();
    assert_eq!(fs::metadata(m.path("d")).unwrap().nlink(), 2);
    // A directory that moved gets another parent.
    fs::rename(m.path("empty"), m.path("d/moved")).unwrap();
    let up = fs::metadata(m.path("d/moved/..")).unwrap().ino();
    assert_eq!(up, fs::metadata(m.path("d")).unwrap().ino());
    m.end();
}

/// A file that is removed while open can be read and written as before, and is gone after the last close.
#[test]
fn open_unlinked_files() {
    both(|m| {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("u")).unwrap();
        fs::remove_file(m.path("u")).unwrap();
        fs::write(m.path("u"), b"another").unwrap();
        file.write_all(b"still here").unwrap();
        file.sync_all().unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still here");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        drop(file);
        assert_eq!(fs::read(m.path("u")).unwrap(), b"another");
        fs::remove_file(m.path("u")).unwrap();
    });
}

/// A shared mapping sees writes, reads see its stores, and they survive a remount.
#[test]
fn mapped_files() {
    use rustix::mm::{mmap, msync, munmap, MapFlags, MsyncFlags, ProtFlags};
    let Some(m) = Mounted::new() else { return };
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(m.path("map")).unwrap();
    file.set_len(64 << 10).unwrap();
    let len = 64 << 10;
    // SAFETY: a new mapping at an address that the kernel chooses, of a file that nobody truncates meanwhile.
    let at = unsafe {
        mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
    }
    .unwrap();
    // SAFETY: `len` bytes are mapped there, readable and writable, and nobody else uses them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) };
    bytes[5000..5005].copy_from_slice(b"mmap!");
    let mut read = [0; 5];
    file.read_exact_at(&mut read, 5000).unwrap();
    assert_eq!(&read, b"mmap!");
    file.write_all_at(b"write", 9000).unwrap();
    assert_eq!(&bytes[9000..9005], b"write");
    // SAFETY: the mapping made above; `bytes` is not used afterwards.
    unsafe {
        msync(at, len, MsyncFlags::SYNC).unwrap();
        munmap(at, len).unwrap();
    }
    drop(file);
    let mounted = Mounted::on(m.end(), |_| {});
    let content = fs::read(mounted.path("map")).unwrap();
    assert_eq!(&content[5000..5005], b"mmap!");
    assert_eq!(&content[9000..9005], b"write");
    mounted.end();
}

/// Extended attributes: a call may ask for the size, its buffer may be too small, and flags are honoured.
#[test]
fn attributes() {
    use rustix::fs::{getxattr, listxattr, removexattr, setxattr};
    let Some(m) = Mounted::new() else { return };
    let path = m.path("x");
    fs::write(&path, b"").unwrap();
    let set =
        |name: &str, value: &[u8], flags| setxattr(&path, name, value, flags).map_err(std::io::Error::from);
    let get = |name: &str, buffer: &mut [u8]| getxattr(&path, name, buffer).map_err(std::io::Error::from);
    set("user.one", b"first", XattrFlags::empty()).unwrap();
    assert_eq!(errno_of(set("user.one", b"", XattrFlags::CREATE)), libc::EEXIST);
    assert_eq!(errno_of(set("user.two", b"", XattrFlags::REPLACE)), libc::ENODATA);
    set("user.two", b"", XattrFlags::CREATE).unwrap();
    let mut buffer = vec![0; 65536];
    // The C library's call: rustix answers for an empty buffer itself.
    let (c_file, c_name) = (c_path(&path), c_path("user.one".as_ref()));
    // SAFETY: two strings that end with a null byte, and no buffer with its length 0.
    let asked = unsafe { libc::getxattr(c_file.as_ptr(), c_name.as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!(asked, 5);
    assert_eq!(errno_of(get("user.one", &mut buffer[..4])), libc::ERANGE);
    assert_eq!(get("user.one", &mut buffer).unwrap(), 5);
    assert_eq!(&buffer[..5], b"first");
    assert_eq!(errno_of(get("user.none", &mut buffer)), libc::ENODATA);

    let large: Vec<u8> = (0..65536u32).map(|i| (i / 3) as u8).collect();
    set("user.large", &large, XattrFlags::empty()).unwrap();
    assert_eq!(get("user.large", &mut buffer).unwrap(), 65536);
    assert!(buffer == large);
    assert_eq!(errno_of(set("user.huge", &vec![0; 65537], XattrFlags::empty())), libc::E2BIG);

    // SAFETY: as above.
    let asked = unsafe { libc::listxattr(c_file.as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!(asked as usize, "user.one\0user.two\0user.large\0".len());
    assert_eq!(errno_of(listxattr(&path, &mut [0u8; 3][..]).map_err(std::io::Error::from)), libc::ERANGE);
    let mut list = [0u8; 100];
    let len = listxattr(&path, &mut list[..]).unwrap();
    let mut names: Vec<&[u8]> = list[..len].split(|b| *b == 0).filter(|n| !n.is_empty()).collect();
    names.sort();
    assert_eq!(names, [&b"user.large"[..], b"user.one", b"user.two"]);
    removexattr(&path, "user.one").unwrap();
    assert_eq!(errno_of(removexattr(&path, "user.one").map_err(std::io::Error::from)), libc::ENODATA);
    m.end();
}

/// Allocation in all its modes, and finding data and holes.
#[test]
fn allocation_and_holes() {
    let Some(m) = Mounted::new() else { return };
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(m.path("h")).unwrap();
    let call = |flags, offset, len| fallocate(&file, flags, offset, len).map_err(std::io::Error::from);
    let size = || file.metadata().unwrap().len();
    call(FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(size(), 0);
    assert!(file.metadata().unwrap().blocks() >= 2048, "the space is taken");
    call(FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(size(), 1 << 20);
    file.write_all_at(&[7; 1 << 20], 0).unwrap();
    call(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 256 << 10, 256 << 10).unwrap();
    call(FallocateFlags::ZERO_RANGE, 1000, 2000).unwrap();
    let mut all = vec![1; 1 << 20];
    file.read_exact_at(&mut all, 0).unwrap();
    for (i, byte) in all.iter().enumerate() {
        let zero = (1000..3000).contains(&i) || (256 << 10..512 << 10).contains(&i);
        assert_eq!(*byte, if zero { 0 } else { 7 }, "byte {i}");
    }
    file.sync_all().unwrap();
    let seek = |to| seek(&file, to).map_err(std::io::Error::from);
    assert_eq!(seek(SeekFrom::Hole(4096)).unwrap(), 256 << 10);
    assert_eq!(seek(SeekFrom::Data(256 << 10)).unwrap(), 512 << 10);
    assert_eq!(seek(SeekFrom::Hole(512 << 10)).unwrap(), 1 << 20);
    assert_eq!(errno_of(seek(SeekFrom::Data(1 << 20))), libc::ENXIO);
    assert_eq!(errno_of(call(FallocateFlags::COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    drop(file);
    m.end();
}

/// Copies a range within the volume.
#[test]
fn copying() {
    let Some(m) = Mounted::new() else { return };
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i / 5) as u8).collect();
    fs::write(m.path("from"), &data).unwrap();
    let from = File::open(m.path("from")).unwrap();
    let to = File::create(m.path("to")).unwrap();
    let (mut at, mut into) = (1000, 500);
    let mut copied = 0;
    loop {
        match copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 1 << 30).unwrap() {
            0 => break,
            n => copied += n,
        }
    }
    assert_eq!(copied, 999_000);
    let content = fs::read(m.path("to")).unwrap();
    assert!(content[..500] == [0; 500] && content[500..] == data[1000..]);
    drop((from, to));
    m.end();
}

/// Pipes, sockets and device files keep their type and number.
#[test]
fn special_files() {
    use rustix::fs::{makedev, mknodat, FileType};
    let Some(m) = Mounted::new() else { return };
    let number = makedev(0x123, 0x45678);
    for (name, kind) in [
        ("pipe", FileType::Fifo),
        ("socket", FileType::Socket),
        ("char", FileType::CharacterDevice),
        ("block", FileType::BlockDevice),
        ("plain", FileType::RegularFile),
    ] {
        mknodat(CWD, m.path(name), kind, Mode::from(0o640), number).unwrap();
    }
    let m = Mounted::on(m.end(), |_| {});
    let kind = |name| fs::symlink_metadata(m.path(name)).unwrap().file_type();
    assert!(kind("pipe").is_fifo() && kind("socket").is_socket() && kind("plain").is_file());
    assert!(kind("char").is_char_device() && kind("block").is_block_device());
    for name in ["char", "block"] {
        assert_eq!(fs::metadata(m.path(name)).unwrap().rdev(), number, "{name}");
    }
    // A mount without the option `dev` shows device files and opens none.
    assert_eq!(errno_of(File::open(m.path("char"))), libc::EACCES);
    m.end();
}

/// Times read back as they were set, before 1970 too, and change when they should.
#[test]
fn times() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.path("t"), b"x").unwrap();
    for (seconds, nanos) in
        [(1_000_000_000, 123_456_789), (-2, 500_000_000), (-1, 0), (0, 1), (4_000_000_000, 5)]
    {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
        let both = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, m.path("t"), &both, AtFlags::empty()).unwrap();
        let found = fs::metadata(m.path("t")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (seconds, nanos));
        assert_eq!((found.atime(), found.atime_nsec()), (seconds, nanos));
    }
    let before = fs::metadata(m.path("t")).unwrap();
    OpenOptions::new().append(true).open(m.path("t")).unwrap().write_all(b"y").unwrap();
    let after = fs::metadata(m.path("t")).unwrap();
    assert_eq!((before.mtime(), after.len()), (4_000_000_000, 2));
    assert!(after.mtime() < 4_000_000_000, "writing sets the time to the present");
    fs::set_permissions(m.path("t"), fs::Permissions::from_mode(0o604)).unwrap();
    let found = fs::metadata(m.path("t")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o604);
    assert!((found.ctime(), found.ctime_nsec()) > (after.ctime(), after.ctime_nsec()));
    let parent = fs::metadata(m.root()).unwrap();
    fs::write(m.path("new"), b"").unwrap();
    let now = fs::metadata(m.root()).unwrap();
    assert!((now.mtime(), now.mtime_nsec()) > (parent.mtime(), parent.mtime_nsec()));
    m.end();
}

/// Durable writes of every kind are accepted, and statistics of the whole volume make sense.
#[test]
fn durability_and_space() {
    let Some(m) = Mounted::new() else { return };
    let mut file = File::create(m.path("f")).unwrap();
    file.write_all(b"1").unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(m.root()).unwrap().sync_all().unwrap();
    let mut synchronous =
        OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(m.path("f")).unwrap();
    synchronous.write_all(b"2").unwrap();
    rustix::fs::sync();

    let found = rustix::fs::statvfs(m.root()).unwrap();
    assert_eq!((found.f_bsize, found.f_frsize, found.f_namemax), (4096, 4096, 255));
    assert!(found.f_blocks <= (512 << 20) / 4096 && found.f_bfree <= found.f_blocks);
    assert!(found.f_bavail <= found.f_bfree && found.f_ffree <= found.f_files && found.f_ffree > 1000);
    fs::write(m.path("g"), vec![1; 8 << 20]).unwrap();
    File::open(m.path("g")).unwrap().sync_all().unwrap();
    let later = rustix::fs::statvfs(m.root()).unwrap();
    assert!(later.f_bfree + 2048 <= found.f_bfree, "{} then {}", found.f_bfree, later.f_bfree);
    drop((file, synchronous));
    m.end();
}

/// A read-only mount refuses every change and serves every read.
#[test]
fn read_only() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.path("f"), b"kept").unwrap();
    let m = Mounted::on(m.end(), |c| c.read_only = true);
    assert_eq!(fs::read(m.path("f")).unwrap(), b"kept");
    assert_eq!(errno_of(fs::write(m.path("g"), b"")), libc::EROFS);
    assert_eq!(errno_of(fs::remove_file(m.path("f"))), libc::EROFS);
    assert_eq!(errno_of(OpenOptions::new().append(true).open(m.path("f"))), libc::EROFS);
    m.end();
}

/// `relatime`: the first read after a change sets the time of access, and later reads leave it. This also
/// holds for a file that was read before: its pages are in the kernel's cache, so nobody but the kernel sees
/// the read. A mailbox that had been read and got new mail stayed new for ever.
#[test]
fn times_of_access() {
    both(|m| {
        let path = m.path("mailbox");
        // One size is whole pages, which are all in the cache when they are written; the other is not.
        for (size, stats) in [(4096, false), (4096, true), (5000, false), (5000, true), (100_000, true)] {
            fs::write(&path, vec![b'm'; size]).unwrap();
            let read = || fs::metadata(&path).map(|at| (at.atime(), at.atime_nsec())).unwrap();
            let changed = || fs::metadata(&path).map(|at| (at.mtime(), at.mtime_nsec())).unwrap();
            for round in 0..3 {
                if stats {
                    assert!(read() <= changed(), "{size} bytes, round {round}");
                }
                let text = fs::read(&path).unwrap();
                let first = read();
                assert!(first > changed(), "{size} bytes, looked at {stats}, round {round}");
                assert!(fs::read(&path).unwrap() == text && read() == first);
                OpenOptions::new().append(true).open(&path).unwrap().write_all(b"new mail").unwrap();
            }
            fs::remove_file(&path).unwrap();
        }
    });
}

/// A handle of a file (as an NFS server keeps it) finds the file again, and finds nothing once the file is
/// gone.
#[test]
fn handles() {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        opaque: [u8; 128],
    }
    let Some(m) = Mounted::new() else { return };
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("d/f"), b"by handle").unwrap();
    let mut handle = Handle { bytes: 128, kind: 0, opaque: [0; 128] };
    let mut mount = 0i32;
    let path = c_path(&m.path("d/f"));
    // SAFETY: a path that ends with a null byte, a buffer with its length in front, an integer to fill.
    let made = unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), &mut handle, &mut mount, 0)
    };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // Let the kernel forget the inode, so that it must ask by number.
    fs::write("/proc/sys/vm/drop_caches", b"2").unwrap();
    let root = File::open(m.root()).unwrap();
    let open = || {
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: an open descriptor of the mount, and a handle that the kernel made.
        let fd =
            unsafe { libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), &handle, libc::O_RDONLY) };
        if fd < 0 {
            Err(std::io::Error::last_os_error())
        } else {
            // SAFETY: a descriptor the kernel just made for us.
            Ok(unsafe { File::from_raw_fd(fd as i32) })
        }
    };
    let mut text = String::new();
    open().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "by handle");
    fs::remove_file(m.path("d/f")).unwrap();
    fs::write(m.path("d/g"), b"perhaps the same number").unwrap();
    // The kernel forgets the file at a time of its own, and tells the daemon only then. Until then the file
    // counts as deleted and in use, and can be opened.
    let begin = std::time::Instant::now();
    let error = loop {
        fs::write("/proc/sys/vm/drop_caches", b"2").unwrap();
        match open() {
            Ok(mut file) if begin.elapsed() < std::time::Duration::from_secs(120) => {
                text.clear();
                file.read_to_string(&mut text).unwrap();
                assert_eq!(text, "by handle", "another file");
            }
            other => break errno_of(other),
        }
    };
    assert_eq!(error, libc::ESTALE);
    drop(root);
    m.end();
}

/// Some flags of open matter only with O_DIRECT: reads and writes of such files bypass the kernel's cache.
#[test]
fn direct_io() {
    let Some(m) = Mounted::new() else { return };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(m.path("direct"))
        .unwrap();
    let data: Vec<u8> = (0..100_000u32).map(|i| (i / 9) as u8).collect();
    file.write_all_at(&data, 12_345).unwrap();
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 12_345).unwrap();
    assert!(back == data);
    drop(file);
    m.end();
}
