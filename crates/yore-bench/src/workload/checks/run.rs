//! What the measures of [`Checks`] have in common: their parameters, and their outcome.

use super::ageing::Tree;
use crate::report::{LeftOut, Table};
use crate::rival::{drop_caches, make_directory};
use crate::target::LibraryTarget;
use crate::workload::lines::Line;
use crate::workload::postmark::PostMark;
use crate::{BenchError, CompareOptions, Result};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strum::{EnumString, IntoStaticStr, VariantArray};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, FileDevice, OpenOptions, BLOCK_SIZE};
use yore_fs::{Engine, MountOptions, View};

/// Rows of [`Checks`] that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum CheckPart {
    /// A whole volume beside e2fsck, on the real disk.
    Whole,
    /// A volume that gets a past, on the real disk.
    Past,
    /// The same as the first on a simulated disk, while the volume ages.
    Slow,
    /// How the time depends on how much data there is.
    Data,
    /// Memory for each inode.
    Memory,
    /// What blocks with two owners cost.
    Claims,
    /// Work beside a check of the volume in use.
    Live,
    /// What checksums of file data cost.
    Checksums,
    /// What it gives and costs to keep metadata together.
    Layout,
}

impl CheckPart {
    /// All, in the order in which they run.
    pub const ALL: &[CheckPart] = CheckPart::VARIANTS;

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The part of that name.
    pub fn from_name(name: &str) -> Option<CheckPart> {
        name.parse().ok()
    }
}

/// The checker, and what its volumes are like, beside others.
#[derive(Clone, Debug)]
pub struct Checks {
    /// What is measured.
    pub parts: Vec<CheckPart>,
    /// Files of 500 bytes to 16 KiB of the tree that is checked.
    pub files: usize,
    /// Files of 4 KiB to 2 MiB among them.
    pub large: usize,
    /// Levels of ageing on the simulated disk.
    pub levels: usize,
    /// Files of the volume whose checker's memory is measured.
    pub inodes: usize,
    /// Blocks that get a second owner.
    pub claims: usize,
    /// What is done beside a check, and with checksums of file data.
    pub postmark: PostMark,
    /// Bytes of the file that is written and read with checksums.
    pub stream_bytes: u64,
    /// The share of the sizes that the paper had for its figures on layout.
    pub layout: f64,
    /// Decides sizes and places.
    pub seed: u64,
}

impl Checks {
    /// As large as the goals are meant.
    pub fn full() -> Checks {
        Checks {
            parts: CheckPart::ALL.to_vec(),
            files: 200_000,
            large: 3000,
            levels: 3,
            inodes: 1_000_000,
            claims: 100,
            postmark: PostMark::default(),
            stream_bytes: 1 << 30,
            layout: 1.0,
            seed: 42,
        }
    }

    /// A sample of each, for a few minutes on two processors.
    pub fn quick() -> Checks {
        Checks {
            files: 20_000,
            large: 300,
            inodes: 100_000,
            postmark: PostMark { transactions: 20_000, files: 5000, directories: 100, ..PostMark::default() },
            stream_bytes: 128 << 20,
            layout: 0.1,
            ..Checks::full()
        }
    }

    pub(super) fn tree(&self) -> Tree {
        Tree { files: self.files, large: self.large, seed: self.seed }
    }
}

/// What a measure needs to know of the run.
pub(super) struct Run<'r> {
    pub(super) checks: &'r Checks,
    pub(super) options: &'r CompareOptions,
    pub(super) dir: &'r Path,
    /// Whether the host's caches can be dropped.
    pub(super) cold: bool,
}

/// What a measure has found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) lines: Vec<Line>,
    pub(super) tables: Vec<Table>,
    /// What was not measured, and why.
    pub(super) left_out: Vec<LeftOut>,
    pub(super) notes: Vec<String>,
}

impl From<Vec<Line>> for Found {
    fn from(lines: Vec<Line>) -> Found {
        Found { lines, ..Found::default() }
    }
}

impl Run<'_> {
    /// The rounds, until somebody stops the run.
    pub(super) fn rounds(&self) -> impl Iterator<Item = Result<usize>> + '_ {
        (0..self.options.rounds).map(|round| self.options.check_stop().map(|()| round))
    }

    /// A directory of its own for a measure, removed when dropped.
    pub(super) fn directory(&self, name: &str) -> Result<Directory> {
        let path = self.dir.join(name);
        make_directory(&path)?;
        Ok(Directory { path })
    }

    /// Drops the host's caches if that is possible.
    pub(super) fn chill(&self) -> Result<()> {
        if self.cold {
            drop_caches()
        } else {
            Ok(())
        }
    }
}

/// A directory with images, which may be large: it goes with this.
pub(super) struct Directory {
    pub(super) path: PathBuf,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // It is in the directory of the run, which is removed with an error if that fails.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Keeps the blocks of zeros that are written as holes: a volume may hold more than the host has room for.
#[derive(Debug)]
pub(super) struct ZerosAsHoles;

impl Hook for ZerosAsHoles {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> std::result::Result<(), DeviceError> {
        match request {
            Request::Write { offset, bufs } if bufs.iter().all(|buf| is_zero(buf)) => {
                below.erase(offset, bufs.iter().map(|buf| buf.len() as u64).sum())
            }
            request => request.pass(below),
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().all(|block| *block == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

/// Makes a volume of `bytes` in an image file, has something done in it, and closes it. Files of zeros take
/// no space on the host.
pub(super) fn make_volume(
    image: &Path,
    bytes: u64,
    work: impl FnOnce(&LibraryTarget) -> Result<()>,
) -> Result<()> {
    let failed = || BenchError::system(format!("making {}", image.display()));
    File::create_new(image).and_then(|file| file.set_len(bytes)).map_err(failed())?;
    let device: Arc<dyn Device> =
        Arc::new(Wrapped::new(FileDevice::open(image, OpenOptions::default())?, ZerosAsHoles));
    crate::rival::library::mkfs(&device, Engine::Snapshot, Some(7))?;
    // It has the image locked.
    drop(device);
    change_volume(image, work)
}

/// Opens such a volume, has something done in it, and closes it.
pub(super) fn change_volume(image: &Path, work: impl FnOnce(&LibraryTarget) -> Result<()>) -> Result<()> {
    let device: Arc<dyn Device> =
        Arc::new(Wrapped::new(FileDevice::open(image, OpenOptions::default())?, ZerosAsHoles));
    let options = MountOptions { access_times: false, ..MountOptions::default() };
    let view = View::open(device, &options).map_err(BenchError::library("opening the volume"))?;
    let target = LibraryTarget::new(view);
    let done = work(&target);
    target.view().close().map_err(BenchError::library("closing the volume"))?;
    done
}

/// Copies an image file; what is zero in it is a hole in the copy.
pub(super) fn copy_image(from: &Path, to: &Path) -> Result<()> {
    let failed = || BenchError::system(format!("copying {}", from.display()));
    let (source, copy) = (File::open(from).map_err(failed())?, File::create_new(to).map_err(failed())?);
    let length = source.metadata().map_err(failed())?.len();
    copy.set_len(length).map_err(failed())?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    // After the last bytes there are none to seek.
    while let Ok(data) = rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(data))
            .map_err(|error| failed()(error.into()))?;
        at = data;
        while at < end {
            let piece = &mut buffer[..(end - at).min(1 << 20) as usize];
            source.read_exact_at(piece, at).map_err(failed())?;
            for (i, block) in piece.chunks(BLOCK_SIZE).enumerate().filter(|(_, block)| !is_zero(block)) {
                copy.write_all_at(block, at + (i * BLOCK_SIZE) as u64).map_err(failed())?;
            }
            at += piece.len() as u64;
        }
    }
    copy.sync_all().map_err(failed())
}
