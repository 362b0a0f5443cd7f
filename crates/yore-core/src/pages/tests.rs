//! Eviction keeps the cache within its limit, and visits files that have pages.

use super::*;

fn page() -> Bytes {
    Bytes::new(AlignedBuf::zeroed(1))
}

/// How many files eviction visits.
fn visited(cache: &PageCache) -> usize {
    cache.shards.iter().map(|shard| shard.lock().files.len()).sum()
}

/// Files that had been read once, and had no page any more, stood between eviction and the one large file
/// that was being read: it visited all of them for each few pages, gave up before it found enough, and the
/// cache exceeded its limit.
#[test]
fn files_without_pages_are_not_visited() {
    let cache = Arc::new(PageCache::new(4 << 20));
    let once: Vec<FileData> = (0..32_768).map(|_| FileData::default()).collect();
    for file in &once {
        let mut pages = file.pages(&cache);
        pages.enter(0, page());
        let spared = pages.discard(0, 1);
        assert_eq!((spared.blocks, spared.extents), (0, 0));
    }
    assert_eq!(visited(&cache), 0);
    let large = FileData::default();
    for index in 0..4096 {
        cache.make_room(1);
        large.pages(&cache).enter(index, page());
        assert!(cache.pages.load(Ordering::Relaxed) <= cache.limit, "at page {index}");
    }
    assert_eq!(visited(&cache), 1);
    cache.make_room(usize::MAX);
    assert_eq!((visited(&cache), cache.pages.load(Ordering::Relaxed)), (0, 0));
    // A file that gets pages again is visited again.
    once[7].pages(&cache).enter(3, page());
    assert_eq!(visited(&cache), 1);
    drop(once);
    assert_eq!((visited(&cache), cache.pages.load(Ordering::Relaxed)), (0, 0));
}
