//! `log-service`: a log of records for other programs ([`yore_log::LogFile`]), on the command line.

use crate::args::{self, Content, LogServiceWhich, Owner};
use crate::ground::{Ground, Wanted};
use crate::output::{human, json_time, print_json, printable, Clock, Out, Precision};
use crate::status::{self, Ended, Outcome};
use crate::volume::{open_device, Access};
use anyhow::Context as _;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use yore_device::{Device, BLOCK_SIZE};
use yore_fs::Timestamp;
use yore_log::{LogEnd, LogError, LogFile, LogOwner, LogReader, Lsn, Record, Region};
use yore_log::{REGION_BLOCKS_MAX, REGION_BLOCKS_MIN};

/// Blocks of a log beside those for records.
const ANCHOR_BLOCKS: u64 = 2;
/// So many records are appended before numbers are printed, at most.
const TOGETHER: usize = 1024;

/// Does it.
pub fn run(which: LogServiceWhich) -> Outcome {
    match which {
        LogServiceWhich::Create(args) => create(&args),
        LogServiceWhich::Append(args) => append(&args),
        LogServiceWhich::List(args) => list(&args),
        LogServiceWhich::Verify(args) => verify(&args),
        LogServiceWhich::Trim(args) => trim(&args),
    }
}

/// The error of a log, with the status that it has.
fn failed(error: LogError) -> anyhow::Error {
    let status = match error {
        LogError::Damaged { .. } => status::DAMAGED,
        _ => status::FAILED,
    };
    Ended { message: error.to_string(), status }.into()
}

fn owner_text(owner: Option<LogOwner>) -> String {
    owner.map_or("nobody".into(), |owner| owner.to_string())
}

fn create(args: &args::LogCreate) -> Outcome {
    let ground = Ground::find(Wanted {
        path: &args.path,
        what: "a log",
        file: ("file", "records.log"),
        size: args.size,
        blocks: REGION_BLOCKS_MIN + ANCHOR_BLOCKS..=REGION_BLOCKS_MAX,
        force: args.force,
        is_private: false,
    })?;
    let device = ground.device()?;
    let region = Region::whole(&*device);
    let made = LogFile::create_for(device.clone(), region, args.owner.0).and_then(LogFile::unmount);
    if let Err(error) = made {
        drop(device);
        ground.clear()?;
        return Err(failed(error)).with_context(|| format!("cannot make a log on {}", args.path.display()));
    }
    let mut out = Out::new();
    out.line(format_args!(
        "{}: log of {}, owner {}",
        args.path.display(),
        human(device.size()),
        owner_text(args.owner.0)
    ))?;
    out.done()?;
    Ok(status::OK)
}

/// Opens the log on a path for writing.
fn mount(path: &Path, owner: Owner) -> anyhow::Result<LogFile> {
    let device = open_device(path, Access::Write)?;
    let region = Region::whole(&*device);
    LogFile::mount_for(device, region, owner.0).map_err(failed)
}

/// Where records come from.
enum Source {
    Lines,
    Whole,
    Lengths,
}

impl Source {
    /// The next record; `None` at the end of the input. No record is longer than `most` bytes.
    fn next(&self, input: &mut impl BufRead, most: usize) -> anyhow::Result<Option<Vec<u8>>> {
        let mut record = Vec::new();
        let too_long = || {
            Ended {
            message: format!(
                "a record is longer than {most} bytes, the most that this log takes; split it or use a larger log"
            ),
            status: status::FAILED,
        }
        };
        match self {
            Source::Whole => {
                input.take(most as u64 + 1).read_to_end(&mut record)?;
                anyhow::ensure!(record.len() <= most, too_long());
            }
            Source::Lines => {
                if input.take(most as u64 + 1).read_until(b'\n', &mut record)? == 0 {
                    return Ok(None);
                }
                if record.last() == Some(&b'\n') {
                    record.pop();
                }
                anyhow::ensure!(record.len() <= most, too_long());
            }
            Source::Lengths => {
                let mut length = [0; 4];
                match input.take(4).read_to_end(&mut record)? {
                    0 => return Ok(None),
                    4 => length.copy_from_slice(&record),
                    n => anyhow::bail!("the input ends within the length of a record, after {n} of 4 bytes"),
                }
                let length = u32::from_le_bytes(length) as usize;
                anyhow::ensure!(length <= most, too_long());
                record.clear();
                let found = input.take(length as u64).read_to_end(&mut record)?;
                anyhow::ensure!(
                    found == length,
                    "the input ends within a record, after {found} of {length} bytes"
                );
            }
        }
        Ok(Some(record))
    }

    /// Whether the next record may have to be waited for.
    fn may_wait(&self, buffered: &[u8]) -> bool {
        match self {
            Source::Lines => !buffered.contains(&b'\n'),
            Source::Whole => true,
            Source::Lengths => match buffered.split_first_chunk::<4>() {
                Some((length, rest)) => rest.len() < u32::from_le_bytes(*length) as usize,
                None => true,
            },
        }
    }
}

fn append(args: &args::LogAppend) -> Outcome {
    let input: Box<dyn Read> = match &args.file {
        Some(path) => Box::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?),
        None => Box::new(io::stdin().lock()),
    };
    let log = mount(&args.path, args.owner)?;
    let source = match (args.whole, args.lengths) {
        (true, _) => Source::Whole,
        (_, true) => Source::Lengths,
        _ => Source::Lines,
    };
    let mut appending = Appending { log: &log, waits: !args.no_force, numbers: Vec::new(), out: Out::new() };
    let read = read_all(&source, BufReader::with_capacity(64 << 10, input), &mut appending);
    // Whatever went wrong, what was appended is printed once it is durable.
    let told = appending.tell();
    let closed = log.unmount().map_err(failed);
    read.and(told).and(closed)?;
    Ok(status::OK)
}

/// Appends what the input has.
fn read_all(
    source: &Source,
    mut input: BufReader<Box<dyn Read>>,
    appending: &mut Appending<'_>,
) -> anyhow::Result<()> {
    let most = appending.log.log().record_bytes_max();
    while let Some(record) = source.next(&mut input, most).context("cannot read the records")? {
        let number = appending.log.append(&[&record]).map_err(failed)?;
        appending.numbers.push(number);
        if appending.numbers.len() >= TOGETHER || source.may_wait(input.buffer()) {
            appending.tell()?;
        }
        if matches!(source, Source::Whole) {
            break;
        }
    }
    Ok(())
}

/// Records that were appended, and whose numbers are not printed yet.
struct Appending<'l> {
    log: &'l LogFile,
    /// Whether numbers are printed of durable records only.
    waits: bool,
    numbers: Vec<Lsn>,
    out: Out,
}

impl Appending<'_> {
    /// Prints them, so that somebody who reads them has them.
    fn tell(&mut self) -> anyhow::Result<()> {
        let Some(last) = self.numbers.last() else { return Ok(()) };
        if self.waits {
            self.log.force(*last).map_err(failed)?;
        }
        for number in self.numbers.drain(..) {
            self.out.line(number)?;
        }
        self.out.flush()
    }
}

/// Opens the log on a path for reading.
fn reader(path: &Path) -> anyhow::Result<LogReader> {
    let device: Arc<dyn Device> = open_device(path, Access::Read)?;
    let region = Region::whole(&*device);
    LogReader::open(device, region).map_err(failed)
}

fn list(args: &args::LogList) -> Outcome {
    let mut reader = reader(&args.path)?;
    let (mut out, clock) = (Out::new(), Clock::new(args.utc));
    let listed = (|| {
        while let Some(record) = reader.next_record().map_err(failed)? {
            if args.from.is_none_or(|from| record.number.0 >= from) {
                out.line(line_of(&record, args, &clock))?;
            }
        }
        Ok(())
    })();
    out.done()?;
    // Without this the loss of the last records before an orderly close would go unnoticed.
    listed.and_then(|()| reader.end().map(drop).map_err(failed))?;
    Ok(status::OK)
}

fn time_of(record: &Record<'_>) -> Timestamp {
    const SECOND: u64 = 1_000_000_000;
    Timestamp { seconds: (record.time_ns / SECOND) as i64, nanos: (record.time_ns % SECOND) as u32 }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A record as a line. Only records whose checksum is right get here.
fn line_of(record: &Record<'_>, args: &args::LogList, clock: &Clock) -> String {
    let (number, length, time) = (record.number, record.contents.len(), time_of(record));
    if args.json {
        let mut line =
            json!({ "number": number.0, "time": json_time(time), "length": length, "checksum": "good" });
        match args.content {
            None => {}
            Some(Content::Hex) => line["content_hex"] = json!(hex(record.contents)),
            Some(Content::Text) => crate::output::json_name(&mut line, "content", record.contents),
        }
        return line.to_string();
    }
    let content = match args.content {
        None => String::new(),
        Some(Content::Hex) => format!("  {}", hex(record.contents)),
        Some(Content::Text) => format!("  {}", printable(record.contents)),
    };
    format!("{number:>8}  {}  {length:>8}  good{content}", clock.text(time, Precision::Nanoseconds))
}

fn verify(args: &args::LogVerify) -> Outcome {
    let mut reader = reader(&args.path)?;
    let (owner, oldest) = (reader.owner(), reader.oldest());
    let (mut records, mut bytes, mut next) = (0u64, 0u64, oldest);
    let walked = loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                (records, bytes) = (records + 1, bytes + record.contents.len() as u64);
                next = record.number.next();
            }
            Ok(None) => break reader.end(),
            Err(error) => break Err(error),
        }
    };
    let damage = match walked {
        Ok(end) => {
            tell_end(args, owner, (records, bytes), &end)?;
            return Ok(status::OK);
        }
        Err(error @ LogError::Damaged { .. }) => error,
        Err(error) => return Err(failed(error)),
    };
    if args.json {
        print_json(&json!({
            "owner": owner.map(|owner| owner.to_string()), "records": records, "bytes": bytes,
            "oldest": oldest.0, "next": next.0, "damaged": damage.to_string(),
        }))?;
        return Err(Ended { message: String::new(), status: status::DAMAGED }.into());
    }
    let mut out = Out::new();
    out.line(format_args!("{}: {records} good records, and then damage", args.path.display()))?;
    out.done()?;
    Err(failed(damage))
}

/// Says where a sound log ends.
fn tell_end(
    args: &args::LogVerify,
    owner: Option<LogOwner>,
    (records, bytes): (u64, u64),
    end: &LogEnd,
) -> anyhow::Result<()> {
    let LogEnd { next, block, used, blocks } = *end;
    if args.json {
        return print_json(&json!({
            "owner": owner.map(|owner| owner.to_string()), "records": records, "bytes": bytes,
            "oldest": next.0 - records, "next": next.0, "end_block": block,
            "blocks_used": used, "blocks": blocks, "damaged": null,
        }));
    }
    let block_bytes = BLOCK_SIZE as u64;
    let mut out = Out::new();
    out.line(format_args!(
        "{}: sound; {records} records of {} in {} of {}, owner {}",
        args.path.display(),
        human(bytes),
        human(used * block_bytes),
        human(blocks * block_bytes),
        owner_text(owner)
    ))?;
    out.line(format_args!("ends at block {block}; the next record gets number {next}"))?;
    out.done()
}

fn trim(args: &args::LogTrim) -> Outcome {
    let log = mount(&args.path, args.owner)?;
    let trimmed = log.trim(Lsn(args.number)).map_err(failed);
    let closed = log.unmount().map_err(failed);
    trimmed.and(closed)?;
    Ok(status::OK)
}
