//! Damages of annals: their rows, and the keys of their indexes.

use super::common::past::*;
use super::past_damage::*;
use super::*;

/// Of the volume with annals.
pub(super) const ANNALS: &[Plant] = &[
    ("the superblock does not know of annals", &[Feature], |b| {
        superblock(b, |sb| sb.features -= WriteFeatures::ANNALS);
        // Short rows of events are damage without annals.
        for tree in [HistoryTree::Events, HistoryTree::Forgotten] {
            let events: Vec<(u64, EventRow)> =
                b.past.events.iter().map(|(n, row)| (*n, row.clone())).collect();
            let long = move |cells: &mut Vec<Cell>| {
                for (key, value) in cells {
                    let number = u64::from_be_bytes(key[..].try_into().unwrap());
                    let (_, row) = events.iter().find(|(n, _)| *n == number).unwrap();
                    *value = row.encode();
                }
            };
            b.past.on_cells.push((tree, Box::new(long)));
        }
    }),
    ("a short event on a volume without annals", &[CellDamaged, Feature], |b| {
        superblock(b, |sb| sb.features -= WriteFeatures::ANNALS)
    }),
    ("a row is in the tree of another shard", &[AnnalsRow], |b| {
        let (shard, key, row) = b.past.rows().into_iter().find(|(.., row)| row.inode.0 == LONG).unwrap();
        assert_ne!(shard, HISTORY_SHARDS - 1);
        let cell = (key.encode().to_vec(), row.encode().to_vec());
        let gone = cell.clone();
        b.past
            .on_cells
            .push((HistoryTree::Annals(shard), Box::new(move |cells| cells.retain(|c| *c != gone))));
        let to = HistoryTree::Annals(HISTORY_SHARDS - 1);
        b.past.on_cells.push((to, Box::new(move |cells| cells.push(cell.clone()))));
        on_roots(b, |block| {
            let to = AnnalsKey { end: EventNo(9), sequence: 0 };
            HistoryRoots::set_watermark(block, HISTORY_SHARDS - 1, to);
        });
    }),
    ("a row cannot be", &[CellDamaged], |b| on_cells(b, annals_of(LONG), |cells| cells[0].1[0] = 0)),
    ("a watermark is further than what was recorded", &[Watermark], |b| {
        on_roots(b, |block| {
            let to = AnnalsKey { end: EventNo(10), sequence: 0 };
            HistoryRoots::set_watermark(block, version_shard(InodeNo(LONG)), to);
        })
    }),
    ("rows behind a watermark have keys", &[InodeIndex, NameIndex], |b| {
        on_roots(b, |block| {
            for shard in 0..HISTORY_SHARDS {
                HistoryRoots::set_watermark(block, shard, AnnalsKey { end: EventNo(4), sequence: 0 });
            }
        })
    }),
    ("a state has no key", &[InodeIndex], |b| {
        on_cells(b, HistoryTree::InodeIndex, |cells| drop(cells.remove(2)))
    }),
    ("no state has a key", &[InodeIndex], |b| on_cells(b, HistoryTree::InodeIndex, Vec::clear)),
    ("a key leads to no state", &[InodeIndex], |b| {
        on_cells(b, HistoryTree::InodeIndex, |cells| {
            let (inode, end, born) = (InodeNo(LONG), EventNo(9), EventNo(7));
            let cell = InodeIndexCell { inode, end, born, sequence: 0 };
            cells.push((InodeIndexCell::key(inode, end).to_vec(), cell.value().to_vec()));
        })
    }),
    ("a key leads to another row", &[InodeIndex], |b| {
        on_cells(b, HistoryTree::InodeIndex, |cells| *cells[0].1.last_mut().unwrap() += 1)
    }),
    ("a key cannot be", &[CellDamaged], |b| on_cells(b, HistoryTree::InodeIndex, |cells| cells[0].1.push(0))),
    ("a name has no key", &[NameIndex], |b| {
        on_cells(b, HistoryTree::NameIndex, |cells| drop(cells.remove(0)))
    }),
    ("a key of a name says another birth", &[NameIndex], |b| {
        on_cells(b, HistoryTree::NameIndex, |cells| cells[0].1[0] -= 1)
    }),
    ("something ended since the annals began and is not there", &[AnnalsBegin], |b| {
        on_roots(b, |block| {
            let counts = HistoryRoots::annals_counts(block);
            HistoryRoots::set_annals_counts(block, AnnalsCounts { annals_from: EventNo(4), ..counts });
        })
    }),
    ("references are counted wrong", &[HistorySpace], |b| {
        on_roots(b, |block| {
            let counts = HistoryRoots::annals_counts(block);
            let references = counts.references + 1;
            HistoryRoots::set_annals_counts(block, AnnalsCounts { references, ..counts });
        })
    }),
    ("a name of the annals began before the one of an old tree ended", &[PastNameOrder], |b| {
        let cookie = b.past.names[1].cookie;
        b.past.names[1] = NameModel { cookie, ..past_name(DIRECTORY, "gone", (3, 6), (GONE, 60)) };
    }),
    ("a state of the annals is of another type", &[BlockWrong, VersionKind], |b| {
        b.past.versions.get_mut(&(LONG, 1)).unwrap().inode.mode = FILE;
    }),
    ("a node of the annals is another's", &[BlockWrong], |b| {
        on_root(b, annals_of(LONG), |n| BlockHeader::of_mut(n).owner = 2.into())
    }),
];

fn on_roots_with(b: &mut Builder, change: impl Fn(&mut Block) + 'static) {
    b.on_block.push((b.sb.history_root, Box::new(change)));
}

/// Gives the volume a hint in free blocks.
fn hint(b: &mut Builder, change: fn(&mut SpanHint)) -> BlockNo {
    let start = b.data(1);
    b.used.pop();
    let span = HintSpan { root: InodeNo::ROOT, from: EventNo(2), to: EventNo(4) };
    let mut hint = SpanHint {
        uuid: UUID,
        generation: GENERATION,
        mount_id: b.sb.mount_id,
        versions: 3,
        sharing: vec![(InodeNo(LONG), Incarnation(1))],
        sums: vec![HintSum { spans: vec![span], data: 1, nodes: 0 }],
    };
    change(&mut hint);
    let bytes = hint.encode().unwrap();
    b.after.push(Box::new(move |device| write(device, start.0, bytes[..].try_into().unwrap())));
    on_roots_with(b, move |block: &mut Block| {
        let counts = HistoryRoots::annals_counts(block);
        let hint = Some(HintPlace { start, blocks: 1, generation: GENERATION });
        HistoryRoots::set_annals_counts(block, AnnalsCounts { hint, ..counts });
    });
    start
}

/// Changes the bytes of a hint that was right.
fn on_hint(b: &mut Builder, change: fn(&mut Block)) {
    let start = hint(b, |_| ());
    b.after.push(Box::new(move |device| {
        let mut block = read(device, start.0);
        change(&mut block);
        write(device, start.0, &block);
    }));
}

/// Of the hint of what snapshots hold.
pub(super) const HINTS: &[Plant] = &[
    ("a hint is right", &[], |b| {
        hint(b, |_| ());
    }),
    ("a hint was withdrawn", &[], |b| on_hint(b, |block| block.fill(0))),
    ("a hint is of another mount", &[], |b| {
        hint(b, |hint| hint.mount_id -= 1);
    }),
    ("a hint was left by an earlier generation", &[], |b| {
        on_hint(b, |block| block[100] ^= 1);
        superblock(b, |sb| sb.generation = Generation(GENERATION.0 + 1));
    }),
    ("a hint was left by a volume that is in use", &[], |b| {
        on_hint(b, |block| block[100] ^= 1);
        superblock(b, |sb| sb.state = VolumeState::InUse);
    }),
    ("a hint is damaged", &[Hint], |b| on_hint(b, |block| block[64] ^= 1)),
    ("a hint is something else", &[Hint], |b| on_hint(b, |block| block.fill(7))),
    ("a hint is another volume's", &[Hint], |b| {
        hint(b, |hint| hint.uuid[0] ^= 1);
    }),
    ("a hint has more references than there are", &[Hint], |b| {
        hint(b, |hint| hint.sums[0].data = 1 << 20);
    }),
    ("a hint has more nodes than there are", &[Hint], |b| {
        hint(b, |hint| hint.sums[0].nodes = 1 << 20);
    }),
    ("a hint has numbers that were not given yet", &[Hint], |b| {
        hint(b, |hint| hint.sums[0].spans[0].to = EventNo(1000));
    }),
    ("a hint has incarnations that were not given yet", &[Hint], |b| {
        hint(b, |hint| hint.sharing[0].1 = Incarnation(1000));
    }),
    ("a hint is where no data can be", &[Hint], |b| {
        hint(b, |_| ());
        on_roots(b, |block| {
            let counts = HistoryRoots::annals_counts(block);
            let hint = Some(HintPlace { start: BlockNo(1), blocks: 1, generation: GENERATION });
            HistoryRoots::set_annals_counts(block, AnnalsCounts { hint, ..counts });
        });
    }),
    ("a hint is in blocks that somebody has", &[Hint], |b| {
        let start = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0].1.start;
        hint(b, |_| ());
        on_roots_with(b, move |block: &mut Block| {
            let counts = HistoryRoots::annals_counts(block);
            let hint = Some(HintPlace { start, blocks: 1, generation: GENERATION });
            HistoryRoots::set_annals_counts(block, AnnalsCounts { hint, ..counts });
        });
    }),
];

/// The rows about an inode.
fn annals_of(inode: u64) -> HistoryTree {
    HistoryTree::Annals(version_shard(InodeNo(inode)))
}
