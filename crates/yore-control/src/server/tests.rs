//! Who may send which request, and what it does.

use super::snapshots::page;
use super::*;
use crate::{Checked, Client, Here, Ongoing, Query, Saying, Take, FORGET_MAX};

mod broken_off;
mod expunge;
mod meanwhile;
mod policies;
mod put_back;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Caller, EventNo, MkfsOptions, MountOptions, NewSnapshot, SpaceRules, UserLimits, VerifyStates,
};

/// The user who mounted the volume.
const DAEMONS: u32 = 1;
const ME: Caller = Caller { uid: 4711, gid: 4711, umask: 0o022, keeps_set_id: false };

fn view() -> View {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    View::mkfs(&device, &MkfsOptions { owner: (1, 1), ..MkfsOptions::default() }).unwrap();
    View::open(device, &MountOptions::default()).unwrap()
}

/// A host that has no room to pin anything.
#[derive(Default)]
struct Full(Ongoing);

impl Host for Full {
    fn room(&self) -> Result<Pinning<'_>> {
        Err(Error::Refused("full".into()))
    }

    fn is_over(&self) -> bool {
        false
    }

    fn ongoing(&self) -> &Ongoing {
        &self.0
    }

    fn want_closes(&self) -> Result<()> {
        Err(Error::Refused("no thread".into()))
    }
}

/// A user who asks about a directory.
struct Asking<'a> {
    view: &'a View,
    directory: InodeNo,
    uid: u32,
    read_only: bool,
}

impl Client for Asking<'_> {
    fn ask(&self, request: &Request) -> Result<Answer> {
        self.ask_host(&Full::default(), request)
    }
}

impl Asking<'_> {
    fn ask_host(&self, host: &dyn Host, request: &Request) -> Result<Answer> {
        let access = self.view.access(None, self.view.root());
        let limits = UserLimits { snapshots: 300, holds: 2, policies: 2 };
        let (uid, read_only) = (self.uid, self.read_only);
        let who = Who {
            uid,
            may_all: uid == 0 || uid == DAEMONS,
            as_root: uid == 0,
            groups: &[uid],
            access: &access,
            read_only,
            limits,
            expunges_others: false,
            host,
        };
        answer(self.view, self.directory, &who, request)
    }
}

/// A host where somebody wants to unmount the volume as soon as work that takes long has begun.
struct Leaving {
    view: View,
    ongoing: Ongoing,
}

impl Host for Leaving {
    fn room(&self) -> Result<Pinning<'_>> {
        Err(Error::Refused("full".into()))
    }

    fn is_over(&self) -> bool {
        false
    }

    fn ongoing(&self) -> &Ongoing {
        assert_eq!(self.view.break_off_inspections(), 1);
        &self.ongoing
    }
}

fn by(view: &View, directory: InodeNo, uid: u32) -> Asking<'_> {
    Asking { view, directory, uid, read_only: false }
}

fn named(name: &str) -> Take {
    Take { name: name.into(), ..Take::default() }
}

fn hold(client: &dyn Client, number: EventNo, held: bool) -> Result<()> {
    client.describe(number, Saying { hold: Some(held.then(String::new)), ..Saying::default() })
}

/// Promises that a check and a scrub that are broken off say so and record nothing but how far the scrub is,
/// that checksums and files laid together say so, too, and that later ones are not concerned.
#[test]
fn inspections_are_broken_off() {
    let view = view();
    let root = by(&view, view.root(), 0);
    let check = Request::Check { findings_max: 10, memory: 1 << 20, question: 1 };
    let scrub = Request::Scrub { how: Scrub::default(), question: 2 };
    let leaving = Leaving { view: view.clone(), ongoing: Ongoing::default() };
    assert!(matches!(root.ask_host(&leaving, &check), Ok(Answer::CheckBrokenOff)));
    assert_eq!(view.findings().unwrap(), None);
    match root.ask_host(&leaving, &scrub) {
        Ok(Answer::Scrubbed(part)) => assert!(part.goes_on.is_some(), "{part:?}"),
        other => panic!("{other:?}"),
    }
    // What was asked through a directory kept the mount busy until it was done.
    let file = view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    for page in (0..400).rev() {
        file.write(page * 4096, &[1; 4096], yore_fs::WriteMode { append: false, kill_set_id: false })
            .unwrap();
        view.fsync(file.inode(), false).unwrap();
    }
    view.sync().unwrap();
    let checksums = Request::Checksums { enable: true, question: 3 };
    match root.ask_host(&leaving, &checksums) {
        Ok(Answer::Checksums { kept: true, entered }) => assert!(entered.broken_off, "{entered:?}"),
        other => panic!("{other:?}"),
    }
    let defragment = Request::Defragment { dry_run: false, question: 4 };
    match root.ask_host(&leaving, &defragment) {
        Err(Error::Refused(why)) => assert!(why.contains("broken off"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(view.break_off_inspections(), 0);
    let here = Here::new(&view, view.root());
    assert!(matches!(here.ask(&check), Ok(Answer::Checked(Checked { is_clean: true, .. }))));
    match here.ask(&scrub) {
        Ok(Answer::Scrubbed(rest)) => assert!(rest.goes_on.is_none() && rest.is_clean(), "{rest:?}"),
        other => panic!("{other:?}"),
    }
}

/// Bytes that are not a request are refused, and nothing is taken, held or forgotten.
#[test]
fn nonsense_is_refused() {
    let view = view();
    let file = view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let (root, on_file) = (by(&view, view.root(), 0), by(&view, file.inode(), 0));
    assert!(matches!(on_file.take(named("")), Err(Error::NotADirectory)));
    assert!(matches!(on_file.snapshots(EventNo(0)), Err(Error::NotADirectory)));
    for bad in ["yesterday", "a/b", "\n", &"n".repeat(256)] {
        assert!(matches!(root.take(named(bad)), Err(Error::Invalid { .. })), "{bad}");
    }
    let long = Take { description: "x".repeat(513), ..Take::default() };
    assert!(matches!(root.take(long), Err(Error::Invalid { .. })));
    assert_eq!(view.events().unwrap(), []);

    let (number, _) = root.take(named("")).unwrap();
    for numbers in [vec![], vec![number; FORGET_MAX + 1]] {
        assert!(matches!(root.ask(&Request::Forget { numbers }), Err(Error::Invalid { .. })));
    }
    for name in [&b""[..], b"a/b", b"a\0", &[b'a'; 256]] {
        assert!(matches!(root.versions(name, EventNo(0)), Err(Error::Invalid { .. })), "{name:?}");
        assert!(matches!(root.version_seen(name), Err(Error::Invalid { .. })), "{name:?}");
    }
    assert!(matches!(on_file.forget(&[number]), Err(Error::NotADirectory)));
    assert!(view.events().unwrap().iter().all(|event| !event.row.held) && view.events().unwrap().len() == 1);
}

/// A user who could take a snapshot can hold, release and forget it, through any directory of any time.
/// Either all are forgotten or none.
#[test]
fn who_may_forget_what() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let gone = view.mkdir(&ME, view.root(), b"gone", 0o700).unwrap().inode();
    let event = |inode, name| view.take_snapshot(inode, &NewSnapshot::named(name)).unwrap().number;
    let (a, b, c, d) = (event(mine, "a"), event(view.root(), "b"), event(gone, "c"), event(mine, "d"));
    view.rmdir(view.root(), b"gone").unwrap();
    let past = view.as_of(b);
    let root = view.root();
    let (me, other, all) = (by(&view, root, 4711), by(&view, root, 9), by(&view, root, 0));
    let read_only = Asking { read_only: true, ..by(&view, mine, 4711) };
    let left = || view.events().unwrap().into_iter().map(|event| event.row.name).collect::<String>();
    assert!(matches!(me.forget(&[a, b]), Err(Error::NotPermitted { .. })));
    assert!(matches!(me.forget(&[c]), Err(Error::NotPermitted { .. })), "it is gone");
    assert!(matches!(other.forget(&[a]), Err(Error::NotPermitted { .. })));
    assert!(matches!(me.forget(&[a, EventNo(99)]), Err(Error::NotFound)));
    assert!(matches!(read_only.forget(&[a]), Err(Error::ReadOnly)));
    assert!(matches!(hold(&me, b, true), Err(Error::NotPermitted { .. })));
    assert!(matches!(hold(&read_only, a, true), Err(Error::ReadOnly)));
    assert!(matches!(hold(&all, EventNo(99), true), Err(Error::NotFound)));
    for _ in 0..2 {
        hold(&me, a, true).unwrap();
    }
    // The error says which one it is.
    assert!(matches!(all.forget(&[d, a]), Err(Error::Held { event }) if event == a.0));
    assert_eq!(left(), "abcd");
    hold(&me, a, false).unwrap();
    by(&past, root, 4711).forget(&[d, a, d]).unwrap();
    assert_eq!(left(), "bc");
    all.forget(&[c]).unwrap();
    assert!(matches!(all.forget(&[c]), Err(Error::NotFound)));
    assert_eq!(left(), "b");
}

/// Root and the daemon's user lay files together; everybody else is refused. Telling what it takes works on a
/// mount that is read-only.
#[test]
fn who_may_lay_files_together() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let file = view.create(&ME, mine, b"f", FileKind::Regular, 0o644, 0).unwrap();
    file.write(0, &[1; 100_000], yore_fs::WriteMode { append: false, kill_set_id: false }).unwrap();
    for inode in [mine, file.inode()] {
        for uid in [9, 4711] {
            let other = by(&view, inode, uid);
            assert!(matches!(other.scattered(), Err(Error::NotPermitted { .. })));
            assert!(matches!(other.defragment(None), Err(Error::NotPermitted { .. })));
        }
        for uid in [0, DAEMONS] {
            let found = by(&view, inode, uid).defragment(None).unwrap();
            assert_eq!((found.before.files, found.before.scattered), (1, 0));
            let read_only = Asking { read_only: true, ..by(&view, inode, uid) };
            assert_eq!(read_only.scattered().unwrap(), found.before);
            assert!(matches!(read_only.defragment(None), Err(Error::ReadOnly)));
        }
    }
    let event = view.take_snapshot(view.root(), &NewSnapshot::named("a")).unwrap().number;
    assert!(matches!(by(&view.as_of(event), mine, 0).scattered(), Err(Error::ReadOnly)));
}

/// A directory of the past says as of which snapshot it is seen, and whether that snapshot is one of its own.
#[test]
fn a_directory_knows_its_time() {
    let view = view();
    let below = view.mkdir(&ME, view.root(), b"below", 0o755).unwrap().inode();
    let events =
        [view.root(), below].map(|inode| view.take_snapshot(inode, &NewSnapshot::default()).unwrap().number);
    let seen = |view: &View| by(view, below, 9).seen().unwrap().map(|row| (row.event.number, row.own));
    assert_eq!(seen(&view), None);
    assert_eq!(seen(&view.as_of(events[0])), Some((events[0], false)));
    assert_eq!(seen(&view.as_of(events[1])), Some((events[1], true)));
}

/// A request about a file is answered; a name that leads to nothing is not found.
#[test]
fn files_are_asked_for() {
    let view = view();
    view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let event = view.take_snapshot(view.root(), &NewSnapshot::named("all")).unwrap().number;
    let asking = by(&view, view.root(), 9);
    let seen = |name: &[u8]| asking.version_seen(name).unwrap().map(|row| (row.event.number, row.own));
    assert_eq!(asking.all_versions(b"f").unwrap(), []);
    assert_eq!(seen(b"f"), None);
    assert_eq!(seen(b"f@all"), Some((event, false)));
    assert!(matches!(asking.all_versions(b"absent"), Err(Error::NotFound)));
}

/// Owners take snapshots of their own directories. Others see of these snapshots only what they could see
/// anyway.
#[test]
fn who_may_what() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap();
    let below = view.mkdir(&Caller { uid: 5, ..ME }, mine.inode(), b"below", 0o755).unwrap();
    let take = |inode, uid, name: &str| by(&view, inode, uid).take(named(name));
    take(mine.inode(), 4711, "a").unwrap();
    take(below.inode(), 5, "b").unwrap();
    take(view.root(), 0, "c").unwrap();
    assert!(matches!(take(view.root(), 4711, ""), Err(Error::NotPermitted { .. })));
    assert!(matches!(take(mine.inode(), 5, ""), Err(Error::NotPermitted { .. })));
    assert!(matches!(take(mine.inode(), 4711, "a"), Err(Error::Exists)));
    let names = |inode, uid| -> Vec<String> {
        let rows = by(&view, inode, uid).all_snapshots().unwrap();
        rows.into_iter().map(|listed| listed.event.row.name).collect()
    };
    assert_eq!(names(view.root(), 0), ["a", "b", "c"]);
    assert_eq!(names(view.root(), 4711), ["a", "c"]);
    assert_eq!(names(view.root(), 9), ["c"]);
    assert_eq!(names(below.inode(), 9), ["a", "b", "c"]);
}

/// Users with a limit learn its number and what it counts. Nobody else does.
#[test]
fn limits_say_what_they_are_of() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let me = by(&view, mine, 4711);
    let numbers = ["a", "b", "c"].map(|name| me.take(named(name)).unwrap().0);
    hold(&me, numbers[0], true).unwrap();
    hold(&me, numbers[1], true).unwrap();
    assert!(matches!(hold(&me, numbers[2], true), Err(Error::LimitReached { what: "holds", most: 2 })));
    hold(&Here::new(&view, mine), numbers[2], true).unwrap();
}

/// A list of more than a page has each row once, in order, however long names and paths are.
#[test]
fn pages() {
    let view = view();
    let names: Vec<String> = (0..300).map(|i| format!("n{i:0>200}")).collect();
    let root = by(&view, view.root(), 0);
    for name in &names {
        root.take(Take { held: true, ..named(name) }).unwrap();
    }
    assert!(root.snapshots(EventNo(0)).unwrap().next.is_some());
    let listed = root.all_snapshots().unwrap();
    assert!(listed
        .iter()
        .all(|listed| listed.event.row.held && listed.path.as_deref() == Some(Path::new("/"))));
    assert!(listed.into_iter().map(|listed| listed.event.row.name).eq(names));

    let mut row = root.all_snapshots().unwrap().swap_remove(0);
    row.path = Some(PathBuf::from("/d".repeat(10_000)));
    let access = view.access(None, view.root());
    let limits = UserLimits::default();
    let host = Full::default();
    let who = Who {
        uid: 0,
        may_all: true,
        as_root: true,
        groups: &[],
        access: &access,
        read_only: false,
        limits,
        expunges_others: false,
        host: &host,
    };
    let Answer::Page(page) = page(&view, &who, vec![row], None).unwrap() else { panic!("no page") };
    assert_eq!((page.rows.len(), page.rows[0].path.is_none(), page.next), (1, true, None));
}

/// A snapshot that is to stay is taken only if there is room to pin it. On a volume opened here it stays as
/// long as the client.
#[test]
fn what_stays() {
    let view = view();
    let stays = || Take { stays: true, undo: true, ..named("before-restore-1") };
    assert!(matches!(by(&view, view.root(), 0).take(stays()), Err(Error::Refused(_))));
    assert_eq!(view.events().unwrap(), []);
    let here = Here::new(&view, view.root());
    let (number, _) = here.take(stays()).unwrap();
    assert!(matches!(here.forget(&[number]), Err(Error::Pinned { .. })));
    drop(here);
    Here::new(&view, view.root()).forget(&[number]).unwrap();
}

/// The list of operations arrives complete, in pages, the latest first. Users other than root see only their
/// own.
#[test]
fn operations_come_in_pages() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let me = by(&view, mine, 4711);
    me.take(named("mine")).unwrap();
    let root = by(&view, view.root(), 0);
    for i in 0..200 {
        root.take(named(&format!("n{i:0>200}"))).unwrap();
    }
    let all = root.operations().unwrap();
    assert_eq!(all.len(), 201);
    assert!(all.windows(2).all(|pair| pair[0].0 > pair[1].0));
    assert!(matches!(
        root.ask(&Request::Operations { before: None }),
        Ok(Answer::Operations { next: Some(_), .. })
    ));
    let seen = me.operations().unwrap();
    assert_eq!(seen.iter().map(|(_, row)| row.note.as_str()).collect::<Vec<_>>(), ["mine"]);
}

/// Root and the daemon's user change settings of the whole volume; others do not, and nobody does where
/// nothing may be written. Everybody learns what a full volume keeps, but not what it gave up.
#[test]
fn who_may_change_the_volume() {
    let view = view();
    let file = view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let (all, other) = (by(&view, view.root(), 0), by(&view, view.root(), 4711));
    let read_only = Asking { read_only: true, ..by(&view, view.root(), 0) };
    let rules = SpaceRules { floor_seconds: 7, share_percent: 50 };
    let size = view.info().size;
    assert!(matches!(other.set_space_rules(rules), Err(Error::NotPermitted { .. })));
    assert!(matches!(other.what_would_free(), Err(Error::NotPermitted { .. })));
    assert!(matches!(other.lengthen(size), Err(Error::NotPermitted { .. })));
    assert!(matches!(other.shred(), Err(Error::NotPermitted { .. })));
    assert!(matches!(read_only.set_space_rules(rules), Err(Error::ReadOnly)));
    assert!(matches!(read_only.lengthen(size), Err(Error::ReadOnly)));
    assert!(matches!(read_only.shred(), Err(Error::ReadOnly)));
    assert!(matches!(
        all.set_space_rules(SpaceRules { share_percent: 101, ..rules }),
        Err(Error::Invalid { .. })
    ));
    all.set_space_rules(rules).unwrap();
    assert_eq!(by(&view, file.inode(), 9).space_rules().unwrap(), rules);
    assert_eq!((all.given_up().unwrap(), other.missed_versions().unwrap()), (vec![], None));
    assert_eq!(all.what_would_free().unwrap().by_itself, 0);
    assert_eq!(all.lengthen(size).unwrap(), size);
    assert!(matches!(all.lengthen(size << 8), Err(Error::Refused(_))));
    assert!(matches!(by(&view, file.inode(), 0).lengthen(size), Err(Error::NotADirectory)));
    assert_eq!(all.shred().unwrap(), 0);
    assert_eq!(Here::new(&view, view.root()).shred().unwrap(), 0);
}

/// A reader of the past pins it, if there is a past and room to pin it.
#[test]
fn what_is_read_is_kept() {
    let view = view();
    let number = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let past = view.as_of(number);
    assert!(!by(&past, view.root(), 9).pin().unwrap());
    let here = Here::new(&past, view.root());
    assert!(here.pin().unwrap() && !Here::new(&view, view.root()).pin().unwrap());
    assert!(matches!(view.forget(&[number]), Err(Error::Pinned { .. })));
    drop(here);
    view.forget(&[number]).unwrap();
}

/// The last snapshot that has seen a directory is that of the list, if there is one.
#[test]
fn the_last_snapshot() {
    let view = view();
    let below = view.mkdir(&ME, view.root(), b"below", 0o755).unwrap().inode();
    let last = |inode| by(&view, inode, 9).last().unwrap().map(|row| row.event.number);
    assert_eq!(last(below), None);
    let all = view.take_snapshot(view.root(), &NewSnapshot::named("all")).unwrap().number;
    assert_eq!((last(below), last(view.root())), (Some(all), Some(all)));
    let own = view.take_snapshot(below, &NewSnapshot::named("own")).unwrap().number;
    assert_eq!((last(below), last(view.root())), (Some(own), Some(all)));
    let listed = by(&view, below, 9).all_snapshots().unwrap();
    assert_eq!(listed.iter().rfind(|row| row.covers).map(|row| row.event.number), Some(own));
}

/// Answers about the past are those of the library: differences, logs, what is gone, and the space it takes.
#[test]
fn what_was_is_told() {
    let view = view();
    let root = view.root();
    let file = view.create(&ME, root, b"f\xff", FileKind::Regular, 0o644, 0).unwrap();
    let named = view.take_snapshot(root, &NewSnapshot::named("named")).unwrap().number;
    view.rename(root, b"f\xff", root, b"g", yore_fs::RenameMode::Replace).unwrap();
    view.take_snapshot(root, &NewSnapshot { held: true, ..NewSnapshot::default() }).unwrap();
    drop(file);
    let (asking, go_on) = (by(&view, root, 0), ControlFlow::Continue(()));
    let mut states = Vec::new();
    view.log(root, b"g", &mut |state| {
        states.push(state);
        go_on
    })
    .unwrap();
    assert_eq!(asking.log(b"g", None).unwrap(), states);
    assert_eq!((states.len(), &asking.log(b"g", Some(1)).unwrap()[..]), (2, &states[..1]));
    assert!(matches!(asking.log(b"absent", None), Err(Error::NotFound)));
    let differences = asking.diff(Some(named), None).unwrap();
    assert_eq!(differences.iter().map(|found| &found.path[..]).collect::<Vec<_>>(), [&b"g"[..]]);
    assert_eq!(asking.compare(Some(named), None, None).unwrap(), differences);
    assert_eq!(asking.usage().unwrap().1.len(), 2);
    assert_eq!(asking.usage_of(b"g").unwrap().1.len(), 2);

    view.unlink(root, b"g").unwrap();
    let mut gone = Vec::new();
    view.deleted(root, true, &mut |found| {
        gone.push(found);
        go_on
    })
    .unwrap();
    assert_eq!((asking.deleted(true, None).unwrap(), gone.len()), (gone, 1));
    let past = view.as_of(named);
    assert!(matches!(by(&past, root, 0).deleted(false, None), Err(Error::Invalid { .. })));
}

/// Users who could take no snapshot of a directory learn nothing of its past but which directory it is. They
/// do not learn whether a name existed, either.
#[test]
fn who_may_query() {
    let view = view();
    let first = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let file = view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let queries = || {
        let name = || b"f".to_vec();
        let (from, to, question) = (Some(first), None, 0);
        let log = |name| Query::Log { name, most: None, verify: VerifyStates::No, question };
        vec![
            Query::Diff { from, to },
            Query::Compare { from, to, question },
            log(name()),
            log(b"absent".to_vec()),
            Query::Deleted { recursive: false, question },
            Query::Usage { question },
            Query::UsageOf { name: name(), question },
            Query::UsageOf { name: b"absent".to_vec(), question },
        ]
    };
    for query in queries() {
        let is_absent = format!("{query:?}").contains("97, 98");
        for uid in [0, 1] {
            match by(&view, view.root(), uid).ask(&Request::Query(query.clone())) {
                Ok(_) if !is_absent => {}
                Err(Error::NotFound) if is_absent => {}
                other => panic!("{query:?} by {uid}: {other:?}"),
            }
        }
        let refused = by(&view, view.root(), 4711).ask(&Request::Query(query.clone()));
        assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{query:?}: {refused:?}");
    }
    let stranger = by(&view, view.root(), 4711);
    assert_eq!(stranger.identity().unwrap().inode, view.root());
    stranger.history_bytes().unwrap();
    assert!(matches!(stranger.diff(Some(EventNo(99)), None), Err(Error::NotPermitted { .. })));
    assert!(matches!(by(&view, view.root(), 0).diff(Some(EventNo(99)), None), Err(Error::Stale)));
    assert!(matches!(by(&view, file.inode(), 0).identity(), Err(Error::NotADirectory)));
}
