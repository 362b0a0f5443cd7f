//! Mounts the in-memory FUSE file system on a directory until it is unmounted, to try other benchmarks on the
//! transport alone: `cargo run --release -p yore-bench --example memory_fuse -- /mnt/x [close-events]`.

use yore_bench::MemoryFuse;
use yore_fuse::{mount_filesystem, MountConfig};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(mountpoint) = arguments.next() else {
        anyhow::bail!("usage: memory_fuse DIRECTORY [close-events]");
    };
    let mut config = MountConfig::new(mountpoint, "memory");
    for argument in arguments {
        match argument.as_str() {
            "close-events" => config.close_events = true,
            other => anyhow::bail!("unknown argument {other:?}: close-events"),
        }
    }
    println!("{:?}", mount_filesystem(MemoryFuse::new(&config), &config)?.wait()?);
    Ok(())
}
