//! How a volume is served: the choices of users and administrators, and the settings of the connection that
//! follow from them.

use fuser::{InitFlags, KernelConfig};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use yore_fs::UserLimits;

/// How to serve a view on a mount point. Start from [`MountConfig::new`] and change what differs.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The directory to mount on; must exist and be empty.
    pub mountpoint: PathBuf,
    /// The source in the table of mounts: the volume's path. The table shows the type as `fuse.yore`.
    pub fs_name: String,
    /// Refuse every change, even if the view would allow it.
    pub read_only: bool,
    /// Let other users in (their permissions are checked). Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Give up history, as far as the volume's rules allow, for requests of any user. Otherwise only root and
    /// the mounting user have all such history given up for them; other users only have history given up that
    /// they could forget by a command.
    pub others_give_up_history: bool,
    /// Let `fusermount3` unmount when this process dies, so that a killed daemon leaves no dead mount point.
    /// This costs a helper process for as long as the mount lives.
    pub auto_unmount: bool,
    /// Honour device files on the volume. Root only.
    pub dev: bool,
    /// Honour set-user-id and set-group-id bits of programs on the volume. Root only.
    pub suid: bool,
    /// Refuse to run programs from the volume.
    pub no_exec: bool,
    /// Who may read the past.
    pub past: PastAccess,
    /// Let owners expunge their files also from snapshots that others took. Root and the mounting user may
    /// always do that.
    pub expunge_others: bool,
    /// How many snapshots, holds and policies each user may have. Root and the mounting user have no limit.
    pub limits: UserLimits,
    /// A name in the root directory that leads to all its snapshots. Only for mounts of the present.
    pub snapdir: Option<OsString>,
    /// Threads that read requests, each with a descriptor of its own; at least 1. Of fsyncs that wait at the
    /// same time only one keeps such a thread, and when few are left, those that write data are handed over
    /// to other threads.
    pub threads: usize,
    /// How long the kernel may believe names and attributes. Hours, because only this daemon changes the
    /// volume.
    pub timeout: Duration,
    /// How long the kernel may believe that a name does not exist. Zero: not at all.
    pub negative_timeout: Duration,
    /// Have the kernel report every open and close. Without this the kernel opens files and directories
    /// without asking, which saves two or three requests per file. Work that must happen on close (a version
    /// per open/close session) needs it.
    pub close_events: bool,
    /// Largest write request in bytes; 4 KiB to 16 MiB, above 1 MiB only where `fs.fuse.max_pages_limit` was
    /// raised.
    pub max_write: u32,
    /// Number of requests that the kernel keeps in flight for read-ahead and write-back.
    pub max_background: u16,
    /// Bytes the kernel reads ahead of a sequential reader. Beyond 128 KiB it takes effect only for root.
    pub read_ahead: u32,
}

/// Who may read the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PastAccess {
    /// Whoever could read it then, by the permissions and ACLs of that time.
    #[default]
    AsWas,
    /// The owner of that time, with the owner's permissions of that time.
    Owner,
}

/// The first version of the protocol whose kernel was seen to send FSYNC after writes with O_SYNC, both
/// buffered and direct. Older kernels may send it too; then such a write is synced twice, and the second sync
/// has nothing to do.
const SYNCS_AFTER_WRITE: (u32, u32) = (7, 45);

impl MountConfig {
    /// The defaults: writable, for the mounting user only, without close events.
    pub fn new(mountpoint: impl Into<PathBuf>, fs_name: impl Into<String>) -> MountConfig {
        let processors = std::thread::available_parallelism().map_or(2, |n| n.get());
        MountConfig {
            mountpoint: mountpoint.into(),
            fs_name: fs_name.into(),
            read_only: false,
            allow_other: false,
            others_give_up_history: false,
            auto_unmount: false,
            dev: false,
            suid: false,
            no_exec: false,
            past: PastAccess::default(),
            expunge_others: false,
            limits: UserLimits::default(),
            snapdir: None,
            threads: processors.clamp(8, 16),
            timeout: Duration::from_secs(24 * 3600),
            negative_timeout: Duration::from_secs(24 * 3600),
            close_events: false,
            max_write: 1 << 20,
            max_background: 64,
            read_ahead: 1 << 20,
        }
    }

    /// Asks the kernel for the settings that serve best, and returns what it granted. Call it from the `init`
    /// method of a [`fuser::Filesystem`] that is mounted with [`mount_filesystem`](crate::mount_filesystem).
    ///
    /// Deliberately not requested:
    /// - `ATOMIC_O_TRUNC`: if opens send no request, the truncation would be lost. Without this flag the
    ///   kernel sends it as a change of size.
    /// - `SETXATTR_EXT`: fuser 0.18 does not read the longer request. The kernel then cannot say that setting
    ///   an ACL must drop set-group-id; see `serve`.
    /// - `AUTO_INVAL_DATA`: cached pages stay true as long as only this daemon changes the volume.
    /// - `ASYNC_DIO`: when an asynchronous direct write ends, the kernel does not drop the pages that a
    ///   reader has meanwhile brought into its cache, and readers would see the old bytes for ever. Without
    ///   this flag the kernel carries such a write out before the call that submits it returns, and drops the
    ///   pages.
    /// - `WRITEBACK_CACHE`: a snapshot must contain what programs wrote before it. The kernel marks files of
    ///   such a mount as having no data integrity, so syncfs(2) only begins to write their pages, and the
    ///   snapshot can overtake them. A daemon can request nothing that makes the kernel wait, and until then
    ///   it knows neither sizes nor times.
    /// - `FLOCK_LOCKS`, `POSIX_LOCKS`: there is one daemon and one kernel, so the kernel's own locks are
    ///   right.
    pub fn negotiate(&self, kernel: &mut KernelConfig) -> Granted {
        let offered = kernel.capabilities();
        let mut ask = |wanted: InitFlags| offered.contains(wanted) && kernel.add_capabilities(wanted).is_ok();
        for wanted in [
            InitFlags::FUSE_BIG_WRITES,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_EXPORT_SUPPORT,
            // Programs take and list snapshots by ioctls on directories.
            InitFlags::FUSE_HAS_IOCTL_DIR,
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            // The view applies umask and default ACLs together. If the kernel applied the umask first, it
            // would also apply it where a default ACL says not to.
            InitFlags::FUSE_DONT_MASK,
        ] {
            ask(wanted);
        }
        let granted = Granted {
            posix_acl: ask(InitFlags::FUSE_POSIX_ACL),
            kill_set_id: ask(InitFlags::FUSE_HANDLE_KILLPRIV_V2),
            no_open: !self.close_events && ask(InitFlags::FUSE_NO_OPEN_SUPPORT),
            // Closing a listing needs no work, so directories are always opened without asking.
            no_opendir: ask(InitFlags::FUSE_NO_OPENDIR_SUPPORT),
            syncs_after_write: false,
        };
        let version = kernel.kernel_abi();
        let syncs_after_write = (version.0, version.1) >= SYNCS_AFTER_WRITE;
        // Each setter replaces an impossible value with the nearest possible one.
        let max_write = self.max_write.max(4096);
        if let Err(nearest) = kernel.set_max_write(max_write) {
            let _ = kernel.set_max_write(nearest);
        }
        if let Err(nearest) = kernel.set_max_readahead(self.read_ahead.max(4096)) {
            let _ = kernel.set_max_readahead(nearest);
        }
        let _ = kernel.set_max_background(self.max_background.max(1));
        Granted { syncs_after_write, ..granted }
    }
}

/// What the kernel granted of the settings that [`MountConfig::negotiate`] requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The kernel checks POSIX ACLs.
    pub posix_acl: bool,
    /// The kernel leaves dropping set-id bits to the daemon, and says with each write whether to drop them.
    pub kill_set_id: bool,
    /// The kernel opens files without a request.
    pub no_open: bool,
    /// The kernel opens directories without a request.
    pub no_opendir: bool,
    /// The kernel sends FSYNC after each write on a file opened with O_SYNC or O_DSYNC; older kernels leave
    /// the sync to the daemon.
    pub syncs_after_write: bool,
}
