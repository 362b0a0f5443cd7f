//! `history`: how much history a full volume keeps, and what it gave up.

use super::snapshot::Location;
use crate::args;
use crate::output::{duration_text, human, json_time, now, print_json, print_line, Clock, List, Names};
use crate::status::{self, Outcome};
use crate::volume::Access;
use anyhow::Context as _;
use jiff::tz::TimeZone;
use serde_json::json;
use std::time::Duration;
use yore_fs::time::parse_ago;
use yore_fs::SpaceRules;

/// The rules with the requested changes; `None` if nothing was requested.
pub fn changed(
    rules: SpaceRules,
    floor: Option<&str>,
    share: Option<u8>,
) -> anyhow::Result<Option<SpaceRules>> {
    let floor_seconds = floor.map(seconds).transpose()?;
    Ok((floor.is_some() || share.is_some()).then_some(SpaceRules {
        floor_seconds: floor_seconds.unwrap_or(rules.floor_seconds),
        share_percent: share.unwrap_or(rules.share_percent),
    }))
}

/// A floor as people write it.
fn seconds(text: &str) -> anyhow::Result<u64> {
    if text == "0" {
        return Ok(0);
    }
    let refused = |why: String| {
        status::usage(format!("{text}: {why}; a floor is a duration, as 1d or 12h, or 0 for none"))
    };
    let now = now();
    let then = parse_ago(text, now, &TimeZone::UTC).map_err(|error| refused(error.to_string()))?;
    u64::try_from(now.seconds.saturating_sub(then.seconds)).map_err(|_| refused("not before now".into()))
}

/// Shows the rules, after changing them if requested.
pub fn run(args: &args::History) -> Outcome {
    let location = Location::find(&args.path)?;
    let cannot = || format!("cannot change how much history {} keeps", location.name());
    let floor = args.floor.as_deref();
    let changes = changed(yore_fs::DEFAULT_RULES, floor, args.share)?.is_some();
    let rules = location.ask(Access::of(changes), |client| {
        let rules = client.space_rules()?;
        let Some(rules) = changed(rules, floor, args.share)? else { return Ok(rules) };
        client.set_space_rules(rules).with_context(cannot)?;
        Ok(rules)
    })?;
    let SpaceRules { floor_seconds, share_percent } = rules;
    match args.json {
        true => print_json(&json!({ "floor_seconds": floor_seconds, "share_percent": share_percent }))?,
        false => {
            let floor = duration_text(Duration::from_secs(floor_seconds));
            print_line(format_args!("floor={floor}\nshare={share_percent}%"))?;
        }
    }
    Ok(status::OK)
}

/// Lists what the volume gave up because it was full.
pub fn forgotten(args: &args::Snapshots) -> Outcome {
    let (location, listing) = (Location::find(&args.path)?, args.listing);
    let rows = location
        .ask(Access::Read, |client| Ok(client.given_up()?))
        .with_context(|| format!("cannot list what {} gave up", location.name()))?;
    let (clock, names) = (Clock::new(listing.utc), Names::load());
    let mut list = List::new(listing);
    for (_, row) in &rows {
        let by = match row.uid {
            u32::MAX => String::new(),
            uid => format!(", asked by {}", names.user(uid)),
        };
        let when = clock.name(row.time, None);
        let text = format!("{when}  {:>9}  {}{by}", human(row.bytes), row.note);
        list.entry("", text.as_bytes(), "", || {
            json!({
                "time": json_time(row.time), "first": row.first.0, "last": row.last.0, "count": row.count,
                "bytes": row.bytes, "uid": (row.uid != u32::MAX).then_some(row.uid), "note": row.note,
            })
        })?;
    }
    list.done()?;
    Ok(status::OK)
}
