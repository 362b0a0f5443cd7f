//! What the machine offers, and the defaults that follow from that.

use std::sync::OnceLock;

/// The size of the data cache when the memory is unknown, and its limits otherwise.
const DATA_CACHE_USUAL: u64 = 256 << 20;
const DATA_CACHE_LEAST: u64 = 64 << 20;
const DATA_CACHE_MOST: u64 = 1 << 30;

/// Bytes for the cache of file data unless somebody chooses: an eighth of the memory. More than half of the
/// cache is never dirty, so a gigabyte is what a fast disk takes in a few hundred milliseconds; a larger
/// cache would only delay writers more when they finally have to wait.
pub(crate) fn default_data_cache() -> u64 {
    static CHOSEN: OnceLock<u64> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
        let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
        let limit = limit.and_then(|text| text.trim().parse().ok());
        data_cache_for(machine.into_iter().chain(limit).min())
    })
}

fn data_cache_for(memory: Option<u64>) -> u64 {
    memory.map_or(DATA_CACHE_USUAL, |bytes| (bytes / 8).clamp(DATA_CACHE_LEAST, DATA_CACHE_MOST))
}

/// Total bytes of memory, from the text of the host's `meminfo`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the data cache follows the machine's memory within bounds; if that is unknown, there is a
    /// default.
    #[test]
    fn the_data_cache_follows_memory() {
        let text = "MemTotal:        4194304 kB\nMemFree:         1024 kB\n";
        assert_eq!(total_memory(text), Some(4 << 30));
        assert_eq!(data_cache_for(total_memory(text)), 512 << 20);
        assert_eq!(data_cache_for(Some(128 << 20)), DATA_CACHE_LEAST);
        assert_eq!(data_cache_for(Some(64 << 30)), DATA_CACHE_MOST);
        assert_eq!((total_memory("MemTotal: much"), data_cache_for(None)), (None, DATA_CACHE_USUAL));
    }
}
