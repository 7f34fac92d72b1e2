//! `duetime man`: a manual page for the program and one for each command, for packages.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_mangen::Man;

use super::output;
use crate::version;

/// Where the pages go.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder to write them to; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Writes the pages: duetime.1, duetime-serve.1, duetime-dead-redrive.1 and so on.
pub fn run(program: clap::Command, args: &ManArgs) -> anyhow::Result<bool> {
    std::fs::create_dir_all(&args.out).with_context(|| format!("making the folder {}", args.out.display()))?;
    // Its source line is short: the commit is what `duetime --version` is for.
    let mut program = program.version(version::VERSION).disable_help_subcommand(true);
    program.build();
    pages(&program, &args.out)
}

fn pages(command: &clap::Command, out: &std::path::Path) -> anyhow::Result<bool> {
    let page = Man::new(command.clone()).source(format!("duetime {}", version::VERSION)).manual("Duetime");
    let path = out.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).context("writing to memory")?;
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    output::line(&path.display().to_string())?;
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        pages(command, out)?;
    }
    Ok(true)
}
