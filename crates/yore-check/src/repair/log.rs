//! The log: what a mount would do with it, done before anything is repaired; and one that is damaged.
//!
//! The records of a log are newer than everything else on the volume. So a repair first puts their changes of
//! metadata in place, in memory, by the format's definitions alone, and has the superblock say that the log
//! is empty. The file data that records have is written when nothing else is left to repair, since only then
//! it is known which blocks are free.
//!
//! Of a damaged log the records before the damage count. Under an engine that writes in place behind its log,
//! blocks may be newer than that. One that is whole is taken as it is.

use super::content::Extents;
use super::round::{Loss, Round};
use super::volume::Volume;
use crate::checker::Checker;
use crate::{CheckError, Finding};
use std::collections::BTreeMap;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{
    seal, verify_header, Block, BlockNo, ContentKind, Engine, ExtentValue, FileKind, Incarnation, Inode,
    InodeNo, Intent, IntentBlock, IntentNote, MetaAddr, BLOCK_SIZE, INLINE_BYTES, ZERO_BLOCK,
};
use yore_meta::{LogContents, LogPlace};

/// Bytes of a page of a file.
const PAGE: u64 = BLOCK_SIZE as u64;

/// What records note of a file.
#[derive(Debug)]
struct NotedFile {
    /// The file has at least this size.
    size: u64,
    /// Pages: their first bytes; the rest is zeros.
    pages: BTreeMap<u32, Vec<u8>>,
}

/// What records note of the data of files.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeMap<(InodeNo, Incarnation), NotedFile>);

impl Notes {
    /// Whether nothing is left to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn file(&mut self, file: (InodeNo, Incarnation), size: u64) -> &mut NotedFile {
        let noted = self.0.entry(file).or_insert_with(|| NotedFile { size, pages: BTreeMap::new() });
        noted.size = size;
        noted
    }

    fn add(&mut self, note: &IntentNote<'_>) {
        match *note {
            IntentNote::Data { inode, incarnation, size, page, bytes } => {
                let noted = self.file((inode, incarnation), size);
                if !bytes.is_empty() {
                    noted.pages.insert(page, bytes.to_vec());
                }
            }
            IntentNote::Truncated { inode, incarnation, size: 0 } => {
                self.0.remove(&(inode, incarnation));
            }
            IntentNote::Truncated { inode, incarnation, size } => {
                let Some(noted) = self.0.get_mut(&(inode, incarnation)) else { return };
                noted.size = noted.size.min(size);
                if let Ok(end) = u32::try_from(size.div_ceil(PAGE)) {
                    noted.pages.split_off(&end);
                }
                let last = u32::try_from(size / PAGE).ok().and_then(|last| noted.pages.get_mut(&last));
                if let Some(bytes) = last {
                    bytes.truncate((size % PAGE) as usize);
                }
            }
        }
    }
}

/// A block as records make it, and the last of them.
struct Staged<'r> {
    block: Box<Block>,
    last: IntentBlock<'r>,
}

impl Checker<'_> {
    /// What the log has for the next mount.
    pub(super) fn log_contents(&self, place: &LogPlace) -> Result<LogContents, CheckError> {
        yore_meta::log_contents(self.device, &self.sb, place).map_err(|e| match e {
            yore_meta::MetaError::Device(e) => e.into(),
            other => CheckError::Log(other.to_string()),
        })
    }
}

impl Volume<'_> {
    /// Puts what a log has in place, and has the superblock say that the log is empty. Returns what is still
    /// to be written to files.
    pub(super) fn empty_log(
        &mut self,
        contents: &LogContents,
        lost: &mut Vec<Loss>,
    ) -> Result<Notes, CheckError> {
        let mut lose = |what: String| lost.push(Loss { path: "the log".into(), what, unnamed: None });
        let (notes, misfits) = self.replay(&contents.records)?;
        if misfits > 0 {
            lose(format!("changes of {misfits} metadata blocks in it fit nothing, and are given up"));
        }
        let has_log = contents.leave_empty(&mut self.sb, self.generation);
        if let Some(damage) = &contents.damage {
            let records = contents.records.len();
            lose(format!(
                "it cannot be read behind the first {records} records ({damage}): what an fsync has made durable since \
                 then, and no later sync, is lost"
            ));
        }
        if !has_log {
            lose("the volume has no log any more: give it one with `yore journal`".into());
        }
        Ok(notes)
    }

    /// Carries records out. Returns what they note of files, and how many blocks did not fit.
    fn replay(&mut self, records: &[Vec<u8>]) -> Result<(Notes, u64), CheckError> {
        // Records that do not decode end the log, and are no contents of it.
        let intents: Vec<Intent<'_>> =
            records.iter().map_while(|record| Intent::decode(record).ok()).collect();
        let (mut notes, mut misfits) = (Notes::default(), 0);
        let Some(head) = intents.last().map(|intent| intent.head) else { return Ok((notes, misfits)) };
        let mut blocks: BTreeMap<MetaAddr, Staged<'_>> = BTreeMap::new();
        for change in intents.iter().flat_map(|intent| &intent.blocks) {
            if let Some(staged) = blocks.get_mut(&change.addr) {
                change.put(&mut staged.block);
                staged.last = *change;
                continue;
            }
            let place = self.place(change.addr).filter(|_| change.chunks != u64::MAX);
            let base = place.map_or(Ok(None), |place| self.bytes(place))?;
            let mut block = base.unwrap_or_else(|| Box::new(ZERO_BLOCK));
            change.put(&mut block);
            blocks.insert(change.addr, Staged { block, last: *change });
        }
        let zones: BTreeMap<_, _> =
            intents.iter().flat_map(|intent| &intent.zones).map(|zone| (zone.zone, zone.exists)).collect();
        for (number, exists) in &zones {
            for index in 0..ZONE_INDEXES as u16 {
                let was = self.zones.get(number).is_some_and(|zone| zone.header.has(index));
                if was && exists[usize::from(index) / 64] & 1 << (index % 64) == 0 {
                    self.remove(MetaAddr::new(*number, index));
                }
            }
        }
        for (addr, staged) in blocks {
            let index = usize::from(addr.index());
            let exists =
                zones.get(&addr.zone()).is_some_and(|zone| zone[index / 64] & 1 << (index % 64) != 0);
            // What was changed and then freed is nobody's.
            if exists && !self.put_staged(addr, staged)? {
                misfits += 1;
            }
        }
        head.enter(&mut self.sb);
        intents.iter().flat_map(|intent| &intent.notes).for_each(|note| notes.add(note));
        self.keep_notes_of_files(&mut notes)?;
        Ok((notes, misfits))
    }

    /// Writes a block as the last record of it says, or as it is, if that is whole. False if it is neither.
    fn put_staged(&mut self, addr: MetaAddr, mut staged: Staged<'_>) -> Result<bool, CheckError> {
        let Some(zone) = self.zones.get(&addr.zone()) else { return Ok(false) };
        let (start, tag) = (zone.header.start, self.sb.volume_tag());
        seal(&mut staged.block, self.generation);
        let is_it = staged.last.verify(&staged.block).is_ok()
            && verify_header(&staged.block, addr, tag, start).is_ok();
        if is_it {
            return Ok(self.put(addr, staged.block));
        }
        if self.sb.engine != Engine::Journal {
            return Ok(false);
        }
        let Some(place) = self.place(addr) else { return Ok(false) };
        let found = self.bytes(place)?.filter(|block| verify_header(block, addr, tag, place).is_ok());
        Ok(found.is_some_and(|block| self.put(addr, block)))
    }

    /// Leaves out notes of files that are gone: a name no longer leads to them, or their number has another
    /// use. What cannot be read may come back.
    fn keep_notes_of_files(&self, notes: &mut Notes) -> Result<(), CheckError> {
        let mut gone = Vec::new();
        for file in notes.0.keys() {
            let (number, incarnation) = *file;
            let block = self.read_kind(number.addr(), yore_format::BlockKind::Inodes)?;
            let inode = block.map(|block| Inode::decode(Inode::slot(&block, number.slot())));
            if let Some(Ok(inode)) = inode {
                if inode.incarnation != incarnation || inode.mode == 0 || inode.links == 0 {
                    gone.push(*file);
                }
            }
        }
        gone.iter().for_each(|file| drop(notes.0.remove(file)));
        Ok(())
    }
}

impl Round<'_> {
    /// The log is put in place or made empty before any rule is asked.
    pub(super) fn wait_for_log(&mut self, _: &Finding) -> Result<bool, CheckError> {
        Ok(false)
    }

    /// Has the volume forget a log that lies where none can.
    pub(super) fn forget_log(&mut self, _: &Finding) -> Result<bool, CheckError> {
        yore_meta::forget_log(&mut self.volume.sb);
        let generation = self.seen.sb.generation;
        let what = format!(
            "where it is cannot be known: what an fsync has made durable since generation {generation} may be lost; the \
             volume has no log any more: give it one with `yore journal`"
        );
        self.lost.push(Loss { path: "the log".into(), what, unnamed: None });
        Ok(true)
    }

    /// Writes the file data that records had, as a mount does: times and attributes stay as they are. Refuses
    /// as long as something cannot be read, which was to be left: it may have the blocks that look free, and
    /// be the file.
    pub(super) fn restore(&mut self, notes: Notes, records: u64) -> Result<(), CheckError> {
        if self.seen.incomplete {
            return Err(CheckError::LogNeedsAll { device: self.volume.disk_name(), records });
        }
        for ((number, incarnation), noted) in notes.0 {
            let is_it = |inode: &Inode| {
                inode.incarnation == incarnation && FileKind::from_mode(inode.mode) == Some(FileKind::Regular)
            };
            match self.volume.inode(number)?.filter(is_it) {
                Some(inode) => self.restore_file(number, inode, noted, records)?,
                None => {
                    let pages = noted.pages.len();
                    self.lose(number, format!("{pages} pages of it that only the log had are lost with it"))?;
                }
            }
        }
        Ok(())
    }

    fn restore_file(
        &mut self,
        number: InodeNo,
        mut inode: Inode,
        noted: NotedFile,
        records: u64,
    ) -> Result<(), CheckError> {
        let NotedFile { size, mut pages } = noted;
        let ends = pages.iter().map(|(page, bytes)| u64::from(*page) * PAGE + bytes.len() as u64);
        let (before, size) = (inode.size, ends.max().unwrap_or(0).max(size).max(inode.size));
        inode.size = size;
        if matches!(inode.content_kind, ContentKind::Inline | ContentKind::Empty) {
            let mut content = pages.remove(&0).unwrap_or_else(|| inode.inline().to_vec());
            if size <= INLINE_BYTES as u64 {
                content.resize(size as usize, 0);
                inode.set_inline(&content);
                self.volume.set_inode(number, Some(&inode))?;
                return Ok(());
            }
            if !content.is_empty() {
                pages.insert(0, content);
            }
        }
        let (mut extents, old, is_lossy) = self.extents(number, &inode)?;
        if is_lossy || old.is_lossy {
            return Err(CheckError::LogNeedsAll { device: self.volume.disk_name(), records });
        }
        if size > before {
            self.truncate_to(&mut extents, before, &mut pages)?;
        }
        for (page, bytes) in pages {
            let Some(to) = self.free_block()? else {
                return Err(CheckError::LogNotReplayed { device: self.volume.disk_name(), records });
            };
            let mut block = Box::new(ZERO_BLOCK);
            block[..bytes.len()].copy_from_slice(&bytes);
            self.volume.disk.write(to, &block);
            let new = ExtentValue { start: to, len: 1, unwritten: false, shared: false, birth: inode.born };
            put_page(&mut extents, u64::from(page), new);
        }
        self.set_extents(number, &mut inode, &old, &joined(extents))?;
        Ok(())
    }

    /// Takes away what a file of this size that gets longer has beyond its end.
    fn truncate_to(
        &mut self,
        extents: &mut Extents,
        size: u64,
        pages: &mut BTreeMap<u32, Vec<u8>>,
    ) -> Result<(), CheckError> {
        let end = size.div_ceil(PAGE);
        extents.retain_mut(|(key, extent)| {
            if !extent.unwritten && *key < end {
                extent.len = u64::from(extent.len).min(end - *key) as u32;
            }
            extent.unwritten || *key < end
        });
        let (page, rest) = (size / PAGE, (size % PAGE) as usize);
        let Some(number) = u32::try_from(page).ok().filter(|page| rest > 0 && !pages.contains_key(page))
        else {
            return Ok(());
        };
        let has = |(key, extent): &&(u64, ExtentValue)| {
            !extent.unwritten && *key <= page && page < key + u64::from(extent.len)
        };
        if let Some((key, extent)) = extents.iter().find(has) {
            let block = self.volume.bytes(BlockNo(extent.start.0 + page - key))?;
            if let Some(block) = block.filter(|block| block[rest..].iter().any(|byte| *byte != 0)) {
                pages.insert(number, block[..rest].to_vec());
            }
        }
        Ok(())
    }
}

/// Gives a page of a file another block.
fn put_page(extents: &mut Extents, page: u64, new: ExtentValue) {
    let at = extents.partition_point(|(key, extent)| key + u64::from(extent.len) <= page);
    let Some(&(key, old)) = extents.get(at).filter(|(key, _)| *key <= page) else {
        extents.insert(at, (page, new));
        return;
    };
    let (kept, behind) = ((page - key) as u32, (key + u64::from(old.len) - page - 1) as u32);
    let mut parts = Vec::new();
    if kept > 0 {
        parts.push((key, ExtentValue { len: kept, ..old }));
    }
    parts.push((page, new));
    if behind > 0 {
        let start = BlockNo(old.start.0 + u64::from(kept) + 1);
        parts.push((page + 1, ExtentValue { start, len: behind, ..old }));
    }
    extents.splice(at..=at, parts);
}

/// The same extents, those put together that continue each other.
fn joined(extents: Extents) -> Extents {
    let mut made = Extents::with_capacity(extents.len());
    for (key, extent) in extents {
        match made.last_mut() {
            Some((before, last))
                if *before + u64::from(last.len) == key
                    && last.start.0 + u64::from(last.len) == extent.start.0
                    && (last.unwritten, last.shared, last.birth)
                        == (extent.unwritten, extent.shared, extent.birth)
                    && last.len + extent.len <= yore_format::EXTENT_LEN_MAX =>
            {
                last.len += extent.len;
            }
            _ => made.push((key, extent)),
        }
    }
    made
}
