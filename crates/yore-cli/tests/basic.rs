//! The basic tests for NFS servers (the Connectathon suite, tests 1 to 9), run on a mount, with a snapshot
//! after each step. In the end everything is read back as of every snapshot, also after another mount.

use crate::common;

use common::{ok, text, Mount, Scratch};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{symlink, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The file or directory under a name.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    modified: (i64, i64),
    /// Of a file, or a link's target.
    content: Vec<u8>,
}

/// Everything below a directory.
type Contents = BTreeMap<PathBuf, Entry>;

fn contents(root: &Path) -> Contents {
    let mut found = Contents::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let seen = fs::symlink_metadata(&path).unwrap();
            let content = match seen.file_type() {
                kind if kind.is_symlink() => text(&fs::read_link(&path).unwrap()).into(),
                kind if kind.is_file() => fs::read(&path).unwrap(),
                _ => {
                    directories.push(path.clone());
                    Vec::new()
                }
            };
            let entry = Entry {
                mode: seen.mode(),
                owner: (seen.uid(), seen.gid()),
                links: seen.nlink(),
                size: seen.size(),
                modified: (seen.mtime(), seen.mtime_nsec()),
                content,
            };
            found.insert(path.strip_prefix(root).unwrap().to_path_buf(), entry);
        }
    }
    found
}

/// The tests' directory, and its content after each step.
struct Basic<'m> {
    mount: &'m Path,
    root: PathBuf,
    then: Vec<(String, Contents)>,
}

impl Basic<'_> {
    /// A snapshot of the volume after a step.
    fn done(&mut self, step: &str) {
        ok(["snapshot", text(self.mount), "-n", step]);
        self.then.push((step.to_string(), contents(&self.root)));
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// Each step appears as it was when it was done, both by the name of the whole volume and by that of the
    /// directory.
    fn verify(&self) {
        let name = self.root.file_name().unwrap().to_str().unwrap();
        for (step, expected) in &self.then {
            for spelling in [format!(".@{step}/{name}"), format!("{name}@{step}")] {
                let found = contents(&self.mount.join(&spelling));
                let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
                assert_eq!(names(&found), names(expected), "names in {spelling}");
                for (path, entry) in expected {
                    assert!(found[path] == *entry, "{spelling}/{}: another file", path.display());
                }
            }
        }
    }
}

/// Files and directories, this many in each level; returns all of their paths, directories before their
/// content.
fn tree(root: &Path, levels: usize, files: usize, directories: usize, paths: &mut Vec<PathBuf>) {
    if levels == 0 {
        return;
    }
    for file in 0..files {
        let path = root.join(format!("file.{file}"));
        fs::File::create_new(&path).unwrap();
        paths.push(path);
    }
    for directory in 0..directories {
        let path = root.join(format!("dir.{directory}"));
        fs::create_dir(&path).unwrap();
        paths.push(path.clone());
        tree(&path, levels - 1, files, directories, paths);
    }
}

/// 1 and 2: 155 files and 62 directories in 5 levels are created and removed; 3: the way up across the mount
/// point.
fn names(basic: &mut Basic<'_>) {
    let mut paths = Vec::new();
    tree(&basic.path(""), 5, 5, 2, &mut paths);
    let files = paths.iter().filter(|path| path.is_file()).count();
    assert_eq!((files, paths.len() - files), (155, 62));
    basic.done("test1");
    let half = paths.len() / 2;
    for (i, path) in paths.iter().rev().enumerate() {
        match path.is_dir() {
            true => fs::remove_dir(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
        assert!(!path.exists());
        if i == half {
            basic.done("test2-half");
        }
    }
    assert_eq!(fs::read_dir(basic.path("")).unwrap().count(), 0);
    basic.done("test2");
    let outside = fs::metadata(basic.mount.parent().unwrap()).unwrap();
    for _ in 0..500 {
        let up = fs::metadata(basic.mount.join("..")).unwrap();
        assert_eq!((up.dev(), up.ino()), (outside.dev(), outside.ino()));
        assert_eq!(
            fs::canonicalize(basic.path("../..")).unwrap(),
            basic.mount.parent().unwrap().canonicalize().unwrap()
        );
    }
    basic.done("test3");
}

/// 4: attributes of 10 files are set and read back, also while nobody has any permission.
fn attributes(basic: &mut Basic<'_>) {
    let files: Vec<PathBuf> = (0..10).map(|i| basic.path(format!("attributes.{i}"))).collect();
    for file in &files {
        fs::write(file, "content").unwrap();
    }
    for round in 0..50 {
        for file in &files {
            for mode in [0, 0o666] {
                fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
                assert_eq!(fs::metadata(file).unwrap().mode() & 0o7777, mode);
                if round == 25 && mode == 0 && *file == files[5] {
                    basic.done("test4-half");
                }
            }
        }
    }
    basic.done("test4");
}

/// 5: a file of 1 MiB is written and read in pieces of 8 KiB, over and over with another pattern, then out of
/// order; also its length.
fn content(basic: &mut Basic<'_>) {
    const PIECES: usize = 128;
    const PIECE: usize = 8192;
    let path = basic.path("bigfile");
    let piece = |pass: usize, i: usize| -> Vec<u8> {
        (0..PIECE as u32 / 4)
            .flat_map(|word| (word ^ ((pass as u32) << 24) ^ ((i as u32) << 12)).to_le_bytes())
            .collect()
    };
    for pass in 0..10 {
        let mut file = fs::File::options()
            .create(true)
            .truncate(pass % 2 == 0)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        for i in 0..PIECES {
            // 37 has no divisor in common with the number of pieces: each comes once.
            let i = if pass < 8 { i } else { i * 37 % PIECES };
            file.seek(SeekFrom::Start((i * PIECE) as u64)).unwrap();
            file.write_all(&piece(pass, i)).unwrap();
            if pass == 9 && i == 64 {
                basic.done("test5-half");
            }
        }
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), (PIECES * PIECE) as u64);
        file.rewind().unwrap();
        let mut found = vec![0; PIECE];
        for i in 0..PIECES {
            file.read_exact(&mut found).unwrap();
            assert!(found == piece(pass, i), "piece {i} of pass {pass}");
        }
        if pass % 3 == 0 {
            basic.done(&format!("test5-pass{pass}"));
        }
    }
    fs::File::options().write(true).open(&path).unwrap().set_len(100_001).unwrap();
    basic.done("test5-truncated");
    fs::remove_file(&path).unwrap();
    basic.done("test5");
}

/// 6: 200 files, listed after each removal: each name once, and no removed name.
fn listing(basic: &mut Basic<'_>) {
    let directory = basic.path("listing");
    fs::create_dir(&directory).unwrap();
    for i in 0..200 {
        fs::File::create_new(directory.join(format!("file.{i}"))).unwrap();
    }
    basic.done("test6-made");
    for removed in 0..200 {
        fs::remove_file(directory.join(format!("file.{removed}"))).unwrap();
        let mut found: Vec<usize> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap()["file.".len()..].parse().unwrap())
            .collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(removed + 1..200), "after {removed}");
        if removed == 99 {
            basic.done("test6-half");
        }
    }
    fs::remove_dir(&directory).unwrap();
    basic.done("test6");
}

/// 7: 10 files renamed and linked 200 times; 8: symbolic links to be read.
fn links(basic: &mut Basic<'_>) {
    for i in 0..10 {
        let (old, new, other) =
            (basic.path(format!("old.{i}")), basic.path(format!("new.{i}")), basic.path(format!("link.{i}")));
        fs::write(&old, format!("file {i}")).unwrap();
        for round in 0..20 {
            fs::rename(&old, &new).unwrap();
            assert!(!old.exists() && new.exists());
            fs::hard_link(&new, &other).unwrap();
            assert_eq!((fs::metadata(&new).unwrap().nlink(), fs::metadata(&other).unwrap().nlink()), (2, 2));
            if round == i {
                basic.done(&format!("test7-{i}"));
            }
            fs::remove_file(&new).unwrap();
            assert_eq!(fs::metadata(&other).unwrap().nlink(), 1);
            fs::rename(&other, &old).unwrap();
        }
    }
    basic.done("test7");
    for round in 0..20 {
        for i in 0..10 {
            let (link, target) =
                (basic.path(format!("symlink.{i}")), format!("/this/is/a/symlink{i}.{round}"));
            symlink(&target, &link).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(&target));
        }
        if round % 10 == 5 {
            basic.done(&format!("test8-{round}"));
        }
        for i in 0..10 {
            fs::remove_file(basic.path(format!("symlink.{i}"))).unwrap();
        }
    }
    basic.done("test8");
}

/// 9: the free space, asked 1,500 times; the answer is the same for any time.
fn room(basic: &mut Basic<'_>) {
    let (now, then) = (basic.path(""), basic.mount.join(".@test1"));
    for _ in 0..750 {
        let (now, then) = (rustix::fs::statvfs(&now).unwrap(), rustix::fs::statvfs(&then).unwrap());
        assert!(now.f_blocks > 0 && now.f_bfree <= now.f_blocks && now.f_bavail <= now.f_bfree);
        assert_eq!((now.f_blocks, now.f_bsize), (then.f_blocks, then.f_bsize));
    }
    basic.done("test9");
}

#[test]
fn basic_tests_read_back_from_the_past() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let root = mount.directory.join("nfstest");
    fs::create_dir(&root).unwrap();
    let mut basic = Basic { mount: &mount.directory, root, then: Vec::new() };
    for test in [names, attributes, content, listing, links, room] {
        test(&mut basic);
    }
    assert!(basic.then.len() > 25);
    basic.verify();
    // Removing everything changes nothing in the past.
    fs::remove_dir_all(&basic.root).unwrap();
    basic.verify();
    mount.umount();
    ok(["check", text(&scratch.volume)]);
    mount.again(&[]);
    basic.verify();
    mount.umount();
}
