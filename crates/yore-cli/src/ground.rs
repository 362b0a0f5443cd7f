//! Where something is to be made that takes a whole file or block device, and what may be there already.
//!
//! All refusals come before any change: the size is not possible, something is there already, or somebody
//! holds the file. If making a new file fails later, the file is removed.

use crate::inspect::superblock;
use crate::opened::directory_of;
use crate::output::human;
use crate::status;
use crate::volume::{self, Access};
use anyhow::Context as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use yore_device::{CreateOptions, Device, DeviceError, FileDevice, OpenOptions};

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;
/// How much of the start of a file is examined.
const HEAD: usize = 1 << 20;

/// What is to be made.
pub struct Wanted<'a> {
    /// The file or block device.
    pub path: &'a Path,
    /// What it will be, for messages: `a volume`.
    pub what: &'static str,
    /// What its file is called in messages, and an example of its name.
    pub file: (&'static str, &'static str),
    /// How long, if that was said.
    pub size: Option<u64>,
    /// How many blocks it can have.
    pub blocks: RangeInclusive<u64>,
    /// Whether what is there may be overwritten.
    pub force: bool,
    /// Whether a new file is for its owner alone.
    pub is_private: bool,
}

/// Where it is to be.
enum Found {
    /// There is nothing yet.
    Nothing,
    /// A file of this size.
    File(u64),
    BlockDevice,
}

/// Where something can be made: nothing was changed yet.
pub struct Ground<'a> {
    wanted: Wanted<'a>,
    found: Found,
    /// In whole blocks; `None` for all that there is.
    size: Option<u64>,
}

impl<'a> Ground<'a> {
    /// Looks at what is there.
    ///
    /// # Errors
    /// Why it cannot be made there.
    pub fn find(wanted: Wanted<'a>) -> anyhow::Result<Ground<'a>> {
        let found = examine(&wanted)?;
        let size = size(&wanted, &found)?;
        if !wanted.force && !matches!(found, Found::Nothing) {
            refuse_what_is_there(wanted.path, matches!(found, Found::File(_)))?;
        }
        Ok(Ground { wanted, found, size })
    }

    /// Opens it, and holds it until the device is dropped. A new file is as long as it will be, and empty.
    ///
    /// # Errors
    /// If somebody holds it, who; what the host says.
    pub fn device(&self) -> anyhow::Result<Arc<dyn Device>> {
        let path = self.wanted.path;
        let made = match (&self.found, self.size) {
            (Found::Nothing, Some(size)) => {
                // The file is private from its first moment on: who has it open keeps it open.
                let usual = CreateOptions::default();
                let mode = if self.wanted.is_private { 0o600 } else { usual.mode };
                FileDevice::create(path, size, CreateOptions { mode, ..usual })
            }
            // The size stays the same, so the file's space is not given back to the host and taken again.
            (Found::File(found), Some(size)) if *found == size && !self.wanted.force => {
                FileDevice::open(path, OpenOptions::default())
            }
            (Found::File(_) | Found::BlockDevice, Some(size)) => {
                let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
                FileDevice::create(path, size, options)
            }
            (_, None) => FileDevice::open(path, OpenOptions::default()),
        };
        match made {
            Ok(device) => Ok(Arc::new(device)),
            Err(error @ DeviceError::TooSmall { .. }) => Err(anyhow::Error::new(error)),
            Err(error) => Err(volume::explain(path, Access::Write, error)),
        }
    }

    /// Making it failed, and its device is dropped: a new file goes.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn clear(&self) -> anyhow::Result<()> {
        match self.found {
            Found::Nothing => {
                let path = self.wanted.path;
                fs::remove_file(path)
                    .with_context(|| format!("cannot remove the unfinished {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn examine(wanted: &Wanted<'_>) -> anyhow::Result<Found> {
    let name = wanted.path.display();
    match fs::metadata(wanted.path) {
        Ok(found) if found.is_file() => Ok(Found::File(found.len())),
        Ok(found) if found.file_type().is_block_device() => Ok(Found::BlockDevice),
        Ok(found) if found.is_dir() => {
            anyhow::bail!(
                "{name} is a directory; name the {} to be made, for example {name}/{}",
                wanted.file.0,
                wanted.file.1
            )
        }
        Ok(_) => anyhow::bail!("{name} is neither a file nor a block device"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = directory_of(wanted.path);
            anyhow::ensure!(
                parent.is_dir(),
                "cannot make {name}: the directory {} does not exist; make it first",
                parent.display()
            );
            Ok(Found::Nothing)
        }
        Err(error) => Err(error).with_context(|| format!("cannot look at {name}")),
    }
}

/// The size in whole blocks; `None` for all that there is.
fn size(wanted: &Wanted<'_>, found: &Found) -> anyhow::Result<Option<u64>> {
    let name = wanted.path.display();
    let size = match (wanted.size, found) {
        (Some(size), _) => size,
        (None, Found::File(size)) if *size > 0 => *size,
        (None, Found::BlockDevice) => return Ok(None),
        (None, _) => {
            return Err(status::usage(format!("{name} is to be made: say how large, for example --size 10G")))
        }
    };
    let (least, most) = (wanted.blocks.start() * BLOCK, wanted.blocks.end() * BLOCK);
    anyhow::ensure!(
        (least..=most).contains(&size),
        "{} is too {} for {}: from {} to {} are possible",
        human(size),
        if size < least { "small" } else { "large" },
        wanted.what,
        human(least),
        human(most)
    );
    Ok(Some(size - size % BLOCK))
}

/// Refuses to overwrite anything that can be recognised, and files with any content at all.
fn refuse_what_is_there(volume: &Path, is_file: bool) -> anyhow::Result<()> {
    let name = volume.display();
    let file = File::open(volume).with_context(|| format!("cannot look at {name}"))?;
    let mut head = Vec::with_capacity(HEAD);
    file.take(HEAD as u64).read_to_end(&mut head).with_context(|| format!("cannot read {name}"))?;
    let what = match recognise(&head) {
        None if holds_lost_volume(volume)? => {
            Some("a Yore volume without superblocks, which `yore check --repair` may bring back")
        }
        what => what,
    };
    if let Some(what) = what {
        anyhow::bail!("{name} holds {what}, which would be lost; give --force to overwrite it all the same");
    }
    // A device may have the remains of an earlier use; somebody wrote a file that has content.
    if is_file && head.iter().any(|byte| *byte != 0) {
        anyhow::bail!(
            "{name} is a file with content, which would be lost; give --force to overwrite it all the same"
        );
    }
    Ok(())
}

/// Whether there is a volume whose superblocks are gone.
fn holds_lost_volume(path: &Path) -> anyhow::Result<bool> {
    let options = OpenOptions { read_only: true, lock: false, ..OpenOptions::default() };
    match FileDevice::open(path, options) {
        Ok(device) => Ok(superblock::is_lost(&device)?),
        Err(DeviceError::TooSmall { .. }) => Ok(false),
        Err(error) => Err(volume::explain(path, Access::Read, error)),
    }
}

/// What the first megabyte belongs to, according to well-known magic numbers.
fn recognise(head: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    let known: [(usize, &[u8], &str); 21] = [
        (0, b"YORE\x89V\r\n", "a Yore volume"),
        (4096, b"YORE\x89V\r\n", "a Yore volume (its first superblock is damaged)"),
        (0, b"YORE\x89LA\n", "a log, of a volume or of `yore log-service`"),
        (4096, b"YORE\x89LA\n", "a log, of a volume or of `yore log-service`"),
        (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (65_600, b"_BHRfS_M", "a btrfs file system"),
        (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
        (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcachefs file system"),
        (3, b"NTFS    ", "an NTFS file system"),
        (3, b"EXFAT   ", "an exFAT file system"),
        (54, b"FAT1", "a FAT file system"),
        (82, b"FAT32", "a FAT file system"),
        (32_769, b"CD001", "an ISO 9660 image"),
        (0, b"hsqs", "a squashfs image"),
        (0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume"),
        (536, b"LVM2 001", "an LVM physical volume"),
        (4086, b"SWAPSPACE2", "a swap area"),
        (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)"),
        (512, b"EFI PART", "a partition table"),
        (0, b"QFI\xfb", "a qcow2 image"),
    ];
    let found = known.iter().find(|(offset, magic, _)| at(*offset, magic)).map(|(_, _, what)| *what);
    // If nothing more precise is there, the boot signature counts.
    found.or_else(|| at(510, b"\x55\xaa").then_some("a partition table or boot sector"))
}

#[cfg(test)]
mod tests {
    use super::recognise;

    /// Promises that what must not be overwritten by mistake is recognised, and that zeros are nothing.
    #[test]
    fn recognises() {
        let with = |offset: usize, magic: &[u8]| {
            let mut head = vec![0; 1 << 20];
            head[offset..offset + magic.len()].copy_from_slice(magic);
            recognise(&head)
        };
        assert_eq!(with(0, b"YORE\x89V\r\n"), Some("a Yore volume"));
        assert_eq!(with(0x438, &0xef53u16.to_le_bytes()), Some("an ext2, ext3 or ext4 file system"));
        assert_eq!(with(0x10040, b"_BHRfS_M"), Some("a btrfs file system"));
        assert_eq!(with(510, b"\x55\xaa"), Some("a partition table or boot sector"));
        assert_eq!(with(0, b""), None);
        assert_eq!(recognise(b"x"), None);
    }
}
