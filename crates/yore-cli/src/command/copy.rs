//! `cp`, `put` and `get`: one routine, whichever side is the host.
//!
//! Directories are copied with a list of tasks instead of recursion. A directory's own attributes are set
//! after its content is copied: adding entries changes its times, and a read-only directory would take no
//! entries.
//!
//! What cannot be copied is reported and left out, and the rest is copied: so people save from a damaged
//! volume what it still has. A copy that is there already is not emptied before its source was read once to
//! the end. So it is read twice where the copy cannot share its blocks. Where it can, it is still read once:
//! sharing reads nothing, so damage would take the place of the old content, and nobody would know.

mod overlap;

use crate::args;
use crate::content::{data_bytes, read_uncached, room_beside};
use crate::nearest;
use crate::opened::directory_of;
use crate::output::{bytes_of, OutputClosed};
use crate::progress::Progress;
use crate::side::anchored::Anchored;
use crate::side::{Facts, Held, Host, Identity, Itself, OnVolume as VolumeSide, Side, Source, Target};
use crate::status::{self, Outcome};
use crate::timed_path::of_library;
use crate::volume::{self, Access, Operand};
use anyhow::Context as _;
use overlap::{refuse_source, Entered, Nesting};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use yore_fs::FileKind;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;
/// Bytes that the file system is asked to copy at a time: a second's worth if it has to read and write them.
const AT_ONCE: u64 = 256 << 20;

/// Which of the three commands it is, which decides what its operands may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Cp,
    Put,
    Get,
}

/// Runs one of the three.
pub fn run(which: Which, args: &args::Cp) -> Outcome {
    let (to, from) = args.operands.split_last().context("a copy needs two operands")?;
    let from: Vec<Operand> = from.iter().map(|o| operand(which, o, false)).collect::<anyhow::Result<_>>()?;
    let to = operand(which, to, true)?;
    // Opening a volume for writing changes it. So whatever is known to fail fails before that.
    for operand in &from {
        if let Operand::Host(path) = operand {
            Host.facts(path)?.ok_or_else(|| Host.absent(path))?;
        }
    }
    let mut copy = Copy::new(args, &from, &to)?;
    let result = copy.all(&from, &to);
    // What was copied before an error stays, and is made durable.
    let result = result.map_err(|error| copy.with_names(error));
    let (closed, status) = (copy.close(), copy.status);
    copy.progress.finish();
    match result.and(closed) {
        // That something is damaged is said, whatever else ends the copy.
        Err(error) if status == status::DAMAGED => {
            status::report(Err(error));
            Ok(status)
        }
        ended => ended.map(|()| status),
    }
}

fn operand(which: Which, text: &OsString, last: bool) -> anyhow::Result<Operand> {
    let parsed = Operand::parse(text);
    let shown = text.to_string_lossy().into_owned();
    let on_host = matches!((which, last), (Which::Put, false) | (Which::Get, true));
    let on_volume = matches!((which, last), (Which::Put, true) | (Which::Get, false));
    match &parsed {
        // `put` takes from the host and `get` gives to it, whatever the name looks like.
        Operand::On(_) if on_host && !last && Path::new(text).symlink_metadata().is_err() => {
            Err(status::usage(format!(
                "{shown}: put copies files of this system, and here is none of that name; from volume to volume copies `yore cp`"
            )))
        }
        Operand::On(_) if on_host => Ok(Operand::Host(PathBuf::from(text))),
        Operand::Host(_) | Operand::Standard if on_volume => Err(status::usage(format!(
            "{shown}: {} needs a path on a volume here, written VOL:/PATH",
            if last { "put" } else { "get" }
        ))),
        _ => Ok(parsed),
    }
}

/// A copy that is being made.
pub(super) struct Copy {
    recursive: bool,
    /// Whether owners are preserved, as they are for root.
    owners: bool,
    volumes: BTreeMap<PathBuf, Rc<VolumeSide>>,
    /// The host's files and devices that these volumes are on.
    images: HashSet<Identity>,
    progress: Progress,
    buffer: Vec<u8>,
    /// Copied files that have several names: by identity on the source, the first name on the target.
    linked: HashMap<Identity, PathBuf>,
    /// Whether the rest is copied if something cannot be.
    goes_on: bool,
    /// The exit status of what was left out.
    status: u8,
}

/// One step that is left to do.
enum Task {
    Copy { from: PathBuf, to: PathBuf },
    Finish { from: PathBuf, to: PathBuf, facts: Facts, entered: Entered },
}

impl Copy {
    fn new(args: &args::Cp, from: &[Operand], to: &Operand) -> anyhow::Result<Copy> {
        let (mut volumes, mut images) = (BTreeMap::new(), HashSet::new());
        let written = match to {
            Operand::On(on) => Some(on.volume.clone()),
            _ => None,
        };
        for operand in from.iter().chain([to]) {
            let Operand::On(on) = operand else { continue };
            if !volumes.contains_key(&on.volume) {
                let access = if written.as_ref() == Some(&on.volume) { Access::Write } else { Access::Read };
                let volume = volume::open(&on.volume, access)?;
                let image = std::fs::metadata(&on.volume)
                    .with_context(|| format!("cannot look at {}", on.volume.display()))?;
                images.insert((image.dev(), image.ino()));
                volumes.insert(on.volume.clone(), Rc::new(VolumeSide { volume, name: on.volume.clone() }));
            }
        }
        Ok(Copy {
            recursive: args.recursive,
            owners: rustix::process::geteuid().is_root(),
            volumes,
            images,
            progress: Progress::new(args.progress)?,
            buffer: vec![0; CHUNK],
            linked: HashMap::new(),
            goes_on: true,
            status: status::OK,
        })
    }

    /// A copy of an earlier state within one side, with owners if they can be set. It ends at the first
    /// error.
    pub(super) fn of_the_past(owners: bool, progress: args::Progress) -> anyhow::Result<Copy> {
        Ok(Copy {
            recursive: true,
            owners,
            volumes: BTreeMap::new(),
            images: HashSet::new(),
            progress: Progress::new(progress)?,
            buffer: vec![0; CHUNK],
            linked: HashMap::new(),
            goes_on: false,
            status: status::OK,
        })
    }

    /// Tells the progress how much there is to copy.
    pub(super) fn expect(&mut self, source: &dyn Side, paths: &[&Path]) {
        if self.progress.is_shown() {
            self.progress.set_total(paths.iter().map(|path| size_of_tree(source, path)).sum());
        }
    }

    /// Tells the progress that a file need not be copied.
    pub(super) fn skip(&mut self, facts: &Facts) {
        if facts.kind == FileKind::Regular {
            self.progress.add(facts.size);
        }
    }

    /// Prints a warning without disturbing the progress.
    pub(super) fn warn(&self, message: &str) {
        self.progress.warn(message);
    }

    /// Ends the progress.
    pub(super) fn finish(self) {
        self.progress.finish();
    }

    fn side(&self, operand: &Operand) -> anyhow::Result<(Rc<dyn Side>, PathBuf)> {
        match operand {
            Operand::Host(path) => Ok((Rc::new(Host), path.clone())),
            Operand::On(on) => {
                let side = self.volumes.get(&on.volume).context("the volume was opened")?;
                Ok((side.clone(), on.path.clone()))
            }
            Operand::Standard => Err(status::usage("- cannot be combined with other operands")),
        }
    }

    fn all(&mut self, from: &[Operand], to: &Operand) -> anyhow::Result<()> {
        match (from, to) {
            ([Operand::Standard], to) => return self.read_standard_input(to),
            (from, Operand::Standard) => return self.write_standard_output(from),
            _ => {}
        }
        let (target, to_path) = match to {
            // Others may be able to swap directories there.
            Operand::Host(path) => (Rc::new(Anchored::new(None)) as Rc<dyn Side>, path.clone()),
            _ => self.side(to)?,
        };
        let into = target.is_directory(&to_path);
        let slash = bytes_of(&to_path).ends_with(b"/");
        if !into && (from.len() > 1 || (slash && !self.recursive)) {
            anyhow::bail!("{} is not a directory; make it first", target.name(&to_path));
        }
        if self.progress.is_shown() {
            let mut total = 0;
            for operand in from {
                let (source, path) = self.side(operand)?;
                total += size_of_tree(source.as_ref(), &path);
            }
            self.progress.set_total(total);
        }
        for operand in from {
            let (source, path) = self.side(operand)?;
            let destination = match (into, path.file_name()) {
                (true, Some(name)) => to_path.join(name),
                // If the path ends in `/` or `..`, its content goes into the directory.
                (true, None) => target.real(&to_path)?,
                (false, _) => to_path.clone(),
            };
            target.start_from(directory_of(&destination))?;
            self.linked.clear();
            self.tree(source.as_ref(), path, target.as_ref(), destination)?;
        }
        Ok(())
    }

    pub(super) fn tree(
        &mut self,
        source: &dyn Side,
        from: PathBuf,
        target: &dyn Side,
        to: PathBuf,
    ) -> anyhow::Result<()> {
        let mut nesting = Nesting::default();
        let mut tasks = vec![Task::Copy { from, to }];
        while let Some(task) = tasks.pop() {
            let done = match task {
                Task::Finish { from, to, facts, entered } => {
                    nesting.leave(entered);
                    let held = target.hold(&to, FileKind::Directory);
                    held.and_then(|held| self.attributes(source, &from, target, &held, &facts))
                }
                Task::Copy { from, to } => {
                    self.step((source, &from), (target, &to), &mut nesting, &mut tasks)
                }
            };
            if let Err(error) = done {
                self.leave_out(error)?;
            }
        }
        Ok(())
    }

    /// Copies a file, or begins to copy a directory: the rest of that are tasks.
    fn step(
        &mut self,
        (source, from): (&dyn Side, &Path),
        (target, to): (&dyn Side, &Path),
        nesting: &mut Nesting,
        tasks: &mut Vec<Task>,
    ) -> anyhow::Result<()> {
        let facts = source.facts(from)?.ok_or_else(|| source.absent(from))?;
        if facts.kind != FileKind::Directory {
            return self.one(source, from, target, to, &facts);
        }
        if !self.recursive {
            let message = format!("{} is a directory; copy it with -r", source.name(from));
            return Err(status::usage(message));
        }
        let entered = nesting.enter((source, from, &facts), (target, to))?;
        if let Err(error) = have_directory(target, to) {
            nesting.leave(entered);
            return Err(error);
        }
        let mut names = Vec::new();
        let listed = source.list_into(from, &mut names);
        tasks.push(Task::Finish { from: from.into(), to: to.into(), facts, entered });
        tasks.extend(names.into_iter().map(|name| Task::Copy { from: from.join(&name), to: to.join(&name) }));
        listed
    }

    /// Reports what could not be copied, and notes the exit status.
    ///
    /// # Errors
    /// The same error, if the rest is not copied.
    fn leave_out(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        if !self.goes_on || ends_all(&error) {
            return Err(error);
        }
        let error = self.with_names(error);
        let status = self.progress.aside(|| status::report(Err(error)));
        self.status = match (self.status, status) {
            (status::OK, status) => status,
            (status::DAMAGED, _) | (_, status::DAMAGED) => status::DAMAGED,
            (before, status) if before == status => status,
            _ => status::FAILED,
        };
        Ok(())
    }

    /// Adds what the volumes know to an error about a path that leads nowhere.
    fn with_names(&self, error: anyhow::Error) -> anyhow::Error {
        self.volumes.values().fold(error, |error, side| nearest::with_names(error, &side.volume))
    }

    /// Copies a file that is not a directory.
    fn one(
        &mut self,
        source: &dyn Side,
        from: &Path,
        target: &dyn Side,
        to: &Path,
        facts: &Facts,
    ) -> anyhow::Result<()> {
        let existing = target.facts(to)?;
        if existing.is_some_and(|e| e.kind == FileKind::Directory) {
            anyhow::bail!("{} is a directory; it is not replaced by a file", target.name(to));
        }
        if let Some(existing) = &existing {
            refuse_source((source, from, facts), (target, to, existing), &self.images)?;
        }
        if facts.links > 1 {
            if let Some(first) = self.linked.get(&facts.identity) {
                if existing.is_some() {
                    target.remove(to)?;
                }
                self.progress.now(&crate::output::printable(bytes_of(from)));
                target.hard_link(first, to)?;
                self.progress.add(facts.size);
                return Ok(());
            }
        }
        self.make(source, from, target, (to, existing), facts, &mut false)?;
        if facts.links > 1 {
            self.linked.insert(facts.identity, to.to_path_buf());
        }
        Ok(())
    }

    /// Makes a copy of something that is not a directory. `made` tells whether there is anything of it, also
    /// after a failure. A regular file that exists is overwritten if it was found before; anything else that
    /// was found is replaced. If something has come since, this fails.
    pub(super) fn make(
        &mut self,
        source: &dyn Side,
        from: &Path,
        target: &dyn Side,
        (to, existing): (&Path, Option<Facts>),
        facts: &Facts,
        made: &mut bool,
    ) -> anyhow::Result<()> {
        self.progress.now(&crate::output::printable(bytes_of(from)));
        if facts.kind == FileKind::Regular {
            let sizes = (facts.size, existing.map_or(0, |existing| existing.size));
            check_room(source, from, target, to, sizes)?;
        }
        let both = existing.is_some_and(|e| e.kind == FileKind::Regular && facts.kind == FileKind::Regular);
        // Anything but a regular file is replaced: nothing is written into it or through it. It stays if the
        // source cannot be read.
        let make_way = || match existing {
            Some(_) => target.remove(to),
            None => Ok(()),
        };
        let held = match facts.kind {
            FileKind::Regular => {
                let input = source.open(from)?;
                let cannot = || format!("cannot copy {} to {}", source.name(from), target.name(to));
                if existing.is_some() {
                    // Damage in the source must not cost the copy that is there.
                    self.read_through(input.as_ref()).with_context(cannot)?;
                }
                let output = match both {
                    true => target.empty(to)?,
                    false => make_way().and_then(|()| target.create(to))?,
                };
                *made = true;
                self.content(input.as_ref(), output.as_ref(), facts.size).with_context(cannot)?;
                output.written(to)
            }
            FileKind::Symlink => {
                let leads_to = source.read_link(from)?;
                make_way().and_then(|()| target.make_link(&leads_to, to))?;
                *made = true;
                target.hold(to, facts.kind)?
            }
            kind => {
                make_way().and_then(|()| target.make_special(to, facts))?;
                *made = true;
                target.hold(to, kind)?
            }
        };
        self.attributes(source, from, target, &held, facts)
    }

    /// Reads all data of a file.
    fn read_through(&mut self, input: &dyn Source) -> io::Result<()> {
        let mut end = 0;
        while let Some(data) = input.data_from(end)? {
            end = data.start;
            while end < data.end {
                let want = usize::try_from(data.end - end).unwrap_or(CHUNK).min(CHUNK);
                match read_uncached(input, &mut self.buffer[..want], end)? {
                    0 => return Ok(()), // truncated meanwhile
                    count => end += count as u64,
                }
            }
        }
        Ok(())
    }

    /// Copies the stretches of data and leaves the holes.
    fn content(&mut self, input: &dyn Source, output: &dyn Target, size: u64) -> anyhow::Result<()> {
        let (mut end, mut in_kernel) = (0, true);
        while let Some(data) = input.data_from(end)? {
            self.progress.add(data.start - end);
            end = data.start;
            while end < data.end {
                if in_kernel {
                    let count = output.copy_from(input, end, (data.end - end).min(AT_ONCE))?;
                    end += count;
                    self.progress.add(count);
                    in_kernel = count > 0;
                    continue;
                }
                let want = usize::try_from(data.end - end).unwrap_or(CHUNK).min(CHUNK);
                let count = read_uncached(input, &mut self.buffer[..want], end)?;
                if count == 0 {
                    break;
                }
                output.write_at(&self.buffer[..count], end)?;
                end += count as u64;
                self.progress.add(count as u64);
            }
            if end < data.end {
                break; // truncated while it was copied
            }
        }
        self.progress.add(size.saturating_sub(end));
        Ok(output.set_len(size.max(end))?)
    }

    fn attributes(
        &mut self,
        source: &dyn Side,
        from: &Path,
        target: &dyn Side,
        to: &Held,
        facts: &Facts,
    ) -> anyhow::Result<()> {
        // The order matters: a change of owner clears set-id bits and capabilities, and adding attributes
        // changes times.
        let mut wanted = *facts;
        match self.owners {
            true => target.set_owner(to, facts)?,
            false => wanted.permissions = facts.permissions_for(target.owner(to)?),
        }
        for (name, value) in source.xattrs(from)? {
            if let Err(error) = target.set_xattr(to, &name, &value) {
                self.progress.warn(&format!(
                    "{}: the extended attribute {} is left out: {error:#}",
                    target.name(to.path()),
                    name.to_string_lossy()
                ));
            }
        }
        target.set_facts(to, &wanted)
    }

    fn read_standard_input(&mut self, to: &Operand) -> anyhow::Result<()> {
        let (target, path) = self.side(to)?;
        if target.is_directory(&path) {
            return Err(status::usage(format!("{} is a directory; name the file", target.name(&path))));
        }
        let output = target.create_or_empty(&path)?;
        let mut input = io::stdin().lock();
        let mut at = 0;
        loop {
            let count = match input.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.context("cannot read standard input")?,
            };
            if count == 0 {
                return Ok(());
            }
            output.write_at(&self.buffer[..count], at)?;
            at += count as u64;
            self.progress.add(count as u64);
        }
    }

    fn write_standard_output(&mut self, from: &[Operand]) -> anyhow::Result<()> {
        for operand in from {
            let Operand::On(on) = operand else {
                return Err(status::usage("only files on volumes are written to standard output"));
            };
            let side = self.volumes.get(&on.volume).context("the volume was opened")?;
            to_output(&side.volume, &on.path, &mut self.buffer)?;
        }
        Ok(())
    }

    /// Closes the volumes; the first error counts.
    fn close(&mut self) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        for (name, side) in std::mem::take(&mut self.volumes) {
            let closed = side.volume.close().with_context(|| format!("cannot close {}", name.display()));
            outcome = outcome.and(closed);
        }
        outcome
    }
}

/// Whether the rest cannot be copied, either: the command line makes no sense, or the target takes nothing
/// more.
fn ends_all(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    error.chain().any(|cause| {
        let is_full = match of_library(cause) {
            Some(error) => {
                use yore_fs::Error::{NeverFits, NoSpace, Stopped};
                matches!(error.root(), NoSpace | NeverFits { .. } | Stopped { .. })
            }
            None => cause
                .downcast_ref::<io::Error>()
                .is_some_and(|error| matches!(error.kind(), StorageFull | QuotaExceeded)),
        };
        is_full || cause.is::<status::Usage>()
    })
}

/// Makes a directory, unless it is there. A symbolic link in its place is not followed: whoever can write
/// there would choose where the copies go.
fn have_directory(target: &dyn Side, to: &Path) -> anyhow::Result<()> {
    match target.facts(to)?.map(|found| found.kind) {
        Some(FileKind::Directory) => Ok(()),
        Some(FileKind::Symlink) => anyhow::bail!(
            "{} is a symbolic link, and a directory is to be copied there: the link is not followed; remove it, or name as the \
             target what it leads to",
            target.name(to)
        ),
        _ => target.make_directory(to),
    }
}

/// Writes a file's content to standard output.
pub fn to_output(volume: &yore_fs::Volume, path: &Path, buffer: &mut Vec<u8>) -> anyhow::Result<()> {
    let file = yore_fs::File::open(volume, path)?;
    buffer.resize(CHUNK, 0);
    let mut out = io::stdout().lock();
    let mut at = 0;
    loop {
        let count = file.read_at(buffer, at).map_err(|error| error.on_path("cannot read", bytes_of(path)))?;
        let written = match count {
            0 => out.flush(),
            count => out.write_all(&buffer[..count]),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(OutputClosed.into()),
            other => other.context("cannot write to standard output")?,
        }
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
    }
}

/// If the room is known, refuses a file for which there is too little, before anything is changed.
fn check_room(
    source: &dyn Side,
    from: &Path,
    target: &dyn Side,
    to: &Path,
    (size, existing): (u64, u64),
) -> anyhow::Result<()> {
    let Some(room) = target.room() else { return Ok(()) };
    let file = source.open(from)?;
    let wanted = match file.itself() {
        Itself::OnVolume(itself) if target.volume().is_some_and(|volume| volume.has(itself)) => {
            room_beside(file.as_ref(), size)?
        }
        _ => data_bytes(file.as_ref())?,
    };
    // Replacing a file makes room, unless a snapshot has its blocks.
    match wanted.saturating_sub(room.saturating_add(existing)) {
        0 => Ok(()),
        missing => Err(anyhow::Error::new(yore_fs::Error::NeverFits { missing })
            .context(format!("cannot copy to {}", target.name(to)))),
    }
}

/// The bytes of all files in a tree, for the progress. What cannot be looked at counts nothing: the copy
/// reports it.
fn size_of_tree(side: &dyn Side, path: &Path) -> u64 {
    let mut total = 0;
    let mut open = vec![path.to_path_buf()];
    while let Some(path) = open.pop() {
        match side.facts(&path) {
            Ok(Some(facts)) if facts.kind == FileKind::Directory => {
                let mut names = Vec::new();
                let _ = side.list_into(&path, &mut names);
                open.extend(names.into_iter().map(|name| path.join(name)));
            }
            Ok(Some(facts)) if facts.kind == FileKind::Regular => total += facts.size,
            _ => {}
        }
    }
    total
}
