//! Tests the comparison itself, with file systems that are right, and with others that are wrong in one way
//! each.

use yore_crash::generate::{sequence, Profile};
use yore_crash::op::Op;
use yore_crash::outcome::{Kind, Outcome};
use yore_crash::runner::Runner;
use yore_crash::subject::{ModelSubject, Subject};
use yore_crash::tree::{Inside, Tree};
use yore_fs::{Attr, FileKind, InodeNo, RenameMode, Timestamp};

/// Runs sequences until something differs.
fn first_difference<S: Subject>(make: impl Fn() -> S) -> Option<String> {
    for seed in 0..30 {
        let mut runner = Runner::new(make(), &ModelSubject::root());
        for (number, op) in sequence(seed, 200, Profile::Model).iter().enumerate() {
            let result =
                runner.step(op).and_then(|_| if number % 20 == 19 { runner.compare() } else { Ok(()) });
            if let Err(difference) = result {
                return Some(difference);
            }
        }
    }
    None
}

/// The model agrees with itself.
#[test]
fn the_model_agrees_with_itself() {
    assert_eq!(first_difference(ModelSubject::new), None);
}

/// How a wrong file system changes its operations, its answers, and what it shows.
struct Wrong {
    inner: ModelSubject,
    change_op: fn(&Op) -> Op,
    change_outcome: fn(&Op, Outcome) -> Outcome,
    change_attr: fn(&mut Attr),
    change_tree: fn(&mut Tree),
}

impl Wrong {
    fn new() -> Wrong {
        Wrong {
            inner: ModelSubject::new(),
            change_op: Op::clone,
            change_outcome: |_, outcome| outcome,
            change_attr: |_| {},
            change_tree: |_| {},
        }
    }
}

impl Subject for Wrong {
    fn apply(&mut self, op: &Op) -> Outcome {
        (self.change_outcome)(op, self.inner.apply(&(self.change_op)(op)))
    }
    fn attr(&self, inode: u64) -> Result<Attr, String> {
        let mut attr = self.inner.attr(inode)?;
        (self.change_attr)(&mut attr);
        Ok(attr)
    }
    fn now(&self) -> Timestamp {
        self.inner.now()
    }
    fn observe(&self) -> Result<Tree, String> {
        let mut tree = self.inner.observe()?;
        (self.change_tree)(&mut tree);
        Ok(tree)
    }
}

fn must_be_noticed(what: &str, wrong: fn() -> Wrong) {
    assert!(first_difference(wrong).is_some(), "not noticed: {what}");
}

/// Operations that do something other than requested.
#[test]
fn wrong_operations_are_noticed() {
    must_be_noticed("NoReplace replaces", || Wrong {
        change_op: |op| match op.clone() {
            Op::Rename { from, to, mode: RenameMode::NoReplace } => {
                Op::Rename { from, to, mode: RenameMode::Replace }
            }
            op => op,
        },
        ..Wrong::new()
    });
    must_be_noticed("a write loses its last byte", || Wrong {
        change_op: |op| match op.clone() {
            Op::Write { target, offset, len, tag, append, kill_set_id } => {
                Op::Write { target, offset, len: len.saturating_sub(1), tag, append, kill_set_id }
            }
            op => op,
        },
        ..Wrong::new()
    });
    must_be_noticed("set-id bits stay", || Wrong {
        change_op: |op| match op.clone() {
            Op::Write { target, offset, len, tag, append, .. } => {
                Op::Write { target, offset, len, tag, append, kill_set_id: false }
            }
            op => op,
        },
        ..Wrong::new()
    });
    must_be_noticed("the umask is ignored", || Wrong {
        change_op: |op| match op.clone() {
            Op::Mkdir { at, permissions, mut caller } => {
                caller.umask = 0;
                Op::Mkdir { at, permissions, caller }
            }
            op => op,
        },
        ..Wrong::new()
    });
    must_be_noticed("a removed attribute stays", || Wrong {
        change_op: |op| match op.clone() {
            Op::RemoveXattr { target, name } => Op::GetXattr { target, name },
            op => op,
        },
        ..Wrong::new()
    });
}

/// Answers that are wrong.
#[test]
fn wrong_answers_are_noticed() {
    must_be_noticed("another error", || Wrong {
        change_outcome: |_, outcome| match outcome {
            Outcome::Failed(Kind::NotEmpty, message) => Outcome::Failed(Kind::Exists, message),
            outcome => outcome,
        },
        ..Wrong::new()
    });
    must_be_noticed("an entry is not listed", || Wrong {
        change_outcome: |_, outcome| match outcome {
            Outcome::Entries(mut entries) => {
                entries.pop();
                Outcome::Entries(entries)
            }
            outcome => outcome,
        },
        ..Wrong::new()
    });
    must_be_noticed("a byte is wrong", || Wrong {
        change_outcome: |_, outcome| match outcome {
            Outcome::Bytes(mut bytes) => {
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                Outcome::Bytes(bytes)
            }
            outcome => outcome,
        },
        ..Wrong::new()
    });
    must_be_noticed("data is taken for a hole", || Wrong {
        change_outcome: |op, outcome| match (op, outcome) {
            (Op::Seek { to: yore_fs::SeekTo::Data, .. }, Outcome::Number(at)) => Outcome::Number(at + 1),
            (_, outcome) => outcome,
        },
        ..Wrong::new()
    });
    must_be_noticed("space runs out", || Wrong {
        change_outcome: |op, outcome| match op {
            Op::Unlink { .. } => Outcome::Failed(Kind::NoSpace, "full".into()),
            _ => outcome,
        },
        ..Wrong::new()
    });
}

/// Attributes that are wrong, including those of which the model only knows when they may change.
#[test]
fn wrong_attributes_are_noticed() {
    type Named = (&'static str, fn(&mut Attr));
    let wrong: [Named; 6] = [
        ("ctime of the past", |attr| attr.ctime.seconds = 1),
        ("mtime of the future", |attr| attr.mtime.seconds += 1),
        ("birth changes", |attr| attr.btime = attr.ctime),
        ("links", |attr| attr.links += u32::from(attr.kind == FileKind::Directory && attr.links > 3)),
        ("size", |attr| attr.size += u64::from(attr.kind == FileKind::Regular && attr.size == 108)),
        ("number", |attr| attr.inode = InodeNo(attr.inode.0 + 1)),
    ];
    for (what, change_attr) in wrong {
        let difference = first_difference(|| Wrong { change_attr, ..Wrong::new() });
        assert!(difference.is_some(), "not noticed: {what}");
    }
}

/// Trees that are wrong.
#[test]
fn wrong_trees_are_noticed() {
    must_be_noticed("a parent", || Wrong {
        change_tree: |tree| {
            let root = tree.root;
            for (number, node) in &mut tree.nodes {
                if let (true, Inside::Directory { parent, .. }) = (*number != root, &mut node.inside) {
                    *parent = *number;
                }
            }
        },
        ..Wrong::new()
    });
    must_be_noticed("a missing block", || Wrong {
        change_tree: |tree| {
            for node in tree.nodes.values_mut() {
                if let Inside::File { blocks, .. } = &mut node.inside {
                    blocks.pop_last();
                }
            }
        },
        ..Wrong::new()
    });
    must_be_noticed("a contradiction", || Wrong {
        change_tree: |tree| tree.contradictions.push("listed twice".into()),
        ..Wrong::new()
    });
}
