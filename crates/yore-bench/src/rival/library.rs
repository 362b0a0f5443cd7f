//! Making Yore's volumes, and opening them in this process.

use super::host::make_image;
use super::kind::Ours;
use super::state::{Measured, Rival, ServedBy};
use crate::target::LibraryTarget;
use crate::{BenchError, Result};
use std::path::Path;
use std::sync::Arc;
use yore_device::{Device, FileDevice, OpenOptions};
use yore_fs::{Durability, Engine, LogDevice, MkfsOptions, MountOptions, View};

/// A volume for measuring, on a device that holds none.
pub(crate) fn mkfs(device: &Arc<dyn Device>, engine: Engine, seed: Option<u8>) -> Result<()> {
    mkfs_with(device, engine, seed, None, false)
}

/// The same, perhaps with the log on a device of its own, perhaps with checksums of file data.
pub(crate) fn mkfs_with(
    device: &Arc<dyn Device>,
    engine: Engine,
    seed: Option<u8>,
    journal: Option<LogDevice>,
    data_checksums: bool,
) -> Result<()> {
    let bytes = || seed.map_or_else(rand::random, |seed| [seed; 16]);
    let options = MkfsOptions {
        uuid: bytes(),
        hash_seed: bytes(),
        label: "bench".into(),
        engine,
        owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        permissions: 0o755,
        journal,
        data_checksums,
        ..MkfsOptions::default()
    };
    View::mkfs(device, &options).map(drop).map_err(BenchError::library("making the volume"))
}

/// The same in an image file.
pub(crate) fn mkfs_in(image: &Path, engine: Engine) -> Result<()> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image, OpenOptions::default())?);
    mkfs(&device, engine, None)
}

/// Opens the volume in an image file.
pub(crate) fn open(image: &Path) -> Result<View> {
    open_with(image, &MountOptions::default())
}

/// The same with these options.
pub(crate) fn open_with(image: &Path, options: &MountOptions) -> Result<View> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image, OpenOptions::default())?);
    View::open(device, options).map_err(BenchError::library("opening the volume"))
}

impl Rival {
    pub(super) fn make_volume(&mut self, ours: Ours) -> Result<()> {
        let image = self.image();
        make_image(&image, &self.env)?;
        self.version = Some(format!("yore {}", env!("CARGO_PKG_VERSION")));
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&image, OpenOptions::default())?);
        mkfs_with(&device, ours.engine, None, None, ours.keeps_checksums)
    }

    pub(super) fn attach_library(&mut self, durability: Durability) -> Result<()> {
        let options = MountOptions { durability, ..MountOptions::default() };
        self.measured = Measured::Library(LibraryTarget::new(open_with(&self.image(), &options)?));
        self.served_by = ServedBy::Library;
        Ok(())
    }
}
