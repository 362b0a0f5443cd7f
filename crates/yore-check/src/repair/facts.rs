//! Facts that follow from others: bitmaps from the owners of blocks, and what an inode says of itself from
//! its content and its names.

use super::round::{number, Once, Round};
use crate::known::Known;
use crate::{CheckError, Finding};
use yore_format::{
    BitmapMut, BitmapRef, BlockHeader, BlockKind, ContentKind, EventNo, GroupNo, Incarnation, Inode,
    InodeFlags, InodeNo, BITS_PER_GROUP,
};

/// What is said of a file that lost its access ACL.
pub(super) const ACL_LOST: &str =
    "its access ACL is lost, and with it what the owning group may do: look at its mode";

/// With an access ACL the bits of the group are a mask, and may be more than the owning group has. So they go
/// with the ACL. False if there were none.
pub(super) fn close_to_group(inode: &mut Inode) -> bool {
    let has = inode.mode & 0o070 != 0 && !inode.is_symlink();
    if has {
        inode.mode &= !0o070;
    }
    has
}

impl Round<'_> {
    /// Makes a bitmap say what has an owner. What has none is freed only if all owners are known.
    pub(super) fn mend_bitmap(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(addr) = finding.addr else { return Ok(false) };
        let group = GroupNo(addr.zone().0 / 2);
        if !self.is_first(Once::Bitmap(group)) {
            // Other runs of the same bitmap are put right with the first one.
            return Ok(self.volume.is_written(addr));
        }
        let owned = self.seen.owned.get(group.0 as usize).and_then(Option::as_ref);
        let Some(owned) = owned else { return Ok(false) };
        let Some(mut block) = self.volume.read_kind(addr, BlockKind::Bitmap)? else { return Ok(false) };
        let end = self.volume.geometry.data_blocks(group) as u32;
        let mut changed = false;
        for bit in 0..BITS_PER_GROUP {
            let has = bit >= end || owned[bit as usize / 64] >> (bit % 64) & 1 != 0;
            if BitmapRef::new(&block).get(bit) != has && (has || !self.seen.incomplete) {
                BitmapMut::new(&mut block).set(bit, 1, has);
                changed = true;
            }
        }
        Ok(changed && self.volume.put(addr, block))
    }

    /// A bitmap in which everything is in use. What has no owner is freed when all owners are known.
    pub(super) fn new_bitmap(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(addr) = finding.addr else { return Ok(false) };
        let group = GroupNo(addr.zone().0 / 2);
        let nobody = (InodeNo::NONE, Incarnation(0));
        let mut block = self.volume.empty(BlockKind::Bitmap, 0, addr, nobody, EventNo(0));
        let end = self.volume.geometry.data_blocks(group) as u32;
        BitmapMut::init(&mut block, end).set(0, end, true);
        Ok(self.volume.put(addr, block))
    }

    /// Frees a block to which nothing refers, unless it has inodes.
    pub(super) fn free_unreachable(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(addr) = finding.addr else { return Ok(false) };
        let Some(block) = self.volume.read(addr)? else { return Ok(false) };
        if BlockHeader::of(&block).kind == BlockKind::Inodes as u8 {
            return Ok(false);
        }
        self.volume.remove(addr);
        Ok(true)
    }

    /// Changes the inode that a finding is about, in use and not a version. False if nothing changes.
    fn change(&mut self, finding: &Finding, change: impl FnOnce(&mut Inode)) -> Result<bool, CheckError> {
        let Some(number) = finding.inode.filter(|number| finding.addr == Some(number.addr())) else {
            return Ok(false);
        };
        self.change_inode(number, change)
    }

    /// Changes an inode in use. False if nothing changes.
    pub(super) fn change_inode(
        &mut self,
        number: InodeNo,
        change: impl FnOnce(&mut Inode),
    ) -> Result<bool, CheckError> {
        let Some(before) = self.volume.inode(number)? else { return Ok(false) };
        let mut inode = before.clone();
        change(&mut inode);
        if inode == before {
            return Ok(false);
        }
        self.volume.set_inode(number, Some(&inode))
    }

    pub(super) fn mend_size(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        self.change(finding, |inode| {
            if inode.content_kind == ContentKind::Inline {
                inode.size = inode.inline().len() as u64;
            } else if let (true, Some(total)) = (inode.is_symlink(), number(&finding.expected)) {
                inode.size = total;
            }
        })
    }

    pub(super) fn mend_blocks(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(blocks) = number(&finding.expected) else { return Ok(false) };
        self.change(finding, |inode| inode.blocks = blocks)
    }

    pub(super) fn mend_directory_size(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(entries) = number(&finding.expected) else { return Ok(false) };
        self.change(finding, |inode| inode.size = entries)
    }

    pub(super) fn mend_device_number(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        self.change(finding, |inode| inode.rdev = 0)
    }

    pub(super) fn mend_xattr_flags(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let bits = number(&finding.expected).and_then(|bits| u32::try_from(bits).ok());
        let Some(flags) = bits.and_then(InodeFlags::from_bits) else { return Ok(false) };
        let mut is_acl_lost = false;
        let changed = self.change(finding, |inode| {
            let had_acl = (inode.flags - flags).contains(InodeFlags::ACCESS_ACL);
            inode.flags = (inode.flags & InodeFlags::CHOSEN) | flags;
            is_acl_lost = had_acl && close_to_group(inode);
        })?;
        if let Some(number) = finding.inode.filter(|_| changed && is_acl_lost) {
            self.lose(number, ACL_LOST)?;
        }
        Ok(changed)
    }

    pub(super) fn mend_chosen_flags(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        self.change(finding, |inode| inode.flags -= InodeFlags::CHOSEN)
    }

    pub(super) fn mend_policy(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        // The finding may be about the policy, which is elsewhere.
        let Some(number) = finding.inode else { return Ok(false) };
        self.change_inode(number, |inode| inode.has_policy = !inode.has_policy)
    }

    /// Sets the links to the number of names. Of several names none may be where a file says that its name
    /// is, for only of one name that is a finding: then the file says nothing. Otherwise it would still say
    /// so when it has one name again.
    pub(super) fn mend_links(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let links = number(&finding.expected).and_then(|links| u32::try_from(links).ok());
        let Some(links) = links else { return Ok(false) };
        let known = finding.inode.map_or(Ok(None), |number| self.seen.known_inode(number))?;
        let is_astray = known.is_some_and(|known| !known.is_directory() && !known.is_remembered);
        self.change(finding, |inode| {
            inode.links = links;
            if links > 1 && is_astray {
                (inode.parent, inode.parent_incarnation, inode.parent_cookie) =
                    (InodeNo::NONE, Incarnation(0), 0);
            }
        })
    }

    /// Sets the parent to the directory that has the only name.
    pub(super) fn mend_parent(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(number) = finding.inode else { return Ok(false) };
        let Some(known) = self.seen.known_inode(number)? else { return Ok(false) };
        let is_root = known.number == InodeNo::ROOT;
        let directory = if is_root { known.number } else { known.named_in };
        let cookie = if is_root { known.parent_cookie } else { known.named_at };
        let Some(Known { incarnation, .. }) = self.seen.known_inode(directory)? else { return Ok(false) };
        self.change(finding, |inode| {
            (inode.parent, inode.parent_incarnation, inode.parent_cookie) = (directory, incarnation, cookie);
        })
    }

    /// A removed directory that is not empty keeps its entries: with links it is one without a name, and the
    /// next round gives it one.
    pub(super) fn keep_removed_directory(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(number) = finding.inode else { return Ok(false) };
        let Some(known) = self.seen.known_inode(number)? else { return Ok(false) };
        let Ok(links) = u32::try_from(2 + known.subdirectories) else { return Ok(false) };
        self.change(finding, |inode| inode.links = links)
    }
}
