//! The commands on a volume that is not mounted.

use crate::common;

use common::{error_text, fails, ok, run, text, yore, Scratch};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{symlink, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

/// Everything that is put in comes back with content, permissions, times, symbolic links, hard links,
/// attributes and holes.
#[test]
fn put_and_get_preserve() {
    let scratch = Scratch::new();
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("sub/script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("sub/script"), fs::Permissions::from_mode(0o751)).unwrap();
    symlink("sub/script", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    fs::hard_link(tree.join("sub/script"), tree.join("second name")).unwrap();
    let odd = OsString::from_vec(b"odd \xff\n name".to_vec());
    fs::write(tree.join(&odd), "odd").unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 10 << 20).unwrap();
    sparse.set_len(20 << 20).unwrap();
    let when = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    sparse.set_times(fs::FileTimes::new().set_modified(when).set_accessed(when)).unwrap();
    let attribute =
        rustix::fs::setxattr(tree.join("sub/script"), "user.note", b"value", rustix::fs::XattrFlags::empty())
            .is_ok();

    ok(["put", "-r", text(&tree), &scratch.on("/tree")]);
    let back = scratch.path("back");
    ok(["get", "-r", &scratch.on("/tree"), text(&back)]);

    assert_eq!(fs::read(back.join("sub/script")).unwrap(), b"#!/bin/sh\n");
    assert_eq!(fs::metadata(back.join("sub/script")).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(fs::read_link(back.join("link")).unwrap(), std::path::Path::new("sub/script"));
    assert_eq!(fs::read_link(back.join("dangling")).unwrap(), std::path::Path::new("nowhere"));
    assert_eq!(fs::read(back.join(&odd)).unwrap(), b"odd");
    assert!(back.join("sub/empty").is_dir());
    let inode = |name: &str| fs::metadata(back.join(name)).unwrap().ino();
    assert_eq!(inode("sub/script"), inode("second name"));
    let copied = fs::metadata(back.join("sparse")).unwrap();
    assert_eq!(copied.modified().unwrap(), when);
    assert_eq!(copied.len(), 20 << 20);
    assert!(copied.blocks() * 512 < 1 << 20, "the holes came back as holes: {} blocks", copied.blocks());
    let mut end = [0; 3];
    fs::File::open(back.join("sparse")).unwrap().read_exact_at(&mut end, 10 << 20).unwrap();
    assert_eq!(&end, b"end");
    if attribute {
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(back.join("sub/script"), "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"value");
    }
    ok(["check", text(&scratch.volume)]);
}

/// If the last operand is an existing directory, the files go into it; several files need one.
#[test]
fn copies_into_directories() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.file("a", "A"), scratch.file("b", "B"));
    ok(["mkdir", &scratch.on("/d")]);
    ok(["put", text(&a), text(&b), &scratch.on("/d")]);
    assert_eq!(ok(["cat", &scratch.on("/d/a"), &scratch.on("/d/b")]), "AB");
    fails(3, ["put", text(&a), text(&b), &scratch.on("/absent")]);
    ok(["cp", "-r", &scratch.on("/d"), &scratch.on("/e")]);
    ok(["cp", &scratch.on("/d/a"), &scratch.on("/e/b")]);
    assert_eq!(ok(["cat", &scratch.on("/e/b")]), "A");
    assert!(fails(2, ["cp", &scratch.on("/d"), &scratch.on("/f")]).contains("-r"));
    assert!(fails(3, ["cp", "-r", &scratch.on("/d"), &scratch.on("/d/below")]).contains("itself"));
    assert!(fails(3, ["get", &scratch.on("/absent"), text(&a)]).contains("/absent"));
    assert_eq!(fs::read(&a).unwrap(), b"A", "a copy that fails leaves what was there");
}

/// `-` reads standard input and writes standard output.
#[test]
fn pipes() {
    let scratch = Scratch::new();
    let mut put = yore().args(["put", "-", &scratch.on("/piped")]).stdin(Stdio::piped()).spawn().unwrap();
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    put.stdin.take().unwrap().write_all(&content).unwrap();
    assert!(put.wait().unwrap().success());
    let got = run(["get", &scratch.on("/piped"), "-"]);
    assert!(got.status.success(), "{}", error_text(&got));
    assert!(got.stdout == content, "what went in through a pipe comes out through one");

    // If the reader stops, the command ends quietly, as by SIGPIPE.
    let mut cat = yore()
        .args(["cat", &scratch.on("/piped")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    cat.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(error_text(&output), "");
}

/// `ls` lists in order, hides names with dots, and says the same in JSON and with zero bytes.
#[test]
fn ls() {
    let scratch = Scratch::new();
    let file = scratch.file("f", "12345");
    ok(["mkdir", "-p", &scratch.on("/d/sub")]);
    for name in ["b", "a", ".hidden"] {
        ok(["put", text(&file), &scratch.on(&format!("/d/{name}"))]);
    }
    let directory = scratch.on("/d");
    assert_eq!(ok(["ls", &directory]), "a\nb\nsub\n");
    assert_eq!(ok(["ls", "-a", "-0", &directory]), ".hidden\0a\0b\0sub\0");
    assert_eq!(ok(["ls", "-R", &directory]), "/d:\na\nb\nsub\n\n/d/sub:\n");
    let long = ok(["ls", "-l", "--utc", &directory]);
    assert!(long.lines().next().unwrap().starts_with("-rw"), "{long}");
    let list: Value = serde_json::from_str(&ok(["ls", "--json", &directory])).unwrap();
    assert_eq!(list[0]["name"], "a");
    assert_eq!(list[0]["size"], 5);
    assert_eq!(list[2]["type"], "directory");
    let empty: Value = serde_json::from_str(&ok(["ls", "--json", &scratch.on("/d/sub")])).unwrap();
    assert_eq!(empty, serde_json::json!([]));
    assert!(fails(3, ["ls", &scratch.on("/absent")]).contains("/absent"));
    assert!(fails(2, ["ls", text(&scratch.volume)]).contains(":/"));
}

/// Every test of `find` selects what it says.
#[test]
fn find() {
    let scratch = Scratch::new();
    let large = scratch.file("large.bin", vec![1; 100_000]);
    let small = scratch.file("small.txt", "x");
    ok(["mkdir", "-p", &scratch.on("/d/e")]);
    ok(["put", text(&large), &scratch.on("/d/large.bin")]);
    ok(["put", text(&small), &scratch.on("/d/e/small.txt")]);
    let find = |args: &[&str]| {
        let root = scratch.on("/d");
        let mut found: Vec<String> =
            ok(["find", &root].iter().chain(args)).lines().map(String::from).collect();
        found.sort();
        found
    };
    assert_eq!(find(&[]), ["/d", "/d/e", "/d/e/small.txt", "/d/large.bin"]);
    assert_eq!(find(&["-name", "*.txt"]), ["/d/e/small.txt"]);
    assert_eq!(find(&["-type", "d"]), ["/d", "/d/e"]);
    assert_eq!(find(&["-type", "f", "-size", "+50k"]), ["/d/large.bin"]);
    assert_eq!(find(&["-type", "f", "-size", "-2"]), ["/d/e/small.txt"]);
    assert_eq!(find(&["-maxdepth", "1"]), ["/d", "/d/e", "/d/large.bin"]);
    assert_eq!(find(&["-mindepth", "2"]), ["/d/e/small.txt"]);
    assert_eq!(find(&["-newermt", "2999-01-01"]), [""; 0]);
    assert_eq!(ok(["find", &scratch.on("/d/e"), "-print0"]), "/d/e\0/d/e/small.txt\0");
    let list: Value = serde_json::from_str(&ok(["find", &scratch.on("/d/e"), "--json"])).unwrap();
    assert_eq!(list[1]["path"], "/d/e/small.txt");
    assert!(fails(2, ["find", &scratch.on("/"), "-size", "much"]).contains("much"));
}

/// `rm` removes no directory by accident, and with `-f` a missing file is no error.
#[test]
fn rm() {
    let scratch = Scratch::new();
    ok(["mkdir", "-p", &scratch.on("/a/b/c")]);
    assert!(fails(2, ["rm", &scratch.on("/a")]).contains("-r"));
    ok(["rm", "-d", &scratch.on("/a/b/c")]);
    assert!(fails(3, ["rm", "-d", &scratch.on("/a")]).contains("not empty"));
    assert_eq!(ok(["rm", "-r", "-v", &scratch.on("/a")]), "/a/b\n/a\n");
    fails(3, ["rm", &scratch.on("/a")]);
    ok(["rm", "-f", &scratch.on("/a")]);
    assert!(fails(3, ["rm", "-r", &scratch.on("/")]).contains("root"));
}

/// `stat`, `info` and `df` tell what they know as text and as JSON.
#[test]
fn facts() {
    let scratch = Scratch::empty();
    let volume = text(&scratch.volume).to_string();
    let uuid = "6f2d4f4c-1fb0-4d3c-8d3f-0d5d6a3c2b1a";
    ok(["mkfs", &volume, "--size", "64M", "--label", "mine", "--uuid", uuid]);
    let info: Value = serde_json::from_str(&ok(["info", "--json", &volume])).unwrap();
    assert_eq!(info["label"], "mine");
    assert_eq!(info["uuid"], uuid);
    assert_eq!(info["engine"], "snapshot");
    assert_eq!(info["size"], 64 << 20);
    assert_eq!(info["mounted"], false);
    assert!(ok(["info", &volume]).contains("64 MiB"));
    assert!(ok(["df", &volume]).contains('%'));
    let df: Value = serde_json::from_str(&ok(["df", "--json", &volume])).unwrap();
    assert!(df[0]["available"].as_u64().unwrap() > 32 << 20);
    let file = scratch.file("f", "12345");
    ok(["put", text(&file), &scratch.on("/f")]);
    let stat: Value = serde_json::from_str(&ok(["stat", "--json", &scratch.on("/f")])).unwrap();
    assert_eq!(stat[0]["size"], 5);
    assert!(ok(["stat", "--utc", &scratch.on("/f")]).contains("+00:00"));
    assert!(ok(["check", &volume]).contains("0 findings"));
    let report: Value = serde_json::from_str(&ok(["check", "--json", &volume])).unwrap();
    assert_eq!(report["clean"], true);
}

/// Every structure on the medium can be printed, and damage is reported without giving up.
#[test]
fn inspect() {
    let scratch = Scratch::new();
    let file = scratch.file("f", vec![7; 500_000]);
    ok(["put", text(&file), &scratch.on("/f")]);
    let volume = text(&scratch.volume);
    assert!(ok(["inspect", volume]).contains("generation"));
    assert!(ok(["inspect", volume, "zones"]).contains("zone"));
    assert!(ok(["inspect", volume, "zone", "0"]).contains("blocks in use"));
    assert!(ok(["inspect", volume, "root", "0"]).contains("group"));
    assert!(ok(["inspect", volume, "bitmaps"]).contains("free"));
    assert!(ok(["inspect", volume, "bitmap", "0"]).contains("blocks"));
    assert!(ok(["inspect", volume, "inode", "16"]).contains("directory"));
    assert!(ok(["inspect", volume, "0:0"]).contains("bitmap"));
    assert!(ok(["inspect", volume, "root0:0"]).contains("zone table"));
    assert!(ok(["inspect", volume, "block", "0", "--raw"]).contains("YORE"));
    assert!(fails(2, ["inspect", volume, "nonsense"]).contains("--help"));
    fails(3, ["inspect", volume, "zone", "99"]);

    let stat: Value = serde_json::from_str(&ok(["stat", "--json", &scratch.on("/f")])).unwrap();
    let number = stat[0]["inode"].to_string();
    assert!(ok(["inspect", volume, "inode", &number]).contains("file blocks 0"));

    // Damages the block of inode 16: this is reported, and the rest is still printed.
    let text = ok(["inspect", volume, "inode", "16"]);
    let block: u64 = text.split(" at ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    let image = fs::File::options().write(true).open(&scratch.volume).unwrap();
    image.write_all_at(&[0xff; 8], block * 4096 + 2000).unwrap();
    let output = run(["inspect", volume, "inode", "16"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stdout).contains("DAMAGED"));
    let output = run(["check", volume]);
    assert_eq!(output.status.code(), Some(1), "{}", error_text(&output));
    fails(4, ["ls", &scratch.on("/")]);
}

/// The scripts and the manual page that packages install are generated from the definitions.
#[test]
fn documentation() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(["completions", shell]).contains("yore"), "{shell}");
    }
    let man = ok(["man"]);
    assert!(man.contains(".SH") && man.contains("yore mount") && man.contains("141"));
    assert!(ok(["help", "exit-codes"]).contains("141"));
    assert!(ok(["exit-codes"]).contains("141"));
    assert!(ok(["mount", "--help"]).contains("data_cache"));
    fails(2, ["nonsense"]);
}
