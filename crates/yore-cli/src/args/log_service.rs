//! The arguments of `log-service`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use yore_log::LogOwner;

/// `log-service`
#[derive(Debug, Args)]
#[command(
    after_help = "A record is any string of bytes. It has a number, 1, 2, 3 and so on, for ever, and the time at which it was appended. \
                  The log is a ring: it takes records until it is full, and `trim` gives back the space of those that nobody needs. \
                  After a crash every record is there whose number was printed (without --no-force), in order and without a gap. One \
                  process at a time can write to a log."
)]
pub struct LogService {
    /// What to do
    #[command(subcommand)]
    pub which: LogServiceWhich,
}

/// What can be done with a log.
#[derive(Debug, Subcommand)]
pub enum LogServiceWhich {
    /// Make an empty log
    Create(LogCreate),
    /// Append records, and print the number of each once it is durable
    Append(LogAppend),
    /// List the records that a log keeps; writes nothing
    List(LogList),
    /// Read all of a log, and say where it ends; exit status 4 if it is damaged before its end
    Verify(LogVerify),
    /// Forget the records before a number, and give back their space
    Trim(LogTrim),
}

/// Whose a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(pub Option<LogOwner>);

fn owner(text: &str) -> Result<Owner, String> {
    if text == "none" {
        return Ok(Owner(None));
    }
    let uuid = uuid::Uuid::parse_str(text).map_err(|error| format!("{error}; write a UUID, or none"))?;
    match uuid.is_nil() {
        true => Err("zeros are nobody; write none".into()),
        false => Ok(Owner(Some(LogOwner(uuid.into_bytes())))),
    }
}

/// `log-service create`
#[derive(Debug, Args)]
pub struct LogCreate {
    /// The file (made if it is not there) or block device
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Size, as 64M, 1G or bytes; at least 24K. Default: all of what exists
    #[arg(long, value_parser = crate::parse::parse_size)]
    pub size: Option<u64>,
    /// For whom it is: nobody else can append. A UUID, for example that of a volume, or none
    #[arg(long, value_name = "UUID", default_value = "none", value_parser = owner)]
    pub owner: Owner,
    /// Overwrite what is there
    #[arg(long, short)]
    pub force: bool,
}

/// `log-service append`
#[derive(Debug, Args)]
pub struct LogAppend {
    /// The log
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Read records from this file instead of standard input
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// All of the input is one record. Default: each line is one, without the end of the line
    #[arg(long, conflicts_with = "lengths")]
    pub whole: bool,
    /// Before each record stands its length, 4 bytes, the least significant first
    #[arg(long)]
    pub lengths: bool,
    /// Do not wait for the device: print a number as soon as the record is in memory
    #[arg(long)]
    pub no_force: bool,
    /// The owner for whom the log was made
    #[arg(long, value_name = "UUID", default_value = "none", value_parser = owner)]
    pub owner: Owner,
}

/// How contents are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Content {
    /// As text; control characters, and what is no text, as \x1b
    Text,
    /// Two hexadecimal digits for each byte
    Hex,
}

/// `log-service list`
#[derive(Debug, Args)]
pub struct LogList {
    /// The log
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Begin with this number
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Print contents, too
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub content: Option<Content>,
    /// Print JSON, a line for each record
    #[arg(long)]
    pub json: bool,
    /// Print times in UTC instead of local time
    #[arg(long)]
    pub utc: bool,
}

/// `log-service verify`
#[derive(Debug, Args)]
pub struct LogVerify {
    /// The log
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `log-service trim`
#[derive(Debug, Args)]
pub struct LogTrim {
    /// The log
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// The oldest record that stays; the number after the last one keeps none
    #[arg(value_name = "NUMBER")]
    pub number: u64,
    /// The owner for whom the log was made
    #[arg(long, value_name = "UUID", default_value = "none", value_parser = owner)]
    pub owner: Owner,
}
