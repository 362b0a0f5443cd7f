//! A volume with a past. It has events, versions that share blocks and nodes with each other and with the
//! inode in use, inodes that are gone, a number that was used again, and names that meant something else.
//!
//! When the volume is written, the indexes of events and of changes are made from the model, and each event
//! is entered into the tree of its state. A test can change each tree's cells before they are written.

use super::*;
use std::borrow::Cow;

/// Key and value.
pub type Cell = (Vec<u8>, Vec<u8>);

/// A past name: directory, cookie, birth, and the value.
#[derive(Clone)]
pub struct NameModel {
    pub directory: u64,
    pub cookie: u64,
    pub birth: u64,
    pub value: Vec<u8>,
}

impl NameModel {
    /// When it ended.
    fn death(&self) -> EventNo {
        EventNo(u64::from_le_bytes(self.value[..8].try_into().unwrap()))
    }

    /// The cell in the tree of changes for its end.
    pub fn end(&self) -> Cell {
        (name_end_key(self.death(), InodeNo(self.directory), self.cookie).to_vec(), vec![])
    }
}

#[derive(Default)]
pub struct PastModel {
    /// By number, forgotten ones included.
    pub events: BTreeMap<u64, EventRow>,
    /// By inode and birth.
    pub versions: BTreeMap<(u64, u64), Version>,
    pub names: Vec<NameModel>,
    /// By inode.
    pub policies: BTreeMap<u64, PolicyRow>,
    /// What ended at this number or later is in annals; 0: nothing is.
    pub annals_from: u64,
    /// The names of rows that have a version, too, are reclaimed.
    pub reclaimed: bool,
    /// Rows have no keys yet.
    pub unindexed: bool,
    /// Data blocks and nodes that only versions name.
    pub held: (i64, i64),
    /// These change the cells of a tree.
    pub on_cells: Vec<(HistoryTree, Hook<Vec<Cell>>)>,
    /// These change the root node of a tree before it is sealed.
    pub on_root: Vec<(HistoryTree, Hook<Block>)>,
}

/// A file that has changed three times.
pub const VERSIONED: u64 = 30;
/// A number in use whose former incarnations have versions.
pub const REUSED: u64 = FAR + 1;
/// A number whose inode block is gone.
pub const GONE: u64 = ((1 << 9 | 300) << 4) + 3;

/// A row of the annals with its shard and its key.
type Row<'a> = (usize, AnnalsKey, AnnalsRow<'a>);

/// The name of a row.
fn name_of<'a>((model, past): (&'a NameModel, PastName<'a>)) -> RowName<'a> {
    RowName {
        directory: InodeNo(model.directory),
        birth: EventNo(model.birth),
        cookie: model.cookie,
        kind: past.entry.kind,
        name: past.entry.name,
    }
}

impl PastModel {
    /// Whether what ended then is in the annals.
    fn is_row(&self, end: EventNo) -> bool {
        self.annals_from > 0 && end.0 >= self.annals_from
    }

    /// The rows of the annals: a version and a name of one inode that ended together are one.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let of_annals = self.names.iter().filter(|name| self.is_row(name.death()));
        let mut names: Vec<(&NameModel, PastName<'_>)> = of_annals
            .map(|name| (name, PastName::decode(EventNo(name.birth), &name.value).unwrap()))
            .collect();
        let mut rows: Vec<AnnalsRow<'_>> = Vec::new();
        for ((no, _), version) in self.versions.iter().filter(|(_, version)| self.is_row(version.end)) {
            let (inode, incarnation) = (InodeNo(*no), version.inode.incarnation);
            let of = |name: &PastName<'_>| (name.death, name.entry.inode, name.entry.incarnation);
            let at = names.iter().position(|(_, name)| of(name) == (version.end, inode, incarnation));
            let name = at.map(|at| name_of(names.remove(at)));
            let (end, version) = (version.end, Some(Cow::Borrowed(&version.inode)));
            let name_is_reclaimed = self.reclaimed && name.is_some();
            rows.push(AnnalsRow { end, inode, incarnation, name, name_is_reclaimed, version });
        }
        for (model, past) in names {
            let (end, inode, incarnation) = (past.death, past.entry.inode, past.entry.incarnation);
            let name = Some(name_of((model, past)));
            rows.push(AnnalsRow { end, inode, incarnation, name, name_is_reclaimed: false, version: None });
        }
        rows.sort_by_key(|row| (version_shard(row.inode), row.end, row.inode));
        let (mut keyed, mut before): (Vec<Row<'_>>, _) = (Vec::new(), (HISTORY_SHARDS, EventNo(0), 0));
        for row in rows {
            let (shard, end) = (version_shard(row.inode), row.end);
            let sequence = if (before.0, before.1) == (shard, end) { before.2 + 1 } else { 0 };
            before = (shard, end, sequence);
            keyed.push((shard, AnnalsKey { end, sequence }, row));
        }
        keyed
    }

    /// The numbers of the annals, and the watermarks: up to the last rows.
    fn fill_annals(&self, roots: &mut Block) {
        if self.annals_from == 0 {
            return;
        }
        let (from, references) = (EventNo(self.annals_from), self.held.0 as u64);
        let counts = AnnalsCounts { annals_from: from, references, ..AnnalsCounts::default() };
        HistoryRoots::set_annals_counts(roots, counts);
        let none = AnnalsKey { end: EventNo(self.annals_from - 1), sequence: u32::MAX };
        for shard in 0..HISTORY_SHARDS {
            HistoryRoots::set_watermark(roots, shard, none);
        }
        for (shard, key, _) in self.rows().into_iter().filter(|_| !self.unindexed) {
            HistoryRoots::set_watermark(roots, shard, key);
        }
    }

    /// The cells of the index by inode.
    fn by_inode(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let indexed = self.rows().into_iter().filter(|_| !self.unindexed);
        for (_, AnnalsKey { end, sequence }, row) in indexed {
            if let Some(version) = &row.version {
                let cell = InodeIndexCell { inode: row.inode, end, born: version.born, sequence };
                cells.push((InodeIndexCell::key(row.inode, end).to_vec(), cell.value().to_vec()));
            }
        }
        cells
    }

    /// The cells of the index by name.
    fn by_name(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let indexed = self.rows().into_iter().filter(|(.., row)| !self.unindexed && !row.name_is_reclaimed);
        for (shard, AnnalsKey { end: death, sequence }, row) in indexed {
            if let Some(RowName { directory, birth, cookie, .. }) = row.name {
                let cell = NameIndexCell { directory, cookie, death, birth, sequence, shard };
                cells.push((NameIndexCell::key(directory, cookie, death).to_vec(), cell.value().to_vec()));
            }
        }
        cells
    }
}

impl Builder {
    /// A leaf of an inode's tree.
    pub fn leaf(
        &mut self,
        birth: u64,
        kind: BlockKind,
        owner: (u64, u32),
        cells: &[(u64, Vec<u8>)],
    ) -> MetaAddr {
        let addr = self.address(0);
        self.node(addr, born(EventNo(birth), kind, 0, addr, (InodeNo(owner.0), owner.1)), cells);
        addr
    }

    /// A branch above leaves.
    pub fn branch(
        &mut self,
        birth: u64,
        kind: BlockKind,
        owner: (u64, u32),
        children: &[(u64, MetaAddr)],
    ) -> MetaAddr {
        let cells: Vec<(u64, Vec<u8>)> =
            children.iter().map(|(k, child)| (*k, child.0.to_le_bytes().to_vec())).collect();
        let addr = self.address(0);
        self.node(addr, born(EventNo(birth), kind, 1, addr, (InodeNo(owner.0), owner.1)), &cells);
        addr
    }

    /// Adds a version: what the inode in use is now, it was from its birth to `end`.
    pub fn add_version(&mut self, inode: u64, end: u64) {
        let mut was = self.inodes[&InodeNo(inode)].clone();
        if was.is_directory() {
            was.set_inline(b"");
        }
        self.inode(inode).born = EventNo(end);
        self.version(inode, end, was);
    }

    pub fn version(&mut self, inode: u64, end: u64, was: Inode) {
        self.past.versions.insert((inode, was.born.0), Version { end: EventNo(end), inode: was });
    }

    /// The version of an inode with this birth, to be changed.
    pub fn was(&mut self, inode: u64, born: u64) -> &mut Inode {
        &mut self.past.versions.get_mut(&(inode, born)).unwrap().inode
    }

    /// The cells of a tree of the past, as the model has them.
    fn past_cells(&self, tree: HistoryTree) -> Vec<Cell> {
        let p = &self.past;
        let events = |forgotten: bool| {
            p.events.iter().filter(move |(_, event)| (event.state == EventState::Forgotten) == forgotten)
        };
        let features = if p.annals_from > 0 { Features::ANNALS } else { Features::empty() };
        let is_old = |name: &&NameModel| !p.is_row(name.death());
        let mut cells: Vec<Cell> = match tree {
            HistoryTree::Events => {
                events(false).map(|(n, event)| event_cell_with(*n, event, features)).collect()
            }
            HistoryTree::Forgotten => {
                events(true).map(|(n, event)| event_cell_with(*n, event, features)).collect()
            }
            HistoryTree::EventIndex => events(false).flat_map(|(n, event)| event_keys(*n, event)).collect(),
            // There are none, unless a damage adds some.
            HistoryTree::Operations => Vec::new(),
            HistoryTree::Annals(shard) => {
                let of = p.rows().into_iter().filter(|(of, ..)| *of == shard);
                of.map(|(_, key, row)| (key.encode().to_vec(), row.encode().to_vec())).collect()
            }
            HistoryTree::InodeIndex => p.by_inode(),
            HistoryTree::NameIndex => p.by_name(),
            // No program writes them yet.
            HistoryTree::Spans => Vec::new(),
            HistoryTree::Policies => {
                p.policies.iter().map(|(no, row)| (policy_key(InodeNo(*no)).to_vec(), row.encode())).collect()
            }
            HistoryTree::Versions(shard) => {
                let of = p
                    .versions
                    .iter()
                    .filter(|((i, _), v)| version_shard(InodeNo(*i)) == shard && !p.is_row(v.end));
                of.map(|((i, born), v)| {
                    (version_key(InodeNo(*i), EventNo(*born)).to_vec(), v.encode().to_vec())
                })
                .collect()
            }
            HistoryTree::Names(shard) => {
                let of = p.names.iter().filter(is_old);
                let of = of.filter(|n| name_shard(InodeNo(n.directory)) == shard);
                of.map(|n| {
                    (name_key(InodeNo(n.directory), n.cookie, EventNo(n.birth)).to_vec(), n.value.clone())
                })
                .collect()
            }
            HistoryTree::Changes(shard) => {
                let of = p
                    .versions
                    .iter()
                    .filter(|((i, _), v)| version_shard(InodeNo(*i)) == shard && !p.is_row(v.end));
                let ends = of.map(|((i, _), v)| (version_end_key(v.end, InodeNo(*i)).to_vec(), vec![]));
                let names =
                    p.names.iter().filter(is_old).filter(|n| name_shard(InodeNo(n.directory)) == shard);
                ends.chain(names.map(NameModel::end)).collect()
            }
        };
        cells.sort();
        cells.dedup();
        cells
    }

    /// Makes the trees and the block of their roots.
    pub fn fill_past(&mut self) {
        if self.past.events.is_empty() {
            return;
        }
        let root = self.sb.history_root;
        let mut roots = block(BlockKind::HistoryRoots, 0, root, InodeNo::HISTORY, 0);
        let (data, nodes) = self.past.held;
        HistoryRoots::count(&mut roots, HistoryGrowth { data, references: data, nodes, trees: 1 });
        self.past.fill_annals(&mut roots);
        for tree in HistoryTree::all() {
            let mut cells = self.past_cells(tree);
            for (_, hook) in self.past.on_cells.iter().filter(|(of, _)| *of == tree) {
                hook(&mut cells);
            }
            cells.sort();
            if !cells.is_empty() {
                let (addr, level, trees) = self.past_tree(tree, &cells);
                HistoryRoots::count(&mut roots, HistoryGrowth { trees, ..HistoryGrowth::default() });
                HistoryRoots::set(&mut roots, tree, addr, level);
            }
        }
        self.zones.get_mut(&1).unwrap().blocks.insert(root.index(), roots);
    }

    /// Makes a tree of one leaf, or of several if there are three cells or more. Returns its root, its level,
    /// and how many nodes it has.
    fn past_tree(&mut self, tree: HistoryTree, cells: &[Cell]) -> (MetaAddr, u8, i64) {
        let (kind, owner, width) = (tree.kind(), tree.owner(), tree.key_width());
        let leaves = match cells.len() {
            0..3 => cells.chunks(2),
            n => cells.chunks(n.div_ceil(2).min(12)),
        };
        let mut children = vec![];
        for leaf in leaves {
            let addr = self.address(1);
            self.wide_node(addr, block(kind, 0, addr, owner, 0), width, leaf);
            children.push((leaf[0].0.clone(), addr));
        }
        let level = u8::from(children.len() > 1);
        let root = match &children[..] {
            [(_, root)] => *root,
            _ => {
                let cells: Vec<Cell> =
                    children.iter().map(|(k, child)| (k.clone(), child.0.to_le_bytes().to_vec())).collect();
                let addr = self.address(1);
                self.wide_node(addr, block(kind, 1, addr, owner, 0), width, &cells);
                addr
            }
        };
        for (_, hook) in self.past.on_root.iter().filter(|(of, _)| *of == tree) {
            hook(self.zones.get_mut(&1).unwrap().blocks.get_mut(&root.index()).unwrap());
        }
        (root, level, children.len() as i64 + i64::from(level))
    }
}

/// An event's cell in the tree of its state.
pub fn event_cell(number: u64, event: &EventRow) -> Cell {
    (number.to_be_bytes().to_vec(), event.encode())
}

fn event_cell_with(number: u64, event: &EventRow, features: Features) -> Cell {
    (number.to_be_bytes().to_vec(), event.encode_with(features))
}

fn event_keys(number: u64, event: &EventRow) -> Vec<Cell> {
    let mut keys = vec![(event_index_by_root(event.root, EventNo(number)).to_vec(), vec![])];
    if event.state == EventState::Kept && !event.name.is_empty() {
        keys.push((event_index_by_name(&SEED, &event.name, EventNo(number)).to_vec(), vec![]));
    }
    keys
}

/// A written extent with this birth.
pub fn written(start: u64, len: u32, birth: u64) -> ExtentValue {
    ExtentValue { birth: EventNo(birth), ..extent(BlockNo(start), len, false) }
}

/// A file that has these extents in its inode.
pub fn file_of(extents: &[(u64, ExtentValue)], incarnation: u32, birth: u64) -> Inode {
    let mut inode = empty_inode(FILE, 1, incarnation);
    ExtentValue::encode_inline(&mut inode, extents);
    inode.born = EventNo(birth);
    inode.blocks = extents.iter().map(|(_, e)| u64::from(e.len)).sum();
    inode.size = 4096 * extents.last().map_or(0, |(key, e)| key + u64::from(e.len));
    inode
}

pub fn event(second: i64, root: u64, incarnation: u32, name: &str) -> EventRow {
    EventRow {
        time: Timestamp { seconds: second, nanos: 5 },
        kind: EventKind::Snapshot,
        state: EventState::Kept,
        held: false,
        root: InodeNo(root),
        root_incarnation: Incarnation(incarnation),
        name: name.into(),
        more: Default::default(),
    }
}

/// The sound volume with a past, which is sound, too. The next event number is 9.
pub fn past() -> Builder {
    let mut b = sound();
    b.sb.next_number = EventNo(9);
    b.sb.history_root = b.address(1);
    let reserved = block(BlockKind::HistoryRoots, 0, b.sb.history_root, InodeNo::HISTORY, 0);
    b.zones.get_mut(&1).unwrap().blocks.insert(b.sb.history_root.index(), reserved);
    events(&mut b);
    versioned(&mut b);
    gone(&mut b);
    reused(&mut b);
    // The content is as it was; something else of the inode changed.
    b.add_version(BIG, 6);
    b.add_version(LONG, 7);
    b.add_version(ROOT, 5);
    b.add_version(DIRECTORY, 5);
    names(&mut b);
    policies(&mut b);
    b.past.held = (2 + 5 + 3 + 4 + 2, 8 + 1);
    b
}

/// The same with annals: what ended at 5 or later is in them.
pub fn annals() -> Builder {
    let mut b = past();
    b.past.annals_from = 5;
    b.sb.features |= WriteFeatures::ANNALS;
    b
}

/// Policies of a directory, of a file, and of an inode whose number another one had before.
fn policies(b: &mut Builder) {
    let rules = RetentionRules { last: 3, within: "2d".into(), ..RetentionRules::default() };
    let policies = [
        (DIRECTORY, Policy { versioning: Some(Versioning::Close), ..Policy::default() }),
        (BIG, Policy { retention: Some(Retention::Rules(rules)), ..Policy::default() }),
        (
            REUSED,
            Policy {
                versioning: Some(Versioning::Interval(1 << 40)),
                retention: Some(Retention::Everything),
                ..Policy::default()
            },
        ),
    ];
    for (no, policy) in policies {
        let incarnation = match no {
            REUSED => Incarnation(1),
            no => {
                b.inode(no).has_policy = true;
                b.inodes[&InodeNo(no)].incarnation
            }
        };
        b.past.policies.insert(no, PolicyRow { incarnation, policy, excluding_since: EventNo(0) });
    }
}

fn events(b: &mut Builder) {
    let incarnation = |n: u64| b.inodes[&InodeNo(n)].incarnation.0;
    let events = [
        (2, EventRow { held: true, ..event(10, ROOT, incarnation(ROOT), "first") }),
        // Its root is gone.
        (3, EventRow { kind: EventKind::Close, ..event(11, GONE, 60, "") }),
        (4, EventRow { kind: EventKind::Interval, ..event(20, ROOT, incarnation(ROOT), "") }),
        (5, EventRow { state: EventState::Forgotten, ..event(21, ROOT, incarnation(ROOT), "old") }),
        (6, EventRow { state: EventState::Dying, held: true, ..event(30, BIG, incarnation(BIG), "old") }),
        (7, EventRow { kind: EventKind::Undo, ..event(40, DIRECTORY, incarnation(DIRECTORY), "old") }),
        (8, EventRow { state: EventState::Forgotten, held: true, ..event(50, GONE, 60, "first") }),
    ];
    b.past.events.extend(events);
}

/// The extents of one leaf.
fn extents(of: &[(u64, ExtentValue)]) -> Vec<(u64, Vec<u8>)> {
    of.iter().map(|(key, e)| (*key, e.encode().to_vec())).collect()
}

/// A file with a tree of extents and a tree of attributes: born at 1, changed at 3, 5 and 8. Each change
/// copies the root and one leaf of what it changes.
fn versioned(b: &mut Builder) {
    let owner = (VERSIONED, 31);
    let [p0, p1, p2, p3] = [10, 5, 8, 6].map(|len| b.data(len).0);
    let (q, r) = (b.data(2).0, b.data(4).0);
    let hole = (120, extent(BlockNo(p3), 6, true));
    let kind = BlockKind::Extents;
    let low = b.leaf(1, kind, owner, &extents(&[(0, written(p0, 10, 1)), (20, written(p1, 5, 1))]));
    let high = b.leaf(1, kind, owner, &extents(&[(100, written(p2, 8, 1)), hole]));
    let first = b.branch(1, kind, owner, &[(0, low), (100, high)]);
    // Two blocks in the middle of an extent were overwritten.
    let parts = [(100, written(p2, 3, 1)), (103, written(q, 2, 3)), (105, written(p2 + 5, 3, 1)), hole];
    let high = b.leaf(3, kind, owner, &extents(&parts));
    let second = b.branch(3, kind, owner, &[(0, low), (100, high)]);
    // The extent at 20 was punched.
    let low = b.leaf(5, kind, owner, &extents(&[(0, written(p0, 10, 1))]));
    let third = b.branch(5, kind, owner, &[(0, low), (100, high)]);
    // Something was written at 30.
    let low = b.leaf(8, kind, owner, &extents(&[(0, written(p0, 10, 1)), (30, written(r, 4, 8))]));
    let last = b.branch(8, kind, owner, &[(0, low), (100, high)]);
    let attributes = |value: &[u8]| {
        let mut all: Vec<_> =
            ["one", "two", "three"].iter().flat_map(|n| attribute(XattrNamespace::User, n, value)).collect();
        all.sort();
        all
    };
    let (old, new) = (attributes(b"old"), attributes(b"new"));
    let kind = BlockKind::Xattrs;
    let (left, right) = (b.leaf(3, kind, owner, &old[..1]), b.leaf(3, kind, owner, &old[1..]));
    let xattrs = b.branch(3, kind, owner, &[(0, left), (old[1].0, right)]);
    let right = b.leaf(5, kind, owner, &new[1..]);
    let newer_xattrs = b.branch(5, kind, owner, &[(0, left), (old[1].0, right)]);
    let mut inode = empty_inode(FILE, 1, owner.1);
    inode.size = 130 * 4096;
    for (end, next, root, blocks, xattr_root) in [
        (3, 3, first, 29 + 3, MetaAddr::NONE),
        (5, 5, second, 29 + 3 + 3, xattrs),
        (8, 8, third, 24 + 3 + 3, newer_xattrs),
        (0, 0, last, 28 + 3 + 3, newer_xattrs),
    ] {
        inode.set_tree_root(root, 1);
        (inode.blocks, inode.xattr_root) = (blocks, xattr_root);
        if end > 0 {
            b.version(VERSIONED, end, inode.clone());
            inode.born = EventNo(next);
        }
    }
    b.inodes.insert(InodeNo(VERSIONED), inode);
}

/// A file that was truncated and went on elsewhere, and then was removed with its inode block.
fn gone(b: &mut Builder) {
    let (d, e) = (b.data(3).0, b.data(4).0);
    b.version(GONE, 4, file_of(&[(0, written(d, 3, 1))], 60, 1));
    b.version(GONE, 6, file_of(&[(0, written(d, 2, 1)), (5, written(e, 4, 4))], 60, 4));
}

/// A number that was a file's, then a long symbolic link's, and is now a small file's.
fn reused(b: &mut Builder) {
    let start = b.data(2).0;
    b.version(REUSED, 3, file_of(&[(0, written(start, 2, 1))], 61, 1));
    let root = b.leaf(4, BlockKind::Symlink, (REUSED, 62), &[(0, vec![b'x'; 1024]), (1, vec![b'x'; 9])]);
    let mut link = empty_inode(LINK, 1, 62);
    link.set_tree_root(root, 0);
    (link.size, link.blocks, link.born) = (1033, 1, EventNo(4));
    b.version(REUSED, 6, link);
    let mut now = empty_inode(FILE, 1, 70);
    now.set_inline(b"new");
    (now.size, now.born) = (3, EventNo(6));
    b.inodes.insert(InodeNo(REUSED), now);
}

/// A past name that is in its right place.
pub fn past_name(
    directory: u64,
    name: &str,
    (birth, death): (u64, u64),
    (inode, incarnation): (u64, u32),
) -> NameModel {
    let entry = DirEntry {
        inode: InodeNo(inode),
        incarnation: Incarnation(incarnation),
        birth: EventNo(birth),
        kind: FileKind::Regular,
        name: name.as_bytes(),
    };
    let value = PastName { death: EventNo(death), entry }.encode();
    NameModel { directory, cookie: name_cookie(&SEED, name.as_bytes()), birth, value }
}

/// The same entry with another birth.
pub fn since((cookie, mut value): (u64, Vec<u8>), birth: u64) -> (u64, Vec<u8>) {
    value[12..20].copy_from_slice(&birth.to_le_bytes());
    (cookie, value)
}

fn names(b: &mut Builder) {
    let inline = b.inodes[&InodeNo(INLINE)].incarnation.0;
    let again = past_name(DIRECTORY, "gone", (4, 6), (GONE, 60));
    b.past.names = vec![
        past_name(DIRECTORY, "gone", (1, 4), (GONE, 60)),
        // The name had another cookie then.
        NameModel { cookie: again.cookie + 1, ..again },
        past_name(DIRECTORY, "hard", (1, 3), (INLINE, inline)),
        past_name(ROOT, "reused", (1, 3), (REUSED, 61)),
    ];
    hard_since(b, 3);
    big_since(b, 1);
}

/// Gives the name `big` in the root directory this birth.
pub fn big_since(b: &mut Builder, birth: u64) {
    let mut cells = root_cells(b);
    let big = b.entry("big", BIG);
    cells.retain(|(cookie, _)| *cookie != big.0);
    cells.push(since(big, birth));
    cells.push(since(b.entry("versioned", VERSIONED), 1));
    cells.push(since(b.entry("reused", REUSED), 6));
    cells.sort();
    b.set_parents(ROOT, &cells);
    b.forget(ROOT);
    set_root(b, &[cells[..6].to_vec(), cells[6..].to_vec()]);
}

/// Gives the name `hard` in the directory this birth.
pub fn hard_since(b: &mut Builder, birth: u64) {
    let mut cells = vec![b.entry("sub", SUB), since(b.entry("hard", INLINE), birth)];
    cells.sort();
    set_directory(b, &cells);
}
