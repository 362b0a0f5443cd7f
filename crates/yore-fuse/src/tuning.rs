//! What can be set only after mounting, through the kernel's directory of the mount's "backing device". Root only; each
//! setting that cannot be made costs speed and nothing else, so it is a line in the log.

use crate::MountConfig;
use std::fs;

/// Raises read-ahead, and with the writeback cache the share of memory that may be dirty (1 % by default for FUSE).
pub(crate) fn tune(device: (u32, u32), config: &MountConfig) {
    let directory = format!("/sys/class/bdi/{}:{}", device.0, device.1);
    let mut settings = vec![("read_ahead_kb", (config.read_ahead / 1024).max(4).to_string())];
    if config.writeback_cache {
        settings.push(("strict_limit", "0".to_string()));
        settings.push(("max_ratio", "50".to_string()));
    }
    for (name, value) in settings {
        if let Err(error) = fs::write(format!("{directory}/{name}"), &value) {
            tracing::debug!(%error, name, value, "the mount's setting stays at its default");
        }
    }
}
