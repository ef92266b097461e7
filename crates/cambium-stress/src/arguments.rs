//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Load stores with threads, kill them, and verify what is left.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "cambium-stress",
    args_conflicts_with_subcommands = true,
    after_help = "\
Exit status: 0 nothing was found; 1 a violation, whose store is kept; 2 wrong usage.

Examples:
  cambium-stress --engine forest --kill --seconds 60
  cambium-stress --engine alphard --power-cuts --faults --seconds 600
  cambium-stress --engine wisckey --plain --load 2 --threads 1 --keys 200000 --value 100
  cambium-stress --engine zdb --kill --seed 17 --rounds 1     repeats a run's first store"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub role: Option<Role>,
    /// The engine: forest, wisckey, zdb or alphard
    #[arg(long, default_value = "forest")]
    pub engine: String,
    /// Ends after so many seconds
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Ends after so many stores
    #[arg(long)]
    pub rounds: Option<u64>,
    /// The seed of everything that is drawn; from the clock unless given
    #[arg(long)]
    pub seed: Option<u64>,
    /// Kill workers and tools at random moments
    #[arg(long)]
    pub kill: bool,
    /// Keep the store on a disk with a volatile cache (FUSE, as root), and cut its power
    #[arg(long)]
    pub power_cuts: bool,
    /// Cut the power below a real file system, ext4 or xfs, on a loop device over that disk
    #[arg(long, value_parser = ["ext4", "xfs"], requires = "power_cuts", conflicts_with = "faults")]
    pub file_system: Option<String>,
    /// Let that disk fail and fill up
    #[arg(long)]
    pub faults: bool,
    /// Damage copies of each store at its end
    #[arg(long)]
    pub damage: bool,
    /// How many copies of a store are damaged
    #[arg(long, default_value_t = 40)]
    pub copies: u64,
    /// Threads of a worker
    #[arg(long, default_value_t = 8)]
    pub threads: usize,
    /// Processes beside the worker that keep processors busy
    #[arg(long, default_value_t = 0)]
    pub load: usize,
    /// Keys of each thread, drawn unless given
    #[arg(long)]
    pub keys: Option<u32>,
    /// Bytes of the largest values, drawn unless given; of all values with --plain
    #[arg(long)]
    pub value: Option<u32>,
    /// Only puts and gets of skewed keys, all written
    #[arg(long)]
    pub plain: bool,
    /// Draw the keys of --plain uniformly
    #[arg(long, requires = "plain")]
    pub uniform: bool,
    /// Leave all options at their defaults
    #[arg(long)]
    pub default_options: bool,
    /// Options that are not drawn
    #[arg(long = "set", value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Seconds of load of a worker, drawn unless given
    #[arg(long)]
    pub session: Option<f64>,
    /// Do not run the command cambium between workers
    #[arg(long)]
    pub no_tools: bool,
    /// A seeded bug of the engine
    #[arg(long, hide = true)]
    pub seeded_bug: Option<String>,
    /// Where stores and ledgers lie
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

impl Arguments {
    /// True if stores lie on a disk of this program.
    pub fn needs_disk(&self) -> bool {
        self.power_cuts || self.faults
    }

    /// True if stores are copied often, or lie in memory.
    pub fn is_small(&self) -> bool {
        self.needs_disk() || self.damage
    }

    /// The words of this command line without the seed, to begin a failed store again.
    pub fn again(&self) -> String {
        let mut words = std::env::args().skip(1);
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            if word == "--seed" {
                words.next();
            } else if !word.starts_with("--seed=") {
                kept.push(word);
            }
        }
        kept.join(" ")
    }
}

/// The parts of the program that the supervisor starts as processes. Orders are JSON.
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// A worker
    #[command(hide = true)]
    Worker { orders: String },
    /// Damages copies of a store
    #[command(hide = true)]
    Damage { orders: String },
    /// Keeps a processor busy
    #[command(hide = true)]
    Busy,
}
