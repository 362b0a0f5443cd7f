//! `resize`: makes a volume longer, mounted or not, or shorter, if it is not mounted.

use crate::args;
use crate::live;
use crate::opened;
use crate::output::{bytes_of, human, json_name, print_json};
use crate::progress::Progress;
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use anyhow::Context as _;
use serde_json::json;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client as _, Here, Mounted};
use yore_device::{FileDevice, OpenOptions};
use yore_format::layout::Geometry;
use yore_fs::Error;

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;

/// Makes a volume longer or shorter.
pub fn run(args: &args::Resize) -> Outcome {
    if args.volume.is_dir() {
        let mount = live::mount_at(&args.volume).with_context(|| {
            format!(
                "{} is not on a mounted volume; name a volume or the directory that it is mounted on",
                args.volume.display()
            )
        })?;
        // Whoever mounted chose what the table of mounts says. A stranger may have chosen anything.
        let file = Some(mount.volume.as_path()).filter(|_| mount.is_trusted());
        on_mount(args, &mount, file)?;
        return Ok(status::OK);
    }
    match live::mount_of(&args.volume).filter(|mount| live::is_mounted(&mount.directory)) {
        Some(mount) => on_mount(args, &mount, Some(&args.volume))?,
        None => on_volume(args)?,
    }
    Ok(status::OK)
}

/// How long the file or device is now.
pub fn length(volume: &Path) -> anyhow::Result<u64> {
    // This takes no lock, because a daemon has the volume.
    let options = OpenOptions { read_only: true, lock: false, ..OpenOptions::default() };
    let device = FileDevice::open(volume, options).map_err(|e| volume::explain(volume, Access::Read, e))?;
    Ok(yore_device::Device::size(&device))
}

/// How long the volume could be, if the file or device has room that it does not use. A tail that no group
/// could use does not count.
pub fn room_beyond(device: u64, volume: u64) -> Option<u64> {
    let possible = Geometry::new(device / BLOCK).blocks * BLOCK;
    (possible > volume).then_some(possible)
}

/// Says so if a volume has more room than it uses.
pub fn tell_room(volume: &Path, size: u64) {
    if let Some(possible) = length(volume).ok().and_then(|length| room_beyond(length, size)) {
        let name = volume.display();
        status::tell(format_args!(
            "{name} has room for {}, of which the volume uses {}: `yore resize {name}` uses all",
            human(possible),
            human(size)
        ));
    }
}

fn told(volume: &Path, from: u64, to: u64, json: bool) -> anyhow::Result<()> {
    let name = volume.display();
    if json {
        let mut value = json!({ "size": to, "size_before": from });
        json_name(&mut value, "volume", bytes_of(volume));
        return print_json(&value);
    }
    match from == to {
        true => status::tell(format_args!("{name}: {} ({to} bytes), as it was", human(to))),
        false => status::tell(format_args!("{name}: {} ({to} bytes), before {}", human(to), human(from))),
    }
    Ok(())
}

/// Makes a mounted volume longer. `file` is its file or device, if that may be opened to see how long it is.
fn on_mount(args: &args::Resize, mount: &live::Mount, file: Option<&Path>) -> anyhow::Result<()> {
    let (directory, volume) = (&mount.directory, &mount.volume);
    let shown = directory.display();
    let wanted = match (args.size, file) {
        (Some(size), _) => size - size % BLOCK,
        (None, Some(file)) => length(file)?,
        (None, None) => {
            return Err(status::usage(format!(
                "user {} has mounted {shown}, and may have named any file as its volume: say how long it shall be (yore resize \
                 {shown} SIZE), or name the volume",
                mount.user
            )))
        }
    };
    let now = rustix::fs::statvfs(directory).with_context(|| format!("cannot ask {shown}"))?;
    let now = now.f_blocks.saturating_mul(now.f_frsize);
    anyhow::ensure!(
        Geometry::new(wanted / BLOCK).blocks * BLOCK >= now,
        "{} is mounted on {shown}, and has {}; it gets shorter only while it is not mounted (yore umount {shown})",
        volume.display(),
        human(now)
    );
    let dir = opened::file_or_directory(directory).with_context(|| format!("cannot open {shown}"))?;
    let done = Mounted(dir).lengthen(wanted);
    let size = done.map_err(|error| match error {
        Error::Refused(why) => anyhow::anyhow!("{}: {why}", volume.display()),
        error => anyhow::Error::new(error).context(format!("cannot resize {}", volume.display())),
    })?;
    told(volume, now, size, args.json)
}

fn on_volume(args: &args::Resize) -> anyhow::Result<()> {
    let path: &PathBuf = &args.volume;
    let name = path.display();
    let volume = volume::open(path, Access::Write)?;
    let view = volume.view();
    let now = view.info().size;
    let wanted = match args.size {
        Some(size) => size - size % BLOCK,
        None => view.device_size(),
    };
    let done = match Geometry::new(wanted / BLOCK).blocks * BLOCK < now {
        false => Here::new(view, view.root()).lengthen(wanted).map(drop),
        true => {
            let mut progress = Progress::new(args.progress)?;
            progress.now("moving what lies beyond the new end");
            let done = view.shorten(wanted, &mut |done, all| progress.set(done, all)).map(drop);
            progress.finish();
            done
        }
    };
    let size = view.info().size;
    if size < now {
        let doing = volume::doing(view);
        doing.note([doing.resizing(now)?]);
    }
    // A refusal has changed nothing, and the volume is closed in any case.
    let closed = volume.close();
    done.with_context(|| format!("{name} stays as it is"))?;
    closed.with_context(|| format!("cannot close {name}"))?;
    // This also releases the lock on the file.
    drop(volume);
    if size < now {
        truncate(path, size)?;
    }
    told(path, now, size, args.json)
}

/// Makes the image file as short as the volume on it. A device belongs to its owner, and stays.
fn truncate(path: &Path, size: u64) -> anyhow::Result<()> {
    let name = path.display();
    if std::fs::metadata(path)?.file_type().is_block_device() {
        status::tell(format_args!("{name}: the device may be made as short as that now"));
        return Ok(());
    }
    let device = FileDevice::open(path, OpenOptions::default())
        .map_err(|error| volume::explain(path, Access::Write, error))?;
    // Somebody may have been faster, and made it longer again.
    let found = crate::inspect::superblock::usable(path, &device)?;
    if found.volume_blocks * BLOCK == size {
        device.truncate(size).with_context(|| format!("cannot shorten the file {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::room_beyond;

    /// Promises that space too short for a group does not count as room.
    #[test]
    fn room() {
        let group = 128 << 20;
        assert_eq!(room_beyond(group, group), None);
        assert_eq!(room_beyond(group + (1 << 20), group), None);
        assert_eq!(room_beyond(group + (8 << 20) + 5, group), Some(group + (8 << 20)));
    }
}
