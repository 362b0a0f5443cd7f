//! The load of dbench: what a file server was asked for while NetBench ran, from the file that Debian's
//! package `dbench` has. 1 to 32 clients replay it, each in a directory of its own; all replay the same part.
//!
//! As dbench does on a local file system, it leaves out what such a one does not have: locks, and attributes
//! of the server's. How much of a file can be read follows from what was written.

use super::scale::Scale;
use crate::workload::script::{Action, Calls, Per, Script, ROOT};
use crate::{BenchError, Result};
use std::collections::HashMap;
use std::path::Path;

const LOAD: &str = "/usr/share/dbench/client.txt";
const CLIENTS: [usize; 5] = [1, 4, 8, 16, 32];
/// Lines of the load that each client replays at full scale.
const LINES: usize = 60_000;

pub(super) fn script(scale: &Scale) -> Result<Script> {
    if !Path::new(LOAD).exists() {
        return Err(BenchError::NotInstalled { program: "dbench".into(), package: "dbench".into() });
    }
    let text = std::fs::read_to_string(LOAD).map_err(BenchError::system(format!("reading {LOAD}")))?;
    from_load(&text, scale.of(LINES, 300), &CLIENTS)
}

/// The part of `text` of so many lines, replayed by each of these numbers of clients.
fn from_load(text: &str, lines: usize, clients: &[usize]) -> Result<Script> {
    let mut script = Script::default();
    for &count in clients {
        let mut work = Vec::new();
        let (mut prepare, mut tidy) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for client in 0..count {
            let home = script.directory(ROOT, format!("dbench{count}-{client}"));
            prepare.push(Action::MakeDirectory(home));
            let mut replay = Replay::new(&mut script, home);
            for (number, line) in text.lines().take(lines).enumerate() {
                replay.line(line).map_err(|wrong| BenchError::Wrong {
                    found: format!("{wrong} in line {} of {LOAD}", number + 1),
                    expected: "the load of dbench 4".into(),
                })?;
            }
            bytes += replay.bytes;
            let (actions, left) = replay.end();
            work.push(actions);
            tidy.extend(left);
        }
        script.prepare(prepare);
        script.measure_clients("", format!("{count} clients"), Per::Bytes(bytes), work);
        script.prepare(tidy);
    }
    Ok(script)
}

/// A file at a path, or one that was there.
#[derive(Default)]
struct Entry {
    /// The numbers that it has in the script: one more than are open at once under that path.
    numbers: Vec<u32>,
    /// Bytes, if it exists.
    size: Option<u64>,
}

/// What a client has made so far.
struct Replay<'s> {
    script: &'s mut Script,
    directories: HashMap<String, u32>,
    /// In the order in which they were made.
    made: Vec<u32>,
    files: HashMap<String, Entry>,
    /// By the load's own number: the number in the script and the path.
    open: HashMap<u64, (u32, String)>,
    actions: Vec<Action>,
    bytes: u64,
}

/// The parts of a line: a command, and words of which some are in quotation marks.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for (i, part) in line.split('"').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace()),
            _ => words.push(part),
        }
    }
    words
}

fn number(words: &[&str], at: usize) -> std::result::Result<u64, String> {
    let word = words.get(at).ok_or("a word too few")?;
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| format!("“{word}” instead of a number"))
}

/// A path below the client's directory, with the separators of the other side and in one case, as its server
/// does not distinguish them.
fn path(words: &[&str], at: usize) -> std::result::Result<String, String> {
    let word = words.get(at).ok_or("a path too few")?.to_lowercase();
    let below = word.strip_prefix("\\clients\\client1").or(word.strip_prefix("\\clients")).unwrap_or(&word);
    Ok(below.trim_matches('\\').to_string())
}

impl<'s> Replay<'s> {
    fn new(script: &'s mut Script, home: u32) -> Replay<'s> {
        Replay {
            script,
            directories: HashMap::from([(String::new(), home)]),
            made: vec![home],
            files: HashMap::new(),
            open: HashMap::new(),
            actions: Vec::new(),
            bytes: 0,
        }
    }

    fn line(&mut self, line: &str) -> std::result::Result<(), String> {
        let words = words(line);
        let Some(command) = words.first() else { return Ok(()) };
        let succeeds = words.last() == Some(&"NT_STATUS_OK");
        match *command {
            "NTCreateX" => {
                self.open(path(&words, 1)?, number(&words, 2)?, number(&words, 3)?, number(&words, 4)?)
            }
            "Close" => {
                if let Some((file, _)) = self.open.remove(&number(&words, 1)?) {
                    self.actions.push(Action::Close(file));
                }
            }
            "WriteX" => self.write(number(&words, 1)?, number(&words, 2)?, number(&words, 3)?),
            "ReadX" => self.read(number(&words, 1)?, number(&words, 2)?, number(&words, 3)?),
            "Flush" => {
                if let Some((file, _)) = self.open.get(&number(&words, 1)?) {
                    self.actions.push(Action::Sync(*file));
                }
            }
            "Rename" if succeeds => self.rename(&path(&words, 1)?, path(&words, 2)?),
            "Unlink" if succeeds => self.remove(&path(&words, 1)?),
            "QUERY_PATH_INFORMATION" => self.stat(path(&words, 1)?),
            "QUERY_FILE_INFORMATION" | "SET_FILE_INFORMATION" => {
                let at = self.open.get(&number(&words, 1)?).map(|(_, path)| path.clone());
                at.into_iter().for_each(|at| self.stat(at));
            }
            "FIND_FIRST" => {
                let pattern = path(&words, 1)?;
                let parent = pattern.rsplit_once('\\').map_or("", |(parent, _)| parent);
                if let Some(directory) = self.directories.get(parent) {
                    self.actions.push(Action::List(*directory));
                }
            }
            "Mkdir" => self.make_directory(path(&words, 1)?),
            "Rename" | "Unlink" | "Deltree" | "LockX" | "UnlockX" | "QUERY_FS_INFORMATION" => {}
            other => return Err(format!("the command “{other}”")),
        }
        Ok(())
    }

    /// The directory that a path is in and its last name; `None` if that directory does not exist.
    fn place(&self, path: &str) -> Option<(u32, String)> {
        let (parent, name) = path.rsplit_once('\\').unwrap_or(("", path));
        Some((*self.directories.get(parent)?, name.to_string()))
    }

    /// A number for the file at `path` under which nothing is open.
    fn number(&mut self, path: &str) -> Option<u32> {
        let (directory, name) = self.place(path)?;
        let entry = self.files.entry(path.to_string()).or_default();
        let is_open = |number: &&u32| self.open.values().any(|(open, _)| open == *number);
        if let Some(number) = entry.numbers.iter().find(|number| !is_open(number)) {
            return Some(*number);
        }
        let number = self.script.file(directory, name);
        entry.numbers.push(number);
        Some(number)
    }

    fn size(&self, path: &str) -> Option<u64> {
        self.files.get(path).and_then(|entry| entry.size)
    }

    fn set_size(&mut self, path: &str, size: Option<u64>) {
        self.files.entry(path.to_string()).or_default().size = size;
    }

    fn make_directory(&mut self, path: String) {
        if self.directories.contains_key(&path) || self.size(&path).is_some() {
            return;
        }
        if let Some((parent, name)) = self.place(&path) {
            let made = self.script.directory(parent, name);
            self.actions.push(Action::MakeDirectory(made));
            self.made.push(made);
            self.directories.insert(path, made);
        }
    }

    /// `options` 1 is a directory; `disposition` 1 opens what is there, 2 makes what is not.
    fn open(&mut self, path: String, options: u64, disposition: u64, handle: u64) {
        if options & 1 != 0 {
            return self.make_directory(path);
        }
        if self.directories.contains_key(&path) {
            return self.stat(path);
        }
        let Some(file) = self.number(&path) else { return };
        match self.size(&path) {
            Some(_) => self.actions.push(Action::Open(file)),
            None if disposition == 1 => return self.actions.push(Action::Missing(file)),
            None => {
                self.actions.push(Action::Create(file));
                self.set_size(&path, Some(0));
            }
        }
        if let Some((before, _)) = self.open.insert(handle, (file, path)) {
            self.actions.push(Action::Close(before));
        }
    }

    fn write(&mut self, handle: u64, at: u64, bytes: u64) {
        let Some((file, path)) = self.open.get(&handle).cloned() else { return };
        self.actions.write(file, at, bytes);
        self.bytes += bytes;
        // Behind a rename or a removal the path may have another file, or none.
        if let Some(size) = self.size(&path) {
            self.set_size(&path, Some(size.max(at + bytes)));
        }
    }

    fn read(&mut self, handle: u64, at: u64, bytes: u64) {
        let Some((file, path)) = self.open.get(&handle).cloned() else { return };
        let bytes = self.size(&path).unwrap_or(0).saturating_sub(at).min(bytes);
        self.actions.read(file, at, bytes);
        self.bytes += bytes;
    }

    fn stat(&mut self, path: String) {
        if let Some(directory) = self.directories.get(&path) {
            return self.actions.push(Action::List(*directory));
        }
        let exists = self.size(&path).is_some();
        if let Some(file) = self.number(&path) {
            self.actions.push(if exists { Action::Stat(file) } else { Action::Missing(file) });
        }
    }

    fn rename(&mut self, from: &str, to: String) {
        let Some(size) = self.size(from) else { return };
        if self.directories.contains_key(&to) {
            return;
        }
        if let (Some(file), Some(new)) = (self.number(from), self.number(&to)) {
            self.actions.push(Action::Rename { file, to: new });
            self.set_size(from, None);
            self.set_size(&to, Some(size));
        }
    }

    fn remove(&mut self, path: &str) {
        // With a pattern it removes what matches; such a one is in the load only where nothing does.
        if self.size(path).is_some() {
            if let Some(file) = self.number(path) {
                self.actions.push(Action::Remove(file));
                self.set_size(path, None);
            }
        }
    }

    /// The calls, and those that remove what they leave.
    fn end(self) -> (Vec<Action>, Vec<Action>) {
        let mut left: Vec<(&String, u32)> = Vec::new();
        for (path, entry) in &self.files {
            if let (Some(_), Some(number)) = (entry.size, entry.numbers.first()) {
                left.push((path, *number));
            }
        }
        // A map has no order, and a script must.
        left.sort_unstable();
        let files = left.into_iter().map(|(_, file)| Action::Remove(file));
        let directories = self.made.iter().rev().map(|made| Action::RemoveDirectory(*made));
        (self.actions, files.chain(directories).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opening what is not there fails, a file is read as far as it was written, two handles of one file stay
    /// apart, and what is left is removed.
    #[test]
    fn a_load_becomes_calls() {
        let load = r#"
            Mkdir "\clients" NT_STATUS_OK
            NTCreateX "\clients\client1\DIR" 0x1 0x2 1 NT_STATUS_OK
            Close 1 NT_STATUS_OK
            NTCreateX "\clients\client1\dir\a" 0x40 0x1 2 NT_STATUS_OBJECT_NAME_NOT_FOUND
            NTCreateX "\clients\client1\dir\a" 0x40 0x2 3 NT_STATUS_OK
            WriteX 3 0 100 100 NT_STATUS_OK
            NTCreateX "\clients\client1\dir\A" 0x40 0x1 4 NT_STATUS_OK
            ReadX 4 60 4096 4096 NT_STATUS_OK
            Close 3 NT_STATUS_OK
            FIND_FIRST "\clients\client1\dir\*" 260 1366 0 NT_STATUS_OK
            Rename "\clients\client1\dir\a" "\clients\client1\b" NT_STATUS_OK
            LockX 4 0 10 NT_STATUS_OK
        "#;
        let script = from_load(load, 100, &[1]).unwrap();
        let expected = [
            Action::MakeDirectory(2),
            Action::Missing(0),
            Action::Create(0),
            Action::Write { file: 0, at: 0, bytes: 100 },
            Action::Open(1),
            Action::Read { file: 1, at: 60, bytes: 40 },
            Action::Close(0),
            Action::List(2),
            Action::Rename { file: 0, to: 2 },
        ];
        assert_eq!(script.phases[1].clients[0], expected);
        let tidy = [Action::Remove(2), Action::RemoveDirectory(2), Action::RemoveDirectory(1)];
        assert_eq!(script.phases[2].clients[0], tidy);
        assert_eq!(script.phases[1].per, Per::Bytes(140));
        assert!(from_load("Fsck 1 NT_STATUS_OK", 10, &[1]).is_err());
        assert!(from_load("WriteX 1 x 1 NT_STATUS_OK", 10, &[1]).is_err());
    }
}
