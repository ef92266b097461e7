//! `cambium create`: an empty store.

use std::path::PathBuf;

use cambium::{DEFAULT_ENGINE, EngineKind, KeyKind, MEMORY_BUDGET, Options, engines};
use clap::Args;

use crate::failure::{Failure, Status, talk};
use crate::stores::defaults;

#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The folder
    pub path: PathBuf,
    /// The engine: forest, wisckey, zdb or alphard. Without it, forest, or the one that has the
    /// options of --set; `cambium options` lists them
    #[arg(long)]
    pub engine: Option<String>,
    /// An option of the engine
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
}

/// Makes a store, and names the options that do not stay with it.
pub fn run(arguments: &CreateArguments) -> Result<Status, Failure> {
    let plan = Plan::of(arguments.engine.as_deref(), &arguments.set, DEFAULT_ENGINE)?;
    plan.options
        .create(&arguments.path, &plan.engine)?
        .close()?;
    plan.name_what_does_not_stay(&arguments.set)?;
    Ok(Status::Done)
}

/// The engine and the options of a new store.
pub struct Plan {
    pub engine: String,
    pub options: Options,
}

impl Plan {
    /// What `--engine` and `--set` ask for. Without `--engine`, the usual one, or the
    /// only one that has all these options: whoever asks for `keys=integer` means
    /// the engine that has integer keys.
    pub fn of(engine: Option<&str>, assignments: &[String], usual: &str) -> Result<Self, Failure> {
        let mut options = defaults();
        for assignment in assignments {
            options = options.assign(assignment)?;
        }
        let engine = match engine {
            Some(engine) => engine.to_string(),
            None => engine_of(assignments, usual),
        };
        Ok(Plan { engine, options })
    }

    /// Gives a store that takes over integer keys the same kind of keys, unless the
    /// options say which.
    pub fn keep_integer_keys(
        &mut self,
        keys: KeyKind,
        assignments: &[String],
    ) -> Result<(), Failure> {
        const KEYS: &str = "keys";
        let kind = self.options.engines_used().find(&self.engine)?;
        let can = kind.options().iter().any(|option| option.name == KEYS);
        let says = assignments
            .iter()
            .any(|assignment| name_of(assignment) == KEYS);
        if keys == KeyKind::Integer && can && !says {
            self.options = std::mem::take(&mut self.options).set(KEYS, "integer");
        }
        Ok(())
    }

    /// Says which of the options are of an opening alone.
    pub fn name_what_does_not_stay(&self, assignments: &[String]) -> Result<(), Failure> {
        let kind = self.options.engines_used().find(&self.engine)?;
        for name in assignments.iter().map(|assignment| name_of(assignment)) {
            let spec = kind.options().iter().find(|option| option.name == name);
            let stays = kind.kept_options().contains(&name);
            if spec.is_some_and(|option| !option.at_creation && !stays) {
                talk(&format!(
                    "option {name} is of each opening and does not stay with the store: set it where the store is opened"
                ));
            }
        }
        Ok(())
    }
}

fn name_of(assignment: &str) -> &str {
    assignment.split('=').next().unwrap_or_default().trim()
}

fn engine_of(assignments: &[String], usual: &str) -> String {
    let has_all = |kind: &dyn EngineKind| {
        let names = assignments.iter().map(|assignment| name_of(assignment));
        let mut names = names.filter(|&name| name != MEMORY_BUDGET);
        names.all(|name| kind.options().iter().any(|option| option.name == name))
    };
    let engines = engines();
    let usual_has = engines.get(usual).is_some_and(|kind| has_all(&*kind));
    let mut others = engines.iter().filter(|kind| has_all(&***kind));
    match (usual_has, others.next(), others.next()) {
        (false, Some(only), None) => only.name().to_string(),
        _ => usual.to_string(),
    }
}
