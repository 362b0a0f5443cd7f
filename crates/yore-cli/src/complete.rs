//! Completion in shells: `yore completions SHELL` prints a script that asks `yore complete` for what can
//! follow.
//!
//! A script that is generated once knows commands and options, but not which snapshots there are. So the
//! scripts here know nothing: they hand over the words up to the cursor and offer what comes back. If nothing
//! comes back, the shell offers files. The same definitions as for the help say what may stand where. Nothing
//! here fails: somebody who presses a key does not want an error message.

use crate::args::Arguments;
use crate::command::files::on_volume;
use crate::command::operand::names_and_times;
use crate::output::Out;
use crate::status;
use crate::volume::{Access, OnVolume};
use clap::{Arg, Command, CommandFactory as _};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Times that people use most. They are offered beside the snapshots that there are.
const TIMES: [&str; 7] = ["last", "-2", "1h", "1day", "1week", "yesterday", "now"];
/// Settings of `policy`, with those values that are the same for everybody.
const SETTINGS: [(&str, &[&str]); 4] = [
    ("version=", &["snapshot", "close", "1min", "10min", "1h", "1day", "inherit"]),
    ("keep=", &["all", "inherit", "last:", "hourly:", "daily:", "weekly:", "monthly:", "yearly:", "within:"]),
    ("hold=", &["1day", "1week", "30d", "1y", "none", "inherit"]),
    ("exclude=", &["none", "inherit"]),
];

/// Prints the completions of these words; the last of them is being typed.
pub fn run(words: &[OsString]) -> anyhow::Result<u8> {
    let mut out = Out::new();
    for candidate in candidates(words) {
        // Each line is one candidate, and a terminal obeys some control characters.
        if !candidate.chars().any(char::is_control) {
            out.line(candidate)?;
        }
    }
    out.done()?;
    Ok(status::OK)
}

/// The script for a shell. `None` if there is only a generated script, which knows commands and options
/// alone.
pub fn script(shell: clap_complete::Shell) -> Option<&'static str> {
    match shell {
        clap_complete::Shell::Bash => Some(include_str!("complete/yore.bash")),
        clap_complete::Shell::Zsh => Some(include_str!("complete/yore.zsh")),
        clap_complete::Shell::Fish => Some(include_str!("complete/yore.fish")),
        _ => None,
    }
}

fn candidates(words: &[OsString]) -> Vec<String> {
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let Some(current) = current.to_str() else { return Vec::new() };
    let mut command = Arguments::command();
    command.build();
    let Some((first, before)) = before.split_first() else {
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        return beginning(current, shown.map(|sub| sub.get_name().to_string()));
    };
    let Some(mut sub) = first.to_str().and_then(|name| command.find_subcommand(name)) else {
        return Vec::new();
    };
    let mut before = before;
    while sub.has_subcommands() {
        let Some((next, rest)) = before.split_first() else {
            let shown = sub.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
            return beginning(current, shown.map(|sub| sub.get_name().to_string()));
        };
        let Some(of_it) = next.to_str().and_then(|name| sub.find_subcommand(name)) else {
            return Vec::new();
        };
        (sub, before) = (of_it, rest);
    }
    let line = Line::of(sub, before);
    match (line.value_of, current.split_once('=')) {
        (Some(option), _) => value(option, current, &line, ""),
        (None, Some((name, value_so_far))) if line.options && current.starts_with("--") => {
            let option = sub.get_arguments().find(|arg| arg.get_long() == name.strip_prefix("--"));
            let front = format!("{name}=");
            option.map(|option| value(option, value_so_far, &line, &front)).unwrap_or_default()
        }
        _ if line.options && current.starts_with('-') => {
            let shown = sub.get_arguments().filter(|arg| !arg.is_hide_set());
            beginning(current, shown.filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")))
        }
        _ => {
            let positionals: Vec<&Arg> = sub.get_positionals().collect();
            let at = line.paths.len().min(positionals.len().saturating_sub(1));
            positionals.get(at).map(|arg| value(arg, current, &line, "")).unwrap_or_default()
        }
    }
}

/// The words before the one that is being typed.
struct Line<'a> {
    /// The option whose value is being typed.
    value_of: Option<&'a Arg>,
    /// Whether options may follow: there was no `--`.
    options: bool,
    /// The words that are not options.
    paths: Vec<&'a OsStr>,
}

impl<'a> Line<'a> {
    fn of(command: &'a Command, words: &'a [OsString]) -> Line<'a> {
        let mut line = Line { value_of: None, options: true, paths: Vec::new() };
        for word in words {
            if line.value_of.take().is_some() {
                continue;
            }
            match word.to_str() {
                Some("--") if line.options => line.options = false,
                Some(option) if line.options && option.len() > 1 && option.starts_with('-') => {
                    let named = |arg: &&Arg| match option.strip_prefix("--") {
                        Some(long) => arg.get_long() == Some(long),
                        // Of several letters, only the last one may take a value.
                        None => arg.get_short() == option.chars().last(),
                    };
                    let found = command.get_arguments().find(named);
                    line.value_of = found.filter(|arg| arg.get_action().takes_values());
                }
                _ => line.paths.push(word),
            }
        }
        line
    }
}

fn beginning(current: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    all.filter(|one| one.starts_with(current)).collect()
}

/// What an argument can be, each with `front` before it.
fn value(arg: &Arg, current: &str, line: &Line<'_>, front: &str) -> Vec<String> {
    let possible = arg.get_possible_values();
    let names = arg.get_value_names().unwrap_or_default();
    let found = match names.first().map(clap::builder::Str::as_str) {
        _ if !possible.is_empty() => {
            let possible = possible.iter().filter(|value| !value.is_hide_set());
            beginning(current, possible.map(|value| value.get_name().to_string()))
        }
        Some("SETTING") => setting(current),
        Some("TIME") => {
            let operand = line.paths.first().copied().unwrap_or(OsStr::new("."));
            beginning(current, times_of(operand).into_iter())
        }
        Some(name) if ["PATH", "VOL:", "DIR"].iter().any(|kind| name.contains(kind)) => path(current),
        _ => Vec::new(),
    };
    found.into_iter().map(|found| format!("{front}{found}")).collect()
}

/// A setting of `policy`; for `keep=`, the rule after the last comma.
fn setting(current: &str) -> Vec<String> {
    let Some((key, values)) = SETTINGS.iter().find(|(key, _)| current.starts_with(key)) else {
        return beginning(current, SETTINGS.iter().map(|(key, _)| key.to_string()));
    };
    let front = current.rfind(',').map_or(*key, |comma| &current[..=comma]);
    let rules = values.iter().filter(|value| front == *key || value.ends_with(':'));
    beginning(current, rules.map(|value| format!("{front}{value}")))
}

/// A path: after an `@`, the snapshots that show it; on a volume, the names in a directory. For all else the
/// shell knows better.
fn path(current: &str) -> Vec<String> {
    let name_at = current.rfind('/').map_or(0, |slash| slash + 1);
    if let Some(at) = current.rfind('@').filter(|at| *at > name_at) {
        // A file that has this name comes before a time.
        if Path::new(current).exists() {
            return Vec::new();
        }
        let of = &current[..at];
        return beginning(current, times_of(OsStr::new(of)).into_iter().map(|time| format!("{of}@{time}")));
    }
    match OnVolume::split(OsStr::new(current)) {
        Some(on) if !Path::new(current).exists() => names_on(&on, current),
        _ => Vec::new(),
    }
}

/// The names and times of the snapshots that show a path: names first, then times, the latest first.
fn times_of(operand: &OsStr) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let known = names_and_times(operand).unwrap_or_default();
    let all = known.into_iter().chain(TIMES.map(str::to_string));
    all.filter(|time| seen.insert(time.clone())).collect()
}

/// The names in a directory of a volume that is not mounted.
fn names_on(on: &OnVolume, current: &str) -> Vec<String> {
    let path = on.path.to_string_lossy().into_owned();
    let (above, _) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
    let front = &current[..current.len() - (path.len() - above.len()).min(current.len())];
    let list = on_volume(&on.volume, Access::Read, |volume| {
        let mut names = Vec::new();
        for entry in volume.read_dir(above)? {
            let entry = entry?;
            let name = entry.file_name();
            if let Ok(name) = std::str::from_utf8(name.as_bytes()) {
                let slash = if entry.metadata().is_dir() { "/" } else { "" };
                names.push(format!("{front}{name}{slash}"));
            }
        }
        names.sort_unstable();
        Ok(names)
    });
    beginning(current, list.unwrap_or_default().into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Vec<String> {
        candidates(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    /// Promises that the completions of commands, options and values are those of the definitions.
    #[test]
    fn what_can_follow() {
        assert_eq!(of(&["snapsh"]), ["snapshot", "snapshots"]);
        assert!(
            of(&[""]).contains(&"operations".to_string()) && !of(&[""]).contains(&"complete".to_string())
        );
        assert_eq!(of(&["forget", "--keep-w"]), ["--keep-weekly", "--keep-within"]);
        assert_eq!(of(&["mkfs", "v", "--engine", "so"]), ["soft-updates"]);
        assert_eq!(of(&["mkfs", "--engine=so"]), ["--engine=soft-updates"]);
        assert_eq!(of(&["completions", "ba"]), ["bash"]);
        assert_eq!(of(&["policy", "/mnt", "v"]), ["version="]);
        assert_eq!(of(&["policy", "/mnt", "version=c"]), ["version=close"]);
        assert_eq!(of(&["policy", "/mnt", "version=1h", "keep=last:3,da"]), ["keep=last:3,daily:"]);
        assert_eq!(of(&["policy", "/mnt", "h"]), ["hold="]);
        assert_eq!(of(&["policy", "/mnt", "hold=n"]), ["hold=none"]);
        assert_eq!(of(&["policy", "/mnt", "exclude=in"]), ["exclude=inherit"]);
        assert!(of(&["policy", "/mnt", "keep=last:3,"]).iter().all(|one| one.ends_with(':')));
        assert_eq!(of(&["log-service", "l"]), ["list"]);
        assert_eq!(of(&["log-service", "append", "x", "--le"]), ["--lengths"]);
        assert!(of(&["log-service", "nothing", ""]).is_empty());
        assert!(of(&["nothing", ""]).is_empty() && of(&[]).is_empty());
        assert!(of(&["forget", "/nowhere", "--before", "yes"]).contains(&"yesterday".to_string()));
        assert_eq!(of(&["diff", "--", "--ex"]), Vec::<String>::new());
    }
}
