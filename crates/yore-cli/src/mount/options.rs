//! Mount options: Yore's own, the kernel's, and those that fstab needs but that mean nothing here.

use crate::parse::parse_size;
use crate::status::usage;
use crate::volume::{self, Access};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use yore_fs::{Durability, Engine, LogPlace, MountOptions, UserLimits, DISCARD_BLOCKS};
use yore_fuse::{MountConfig, PastAccess};

/// Where the log of the volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Journal {
    /// Where the volume says.
    #[default]
    Recorded,
    /// In the volume, and nowhere else.
    Internal,
    /// There, as an absolute path.
    At(PathBuf),
    /// What it has is left out.
    Without,
}

/// What the options say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub read_only: bool,
    pub remount: bool,
    pub allow_other: bool,
    pub auto_unmount: bool,
    pub engine: Option<Engine>,
    /// When calls that change metadata return.
    pub durability: Durability,
    pub journal: Journal,
    pub commit: Option<Duration>,
    pub metadata_cache: Option<u64>,
    pub data_cache: Option<u64>,
    pub log: Option<PathBuf>,
    pub keep_history: bool,
    pub defragment: bool,
    pub others_give_up_history: bool,
    pub close_events: bool,
    pub discard: bool,
    pub access_times: bool,
    pub dev: bool,
    pub suid: bool,
    pub no_exec: bool,
    pub snapdir: Option<OsString>,
    pub past: PastAccess,
    pub expunge_others: bool,
    pub limits: UserLimits,
    /// As given, for people.
    pub text: String,
}

impl Options {
    /// Reads what was given with `-o`; later options win. `sloppy`: unknown options are ignored.
    ///
    /// # Errors
    /// Usage errors that name the option.
    pub fn parse(given: &[OsString], sloppy: bool) -> anyhow::Result<Options> {
        let mut options = Options {
            read_only: false,
            remount: false,
            allow_other: false,
            auto_unmount: false,
            engine: None,
            durability: Durability::Async,
            journal: Journal::Recorded,
            commit: None,
            metadata_cache: None,
            data_cache: None,
            log: None,
            keep_history: false,
            defragment: true,
            others_give_up_history: false,
            close_events: false,
            discard: false,
            access_times: true,
            dev: false,
            suid: false,
            no_exec: false,
            snapdir: None,
            past: PastAccess::default(),
            expunge_others: false,
            limits: UserLimits::default(),
            text: String::new(),
        };
        let mut texts = Vec::new();
        for list in given {
            let list = list.to_str().ok_or_else(|| usage("mount options must be UTF-8 text"))?;
            for option in list.split(',').filter(|option| !option.is_empty()) {
                let known = options.one(option)?;
                if !known && !sloppy {
                    return Err(usage(format!(
                        "unknown mount option {option:?}; `yore mount --help` lists the options"
                    )));
                }
                texts.push(option);
            }
        }
        if options.journal == Journal::Without && !options.read_only {
            return Err(usage("mount option journal=none: only for reading, with ro"));
        }
        options.text = texts.join(",");
        Ok(options)
    }

    /// Takes one option; returns whether it is known.
    fn one(&mut self, option: &str) -> anyhow::Result<bool> {
        if option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=") {
            return Ok(true);
        }
        if let Some((name, value)) = option.split_once('=') {
            return self.valued(name, value);
        }
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "remount" => self.remount = true,
            "allow_other" => self.allow_other = true,
            "auto_unmount" => self.auto_unmount = true,
            "noatime" => self.access_times = false,
            "atime" | "relatime" => self.access_times = true,
            "keep_history" => self.keep_history = true,
            "defrag" => self.defragment = true,
            "nodefrag" => self.defragment = false,
            "expunge_others" => self.expunge_others = true,
            "others_give_up_history" => self.others_give_up_history = true,
            "closes" => self.close_events = true,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            // mount(8) handles these itself, and passes on what they imply as separate options.
            "user" | "users" | "owner" | "group" | "nouser" | "nogroup" => {}
            "defaults"
            | "auto"
            | "noauto"
            | "nofail"
            | "_netdev"
            | "_rnetdev"
            | "async"
            | "diratime"
            | "nodiratime"
            | "nolazytime"
            | "loud"
            | "silent"
            | "nomand"
            | "noiversion"
            | "default_permissions"
            | "norelatime"
            | "nostrictatime" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn valued(&mut self, name: &str, value: &str) -> anyhow::Result<bool> {
        let size = || parse_size(value).map_err(|message| usage(format!("mount option {name}: {message}")));
        match name {
            "commit" => {
                let seconds = value.parse().ok().filter(|s| (1..=86_400).contains(s));
                let seconds = seconds.ok_or_else(|| {
                    usage(format!(
                        "mount option commit: {value:?} is not a number of seconds from 1 to 86400"
                    ))
                })?;
                self.commit = Some(Duration::from_secs(seconds));
            }
            "durability" => {
                self.durability = Durability::from_name(value).ok_or_else(|| {
                    usage(format!(
                        "mount option durability: {value:?} is unknown; choose async, sync or group"
                    ))
                })?;
            }
            "engine" => {
                let engine = Engine::from_name(value).ok_or_else(|| {
                    usage(format!(
                        "mount option engine: there is no engine {value:?}; choose none, sync, journal, soft-updates or \
                         snapshot"
                    ))
                })?;
                self.engine = Some(engine);
            }
            "journal" => {
                self.journal = match value {
                    "" => return Err(usage("mount option journal: a path, internal, or none")),
                    "internal" => Journal::Internal,
                    "none" => Journal::Without,
                    path => Journal::At(std::path::absolute(path)?),
                }
            }
            "user_snapshots" => self.limits.snapshots = count(name, value)?,
            "user_holds" => self.limits.holds = count(name, value)?,
            "user_policies" => self.limits.policies = count(name, value)?,
            "cache" => self.metadata_cache = Some(size()?),
            "data_cache" => self.data_cache = Some(size()?),
            "snapdir" => {
                let is_name = !matches!(value, "" | "." | "..") && !value.contains('/') && value.len() <= 255;
                if !is_name {
                    return Err(usage(format!(
                        "mount option snapdir: {value:?} is no name of a directory in the root, as .yore"
                    )));
                }
                self.snapdir = Some(value.into());
            }
            "past" => {
                self.past = match value {
                    "as-was" => PastAccess::AsWas,
                    "owner" => PastAccess::Owner,
                    _ => {
                        return Err(usage(format!(
                            "mount option past: {value:?} is unknown; choose as-was or owner"
                        )))
                    }
                }
            }
            "log" if !value.is_empty() => self.log = Some(PathBuf::from(value)),
            // mount(8) and libfuse say these of every FUSE mount; here the volume itself says so.
            "fsname" | "subtype" | "uid" | "gid" | "user" | "user_id" | "group_id" | "max_read"
            | "blksize" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The options that differ from those of a mount that is there, and that a remount cannot change: the
    /// daemon reads them when it begins. The kernel alone has the others.
    pub fn fixed_that_differ(&self, there: &Options) -> Vec<&'static str> {
        // All fields are named, so a new one has to be put on one side or the other.
        let Options {
            read_only: _,
            remount: _,
            allow_other,
            auto_unmount,
            engine,
            durability,
            journal,
            commit,
            metadata_cache,
            data_cache,
            log,
            keep_history,
            defragment,
            others_give_up_history,
            close_events,
            discard,
            access_times,
            dev: _,
            suid: _,
            no_exec: _,
            snapdir,
            past,
            expunge_others,
            limits,
            text: _,
        } = self;
        let all = [
            ("allow_other", *allow_other != there.allow_other),
            ("auto_unmount", *auto_unmount != there.auto_unmount),
            ("engine", *engine != there.engine),
            ("durability", *durability != there.durability),
            ("journal", *journal != there.journal),
            ("commit", *commit != there.commit),
            ("cache", *metadata_cache != there.metadata_cache),
            ("data_cache", *data_cache != there.data_cache),
            ("log", *log != there.log),
            ("keep_history", *keep_history != there.keep_history),
            (if *defragment { "defrag" } else { "nodefrag" }, *defragment != there.defragment),
            ("others_give_up_history", *others_give_up_history != there.others_give_up_history),
            ("closes", *close_events != there.close_events),
            (if *discard { "discard" } else { "nodiscard" }, *discard != there.discard),
            (if *access_times { "atime" } else { "noatime" }, *access_times != there.access_times),
            ("snapdir", *snapdir != there.snapdir),
            ("past", *past != there.past),
            ("expunge_others", *expunge_others != there.expunge_others),
            ("user_snapshots", limits.snapshots != there.limits.snapshots),
            ("user_holds", limits.holds != there.limits.holds),
            ("user_policies", limits.policies != there.limits.policies),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// The options that concern the mount.
    pub fn for_mount(&self, directory: &Path, name: String) -> MountConfig {
        MountConfig {
            read_only: self.read_only,
            allow_other: self.allow_other,
            others_give_up_history: self.others_give_up_history,
            auto_unmount: self.auto_unmount,
            dev: self.dev,
            suid: self.suid,
            no_exec: self.no_exec,
            snapdir: self.snapdir.clone(),
            past: self.past,
            expunge_others: self.expunge_others,
            limits: self.limits,
            ..MountConfig::new(directory, name)
        }
    }

    /// The options that concern the volume. Opens the log's device, if one was named.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn on_volume(&self) -> anyhow::Result<MountOptions> {
        let access = Access::of(!self.read_only);
        let journal = match &self.journal {
            Journal::Recorded | Journal::Internal => LogPlace::Recorded,
            Journal::At(path) => LogPlace::On(volume::log_device(path, access)?),
            Journal::Without => LogPlace::Without,
        };
        Ok(MountOptions { journal, ..self.for_volume() })
    }

    fn for_volume(&self) -> MountOptions {
        let defaults = MountOptions::default();
        MountOptions {
            read_only: self.read_only,
            engine: self.engine,
            durability: self.durability,
            commit_interval: self.commit.unwrap_or(defaults.commit_interval),
            metadata_cache: self.metadata_cache.unwrap_or(defaults.metadata_cache),
            data_cache: self.data_cache.unwrap_or(defaults.data_cache),
            access_times: self.access_times,
            keep_history: self.keep_history,
            discard: self.discard.then_some(DISCARD_BLOCKS),
            defragment_after: defaults.defragment_after.filter(|_| self.defragment),
            ..defaults
        }
    }
}

fn count(name: &str, value: &str) -> anyhow::Result<u32> {
    value
        .parse()
        .map_err(|_| usage(format!("mount option {name}: {value:?} is not a number up to {}", u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Options> {
        Options::parse(&[text.into()], false)
    }

    /// Promises that the options that fstab and mount(8) pass on are accepted, and that later options win.
    #[test]
    fn options_of_fstab() {
        let options =
            parse("rw,noexec,nosuid,nodev,user,nofail,_netdev,x-systemd.automount,commit=7").unwrap();
        assert!(!options.read_only && options.no_exec && !options.suid);
        assert_eq!(options.commit, Some(Duration::from_secs(7)));
        let options = parse("ro,dev,suid,rw,cache=64M,engine=soft-updates,,").unwrap();
        assert!(!options.read_only && options.dev && options.suid);
        assert_eq!(options.for_volume().metadata_cache, 64 << 20);
        assert_eq!(options.engine, Some(Engine::SoftUpdates));
        assert_eq!(options.for_volume().discard, None);
        assert!(parse("discard").unwrap().for_volume().discard.is_some());
        assert_eq!(parse("discard,nodiscard").unwrap().for_volume().discard, None);
        assert!(options.for_volume().defragment_after.is_some());
        assert!(parse("defrag,nodefrag").unwrap().for_volume().defragment_after.is_none());
    }

    /// Promises that what a remount does not name stays, that it may name what is so already, and that what
    /// it cannot change is told by name.
    #[test]
    fn options_of_a_remount() {
        const THERE: &str = "ro,allow_other,noatime,commit=7,user_holds=3,past=owner,nodefrag";
        let there = parse(THERE).unwrap();
        let differ = |named: &str| {
            Options::parse(&[THERE.into(), named.into()], false).unwrap().fixed_that_differ(&there)
        };
        for kept in
            ["remount", "remount,rw,dev,suid,noexec", "commit=7,allow_other,defaults,noatime,past=owner"]
        {
            assert!(differ(kept).is_empty(), "{kept}");
        }
        assert_eq!(differ("rw,commit=8,defrag"), ["commit", "defrag"]);
        assert_eq!(differ("relatime,user_holds=4"), ["atime", "user_holds"]);
        assert_eq!(differ("data_cache=64M,snapdir=.yore"), ["data_cache", "snapdir"]);
    }

    /// Promises that an unknown option is refused by name, unless mount(8) asks for sloppiness.
    #[test]
    fn unknown_options() {
        for wrong in [
            "nonsense",
            "engine=nonsense",
            "commit=0",
            "cache=much",
            "log=",
            "sync",
            "snapdir=a/b",
            "snapdir=",
            "snapdir=..",
            "past=me",
            "user_holds=many",
        ] {
            let message = parse(wrong).unwrap_err().to_string();
            assert!(message.contains(wrong.split('=').next().unwrap()), "{message}");
        }
        assert!(Options::parse(&["nonsense".into()], true).is_ok());
    }
}
