//! `policy`: shows and sets when versions are made and how long they are kept.

use super::files::on_volume;
use super::snapshot::{is_file_on_mount, too_many, Location};
use crate::args;
use crate::output::{
    bytes_of, duration_text, json_name, json_name_or_null, now, print_json, printable, shell, Out,
};
use crate::status::{self, Outcome};
use crate::volume::Access;
use anyhow::Context as _;
use jiff::tz::TimeZone;
use serde_json::{json, Value};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use yore_control::PolicyHere;
use yore_fs::retention::retention_text;
use yore_fs::time::parse_ago;
use yore_fs::{check_patterns, Error, Policy, Retention, RetentionRules, Versioning, View};

/// The settings that are accepted, for messages.
const ACCEPTED: &str = "version=snapshot, version=close, version=DURATION (as 10min) or version=inherit; keep=all, keep=inherit, or \
                        keep=RULES, of last:N hourly:N daily:N weekly:N monthly:N yearly:N within:DURATION with commas between (N may be all); hold=DURATION, hold=none or hold=inherit; \
                        exclude=PATTERN (as in .gitignore, once for each), exclude=none or exclude=inherit";

/// What settings change. Whatever they do not name stays.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    versioning: Option<Option<Versioning>>,
    retention: Option<Option<Retention>>,
    hold: Option<Option<u64>>,
    exclude: Option<Option<Vec<String>>>,
}

impl Change {
    fn parse(settings: &[String]) -> anyhow::Result<Change> {
        let mut change = Change::default();
        for setting in settings {
            let refused =
                |why: String| status::usage(format!("{setting}: {why}; what can be said: {ACCEPTED}"));
            let twice = |is: bool| match is {
                true => Err(refused("said twice".into())),
                false => Ok(()),
            };
            match setting.split_once('=') {
                Some(("version", value)) => {
                    twice(change.versioning.is_some())?;
                    change.versioning = Some(versioning(value).map_err(refused)?);
                }
                Some(("keep", value)) => {
                    twice(change.retention.is_some())?;
                    change.retention = Some(retention(value).map_err(refused)?);
                }
                Some(("hold", value)) => {
                    twice(change.hold.is_some())?;
                    change.hold = Some(hold(value).map_err(refused)?);
                }
                Some(("exclude", value)) => change.exclude(value).map_err(refused)?,
                _ => return Err(refused("not a setting".into())),
            }
        }
        Ok(change)
    }

    /// Adds a pattern. `none` and `inherit` stand alone; to exclude a file of that name, write `/none` or
    /// `\none`.
    fn exclude(&mut self, value: &str) -> Result<(), String> {
        let said = match (value, &mut self.exclude) {
            ("none", None) => Some(Vec::new()),
            ("inherit", None) => None,
            ("none" | "inherit", Some(_)) => return Err("said beside other patterns".into()),
            (_, Some(None)) => return Err("said beside exclude=inherit".into()),
            (_, Some(Some(patterns))) if patterns.is_empty() => {
                return Err("said beside exclude=none".into());
            }
            (pattern, said) => {
                let mut patterns = said.take().flatten().unwrap_or_default();
                patterns.push(pattern.to_string());
                check_patterns(&patterns)?;
                Some(patterns)
            }
        };
        self.exclude = Some(said);
        Ok(())
    }

    fn apply(self, to: Policy) -> Policy {
        Policy {
            versioning: self.versioning.unwrap_or(to.versioning),
            retention: self.retention.unwrap_or(to.retention),
            hold: self.hold.unwrap_or(to.hold),
            exclude: self.exclude.unwrap_or(to.exclude),
        }
    }
}

fn versioning(value: &str) -> Result<Option<Versioning>, String> {
    Ok(Some(match value {
        "inherit" => return Ok(None),
        "snapshot" => Versioning::Snapshots,
        "close" => Versioning::Close,
        duration => {
            let wrong = "an interval is at least one second, and at most some centuries";
            Versioning::Interval(nanoseconds(duration)?.ok_or(wrong)?)
        }
    }))
}

/// How long a duration is; `None` if it is under a second, or too long to be counted.
fn nanoseconds(duration: &str) -> Result<Option<u64>, String> {
    let now = now();
    let then = parse_ago(duration, now, &TimeZone::UTC).map_err(|error| error.to_string())?;
    let seconds = i128::from(now.seconds) - i128::from(then.seconds);
    let nanos = seconds * 1_000_000_000 + i128::from(now.nanos) - i128::from(then.nanos);
    Ok(u64::try_from(nanos).ok().filter(|nanos| *nanos >= 1_000_000_000))
}

fn hold(value: &str) -> Result<Option<u64>, String> {
    match value {
        "inherit" => Ok(None),
        "none" => Ok(Some(0)),
        duration => {
            let wrong = "a hold is of at least one second, and at most a hundred years";
            Ok(Some(nanoseconds(duration)?.ok_or(wrong)?))
        }
    }
}

fn hold_text(nanos: u64) -> String {
    match nanos {
        0 => "none".into(),
        nanos => duration_text(Duration::from_nanos(nanos)),
    }
}

fn retention(value: &str) -> Result<Option<Retention>, String> {
    if value == "inherit" {
        return Ok(None);
    }
    if value == "all" {
        return Ok(Some(Retention::Everything));
    }
    let mut rules = RetentionRules::default();
    for rule in value.split(',') {
        let (name, value) = rule
            .split_once(':')
            .ok_or_else(|| format!("`{rule}` is no rule: each has a name, `:` and how many or how long"))?;
        let count = match name {
            "within" => {
                parse_ago(value, now(), &TimeZone::system()).map_err(|error| error.to_string())?;
                rules.within = value.to_string();
                continue;
            }
            "last" => &mut rules.last,
            "hourly" => &mut rules.hourly,
            "daily" => &mut rules.daily,
            "weekly" => &mut rules.weekly,
            "monthly" => &mut rules.monthly,
            "yearly" => &mut rules.yearly,
            _ => return Err(format!("`{name}` is no rule")),
        };
        *count = match value {
            "all" => RetentionRules::ALL,
            value => value.parse().map_err(|_| format!("`{value}` is neither a number nor all"))?,
        };
    }
    if rules == RetentionRules::default() {
        return Err("that would keep nothing".into());
    }
    Ok(Some(Retention::Rules(rules)))
}

fn versioning_text(versioning: Versioning) -> String {
    match versioning {
        Versioning::Snapshots => "snapshot".into(),
        Versioning::Close => "close".into(),
        Versioning::Interval(nanos) => duration_text(Duration::from_nanos(nanos)),
    }
}

/// The patterns as settings, quoted for a shell.
fn exclude_text(patterns: &[String]) -> String {
    let one = |pattern: &String| format!("exclude={}", shell(pattern));
    match patterns {
        [] => "exclude=none".into(),
        some => some.iter().map(one).collect::<Vec<_>>().join(" "),
    }
}

/// What a policy says, with a blank before each setting.
pub fn settings_text(policy: &Policy) -> String {
    let version = policy.versioning.map(|v| format!(" version={}", versioning_text(v)));
    let keep = policy.retention.as_ref().map(|r| format!(" keep={}", retention_text(r)));
    let hold = policy.hold.map(|hold| format!(" hold={}", hold_text(hold)));
    let exclude = policy.exclude.as_ref().map(|patterns| format!(" {}", exclude_text(patterns)));
    version.into_iter().chain(keep).chain(hold).chain(exclude).collect()
}

/// The policy of a new volume's root directory: settings with blanks between them, or `none`.
///
/// # Errors
/// Usage errors that name the setting.
pub fn of_new_volume(settings: &str) -> anyhow::Result<Policy> {
    if settings.trim() == "none" {
        return Ok(Policy::default());
    }
    let settings: Vec<String> = settings.split_whitespace().map(str::to_string).collect();
    if settings.is_empty() {
        return Err(status::usage(format!("--policy: nothing is said; say none, or {ACCEPTED}")));
    }
    Ok(Change::parse(&settings)?.apply(Policy::default()))
}

/// Why a policy was not set, with the next step where the error does not say it.
fn refused(error: Error) -> anyhow::Error {
    match error.root() {
        Error::LimitReached { .. } => {
            too_many("policies", "`yore policy PATH version=inherit keep=inherit` takes one away")
        }
        _ => error.into(),
    }
}

/// Where the operand leads. Unlike other commands, `policy` also takes files.
fn find(operand: &OsStr) -> anyhow::Result<Location> {
    match is_file_on_mount(Path::new(operand)) {
        true => Location::of_mount(Path::new(operand)),
        false => Location::find(operand),
    }
}

/// The first operand may be a setting; then the path is the current directory.
fn with_default_path(args: &args::Policy) -> args::Policy {
    let mut args = args.clone();
    let text = args.path.to_str().filter(|text| text.contains('=') && !text.contains('/'));
    if let Some(setting) = text.filter(|text| !Path::new(text).exists()) {
        args.settings.insert(0, setting.to_string());
        args.path = ".".into();
    }
    args
}

/// Shows what applies, after setting what is asked for.
pub fn run(args: &args::Policy) -> Outcome {
    let args = &with_default_path(args);
    let change = Change::parse(&args.settings)?;
    let changes = change != Change::default();
    if args.all {
        return match changes {
            true => Err(status::usage("--all lists; set a policy of one directory or file at a time")),
            false => all(args),
        };
    }
    let shown = args.path.to_string_lossy().into_owned();
    let here = find(&args.path)?.ask(Access::of(changes), |client| {
        if changes {
            let own = client.policy().map(|here| here.own);
            own.and_then(|own| client.set_policy(change.apply(own)))
                .map_err(refused)
                .with_context(|| format!("cannot set the policy of {shown}"))?;
        }
        client.policy().with_context(|| format!("cannot ask for the policy of {shown}"))
    })?;
    show(args, &shown, &here)?;
    Ok(status::OK)
}

fn show(args: &args::Policy, name: &str, here: &PolicyHere) -> anyhow::Result<()> {
    let version = here.in_force.versioning.map(versioning_text).unwrap_or_default();
    let keep = here.in_force.retention.as_ref().map(retention_text).unwrap_or_default();
    let hold = hold_text(here.in_force.hold.unwrap_or(0));
    if args.json {
        let patterns = here.in_force.exclude.as_deref().unwrap_or_default();
        let mut object = json!({
            "version": version, "keep": keep, "hold": hold, "exclude": patterns, "excluded": here.excluded
        });
        json_name(&mut object, "path", name.as_bytes());
        for (key, own, by) in [
            ("version_set_on", here.own.versioning.is_some(), &here.versioning_by),
            ("keep_set_on", here.own.retention.is_some(), &here.retention_by),
            ("hold_set_on", here.own.hold.is_some(), &here.hold_by),
            ("exclude_set_on", here.own.exclude.is_some(), &here.exclude_by),
        ] {
            object[format!("{key}_itself")] = Value::Bool(own);
            json_name_or_null(&mut object, key, by.as_deref());
        }
        return print_json(&object);
    }
    let mut out = Out::new();
    out.line(format!("version={version}  {}", whence(here.own.versioning.is_some(), &here.versioning_by)))?;
    out.line(format!("keep={keep}  {}", whence(here.own.retention.is_some(), &here.retention_by)))?;
    if here.hold_by.is_some() || here.own.hold.is_some() {
        out.line(format!("hold={hold}  {}", whence(here.own.hold.is_some(), &here.hold_by)))?;
    }
    if here.exclude_by.is_some() || here.own.exclude.is_some() {
        let text = exclude_text(here.in_force.exclude.as_deref().unwrap_or_default());
        let is = if here.excluded { ": it is excluded itself" } else { "" };
        let whence = whence(here.own.exclude.is_some(), &here.exclude_by);
        out.line(format!("{}  {whence}{is}", printable(text.as_bytes())))?;
    }
    out.done()
}

fn whence(own: bool, by: &Option<Vec<u8>>) -> String {
    match (own, by) {
        (true, _) => "(set here)".into(),
        (false, Some(by)) => format!("(from {})", printable(by)),
        (false, None) => "(nothing is said)".into(),
    }
}

/// All policies of a volume that is not mounted.
fn all(args: &args::Policy) -> Outcome {
    let Location::Free(on) = find(&args.path)? else {
        return Err(status::usage("--all lists the policies of a volume that is not mounted"));
    };
    let rows = on_volume(&on.volume, Access::Read, |volume| rows(volume.view()))?;
    if args.json {
        print_json(&rows.iter().map(json_row).collect())?;
        return Ok(status::OK);
    }
    let mut out = Out::new();
    for (path, policy) in &rows {
        let path = path.as_deref().map_or("?".into(), |path| printable(bytes_of(path)));
        let settings = settings_text(policy).replace(' ', "  ");
        out.line(format!("{path}{settings}"))?;
    }
    out.done()?;
    Ok(status::OK)
}

type Row = (Option<PathBuf>, Policy);

fn rows(view: &View) -> anyhow::Result<Vec<Row>> {
    let policies = view.policies()?;
    policies.into_iter().map(|(no, policy)| Ok((view.path_now(no)?, policy))).collect()
}

fn json_row((path, policy): &Row) -> Value {
    let mut object = json!({
        "version": policy.versioning.map(versioning_text),
        "keep": policy.retention.as_ref().map(retention_text),
        "hold": policy.hold.map(hold_text),
        "exclude": policy.exclude,
    });
    json_name_or_null(&mut object, "path", path.as_deref().map(bytes_of));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that what is printed can be set again.
    #[test]
    fn texts_are_settings() {
        for text in ["snapshot", "close", "10min", "1h30min", "1s", "2d"] {
            assert_eq!(versioning_text(versioning(text).unwrap().unwrap()), text);
        }
        for text in ["all", "last:3", "hourly:24,daily:7,within:2y", "monthly:all", "yearly:1"] {
            assert_eq!(retention_text(&retention(text).unwrap().unwrap()), text);
        }
        for text in ["none", "30d", "1s"] {
            assert_eq!(hold_text(hold(text).unwrap().unwrap()), text);
        }
        assert_eq!((versioning("inherit").unwrap(), retention("inherit").unwrap()), (None, None));
    }

    /// Promises that an impossible policy is refused before anything changes, and that the message says what
    /// is possible.
    #[test]
    fn what_is_refused() {
        for setting in [
            "close",
            "version",
            "version=",
            "version=5m",
            "version=10ms",
            "version=often",
            "keep=",
            "keep=last",
            "keep=last:x",
            "keep=last:0",
            "keep=within:soon",
            "keep=last:1,,",
            "keep=minutely:3",
            "hold=",
            "hold=0s",
            "hold=5m",
            "exclude=",
            "exclude=#",
            "exclude=[a",
            "exclude=a{b",
        ] {
            let error = Change::parse(&[setting.to_string()]).unwrap_err().to_string();
            assert!(error.contains("version=snapshot"), "{setting}: {error}");
        }
        assert!(Change::parse(&["version=close".into(), "version=1h".into()]).is_err());
        for (first, second) in [("none", "a"), ("a", "none"), ("inherit", "a"), ("none", "none")] {
            let settings = [first, second].map(|value| format!("exclude={value}"));
            assert!(Change::parse(&settings).is_err(), "{settings:?}");
        }
        let settings = ["exclude=*.swp", "exclude=it's here/"].map(String::from);
        let policy = Change::parse(&settings).unwrap().apply(Policy::default());
        assert_eq!(settings_text(&policy), r" exclude='*.swp' exclude='it'\''s here/'");
    }
}
