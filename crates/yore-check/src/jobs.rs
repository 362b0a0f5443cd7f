//! Which zones a scan reads: those that the zone table names, found from the superblock's root zones.
//!
//! What of superblock, root zones and table is not sound names no zones here. The zones that it may have
//! named are then read when the check comes to them, one block at a time.

use crate::checker::Checker;
use crate::known::CurrentCopy;
use crate::proof::ground::Ground;
use crate::proof::summary::Summary;
use crate::scan::Job;
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use yore_format::{BlockKind, BlockNo, Expect, MetaAddr, ZoneHeader, ZoneNo, ZoneTableRef};

impl Checker<'_> {
    /// Reads all metadata in the order of the disk.
    pub(crate) fn scan(&mut self) {
        let jobs = self.jobs();
        self.run_scan(jobs);
    }

    /// Reads these zones.
    pub(crate) fn run_scan(&mut self, jobs: Vec<Job>) {
        let (reading, _) = self.scan.run(jobs, &mut self.held, &mut self.pace, None);
        self.reading.add(&reading);
    }

    /// Reads these zones and sums them up: the fast pass.
    pub(crate) fn digest(&mut self, jobs: Vec<Job>, ground: &Ground) -> Summary {
        let (reading, summary) = self.scan.run(jobs, &mut self.held, &mut self.pace, Some(ground));
        self.reading.add(&reading);
        summary
    }

    /// Reads the root zones, and returns the zones that their blocks name.
    pub(crate) fn jobs(&mut self) -> Vec<Job> {
        let is_place = |start: BlockNo, n: usize| match n {
            0 => start.0 == 0,
            _ => self.geometry.is_zone_start(start),
        };
        let roots: Vec<(u32, Job)> = (0..)
            .zip(&self.sb.root_zones)
            .filter_map(|(n, root)| Some((n, root.as_ref()?)))
            .filter(|(n, root)| is_place(root.start, *n as usize))
            .map(|(n, root)| {
                let number = ZoneNo::root(n);
                (n, Job { number, start: root.start, slot: root.header_slot, blocks: 0 })
            })
            .collect();
        self.run_scan(roots.iter().map(|(_, job)| *job).collect());
        let mut jobs = Vec::new();
        for (n, root) in &roots {
            self.jobs_of_root(*n, root, &mut jobs);
        }
        jobs
    }

    /// The zones that the table blocks in a root zone name.
    fn jobs_of_root(&self, n: u32, root: &Job, jobs: &mut Vec<Job>) {
        let block = BlockNo(root.start.0 + HEADER_SLOTS[usize::from(root.slot & 1)]);
        let header = self.held.get(ZoneHeader::addr(root.number), CurrentCopy { block, check: None });
        // What is held was verified, so this decodes.
        let Some(header) = header.and_then(|block| ZoneHeader::decode(&block).ok()) else { return };
        for index in 0..ZONE_INDEXES as u16 {
            let copy = CurrentCopy::of(&header, index);
            let held = copy.and_then(|copy| self.held.get(MetaAddr::new(root.number, index), copy));
            let Some(block) = held.filter(|b| Expect::volume(BlockKind::ZoneTable).check(b).is_ok()) else {
                continue;
            };
            let table = ZoneTableRef::new(&block);
            let first = (n * ZONE_INDEXES + u32::from(index)) * ZONE_TABLE_ENTRIES as u32;
            for i in 0..ZONE_TABLE_ENTRIES {
                let entry = table.entry(i);
                if entry.is_present() && self.geometry.is_zone_start(BlockNo(entry.start.get())) {
                    jobs.push(Job::of(ZoneNo(first + i as u32), &entry));
                }
            }
        }
    }
}
