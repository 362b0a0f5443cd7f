//! Features: what a program must know to use a volume.
//!
//! A program refuses a volume with a feature that it does not know, and it knows a feature when it has the
//! code for all that the feature allows. The bytes of a feature may be described here before that: then the
//! feature has a name, and [`Features::SUPPORTED`] does not have it.

use std::fmt;

bitflags::bitflags! {
    /// Features that a program must know to use the volume.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        /// The volume was resized: the headers of zones and the superblock's counts may have been made for
        /// another `volume_blocks`.
        const RESIZED = 1;
        /// What ends is recorded in the annals.
        const ANNALS = 2;
        /// Groups may have count tables: blocks that several files share.
        const TABLES = 4;
        /// The volume was used under an engine that writes metadata where it lies.
        const IN_PLACE = 8;
        /// The superblock says how far a scrub came, and there may be a tree of findings.
        const FINDINGS = 16;
        /// Groups may have checksum tables.
        const CHECKSUMS = 32;
        /// The log is on a device of its own.
        const EXTERNAL_LOG = 64;
        /// Batches of the log may have gaps behind them.
        const LOG_GAPS = 128;
    }
}

impl Features {
    /// Those that this version of the program has all code for. It refuses volumes with any other.
    pub const SUPPORTED: Features = Features::RESIZED
        .union(Features::ANNALS)
        .union(Features::TABLES)
        .union(Features::IN_PLACE)
        .union(Features::CHECKSUMS)
        .union(Features::EXTERNAL_LOG)
        .union(Features::LOG_GAPS);

    const NAMES: [(Features, &'static str); 8] = [
        (Features::RESIZED, "another length"),
        (Features::ANNALS, "annals"),
        (Features::TABLES, "count tables"),
        (Features::IN_PLACE, "metadata written in place"),
        (Features::FINDINGS, "recorded findings"),
        (Features::CHECKSUMS, "checksum tables"),
        (Features::EXTERNAL_LOG, "a log on another device"),
        (Features::LOG_GAPS, "gaps in the log"),
    ];
}

/// For messages: the features by name, then the bits that have none.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Features::NAMES.iter().filter(|(feature, _)| self.contains(*feature));
        let mut texts: Vec<String> = named.map(|(_, name)| (*name).to_string()).collect();
        let rest = self.bits() & !Features::all().bits();
        if rest != 0 {
            texts.push(format!("unknown feature bits {rest:#x}"));
        }
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_has_one_name() {
        let named = Features::NAMES.iter().fold(Features::empty(), |all, (feature, _)| all | *feature);
        assert_eq!(named, Features::all());
        for feature in Features::all().iter() {
            assert_eq!(Features::NAMES.iter().filter(|(named, _)| *named == feature).count(), 1);
        }
        let some = Features::from_bits_retain(2 | 1 << 40);
        assert_eq!(some.to_string(), "annals, unknown feature bits 0x10000000000");
    }
}
