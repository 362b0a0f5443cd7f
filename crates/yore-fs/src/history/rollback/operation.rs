//! What can be undone: each operation is between two undo points of its directory, whose names say what it
//! is.
//!
//! `before-rollback-12` and `after-rollback-12` are a pair; `before-undo-13-of-12` began the undo of that.
//! The names say everything, so nothing has to be kept in step with the events. Without its first event an
//! operation cannot be undone, and is passed over. Without its second event nobody knows what it did, and it
//! counts as not ended. Each directory has its own numbers, and they ascend.

use crate::Event;
use std::collections::{BTreeMap, HashSet};
use yore_format::{EventKind, EventNo, OperationKind};

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Verb {
    /// Some names meant again what they had meant; others were left alone.
    Restore,
    /// What was gone came back.
    Undelete,
    /// A directory became what it had been.
    Rollback,
    /// The changes of another operation were put back.
    Undo,
    /// The changes of an undo were put back.
    Redo,
}

impl Verb {
    const ALL: [Verb; 5] = [Verb::Restore, Verb::Undelete, Verb::Rollback, Verb::Undo, Verb::Redo];

    /// The word in names.
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

/// An operation on a directory, as its kept events describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number in the directory.
    pub number: u64,
    /// What was done.
    pub verb: Verb,
    /// The number of the operation that it undid.
    pub of: Option<u64>,
    /// The event before it.
    pub before: Option<Event>,
    /// The event at its end.
    pub after: Option<Event>,
}

impl Operation {
    /// The name that messages use.
    pub fn name(&self) -> String {
        name(self.verb, self.number, self.of)
    }
}

/// The name of an operation, for messages; the names of its events are this with `before-` or `after-` in
/// front.
pub fn name(verb: Verb, number: u64, of: Option<u64>) -> String {
    let of = of.map(|of| format!("-of-{of}")).unwrap_or_default();
    format!("{}-{number}{of}", verb.text())
}

/// The operation that begins with an event of this name, as a kind and a name; `None` if none does.
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

/// Splits the name of an event: whether it is the end, the verb, the number, and the number of the operation
/// that was undone.
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

/// The operations on a directory, from its own events, the first one first.
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

/// The number of the next operation on a directory, if no other event has its name. The caller also passes
/// events that only see the directory, so that a name means one thing on the whole way up.
pub fn next_number<'c>(events: impl IntoIterator<Item = &'c Event>) -> u64 {
    let numbers = events.into_iter().filter_map(|event| parse(&event.row.name));
    numbers.map(|(_, _, number, _)| number).max().unwrap_or(0).saturating_add(1)
}

/// The operation that is undone next or, with `redo`, the undo that is: the last one in force that can be. An
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

/// The events between which changes since an operation count as made by others: from its end to the present.
/// If an undo of it did not end, the span ends where the first such undo began, because later changes are
/// that undo's. `None` if the operation's own end is not known.
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

    /// Undo goes back step by step, redo goes forward, and a new operation ends what can be redone.
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

    /// An undo that did not end has undone nothing; an operation without a beginning is passed over.
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
