//! Structures as text. Each function returns whether what it printed was sound.

use super::medium::{self, zone_name, FoundZone, Medium};
use super::text::{entry_text, extent_text, root_text};
use super::{past, superblock};
use crate::output::{printable, Clock, Out, Precision};
use std::fmt::Write as _;
use yore_device::Device;
use yore_format::layout::{ZONE_BLOCKS, ZONE_INDEXES};
use yore_format::{
    decode_symlink_chunk, BitmapRef, Block, BlockHeader, BlockKind, BlockNo, ContentKind, DirEntry,
    ExtentValue, FileKind, GroupNo, Inode, InodeNo, MetaAddr, NodeRef, SlotState, Superblock, XattrCell,
    ZoneHeader, ZoneNo, ZoneTableRef, HEADER_BYTES, INODES_PER_BLOCK, NOT_INODES,
};

type Sound = anyhow::Result<bool>;

/// Both superblocks.
pub fn superblocks(out: &mut Out, device: &dyn Device, raw: bool) -> Sound {
    let slots = superblock::slots(device)?;
    let mut sound = true;
    for (slot, block) in slots.iter().enumerate() {
        out.line(format_args!("superblock, slot {slot}, block {slot}"))?;
        match Superblock::decode(block, slot as u32) {
            SlotState::Valid(found) => superblock_fields(out, &found)?,
            // A crash leaves a torn one; then the other one counts.
            SlotState::Torn(newest) => {
                out.line(format_args!("  torn: a write of generation {newest} did not end"))?;
            }
            SlotState::Corrupt(generation, wrong) => {
                sound = false;
                out.line(format_args!("  DAMAGED, generation {generation}: {wrong}"))?;
            }
            SlotState::Foreign if block.iter().all(|b| *b == 0) => out.line("  never written")?,
            SlotState::Foreign => {
                sound = false;
                out.line("  DAMAGED: no superblock")?;
            }
        }
        if raw {
            dump(out, &block[..])?;
        }
    }
    Ok(sound)
}

fn superblock_fields(out: &mut Out, found: &Superblock) -> anyhow::Result<()> {
    let clock = Clock::new(false);
    let roots = found.root_zones.iter().enumerate().filter_map(|(i, root)| {
        let root = (*root)?;
        Some(format!(
            "{i}: at block {}, header slot {}, generation {}",
            root.start, root.header_slot, root.generation
        ))
    });
    let fields = [
        ("uuid", uuid::Uuid::from_bytes(found.uuid).to_string()),
        ("label", format!("{:?}", found.label)),
        ("blocks", format!("{}, {} groups", found.volume_blocks, found.geometry().groups())),
        ("generation", found.generation.to_string()),
        ("mount id", found.mount_id.to_string()),
        ("engine", found.engine.name().to_string()),
        ("state", format!("{:?}", found.state)),
        ("created", clock.seconds(found.created_seconds)),
        ("written", clock.seconds(found.written_seconds)),
        ("root directory", format!("inode {}", found.root_directory)),
        ("orphans", root_text(found.orphan_root, Some(found.orphan_level))),
        ("events", root_text(found.events_root, None)),
        ("history", root_text(found.history_root, None)),
        ("free blocks", found.free_blocks.to_string()),
        ("inodes", found.inodes.to_string()),
        ("metadata blocks", found.metadata_blocks.to_string()),
        ("zones", format!("{}, numbers below {}", found.zones, found.zone_number_limit)),
        (
            "next incarnation",
            match found.incarnation_rounds() {
                0 => found.next_incarnation.to_string(),
                rounds => format!("{}, {rounds} times begun anew", found.next_incarnation as u32),
            },
        ),
        ("next number", found.next_number.to_string()),
        (
            "log",
            match (found.log_blocks, &found.external_log) {
                (0, _) => "none".to_string(),
                (n, Some(log)) => format!(
                    "{n} blocks on {}, id {:#x}, position {}, session {}{}",
                    match &log.path[..] {
                        [] => "a device of its own".into(),
                        path => crate::output::printable(path),
                    },
                    found.log_id,
                    found.log_position,
                    log.session,
                    if log.begins { ", and the next one may have begun" } else { "" }
                ),
                (n, None) => format!(
                    "{n} blocks from {}, id {:#x}, position {}",
                    found.log_start, found.log_id, found.log_position
                ),
            },
        ),
    ];
    for (name, value) in fields {
        field(out, name, &value)?;
    }
    for root in roots {
        field(out, "root zone", &root)?;
    }
    Ok(())
}

fn field(out: &mut Out, name: &str, value: &str) -> anyhow::Result<()> {
    out.line(format_args!("  {:<18}{value}", format!("{name}:")))
}

fn notes(out: &mut Out, notes: &[String]) -> anyhow::Result<bool> {
    for note in notes {
        out.line(format_args!("  DAMAGED: {note}"))?;
    }
    Ok(notes.is_empty())
}

/// The zone table.
pub fn zones(out: &mut Out, medium: &Medium) -> Sound {
    let (zones, wrong) = medium.zones()?;
    out.line("    zone   group      block  slot  generation  free indexes  free inodes  free blocks")?;
    for (zone, entry) in &zones {
        let start = BlockNo(entry.start.get());
        let free = if zone.is_primary() { entry.free_blocks.to_string() } else { "-".to_string() };
        out.line(format_args!(
            "{:>8} {:>7} {:>10} {:>5} {:>11} {:>13} {:>12} {:>12}",
            zone.0,
            medium.geometry.group_of(start),
            start,
            entry.header_slot,
            entry.generation,
            entry.free_indexes,
            entry.free_inodes,
            free
        ))?;
    }
    notes(out, &wrong)
}

/// A zone's header.
pub fn zone(out: &mut Out, medium: &Medium, number: ZoneNo, raw: bool) -> Sound {
    let Some(found) = medium.zone(number)? else {
        anyhow::bail!("there is no zone {} on this volume (`zones` lists them)", zone_name(number));
    };
    let FoundZone { header, start, slot, notes: wrong } = &found;
    out.line(format_args!("zone {}, header slot {slot}", zone_name(number)))?;
    field(out, "place", &format!("blocks {start} to {}", start.0 + ZONE_BLOCKS - 1))?;
    zone_fields(out, header)?;
    if raw {
        let at = yore_format::layout::HEADER_SLOTS[usize::from(*slot)];
        dump(out, &medium.read(BlockNo(start.0 + at))?[..])?;
    }
    notes(out, wrong)
}

fn zone_fields(out: &mut Out, header: &ZoneHeader) -> anyhow::Result<()> {
    let existing: Vec<u16> = (0..ZONE_INDEXES as u16).filter(|i| header.has(*i)).collect();
    field(out, "group", &header.group.to_string())?;
    field(out, "generation", &header.generation.to_string())?;
    field(out, "blocks in use", &format!("{} of {ZONE_INDEXES}", existing.len()))?;
    let extras: Vec<String> = header.extras.iter().filter(|e| **e != 0).map(u32::to_string).collect();
    if !extras.is_empty() {
        field(out, "further zones", &extras.join(" "))?;
    }
    out.line("   index  slot  free inodes    checksum")?;
    for index in existing {
        let i = usize::from(index);
        let free = match header.inode_free[i] {
            NOT_INODES => "-".to_string(),
            free => free.to_string(),
        };
        out.line(format_args!("{index:>8} {:>5} {free:>12}  {:#010x}", header.map[i], header.checks[i]))?;
    }
    Ok(())
}

/// How full the groups are.
pub fn bitmaps(out: &mut Out, medium: &Medium) -> Sound {
    let (zones, mut wrong) = medium.zones()?;
    out.line("   group     blocks       used       free")?;
    let mut used_groups = 0;
    for (zone, _) in zones.iter().filter(|(zone, _)| zone.is_primary()) {
        let group = GroupNo(zone.0 / 2);
        used_groups += 1;
        match bitmap_block(medium, group) {
            Ok((block, problem)) => {
                wrong.extend(problem);
                let total = medium.geometry.data_blocks(group);
                let set = count(&block, total);
                out.line(format_args!("{group:>8} {total:>10} {set:>10} {:>10}", total - set))?;
            }
            Err(error) => wrong.push(format!("bitmap of group {group}: {error:#}")),
        }
    }
    let unused = u64::from(medium.geometry.groups()).saturating_sub(used_groups);
    out.line(format_args!("groups never used: {unused}"))?;
    notes(out, &wrong)
}

fn bitmap_block(medium: &Medium, group: GroupNo) -> anyhow::Result<(Box<Block>, Option<String>)> {
    let addr = Medium::bitmap_addr(group);
    let Some(found) = medium.block(addr)? else {
        anyhow::bail!("group {group} was never used and has no bitmap");
    };
    let problem = medium.verify_copy(&found, addr).err().map(|wrong| wrong.to_string());
    Ok((found.bytes, problem))
}

fn count(block: &Block, blocks: u64) -> u64 {
    (0..blocks as u32).filter(|bit| BitmapRef::new(block).get(*bit)).count() as u64
}

/// A group's bitmap as runs of used blocks.
pub fn bitmap(out: &mut Out, medium: &Medium, group: GroupNo, raw: bool) -> Sound {
    anyhow::ensure!(
        group.0 < medium.geometry.groups(),
        "there is no group {group}; the volume has {}",
        medium.geometry.groups()
    );
    let (block, problem) = bitmap_block(medium, group)?;
    let total = medium.geometry.data_blocks(group);
    let map = BitmapRef::new(&block);
    out.line(format_args!("bitmap of group {group}: {} of {total} blocks used", count(&block, total)))?;
    let mut bit = 0;
    while u64::from(bit) < total {
        let start = bit;
        let used = map.get(bit);
        while u64::from(bit) < total && map.get(bit) == used {
            bit += 1;
        }
        if used {
            let first = medium.geometry.block_of(group, start);
            out.line(format_args!(
                "  blocks {first} to {} ({} blocks)",
                first.0 + u64::from(bit - start) - 1,
                bit - start
            ))?;
        }
    }
    if raw {
        dump(out, &block[..])?;
    }
    notes(out, problem.as_slice())
}

/// An inode and its content.
pub fn inode(out: &mut Out, medium: &Medium, number: InodeNo, raw: bool) -> Sound {
    let addr = number.addr();
    let Some(found) = medium.block(addr)? else {
        anyhow::bail!("there is no inode {number}: its block {addr} does not exist");
    };
    let mut wrong = Vec::new();
    wrong.extend(medium.verify_copy(&found, addr).err().map(|w| w.to_string()));
    let (block, at) = (found.bytes, found.at);
    if BlockHeader::of(&block).kind != BlockKind::Inodes as u8 {
        wrong.push(format!("block {addr} holds no inodes"));
        return notes(out, &wrong);
    }
    out.line(format_args!("inode {number}: block {addr} at {at}, slot {}", number.slot()))?;
    match Inode::decode(Inode::slot(&block, number.slot())) {
        Err(problem) => wrong.push(problem.of(number).to_string()),
        Ok(inode) if inode.mode == 0 => {
            out.line(format_args!(
                "  free; last incarnation {}",
                Inode::slot_incarnation(&block, number.slot())
            ))?;
        }
        Ok(inode) => {
            inode_fields(out, &inode)?;
            wrong.extend(inode_content(out, medium, &inode)?);
        }
    }
    if raw {
        dump(out, Inode::slot(&block, number.slot()))?;
    }
    notes(out, &wrong)
}

fn inode_fields(out: &mut Out, inode: &Inode) -> anyhow::Result<()> {
    let clock = Clock::new(false);
    let time = |t| clock.text(t, Precision::Nanoseconds);
    let kind = FileKind::from_mode(inode.mode).map_or("unknown", crate::output::kind_name);
    field(out, "mode", &format!("{:#o} ({kind}), {} links", inode.mode, inode.links))?;
    field(out, "owner", &format!("{}:{}", inode.uid, inode.gid))?;
    field(out, "size", &format!("{} in {} blocks", inode.size, inode.blocks))?;
    field(out, "incarnation", &inode.incarnation.to_string())?;
    field(out, "flags", &format!("{:?}", inode.flags))?;
    for (name, at) in
        [("atime", inode.atime), ("mtime", inode.mtime), ("ctime", inode.ctime), ("btime", inode.btime)]
    {
        field(out, name, &time(at))?;
    }
    field(
        out,
        "parent",
        &format!(
            "inode {} incarnation {}, cookie {:#x}",
            inode.parent, inode.parent_incarnation, inode.parent_cookie
        ),
    )?;
    field(
        out,
        "numbers",
        &format!(
            "own event {}, born {}, {}",
            inode.own_event,
            inode.born,
            if inode.has_policy { "a policy of its own" } else { "no policy of its own" }
        ),
    )?;
    if inode.rdev != 0 {
        field(out, "device", &format!("{:#x}", inode.rdev))?;
    }
    field(out, "attributes", &root_text(inode.xattr_root, None))?;
    field(out, "content", &format!("{:?}, {}", inode.content_kind, inode.content_count))
}

/// Prints what an inode's content area holds; returns what is wrong with it.
fn inode_content(out: &mut Out, medium: &Medium, inode: &Inode) -> anyhow::Result<Option<String>> {
    let inline = &inode.content[..usize::from(inode.content_count).min(inode.content.len())];
    match inode.content_kind {
        ContentKind::Empty => {}
        ContentKind::Inline if FileKind::from_mode(inode.mode) == Some(FileKind::Directory) => {
            let mut rest = inline;
            while rest.len() > 8 {
                let (cookie, entry) = rest.split_at(8);
                match DirEntry::decode_prefix(entry) {
                    Ok((entry, used)) => {
                        out.line(format_args!("    {} {}", hex(cookie), entry_text(&entry)))?;
                        rest = &rest[8 + used..];
                    }
                    Err(wrong) => return Ok(Some(wrong.to_string())),
                }
            }
        }
        ContentKind::Inline => field(out, "bytes", &format!("\"{}\"", printable(inline)))?,
        ContentKind::Extents => match ExtentValue::decode_inline(inode) {
            Ok(extents) => {
                for (key, extent) in extents {
                    out.line(format_args!("    {}", extent_text(key, &extent)))?;
                }
            }
            Err(wrong) => return Ok(Some(wrong.to_string())),
        },
        ContentKind::Tree => {
            let root = inode.tree_root();
            field(out, "tree", &format!("root {root}, level {}", inode.content_level))?;
            if !meta(out, medium, root, false)? {
                return Ok(Some(format!("the root {root} of its tree")));
            }
        }
    }
    Ok(None)
}

/// The metadata block with an address.
pub fn meta(out: &mut Out, medium: &Medium, addr: MetaAddr, raw: bool) -> Sound {
    if addr.index() == ZoneHeader::INDEX {
        return zone(out, medium, addr.zone(), raw);
    }
    let Some(found) = medium.block(addr)? else {
        anyhow::bail!(
            "there is no metadata block {addr} (`zone {}` lists the zone's)",
            zone_name(addr.zone())
        );
    };
    let problem = medium.verify_copy(&found, addr).err();
    let (block, at) = (found.bytes, found.at);
    out.line(format_args!("metadata block {addr} at block {at}"))?;
    // An older copy of the block can be printed as well as the current one.
    let readable = problem.is_none() || medium.verify(&block, addr, at).is_ok();
    let sound = metadata_block(out, &block, readable)?;
    if raw {
        dump(out, &block[..])?;
    }
    let told = notes(out, problem.map(|p| p.to_string()).as_slice())?;
    Ok(sound && told)
}

/// Any block, by its number.
pub fn block(out: &mut Out, device: &dyn Device, number: u64, raw: bool) -> Sound {
    let bytes = medium::read(device, BlockNo(number))?;
    out.line(format_args!("block {number}"))?;
    if number < 2 {
        if let SlotState::Valid(found) = Superblock::decode(&bytes, number as u32) {
            superblock_fields(out, &found)?;
            if raw {
                dump(out, &bytes[..])?;
            }
            return Ok(true);
        }
    }
    // A block of data is no damage: only a block that says it is metadata must verify as such.
    let problem = yore_format::verify_checksum(&bytes).err();
    let is_metadata = problem.as_ref().is_none_or(|wrong| wrong.field != "magic");
    if !is_metadata {
        out.line("  no metadata: data of a file, or free")?;
        dump(out, &bytes[..])?;
        return Ok(true);
    }
    // Only the block itself says where it belongs.
    let header = BlockHeader::of(&bytes);
    let problem = problem.or_else(|| {
        let addr = MetaAddr(header.addr.get());
        yore_format::verify_header(&bytes, addr, header.volume.get(), BlockNo(number)).err()
    });
    let sound = metadata_block(out, &bytes, problem.is_none())?;
    if raw {
        dump(out, &bytes[..])?;
    }
    let told = notes(out, problem.map(|p| p.to_string()).as_slice())?;
    Ok(sound && told)
}

/// A metadata block's header, and its content if it was verified.
fn metadata_block(out: &mut Out, block: &Block, verified: bool) -> Sound {
    let header = BlockHeader::of(block);
    let kind = BlockKind::from_repr(header.kind);
    field(out, "kind", &kind.map_or(format!("unknown ({})", header.kind), |kind| kind.name().to_string()))?;
    field(out, "own address", &MetaAddr(header.addr.get()).to_string())?;
    field(out, "owner", &format!("inode {} incarnation {}", header.owner, header.owner_incarnation))?;
    field(
        out,
        "generation",
        &format!("{}, birth {}, level {}", header.generation, header.birth, header.level),
    )?;
    field(out, "checksum", &format!("{:#010x}, volume {:#010x}", header.crc.get(), header.volume.get()))?;
    // The content's accessors rely on the verifier.
    let (Some(kind), true) = (kind, verified) else { return Ok(true) };
    match kind {
        BlockKind::ZoneHeader => match ZoneHeader::decode(block) {
            Ok(header) => zone_fields(out, &header)?,
            Err(wrong) => return notes(out, &[wrong.to_string()]),
        },
        BlockKind::ZoneTable => {
            for i in 0..yore_format::layout::ZONE_TABLE_ENTRIES {
                let entry = ZoneTableRef::new(block).entry(i);
                if entry.is_present() {
                    out.line(format_args!(
                        "    entry {i}: at block {}, header slot {}, generation {}",
                        entry.start, entry.header_slot, entry.generation
                    ))?;
                }
            }
        }
        BlockKind::Bitmap => field(out, "used", &BitmapRef::new(block).used().to_string())?,
        BlockKind::Inodes => {
            for slot in 0..INODES_PER_BLOCK {
                let text = match Inode::decode(Inode::slot(block, slot)) {
                    Ok(inode) if inode.mode == 0 => continue,
                    Ok(inode) => {
                        format!("mode {:#o}, {} links, {} bytes", inode.mode, inode.links, inode.size)
                    }
                    Err(wrong) => format!("DAMAGED: {wrong}"),
                };
                let number = InodeNo(header.addr.get() << 4 | slot as u64);
                out.line(format_args!("    inode {number}: {text}"))?;
            }
        }
        BlockKind::HistoryRoots => {
            for (name, root) in past::roots(block) {
                field(out, &name, &root)?;
            }
        }
        BlockKind::CountTable | BlockKind::ChecksumTable => {
            let entries = block[HEADER_BYTES..].chunks(4).filter(|entry| **entry != [0; 4]).count();
            field(out, "entries", &entries.to_string())?;
        }
        tree => return node(out, tree, NodeRef::new(block)),
    }
    Ok(true)
}

/// The cells of a tree node.
fn node(out: &mut Out, kind: BlockKind, node: NodeRef<'_>) -> Sound {
    let mut sound = true;
    field(out, "cells", &format!("{}, {} bytes free", node.count(), node.free_bytes()))?;
    for i in 0..node.count() {
        let value = node.value(i);
        let text = if node.level() > 0 {
            node.child(i).map(|child| format!("child {child}"))
        } else {
            match kind {
                BlockKind::Directory => DirEntry::decode(value).map(|entry| entry_text(&entry)),
                BlockKind::Extents => {
                    ExtentValue::decode(value).map(|extent| extent_text(key_number(node.key(i)), &extent))
                }
                BlockKind::Xattrs => XattrCell::decode(value).map(|cell| xattr_text(&cell)),
                BlockKind::Symlink => {
                    decode_symlink_chunk(value).map(|bytes| format!("\"{}\"", printable(bytes)))
                }
                BlockKind::Orphans => {
                    Ok(format!("inode {}, incarnation {}", key_number(node.key(i)), hex(value)))
                }
                _ => past::cell(kind, node.key(i), value).unwrap_or_else(|| Ok(hex(value))),
            }
        };
        let text = text.unwrap_or_else(|wrong| {
            sound = false;
            format!("DAMAGED: {wrong}")
        });
        out.line(format_args!("    {} {text}", hex(node.key(i))))?;
    }
    Ok(sound)
}

fn key_number(key: &[u8]) -> u64 {
    key.iter().take(8).fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn xattr_text(cell: &XattrCell<'_>) -> String {
    match cell {
        XattrCell::First { namespace, name, value_len, chunk } => format!(
            "{}{} = {value_len} bytes \"{}\"",
            namespace.prefix(),
            printable(name),
            printable(&chunk[..chunk.len().min(64)])
        ),
        XattrCell::Rest(bytes) => format!("{} more bytes", bytes.len()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Bytes in lines of sixteen; repeated lines are left out.
fn dump(out: &mut Out, bytes: &[u8]) -> anyhow::Result<()> {
    let mut last: Option<&[u8]> = None;
    let mut skipping = false;
    for (i, line) in bytes.chunks(16).enumerate() {
        if last == Some(line) {
            if !skipping {
                out.line("  *")?;
            }
            skipping = true;
            continue;
        }
        (last, skipping) = (Some(line), false);
        let text: String =
            line.iter().map(|b| if (0x20..0x7f).contains(b) { char::from(*b) } else { '.' }).collect();
        let words: Vec<String> = line.chunks(4).map(hex).collect();
        out.line(format_args!("  {:04x}  {:<35}  {text}", i * 16, words.join(" ")))?;
    }
    Ok(())
}
