//! File systems served through FUSE: Yore's mount, the transport bound, fuse2fs.

use super::kind::Serving;
use super::state::{Rival, ServedBy};
use super::{library, system};
use crate::{program, BenchError, MemoryFuse, Result};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use yore_fs::{Durability, MountOptions};
use yore_fuse::{mount, mount_filesystem, MountConfig};

/// How long a server may take to begin, or to end after its mount has gone.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the program that serves the transport bound says when it is mounted.
const READY: &str = "ready";

impl Rival {
    pub(super) fn attach_mount(&mut self, durability: Durability) -> Result<()> {
        let (image, mountpoint) = (self.image(), self.mountpoint());
        match &self.env.serving {
            Serving::InProcess => {
                let config = MountConfig::new(&mountpoint, image.display().to_string());
                let options = MountOptions { durability, ..MountOptions::default() };
                self.served_by = ServedBy::Session(mount(library::open_with(&image, &options)?, &config)?);
            }
            Serving::Program(yore) => {
                let log = self.dir.join("log");
                let mut options = format!("log={}", log.display());
                if durability != Durability::Async {
                    options = format!("durability={},{options}", durability.name());
                }
                if !self.env.mount_options.is_empty() {
                    options = format!("{},{options}", self.env.mount_options);
                }
                program::run(
                    program::command(yore).arg("mount").arg(&image).arg(&mountpoint).arg("-o").arg(options),
                    "fuse3",
                )?;
                self.served_by = ServedBy::Daemon;
            }
        }
        Ok(())
    }

    pub(super) fn detach_mount(&self) -> Result<()> {
        match &self.env.serving {
            // Returns when the daemon has closed the volume.
            Serving::Program(yore) => {
                program::run(program::command(yore).arg("umount").arg(self.mountpoint()), "fuse3").map(drop)
            }
            Serving::InProcess => panic!("a daemon without a program"),
        }
    }

    /// The process that serves this.
    ///
    /// # Errors
    /// [`BenchError::Impossible`] if none of its own does.
    pub(crate) fn server(&self) -> Result<u32> {
        if let ServedBy::Child(child) = &self.served_by {
            return Ok(child.id());
        }
        let Serving::Program(yore) = &self.env.serving else {
            return Err(BenchError::impossible(
                "no process of its own serves this",
                "measure mounts with the yore command",
            ));
        };
        let said =
            program::run(program::command(yore).args(["info", "--json"]).arg(self.mountpoint()), "yore")?;
        let failed = |said: String| BenchError::Command { command: "yore info".into(), said };
        let info: serde_json::Value = serde_json::from_str(&said).map_err(|e| failed(e.to_string()))?;
        let pid = info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| failed("it does not say which process serves the mount".into()))
    }

    pub(super) fn attach_memory(&mut self) -> Result<()> {
        let mountpoint = self.mountpoint();
        self.version = Some(format!("yore {}", env!("CARGO_PKG_VERSION")));
        match &self.env.serving {
            Serving::InProcess => {
                let config = MountConfig::new(&mountpoint, "memory");
                let session = mount_filesystem(MemoryFuse::new(&config), &config)?;
                self.served_by = ServedBy::Session(session);
            }
            Serving::Program(yore) => {
                let mut command = program::command(yore);
                command.args(["bench", "serve-memory"]).arg(&mountpoint).stdout(Stdio::piped());
                let mut child = spawn(&mut command, "yore")?;
                let mut line = String::new();
                if let Some(out) = child.stdout.take() {
                    BufReader::new(out)
                        .read_line(&mut line)
                        .map_err(BenchError::system("hearing of the mount"))?;
                }
                self.served_by = ServedBy::Child(child);
                if line.trim() != READY {
                    let said = "it ended without mounting (its message is above)".to_string();
                    return Err(BenchError::Command { command: "yore bench serve-memory".into(), said });
                }
            }
        }
        Ok(())
    }

    pub(super) fn attach_fuse2fs(&mut self) -> Result<()> {
        let mountpoint = self.mountpoint();
        let mut command = program::command("fuse2fs");
        command.arg("-f").arg(self.image()).arg(&mountpoint).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = spawn(&mut command, "fuse2fs")?;
        let end = Instant::now() + PATIENCE;
        // The program prints nothing when it is ready; the table of mounts shows it.
        while !matches!(yore_fuse::mounted_at(&mountpoint), Ok(Some(_))) {
            let ended = child.try_wait().map_err(BenchError::system("waiting for fuse2fs"))?;
            if ended.is_some() || Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                let said = "it did not mount".to_string();
                return Err(BenchError::Command { command: "fuse2fs".into(), said });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.served_by = ServedBy::Child(child);
        Ok(())
    }

    /// Unmounts, and waits for the process that served: the image is closed only then.
    pub(super) fn detach_child(&self, child: &mut Child) -> Result<()> {
        system::unmount(&self.mountpoint())?;
        let end = Instant::now() + PATIENCE;
        let failed = |said: String| {
            let command = format!("the server of {}", self.kind.name());
            Err(BenchError::Command { command, said })
        };
        loop {
            match child.try_wait().map_err(BenchError::system("waiting for the server"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return failed(status.to_string()),
                None if Instant::now() > end => return failed("it did not end after unmounting".into()),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// Starts a server in a process group of its own: a terminal's signal to end the measurement must not end the
/// server during it.
fn spawn(command: &mut Command, package: &str) -> Result<Child> {
    command.process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BenchError::NotInstalled { program, package: package.into() },
        _ => BenchError::Command { command: program, said: error.to_string() },
    })
}

/// Serves the in-memory FUSE file system on `mountpoint` until somebody unmounts it, and reports on standard
/// output when it is ready: the other side of [`Serving::Program`].
///
/// # Errors
/// It cannot be mounted, or ended badly.
pub fn serve_memory(mountpoint: &std::path::Path) -> Result<()> {
    let config = MountConfig::new(mountpoint, "memory");
    let session = mount_filesystem(MemoryFuse::new(&config), &config)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{READY}")
        .and_then(|()| out.flush())
        .map_err(BenchError::system("saying that it is mounted"))?;
    session.wait()?;
    Ok(())
}
