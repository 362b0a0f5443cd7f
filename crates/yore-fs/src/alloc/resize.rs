//! Making the volume longer, while others use it; and shorter.
//!
//! What there is to do on the medium is one Op (`yore-meta`'s `resize.rs`). In memory the order is: first the length, then the
//! blocks. So who is handed a block beyond the old end finds it within the volume. `grow` is held, so nobody makes a zone or begins
//! to use a group by the old length meanwhile; the last group stays loaded, so nobody compares its bitmap with an old summary.

use super::groups::{check_bits, mark, KeptGroups};
use super::{Alloc, Run, REGION};
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use yore_format::layout::{Geometry, VOLUME_BLOCKS_MIN};
use yore_format::{BitmapRef, GroupNo, WriteFeatures, BLOCK_SIZE};
use yore_meta::{Meta, Reserved};

impl Alloc {
    /// Makes the volume so many bytes long, or as long as whole groups of it allow. Durable when this returns. Returns whether it
    /// was shorter.
    ///
    /// # Errors
    /// Those of [`Meta::prepare_growth`]; damage in the last group's bitmap; device errors.
    pub(crate) fn lengthen(&self, meta: &Meta, bytes: u64) -> Result<bool> {
        let new = meta.prepare_growth(bytes)?;
        let _grow = self.grow.lock();
        // Another one may have been faster.
        let old = meta.geometry();
        if new.blocks <= old.blocks {
            return Ok(false);
        }
        let last = GroupNo(old.groups() - 1);
        let (end, new_end) = (old.data_blocks(last) as u32, new.data_blocks(last) as u32);
        let added = new_end - end;
        let unused: u64 = (old.groups()..new.groups()).map(|group| new.data_blocks(GroupNo(group))).sum();
        let is_used = meta.group_summary(last)?.initialised;
        let mut kept = KeptGroups::default();
        let loaded = match is_used && added > 0 {
            true => {
                let (group, frame) = self.keep(meta, last, &mut kept)?;
                check_bits(&new, last, &frame, end, added, true)?;
                Some((group, frame))
            }
            false => None,
        };
        let more = if loaded.is_some() { unused } else { unused + u64::from(added) };
        {
            let mut op = meta.begin_alone(Reserved::none());
            op.lengthen(new, more);
            if let Some((_, frame)) = &loaded {
                mark(&mut op, frame, end, added, false);
                op.count_free_blocks(last, i64::from(added));
            }
        }
        self.volume_blocks.store(new.blocks, Ordering::Release);
        if let Some((group, _)) = &loaded {
            group.state.lock().put_back(end, added);
            self.note_available(last, group);
        }
        self.unpromised.fetch_add((unused + u64::from(added)) as i64, Ordering::Relaxed);
        for region in [last.0 / REGION, (new.groups() - 1) / REGION] {
            self.regions.get(region).reclaimed.fetch_add(1, Ordering::Release);
        }
        meta.sync()?;
        Ok(true)
    }

    /// Makes the volume so many bytes long, if nothing lies beyond. Nothing moves: the number of an inode is where it lies. Durable when this
    /// returns. Returns whether it was longer.
    ///
    /// # Errors
    /// [`Error::Refused`] if something is in the way, or it would be too short: then nothing was changed; damage and device errors.
    pub(crate) fn shorten(&self, meta: &Meta, bytes: u64) -> Result<bool> {
        meta.check_writable()?;
        let (new, old) = (Geometry::new(bytes / BLOCK_SIZE as u64), meta.geometry());
        if new.blocks < VOLUME_BLOCKS_MIN {
            let least = VOLUME_BLOCKS_MIN * BLOCK_SIZE as u64;
            return Err(Error::Refused(format!("a volume has at least {least} bytes")));
        }
        if new.blocks >= old.blocks {
            return Ok(false);
        }
        // What was freed is free: no block is on its way.
        self.give_back_zones(meta)?;
        meta.sync()?;
        meta.extend(WriteFeatures::RESIZED)?;
        let _grow = self.grow.lock();
        let mut way = InTheWay::default();
        let mut claimed = Vec::new();
        let result =
            self.claim_end(meta, new, &mut way, &mut claimed).and_then(|()| match way.is_nothing() {
                true => self.cut_off(meta, (old, new), &claimed),
                false => Err(Error::Refused(way.text(self.least(meta)?))),
            });
        if let Err(e) = result {
            for (run, _) in &claimed {
                self.make_available(*run);
            }
            (new.groups()..old.groups()).for_each(|group| meta.reopen(GroupNo(group)));
            return Err(e);
        }
        meta.sync()?;
        Ok(true)
    }

    /// Takes all free blocks beyond the new end, so that nobody else does; in groups that were never used there are none to take, and
    /// nobody can begin to use them now.
    fn claim_end(
        &self,
        meta: &Meta,
        new: Geometry,
        way: &mut InTheWay,
        claimed: &mut Vec<(Run, GroupNo)>,
    ) -> Result<()> {
        let old = meta.geometry();
        for group in (new.groups() - 1..old.groups()).map(GroupNo) {
            if !meta.group_summary(group)?.initialised {
                continue;
            }
            let stays = group.0 < new.groups();
            let (from, to) =
                (if stays { new.data_blocks(group) as u32 } else { 0 }, old.data_blocks(group) as u32);
            if from >= to {
                continue;
            }
            let (loaded, _) = self.load(meta, group)?;
            let taken = loaded.state.lock().take(from, to - from, true);
            if taken > 0 {
                claimed.push((Run { start: old.block_of(group, from), len: taken }, group));
                self.note_available(group, &loaded);
            }
            if taken < to - from {
                way.data += self.used_beyond(meta, group, from, to)?;
            }
            if !stays && !meta.close_if_empty(group)? {
                way.metadata += meta.metadata_blocks_in(group)?.saturating_sub(1);
            }
        }
        Ok(())
    }

    fn used_beyond(&self, meta: &Meta, group: GroupNo, from: u32, to: u32) -> Result<u64> {
        let (_, frame) = self.load(meta, group)?;
        let page = frame.read();
        let map = BitmapRef::new(&page);
        // What is taken, and not in the bitmap yet, is in the way, too.
        Ok(((from..to).filter(|bit| map.get(*bit)).count() as u64).max(1))
    }

    /// The shortest that the volume could be made now, in blocks.
    fn least(&self, meta: &Meta) -> Result<u64> {
        let old = meta.geometry();
        for group in (0..old.groups()).rev().map(GroupNo) {
            if !meta.group_summary(group)?.initialised {
                continue;
            }
            let (_, frame) = self.load(meta, group)?;
            let page = frame.read();
            let map = BitmapRef::new(&page);
            let last = (0..old.data_blocks(group) as u32).rev().find(|bit| map.get(*bit));
            let holds_metadata = meta.metadata_blocks_in(group)? > 1;
            if last.is_none() && !holds_metadata && group.0 > 0 {
                continue;
            }
            let end = last.map_or(0, |bit| old.block_of(group, bit).0 + 1);
            let shortest = old.data_start(group).0 + yore_format::layout::ZONE_BLOCKS;
            return Ok(end.max(shortest).max(VOLUME_BLOCKS_MIN).min(old.blocks));
        }
        Ok(old.blocks)
    }

    /// The Op. All that is free beyond the end is claimed.
    fn cut_off(
        &self,
        meta: &Meta,
        (old, new): (Geometry, Geometry),
        claimed: &[(Run, GroupNo)],
    ) -> Result<()> {
        let last = GroupNo(new.groups() - 1);
        let is_used = meta.group_summary(last)?.initialised;
        let mut unused = 0;
        for group in (new.groups()..old.groups()).map(GroupNo) {
            if !meta.group_summary(group)?.initialised {
                unused += old.data_blocks(group);
            }
        }
        if !is_used {
            unused += old.data_blocks(last) - new.data_blocks(last);
        }
        let mut kept = KeptGroups::default();
        let tail = claimed.iter().find(|(_, group)| *group == last);
        let tail = match tail {
            Some((run, _)) => {
                let (group, frame) = self.keep(meta, last, &mut kept)?;
                let (_, bit) = self.place(*run)?;
                check_bits(&old, last, &frame, bit, run.len, false)?;
                Some((group, frame, bit, run.len))
            }
            None => None,
        };
        let gone: u64 = claimed.iter().map(|(run, _)| u64::from(run.len)).sum::<u64>() + unused;
        let paid = self.unpromised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            free.checked_sub(gone as i64).filter(|left| *left >= 0)
        });
        if paid.is_err() {
            return Err(Error::NoSpace);
        }
        {
            let mut op = meta.begin_alone(Reserved::none());
            if let Some((_, frame, bit, len)) = &tail {
                mark(&mut op, frame, *bit, *len, true);
                op.count_free_blocks(last, -i64::from(*len));
            }
            for group in (new.groups()..old.groups()).map(GroupNo) {
                op.remove_primary_zone(group);
            }
            op.shorten(new, unused);
        }
        if let Some((group, _, _, len)) = &tail {
            group.state.lock().settle(*len);
        }
        self.volume_blocks.store(new.blocks, Ordering::Release);
        Ok(())
    }
}

/// What lies where the volume shall not be any more.
#[derive(Default)]
struct InTheWay {
    data: u64,
    metadata: u64,
}

impl InTheWay {
    fn is_nothing(&self) -> bool {
        self.data + self.metadata == 0
    }

    fn text(&self, least: u64) -> String {
        let mut what = Vec::new();
        if self.data > 0 {
            what.push(format!(
                "{} bytes of files, their history or the volume's tables",
                self.data * BLOCK_SIZE as u64
            ));
        }
        if self.metadata > 0 {
            what.push(format!("{} blocks of inodes and directories", self.metadata));
        }
        format!(
            "beyond the new end lie {}, which do not move; as things are it can be made {} bytes long. Removing files, `yore forget`, \
             or copying to a smaller volume helps",
            what.join(" and "),
            least * BLOCK_SIZE as u64
        )
    }
}
