//! The flags of `chattr` and `lsattr` on a mount. There were none: every request for them was refused.

mod common;

use common::{as_user, errno_of, skipped, Mounted, NOBODY};
use rustix::fs::{
    fallocate, ioctl_getflags, ioctl_setflags, renameat_with, setxattr, FallocateFlags, IFlags, RenameFlags,
    XattrFlags, CWD,
};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{chown, FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use yore_control::{Client, Take};

fn flags(path: &Path) -> IFlags {
    ioctl_getflags(File::open(path).unwrap()).unwrap()
}

fn set(path: &Path, flags: IFlags) -> io::Result<()> {
    Ok(ioctl_setflags(File::open(path)?, flags)?)
}

/// Both ways of serving: without and with requests for open and close.
fn both(test: impl Fn(&Mounted)) {
    for close_events in [false, true] {
        let Some(mounted) = Mounted::with(|c| {
            c.close_events = close_events;
            c.allow_other = true;
        }) else {
            return;
        };
        test(&mounted);
        mounted.end();
    }
}

/// Writes at an offset, and returns the outcome, at the latest from the sync.
fn overwrite(path: &Path, offset: u64) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all_at(b"changed", offset)
}

fn append(path: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(b"more")
}

/// Calls that change a file or its names, and that no flag of the second kind allows.
fn changes(m: &Mounted, file: &Path) -> Vec<(&'static str, io::Result<()>)> {
    let other = m.path("other");
    fs::write(&other, "other").unwrap();
    let with = |flags| Ok(renameat_with(CWD, &other, CWD, file, flags)?);
    let write = || OpenOptions::new().write(true).open(file);
    vec![
        ("overwrite", overwrite(file, 0)),
        ("truncate", write().and_then(|file| file.set_len(1))),
        ("empty", File::create(file).map(drop)),
        ("punch", write().and_then(|file| Ok(fallocate(file, FallocateFlags::from_bits_retain(3), 0, 2)?))),
        ("copy into", fs::copy(&other, file).map(drop)),
        ("chmod", fs::set_permissions(file, fs::Permissions::from_mode(0o600))),
        ("chown", chown(file, Some(5), Some(5))),
        ("utimes", File::open(file).and_then(|f| f.set_modified(std::time::UNIX_EPOCH))),
        ("xattr", Ok(setxattr(file, "user.a", b"1", XattrFlags::empty())).and_then(|r| Ok(r?))),
        ("link", fs::hard_link(file, m.path("linked"))),
        ("unlink", fs::remove_file(file)),
        ("rename", fs::rename(file, m.path("renamed"))),
        ("replace", with(RenameFlags::empty())),
        ("exchange", with(RenameFlags::EXCHANGE)),
    ]
}

/// Nothing of an immutable file changes for anybody until the flag is gone. An append-only file grows, and
/// otherwise the same holds. Immutable directories keep their names; append-only ones only get more. Nothing
/// below an immutable directory is affected.
#[test]
fn protected() {
    both(|m| {
        let file = m.path("file");
        fs::write(&file, "content").unwrap();
        let before = fs::metadata(&file).unwrap();
        for (flag, grows) in [(IFlags::IMMUTABLE, false), (IFlags::APPEND, true)] {
            set(&file, flag).unwrap();
            assert_eq!(flags(&file), flag);
            for (what, outcome) in changes(m, &file) {
                assert_eq!(
                    outcome.err().and_then(|e| e.raw_os_error()),
                    Some(libc::EPERM),
                    "{what} {flag:?}"
                );
            }
            assert_eq!(fs::read(&file).unwrap(), b"content");
            assert_eq!(fs::read(m.path("other")).unwrap(), b"other");
            match grows {
                true => append(&file).unwrap(),
                false => assert_eq!(errno_of(append(&file)), libc::EPERM),
            }
            set(&file, IFlags::empty()).unwrap();
        }
        assert_eq!(fs::read(&file).unwrap(), b"contentmore");
        let after = fs::metadata(&file).unwrap();
        let of = |a: &fs::Metadata| (a.mode(), a.uid(), a.gid(), a.nlink());
        assert_eq!(of(&before), of(&after));
        assert!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
        // The calls after the rename find that the file is gone.
        for (what, outcome) in changes(m, &file).into_iter().take_while(|(what, _)| *what != "rename") {
            assert!(outcome.is_ok(), "{what} of what is not protected: {outcome:?}");
        }
        fs::write(m.path("other"), "other").unwrap();

        let dir = m.path("dir");
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::write(dir.join("in"), "1").unwrap();
        for (flag, grows) in [(IFlags::IMMUTABLE, false), (IFlags::APPEND, true)] {
            set(&dir, flag).unwrap();
            for outcome in [fs::write(dir.join("new"), ""), fs::create_dir(dir.join("newdir"))] {
                assert_eq!(outcome.is_ok(), grows, "{outcome:?}");
            }
            for outcome in [
                fs::remove_file(dir.join("in")),
                fs::remove_dir(dir.join("sub")),
                fs::rename(dir.join("in"), dir.join("out")),
                fs::rename(dir.join("in"), m.path("out")),
                fs::rename(m.path("other"), dir.join("in")),
                fs::rename(&dir, m.path("elsewhere")),
                fs::remove_dir(&dir),
            ] {
                assert_eq!(errno_of(outcome), libc::EPERM);
            }
            fs::write(dir.join("in"), "2").unwrap();
            fs::write(dir.join("sub/new"), "2").unwrap();
            fs::remove_file(dir.join("sub/new")).unwrap();
        }
        set(&dir, IFlags::empty()).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    });
}

/// Only root protects files and removes protection. Owners set the other flags, and other users none. Yore
/// refuses flags that it does not have, rather than dropping them. Immutable files keep their other flags,
/// too.
#[test]
fn who_may() {
    both(|m| {
        let file = m.path("file");
        fs::write(&file, "").unwrap();
        as_user(NOBODY, || assert_eq!(errno_of(set(&file, IFlags::NODUMP)), libc::EPERM));
        chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
        as_user(NOBODY, || {
            set(&file, IFlags::NODUMP | IFlags::NOATIME).unwrap();
            for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
                assert_eq!(errno_of(set(&file, flag)), libc::EPERM);
            }
        });
        assert_eq!(flags(&file), IFlags::NODUMP | IFlags::NOATIME);
        assert_eq!(errno_of(set(&file, IFlags::COMPRESSED)), libc::EOPNOTSUPP);
        set(&file, IFlags::IMMUTABLE).unwrap();
        as_user(NOBODY, || assert_eq!(errno_of(set(&file, IFlags::empty())), libc::EPERM));
        assert_eq!(errno_of(set(&file, IFlags::IMMUTABLE | IFlags::NODUMP)), libc::EPERM);
        set(&file, IFlags::empty()).unwrap();
    });
}

/// Flags survive a remount. Files of the past have the flags of their time, and cannot get others. With `A`,
/// reading leaves no trace. New files get `A` and `d` from their directory. `lsattr` and `chattr` agree.
#[test]
fn kept_and_shown() {
    let Some(m) = Mounted::new() else { return };
    let dir = m.path("dir");
    fs::create_dir(&dir).unwrap();
    set(&dir, IFlags::NOATIME | IFlags::NODUMP).unwrap();
    let file = dir.join("file");
    fs::write(&file, "content").unwrap();
    assert_eq!(flags(&file), IFlags::NOATIME | IFlags::NODUMP);
    let read_at = || fs::metadata(&file).map(|a| (a.atime(), a.atime_nsec())).unwrap();
    let before = read_at();
    fs::read(&file).unwrap();
    assert_eq!(read_at(), before);
    set(&file, IFlags::NOATIME | IFlags::IMMUTABLE).unwrap();
    let root = File::open(m.root()).unwrap();
    yore_control::Mounted(&root).take(Take { name: "then".into(), ..Take::default() }).unwrap();
    drop(root);
    set(&file, IFlags::empty()).unwrap();

    let m = Mounted::on(m.end(), |_| {});
    let (file, then) = (m.path("dir/file"), m.path("dir/file@then"));
    assert_eq!((flags(&m.path("dir")), flags(&file)), (IFlags::NOATIME | IFlags::NODUMP, IFlags::empty()));
    assert_eq!(flags(&then), IFlags::NOATIME | IFlags::IMMUTABLE);
    assert_eq!(errno_of(set(&then, IFlags::empty())), libc::EROFS);
    if Command::new("lsattr").arg("-V").output().is_err() {
        m.end();
        return skipped("lsattr is not installed");
    }
    let run = |program: &str, args: &[&str], path: &Path| {
        let output = Command::new(program).args(args).arg(path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("chattr", &["+iaAd"], &file);
    let letters = |text: String| text.split(' ').next().unwrap().replace('-', "");
    assert_eq!(letters(run("lsattr", &[], &file)), "iadA");
    assert_eq!(letters(run("lsattr", &["-d"], &m.path("dir@then"))), "dA");
    run("chattr", &["-iaAd"], &file);
    assert_eq!(letters(run("lsattr", &[], &file)), "");
    m.end();
}

/// A file contains what a program stored through a mapping before the file became immutable. It does not
/// contain what the program stores afterwards, neither for readers of the file nor on the volume.
#[test]
fn stores_through_mappings() {
    use rustix::mm::{mmap, msync, munmap, MapFlags, MsyncFlags, ProtFlags};
    let Some(m) = Mounted::new() else { return };
    let path = m.path("mapped");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&[b'-'; 4096], 0).unwrap();
    // SAFETY: a new mapping at an address that the kernel chooses, of a file that nobody truncates meanwhile.
    let at = unsafe {
        mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
    }
    .unwrap();
    // SAFETY: the mapping just made, which stays until it is unmapped below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), 4096) };
    bytes[..6].copy_from_slice(b"before");
    set(&path, IFlags::IMMUTABLE).unwrap();
    bytes[6..11].copy_from_slice(b"after");
    // SAFETY: the mapping made above; `bytes` is not used afterwards.
    unsafe {
        msync(at, 4096, MsyncFlags::SYNC).unwrap_err();
        munmap(at, 4096).unwrap();
    }
    drop(file);
    let m = Mounted::on(m.end(), |_| {});
    let content = fs::read(m.path("mapped")).unwrap();
    assert_eq!(&content[..12], b"before------");
    m.end();
}
