//! Man pages, made of what `args` says: one for everything, or one for each command.

use crate::args::help::EXIT_CODES;
use crate::args::Arguments;
use crate::output::Out;
use crate::status::{self, Outcome};
use anyhow::Context as _;
use clap::CommandFactory as _;
use std::fs;
use std::path::Path;

/// Characters beyond ASCII are not the same on every system that formats man pages.
fn plain(page: &[u8]) -> String {
    String::from_utf8_lossy(page).replace('•', "\\(bu").replace('…', "...")
}

/// Writes `yore.1`, and `yore-COMMAND.1` for each command and each command of a command.
pub fn write_all(directory: &Path) -> Outcome {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_one(directory, &command)?;
    Ok(status::OK)
}

fn write_one(directory: &Path, command: &clap::Command) -> anyhow::Result<()> {
    // `yore bench micro` is `yore-bench-micro`, in the name of the page and at its head.
    let name = command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-");
    let path = directory.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).render(&mut page)?;
    page.extend_from_slice(b".SH \"EXIT STATUS\"\n.nf\n");
    page.extend_from_slice(EXIT_CODES.as_bytes());
    page.extend_from_slice(b"\n.fi\n");
    fs::write(&path, plain(&page)).with_context(|| format!("cannot write {}", path.display()))?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_one(directory, sub)?;
    }
    Ok(())
}

/// One page for everything: the commands are few and refer to each other.
pub fn print() -> Outcome {
    let mut command = Arguments::command();
    command.build();
    let mut page = Vec::new();
    let main = clap_mangen::Man::new(command.clone());
    main.render_title(&mut page)?;
    main.render_name_section(&mut page)?;
    main.render_synopsis_section(&mut page)?;
    main.render_description_section(&mut page)?;
    page.extend_from_slice(b".SH COMMANDS\n");
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set() && s.get_name() != "help") {
        let one = clap_mangen::Man::new(sub.clone());
        let name = sub.get_name();
        page.extend_from_slice(format!(".SS yore {name}\n").as_bytes());
        let mut body = Vec::new();
        one.render_description_section(&mut body)?;
        one.render_synopsis_section(&mut body)?;
        one.render_options_section(&mut body)?;
        one.render_subcommands_section(&mut body)?;
        one.render_extra_section(&mut body)?;
        // Sections of the command become paragraphs of its part of the page.
        for line in String::from_utf8_lossy(&body).lines() {
            match line.strip_prefix(".SH ") {
                Some(_) => page.extend_from_slice(b".PP\n"),
                None => page.extend_from_slice(format!("{line}\n").as_bytes()),
            }
        }
    }
    page.extend_from_slice(b".SH \"EXIT STATUS\"\n.nf\n");
    page.extend_from_slice(EXIT_CODES.as_bytes());
    page.extend_from_slice(b"\n.fi\n");
    let mut out = Out::new();
    out.bytes(plain(&page).as_bytes())?;
    out.done()?;
    Ok(status::OK)
}
