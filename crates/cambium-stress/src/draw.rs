//! Draws plans: options of an engine from their own descriptions, the shape of keys, the
//! sizes of values.
//!
//! An option's description holds its default and, as text, its words or its range. A value
//! outside of the range is refused with the range in the message, so the largest and
//! smallest values are found by asking for more and for less. Options that reserve memory
//! or disk are bounded in [`MOST`], so that a run fits the machine.

use std::collections::BTreeMap;
use std::path::Path;

use cambium::{Durability, EngineKind, Error, OptionSpec, parse_bytes};

use crate::arguments::Arguments;
use crate::content::KeyShape;
use crate::plan::Plan;
use crate::random::Random;

/// Options that take their value in memory or on the disk, and the most that is drawn.
const MOST: &[(&str, u64)] = &[
    ("size", 64 << 20),
    ("extend_bytes", 128 << 20),
    ("coalesce_bytes", 16 << 20),
    ("preallocate_bytes", 128 << 20),
    ("reserve_bytes", 128 << 20),
    ("segment_bytes", 1 << 30),
    ("buckets", 1 << 20),
    ("data_files", 32),
    ("keys_per_table", 256 << 10),
    ("commit_log_bytes", 64 << 20),
    ("buffer_bytes", 16 << 20),
    ("compaction_memory_bytes", 256 << 20),
    ("cache_bytes", 256 << 20),
    ("decompressed_cache_bytes", 256 << 20),
    ("key_cache_bytes", 256 << 20),
    ("range_width", 64),
    ("open_files", 4096),
    ("read_guess_bytes", 64 << 10),
    ("batch", 256),
    ("compaction_batch", 256),
];
/// Options that slow work down without a bound, and the least that is drawn.
const LEAST: &[(&str, u64)] = &[
    ("collection_rate", 16 << 20),
    ("compaction_rate_bytes", 16 << 20),
    // Sorting a million small pieces is no different from sorting a thousand.
    ("compaction_memory_bytes", 64 << 10),
    ("size", 8 << 20),
    // Each table is a file, and is synced alone.
    ("table_bytes", 4 << 10),
];
/// Stores of more keys than this have the default of some options.
const MANY_KEYS: u64 = 50_000;
/// Options that name places, or that overwrite what is there.
const LEFT_ALONE: &[&str] = &[
    "device",
    "mirror",
    "force",
    "comparator",
    "keys",
    "sparse_tables",
    "max_tables",
    "fill",
];

/// Draws a plan, and proves on a trial store at `place` that the engine takes it.
pub fn plan(
    kind: &dyn EngineKind,
    seed: u64,
    arguments: &Arguments,
    place: &Path,
) -> Result<Plan, String> {
    let mut random = Random::part(seed, 1);
    let engine = kind.name().to_string();
    let drawn = *random.pick(&[100, 600, 5000, 5000, 20_000, 65_536]);
    let most_value = arguments.value.unwrap_or(drawn);
    let mut plan = Plan {
        seed,
        shape: shape(&mut random, arguments, most_value),
        creation: BTreeMap::new(),
        opening: BTreeMap::new(),
        other_openings: Vec::new(),
        most_value,
        buffered: *random.pick(&[0, 20, 20, 80]),
        synced: *random.pick(&[0, 2, 10, 10, 60]),
        plain: arguments.plain,
        uniform: arguments.uniform,
        seeded_bug: arguments.seeded_bug.clone(),
        engine,
    };
    if arguments.plain {
        (plan.buffered, plan.synced) = (0, 0);
    }
    if kind.options().iter().any(|option| option.name == "keys") {
        plan.shape.integer = random.chance(50);
    }
    let share = if arguments.default_options {
        0
    } else {
        *random.pick(&[0, 0, 15, 15, 50, 100])
    };
    let mut draw_all = |plan: &mut Plan, at_creation: bool| {
        for option in kind.options() {
            let is_drawn = at_creation || !option.at_creation;
            if is_drawn && !LEFT_ALONE.contains(&option.name) && random.chance(share) {
                let value = draw(option, &mut random, arguments.is_small());
                side(plan, option).insert(option.name.to_string(), value);
            }
        }
        settle(kind, plan, arguments, &mut random, place)
    };
    draw_all(&mut plan, true)?;
    for _ in 0..if share > 0 { 2 } else { 0 } {
        let mut other = plan.clone();
        other.opening.clear();
        draw_all(&mut other, false)?;
        if other.creation == plan.creation {
            plan.other_openings.push(other.opening);
        }
    }
    Ok(plan)
}

fn shape(random: &mut Random, arguments: &Arguments, most_value: u32) -> KeyShape {
    // All values are verified often: a store has few megabytes.
    let bytes = if arguments.is_small() {
        500_000
    } else {
        2_000_000
    };
    let drawn = (*random.pick(&[20, 200, 200, 1000])).min(bytes / most_value.max(1));
    KeyShape {
        integer: false,
        threads: arguments.threads,
        keys: arguments.keys.unwrap_or(drawn).max(32),
        prefix: *random.pick(&[0, 0, 3, 24, 200]),
        suffix: *random.pick(&[0, 0, 10, 60, 400]),
        namespaces: 1,
    }
}

/// The options among which an option is.
fn side<'a>(plan: &'a mut Plan, option: &OptionSpec) -> &'a mut BTreeMap<String, String> {
    if option.at_creation {
        &mut plan.creation
    } else {
        &mut plan.opening
    }
}

fn fixed(plan: &mut Plan, kind: &dyn EngineKind, arguments: &Arguments) -> Result<(), String> {
    for assignment in &arguments.set {
        let (name, value) = assignment.split_once('=').ok_or("--set needs NAME=VALUE")?;
        let option = kind.options().iter().find(|option| option.name == name);
        let option =
            option.ok_or_else(|| format!("engine {} has no option {name}", kind.name()))?;
        side(plan, option).insert(name.to_string(), value.to_string());
        if name == "keys" {
            plan.shape.integer = value == "integer";
        }
    }
    let has = |name: &str| kind.options().iter().any(|option| option.name == name);
    let is_free = |name: &str| {
        let mut set = arguments.set.iter().filter_map(|set| set.split_once('='));
        has(name) && !set.any(|(known, _)| known == name)
    };
    let keys = u64::from(plan.shape.keys) * plan.shape.threads as u64;
    // With few open files each lookup opens one, which takes minutes for many keys.
    if keys > MANY_KEYS && is_free("open_files") {
        plan.opening.remove("open_files");
    }
    // Each flat table is several files: with many buckets, each lookup opens some. The
    // suites on the simulated disk have small tables.
    if is_free("keys_per_table") {
        plan.creation.remove("keys_per_table");
    }
    if has("keys") {
        let keys = ["string", "integer"][usize::from(plan.shape.integer)];
        plan.creation.insert("keys".to_string(), keys.to_string());
    }
    if has("sparse_tables") {
        plan.opening
            .insert("sparse_tables".to_string(), "65536".to_string());
    }
    // The disk of power cuts takes direct transfers of 4 KiB. The tools open a store of
    // alphard for such transfers, whatever the workers do.
    let direct = plan.opening.get("direct").map_or("", String::as_str);
    let is_direct = direct != "off" || plan.engine == "alphard";
    if arguments.needs_disk() && has("direct") && is_direct {
        plan.creation.remove("block_bytes");
    }
    if plan.engine == "alphard" {
        let block = plan.creation.entry("block_bytes".to_string());
        block.or_insert_with(|| "4096".to_string());
    }
    if is_free("size") {
        plan.creation.entry("size".to_string()).or_insert_with(|| {
            if arguments.is_small() {
                "8MiB"
            } else {
                "32MiB"
            }
            .to_string()
        });
    }
    Ok(())
}

/// Makes trial stores until the engine takes every option.
fn settle(
    kind: &dyn EngineKind,
    plan: &mut Plan,
    arguments: &Arguments,
    random: &mut Random,
    place: &Path,
) -> Result<(), String> {
    for _ in 0..100 {
        fixed(plan, kind, arguments)?;
        _ = std::fs::remove_dir_all(place);
        let error = match try_out(plan, place) {
            Ok(namespaces) => {
                plan.shape.namespaces = namespaces;
                return Ok(());
            }
            Err(error) => error,
        };
        _ = std::fs::remove_dir_all(place);
        if !matches!(
            error,
            Error::InvalidArgument(_) | Error::LimitExceeded(_) | Error::Unsupported { .. }
        ) {
            return Err(format!("creating a store with {plan:?}: {error}"));
        }
        mend(kind, plan, random, &error.to_string());
    }
    Err(format!(
        "no options that were drawn are taken by engine {}: {plan:?}",
        kind.name()
    ))
}

/// Makes a store, opens it again, and answers over how many namespaces keys are spread.
fn try_out(plan: &Plan, place: &Path) -> Result<usize, Error> {
    let store = plan.options_of_creation().create(place, &plan.engine)?;
    let synced = store.with_durability(Durability::Synced);
    synced.put([0; 8], "on trial")?;
    store.close()?;
    plan.options().check(place)?;
    let store = plan.options().open(place)?;
    let namespaces = 1 + 2 * usize::from(store.capabilities().namespaces);
    store.close()?;
    _ = std::fs::remove_dir_all(place);
    Ok(namespaces)
}

/// Takes another value for the option that an error names.
fn mend(kind: &dyn EngineKind, plan: &mut Plan, random: &mut Random, message: &str) {
    let named = kind.options().iter().filter(|option| {
        let words = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.clone().any(|word| word == option.name)
    });
    let Some(option) = named.max_by_key(|option| option.name.len()) else {
        plan.opening.clear();
        plan.creation.clear();
        return;
    };
    let options = side(plan, option);
    let Some(asked) = options.remove(option.name) else {
        return;
    };
    // "expected 1 to 1024": take the end that was missed.
    let range = message.split("expected ").nth(1).and_then(|rest| {
        let mut words = rest.split([' ', ',', ';']);
        let least = parse_bytes(words.next()?)?;
        let most = (words.next()? == "to").then(|| words.next())??;
        Some((least, parse_bytes(most)?))
    });
    if let (Some((least, most)), Some(asked)) = (range, parse_bytes(&asked)) {
        let value = if asked < least {
            least
        } else {
            bounded(option.name, most).min(most)
        };
        options.insert(option.name.to_string(), value.to_string());
    } else if random.chance(50) {
        options.insert(option.name.to_string(), option.default.to_string());
    }
}

fn bounded(name: &str, value: u64) -> u64 {
    let find = |list: &[(&str, u64)]| {
        list.iter()
            .find(|(known, _)| *known == name)
            .map(|entry| entry.1)
    };
    let value = value.min(find(MOST).unwrap_or(u64::MAX));
    value.max(find(LEAST).unwrap_or(0))
}

/// A value for an option, from its description. It may be out of range.
fn draw(option: &OptionSpec, random: &mut Random, small: bool) -> String {
    let words: Vec<&str> = option
        .unit
        .split([',', ' ', ';'])
        .filter(|word| !word.is_empty())
        .collect();
    let is_number =
        parse_bytes(option.default).is_some() || words.contains(&"bytes") || words.contains(&"to");
    if !is_number {
        let choices: Vec<&str> = words.into_iter().filter(|word| *word != "or").collect();
        return (*random.pick(&choices)).to_string();
    }
    let default = parse_bytes(option.default).unwrap_or(64 << 20);
    let value = match random.below(20) {
        0 => 0,
        1 if !small => u64::MAX >> 14,
        _ if default == 0 => random.magnitude(1, 64 << 20),
        _ => random.magnitude((default >> 13).max(1), default.saturating_mul(4)),
    };
    let value = bounded(option.name, value);
    if words.contains(&"power") && value > 0 {
        return (1u64 << value.ilog2()).to_string();
    }
    value.to_string()
}
