//! Reading attributes.

use super::name::Name;
use super::plan::Attributes;
use crate::store::Store;
use crate::{Error, Result};
use yore_core::inode::InodeState;
use yore_format::{EventNo, InodeFlags, InodeNo, XattrNamespace};

/// The value of an attribute.
///
/// # Errors
/// [`Error::NoAttribute`]; those of impossible names; corruption; the device.
pub(crate) fn get(store: &Store, state: &InodeState, no: InodeNo, full: &[u8]) -> Result<Vec<u8>> {
    let name = Name::parse(full)?;
    attributes(store, state, no).get(name)?.ok_or(Error::NoAttribute)
}

/// An ACL of an inode, encoded.
pub(crate) fn get_acl(
    store: &Store,
    state: &InodeState,
    no: InodeNo,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    attributes(store, state, no).get(Name { namespace: XattrNamespace::System, name })
}

/// The names of all attributes, in no order that means anything.
pub(crate) fn list(store: &Store, state: &InodeState, no: InodeNo) -> Result<Vec<Vec<u8>>> {
    attributes(store, state, no).list()
}

/// The flags of an inode that repeat which attributes it has.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn flags(store: &Store, state: &InodeState, no: InodeNo) -> Result<InodeFlags> {
    let names = list(store, state, no)?;
    names.iter().try_fold(InodeFlags::empty(), |flags, name| Ok(flags | Name::parse(name)?.flag()))
}

pub(super) fn attributes<'a>(store: &'a Store, state: &'a InodeState, no: InodeNo) -> Attributes<'a> {
    Attributes {
        meta: &store.meta,
        seed: &store.hash_seed,
        inode: &state.inode,
        no,
        recorded_until: EventNo(0),
    }
}
