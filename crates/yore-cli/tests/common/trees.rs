//! Works on one tree, whether or not the volume is mounted, and describes it.

use super::{ok, put, scratch, text, Mount, Scratch};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Does the same on a volume file and on a mount with these options: `on` makes a path for the command. Each
/// begins with the content that [`super::scratch`] makes.
pub fn both(options: &[&str], work: impl Fn(&Scratch, &dyn Fn(&str) -> String)) {
    let of_volume = scratch();
    work(&of_volume, &|path| of_volume.on(path));
    let of_mount = scratch();
    let Some(mount) = Mount::new(&of_mount, options) else { return };
    work(&of_mount, &|path| format!("{}{path}", text(&mount.directory)));
    mount.umount();
    ok(["check", text(&of_mount.volume)]);
}

/// Writes a file and closes it.
pub fn write(scratch: &Scratch, path: &str, content: &str) {
    match scratch.path("mnt").exists() {
        true => fs::write(scratch.path("mnt").join(&path[1..]), content).unwrap(),
        false => put(scratch, path, content),
    }
}

/// Removes a file, or a directory with everything below it.
pub fn remove(scratch: &Scratch, path: &str) {
    let on_mount = scratch.path("mnt").join(&path[1..]);
    match scratch.path("mnt").exists() {
        true if on_mount.is_dir() => fs::remove_dir_all(on_mount).unwrap(),
        true => fs::remove_file(on_mount).unwrap(),
        false => drop(ok(["rm", "-r", &scratch.on(path)])),
    }
}

/// The content of a file.
pub fn read(scratch: &Scratch, path: &str) -> String {
    match scratch.path("mnt").exists() {
        true => fs::read_to_string(scratch.path("mnt").join(&path[1..])).unwrap(),
        false => ok(["cat", &scratch.on(path)]),
    }
}

/// The content of a tree: for each path everything that is put back, and which names are one file. Times of
/// directories only if requested.
pub fn tree(root: &Path, directory_times: bool) -> BTreeMap<PathBuf, String> {
    let (mut found, mut first, mut left) = (BTreeMap::new(), HashMap::new(), vec![root.to_path_buf()]);
    while let Some(path) = left.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        let mut list = vec![0; 4096];
        let len = rustix::fs::llistxattr(&path, &mut list[..]).unwrap();
        let mut xattrs: Vec<String> = Vec::new();
        for attribute in list[..len].split(|b| *b == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 4096];
            let len = rustix::fs::lgetxattr(&path, attribute, &mut value[..]).unwrap();
            xattrs.push(format!("{}={:?}", String::from_utf8_lossy(attribute), &value[..len]));
        }
        xattrs.sort();
        let mut what = format!("{:o} {} {} {xattrs:?}", facts.mode(), facts.uid(), facts.gid());
        if !facts.is_dir() || directory_times {
            what += &format!(" {}.{}", facts.mtime(), facts.mtime_nsec());
        }
        if facts.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if facts.is_symlink() {
            what += &format!(" {:?}", fs::read_link(&path).unwrap());
        } else if !facts.file_type().is_fifo() {
            what += &format!(" {:?}", fs::read(&path).unwrap());
        }
        if facts.nlink() > 1 && !facts.is_dir() {
            first.entry(facts.ino()).or_insert_with(Vec::new).push(name.clone());
        }
        found.insert(name, what);
    }
    for mut names in first.into_values() {
        names.sort();
        for name in &names {
            found.get_mut(name).unwrap().push_str(&format!(" links {names:?}"));
        }
    }
    found
}
