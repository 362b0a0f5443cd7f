//! A name with a time after an `@`, as `thesis@yesterday`: how it is split, and when it is.

use crate::time::{self, When};
use crate::{Error, Result};

/// What a name turns out to mean in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved<T> {
    /// The very name exists, and means this.
    Literal(T),
    /// The very name does not exist, and what stands before its `@` meant this at the time after it.
    AtTime(T),
    /// The very name does not exist. It has a time, and there was nothing then.
    NothingThen,
    /// The very name does not exist, and has no time.
    Nothing,
}

impl<T> Resolved<T> {
    /// What the name means, by itself or with its time.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name means nothing.
    pub fn found(self) -> Result<T> {
        match self {
            Resolved::Literal(found) | Resolved::AtTime(found) => Ok(found),
            Resolved::NothingThen | Resolved::Nothing => Err(Error::NotFound),
        }
    }
}

/// Finds out what a name in a directory means that may have a time after an `@`. Every call that takes such
/// names asks here.
///
/// 1. **The literal name comes first.** `literal` looks the whole name up. If it exists, the name means that,
///    whether it contains an `@` or not: no file becomes unreachable because of its name.
/// 2. **Then the time.** If `literal` fails with [`Error::NotFound`] and [`split_time`] finds a time,
///    `at_time` gets what stands before the `@`, and the time. A `.` there is the directory itself.
/// 3. **Otherwise the name means nothing**, also if `at_time` fails with [`Error::NotFound`].
///
/// The caller provides the look-ups, so the rules are the same for the present, for a view of the past and
/// for a mount. `at_time` runs only where `literal` found nothing, and only then a time is parsed: names that
/// exist cost one look-up.
///
/// # Errors
/// Those of `literal` and `at_time` except [`Error::NotFound`].
pub fn resolve_name<'n, T>(
    name: &'n [u8],
    literal: impl FnOnce() -> Result<T>,
    at_time: impl FnOnce(&'n [u8], &When) -> Result<T>,
) -> Result<Resolved<T>> {
    match literal() {
        Err(Error::NotFound) => {}
        found => return found.map(Resolved::Literal),
    }
    let Some((of, when)) = split_time(name) else { return Ok(Resolved::Nothing) };
    match at_time(of, &when) {
        Err(Error::NotFound) => Ok(Resolved::NothingThen),
        found => found.map(Resolved::AtTime),
    }
}

/// Splits a name with a time after its last `@`; `None` if it has no valid time. Both characters of `@@`
/// belong to the time, if it is valid so: the second one marks seconds.
pub fn split_time(name: &[u8]) -> Option<(&[u8], When)> {
    let last = name.iter().rposition(|b| *b == b'@')?;
    let marked = (last > 1 && name[last - 1] == b'@').then(|| last - 1);
    let split = |at: usize| {
        let text = std::str::from_utf8(&name[at + 1..]).ok().filter(|text| !text.is_empty())?;
        let when = time::parse(text, crate::clock::now(), &jiff::tz::TimeZone::system()).ok()?;
        Some((&name[..at], when))
    };
    marked.and_then(split).or_else(|| split(last).filter(|_| last > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last `@` separates name and time, unless there are two of them.
    #[test]
    fn names_and_times_are_taken_apart() {
        let split = |name: &str| {
            let (of, when) = split_time(name.as_bytes())?;
            let text = match when {
                When::At(time) => time.seconds.to_string(),
                When::Last(count) => format!("the last but {}", count.get() - 1),
                When::Named(name) => name,
            };
            Some((String::from_utf8_lossy(of).into_owned(), text))
        };
        let parts = |of: &str, text: &str| Some((of.to_string(), text.to_string()));
        assert_eq!(split("a@1057845484"), parts("a", "1057845484"));
        assert_eq!(split("a@@1057845484"), parts("a", "1057845484"));
        assert_eq!(split("a@@2026"), parts("a", "2026"));
        assert_eq!(split("a@b@before"), parts("a@b", "before"));
        assert_eq!(split("@@@2026"), parts("@", "2026"));
        assert_eq!(split("a@@before"), parts("a@", "before"), "the second one marks seconds only");
        assert_eq!(split("@@before"), parts("@", "before"));
        assert_eq!(split("a@last"), parts("a", "the last but 0"));
        assert_eq!(split("a@-2"), parts("a", "the last but 1"));
        assert_eq!(split("a@@-2"), parts("a", "-2"), "marked seconds");
        for none in ["a", "a@", "@a", "a@2026", "@@2026", "a@5m"] {
            assert_eq!(split(none), None, "{none}");
        }
    }

    /// What `name` means if the names `now` exist in the present, and `thesis` and `.` existed at all times
    /// that can be parsed.
    fn meaning(name: &str, now: &[&str]) -> Result<Resolved<String>> {
        let literal = || match now.contains(&name) {
            true => Ok(format!("{name} now")),
            false => Err(Error::NotFound),
        };
        resolve_name(name.as_bytes(), literal, |of, _| match of {
            b"thesis" | b"." => Ok(format!("{} then", String::from_utf8_lossy(of))),
            _ => Err(Error::NotFound),
        })
    }

    /// A file that really has this name wins over a time.
    #[test]
    fn the_literal_name_comes_first() {
        let of = |name: &str, now: &[&str]| meaning(name, now).unwrap();
        assert_eq!(of("thesis", &["thesis"]), Resolved::Literal("thesis now".into()));
        assert_eq!(of("thesis@before", &["thesis@before"]), Resolved::Literal("thesis@before now".into()));
        assert_eq!(of("thesis@before", &["thesis"]), Resolved::AtTime("thesis then".into()));
        assert_eq!(of(".@before", &[]), Resolved::AtTime(". then".into()));
        assert_eq!(of("letter@before", &["letter"]), Resolved::NothingThen);
        for none in ["thesis", "thesis@", "thesis@2026", "@before"] {
            assert_eq!(of(none, &[]), Resolved::Nothing, "{none}");
        }
        assert!(matches!(of("letter@before", &[]).found(), Err(Error::NotFound)));
        assert_eq!(of("thesis@before", &[]).found().unwrap(), "thesis then");
    }

    /// Only the absence of a name leads to its time. Any other error does not: the name may be there.
    #[test]
    fn other_errors_are_told() {
        let unread = || -> Result<()> { Err(Error::NotADirectory) };
        let found = resolve_name(b"thesis@before", unread, |_, _| panic!("the literal name may be there"));
        assert!(matches!(found, Err(Error::NotADirectory)));
        let absent = || -> Result<()> { Err(Error::NotFound) };
        let found = resolve_name(b"thesis@before", absent, |_, _| Err(Error::Stale));
        assert!(matches!(found, Err(Error::Stale)));
    }
}
