//! `find`.

use super::files::on_volume;
use crate::args;
use crate::glob;
use crate::output::{bytes_of, json_metadata, json_name, Clock, List};
use crate::parse::parse_size;
use crate::status::{self, Outcome};
use crate::volume::{Access, OnVolume};
use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt as _;
use yore_fs::{FileKind, Timestamp, Volume, WalkEntry};

/// What must hold for a file to be printed.
struct Tests<'a> {
    args: &'a args::Find,
    kinds: Option<Vec<FileKind>>,
    size: Option<(Ordering, u64)>,
    newer: Option<Timestamp>,
}

/// Finds files.
pub fn run(args: &args::Find) -> Outcome {
    let (name, paths) = OnVolume::parse_all(&args.paths)?;
    let mut listing = args.listing;
    listing.null |= args.print0;
    let mut status = status::OK;
    on_volume(&name, Access::Read, |volume| {
        let tests = Tests::new(args, volume)?;
        let mut list = List::new(listing);
        for path in &paths {
            // The starting point must exist. If something below it cannot be read, that is reported, and the
            // rest is searched.
            volume.symlink_metadata(path)?;
            for entry in volume.walk(path).max_depth(args.maxdepth.unwrap_or(usize::MAX)) {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        let error = anyhow::Error::new(error);
                        status = status.max(status::of(&error));
                        status::warn(&status::message(&error));
                        continue;
                    }
                };
                if !tests.hold(&entry) {
                    continue;
                }
                list.entry("", bytes_of(entry.path()), "", || {
                    let mut value = json_metadata(entry.metadata());
                    json_name(&mut value, "path", bytes_of(entry.path()));
                    value
                })?;
            }
        }
        list.done()
    })?;
    Ok(status)
}

impl<'a> Tests<'a> {
    fn new(args: &'a args::Find, volume: &Volume) -> anyhow::Result<Tests<'a>> {
        let kinds = args.kind.as_deref().map(kinds).transpose()?;
        let size = args.size.as_deref().map(size).transpose()?;
        let mut newer = match &args.newermt {
            Some(time) => Some(
                Clock::new(args.listing.utc)
                    .parse(time)
                    .map_err(|why| status::usage(format!("--newermt: {why}")))?,
            ),
            None => None,
        };
        if let Some(reference) = &args.newer {
            // `VOL:/PATH` is understood as well; the volume is this one.
            let path = OnVolume::split(reference).map_or_else(|| reference.into(), |on| on.path);
            newer = newer.max(Some(volume.metadata(path)?.attr().mtime));
        }
        Ok(Tests { args, kinds, size, newer })
    }

    fn hold(&self, entry: &WalkEntry) -> bool {
        let attr = entry.metadata().attr();
        let path = bytes_of(entry.path());
        let name = entry.path().file_name().map_or(path, |name| name.as_bytes());
        entry.depth() >= self.args.mindepth
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&attr.kind))
            && self.args.name.as_ref().is_none_or(|pattern| glob::matches(pattern.as_bytes(), name))
            && self.args.path.as_ref().is_none_or(|pattern| glob::matches(pattern.as_bytes(), path))
            && self.size.is_none_or(|(order, size)| attr.size.cmp(&size) == order)
            && self.newer.is_none_or(|time| attr.mtime > time)
    }
}

fn kinds(text: &str) -> anyhow::Result<Vec<FileKind>> {
    text.split(',')
        .map(|letter| match letter {
            "f" => Ok(FileKind::Regular),
            "d" => Ok(FileKind::Directory),
            "l" => Ok(FileKind::Symlink),
            "p" => Ok(FileKind::Fifo),
            "s" => Ok(FileKind::Socket),
            "b" => Ok(FileKind::BlockDevice),
            "c" => Ok(FileKind::CharDevice),
            other => Err(status::usage(format!("{other:?} is no file type: f, d, l, p, s, b or c"))),
        })
        .collect()
}

fn size(text: &str) -> anyhow::Result<(Ordering, u64)> {
    let (order, rest) = match text.as_bytes().first() {
        Some(b'+') => (Ordering::Greater, &text[1..]),
        Some(b'-') => (Ordering::Less, &text[1..]),
        _ => (Ordering::Equal, text),
    };
    Ok((order, parse_size(rest).map_err(status::usage)?))
}
