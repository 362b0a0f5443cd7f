//! The two sides of a copy. The host and a volume look alike through this trait, so one routine copies in
//! every direction.
//!
//! A copy preserves permissions, times to the nanosecond, symbolic links, hard links among the files copied,
//! holes, and extended attributes (those that the other side refuses are reported and left out). It preserves
//! owners if the process is root. A copy with another owner or group has no set-id bits: what is written over
//! loses them before anything is written, and a copy gets them last, when its owner is set.
//!
//! On the host, others may change names while a copy is made. So a new file is never opened through a name
//! that is there already, and attributes are set on what is held open ([`Held`]), not on whatever has the
//! name. Where others may also swap the directories above, [`anchored::Anchored`] takes the place of
//! [`Host`].

pub mod anchored;
mod lineage;
#[cfg(test)]
mod tests;

use crate::output::bytes_of;
use anyhow::Context as _;
use rustix::fs::{AtFlags, IFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, CWD};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use yore_fs::{FileKind, InodeFlags, Node, RenameMode, SetAttr, SetTime, SetXattrMode, Timestamp, Volume};

/// Tells files apart within one side, and a file of the past from the same one as it is now.
pub type Identity = (u64, u64);

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

/// The attributes of a file that a copy preserves.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub kind: FileKind,
    /// 12 bits.
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub links: u64,
    pub identity: Identity,
    pub rdev: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
}

impl Facts {
    /// The permissions of a copy that has this owner and group. If they are not those of the source, the copy
    /// has no set-id bits: a program that somebody else put there must not run with the rights of whoever
    /// copied it.
    pub fn permissions_for(&self, owner: (u32, u32)) -> u32 {
        match (self.uid, self.gid) == owner {
            true => self.permissions,
            false => self.permissions & !SET_ID,
        }
    }
}

/// Whether two sides are one: the host, or one open volume. Only then can identities be compared.
pub fn is_same_side(one: &dyn Side, other: &dyn Side) -> bool {
    match (one.volume(), other.volume()) {
        (None, None) => true,
        (Some(one), Some(other)) => one.view().is_of_same_volume(other.view()),
        _ => false,
    }
}

/// A place that files are copied from or to.
pub trait Side {
    /// A path in a message.
    fn name(&self, path: &Path) -> String;
    /// Attributes; of a symbolic link, its own. `None` if there is nothing.
    fn facts(&self, path: &Path) -> anyhow::Result<Option<Facts>>;
    /// The error for a path where there is nothing.
    fn absent(&self, path: &Path) -> anyhow::Error {
        anyhow::anyhow!("cannot copy {}: no such file or directory", self.name(path))
    }
    /// How many bytes of data can be written, if that is known exactly.
    fn room(&self) -> Option<u64> {
        None
    }
    /// The volume; `None` on the host.
    fn volume(&self) -> Option<&Volume> {
        None
    }
    /// The identities of a directory and of everything that it lies in, symbolic links followed.
    fn lineage(&self, directory: &Path) -> anyhow::Result<Vec<Identity>>;
    /// Whether the path leads to a directory, symbolic links followed.
    fn is_directory(&self, path: &Path) -> bool;
    /// The path to the same thing without symbolic links and `..`.
    fn real(&self, path: &Path) -> anyhow::Result<PathBuf>;
    /// Notes that the user named this directory, which need not exist yet. A side that follows no symbolic
    /// links on the way to a file still follows those on the way to this directory, once and now.
    fn start_from(&self, _directory: &Path) -> anyhow::Result<()> {
        Ok(())
    }
    /// The names in a directory.
    fn list(&self, path: &Path) -> anyhow::Result<Vec<OsString>> {
        let mut names = Vec::new();
        self.list_into(path, &mut names)?;
        Ok(names)
    }
    /// Adds the names in a directory, on an error those that could be read before it.
    fn list_into(&self, path: &Path, names: &mut Vec<OsString>) -> anyhow::Result<()>;
    fn open(&self, path: &Path) -> anyhow::Result<Box<dyn Source>>;
    /// Creates a file. Fails if anything has that name, even a symbolic link that leads nowhere.
    fn create(&self, path: &Path) -> anyhow::Result<Box<dyn Target>>;
    /// Empties an existing regular file, and takes its set-id bits first: what comes into it is perhaps not
    /// to run with the rights of its present owner, and may stay there if the copy is broken off, or if its
    /// own owner cannot be set. A symbolic link is not followed.
    fn empty(&self, path: &Path) -> anyhow::Result<Box<dyn Target>>;
    /// Creates a file or empties the existing one. It follows symbolic links, as `>` does in a shell.
    fn create_or_empty(&self, path: &Path) -> anyhow::Result<Box<dyn Target>>;
    fn make_directory(&self, path: &Path) -> anyhow::Result<()>;
    fn read_link(&self, path: &Path) -> anyhow::Result<PathBuf>;
    fn make_link(&self, target: &Path, path: &Path) -> anyhow::Result<()>;
    fn make_special(&self, path: &Path, facts: &Facts) -> anyhow::Result<()>;
    fn hard_link(&self, original: &Path, path: &Path) -> anyhow::Result<()>;
    /// Removes a file, not a directory.
    fn remove(&self, path: &Path) -> anyhow::Result<()>;
    /// Gives a file or directory another name. With `replace`, it replaces a file that has that name.
    fn rename(&self, from: &Path, to: &Path, replace: bool) -> anyhow::Result<()>;
    /// Holds something of this type, to set its attributes; a symbolic link is not followed.
    fn hold(&self, path: &Path, kind: FileKind) -> anyhow::Result<Held>;
    fn remove_xattr(&self, of: &Held, name: &OsStr) -> anyhow::Result<()>;
    /// Owner and group.
    fn owner(&self, of: &Held) -> anyhow::Result<(u32, u32)>;
    fn set_owner(&self, of: &Held, facts: &Facts) -> anyhow::Result<()>;
    /// Permissions and times.
    fn set_facts(&self, of: &Held, facts: &Facts) -> anyhow::Result<()>;
    fn xattrs(&self, path: &Path) -> anyhow::Result<Vec<(OsString, Vec<u8>)>>;
    fn set_xattr(&self, of: &Held, name: &OsStr, value: &[u8]) -> anyhow::Result<()>;
    /// The flags that `chattr` has set on a file or directory; none where there are no such flags, or the
    /// user may not ask.
    fn flags(&self, path: &Path) -> anyhow::Result<InodeFlags>;
    /// Sets these flags. `false`: the user may not.
    fn set_flags(&self, path: &Path, flags: InodeFlags) -> anyhow::Result<bool>;
}

/// A file to read.
pub trait Source {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The next stretch of data at or after `offset`, without holes.
    fn data_from(&self, offset: u64) -> io::Result<Option<Range<u64>>>;
    /// The file itself, for a target that may share its blocks.
    fn itself(&self) -> Itself<'_>;
}

/// A file whose blocks another one may share.
pub enum Itself<'a> {
    OnHost(&'a fs::File),
    OnVolume(&'a yore_fs::File),
}

/// A file to write.
pub trait Target {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&self, size: u64) -> io::Result<()>;
    /// Has the file system copy bytes of a source to the same offset, which shares blocks where that can be.
    /// Returns how many; 0 if it cannot.
    fn copy_from(&self, source: &dyn Source, offset: u64, len: u64) -> io::Result<u64>;
    /// Ends the writing, and holds the file to set its attributes. It was opened by this path.
    fn written(self: Box<Self>, path: &Path) -> Held;
}

/// Something whose attributes are set. On the host it is held open, so all of them go to one and the same
/// file, whatever has its name meanwhile.
pub struct Held {
    path: PathBuf,
    descriptor: Option<fs::File>,
}

impl Held {
    /// The path by which it was found, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to what is held, and to nothing else. Calls must follow it: it is a link of the
    /// kernel's, which ends at what is held, even if that is a symbolic link.
    fn place(&self) -> PathBuf {
        self.descriptor.as_ref().map_or_else(|| self.path.clone(), descriptor_path)
    }
}

/// The path under which the kernel shows an open file to this process.
fn descriptor_path(file: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The host's files, wherever a path leads.
pub struct Host;

/// The host's files: how to get to a path.
pub trait OnHost {
    /// A path for one system call.
    fn reach(&self, path: &Path) -> io::Result<Reached>;
    /// See [`Side::start_from`].
    fn resolve(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl OnHost for Host {
    fn reach(&self, path: &Path) -> io::Result<Reached> {
        Ok(Reached { path: path.to_path_buf(), _directory: None })
    }
}

/// A path for system calls. Nothing but its last name can lead elsewhere if it begins at an open directory.
pub struct Reached {
    path: PathBuf,
    /// The directory that the path begins at: it stays open.
    _directory: Option<Rc<fs::File>>,
}

impl Reached {
    fn in_directory(directory: Rc<fs::File>, name: &OsStr) -> Reached {
        Reached { path: descriptor_path(&directory).join(name), _directory: Some(directory) }
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

fn time(seconds: i64, nanos: i64) -> Timestamp {
    Timestamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) }
}

impl<H: OnHost> Side for H {
    fn name(&self, path: &Path) -> String {
        path.display().to_string()
    }

    fn facts(&self, path: &Path) -> anyhow::Result<Option<Facts>> {
        let found = match self.reach(path).and_then(|at| fs::symlink_metadata(&at.path)) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None)
            }
            Err(error) => return Err(error).with_context(|| cannot("look at", path)),
        };
        let kind = FileKind::from_mode(found.mode())
            .with_context(|| format!("{} is of a kind that a volume does not have", path.display()))?;
        Ok(Some(Facts {
            kind,
            permissions: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            size: found.len(),
            links: found.nlink(),
            identity: (found.dev(), found.ino()),
            rdev: found.rdev(),
            atime: time(found.atime(), found.atime_nsec()),
            mtime: time(found.mtime(), found.mtime_nsec()),
        }))
    }

    fn lineage(&self, directory: &Path) -> anyhow::Result<Vec<Identity>> {
        let found = self.reach(directory).and_then(|at| lineage::of(&at.path));
        found.with_context(|| cannot("find what is above", directory))
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn real(&self, path: &Path) -> anyhow::Result<PathBuf> {
        path.canonicalize().with_context(|| cannot("find", path))
    }

    fn start_from(&self, directory: &Path) -> anyhow::Result<()> {
        self.resolve(directory).with_context(|| cannot("find", directory))
    }

    fn list_into(&self, path: &Path, names: &mut Vec<OsString>) -> anyhow::Result<()> {
        let entries = self.reach(path).and_then(|at| fs::read_dir(&at.path));
        for entry in entries.with_context(|| cannot("list", path))? {
            names.push(entry.with_context(|| cannot("list", path))?.file_name());
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> anyhow::Result<Box<dyn Source>> {
        // A pipe may have taken the file's place; then this does not wait for the other end.
        let file = self.reach(path).and_then(|at| no_follow().read(true).open(&at.path));
        Ok(Box::new(file.with_context(|| cannot("read", path))?))
    }

    fn create(&self, path: &Path) -> anyhow::Result<Box<dyn Target>> {
        // Nobody else may read it before its own permissions are set.
        let file = self
            .reach(path)
            .and_then(|at| no_follow().write(true).create_new(true).mode(0o600).open(&at.path));
        Ok(Box::new(file.with_context(|| cannot("write", path))?))
    }

    fn empty(&self, path: &Path) -> anyhow::Result<Box<dyn Target>> {
        let file = self.reach(path).and_then(|at| no_follow().write(true).open(&at.path));
        let file = file.with_context(|| cannot("write", path))?;
        let found = file.metadata().with_context(|| cannot("look at", path))?;
        anyhow::ensure!(found.is_file(), "cannot write {}: it is not a file any more", path.display());
        if found.mode() & SET_ID != 0 {
            let without = std::os::unix::fs::PermissionsExt::from_mode(found.mode() & 0o7777 & !SET_ID);
            file.set_permissions(without).with_context(|| cannot("take the set-id bits of", path))?;
        }
        file.set_len(0).with_context(|| cannot("write", path))?;
        Ok(Box::new(file))
    }

    fn create_or_empty(&self, path: &Path) -> anyhow::Result<Box<dyn Target>> {
        let file = self.reach(path).and_then(|at| {
            fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&at.path)
        });
        Ok(Box::new(file.with_context(|| cannot("write", path))?))
    }

    fn make_directory(&self, path: &Path) -> anyhow::Result<()> {
        let made = self.reach(path).and_then(|at| fs::DirBuilder::new().mode(0o700).create(&at.path));
        made.with_context(|| cannot("make directory", path))
    }

    fn read_link(&self, path: &Path) -> anyhow::Result<PathBuf> {
        self.reach(path).and_then(|at| fs::read_link(&at.path)).with_context(|| cannot("read link", path))
    }

    fn make_link(&self, target: &Path, path: &Path) -> anyhow::Result<()> {
        let made = self.reach(path).and_then(|at| std::os::unix::fs::symlink(target, &at.path));
        made.with_context(|| cannot("make symbolic link", path))
    }

    fn make_special(&self, path: &Path, facts: &Facts) -> anyhow::Result<()> {
        let kind = rustix::fs::FileType::from_raw_mode(facts.kind.mode());
        let mode = Mode::from_raw_mode(0o600);
        let made =
            self.reach(path).and_then(|at| Ok(rustix::fs::mknodat(CWD, &at.path, kind, mode, facts.rdev)?));
        made.with_context(|| cannot("make", path))
    }

    fn hard_link(&self, original: &Path, path: &Path) -> anyhow::Result<()> {
        let link = || -> io::Result<()> {
            let (old, new) = (self.reach(original)?, self.reach(path)?);
            fs::hard_link(&old.path, &new.path)
        };
        link().with_context(|| cannot("make link", path))
    }

    fn remove(&self, path: &Path) -> anyhow::Result<()> {
        self.reach(path).and_then(|at| fs::remove_file(&at.path)).with_context(|| cannot("replace", path))
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> anyhow::Result<()> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let rename = || -> io::Result<()> {
            let (old, new) = (self.reach(from)?, self.reach(to)?);
            Ok(rustix::fs::renameat_with(CWD, &old.path, CWD, &new.path, flags)?)
        };
        rename().with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
    }

    fn hold(&self, path: &Path, kind: FileKind) -> anyhow::Result<Held> {
        // Nothing is opened for reading or writing, so this needs no permission and disturbs no device.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || -> io::Result<(fs::File, u32)> {
            let at = self.reach(path)?;
            let file: fs::File = rustix::fs::open(&at.path, flags, Mode::empty())?.into();
            let mode = file.metadata()?.mode();
            Ok((file, mode))
        };
        let (file, mode) = open().with_context(|| cannot("look at", path))?;
        anyhow::ensure!(
            FileKind::from_mode(mode) == Some(kind),
            "cannot set the attributes of {}: something else has taken its place",
            path.display()
        );
        Ok(Held { path: path.to_path_buf(), descriptor: Some(file) })
    }

    fn remove_xattr(&self, of: &Held, name: &OsStr) -> anyhow::Result<()> {
        rustix::fs::removexattr(of.place(), name).with_context(|| cannot("remove an attribute of", &of.path))
    }

    fn owner(&self, of: &Held) -> anyhow::Result<(u32, u32)> {
        let found = fs::metadata(of.place()).with_context(|| cannot("look at", &of.path))?;
        Ok((found.uid(), found.gid()))
    }

    fn set_owner(&self, of: &Held, facts: &Facts) -> anyhow::Result<()> {
        std::os::unix::fs::chown(of.place(), Some(facts.uid), Some(facts.gid))
            .with_context(|| cannot("set the owner of", &of.path))
    }

    fn set_facts(&self, of: &Held, facts: &Facts) -> anyhow::Result<()> {
        // Symbolic links have no permissions of their own.
        if facts.kind != FileKind::Symlink {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(facts.permissions);
            fs::set_permissions(of.place(), permissions)
                .with_context(|| cannot("set the permissions of", &of.path))?;
        }
        let spec = |t: Timestamp| Timespec { tv_sec: t.seconds, tv_nsec: t.nanos.into() };
        let times = Timestamps { last_access: spec(facts.atime), last_modification: spec(facts.mtime) };
        rustix::fs::utimensat(CWD, of.place(), &times, AtFlags::empty())
            .with_context(|| cannot("set the times of", &of.path))
    }

    fn xattrs(&self, path: &Path) -> anyhow::Result<Vec<(OsString, Vec<u8>)>> {
        let read = || -> io::Result<Vec<(OsString, Vec<u8>)>> {
            let at = self.reach(path)?;
            let mut list = vec![0u8; 65_536];
            let len = match rustix::fs::llistxattr(&at.path, &mut list[..]) {
                Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
                other => other?,
            };
            let mut found = Vec::new();
            let mut value = vec![0u8; 65_536];
            for name in list[..len].split(|b| *b == 0).filter(|name| !name.is_empty()) {
                let len = match rustix::fs::lgetxattr(&at.path, name, &mut value[..]) {
                    // It has gone since the listing, or the name only looks like an attribute.
                    Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => continue,
                    other => other?,
                };
                found.push((OsString::from_vec(name.to_vec()), value[..len].to_vec()));
            }
            Ok(found)
        };
        read().with_context(|| cannot("read the extended attributes of", path))
    }

    fn set_xattr(&self, of: &Held, name: &OsStr, value: &[u8]) -> anyhow::Result<()> {
        Ok(rustix::fs::setxattr(of.place(), name, value, XattrFlags::empty())?)
    }

    fn flags(&self, path: &Path) -> anyhow::Result<InodeFlags> {
        let file = match self.reach(path).and_then(|at| no_follow().read(true).open(&at.path)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(InodeFlags::empty()),
            other => other.with_context(|| cannot("look at", path))?,
        };
        let found = match rustix::fs::ioctl_getflags(file) {
            Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => IFlags::empty(),
            other => other.with_context(|| cannot("read the flags of", path))?,
        };
        let set = FLAGS.iter().filter(|(_, flag)| found.contains(*flag));
        Ok(set.fold(InodeFlags::empty(), |flags, (flag, _)| flags | *flag))
    }

    fn set_flags(&self, path: &Path, flags: InodeFlags) -> anyhow::Result<bool> {
        let file = match self.reach(path).and_then(|at| no_follow().read(true).open(&at.path)) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
            other => other.with_context(|| cannot("set the flags of", path))?,
        };
        let set = FLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
        match rustix::fs::ioctl_setflags(file, set.fold(IFlags::empty(), |flags, (_, flag)| flags | *flag)) {
            Err(Errno::PERM | Errno::ACCESS) => Ok(false),
            other => other.map(|()| true).with_context(|| cannot("set the flags of", path)),
        }
    }
}

/// The flags of a volume, and what the kernel calls them.
const FLAGS: [(InodeFlags, IFlags); 4] = [
    (InodeFlags::IMMUTABLE, IFlags::IMMUTABLE),
    (InodeFlags::APPEND_ONLY, IFlags::APPEND),
    (InodeFlags::NO_DUMP, IFlags::NODUMP),
    (InodeFlags::NO_ACCESS_TIMES, IFlags::NOATIME),
];

/// How to open a path that others may have put something else at: a symbolic link is refused, and a pipe does
/// not keep the caller waiting.
fn no_follow() -> fs::OpenOptions {
    let mut options = fs::File::options();
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    options
}

impl Source for fs::File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, buf, offset)
    }

    fn data_from(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        use rustix::fs::SeekFrom;
        let start = match rustix::fs::seek(self, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            // A file system that knows no holes fails like this; then the whole file is data.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                let size = self.metadata()?.len();
                return Ok((offset < size).then_some(offset..size));
            }
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(self, SeekFrom::Hole(start))?;
        Ok(Some(start..end))
    }

    fn itself(&self) -> Itself<'_> {
        Itself::OnHost(self)
    }
}

impl Target for fs::File {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        fs::File::set_len(self, size)
    }

    fn copy_from(&self, source: &dyn Source, offset: u64, len: u64) -> io::Result<u64> {
        let Itself::OnHost(source) = source.itself() else { return Ok(0) };
        let (mut from, mut to) = (offset, offset);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // What fails here for another reason than that the kernel cannot do it fails again when the bytes are
        // read and written, and is reported then.
        Ok(rustix::fs::copy_file_range(source, Some(&mut from), self, Some(&mut to), len).unwrap_or(0) as u64)
    }

    fn written(self: Box<Self>, path: &Path) -> Held {
        Held { path: path.to_path_buf(), descriptor: Some(*self) }
    }
}

/// An open volume, with the name it has in messages.
pub struct OnVolume {
    pub volume: Volume,
    pub name: PathBuf,
}

impl OnVolume {
    /// A volume, by the name of its file.
    pub fn new(volume: &Volume, name: &Path) -> OnVolume {
        OnVolume { volume: volume.clone(), name: name.into() }
    }
}

/// The identity of what a node shows. Events are counted from 1.
fn identity_of(node: &Node) -> Identity {
    (node.event().map_or(0, |event| event.0), node.inode().0)
}

impl Side for OnVolume {
    fn name(&self, path: &Path) -> String {
        format!("{}:{}", self.name.display(), path.display())
    }

    fn facts(&self, path: &Path) -> anyhow::Result<Option<Facts>> {
        let node = match self.volume.symlink_node(path) {
            Ok(node) => node,
            Err(error)
                if matches!(error.root(), yore_fs::Error::NotFound | yore_fs::Error::NotADirectory) =>
            {
                return Ok(None)
            }
            Err(error) => return Err(error.into()),
        };
        let found = node.attr();
        Ok(Some(Facts {
            kind: found.kind,
            permissions: found.permissions,
            uid: found.uid,
            gid: found.gid,
            size: found.size,
            links: found.links.into(),
            identity: identity_of(&node),
            rdev: found.rdev.into(),
            atime: found.atime,
            mtime: found.mtime,
        }))
    }

    fn volume(&self) -> Option<&Volume> {
        Some(&self.volume)
    }

    fn lineage(&self, directory: &Path) -> anyhow::Result<Vec<Identity>> {
        let real = self.volume.canonicalize(directory)?;
        real.ancestors().map(|above| Ok(identity_of(&self.volume.symlink_node(above)?))).collect()
    }

    fn room(&self) -> Option<u64> {
        let found = self.volume.statfs();
        Some(found.blocks_available.saturating_mul(u64::from(found.block_size)))
    }

    fn absent(&self, path: &Path) -> anyhow::Error {
        yore_fs::Error::NotFound.on_path("cannot copy", bytes_of(path)).into()
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.volume.metadata(path).is_ok_and(|found| found.is_dir())
    }

    fn real(&self, path: &Path) -> anyhow::Result<PathBuf> {
        Ok(self.volume.canonicalize(path)?)
    }

    fn list_into(&self, path: &Path, names: &mut Vec<OsString>) -> anyhow::Result<()> {
        for entry in self.volume.read_dir(path)? {
            names.push(entry?.file_name());
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> anyhow::Result<Box<dyn Source>> {
        Ok(Box::new(yore_fs::File::open(&self.volume, path)?))
    }

    fn create(&self, path: &Path) -> anyhow::Result<Box<dyn Target>> {
        let mut options = yore_fs::OpenOptions::new();
        Ok(Box::new(options.write(true).create_new(true).open(&self.volume, path)?))
    }

    fn empty(&self, path: &Path) -> anyhow::Result<Box<dyn Target>> {
        let permissions = self.volume.symlink_node(path)?.attr().permissions;
        if permissions & SET_ID != 0 {
            let without = SetAttr { permissions: Some(permissions & !SET_ID), ..SetAttr::default() };
            self.volume.set_symlink_attributes(path, &without)?;
        }
        let mut options = yore_fs::OpenOptions::new();
        Ok(Box::new(options.write(true).truncate(true).open(&self.volume, path)?))
    }

    fn create_or_empty(&self, path: &Path) -> anyhow::Result<Box<dyn Target>> {
        Ok(Box::new(yore_fs::File::create(&self.volume, path)?))
    }

    fn make_directory(&self, path: &Path) -> anyhow::Result<()> {
        Ok(self.volume.create_dir(path)?)
    }

    fn read_link(&self, path: &Path) -> anyhow::Result<PathBuf> {
        Ok(self.volume.read_link(path)?)
    }

    fn make_link(&self, target: &Path, path: &Path) -> anyhow::Result<()> {
        Ok(self.volume.symlink(target, path)?)
    }

    fn make_special(&self, path: &Path, facts: &Facts) -> anyhow::Result<()> {
        let rdev = u32::try_from(facts.rdev).context("the device number does not fit into 32 bits")?;
        Ok(self.volume.create_special(path, facts.kind, 0o600, rdev)?)
    }

    fn hard_link(&self, original: &Path, path: &Path) -> anyhow::Result<()> {
        Ok(self.volume.hard_link(original, path)?)
    }

    fn remove(&self, path: &Path) -> anyhow::Result<()> {
        Ok(self.volume.remove_file(path)?)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> anyhow::Result<()> {
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        Ok(self.volume.rename_with(from, to, mode)?)
    }

    fn hold(&self, path: &Path, _kind: FileKind) -> anyhow::Result<Held> {
        // Only this process changes names on a volume that it has open.
        Ok(Held { path: path.to_path_buf(), descriptor: None })
    }

    fn remove_xattr(&self, of: &Held, name: &OsStr) -> anyhow::Result<()> {
        let path = &of.path;
        let node = self.volume.symlink_node(path)?;
        let removed = self.volume.view().of(&node).removexattr(node.inode(), name.as_bytes());
        removed.map_err(|error| error.on_path("cannot remove an attribute of", bytes_of(path)).into())
    }

    fn owner(&self, of: &Held) -> anyhow::Result<(u32, u32)> {
        let node = self.volume.symlink_node(&of.path)?;
        Ok((node.attr().uid, node.attr().gid))
    }

    fn set_owner(&self, of: &Held, facts: &Facts) -> anyhow::Result<()> {
        let set = SetAttr { uid: Some(facts.uid), gid: Some(facts.gid), ..SetAttr::default() };
        Ok(self.volume.set_symlink_attributes(&of.path, &set)?)
    }

    fn set_facts(&self, of: &Held, facts: &Facts) -> anyhow::Result<()> {
        let set = SetAttr {
            permissions: (facts.kind != FileKind::Symlink).then_some(facts.permissions),
            atime: Some(SetTime::To(facts.atime)),
            mtime: Some(SetTime::To(facts.mtime)),
            ..SetAttr::default()
        };
        Ok(self.volume.set_symlink_attributes(&of.path, &set)?)
    }

    fn xattrs(&self, path: &Path) -> anyhow::Result<Vec<(OsString, Vec<u8>)>> {
        let node = self.volume.symlink_node(path)?;
        let view = self.volume.view().of(&node);
        let named =
            |error: yore_fs::Error| error.on_path("cannot read the extended attributes of", bytes_of(path));
        let names = view.listxattr(node.inode()).map_err(named)?;
        names
            .into_iter()
            .map(|name| {
                let value = view.getxattr(node.inode(), &name).map_err(named)?;
                Ok((OsString::from_vec(name), value))
            })
            .collect()
    }

    fn set_xattr(&self, of: &Held, name: &OsStr, value: &[u8]) -> anyhow::Result<()> {
        let node = self.volume.symlink_node(&of.path)?;
        Ok(self.volume.view().of(&node).setxattr(node.inode(), name.as_bytes(), value, SetXattrMode::Any)?)
    }

    fn flags(&self, path: &Path) -> anyhow::Result<InodeFlags> {
        let node = self.volume.symlink_node(path)?;
        Ok(node.attr().flags & InodeFlags::CHOSEN)
    }

    fn set_flags(&self, path: &Path, flags: InodeFlags) -> anyhow::Result<bool> {
        let node = self.volume.symlink_node(path)?;
        let set = self.volume.view().of(&node).set_flags(node.inode(), flags);
        set.map(|()| true).map_err(|error| error.on_path("cannot set the flags of", bytes_of(path)).into())
    }
}

impl Source for yore_fs::File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(yore_fs::File::read_at(self, buf, offset)?)
    }

    fn data_from(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        Ok(yore_fs::File::data_from(self, offset)?)
    }

    fn itself(&self) -> Itself<'_> {
        Itself::OnVolume(self)
    }
}

impl Target for yore_fs::File {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        yore_fs::File::write_at(self, data, offset)?;
        Ok(())
    }

    fn set_len(&self, size: u64) -> io::Result<()> {
        Ok(yore_fs::File::set_len(self, size)?)
    }

    fn copy_from(&self, source: &dyn Source, offset: u64, len: u64) -> io::Result<u64> {
        match source.itself() {
            Itself::OnVolume(source) => Ok(self.copy_from(source, offset, len)?),
            Itself::OnHost(_) => Ok(0),
        }
    }

    fn written(self: Box<Self>, path: &Path) -> Held {
        Held { path: path.to_path_buf(), descriptor: None }
    }
}
