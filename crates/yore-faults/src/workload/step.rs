//! The steps of the workload.

/// One step. The paths are those of the sample, or of earlier steps.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The fields are the arguments of the calls, under their names.
pub enum Step {
    /// A new empty file.
    Create { path: &'static str },
    /// A new directory.
    Mkdir { path: &'static str },
    /// Bytes that follow from `tag`, at an offset.
    Write { path: &'static str, offset: u64, len: usize, tag: u64 },
    /// A new size.
    Truncate { path: &'static str, size: u64 },
    /// A hole.
    Punch { path: &'static str, offset: u64, len: u64 },
    /// Blocks without data.
    Allocate { path: &'static str, offset: u64, len: u64 },
    /// A symbolic link, with a target of `len` bytes.
    Symlink { path: &'static str, len: usize },
    /// Another name for a file.
    Link { from: &'static str, to: &'static str },
    /// Removes a name.
    Unlink { path: &'static str },
    /// Removes a directory.
    Rmdir { path: &'static str },
    /// Renames, and replaces what had the new name.
    Rename { from: &'static str, to: &'static str },
    /// Exchanges two names.
    Exchange { from: &'static str, to: &'static str },
    /// An attribute of `len` bytes.
    SetXattr { path: &'static str, name: &'static str, len: usize },
    /// Removes an attribute.
    RemoveXattr { path: &'static str, name: &'static str },
    /// Other permissions.
    Chmod { path: &'static str, permissions: u32 },
    /// Reads the file and compares it with the model.
    Read { path: &'static str },
    /// Makes one file durable, and all names.
    Fsync { path: &'static str },
    /// Makes everything durable.
    Sync,
    /// Takes a durable snapshot of the volume.
    Snapshot { name: &'static str },
    /// Forgets a snapshot, and what only it had seen.
    Forget { name: &'static str },
}

impl Step {
    /// Whether it changes nothing and promises nothing.
    pub fn only_reads(&self) -> bool {
        matches!(self, Step::Read { .. })
    }
}

/// The workload: every kind of call, on files that are on the medium and on new ones, some of it promised and
/// some not.
pub fn steps() -> Vec<Step> {
    use Step::*;
    vec![
        Read { path: "scattered" },
        Create { path: "new" },
        Write { path: "new", offset: 0, len: 30, tag: 1 },
        Fsync { path: "new" },
        Mkdir { path: "dir" },
        Create { path: "dir/a" },
        Write { path: "dir/a", offset: 100, len: 20_000, tag: 2 },
        SetXattr { path: "dir/a", name: "user.a", len: 20 },
        Fsync { path: "dir/a" },
        Write { path: "dir/a", offset: 8192, len: 100, tag: 3 },
        Link { from: "dir/a", to: "many/linked" },
        Symlink { path: "dir/link", len: 40 },
        Symlink { path: "dir/long link", len: 3000 },
        Sync,
        Read { path: "three" },
        Rename { from: "new", to: "three" },
        Unlink { path: "few/a" },
        Truncate { path: "scattered", size: 60_000 },
        Fsync { path: "scattered" },
        SetXattr { path: "one", name: "user.big", len: 12_000 },
        RemoveXattr { path: "few", name: "user.dir" },
        Chmod { path: "inline", permissions: 0o600 },
        Rename { from: "dir/link", to: "few/sub/link" },
        Snapshot { name: "one" },
        Write { path: "one", offset: 0, len: 4096, tag: 4 },
        Fsync { path: "one" },
        Create { path: "large" },
        Write { path: "large", offset: 0, len: 1_800_000, tag: 5 },
        Read { path: "large" },
        Punch { path: "large", offset: 409_600, len: 400_000 },
        Fsync { path: "large" },
        Allocate { path: "inline", offset: 0, len: 50_000 },
        Exchange { from: "few", to: "dir" },
        Snapshot { name: "two" },
        Fsync { path: "inline" },
        Unlink { path: "scattered" },
        Truncate { path: "large", size: 5000 },
        Mkdir { path: "empty dir" },
        Rmdir { path: "empty dir" },
        Unlink { path: "many/linked" },
        Forget { name: "one" },
        Sync,
        Write { path: "large", offset: 100_000, len: 9000, tag: 6 },
        Create { path: "last" },
        Fsync { path: "large" },
        Unlink { path: "one" },
        Snapshot { name: "three" },
        Rename { from: "last", to: "many/last" },
        Forget { name: "two" },
    ]
}
