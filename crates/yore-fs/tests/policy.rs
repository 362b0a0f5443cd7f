//! Policies: which versions they make, and which they let go.

use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::{Device, MemoryDevice};
use yore_fs::time::When;
use yore_fs::{
    Caller, Error, Event, EventKind, EventNo, FileKind, InodeNo, MkfsOptions, MountOptions, NewSnapshot,
    Policy, RenameMode, Retention, RetentionRules, Timestamp, User, Versioning, View, Volume, WriteMode,
};

const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022, keeps_set_id: true };

fn device() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    // What root says of the root directory applies to everybody's files.
    View::mkfs(&device, &MkfsOptions { owner: (0, 0), ..MkfsOptions::default() }).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> View {
    View::open(device.clone(), &MountOptions::default()).unwrap()
}

fn rule(versioning: Versioning) -> Policy {
    Policy { versioning: Some(versioning), ..Policy::default() }
}

fn create(view: &View, directory: InodeNo, name: &str) -> InodeNo {
    view.create(&ME, directory, name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap().inode()
}

fn write(view: &View, file: InodeNo, text: &str) {
    let event = yore_fs::SetAttr { size: Some(0), ..yore_fs::SetAttr::default() };
    view.setattr(&ME, file, &event).unwrap();
    view.write(file, 0, text.as_bytes(), WriteMode { append: false, kill_set_id: false }).unwrap();
}

/// Writes and closes the file; returns when the version was made.
fn save(view: &View, file: InodeNo, text: &str) -> Option<Timestamp> {
    write(view, file, text);
    view.closed(file).unwrap().map(|event| event.row.time)
}

/// What a name meant at a time.
fn then(view: &View, directory: InodeNo, name: &str, time: Timestamp) -> Result<String, Error> {
    let node = view.lookup_at(directory, name.as_bytes(), &When::At(time))?;
    let mut bytes = vec![0; node.attr().size as usize];
    let n = node.read(0, &mut bytes)?;
    Ok(String::from_utf8(bytes[..n].to_vec()).unwrap())
}

/// A file that is closed gets a version even if an event of a directory was taken between the write and the
/// close. The event used to count as the version, so the file's state was gone when the event was forgotten,
/// whatever the policy of the file said.
#[test]
fn a_snapshot_before_the_close_does_not_stand_in_for_it() {
    let view = open(&device());
    let root = view.root();
    view.set_policy(root, &rule(Versioning::Close)).unwrap();
    let file = create(&view, root, "a");
    save(&view, file, "first").expect("a version");
    write(&view, file, "second");
    let snapshot = view.take_snapshot(root, &NewSnapshot::default()).unwrap().number;
    let saved = view.closed(file).unwrap().expect("a version, seen by the snapshot or not").row.time;
    assert_eq!(view.closed(file).unwrap(), None, "nothing was changed since");
    save(&view, file, "third").expect("a version");
    view.forget(&[snapshot]).unwrap();
    view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(then(&view, root, "a", saved).unwrap(), "second");
    // A snapshot is no change of the file.
    view.take_snapshot(root, &NewSnapshot::default()).unwrap();
    assert_eq!(view.closed(file).unwrap(), None, "nothing was changed since");
    view.close().unwrap();
}

/// Promises a version for each close that changed something, and none for other closes. The versions stay for
/// ever, also after the volume was closed.
#[test]
fn each_close_makes_a_version() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    view.set_policy(root, &rule(Versioning::Close)).unwrap();
    let file = create(&view, root, "a");
    let mut times = Vec::new();
    for i in 0..150 {
        times.push(save(&view, file, &format!("version {i}")).expect("a version"));
        assert_eq!(view.closed(file).unwrap(), None, "nothing was changed since");
    }
    let other = create(&view, root, "b");
    write(&view, other, "never closed");
    assert_eq!(view.events().unwrap().len(), 150);
    view.close().unwrap();

    let view = open(&device);
    for (i, time) in times.iter().enumerate() {
        assert_eq!(then(&view, root, "a", *time).unwrap(), format!("version {i}"));
    }
    assert!(view.lookup_at(root, b"b", &When::At(times[149])).is_err(), "no event of it");
    // Other files do not get more versions because of that: their history is their own.
    assert!(view
        .events()
        .unwrap()
        .iter()
        .all(|event| event.row.kind == EventKind::Close && event.row.root == file));
    view.close().unwrap();
}

/// Promises that directories inherit the policies of those above them, that the nearest policy counts, and
/// that without it the one above counts again.
#[test]
fn the_nearest_policy_counts() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    let dir = |name: &str, of: InodeNo| view.mkdir(&ME, of, name.as_bytes(), 0o755).unwrap().inode();
    let (a, b) = (dir("a", root), dir("b", root));
    let deep = dir("deep", a);
    let (file, other) = (create(&view, deep, "file"), create(&view, b, "file"));
    view.set_policy(a, &rule(Versioning::Close)).unwrap();
    assert!(save(&view, file, "one").is_some());
    assert!(save(&view, other, "one").is_none());
    view.set_policy(deep, &rule(Versioning::Snapshots)).unwrap();
    assert!(save(&view, file, "two").is_none());
    let in_force = view.policy_in_force(file).unwrap();
    assert_eq!((in_force.versioning, in_force.versioning_by), (Versioning::Snapshots, Some(deep)));
    view.set_policy(file, &rule(Versioning::Close)).unwrap();
    assert!(save(&view, file, "three").is_some());
    view.set_policy(file, &Policy::default()).unwrap();
    assert!(save(&view, file, "four").is_none());
    view.set_policy(deep, &Policy::default()).unwrap();
    assert!(save(&view, file, "five").is_some());
    assert_eq!(view.policies().unwrap().iter().map(|(no, _)| *no).collect::<Vec<_>>(), [a]);
    // After the move the other directory's policy applies.
    view.rename(deep, b"file", b, b"moved", RenameMode::Replace).unwrap();
    assert!(save(&view, file, "six").is_none());
    view.rename(root, b"b", a, b"b", RenameMode::Replace).unwrap();
    assert!(save(&view, file, "seven").is_some(), "its directory was moved below the policy");
    view.rmdir(a, b"deep").unwrap();
    view.close().unwrap();
}

/// An editor writes a temporary file and renames it over the old one: the name has all its versions, each
/// under that name.
#[test]
fn an_editors_saves_are_versions_of_the_name() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    view.set_policy(root, &rule(Versioning::Close)).unwrap();
    let (mut times, mut before) = (Vec::new(), None);
    for i in 0..40 {
        let new = create(&view, root, ".doc.swp");
        before = save(&view, new, &format!("draft {i}")).or(before);
        view.rename(root, b".doc.swp", root, b"doc", RenameMode::Replace).unwrap();
        times.push(view.events().unwrap().last().unwrap().row.time);
    }
    view.unlink(root, b"doc").unwrap();
    let removed = view.events().unwrap().last().unwrap().clone();
    assert_eq!(removed.row.kind, EventKind::Removed);
    view.close().unwrap();
    let view = open(&device);
    for (i, time) in times.iter().enumerate() {
        assert_eq!(then(&view, root, "doc", *time).unwrap(), format!("draft {i}"));
        let swap = view.lookup_at(root, b".doc.swp", &When::At(*time));
        assert!(matches!(swap, Err(Error::NotFound)), "it had been renamed by then");
    }
    let mut gone = Vec::new();
    let each = &mut |deleted: yore_fs::Deleted| {
        gone.push((deleted.path.clone(), deleted.last.event.row.time));
        std::ops::ControlFlow::Continue(())
    };
    view.deleted(root, false, each).unwrap();
    assert_eq!(gone.len(), 1, "temporary names were not deleted: {gone:?}");
    assert_eq!(gone[0].0, b"doc");
    assert_eq!(then(&view, root, "doc", gone[0].1).unwrap(), "draft 39", "until when it can be seen");
    // Before the last rename the name still meant the earlier draft.
    assert_eq!(then(&view, root, "doc", before.unwrap()).unwrap(), "draft 38");
    assert!(matches!(then(&view, root, "doc", removed.row.time), Err(Error::NotFound)), "it was gone");
    view.close().unwrap();
}

/// Promises that a file that was saved and not closed since gets a version when its name goes.
#[test]
fn what_is_removed_while_open_is_kept() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    view.set_policy(root, &rule(Versioning::Close)).unwrap();
    let file = create(&view, root, "a");
    save(&view, file, "closed");
    let node = view.node(file, None).unwrap();
    write(&view, file, "open");
    view.unlink(root, b"a").unwrap();
    let events = view.events().unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|event| event.row.kind).collect();
    assert_eq!(kinds, [EventKind::Close, EventKind::Close, EventKind::Removed]);
    assert_eq!(then(&view, root, "a", events[1].row.time).unwrap(), "open");
    assert_eq!(then(&view, root, "a", events[0].row.time).unwrap(), "closed");
    drop(node);
    // Another file with the name has nothing to do with it.
    let new = create(&view, root, "a");
    assert!(matches!(then(&view, root, "a", events[2].row.time), Err(Error::NotFound)));
    save(&view, new, "another");
    assert_eq!(then(&view, root, "a", events[1].row.time).unwrap(), "open");
    view.close().unwrap();
}

/// Promises that a file's own versions do not make others keep more, and that they leave nothing behind when
/// they are forgotten.
#[test]
fn versions_of_one_file_cost_nobody_else() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    let blocks = |view: &View| {
        view.sync().unwrap();
        let info = view.info();
        info.free_blocks
    };
    let (log, database) = (create(&view, root, "log"), create(&view, root, "database"));
    view.set_policy(log, &rule(Versioning::Close)).unwrap();
    let zeros = vec![0u8; 1 << 20];
    view.write(database, 0, &zeros, WriteMode { append: false, kill_set_id: false }).unwrap();
    let twin = view.link(database, root, b"twin").unwrap();
    save(&view, log, "a first line");
    let free = blocks(&view);
    for i in 0..20 {
        save(&view, log, &format!("line {i}")).unwrap();
        view.write(twin.inode(), 0, &zeros, WriteMode { append: false, kill_set_id: false }).unwrap();
    }
    assert!(free - blocks(&view) < 60, "the database was written in place, though it has two names");
    let events: Vec<EventNo> = view.events().unwrap().iter().map(|event| event.number).collect();
    view.forget(&events).unwrap();
    let done = view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!((done.forgotten, done.given_up), (21, 20));
    drop(twin);
    view.close().unwrap();
}

/// Promises that retention rules keep what they say of each file's versions, and of a directory's snapshots.
#[test]
fn rules_let_go_what_they_do_not_keep() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    let rules = RetentionRules { last: 3, ..RetentionRules::default() };
    let policy = Policy {
        versioning: Some(Versioning::Close),
        retention: Some(Retention::Rules(rules)),
        ..Policy::default()
    };
    view.set_policy(root, &policy).unwrap();
    let (a, b) = (create(&view, root, "a"), create(&view, root, "b"));
    let mut times = Vec::new();
    for i in 0..10 {
        times.push(save(&view, a, &format!("a {i}")).unwrap());
    }
    save(&view, b, "b").unwrap();
    let held = view.take_snapshot(root, &NewSnapshot { held: true, ..NewSnapshot::default() }).unwrap();
    let named = view.take_snapshot(root, &NewSnapshot::named("named")).unwrap();
    for _ in 0..5 {
        view.take_snapshot(root, &NewSnapshot::default()).unwrap();
    }
    // The retention thread may have done it before.
    view.retain().unwrap();
    view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    let left = view.events().unwrap();
    let of = |no: InodeNo| left.iter().filter(|event| event.row.root == no).count();
    assert_eq!((of(a), of(b), of(root)), (3, 1, 5), "the last three each, and what is held or named");
    assert!(
        left.iter().any(|event| event.number == held.number)
            && left.iter().any(|event| event.number == named.number)
    );
    assert_eq!(then(&view, root, "a", times[7]).unwrap(), "a 7");
    assert!(then(&view, root, "a", times[6]).is_err());
    // The removal of a file is known as long as some of the file's history is.
    view.unlink(root, b"b").unwrap();
    view.retain().unwrap();
    let removed =
        |view: &View| view.events().unwrap().iter().filter(|c| c.row.kind == EventKind::Removed).count();
    assert_eq!(removed(&view), 1);
    let of_b: Vec<EventNo> = view
        .events()
        .unwrap()
        .iter()
        .filter(|c| c.row.root == b && c.row.kind == EventKind::Close)
        .map(|c| c.number)
        .collect();
    view.forget(&of_b).unwrap();
    view.retain().unwrap();
    assert_eq!(removed(&view), 0);
    view.close().unwrap();
}

fn keep_last(last: u32) -> Retention {
    Retention::Rules(RetentionRules { last, ..RetentionRules::default() })
}

fn mkdir(view: &View, of: InodeNo, name: &str) -> InodeNo {
    view.mkdir(&ME, of, name.as_bytes(), 0o755).unwrap().inode()
}

/// The kept versions of a file, by its number and incarnation.
fn closes(view: &View, file: (InodeNo, u32)) -> usize {
    let is_one = |event: &&Event| {
        (event.row.root, event.row.root_incarnation.0) == file && event.row.kind == EventKind::Close
    };
    view.events().unwrap().iter().filter(is_one).count()
}

fn incarnation(view: &View, file: InodeNo) -> u32 {
    view.getattr(file).unwrap().incarnation
}

/// Versions of a removed file used to lose what their directory's policy says of them: the rules of the root
/// directory let go what the directory keeps, or kept what it lets go. The same holds while somebody still
/// has the removed file open, and for files of a directory that is gone, as far as its place is known.
#[test]
fn what_is_removed_is_judged_where_it_was() {
    for (of_root, of_dir, left) in [
        (Some(keep_last(1)), Some(Retention::Everything), 5),
        (None, Some(keep_last(1)), 1),
        (Some(keep_last(1)), Some(keep_last(3)), 3),
        (Some(keep_last(2)), None, 2),
    ] {
        let view = open(&device());
        let root = view.root();
        let dir = mkdir(&view, root, "d");
        let gone = mkdir(&view, dir, "gone");
        view.set_policy(
            dir,
            &Policy { versioning: Some(Versioning::Close), retention: of_dir.clone(), ..Policy::default() },
        )
        .unwrap();
        let mut files = Vec::new();
        for (directory, name) in [(dir, "f"), (dir, "open"), (gone, "f")] {
            let file = create(&view, directory, name);
            files.push((file, incarnation(&view, file)));
            for n in 0..5 {
                save(&view, file, &format!("version {n}")).expect("a version");
            }
        }
        // It knows where the directory was that is removed next.
        view.take_snapshot(root, &NewSnapshot::named("all")).unwrap();
        let opened = view.node(files[1].0, None).unwrap();
        view.unlink(dir, b"f").unwrap();
        view.unlink(dir, b"open").unwrap();
        view.unlink(gone, b"f").unwrap();
        view.rmdir(dir, b"gone").unwrap();
        // Last, so that no rule of the root directory applies while the files are there.
        view.set_policy(root, &Policy { retention: of_root.clone(), ..Policy::default() }).unwrap();
        view.retain().unwrap();
        let found: Vec<usize> = files.iter().map(|file| closes(&view, *file)).collect();
        assert_eq!(found, [left; 3], "root {of_root:?}, directory {of_dir:?}");
        let removed = view.events().unwrap();
        let removed = removed.iter().filter(|event| event.row.kind == EventKind::Removed).count();
        assert_eq!(removed, 3, "that they were removed stays known");
        drop(opened);
        view.retain().unwrap();
        let found: Vec<usize> = files.iter().map(|file| closes(&view, *file)).collect();
        assert_eq!(found, [left; 3], "after the last close: root {of_root:?}, directory {of_dir:?}");
        view.close().unwrap();
    }
}

/// Files that had one inode number one after the other were judged together, and by the policy of the last
/// one: somebody else's new file took the history of a file that was gone.
#[test]
fn files_of_one_inode_number_are_judged_apart() {
    let view = open(&device());
    let root = view.root();
    let policy =
        Policy { versioning: Some(Versioning::Close), retention: Some(keep_last(2)), ..Policy::default() };
    view.set_policy(root, &policy).unwrap();
    let file = create(&view, root, "a");
    let old = (file, incarnation(&view, file));
    for text in ["one", "two"] {
        save(&view, file, text).expect("a version");
    }
    view.unlink(root, b"a").unwrap();
    view.sync().unwrap();
    let again = (0..10_000).any(|n| create(&view, root, &format!("n{n}")) == file);
    assert!(again, "the number was not used again");
    let new = (file, incarnation(&view, file));
    assert_ne!(old, new);
    for text in ["three", "four"] {
        save(&view, file, text).expect("a version");
    }
    view.retain().unwrap();
    assert_eq!((closes(&view, old), closes(&view, new)), (2, 2));
    // A policy of the new file is about that one alone.
    view.set_policy(file, &Policy { retention: Some(keep_last(1)), ..Policy::default() }).unwrap();
    view.retain().unwrap();
    assert_eq!((closes(&view, old), closes(&view, new)), (2, 1));
    view.close().unwrap();
}

/// A program with a user's rights let go what root had taken of the user's directory, by a policy. What root
/// says of root's own directories applies to what everybody took.
#[test]
fn policies_of_users_do_not_let_go_what_others_took() {
    const ANNA: u32 = 1000;
    let view = open(&device());
    let root = view.root();
    let (of_anna, of_root) = (mkdir(&view, root, "anna"), mkdir(&view, root, "root"));
    let set = yore_fs::SetAttr { uid: Some(ANNA), gid: Some(ANNA), ..yore_fs::SetAttr::default() };
    view.setattr(&ME, of_anna, &set).unwrap();
    let user = |uid| User { uid, limits: None };
    let take = |directory: InodeNo, uid: u32| {
        let by = user(uid);
        view.take_snapshot(directory, &NewSnapshot { user: Some(&by), ..NewSnapshot::default() })
            .unwrap()
            .number
    };
    let mut kept = Vec::new();
    for uid in [0, ANNA, 0, ANNA, ANNA] {
        let (of_her, _) = (take(of_anna, uid), take(of_root, uid));
        kept.extend((uid == 0).then_some(of_her));
    }
    kept.push(take(of_anna, ANNA));
    kept.push(take(of_root, ANNA));
    let policy = Policy { retention: Some(keep_last(1)), ..Policy::default() };
    view.set_policy_for(&user(ANNA), of_anna, &policy).unwrap();
    view.set_policy_for(&user(0), of_root, &policy).unwrap();
    view.retain().unwrap();
    let left: Vec<EventNo> = view.events().unwrap().iter().map(|event| event.number).collect();
    assert_eq!(left, kept);
    view.close().unwrap();
}

/// A program with a user's rights let go versions of other people's files: of those that lay below the user's
/// directory, were moved there, got a further name there, or were removed there. The user's policy says
/// nothing of them; the next one upwards that is root's, or theirs, decides.
#[test]
fn policies_of_users_are_about_their_own_files() {
    const ANNA: u32 = 1000;
    const BOB: u32 = 1001;
    let view = open(&device());
    let root = view.root();
    view.set_policy(root, &rule(Versioning::Close)).unwrap();
    let chown = |of: InodeNo, uid| {
        let set = yore_fs::SetAttr { uid: Some(uid), gid: Some(uid), ..yore_fs::SetAttr::default() };
        view.setattr(&ME, of, &set).unwrap();
    };
    let [of_anna, of_bob] = ["anna", "bob"].map(|name| mkdir(&view, root, name));
    chown(of_anna, ANNA);
    chown(of_bob, BOB);
    let file = |directory, name: &str, uid| {
        let file = create(&view, directory, name);
        chown(file, uid);
        for n in 0..4 {
            save(&view, file, &format!("version {n}")).expect("a version");
        }
        (file, incarnation(&view, file))
    };
    let hers = [file(of_anna, "hers", ANNA), file(of_anna, "hers, gone", ANNA)];
    let of_others = [
        file(of_anna, "his", BOB),
        file(of_anna, "his, gone", BOB),
        file(of_anna, "root's", 0),
        file(of_bob, "moved", BOB),
        file(of_bob, "linked", BOB),
    ];
    for name in ["hers, gone", "his, gone"] {
        view.unlink(of_anna, name.as_bytes()).unwrap();
    }
    view.rename(of_bob, b"moved", of_anna, b"moved", RenameMode::Replace).unwrap();
    drop(view.link(of_others[4].0, of_anna, b"linked").unwrap());
    let count = |files: &[(InodeNo, u32)]| files.iter().map(|file| closes(&view, *file)).collect::<Vec<_>>();
    let before = count(&of_others);
    let user = User { uid: ANNA, limits: None };
    let policy = Policy { retention: Some(keep_last(1)), ..Policy::default() };
    view.set_policy_for(&user, of_anna, &policy).unwrap();
    view.retain().unwrap();
    assert_eq!((count(&hers), count(&of_others)), (vec![1; 2], before));
    let by = |(file, _): (InodeNo, u32)| view.policy_in_force(file).unwrap().retention_by;
    assert_eq!((by(hers[0]), by(of_others[0])), (Some(of_anna), None), "that is what a question is told");

    let policy = Policy { retention: Some(keep_last(2)), ..rule(Versioning::Close) };
    view.set_policy(root, &policy).unwrap();
    view.retain().unwrap();
    assert_eq!((count(&hers), count(&of_others)), (vec![1; 2], vec![2; 5]));
    assert_eq!((by(hers[0]), by(of_others[0])), (Some(of_anna), Some(root)));
    // What he says of a file of his own counts wherever that lies.
    view.set_policy(of_others[0].0, &Policy { retention: Some(keep_last(1)), ..Policy::default() }).unwrap();
    view.retain().unwrap();
    assert_eq!(count(&of_others), [1, 2, 2, 2, 2]);
    // A user's directory may keep more of what is below it than root's rules do, whose that ever is.
    let shared = [file(of_anna, "his, kept", BOB)];
    for (policy, most) in [(Retention::Everything, 4), (keep_last(3), 3), (keep_last(1), 2)] {
        let policy = Policy { retention: Some(policy), ..Policy::default() };
        view.set_policy_for(&user, of_anna, &policy).unwrap();
        view.retain().unwrap();
        assert_eq!(count(&shared), [most]);
    }
    view.close().unwrap();
}

/// A user could end all retention on a volume with one policy: its duration could be computed with when the
/// policy was set, and not from an earlier snapshot. The error ended the pass. Such a duration keeps all.
#[test]
fn an_endless_duration_is_about_its_own_snapshots() {
    let view = open(&device());
    let root = view.root();
    let time = Some(Timestamp { seconds: 1_300_000_000, nanos: 0 });
    let old = view.take_snapshot(root, &NewSnapshot { time, ..NewSnapshot::default() }).unwrap().number;
    let rules = RetentionRules { within: "12015y".into(), ..RetentionRules::default() };
    view.set_policy(root, &Policy { retention: Some(Retention::Rules(rules)), ..Policy::default() }).unwrap();
    let dir = mkdir(&view, root, "d");
    let policy = Policy { retention: Some(keep_last(1)), ..rule(Versioning::Close) };
    view.set_policy(dir, &policy).unwrap();
    let file = create(&view, dir, "file");
    for text in ["one", "two", "three"] {
        save(&view, file, text).expect("a version");
    }
    view.retain().unwrap();
    assert_eq!(closes(&view, (file, incarnation(&view, file))), 1);
    assert!(view.events().unwrap().iter().any(|event| event.number == old));
    view.close().unwrap();
}

fn wait_for(view: &View, count: usize) {
    let since = Instant::now();
    while view.events().unwrap().len() < count {
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", view.events().unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Promises a snapshot at the end of an interval after the first change, and none while nothing changes. If
/// the volume was closed in between, it promises one of what was there, before the next change.
#[test]
fn intervals_record_what_changes() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    let dir = view.mkdir(&ME, root, b"dir", 0o755).unwrap().inode();
    let second = Versioning::Interval(1_000_000_000);
    view.set_policy(dir, &rule(second)).unwrap();
    assert_eq!(view.events().unwrap().len(), 1, "it begins with one");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(view.events().unwrap().len(), 1, "nothing was changed");
    let file = create(&view, dir, "file");
    write(&view, file, "one");
    wait_for(&view, 2);
    let event = view.events().unwrap()[1].clone();
    assert_eq!((event.row.kind, event.row.root), (EventKind::Interval, dir));
    assert_eq!(then(&view, dir, "file", event.row.time).unwrap(), "one");
    write(&view, file, "two");
    view.close().unwrap();
    assert_eq!(open(&device).events().unwrap().len(), 2, "it was closed before the time");

    std::thread::sleep(Duration::from_millis(1100));
    let view = open(&device);
    let events = view.events().unwrap();
    assert_eq!(events.len(), 3, "event before anything changes");
    write(&view, file, "three");
    assert_eq!(then(&view, dir, "file", events[2].row.time).unwrap(), "two");
    view.close().unwrap();
}

/// Promises that a directory with an interval gets snapshots of changes even where each close makes a
/// version. Such closes used to end its snapshots. A policy that says "at snapshots only" starts none.
#[test]
fn intervals_go_on_above_closes() {
    let view = open(&device());
    let root = view.root();
    let directory = |parent, name: &[u8], versioning| {
        let no = view.mkdir(&ME, parent, name, 0o755).unwrap().inode();
        view.set_policy(no, &rule(versioning)).unwrap();
        no
    };
    let timed = directory(root, b"timed", Versioning::Interval(1_000_000_000));
    let saved = directory(timed, b"saved", Versioning::Close);
    let within = directory(saved, b"within", Versioning::Close);
    let quiet = directory(saved, b"quiet", Versioning::Snapshots);
    let of_timed = || view.events().unwrap().iter().filter(|event| event.row.root == timed).count();
    let files = [within, saved, timed].map(|directory| create(&view, directory, "file"));
    let begun = Instant::now();
    while of_timed() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(30), "they were made there");
        std::thread::sleep(Duration::from_millis(20));
    }
    let versions =
        || view.events().unwrap().iter().filter(|event| event.row.kind == EventKind::Close).count();
    for (n, file) in files.into_iter().enumerate() {
        let (before, saved) = (of_timed(), versions());
        save(&view, file, "saved");
        assert_eq!(versions() - saved, usize::from(n < 2), "a version where closes make them");
        let begun = Instant::now();
        while of_timed() == before {
            assert!(begun.elapsed() < Duration::from_secs(30), "no version for {n}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let file = create(&view, quiet, "file");
    // The event that was due for the old directory has been taken by now.
    std::thread::sleep(Duration::from_millis(1500));
    let before = view.events().unwrap().len();
    assert_eq!(save(&view, file, "quiet"), None);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(view.events().unwrap().len(), before);
    view.close().unwrap();
}

/// Promises that an impossible policy is refused, and changes nothing.
#[test]
fn what_is_refused() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    let invalid = |policy: Policy| matches!(view.set_policy(root, &policy), Err(Error::Invalid { .. }));
    assert!(invalid(rule(Versioning::Interval(1))));
    let within = |text: &str| Policy {
        retention: Some(Retention::Rules(RetentionRules {
            within: text.into(),
            ..RetentionRules::default()
        })),
        ..Policy::default()
    };
    assert!(invalid(within("soon")) && invalid(within("5m")) && invalid(within(&"9".repeat(100))));
    let link = view.symlink(&ME, root, b"link", b"a").unwrap();
    let refused = view.set_policy(link.inode(), &rule(Versioning::Close));
    assert!(matches!(refused, Err(Error::Invalid { .. })));
    assert_eq!(view.policies().unwrap(), []);
    drop(link);
    view.close().unwrap();
    let reader = View::open(device, &MountOptions { read_only: true, ..MountOptions::default() }).unwrap();
    assert!(matches!(reader.set_policy(root, &rule(Versioning::Close)), Err(Error::ReadOnly)));
}

/// The library closes files when they are dropped.
#[test]
fn files_of_the_library_are_closed() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    view.set_policy(view.root(), &rule(Versioning::Close)).unwrap();
    for text in ["once", "twice"] {
        volume.write("a", text).unwrap();
    }
    assert_eq!(volume.read("a").unwrap(), b"twice");
    let times: Vec<Timestamp> = view.events().unwrap().iter().map(|event| event.row.time).collect();
    assert_eq!(times.len(), 2);
    assert_eq!(then(view, view.root(), "a", times[0]).unwrap(), "once");
}

/// Versions of a file are listed by its name, also by the name of a file that is gone, and can be forgotten
/// one by one. The time of a forgotten version used to lead to an older snapshot of the directory, if there
/// was one. Now it leads nowhere, like the time of a forgotten snapshot.
#[test]
fn single_versions_are_forgotten() {
    let view = open(&device());
    let root = view.root();
    view.set_policy(root, &rule(Versioning::Close)).unwrap();
    let file = create(&view, root, "doc");
    let first = save(&view, file, "one").unwrap();
    view.take_snapshot(root, &NewSnapshot::named("all")).unwrap();
    let times = ["two", "three"].map(|text| save(&view, file, text).unwrap());
    let list = |name: &str| {
        let (rows, next) = view.list_versions(root, name.as_bytes(), EventNo(0)).unwrap();
        assert!(next.is_none() && rows.iter().all(|row| row.own && row.covers));
        rows.into_iter().map(|row| (row.event.number, row.event.row.time)).collect::<Vec<_>>()
    };
    let listed = list("doc");
    assert_eq!(listed.iter().map(|(_, time)| *time).collect::<Vec<_>>(), [first, times[0], times[1]]);
    assert_eq!(view.version_seen(root, b"doc").unwrap(), None);
    assert!(!view.version_seen(root, b"doc@all").unwrap().unwrap().own);
    assert!(matches!(view.version_seen(root, b"never"), Err(Error::NotFound)));
    view.forget(&[listed[1].0]).unwrap();
    assert!(matches!(then(&view, root, "doc", times[0]), Err(Error::NotFound)));
    assert_eq!(then(&view, root, "doc", times[1]).unwrap(), "three");
    view.unlink(root, b"doc").unwrap();
    assert_eq!(list("doc"), [listed[0], listed[2]], "that it was removed is none of them");
    view.forget(&[listed[2].0]).unwrap();
    for _ in 0..2 {
        assert!(matches!(then(&view, root, "doc", times[1]), Err(Error::NotFound)));
        assert_eq!(then(&view, root, "doc", first).unwrap(), "one");
        view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    }
}

/// A volume can be made with a policy: the policy is there, and a snapshot with it, before the first change.
/// The library makes none by itself.
#[test]
fn a_policy_from_the_beginning() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let policy = MkfsOptions::usual_policy();
    View::mkfs(&device, &MkfsOptions { policy: policy.clone(), ..MkfsOptions::default() }).unwrap();
    let view = open(&device);
    let root = view.root();
    assert_eq!(view.policies().unwrap(), [(root, policy)]);
    let events = view.events().unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].row.kind, events[0].row.root), (EventKind::Interval, root));
    let file = create(&view, root, "file");
    write(&view, file, "one");
    assert!(matches!(then(&view, root, "file", events[0].row.time), Err(Error::NotFound)));
    view.close().unwrap();

    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    let view = open(&device);
    assert!(view.policies().unwrap().is_empty() && view.events().unwrap().is_empty());
}

/// A volume that was full when an interval ended could not be opened for writing any more: the event that had
/// to be taken first found no room, and no history is given up for it. Now the volume opens, and can be
/// emptied.
#[test]
fn a_full_volume_with_an_interval_due_is_opened() {
    let device = device();
    let view = open(&device);
    let root = view.root();
    // The interval is so long that it does not end while the volume is open. No event was taken yet, so one
    // is due at once when the volume is opened again.
    view.set_policy(root, &rule(Versioning::Interval(3_600_000_000_000))).unwrap();
    let volume = Volume::from_view(view);
    // First large files, then files that also take the last room for metadata.
    let mut names = 0u32;
    for size in [1 << 20, 64 << 10, 4 << 10, 0] {
        loop {
            match volume.write(format!("f{names:0200}"), vec![1; size]) {
                Ok(()) => names += 1,
                Err(e) if matches!(e.root(), Error::NoSpace | Error::NeverFits { .. }) => break,
                Err(e) => panic!("{e}"),
            }
        }
    }
    volume.close().unwrap();
    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    for n in 0..names {
        volume.remove_file(format!("f{n:0200}")).unwrap();
    }
    volume.write("again", "there is room").unwrap();
    volume.close().unwrap();
}
