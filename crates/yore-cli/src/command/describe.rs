//! `describe`: gives a snapshot another name, or says what it is.

use super::operand::{find_one, with_opened};
use super::snapshot::json_row;
use crate::args;
use crate::output::{print_json, Clock};
use crate::status::{self, Outcome};
use crate::timed_path::root_of;
use crate::volume::Access;
use anyhow::Context as _;
use yore_control::Saying;
use yore_fs::time::check_snapshot_name;
use yore_fs::Error;

/// Gives a snapshot a name or a description, or takes them away.
pub fn run(args: &args::Describe) -> Outcome {
    if let Some(name) = args.name.as_deref().filter(|name| !name.is_empty()) {
        check_snapshot_name(name).map_err(|error| status::usage(error.to_string()))?;
    }
    if args.name.is_none() && args.message.is_none() {
        return Err(status::usage(
            "what is to be said of it? Give it a name (-n NAME) or a description (-m TEXT)",
        ));
    }
    let (targets, row) = find_one("describe", &args.path, args.number)?;
    let saying = Saying { name: args.name.clone(), description: args.message.clone(), ..Saying::default() };
    with_opened(&targets, Access::Write, |opened| {
        let shown = opened[0].name();
        opened[0].describe(&row.event, saying).map_err(|error| {
            match (root_of(&error), &args.name) {
                (Some(Error::Exists), Some(name)) => anyhow::anyhow!(
                    "cannot describe {shown}: another snapshot of that directory is named `{name}`; choose another name \
                     (`yore snapshots` lists those that are taken)"
                ),
                _ => error,
            }
        })
        .with_context(|| format!("cannot describe {shown}"))
    })?;
    if args.json {
        // It may have another name now, so the path that was given may lead nowhere.
        let mut row = row;
        if let Some(name) = &args.name {
            row.event.row.name.clone_from(name);
        }
        if let Some(text) = &args.message {
            row.event.row.more.description.clone_from(text);
        }
        print_json(&json_row(&row, &Clock::new(false)))?;
    }
    Ok(status::OK)
}
