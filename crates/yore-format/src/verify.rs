//! The verifier of every kind of metadata block.

use crate::{
    verify_checksum, BitmapRef, Block, BlockHeader, BlockKind, BlockNo, ChecksumTableRef, Corruption,
    CountTableRef, Features, HistoryRoots, Inode, MetaAddr, NodeRef, ZoneHeader, ZoneTableRef,
};

/// The verifier that runs after every read: magic, checksum, volume, address, reserved bytes, then the
/// structure's own verifier for its kind. `block_no` is where the bytes came from, for the message.
///
/// # Errors
/// [`Corruption`] with address and block filled in.
pub fn verify_header(
    block: &Block,
    addr: MetaAddr,
    volume: u32,
    block_no: BlockNo,
) -> Result<(), Box<Corruption>> {
    verify_header_with(block, addr, volume, block_no, Features::SUPPORTED)
}

/// The same for a volume that has at most these features: kinds and fields that come with another one are not
/// there.
///
/// # Errors
/// As [`verify_header`].
pub fn verify_header_with(
    block: &Block,
    addr: MetaAddr,
    volume: u32,
    block_no: BlockNo,
    features: Features,
) -> Result<(), Box<Corruption>> {
    let h = BlockHeader::of(block);
    let check = || {
        verify_checksum(block)?;
        let known = BlockKind::from_repr(h.kind).filter(|kind| features.contains(kind.feature()));
        let Some(kind) = known else {
            return Err(Corruption::new("metadata block", "kind", "a known kind", h.kind));
        };
        if h.volume.get() != volume {
            let (e, f) = (format!("{volume:#010x}"), format!("{:#010x}", h.volume.get()));
            return Err(Corruption::new(kind.name(), "volume", e, f));
        }
        if h.addr.get() != addr.0 {
            return Err(Corruption::new(kind.name(), "own address", addr, MetaAddr(h.addr.get())));
        }
        if h.reserved0 != [0; 2] || h.reserved1 != [0; 12] {
            return Err(Corruption::new(kind.name(), "reserved bytes", "zero", "something else"));
        }
        if !kind.is_tree() && (h.level != 0 || h.birth.get() != 0) {
            return Err(Corruption::new(
                kind.name(),
                "level and birth",
                "zero",
                format!("{}, {}", h.level, h.birth),
            ));
        }
        match kind {
            BlockKind::ZoneHeader => ZoneHeader::decode_with(block, features).map(|_| ()),
            BlockKind::ZoneTable => ZoneTableRef::new(block).verify(),
            BlockKind::Bitmap => BitmapRef::new(block).verify(),
            BlockKind::Inodes => Inode::verify_block(block),
            BlockKind::HistoryRoots => HistoryRoots::verify_with(block, features),
            BlockKind::CountTable => CountTableRef::new(block).verify(),
            BlockKind::ChecksumTable => ChecksumTableRef::new(block).verify(),
            _ => NodeRef::new(block).verify(),
        }
    };
    check().map_err(|c| {
        let c = c.at(addr).on(block_no);
        match h.owner_inode() {
            Some(owner) => c.of(owner),
            None => c,
        }
    })
}
