//! Requests and answers as bytes, and who may ask.

use super::*;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, MkfsOptions, MountOptions};

const ME: Caller = Caller { uid: 4711, gid: 4711, umask: 0o022, keeps_set_id: false };

fn view() -> View {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    View::mkfs(&device, &MkfsOptions { owner: (1, 1), ..MkfsOptions::default() }).unwrap();
    View::open(device, &MountOptions::default()).unwrap()
}

/// As [`super::answer`], for nobody in particular of that user.
fn answer(
    view: &View,
    inode: InodeNo,
    uid: u32,
    read_only: bool,
    number: Opcode,
    request: &[u8],
) -> Result<Vec<u8>, Failure> {
    let keeper = Keeper::default();
    let limits = UserLimits { snapshots: 300, holds: 2, policies: 2 };
    let access = view.access(None, view.root());
    let asker = Asker { uid, access: &access, thread: 0, read_only, keeper: &keeper, limits };
    super::answer(view, inode, &asker, number, request)
}

fn request(flags: u32, name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; SNAPSHOT_BYTES];
    put(&mut bytes, 0, &flags.to_le_bytes());
    put(&mut bytes, 4, &(name.len() as u32).to_le_bytes());
    put(&mut bytes, NAME_AT, name);
    bytes
}

fn from(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; LIST_BYTES];
    put(&mut bytes, 0, &number.to_le_bytes());
    bytes
}

fn list_of(view: &View, inode: InodeNo, uid: u32) -> Vec<ListedCut> {
    let (mut all, mut at) = (Vec::new(), Some(Number(0)));
    while let Some(number) = at {
        let page = answer(view, inode, uid, false, LIST, &from(number.0)).unwrap();
        assert_eq!(page.len(), LIST_BYTES);
        let (rows, next) = decode_list(&page).unwrap();
        all.extend(rows);
        at = next;
    }
    all
}

/// The numbers are those that other programs were told.
#[test]
fn numbers() {
    assert_eq!(SNAPSHOT, 0xc108_5901);
    assert_eq!(LIST, 0xfff8_5902);
    assert_eq!(FORGET, 0xc808_5903);
    assert_eq!(HOLD, 0xc010_5904);
}

/// Records of any shape come back as they went in.
#[test]
fn records_return() {
    for (name, path) in [
        ("", None),
        ("a", Some("/".to_string())),
        (&"n".repeat(255)[..], Some("/d".repeat(3000))),
        ("ünder", Some("/x\n".to_string())),
    ] {
        let listed = ListedCut {
            cut: Cut {
                number: Number(u64::MAX - 1),
                row: CutRow {
                    time: Timestamp { seconds: -5, nanos: 999_999_999 },
                    kind: CutKind::Interval,
                    state: CutState::Kept,
                    held: true,
                    root: InodeNo(77),
                    root_incarnation: Incarnation(3),
                    name: name.to_string(),
                    more: Default::default(),
                },
            },
            next: path.as_ref().map(|_| Timestamp { seconds: 9, nanos: 1 }),
            covers: path.is_none(),
            own: path.is_some(),
            pinned: name.is_empty(),
            mounted: name.len() > 1,
            path: path.map(PathBuf::from),
        };
        let bytes = encode_record(&listed, false);
        assert_eq!(decode_record(&bytes), Some((listed.clone(), bytes.len())));
        let mut said = listed;
        said.cut.row.more = CutMore {
            by: Some(1000),
            description: "what it is".into(),
            hold_reason: "because".into(),
            held_until: Some(-1),
            ..CutMore::default()
        };
        let more = encode_record(&said, true);
        assert_eq!(decode_record(&more), Some((said, more.len())));
        assert!((bytes.len()..more.len() - 8).all(|len| decode_record(&more[..len]).is_none()));
        for len in 0..bytes.len().min(RECORD_BYTES + name.len()) {
            assert_eq!(decode_record(&bytes[..len]), None, "cut short to {len}");
        }
    }
}

/// What is no request is refused, by number or by content, and nothing is taken.
#[test]
fn nonsense_is_refused() {
    let view = view();
    let file = view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let refused = |inode, number: Opcode, request: &[u8]| {
        answer(&view, inode, 0, false, number, request).unwrap_err().errno().code()
    };
    assert_eq!(refused(view.root(), opcode::read_write::<[u8; 8]>(b'Y', 1), &[0; 8]), libc::ENOTTY);
    assert_eq!(refused(view.root(), 0x5401, &[]), libc::ENOTTY);
    assert_eq!(refused(file.inode(), SNAPSHOT, &request(0, b"")), libc::ENOTTY);
    let root = view.root();
    for bad in [
        request(16, b"name"),
        request(0, b"\xff"),
        request(0, b"yesterday"),
        request(0, b"a/b"),
        request(0, b"")[1..].to_vec(),
        [&request(0, b"ab")[..SNAPSHOT_BYTES - 1], &[1]].concat(),
        {
            let mut bytes = request(0, b"");
            put(&mut bytes, 4, &256u32.to_le_bytes());
            bytes
        },
        {
            let mut bytes = request(0, b"");
            put(&mut bytes, 4, &u32::MAX.to_le_bytes());
            bytes
        },
    ] {
        assert_eq!(refused(root, SNAPSHOT, &bad), libc::EINVAL, "{bad:?}");
    }
    assert_eq!(refused(root, LIST, &[0; 16]), libc::EINVAL);
    assert_eq!(view.cuts().unwrap(), []);

    let cut = view.snapshot(root, "", false, false).unwrap().number;
    let changed = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    let (forget, hold) = (encode_forget(&[cut]).unwrap().to_vec(), encode_hold(cut, true).to_vec());
    assert_eq!(refused(file.inode(), FORGET, &forget), libc::ENOTTY);
    assert_eq!(refused(file.inode(), HOLD, &hold), libc::ENOTTY);
    for bad in [
        vec![0; FORGET_BYTES],
        changed(forget.clone(), 0, 0),
        changed(forget.clone(), 3, 1),
        changed([&257u32.to_le_bytes()[..], &forget[4..]].concat(), 4, 0),
        changed(forget.clone(), 4, 1),
        changed(forget.clone(), 16, 1),
        changed(forget.clone(), FORGET_BYTES - 1, 1),
        forget[1..].to_vec(),
        [&forget[..], &[0]].concat(),
        Vec::new(),
    ] {
        assert_eq!(refused(root, FORGET, &bad), libc::EINVAL, "{:?}", &bad[..bad.len().min(32)]);
    }
    for bad in [changed(hold.clone(), 8, 2), changed(hold.clone(), 12, 1), hold[1..].to_vec(), Vec::new()] {
        assert_eq!(refused(root, HOLD, &bad), libc::EINVAL, "{bad:?}");
    }
    for bad in [changed(from(0), 8, 2), changed(from(1), 8, 1), changed(from(0), 12, 1)] {
        assert_eq!(refused(root, LIST, &bad), libc::EINVAL);
    }
    assert!(view.cuts().unwrap().iter().all(|cut| !cut.row.held) && view.cuts().unwrap().len() == 1);
}

/// What was asked arrives: numbers of any size, each once, as many as there may be.
#[test]
fn requests_arrive() {
    let most: Vec<Number> = (0..FORGET_MAX as u64).map(|i| Number(u64::MAX - 1000 + i)).collect();
    for numbers in [&[Number(1)][..], &[Number(3), Number(u64::MAX)], &most] {
        let bytes = encode_forget(numbers).unwrap();
        assert_eq!(decode_forget(&bytes).as_deref(), Some(numbers));
    }
    let twice = encode_forget(&[Number(5), Number(2), Number(5)]).unwrap();
    assert_eq!(decode_forget(&twice), Some(vec![Number(2), Number(5)]));
    assert_eq!(encode_forget(&[]), None);
    assert_eq!(encode_forget(&[Number(1); FORGET_MAX + 1]), None);
    for (number, held) in [(Number(0), false), (Number(u64::MAX), true)] {
        assert_eq!(decode_hold(&encode_hold(number, held)), Some((number, held)));
    }
}

/// Whoever could take a snapshot holds, releases and forgets it, through any directory of any time; all are forgotten or none.
#[test]
fn who_may_forget_what() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let gone = view.mkdir(&ME, view.root(), b"gone", 0o700).unwrap().inode();
    let cut = |inode, name| view.snapshot(inode, name, false, false).unwrap().number;
    let (a, b, c, d) = (cut(mine, "a"), cut(view.root(), "b"), cut(gone, "c"), cut(mine, "d"));
    view.rmdir(view.root(), b"gone").unwrap();
    let past = view.as_of(b);
    let forget = |view: &View, uid, read_only, numbers: &[Number]| {
        let request = encode_forget(numbers).unwrap();
        answer(view, view.root(), uid, read_only, FORGET, &request).map(|_| ()).map_err(|e| e.errno().code())
    };
    let hold = |uid, read_only, number, held| {
        let request = encode_hold(number, held);
        answer(&view, mine, uid, read_only, HOLD, &request).map(|_| ()).map_err(|e| e.errno().code())
    };
    let left = || view.cuts().unwrap().into_iter().map(|cut| cut.row.name).collect::<String>();
    assert_eq!(forget(&view, 4711, false, &[a, b]), Err(libc::EPERM));
    assert_eq!(forget(&view, 4711, false, &[c]), Err(libc::EPERM), "it is gone");
    assert_eq!(forget(&view, 9, false, &[a]), Err(libc::EPERM));
    assert_eq!(forget(&view, 4711, false, &[a, Number(99)]), Err(libc::ENOENT));
    assert_eq!(forget(&view, 4711, true, &[a]), Err(libc::EROFS));
    assert_eq!(hold(4711, false, b, true), Err(libc::EPERM));
    assert_eq!(hold(4711, true, a, true), Err(libc::EROFS));
    assert_eq!(hold(0, false, Number(99), true), Err(libc::ENOENT));
    for _ in 0..2 {
        assert_eq!(hold(4711, false, a, true), Ok(()));
    }
    assert_eq!(forget(&view, 0, false, &[d, a]), Err(libc::EBUSY));
    assert_eq!(left(), "abcd");
    assert_eq!(hold(4711, false, a, false), Ok(()));
    assert_eq!(forget(&past, 4711, false, &[d, a, d]), Ok(()));
    assert_eq!(left(), "bc");
    assert_eq!(forget(&view, 0, false, &[c]), Ok(()));
    assert_eq!(forget(&view, 0, false, &[c]), Err(libc::ENOENT));
    assert_eq!(left(), "b");
}

/// A directory of the past says as of which snapshot it is seen, and whether it is one of its own.
#[test]
fn a_directory_knows_its_time() {
    let view = view();
    let below = view.mkdir(&ME, view.root(), b"below", 0o755).unwrap().inode();
    let cuts = [view.root(), below].map(|inode| view.snapshot(inode, "", false, false).unwrap().number);
    let mut asked = vec![0; LIST_BYTES];
    put(&mut asked, 8, &SEEN.to_le_bytes());
    let seen = |view: &View| {
        let (rows, next) = decode_list(&answer(view, below, 9, false, LIST, &asked).unwrap()).unwrap();
        assert_eq!(next, None);
        rows.into_iter().map(|row| (row.cut.number, row.own)).collect::<Vec<_>>()
    };
    assert_eq!(seen(&view), []);
    assert_eq!(seen(&view.as_of(cuts[0])), [(cuts[0], false)]);
    assert_eq!(seen(&view.as_of(cuts[1])), [(cuts[1], true)]);
}

/// What is asked of a file arrives; a name that is none is refused, and one that means nothing is not found.
#[test]
fn files_are_asked_for() {
    let view = view();
    view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let cut = view.snapshot(view.root(), "all", false, false).unwrap().number;
    let ask = |bytes: &[u8]| {
        let found = answer(&view, view.root(), 9, false, LIST, bytes).map_err(|e| e.errno().code())?;
        let (rows, _) = decode_list(&found).unwrap();
        Ok(rows.into_iter().map(|row| (row.cut.number, row.own)).collect::<Vec<_>>())
    };
    assert_eq!(ask(&*of_file(b"f", 0).unwrap()), Ok(vec![]));
    assert_eq!(ask(&*of_file(b"f", SEEN).unwrap()), Ok(vec![]));
    assert_eq!(ask(&*of_file(b"f@all", SEEN).unwrap()), Ok(vec![(cut, false)]));
    assert_eq!(ask(&*of_file(b"absent", 0).unwrap()), Err(libc::ENOENT));
    let good = of_file(b"f@all", SEEN).unwrap();
    for (at, value) in [(0, 1), (8, 4), (8, 1), (12, 0), (13, 1), (16, b'/'), (17, 0), (30, 1)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(ask(&*bytes), Err(libc::EINVAL), "{at}");
    }
    assert!(of_file(b"", 0).is_err() && of_file(&[b'a'; 256], 0).is_err());
}

/// Owners take snapshots of what is theirs, and others see of them only what they could see anyway.
#[test]
fn who_may_what() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap();
    let below = view.mkdir(&Caller { uid: 5, ..ME }, mine.inode(), b"below", 0o755).unwrap();
    let take = |inode, uid, name: &[u8]| answer(&view, inode, uid, false, SNAPSHOT, &request(0, name));
    take(mine.inode(), 4711, b"a").unwrap();
    take(below.inode(), 5, b"b").unwrap();
    take(view.root(), 0, b"c").unwrap();
    assert_eq!(take(view.root(), 4711, b"").unwrap_err().errno().code(), libc::EPERM);
    assert_eq!(take(mine.inode(), 5, b"").unwrap_err().errno().code(), libc::EPERM);
    assert_eq!(take(mine.inode(), 4711, b"a").unwrap_err().errno().code(), libc::EEXIST);
    let names = |inode, uid| -> Vec<String> {
        list_of(&view, inode, uid).into_iter().map(|listed| listed.cut.row.name).collect()
    };
    assert_eq!(names(view.root(), 0), ["a", "b", "c"]);
    assert_eq!(names(view.root(), 4711), ["a", "c"]);
    assert_eq!(names(view.root(), 9), ["c"]);
    assert_eq!(names(below.inode(), 9), ["a", "b", "c"]);
}

/// A list of more than a page has each one once, in order.
#[test]
fn pages() {
    let view = view();
    let names: Vec<String> = (0..300).map(|i| format!("n{i:0>200}")).collect();
    for name in &names {
        answer(&view, view.root(), 0, false, SNAPSHOT, &request(TAKE_HELD, name.as_bytes())).unwrap();
    }
    let listed = list_of(&view, view.root(), 0);
    assert!(listed.iter().all(|listed| listed.cut.row.held && listed.path == Some(PathBuf::from("/"))));
    assert!(listed.into_iter().map(|listed| listed.cut.row.name).eq(names));
}
