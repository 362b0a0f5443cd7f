//! Promises: snapshots that root, or anybody else, took of a user's directory are safe from programs with
//! that user's rights. The number of snapshots that a user makes by rolling back is limited. A user who asks
//! a lot, or is refused, does not disturb others.

mod common;

use common::asking::{hold, number_of, snapshot};
use common::{as_user, errno_of, Mounted, NOBODY};
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{chown, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use yore_control::{Client as _, Mounted as Asked, Saying, Take};
use yore_fs::rollback::{Plan, Verb};
use yore_fs::{EventNo, Result, UserLimits};

/// The owner of a directory.
const OWNER: u32 = 1000;

fn make(m: &Mounted, name: &str, owner: u32, mode: u32) -> File {
    fs::create_dir(m.path(name)).unwrap();
    chown(m.path(name), Some(owner), Some(owner)).unwrap();
    fs::set_permissions(m.path(name), Permissions::from_mode(mode)).unwrap();
    File::open(m.path(name)).unwrap()
}

fn forget(dir: &File, numbers: &[EventNo]) -> Result<()> {
    Asked(dir).forget(numbers)
}

fn names(dir: &File) -> Vec<String> {
    Asked(dir).all_snapshots().unwrap().into_iter().map(|one| one.event.row.name).collect()
}

/// A program with the owner's rights forgot the snapshots that root had taken of the owner's directory, after
/// releasing those that root held. The owner may do neither, nor remove their names; the owner may do all
/// that with the owner's own snapshots.
#[test]
fn owners_do_not_undo_what_root_took() {
    let Some(m) = Mounted::with(|config| config.allow_other = true) else { return };
    let dir = make(&m, "home", OWNER, 0o755);
    let take = |uid, name: &str, held| {
        as_user(uid, || Asked(&dir).take(Take { name: name.into(), held, ..Take::default() })).unwrap().0
    };
    let (held, free) = (take(0, "root-held", true), take(0, "root-free", false));
    let (own, own_held) = (take(OWNER, "own", false), take(OWNER, "own-held", true));
    let unnamed = Saying { name: Some(String::new()), ..Saying::default() };
    for number in [held, free] {
        assert_eq!(number_of(as_user(OWNER, || forget(&dir, &[number]))), libc::EPERM);
        assert_eq!(number_of(as_user(OWNER, || Asked(&dir).describe(number, unnamed.clone()))), libc::EPERM);
    }
    assert_eq!(number_of(as_user(OWNER, || forget(&dir, &[own, free]))), libc::EPERM, "all or none");
    // The owner may not release root's hold either, nor take it over.
    for to in [false, true] {
        assert_eq!(number_of(as_user(OWNER, || hold(&dir, held, to))), libc::EPERM);
    }
    assert_eq!(number_of(as_user(NOBODY, || hold(&dir, own, true))), libc::EPERM);
    // The owner may hold one of root's snapshots, and release it again.
    for to in [true, false] {
        as_user(OWNER, || hold(&dir, free, to)).unwrap();
    }
    as_user(0, || hold(&dir, own, true)).unwrap();
    assert_eq!(number_of(as_user(OWNER, || hold(&dir, own, false))), libc::EPERM, "root holds it now");
    assert_eq!(number_of(as_user(OWNER, || forget(&dir, &[own]))), libc::EBUSY);
    as_user(OWNER, || hold(&dir, own_held, false)).unwrap();
    as_user(OWNER, || forget(&dir, &[own_held])).unwrap();
    assert_eq!(names(&dir), ["root-held", "root-free", "own"]);
    for number in [held, own] {
        as_user(0, || hold(&dir, number, false)).unwrap();
    }
    as_user(OWNER, || forget(&dir, &[own])).unwrap();
    as_user(0, || forget(&dir, &[held, free])).unwrap();
    assert!(names(&dir).is_empty());
    drop(dir);
    m.end();
}

/// A stranger pinned snapshots as often as there was room, and slept: nobody could restore anything any more,
/// and root could neither forget nor expunge what was pinned. A stranger has a share now, and root goes past
/// what he has pinned.
#[test]
fn pins_of_strangers_stop_nobody() {
    let Some(m) = Mounted::with(|config| config.allow_other = true) else { return };
    let (root, home) = (File::open(m.root()).unwrap(), make(&m, "home", OWNER, 0o755));
    fs::write(m.path("home/file"), "then").unwrap();
    let taken: Vec<(EventNo, File)> = (0..12)
        .map(|n| {
            let number = snapshot(&root, &format!("s{n}")).unwrap().0;
            (number, File::open(m.path(&format!(".@s{n}"))).unwrap())
        })
        .collect();
    let pinned = as_user(NOBODY, || taken.iter().filter(|(_, dir)| Asked(dir).pin().unwrap()).count());
    assert!((3..=8).contains(&pinned), "{pinned}");
    let numbers: Vec<EventNo> = taken.iter().map(|(number, _)| *number).collect();
    forget(&root, &numbers[..2]).unwrap();
    let of = yore_control::Named { name: b"file".to_vec(), below: false, others: false };
    assert_eq!(Asked(&home).expunge(&of).unwrap().files, 1);
    forget(&root, &numbers[2..]).unwrap();
    let stays = || Take { stays: true, undo: true, ..Take::default() };
    as_user(OWNER, || Asked(&home).take(Take { name: "before-restore-1".into(), ..stays() })).unwrap();
    Asked(&root).take(Take { name: "before-restore-2".into(), ..stays() }).unwrap();
    drop((root, home, taken));
    m.end();
}

/// Each rollback leaves two snapshots behind, and these did not count: a user could make any number of them.
#[test]
fn rollbacks_count_as_snapshots() {
    let limits = UserLimits { snapshots: 5, ..UserLimits::default() };
    let m = Mounted::with(|config| {
        config.allow_other = true;
        config.limits = limits;
    });
    let Some(m) = m else { return };
    let dir = make(&m, "home", OWNER, 0o755);
    let file = m.path("home/file");
    let save = |content: &str| as_user(OWNER, || fs::write(&file, content)).unwrap();
    save("then");
    let then = as_user(OWNER, || snapshot(&dir, "then")).unwrap().0;
    let plan = Plan { verb: Verb::Rollback, of: None, target: then, others: None };
    for _ in 0..2 {
        save("now");
        as_user(OWNER, || Asked(&dir).roll_back(&plan)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"then");
    }
    save("now");
    assert_eq!(number_of(as_user(OWNER, || Asked(&dir).roll_back(&plan))), libc::EDQUOT);
    assert_eq!((fs::read(&file).unwrap(), names(&dir).len()), (b"now".to_vec(), 5), "nothing was changed");
    as_user(0, || Asked(&dir).roll_back(&plan)).unwrap();
    // A user who forgets some snapshots has room again.
    save("now");
    let own = Asked(&dir).all_snapshots().unwrap();
    let own: Vec<EventNo> = own[1..3].iter().map(|one| one.event.number).collect();
    as_user(OWNER, || forget(&dir, &own)).unwrap();
    as_user(OWNER, || Asked(&dir).roll_back(&plan)).unwrap();
    drop(dir);
    m.end();
}

/// Sets a flag when it is dropped, also by a panic: whoever waits for the flag must not wait for ever.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A stranger sends requests about directories of its own all the time. Others go on working meanwhile, in
/// files and with their own snapshots.
#[test]
fn who_asks_all_the_time_stops_nobody() {
    let Some(m) = Mounted::with(|config| config.allow_other = true) else { return };
    let (asked, dir) = (make(&m, "asked", NOBODY, 0o755), make(&m, "home", OWNER, 0o755));
    for n in 0..200 {
        fs::write(m.path(&format!("asked/{n}")), "1").unwrap();
    }
    let then = as_user(NOBODY, || snapshot(&asked, "then")).unwrap().0;
    for n in 0..200 {
        fs::remove_file(m.path(&format!("asked/{n}"))).unwrap();
    }
    let (ended, answers) = (AtomicBool::new(false), std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                as_user(NOBODY, || {
                    while !ended.load(Ordering::Acquire) {
                        assert_eq!(Asked(&asked).deleted(true, None).unwrap().len(), 200);
                        assert!(Asked(&asked).diff(Some(then), None).unwrap().len() >= 200);
                        assert_eq!(Asked(&asked).log(b"7", None).unwrap().len(), 1);
                        answers.fetch_add(1, Ordering::AcqRel);
                    }
                })
            });
        }
        let _sets = Sets(&ended);
        let end = Instant::now() + Duration::from_secs(60);
        while answers.load(Ordering::Acquire) == 0 {
            assert!(Instant::now() < end, "after a minute the stranger has no answer");
            std::thread::yield_now();
        }
        as_user(OWNER, || {
            for n in 0..50 {
                let path = m.path(&format!("home/{n}"));
                fs::write(&path, "mine").unwrap();
                File::open(&path).unwrap().sync_all().unwrap();
                Asked(&dir).take(Take { wait: true, ..Take::default() }).unwrap();
                fs::rename(&path, m.path("home/last")).unwrap();
            }
        });
    });
    drop((asked, dir));
    m.end();
}

/// A process works in a directory of the past when a stranger is refused that name: the process goes on
/// reading there.
#[test]
fn a_working_directory_outlives_a_refusal() {
    let Some(m) = Mounted::with(|config| config.allow_other = true) else { return };
    let closed = make(&m, "closed", OWNER, 0o700);
    fs::write(m.path("closed/file"), "then").unwrap();
    chown(m.path("closed/file"), Some(OWNER), Some(OWNER)).unwrap();
    as_user(0, || snapshot(&File::open(m.root()).unwrap(), "then")).unwrap();
    fs::write(m.path("closed/file"), "now").unwrap();
    let mut worker = Command::new("sh");
    worker.args(["-c", r#"cd "$1" && echo there && read line && cat file"#, "sh"]);
    worker.arg(m.path(".@then/closed")).current_dir("/").uid(OWNER).gid(OWNER);
    let mut worker = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(worker.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "there\n");
    for name in [".@then/closed/file", "closed@then/file"] {
        assert_eq!(errno_of(as_user(NOBODY, || fs::read(m.path(name)))), libc::EACCES, "{name}");
    }
    worker.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let mut content = String::new();
    said.read_to_string(&mut content).unwrap();
    assert_eq!(content, "then");
    assert!(worker.wait().unwrap().success());
    drop(closed);
    m.end();
}
