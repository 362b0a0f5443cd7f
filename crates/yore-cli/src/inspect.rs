//! `inspect`: prints any structure on the medium, even of a damaged volume.
//!
//! It uses `yore-format` and the device alone, so it shows what lies there and not what the file system makes
//! of it. It changes nothing and takes no lock: it can inspect a volume in use, which may change meanwhile. A
//! step that fails says why and goes on with what is left. A damaged block is printed as far as it can be
//! decoded, with what is wrong with it.

mod medium;
mod past;
mod print;
pub mod superblock;
mod text;

use crate::args;
use crate::output::Out;
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use medium::Medium;
use yore_device::{FileDevice, OpenOptions};
use yore_format::{GroupNo, InodeNo, MetaAddr, ZoneNo};

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    Superblocks,
    Zones,
    Zone(ZoneNo),
    Bitmaps,
    Bitmap(GroupNo),
    Inode(InodeNo),
    Meta(MetaAddr),
    Block(u64),
}

impl Address {
    fn parse(words: &[String]) -> Option<Address> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // A flag bit tells root zones from others, so the number must stay below it.
        let zone = |n: &str| n.parse::<u32>().ok().filter(|n| *n < ZoneNo::ROOT_FLAG);
        match words[..] {
            [] | ["super"] => Some(Address::Superblocks),
            ["zones"] => Some(Address::Zones),
            ["zone", n] => Some(Address::Zone(ZoneNo(zone(n)?))),
            ["root", n] => Some(Address::Zone(ZoneNo::root(zone(n)?))),
            ["bitmaps"] => Some(Address::Bitmaps),
            ["bitmap", n] => Some(Address::Bitmap(GroupNo(n.parse().ok()?))),
            ["inode", n] => Some(InodeNo(n.parse().ok()?)).filter(|i| i.is_file()).map(Address::Inode),
            ["block", n] => Some(Address::Block(n.parse().ok()?)),
            [address] => {
                let (zone_text, index) = address.split_once(':')?;
                let number = match zone_text.strip_prefix("root") {
                    Some(n) => ZoneNo::root(zone(n)?),
                    None => ZoneNo(zone(zone_text)?),
                };
                let index = index.parse().ok().filter(|i| *i < 512)?;
                Some(Address::Meta(MetaAddr::new(number, index)))
            }
            _ => None,
        }
    }
}

/// Prints a structure.
pub fn run(args: &args::Inspect) -> Outcome {
    let address = Address::parse(&args.address).ok_or_else(|| {
        status::usage(format!("{:?} is no address; `yore inspect --help` lists them", args.address.join(" ")))
    })?;
    let options = OpenOptions { read_only: true, lock: false, ..OpenOptions::default() };
    let device = FileDevice::open(&args.volume, options)
        .map_err(|e| volume::explain(&args.volume, Access::Read, e))?;
    let mut out = Out::new();
    let sound = match address {
        Address::Superblocks => print::superblocks(&mut out, &device, args.raw)?,
        Address::Block(number) => print::block(&mut out, &device, number, args.raw)?,
        _ => {
            let medium = Medium::open(&args.volume, &device)?;
            for note in &medium.notes {
                out.line(format_args!("note: {note}"))?;
            }
            match address {
                Address::Zones => print::zones(&mut out, &medium)?,
                Address::Zone(zone) => print::zone(&mut out, &medium, zone, args.raw)?,
                Address::Bitmaps => print::bitmaps(&mut out, &medium)?,
                Address::Bitmap(group) => print::bitmap(&mut out, &medium, group, args.raw)?,
                Address::Inode(inode) => print::inode(&mut out, &medium, inode, args.raw)?,
                Address::Meta(addr) => print::meta(&mut out, &medium, addr, args.raw)?,
                Address::Superblocks | Address::Block(_) => true,
            }
        }
    };
    out.done()?;
    Ok(if sound { status::OK } else { status::DAMAGED })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that every address in the help is understood, and nonsense refused.
    #[test]
    fn addresses() {
        let parse = |text: &str| Address::parse(&text.split(' ').map(String::from).collect::<Vec<_>>());
        assert_eq!(Address::parse(&[]), Some(Address::Superblocks));
        assert_eq!(parse("zone 3"), Some(Address::Zone(ZoneNo(3))));
        assert_eq!(parse("root 0"), Some(Address::Zone(ZoneNo::root(0))));
        assert_eq!(parse("0:1"), Some(Address::Meta(MetaAddr::new(ZoneNo(0), 1))));
        assert_eq!(parse("root0:5"), Some(Address::Meta(MetaAddr::new(ZoneNo::root(0), 5))));
        assert_eq!(parse("inode 16"), Some(Address::Inode(InodeNo::ROOT)));
        for wrong in ["inode 1", "0:512", "zone", "zone x", "4294967295:0", "block -1", "a b c"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
