//! What blocks with two owners cost a check.
//!
//! A volume in memory has many files of two blocks. Some files are given the blocks of others, far from them,
//! by the definitions of the format, with all checksums right. What the check reads more than before must be
//! no more than the metadata of the groups with the first owners.

use super::run::{Found, Run, ZerosAsHoles};
use crate::report::Unit;
use crate::rival::library::mkfs;
use crate::target::LibraryTarget;
use crate::workload::lines::{Goal, Line};
use crate::workload::steps::check as check_that;
use crate::{BenchError, Result, Target};
use std::collections::BTreeSet;
use std::sync::Arc;
use yore_check::{CheckOptions, Problem, Report};
use yore_device::wrapped::Wrapped;
use yore_device::{Device, MemoryDevice};
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use yore_format::{
    decode_slots, seal, Block, BlockHeader, BlockNo, ContentKind, ExtentValue, Generation, GroupNo, Inode,
    ZoneHeader, ZoneTableRef, BLOCK_SIZE, INODES_PER_BLOCK, NOT_INODES, ZERO_BLOCK,
};
use yore_fs::{Engine, MountOptions, View};

#[path = "../../../../yore-check/tests/common/chain.rs"]
mod chain;

const PER_DIRECTORY: usize = 1000;
const FILE_BYTES: usize = 8192;

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    let volume = volume(run)?;
    let sound = blocks(&checked(&volume, 0)?);
    let counts: BTreeSet<usize> = [1, run.checks.claims].into();
    let mut lines = Vec::new();
    for claims in counts {
        let damaged = volume.snapshot();
        let concerned = plant(&damaged, claims)?;
        let found = blocks(&checked(&damaged, claims)?);
        let name = format!("blocks read for {claims} blocks with two owners, more than / a sound volume");
        let mut line = Line::new(name, Unit::Count, Goal::Most(concerned as f64));
        line.push([found - sound, sound]);
        lines.push(line);
    }
    Ok(lines.into())
}

/// A volume with files of two blocks each.
fn volume(run: &Run<'_>) -> Result<MemoryDevice> {
    let files = run.checks.files;
    let bytes = ((files * FILE_BYTES * 2) as u64 + (256 << 20)).next_multiple_of(128 << 20);
    let wrapped = Arc::new(Wrapped::new(MemoryDevice::new(bytes), ZerosAsHoles));
    let device: Arc<dyn Device> = wrapped.clone();
    mkfs(&device, Engine::Snapshot, Some(7))?;
    let options = MountOptions { access_times: false, ..MountOptions::default() };
    let view = View::open(device, &options).map_err(BenchError::library("opening the volume"))?;
    let target = LibraryTarget::new(view);
    let root = target.root()?;
    for first in (0..files).step_by(PER_DIRECTORY) {
        run.options.check_stop()?;
        let name = format!("directory-{}", first / PER_DIRECTORY);
        target.mkdir(&root, &name)?;
        let directory = target.open_dir(&root, &name)?;
        for i in first..files.min(first + PER_DIRECTORY) {
            target.write_at(&target.create(&directory, &format!("file-{i}"))?, 0, &[0; FILE_BYTES])?;
        }
    }
    drop(root);
    target.view().close().map_err(BenchError::library("closing the volume"))?;
    Ok(wrapped.below.snapshot())
}

/// Blocks that a check has read.
fn blocks(report: &Report) -> f64 {
    (report.reading.bytes / BLOCK_SIZE as u64) as f64
}

/// Checks a volume in which so many blocks of files have two owners, two blocks each.
fn checked(device: &MemoryDevice, claims: usize) -> Result<Report> {
    let report = yore_check::check(device, &CheckOptions::default()).map_err(BenchError::checking)?;
    let twice = report.findings.iter().filter(|finding| finding.problem == Problem::SpaceOwnedTwice).count();
    check_that(
        twice == claims && (claims > 0 || report.is_clean()),
        format_args!("{twice} findings of two owners, and {} in all", report.findings_count),
        format_args!("{claims} of them"),
    )?;
    Ok(report)
}

/// A file with one extent: its block of inodes, its slot in it, and the blocks it has.
struct File {
    block: BlockNo,
    slot: usize,
    data: BlockNo,
    group: GroupNo,
}

/// Gives so many files, of the last ones, the blocks of as many others, which are spread over the volume.
/// Returns how many blocks of metadata the groups of these others have.
fn plant(device: &MemoryDevice, claims: usize) -> Result<u64> {
    let mut groups = Groups::default();
    let files = groups.files(device)?;
    check_that(
        files.len() >= 2 * claims,
        format_args!("{} files with one extent", files.len()),
        format_args!("two for each claim"),
    )?;
    let (first, last) = files.split_at(files.len() - claims);
    let mut concerned = BTreeSet::new();
    for (i, second) in last.iter().enumerate() {
        let owner = &first[i * first.len() / claims];
        let mut block = read(device, second.block)?;
        let (bytes, _) = Inode::slot_mut(&mut block, second.slot);
        let mut inode = Inode::decode(bytes).map_err(unreadable)?;
        let mut extents = ExtentValue::decode_inline(&inode).map_err(unreadable)?;
        for (_, extent) in &mut extents {
            extent.start = owner.data;
        }
        ExtentValue::encode_inline(&mut inode, &extents);
        inode.encode(bytes);
        let generation = Generation(BlockHeader::of(&block).generation.get());
        seal(&mut block, generation);
        device.write_at(second.block.0 * BLOCK_SIZE as u64, &block[..])?;
        concerned.insert(owner.group);
    }
    chain::mend(device);
    let of_these = groups.metadata.iter().filter(|(group, _)| concerned.contains(group));
    Ok(of_these.map(|(_, blocks)| blocks).sum())
}

/// What a volume has of metadata.
#[derive(Default)]
struct Groups {
    /// Blocks of each zone, its header included, with its group.
    metadata: Vec<(GroupNo, u64)>,
}

impl Groups {
    /// The files that have one extent of as many blocks as all, in the order of the zones.
    fn files(&mut self, device: &MemoryDevice) -> Result<Vec<File>> {
        let slots = [read(device, BlockNo(0))?, read(device, BlockNo(1))?];
        let (superblock, ..) = decode_slots([&slots[0], &slots[1]]).map_err(unreadable)?;
        let mut files = Vec::new();
        for root in superblock.root_zones.iter().flatten() {
            let header = header(device, root.start, root.header_slot)?;
            for table in (0..ZONE_INDEXES as usize).filter(|i| header.map[*i] != 0) {
                let table = read(device, BlockNo(root.start.0 + u64::from(header.map[table])))?;
                let entries = (0..ZONE_TABLE_ENTRIES).map(|i| ZoneTableRef::new(&table).entry(i));
                for entry in entries.filter(|entry| entry.is_present()) {
                    self.zone(device, BlockNo(entry.start.get()), entry.header_slot, &mut files)?;
                }
            }
        }
        Ok(files)
    }

    fn zone(
        &mut self,
        device: &MemoryDevice,
        start: BlockNo,
        header_slot: u8,
        files: &mut Vec<File>,
    ) -> Result<()> {
        let header = header(device, start, header_slot)?;
        let exists = |index: usize| header.exists[index / 64] >> (index % 64) & 1 == 1;
        let existing = (0..ZONE_INDEXES as usize).filter(|index| exists(*index)).count() as u64;
        self.metadata.push((header.group, existing + 1));
        for index in (0..ZONE_INDEXES as usize).filter(|i| exists(*i) && header.inode_free[*i] != NOT_INODES)
        {
            let at = BlockNo(start.0 + u64::from(header.map[index]));
            let mut block = read(device, at)?;
            for slot in 0..INODES_PER_BLOCK {
                if Inode::slot_is_free(&block, slot) {
                    continue;
                }
                let inode = Inode::decode(Inode::slot_mut(&mut block, slot).0).map_err(unreadable)?;
                if inode.content_kind != ContentKind::Extents || inode.blocks != 2 {
                    continue;
                }
                if let [(_, extent)] = ExtentValue::decode_inline(&inode).map_err(unreadable)?[..] {
                    files.push(File { block: at, slot, data: extent.start, group: header.group });
                }
            }
        }
        Ok(())
    }
}

fn header(device: &MemoryDevice, start: BlockNo, slot: u8) -> Result<ZoneHeader> {
    let block = read(device, BlockNo(start.0 + HEADER_SLOTS[usize::from(slot & 1)]))?;
    ZoneHeader::decode(&block).map_err(unreadable)
}

fn read(device: &MemoryDevice, block: BlockNo) -> Result<Box<Block>> {
    let mut bytes = Box::new(ZERO_BLOCK);
    device.read_at(block.0 * BLOCK_SIZE as u64, &mut bytes[..])?;
    Ok(bytes)
}

/// A volume that was just written must be readable.
fn unreadable(error: impl std::fmt::Display) -> BenchError {
    BenchError::Wrong { found: error.to_string(), expected: "sound metadata".into() }
}
