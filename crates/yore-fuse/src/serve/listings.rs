//! Listings of directories. Entries found before an error are returned; the kernel asks for the rest and gets
//! the error then.

use super::nodes::listed_number;
use super::server::Server;
use crate::convert::{file_type, no_attr};
use crate::errno::errno;
use crate::past::PastNodes;
use crate::snapdir;
use fuser::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

impl Server {
    /// Lists entries.
    pub(super) fn list(&self, node: INodeNo, offset: u64, mut reply: ReplyDirectory) {
        if node == snapdir::NODE {
            return self.list_snapshots(offset, reply);
        }
        let (view, directory) = match self.seen(node) {
            Ok(seen) => seen,
            Err(error) => return reply.error(errno(&error)),
        };
        let mut given = false;
        let outcome = view.readdir(directory, offset, &mut |item| {
            let name = OsStr::from_bytes(item.name);
            let kind = file_type(item.kind);
            let full = reply.add(listed_number(node, &view, &item), item.cookie, kind, name);
            given |= !full;
            !full
        });
        match outcome {
            Err(error) if !given => reply.error(self.number("readdir", directory, error)),
            _ => reply.ok(),
        }
    }

    /// Lists entries with their nodes, each of which adds one lookup.
    pub(super) fn list_with_nodes(&self, node: INodeNo, offset: u64, mut reply: ReplyDirectoryPlus) {
        if node == snapdir::NODE {
            return self.list_snapshots_with_nodes(offset, reply);
        }
        let (view, directory) = match self.seen(node) {
            Ok(seen) => seen,
            Err(error) => return reply.error(errno(&error)),
        };
        let mut given = false;
        let ttl = self.config.timeout;
        let outcome = view.readdir_plus(directory, offset, &mut |item, found| {
            let name = OsStr::from_bytes(item.name);
            let (attr, generation) = match &found {
                Some(found) if PastNodes::is_past(node.0) => {
                    let (attr, _) = self.past_entry(node, None, found);
                    (attr, u64::from(found.attr().incarnation))
                }
                Some(found) => (self.entry_attr(found.attr()), u64::from(found.attr().incarnation)),
                // `.` and `..`: the kernel uses only their number and type.
                None => {
                    let kind = file_type(item.kind);
                    (FileAttr { ino: listed_number(node, &view, &item), kind, ..no_attr() }, 0)
                }
            };
            let full = reply.add(attr.ino, item.cookie, name, &ttl, &attr, Generation(generation));
            if full {
                if PastNodes::is_past(attr.ino.0) && found.is_some() {
                    self.past.forget_lookups(attr.ino.0, 1);
                }
                return false;
            }
            given = true;
            if let Some(found) = found {
                found.into_counted();
            }
            true
        });
        match outcome {
            Err(error) if !given => reply.error(self.number("readdir", directory, error)),
            _ => reply.ok(),
        }
    }
}
