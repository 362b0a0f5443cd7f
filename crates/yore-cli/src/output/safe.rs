//! Names of any bytes in what people read: a name can neither end its line nor send commands to a terminal.

/// A name in a line, safe for terminals and for programs that read lines. Characters that would end the line,
/// send commands to the terminal or reverse the order of letters, and bytes that are not text, are written as
/// `\n`, `\r`, `\t`, or byte by byte as `\x1b`. All else is unchanged, backslashes too. The exact bytes are
/// in lists that end names by zero bytes (`-0`), and in JSON.
pub fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if is_unsafe(c) => {
                    push_bytes(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                c => text.push(c),
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    text
}

/// Whether a character ends lines, sends commands to a terminal, or changes the direction of text.
fn is_unsafe(c: char) -> bool {
    let is_layout = matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_layout
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    text.extend(bytes.iter().map(|byte| format!("\\x{byte:02x}")));
}

/// A word as a shell reads it: a command that is shown can be copied into one. The text is safe for
/// terminals, as [`printable`] makes it. A word that needs that, or is not UTF-8, becomes `$'…'`, which the
/// shell reads as exactly these bytes.
pub fn shell(word: impl AsRef<[u8]>) -> String {
    let word = word.as_ref();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@,+=".contains(c);
    match std::str::from_utf8(word).ok().filter(|text| !text.contains(is_unsafe)) {
        Some(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_string(),
        Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
        None => in_dollar_quotes(word),
    }
}

/// Bytes as `$'…'`. Three octal digits end by themselves in every shell that knows these quotes; the digits
/// of `\x1b` go on in some.
fn in_dollar_quotes(word: &[u8]) -> String {
    let mut text = String::from("$'");
    for byte in word {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\\' | b'\'' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that a command that is shown can be copied into a shell.
    #[test]
    fn words_are_quoted() {
        assert_eq!(shell("/mnt/a-b.c@2026-11-22_10.41"), "/mnt/a-b.c@2026-11-22_10.41");
        assert_eq!(shell("/mnt/it's here"), r"'/mnt/it'\''s here'");
        assert_eq!(shell(""), "''");
        assert_eq!(shell("$(x)"), "'$(x)'");
        assert_eq!(shell("gr\u{fc}n"), "'gr\u{fc}n'");
    }

    /// Promises that a command that is shown neither sends commands to a terminal nor ends a line, whatever
    /// is in its words, and that a shell reads the very bytes. Line ends and escape sequences went to the
    /// terminal as they were, and bytes that are no text became other ones.
    #[test]
    fn words_with_unsafe_bytes_are_quoted() {
        assert_eq!(shell("a\n\x1b[31m"), r"$'a\n\033[31m'");
        assert_eq!(shell(b"it's\\\xff1"), r"$'it\'s\\\3771'");
        assert_eq!(shell("x\u{9b}1\u{202e}"), r"$'x\302\2331\342\200\256'");
    }

    /// Promises that a name can neither send commands to a terminal nor end a line.
    #[test]
    fn names_for_terminals() {
        assert_eq!(printable(b"plain \xc3\xa4"), "plain ä");
        assert_eq!(printable(b"\x1b[31m\n\xff"), r"\x1b[31m\n\xff");
        assert_eq!(printable("a\u{9b}b\u{202e}c\td".as_bytes()), r"a\xc2\x9bb\xe2\x80\xaec\td");
        assert_eq!(printable(br"back\slash"), r"back\slash");
    }
}
