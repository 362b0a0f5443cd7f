//! `ls` and `stat`.

use super::files::on_volume;
use crate::args;
use crate::output::{
    bytes_of, human, json_metadata, json_name, kind_name, mode_text, Clock, List, Names, Precision,
};
use crate::status::{self, Outcome};
use crate::volume::{Access, OnVolume};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_fs::{FileKind, Metadata, Volume};

/// What `ls` prints with.
struct Lister<'a> {
    volume: &'a Volume,
    args: &'a args::Ls,
    list: List,
    clock: Clock,
    names: Names,
}

/// One entry to print.
struct Entry {
    /// As printed.
    name: Vec<u8>,
    path: PathBuf,
    metadata: Metadata,
}

/// Lists files.
pub fn ls(args: &args::Ls) -> Outcome {
    let (name, paths) = OnVolume::parse_all(&args.paths)?;
    on_volume(&name, Access::Read, |volume| {
        let mut lister = Lister {
            volume,
            args,
            list: List::new(args.listing),
            clock: Clock::new(args.listing.utc),
            names: Names::load(),
        };
        let mut files = Vec::new();
        let mut directories = Vec::new();
        for path in paths {
            let metadata = volume.metadata(&path).or_else(|_| volume.symlink_metadata(&path))?;
            if metadata.is_dir() && !args.directory {
                directories.push(path);
            } else {
                let metadata = volume.symlink_metadata(&path)?;
                files.push(Entry { name: bytes_of(&path).to_vec(), path, metadata });
            }
        }
        let headings = args.recursive || directories.len() + usize::from(!files.is_empty()) > 1;
        lister.entries(files)?;
        lister.directories(directories, headings)?;
        lister.list.done()
    })?;
    Ok(status::OK)
}

impl Lister<'_> {
    /// Lists directories, and with `-R` those below them, each after the one it is in.
    fn directories(&mut self, mut directories: Vec<PathBuf>, headings: bool) -> anyhow::Result<()> {
        directories.reverse();
        let mut first = true;
        while let Some(directory) = directories.pop() {
            if headings {
                if !first {
                    self.list.heading(b"")?;
                }
                self.list.heading(&[bytes_of(&directory), b":"].concat())?;
            }
            first = false;
            let mut entries = Vec::new();
            for entry in self.volume.read_dir(&directory)? {
                let entry = entry?;
                let name = entry.file_name().as_bytes().to_vec();
                if !self.args.all && name.starts_with(b".") {
                    continue;
                }
                entries.push(Entry { name, path: entry.path(), metadata: entry.metadata() });
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            if self.args.recursive {
                let below = entries.iter().filter(|entry| entry.metadata.is_dir());
                directories.extend(below.rev().map(|entry| entry.path.clone()));
            }
            self.entries(entries)?;
        }
        Ok(())
    }

    fn entries(&mut self, entries: Vec<Entry>) -> anyhow::Result<()> {
        let columns: Vec<[String; 5]> = match self.args.long {
            true => entries.iter().map(|entry| self.columns(&entry.metadata)).collect(),
            false => Vec::new(),
        };
        let width = |i: usize| columns.iter().map(|c| c[i].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3)];
        for (i, entry) in entries.iter().enumerate() {
            let target = match entry.metadata.is_symlink() && (self.args.long || self.args.listing.json) {
                true => Some(self.volume.read_link(&entry.path)?),
                false => None,
            };
            let before = columns.get(i).map_or(String::new(), |c| {
                format!(
                    "{} {:>w0$} {:<w1$} {:<w2$} {:>w3$} {} ",
                    mode_text(&entry.metadata),
                    c[0],
                    c[1],
                    c[2],
                    c[3],
                    c[4],
                    w0 = widths[0],
                    w1 = widths[1],
                    w2 = widths[2],
                    w3 = widths[3]
                )
            });
            let after = match &target {
                Some(target) if self.args.long => {
                    format!(" -> {}", crate::output::printable(bytes_of(target)))
                }
                _ => String::new(),
            };
            // With `-0` and JSON the name alone would not say where it is.
            let listing = self.list.listing();
            let full = self.args.recursive && (listing.null || listing.json);
            let name = if full { bytes_of(&entry.path) } else { &entry.name };
            self.list.entry(&before, name, &after, || {
                let mut value = json_metadata(&entry.metadata);
                json_name(&mut value, "name", &entry.name);
                json_name(&mut value, "path", bytes_of(&entry.path));
                if let Some(target) = &target {
                    json_name(&mut value, "target", bytes_of(target));
                }
                value
            })?;
        }
        Ok(())
    }

    /// Links, owner, group, size, time.
    fn columns(&self, metadata: &Metadata) -> [String; 5] {
        let attr = metadata.attr();
        let size = match attr.kind {
            FileKind::CharDevice | FileKind::BlockDevice => device_number(attr.rdev),
            _ => attr.size.to_string(),
        };
        [
            attr.links.to_string(),
            self.names.user(attr.uid),
            self.names.group(attr.gid),
            size,
            self.clock.text(attr.mtime, Precision::Minutes),
        ]
    }
}

/// `major, minor`
fn device_number(rdev: u32) -> String {
    let dev = u64::from(rdev);
    format!("{}, {}", rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// All attributes of files.
pub fn stat(args: &args::Stat) -> Outcome {
    let (name, paths) = OnVolume::parse_all(&args.paths)?;
    on_volume(&name, Access::Read, |volume| {
        let mut list = List::new(args.listing);
        let clock = Clock::new(args.listing.utc);
        let names = Names::load();
        for path in &paths {
            let (node, metadata) = match args.dereference {
                true => (volume.node(path)?, volume.metadata(path)?),
                false => (volume.symlink_node(path)?, volume.symlink_metadata(path)?),
            };
            let target = match metadata.is_symlink() {
                true => Some(volume.read_link(path)?),
                false => None,
            };
            let attributes = volume.view().of(&node).listxattr(node.inode())?;
            let lines = stat_lines(&metadata, target.as_deref(), &attributes, &clock, &names);
            list.entry_of_lines("Path:       ", bytes_of(path), &lines, || {
                let mut value = json_metadata(&metadata);
                json_name(&mut value, "path", bytes_of(path));
                if let Some(target) = &target {
                    json_name(&mut value, "target", bytes_of(target));
                }
                let names: Vec<_> = attributes.iter().map(|a| String::from_utf8_lossy(a)).collect();
                value["xattrs"] = serde_json::json!(names);
                value
            })?;
        }
        list.done()
    })?;
    Ok(status::OK)
}

/// The lines of `stat`, of which the first one is the rest of that with the path.
fn stat_lines(
    metadata: &Metadata,
    target: Option<&Path>,
    attributes: &[Vec<u8>],
    clock: &Clock,
    names: &Names,
) -> Vec<String> {
    let attr = metadata.attr();
    let mut lines = Vec::new();
    let mut kind = kind_name(attr.kind).to_string();
    if let Some(target) = target {
        kind.push_str(&format!(" to {}", crate::output::printable(bytes_of(target))));
    }
    if matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        kind.push_str(&format!(" {}", device_number(attr.rdev)));
    }
    lines.push(("Type", kind));
    let allocated = attr.blocks_512 * 512;
    lines.push((
        "Size",
        format!("{} bytes ({}), {allocated} allocated ({})", attr.size, human(attr.size), human(allocated)),
    ));
    lines
        .push(("Inode", format!("{}, incarnation {}, {} link(s)", attr.inode, attr.incarnation, attr.links)));
    lines.push(("Mode", format!("{:04o} {}", attr.permissions, mode_text(metadata))));
    if !attr.flags.is_empty() {
        lines.push(("Flags", crate::output::flags_text(attr.flags)));
    }
    lines.push((
        "Owner",
        format!("{} ({}), group {} ({})", names.user(attr.uid), attr.uid, names.group(attr.gid), attr.gid),
    ));
    for (name, time) in
        [("Modified", attr.mtime), ("Changed", attr.ctime), ("Accessed", attr.atime), ("Created", attr.btime)]
    {
        lines.push((name, clock.text(time, Precision::Nanoseconds)));
    }
    for attribute in attributes {
        lines.push(("Attribute", crate::output::printable(attribute)));
    }
    let of_path = [String::new()].into_iter();
    of_path.chain(lines.iter().map(|(name, value)| format!("{:<12}{value}", format!("{name}:")))).collect()
}
