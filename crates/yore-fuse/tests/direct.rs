//! Writes that bypass the kernel's cache (O_DIRECT), by calls that wait and by asynchronous ones, and what
//! others see of them.

mod common;

use common::{as_user, shell_as, Mounted, NOBODY};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: usize = 4096;

/// A buffer that direct I/O may use.
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

fn open_direct(path: &Path) -> File {
    let direct = OFlags::DIRECT.bits() as i32;
    OpenOptions::new().read(true).write(true).custom_flags(direct).open(path).unwrap()
}

/// The kernel's own asynchronous I/O (which libaio uses), for one request at a time.
struct Aio(libc::c_ulong);

/// `struct iocb` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

impl Aio {
    fn new() -> Aio {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel stores the number of a new context where the pointer says.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 16, &mut context) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        Aio(context)
    }

    /// Writes a block, and waits until the kernel reports that it is done.
    fn write(&self, file: &File, block: &Block, offset: usize) {
        const WRITE: u16 = 1;
        let mut control = Control {
            opcode: WRITE,
            file: file.as_raw_fd() as u32,
            buffer: block.0.as_ptr() as u64,
            bytes: BLOCK as u64,
            offset: offset as i64,
            ..Control::default()
        };
        let mut list = [&mut control as *mut Control];
        // SAFETY: one request. It and its buffer stay in place until the event of its end has come.
        let submitted = unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()) };
        assert_eq!(submitted, 1, "{}", io::Error::last_os_error());
        let mut event = [0u64; 4];
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: room for the one event that this call waits for.
        let ended = unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 1, 1, event.as_mut_ptr(), none) };
        assert_eq!((ended, event[2]), (1, BLOCK as u64), "{}", io::Error::last_os_error());
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and it has no request under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Asks for the permissions and nothing else: if only they are requested, the kernel believes its own copy
/// longest.
fn mode(path: &Path) -> u32 {
    let told = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap();
    u32::from(told.stx_mode) & 0o7777
}

/// An ordinary user writes, past the cache, to a program that belongs to root. Its set-id bits are gone both
/// for a caller that asks for nothing but them, and for one that starts the program. The daemon had dropped
/// them without notifying the kernel, which went on showing them to `stat -c %a`, and gave root's rights to
/// whoever started the program.
#[test]
fn set_id_bits_fall() {
    for (close_events, how) in [false, true].into_iter().flat_map(|c| [0, 1, 2, 3, 4].map(|how| (c, how))) {
        let Some(m) = Mounted::with(|c| {
            c.allow_other = true;
            c.close_events = close_events;
            c.suid = true;
        }) else {
            return;
        };
        let program = m.path("program");
        fs::copy("/usr/bin/id", &program).unwrap();
        let bytes = fs::read(&program).unwrap();
        let mut block = Block([0; BLOCK]);
        block.0.copy_from_slice(&bytes[..BLOCK]);
        // The second bit depends on whether the group may execute.
        for (before, after) in [(0o6666, 0o2666), (0o6767, 0o2767), (0o6777, 0o777)] {
            fs::set_permissions(&program, fs::Permissions::from_mode(before)).unwrap();
            assert_eq!(mode(&program), before);
            as_user(NOBODY, || {
                let buffered = || OpenOptions::new().write(true).open(&program).unwrap();
                match how {
                    0 => buffered().write_all_at(&block.0, 0).unwrap(),
                    1 => open_direct(&program).write_all_at(&block.0, 0).unwrap(),
                    2 => Aio::new().write(&open_direct(&program), &block, 0),
                    3 => rustix::fs::fallocate(buffered(), FallocateFlags::KEEP_SIZE, 0, 9).unwrap(),
                    _ => buffered().set_len(bytes.len() as u64).unwrap(),
                }
            });
            if after & 0o001 != 0 {
                let (ok, said) = shell_as(NOBODY, &format!("{} -un; {0} -u", program.display()));
                assert!(ok && said.ends_with(&format!("\n{NOBODY}\n")), "{how} {close_events}: {said}");
            }
            assert_eq!(mode(&program), after, "by {how} with {before:o}, close events {close_events}");
        }
        m.end();
    }
}

/// A process reads a file through the cache while another overwrites it asynchronously past the cache. After
/// each write has ended, the reader sees what was written. Pages that a reader had brought in during a write
/// stayed for good.
#[test]
fn readers_beside_asynchronous_writes() {
    let Some(m) = Mounted::new() else { return };
    let path = m.path("f");
    fs::write(&path, vec![0; 16 * BLOCK]).unwrap();
    let (direct, buffered, aio) = (open_direct(&path), File::open(&path).unwrap(), Aio::new());
    let done = AtomicBool::new(false);
    let stale = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut all = vec![0; 16 * BLOCK];
                while !done.load(Ordering::Relaxed) {
                    buffered.read_exact_at(&mut all, 0).unwrap();
                }
            });
        }
        let mut back = [0; BLOCK];
        let stale = (1..2000).find(|i| {
            let (block, at) = (Block([*i as u8; BLOCK]), i % 16 * BLOCK);
            aio.write(&direct, &block, at);
            buffered.read_exact_at(&mut back, at as u64).unwrap();
            back != block.0
        });
        done.store(true, Ordering::Relaxed);
        stale
    });
    assert_eq!(stale, None, "the number of the first write that a reader did not see");
    drop((direct, buffered, aio));
    m.end();
}
