//! Promises of forgetting: what is forgotten is gone at once and gives its room back; everything else stays
//! to the byte; held snapshots are not forgotten; nobody reads blocks that now belong to somebody else; and a
//! full volume gives up the oldest history first.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::time::{self, TimeZone};
use yore_fs::{
    Error, EventNo, Forgetting, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, PinnedBy, Timestamp,
    Volume,
};

fn event(volume: &Volume, directory: &str, name: &str) -> EventNo {
    let node = volume.node(directory).unwrap();
    volume
        .view()
        .take_snapshot(node.inode(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) })
        .unwrap()
        .number
}

fn forget(volume: &Volume, events: &[EventNo]) -> Forgetting {
    volume.view().forget(events).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap()
}

fn free(volume: &Volume) -> u64 {
    volume.sync().unwrap();
    volume.view().statfs().blocks_free
}

#[test]
fn what_is_forgotten_is_gone_and_what_is_held_is_not_forgotten() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.write("a", "first").unwrap();
    let (one, two) = (event(&volume, "/", "one"), event(&volume, "/", "two"));
    volume.write("a", "second").unwrap();
    let view = volume.view();
    view.hold(two, true).unwrap();
    // All or none.
    let refused = view.forget(&[one, two]);
    assert!(matches!(refused, Err(Error::Held { event }) if event == two.0), "{refused:?}");
    assert_eq!(volume.read("/.@one/a").unwrap(), b"first");
    let open = OpenOptions::new().read(true).open(&volume, "/.@one/a").unwrap();
    assert_eq!(forget(&volume, &[one, one]).forgotten, 1, "named twice is once");
    for gone in [volume.read("/.@one/a").map(|_| ()), open.read_at(&mut [0; 5], 0).map(|_| ())] {
        assert!(
            matches!(gone.as_ref().map_err(Error::root), Err(Error::NotFound | Error::Stale)),
            "{gone:?}"
        );
    }
    assert!(matches!(view.forget(&[one]), Err(Error::NotFound)), "it was forgotten already");
    assert!(matches!(view.forget(&[EventNo(77)]), Err(Error::NotFound)), "it never was");
    assert_eq!(volume.read("/.@two/a").unwrap(), b"first");
    // Its name is free.
    event(&volume, "/", "one");
    assert_eq!(volume.read("/.@one/a").unwrap(), b"second");
    view.hold(two, false).unwrap();
    assert_eq!(forget(&volume, &[two]).forgotten, 1);
    let names: Vec<String> = view.events().unwrap().into_iter().map(|event| event.row.name).collect();
    assert_eq!(names, ["one"]);
}

/// A time that was printed for a snapshot never comes to mean another one: after the snapshot is forgotten,
/// the time means nothing. A time that was never printed means the last snapshot before it.
#[test]
fn the_time_of_a_forgotten_snapshot_means_nothing() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.create_dir("d").unwrap();
    let mut taken = Vec::new();
    for n in 0..3 {
        volume.write("d/a", format!("{n}")).unwrap();
        taken.push(event(&volume, "/", ""));
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    let events = volume.view().events().unwrap();
    let utc = TimeZone::UTC;
    let printed: Vec<String> = (0..3)
        .map(|n| time::print(events[n].row.time, events.get(n + 1).map(|next| next.row.time), &utc))
        .collect();
    let read = |at: &str| volume.read(format!("/.@{at}/d/a")).map_err(|e| e.root().clone());
    assert_eq!(read(&printed[1]).unwrap(), b"1", "{printed:?}");
    volume.view().forget(&[taken[1]]).unwrap();
    assert!(matches!(read(&printed[1]), Err(Error::NotFound)), "{:?}", read(&printed[1]));
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert!(matches!(read(&printed[1]), Err(Error::NotFound)), "{:?}", read(&printed[1]));
    assert_eq!(read(&printed[0]).unwrap(), b"0");
    assert_eq!(read(&printed[2]).unwrap(), b"2");
    // The same holds in `d`. A time just after it is not a name of it.
    assert!(volume.read(format!("d@{}/a", printed[1])).is_err());
    let mut after = events[1].row.time;
    after.nanos = after.nanos / 1000 * 1000 + 11_003;
    let after = time::When::At(Timestamp {
        seconds: after.seconds + i64::from(after.nanos / 1_000_000_000),
        nanos: after.nanos % 1_000_000_000,
    });
    assert_eq!(volume.view().event_for(volume.view().root(), &after).unwrap(), taken[0]);
}

/// Ten versions of a file, each of which changes another part, are forgotten in several orders. Each time the
/// rest is as it was, and in the end all room is free again.
#[test]
fn versions_are_forgotten_in_any_order_and_give_all_room_back() {
    for order in
        [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [4, 5, 0, 9, 2, 7, 1, 8, 3, 6]]
    {
        let volume = Volume::memory(256 << 20).unwrap();
        volume.create_dir("d").unwrap();
        let content = |version: u8| {
            let mut bytes = vec![1; 4 << 20];
            for n in 0..version {
                let at = usize::from(n) * 300_001;
                bytes[at..at + 150_000].fill(n + 2);
            }
            bytes.truncate((4 << 20) - usize::from(version) * 50_000);
            bytes
        };
        volume.write("d/file", content(0)).unwrap();
        let link = "t".repeat(3000);
        volume.symlink(&link, "d/link").unwrap();
        let before = free(&volume);
        let mut events = Vec::new();
        for version in 0..10u8 {
            let (then, now) = (content(version), content(version + 1));
            events.push((event(&volume, "/", ""), then));
            let file = OpenOptions::new().write(true).open(&volume, "d/file").unwrap();
            let at = usize::from(version) * 300_001;
            file.write_at(&now[at..at + 150_000], at as u64).unwrap();
            file.set_len(now.len() as u64).unwrap();
            volume.rename("d/link", "d/moved").unwrap();
            volume.rename("d/moved", "d/link").unwrap();
        }
        for (n, gone) in order.iter().enumerate() {
            forget(&volume, &[events[*gone].0]);
            for kept in order.iter().skip(n + 1) {
                let then = Volume::from_view(volume.view().as_of(events[*kept].0));
                assert!(then.read("d/file").unwrap() == events[*kept].1, "{kept} after {gone} of {order:?}");
                assert_eq!(then.read_link("d/link").unwrap().as_os_str(), link.as_str());
            }
        }
        assert!(volume.read("d/file").unwrap() == content(10));
        volume.remove_file("d/file").unwrap();
        volume.write("d/file", content(0)).unwrap();
        let after = free(&volume);
        // Nodes of the trees of the past have come and gone in zones, which stay.
        assert!(after + 2 * 1024 >= before, "{after} of {before} blocks are free after {order:?}");
    }
}

/// When no event covers a file any more, the present overwrites its blocks in place and keeps nothing.
#[test]
fn after_the_last_event_is_forgotten_nothing_is_kept() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.write("file", vec![1; 1 << 20]).unwrap();
    let all = [event(&volume, "/", ""), event(&volume, "/", "")];
    forget(&volume, &all);
    let before = free(&volume);
    let file = OpenOptions::new().write(true).open(&volume, "file").unwrap();
    file.write_at(&vec![2; 1 << 20], 0).unwrap();
    volume.rename("file", "other").unwrap();
    assert_eq!(free(&volume), before);
    let done = volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(done, Forgetting::default(), "there was nothing to do");
}

/// An event of a directory covers what was in the directory then: a file that was moved out stays as long as
/// the event, and goes with it.
#[test]
fn an_event_of_a_directory_holds_what_was_in_it() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.create_dir_all("in/below").unwrap();
    volume.create_dir("out").unwrap();
    volume.write("in/below/file", vec![1; 100_000]).unwrap();
    volume.write("out/file", vec![1; 100_000]).unwrap();
    let inside = event(&volume, "in", "inside");
    let all = event(&volume, "/", "");
    volume.rename("in/below", "out/below").unwrap();
    volume.remove_file("out/below/file").unwrap();
    volume.remove_file("out/file").unwrap();
    // What was outside goes, what was inside stays.
    assert_eq!(forget(&volume, &[all]).blocks, 25);
    assert_eq!(volume.read("in@inside/below/file").unwrap(), vec![1; 100_000]);
    assert_eq!(forget(&volume, &[inside]).blocks, 25);
}

/// Forgetting is interrupted at every possible step, and goes on when the volume is opened again: in the end
/// nothing is left to do.
#[test]
fn what_was_broken_off_goes_on() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    for i in 0..2000 {
        volume.write(format!("f{i}"), format!("{i}").repeat(900)).unwrap();
    }
    let gone = event(&volume, "/", "gone");
    let kept = event(&volume, "/", "kept");
    for i in 0..2000 {
        volume.append(format!("f{i}"), "more").unwrap();
    }
    volume.view().hold(kept, true).unwrap();
    let later = event(&volume, "/", "later");
    for i in 0..2000 {
        volume.remove_file(format!("f{i}")).unwrap();
    }
    volume.view().forget(&[gone, later]).unwrap();
    let mut steps = 0;
    let part = volume.view().finish_forgetting(&mut |_| {
        steps += 1;
        if steps == 4 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(part.unwrap().dying > 0, "it was broken off");
    volume.close().unwrap();
    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    assert!(volume.node("/.@gone").is_err() && volume.node("/.@later").is_err());
    let done = volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((done.forgotten, done.dying), (2, 0));
    for i in 0..2000 {
        assert_eq!(volume.read(format!("/.@kept/f{i}")).unwrap(), format!("{i}").repeat(900).into_bytes());
    }
}

/// Threads read an old file while its snapshot is forgotten and other threads write. They read the old
/// content, or get an error that says that it is gone.
#[test]
fn nobody_reads_what_has_become_somebody_elses() {
    for round in 0..20u8 {
        let volume = Volume::memory(64 << 20).unwrap();
        volume.write("old", vec![7; 3 << 20]).unwrap();
        let number = event(&volume, "/", "then");
        volume.remove_file("old").unwrap();
        volume.sync().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let stop = &stop;
                let file = OpenOptions::new().read(true).open(&volume, "/.@then/old").unwrap();
                scope.spawn(move || {
                    let mut bytes = vec![0; 1 << 20];
                    while !stop.load(Ordering::Relaxed) {
                        match file.read_at(&mut bytes, 1 << 20) {
                            Ok(_) => assert!(bytes.iter().all(|b| *b == 7), "somebody else's bytes"),
                            Err(e) => {
                                return assert!(matches!(e.root(), Error::Stale | Error::NotFound), "{e}")
                            }
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(u64::from(round % 5)));
            forget(&volume, &[number]);
            for n in 0..12u8 {
                volume.write(format!("new{n}"), vec![n + 20; 4 << 20]).unwrap();
                volume.sync().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

fn small(keep_history: bool) -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(48 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    Volume::open(device, &MountOptions { keep_history, ..MountOptions::default() }).unwrap()
}

/// Far more is written to a small volume than it can hold, but the present always fits. While history takes
/// more than its share, the oldest snapshots go although they are young. A held one stays.
#[test]
fn a_full_volume_gives_up_the_oldest() {
    let volume = small(false);
    volume.write("small", "held").unwrap();
    let held = event(&volume, "/", "held");
    volume.view().hold(held, true).unwrap();
    let mut taken = Vec::new();
    for n in 0..40u8 {
        volume.write("file", vec![n; 6 << 20]).unwrap();
        volume.write("small", format!("{n}")).unwrap();
        taken.push(event(&volume, "/", ""));
    }
    let kept: Vec<EventNo> = volume.view().events().unwrap().iter().map(|event| event.number).collect();
    assert_eq!(kept[0], held);
    assert!(kept.len() >= 4, "half of the volume is theirs: {kept:?}");
    assert!(taken.ends_with(&kept[1..]), "the oldest went: {kept:?}");
    assert_eq!(volume.read("/.@held/small").unwrap(), b"held");
    assert_eq!(volume.read("file").unwrap(), vec![39; 6 << 20]);
}

/// A pinned snapshot is not forgotten as long as there is a pin, neither by name nor to make room; and it can
/// be read although the volume was closed.
#[test]
fn what_is_pinned_stays() {
    let volume = small(false);
    volume.write("small", "pinned").unwrap();
    volume.write("large", vec![7; 2 << 20]).unwrap();
    let pinned = event(&volume, "/", "pinned");
    let view = volume.view();
    let pins = [view.pin(pinned, PinnedBy::Mount).unwrap(), view.pin(pinned, PinnedBy::Mount).unwrap()];
    assert!(matches!(view.pin(EventNo(99), PinnedBy::Mount), Err(Error::NotFound)));
    let other = event(&volume, "/", "");
    let listed = || -> Vec<bool> {
        let (rows, _) = view.list_events(view.root(), EventNo(0)).unwrap();
        rows.into_iter().map(|row| row.pinned).collect()
    };
    assert_eq!(listed(), [true, false]);
    let refused = view.forget(&[other, pinned]);
    assert!(matches!(refused, Err(Error::Pinned { event }) if event == pinned.0), "{refused:?}");
    for n in 0..40u8 {
        volume.write("file", vec![n; 6 << 20]).unwrap();
        event(&volume, "/", "");
    }
    let [first, second] = pins;
    drop(first);
    assert!(matches!(view.forget(&[pinned]), Err(Error::Pinned { .. })), "there is another pin");
    let kept: Vec<EventNo> = view.events().unwrap().iter().map(|event| event.number).collect();
    assert!(kept[0] == pinned && kept[1] > other, "{kept:?}");
    // It is not held: later openings of the volume know nothing of the pin.
    volume.write("large", "now").unwrap();
    view.close().unwrap();
    let then = second.view();
    let read = |name: &[u8]| {
        let node = then.lookup(then.root(), name).unwrap();
        let mut found = vec![0; node.attr().size as usize];
        let len = node.read(0, &mut found).unwrap();
        found.truncate(len);
        found
    };
    assert_eq!(read(b"small"), b"pinned");
    assert_eq!(read(b"large"), vec![7; 2 << 20]);
    assert!(matches!(then.lookup(then.root(), b"file"), Err(Error::NotFound)));
    let mut names = 0;
    then.readdir(then.root(), 0, &mut |_| {
        names += 1;
        true
    })
    .unwrap();
    assert_eq!(names, 4);
}

/// A full volume that is opened to keep all history reports that there is no room, and loses nothing;
/// deleting files and forgetting by hand help.
#[test]
fn a_volume_that_keeps_its_history_says_that_it_is_full() {
    let volume = small(true);
    let mut taken = Vec::new();
    let error = loop {
        let n = taken.len() as u8;
        match volume.write("file", vec![n; 6 << 20]) {
            Ok(()) => taken.push(event(&volume, "/", "")),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.root(), Error::NoSpace), "{error}");
    assert!(taken.len() >= 3, "{taken:?}");
    for (n, number) in taken.iter().enumerate() {
        let then = Volume::from_view(volume.view().as_of(*number));
        assert_eq!(then.read("file").unwrap(), vec![n as u8; 6 << 20]);
    }
    forget(&volume, &taken[..2]);
    volume.sync().unwrap();
    volume.write("file", vec![99; 6 << 20]).unwrap();
}
