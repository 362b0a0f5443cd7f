//! Short sequences of calls, each with what was there before.

use crate::volume::Wrong;
use yore_fs::{EdgeKind, File, Node, RenameMode, Volume};

/// A call.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Create(String),
    Mkdir(String),
    Symlink(usize, String),
    Link(&'static str, &'static str),
    Unlink(String),
    Rmdir(&'static str),
    Rename(String, String),
    Exchange(&'static str, &'static str),
    /// So many blocks of this byte, from this block on, written back at once.
    Write(&'static str, u64, u64, u8),
    /// So many of this byte at the end of a file, written back at once.
    Append(&'static str, usize, u8),
    Truncate(&'static str, u64),
    /// Keeps a file in use.
    Hold(&'static str),
    /// Nothing is in use any more.
    Release,
    SetXattr(&'static str, &'static str, usize),
    RemoveXattr(&'static str, &'static str),
    /// Makes a hole of so many blocks, from this block on.
    Punch(&'static str, u64, u64),
    /// What a file has is on the medium, and so are its names.
    Fsync(&'static str),
    /// The same of a file or directory, with its times.
    FsyncAll(&'static str),
    /// Nothing is late.
    Sync,
    /// Copies all of a file over another one. Both share the blocks then.
    Copy(&'static str, &'static str),
    /// The same of a file as of the kept snapshot at this place in the order of all.
    CopyThen(usize, &'static str, &'static str),
    /// Takes a snapshot of everything.
    Snapshot(&'static str),
    /// Forgets the kept snapshot at this place in the order of all.
    Forget(usize),
    /// Gives up what only forgotten snapshots have seen.
    GiveUp,
    /// Gives rows of the past their keys.
    Index,
    /// Removes so many names, in the order of their cells.
    UnlinkFirst(&'static str, usize),
}

use Call::*;

/// A sequence.
pub(super) struct Sequence {
    pub(super) name: &'static str,
    pub(super) before: Vec<Call>,
    pub(super) calls: Vec<Call>,
}

impl Sequence {
    /// Whether snapshots are forgotten.
    pub(super) fn forgets(&self) -> bool {
        self.calls.iter().any(|call| matches!(call, Forget(_)))
    }
}

impl Call {
    /// The file that is on the medium when the call has returned.
    pub(super) fn syncs(&self) -> Option<&'static str> {
        match self {
            Write(path, ..) | Append(path, ..) | Fsync(path) | FsyncAll(path) => Some(*path),
            _ => None,
        }
    }
}

/// A name so long that a leaf has room for 14.
fn long(i: usize) -> String {
    format!("d/{i:04}{}", "n".repeat(240))
}

fn many(from: usize, to: usize) -> Vec<Call> {
    (from..to).map(|i| Create(long(i))).collect()
}

fn in_tree(mut rest: Vec<Call>) -> Vec<Call> {
    let mut before = vec![Mkdir("d".into()), Mkdir("e".into())];
    // Two names do not fit an inode.
    before.extend((0..3).map(|i| Create(format!("e/{i}{}", "m".repeat(60)))));
    before.extend(many(0, 3));
    before.append(&mut rest);
    before
}

fn pieces(file: &'static str, n: u64) -> Vec<Call> {
    more_pieces(file, 0..n)
}

fn more_pieces(file: &'static str, numbers: std::ops::Range<u64>) -> Vec<Call> {
    numbers.map(|i| Write(file, 2 * i, 1, (i % 250) as u8 + 1)).collect()
}

/// How many bytes the blocks of [`pieces`] have that [`with_end`] makes, holes included.
const END: u64 = 11 * 4096;

/// A file with a tree of extents, and bytes in a last block that is not full.
fn with_end() -> Vec<Call> {
    let mut before = vec![Create("a".into())];
    before.extend(pieces("a", 6));
    before.push(Append("a", 100, 90));
    before
}

/// Names and a file with blocks, of which there is a snapshot.
fn seen() -> Vec<Call> {
    in_tree(vec![
        Create("d/a".into()),
        Write("d/a", 0, 3, 1),
        Create("d/b".into()),
        Link("d/b", "d/l"),
        Mkdir("d/s".into()),
        Snapshot("one"),
    ])
}

/// Their first changes after that.
fn changed() -> Vec<Call> {
    vec![
        Write("d/a", 1, 1, 2),
        Rename("d/b".into(), "d/c".into()),
        Unlink("d/l".into()),
        Create("d/n".into()),
        Rmdir("d/s"),
        Truncate("d/a", 4096),
        Unlink("d/a".into()),
    ]
}

/// All sequences.
pub(super) fn all() -> Vec<Sequence> {
    let s = |name, before, calls| Sequence { name, before, calls };
    let create = |path: &str| Create(path.into());
    let unlink = |path: &str| Unlink(path.into());
    let rename = |from: &str, to: &str| Rename(from.into(), to.into());
    let names = || {
        vec![
            create("d/b"),
            Link("d/a", "d/c"),
            unlink("d/a"),
            Mkdir("d/e".into()),
            Rmdir("d/e"),
            unlink("d/b"),
        ]
    };
    vec![
        s("names of small directories", vec![Mkdir("d".into()), create("d/a")], names()),
        s("names of a directory with a tree", in_tree(vec![create("d/a")]), names()),
        s(
            "a directory gets a tree and loses it",
            vec![Mkdir("d".into())],
            vec![Create(long(0)), Create(long(1)), Unlink(long(0)), Unlink(long(1))],
        ),
        s("a root that is split", in_tree(many(3, 12)), many(12, 20)),
        s("leaves that are split and merged", in_tree(many(3, 30)), {
            let mut calls = many(30, 42);
            calls.extend((0..24).map(|i| Unlink(long(i))));
            calls
        }),
        s("all names of a tree go", in_tree(many(3, 40)), (0..40).map(|i| Unlink(long(i))).collect()),
        s(
            "renames within a directory",
            in_tree(vec![create("d/a"), create("d/b"), create("d/c")]),
            vec![rename("d/a", "d/x"), rename("d/b", "d/c"), rename("d/x", "d/y")],
        ),
        s(
            "renames between directories",
            in_tree(vec![create("d/a"), create("e/b"), Link("d/a", "d/z")]),
            vec![rename("d/a", "e/x"), rename("e/b", "d/b"), rename("e/x", "d/b"), unlink("d/z")],
        ),
        s(
            "directories that move",
            in_tree(vec![Mkdir("d/a".into()), create("d/a/f"), Mkdir("e/b".into())]),
            vec![rename("d/a", "e/a"), rename("e/b", "d/b"), rename("e/a", "d/b")],
        ),
        s(
            "names that change places",
            in_tree(vec![create("d/a"), create("e/b"), Mkdir("e/c".into())]),
            vec![Exchange("d/a", "e/b"), Exchange("e/c", "d/a"), create("d/n")],
        ),
        s(
            "names in directories that are new",
            in_tree(vec![create("d/a"), create("d/b"), create("e/f"), create("d/g")]),
            vec![
                Mkdir("d/x".into()),
                Mkdir("d/x/y".into()),
                rename("d/a", "d/x/y/a"),
                Link("d/b", "d/x/y/b"),
                unlink("d/b"),
                rename("d/x/y/a", "d/x/a"),
                rename("e/f", "d/x/y/b"),
                Mkdir("d/z".into()),
                rename("d/g", "d/z/g"),
                rename("d/z/g", "d/x/g"),
            ],
        ),
        s(
            "names change places with those in new directories",
            in_tree(vec![create("d/a"), create("e/b")]),
            vec![
                Mkdir("d/x".into()),
                create("d/x/c"),
                Exchange("d/a", "d/x/c"),
                Mkdir("e/y".into()),
                create("e/y/d"),
                Exchange("e/y/d", "e/b"),
            ],
        ),
        s(
            "files in new directories that are fsynced",
            in_tree(vec![create("d/a"), create("d/b"), create("e/c"), Mkdir("e/f".into())]),
            vec![
                Mkdir("d/x".into()),
                create("d/o"),
                Mkdir("d/x/y".into()),
                create("e/p"),
                create("d/x/y/a"),
                Append("d/x/y/a", 200, 1),
                rename("d/a", "d/q"),
                unlink("e/c"),
                Link("d/x/y/a", "e/f/l"),
                create("d/r"),
                FsyncAll("d/x/y/a"),
                rename("d/x", "d/z"),
                create("d/z/y/b"),
                Append("d/o", 5000, 2),
                rename("d/z/y/a", "d/b"),
                FsyncAll("d/b"),
                Mkdir("d/z/y/w".into()),
                create("d/z/y/w/e"),
                create("e/s"),
                FsyncAll("d/z/y/w"),
                unlink("d/z/y/b"),
                unlink("e/f/l"),
                Append("d/b", 4000, 3),
                FsyncAll("e/f"),
                rename("d/z/y/w/e", "e/t"),
                FsyncAll("e/t"),
            ],
        ),
        s(
            "attributes and sizes of files that are fsynced",
            vec![
                Mkdir("d".into()),
                create("d/a"),
                create("d/b"),
                Write("d/b", 0, 9, 4),
                SetXattr("d/a", "user.a", 3000),
            ],
            vec![
                SetXattr("d/a", "user.a", 2500),
                create("d/c"),
                SetXattr("d/b", "user.b", 20),
                Truncate("d/b", 3 * 4096),
                FsyncAll("d/a"),
                Write("d/c", 0, 2, 5),
                SetXattr("d/c", "user.c", 3500),
                FsyncAll("d/b"),
                Symlink(3500, "d/s".into()),
                RemoveXattr("d/a", "user.a"),
                unlink("d/b"),
                FsyncAll("d/s"),
                create("d/b"),
                Write("d/b", 1, 3, 6),
                SetXattr("d/b", "user.b", 700),
                FsyncAll("d"),
                FsyncAll("d/c"),
            ],
        ),
        s("a new file among many in a directory that is split", in_tree(many(3, 12)), {
            let mut calls = many(12, 20);
            calls.extend([create("d/f"), Append("d/f", 60, 1)]);
            calls.extend(many(20, 28));
            calls.extend([FsyncAll("d/f"), unlink("d/f"), create("e/g"), FsyncAll("e/g")]);
            calls.extend((3..9).map(|i| Unlink(long(i))));
            calls.extend([create("d/f"), FsyncAll("d/f")]);
            calls
        }),
        s(
            "files that lose their names and are fsynced",
            in_tree(vec![create("d/a"), Link("d/a", "e/a"), create("d/b"), create("e/c")]),
            vec![
                unlink("d/a"),
                create("d/a"),
                unlink("d/b"),
                create("d/n"),
                FsyncAll("e/a"),
                rename("e/c", "e/a"),
                create("e/o"),
                FsyncAll("d/a"),
                FsyncAll("e/a"),
                Exchange("d/a", "e/a"),
                create("d/p"),
                FsyncAll("e/a"),
            ],
        ),
        s("a name moves to a leaf that is split", in_tree(many(3, 24)), {
            (0..8).map(|i| Rename(long(i), long(100 + i))).collect()
        }),
        s(
            "orphans",
            in_tree(vec![create("d/a"), Write("d/a", 0, 2, 9), create("d/b")]),
            vec![Hold("d/a"), unlink("d/a"), Hold("d/b"), unlink("d/b"), Release],
        ),
        s(
            "a file with few extents",
            vec![create("a")],
            vec![
                Write("a", 0, 1, 1),
                Write("a", 1, 2, 2),
                Write("a", 6, 1, 3),
                Truncate("a", 5000),
                unlink("a"),
            ],
        ),
        s("a file gets a tree of extents", vec![create("a")], {
            let mut calls = pieces("a", 7);
            calls.extend([Truncate("a", 8 * 4096), Truncate("a", 100), unlink("a")]);
            calls
        }),
        s(
            "extents in a tree",
            {
                let mut before = vec![create("a")];
                before.extend(pieces("a", 8));
                before
            },
            vec![
                Write("a", 20, 1, 50),
                Write("a", 21, 1, 51),
                Truncate("a", 9 * 4096),
                Write("a", 30, 2, 52),
            ],
        ),
        s(
            "bytes at the end of a file with a tree",
            with_end(),
            vec![Append("a", 10, 91), Append("a", 10, 92), Append("a", 10, 93)],
        ),
        s(
            "the end of a file with a tree comes back",
            with_end(),
            vec![
                Append("a", 10, 91),
                Truncate("a", END + 50),
                Fsync("a"),
                Truncate("a", END + 90),
                Fsync("a"),
            ],
        ),
        s(
            "a leaf of extents that is split below the root",
            {
                let mut before = vec![create("a")];
                before.extend(pieces("a", 200));
                before
            },
            more_pieces("a", 200..240),
        ),
        s(
            "a file that is removed with its tree",
            {
                let mut before = in_tree(vec![create("d/a")]);
                before.extend(pieces("d/a", 8));
                before
            },
            vec![unlink("d/a"), create("d/b"), Write("d/b", 0, 1, 77)],
        ),
        s(
            "symbolic links",
            in_tree(vec![]),
            vec![Symlink(40, "d/s".into()), Symlink(3500, "d/l".into()), unlink("d/l"), unlink("d/s")],
        ),
        s(
            "attributes",
            vec![create("a")],
            vec![
                SetXattr("a", "user.a", 10),
                SetXattr("a", "user.b", 500),
                SetXattr("a", "user.a", 12),
                unlink("a"),
            ],
        ),
        s(
            "attributes of several cells",
            vec![create("a"), SetXattr("a", "user.a", 10), SetXattr("a", "user.b", 500)],
            vec![
                SetXattr("a", "user.c", 1500),
                SetXattr("a", "user.c", 1100),
                SetXattr("a", "user.b", 3500),
                SetXattr("a", "user.c", 60),
                RemoveXattr("a", "user.b"),
                SetXattr("a", "user.a", 4000),
            ],
        ),
        s(
            "attributes that go with their files",
            {
                let mut before = in_tree(vec![create("d/a"), Mkdir("d/b".into())]);
                let set = |path| [SetXattr(path, "user.a", 3000), SetXattr(path, "user.b", 3500)];
                before.extend(["d/a", "d/b"].into_iter().flat_map(set));
                before
            },
            vec![unlink("d/a"), Rmdir("d/b")],
        ),
        s(
            "holes in extents of a tree",
            {
                let mut before = vec![create("a")];
                before.extend(pieces("a", 7));
                before.push(Write("a", 40, 12, 60));
                before
            },
            vec![
                Punch("a", 43, 2),
                Punch("a", 40, 1),
                Punch("a", 2, 40),
                Punch("a", 48, 9),
                Write("a", 43, 2, 61),
            ],
        ),
        s(
            "a file that is freed in steps",
            {
                let mut before = vec![create("a")];
                before.extend(pieces("a", 120));
                before
            },
            vec![Truncate("a", 100 * 4096), Truncate("a", 4 * 4096), unlink("a")],
        ),
        s(
            "blocks that files share",
            vec![create("a"), Write("a", 0, 6, 1), Sync, create("b"), Copy("a", "b")],
            vec![
                create("c"),
                Copy("a", "c"),
                Write("c", 2, 2, 2),
                Truncate("a", 4 * 4096),
                unlink("a"),
                unlink("b"),
                unlink("c"),
            ],
        ),
        s(
            "blocks that files with trees share",
            {
                let mut before = vec![create("a")];
                before.extend(pieces("a", 9));
                before.extend([Sync, create("b"), Copy("a", "b"), create("c")]);
                before
            },
            vec![
                Copy("a", "c"),
                Write("a", 2, 3, 60),
                Punch("b", 4, 8),
                unlink("b"),
                Truncate("c", 4096),
                unlink("a"),
            ],
        ),
        s("names and files that a snapshot has seen", seen(), {
            let mut calls = changed();
            calls.extend([rename("d/c", "d/n"), unlink("d/n")]);
            calls
        }),
        s(
            "snapshots between changes",
            vec![Mkdir("d".into()), create("d/a"), Write("d/a", 0, 2, 1), Snapshot("one")],
            vec![
                Write("d/a", 0, 1, 2),
                create("d/b"),
                Snapshot("two"),
                Write("d/b", 0, 1, 3),
                rename("d/b", "d/c"),
                Snapshot("three"),
                unlink("d/a"),
                Truncate("d/c", 0),
                rename("d/c", "d/a"),
            ],
        ),
        s(
            "blocks of a version whose inode is freed late",
            {
                // The group has a table from the beginning.
                let mut before = vec![create("t"), Write("t", 0, 6, 9), Sync, create("u"), Copy("t", "u")];
                before.extend([create("a"), Write("a", 0, 6, 1), Snapshot("one"), create("b"), create("c")]);
                before
            },
            vec![Hold("a"), unlink("a"), Release, CopyThen(0, "a", "b"), CopyThen(0, "a", "c"), unlink("b")],
        ),
        s(
            "trees that the past has, too",
            {
                let mut before =
                    vec![create("a"), SetXattr("a", "user.a", 10), SetXattr("a", "user.b", 3000)];
                before.extend(pieces("a", 9));
                before.push(Snapshot("one"));
                before
            },
            vec![
                Write("a", 4, 1, 70),
                Write("a", 40, 1, 71),
                Punch("a", 2, 4),
                SetXattr("a", "user.b", 2000),
                Truncate("a", 4096),
                unlink("a"),
            ],
        ),
        s("rows that get their keys", seen(), {
            let mut calls = changed();
            calls.extend([Index, Snapshot("two"), unlink("d/c"), create("d/c"), Index, unlink("d/c")]);
            calls
        }),
        s(
            "a snapshot that is forgotten",
            {
                let mut before = seen();
                before.extend(changed());
                before.extend([Snapshot("two"), Write("d/n", 0, 2, 8), rename("d/c", "d/d")]);
                before
            },
            vec![Truncate("d/n", 4096), Forget(0), GiveUp, unlink("d/d"), Forget(0), GiveUp],
        ),
        s(
            "the first keys of a tree of three levels go",
            {
                let mut before = in_tree(many(3, 3400));
                before.push(UnlinkFirst("d", 1775));
                before
            },
            // The first of the two branches loses its last names.
            vec![UnlinkFirst("d", 25)],
        ),
    ]
}

/// Kinds of edges that no sequence demands.
pub(super) const NOT_DEMANDED: &[EdgeKind] = &[];

/// Carries calls out.
pub(super) struct Carrier<'a> {
    pub(super) volume: &'a Volume,
    held: Vec<Node>,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(volume: &'a Volume) -> Carrier<'a> {
        Carrier { volume, held: Vec::new() }
    }

    pub(super) fn carry_out(&mut self, call: &Call) -> Result<(), Wrong> {
        self.call(call).map_err(|error| Wrong::new("result", format!("{call:?}: {error}")))
    }

    fn call(&mut self, call: &Call) -> yore_fs::Result<()> {
        const BLOCK: u64 = 4096;
        let volume = self.volume;
        match call {
            Create(path) => File::create(volume, path).map(|_| ()),
            Mkdir(path) => volume.create_dir(path),
            Symlink(len, path) => volume.symlink("t".repeat(*len), path),
            Link(old, new) => volume.hard_link(old, new),
            Unlink(path) => volume.remove_file(path),
            Rmdir(path) => volume.remove_dir(path),
            Rename(old, new) => volume.rename(old, new),
            Exchange(a, b) => volume.rename_with(a, b, RenameMode::Exchange),
            Write(path, first, blocks, byte) => {
                let file = yore_fs::OpenOptions::new().write(true).open(volume, path)?;
                let data = vec![*byte; (blocks * BLOCK) as usize];
                file.write_at(&data, first * BLOCK)?;
                file.sync_data()
            }
            Append(path, len, byte) => {
                let file = yore_fs::OpenOptions::new().write(true).open(volume, path)?;
                file.write_at(&vec![*byte; *len], file.metadata()?.len())?;
                file.sync_data()
            }
            Truncate(path, size) => {
                yore_fs::OpenOptions::new().write(true).open(volume, path)?.set_len(*size)
            }
            Hold(path) => {
                self.held.push(volume.symlink_node(path)?);
                Ok(())
            }
            Release => {
                self.held.clear();
                Ok(())
            }
            RemoveXattr(path, name) => volume.remove_xattr(path, name),
            Snapshot(name) => {
                let view = volume.view();
                view.take_snapshot(view.root(), &yore_fs::NewSnapshot::named(name)).map(|_| ())
            }
            Forget(which) => volume.view().forget(&[volume.view().events()?[*which].number]),
            GiveUp => {
                let go_on = &mut |_: &_| std::ops::ControlFlow::Continue(());
                volume.view().finish_forgetting(go_on).map(|_| ())
            }
            Index => volume.view().index_history(u64::MAX).map(|_| ()),
            Fsync(path) => yore_fs::OpenOptions::new().write(true).open(volume, path)?.sync_data(),
            FsyncAll(path) => volume.view().fsync(volume.symlink_node(path)?.inode(), false),
            Sync => volume.sync(),
            Copy(from, to) => {
                let from = File::open(volume, from)?;
                let to = yore_fs::OpenOptions::new().write(true).open(volume, to)?;
                let len = from.metadata()?.len();
                volume.view().copy_file_range(from.inode(), 0, to.inode(), 0, len).map(|_| ())
            }
            CopyThen(which, from, to) => {
                let event = volume.view().events()?[*which].number;
                let then = Volume::from_view(volume.view().as_of(event));
                let from = File::open(&then, from)?;
                let to = yore_fs::OpenOptions::new().write(true).open(volume, to)?;
                to.copy_from(&from, 0, from.metadata()?.len()).map(|_| ())
            }
            Punch(path, first, blocks) => {
                let file = yore_fs::OpenOptions::new().write(true).open(volume, path)?;
                let mode = yore_fs::FallocateMode::PunchHole;
                volume.view().fallocate(file.inode(), first * BLOCK, blocks * BLOCK, mode)
            }
            UnlinkFirst(path, n) => {
                let first = volume.read_dir(path)?.take(*n).collect::<yore_fs::Result<Vec<_>>>()?;
                first.iter().try_for_each(|entry| volume.remove_file(entry.path()))
            }
            SetXattr(path, name, len) => {
                volume.set_xattr(path, name, vec![7; *len], yore_fs::SetXattrMode::Any)
            }
        }
    }
}
