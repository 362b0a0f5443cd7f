//! Answers questions about the past of a directory: differences, logs, what is gone, and the space it takes.

use super::long::Long;
use super::told::Told;
use super::who::Who;
use crate::ongoing::Rows;
use crate::{HistoryBytes, Identity, Query, QueryResult};
use serde::Serialize;
use std::ops::ControlFlow;
use yore_fs::{
    Error, EventNo, Facts, Incarnation, InodeNo, Logged, Result, StateUsage, UsageTotals, VerifyStates, View,
};

const NOT_TOLD: Error = Error::NotPermitted {
    what: "what has changed in a directory is told to its owner, to root, and to the user who mounted the volume; what you may \
           read you can compare with `diff -r`",
};

/// Answers a question about a directory. It decides whether the user may ask before it reads anything.
pub(super) fn answer(view: &View, directory: InodeNo, who: &Who<'_>, query: &Query) -> Result<QueryResult> {
    let asking = Asking { view, directory, who };
    match query {
        Query::Identity => {
            let incarnation = Incarnation(view.getattr(directory)?.incarnation);
            Ok(QueryResult::Identity(Identity { inode: directory, incarnation, event: view.event() }))
        }
        Query::Diff { from, to } => asking.differences((*from, *to), None),
        Query::Compare { from, to, question } => asking.differences((*from, *to), Some(*question)),
        Query::Log { name, most, verify, question } => asking.log(name, *most, *verify, *question),
        Query::Deleted { recursive, question } => asking.deleted(*recursive, *question),
        Query::HistoryBytes => Ok(QueryResult::HistoryBytes(HistoryBytes::of(&view.statfs()))),
        Query::Usage { question } => asking.usage(*question),
        Query::UsageOf { name, question } => {
            let (totals, states) = asking.usage_of(name, *question)?;
            Ok(QueryResult::UsageOf(totals, states))
        }
    }
}

/// A user who asks about a directory.
struct Asking<'a> {
    view: &'a View,
    directory: InodeNo,
    who: &'a Who<'a>,
}

/// The rows of an answer that the user may learn.
struct Learned<T> {
    rows: Rows<T>,
    failed: Option<Error>,
}

impl<T: Serialize> Learned<T> {
    /// Adds what the user may learn of a row. Breaks if there is no room for more, or on an error.
    fn add(&mut self, row: Result<Option<T>>) -> ControlFlow<()> {
        match row {
            Ok(Some(row)) => self.rows.push(row),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// All rows.
    ///
    /// # Errors
    /// The first error that was met; or there were too many rows.
    fn all(self) -> Result<Vec<T>> {
        match self.failed {
            Some(error) => Err(error),
            None => self.rows.all(),
        }
    }
}

impl Asking<'_> {
    /// Refuses a user who may not ask about the directory as a view has it.
    fn check_in(&self, view: &View) -> Result<()> {
        match self.who.may_take(view, self.directory, None)? {
            true => Ok(()),
            false => Err(NOT_TOLD),
        }
    }

    fn check(&self) -> Result<()> {
        self.check_in(self.view)
    }

    fn begin(&self, question: u64) -> Result<Long<'_>> {
        Long::begin(self.view, self.who, question)
    }

    fn told(&self) -> Told<'_> {
        Told::new(self.view, self.who.access, self.directory)
    }

    fn learned<T: Serialize>(&self) -> Learned<T> {
        Learned { rows: self.who.host.ongoing().rows(), failed: None }
    }

    /// The differences. If they are to be compared, which is a question with a name, files that replaced
    /// others of the same name are compared with these.
    fn differences(
        &self,
        (from, to): (Option<EventNo>, Option<EventNo>),
        compared: Option<u64>,
    ) -> Result<QueryResult> {
        let (view, directory) = (self.view, self.directory);
        for side in [from, to] {
            match self.check_in(&side.map_or(view.present(), |event| view.as_of(event))) {
                // A caller who may not ask does not learn which snapshots exist.
                Err(Error::Stale) if self.check_in(&view.present()).is_err() => return Err(NOT_TOLD),
                checked => checked?,
            }
        }
        let long = self.begin(compared.unwrap_or(0))?;
        let go_on = |bytes| long.collects(bytes);
        let (mut told, mut learned) = (self.told(), self.learned());
        let each = &mut |found| learned.add(told.difference(found, (from, to)));
        let done = match compared {
            Some(_) => view.compare_while(directory, (from, to), long.progress(), &go_on, each),
            None => view.diff_while(directory, (from, to), &go_on, each),
        };
        long.outcome(done)?;
        Ok(QueryResult::Differences(learned.all()?))
    }

    fn log(
        &self,
        name: &[u8],
        most: Option<u32>,
        verify: VerifyStates,
        question: u64,
    ) -> Result<QueryResult> {
        self.check()?;
        let long = self.begin(question)?;
        let mut rows = self.states(name, most, &long)?;
        self.view.verify_states(&mut rows, verify, long.progress(), &mut || long.goes_on())?;
        match long.goes_on() {
            ControlFlow::Continue(()) => Ok(QueryResult::Log(rows)),
            ControlFlow::Break(()) => {
                Err(Error::Refused("the log was broken off before it was complete; ask again".into()))
            }
        }
    }

    /// The states of a name.
    fn states(&self, name: &[u8], most: Option<u32>, long: &Long<'_>) -> Result<Vec<Logged>> {
        let who = self.who;
        let most = most.map_or(usize::MAX, |most| most as usize);
        let (told, mut learned) = (self.told(), self.learned());
        // A directory that is gone has no permissions to check, so an owner learns nothing below those of
        // others.
        let mut pass = |above: &Facts| match who.may_all || above.uid == who.uid {
            true => Ok(()),
            false => Err(NOT_TOLD),
        };
        self.view.log_below(self.directory, name, &mut pass, &mut |found| match learned
            .add(told.logged(found, name))
        {
            ControlFlow::Continue(()) if learned.rows.len() < most => long.goes_on(),
            _ => ControlFlow::Break(()),
        })?;
        let rows = learned.all()?;
        match rows.is_empty() {
            true => Err(Error::NotFound),
            false => Ok(rows),
        }
    }

    fn deleted(&self, recursive: bool, question: u64) -> Result<QueryResult> {
        self.check()?;
        let long = self.begin(question)?;
        let go_on = |bytes| long.collects(bytes);
        let (mut told, mut learned) = (self.told(), self.learned());
        let done =
            self.view.deleted_while(self.directory, recursive, long.progress(), &go_on, &mut |found| {
                learned.add(told.deleted(&found).map(|is_told| is_told.then_some(found)))
            });
        long.outcome(done)?;
        Ok(QueryResult::Deleted(learned.all()?))
    }

    fn usage(&self, question: u64) -> Result<QueryResult> {
        self.check()?;
        let long = self.begin(question)?;
        let go_on = |bytes| long.collects(bytes);
        let mut rows = self.who.host.ongoing().rows();
        let totals = self.view.usage_while(self.directory, &go_on, &mut |found| rows.push(found));
        Ok(QueryResult::Usage(long.outcome(totals)?, rows.all()?))
    }

    /// The space that the states of a name hold, as far as the user may learn of them. If he may learn of
    /// none, the answer is that there never was such a name.
    fn usage_of(&self, name: &[u8], question: u64) -> Result<(UsageTotals, Vec<StateUsage>)> {
        self.check()?;
        let long = self.begin(question)?;
        let go_on = |bytes| long.collects(bytes);
        let (told, mut learned, mut had) = (self.told(), self.learned(), false);
        let totals = self.view.usage_of_while(self.directory, name, &go_on, &mut |found| {
            had = true;
            let StateUsage { state, exclusive, with_older, shared } = found;
            let state = told.logged(state, name);
            let row = |state| StateUsage { state, exclusive, with_older, shared };
            learned.add(state.map(|state| state.map(row)))
        });
        let (totals, rows) = (long.outcome(totals)?, learned.all()?);
        match had && rows.is_empty() {
            true => Err(Error::NotFound),
            false => Ok((totals, rows)),
        }
    }
}
