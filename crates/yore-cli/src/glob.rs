//! Shell patterns, on bytes: `*` matches any bytes, `?` one character, `[a-z]` and `[!a-z]` one of a set; `\`
//! takes the next byte as it is. `*` and `?` also match `/` and a leading dot, as in find(1).
//!
//! Backtracking goes only to the last `*`, so the time grows at most with the product of both lengths.

/// Whether all of `name` matches `pattern`.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on after the last star: the pattern after it, and the first byte that it has not taken yet.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if p == pattern.len() && n == name.len() {
            return true;
        }
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        if let Some((pattern_used, name_used)) = one(&pattern[p..], &name[n..]) {
            p += pattern_used;
            n += name_used;
            continue;
        }
        match star {
            Some((after, taken)) if taken < name.len() => {
                star = Some((after, taken + 1));
                (p, n) = (after, taken + 1);
            }
            _ => return false,
        }
    }
}

/// Matches one character; returns how much of each was used.
fn one(pattern: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let &byte = name.first()?;
    match *pattern.first()? {
        b'?' => Some((1, character(name))),
        b'[' => match set(pattern, byte) {
            Some((used, true)) => Some((used, 1)),
            Some((_, false)) => None,
            // Without a closing bracket, the bracket stands for itself.
            None => (byte == b'[').then_some((1, 1)),
        },
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some((2, 1)),
        plain => (plain == byte).then_some((1, 1)),
    }
}

/// How many bytes the first character has: those of valid UTF-8, or else one.
fn character(name: &[u8]) -> usize {
    let first = name.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    first.chars().next().map_or(1, char::len_utf8)
}

/// A set such as `[!a-z_]`: its length in the pattern, and whether `byte` is in it. `None` if it does not
/// end.
fn set(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    let mut at = start;
    let mut found = false;
    loop {
        let low = *pattern.get(at)?;
        // A bracket in the first place is a member.
        if low == b']' && at > start {
            return Some((at + 1, found != negated));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                found |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                found |= low == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    /// Promises the meaning of each special character, and that an unfinished one stands for itself.
    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*.c", "main.c", true),
            ("*.c", "main.h", false),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "ä", true),
            ("??", "a", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[abc", "[abc", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern:?} {name:?}");
        }
        assert!(matches(b"a?b", b"a\xffb"));
    }
}
