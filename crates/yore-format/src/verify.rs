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
    verify_own_header(block, addr, volume, block_no, features)?;
    verify_content(block, features).map_err(|c| located(block, addr, block_no, c))
}

/// The first part of [`verify_header_with`]: everything up to the structure's own verifier. Who decodes the
/// whole structure at once needs no more.
///
/// # Errors
/// As [`verify_header`].
pub fn verify_own_header(
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
        Ok(())
    };
    check().map_err(|c| located(block, addr, block_no, c))
}

/// The second part: the structure's own verifier, of a block whose header was verified.
fn verify_content(block: &Block, features: Features) -> Result<(), Box<Corruption>> {
    match BlockKind::from_repr(BlockHeader::of(block).kind) {
        Some(BlockKind::ZoneHeader) => ZoneHeader::decode_with(block, features).map(|_| ()),
        Some(BlockKind::ZoneTable) => ZoneTableRef::new(block).verify(),
        Some(BlockKind::Bitmap) => BitmapRef::new(block).verify(),
        Some(BlockKind::Inodes) => Inode::verify_block(block),
        Some(BlockKind::HistoryRoots) => HistoryRoots::verify_with(block, features),
        Some(BlockKind::CountTable) => CountTableRef::new(block).verify(),
        Some(BlockKind::ChecksumTable) => ChecksumTableRef::new(block).verify(),
        // A header without a known kind is not sound.
        _ => NodeRef::new(block).verify(),
    }
}

/// Where it was found.
fn located(block: &Block, addr: MetaAddr, block_no: BlockNo, c: Box<Corruption>) -> Box<Corruption> {
    let c = c.at(addr).on(block_no);
    match BlockHeader::of(block).owner_inode() {
        Some(owner) => c.of(owner),
        None => c,
    }
}
