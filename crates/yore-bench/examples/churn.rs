//! Threads that create and remove files and directories on one view in memory, so that inode numbers and
//! metadata blocks are freed and taken again all the time. Any error between freeing and taking shows within
//! seconds as a panic or as damage. `cargo run --release -p yore-bench --example churn -- [SECONDS
//! [THREADS]]`

use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, FileKind, MkfsOptions, MountOptions, View, WriteMode};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(10), |s| s.parse())?;
    let threads = arguments.next().map_or(Ok(4), |s| s.parse())?;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 30));
    View::mkfs(&device, &MkfsOptions { label: "churn".into(), ..MkfsOptions::default() })?;
    // Generations follow each other quickly: what one frees, the next takes.
    let mount = MountOptions { commit_interval: Duration::from_millis(200), ..MountOptions::default() };
    let view = View::open(device, &mount)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let outcomes: Vec<yore_fs::Result<u32>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn({
                    let view = &view;
                    move || churn(view, t, end)
                })
            })
            .collect();
        // A panic in a worker becomes this program's.
        workers.into_iter().map(|w| w.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    for outcome in outcomes {
        println!("{} rounds", outcome?);
    }
    view.close()?;
    Ok(())
}

/// Each round creates a directory with some files, and removes half of them while they are in use.
fn churn(view: &View, thread: u32, end: Instant) -> yore_fs::Result<u32> {
    let me = Caller::superuser();
    let mode = WriteMode { append: false, kill_set_id: false };
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        let name = format!("thread {thread} round {round}");
        let directory = view.mkdir(&me, view.root(), name.as_bytes(), 0o755)?;
        let at = directory.inode();
        let files = 40 + (round * 37 + thread * 11) % 200;
        for i in 0..files {
            let name = format!("file {i}");
            let file = view.create(&me, at, name.as_bytes(), FileKind::Regular, 0o644, 0)?;
            if i % 3 == 0 {
                view.write(file.inode(), 0, b"some data", mode)?;
            }
            if i % 2 == 0 {
                view.unlink(at, name.as_bytes())?;
            }
        }
        for i in (1..files).step_by(2) {
            view.unlink(at, format!("file {i}").as_bytes())?;
        }
        view.rmdir(view.root(), name.as_bytes())?;
    }
    Ok(round)
}
