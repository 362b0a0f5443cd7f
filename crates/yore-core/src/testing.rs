//! What unit tests of this crate and of the crates above use: a volume in memory, and random numbers that are
//! the same everywhere.

use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_format::{Engine, GroupNo, Timestamp};
use yore_meta::{Durability, Meta, MetaError, MetaOptions, Reserved};

/// Makes a volume that is the same each time.
pub fn format(device: &dyn Device, log_blocks: u64) {
    let options = yore_meta::MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: String::new(),
        engine: Engine::Snapshot,
        owner: (0, 0),
        permissions: 0o755,
        now: Timestamp::default(),
        log_blocks,
        log_device: None,
        data_checksums: false,
        force: false,
    };
    yore_meta::mkfs(device, &options).unwrap();
}

/// A volume without files, and the group near which its metadata goes.
pub struct Ground {
    /// Its metadata.
    pub meta: Arc<Meta>,
    device: Arc<dyn Device>,
    group: GroupNo,
}

fn open(device: &Arc<dyn Device>) -> Arc<Meta> {
    let options = MetaOptions {
        read_only: false,
        engine: None,
        cache_bytes: 64 << 20,
        commit_interval: Duration::from_secs(3600),
        durability: Durability::Async,
        log: yore_meta::LogPlace::Recorded,
        part_leaves: 0,
    };
    Meta::open(device.clone(), options).unwrap()
}

impl Ground {
    /// A volume of 8 GiB in memory.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Ground {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 27));
        format(&*device, yore_meta::default_log_blocks(4096));
        Ground { meta: open(&device), device, group: GroupNo(0) }
    }

    /// Closes the volume and opens it again, with nothing in memory.
    pub fn reopen(&mut self) {
        self.meta.close().unwrap();
        self.meta = open(&self.device);
    }

    /// Reserves metadata blocks, and makes zones if need be.
    pub fn reserve(&mut self, blocks: u32) -> Reserved {
        loop {
            match self.meta.reserve(self.group, blocks) {
                Ok(reserved) => return reserved,
                Err(MetaError::NeedZone { .. }) => {
                    self.group.0 += 1;
                    self.meta.prepare_group(self.group).unwrap();
                    let mut op = self.meta.begin(Reserved::none());
                    op.create_primary_zone(self.group);
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// Xorshift: the same numbers for the same seed everywhere.
pub struct Random(pub u64);

impl Random {
    /// The next number, less than `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}
