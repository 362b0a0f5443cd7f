//! A device in memory: sparse, sharded, with snapshots that cost next to nothing.
//!
//! Blocks hang in radix trees with 64 children per node. A node or block that is shared with a snapshot is
//! copied when it is first written (`Arc::make_mut`), along the path from the root only, so a snapshot is a
//! handful of reference counts and writing to it costs what is written. Absent means zeros: a device of
//! 64 TiB costs nothing until it is used.
//!
//! There are [`SHARDS`] trees, each behind its own lock. A *stripe* of 64 blocks is one leaf and lives in one
//! shard; neighbouring stripes live in different shards, so that threads working in different places seldom
//! meet. No call holds two locks, except a snapshot, which takes all of them in order.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::device::{check_range, checked_len};
use crate::{Device, DeviceError, HostError, Operation, BLOCK_SIZE};

/// How many independently locked trees there are.
const SHARDS: u64 = 32;
/// Children of a node, and blocks of a stripe.
const FAN_OUT: usize = 64;
const FAN_OUT_BITS: u32 = FAN_OUT.trailing_zeros();

/// The contents of one block.
pub(crate) type Block = [u8; BLOCK_SIZE];

/// A node of a radix tree: blocks at the bottom, nodes above.
#[derive(Clone)]
enum Node {
    Stripe([Option<Arc<Block>>; FAN_OUT]),
    Inner([Option<Arc<Node>>; FAN_OUT]),
}

type Root = Option<Arc<Node>>;

/// A sparse block device in memory. Cloning the handle is done by `Arc`; copying the contents by
/// [`MemoryDevice::snapshot`].
pub struct MemoryDevice {
    size: u64,
    /// Levels of inner nodes above the stripes; the same in all shards.
    height: u32,
    /// As [`Device::blocks_gone_by`].
    gone_by: u64,
    /// Lock order: ascending, and only a snapshot takes more than one.
    shards: Box<[RwLock<Root>]>,
}

impl MemoryDevice {
    /// A device of `size` bytes of zeros. Takes memory only for what is written.
    ///
    /// # Panics
    /// If `size` is not a multiple of [`BLOCK_SIZE`].
    pub fn new(size: u64) -> Self {
        assert!(
            size.is_multiple_of(BLOCK_SIZE as u64),
            "a device of {size} bytes is not a whole number of {BLOCK_SIZE}-byte blocks"
        );
        let stripes = (size / BLOCK_SIZE as u64).div_ceil(FAN_OUT as u64);
        let per_shard = stripes.div_ceil(SHARDS);
        let mut height = 0;
        let mut covered: u64 = 1;
        while covered < per_shard {
            covered <<= FAN_OUT_BITS;
            height += 1;
        }
        MemoryDevice { size, height, gone_by: 0, shards: (0..SHARDS).map(|_| RwLock::new(None)).collect() }
    }

    /// The same, and it says that so many blocks go by ([`Device::blocks_gone_by`]), as do snapshots of it.
    pub fn turning(self, blocks: u64) -> Self {
        MemoryDevice { gone_by: blocks, ..self }
    }

    /// A device that holds `bytes`, filled up with zeros to a whole number of blocks.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let size = bytes.len().next_multiple_of(BLOCK_SIZE) as u64;
        let device = Self::new(size);
        for (index, chunk) in bytes.chunks(BLOCK_SIZE).enumerate() {
            device.set_from_slice(index as u64, chunk);
        }
        device
    }

    /// A device that holds what the file at `path` holds (a golden image, say), filled up with zeros to a
    /// whole number of blocks. Blocks of zeros take no memory.
    ///
    /// # Errors
    /// [`DeviceError::NotFound`], or [`DeviceError::Io`] if the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => DeviceError::NotFound { device: name.clone() },
            _ => DeviceError::OpenFailed {
                operation: Operation::Open,
                device: name.clone(),
                source: HostError::from(&error),
            },
        };
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let device = Self::new(size.next_multiple_of(BLOCK_SIZE as u64));
        for index in 0..device.size / BLOCK_SIZE as u64 {
            let mut block = Vec::with_capacity(BLOCK_SIZE);
            let mut limited = Read::take(&mut file, BLOCK_SIZE as u64);
            limited.read_to_end(&mut block).map_err(failed)?;
            device.set_from_slice(index, &block);
        }
        Ok(device)
    }

    /// Writes the whole contents to a new file at `path`, replacing what was there; blocks of zeros become
    /// holes.
    ///
    /// # Errors
    /// [`DeviceError::Io`] or [`DeviceError::NoSpace`] from the host.
    pub fn write_to_file(&self, path: impl AsRef<Path>) -> Result<(), DeviceError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let result = (|| {
            let mut file = std::fs::File::create(path)?;
            file.set_len(self.size)?;
            for index in 0..self.size / BLOCK_SIZE as u64 {
                if let Some(block) = self.block(index) {
                    let offset = index * BLOCK_SIZE as u64;
                    io::Seek::seek(&mut file, io::SeekFrom::Start(offset))?;
                    file.write_all(&block[..])?;
                }
            }
            file.sync_all()
        })();
        result.map_err(|error: io::Error| {
            let source = HostError::from(&error);
            DeviceError::from_host(Operation::Create, 0, self.size, &name, source)
        })
    }

    /// An independent device with the contents of this moment. Costs some dozen reference counts now, and
    /// a copy of each block (and of the path to it) that either of the two writes later. A write that is
    /// under way in another thread may be in the snapshot in part, block by block.
    pub fn snapshot(&self) -> MemoryDevice {
        let guards: Vec<_> = self.shards.iter().map(|shard| shard.read()).collect();
        MemoryDevice {
            size: self.size,
            height: self.height,
            gone_by: self.gone_by,
            shards: guards.iter().map(|root| RwLock::new((*root).clone())).collect(),
        }
    }

    /// The whole contents as one vector. For devices that fit into memory twice.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        for (index, chunk) in bytes.chunks_mut(BLOCK_SIZE).enumerate() {
            if let Some(block) = self.block(index as u64) {
                chunk.copy_from_slice(&block[..]);
            }
        }
        bytes
    }

    /// The byte offset of the first block in which two devices of one size differ, if they do. Parts that
    /// they share are not looked at, so comparing a snapshot with its origin costs what was changed.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn first_difference(&self, other: &MemoryDevice) -> Option<u64> {
        assert_eq!(self.size, other.size, "devices of different sizes");
        let (left, right) = (self.snapshot(), other.snapshot());
        let mut first: Option<u64> = None;
        for shard in 0..SHARDS {
            let mut found = |key: u64| {
                let (stripe, within) = (key >> FAN_OUT_BITS, key % FAN_OUT as u64);
                let block = (stripe * SHARDS + shard) * FAN_OUT as u64 + within;
                let offset = block * BLOCK_SIZE as u64;
                first = Some(first.map_or(offset, |known| known.min(offset)));
            };
            let a = left.shards[shard as usize].read();
            let b = right.shards[shard as usize].read();
            difference(a.as_ref(), b.as_ref(), 0, &mut found);
        }
        first
    }

    /// The contents of one block, or `None` for a block of zeros that takes no memory.
    pub(crate) fn block(&self, index: u64) -> Option<Arc<Block>> {
        let position = Position::of(index);
        let root = self.shards[position.shard].read();
        stripe(root.as_ref(), self.height, position.stripe)?[position.within].clone()
    }

    /// Replaces one block without copying it; `None` makes it zeros.
    pub(crate) fn set_block(&self, index: u64, block: Option<Arc<Block>>) {
        let position = Position::of(index);
        let mut root = self.shards[position.shard].write();
        if block.is_some() || root.is_some() {
            stripe_mut(&mut root, self.height, position.stripe)[position.within] = block;
        }
    }

    /// Changes some bytes inside one block.
    pub(crate) fn patch(&self, index: u64, within: usize, bytes: &[u8]) {
        let position = Position::of(index);
        let mut root = self.shards[position.shard].write();
        let slot = &mut stripe_mut(&mut root, self.height, position.stripe)[position.within];
        let block = slot.get_or_insert_with(zeros);
        Arc::make_mut(block)[within..within + bytes.len()].copy_from_slice(bytes);
    }

    /// Stores up to one block of bytes at a block whose rest is zeros; zeros take no memory.
    fn set_from_slice(&self, index: u64, bytes: &[u8]) {
        if bytes.iter().any(|&byte| byte != 0) {
            self.patch(index, 0, bytes);
        }
    }

    /// Calls `step` with each stripe that a range touches: its place, and the bytes of the range before it.
    fn for_stripes(offset: u64, len: usize, mut step: impl FnMut(Position, usize, usize)) {
        let mut done = 0;
        while done < len {
            let position = Position::of((offset + done as u64) / BLOCK_SIZE as u64);
            let room = (FAN_OUT - position.within) * BLOCK_SIZE;
            let now = room.min(len - done);
            step(position, done, now);
            done += now;
        }
    }
}

/// Where a block hangs.
struct Position {
    shard: usize,
    /// The stripe's number within its shard.
    stripe: u64,
    /// The block's number within its stripe.
    within: usize,
}

impl Position {
    fn of(block: u64) -> Self {
        let stripe = block / FAN_OUT as u64;
        Position {
            shard: (stripe % SHARDS) as usize,
            stripe: stripe / SHARDS,
            within: (block % FAN_OUT as u64) as usize,
        }
    }
}

/// A range of blocks as the trees of one shard see it.
struct ShardRange {
    shard: u64,
    /// The first block, and the block after the last.
    blocks: std::ops::Range<u64>,
}

impl ShardRange {
    fn of(shard: u64, first: u64, count: u64) -> Self {
        ShardRange { shard, blocks: first..first + count }
    }

    /// The blocks of the device that the stripes `stripes` of this shard span, with what lies between them.
    fn span(&self, stripes: std::ops::Range<u64>) -> std::ops::Range<u64> {
        let first = |stripe: u64| {
            stripe.saturating_mul(SHARDS).saturating_add(self.shard).saturating_mul(FAN_OUT as u64)
        };
        first(stripes.start)..first(stripes.end - 1).saturating_add(FAN_OUT as u64)
    }
}

/// Drops the blocks of a range from a tree. `prefix` is the number of this node among those of its level;
/// whole subtrees within the range are dropped at once, and those outside it are not looked at.
fn clear(root: &mut Root, level: u32, prefix: u64, range: &ShardRange) {
    let Some(node) = root else {
        return;
    };
    let stripes = prefix << (FAN_OUT_BITS * level)..(prefix + 1) << (FAN_OUT_BITS * level);
    let span = range.span(stripes);
    if span.end <= range.blocks.start || range.blocks.end <= span.start {
        return;
    }
    if range.blocks.start <= span.start && span.end <= range.blocks.end {
        *root = None;
        return;
    }
    match Arc::make_mut(node) {
        Node::Stripe(blocks) => {
            for (slot, number) in blocks.iter_mut().zip(span) {
                if range.blocks.contains(&number) {
                    *slot = None;
                }
            }
        }
        Node::Inner(children) => {
            for (index, child) in children.iter_mut().enumerate() {
                let number = (prefix << FAN_OUT_BITS) | index as u64;
                clear(child, level - 1, number, range);
            }
        }
    }
}

fn zeros() -> Arc<Block> {
    Arc::new([0; BLOCK_SIZE])
}

/// Which child of a node at `level` (stripes are level 0) leads to a stripe.
fn child_index(stripe: u64, level: u32) -> usize {
    (stripe >> (FAN_OUT_BITS * (level - 1))) as usize % FAN_OUT
}

/// Finds a stripe, if anything was ever written to it.
fn stripe(root: Option<&Arc<Node>>, height: u32, number: u64) -> Option<&[Option<Arc<Block>>]> {
    let mut node = root?;
    let mut level = height;
    loop {
        match &**node {
            Node::Stripe(blocks) => return Some(blocks),
            Node::Inner(children) => {
                node = children[child_index(number, level)].as_ref()?;
                level -= 1;
            }
        }
    }
}

/// Finds or makes a stripe for writing; copies what is shared on the way to it.
fn stripe_mut(root: &mut Root, height: u32, number: u64) -> &mut [Option<Arc<Block>>] {
    let mut slot = root;
    let mut level = height;
    loop {
        let node = slot.get_or_insert_with(|| {
            Arc::new(match level {
                0 => Node::Stripe([const { None }; FAN_OUT]),
                _ => Node::Inner([const { None }; FAN_OUT]),
            })
        });
        match Arc::make_mut(node) {
            Node::Stripe(blocks) => return blocks,
            Node::Inner(children) => {
                slot = &mut children[child_index(number, level)];
                level -= 1;
            }
        }
    }
}

/// Reports the keys (stripe and block within it) at which two trees of one height differ.
fn difference(a: Option<&Arc<Node>>, b: Option<&Arc<Node>>, prefix: u64, found: &mut dyn FnMut(u64)) {
    let same = match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    if same {
        return;
    }
    for index in 0..FAN_OUT {
        let key = (prefix << FAN_OUT_BITS) | index as u64;
        let inner = |node: Option<&Arc<Node>>| match node.map(|node| &**node) {
            Some(Node::Inner(children)) => children[index].clone(),
            _ => None,
        };
        let block = |node: Option<&Arc<Node>>| match node.map(|node| &**node) {
            Some(Node::Stripe(blocks)) => blocks[index].clone(),
            _ => None,
        };
        difference(inner(a).as_ref(), inner(b).as_ref(), key, found);
        let differs = match (block(a), block(b)) {
            (None, None) => false,
            (Some(a), Some(b)) => !Arc::ptr_eq(&a, &b) && a != b,
            (Some(some), None) | (None, Some(some)) => some.iter().any(|&byte| byte != 0),
        };
        if differs {
            found(key);
        }
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.size)
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "memory".to_string()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, checked_len(buf))?;
        Self::for_stripes(offset, buf.len(), |position, done, len| {
            let root = self.shards[position.shard].read();
            let chunks = buf[done..done + len].chunks_mut(BLOCK_SIZE);
            match stripe(root.as_ref(), self.height, position.stripe) {
                None => chunks.for_each(|chunk| chunk.fill(0)),
                Some(blocks) => {
                    for (chunk, block) in chunks.zip(&blocks[position.within..]) {
                        match block {
                            Some(block) => chunk.copy_from_slice(&block[..]),
                            None => chunk.fill(0),
                        }
                    }
                }
            }
        });
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, checked_len(buf))?;
        Self::for_stripes(offset, buf.len(), |position, done, len| {
            let mut root = self.shards[position.shard].write();
            let blocks = stripe_mut(&mut root, self.height, position.stripe);
            let chunks = buf[done..done + len].chunks(BLOCK_SIZE);
            for (chunk, slot) in chunks.zip(&mut blocks[position.within..]) {
                match slot.as_mut().and_then(Arc::get_mut) {
                    Some(block) => block.copy_from_slice(chunk),
                    None => {
                        let mut block = zeros();
                        Arc::make_mut(&mut block).copy_from_slice(chunk);
                        *slot = Some(block);
                    }
                }
            }
        });
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(self, Operation::Discard, offset, len)?;
        for shard in 0..SHARDS {
            let mut root = self.shards[shard as usize].write();
            let range = ShardRange::of(shard, offset / BLOCK_SIZE as u64, len / BLOCK_SIZE as u64);
            clear(&mut root, self.height, 0, &range);
        }
        Ok(())
    }

    fn blocks_gone_by(&self, _next: u64) -> u64 {
        self.gone_by
    }
}
