//! The machine of a run, as far as it explains figures.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// The machine of a run. Nothing in it identifies that machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Their kind, as the kernel names it; empty if it does not.
    pub processor: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The type of the file system that the images are on.
    pub host_file_system: String,
    /// The version of Yore.
    pub yore: String,
    /// Whether this build is without optimisation, so that its figures mean nothing.
    pub debug_build: bool,
}

impl Machine {
    /// This one, with images in `dir`.
    pub fn this(dir: &Path) -> Machine {
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let memory = rustix::system::sysinfo();
        Machine {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            processor: processor.map_or(String::new(), |(_, name)| name.trim().to_string()),
            // The field's type depends on the architecture.
            #[allow(clippy::unnecessary_cast)]
            memory_bytes: memory.totalram as u64 * u64::from(memory.mem_unit),
            host_file_system: file_system_of(dir),
            yore: env!("CARGO_PKG_VERSION").to_string(),
            debug_build: cfg!(debug_assertions),
        }
    }
}

/// The type by its magic number (`statfs(2)`).
fn file_system_of(dir: &Path) -> String {
    match rustix::fs::statfs(dir).map(|s| s.f_type as u64 & 0xffff_ffff) {
        Ok(0xef53) => "ext2, ext3 or ext4".into(),
        Ok(0x5846_5342) => "xfs".into(),
        Ok(0x9123_683e) => "btrfs".into(),
        Ok(0x0102_1994) => "tmpfs: memory, not a disk".into(),
        Ok(0x794c_7630) => "overlay".into(),
        Ok(other) => format!("type {other:#x}"),
        Err(_) => "unknown".into(),
    }
}
