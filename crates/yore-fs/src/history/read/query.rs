//! Queries of history: what differs between two times ([`View::diff`]), what a file was over time
//! ([`View::log`]), and what is gone ([`View::deleted`]).
//!
//! The present counts as a time here, with the greatest number of all ([`at_time::PRESENT`]), but it changes
//! during a query. What vanishes between two steps is left out. Between two events everything is exact.

mod answer;
mod changes;
mod deleted;
pub(crate) mod diff;
mod kept;
mod last;
mod log;
mod replaced;
mod tree;

pub(crate) use answer::Each;
pub use answer::{Change, DataState, Deleted, Difference, Facts, Gone, Logged, SeenBy, What};

use crate::go_on::{GoOn, GO_ON};
use crate::history::read::at_time::{self, PRESENT};
use crate::progress::Progress;
use crate::{Error, InodeNo, Result, View};
use yore_format::{EventNo, Timestamp};

/// Calls `each` with one result after another until it breaks.
fn tell<T>(found: Vec<T>, each: Each<'_, T>) {
    for one in found {
        if each(one).is_break() {
            break;
        }
    }
}

impl View {
    /// All differences in the tree below a directory, between two events that have seen it or between one and
    /// the present (`None`), in the order of paths. `from` may be later than `to`. Names are compared one by
    /// one: each hard link is a name of its own. A renamed directory is one difference, and what is below it
    /// differs only if it has changed itself. But everything below an added or removed directory was added or
    /// removed. A change of times alone is a difference for files, but not for directories.
    ///
    /// Takes time in proportion to what changed on the volume between the two, and to the entries of the
    /// directories that changed. If a file of several names has changed, it looks at all names below the
    /// directory. Takes memory for all differences. If a rollback concerns the directory meanwhile, it begins
    /// anew behind that, three times at most; then rollbacks wait for it.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use yore_fs::{NewSnapshot, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// volume.write("a", "once")?;
    /// let view = volume.view();
    /// let event = view.take_snapshot(view.root(), &NewSnapshot::default())?;
    /// volume.rename("a", "b")?;
    ///
    /// let mut found = Vec::new();
    /// view.diff(view.root(), Some(event.number), None, &mut |difference| {
    ///     found.push((difference.path, difference.old_path));
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(found, [(b"b".to_vec(), Some(b"a".to_vec()))]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if one of the events has not seen the directory, or if the directory is gone;
    /// [`Error::NotADirectory`]; [`Error::Stale`] if an event is not kept any more; damage and device errors.
    pub fn diff(
        &self,
        directory: InodeNo,
        from: Option<EventNo>,
        to: Option<EventNo>,
        each: Each<'_, Difference>,
    ) -> Result<()> {
        self.diff_while(directory, (from, to), GO_ON, each)
    }

    /// As [`View::diff`], and asks now and then whether to go on. `go_on` gets how many bytes have been
    /// collected since it was asked last, so that a caller can bound the memory that the answer takes.
    ///
    /// # Errors
    /// As [`View::diff`]; [`Error::Refused`] if `go_on` breaks.
    pub fn diff_while(
        &self,
        directory: InodeNo,
        (from, to): (Option<EventNo>, Option<EventNo>),
        go_on: GoOn<'_>,
        each: Each<'_, Difference>,
    ) -> Result<()> {
        let times = (from.unwrap_or(PRESENT), to.unwrap_or(PRESENT));
        let found = self.ask_around(directory, go_on, &|go_on| {
            diff::diff(self.store(), directory, times, &Progress::default(), go_on)
        })?;
        tell(found, each);
        Ok(())
    }

    /// As [`View::diff`], but a file that took the place of another one of the same name and type is compared
    /// with that one, as if both were states of one file: programs save files so, and so does putting back.
    /// The result is one difference, which says in what the new file differs, or none. The times of
    /// directories do not count.
    ///
    /// In addition it takes time for the data of such files, where size and attributes are the same.
    ///
    /// # Errors
    /// As [`View::diff`].
    pub fn compare(
        &self,
        directory: InodeNo,
        from: Option<EventNo>,
        to: Option<EventNo>,
        progress: &Progress,
        each: Each<'_, Difference>,
    ) -> Result<()> {
        self.compare_while(directory, (from, to), progress, GO_ON, each)
    }

    /// As [`View::compare`], and asks now and then whether to go on, as [`View::diff_while`] does, also while
    /// it reads data: then several threads ask at once.
    ///
    /// # Errors
    /// As [`View::diff_while`].
    pub fn compare_while(
        &self,
        directory: InodeNo,
        (from, to): (Option<EventNo>, Option<EventNo>),
        progress: &Progress,
        go_on: GoOn<'_>,
        each: Each<'_, Difference>,
    ) -> Result<()> {
        let times = (from.unwrap_or(PRESENT), to.unwrap_or(PRESENT));
        let found = self.ask_around(directory, go_on, &|go_on| {
            let found = diff::diff(self.store(), directory, times, progress, go_on)?;
            replaced::join(self.store(), times, found, progress, go_on)
        })?;
        tell(found, each);
        Ok(())
    }

    /// What a name in a directory of this view meant over time, latest first: each state that a kept event
    /// has seen, and the state in this view. States that differ only in their times of access and change, or
    /// in the number of names, count as one. The log follows renames. Where the file did not exist yet, but
    /// its name meant another file before, the log goes on with that file. For a name that means nothing now,
    /// the log is that of what it meant last. For a name with a time ([`crate::split_time`]), the log begins
    /// at that time. An empty name is the directory itself.
    ///
    /// O(events + states · log); where events of directories below the root lie in between, also the states
    /// of the directories above the file.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no kept event has seen the name; damage and device errors.
    pub fn log(&self, directory: InodeNo, name: &[u8], each: Each<'_, Logged>) -> Result<()> {
        self.log_below(directory, name, &mut |_| Ok(()), each)
    }

    /// As [`View::log`], for a path from the directory, whose parts are names without times. If a directory
    /// on the way is gone, the path goes on in the one that the name meant last, as far as a kept event has
    /// seen it. `pass` gets the facts of each directory on the way, and may refuse.
    ///
    /// # Errors
    /// As [`View::log`]; those of `pass`.
    pub fn log_below(
        &self,
        directory: InodeNo,
        path: &[u8],
        pass: &mut dyn FnMut(&Facts) -> Result<()>,
        each: Each<'_, Logged>,
    ) -> Result<()> {
        let _passage = self.enter_around(directory)?;
        log::log(self.store(), directory, path, self.event().unwrap_or(PRESENT), pass, each)
    }

    /// Names that kept events have seen in a directory, that no longer exist, and that were the last names of
    /// their files, as far as events have seen: the latest gone first. With `recursive` also the names of all
    /// present directories below. (The contents of a deleted directory can be seen in that directory.)
    /// O(names that ever went from these directories), and with `recursive` O(entries).
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::ReadOnly`] in a view of the past; damage and device errors.
    pub fn deleted(&self, directory: InodeNo, recursive: bool, each: Each<'_, Deleted>) -> Result<()> {
        self.deleted_while(directory, recursive, &Progress::default(), GO_ON, each)
    }

    /// As [`View::deleted`], with a report of its progress, and asks now and then whether to go on, as
    /// [`View::diff_while`] does.
    ///
    /// # Errors
    /// As [`View::deleted`]; [`Error::Refused`] if `go_on` breaks.
    pub fn deleted_while(
        &self,
        directory: InodeNo,
        recursive: bool,
        progress: &Progress,
        go_on: GoOn<'_>,
        each: Each<'_, Deleted>,
    ) -> Result<()> {
        let _passage = self.enter_around(directory)?;
        match self.event() {
            None => deleted::deleted(self, (directory, recursive), progress, go_on, each),
            Some(_) => {
                Err(Error::Invalid { what: "what is gone is gone from the present: name it without a time" })
            }
        }
    }

    /// The last kept event that has seen a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`] if none has; damage and device errors.
    pub fn last_event(&self, directory: InodeNo) -> Result<EventNo> {
        let end = Timestamp { seconds: i64::MAX, nanos: 999_999_999 };
        at_time::event_for(self.store(), directory, self.event(), &crate::time::When::At(end))
    }
}
