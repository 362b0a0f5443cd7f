//! A small key-value store that survives kill -9 and loss of power: a map in memory, and a write-ahead log in
//! a file.
//!
//! ```text
//! cargo run --example wal -- /tmp/store set colour green
//! cargo run --example wal -- /tmp/store get colour
//! cargo run --example wal -- /tmp/store count 1000    # kill -9 it; what it printed is there the next time
//! cargo run --example wal -- /tmp/store list
//! ```
//!
//! A change is one record, durable before it is acknowledged. When half of the log is used, one record with
//! the whole map is appended, and everything before it is forgotten. Opening reads the records that are left,
//! in order.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use yore_device::{CreateOptions, FileDevice, OpenOptions};
use yore_log::{LogError, LogFile, OwnedRecord, Region};

/// Bytes of the file that a new store gets.
const STORE_BYTES: u64 = 4 << 20;

/// What kind of record it is: the first byte. Then come strings, each after its length in 4 bytes.
const SET: u8 = b's';
const DELETE: u8 = b'd';
const ALL: u8 = b'a';

struct Store {
    map: BTreeMap<String, String>,
    log: LogFile,
}

impl Store {
    fn open(path: &Path) -> Result<Store, Box<dyn Error>> {
        let log = if path.exists() {
            let device = Arc::new(FileDevice::open(path, OpenOptions::default())?);
            let region = Region::whole(&*device);
            match LogFile::mount(device.clone(), region) {
                // It was being created when the power failed: nothing was ever acknowledged.
                Err(LogError::NotALog { .. }) if std::fs::read(path)?.iter().all(|&byte| byte == 0) => {
                    LogFile::create(device, region)?
                }
                other => other?,
            }
        } else {
            let device = Arc::new(FileDevice::create(path, STORE_BYTES, CreateOptions::default())?);
            let region = Region::whole(&*device);
            LogFile::create(device, region)?
        };
        let mut map = BTreeMap::new();
        for record in log.iter() {
            replay(&mut map, &record?)?;
        }
        Ok(Store { map, log })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
        self.make_room()?;
        self.log.append_sync(&[&[SET], &string(key), &string(value)])?;
        self.map.insert(key.to_string(), value.to_string());
        Ok(())
    }

    fn delete(&mut self, key: &str) -> Result<(), Box<dyn Error>> {
        self.make_room()?;
        self.log.append_sync(&[&[DELETE], &string(key)])?;
        self.map.remove(key);
        Ok(())
    }

    /// Begins anew with one record, if half of the log is used.
    fn make_room(&mut self) -> Result<(), Box<dyn Error>> {
        if self.log.log().free_blocks() * 2 > self.log.log().capacity_blocks() {
            return Ok(());
        }
        let mut all = vec![ALL];
        for (key, value) in &self.map {
            all.extend(string(key));
            all.extend(string(value));
        }
        let number = self.log.append_sync(&[&all])?;
        Ok(self.log.trim(number)?)
    }
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Takes a string off the front.
fn take(bytes: &mut &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// Does to the map what a record says.
fn replay(map: &mut BTreeMap<String, String>, record: &OwnedRecord) -> Result<(), Box<dyn Error>> {
    let unknown = || format!("record {} was not written by this program", record.number);
    let (&kind, mut rest) = record.contents.split_first().ok_or_else(unknown)?;
    if kind == ALL {
        map.clear();
    }
    while !rest.is_empty() {
        let key = take(&mut rest).ok_or_else(unknown)?;
        match kind {
            SET | ALL => {
                map.insert(key, take(&mut rest).ok_or_else(unknown)?);
            }
            DELETE => {
                map.remove(&key);
            }
            _ => return Err(unknown().into()),
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [path, command @ ..] = &arguments[..] else {
        return Err("usage: wal FILE set KEY VALUE | get KEY | delete KEY | list | count TIMES".into());
    };
    let mut store = Store::open(Path::new(path))?;
    match command {
        ["set", key, value] => store.set(key, value)?,
        ["get", key] => println!("{}", store.map.get(*key).ok_or("there is no such key")?),
        ["delete", key] => store.delete(key)?,
        ["list"] => store.map.iter().for_each(|(key, value)| println!("{key} = {value}")),
        ["count", times] => {
            for _ in 0..times.parse::<u64>()? {
                let count: u64 = store.map.get("count").map_or(Ok(0), |count| count.parse())?;
                store.set("count", &(count + 1).to_string())?;
                println!("{}", count + 1);
            }
        }
        _ => return Err("commands are: set KEY VALUE, get KEY, delete KEY, list, count TIMES".into()),
    }
    Ok(store.log.unmount()?)
}
