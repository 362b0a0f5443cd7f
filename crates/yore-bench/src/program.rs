//! Runs other programs, and says clearly what is missing or what they complained about.

use crate::{BenchError, Result};
use std::io;
use std::path::Path;
use std::process::Command;

/// A command that also searches directories outside ordinary users' paths (mkfs is in `/usr/sbin`), speaks
/// English, and reads nothing.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin:/usr/local/sbin");
    let mut command = Command::new(program);
    command.env("PATH", path).env("LC_ALL", "C").stdin(std::process::Stdio::null());
    command
}

/// Runs to the end; returns what it printed on both outputs.
///
/// # Errors
/// [`BenchError::NotInstalled`] naming `package`; [`BenchError::Command`] with what it said.
pub(crate) fn run(command: &mut Command, package: &str) -> Result<String> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    match command.output() {
        Ok(output) => {
            let said =
                [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned()).concat();
            match output.status.success() {
                true => Ok(said),
                false => {
                    let said = match said.trim() {
                        "" => output.status.to_string(),
                        said => said.to_string(),
                    };
                    Err(BenchError::Command { command: program, said })
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(BenchError::NotInstalled { program, package: package.to_string() })
        }
        Err(error) => Err(BenchError::Command { command: program, said: error.to_string() }),
    }
}
