//! Making a volume: two superblocks, root zone 0 with the first table block, group 0's first zone with its
//! bitmap and the root directory's inode block. The work is constant, whatever the size: a group comes into
//! being when it is first used.

use crate::base::medium::now_seconds;
use crate::error::{MetaError, Result};
use crate::log::elsewhere;
use crate::log::moving;
use crate::log::opened::Whereabouts;
use crate::log::place::LogDevice;
use crate::log::region;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::{
    Geometry, FIRST_SLOT, HEADER_SLOTS, SUPERBLOCKS, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN, ZONE_BLOCKS,
    ZONE_INDEXES,
};
use yore_format::{
    seal, BitmapMut, Block, BlockHeader, BlockKind, BlockNo, ContentKind, Engine, EventNo, Generation,
    GroupNo, Incarnation, Inode, InodeFlags, InodeNo, MetaAddr, RootZone, Scrub, Spare, Superblock,
    Timestamp, VolumeState, WriteFeatures, ZoneHeader, ZoneNo, ZoneTableEntry, ZoneTableMut, BLOCK_SIZE,
    FINDINGS_BLOCKS, INLINE_BYTES, INODES_PER_BLOCK, ZERO_BLOCK,
};
use yore_log::{LogId, REGION_BLOCKS_MIN};

/// How to make a volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The volume's identity.
    pub uuid: [u8; 16],
    /// Key of the hash of names.
    pub hash_seed: [u8; 16],
    /// A name for people, at most 64 bytes.
    pub label: String,
    /// The engine recorded.
    pub engine: Engine,
    /// Owner and group of the root directory.
    pub owner: (u32, u32),
    /// Permissions of the root directory.
    pub permissions: u32,
    /// When the root directory is made.
    pub now: Timestamp,
    /// Length of the log in blocks, 0 for none; [`crate::default_log_blocks`] is a good one. It means nothing
    /// with a device for the log.
    pub log_blocks: u64,
    /// The device that has the log, over its whole length, if that is not in the volume.
    pub log_device: Option<LogDevice>,
    /// Keep checksums of file data.
    pub data_checksums: bool,
    /// Overwrite what is on that device, even a volume or the log of another.
    pub force: bool,
}

/// Makes a volume over the whole device. Whatever was there is lost; the caller has made sure that nobody
/// needs it.
///
/// # Errors
/// [`MetaError::Refused`] for a device too small (16 MiB), too large (128 TiB) or read-only, or a label too
/// long.
pub fn mkfs(device: &dyn Device, options: &MkfsOptions) -> Result<Superblock> {
    let blocks = device.size() / BLOCK_SIZE as u64;
    let name = device.describe();
    if blocks < VOLUME_BLOCKS_MIN {
        return Err(MetaError::Refused(format!(
            "{name} is too small for a volume: it has {} bytes, at least 16 MiB (16777216 bytes) are needed",
            device.size()
        )));
    }
    if blocks > VOLUME_BLOCKS_MAX {
        return Err(MetaError::Refused(format!("{name} is larger than the largest volume, 128 TiB")));
    }
    if options.label.len() > 64 || options.label.contains('\0') {
        return Err(MetaError::Refused("a label has at most 64 bytes and no NUL".into()));
    }
    if options.data_checksums && options.engine == Engine::None {
        return Err(MetaError::Refused(
            "the engine `none` keeps no order of writes, so a crash leaves data whose checksums are of other data: choose \
             `snapshot` or `journal`, or leave out --data-checksums"
                .into(),
        ));
    }
    if let Some(on) = &options.log_device {
        elsewhere::check(on, options.uuid, options.force)?;
    }
    let mut maker = Maker { device, options, geometry: Geometry::new(blocks), generation: Generation(1) };
    maker.make()
}

struct Maker<'a> {
    device: &'a dyn Device,
    options: &'a MkfsOptions,
    geometry: Geometry,
    generation: Generation,
}

impl Maker<'_> {
    fn make(&mut self) -> Result<Superblock> {
        let (zone_start, root_start) = (self.geometry.primary_zone_start(GroupNo(0)), BlockNo(0));
        let usable = self.geometry.data_blocks(GroupNo(0)) as u32;
        // An old volume must not look alive over half a new one.
        for at in SUPERBLOCKS {
            self.write(at, &ZERO_BLOCK)?;
        }
        self.device.flush()?;
        let log = self.make_log(zone_start, usable)?;
        let is_inside = |at: &&Whereabouts| at.external.is_none();
        let log_blocks = log.as_ref().filter(is_inside).map_or(0, |at| at.blocks) as u32;
        let used = ZONE_BLOCKS as u32 + log_blocks;
        let free = usable - used;

        let mut bitmap = self.block(BlockKind::Bitmap, MetaAddr::new(ZoneNo(0), 0));
        BitmapMut::init(&mut bitmap, usable).set(0, used, true);
        let bitmap_check = self.write_sealed(BlockNo(zone_start.0 + FIRST_SLOT), &mut bitmap)?;
        let mut inodes = self.block(BlockKind::Inodes, MetaAddr::new(ZoneNo(0), 1));
        self.root_directory().encode(Inode::slot_mut(&mut inodes, 0).0);
        let inodes_check = self.write_sealed(BlockNo(zone_start.0 + FIRST_SLOT + 1), &mut inodes)?;

        let mut header =
            ZoneHeader::empty(self.options.uuid, self.geometry.blocks, zone_start, ZoneNo(0), GroupNo(0));
        header.exists[0] = 0b11;
        header.map[0] = FIRST_SLOT as u16;
        header.map[1] = FIRST_SLOT as u16 + 1;
        (header.checks[0], header.checks[1]) = (bitmap_check, inodes_check);
        header.inode_free[1] = INODES_PER_BLOCK as u8 - 1;
        let crc = self.write_header(&header)?;

        let mut table = self.block(BlockKind::ZoneTable, MetaAddr::new(ZoneNo::root(0), 0));
        let entry = ZoneTableEntry {
            start: zone_start.0.into(),
            generation: self.generation.0.into(),
            crc: crc.into(),
            header_slot: 0,
            present: 1,
            free_blocks: (free as u16).into(),
            free_indexes: (ZONE_INDEXES as u16 - 2).into(),
            free_inodes: (INODES_PER_BLOCK as u16 - 1).into(),
        };
        ZoneTableMut::new(&mut table).set(0, entry);
        let table_check = self.write_sealed(BlockNo(root_start.0 + FIRST_SLOT), &mut table)?;
        let mut root = ZoneHeader::empty(
            self.options.uuid,
            self.geometry.blocks,
            root_start,
            ZoneNo::root(0),
            GroupNo(0),
        );
        root.exists[0] = 1;
        root.map[0] = FIRST_SLOT as u16;
        root.checks[0] = table_check;
        let crc = self.write_header(&root)?;

        let unused: u64 = (1..self.geometry.groups()).map(|g| self.geometry.data_blocks(GroupNo(g))).sum();
        let root = RootZone { start: root_start, generation: self.generation, crc, header_slot: 0 };
        let mut superblock = self.superblock(root, u64::from(free) + unused);
        if let Some(at) = log {
            moving::enter(&at, &mut superblock, Generation(self.generation.0 + 1));
        }
        // What another volume has left there goes, too.
        let mut spare = Box::new(ZERO_BLOCK);
        Spare::of(&superblock).put(&mut spare);
        for at in FINDINGS_BLOCKS {
            self.write(at, &spare)?;
        }
        self.device.flush()?;
        for slot in 0..2 {
            self.write(SUPERBLOCKS[slot as usize], &superblock.encode(slot))?;
        }
        self.device.flush()?;
        Ok(superblock)
    }

    /// Makes the log: on its own device, or in the blocks behind group 0's first zone.
    fn make_log(&self, zone: BlockNo, usable: u32) -> Result<Option<Whereabouts>> {
        if let Some(on) = &self.options.log_device {
            let (_, at) = elsewhere::make(on, self.options.uuid)?;
            return Ok(Some(at));
        }
        let blocks = self.options.log_blocks;
        if blocks == 0 {
            return Ok(None);
        }
        let most = (u64::from(usable) - ZONE_BLOCKS) / 2;
        if !(REGION_BLOCKS_MIN..=most).contains(&blocks) {
            return Err(MetaError::Refused(format!(
                "a log of {} KiB does not fit {}: it takes {} to {} KiB there, or 0 for none",
                blocks * 4,
                self.device.describe(),
                REGION_BLOCKS_MIN * 4,
                most * 4
            )));
        }
        let region = region::behind(zone, blocks);
        // Users know the uuid, and what they write goes through the log: it must not look like a batch.
        let id = LogId::random();
        region::format(self.device, region)?;
        Ok(Some(Whereabouts { start: BlockNo(region.first_block), blocks, id: id.0, external: None }))
    }

    fn superblock(&self, root: RootZone, free_blocks: u64) -> Superblock {
        Superblock {
            uuid: self.options.uuid,
            volume_blocks: self.geometry.blocks,
            generation: self.generation,
            mount_id: 0,
            engine: self.options.engine,
            state: VolumeState::Clean,
            next_incarnation: 2,
            next_number: EventNo(1),
            hash_seed: self.options.hash_seed,
            created_seconds: now_seconds(),
            written_seconds: now_seconds(),
            root_directory: InodeNo::ROOT,
            orphan_root: MetaAddr::NONE,
            orphan_level: 0,
            events_root: MetaAddr::NONE,
            history_root: MetaAddr::NONE,
            free_blocks,
            inodes: 1,
            metadata_blocks: 2,
            zones: 2,
            zone_number_limit: 1,
            log_start: BlockNo(0),
            log_blocks: 0,
            log_id: 0,
            log_position: 0,
            log_number: 0,
            log_sequence: 0,
            log_chain: 0,
            log_generation: Generation(0),
            external_log: None,
            label: self.options.label.clone(),
            features: match self.options.data_checksums {
                true => WriteFeatures::CHECKSUMS,
                false => WriteFeatures::empty(),
            },
            space_rules: None,
            in_place_since: Generation(0),
            step: 0,
            findings_root: MetaAddr::NONE,
            findings_level: 0,
            scrub: Scrub::default(),
            root_zones: vec![Some(root)],
        }
    }

    fn root_directory(&self) -> Inode {
        Inode {
            mode: 0o040_000 | (self.options.permissions & 0o7777),
            links: 2,
            uid: self.options.owner.0,
            gid: self.options.owner.1,
            size: 0,
            blocks: 0,
            incarnation: Incarnation(1),
            flags: InodeFlags::empty(),
            atime: self.options.now,
            mtime: self.options.now,
            ctime: self.options.now,
            btime: self.options.now,
            parent: InodeNo::ROOT,
            parent_incarnation: Incarnation(1),
            parent_cookie: 0,
            own_event: EventNo(0),
            born: EventNo(1),
            has_policy: false,
            rdev: 0,
            xattr_root: MetaAddr::NONE,
            content_kind: ContentKind::Empty,
            content_count: 0,
            content_level: 0,
            content: [0; INLINE_BYTES],
        }
    }

    fn block(&self, kind: BlockKind, addr: MetaAddr) -> Box<Block> {
        let tag = u32::from_le_bytes(self.options.uuid[..4].try_into().expect("four bytes"));
        let mut block = Box::new(ZERO_BLOCK);
        BlockHeader::init(&mut block, kind, 0, addr, InodeNo::NONE, Incarnation(0), tag, EventNo(0));
        block
    }

    fn write_header(&self, header: &ZoneHeader) -> Result<u32> {
        let (block, crc) = header.encode(self.generation);
        self.write(BlockNo(header.start.0 + HEADER_SLOTS[0]), &block)?;
        Ok(crc)
    }

    /// Returns the block's checksum.
    fn write_sealed(&self, at: BlockNo, block: &mut Block) -> Result<u32> {
        let crc = seal(block, self.generation);
        self.write(at, block)?;
        Ok(crc)
    }

    fn write(&self, at: BlockNo, block: &Block) -> Result<()> {
        let mut buf = AlignedBuf::zeroed(1);
        buf.copy_from_slice(block);
        Ok(self.device.write_at(at.0 * BLOCK_SIZE as u64, &buf)?)
    }
}
