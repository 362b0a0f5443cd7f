//! Disks with platters: whether a file lies on one, and what goes by below its head.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Where the kernel lists block devices by their numbers.
const DEVICES: &str = "/sys/dev/block";

/// What goes by in half a millisecond, at 125 MB/s. That long it takes until a flush is answered, and a
/// program has asked for the next one.
const GONE_BY: u64 = 16;
/// As many blocks go by while two are transferred to the disk, which takes them faster than it writes them.
const TAKEN_MEANWHILE: u64 = 2;

/// With which the names of disks begin whose answer can be believed. Disks of virtual machines (`vd`, `xvd`)
/// have platters unless their host says otherwise, which it hardly ever does.
const BELIEVED: [&str; 2] = ["sd", "hd"];
/// Virtual disks of such names, as they call themselves.
const VIRTUAL: [&str; 4] = ["QEMU", "VMware", "Msft", "VBOX"];
/// Disks of the kernel that lie on others (RAID, LVM, encryption) may do so in so many layers.
const LAYERS_MOST: usize = 8;

/// What [`Device::blocks_gone_by`](crate::Device::blocks_gone_by) says of a usual disk with platters.
pub fn blocks_gone_by(next: u64) -> u64 {
    GONE_BY + next / TAKEN_MEANWHILE
}

/// Whether an open file, or block device, lies on a disk with platters. The kernel knows: `queue/rotational`
/// of the disk in sysfs.
pub(crate) fn turns(found: &Metadata) -> bool {
    let number = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    disk_turns(&Path::new(DEVICES).join(number), LAYERS_MOST)
}

/// Whether a disk has platters, or the disk of a partition, or all disks on which another one lies.
fn disk_turns(device: &Path, layers: usize) -> bool {
    // Files of file systems that have no device, and of hosts without sysfs.
    let Ok(device) = device.canonicalize() else { return false };
    let disk = if device.join("queue").is_dir() { Some(&*device) } else { device.parent() };
    let Some((disk, name)) = disk.and_then(|disk| Some((disk, disk.file_name()?.to_str()?))) else {
        return false;
    };
    let below: Vec<_> = std::fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten().collect();
    if !below.is_empty() {
        return layers > 0 && below.iter().all(|disk| disk_turns(&disk.path(), layers - 1));
    }
    let says = |what: &str| std::fs::read_to_string(disk.join(what)).unwrap_or_default();
    let is_virtual = || {
        let called = says("device/vendor") + &says("device/model");
        VIRTUAL.iter().any(|name| called.contains(name))
    };
    let is_believed = BELIEVED.iter().any(|prefix| name.starts_with(prefix)) && !is_virtual();
    is_believed && says("queue/rotational").starts_with('1')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A disk and its partition say what the disk's queue says, and a disk that lies on others what all of
    /// these say. Virtual disks are not believed, and a number that nobody has is no disk.
    #[test]
    fn the_disk_of_a_partition_says_whether_it_turns() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        for (name, said) in [
            ("sda", "1"),
            ("sdb", "0"),
            ("sdc", "1"),
            ("vda", "1"),
            ("dm-0", "1"),
            ("dm-1", "1"),
            ("dm-2", "1"),
        ] {
            fs::create_dir_all(at(name).join("queue")).unwrap();
            fs::create_dir(at(name).join("slaves")).unwrap();
            fs::create_dir(at(name).join("device")).unwrap();
            fs::write(at(name).join("queue/rotational"), format!("{said}\n")).unwrap();
        }
        fs::write(at("sdc/device/model"), "QEMU HARDDISK\n").unwrap();
        fs::create_dir(at("sda/sda1")).unwrap();
        for (disk, on) in [("dm-0", "sda/sda1"), ("dm-1", "vda"), ("dm-2", "sda"), ("dm-2", "sdb")] {
            symlink(at(on), at(disk).join("slaves").join(on.replace('/', "-"))).unwrap();
        }
        symlink(at("dm-0"), at("by-number")).unwrap();
        let turning = ["sda", "sda/sda1", "dm-0", "by-number"];
        for name in ["sdb", "sdc", "vda", "dm-1", "dm-2", "nothing"].iter().chain(&turning) {
            assert_eq!(disk_turns(&at(name), LAYERS_MOST), turning.contains(name), "{name}");
        }
    }
}
