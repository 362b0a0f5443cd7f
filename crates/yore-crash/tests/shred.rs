//! Promise: after a file was expunged and shredded, nothing of it is in the image: neither its content, in
//! blocks or in its inode, nor its name, nor a link's target, nor an attribute. Nothing is left in older
//! copies of metadata, dead cells, free blocks or the log. Kept history is whole, other threads go on
//! meanwhile, and the volume is sound.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::{File, InodeNo, MkfsOptions, MountOptions, NewSnapshot, SetXattrMode, Volume};

const SIZE: u64 = 64 << 20;
const CONTENT: &str = "WHAT-NOBODY-SHALL-READ";
const INLINE: &str = "WHISPERED-IN-AN-INODE";
const NAME: &str = "NAME-OF-A-SECRET";
const TARGET: &str = "TARGET-OF-A-LINK";
const ATTRIBUTE: &str = "ATTRIBUTE-OF-A-FILE";

/// How often each secret is on the medium.
fn found(device: &dyn Device) -> Vec<(&'static str, usize)> {
    let mut image = vec![0; device.size() as usize];
    device.read_at(0, &mut image).unwrap();
    [CONTENT, INLINE, NAME, TARGET, ATTRIBUTE]
        .into_iter()
        .map(|text| (text, image.windows(text.len()).filter(|window| *window == text.as_bytes()).count()))
        .collect()
}

fn none(device: &dyn Device) {
    let left: Vec<_> = found(device).into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(left, [], "is left on the medium");
}

/// Makes names, contents, links and attributes, some with many others beside them. They are saved again and
/// again, and synced, so that the log has them.
fn secrets(volume: &Volume, round: usize) -> Vec<String> {
    let mut names = Vec::new();
    for n in 0..20 {
        let name = format!("d/{NAME}-{n}");
        let content = match n % 2 {
            0 => format!("{INLINE} {round}"),
            _ => format!("{CONTENT} {round} ").repeat(2000),
        };
        volume.write(&name, content).unwrap();
        volume.set_xattr(&name, "user.a", ATTRIBUTE.repeat(n * 3 + 1), SetXattrMode::Any).unwrap();
        File::open(volume, &name).unwrap().sync_all().unwrap();
        names.push(name);
    }
    for (n, length) in [(0, 1), (1, 90)] {
        let name = format!("d/{NAME}-link-{n}");
        let _ = volume.remove_file(&name);
        volume.symlink(TARGET.repeat(length), &name).unwrap();
        names.push(name);
    }
    // A cell that was moved to another place.
    let (old, new) = (format!("d/{NAME}-0"), format!("d/{NAME}-renamed"));
    volume.rename(&old, &new).unwrap();
    names[0] = new;
    names
}

fn made() -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    volume.create_dir("d").unwrap();
    for n in 0..300 {
        volume.write(format!("d/kept-{n}"), format!("kept {n} ").repeat(n)).unwrap();
    }
    (device, volume)
}

fn kept(volume: &Volume) {
    for n in 0..300 {
        assert_eq!(volume.read_to_string(format!("d/kept-{n}")).unwrap(), format!("kept {n} ").repeat(n));
    }
}

fn sound(device: &dyn Device) {
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

fn go_on() -> impl FnMut() -> ControlFlow<()> {
    || ControlFlow::Continue(())
}

#[test]
fn nothing_is_left_of_what_was_expunged() {
    let (device, volume) = made();
    let view = volume.view();
    let mut files: Vec<(InodeNo, u32)> = Vec::new();
    for round in 0..3 {
        let names = secrets(&volume, round);
        let here = names.iter().map(|name| volume.symlink_node(name).unwrap());
        files.extend(here.map(|node| (node.inode(), node.attr().incarnation)));
        view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::default() }).unwrap();
        if round == 2 {
            names.iter().for_each(|name| volume.remove_file(name).unwrap());
        } else {
            volume.remove_file(&names[0]).unwrap();
        }
    }
    volume.remove_file(format!("d/{NAME}-0")).ok();
    volume.sync().unwrap();
    assert!(found(&*device).iter().all(|(_, count)| *count > 0), "{:?}", found(&*device));
    files.sort_unstable();
    files.dedup();
    view.expunge(&files).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    volume.sync().unwrap();
    assert!(found(&*device).iter().any(|(_, count)| *count > 0), "expunging alone leaves something");
    let done = view.shred(&mut go_on()).unwrap();
    assert_eq!((done.blocks_left_out, done.broken_off), (0, false));
    none(&*device);
    kept(&volume);
    // Snapshots that have seen them are kept, with all else.
    assert_eq!(view.events().unwrap().len(), 3);
    volume.close().unwrap();
    none(&*device);
    sound(&*device);
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    kept(&volume);
    volume.close().unwrap();
}

/// Files that were removed and that no snapshot has are shredded, too. Other threads write and sync
/// meanwhile, and lose nothing.
#[test]
fn others_go_on_meanwhile() {
    let (device, volume) = made();
    for name in secrets(&volume, 0) {
        volume.remove_file(name).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0usize;
            while !done.load(Ordering::Acquire) || n < 50 {
                let name = format!("other-{}", n % 40);
                volume.write(&name, vec![n as u8; n * 977 % 90_000]).unwrap();
                if n.is_multiple_of(5) {
                    File::open(&volume, &name).unwrap().sync_all().unwrap();
                }
                assert_eq!(volume.read(&name).unwrap(), vec![n as u8; n * 977 % 90_000]);
                n += 1;
            }
            n
        });
        for _ in 0..2 {
            assert!(!volume.view().shred(&mut go_on()).unwrap().broken_off);
            none(&*device);
        }
        done.store(true, Ordering::Release);
        assert!(writer.join().unwrap() >= 50);
    });
    kept(&volume);
    // As after a power failure: synced data is there.
    let crashed = Arc::new(device.snapshot());
    volume.close().unwrap();
    sound(&*device);
    sound(&*crashed);
    let again = Volume::open(crashed, &MountOptions::default()).unwrap();
    kept(&again);
}

/// A request to stop ends the shredding, and nothing is wrong.
#[test]
fn broken_off() {
    let (device, volume) = made();
    for stop in 0..6 {
        let mut asked = 0;
        let done = volume.view().shred(&mut || {
            asked += 1;
            if asked > stop {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        done.unwrap();
        kept(&volume);
    }
    volume.close().unwrap();
    sound(&*device);
}
