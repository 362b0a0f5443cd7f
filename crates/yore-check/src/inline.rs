//! Entries of a directory that lie in its inode: cookie, entry, cookie, entry.

use yore_format::{Corruption, DirEntry};

/// One of them.
pub(crate) struct InlineEntry<'a> {
    pub(crate) cookie: u64,
    pub(crate) entry: DirEntry<'a>,
    /// The entry as it is encoded.
    pub(crate) bytes: &'a [u8],
}

/// The entries in the order in which they lie there. What cannot be decoded is the last item.
pub(crate) struct InlineEntries<'a> {
    rest: &'a [u8],
}

impl<'a> InlineEntries<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> InlineEntries<'a> {
        InlineEntries { rest: bytes }
    }

    /// Those up to what cannot be decoded.
    pub(crate) fn readable(bytes: &'a [u8]) -> impl Iterator<Item = InlineEntry<'a>> {
        InlineEntries::new(bytes).map_while(Result::ok)
    }
}

impl<'a> Iterator for InlineEntries<'a> {
    type Item = Result<InlineEntry<'a>, Box<Corruption>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let Some((cookie, tail)) = rest.split_first_chunk::<8>() else {
            return Some(Err(Corruption::new("directory entry", "cookie", "8 bytes", rest.len())));
        };
        Some(DirEntry::decode_prefix(tail).map(|(entry, used)| {
            let (bytes, rest) = tail.split_at(used);
            self.rest = rest;
            InlineEntry { cookie: u64::from_be_bytes(*cookie), entry, bytes }
        }))
    }
}
