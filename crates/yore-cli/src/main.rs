//! The `yore` command: the one place where the parts of Yore are wired together.
//!
//! `args` defines the commands, and `command` carries them out. What they share is in `volume` (paths on
//! volumes, and how volumes are opened), `output` (lists, JSON, times), `progress` and `status` (exit codes
//! and messages). Every command is a function that returns an exit status or an error; messages are written
//! in one place, [`status::report`].
//!
//! The binary can also be called as mount(8) calls helpers: as `mount.yore` or `mount.fuse.yore`, and as
//! `yore VOL DIR -o …`, which is what `mount.fuse3` makes of `mount -t fuse.yore` (see `mount::helper`).
//! fsck(8) calls it as `fsck.yore` (see `fsck`).

mod allocator;
mod args;
mod asked;
mod command;
mod complete;
mod content;
mod fsck;
mod glob;
mod ground;
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
            // status 2. If nobody reads it, there is nobody to tell.
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
