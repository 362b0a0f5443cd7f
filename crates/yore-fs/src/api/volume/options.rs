//! Defaults that come from random numbers and from the process.

use crate::{Caller, MkfsOptions};
use yore_format::{Engine, Policy, Retention, RetentionRules, Versioning};

impl Default for MkfsOptions {
    /// Random identity and hash key, no label, the `snapshot` engine, a root directory that belongs to the
    /// process's effective user and has permissions 0755; refuses to overwrite a volume.
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
            journal: None,
            data_checksums: false,
            force: false,
        }
    }
}

impl MkfsOptions {
    /// The policy for volumes on which people work: a snapshot of everything a minute after the first change
    /// since the last one. All of them stay for two hours, then one for each hour of two days, for each day
    /// of a month, for each week of a quarter, and for each month.
    pub fn usual_policy() -> Policy {
        let rules = RetentionRules {
            hourly: 48,
            daily: 30,
            weekly: 13,
            monthly: RetentionRules::ALL,
            within: "2h".into(),
            ..RetentionRules::default()
        };
        Policy {
            versioning: Some(Versioning::Interval(60 * 1_000_000_000)),
            retention: Some(Retention::Rules(rules)),
            ..Policy::default()
        }
    }
}

/// The process as a caller: its effective user and group, and its umask at this moment.
pub(super) fn process_caller() -> Caller {
    let uid = rustix::process::geteuid();
    Caller {
        uid: uid.as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: process_umask().unwrap_or(0o022),
        keeps_set_id: uid.is_root(),
    }
}

/// The umask according to the host's files: reading it with `umask(2)` would change it for an instant, for
/// all threads.
fn process_umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}
