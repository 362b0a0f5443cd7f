//! Promises: commands about history reveal to a directory's owner no name that the owner may not or could not
//! learn by looking, even if others own directories below. Others learn nothing. Owners give up only history
//! of which they own every state.

mod common;

use common::{as_user, Mounted, NOBODY};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{chown, PermissionsExt};
use yore_control::{Client as _, Named};
use yore_fs::rollback::{Plan, Verb};
use yore_fs::{Error, EventNo, InodeNo, NewSnapshot};

/// A user with files below a directory of NOBODY's.
const OTHER: u32 = 1000;

fn mounted() -> Option<Mounted> {
    Mounted::with(|config| config.allow_other = true)
}

fn make(m: &Mounted, name: &str, content: Option<&str>, owner: u32, mode: u32) {
    let path = m.path(name);
    match content {
        Some(content) => fs::write(&path, content).unwrap(),
        None => fs::create_dir(&path).unwrap(),
    }
    chown(&path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

fn inode(m: &Mounted, path: &str) -> InodeNo {
    path.split('/').fold(m.view.root(), |at, name| m.view.lookup(at, name.as_bytes()).unwrap().inode())
}

fn snapshot(m: &Mounted, path: Option<&str>, name: &str) -> EventNo {
    let of = path.map_or(m.view.root(), |path| inode(m, path));
    m.view.take_snapshot(of, &NewSnapshot::named(name)).unwrap().number
}

fn asked(dir: &File) -> yore_control::Mounted<&File> {
    yore_control::Mounted(dir)
}

/// `share` belongs to NOBODY. `share/hers` belongs to another user and is closed; in it one file goes and one
/// changes. As of the first snapshot `share/was` was closed too; it belongs to NOBODY now.
fn share() -> Option<(Mounted, EventNo)> {
    let m = mounted()?;
    make(&m, "share", None, NOBODY, 0o777);
    make(&m, "share/mine", Some("1"), NOBODY, 0o644);
    for dir in ["share/hers", "share/was"] {
        make(&m, dir, None, OTHER, 0o700);
        for name in ["goes", "stays", "moves"] {
            make(&m, &format!("{dir}/{name}"), Some("1"), OTHER, 0o644);
        }
    }
    let then = snapshot(&m, None, "then");
    for dir in ["share/hers", "share/was"] {
        fs::remove_file(m.path(&format!("{dir}/goes"))).unwrap();
        fs::write(m.path(&format!("{dir}/stays")), "22").unwrap();
    }
    fs::rename(m.path("share/hers/moves"), m.path("share/came")).unwrap();
    fs::remove_file(m.path("share/mine")).unwrap();
    chown(m.path("share/was"), Some(NOBODY), Some(NOBODY)).unwrap();
    chown(m.path("share/came"), Some(NOBODY), Some(NOBODY)).unwrap();
    Some((m, then))
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// The owner of a directory asked `deleted -r`, `diff` and `log`, and learned names in directories of others
/// below, and in directories that the owner got only later.
#[test]
fn lists_have_no_names_of_closed_directories() {
    let Some((m, then)) = share() else { return };
    let dir = File::open(m.path("share")).unwrap();
    let gone = |uid| -> Vec<String> {
        let mut names: Vec<_> = as_user(uid, || asked(&dir).deleted(true, None))
            .unwrap()
            .iter()
            .map(|one| text(&one.path))
            .collect();
        names.sort();
        names
    };
    assert_eq!(gone(0), ["hers/goes", "mine", "was/goes"]);
    assert_eq!(gone(NOBODY), ["mine"]);
    let differs = |uid| -> Vec<String> {
        let found = as_user(uid, || asked(&dir).diff(Some(then), None)).unwrap();
        found
            .iter()
            .flat_map(|one| [Some(&one.path), one.old_path.as_ref()])
            .flatten()
            .map(|p| text(p))
            .collect()
    };
    let all = differs(0);
    for name in ["hers/goes", "hers/stays", "hers/moves", "was/goes", "was/stays"] {
        assert!(all.iter().any(|path| path == name), "{name}: {all:?}");
    }
    let told = differs(NOBODY);
    assert!(told.iter().any(|path| path == "mine") && told.iter().any(|path| path == "came"), "{told:?}");
    assert!(!told.iter().any(|path| path.contains('/')), "{told:?}");
    // A log follows renames, but not into directories that the user could not list.
    let states = |uid| as_user(uid, || asked(&dir).log(b"came", None)).unwrap();
    assert!(states(0).iter().any(|state| state.name == b"moves"));
    assert!(states(NOBODY).iter().all(|state| state.name == b"came"));
    let was = File::open(m.path("share/was")).unwrap();
    assert!(matches!(as_user(NOBODY, || asked(&was).log(b"goes", None)), Err(Error::NotFound)));
    assert_eq!(as_user(0, || asked(&was).log(b"goes", None)).unwrap().len(), 1);
    // Others are refused whether or not the name exists.
    for name in ["goes", "nothing"] {
        let refused = as_user(4711, || asked(&was).log(name.as_bytes(), None));
        assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{name}");
    }
    drop((dir, was));
    m.end();
}

/// A rollback that was refused named the file of another user, wherever it was.
#[test]
fn a_refusal_names_nothing_in_closed_directories() {
    let Some((m, then)) = share() else { return };
    let dir = File::open(m.path("share")).unwrap();
    let plan = Plan { verb: Verb::Rollback, of: None, target: then, others: None };
    match as_user(NOBODY, || yore_control::Mounted(&dir).roll_back(&plan)) {
        Err(Error::NotYours { path }) => assert!(!path.contains('/'), "{path}"),
        other => panic!("{other:?}"),
    }
    drop(dir);
    m.end();
}

/// Versions of a file, and what a name with a time leads to, were listed for everybody who could open the
/// directory.
#[test]
fn lists_of_a_name_are_for_who_might_look_it_up() {
    let Some(m) = mounted() else { return };
    make(&m, "proj", None, OTHER, 0o700);
    make(&m, "proj/gone", Some("1"), OTHER, 0o644);
    let close =
        yore_fs::Policy { versioning: Some(yore_fs::Versioning::Close), ..yore_fs::Policy::default() };
    m.view.set_policy(inode(&m, "proj"), &close).unwrap();
    m.view.closed(inode(&m, "proj/gone")).unwrap();
    snapshot(&m, None, "closed");
    fs::remove_file(m.path("proj/gone")).unwrap();
    fs::set_permissions(m.path("proj"), Permissions::from_mode(0o755)).unwrap();
    snapshot(&m, None, "opened");
    let dir = File::open(m.path("proj")).unwrap();
    for name in ["gone", "gone@closed", "nothing", "nothing@closed"] {
        let name = name.as_bytes();
        let asked = yore_control::Mounted(&dir);
        let versions = as_user(NOBODY, || asked.versions(name, EventNo(0)));
        assert!(matches!(versions, Err(Error::NotFound)), "{}", text(name));
        let seen = as_user(NOBODY, || asked.version_seen(name));
        assert!(matches!(seen, Err(Error::NotFound)), "{}", text(name));
        let known =
            as_user(NOBODY, || asked.history_of(&Named { name: name.to_vec(), below: false, others: false }));
        assert!(matches!(known, Err(Error::NotPermitted { .. })), "{}", text(name));
    }
    assert!(as_user(OTHER, || yore_control::Mounted(&dir).version_seen(b"gone@closed")).unwrap().is_some());
    drop(dir);
    m.end();
}

/// Programs with the owner's rights expunged files from snapshots that root had taken to guard against
/// exactly that. This now works only where the mount allows it. Versions that the file's own policy made
/// belong to the owner.
#[test]
fn owners_give_up_what_only_they_remember() {
    for allowed in [false, true] {
        let m = Mounted::with(|config| {
            config.allow_other = true;
            config.expunge_others = allowed;
        });
        let Some(m) = m else { return };
        make(&m, "home", None, OTHER, 0o755);
        make(&m, "home/kept", Some("1"), OTHER, 0o644);
        let close =
            yore_fs::Policy { versioning: Some(yore_fs::Versioning::Close), ..yore_fs::Policy::default() };
        m.view.set_policy(inode(&m, "home"), &close).unwrap();
        m.view.closed(inode(&m, "home/kept")).unwrap();
        snapshot(&m, None, "roots");
        fs::write(m.path("home/kept"), "2").unwrap();
        // This file came after the snapshot.
        make(&m, "home/new", Some("1"), OTHER, 0o644);
        m.view.closed(inode(&m, "home/new")).unwrap();
        let dir = File::open(m.path("home")).unwrap();
        let done = |uid, name: &[u8]| {
            let of = Named { name: name.to_vec(), below: false, others: false };
            as_user(uid, || yore_control::Mounted(&dir).expunge(&of))
        };
        assert!(done(OTHER, b"new").is_ok());
        let outcome = done(OTHER, b"kept");
        if allowed {
            assert!(outcome.is_ok(), "{outcome:?}");
        } else {
            assert!(matches!(outcome, Err(Error::TakenByOthers { .. })), "{outcome:?}");
            assert_eq!(fs::read(m.path(".@roots/home/kept")).unwrap(), b"1");
            assert!(done(0, b"kept").is_ok(), "root may");
        }
        assert!(fs::read(m.path(".@roots/home/kept")).is_err());
        drop(dir);
        m.end();
    }
}
