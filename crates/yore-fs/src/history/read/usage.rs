//! What space history takes, by snapshot and by state of a file: computed on demand, in one walk over the
//! versions. For the whole volume it is known from then on ([`crate::history::reclaim::spans`]).
//!
//! **What a version holds** that the next state of its inode (a version, or the inode in use) does not is
//! what the inode let go of when the version ended. So over all versions of an inode these add up to what the
//! past alone holds, which [`yore_core::retained`] counts. No other state holds what was born since the end
//! of the version before ([`crate::history::reclaim::forget`]): forgetting the version frees it.
//!
//! **What an event holds alone** is held by versions that no other kept event needs. One event sees an inode
//! in one state. Versions beside it that nobody needs go with it ([`crate::history::reclaim::forget`], F4).
//!
//! **What is below a directory.** A version is below it as long as the place that it records led there, given
//! where the directories above were in that span. The place of files of several names, and of files without a
//! name, is not known: they count below the root directory and no other.
//!
//! The walk reads the versions with forgetting held back, a few at a time, and compares each with the next
//! state under that inode's locks. What changes meanwhile is counted as it was either before or after.

use crate::go_on::{goes_on, GoOn, GO_ON, ROW_COST};
use crate::history::read::at_time::{self, PRESENT};
use crate::history::read::query::{Each, Logged, SeenBy};
use crate::history::reclaim::alone::{let_go, let_go_by_birth, Alone, LetGoBlocks, LetGoByBirth};
use crate::history::reclaim::needed::{has_one_name, Needed};
use crate::history::reclaim::spans::{self, Patience, Seen};
use crate::history::record::{Event, Kept, VersionsWalk};
use crate::store::Store;
use crate::{Error, FileKind, InodeNo, Result, View};
use hashbrown::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::Arc;
use yore_format::{EventNo, EventState, Incarnation, Version, BLOCK_SIZE};
use yore_meta::LeftBlocks;

mod live;

/// How many versions are looked at under one hold of the lock that keeps forgetting back.
const BATCH: usize = 64;
/// How many directories' places over time are remembered.
const SPANS_MOST: usize = 4096;
/// If the root directory has less than one of so many events, they are looked up one by one.
const FEW: usize = 16;

/// Bytes that only history holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Retained {
    /// Of data.
    pub data: u64,
    /// Of nodes of files' trees.
    pub metadata: u64,
}

impl Retained {
    /// Data and metadata together.
    pub fn bytes(&self) -> u64 {
        self.data.saturating_add(self.metadata)
    }

    fn add(&mut self, (data, nodes): (u64, u64)) {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE as u64);
        self.data = self.data.saturating_add(bytes(data));
        self.metadata = self.metadata.saturating_add(bytes(nodes));
    }
}

/// What an event holds of the history below a directory.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EventUsage {
    /// The event.
    pub seen: SeenBy,
    /// What forgetting this one alone would free.
    pub exclusive: Retained,
    /// What forgetting this one and all older events that have seen the directory would free, at least.
    pub with_older: Retained,
    /// What else it sees that the present has no more, in bytes: other events see it, too.
    pub shared: u64,
}

/// What a state of a file holds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StateUsage {
    /// The state, as [`View::log`] tells it.
    pub state: Logged,
    /// What forgetting all events that have seen this state, and nothing else, would free.
    pub exclusive: Retained,
    /// What forgetting all events that have seen this state or an older one, and no later one, would free.
    pub with_older: Retained,
    /// What else the state has, in bytes.
    pub shared: u64,
}

/// What is in use and what history holds, for a file or below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UsageTotals {
    /// Bytes in use: of a file and below a directory as du(1) counts them; of the volume, the data of files
    /// in use, each block once however many share it, and the metadata that is not history's.
    pub live: u64,
    /// All that would be free if there were no history.
    pub history: Retained,
    /// The sum of what single events or states hold alone.
    pub exclusive: Retained,
}

impl View {
    /// What each kept event that has seen a directory holds of what was below it, in ascending order, and the
    /// sums.
    ///
    /// O(events · depth), O(versions on the volume · log) and the differences of the versions below the
    /// directory from their next states; O(entries below the directory) for what is in use. Memory: a few
    /// numbers for each event, and one for each directory and each file of several names.
    ///
    /// For the root directory what is in use, and what history takes in all, follow from totals that the
    /// volume keeps. What its snapshots hold is known as soon as somebody had the time to find out:
    /// housekeeping, when nobody asks for anything, or the first who asks. The answer then needs O(events +
    /// sums), and a look at the versions of those files alone whose past shares blocks with others.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use yore_fs::{NewSnapshot, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// let view = volume.view();
    /// volume.write("a", &[1; 1 << 20][..])?;
    /// view.take_snapshot(view.root(), &NewSnapshot::default())?;
    /// volume.write("a", "short")?;
    ///
    /// let mut exclusive = Vec::new();
    /// let totals = view.usage(view.root(), &mut |event| {
    ///     exclusive.push(event.exclusive.data);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(exclusive, [1 << 20]);
    /// assert_eq!(totals.history.data, view.statfs().history_data_blocks * 4096);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; damage and device errors.
    pub fn usage(&self, directory: InodeNo, each: Each<'_, EventUsage>) -> Result<UsageTotals> {
        self.usage_while(directory, GO_ON, each)
    }

    /// As [`View::usage`], and asks now and then whether to go on, as [`View::diff_while`] does; but not
    /// while it finds out what snapshots of the root directory hold, because the next caller needs that, too.
    ///
    /// # Errors
    /// As [`View::usage`]; [`Error::Refused`] if `go_on` breaks.
    pub fn usage_while(
        &self,
        directory: InodeNo,
        go_on: GoOn<'_>,
        each: Each<'_, EventUsage>,
    ) -> Result<UsageTotals> {
        let attr = self.getattr(directory)?;
        if attr.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let store = self.store();
        let is_root = directory == InodeNo::ROOT;
        let live = if is_root { live::of_volume(store)? } else { live::below(self, directory, go_on)? };
        let mut totals = UsageTotals { live, ..UsageTotals::default() };
        let seen = if is_root { spans::seen(store, Patience::Walk)? } else { None };
        let (events, sums) = match seen {
            Some(seen) => (events_of_root(store, &seen.kept)?, sums_of(&seen)),
            None => self.walk((directory, Incarnation(attr.incarnation)), go_on, &mut totals)?,
        };
        if is_root {
            let space = store.past.space();
            totals.history = Retained::default();
            totals.history.add((space.data, space.nodes));
        }
        self.tell(events, &sums, totals, each)
    }

    /// Whether [`View::usage`] of the root directory knows the answer without a walk: for tests.
    #[doc(hidden)]
    pub fn knows_usage(&self) -> bool {
        spans::is_known(self.store())
    }

    /// Whether history has some block twice: for tests.
    #[doc(hidden)]
    pub fn history_shares(&self) -> bool {
        let past = &self.store().past;
        past.references(&self.store().meta) != Some(past.space().data)
    }

    /// How often more seemed to be known than there is: for tests.
    #[doc(hidden)]
    pub fn refuted_usage(&self) -> u64 {
        self.store().spans.refuted()
    }

    /// From here on what snapshots hold is found out by a walk, or (false) no longer. What is known is kept
    /// up all the same. For tests.
    #[doc(hidden)]
    pub fn find_usage_by_walk(&self, always: bool) {
        self.store().spans.set_unused(always);
    }

    fn walk(
        &self,
        directory: (InodeNo, Incarnation),
        go_on: GoOn<'_>,
        totals: &mut UsageTotals,
    ) -> Result<(Vec<Event>, HashMap<EventNo, Sum>)> {
        let mut walk = Walk::of(self.store(), directory)?;
        walk.versions(go_on, &mut totals.history)?;
        let sums = walk.events.iter().map(|event| event.number).zip(walk.sums).collect();
        Ok((walk.events, sums))
    }

    fn tell(
        &self,
        events: Vec<Event>,
        sums: &HashMap<EventNo, Sum>,
        mut totals: UsageTotals,
        each: Each<'_, EventUsage>,
    ) -> Result<UsageTotals> {
        let (mut sees, mut with_older) = (0i64, Retained::default());
        for event in events {
            let Sum { exclusive, goes, begins } = sums.get(&event.number).copied().unwrap_or_default();
            with_older.add(goes);
            totals.exclusive.add(exclusive);
            sees = sees.saturating_add(begins);
            let mut held = Retained::default();
            held.add(exclusive);
            let all = u64::try_from(sees).unwrap_or(0).saturating_mul(BLOCK_SIZE as u64);
            let next = self.store().past.time_after(&self.store().meta, event.number)?;
            let seen = SeenBy { event, next };
            let shared = all.saturating_sub(held.bytes());
            if each(EventUsage { seen, exclusive: held, with_older, shared }).is_break() {
                break;
            }
        }
        Ok(totals)
    }

    /// What each state of a file holds, in the order and with the names of [`View::log`], and the sums.
    /// O(states · log) beside the log itself, and the differences of the states.
    ///
    /// # Errors
    /// As [`View::log`].
    pub fn usage_of(
        &self,
        directory: InodeNo,
        name: &[u8],
        each: Each<'_, StateUsage>,
    ) -> Result<UsageTotals> {
        self.usage_of_while(directory, name, GO_ON, each)
    }

    /// As [`View::usage_of`], and asks for each state whether to go on, as [`View::diff_while`] does.
    ///
    /// # Errors
    /// As [`View::usage_of`]; [`Error::Refused`] if `go_on` breaks.
    pub fn usage_of_while(
        &self,
        directory: InodeNo,
        name: &[u8],
        go_on: GoOn<'_>,
        each: Each<'_, StateUsage>,
    ) -> Result<UsageTotals> {
        let (mut states, mut wanted) = (Vec::new(), Ok(()));
        self.log(directory, name, &mut |logged| {
            wanted = goes_on(go_on, ROW_COST + logged.name.len() + logged.path.as_ref().map_or(0, Vec::len));
            states.push(logged);
            match wanted {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        wanted?;
        let mut totals = UsageTotals::default();
        let mut counted = HashMap::new();
        let (mut all, mut with_older) = (Vec::with_capacity(states.len()), Retained::default());
        // From the oldest on, so that what older states free is known.
        for state in states.into_iter().rev() {
            goes_on(go_on, 0)?;
            let (usage, live) =
                self.usage_of_state(state, &mut counted, &mut with_older, &mut totals.history)?;
            totals.live = totals.live.max(live);
            totals.exclusive.data = totals.exclusive.data.saturating_add(usage.exclusive.data);
            totals.exclusive.metadata = totals.exclusive.metadata.saturating_add(usage.exclusive.metadata);
            all.push(usage);
        }
        for usage in all.into_iter().rev() {
            if each(usage).is_break() {
                break;
            }
        }
        Ok(totals)
    }

    /// The usage of a state, and the bytes in use if this is the present state. When an inode is met first,
    /// all its versions are added to `history`, and the walk notes what is older than all of its states. What
    /// the state and older ones free is added to `with_older`.
    fn usage_of_state(
        &self,
        state: Logged,
        counted: &mut HashMap<(InodeNo, Incarnation), EventNo>,
        with_older: &mut Retained,
        history: &mut Retained,
    ) -> Result<(StateUsage, u64)> {
        let (store, no, incarnation) = (self.store(), state.inode, state.incarnation);
        let _still = store.past.forgetting.lock();
        let versions = |from: EventNo, to: EventNo| -> Result<Vec<Version>> {
            let mut found = store.past.versions_of(&store.meta, no, from, to)?;
            found.retain(|version| version.inode.incarnation == incarnation);
            Ok(found)
        };
        if !counted.contains_key(&(no, incarnation)) {
            for version in versions(EventNo(0), PRESENT)? {
                history.add(let_go(store, no, &version, Some(EventNo(0)))?);
            }
        }
        let seen = match state.first.as_ref().zip(state.last.as_ref()) {
            Some((first, last)) => {
                versions(first.event.number, EventNo(last.event.number.0.saturating_add(1)))?
            }
            None => Vec::new(),
        };
        // Several states that differ in nothing a log shows count as one: it holds what only they have.
        let (mut exclusive, mut since) = (Retained::default(), None);
        for version in &seen {
            let from = match since {
                Some(from) => from,
                None => Alone::new(store, no, version)?.from(),
            };
            since = Some(from);
            exclusive.add(let_go(store, no, version, Some(from))?);
            let oldest = *counted.entry((no, incarnation)).or_insert(from);
            with_older.add(let_go(store, no, version, Some(oldest))?);
        }
        counted.entry((no, incarnation)).or_insert(EventNo(0));
        let in_use = match store.cell_if_used(no)? {
            Some(cell) if cell.incarnation == incarnation => cell.state.read().inode.blocks,
            _ => 0,
        };
        let is_present = state.current && self.event().is_none();
        let blocks = match seen.last().filter(|_| !is_present) {
            Some(version) => version.inode.blocks,
            None => in_use,
        };
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_SIZE as u64);
        let shared = bytes(blocks).saturating_sub(exclusive.bytes());
        let live = if is_present { bytes(in_use) } else { 0 };
        Ok((StateUsage { state, exclusive, with_older: *with_older, shared }, live))
    }
}

/// The sums for one event.
#[derive(Clone, Copy, Default)]
struct Sum {
    /// Data blocks and nodes of the versions that go with it.
    exclusive: (u64, u64),
    /// Data blocks and nodes that go when it and all older events are forgotten, and not before.
    goes: (u64, u64),
    /// Blocks that only history has and that it sees, and the event before it does not; minus those of which
    /// the opposite is true.
    begins: i64,
}

/// The kept events of the root directory, in ascending order.
fn events_of_root(store: &Arc<Store>, kept: &Kept) -> Result<Vec<Event>> {
    let numbers = kept.of(InodeNo::ROOT);
    if numbers.len() < kept.len() / FEW {
        let found = numbers.iter().map(|number| {
            match store.past.in_state(&store.meta, *number, EventState::Kept) {
                Ok(event) => Ok(Some(event)),
                // Forgotten meanwhile.
                Err(Error::NotFound) => Ok(None),
                Err(e) => Err(e),
            }
        });
        return found.filter_map(Result::transpose).collect();
    }
    let mut events = at_time::events(store)?;
    events.retain(|event| event.row.root == InodeNo::ROOT && !event.row.kind.is_of_file());
    Ok(events)
}

/// The sums for each event of the root directory, from what is known to be seen by which.
fn sums_of(Seen { kept, cells }: &Seen) -> HashMap<EventNo, Sum> {
    let events = kept.of(InodeNo::ROOT);
    let mut sums = vec![Sum::default(); events.len() + 1];
    for (seen, of_these) in cells {
        let LeftBlocks { data, nodes } = of_these.left;
        let blocks = i64::try_from(data.saturating_add(nodes)).unwrap_or(i64::MAX);
        let (mut last, mut count, mut is_elsewhere) = (None, 0, false);
        for (root, Range { start, end }) in seen {
            count += end - start;
            if *root != InodeNo::ROOT {
                is_elsewhere = true;
                continue;
            }
            sums[*start].begins = sums[*start].begins.saturating_add(blocks);
            sums[*end].begins = sums[*end].begins.saturating_sub(blocks);
            last = Some(end - 1);
        }
        // What other events see, too, goes with none of these.
        let Some(last) = last.filter(|_| !is_elsewhere) else { continue };
        if count == 1 {
            add_to(&mut sums[last].exclusive, of_these.go());
        }
        add_to(&mut sums[last].goes, of_these.go());
    }
    events.iter().copied().zip(sums).collect()
}

fn add_to(sum: &mut (u64, u64), (data, nodes): (u64, u64)) {
    *sum = (sum.0.saturating_add(data), sum.1.saturating_add(nodes));
}

/// The spans in which something was somewhere.
type Spans = Rc<[(EventNo, EventNo)]>;

/// Which events need a version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NeededBy {
    None,
    /// This one alone, which has seen it below the directory.
    One(usize),
    More,
}

/// What the walk knows of a version.
struct State {
    end: EventNo,
    /// Whether it was below the directory at any time.
    is_below: bool,
    /// The events that saw it below the directory, as ranges of indexes.
    seen: Vec<(usize, usize)>,
    /// The last event of its time.
    last: Option<usize>,
    needed: NeededBy,
    /// Events that have not seen the directory need it.
    is_needed_elsewhere: bool,
}

/// The walk over the versions, for one directory.
struct Walk<'s> {
    store: &'s Arc<Store>,
    root: (InodeNo, Incarnation),
    needed: Needed<'s>,
    /// What events that have not seen the directory need.
    needed_elsewhere: Needed<'s>,
    /// Kept events that have seen the directory, in ascending order.
    events: Vec<Event>,
    /// For each of these events, and one more.
    sums: Vec<Sum>,
    /// The inode that the walk is at.
    at: (InodeNo, Incarnation),
    /// Its versions so far, the oldest first.
    chain: Vec<State>,
    /// When directories were at or below the root.
    spans: HashMap<InodeNo, Spans>,
}

impl<'s> Walk<'s> {
    fn of(store: &'s Arc<Store>, root: (InodeNo, Incarnation)) -> Result<Walk<'s>> {
        let mut events = Vec::new();
        for event in at_time::events(store)? {
            if !event.row.kind.is_of_file() && at_time::covers(store, &event, root.0)? {
                events.push(event);
            }
        }
        let sums = vec![Sum::default(); events.len() + 1];
        let is_here = |event: &Event| events.binary_search_by_key(&event.number, |here| here.number).is_ok();
        let needed_elsewhere = Needed::of(store, |event| !is_here(event))?;
        let needed = Needed::load(store)?;
        Ok(Walk {
            store,
            root,
            needed,
            needed_elsewhere,
            events,
            sums,
            at: Default::default(),
            chain: Vec::new(),
            spans: HashMap::new(),
        })
    }

    /// Looks at all versions.
    fn versions(&mut self, go_on: GoOn<'_>, history: &mut Retained) -> Result<()> {
        let mut walk = VersionsWalk::default();
        loop {
            goes_on(go_on, 0)?;
            let _still = self.store.past.forgetting.lock();
            let Some(found) = self.store.past.next_versions(&self.store.meta, &mut walk, BATCH)? else {
                return Ok(());
            };
            for (no, version) in &found {
                self.version(*no, version, history)?;
            }
        }
    }

    fn version(&mut self, no: InodeNo, version: &Version, history: &mut Retained) -> Result<()> {
        if self.at != (no, version.inode.incarnation) {
            self.at = (no, version.inode.incarnation);
            self.chain.clear();
        }
        let spans = self.spans(no, version)?;
        let state = self.state(no, version, &spans)?;
        self.chain.push(state);
        if self.chain.iter().all(|state| !state.is_below) {
            return Ok(());
        }
        let LetGoByBirth { by_birth, blocks: held } = let_go_by_birth(self.store, no, version, |_| ())?;
        if !spans.is_empty() {
            history.add(held);
        }
        for (birth, blocks) in by_birth {
            self.add(birth, &blocks, !spans.is_empty());
        }
        Ok(())
    }

    /// Adds what the last version of the chain has, the next state does not, and was born then. It is below
    /// the directory as long as that version was.
    fn add(&mut self, birth: EventNo, blocks: &LetGoBlocks, is_below: bool) {
        let Walk { chain, sums, .. } = self;
        let states = &chain[chain.partition_point(|state| state.end <= birth)..];
        if is_below {
            let LeftBlocks { data, nodes } = blocks.left;
            let count = i64::try_from(data.saturating_add(nodes)).unwrap_or(i64::MAX);
            for (first, end) in states.iter().flat_map(|state| &state.seen) {
                sums[*first].begins = sums[*first].begins.saturating_add(count);
                sums[*end].begins = sums[*end].begins.saturating_sub(count);
            }
        }
        // Versions that nobody needs go with the others.
        let mut needed = states.iter().map(|state| state.needed).filter(|needed| *needed != NeededBy::None);
        if let (Some(NeededBy::One(event)), None) = (needed.next(), needed.next()) {
            add_to(&mut sums[event].exclusive, blocks.go());
        }
        if let Some(last) = states.iter().filter_map(|state| state.last).max() {
            if states.iter().all(|state| !state.is_needed_elsewhere) {
                add_to(&mut sums[last].goes, blocks.go());
            }
        }
    }

    /// What is known of a version that was below the directory in these spans.
    fn state(&mut self, no: InodeNo, version: &Version, spans: &[(EventNo, EventNo)]) -> Result<State> {
        let before = |number: EventNo| self.events.partition_point(|event| event.number < number);
        let all = spans.iter().map(|(from, to)| (before(*from), before(*to)));
        let seen: Vec<(usize, usize)> = all.filter(|(first, end)| first < end).collect();
        let last = before(version.end).checked_sub(1);
        let last = last.filter(|last| self.events[*last].number >= version.inode.born);
        let needed = match seen[..] {
            [(first, end)] if end - first == 1 => {
                match self.needed.only_by(self.events[first].number, no, version)? {
                    true => NeededBy::One(first),
                    false => NeededBy::More,
                }
            }
            _ => match self.needed.version(no, version)? {
                true => NeededBy::More,
                false => NeededBy::None,
            },
        };
        let is_needed_elsewhere = match needed {
            NeededBy::More => self.needed_elsewhere.version(no, version)?,
            NeededBy::None | NeededBy::One(_) => false,
        };
        Ok(State { end: version.end, is_below: !spans.is_empty(), seen, last, needed, is_needed_elsewhere })
    }

    /// The spans in which a version was below the directory, or was the directory itself.
    fn spans(&mut self, no: InodeNo, version: &Version) -> Result<Vec<(EventNo, EventNo)>> {
        let (inode, born, end) = (&version.inode, version.inode.born, version.end);
        if self.root.0 == InodeNo::ROOT || (no, inode.incarnation) == self.root {
            return Ok(vec![(born, end)]);
        }
        if !has_one_name(inode) || no == InodeNo::ROOT {
            return Ok(Vec::new());
        }
        let above = self.spans_of(inode.parent)?;
        let both = above.iter().map(|(from, to)| ((*from).max(born), (*to).min(end)));
        Ok(both.filter(|(from, to)| from < to).collect())
    }

    /// The spans in which a directory was at or below the root. O(states of it and of those above).
    fn spans_of(&mut self, directory: InodeNo) -> Result<Spans> {
        if let Some(known) = self.spans.get(&directory) {
            return Ok(known.clone());
        }
        let (mut left, mut met) = (vec![(directory, EventNo(0), PRESENT)], HashSet::new());
        let mut found: Vec<(EventNo, EventNo)> = Vec::new();
        while let Some((at, from, to)) = left.pop() {
            // This also stops at a circle, which is damage.
            if !met.insert((at, from, to)) {
                continue;
            }
            let root = self.root;
            at_time::each_state(self.store, at, from, to, &mut |inode, from, to| {
                if (at, inode.incarnation) == root {
                    found.push((from, to));
                } else if at != InodeNo::ROOT && inode.is_directory() && inode.parent != InodeNo::NONE {
                    left.push((inode.parent, from, to));
                }
                true
            })?;
        }
        found.sort_unstable();
        let mut spans: Vec<(EventNo, EventNo)> = Vec::new();
        for (from, to) in found {
            match spans.last_mut().filter(|(_, end)| *end >= from) {
                Some((_, end)) => *end = to.max(*end),
                None => spans.push((from, to)),
            }
        }
        if self.spans.len() >= SPANS_MOST {
            self.spans.clear();
        }
        let spans: Spans = spans.into();
        self.spans.insert(directory, spans.clone());
        Ok(spans)
    }
}
