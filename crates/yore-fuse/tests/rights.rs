//! Who may do what: permissions, ACLs, set-id bits, other users.

mod common;

use common::{shell_as, skipped, Mounted, NOBODY};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{chown, FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Without `allow_other` nobody else can use the mount, whatever the permissions say.
#[test]
fn other_users_stay_out() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.path("f"), b"x").unwrap();
    chmod(&m.path("f"), 0o777);
    let (ok, said) = shell_as(NOBODY, &format!("cat {:?}", m.path("f")));
    assert!(!ok && said.contains("ermission denied"), "{said}");
    m.end();
}

/// With `allow_other` permissions decide, and new files belong to the user who created them.
#[test]
fn permissions_decide() {
    let Some(m) = Mounted::with(|c| c.allow_other = true) else { return };
    fs::write(m.path("secret"), b"x").unwrap();
    chmod(&m.path("secret"), 0o600);
    fs::write(m.path("public"), b"y").unwrap();
    assert!(!shell_as(NOBODY, &format!("cat {:?}", m.path("secret"))).0);
    assert!(shell_as(NOBODY, &format!("cat {:?}", m.path("public"))).0);
    assert!(!shell_as(NOBODY, &format!("touch {:?}", m.path("new"))).0);
    chmod(&m.root(), 0o1777);
    let (ok, said) =
        shell_as(NOBODY, &format!("umask 027; touch {:?}; mkdir {:?}", m.path("new"), m.path("dir")));
    assert!(ok, "{said}");
    let found = fs::metadata(m.path("new")).unwrap();
    assert_eq!((found.uid(), found.gid(), mode(&m.path("new"))), (NOBODY, NOBODY, 0o640));
    assert_eq!(mode(&m.path("dir")), 0o750);
    // Sticky: nobody else removes root's file.
    assert!(!shell_as(NOBODY, &format!("rm -f {:?}", m.path("public"))).0);
    m.end();
}

/// Files created in a set-group-id directory get its group, and subdirectories also get the bit.
#[test]
fn set_group_id_directories() {
    let Some(m) = Mounted::with(|c| c.allow_other = true) else { return };
    fs::create_dir(m.path("d")).unwrap();
    chown(m.path("d"), None, Some(1234)).unwrap();
    chmod(&m.path("d"), 0o2777);
    let (ok, said) = shell_as(NOBODY, &format!("cd {:?} && touch f && mkdir s", m.path("d")));
    assert!(ok, "{said}");
    assert_eq!(fs::metadata(m.path("d/f")).unwrap().gid(), 1234);
    assert_eq!(fs::metadata(m.path("d/s")).unwrap().gid(), 1234);
    assert_eq!(mode(&m.path("d/s")) & 0o2000, 0o2000);
    m.end();
}

/// Set-id bits are dropped when an ordinary user writes, truncates, allocates or copies into a file, and stay
/// when root does. The kernel leaves all of that to the daemon.
#[test]
fn set_id_bits_fall() {
    for close_events in [false, true] {
        let Some(m) = Mounted::with(|c| {
            c.allow_other = true;
            c.close_events = close_events;
        }) else {
            return;
        };
        let path = m.path("program");
        let name = path.display().to_string();
        fs::write(&path, vec![1; 5000]).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        chmod(&m.root(), 0o777);
        fs::write(m.path("source"), vec![2; 5000]).unwrap();
        let source = m.path("source").display().to_string();
        for command in [
            format!("echo x >> {name}"),
            format!("truncate -s 3000 {name}"),
            format!(": > {name}"),
            format!("fallocate -l 9000 {name}"),
            format!("cp --reflink=never {source} {name}"),
            format!("dd if={source} of={name} bs=1000 count=2 conv=notrunc oflag=direct 2>/dev/null"),
        ] {
            chmod(&path, 0o6775);
            let (ok, said) = shell_as(NOBODY, &command);
            assert!(ok, "{command}: {said}");
            assert_eq!(mode(&path), 0o775, "{command}, close events {close_events}");
        }
        // Without group execution set-group-id is not a privilege.
        chmod(&path, 0o6765);
        chmod(&path, 0o6705);
        assert!(shell_as(NOBODY, &format!("echo x >> {name}")).0);
        assert_eq!(mode(&path), 0o2705);
        // Root keeps them on writing, and loses them on giving the file away.
        chmod(&path, 0o6775);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"root").unwrap();
        File::options().write(true).open(&path).unwrap().write_all_at(b"root", 9).unwrap();
        assert_eq!(mode(&path), 0o6775);
        chown(&path, Some(1), Some(1)).unwrap();
        assert_eq!(mode(&path), 0o775);
        m.end();
    }
}

/// ACLs are kept, inherited without the umask, checked by the kernel, and follow chmod.
#[test]
fn acls() {
    if Command::new("setfacl").arg("--version").output().is_err() {
        return skipped("setfacl is not installed");
    }
    let Some(m) = Mounted::with(|c| c.allow_other = true) else { return };
    let run = |command: &str| {
        let output = Command::new("sh").args(["-c", command]).current_dir(m.root()).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{command}: {said}");
        said
    };
    fs::write(m.path("f"), b"x").unwrap();
    chmod(&m.path("f"), 0o600);
    assert!(!shell_as(NOBODY, &format!("cat {:?}", m.path("f"))).0);
    run(&format!("setfacl -m u:{NOBODY}:r f"));
    assert!(shell_as(NOBODY, &format!("cat {:?}", m.path("f"))).0);
    assert!(!shell_as(NOBODY, &format!("echo >> {:?}", m.path("f"))).0);
    let said = run("getfacl -n --omit-header f");
    assert!(said.contains(&format!("user:{NOBODY}:r--")) && said.contains("mask::r--"), "{said}");
    assert_eq!(mode(&m.path("f")), 0o640, "the mask stands in the group's place");
    // Removing rights from the mask removes them from the named user.
    chmod(&m.path("f"), 0o600);
    assert!(!shell_as(NOBODY, &format!("cat {:?}", m.path("f"))).0);

    fs::create_dir(m.path("d")).unwrap();
    run(&format!("setfacl -d -m u::rwx,g::rx,o::-,u:{NOBODY}:rw d"));
    run("umask 077; touch d/f; mkdir d/s");
    let file = run("getfacl -n --omit-header d/f");
    assert!(file.contains(&format!("user:{NOBODY}:rw-")) && file.contains("mask::rw-"), "{file}");
    assert_eq!(mode(&m.path("d/f")), 0o660, "the default ACL stands in the umask's place");
    let sub = run("getfacl -n --omit-header d/s");
    assert!(sub.contains(&format!("default:user:{NOBODY}:rw-")), "{sub}");
    run("setfacl -b d/f && setfacl -k d");
    assert!(!run("getfacl -n --omit-header d d/f").contains("mask"));
    m.end();
}

/// Setting an ACL drops set-group-id for a caller who is not in the file's group.
#[test]
fn acl_drops_set_group_id() {
    if Command::new("setfacl").arg("--version").output().is_err() {
        return skipped("setfacl is not installed");
    }
    let Some(m) = Mounted::with(|c| c.allow_other = true) else { return };
    fs::write(m.path("f"), b"").unwrap();
    chown(m.path("f"), Some(NOBODY), Some(1234)).unwrap();
    chmod(&m.path("f"), 0o2770);
    let (ok, said) = shell_as(NOBODY, &format!("setfacl -m u:7:r {:?}", m.path("f")));
    assert!(ok, "{said}");
    assert_eq!(mode(&m.path("f")) & 0o2000, 0);
    chmod(&m.path("f"), 0o2770);
    Command::new("setfacl").args(["-m", "u:8:r"]).arg(m.path("f")).status().unwrap();
    assert_eq!(mode(&m.path("f")) & 0o2000, 0o2000, "root may keep it");
    m.end();
}

/// `trusted.` attributes are for root, and so are their names.
#[test]
fn trusted_attributes_are_hidden() {
    let Some(m) = Mounted::with(|c| c.allow_other = true) else { return };
    fs::write(m.path("f"), b"").unwrap();
    rustix::fs::setxattr(m.path("f"), "trusted.t", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(m.path("f"), "user.u", b"2", rustix::fs::XattrFlags::empty()).unwrap();
    let mut list = [0u8; 100];
    let len = rustix::fs::listxattr(m.path("f"), &mut list[..]).unwrap();
    assert!(list[..len].windows(9).any(|w| w == b"trusted.t"));
    let script = "import os,sys; print(os.listxattr(sys.argv[1]))";
    let (ok, said) = shell_as(NOBODY, &format!("python3 -c '{script}' {:?}", m.path("f")));
    if said.contains("not found") {
        return skipped("python3 is not installed");
    }
    assert!(ok && said.contains("user.u") && !said.contains("trusted"), "{said}");
    m.end();
}
