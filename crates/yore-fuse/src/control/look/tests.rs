//! The requests without a kernel: what is refused, who may, long answers in parts.

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

fn request(question: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; PART_BYTES];
    put(&mut bytes, BODY_AT, question);
    bytes
}

fn sides(from: Option<EventNo>, to: Option<EventNo>) -> Vec<u8> {
    [from, to].iter().flat_map(|side| side.unwrap_or_default().0.to_le_bytes()).collect()
}

/// All parts of an answer.
fn whole(answers: &Answers, view: &View, uid: u32, number: Opcode, question: &[u8]) -> Result<Vec<u8>, i32> {
    let (mut all, mut asked) = (Vec::new(), request(question));
    loop {
        let part = answers.answer(view, view.root(), uid, number, &asked).map_err(|e| e.errno().code())?;
        assert_eq!(part.len(), PART_BYTES);
        let (key, len) = (u64_at(&part, 0).unwrap(), u64_at(&part, 8).unwrap() as usize);
        let end = (len - all.len()).min(PART_BYTES - BODY_AT);
        all.extend_from_slice(&part[BODY_AT..BODY_AT + end]);
        if key == 0 {
            assert_eq!(all.len(), len);
            return Ok(all);
        }
        asked = request(&[]);
        put(&mut asked, 0, &key.to_le_bytes());
        put(&mut asked, 8, &(all.len() as u64).to_le_bytes());
    }
}

/// The numbers are those that other programs were told.
#[test]
fn numbers() {
    assert_eq!([DIFF, LOG, DELETED, usage::USAGE], [0xfff8_5905, 0xfff8_5906, 0xfff8_5907, 0xfff8_590a]);
}

/// Answers of many parts have each difference once, are not kept when they have been read, and are lost if
/// too many others are asked for; they are given to the user who asked only.
#[test]
fn long_answers() {
    let (view, answers) = (view(), Answers::default());
    let first = view.snapshot(view.root(), "", false, false).unwrap().number;
    for i in 0..400 {
        let name = format!("{i:0>200}");
        view.create(&ME, view.root(), name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
    }
    let question = sides(Some(first), None);
    let bytes = whole(&answers, &view, 0, DIFF, &question).unwrap();
    let mut reader = Reader(&bytes);
    let of = reader.identity().unwrap();
    assert_eq!((of.inode, of.event), (view.root(), None));
    let found = reader.all(Reader::difference).unwrap();
    let mut expected = Vec::new();
    let go_on = ControlFlow::Continue(());
    view.diff(view.root(), Some(first), None, &mut |d| {
        expected.push(d);
        go_on
    })
    .unwrap();
    assert!(found == expected && found.len() == 400);
    assert!(answers.0.lock().1.is_empty(), "what was read is not kept");

    let part = answers.answer(&view, view.root(), 0, DIFF, &request(&question)).unwrap();
    let mut next = request(&[]);
    put(&mut next, 0, &part[..8]);
    put(&mut next, 8, &((PART_BYTES - BODY_AT) as u64).to_le_bytes());
    let refused = |uid, number, request: &[u8]| {
        answers.answer(&view, view.root(), uid, number, request).unwrap_err().errno().code()
    };
    assert_eq!(refused(9, DIFF, &next), libc::ESTALE);
    assert_eq!(refused(0, LOG, &next), libc::ESTALE);
    let mut beyond = next.clone();
    put(&mut beyond, 8, &u64::MAX.to_le_bytes());
    assert_eq!(refused(0, DIFF, &beyond), libc::EINVAL);
    answers.answer(&view, view.root(), 0, DIFF, &next).unwrap();
    for _ in 0..20 {
        answers.answer(&view, view.root(), 0, DIFF, &request(&question)).unwrap();
    }
    assert_eq!(answers.0.lock().1.len(), KEPT_MOST);
    assert_eq!(refused(0, DIFF, &next), libc::ESTALE);
}

/// Logs and what is gone come back as they went in.
#[test]
fn records_return() {
    let (view, answers) = (view(), Answers::default());
    let file = view.create(&ME, view.root(), b"f\xff", FileKind::Regular, 0o644, 0).unwrap();
    view.snapshot(view.root(), "named", false, false).unwrap();
    view.rename(view.root(), b"f\xff", view.root(), b"g", yore_fs::RenameMode::Replace).unwrap();
    view.snapshot(view.root(), "", true, false).unwrap();
    drop(file);
    let question =
        |name: &[u8], most: u32| [&(name.len() as u32).to_le_bytes()[..], &most.to_le_bytes(), name].concat();
    let ask = |most| {
        Reader(&whole(&answers, &view, 0, LOG, &question(b"g", most)).unwrap()).all(Reader::logged).unwrap()
    };
    let (mut expected, go_on) = (Vec::new(), ControlFlow::Continue(()));
    view.log(view.root(), b"g", &mut |l| {
        expected.push(l);
        go_on
    })
    .unwrap();
    assert_eq!(ask(0), expected);
    assert_eq!((expected.len(), &ask(1)[..]), (2, &expected[..1]));
    assert_eq!(whole(&answers, &view, 0, LOG, &question(b"absent", 0)), Err(libc::ENOENT));

    view.unlink(view.root(), b"g").unwrap();
    let mut expected = Vec::new();
    view.deleted(view.root(), true, &mut |d| {
        expected.push(d);
        go_on
    })
    .unwrap();
    let bytes = whole(&answers, &view, 0, DELETED, &RECURSIVE.to_le_bytes()).unwrap();
    assert_eq!(Reader(&bytes).all(Reader::deleted).unwrap(), expected);
    assert_eq!(expected.len(), 1);
    for len in 1..bytes.len() {
        assert!(Reader(&bytes[..len]).all(Reader::deleted).is_err(), "truncated to {len}");
    }
}

/// What is no request is refused; and those who could take no snapshot of the directory learn nothing but
/// which one it is.
#[test]
fn who_may_what() {
    let (view, answers) = (view(), Answers::default());
    let first = view.snapshot(view.root(), "", false, false).unwrap().number;
    let file = view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let ask = |uid, number, question: &[u8]| whole(&answers, &view, uid, number, question).map(|_| ());
    let identity = [&[0; 16][..], &IDENTITY.to_le_bytes()].concat();
    let both = sides(Some(first), None);
    let name = [&1u32.to_le_bytes()[..], &[0; 4], b"f"].concat();
    let usage_of =
        |of: u32, name: &[u8]| [&of.to_le_bytes(), &(name.len() as u32).to_le_bytes(), name].concat();
    let (all_below, of_name) = (usage_of(2, b""), usage_of(3, b"f"));
    let asked = [
        (DIFF, &both),
        (LOG, &name),
        (DELETED, &vec![0; 4]),
        (usage::USAGE, &all_below),
        (usage::USAGE, &of_name),
    ];
    for (number, question) in asked {
        assert_eq!(ask(0, number, question), Ok(()));
        assert_eq!(ask(1, number, question), Ok(()), "the owner");
        assert_eq!(ask(4711, number, question), Err(libc::EPERM));
    }
    assert_eq!(ask(4711, DIFF, &identity), Ok(()));
    assert_eq!(ask(4711, usage::USAGE, &usage_of(1, b"")), Ok(()), "as statfs");
    for bad in [usage_of(0, b""), usage_of(1, b"f"), usage_of(2, b"f"), usage_of(4, b"")] {
        assert_eq!(ask(0, usage::USAGE, &bad), Err(libc::EINVAL));
    }
    for bad in [
        [&both[..], &4u32.to_le_bytes()].concat(),
        [&both[..], &IDENTITY.to_le_bytes()].concat(),
        [&both[..], &[0; 4], &[1]].concat(),
    ] {
        assert_eq!(ask(0, DIFF, &bad), Err(libc::EINVAL));
    }
    assert_eq!(ask(0, DELETED, &[2]), Err(libc::EINVAL));
    assert_eq!(ask(0, LOG, &u32::MAX.to_le_bytes()), Err(libc::EINVAL));
    assert_eq!(ask(0, DIFF, &sides(Some(EventNo(99)), None)), Err(libc::ESTALE));
    let refused = |inode, number, request: &[u8]| {
        answers.answer(&view, inode, 0, number, request).unwrap_err().errno().code()
    };
    assert_eq!(refused(view.root(), DIFF, &[0; 16]), libc::EINVAL);
    assert_eq!(refused(file.inode(), DIFF, &request(&identity)), libc::ENOTTY);
    let past = view.as_of(first);
    assert_eq!(
        answers.answer(&past, view.root(), 0, DELETED, &request(&[])).unwrap_err().errno().code(),
        libc::EINVAL
    );
}
