//! Look-ups in the trees of versions.

use super::trees::First;
use crate::{InodeNo, Result};
use yore_format::{key_parts, version_key, version_shard, EventNo, HistoryTree, Version};
use yore_meta::Meta;

impl First<'_> {
    /// The version of an inode with the greatest birth up to `most`.
    pub(crate) fn version(self, meta: &Meta, no: InodeNo, most: EventNo) -> Result<Option<Version>> {
        let shard = version_shard(no);
        let _shard = self.past.shards[shard].read();
        let key = version_key(no, most);
        let found = self.past.tree(HistoryTree::Versions(shard)).floor(meta, &key, |cell| {
            let Some((key, value)) = cell else { return Ok(None) };
            match key_parts::<2>(key)? {
                [of, born] if of == no.0 => Version::decode(no, EventNo(born), value).map(Some),
                _ => Ok(None),
            }
        })?;
        Ok(found?)
    }

    /// The first version of an inode number that was born at `from` or later.
    pub(crate) fn version_after(self, meta: &Meta, no: InodeNo, from: EventNo) -> Result<Option<Version>> {
        let shard = version_shard(no);
        let _shard = self.past.shards[shard].read();
        let mut found = None;
        let tree = self.past.tree(HistoryTree::Versions(shard));
        tree.scan(meta, &version_key(no, from), &mut |key, value| {
            let [of, born] = key_parts::<2>(key)?;
            if of == no.0 {
                found = Some(Version::decode(no, EventNo(born), value)?);
            }
            Ok(false)
        })?;
        Ok(found)
    }

    /// The next versions of a shard after this one (by inode and birth), at most `most`; with `of_one_inode`
    /// only those of the first inode.
    pub(crate) fn versions_behind(
        self,
        meta: &Meta,
        shard: usize,
        after: Option<(InodeNo, EventNo)>,
        (most, of_one_inode): (usize, bool),
    ) -> Result<Vec<(InodeNo, Version)>> {
        let _shard = self.past.shards[shard].read();
        let first = after.map_or([0; 16], |(no, born)| version_key(no, born));
        let mut found: Vec<(InodeNo, Version)> = Vec::new();
        self.past.tree(HistoryTree::Versions(shard)).scan(meta, &first, &mut |key, value| {
            if after.is_some() && *key == first[..] {
                return Ok(true);
            }
            let [no, born] = key_parts::<2>(key)?;
            if of_one_inode && found.last().is_some_and(|(first, _)| *first != InodeNo(no)) {
                return Ok(false);
            }
            found.push((InodeNo(no), Version::decode(InodeNo(no), EventNo(born), value)?));
            Ok(found.len() < most)
        })?;
        Ok(found)
    }
}
