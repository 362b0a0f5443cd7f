//! Promises of a log that loses power: recovery finds what was forced, possibly followed by the records of
//! the one batch that was being written, and never anything else. This holds however often the log crashes
//! again, and whatever the next session writes over what was left.
//!
//! Everything follows from the seeds and crash states that failures print, so a second run of the test does
//! the same.

mod common;

use std::sync::Arc;

use common::{contents, Random};
use yore_device::simulated::{CrashPlan, SimulatedDevice, Tearing};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_log::{recover, End, Log, LogError, LogFile, LogId, Lsn, OwnedRecord, Position, Region};

const ID: LogId = LogId(0xfeed);

fn read(
    device: Arc<dyn Device>,
    region: Region,
    from: Position,
) -> Result<(Vec<OwnedRecord>, End), LogError> {
    let mut recovered = recover(device, region, ID, from)?;
    let mut records = Vec::new();
    while let Some(record) = recovered.next_record()? {
        records.push(record.to_owned());
    }
    Ok((records, recovered.end()?))
}

/// What the owner knew at each entry of the trace. Marks carry the index of a note.
#[derive(Clone, Copy)]
struct Note {
    /// Where the durable anchor says that reading begins.
    anchor: Position,
    /// Records before it are promised.
    forced: u64,
    /// Records before it were appended.
    appended: u64,
}

/// The contents of a record. They depend on its number and on the session that appended it, so that records
/// of a forgotten session are recognised. With `alike` they depend on the number alone.
fn body(number: u64, session: u64, alike: bool) -> Vec<u8> {
    let length = (contents(number, 8)[0] as usize * 53) % 7000;
    contents(if alike { number } else { number ^ session << 32 }, length)
}

/// Appends, forces and releases at random, and notes in marks what is promised.
fn work(
    device: &SimulatedDevice,
    log: &Log,
    session: u64,
    alike: bool,
    steps: u64,
    random: &mut Random,
    notes: &mut Vec<Note>,
) {
    let mut note = *notes.last().expect("a note to begin with");
    for _ in 0..steps {
        match random.below(8) {
            0..=3 => {
                let number = log.next_number().0;
                match log.append(&[&body(number, session, alike)]) {
                    Ok(found) => assert_eq!(found.0, number),
                    Err(LogError::Full { .. } | LogError::TooLong { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            4..=6 => log.force_all().unwrap(),
            _ => {
                // The owner has committed something, and its durable anchor says so.
                let oldest = note.anchor.number.0;
                let upto = oldest + random.below(note.appended - oldest + 1);
                note.anchor = log.position_of(Lsn(upto)).unwrap();
                notes.push(note);
                device.mark(notes.len() as u64 - 1);
                log.release(note.anchor).unwrap();
            }
        }
        note.appended = log.next_number().0;
        note.forced = note.forced.max(log.durable().0 .0);
        notes.push(note);
        device.mark(notes.len() as u64 - 1);
    }
}

/// Checks what recovery of a crashed medium gives; returns the end that it found.
fn judge(
    medium: &MemoryDevice,
    region: Region,
    note: &Note,
    notes: &[Note],
    sessions: &[(u64, u64)],
    alike: bool,
    context: &str,
) -> End {
    let device = Arc::new(medium.snapshot());
    let (records, end) =
        read(device.clone(), region, note.anchor).unwrap_or_else(|error| panic!("{context}: {error}"));
    let first = note.anchor.number.0;
    let next = end.position.number.0;
    assert!(records.iter().map(|r| r.number.0).eq(first..next), "{context}: {records:?}");
    assert!(next >= note.forced.max(first), "{context}: only up to {next}, {} were forced", note.forced);
    // The mark after an append may not have been set yet.
    let appended = notes.last().expect("a note").appended;
    assert!(next <= appended.max(first), "{context}: {next} of {appended}");
    for record in &records {
        let number = record.number.0;
        let (_, session) = *sessions.iter().rfind(|(from, _)| *from <= number).expect("a session");
        assert!(
            record.contents == body(number, session, alike),
            "{context}: record {number} is of another session"
        );
    }
    // Recovery wrote nothing, and finds the same again.
    assert!(device.first_difference(medium).is_none(), "{context}");
    end
}

/// Every crash of one session, then of a second one that goes on where the first one was torn, then of a
/// third.
fn crash_and_crash_again(seed: u64, alike: bool, tearing: Tearing) -> u64 {
    let mut random = Random::new(seed + 1);
    let blocks = 5 + random.below(10);
    let region = Region { first_block: 1, blocks };
    let size = (blocks + 2) * BLOCK_SIZE as u64;
    let start = Position { block: random.below(blocks), ..Position::start(ID) };
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(size).turning(seed % 3)));
    let mut notes = vec![Note { anchor: start, forced: 1, appended: 1 }];
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    log.leave_gaps();
    work(&device, &log, 1, alike, 24, &mut random, &mut notes);
    let trace = device.trace();
    let plan =
        CrashPlan { exhaustive_max: 20, samples: 10, seed, tearing, at_marks: false, ..CrashPlan::default() };
    let mut judged = 0;
    for case in trace.crash_states(&plan) {
        let context = format!("seed {seed} alike {alike} {}", case.state());
        let at = trace.marks_before(case.after_entry()).last().unwrap_or(0) as usize;
        let note = notes[at];
        let medium = case.materialise();
        let sessions = [(0, 1)];
        let end = judge(&medium, region, &note, &notes, &sessions, alike, &context);
        judged += 1;
        if random.below(6) != 0 {
            continue;
        }
        judged += second(&medium, region, note, end, alike, &mut random, &sessions, &context, 2);
    }
    judged
}

/// A session over what a crash left, and its crashes.
#[allow(clippy::too_many_arguments)]
fn second(
    medium: &MemoryDevice,
    region: Region,
    note: Note,
    end: End,
    alike: bool,
    random: &mut Random,
    before: &[(u64, u64)],
    outer: &str,
    session: u64,
) -> u64 {
    let device = Arc::new(SimulatedDevice::new(medium.snapshot()));
    let found = end.position.number.0;
    let mut notes = vec![Note { anchor: note.anchor, forced: found, appended: found }];
    // Some owners commit what they recovered before they go on.
    let mut end = end;
    if random.below(3) == 0 {
        notes[0].anchor = end.position;
        end = End::at(end.position);
    }
    let log = Log::open(device.clone(), region, ID, session, end).unwrap();
    log.leave_gaps();
    work(&device, &log, session, alike, 8, random, &mut notes);
    let trace = device.trace();
    let plan = CrashPlan { exhaustive_max: 12, samples: 8, at_marks: false, ..CrashPlan::default() };
    let mut judged = 0;
    let mut sessions = before.to_vec();
    sessions.push((found, session));
    for case in trace.crash_states(&plan) {
        let context = format!("{outer} session {session} {}", case.state());
        let at = trace.marks_before(case.after_entry()).last().unwrap_or(0) as usize;
        let medium = case.materialise();
        let end = judge(&medium, region, &notes[at], &notes, &sessions, alike, &context);
        judged += 1;
        if session < 4 && random.below(12) == 0 {
            judged +=
                second(&medium, region, notes[at], end, alike, random, &sessions, &context, session + 1);
        }
    }
    judged
}

/// The whole story, with records that differ from session to session, so that no forgotten record comes back
/// unseen.
#[test]
fn a_crash_leaves_what_was_forced() {
    let judged: u64 = (0..14).map(|seed| crash_and_crash_again(seed, false, Tearing::Sectors)).sum();
    assert!(judged > 2000, "only {judged} states");
}

/// The same story with callers who append the same records again after a crash, and with devices that tear
/// writes only between blocks.
#[test]
fn a_crash_leaves_what_was_forced_by_callers_who_try_again() {
    let sectors: u64 = (100..107).map(|seed| crash_and_crash_again(seed, true, Tearing::Sectors)).sum();
    let blocks: u64 = (200..207).map(|seed| crash_and_crash_again(seed, false, Tearing::Blocks)).sum();
    assert!(sectors > 1000 && blocks > 1000, "only {sectors} and {blocks} states");
}

/// A torn batch of up to 16 sectors has 2^n states. In each of them, nothing of it is found unless all of it
/// is there.
#[test]
fn every_torn_batch_is_found_whole_or_not_at_all() {
    for (length, blocks) in [(100, 1), (3900, 1), (4100, 2), (7900, 2)] {
        let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(16 * BLOCK_SIZE as u64)));
        // Not zeros, so that every sector of the batch changes something.
        device.write_at(0, &vec![0xa5; 16 * BLOCK_SIZE]).unwrap();
        device.flush().unwrap();
        // The batch goes around the end of the ring.
        let region = Region { first_block: 2, blocks: 5 };
        let start = Position { block: 2, ..Position::start(ID) };
        let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
        log.append(&[b"first"]).unwrap();
        log.force_all().unwrap();
        let number = log.append(&[&contents(9, length)]).unwrap();
        device.restart_trace();
        log.force(number).unwrap();
        let trace = device.trace();
        let point = trace.crash_point(trace.len() - 1).unwrap();
        let count = point.state_count(Tearing::Sectors).unwrap();
        assert_eq!(count, 1 << (8 * blocks), "every sector is new");
        let mut whole = 0;
        for index in 0..count {
            let medium =
                point.materialise(yore_device::simulated::Choice::Index(index), Tearing::Sectors).unwrap();
            let (records, _) = read(Arc::new(medium), region, start).unwrap();
            match records.len() {
                1 => {}
                2 if index == count - 1 => whole += 1,
                other => panic!("{other} records in state {index} of {length} bytes"),
            }
            assert_eq!(records[0].contents, b"first");
        }
        assert_eq!(whole, 1);
    }
}

/// This story is why a session begins with a start. A batch T is torn: its first sector is there, its second
/// is not. The caller learns that the record is lost, and appends another one that has the same bytes in that
/// second sector. Whatever a crash leaves of that one, T's record does not come back. It does not come back
/// either if T's missing bytes are zeros, of which every batch has many.
#[test]
fn a_torn_batch_is_never_completed_by_the_next_session() {
    for shared in [contents(5, 2000), vec![0; 2000], vec![0; 4000]] {
        let region = Region { first_block: 0, blocks: 8 };
        let start = Position::start(ID);
        let medium = MemoryDevice::from_bytes(&vec![0xa5; 8 * BLOCK_SIZE]);
        let device = Arc::new(SimulatedDevice::new(medium));
        let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
        log.append(&[b"kept"]).unwrap();
        log.force_all().unwrap();
        device.restart_trace();
        log.append(&[b"lost", &shared]).unwrap();
        log.force_all().unwrap();
        let point = device.trace().crash_point(1).unwrap();
        let choices =
            point.choices(&CrashPlan { exhaustive_max: 1 << 8, samples: 60, ..CrashPlan::default() });
        let mut seen = 0;
        for choice in choices {
            let torn = point.materialise(choice, Tearing::Sectors).unwrap();
            let (records, end) = read(Arc::new(torn.snapshot()), region, start).unwrap();
            if records.len() == 2 {
                continue;
            }
            let device = Arc::new(SimulatedDevice::new(torn));
            let log = Log::open(device.clone(), region, ID, 2, end).unwrap();
            log.append(&[b"next", &shared]).unwrap();
            log.force_all().unwrap();
            let trace = device.trace();
            let plan = CrashPlan { exhaustive_max: 1 << 8, ..CrashPlan::default() };
            for case in trace.crash_states(&plan) {
                let (records, _) = read(Arc::new(case.materialise()), region, start).unwrap();
                assert_eq!(records[0].contents, b"kept");
                assert!(
                    records.len() < 3 && records.get(1).is_none_or(|r| r.contents.starts_with(b"next")),
                    "{} zeros: {choice:?}, then {}",
                    shared.iter().filter(|&&byte| byte == 0).count(),
                    case.state()
                );
                seen += 1;
            }
        }
        assert!(seen > 1000, "only {seen}");
    }
}

/// A session that has appended nothing erases what is released, and loses power meanwhile. An earlier session
/// has left a batch there that is torn so that nothing but zeros is missing. Zeros completed it, and its
/// records came back.
#[test]
fn zeros_do_not_complete_a_torn_batch() {
    let region = Region { first_block: 0, blocks: 8 };
    let start = Position::start(ID);
    let medium = MemoryDevice::from_bytes(&vec![0xa5; 8 * BLOCK_SIZE]);
    let device = Arc::new(SimulatedDevice::new(medium));
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    log.append(&[b"kept"]).unwrap();
    log.force_all().unwrap();
    device.restart_trace();
    log.append(&[b"lost", &vec![0; 5000]]).unwrap();
    log.force_all().unwrap();
    let point = device.trace().crash_point(1).unwrap();
    let mut judged = 0;
    for choice in point.choices(&CrashPlan { exhaustive_max: 1 << 8, samples: 60, ..CrashPlan::default() }) {
        let torn = point.materialise(choice, Tearing::Sectors).unwrap();
        let (records, end) = read(Arc::new(torn.snapshot()), region, start).unwrap();
        if records.len() == 2 {
            continue;
        }
        let device = Arc::new(SimulatedDevice::new(torn));
        let log = Log::open(device.clone(), region, ID, 2, end).unwrap();
        log.erase_released().unwrap();
        let plan = CrashPlan { exhaustive_max: 1 << 8, samples: 60, ..CrashPlan::default() };
        for case in device.trace().crash_states(&plan) {
            let (records, _) = read(Arc::new(case.materialise()), region, start).unwrap();
            assert_eq!(records.len(), 1, "{choice:?}, then {}", case.state());
            judged += 1;
        }
    }
    assert!(judged > 1000, "only {judged}");
}

/// After a mere crash of the process, its last writes can be read but are not durable. Recovery believes
/// them, so it makes them durable: otherwise the next session's batches could reach the medium before the
/// batch that they are chained to.
#[test]
fn what_recovery_gives_is_durable() {
    let region = Region { first_block: 0, blocks: 8 };
    let start = Position::start(ID);
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(8 * BLOCK_SIZE as u64)));
    let log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
    log.append(&[b"one"]).unwrap();
    log.force_all().unwrap();
    log.append(&[b"two"]).unwrap();
    device.fail(yore_device::simulated::Fault::FlushError { nth: 1 }.into());
    log.force_all().unwrap_err();
    device.fail(Default::default());
    // The process ends here. Another one starts.
    let (records, end) = read(device.clone(), region, start).unwrap();
    assert_eq!(records.len(), 2);
    let promised = device.entries();
    let log = Log::open(device.clone(), region, ID, 2, end).unwrap();
    log.append(&[b"three"]).unwrap();
    log.force_all().unwrap();
    let trace = device.trace();
    let plan = CrashPlan { after_events: Some(promised..=trace.len()), ..CrashPlan::default() };
    for case in trace.crash_states(&plan) {
        let (records, _) = read(Arc::new(case.materialise()), region, start).unwrap();
        assert!(records.len() >= 2, "{}", case.state());
    }
}

/// A stand-alone log crashes at every entry of the trace of its creation, and of appends, trims, unmounts and
/// mounts. What was promised is there, what was trimmed is gone, and the log can be used.
#[test]
fn a_log_file_survives_crashes() {
    for seed in 0..6 {
        let mut random = Random::new(seed + 40);
        let region = Region { first_block: 0, blocks: 12 };
        let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(12 * BLOCK_SIZE as u64)));
        let mut log = Some(LogFile::create(device.clone(), region).unwrap());
        // Before this there may be no log.
        device.restart_trace();
        // (oldest, durable) after each mark.
        let mut promised = vec![(1, 1)];
        let mut next = 1;
        for _ in 0..30 {
            let (mut oldest, mut durable) = promised[promised.len() - 1];
            let file = log.take().expect("mounted");
            log = Some(match random.below(8) {
                0..=4 => {
                    match file.append_sync(&[&contents(next, random.below(6000) as usize)]) {
                        Ok(_) => next += 1,
                        Err(LogError::Full { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                    durable = next;
                    file
                }
                5 => {
                    let upto = oldest + random.below(next - oldest + 1);
                    file.trim(Lsn(upto)).unwrap();
                    oldest = upto;
                    file
                }
                6 => {
                    file.unmount().unwrap();
                    LogFile::mount(device.clone(), region).unwrap()
                }
                _ => {
                    drop(file);
                    LogFile::mount(device.clone(), region).unwrap()
                }
            });
            promised.push((oldest, durable));
            device.mark(promised.len() as u64 - 1);
        }
        let trace = device.trace();
        for case in
            trace.crash_states(&CrashPlan { exhaustive_max: 16, samples: 8, seed, ..CrashPlan::default() })
        {
            let context = format!("seed {seed} {}", case.state());
            let at = trace.marks_before(case.after_entry()).last().unwrap_or(0) as usize;
            let (oldest, durable) = promised[at];
            let (oldest_max, _) = promised[(at + 1).min(promised.len() - 1)];
            let device = Arc::new(case.materialise());
            let log = LogFile::mount(device.clone(), region).unwrap_or_else(|e| panic!("{context}: {e}"));
            let records: Vec<_> =
                log.iter().map(|r| r.unwrap_or_else(|e| panic!("{context}: {e}"))).collect();
            let next = log.log().next_number().0;
            let first = log.log().oldest().number.0;
            assert!((oldest..=oldest_max).contains(&first) && next >= durable, "{context}: {first}..{next}");
            assert!(records.iter().map(|r| r.number.0).eq(first..next), "{context}");
            assert!(
                records.iter().all(|r| r.contents == contents(r.number.0, r.contents.len())),
                "{context}"
            );
            log.trim(Lsn(next)).unwrap();
            assert_eq!(log.append_sync(&[b"on"]).unwrap(), Lsn(next));
        }
    }
}

/// One step of a short history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A record that fits beside others in a block, or one that does not.
    Append(usize),
    Force,
    /// The owner no longer needs anything that was appended, forced or not.
    Release,
    /// The process ends, and another one opens the log.
    Reopen,
    /// A force whose flush fails, and then a reopen.
    FailAndReopen,
}

/// All histories of four steps after a first one, and for each all states that a crash could leave, or a
/// choice of them if there are too many.
#[test]
fn every_short_history_survives_every_crash() {
    use Step::*;
    let steps = [Append(100), Append(5000), Force, Release, Reopen, FailAndReopen];
    let mut judged = 0;
    for number in 0..steps.len().pow(4) {
        let history: Vec<Step> = (0..4).map(|n| steps[number / steps.len().pow(n) % steps.len()]).collect();
        let region = Region { first_block: 0, blocks: 12 };
        let start = Position { block: 10, ..Position::start(ID) };
        let memory = MemoryDevice::new(12 * BLOCK_SIZE as u64).turning(number as u64 % 2);
        let device = Arc::new(SimulatedDevice::new(memory));
        let mut notes = vec![Note { anchor: start, forced: 1, appended: 1 }];
        let mut sessions = vec![(0, 1)];
        let mut log = Log::open(device.clone(), region, ID, 1, End::at(start)).unwrap();
        log.leave_gaps();
        for step in [Append(300)].iter().chain(&history).chain(&[Append(50), Force]) {
            let mut note = *notes.last().expect("a note");
            match *step {
                Append(length) => {
                    let session = sessions.len() as u64;
                    let number = log.next_number().0;
                    log.append(&[&contents(number ^ session << 32, length)]).unwrap();
                }
                Force => log.force_all().unwrap(),
                Release => {
                    note.anchor = log.position();
                    notes.push(note);
                    device.mark(notes.len() as u64 - 1);
                    log.release(note.anchor).unwrap();
                }
                Reopen | FailAndReopen => {
                    if matches!(step, FailAndReopen) {
                        device.fail(yore_device::simulated::Fault::FlushError { nth: 1 }.into());
                        // If there is nothing to write, nothing fails.
                        let failed = log.force_all().is_err();
                        assert_eq!(failed, log.check().is_err());
                        device.fail(Default::default());
                    }
                    let (_, end) = read(device.clone(), region, note.anchor).unwrap();
                    let found = end.position.number.0;
                    assert!(found >= note.forced);
                    sessions.push((found, sessions.len() as u64 + 1));
                    note.forced = found;
                    log = Log::open(device.clone(), region, ID, sessions.len() as u64, end).unwrap();
                    log.leave_gaps();
                }
            }
            note.appended = note.appended.max(log.next_number().0);
            note.forced = note.forced.max(log.durable().0 .0);
            notes.push(note);
            device.mark(notes.len() as u64 - 1);
        }
        let trace = device.trace();
        let plan = CrashPlan { exhaustive_max: 9, samples: 5, at_marks: false, ..CrashPlan::default() };
        for case in trace.crash_states(&plan) {
            let at = trace.marks_before(case.after_entry()).last().unwrap_or(0) as usize;
            let note = notes[at];
            let context = || format!("{history:?} {}", case.state());
            let (records, end) = read(Arc::new(case.materialise()), region, note.anchor)
                .unwrap_or_else(|error| panic!("{}: {error}", context()));
            let (first, next) = (note.anchor.number.0, end.position.number.0);
            assert!(records.iter().map(|r| r.number.0).eq(first..next), "{}", context());
            assert!(next >= note.forced, "{}: {next} of {}", context(), note.forced);
            for record in &records {
                let number = record.number.0;
                let (_, session) = *sessions.iter().rfind(|(from, _)| *from <= number).expect("a session");
                let body = contents(number ^ session << 32, record.contents.len());
                assert!(body == record.contents, "{}: record {number} is of another session", context());
            }
            judged += 1;
        }
    }
    assert!(judged > 20_000, "only {judged}");
}
