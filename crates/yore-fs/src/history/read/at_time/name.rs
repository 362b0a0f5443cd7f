//! A name with a time behind an `@`, as `thesis@yesterday`.

use crate::time::{self, When};

/// A name with a time behind its last `@`, taken apart; `None` if it has none that can be read. Of `@@` both are the time's, if it
/// can be read so: the second one marks seconds.
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

    /// The last `@` parts name and time, unless there are two of them.
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
}
