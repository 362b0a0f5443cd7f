//! Extended attributes: who sees which names, and how answers are told.

use super::server::Server;
use crate::errno::errno;
use crate::privilege;
use crate::snapdir;
use fuser::{Errno, INodeNo, ReplyEmpty, ReplyXattr, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use yore_fs::{Error, SetXattrMode};

/// The attribute that holds a file's access ACL.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Attributes that are ACLs.
const ACLS: &[u8] = b"system.posix_acl_";

/// Only administrators may see the names of these attributes.
const TRUSTED: &[u8] = b"trusted.";

/// The protocol of both calls that read attributes: size 0 asks for the length of the answer.
fn xattr_reply(data: &[u8], size: u32, too_small: Errno, reply: ReplyXattr) {
    match (size, u32::try_from(data.len())) {
        (_, Err(_)) => reply.error(Errno::E2BIG),
        (0, Ok(len)) => reply.size(len),
        (size, Ok(len)) if len > size => reply.error(too_small),
        _ => reply.data(data),
    }
}

impl Server {
    /// Sets an attribute; `flags` are those of setxattr(2).
    pub(super) fn set_xattr(
        &self,
        request: &Request,
        node: INodeNo,
        (name, value): (&OsStr, &[u8]),
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let (view, inode) = match self.seen(node) {
            Ok((view, inode)) => (self.for_request(view, request), inode),
            Err(error) => return reply.error(errno(&error)),
        };
        let mode = match flags {
            0 => SetXattrMode::Any,
            libc::XATTR_CREATE => SetXattrMode::Create,
            libc::XATTR_REPLACE => SetXattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let mut outcome = view.setxattr(inode, name.as_bytes(), value, mode);
        if outcome.is_ok() && name.as_bytes() == ACCESS_ACL && request.uid() != 0 {
            outcome = privilege::after_acl(&view, &self.caller(request, 0), inode, request.pid());
        }
        self.done("setxattr", inode, outcome, reply);
    }

    /// Reads an attribute.
    pub(super) fn get_xattr(&self, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let hidden = name.as_bytes().starts_with(ACLS) && self.hides_acls(node);
        if hidden || node == snapdir::NODE {
            return reply.error(errno(&Error::NoAttribute));
        }
        let (view, inode) = match self.seen(node) {
            Ok(seen) => seen,
            Err(error) => return reply.error(errno(&error)),
        };
        match view.getxattr(inode, name.as_bytes()) {
            Ok(value) => xattr_reply(&value, size, Errno::ERANGE, reply),
            Err(error) => reply.error(self.number("getxattr", inode, error)),
        }
    }

    /// Lists the names of attributes.
    pub(super) fn list_xattrs(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        if node == snapdir::NODE {
            return xattr_reply(&[], size, Errno::ERANGE, reply);
        }
        let (view, inode) = match self.seen(node) {
            Ok(seen) => seen,
            Err(error) => return reply.error(errno(&error)),
        };
        match view.listxattr(inode) {
            Ok(mut names) => {
                names.retain(|name| !name.starts_with(ACLS) || !self.hides_acls(node));
                let mut list = Vec::new();
                // The kernel checks who reads `trusted.` attributes, but not who sees their names.
                for name in names.iter().filter(|n| request.uid() == 0 || !n.starts_with(TRUSTED)) {
                    list.extend_from_slice(name);
                    list.push(0);
                }
                xattr_reply(&list, size, Errno::ERANGE, reply);
            }
            Err(error) => reply.error(self.number("listxattr", inode, error)),
        }
    }
}
