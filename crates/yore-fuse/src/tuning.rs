//! Settings that can be made only after mounting, through the kernel's directory of the mount's "backing
//! device". Only root can make them. A setting that fails costs only speed, so it is a line in the log.

use crate::MountConfig;
use std::fs;

/// Raises read-ahead.
pub(crate) fn tune(device: (u32, u32), config: &MountConfig) {
    let setting = format!("/sys/class/bdi/{}:{}/read_ahead_kb", device.0, device.1);
    let value = (config.read_ahead / 1024).max(4).to_string();
    if let Err(error) = fs::write(&setting, &value) {
        tracing::debug!(%error, setting, value, "the mount's setting stays at its default");
    }
}
