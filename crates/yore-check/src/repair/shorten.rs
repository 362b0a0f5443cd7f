//! A volume whose device lost its end, made as long as what is there.
//!
//! Zones that lie beyond the end, or reach beyond it, leave the table, the lists of their groups and the
//! places of tables. What they held, and what files had beyond the end, is then missing like anything else
//! that cannot be read: the rules of the rounds that follow put that right, and name it.
//!
//! Nobody wants that if the rest of the device can be brought back, so it is done only when it is asked for.

use super::round::Loss;
use super::volume::Volume;
use crate::CheckError;
use std::collections::BTreeSet;
use yore_device::Device as _;
use yore_format::layout::{Geometry, VOLUME_BLOCKS_MIN, ZONE_BLOCKS};
use yore_format::{BlockNo, TablePlace, WriteFeatures, ZoneNo, ZoneTableEntry, BLOCK_SIZE};

impl Volume<'_> {
    /// The length that the volume can have on its device, if that is shorter than the volume.
    pub(super) fn shorter(&self) -> Option<Geometry> {
        let blocks = self.disk.size() / BLOCK_SIZE as u64;
        let is_possible = (VOLUME_BLOCKS_MIN..self.sb.volume_blocks).contains(&blocks);
        is_possible.then(|| Geometry::new(blocks))
    }

    /// Gives the volume this length. Returns what is lost by that alone.
    pub(super) fn shorten(&mut self, geometry: Geometry) -> Result<Vec<Loss>, CheckError> {
        let before = self.sb.volume_blocks;
        let end = geometry.blocks;
        let is_beyond = |number: ZoneNo, start: BlockNo| {
            let has_group = number.is_root() || !number.is_primary() || number.0 / 2 < geometry.groups();
            !has_group || start.0.saturating_add(ZONE_BLOCKS) > end
        };
        let mut gone: BTreeSet<ZoneNo> = self
            .lost_zones
            .iter()
            .filter(|lost| is_beyond(lost.number, lost.start))
            .map(|lost| lost.number)
            .collect();
        gone.extend(
            self.zones
                .iter()
                .filter(|(number, zone)| is_beyond(**number, zone.header.start))
                .map(|(n, _)| *n),
        );
        for (n, root) in self.sb.root_zones.iter_mut().enumerate() {
            if root.is_some_and(|root| is_beyond(ZoneNo::root(n as u32), root.start)) {
                *root = None;
            }
        }
        self.retain_zones(|number| !gone.contains(&number));
        self.lost_zones.retain(|lost| !gone.contains(&lost.number));
        self.sb.volume_blocks = end;
        self.sb.features |= WriteFeatures::RESIZED;
        self.geometry = geometry;
        for number in gone.iter().filter(|number| !number.is_root()) {
            self.set_entry(*number, ZoneTableEntry::ABSENT)?;
        }
        for zone in self.zones.values_mut() {
            let header = &mut zone.header;
            for (i, extra) in header.extras.iter_mut().enumerate() {
                if *extra == 0 || !gone.contains(&ZoneNo(*extra)) {
                    continue;
                }
                *extra = 0;
                let is_there =
                    |place: &u16| TablePlace::decode(*place).is_some_and(|at| usize::from(at.zone) == i + 1);
                header.tables.iter_mut().filter(|place| is_there(place)).for_each(|place| *place = 0);
                zone.is_dirty = true;
            }
        }
        let mut lost = vec![Loss {
            path: "the end of the volume".into(),
            what: format!(
                "it is {} blocks shorter, as its device ends there; what files had behind that is lost, and named below \
                 as far as names are known",
                before - end
            ),
            unnamed: None,
        }];
        lost.extend(gone.iter().map(|number| Loss {
            path: format!("zone {number}"),
            what: "all metadata in it is lost with the end of the volume".into(),
            unnamed: None,
        }));
        Ok(lost)
    }
}
