//! The `yore` command: the one place where the parts of Yore are wired together.
//!
//! `args` says what can be asked for, `command` does it; what they share is in `volume` (paths on volumes and
//! opening them), `output` (lists, JSON, times), `progress` and `status` (exit codes and messages). Every
//! command is a function that returns an exit status or an error; messages are written in one place,
//! [`status::report`].
//!
//! The binary also answers to the way mount(8) calls helpers: as `mount.yore` or `mount.fuse.yore`, and as
//! `yore VOL DIR -o …`, which is what `mount.fuse3` makes of `mount -t fuse.yore` (see `mount::helper`); and
//! as `fsck.yore` to fsck(8) (see `fsck`).

mod allocator;
mod args;
mod asked;
mod command;
mod complete;
mod fsck;
mod glob;
mod inspect;
mod live;
mod mount;
mod nearest;
mod opened;
mod output;
mod parse;
mod progress;
mod side;
mod status;
mod timed_path;
mod volume;

use clap::Parser as _;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    if argv.first().is_some_and(|name| fsck::is_called_by(name)) {
        return ExitCode::from(fsck::run(&argv[1..]));
    }
    let argv = mount::helper::rewrite(argv);
    let argv = args::single_dash_find(argv);
    status::set_form(&argv);
    let outcome = match args::Arguments::try_parse_from(argv) {
        Ok(arguments) => command::run(arguments),
        Err(error) => {
            // Help and versions go to standard output with status 0, the rest to standard error with
            // status 2. That nobody reads it is no news to anybody.
            if error.use_stderr() && status::is_json() {
                status::fail(&error.render().to_string(), None, status::USAGE);
            } else {
                let _ = error.print();
            }
            return ExitCode::from(if error.use_stderr() { status::USAGE } else { status::OK });
        }
    };
    ExitCode::from(status::report(outcome))
}
