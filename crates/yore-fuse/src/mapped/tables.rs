//! What a process has mapped so that it can store to it, from its table of mappings.
//!
//! The threads of a process have one table, and `/proc` shows it for each of them, but not for a thread that
//! has exited. The first thread may have exited (`pthread_exit`) while others go on, so these are asked when
//! it has none. A process without any table is about to end: the kernel takes its mappings away, and writes
//! their pages while it does. All of that is done when the process counts as ended, so its end is waited
//! for. The wait may be long: only threads that may be left behind ask ([`super::patient`]).
//!
//! A process that dies while it is read may leave it to its reader to take its mappings away.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, Opcode, Updater};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::time::Duration;

/// How long to wait for the end of a process before its threads are asked again: one of them may have begun
/// another.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// `struct procmap_query` of <linux/fs.h>.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const QUERY: Opcode = opcode::read_write::<Query>(b'f', 17);
/// Writable, shared, and of a file; at the address or the next mapping behind it.
const WANTED: u64 = 0x02 | 0x08 | 0x10 | 0x20;

/// PF_KTHREAD of the kernel's flags of a task: it is a thread of the kernel itself.
const OF_KERNEL: u64 = 0x0020_0000;
/// Position of these flags in `/proc/PID/stat` behind the name.
const FLAGS_AT: usize = 6;

/// The inode numbers of the files on a device that a process has mapped for writing. None if it belongs to
/// somebody else.
///
/// # Errors
/// The table cannot be read.
pub(super) fn files_of(process: u32, device: (u32, u32)) -> io::Result<HashSet<u64>> {
    let mut files = HashSet::new();
    let mut pause = FIRST_PAUSE;
    loop {
        if read_table(&format!("/proc/{process}/maps"), device, &mut files)? || has_no_table(process)? {
            return Ok(files);
        }
        for thread in threads_of(process)? {
            if read_table(&format!("/proc/{process}/task/{thread}/maps"), device, &mut files)? {
                return Ok(files);
            }
        }
        if ends_within(process, pause)? {
            return Ok(files);
        }
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Whether an error says that a process or a thread is gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Reads a table, if this user may. Returns false if there is none any more.
fn read_table(path: &str, device: (u32, u32), files: &mut HashSet<u64>) -> io::Result<bool> {
    let mut table = match File::open(path) {
        Ok(table) => table,
        Err(error) if is_gone(&error) => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(true),
        Err(error) => return Err(error),
    };
    if let Some(is_there) = query(&table, device, files)? {
        return Ok(is_there);
    }
    let mut text = Vec::new();
    match table.read_to_end(&mut text) {
        Err(error) if is_gone(&error) => return Ok(false),
        outcome => outcome?,
    };
    // Names of files need not be UTF-8.
    files.extend(String::from_utf8_lossy(&text).lines().filter_map(|line| parse(line, device)));
    Ok(!text.is_empty())
}

/// Asks for one mapping after another. Returns whether the table was there to the end, and `None` if the
/// kernel does not have this query (before Linux 6.11).
fn query(table: &File, device: (u32, u32), files: &mut HashSet<u64>) -> io::Result<Option<bool>> {
    let mut address = 0;
    loop {
        let mut query = Query { size: size_of::<Query>() as u64, flags: WANTED, address, ..Query::default() };
        // SAFETY: the number includes the size of the structure, which repeats its size in a field, and the
        // query asks the kernel to store no name.
        match unsafe { ioctl(table, Updater::<QUERY, Query>::new(&mut query)) } {
            Ok(()) if query.end > address => address = query.end,
            // There are no more.
            Ok(()) | Err(Errno::NOENT) => return Ok(Some(true)),
            Err(Errno::NOTTY | Errno::INVAL) => return Ok(None),
            Err(Errno::SRCH) => return Ok(Some(false)),
            Err(error) => return Err(error.into()),
        }
        if (query.major, query.minor) == device {
            files.insert(query.inode);
        }
    }
}

/// A line of the table: `start-end perms offset major:minor inode path`.
fn parse(line: &str, device: (u32, u32)) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let rights = fields.nth(1)?.as_bytes();
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let at = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = fields.next()?.parse().ok()?;
    (rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's') && at == device).then_some(inode)
}

/// Whether a process is gone, is hidden from this user, or is a thread of the kernel, which never has a table
/// and does not end.
fn has_no_table(process: u32) -> io::Result<bool> {
    match fs::read(format!("/proc/{process}/stat")) {
        Ok(stat) => Ok(is_of_kernel(&String::from_utf8_lossy(&stat))),
        Err(error) if is_gone(&error) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        Err(error) => Err(error),
    }
}

/// `number (name) state …`: the name may have blanks and parentheses.
fn is_of_kernel(stat: &str) -> bool {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let flags =
        behind_name.split_ascii_whitespace().nth(FLAGS_AT).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & OF_KERNEL != 0)
}

/// The threads of a process, also those that have exited.
fn threads_of(process: u32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    let entries = match fs::read_dir(format!("/proc/{process}/task")) {
        Err(error) if is_gone(&error) => return Ok(threads),
        entries => entries?,
    };
    for entry in entries {
        match entry {
            Err(error) if is_gone(&error) => break,
            entry => threads.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok())),
        }
    }
    Ok(threads)
}

/// Waits until all threads of a process have ended, but not longer than this. Returns whether they have.
fn ends_within(process: u32, pause: Duration) -> io::Result<bool> {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return Ok(true) };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(true),
        process => process?,
    };
    let limit = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)) {
        Ok(0) | Err(Errno::INTR) => Ok(false),
        outcome => Ok(outcome.map(|_| true)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;
    use std::time::Instant;

    /// A file that is mapped so that this process can store to it, until this is dropped.
    struct Mapped {
        file: File,
        at: *mut libc::c_void,
    }

    impl Mapped {
        fn new() -> Mapped {
            let file = tempfile::tempfile().unwrap();
            file.set_len(4096).unwrap();
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses, and that nobody uses.
            let at = unsafe { mmap(std::ptr::null_mut(), 4096, rights, MapFlags::SHARED, &file, 0) }.unwrap();
            Mapped { file, at }
        }

        fn device(&self) -> (u32, u32) {
            let facts = self.file.metadata().unwrap();
            (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()))
        }

        fn inode(&self) -> u64 {
            self.file.metadata().unwrap().ino()
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: the mapping that `new` made.
            unsafe { munmap(self.at, 4096) }.unwrap();
        }
    }

    /// Only mappings that are shared and writable count, and only those on that device.
    #[test]
    fn lines() {
        let line = |rights: &str| format!("7f00-7f01 {rights} 00000000 00:2a 4711    /mnt/some file");
        assert_eq!(parse(&line("rw-s"), (0, 42)), Some(4711));
        assert_eq!(parse(&line("-w-s"), (0, 42)), Some(4711));
        for (rights, device) in [("rw-p", (0, 42)), ("r--s", (0, 42)), ("rw-s", (0, 43))] {
            assert_eq!(parse(&line(rights), device), None);
        }
        assert_eq!(parse("7f00-7f01 rw-s", (0, 42)), None);
    }

    /// Threads of the kernel are told from processes that are ending, whatever a process calls itself.
    #[test]
    fn threads_of_the_kernel() {
        assert!(is_of_kernel("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0\n"));
        assert!(!is_of_kernel("77 (cat) Z 76 76 9 0 -1 4227084 119 0\n"));
        assert!(!is_of_kernel("78 (x) S 0 0 0 0 -1 2129984) R 76 76 9 0 -1 4194560 119 0\n"));
        assert!(!is_of_kernel("") && !is_of_kernel("79 (cat"));
    }

    /// Both ways find a mapping of this process, and stop finding it when it is gone.
    #[test]
    fn a_mapping_is_found() {
        let mapped = Mapped::new();
        let (device, inode) = (mapped.device(), mapped.inode());
        let me = std::process::id();
        assert!(files_of(me, device).unwrap().contains(&inode));
        let text = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(text.lines().any(|line| parse(line, device) == Some(inode)));
        drop(mapped);
        assert!(!files_of(me, device).unwrap().contains(&inode));
    }

    /// A process that ends, also if nobody has asked yet how it ended, has nothing mapped, and is not waited
    /// for longer than until then.
    #[test]
    fn processes_that_end() {
        let mapped = Mapped::new();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        assert!(!ends_within(pid, FIRST_PAUSE).unwrap());
        child.kill().unwrap();
        assert!(ends_within(pid, Duration::from_secs(60)).unwrap(), "a zombie has ended");
        assert!(files_of(pid, mapped.device()).unwrap().is_empty());
        child.wait().unwrap();
        assert!(files_of(u32::MAX, mapped.device()).unwrap().is_empty(), "there is no such process");
        assert!(!read_table("/proc/4294967295/maps", mapped.device(), &mut HashSet::new()).unwrap());
    }

    /// The second thread of a process: it ends the process by itself after some time.
    extern "C" fn second_thread(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: these calls take numbers.
        unsafe {
            libc::sleep(120);
            libc::_exit(0)
        }
    }

    /// Makes a process that has what this one has mapped, with two threads, of which the first exits at once.
    fn without_first_thread() -> libc::pid_t {
        const FLAGS: libc::c_int =
            libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        let mut stack = vec![0u128; 4096];
        let top = stack.as_mut_ptr_range().end;
        // SAFETY: the new process calls nothing that could need a lock that another thread of this one has.
        // Its second thread has a stack of its own, in the new process's copy of the memory, which stays as
        // it is until that process ends.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::clone(second_thread, top.cast(), FLAGS, std::ptr::null_mut());
                libc::syscall(libc::SYS_exit, 0);
            }
            pid
        }
    }

    /// A program whose first thread had exited while others worked on was taken for one that has nothing
    /// mapped, so that a snapshot did not contain what it had stored.
    #[test]
    fn the_first_thread_may_have_exited() {
        let mapped = Mapped::new();
        let child = without_first_thread();
        assert!(child > 0, "{}", io::Error::last_os_error());
        let end = Instant::now() + Duration::from_secs(60);
        let has_exited = || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
            stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z')
        };
        while !has_exited() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let was_there = has_exited() && threads_of(child as u32).unwrap().len() == 2;
        let found = files_of(child as u32, mapped.device());
        // SAFETY: the child made above, which nobody else waits for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(was_there);
        assert_eq!(found.unwrap(), HashSet::from([mapped.inode()]));
    }
}
