//! Promise: late data of an open volume never comes over newer bytes of the same block, whoever wrote them;
//! and a sync leaves all of it on the medium.

use std::sync::Arc;
use std::time::Duration;
use yore_device::{AlignedBuf, Device, MemoryDevice, SharedBuf, BLOCK_SIZE};
use yore_format::{Engine, Timestamp};
use yore_meta::{mkfs, Durability, Meta, MetaOptions, MkfsOptions};

/// Blocks of the data area that nothing else uses.
const WRITTEN: u64 = 3000;
const ONLY_LATE: u64 = 3001;

/// What the medium has of both blocks, when one was late and then written directly, and the other only late.
fn medium_has() -> (u8, u8) {
    let device: Arc<MemoryDevice> = Arc::new(MemoryDevice::new(32 << 20));
    let options = MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: "test".into(),
        engine: Engine::Snapshot,
        owner: (0, 0),
        permissions: 0o755,
        now: Timestamp::default(),
        log_blocks: 64,
        log_device: None,
        data_checksums: false,
        force: false,
    };
    mkfs(&*device, &options).unwrap();
    let options = MetaOptions {
        read_only: false,
        engine: None,
        cache_bytes: 8 << 20,
        commit_interval: Duration::from_secs(3600),
        durability: Durability::Async,
        log: yore_meta::LogPlace::Recorded,
        part_leaves: 0,
    };
    let meta = Meta::open(device.clone(), options).unwrap();
    let block = |byte| SharedBuf::new(AlignedBuf::from_slice(&[byte; BLOCK_SIZE]));
    let (older, other) = (block(1), block(3));
    assert!(meta.write_later(&[(WRITTEN, &older), (ONLY_LATE, &other)]).unwrap());
    meta.device().write_at(WRITTEN * BLOCK_SIZE as u64, &block(2)).unwrap();
    meta.sync().unwrap();
    let read = |block| {
        let mut found = AlignedBuf::zeroed(1);
        device.read_at(block * BLOCK_SIZE as u64, &mut found).unwrap();
        found[0]
    };
    (read(WRITTEN), read(ONLY_LATE))
}

#[test]
fn newer_bytes_stay_and_late_ones_arrive() {
    assert_eq!(medium_has(), (2, 3));
    // The test finds engines that are wrong.
    #[cfg(feature = "mutations")]
    {
        use yore_meta::mutation::{set, Mutation};
        set(Mutation::LateOverwritten);
        let overwritten = medium_has();
        set(Mutation::LateLeftOut);
        let left_out = medium_has();
        set(Mutation::None);
        assert_eq!((overwritten, left_out), ((1, 3), (2, 0)));
    }
}
