//! What a volume shows, in the form of the model.

use super::model::{Inode, Model};
use std::collections::BTreeMap;
use yore_fs::{Error, FileKind, Result, SeekTo, View, Volume};

/// The content of a volume, as far as it can be read.
#[derive(Debug, Default)]
pub struct Observed {
    /// Everything that could be read whole.
    pub model: Model,
    /// What could not be read, and why.
    pub errors: Vec<(String, Error)>,
}

/// Reads names, attributes and contents of the whole volume.
pub fn observe(volume: &Volume) -> Observed {
    let mut seen = Observed::default();
    let mut directories = vec![(String::new(), volume.view().root())];
    while let Some((path, directory)) = directories.pop() {
        let mut names = Vec::new();
        let listed = volume.view().readdir(directory, 0, &mut |item| {
            names.push(item.name.to_vec());
            true
        });
        if let Err(error) = listed {
            seen.errors.push((path.clone(), error));
        }
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            let text = String::from_utf8_lossy(&name);
            let below = if path.is_empty() { text.into_owned() } else { format!("{path}/{text}") };
            match observe_one(volume.view(), directory, &name) {
                Ok((number, inode)) => {
                    if inode.kind == FileKind::Directory {
                        directories.push((below.clone(), yore_fs::InodeNo(number)));
                    }
                    seen.model.names.insert(below, number);
                    seen.model.inodes.insert(number, inode);
                }
                Err(error) => seen.errors.push((below, error)),
            }
        }
    }
    seen
}

/// The same as of each snapshot of the root directory that has a name.
///
/// # Errors
/// The snapshots cannot be listed.
pub fn observe_snapshots(volume: &Volume) -> Result<Vec<(String, Observed)>> {
    let view = volume.view();
    let events = view.events()?.into_iter();
    let named = events.filter(|event| event.row.root == view.root() && !event.row.name.is_empty());
    Ok(named.map(|event| (event.row.name, observe(&Volume::from_view(view.as_of(event.number))))).collect())
}

fn observe_one(view: &View, directory: yore_fs::InodeNo, name: &[u8]) -> Result<(u64, Inode)> {
    let node = view.lookup(directory, name)?;
    let (attr, no) = (*node.attr(), node.inode());
    let mut xattrs = BTreeMap::new();
    for name in view.listxattr(no)? {
        let value = view.getxattr(no, &name)?;
        xattrs.insert(name, value);
    }
    let target = if attr.kind == FileKind::Symlink { view.readlink(no)? } else { Vec::new() };
    let content = if attr.kind == FileKind::Regular { read_all(view, no, attr.size)? } else { Vec::new() };
    let links = if attr.kind == FileKind::Directory { 1 } else { attr.links };
    Ok((no.0, Inode { kind: attr.kind, permissions: attr.permissions, links, target, xattrs, content }))
}

pub(super) fn read_all(view: &View, no: yore_fs::InodeNo, size: u64) -> Result<Vec<u8>> {
    // After a fault the volume may claim any size; the workload's files are smaller than this.
    let mut bytes = vec![0; size.min(4 << 20) as usize];
    let count = view.read(no, 0, &mut bytes)?;
    bytes.truncate(count);
    drop(view.seek(no, 0, SeekTo::Data));
    Ok(bytes)
}
