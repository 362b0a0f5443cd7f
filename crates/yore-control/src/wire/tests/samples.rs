//! A sample of every value that travels, in each of its variants. Their bytes decide whether `VERSION` must
//! grow.

use crate::wire::ROWS;
use crate::{
    Answer, Checked, HistoryBytes, Identity, Known, KnownFile, Named, Page, PolicyHere, Query, QueryResult,
    Request, Saying, Shown, Stopped, Take,
};
use std::path::PathBuf;
use std::time::Duration;
use yore_device::{DeviceError, Holder, HostError, Operation};
use yore_fs::rollback::{Plan, RolledBack, UnfinishedRollback, Verb};
use yore_fs::{
    BlockNo, Change, ChecksumsEntered, DamagedBlock, DataState, Defragmented, Deleted, Difference, Error,
    Event, EventKind, EventMore, EventNo, EventRow, EventState, EventUsage, Facts, FileKind, FindingsRecord,
    ForgottenFor, Generation, Gone, Incarnation, InodeNo, ListedEvent, Logged, MetaAddr, MissedVersions,
    OperationKind, OperationRow, Policy, RecordedFinding, Retained, Retention, RetentionRules, Scattered,
    Scrub, ScrubFrom, ScrubPosition, ScrubRecord, ScrubUnderWay, Scrubbed, SeenBy, SpaceRules, StateUsage,
    Stays, Timestamp, UsageTotals, VerifyStates, Versioning, What, WithoutChecksums, WouldFree, EXCLUDE_MAX,
};

pub(super) fn device_errors() -> Vec<DeviceError> {
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

pub(super) fn errors() -> Vec<Error> {
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

const SHOWN: Shown = Shown { files: 1, hashes: [u64::MAX, 7] };

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

pub(super) fn requests() -> Vec<Request> {
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
        Request::Query(Query::Identity),
        Request::Operations { before: Some(1) },
        Request::Pin,
        Request::SpaceRules,
        Request::SetSpaceRules(RULES),
        Request::GivenUp { from: 7 },
        Request::WouldFree,
        Request::MissedVersions,
        Request::Lengthen { bytes: 1 << 40 },
        Request::Shred { question: 6 },
        Request::Policy,
        Request::SetPolicy(policy()),
        Request::RollBack(Plan {
            verb: Verb::Undo,
            of: Some(7),
            target: EventNo(1),
            others: Some((EventNo(2), Some(EventNo(3)))),
        }),
        Request::UnfinishedRollbacks { from: 1 },
        Request::HistoryOf { of: named(), from: 700, question: 5 },
        Request::Expunge { of: named(), shown: SHOWN },
        Request::Stopped,
        Request::Defragment { dry_run: true, question: 7 },
        Request::Check { findings_max: 8, memory: 1 << 30, question: 9 },
        Request::Findings,
        Request::Leaks,
        Request::Scrub {
            how: Scrub { rate: 1 << 30, begin: ScrubFrom::Block(7), every: Duration::from_millis(3) },
            question: 8,
        },
        Request::BreakOff { question: 8 },
        Request::Scrubs,
        Request::Checksums { enable: true, question: 9 },
    ]
}

pub(super) fn row(name: &str, path: Option<&[u8]>) -> ListedEvent {
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

pub(super) fn answers() -> Vec<Answer> {
    vec![
        Answer::Done,
        Answer::Taken { number: EventNo(1), time: Timestamp { seconds: 1, nanos: 1 } },
        Answer::Page(Page {
            rows: vec![row("", None), row("\u{fc}nder", Some(b"/x\n\xff"))],
            next: Some(EventNo(2)),
        }),
        Answer::HowFar(Some((1, 1 << 40))),
        Answer::Part { key: 3, length: 1 << 26, bytes: vec![0xff; ROWS] },
        Answer::QueryResult(QueryResult::Differences(Vec::new())),
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
        Answer::OtherFiles,
        Answer::Stopped(Some(Stopped { why: "no space left on the host".into(), since_seconds: 17 })),
        Answer::Scrubbed(Box::new(Scrubbed {
            metadata_blocks: 1,
            data_blocks: 2,
            keeps_checksums: true,
            metadata: vec!["inode block at block 7".into()],
            data: vec![DamagedBlock {
                inode: InodeNo(17),
                path: Some(b"/\xff".to_vec()),
                offset: 1 << 40,
                block: 3,
                until: Some(EventNo(4)),
                sound_until: None,
            }],
            without: Some(WithoutChecksums { blocks: 11, files: 12 }),
            further: 5,
            goes_on: Some(6),
            is_noted: true,
            since: Some(1),
        })),
        Answer::Scrubs {
            record: ScrubRecord {
                sequence: 1,
                under_way: Some(ScrubUnderWay {
                    began: 2,
                    position: ScrubPosition::Metadata(3),
                    metadata_blocks: 4,
                    data_blocks: 5,
                    damaged_metadata: 6,
                    candidates: vec![7],
                }),
                last: None,
                damaged: Vec::new(),
            },
            is_under_way: true,
        },
        Answer::Checksums {
            kept: true,
            entered: ChecksumsEntered { blocks: 1 << 40, left: 1, broken_off: true },
        },
        Answer::Defragmented(Defragmented {
            before: Scattered { files: 1, scattered: 2, pieces: 3, blocks: 1 << 40, history: 5 },
            pieces: 6,
            left: 7,
            moved: 8,
        }),
        Answer::Leaks { pending: true, percent: Some(37) },
        Answer::CheckBrokenOff,
        Answer::Checked(Checked { is_clean: false, json: "{}".into(), text: "1 finding".into() }),
        Answer::Findings(Some(FindingsRecord {
            sequence: 1,
            generation: Generation(2),
            seconds: 3,
            count: 4,
            next_incarnation: Some(Incarnation(5)),
            findings: vec![RecordedFinding {
                code: "space-leaked".into(),
                is_damage: false,
                addr: Some(MetaAddr(5)),
                block: Some(BlockNo(6)),
                inode: None,
                path: Some("/f".into()),
            }],
        })),
    ]
}

pub(super) fn queries() -> Vec<Query> {
    let (from, to, question) = (Some(EventNo(1)), None, u64::MAX);
    vec![
        Query::Identity,
        Query::Diff { from, to },
        Query::Compare { from, to, question },
        Query::Log {
            name: b"d/f\xff@then".to_vec(),
            most: Some(7),
            verify: VerifyStates::WhereDamaged,
            question: 9,
        },
        Query::Deleted { recursive: true, question },
        Query::HistoryBytes,
        Query::Usage { question: 3 },
        Query::UsageOf { name: Vec::new(), question: 4 },
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
        data: Some(DataState::Damaged { offset: 1 << 40, block: 9 }),
    }
}

pub(super) fn query_results() -> Vec<QueryResult> {
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
        QueryResult::Identity(Identity { inode, incarnation, event: Some(EventNo(8)) }),
        QueryResult::Differences(vec![
            difference(Change::Added, None, None, Some(facts)),
            difference(Change::Removed, None, Some(facts), None),
            difference(Change::Modified, None, Some(facts), Some(facts)),
            difference(Change::Renamed, Some(b"old"), Some(facts), Some(facts)),
        ]),
        QueryResult::Log(vec![logged()]),
        QueryResult::Deleted(vec![Deleted {
            path: b"p".to_vec(),
            last: seen_by("l"),
            kind,
            inode,
            incarnation,
            facts,
        }]),
        QueryResult::HistoryBytes(HistoryBytes { files: retained(1), index: 2 }),
        QueryResult::Usage(totals, vec![EventUsage { seen: seen_by("s"), exclusive, with_older, shared }]),
        QueryResult::UsageOf(totals, vec![StateUsage { state: logged(), exclusive, with_older, shared }]),
    ]
}

/// All samples of requests and answers.
pub(super) fn all_requests() -> Vec<Request> {
    requests().into_iter().chain(queries().into_iter().map(Request::Query)).collect()
}

pub(super) fn all_answers() -> Vec<Answer> {
    answers().into_iter().chain(query_results().into_iter().map(Answer::QueryResult)).collect()
}
