//! `cambium options`, `cambium completions` and `cambium man`: what there is, for people and
//! for their shells.

use std::fmt::Write as _;
use std::path::PathBuf;

use cambium::{EngineKind, Error, OptionSpec, engines};
use clap::{Args, CommandFactory};

use crate::arguments::Arguments;
use crate::failure::{Failure, Status};
use crate::output::print;

#[derive(Debug, Args)]
pub struct OptionsArguments {
    /// Of this engine alone
    #[arg(long)]
    pub engine: Option<String>,
}

#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArguments {
    /// The folder: a page for each command
    pub folder: PathBuf,
}

/// Prints every option.
pub fn run(arguments: &OptionsArguments) -> Result<Status, Failure> {
    let engines = engines();
    let mut text = String::new();
    match &arguments.engine {
        Some(name) => describe(&mut text, &*engines.find(name)?),
        None => {
            engines.iter().for_each(|kind| describe(&mut text, &**kind));
            text.push_str(OF_EVERY_ENGINE);
        }
    }
    print(&text)?;
    Ok(Status::Done)
}

const OF_EVERY_ENGINE: &str = "
every engine, of each opening:

  memory_budget
      unit:    bytes
      default: no limit
      effect:  Memory of the store in all: cache, write buffers, open tables, compaction. Options that are not set shrink to fit; `cambium stats` shows what each part may take. Smaller reads and writes more of the device.
";

fn describe(text: &mut String, kind: &dyn EngineKind) {
    // Writing to a string cannot fail.
    _ = writeln!(
        text,
        "engine {}, format version {}: {}",
        kind.name(),
        kind.format_version(),
        kind.summary()
    );
    for (at_creation, heading) in [
        (
            true,
            "fixed when the store is made (create --set OPTION=VALUE)",
        ),
        (false, "of each opening"),
    ] {
        let specs: Vec<&OptionSpec> = kind
            .options()
            .iter()
            .filter(|spec| spec.at_creation == at_creation)
            .collect();
        if specs.is_empty() {
            continue;
        }
        _ = writeln!(text, "\n {heading}:");
        for spec in specs {
            _ = writeln!(
                text,
                "\n  {}\n      unit:    {}\n      default: {}\n      effect:  {}",
                spec.name, spec.unit, spec.default, spec.effect
            );
        }
    }
}

/// Prints a shell's completions.
pub fn completions(arguments: &CompletionsArguments) -> Result<Status, Failure> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "cambium", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Done)
}

/// Writes the man pages.
pub fn man(arguments: &ManArguments) -> Result<Status, Failure> {
    clap_mangen::generate_to(Arguments::command(), &arguments.folder)
        .map_err(|error| Error::io("write man pages into", &arguments.folder, error))?;
    Ok(Status::Done)
}
