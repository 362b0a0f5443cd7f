//! Everything that travels arrives unchanged, and no bytes do harm.

use super::*;
use crate::{
    HistoryBytes, Identity, Known, KnownFile, Look, Looked, Named, Page, PolicyHere, Saying, Stopped, Take,
};
use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, Visitor};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use yore_device::{DeviceError, Holder, HostError, Operation};
use yore_fs::rollback::{Plan, RolledBack, UnfinishedRollback, Verb};
use yore_fs::{
    Change, Deleted, Difference, Event, EventKind, EventMore, EventNo, EventRow, EventState, EventUsage,
    Facts, FileKind, ForgottenFor, Gone, Incarnation, InodeNo, ListedEvent, Logged, MissedVersions,
    OperationKind, OperationRow, Policy, Retained, Retention, RetentionRules, SeenBy, SpaceRules, StateUsage,
    Stays, Timestamp, UsageTotals, Versioning, What, WouldFree, EXCLUDE_MAX,
};

/// Collects the names of an enum's variants, and reads nothing.
struct Variants<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Variants<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> std::result::Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("no enum"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> std::result::Result<V::Value, Self::Error> {
        self.0.extend(variants);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Fails unless there is a sample of each variant.
#[track_caller]
fn is_complete<T: for<'de> Deserialize<'de> + Debug>(samples: &[T]) {
    let mut variants = Vec::new();
    assert!(T::deserialize(Variants(&mut variants)).is_err() && !variants.is_empty());
    let name = |sample: &T| {
        let text = format!("{sample:?}");
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_string()
    };
    let there: BTreeSet<String> = samples.iter().map(name).collect();
    let missing: Vec<_> = variants.into_iter().filter(|name| !there.contains(*name)).collect();
    assert!(missing.is_empty(), "no sample of {missing:?}");
}

#[track_caller]
fn arrives<T: Serialize + DeserializeOwned + Debug>(value: &T) {
    let bytes = encode(value).unwrap();
    assert!(bytes.len() <= BYTES);
    let mut buffer = vec![0; BYTES];
    buffer[..bytes.len()].copy_from_slice(&bytes);
    let back: T = decode(&buffer).unwrap();
    assert_eq!(format!("{back:?}"), format!("{value:?}"));
}

fn device_errors() -> Vec<DeviceError> {
    let (device, operation) = (|| "/dev/\u{fc}".to_string(), Operation::Write);
    let (offset, len, size) = (1 << 40, 4096, u64::MAX);
    let source = HostError::from_errno(5);
    vec![
        DeviceError::Io { operation: Operation::Read, offset, len, device: device(), source },
        DeviceError::NoSpace { operation, offset, len, device: device() },
        DeviceError::OutOfRange { operation: Operation::Discard, offset, len, device: device(), size },
        DeviceError::ReadOnly { operation: Operation::Flush, device: device() },
        DeviceError::Busy { device: device(), holder: Some(Holder { pid: 7, command: "yore".into() }) },
        DeviceError::Mounted { device: device(), mount_point: "/mnt".into() },
        DeviceError::NotFound { device: device() },
        DeviceError::PermissionDenied { operation: Operation::Open, device: device() },
        DeviceError::OpenFailed {
            operation: Operation::Create,
            device: device(),
            source: HostError { errno: 0, kind: std::io::ErrorKind::UnexpectedEof },
        },
        DeviceError::DirectUnsupported { device: device() },
        DeviceError::AlreadyExists { device: device() },
        DeviceError::NotADevice { device: device(), found: "pipe" },
        DeviceError::TooSmall { device: device(), size, needed: 4096 },
        DeviceError::Shortened { device: device(), size, used: 1 },
        DeviceError::SectorTooLarge { device: device(), sector_size: 8192 },
        DeviceError::WrittenAfterError {
            operation,
            device: device(),
            first: Box::new(DeviceError::NotFound { device: device() }),
        },
    ]
}

fn errors() -> Vec<Error> {
    let corruption = yore_format::Corruption {
        structure: "inode",
        field: "size",
        expected: "0".into(),
        found: "-1".into(),
        addr: Some(Default::default()),
        block: None,
        owner: Some(InodeNo(9)),
    };
    vec![
        Error::NotFound,
        Error::Exists,
        Error::NotADirectory,
        Error::IsADirectory,
        Error::NotEmpty,
        Error::NameTooLong,
        Error::Invalid { what: "a name" },
        Error::NotPermitted { what: "that" },
        Error::NoSpace,
        Error::NeverFits { missing: 1 << 40 },
        Error::HashFull { what: "names" },
        Error::TooManyLinks,
        Error::FileTooLarge,
        Error::ReadOnly,
        Error::OutOfOrder { last: Timestamp { seconds: -1, nanos: 999_999_999 } },
        Error::Held { event: u64::MAX },
        Error::HeldUntil { event: 3, until: "2030-01-01".into() },
        Error::LimitReached { what: "holds", most: 3 },
        Error::Pinned { event: 3 },
        Error::TakenByOthers { event: 3 },
        Error::NotYours { path: "a/b".into() },
        Error::Protected { path: "a/b".into() },
        Error::Unfinished { name: "rollback-3".into(), source: Box::new(Error::NoSpace) },
        Error::AcrossTimes,
        Error::Unsupported { what: "this" },
        Error::NoAttribute,
        Error::AttributeTooLarge,
        Error::NoDataThere,
        Error::Loop,
        Error::Stale,
        Error::Corruption(Box::new(corruption)),
        Error::Device(DeviceError::NotFound { device: "x".into() }),
        Error::Stopped { first: Box::new(Error::Held { event: 1 }.on_path("cannot open", b"a")) },
        Error::Refused("for a reason".into()),
        Error::NotFound.on_path("cannot find", b"d/f@then"),
    ]
}

fn take() -> Take {
    Take {
        name: "n\u{fc}n".into(),
        description: "d".into(),
        held: true,
        hold_reason: "r".into(),
        time: Some(Timestamp { seconds: i64::MIN, nanos: 0 }),
        undo: true,
        wait: false,
        stays: true,
    }
}

const RULES: SpaceRules = SpaceRules { floor_seconds: 86_400, share_percent: 90 };

/// The longest policy possible.
fn policy() -> Policy {
    let rules = RetentionRules {
        last: 1,
        monthly: RetentionRules::ALL,
        within: "1".repeat(64),
        ..RetentionRules::default()
    };
    Policy {
        versioning: Some(Versioning::Interval(u64::MAX)),
        retention: Some(Retention::Rules(rules)),
        exclude: Some(vec!["x".repeat(EXCLUDE_MAX - 1)]),
        hold: Some(u64::MAX),
    }
}

fn named() -> Named {
    Named { name: b"a@yesterday\xff".to_vec(), below: true, others: false }
}

const KNOWN: Known = Known { files: 1, versions: 2, bytes: u64::MAX, others: 3 };

fn known_file() -> KnownFile {
    KnownFile {
        path: b"a/\xff".to_vec(),
        inode: InodeNo(77),
        incarnation: Incarnation(3),
        kind: FileKind::Socket,
        versions: 4,
        bytes: 5,
        in_use: true,
    }
}

fn unfinished() -> UnfinishedRollback {
    UnfinishedRollback {
        name: "rollback-3".into(),
        directory: InodeNo(77),
        incarnation: 3,
        target: EventNo(1),
        before: EventNo(2),
        stopped: true,
    }
}

fn requests() -> Vec<Request> {
    let saying = Saying { name: Some(String::new()), description: None, hold: Some(None) };
    vec![
        Request::Take(take()),
        Request::Describe { number: EventNo(7), saying },
        Request::Forget { numbers: vec![EventNo(u64::MAX); crate::FORGET_MAX] },
        Request::List { from: EventNo(0) },
        Request::Seen,
        Request::Versions { name: vec![0xff; 255], from: EventNo(1 << 40) },
        Request::VersionSeen { name: b"f@then".to_vec() },
        Request::Last,
        Request::HowFar { question: Some(7) },
        Request::Rest { key: 3, at: 1 << 30 },
        Request::Look(Look::Identity),
        Request::Operations { before: Some(1) },
        Request::Pin,
        Request::SpaceRules,
        Request::SetSpaceRules(RULES),
        Request::GivenUp { from: 7 },
        Request::WouldFree,
        Request::MissedVersions,
        Request::Lengthen { bytes: 1 << 40 },
        Request::Shred,
        Request::Policy,
        Request::SetPolicy(policy()),
        Request::RollBack(Plan {
            verb: Verb::Undo,
            of: Some(7),
            target: EventNo(1),
            others: Some((EventNo(2), Some(EventNo(3)))),
        }),
        Request::UnfinishedRollbacks { from: 1 },
        Request::HistoryOf { of: named(), from: 700 },
        Request::Expunge(named()),
        Request::Stopped,
    ]
}

fn row(name: &str, path: Option<&[u8]>) -> ListedEvent {
    use std::os::unix::ffi::OsStrExt as _;
    ListedEvent {
        event: Event {
            number: EventNo(u64::MAX - 1),
            row: EventRow {
                time: Timestamp { seconds: -5, nanos: 999_999_999 },
                kind: EventKind::Interval,
                state: EventState::Kept,
                held: true,
                root: InodeNo(77),
                root_incarnation: Incarnation(3),
                name: name.to_string(),
                more: EventMore {
                    by: Some(1000),
                    description: "what it is".into(),
                    hold_reason: "because".into(),
                    held_by: Some(u32::MAX),
                    held_until: Some(-1),
                    forgotten_for: Some(ForgottenFor::Space),
                },
            },
        },
        next: path.map(|_| Timestamp { seconds: 9, nanos: 1 }),
        covers: path.is_none(),
        own: path.is_some(),
        pinned: name.is_empty(),
        mounted: name.len() > 1,
        path: path.map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path))),
    }
}

fn operation() -> OperationRow {
    let (first, last) = (EventNo(1), EventNo(u64::MAX));
    OperationRow {
        time: Timestamp { seconds: 1, nanos: 2 },
        kind: OperationKind::Forget,
        uid: 1000,
        first,
        last,
        count: 7,
        bytes: 1 << 40,
        path: b"/d\xff".to_vec(),
        note: "n".into(),
    }
}

fn answers() -> Vec<Answer> {
    vec![
        Answer::Done,
        Answer::Taken { number: EventNo(1), time: Timestamp { seconds: 1, nanos: 1 } },
        Answer::Page(Page {
            rows: vec![row("", None), row("\u{fc}nder", Some(b"/x\n\xff"))],
            next: Some(EventNo(2)),
        }),
        Answer::HowFar(Some((1, 1 << 40))),
        Answer::Part { key: 3, length: 1 << 26, bytes: vec![0xff; ROWS] },
        Answer::Looked(Looked::Differences(Vec::new())),
        Answer::Operations { rows: vec![(3, operation())], next: Some(3) },
        Answer::Pinned(true),
        Answer::SpaceRules(RULES),
        Answer::WouldFree(WouldFree { by_itself: 1, more: vec![(None, 1, 2), (Some(Stays::Read), 3, 4)] }),
        Answer::MissedVersions(Some(MissedVersions { since: Timestamp { seconds: 1, nanos: 0 }, count: 9 })),
        Answer::Length { bytes: 1 << 40, longer: true },
        Answer::Shredded { blocks_left_out: 3 },
        Answer::Policy(Box::new(PolicyHere {
            own: policy(),
            in_force: policy(),
            versioning_by: Some(vec![0xff; 2048]),
            retention_by: Some(vec![b'/'; 2048]),
            hold_by: Some(vec![b'a'; 2048]),
            exclude_by: Some(vec![b'b'; 2048]),
            excluded: true,
        })),
        Answer::RolledBack(RolledBack { name: "rollback-3".into(), has_end: true }),
        Answer::UnfinishedRollbacks { rows: vec![(unfinished(), Some(b"/\xff".to_vec()))], next: Some(1) },
        Answer::HistoryOf { known: KNOWN, rows: vec![known_file()], next: Some(1) },
        Answer::Expunged(KNOWN),
        Answer::Stopped(Some(Stopped { why: "no space left on the host".into(), since_seconds: 17 })),
    ]
}

fn looks() -> Vec<Look> {
    let (from, to, question) = (Some(EventNo(1)), None, u64::MAX);
    vec![
        Look::Identity,
        Look::Diff { from, to },
        Look::Compare { from, to, question },
        Look::Log { name: b"d/f\xff@then".to_vec(), most: Some(7) },
        Look::Deleted { recursive: true, question },
        Look::HistoryBytes,
        Look::Usage,
        Look::UsageOf { name: Vec::new() },
    ]
}

fn seen_by(name: &str) -> SeenBy {
    SeenBy { event: row(name, None).event, next: Some(Timestamp { seconds: 9, nanos: 1 }) }
}

fn logged() -> Logged {
    let facts = Facts {
        mode: 0o100_644,
        uid: 1000,
        gid: 1001,
        links: 2,
        size: 1 << 40,
        mtime: Timestamp { seconds: -1, nanos: 5 },
    };
    Logged {
        first: Some(seen_by("first")),
        last: None,
        current: true,
        name: b"n\xff".to_vec(),
        path: Some(b"/d/n\xff".to_vec()),
        kind: FileKind::Symlink,
        inode: InodeNo(77),
        incarnation: Incarnation(3),
        facts,
        what: What::CONTENT | What::LINKS,
        renamed: true,
        replaced: false,
        oldest: true,
        gone: Some(Gone { by: Some(seen_by("")), moved: true, path: Some(b"/e".to_vec()) }),
    }
}

fn looked() -> Vec<Looked> {
    let Logged { facts, kind, inode, incarnation, what, .. } = logged();
    let retained = |n| Retained { data: n, metadata: n << 20 };
    let totals = UsageTotals { live: 1, history: retained(2), exclusive: retained(3) };
    let (exclusive, with_older, shared) = (retained(4), retained(5), 6);
    let difference = |change, old_path: Option<&[u8]>, before, after| Difference {
        change,
        kind,
        inode,
        incarnation,
        path: b"d/\xff".to_vec(),
        old_path: old_path.map(<[u8]>::to_vec),
        what,
        before,
        after,
    };
    vec![
        Looked::Identity(Identity { inode, incarnation, event: Some(EventNo(8)) }),
        Looked::Differences(vec![
            difference(Change::Added, None, None, Some(facts)),
            difference(Change::Removed, None, Some(facts), None),
            difference(Change::Modified, None, Some(facts), Some(facts)),
            difference(Change::Renamed, Some(b"old"), Some(facts), Some(facts)),
        ]),
        Looked::Log(vec![logged()]),
        Looked::Deleted(vec![Deleted {
            path: b"p".to_vec(),
            last: seen_by("l"),
            kind,
            inode,
            incarnation,
            facts,
        }]),
        Looked::HistoryBytes(HistoryBytes { files: retained(1), index: 2 }),
        Looked::Usage(totals, vec![EventUsage { seen: seen_by("s"), exclusive, with_older, shared }]),
        Looked::UsageOf(totals, vec![StateUsage { state: logged(), exclusive, with_older, shared }]),
    ]
}

/// All samples of requests and answers.
fn all_requests() -> Vec<Request> {
    requests().into_iter().chain(looks().into_iter().map(Request::Look)).collect()
}

fn all_answers() -> Vec<Answer> {
    answers().into_iter().chain(looked().into_iter().map(Answer::Looked)).collect()
}

/// Bits of a difference that mean nothing are refused, and times that are none.
#[test]
fn what_means_nothing_is_refused() {
    let bytes = postcard::to_extend(&What::all().bits(), Vec::new()).unwrap();
    assert_eq!(decode_content::<What>(&bytes), Ok(What::all()));
    let bytes = postcard::to_extend(&(What::all().bits() + 1), Vec::new()).unwrap();
    assert_eq!(decode_content::<What>(&bytes), Err(Wrong::Meaning));
}

/// Everything that travels arrives unchanged, in each of its variants. This test fails for a new variant
/// without a sample.
#[test]
fn everything_arrives() {
    is_complete(&device_errors());
    is_complete(&errors());
    is_complete(&requests());
    is_complete(&looks());
    is_complete(&looked());
    is_complete(&answers());
    let devices = device_errors().into_iter().map(Error::Device);
    for error in errors().into_iter().chain(devices) {
        arrives(&Err::<Answer, Error>(error));
    }
    all_requests().iter().for_each(arrives);
    all_answers().into_iter().for_each(|answer| arrives(&Ok::<Answer, Error>(answer)));
}

/// The bytes of version 4. If this fails, the encoding has changed: increase [`VERSION`], and put the new sum
/// here. Otherwise a daemon of yesterday would read a request of today as another one.
#[test]
fn the_version_changes_with_the_bytes() {
    let mut all = Vec::new();
    all_requests().iter().for_each(|request| all.extend(encode(request).unwrap()));
    all_answers().into_iter().for_each(|answer| all.extend(encode(&Ok::<Answer, Error>(answer)).unwrap()));
    errors().into_iter().for_each(|error| all.extend(encode(&Err::<Answer, Error>(error)).unwrap()));
    let devices = device_errors().into_iter();
    devices.for_each(|error| all.extend(encode(&Err::<Answer, Error>(error.into())).unwrap()));
    // FNV-1a.
    let sum = all
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    assert_eq!((VERSION, sum), (4, SUM), "{sum:#x}");
}

const SUM: u64 = 0x2bf6_e370_4a0d_af33;

/// If the command is newer or older than the daemon, the error says so; the bytes are not taken for something
/// else that they happen to encode.
#[test]
fn versions_are_told_apart() {
    let bytes = encode(&Request::Seen).unwrap();
    for other in [0, VERSION + 1, u32::MAX] {
        let mut changed = bytes.clone();
        changed[4..8].copy_from_slice(&other.to_le_bytes());
        assert_eq!(decode_request(&changed), Err(Wrong::Version(other)));
    }
    assert_eq!(decode_request(&[0; BYTES]), Err(Wrong::Meaning));
    assert!(matches!(decode_answer(&encode_nothing()), Err(Wrong::Meaning)));
}

/// A message that does not fit is refused at encoding, and not truncated; an error that is too long arrives
/// shortened.
#[test]
fn what_is_too_long() {
    assert!(encode_request(&Request::VersionSeen { name: vec![1; BYTES] }).is_err());
    let long = Err(Error::Refused("x".repeat(BYTES)));
    let answer = decode_answer(&encode_answer(&long)).unwrap();
    assert!(matches!(answer, Err(Error::Refused(text)) if text.len() == 1024));
    for wrong in [1, 1 << 20, u32::MAX - 1] {
        let bytes = with_length(encode(&Request::Seen).unwrap(), wrong + 1);
        assert_eq!(decode_request(&bytes), Err(Wrong::Meaning), "{wrong}");
    }
}

/// Errors nested thousands deep are refused, because they would exhaust the reader's stack.
#[test]
fn no_error_is_too_deep() {
    let stopped = |inner: &[u8]| [&[variant("Stopped")][..], inner].concat();
    let after = |inner: &[u8]| {
        let at = names::<DeviceError>().iter().position(|name| *name == "WrittenAfterError").unwrap() as u8;
        [&[at, 0, 0][..], inner].concat()
    };
    let nested = |depth: usize, wrap: &dyn Fn(&[u8]) -> Vec<u8>, end: Vec<u8>| {
        let one = wrap(&[]);
        let content = [&[1][..], &one.repeat(depth), &end].concat();
        let bytes = [head(content.len() as u32), content].concat();
        assert!(bytes.len() <= BYTES);
        decode_answer(&bytes).is_ok()
    };
    assert!(nested(15, &stopped, vec![0]));
    assert!(!nested(17, &stopped, vec![0]));
    assert!(!nested(16_000, &stopped, vec![0]));
    // A device's error is nested below the library's.
    let device = |depth: usize| {
        let one = after(&[]);
        let content = [&[1, variant("Device")][..], &one.repeat(depth), &after(&[])].concat();
        decode_answer(&[head(content.len() as u32), content].concat()).is_ok()
    };
    assert!(!device(5_000));
}

fn names<T: for<'de> Deserialize<'de>>() -> Vec<&'static str> {
    let mut variants = Vec::new();
    let _ = T::deserialize(Variants(&mut variants));
    variants
}

fn variant(name: &str) -> u8 {
    names::<Error>().iter().position(|variant| *variant == name).unwrap() as u8
}

/// A daemon that lies about the texts of its program fills no memory: beyond some number they all become one
/// text.
#[test]
fn texts_are_bounded() {
    let read = |text: &str| {
        let content =
            [&[1, variant("Invalid")][..], &postcard::to_extend(text, Vec::new()).unwrap()].concat();
        match decode_answer(&[head(content.len() as u32), content].concat()) {
            Ok(Err(Error::Invalid { what })) => what,
            other => panic!("{other:?}"),
        }
    };
    let first = read("a first one");
    assert_eq!(first, "a first one");
    let texts: Vec<_> = (0..3000).map(|n| read(&format!("text {n}"))).collect();
    assert_eq!(texts[0], "text 0");
    assert!(texts[2999].contains("no words"));
    assert!(std::ptr::eq(read("a first one"), first));
    assert!(read(&"x".repeat(5000)).contains("no words"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// No bytes panic, neither random bytes nor a message with some bytes changed.
    #[test]
    fn no_bytes_panic(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        which in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        event in any::<proptest::sample::Index>(),
    ) {
        let _ = decode_request(&content);
        let _ = decode_answer(&content);
        let framed = [head(content.len() as u32), content].concat();
        let _ = decode_request(&framed);
        let _ = decode_answer(&framed);
        let mut good: Vec<Vec<u8>> = all_requests().iter().map(|request| encode(request).unwrap()).collect();
        good.extend(all_answers().into_iter().map(|answer| encode_answer(&Ok(answer))));
        good.extend(errors().into_iter().map(|error| encode_answer(&Err(error))));
        let mut bytes = which.get(&good).clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = decode_request(&bytes);
        let _ = decode_answer(&bytes);
        bytes.truncate(event.index(bytes.len()));
        let _ = decode_request(&bytes);
        let _ = decode_answer(&bytes);
    }

    /// Texts and numbers of any kind arrive.
    #[test]
    fn any_fields_arrive(
        texts in proptest::array::uniform3(".{0,200}"),
        name in proptest::collection::vec(any::<u8>(), 0..300),
        numbers in proptest::collection::vec(any::<u64>(), 0..257),
        (seconds, nanos) in (any::<i64>(), 0..1_000_000_000_u32),
        flags in proptest::array::uniform4(any::<bool>()),
    ) {
        let [name_of, description, hold_reason] = texts.clone();
        let [held, undo, wait, stays] = flags;
        let time = Some(Timestamp { seconds, nanos });
        arrives(&Request::Take(Take { name: name_of, description, hold_reason, time, held, undo, wait, stays }));
        let [a, b, c] = texts;
        let saying = Saying { name: Some(a.clone()), description: Some(b), hold: Some(Some(c)) };
        arrives(&Request::Describe { number: EventNo(seconds as u64), saying });
        arrives(&Request::Forget { numbers: numbers.into_iter().map(EventNo).collect() });
        arrives(&Ok::<Answer, Error>(Answer::Page(Page { rows: vec![row(&a, Some(&name))], next: None })));
        arrives(&Request::VersionSeen { name });
    }
}
