//! What can be undone: each operation is between two events of kind undo of its directory, whose names say
//! what they are.
//!
//! `before-rollback-12` and `after-rollback-12` are a pair; `before-undo-13-of-12` began what undid it. All
//! is in the names, so that nothing has to be kept in step with the events: without the first one an
//! operation cannot be undone and is passed over; without the second one nobody knows what it did, and it
//! counts as not ended. Numbers are the directory's own and ascend.

use crate::Event;
use std::collections::{BTreeMap, HashSet};
use yore_format::{EventKind, EventNo, OperationKind};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Verb {
    /// Names got back what they meant; others were left alone.
    Restore,
    /// What was gone came back.
    Undelete,
    /// A directory became what it was.
    Rollback,
    /// What another one had changed was put back.
    Undo,
    /// What an undo had changed was put back.
    Redo,
}

impl Verb {
    const ALL: [Verb; 5] = [Verb::Restore, Verb::Undelete, Verb::Rollback, Verb::Undo, Verb::Redo];

    /// As in names.
    pub fn text(self) -> &'static str {
        match self {
            Verb::Restore => "restore",
            Verb::Undelete => "undelete",
            Verb::Rollback => "rollback",
            Verb::Undo => "undo",
            Verb::Redo => "redo",
        }
    }
}

/// An operation on a directory, by its events that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number, the directory's own.
    pub number: u64,
    /// What was done.
    pub verb: Verb,
    /// The one that it undid.
    pub of: Option<u64>,
    /// The event before it.
    pub before: Option<Event>,
    /// The event at its end.
    pub after: Option<Event>,
}

impl Operation {
    /// As messages name it.
    pub fn name(&self) -> String {
        name(self.verb, self.number, self.of)
    }
}

/// An operation as messages name it, and the names of its events, which have `before-` or `after-` in front.
pub fn name(verb: Verb, number: u64, of: Option<u64>) -> String {
    let of = of.map(|of| format!("-of-{of}")).unwrap_or_default();
    format!("{}-{number}{of}", verb.text())
}

/// What begins with the event of this name, and what it is called; `None` if nothing does.
pub(crate) fn begun(name: &str) -> Option<(OperationKind, &str)> {
    let (is_end, verb, ..) = parse(name)?;
    let kind = match verb {
        Verb::Restore => OperationKind::Restore,
        Verb::Undelete => OperationKind::Undelete,
        Verb::Rollback => OperationKind::Rollback,
        Verb::Undo => OperationKind::Undo,
        Verb::Redo => OperationKind::Redo,
    };
    name.strip_prefix("before-").filter(|_| !is_end).map(|name| (kind, name))
}

/// Whether it is the end, what was done, the number, and the number of what was undone.
pub(super) fn parse(name: &str) -> Option<(bool, Verb, u64, Option<u64>)> {
    let mut parts = name.split('-');
    let is_end = match parts.next()? {
        "before" => false,
        "after" => true,
        _ => return None,
    };
    let verb = parts.next()?;
    let verb = Verb::ALL.into_iter().find(|one| one.text() == verb)?;
    let number = parts.next()?.parse().ok()?;
    let of = match (parts.next(), parts.next(), parts.next()) {
        (None, None, None) => None,
        (Some("of"), Some(of), None) => Some(of.parse().ok()?),
        _ => return None,
    };
    Some((is_end, verb, number, of))
}

/// The operations on a directory by its own events, the first one first.
pub fn operations<'c>(own: impl IntoIterator<Item = &'c Event>) -> Vec<Operation> {
    let mut found: BTreeMap<u64, Operation> = BTreeMap::new();
    for event in own.into_iter().filter(|event| event.row.kind == EventKind::Undo) {
        let Some((is_end, verb, number, of)) = parse(&event.row.name) else { continue };
        let new = Operation { number, verb, of, before: None, after: None };
        let one = found.entry(number).or_insert(new);
        *if is_end { &mut one.after } else { &mut one.before } = Some(event.clone());
    }
    found.into_values().collect()
}

/// The number of the next operation on a directory, if nothing else has its name. Events that only see the
/// directory count, too, so that a name means one thing on the way up.
pub fn next_number<'c>(events: impl IntoIterator<Item = &'c Event>) -> u64 {
    let numbers = events.into_iter().filter_map(|event| parse(&event.row.name));
    numbers.map(|(_, _, number, _)| number).max().unwrap_or(0).saturating_add(1)
}

/// Which one is undone next, or with `redo`, which undo: of those in force the last one that can be. An
/// operation is in force if nothing in force has undone it; one that did not end has undone nothing.
pub fn next(all: &[Operation], redo: bool) -> Option<&Operation> {
    let mut undone = HashSet::new();
    for one in all.iter().rev() {
        if undone.contains(&one.number) {
            continue;
        }
        if let Some(of) = one.of {
            if one.after.is_none() {
                continue;
            }
            undone.insert(of);
        }
        match (redo, one.verb) {
            (true, Verb::Undo) if one.before.is_some() => return Some(one),
            (true, Verb::Redo) | (false, Verb::Undo) => {}
            (true, _) => return None,
            (false, _) if one.before.is_some() => return Some(one),
            (false, _) => {}
        }
    }
    None
}

/// Between which events others changed something since an operation: from its end to the present; or to where
/// the first undo of it that did not end began, for what was done since then is that undo's. `None` if its
/// own end is not known.
pub fn until(all: &[Operation], one: &Operation) -> Option<(EventNo, Option<EventNo>)> {
    let broken = all.iter().find(|other| other.of == Some(one.number) && other.after.is_none());
    let end = broken.and_then(|broken| broken.before.as_ref()).map(|event| event.number);
    Some((one.after.as_ref()?.number, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_format::{EventRow, EventState, Incarnation, InodeNo, Timestamp};

    fn event() -> Option<Event> {
        let row = EventRow {
            time: Timestamp { seconds: 0, nanos: 0 },
            kind: EventKind::Undo,
            state: EventState::Kept,
            held: false,
            root: InodeNo(1),
            root_incarnation: Incarnation(0),
            name: String::new(),
            more: Default::default(),
        };
        Some(Event { number: EventNo(1), row })
    }

    fn one(number: u64, verb: Verb, of: Option<u64>) -> Operation {
        Operation { number, verb, of, before: event(), after: event() }
    }

    fn numbers(all: &[Operation]) -> [Option<u64>; 2] {
        [false, true].map(|redo| next(all, redo).map(|one| one.number))
    }

    #[test]
    fn names_return() {
        for verb in Verb::ALL {
            for of in [None, Some(3)] {
                assert_eq!(parse(&format!("before-{}", name(verb, 7, of))), Some((false, verb, 7, of)));
                assert_eq!(parse(&format!("after-{}", name(verb, 7, of))), Some((true, verb, 7, of)));
            }
        }
        for other in
            ["before-upgrade", "after-undo", "before-undo-x", "before-undo-1-of", "before-undo-1-of-2-3"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    /// Undo goes back step by step, redo forth, and something new ends what can be done again.
    #[test]
    fn which_is_next() {
        use Verb::{Redo, Restore, Rollback, Undo};
        let mut all = vec![one(1, Restore, None), one(2, Rollback, None)];
        assert_eq!(numbers(&all), [Some(2), None]);
        all.push(one(3, Undo, Some(2)));
        assert_eq!(numbers(&all), [Some(1), Some(3)]);
        all.push(one(4, Undo, Some(1)));
        assert_eq!(numbers(&all), [None, Some(4)]);
        all.push(one(5, Redo, Some(4)));
        assert_eq!(numbers(&all), [Some(5), Some(3)]);
        all.push(one(6, Undo, Some(5)));
        assert_eq!(numbers(&all), [None, Some(6)]);
        all.push(one(7, Restore, None));
        assert_eq!(numbers(&all), [Some(7), None]);
    }

    /// An undo that did not end has undone nothing; what has no beginning is passed over.
    #[test]
    fn halves() {
        use Verb::{Restore, Undo};
        let mut all = vec![one(1, Restore, None), one(2, Restore, None)];
        all.push(Operation { after: None, ..one(3, Undo, Some(2)) });
        assert_eq!(numbers(&all), [Some(2), None]);
        all[1].before = None;
        assert_eq!(numbers(&all), [Some(1), None]);
    }
}
