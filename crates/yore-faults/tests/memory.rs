//! Promises: with the smallest caches, a tree and files many times as large can be created, read and removed
//! correctly, and memory stays within a bound that does not depend on their size.
//!
//! The device is a file, so that its bytes are not counted.

use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::{CreateOptions, FileDevice};
use yore_faults::exercise;
use yore_faults::sample::{content, mkfs_options};
use yore_faults::watch::{live_bytes, peak_bytes, restart_peak, Counting};
use yore_fs::{File, SetXattrMode, View, Volume};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZE: u64 = 512 << 20;
/// The smallest metadata cache is 4 MiB and the smallest data cache 1 MiB. A generation under way holds its
/// blocks besides, and up to 32,768 inodes stay in memory.
const BOUND: usize = 40 << 20;
const FILES: usize = 4000;
const LARGE: u64 = 24 << 20;

fn within(what: &str, before: usize) {
    let taken = peak_bytes().saturating_sub(before);
    println!("{what}: {} KiB", taken >> 10);
    assert!(taken < BOUND, "{what} took {taken} bytes, more than {BOUND}");
}

#[test]
fn the_smallest_caches() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let device = Arc::new(FileDevice::create(&path, SIZE, CreateOptions::default()).unwrap());
    let shared: Arc<dyn yore_device::Device> = device.clone();
    View::mkfs(&shared, &mkfs_options()).unwrap();
    let before = live_bytes();
    restart_peak();
    let volume = Volume::open(shared, &exercise::options()).unwrap();
    for n in 0..FILES {
        if n % 500 == 0 {
            volume.create_dir(format!("{}", n / 500)).unwrap();
        }
        let path = format!("{}/{n}-{}", n / 500, "x".repeat(n % 60));
        volume.write(&path, content(n as u64, n % 300)).unwrap();
        if n % 10 == 0 {
            let inode = volume.node(&path).unwrap().inode();
            volume.view().setxattr(inode, b"user.a", &content(n as u64, 3000), SetXattrMode::Any).unwrap();
        }
    }
    within("a tree", before);
    let piece = content(1, 1 << 20);
    let large = File::create(&volume, "large").unwrap();
    for at in (0..LARGE).step_by(piece.len()) {
        large.write_at(&piece, at).unwrap();
    }
    // Each block on its own, so that the tree of extents is large too.
    let scattered = File::create(&volume, "scattered").unwrap();
    for n in 0..1500u64 {
        scattered.write_at(&content(n, 100), n * 8192).unwrap();
    }
    volume.sync().unwrap();
    within("large files", before);
    let large = File::open(&volume, "large").unwrap();
    let mut buf = vec![0; piece.len()];
    for at in (0..LARGE).step_by(piece.len()) {
        assert_eq!(large.read_at(&mut buf, at).unwrap(), piece.len());
        assert!(buf == piece, "at {at}");
    }
    for n in (0..FILES).step_by(7) {
        let path = format!("{}/{n}-{}", n / 500, "x".repeat(n % 60));
        assert_eq!(volume.read(&path).unwrap(), content(n as u64, n % 300), "{path}");
    }
    within("reading", before);
    drop((large, scattered));
    for n in 0..FILES / 500 {
        volume.remove_dir_all(format!("{n}")).unwrap();
    }
    volume.remove_file("large").unwrap();
    volume.remove_file("scattered").unwrap();
    volume.close().unwrap();
    within("removing", before);
    drop(volume);
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.counts.inodes, 1);
}
