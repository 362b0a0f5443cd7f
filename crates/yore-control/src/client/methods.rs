//! One method for each request, whichever way it is asked.

use super::watched::{self, Watch};
use crate::{
    Answer, Checked, HistoryBytes, Identity, Known, KnownFile, Named, Page, PolicyHere, Query, QueryResult,
    Request, Saying, Shown, Stopped, Take, FORGET_MAX,
};
use std::sync::atomic::AtomicBool;
use yore_fs::rollback::{Plan, RolledBack, UnfinishedRollback};
#[cfg(doc)]
use yore_fs::View;
use yore_fs::{
    ChecksumsEntered, Defragmented, Deleted, Difference, Error, EventNo, EventUsage, FindingsRecord,
    ListedEvent, Logged, MissedVersions, OperationRow, Policy, Result, Scattered, Scrub, ScrubRecord,
    Scrubbed, SpaceRules, StateUsage, Timestamp, UsageTotals, VerifyStates, WouldFree,
};

/// A directory of a volume that accepts requests. Each method is a [`Request`], which says who may send it.
///
/// Errors are those of the library, as it gave them, wherever it ran. Errors that only a mount can have are
/// [`Error::Refused`], in words. An `Until` breaks off what takes long.
pub trait Client: Sync {
    /// Sends a request.
    ///
    /// # Errors
    /// Those of the request; or the mount cannot be reached.
    fn ask(&self, request: &Request) -> Result<Answer>;

    /// Takes a snapshot of the directory, with everything below it and everything written before.
    ///
    /// # Errors
    /// As [`Request::Take`]; so for all others here.
    fn take(&self, new: Take) -> Result<(EventNo, Timestamp)> {
        match self.ask(&Request::Take(new))? {
            Answer::Taken { number, time } => Ok((number, time)),
            _ => Err(misunderstood()),
        }
    }

    /// Changes the description of a snapshot, or whether it is held.
    ///
    /// # Errors
    /// As [`Request::Describe`].
    fn describe(&self, number: EventNo, saying: Saying) -> Result<()> {
        done(self.ask(&Request::Describe { number, saying })?)
    }

    /// Forgets snapshots: all of them or none. Of more than [`FORGET_MAX`], it forgets those before the
    /// error.
    ///
    /// # Errors
    /// As [`Request::Forget`].
    fn forget(&self, numbers: &[EventNo]) -> Result<()> {
        let mut parts = numbers.chunks(FORGET_MAX);
        parts.try_for_each(|part| done(self.ask(&Request::Forget { numbers: part.to_vec() })?))
    }

    /// A part of the list of snapshots that concern the directory: those numbered `from` or above.
    ///
    /// # Errors
    /// As [`Request::List`].
    fn snapshots(&self, from: EventNo) -> Result<Page<ListedEvent>> {
        page(self.ask(&Request::List { from })?)
    }

    /// All snapshots that concern the directory.
    ///
    /// # Errors
    /// As [`Request::List`].
    fn all_snapshots(&self) -> Result<Vec<ListedEvent>> {
        all_pages(|from| self.snapshots(from))
    }

    /// The snapshot as of which the directory is seen; `None` for a directory of the present.
    ///
    /// # Errors
    /// As [`Request::Seen`].
    fn seen(&self) -> Result<Option<ListedEvent>> {
        Ok(page(self.ask(&Request::Seen)?)?.rows.into_iter().next())
    }

    /// A part of the list of versions of the file to which a name in the directory leads: those numbered
    /// `from` or above.
    ///
    /// # Errors
    /// As [`Request::Versions`]; [`Error::NotFound`] for a name that never led to anything.
    fn versions(&self, name: &[u8], from: EventNo) -> Result<Page<ListedEvent>> {
        page(self.ask(&Request::Versions { name: name.to_vec(), from })?)
    }

    /// All versions of a file.
    ///
    /// # Errors
    /// As [`Client::versions`].
    fn all_versions(&self, name: &[u8]) -> Result<Vec<ListedEvent>> {
        all_pages(|from| self.versions(name, from))
    }

    /// The snapshot or version as of which a file is seen under a name in the directory; `None` for a file of
    /// the present.
    ///
    /// # Errors
    /// As [`Client::versions`].
    fn version_seen(&self, name: &[u8]) -> Result<Option<ListedEvent>> {
        Ok(page(self.ask(&Request::VersionSeen { name: name.to_vec() })?)?.rows.into_iter().next())
    }

    /// The last snapshot that has seen the directory; `None`: none has.
    ///
    /// # Errors
    /// As [`Request::Last`].
    fn last(&self) -> Result<Option<ListedEvent>> {
        Ok(page(self.ask(&Request::Last)?)?.rows.into_iter().next())
    }

    /// Asks about the past, and tells how far the answer is until it is there. `query` makes the question of
    /// its name.
    ///
    /// # Errors
    /// As [`Query`]; so for all that look here.
    fn query(&self, watch: Watch<'_>, query: &dyn Fn(u64) -> Query) -> Result<QueryResult> {
        match watched::ask(&|request| self.ask(request), watch, &|question| Request::Query(query(question)))?
        {
            Answer::QueryResult(query_results) => Ok(query_results),
            _ => Err(misunderstood()),
        }
    }

    /// Which directory it is, and as of when it is seen.
    ///
    /// # Errors
    /// [`Error::NotADirectory`].
    fn identity(&self) -> Result<Identity> {
        match self.query(None, &|_| Query::Identity)? {
            QueryResult::Identity(identity) => Ok(identity),
            _ => Err(misunderstood()),
        }
    }

    /// What differs below the directory between two times, as [`View::diff`] tells it.
    ///
    /// # Errors
    /// As [`View::diff`].
    fn diff(&self, from: Option<EventNo>, to: Option<EventNo>) -> Result<Vec<Difference>> {
        match self.query(None, &|_| Query::Diff { from, to })? {
            QueryResult::Differences(found) => Ok(found),
            _ => Err(misunderstood()),
        }
    }

    /// The same as [`View::compare`] tells it.
    ///
    /// # Errors
    /// As [`Client::diff`].
    fn compare(
        &self,
        from: Option<EventNo>,
        to: Option<EventNo>,
        watch: Watch<'_>,
    ) -> Result<Vec<Difference>> {
        match self.query(watch, &|question| Query::Compare { from, to, question })? {
            QueryResult::Differences(found) => Ok(found),
            _ => Err(misunderstood()),
        }
    }

    /// What a name in the directory meant over time, the latest first, as [`View::log_below`] tells it; no
    /// more states than `most`.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no snapshot has seen the name.
    fn log(&self, name: &[u8], most: Option<u32>) -> Result<Vec<Logged>> {
        self.verified_log(name, most, VerifyStates::No, None)
    }

    /// The same, and verifies the data of states, as [`View::verify_states`] does it. Tells how far that is.
    ///
    /// # Errors
    /// As [`Client::log`].
    fn verified_log(
        &self,
        name: &[u8],
        most: Option<u32>,
        verify: VerifyStates,
        watch: Watch<'_>,
    ) -> Result<Vec<Logged>> {
        match self.query(watch, &|question| Query::Log { name: name.to_vec(), most, verify, question })? {
            QueryResult::Log(found) => Ok(found),
            _ => Err(misunderstood()),
        }
    }

    /// What is gone from the directory, the latest first, as [`View::deleted`] tells it.
    ///
    /// # Errors
    /// As [`View::deleted`].
    fn deleted(&self, recursive: bool, watch: Watch<'_>) -> Result<Vec<Deleted>> {
        match self.query(watch, &|question| Query::Deleted { recursive, question })? {
            QueryResult::Deleted(found) => Ok(found),
            _ => Err(misunderstood()),
        }
    }

    /// What only history holds of the whole volume.
    ///
    /// # Errors
    /// As [`Query::HistoryBytes`].
    fn history_bytes(&self) -> Result<HistoryBytes> {
        match self.query(None, &|_| Query::HistoryBytes)? {
            QueryResult::HistoryBytes(bytes) => Ok(bytes),
            _ => Err(misunderstood()),
        }
    }

    /// What each snapshot holds of what is below the directory, as [`View::usage`] tells it.
    ///
    /// # Errors
    /// As [`View::usage`].
    fn usage(&self) -> Result<(UsageTotals, Vec<EventUsage>)> {
        match self.query(None, &|question| Query::Usage { question })? {
            QueryResult::Usage(totals, events) => Ok((totals, events)),
            _ => Err(misunderstood()),
        }
    }

    /// What each state of a name in the directory holds, as [`View::usage_of`] tells it.
    ///
    /// # Errors
    /// As [`Client::log`].
    fn usage_of(&self, name: &[u8]) -> Result<(UsageTotals, Vec<StateUsage>)> {
        match self.query(None, &|question| Query::UsageOf { name: name.to_vec(), question })? {
            QueryResult::UsageOf(totals, states) => Ok((totals, states)),
            _ => Err(misunderstood()),
        }
    }

    /// How far the volume is with giving up what forgotten snapshots held: what is done, and how much there
    /// is to do. `None`: nothing is left.
    ///
    /// # Errors
    /// As [`Request::HowFar`].
    fn forgetting(&self) -> Result<Option<(u64, u64)>> {
        match self.ask(&Request::HowFar { question: None })? {
            Answer::HowFar(found) => Ok(found),
            _ => Err(misunderstood()),
        }
    }

    /// The operations on the past of the volume, and who did them, the latest first. Each has its place in
    /// the list.
    ///
    /// # Errors
    /// As [`Request::Operations`].
    fn operations(&self) -> Result<Vec<(u64, OperationRow)>> {
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            match self.ask(&Request::Operations { before })? {
                Answer::Operations { rows, next } => {
                    all.extend(rows);
                    match (next, before) {
                        (None, _) => return Ok(all),
                        (Some(next), Some(before)) if next >= before => return Err(misunderstood()),
                        _ => before = next,
                    }
                }
                _ => return Err(misunderstood()),
            }
        }
    }

    /// Pins the snapshot as of which this is seen as long as this process lives, or on a volume opened here
    /// as long as the client does. Returns whether there is such a snapshot and it could be pinned.
    ///
    /// # Errors
    /// As [`Request::Pin`].
    fn pin(&self) -> Result<bool> {
        match self.ask(&Request::Pin)? {
            Answer::Pinned(kept) => Ok(kept),
            _ => Err(misunderstood()),
        }
    }

    /// How much history the volume keeps when it is full.
    ///
    /// # Errors
    /// As [`Request::SpaceRules`].
    fn space_rules(&self) -> Result<SpaceRules> {
        match self.ask(&Request::SpaceRules)? {
            Answer::SpaceRules(rules) => Ok(rules),
            _ => Err(misunderstood()),
        }
    }

    /// Changes how much history the volume keeps when it is full.
    ///
    /// # Errors
    /// As [`Request::SetSpaceRules`].
    fn set_space_rules(&self, rules: SpaceRules) -> Result<()> {
        done(self.ask(&Request::SetSpaceRules(rules))?)
    }

    /// The history that the volume gave up because it was full, the oldest first. Each row has its place in
    /// the list.
    ///
    /// # Errors
    /// As [`Request::GivenUp`].
    fn given_up(&self) -> Result<Vec<(u64, OperationRow)>> {
        all_parts(|from| match self.ask(&Request::GivenUp { from })? {
            Answer::Operations { rows, next } => Ok((rows, next)),
            _ => Err(misunderstood()),
        })
    }

    /// The history that the volume gives up by itself when it is full, and what would free more.
    ///
    /// # Errors
    /// As [`Request::WouldFree`].
    fn what_would_free(&self) -> Result<WouldFree> {
        match self.ask(&Request::WouldFree)? {
            Answer::WouldFree(found) => Ok(found),
            _ => Err(misunderstood()),
        }
    }

    /// The versions that were not made since the volume became full; `None` if there are none.
    ///
    /// # Errors
    /// As [`Request::MissedVersions`].
    fn missed_versions(&self) -> Result<Option<MissedVersions>> {
        match self.ask(&Request::MissedVersions)? {
            Answer::MissedVersions(missed) => Ok(missed),
            _ => Err(misunderstood()),
        }
    }

    /// Makes the volume longer. Returns its new length in bytes.
    ///
    /// # Errors
    /// As [`Request::Lengthen`]; [`Error::Refused`] if that is impossible.
    fn lengthen(&self, bytes: u64) -> Result<u64> {
        match self.ask(&Request::Lengthen { bytes })? {
            Answer::Length { bytes, .. } => Ok(bytes),
            _ => Err(misunderstood()),
        }
    }

    /// Erases everything that no name leads to any more. Returns how many free blocks were left out.
    ///
    /// # Errors
    /// As [`Request::Shred`].
    fn shred(&self) -> Result<u64> {
        match self.ask(&Request::Shred { question: 0 })? {
            Answer::Shredded { blocks_left_out } => Ok(blocks_left_out),
            _ => Err(misunderstood()),
        }
    }

    /// How the file lies on the volume, or the files below the directory, and what it takes to lay them
    /// together.
    ///
    /// # Errors
    /// As [`Request::Defragment`].
    fn scattered(&self) -> Result<Scattered> {
        match self.ask(&Request::Defragment { dry_run: true, question: 0 })? {
            Answer::Defragmented(found) => Ok(found.before),
            _ => Err(misunderstood()),
        }
    }

    /// Lays them together, and tells how far that is until it is done.
    ///
    /// # Errors
    /// As [`Request::Defragment`]; [`Error::Refused`] if there is not enough room.
    fn defragment(&self, watch: Watch<'_>) -> Result<Defragmented> {
        let request = |question| Request::Defragment { dry_run: false, question };
        match watched::ask(&|request| self.ask(request), watch, &request)? {
            Answer::Defragmented(done) => Ok(done),
            _ => Err(misunderstood()),
        }
    }

    /// Checks the whole volume while it is in use, and tells how far that is, in milliseconds, until it is
    /// done. `None` if it was broken off, because the volume is to be unmounted.
    ///
    /// # Errors
    /// As [`Request::Check`]; [`Error::Refused`] if it is being checked already, or cannot be.
    fn check(&self, findings_max: u64, memory: u64, watch: Watch<'_>) -> Result<Option<Checked>> {
        let request = |question| Request::Check { findings_max, memory, question };
        match watched::ask(&|request| self.ask(request), watch, &request)? {
            Answer::Checked(checked) => Ok(Some(checked)),
            Answer::CheckBrokenOff => Ok(None),
            _ => Err(misunderstood()),
        }
    }

    /// Reads the whole volume, and tells what is damaged. It is broken off when `stop` becomes true.
    ///
    /// # Errors
    /// As [`Request::Scrub`].
    fn scrub(&self, how: Scrub, stop: &AtomicBool, watch: Watch<'_>) -> Result<Scrubbed> {
        let request = |question| Request::Scrub { how, question };
        match watched::ask_until(&|request| self.ask(request), watch, stop, &request)? {
            Answer::Scrubbed(found) => Ok(*found),
            _ => Err(misunderstood()),
        }
    }

    /// How far a scrub is, whether it is under way now, and how the last one ended.
    ///
    /// # Errors
    /// As [`Request::Scrubs`].
    fn scrubs(&self) -> Result<(ScrubRecord, bool)> {
        match self.ask(&Request::Scrubs)? {
            Answer::Scrubs { record, is_under_way } => Ok((record, is_under_way)),
            _ => Err(misunderstood()),
        }
    }

    /// What the last check found and left; `None` if nothing is recorded.
    ///
    /// # Errors
    /// As [`Request::Findings`].
    fn findings(&self) -> Result<Option<FindingsRecord>> {
        match self.ask(&Request::Findings)? {
            Answer::Findings(found) => Ok(found),
            _ => Err(misunderstood()),
        }
    }

    /// Whether leaks of a crash may be pending, and how far the recount of them is, in percent.
    ///
    /// # Errors
    /// As [`Request::Leaks`].
    fn leaks(&self) -> Result<(bool, Option<u8>)> {
        match self.ask(&Request::Leaks)? {
            Answer::Leaks { pending, percent } => Ok((pending, percent)),
            _ => Err(misunderstood()),
        }
    }

    /// Whether the volume keeps checksums of file data.
    ///
    /// # Errors
    /// As [`Request::Checksums`].
    fn keeps_checksums(&self) -> Result<bool> {
        match self.ask(&Request::Checksums { enable: false, question: 0 })? {
            Answer::Checksums { kept, .. } => Ok(kept),
            _ => Err(misunderstood()),
        }
    }

    /// From now on it does, and what has none gets one. It ends early if `stop` is set.
    ///
    /// # Errors
    /// As [`Request::Checksums`]; [`Error::Refused`] under the engine `none`.
    fn enable_checksums(&self, stop: &AtomicBool, watch: Watch<'_>) -> Result<ChecksumsEntered> {
        let request = |question| Request::Checksums { enable: true, question };
        match watched::ask_until(&|request| self.ask(request), watch, stop, &request)? {
            Answer::Checksums { entered, .. } => Ok(entered),
            _ => Err(misunderstood()),
        }
    }

    /// The policy of the directory or file, and what applies to it.
    ///
    /// # Errors
    /// As [`Request::Policy`]; [`Error::NotPermitted`] for directories and files of the past; so for the
    /// next.
    fn policy(&self) -> Result<PolicyHere> {
        match self.ask(&Request::Policy)? {
            Answer::Policy(found) => Ok(*found),
            _ => Err(misunderstood()),
        }
    }

    /// Gives the directory or file another policy. A policy that says nothing removes its own.
    ///
    /// # Errors
    /// As [`Request::SetPolicy`]; [`Error::Invalid`] and [`Error::Refused`] for policies that are impossible.
    fn set_policy(&self, policy: Policy) -> Result<()> {
        done(self.ask(&Request::SetPolicy(policy))?)
    }

    /// Rolls the directory back.
    ///
    /// # Errors
    /// As [`yore_fs::View::rollback`], and as [`Request::RollBack`].
    fn roll_back(&self, plan: &Plan) -> Result<RolledBack> {
        match self.ask(&Request::RollBack(*plan))? {
            Answer::RolledBack(done) => Ok(done),
            _ => Err(misunderstood()),
        }
    }

    /// The rollbacks that have not ended, each with the path of its directory on the volume.
    ///
    /// # Errors
    /// As [`Request::UnfinishedRollbacks`].
    fn unfinished_rollbacks(&self) -> Result<Vec<(UnfinishedRollback, Option<Vec<u8>>)>> {
        all_parts(|from| match self.ask(&Request::UnfinishedRollbacks { from })? {
            Answer::UnfinishedRollbacks { rows, next } => Ok((rows, next)),
            _ => Err(misunderstood()),
        })
    }

    /// Everything the history knows of a name in the directory: in total, and for each file.
    ///
    /// # Errors
    /// As [`Request::HistoryOf`]; [`Error::NotFound`] for a name that leads to nothing,
    /// [`Error::IsADirectory`] for a directory if files below it are not requested too.
    fn history_of(&self, of: &Named) -> Result<(Known, Vec<KnownFile>)> {
        let mut all = Known::default();
        let files =
            all_parts(|from| match self.ask(&Request::HistoryOf { of: of.clone(), from, question: 0 })? {
                Answer::HistoryOf { known, rows, next } => {
                    all = known;
                    Ok((rows, next))
                }
                _ => Err(misunderstood()),
            })?;
        Ok((all, files))
    }

    /// Gives that history up, if it is that of these files. Returns how much it was; `None`: the name covers
    /// other files by now, and nothing was given up.
    ///
    /// # Errors
    /// As [`Client::history_of`]; [`Error::Held`], [`Error::Pinned`] or [`Error::TakenByOthers`] if a
    /// snapshot that must stay has seen some of it, and [`Error::Invalid`] for the root directory. On an
    /// error nothing is given up.
    fn expunge_shown(&self, of: &Named, shown: Shown) -> Result<Option<Known>> {
        match self.ask(&Request::Expunge { of: of.clone(), shown })? {
            Answer::Expunged(known) => Ok(Some(known)),
            Answer::OtherFiles => Ok(None),
            _ => Err(misunderstood()),
        }
    }

    /// Gives up the history of the files that the name covers now, whichever these are. Returns how much it
    /// was.
    ///
    /// # Errors
    /// As [`Client::expunge_shown`]; [`Error::Refused`] if somebody changed at that moment what the name
    /// covers.
    fn expunge(&self, of: &Named) -> Result<Known> {
        let (_, files) = self.history_of(of)?;
        self.expunge_shown(of, Shown::of(&files))?.ok_or_else(|| {
            Error::Refused("the name covers other files than a moment ago: nothing of it was expunged".into())
        })
    }

    /// Why nothing is written to the volume any more; `None` if writing goes on.
    ///
    /// # Errors
    /// As [`Request::Stopped`].
    fn stopped(&self) -> Result<Option<Stopped>> {
        match self.ask(&Request::Stopped)? {
            Answer::Stopped(stopped) => Ok(stopped),
            _ => Err(misunderstood()),
        }
    }
}

fn done(answer: Answer) -> Result<()> {
    match answer {
        Answer::Done => Ok(()),
        _ => Err(misunderstood()),
    }
}

fn page(answer: Answer) -> Result<Page<ListedEvent>> {
    match answer {
        Answer::Page(page) => Ok(page),
        _ => Err(misunderstood()),
    }
}

/// All of a list that comes in pages.
fn all_pages<T>(mut page: impl FnMut(EventNo) -> Result<Page<T>>) -> Result<Vec<T>> {
    all_parts(|from| {
        let Page { rows, next } = page(EventNo(from))?;
        Ok((rows, next.map(|next| next.0)))
    })
}

/// All of a list that comes in parts, each with the place to go on from. The list must come to an end.
fn all_parts<T>(mut part: impl FnMut(u64) -> Result<(Vec<T>, Option<u64>)>) -> Result<Vec<T>> {
    let (mut all, mut at) = (Vec::new(), Some(0));
    while let Some(from) = at {
        let (rows, next) = part(from)?;
        if next.is_some_and(|next| next <= from) {
            return Err(misunderstood());
        }
        all.extend(rows);
        at = next;
    }
    Ok(all)
}

/// The error for an answer that does not fit the request.
pub(super) fn misunderstood() -> Error {
    Error::Refused("the mount's answer is not understood: unmount the volume and mount it again".into())
}
