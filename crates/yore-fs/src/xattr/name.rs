//! The names of attributes: which names there are, and which inodes can have them.

use crate::{Error, Result};
use yore_format::{xattr_key, Inode, InodeFlags, XattrNamespace, NAME_MAX};

pub(crate) const ACCESS: &[u8] = b"posix_acl_access";
pub(crate) const DEFAULT: &[u8] = b"posix_acl_default";
pub(super) const CAPABILITY: Name<'_> = Name { namespace: XattrNamespace::Security, name: b"capability" };
/// An attribute's name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    pub(super) namespace: XattrNamespace,
    /// The name without the namespace's prefix.
    pub(super) name: &'a [u8],
}

impl<'a> Name<'a> {
    /// Reads a name as programs give it.
    ///
    /// # Errors
    /// [`Error::AttributeTooLarge`] above 255 bytes, [`Error::Invalid`] if nothing follows the prefix or the
    /// name has a NUL, [`Error::Unsupported`] for other namespaces.
    pub(super) fn parse(full: &'a [u8]) -> Result<Name<'a>> {
        use XattrNamespace::*;
        if full.len() > NAME_MAX {
            return Err(Error::AttributeTooLarge);
        }
        let of = |namespace: XattrNamespace| {
            let name = full.strip_prefix(namespace.prefix().as_bytes())?;
            Some(Name { namespace, name })
        };
        let Some(name) = [User, Trusted, Security, System].into_iter().find_map(of) else {
            return Err(Error::Unsupported { what: "attributes outside user, trusted, security and system" });
        };
        if name.namespace == System && name.name != ACCESS && name.name != DEFAULT {
            return Err(Error::Unsupported { what: "system attributes other than POSIX ACLs" });
        }
        if name.name.is_empty() || name.name.contains(&0) {
            return Err(Error::Invalid { what: "an attribute's name is not empty and has no NUL" });
        }
        Ok(name)
    }

    /// Whether an inode can have such an attribute.
    pub(super) fn suits(&self, inode: &Inode) -> bool {
        match self.namespace {
            XattrNamespace::User => inode.is_regular() || inode.is_directory(),
            XattrNamespace::System if self.name == DEFAULT => inode.is_directory(),
            XattrNamespace::System => !inode.is_symlink(),
            _ => true,
        }
    }

    /// Those of which the inode's flags say whether it has them.
    pub(super) fn with_flags() -> [Name<'static>; 3] {
        let of_system = |name| Name { namespace: XattrNamespace::System, name };
        [of_system(ACCESS), of_system(DEFAULT), CAPABILITY]
    }

    pub(super) fn flag(&self) -> InodeFlags {
        match (self.namespace, self.name) {
            (XattrNamespace::System, ACCESS) => InodeFlags::ACCESS_ACL,
            (XattrNamespace::System, DEFAULT) => InodeFlags::DEFAULT_ACL,
            (XattrNamespace::Security, b"capability") => InodeFlags::CAPABILITY,
            _ => InodeFlags::empty(),
        }
    }

    pub(super) fn key(&self, seed: &[u8; 16]) -> u64 {
        xattr_key(seed, self.namespace, self.name)
    }
}
