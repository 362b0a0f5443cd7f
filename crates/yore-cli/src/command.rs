//! What the commands do. Each returns the exit status, or an error that says what happened to what.

pub mod bench;
pub mod check;
mod copy;
mod defrag;
mod describe;
mod df;
mod expunge;
pub mod files;
mod find;
mod forget;
pub mod found;
mod history;
mod info;
mod journal;
mod list;
mod log_service;
mod man;
mod mkfs;
mod online;
pub mod operand;
mod operations;
mod policy;
mod put_back;
mod query;
pub mod resize;
pub mod scrub;
mod snapshot;
pub mod stopped;
mod target;

use crate::args::help::EXIT_CODES;
use crate::args::{Arguments, Command};
use crate::output::{print_line, Out};
use crate::status::{self, Outcome};
use crate::{inspect, mount};
use clap::CommandFactory as _;

/// Runs a command.
pub fn run(arguments: Arguments) -> Outcome {
    match arguments.command {
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => mount::umount::run(&args),
        Command::Resize(args) => resize::run(&args),
        Command::Defrag(args) => defrag::run(&args),
        Command::Scrub(args) => scrub::scrub(&args),
        Command::Checksums(args) => scrub::checksums(&args),
        Command::Info(args) => info::run(&args),
        Command::Df(args) => df::run(&args),
        Command::Ls(args) => list::ls(&args),
        Command::Stat(args) => list::stat(&args),
        Command::Find(args) => find::run(&args),
        Command::Cat(args) => files::cat(&args),
        Command::Mkdir(args) => files::mkdir(&args),
        Command::Rm(args) => files::rm(&args),
        Command::Cp(args) => copy::run(copy::Which::Cp, &args),
        Command::Put(args) => copy::run(copy::Which::Put, &args),
        Command::Get(args) => copy::run(copy::Which::Get, &args),
        Command::Snapshot(args) => snapshot::snapshot(&args),
        Command::Snapshots(args) if args.forgotten => history::forgotten(&args),
        Command::Snapshots(args) => snapshot::snapshots(&args),
        Command::Hold(args) => forget::hold(&args, true),
        Command::Release(args) => forget::hold(&args, false),
        Command::Describe(args) => describe::run(&args),
        Command::Operations(args) => operations::run(&args),
        Command::Forget(args) => forget::forget(&args),
        Command::Expunge(args) => expunge::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::History(args) => history::run(&args),
        Command::Diff(args) => query::diff(&args),
        Command::Status(args) => query::status(&args),
        Command::Log(args) => query::log::log(&args),
        Command::Deleted(args) => query::log::deleted(&args),
        Command::Du(args) => query::usage::du(&args),
        Command::Restore(args) => put_back::restore(&args),
        Command::Undelete(args) => put_back::undelete(&args),
        Command::Rollback(args) => put_back::rollback(&args),
        Command::Undo(args) => put_back::undo(&args),
        Command::Redo(args) => put_back::redo(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Check(args) if args.online => online::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Journal(args) => journal::run(&args),
        Command::LogService(args) => log_service::run(args.which),
        Command::Bench(args) => bench::run(&args),
        Command::Completions { shell } => completions(shell),
        Command::Complete { words } => crate::complete::run(&words),
        Command::Man { directory: None } => man::print(),
        Command::Man { directory: Some(directory) } => man::write_all(&directory),
        Command::ExitCodes => print_line(EXIT_CODES).map(|()| status::OK),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    match crate::complete::script(shell) {
        Some(known) => script.extend_from_slice(known.as_bytes()),
        None => clap_complete::generate(shell, &mut Arguments::command(), "yore", &mut script),
    }
    let mut out = Out::new();
    out.bytes(&script)?;
    out.done()?;
    Ok(status::OK)
}
