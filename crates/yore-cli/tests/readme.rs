//! Promises that the README's sessions run exactly as printed there, except for times and identities.

use crate::common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A command, and the lines that the README prints for it.
struct Step {
    command: String,
    prints: Vec<String>,
}

/// The steps in the console blocks of a section.
fn steps(readme: &str, section: &str) -> Vec<Step> {
    let (_, rest) = readme.split_once(&format!("\n## {section}\n")).expect("the README has the section");
    let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
    let mut steps: Vec<Step> = Vec::new();
    let mut is_inside = false;
    for line in section.lines() {
        match (is_inside, line) {
            (false, "```console") => is_inside = true,
            (true, "```") => is_inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.into(), prints: Vec::new() }),
                None => steps.last_mut().expect("a command comes first").prints.push(line.into()),
            },
            (false, _) => {}
        }
    }
    steps
}

/// One shell that runs all commands, as a person's does.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn new(directory: &Path) -> Shell {
        let binaries = Path::new(env!("CARGO_BIN_EXE_yore")).parent().expect("it lies in a directory");
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").expect("a path"));
        let mut child = Command::new("bash")
            .args([
                "--norc",
                "--noprofile",
                "-c",
                "exec 2>&1; umask 022; while read -r line; do eval \"$line\"; printf '\\n<done>\\n'; done",
            ])
            .current_dir(directory)
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash can be started");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Shell { child, input, output }
    }

    fn run(&mut self, command: &str) -> Vec<String> {
        writeln!(self.input, "{command}").expect("the shell reads");
        let mut lines = Vec::new();
        for line in self.output.by_ref().lines() {
            let line = line.expect("text");
            if line == "<done>" {
                break;
            }
            lines.push(line);
        }
        // The last line ends with the mark.
        if lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A word without the parts that differ from run to run: times, and what identifies a volume.
fn masked(word: &str) -> String {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let is_time = ["0000-00-00", "0000-00-00_00.00", "00:00", "00:00:00", "00:00:00.000000000"]
        .contains(&shape.as_str())
        || shape.starts_with("0000-00-00_00.00.00");
    let is_uuid = word.len() == 36
        && word.chars().enumerate().all(|(i, c)| match i {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        });
    match (is_time, is_uuid) {
        (true, _) => "TIME".into(),
        (_, true) => "UUID".into(),
        _ => word.into(),
    }
}

/// The same for a whole line. The message of a mount whose daemon is just dying may be that of a dead one.
/// The number of generations depends on how long commands took; the day of the month and the month stand
/// alone.
fn words(line: &str) -> Vec<String> {
    let line = line.replace("Software caused connection abort", "Transport endpoint is not connected");
    let mut words: Vec<String> = line.split_whitespace().map(masked).collect();
    for i in 1..words.len() {
        let is_day = i + 1 < words.len() && words[i + 1] == "TIME" && words[i].parse::<u8>().is_ok();
        if words[i - 1] == "generation" {
            words[i] = "N".into();
        } else if is_day {
            words[i - 1] = "MONTH".into();
            words[i] = "DAY".into();
        }
    }
    words
}

#[test]
fn the_first_session_goes_as_printed() {
    if common::can_mount() {
        goes_as_printed("A first session");
    }
}

#[test]
fn the_session_with_a_log_goes_as_printed() {
    goes_as_printed("A log for other programs");
}

fn goes_as_printed(section: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut shell = Shell::new(directory.path());
    // Times that the README prints and uses again, and what was printed here.
    let mut times: Vec<(String, String)> = Vec::new();
    let mut failed = Vec::new();
    let readme = include_str!("../../../README.md");
    for Step { command, prints } in steps(readme, section) {
        let now = times.iter().fold(command.clone(), |text, (then, now)| text.replace(then, now));
        let printed = shell.run(&now);
        let of = |lines: &[String]| lines.iter().map(|line| words(line)).collect::<Vec<_>>();
        if of(&printed) != of(&prints) {
            failed.push(format!(
                "$ {command}\nprinted\n{}\ninstead of\n{}",
                printed.join("\n"),
                prints.join("\n")
            ));
        }
        if let ([then], [now]) = (&prints[..], &printed[..]) {
            if masked(then) == "TIME" {
                times.push((then.clone(), now.clone()));
            }
        }
    }
    let mount = directory.path().join("notes");
    if common::is_mounted(&mount) {
        common::run(["umount", "--lazy", common::text(&mount)]);
    }
    assert!(failed.is_empty(), "README.md, {section:?}:\n{}", failed.join("\n\n"));
}
