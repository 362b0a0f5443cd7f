//! Small volumes with something of everything on them, made by the file system itself.

use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::time::When;
use yore_fs::{
    Caller, Error, FallocateMode, File, FileKind, MkfsOptions, MountOptions, NewSnapshot, OpenOptions,
    Policy, RenameMode, Result, Retention, RetentionRules, SetXattrMode, Versioning, View, Volume,
};

#[path = "../../yore-fs/tests/golden/blocks.rs"]
mod blocks;

/// Bytes of the sample volumes.
pub const SIZE: u64 = 32 << 20;

/// Options of the volumes here: nothing about them is random.
pub fn mkfs_options() -> MkfsOptions {
    MkfsOptions {
        uuid: *b"a sample volume.",
        hash_seed: *b"a seed of hashes",
        label: "sample".into(),
        ..MkfsOptions::default()
    }
}

/// No generations except explicit ones, and caches whose size does not matter.
pub fn mount_options() -> MountOptions {
    MountOptions {
        commit_interval: std::time::Duration::from_secs(3600),
        metadata_cache: 8 << 20,
        data_cache: 8 << 20,
        ..MountOptions::default()
    }
}

/// The bytes of a file; they depend only on the number in its name.
pub fn content(number: u64, len: usize) -> Vec<u8> {
    let mut chance = crate::Chance::seeded(number);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&(chance.number() | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A volume with files of every kind and content, trees of each kind, attributes, and orphans of both sorts,
/// in the state after a sync and a crash.
///
/// # Errors
/// None are expected: the device is memory.
pub fn small() -> Result<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let shared: Arc<dyn Device> = device.clone();
    View::mkfs(&shared, &mkfs_options())?;
    let volume = Volume::open(shared, &mount_options())?;
    fill(&volume)?;
    let gone = File::create(&volume, "gone")?;
    gone.write_at(&content(90, 9000), 0)?;
    volume.sync()?;
    volume.remove_file("gone")?;
    volume.sync()?;
    let crashed = device.snapshot();
    drop(gone);
    volume.close()?;
    Ok(crashed)
}

/// As [`small`], with calls after the last generation that are only in the log.
///
/// # Errors
/// As [`small`].
pub fn with_intents() -> Result<MemoryDevice> {
    let device = Arc::new(small()?);
    let volume = Volume::open(device.clone(), &mount_options())?;
    volume.sync()?;
    for n in 0..6u64 {
        let path = format!("few/logged {n}");
        let file = File::create(&volume, &path)?;
        file.write_at(&content(n, 700 * n as usize + 50), 0)?;
        volume.remove_file(format!("many/{n}-{}", "n".repeat(150)))?;
        file.sync_all()?;
    }
    volume.truncate("three", 5000)?;
    let file = File::open(&volume, "three")?;
    file.sync_all()?;
    let crashed = device.snapshot();
    volume.close()?;
    Ok(crashed)
}

/// As [`with_annals`], as a program of format 2.2 made it: its past is in old trees. No program of today can
/// make it, so it is an image.
pub fn with_old_trees() -> MemoryDevice {
    blocks::unpack(include_bytes!("../../yore-fs/tests/golden/volume-2.2-sample.blocks"))
}

/// As [`small`], with a past: snapshots of the volume and of a directory, versions and past names of all
/// kinds between them, one forgotten snapshot and one that is to be forgotten.
///
/// # Errors
/// As [`small`].
pub fn with_annals() -> Result<MemoryDevice> {
    let device = Arc::new(small()?);
    let volume = Volume::open(device.clone(), &mount_options())?;
    let view = volume.view();
    let few = volume.node("few")?.inode();
    for n in 0..4u64 {
        view.take_snapshot(
            view.root(),
            &NewSnapshot { held: n == 1, wait: true, ..NewSnapshot::named(&format!("s{n}")) },
        )?;
        let scattered = OpenOptions::new().write(true).open(&volume, "scattered")?;
        scattered.write_at(&content(50 + n, 9000), n * 70_000)?;
        volume.append("inline", content(n, 40))?;
        volume.remove_file(format!("many/{n}-{}", "n".repeat(150)))?;
        volume.rename(format!("many/{}-{}", 20 + n, "n".repeat(150)), format!("few/moved {n}"))?;
        let value = content(60 + n, 3000 + 4000 * n as usize);
        view.setxattr(volume.node("three")?.inode(), b"user.large", &value, SetXattrMode::Any)?;
        if n == 2 {
            view.take_snapshot(few, &NewSnapshot { wait: true, ..NewSnapshot::named("of few") })?;
            volume.remove_file("long link")?;
        }
    }
    let rules = RetentionRules { last: 1000, within: "9y".into(), ..RetentionRules::default() };
    let close = Policy {
        versioning: Some(Versioning::Close),
        retention: Some(Retention::Rules(rules)),
        ..Policy::default()
    };
    view.set_policy(few, &close)?;
    for text in ["once", "twice"] {
        volume.write("few/saved", text)?;
    }
    let hourly = Policy { versioning: Some(Versioning::Interval(3_600_000_000_000)), ..Policy::default() };
    view.set_policy(volume.node("many")?.inode(), &hourly)?;
    view.index_history(u64::MAX)?;
    let named = |name: &str| view.event_for(view.root(), &When::Named(name.into()));
    view.forget(&[named("s0")?])?;
    view.finish_forgetting(&mut |_| ControlFlow::Continue(()))?;
    view.forget(&[named("s2")?])?;
    volume.sync()?;
    let crashed = device.snapshot();
    volume.close()?;
    Ok(crashed)
}

/// As [`with_old_trees`], and more of a past in annals.
///
/// # Errors
/// As [`small`].
pub fn with_old_trees_and_annals() -> Result<MemoryDevice> {
    let device = Arc::new(with_old_trees());
    let volume = Volume::open(device.clone(), &mount_options())?;
    let view = volume.view();
    for n in 10..12u64 {
        view.take_snapshot(view.root(), &NewSnapshot::named(&format!("s{n}")))?;
        volume.append("inline", content(n, 20))?;
        volume.remove_file(format!("few/moved {}", n - 10))?;
        volume.remove_file(format!("many/{n}-{}", "n".repeat(150)))?;
        if n == 10 {
            // The rows of the second round have no keys yet.
            view.index_history(u64::MAX)?;
        }
    }
    volume.sync()?;
    let crashed = device.snapshot();
    volume.close()?;
    Ok(crashed)
}

/// As [`small`], with so many attributes that its group has further zones.
///
/// # Errors
/// As [`small`].
pub fn with_further_zones() -> Result<MemoryDevice> {
    let device = Arc::new(small()?);
    let volume = Volume::open(device.clone(), &mount_options())?;
    volume.create_dir("attributes")?;
    for n in 0..28 {
        let path = format!("attributes/{n}");
        volume.write(&path, "")?;
        let inode = volume.node(&path)?.inode();
        volume.view().setxattr(inode, b"user.large", &content(n, 65_536), SetXattrMode::Any)?;
    }
    volume.close()?;
    Ok(device.snapshot())
}

fn fill(volume: &Volume) -> Result<()> {
    let view = volume.view();
    let caller = Caller::superuser();
    volume.write("empty", "")?;
    volume.write("inline", content(1, 90))?;
    volume.write("one", content(2, 4096))?;
    volume.write("three", content(3, 12_000))?;
    // More extents than an inode holds, so a tree; enough for two levels.
    let file = File::create(volume, "scattered")?;
    for n in 0..140u64 {
        let mode = FallocateMode::Allocate { keep_size: false };
        match n % 3 {
            0 => view.fallocate(file.inode(), n * 8192, 4096, mode)?,
            _ => drop(file.write_at(&content(n, 4096), n * 8192)?),
        }
    }
    file.sync_all()?;
    volume.symlink("three", "short link")?;
    volume.symlink(std::str::from_utf8(&[b'x'; 3000]).map_err(|_| Error::NotFound)?, "long link")?;
    volume.create_dir("few")?;
    volume.create_dir("few/sub")?;
    volume.write("few/a", "a")?;
    volume.hard_link("few/a", "few/b")?;
    volume.create_dir("many")?;
    for n in 0..90 {
        let name = format!("many/{n}-{}", "n".repeat(150));
        volume.write(&name, content(n, (n % 5) as usize * 40))?;
    }
    let root = view.root();
    view.create(&caller, root, b"fifo", FileKind::Fifo, 0o600, 0)?;
    view.create(&caller, root, b"device", FileKind::CharDevice, 0o600, 0x103)?;
    let attributes = volume.node("three")?.inode();
    view.setxattr(attributes, b"user.small", b"value", SetXattrMode::Any)?;
    view.setxattr(attributes, b"user.large", &content(7, 9000), SetXattrMode::Any)?;
    view.setxattr(attributes, b"trusted.t", b"", SetXattrMode::Any)?;
    view.setxattr(volume.node("few")?.inode(), b"user.dir", b"of a directory", SetXattrMode::Any)?;
    volume.rename_with("empty", "none", RenameMode::NoReplace)?;
    volume.sync()
}
