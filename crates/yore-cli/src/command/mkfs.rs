//! `mkfs`: makes a volume, but not over something that somebody wants to keep.
//!
//! Everything that can be refused is refused before anything changes: because of the size, of what is there,
//! or of who holds it. A new image file that could not be made into a volume is removed again.

use super::policy;
use crate::args;
use crate::live;
use crate::opened::directory_of;
use crate::output::{human, Out};
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use anyhow::Context as _;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use yore_device::{CreateOptions, Device, DeviceError, FileDevice, OpenOptions};
use yore_format::layout::{VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use yore_fs::{MkfsOptions, MountOptions, Policy, View};

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;
/// How much of the start of a file is examined.
const HEAD: usize = 1 << 20;

/// Where the volume is to be.
enum Ground {
    /// There is nothing yet.
    Nothing,
    /// A file of this size.
    File(u64),
    BlockDevice,
}

/// Makes a volume.
pub fn run(args: &args::Mkfs) -> Outcome {
    let name = args.volume.display();
    let ground = examine(&args.volume)?;
    let size = size(args, &ground)?;
    if !args.force && !matches!(ground, Ground::Nothing) {
        refuse_what_is_there(&args.volume, matches!(ground, Ground::File(_)))?;
    }
    if args.label.len() > 64 {
        return Err(status::usage(format!(
            "the label has {} bytes; at most 64 are possible",
            args.label.len()
        )));
    }
    let policy = match args.policy.as_deref() {
        None => MkfsOptions::usual_policy(),
        Some(settings) => policy::of_new_volume(settings)?,
    };
    let rules =
        super::history::changed(yore_fs::DEFAULT_RULES, args.history_floor.as_deref(), args.history_share)?;
    let is_new = matches!(ground, Ground::Nothing);
    live::wait_until_closed(&args.volume);
    let device: Arc<dyn Device> = device(args, &ground, size)?;
    let defaults = MkfsOptions::default();
    let options = MkfsOptions {
        uuid: args.uuid.map_or(defaults.uuid, |uuid| uuid.into_bytes()),
        label: args.label.clone(),
        engine: args.engine.into(),
        log_size: args.log_size,
        policy: policy.clone(),
        // What is there was checked above, and may be overwritten.
        force: true,
        ..defaults
    };
    let made = View::mkfs(&device, &options).and_then(|info| {
        if let Some(rules) = rules {
            let view = View::open(device.clone(), &MountOptions::default())?;
            view.set_space_rules(rules)?;
            view.close()?;
        }
        Ok(info)
    });
    let info = match made {
        Ok(info) => info,
        Err(error) => {
            drop(device);
            if is_new {
                fs::remove_file(&args.volume)
                    .with_context(|| format!("cannot remove the unfinished {name}"))?;
            }
            return Err(error).with_context(|| format!("cannot make a volume on {name}"));
        }
    };
    let mut out = Out::new();
    let label = if info.label.is_empty() { String::new() } else { format!(" {:?}", info.label) };
    out.line(format_args!(
        "{name}: volume{label} of {}, engine {}, uuid {}",
        human(info.size),
        info.engine.name(),
        uuid::Uuid::from_bytes(info.uuid)
    ))?;
    match policy == Policy::default() {
        true => out.line("history: only the snapshots that somebody takes")?,
        false => out.line(format_args!("history:{}", policy::settings_text(&policy)))?,
    }
    out.done()?;
    Ok(status::OK)
}

fn examine(volume: &Path) -> anyhow::Result<Ground> {
    let name = volume.display();
    match fs::metadata(volume) {
        Ok(found) if found.is_file() => Ok(Ground::File(found.len())),
        Ok(found) if found.file_type().is_block_device() => Ok(Ground::BlockDevice),
        Ok(found) if found.is_dir() => {
            anyhow::bail!(
                "{name} is a directory; name the image file to be made, for example {name}/volume.yore"
            )
        }
        Ok(_) => anyhow::bail!("{name} is neither a file nor a block device"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = directory_of(volume);
            anyhow::ensure!(
                parent.is_dir(),
                "cannot make {name}: the directory {} does not exist; make it first",
                parent.display()
            );
            Ok(Ground::Nothing)
        }
        Err(error) => Err(error).with_context(|| format!("cannot look at {name}")),
    }
}

/// The size in whole blocks; `None` for all that there is.
fn size(args: &args::Mkfs, ground: &Ground) -> anyhow::Result<Option<u64>> {
    let name = args.volume.display();
    let size = match (args.size, ground) {
        (Some(size), _) => size,
        (None, Ground::File(size)) if *size > 0 => *size,
        (None, Ground::BlockDevice) => return Ok(None),
        (None, _) => {
            return Err(status::usage(format!("{name} is to be made: say how large, for example --size 10G")))
        }
    };
    let (least, most) = (VOLUME_BLOCKS_MIN * BLOCK, VOLUME_BLOCKS_MAX * BLOCK);
    anyhow::ensure!(
        (least..=most).contains(&size),
        "{} is too {} for a volume: from {} to {} are possible",
        human(size),
        if size < least { "small" } else { "large" },
        human(least),
        human(most)
    );
    Ok(Some(size - size % BLOCK))
}

fn device(args: &args::Mkfs, ground: &Ground, size: Option<u64>) -> anyhow::Result<Arc<dyn Device>> {
    let made = match (ground, size) {
        (Ground::Nothing, Some(size)) => FileDevice::create(&args.volume, size, CreateOptions::default()),
        // The size stays the same, so the file's space is not given back to the host and taken again.
        (Ground::File(found), Some(size)) if *found == size && !args.force => {
            FileDevice::open(&args.volume, OpenOptions::default())
        }
        (Ground::File(_) | Ground::BlockDevice, Some(size)) => {
            let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
            FileDevice::create(&args.volume, size, options)
        }
        (_, None) => FileDevice::open(&args.volume, OpenOptions::default()),
    };
    match made {
        Ok(device) => Ok(Arc::new(device)),
        Err(error @ DeviceError::TooSmall { .. }) => Err(anyhow::Error::new(error)),
        Err(error) => Err(volume::explain(&args.volume, Access::Write, error)),
    }
}

/// Refuses to overwrite anything that can be recognised, and files with any content at all.
fn refuse_what_is_there(volume: &Path, is_file: bool) -> anyhow::Result<()> {
    let name = volume.display();
    let file = File::open(volume).with_context(|| format!("cannot look at {name}"))?;
    let mut head = Vec::with_capacity(HEAD);
    file.take(HEAD as u64).read_to_end(&mut head).with_context(|| format!("cannot read {name}"))?;
    if let Some(what) = recognise(&head) {
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

/// What the first megabyte belongs to, according to well-known magic numbers.
fn recognise(head: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    let known: [(usize, &[u8], &str); 19] = [
        (0, b"YORE\x89V\r\n", "a Yore volume"),
        (4096, b"YORE\x89V\r\n", "a Yore volume (its first superblock is damaged)"),
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
