//! Differences of text files as a unified diff.

use crate::content::fill;
use crate::output::{printable, Out};
use crate::side::Side;
use anyhow::Context as _;
use similar::TextDiff;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use yore_fs::{Difference, FileKind, What};

/// The largest file whose lines are compared.
const MOST: u64 = 16 << 20;
/// How long to search for the smallest difference of two files; after that a larger one will do.
const PATIENCE: Duration = Duration::from_secs(5);
/// If there is a zero byte among this many first bytes, the file is not text.
const TOLD_BY: usize = 8000;

/// One of two states: its name in the patch, its path, its size.
type State<'a> = (&'a [u8], PathBuf, u64);

/// A patch being printed.
pub struct Patch<'a> {
    side: &'a dyn Side,
    out: Out,
}

impl<'a> Patch<'a> {
    pub fn new(side: &'a dyn Side) -> Patch<'a> {
        Patch { side, out: Out::new() }
    }

    /// Adds a difference between two states of a directory, which are at these paths.
    pub fn difference(&mut self, found: &Difference, from: &Path, to: &Path) -> anyhow::Result<()> {
        if found.kind != FileKind::Regular {
            return Ok(());
        }
        let old_path = found.old_path.as_deref().unwrap_or(&found.path);
        let old = found.before.map(|facts| (old_path, from.join(OsStr::from_bytes(old_path)), facts.size));
        let new =
            found.after.map(|facts| (&found.path[..], to.join(OsStr::from_bytes(&found.path)), facts.size));
        if let (Some(old), Some(_)) = (&found.old_path, &found.after) {
            self.out.line(format_args!("rename {} -> {}", printable(old), printable(&found.path)))?;
        }
        // A file that was added or removed is compared with nothing.
        let what = if old.is_some() && new.is_some() { found.what } else { What::CONTENT };
        self.pair(what, old, new)
    }

    /// Adds the difference of two states of a file, or of one state and nothing.
    pub fn pair(&mut self, what: What, old: Option<State<'_>>, new: Option<State<'_>>) -> anyhow::Result<()> {
        if !what.contains(What::CONTENT) {
            return Ok(());
        }
        let label = |side: &str, state: &Option<State<'_>>| match state {
            Some((name, ..)) if name.starts_with(b"/") => printable(name),
            Some((name, ..)) => format!("{side}/{}", printable(name)),
            None => "/dev/null".to_string(),
        };
        let (a, b) = (label("a", &old), label("b", &new));
        if [&old, &new].into_iter().flatten().any(|(_, _, size)| *size > MOST) {
            return self.out.line(format_args!("Files {a} and {b} differ (larger than 16 MiB)"));
        }
        let (before, after) = (self.read(&old)?, self.read(&new)?);
        if is_binary(&before) || is_binary(&after) {
            return self.out.line(format_args!("Binary files {a} and {b} differ"));
        }
        let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&before[..], &after[..]);
        let mut text = Vec::new();
        diff.unified_diff().header(&a, &b).to_writer(&mut text).context("cannot compare two files")?;
        self.out.bytes(&text)
    }

    fn read(&self, state: &Option<State<'_>>) -> anyhow::Result<Vec<u8>> {
        let Some((_, path, _)) = state else { return Ok(Vec::new()) };
        let source = self.side.open(path)?;
        // If the file grows meanwhile, it is read up to this size.
        let mut bytes = vec![0; MOST as usize];
        let count = fill(&*source, &mut bytes, 0);
        bytes.truncate(count.with_context(|| format!("cannot read {}", self.side.name(path)))?);
        Ok(bytes)
    }

    pub fn done(self) -> anyhow::Result<()> {
        self.out.done()
    }
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(TOLD_BY).any(|b| *b == 0)
}
