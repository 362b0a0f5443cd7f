//! Defaults that come from outside: chance, the machine, and the process.

use crate::{Caller, MkfsOptions};
use std::sync::OnceLock;
use yore_format::{Engine, KeepRules, Policy, Retention, Versioning};

impl Default for MkfsOptions {
    /// Random identity and hash key, no label, the `snapshot` engine, a root directory of the process's effective user with
    /// permissions 0755; refuses to overwrite a volume.
    fn default() -> MkfsOptions {
        let caller = process_caller();
        MkfsOptions {
            uuid: uuid::Uuid::new_v4().into_bytes(),
            hash_seed: uuid::Uuid::new_v4().into_bytes(),
            label: String::new(),
            engine: Engine::Snapshot,
            owner: (caller.uid, caller.gid),
            permissions: 0o755,
            log_size: None,
            policy: Policy::default(),
            force: false,
        }
    }
}

impl MkfsOptions {
    /// The policy for volumes on which people work: a snapshot of everything a minute after the first change since the last one.
    /// All of them stay for two hours, then one for each hour of two days, for each day of a month, for each week of a
    /// quarter, and for each month.
    pub fn usual_policy() -> Policy {
        let rules = KeepRules {
            hourly: 48,
            daily: 30,
            weekly: 13,
            monthly: KeepRules::ALL,
            within: "2h".into(),
            ..KeepRules::default()
        };
        Policy {
            versioning: Some(Versioning::Interval(60 * 1_000_000_000)),
            retention: Some(Retention::Rules(rules)),
            ..Policy::default()
        }
    }
}

/// The data cache when its size is unknown, and between what it is chosen otherwise.
const DATA_CACHE_USUAL: u64 = 256 << 20;
const DATA_CACHE_LEAST: u64 = 64 << 20;
const DATA_CACHE_MOST: u64 = 1 << 30;

/// Bytes for the cache of file data unless somebody chooses: an eighth of the memory there is. More than half of it is never
/// dirty, so a gigabyte is what a fast disk takes in a few hundred milliseconds; a larger one would only delay writers more
/// when they are stopped at last.
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

/// Bytes of memory by the host's `meminfo`.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The process as a caller: its effective user and group, and its umask when asked.
pub(super) fn process_caller() -> Caller {
    let uid = rustix::process::geteuid();
    Caller {
        uid: uid.as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: process_umask().unwrap_or(0o022),
        keeps_set_id: uid.is_root(),
    }
}

/// The umask by the host's word, since asking with `umask(2)` sets it for an instant, for all threads.
fn process_umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data cache follows the machine's memory within its bounds, and does without knowing it.
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
