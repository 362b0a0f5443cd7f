//! Promises who may have a device open at the same time. Whoever is refused is told who holds the device,
//! even if the holder inherited the lock from a process that is gone.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use yore_device::{
    AlignedBuf, CreateOptions, Device, DeviceError, FileDevice, Holder, OpenOptions, BLOCK_SIZE,
};

const SIZE: u64 = 16 * BLOCK_SIZE as u64;
/// These tell the helper which device to hold, and how.
const DEVICE: &str = "YORE_DEVICE_TEST_HOLDS";
const MODE: &str = "YORE_DEVICE_TEST_MODE";

const READ_ONLY: OpenOptions = OpenOptions { read_only: true, direct: yore_device::Direct::Auto, lock: true };

/// Not a test: the tests below run this as another process. It holds a device until its input ends. In mode
/// `daemon` a child holds the device, and the process itself exits at once, as a daemon's parent does.
#[test]
fn helper() {
    let (Ok(path), Ok(mode)) = (std::env::var(DEVICE), std::env::var(MODE)) else {
        return;
    };
    let read_only = mode == "reader";
    let options = OpenOptions { read_only, ..Default::default() };
    let device = FileDevice::open(path, options).unwrap();
    if mode == "daemon" {
        // SAFETY: the child uses nothing that another thread of this process could have locked.
        match unsafe { libc::fork() } {
            0 => {}
            child => {
                assert!(child > 0);
                std::process::exit(0);
            }
        }
    }
    writeln!(std::io::stdout(), "\nholder:{}", std::process::id()).unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(device);
    writeln!(std::io::stdout(), "released").unwrap();
    std::process::exit(0);
}

/// Another process that holds a device.
struct Other {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    /// The process that holds it.
    pid: u32,
}

impl Other {
    fn start(path: &Path, mode: &str) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper", "--nocapture", "--test-threads=1"])
            .env(DEVICE, path)
            .env(MODE, mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let pid = Self::wait_for(&mut output, "holder:").parse().unwrap();
        if mode == "daemon" {
            assert_ne!(pid, process.id());
            process.wait_parent();
        }
        Other { process, output, pid }
    }

    /// The rest of the first line that begins with `start`.
    fn wait_for(output: &mut impl BufRead, start: &str) -> String {
        let lines = output.lines().map(|line| line.unwrap());
        let mut rests = lines.filter_map(|line| line.strip_prefix(start).map(str::to_string));
        rests.next().unwrap_or_else(|| panic!("the other process ended without `{start}`"))
    }

    /// Lets it go on, and waits until it has closed the device.
    fn stop(mut self) {
        drop(self.process.stdin.take());
        Self::wait_for(&mut self.output, "released");
        self.process.wait().unwrap();
    }
}

/// Waits for a process without closing its input, which its child has inherited.
trait WaitParent {
    fn wait_parent(&mut self);
}

impl WaitParent for Child {
    fn wait_parent(&mut self) {
        let input = self.stdin.take();
        assert!(self.wait().unwrap().success());
        self.stdin = input;
    }
}

fn image() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    drop(FileDevice::create(&path, SIZE, CreateOptions::default()).unwrap());
    (directory, path)
}

fn busy(path: &Path, holder: Option<Holder>) -> DeviceError {
    let device = path.display().to_string();
    DeviceError::Busy { device, holder }
}

fn command_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    name.trim_end().to_string()
}

/// Two handles in one process exclude each other just as two processes do; readers share.
#[test]
fn handles_of_one_process() {
    let (_directory, path) = image();
    let me = Holder { pid: std::process::id(), command: command_of(std::process::id()) };
    let writer = FileDevice::open(&path, OpenOptions::default()).unwrap();
    for options in [OpenOptions::default(), READ_ONLY] {
        let error = FileDevice::open(&path, options).unwrap_err();
        assert_eq!(error, busy(&path, Some(me.clone())));
    }
    let overwrite = CreateOptions { overwrite: true, ..Default::default() };
    assert_eq!(FileDevice::create(&path, SIZE, overwrite).unwrap_err(), busy(&path, Some(me.clone())));
    writer.write_at(0, &common::pattern(1, 1)).unwrap();
    assert_eq!(common::read(&writer, 0, 1), common::pattern(1, 1), "nothing was truncated");
    let unlocked = OpenOptions { lock: false, ..Default::default() };
    drop(FileDevice::open(&path, unlocked).unwrap());
    assert!(FileDevice::open(&path, READ_ONLY).is_err(), "closing another handle releases nothing");
    drop(writer);
    let readers = [(); 2].map(|()| FileDevice::open(&path, READ_ONLY).unwrap());
    let error = FileDevice::open(&path, OpenOptions::default()).unwrap_err();
    assert_eq!(error, busy(&path, Some(me)));
    drop(readers);
    FileDevice::open(&path, OpenOptions::default()).unwrap();
}

/// The message names the process that holds the device, and the lock ends with that process.
#[test]
fn another_process() {
    let (_directory, path) = image();
    for mode in ["writer", "reader"] {
        let other = Other::start(&path, mode);
        let error = FileDevice::open(&path, OpenOptions::default()).unwrap_err();
        let command = command_of(other.pid);
        let holder = Holder { pid: other.pid, command: command.clone() };
        assert_eq!(error, busy(&path, Some(holder)));
        let message = error.to_string();
        let expected = format!("is in use by process {} ({command})", other.pid);
        assert!(message.contains(&expected), "{message}");
        assert_eq!(FileDevice::open(&path, READ_ONLY).is_ok(), mode == "reader");
        other.stop();
        FileDevice::open(&path, OpenOptions::default()).unwrap();
    }
}

/// A daemon opens a device and forks, and the parent exits. The child then has the lock, and the message
/// names the child.
#[test]
fn a_lock_inherited_by_a_daemon() {
    let (_directory, path) = image();
    let other = Other::start(&path, "daemon");
    let error = FileDevice::open(&path, OpenOptions::default()).unwrap_err();
    let holder = Holder { pid: other.pid, command: command_of(other.pid) };
    assert_eq!(error, busy(&path, Some(holder)));
    other.stop();
    FileDevice::open(&path, OpenOptions::default()).unwrap();
}

/// A path that cannot be a device, or must not be replaced, is refused with a reason and left alone.
#[test]
fn what_is_refused() {
    let (directory, path) = image();
    let name = |path: &Path| path.display().to_string();
    let open = |path: &Path| FileDevice::open(path, OpenOptions::default()).unwrap_err();
    let create = |path: &Path, options| FileDevice::create(path, SIZE, options).unwrap_err();
    let missing = directory.path().join("missing");
    assert_eq!(open(&missing), DeviceError::NotFound { device: name(&missing) });
    let not_a_device = |path: &Path, found| DeviceError::NotADevice { device: name(path), found };
    assert_eq!(open(directory.path()), not_a_device(directory.path(), "directory"));
    assert_eq!(open(Path::new("/dev/null")), not_a_device(Path::new("/dev/null"), "character device"));
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(open(&pipe), not_a_device(&pipe, "pipe"));
    let small = directory.path().join("small");
    std::fs::write(&small, [1; 4095]).unwrap();
    assert_eq!(open(&small), DeviceError::TooSmall { device: name(&small), size: 4095, needed: 4096 });
    let device = name(&path);
    assert_eq!(create(&path, CreateOptions::default()), DeviceError::AlreadyExists { device });
    let overwrite = CreateOptions { overwrite: true, ..Default::default() };
    assert_eq!(create(directory.path(), overwrite), not_a_device(directory.path(), "directory"));
    let nowhere = directory.path().join("no/volume");
    assert_eq!(create(&nowhere, overwrite), DeviceError::NotFound { device: name(&nowhere) });
}

/// A read-only device reads and flushes, and refuses changes. An incomplete last block is not used.
#[test]
fn read_only_and_odd_sizes() {
    let (_directory, path) = image();
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(&[7; 100]).unwrap();
    let device = FileDevice::open(&path, READ_ONLY).unwrap();
    assert_eq!((device.size(), device.read_only()), (SIZE, true));
    let block = AlignedBuf::zeroed(1);
    let refused = DeviceError::ReadOnly {
        operation: yore_device::Operation::Write,
        device: path.display().to_string(),
    };
    assert_eq!(device.write_at(0, &block), Err(refused.clone()));
    let writes = [yore_device::WriteRequest { offset: 0, data: &block }];
    assert_eq!(device.write_batch(&writes), Err(refused));
    assert!(matches!(device.discard(0, 4096), Err(DeviceError::ReadOnly { .. })));
    device.flush().unwrap();
    assert_eq!(common::read(&device, 15, 1), block);
}

/// Creating over a file empties it and gives it the new size.
#[test]
fn overwriting() {
    let (_directory, path) = image();
    let device = FileDevice::open(&path, OpenOptions::default()).unwrap();
    device.write_at(0, &common::pattern(1, 16)).unwrap();
    drop(device);
    let overwrite = CreateOptions { overwrite: true, ..Default::default() };
    let device = FileDevice::create(&path, SIZE / 2, overwrite).unwrap();
    assert_eq!(device.size(), SIZE / 2);
    assert_eq!(common::read(&device, 0, 8), AlignedBuf::zeroed(8));
    device.flush().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE / 2);
}
