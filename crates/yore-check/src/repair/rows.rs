//! Rows of the past that contradict each other or the present.
//!
//! A finding about the past says which row cannot be right, where it is one. Such a row is put right if what
//! it should say follows from the rest (a count, the state of an event, the shard). Otherwise it is given up,
//! and with it what only it has; the present never is. Of rows that contradict each other one is given up in
//! a round, for without it the others may be right: of versions the older one, of names the one that was met
//! later, and always the past one where the other is in use. A version that says the same as the inode in use
//! is no contradiction: the inode in use begins where it ends.
//!
//! What is given up is named by the path that it had and the time until which it was so: `path@time`.

use super::past::Rows;
use super::round::{number, numbers, Edit, Edits, Guide, Loss, Once, Place, Places, Round};
use crate::finding::PastRow;
use crate::{CheckError, Finding, Problem};
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{
    key_parts, name_shard, version_shard, AnnalsKey, AnnalsRow, EventNo, EventRow, EventState, Features,
    HistoryRoots, HistoryTree, InodeFlags, InodeNo, PastName, Timestamp, Version, WriteFeatures,
    HISTORY_SHARDS,
};

/// No number from here on is believed.
const NUMBER_MAX: u64 = 1 << 48;
/// Bytes of the name of an event.
const EVENT_NAME_MAX: usize = 255;
/// Steps up to the root that are believed.
const DEPTH_MAX: usize = 4096;

const GIVEN_UP: &str = "the row of the past is given up, and named";
const PUT_RIGHT: &str = "what the past says of the file is set to what it holds";

/// Key and value of a cell.
type Cell = (Vec<u8>, Vec<u8>);

impl Round<'_> {
    /// Puts the row right that a finding is about, or gives it up, when the round is over. Returns what is
    /// done about it; nothing if another rule is to help.
    pub(super) fn mend_row(&mut self, finding: &Finding) -> Option<&'static str> {
        let row = finding.row.clone()?;
        let problem = finding.problem;
        match &row {
            PastRow::Version { .. } if self.has_not_ended(finding) => None,
            PastRow::Version { inode, .. } => {
                let mut edit = Edit::default();
                match problem {
                    Problem::FutureGeneration
                    | Problem::FutureNumber
                    | Problem::FutureIncarnation
                    | Problem::Feature
                    | Problem::SharedCount => return None,
                    Problem::InodeBlocks => edit.blocks = number(&finding.expected),
                    Problem::InodeSize => {
                        edit.size = numbers(&finding.expected).next().or(number(&finding.expected))
                    }
                    Problem::DeviceNumber => edit.is_no_device = true,
                    Problem::ChosenFlags => edit.is_not_chosen = true,
                    Problem::XattrFlags => {
                        let bits = number(&finding.expected).and_then(|bits| u32::try_from(bits).ok());
                        edit.flags = bits.and_then(InodeFlags::from_bits);
                    }
                    _ => edit.is_dropped = true,
                }
                let is_of_two = matches!(
                    problem,
                    Problem::VersionGap
                        | Problem::VersionOrder
                        | Problem::VersionKind
                        | Problem::SpaceOwnedTwice
                        | Problem::BlockReachedTwice
                );
                if is_of_two && !self.is_first(Once::PastOf(*inode, 0)) {
                    return None;
                }
                let is_dropped = edit.is_dropped;
                self.edits.entry(row).or_default().add(edit);
                Some(if is_dropped { GIVEN_UP } else { PUT_RIGHT })
            }
            PastRow::Name { directory, cookie, .. } => {
                let is_it = matches!(problem, Problem::EntryKey | Problem::PastNameOrder);
                if !is_it || !self.is_first(Once::PastOf(*directory, *cookie)) {
                    return None;
                }
                self.edits.entry(row).or_default().is_dropped = true;
                Some(GIVEN_UP)
            }
            PastRow::Event { number, .. } => {
                let mut edit = Edit::default();
                match problem {
                    Problem::EventNumber if (1..NUMBER_MAX).contains(&number.0) => {
                        let next = &mut self.volume.sb.next_number;
                        *next = EventNo(next.0.max(number.0 + 1));
                        return Some("the number to give next is raised");
                    }
                    Problem::EventState => edit.is_of_tree = true,
                    Problem::EventName => edit.is_renamed = true,
                    Problem::EventNumber
                    | Problem::EventTwice
                    | Problem::RollbackEvent
                    | Problem::RollbackRoot => edit.is_dropped = true,
                    _ => return None,
                }
                self.edits.entry(row).or_default().add(edit);
                Some("the event is put right, or removed and named")
            }
        }
    }

    /// Whether a version and the inode in use are one state, of which the version says that it has ended.
    fn has_not_ended(&self, finding: &Finding) -> bool {
        let Some(PastRow::Version { inode, end, .. }) = &finding.row else { return false };
        finding.problem == Problem::VersionOrder
            && finding.is_tolerated()
            && finding.addr == Some(inode.addr())
            && *end < self.volume.sb.next_number
    }

    /// Ends a state that a crash has left between the row that keeps it and the change of the present for
    /// which the row was made: the inode in use begins where the version ends. Were the row given up instead,
    /// a snapshot that has seen the state would show what the repair changes in the present, such as a lower
    /// count of links. Other versions wait for the end of the round.
    pub(super) fn end_version(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        match &finding.row {
            Some(PastRow::Version { inode, end, .. }) if self.has_not_ended(finding) => {
                self.change_inode(*inode, |in_use| in_use.born = *end)
            }
            _ => Ok(false),
        }
    }

    /// Those rows are put right when the round is over.
    pub(super) fn wait_for_rows(&mut self, _: &Finding) -> Result<bool, CheckError> {
        Ok(false)
    }

    /// Carries out what is to be done about rows. True if anything changed.
    pub(super) fn edit_rows(&mut self) -> Result<bool, CheckError> {
        let edits = Edits::new(std::mem::take(&mut self.edits));
        if edits.rows.is_empty() {
            return Ok(false);
        }
        let is_of = |kind: fn(&PastRow) -> bool| edits.rows.keys().any(kind);
        let of_events = is_of(|row| matches!(row, PastRow::Event { .. }));
        let of_versions = is_of(|row| matches!(row, PastRow::Version { .. }));
        let of_names = is_of(|row| matches!(row, PastRow::Name { .. }));
        let mut changed = false;
        for tree in HistoryTree::all() {
            let is_concerned = match tree {
                HistoryTree::Events | HistoryTree::Forgotten => of_events,
                HistoryTree::Versions(_) => of_versions,
                HistoryTree::Names(_) => of_names,
                HistoryTree::Annals(_) => of_versions || of_names,
                _ => false,
            };
            let Some(rows) = (if is_concerned { self.whole_rows(tree)? } else { None }) else { continue };
            let (mut cells, mut is_other) = (BTreeMap::new(), false);
            for (key, value) in rows.cells {
                let new = self.edited(tree, &key, &value, &edits)?;
                is_other |= new.as_ref() != Some(&value);
                cells.extend(new.map(|value| (key, value)));
            }
            changed |= is_other && self.set_rows(tree, cells)?;
        }
        Ok(changed)
    }

    /// The rows of a tree, if all of them can be read.
    fn whole_rows(&mut self, tree: HistoryTree) -> Result<Option<Rows>, CheckError> {
        let Some(roots) = self.roots()? else { return Ok(None) };
        let (root, level) = HistoryRoots::get(&roots, tree);
        if root.is_none() {
            return Ok(Some(Rows::default()));
        }
        let rows = self.rows_of(tree, root, level)?;
        Ok(Some(rows).filter(Rows::is_whole))
    }

    /// Makes a tree of the past one of these cells.
    fn set_rows(&mut self, tree: HistoryTree, cells: BTreeMap<Vec<u8>, Vec<u8>>) -> Result<bool, CheckError> {
        let near = self.volume.sb.history_root.zone();
        let Some(made) = self.volume.write_past_tree(tree, near, cells)? else { return Ok(false) };
        let Some(mut roots) = self.roots()? else { return Ok(false) };
        HistoryRoots::set(&mut roots, tree, made.root, made.level);
        Ok(self.volume.put(self.volume.sb.history_root, roots))
    }

    fn features(&self) -> Features {
        match self.volume.sb.features.contains(WriteFeatures::ANNALS) {
            true => Features::ANNALS,
            false => Features::empty(),
        }
    }

    /// A row as it is to be; `None` if it is given up.
    fn edited(
        &mut self,
        tree: HistoryTree,
        key: &[u8],
        value: &[u8],
        edits: &Edits,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        let same = || Ok(Some(value.to_vec()));
        match tree {
            HistoryTree::Events | HistoryTree::Forgotten => {
                let Ok([number]) = key_parts(key) else { return same() };
                let is_forgotten = tree == HistoryTree::Forgotten;
                let number = EventNo(number);
                let Some(edit) = edits.rows.get(&PastRow::Event { number, is_forgotten }) else {
                    return same();
                };
                let Ok(event) = EventRow::decode_with(value, self.features()) else { return same() };
                self.edited_event(number, event, is_forgotten, edit)
            }
            HistoryTree::Versions(_) => {
                let Ok([inode, born]) = key_parts(key) else { return same() };
                let (inode, born) = (InodeNo(inode), EventNo(born));
                let Ok(mut version) = Version::decode(inode, born, value) else { return same() };
                let row = PastRow::Version { inode, born, end: version.end };
                let Some(edit) = edits.rows.get(&row) else { return same() };
                if edit.is_dropped {
                    self.lose_row(&row)?;
                    return Ok(None);
                }
                edit.put_into(&mut version.inode);
                Ok(Some(version.encode()))
            }
            HistoryTree::Names(_) => {
                let Ok([directory, cookie, birth]) = key_parts(key) else { return same() };
                let Ok(past) = PastName::decode(EventNo(birth), value) else { return same() };
                let of = (InodeNo(directory), EventNo(birth), past.death);
                match edits.dropped_name(of, cookie, past.entry.name) {
                    Some(row) => self.lose_row(&row).map(|()| None),
                    None => same(),
                }
            }
            HistoryTree::Annals(_) => {
                let seed = self.volume.sb.hash_seed;
                let Ok(at) = AnnalsKey::decode(key) else { return same() };
                let Ok(row) = AnnalsRow::decode(at.end, value, &seed) else { return same() };
                self.edited_annals(row, value, edits)
            }
            _ => same(),
        }
    }

    fn edited_annals(
        &mut self,
        mut row: AnnalsRow<'_>,
        value: &[u8],
        edits: &Edits,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        let mut is_other = false;
        if let Some(version) = &row.version {
            let of = PastRow::Version { inode: row.inode, born: version.born, end: row.end };
            match edits.rows.get(&of) {
                Some(edit) if edit.is_dropped => {
                    self.lose_row(&of)?;
                    // A name that was reclaimed stood for the place of the version alone.
                    row.name = row.name.filter(|_| !row.name_is_reclaimed);
                    (row.version, row.name_is_reclaimed, is_other) = (None, false, true);
                }
                Some(edit) => {
                    let mut inode = version.clone().into_owned();
                    edit.put_into(&mut inode);
                    (row.version, is_other) = (Some(std::borrow::Cow::Owned(inode)), true);
                }
                None => {}
            }
        }
        let name = row.name.as_ref().filter(|_| !row.name_is_reclaimed);
        let dropped = name.and_then(|name| {
            edits.dropped_name((name.directory, name.birth, row.end), name.cookie, name.name)
        });
        if let Some(of) = dropped {
            self.lose_row(&of)?;
            (row.name, is_other) = (None, true);
        }
        if row.version.is_none() && row.name.is_none() {
            return Ok(None);
        }
        Ok(Some(if is_other { row.encode().to_vec() } else { value.to_vec() }))
    }

    fn edited_event(
        &mut self,
        number: EventNo,
        mut event: EventRow,
        is_forgotten: bool,
        edit: &Edit,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        let is_work = event.kind.is_work();
        let row = PastRow::Event { number, is_forgotten };
        if edit.is_dropped || (edit.is_of_tree && is_work) {
            let what = match is_work {
                true => {
                    "an expunge or a rollback of it that was under way is given up: what it has done stays"
                }
                false => "an event cannot be, and is removed",
            };
            let path = self.named_event(event.root, number, &event)?;
            self.lose_with(row.clone(), path, what.into());
            return Ok(None);
        }
        if edit.is_of_tree {
            event.state = if is_forgotten { EventState::Forgotten } else { EventState::Dying };
            if !is_forgotten {
                let path = self.named_event(event.root, number, &event)?;
                let what =
                    "it was said to be forgotten, and is: what only it has seen goes with the next mount";
                self.lose_with(row.clone(), path, what.into());
            }
        }
        if edit.is_renamed {
            let path = self.named_event(event.root, number, &event)?;
            let name = format!("{}-{number}", event.name);
            let what = match name.len() <= EVENT_NAME_MAX {
                true => {
                    format!("another snapshot has the name {:?}: this one is called {name:?} now", event.name)
                }
                false => format!("another snapshot has the name {:?}: this one has none now", event.name),
            };
            event.name = if name.len() <= EVENT_NAME_MAX { name } else { String::new() };
            self.lose_with(row.clone(), path, what);
        }
        if let Some(time) = edit.time {
            let path = self.named_event(event.root, number, &event)?;
            event.time = time;
            let what =
                format!("its time cannot be; it is now one between those around it: {}", text_of(time));
            self.lose_with(row.clone(), path, what);
        }
        Ok(Some(event.encode_with(self.features())))
    }

    /// Gives events times that ascend. As many as can be keep theirs.
    pub(super) fn mend_event_times(&mut self, _: &Finding) -> Result<bool, CheckError> {
        if !self.is_first(Once::EventTimes) {
            return Ok(!self.edits.is_empty());
        }
        let mut events: Vec<(EventNo, bool, Timestamp)> = Vec::new();
        for tree in [HistoryTree::Events, HistoryTree::Forgotten] {
            let Some(rows) = self.whole_rows(tree)? else { return Ok(false) };
            for (key, value) in &rows.cells {
                if let (Ok([number]), Ok(event)) =
                    (key_parts(key), EventRow::decode_with(value, self.features()))
                {
                    events.push((EventNo(number), tree == HistoryTree::Forgotten, event.time));
                }
            }
        }
        events.sort_unstable();
        events.dedup_by_key(|(number, ..)| *number);
        let kept = ascending(&events.iter().map(|(.., time)| *time).collect::<Vec<_>>());
        let mut before: Option<Timestamp> = None;
        for (i, (number, is_forgotten, time)) in events.into_iter().enumerate() {
            let last = before;
            let new = match last {
                _ if kept.contains(&i) => time,
                Some(before) => after(before),
                // The first one of those that are kept has an earlier one yet.
                None => Timestamp { seconds: i64::MIN / 4, nanos: 0 },
            };
            if new != time {
                let row = PastRow::Event { number, is_forgotten };
                self.edits.entry(row).or_default().time = Some(new);
            }
            before = Some(new);
        }
        Ok(!self.edits.is_empty())
    }

    /// Gives up what says that the history of a file is being expunged, for the file uses older things.
    pub(super) fn give_up_expunge(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(rows) = self.whole_rows(HistoryTree::Events)? else { return Ok(false) };
        let mut found = false;
        for (key, value) in &rows.cells {
            let event = EventRow::decode_with(value, self.features());
            if let (Ok([number]), Ok(event)) = (key_parts(key), event) {
                if event.kind == yore_format::EventKind::Expunge && Some(event.root) == finding.inode {
                    let row = PastRow::Event { number: EventNo(number), is_forgotten: false };
                    self.edits.entry(row).or_default().is_dropped = true;
                    found = true;
                }
            }
        }
        Ok(found)
    }

    /// Sets the begin of the annals behind what is in an old tree.
    pub(super) fn begin_annals_later(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let (Some(end), Some(mut roots)) = (number(&finding.found), self.roots()?) else { return Ok(false) };
        let mut counts = HistoryRoots::annals_counts(&roots);
        if end >= self.volume.sb.next_number.0 {
            return Ok(false);
        }
        counts.annals_from = EventNo(counts.annals_from.0.max(end + 1));
        HistoryRoots::set_annals_counts(&mut roots, counts);
        Ok(self.volume.put(self.volume.sb.history_root, roots))
    }

    /// Moves rows to the trees of their shards.
    pub(super) fn move_rows(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        if finding.problem == Problem::AnnalsRow {
            let end = numbers(&finding.found).last().filter(|end| *end < NUMBER_MAX);
            let next = &mut self.volume.sb.next_number;
            *next = EventNo(next.0.max(end.unwrap_or(0)));
        }
        if !self.is_first(Once::Shards) {
            return Ok(true);
        }
        let mut changed = self.volume.is_superblock_changed();
        for kind in [HistoryTree::Versions, HistoryTree::Names, HistoryTree::Annals] {
            changed |= self.move_rows_of(kind)?;
        }
        Ok(self.new_indexes(|tree| matches!(tree, HistoryTree::Changes(_)))? | changed)
    }

    fn move_rows_of(&mut self, kind: fn(usize) -> HistoryTree) -> Result<bool, CheckError> {
        let seed = self.volume.sb.hash_seed;
        let mut kept: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = Vec::new();
        let mut moved: Vec<(usize, Cell)> = Vec::new();
        let mut changed: BTreeSet<usize> = BTreeSet::new();
        for shard in 0..HISTORY_SHARDS {
            let Some(rows) = self.whole_rows(kind(shard))? else { return Ok(false) };
            let mut own = BTreeMap::new();
            for (key, value) in rows.cells {
                let right = match kind(shard) {
                    HistoryTree::Versions(_) => key_parts(&key).ok().map(|[n, _]| version_shard(InodeNo(n))),
                    HistoryTree::Names(_) => key_parts(&key).ok().map(|[n, _, _]| name_shard(InodeNo(n))),
                    _ => AnnalsKey::decode(&key)
                        .and_then(|key| AnnalsRow::decode(key.end, &value, &seed))
                        .ok()
                        .map(|row| version_shard(row.inode)),
                };
                match right.filter(|right| *right != shard) {
                    Some(right) => moved.push((right, (key, value))),
                    None => drop(own.insert(key, value)),
                }
                changed.extend(right.filter(|right| *right != shard).into_iter().flat_map(|to| [shard, to]));
            }
            kept.push(own);
        }
        for (to, (key, value)) in moved {
            let own = &mut kept[to];
            let mut free = key;
            while own.contains_key(&free) {
                // In the annals the sequence is free to choose; elsewhere the key says it all.
                let Ok(at) = AnnalsKey::decode(&free) else { break };
                let Some(sequence) = at.sequence.checked_add(1) else { break };
                free = AnnalsKey { sequence, ..at }.encode().to_vec();
            }
            if own.contains_key(&free) {
                let what =
                    "a row was in the tree of another shard, and a row is in its place: it is given up";
                self.lost.push(Loss { path: "the past".into(), what: what.into(), unnamed: None });
                continue;
            }
            own.insert(free, value);
        }
        let mut is_other = false;
        for (shard, cells) in kept.into_iter().enumerate() {
            if changed.contains(&shard) {
                is_other |= self.set_rows(kind(shard), cells)?;
            }
        }
        Ok(is_other)
    }

    /// Says that a row was given up.
    fn lose_row(&mut self, row: &PastRow) -> Result<(), CheckError> {
        let (path, what) = match row {
            PastRow::Version { inode, born, end } => {
                let path = self.past_path(*inode, *born)?;
                (self.at_time(path, *born, *end)?, "this state of it contradicts others, and is given up")
            }
            PastRow::Name { directory, birth, death, name, .. } => {
                let above = self.past_path(*directory, *birth)?;
                let separator = if above.ends_with('/') { "" } else { "/" };
                let path = format!("{above}{separator}{}", String::from_utf8_lossy(name));
                (self.at_time(path, *birth, *death)?, "this name contradicts others, and is given up")
            }
            PastRow::Event { number, .. } => (format!("event {number}"), "it is given up"),
        };
        self.lose_with(row.clone(), path, what.into());
        Ok(())
    }

    fn lose_with(&mut self, row: PastRow, path: String, what: String) {
        let lost = Loss { path, what, unnamed: None };
        self.lost_rows.entry(row).or_default().push(lost.clone());
        if self.said.insert((lost.path.clone(), lost.what.clone())) {
            self.lost.push(lost);
        }
    }

    /// An event as users call it: the path of what it is of, and its name or time.
    fn named_event(
        &mut self,
        root: InodeNo,
        number: EventNo,
        event: &EventRow,
    ) -> Result<String, CheckError> {
        let path = self.past_path(root, number)?;
        let is_named = !event.name.is_empty() && !event.kind.is_work();
        Ok(format!("{path}@{}", if is_named { event.name.clone() } else { text_of(event.time) }))
    }

    /// A path as of the last event that is kept and has seen what was so from `born` to `end`.
    fn at_time(&mut self, path: String, born: EventNo, end: EventNo) -> Result<String, CheckError> {
        let last = match born < end {
            true => self.guide()?.times.range(born..end).next_back().map(|(_, time)| *time),
            false => None,
        };
        Ok(match last {
            Some(time) => format!("{path}@{}", text_of(time)),
            None => format!("{path}, which no snapshot has seen from event {born} to {end}"),
        })
    }

    /// The path that an inode had as of an event, as far as names tell.
    fn past_path(&mut self, inode: InodeNo, when: EventNo) -> Result<String, CheckError> {
        let (mut at, mut names) = (inode, Vec::new());
        while at != InodeNo::ROOT && names.len() < DEPTH_MAX {
            let place = self.guide()?.places.get(&at).and_then(|places| places.at(when));
            let Some(place) = place else { break };
            names.push(String::from_utf8_lossy(&place.name).into_owned());
            at = place.directory;
        }
        let mut path = self.path_of(at)?;
        for name in names.iter().rev() {
            let separator = if path.ends_with('/') { "" } else { "/" };
            path = format!("{path}{separator}{name}");
        }
        Ok(path)
    }

    /// Past names and the times of events, read when they are first needed.
    fn guide(&mut self) -> Result<&Guide, CheckError> {
        if self.guide.is_none() {
            let (mut guide, mut places) = (Guide::default(), BTreeMap::<InodeNo, Vec<Place>>::new());
            let seed = self.volume.sb.hash_seed;
            for tree in HistoryTree::all() {
                let is_needed =
                    matches!(tree, HistoryTree::Events | HistoryTree::Names(_) | HistoryTree::Annals(_));
                let Some(rows) = (if is_needed { self.whole_rows(tree)? } else { None }) else { continue };
                for (key, value) in &rows.cells {
                    match tree {
                        HistoryTree::Events => {
                            let event = EventRow::decode_with(value, self.features());
                            if let (Ok([number]), Ok(event)) = (key_parts(key), event) {
                                if event.state == EventState::Kept {
                                    guide.times.insert(EventNo(number), event.time);
                                }
                            }
                        }
                        HistoryTree::Names(_) => {
                            let Ok([directory, _, birth]) = key_parts(key) else { continue };
                            let Ok(past) = PastName::decode(EventNo(birth), value) else { continue };
                            let place = Place {
                                directory: InodeNo(directory),
                                birth: EventNo(birth),
                                death: past.death,
                                name: past.entry.name.to_vec(),
                            };
                            places.entry(past.entry.inode).or_default().push(place);
                        }
                        _ => {
                            let Ok(at) = AnnalsKey::decode(key) else { continue };
                            let Ok(row) = AnnalsRow::decode(at.end, value, &seed) else { continue };
                            let Some(name) = row.name else { continue };
                            let place = Place {
                                directory: name.directory,
                                birth: name.birth,
                                death: row.end,
                                name: name.name.to_vec(),
                            };
                            places.entry(row.inode).or_default().push(place);
                        }
                    }
                }
            }
            guide.places = places.into_iter().map(|(inode, all)| (inode, Places::new(all))).collect();
            self.guide = Some(guide);
        }
        Ok(self.guide.get_or_insert_with(Guide::default))
    }
}

/// The instant after this one.
fn after(time: Timestamp) -> Timestamp {
    match time.nanos {
        nanos if nanos < 999_999_999 => Timestamp { seconds: time.seconds, nanos: nanos + 1 },
        _ => Timestamp { seconds: time.seconds.saturating_add(1), nanos: 0 },
    }
}

/// A longest run of the times that ascend, by their places, with room between them for those that do not.
fn ascending(times: &[Timestamp]) -> BTreeSet<usize> {
    // In nanoseconds less the place: where that does not descend, so many instants lie between.
    let keys: Vec<i128> = (0..)
        .zip(times)
        .map(|(i, time)| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos) - i)
        .collect();
    let (mut tails, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    for (i, key) in keys.iter().enumerate() {
        let at = tails.partition_point(|tail| keys[*tail] <= *key);
        before.push(at.checked_sub(1).map(|at| tails[at]));
        match tails.get_mut(at) {
            Some(tail) => *tail = i,
            None => tails.push(i),
        }
    }
    let mut kept = BTreeSet::new();
    let mut at = tails.last().copied();
    while let Some(i) = at {
        kept.insert(i);
        at = before[i];
    }
    kept
}

/// A time as users type it, in UTC and to the second.
fn text_of(time: Timestamp) -> String {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    // Days since 0000-03-01: the day that leap years put in is the last of its year then.
    let days = i128::from(days) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i128::from(month <= 2);
    if !(0..=9999).contains(&year) {
        return format!("@{}", time.seconds);
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises the form that is read as the end of that very second.
    #[test]
    fn times_are_told_as_they_are_typed() {
        let text = |seconds| text_of(Timestamp { seconds, nanos: 5 });
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(text(1_795_702_830), "2026-11-26T14:20:30Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59Z");
        assert_eq!(text(i64::MAX), format!("@{}", i64::MAX));
    }

    /// Promises that the time that is wrong gives way, and not the many that are right.
    #[test]
    fn as_many_times_as_can_be_are_kept() {
        let times = |seconds: &[i64]| -> Vec<usize> {
            let all: Vec<Timestamp> = seconds.iter().map(|s| Timestamp { seconds: *s, nanos: 0 }).collect();
            ascending(&all).into_iter().collect()
        };
        assert_eq!(times(&[1, 2, 99, 3, 4]), [0, 1, 3, 4]);
        assert_eq!(times(&[5, 6, 1, 7]), [0, 1, 3]);
        assert_eq!(times(&[3, 3]).len(), 1);
        assert_eq!(times(&[]), []);
    }
}
