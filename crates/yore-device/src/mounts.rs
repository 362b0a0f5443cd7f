//! The host's table of mounts. Nothing else in the project reads it.
//!
//! It is `/proc/PID/mountinfo`, one line for each mount: `36 35 0:57 / /mnt rw,nosuid shared:5 - fuse.yore
//! /v.yore rw,user_id=0`. Later lines lie on top of earlier ones. Blanks, tabs, ends of lines and backslashes
//! in a field are written as `\` and three octal digits.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device's number, major and minor: tells one mount from the next at the same place.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub directory: PathBuf,
    /// The type of file system.
    pub fs_type: String,
    /// What is mounted, as the program that mounted it calls it.
    pub source: OsString,
    /// The options of the file system, with commas between them.
    pub options: Vec<u8>,
}

/// All mounts that this process sees, the uppermost last.
///
/// # Errors
/// The table cannot be read.
pub fn mounts() -> io::Result<Vec<Mount>> {
    read("self")
}

/// All mounts that this thread sees, which may have a tree of them of its own.
///
/// # Errors
/// The table cannot be read.
pub fn mounts_of_thread() -> io::Result<Vec<Mount>> {
    read("thread-self")
}

/// All mounts that another process sees.
///
/// # Errors
/// The table cannot be read: the process is gone, or is somebody else's.
pub fn mounts_of(process: u32) -> io::Result<Vec<Mount>> {
    read(&process.to_string())
}

fn read(process: &str) -> io::Result<Vec<Mount>> {
    let table = fs::read(format!("/proc/{process}/mountinfo"))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// One line: `id parent major:minor root directory options [optional fields] - type source options`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (device, directory) = (fields.nth(2)?, fields.nth(1)?);
    fields.find(|field| *field == b"-")?;
    let (fs_type, source, options) = (fields.next()?, fields.next()?, fields.next()?);
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        directory: OsString::from_vec(unescape(directory)).into(),
        fs_type: String::from_utf8_lossy(&unescape(fs_type)).into_owned(),
        source: OsString::from_vec(unescape(source)),
        options: options.to_vec(),
    })
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&first, tail)) = rest.split_first() {
        let is_octal = |digits: &&[u8]| digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
        match tail.get(..3).filter(|digits| first == b'\\' && is_octal(digits)) {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u8, |n, digit| n.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Promises that lines are understood with and without optional fields, and with blanks and backslashes
    /// in paths.
    #[test]
    fn lines_of_the_table() {
        let line = br"36 35 0:57 / /m\040x rw,nosuid shared:5 - fuse.yore /v\134w,user_id=7 rw,user_id=12,group_id=0";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device, &*mount.fs_type), ((0, 57), "fuse.yore"));
        assert_eq!((&*mount.directory, &*mount.source), (Path::new("/m x"), r"/v\w,user_id=7".as_ref()));
        assert_eq!(mount.options, b"rw,user_id=12,group_id=0");
        let plain = parse(b"25 1 254:1 / / rw,relatime - ext4 /dev/root rw").unwrap();
        assert_eq!((plain.device, &*plain.fs_type), ((254, 1), "ext4"));
        for bad in
            [&b""[..], b"1 2 3", b"1 2 x:y / /m rw - ext4 /dev/a rw", b"1 2 0:3 / /m rw ext4 /dev/a rw"]
        {
            assert_eq!(parse(bad), None);
        }
        assert_eq!(unescape(br"/a\04"), br"/a\04");
        assert_eq!(unescape(br"\011\012"), b"\t\n");
        assert!(mounts().unwrap().iter().any(|mount| mount.directory == Path::new("/proc")));
        assert_eq!(mounts_of(std::process::id()).unwrap().len(), mounts().unwrap().len());
    }
}
