//! The memory that a store may use: a list of parts, fitted into the environment's
//! [`MemoryBudget`] when the store is opened.
//!
//! An engine lists its parts ([`MemoryPart`]): caches, write buffers, working memory of
//! compaction, open tables. Most are bounded by an option. [`MemoryPlan::fit`] decides how
//! much each part gets, and reserves the sum for as long as the store is open:
//!
//! - An option that the caller has set counts as it was set.
//! - Other parts have a default and a least size. Where the budget is unlimited, they get
//!   the default.
//! - A store takes at most half of what is free in a limited budget, so that stores which
//!   are opened later find room; more only where its least sizes and the options that were
//!   set need it. All parts shrink by the same share of the way from default to least.
//! - Where the least sizes do not fit, opening fails, and the error names the least budget
//!   that would do.

use std::sync::{Arc, PoisonError};

use cambium_base::{Error, Result};
use cambium_io::Environment;
use cambium_io::environment::{MemoryBudget, Reservation};
use cambium_io::sync::{Mutex, MutexGuard};

use crate::options::{OptionSpec, OptionValues, parse_bytes};
use crate::report::Statistics;

/// More than any machine has: options that bound nothing count as so much.
const MOST_BYTES: u64 = 1 << 48;
/// A store takes at most this part of what is free, unless it needs more.
const SHARE: u64 = 2;
/// The option that every engine's cache has.
const CACHE: &str = "cache_bytes";
/// Parts that the message of a refusal names.
const NAMED_PARTS: usize = 3;

/// A part of a store's memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPart {
    /// The statistic that shows its limit, in snake case.
    pub name: &'static str,
    /// The memory in words, for statistics and errors.
    pub meaning: &'static str,
    /// How it is bounded.
    pub bound: MemoryBound,
    /// The least that works, in the bound's unit.
    pub least: u64,
    /// Bytes of memory for one unit of the bound.
    pub unit_bytes: u64,
}

/// How a part of a store's memory is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// By the option of this name.
    Option(&'static str),
    /// By the plan alone ([`MemoryPlan::limit`]), with this default.
    Plan(u64),
}

impl MemoryPart {
    /// A part that an option bounds.
    pub const fn of_option(
        name: &'static str,
        meaning: &'static str,
        option: &'static str,
        least: u64,
        unit_bytes: u64,
    ) -> Self {
        MemoryPart {
            name,
            meaning,
            bound: MemoryBound::Option(option),
            least,
            unit_bytes,
        }
    }

    /// A part that the plan alone bounds, with its default and its least size.
    pub const fn planned(
        name: &'static str,
        meaning: &'static str,
        (default, least): (u64, u64),
        unit_bytes: u64,
    ) -> Self {
        MemoryPart {
            name,
            meaning,
            bound: MemoryBound::Plan(default),
            least,
            unit_bytes,
        }
    }

    /// A part of so many bytes in any case.
    pub const fn fixed(name: &'static str, meaning: &'static str, bytes: u64) -> Self {
        MemoryPart::planned(name, meaning, (bytes, bytes), 1)
    }

    /// The cache of an engine, which the option `cache_bytes` bounds. By default it is the
    /// environment's.
    pub const fn cache(meaning: &'static str) -> Self {
        MemoryPart::of_option("cache_limit_bytes", meaning, CACHE, 0, 1)
    }
}

/// The memory that an open store has reserved.
#[derive(Debug)]
pub struct MemoryPlan {
    grants: Vec<Grant>,
    /// Capacity of the environment's cache, if the store uses that.
    shared_cache: Option<u64>,
    budget: Arc<MemoryBudget>,
    /// `None` once the store is closed.
    reservation: Mutex<Option<Reservation>>,
}

/// What a part gets.
#[derive(Clone, Copy, Debug)]
struct Grant {
    part: MemoryPart,
    /// In the bound's unit, as are the following.
    units: u64,
    default: u64,
    /// The caller has set the option.
    is_set: bool,
}

impl Grant {
    fn new(part: MemoryPart, specs: &[OptionSpec], options: &OptionValues) -> Self {
        // Another value than a number is refused when the engine reads the option.
        let (default, set) = match part.bound {
            MemoryBound::Plan(default) => (Some(default), None),
            MemoryBound::Option(name) => {
                let spec = specs.iter().find(|spec| spec.name == name);
                let default = spec.and_then(|spec| parse_bytes(spec.default));
                (default, options.get(name).and_then(parse_bytes))
            }
        };
        let default = default.unwrap_or(0);
        Grant {
            part,
            units: set.unwrap_or(default),
            default,
            is_set: set.is_some(),
        }
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.part, self.units)
    }

    /// The part is a cache for which the caller has set no size, and which by default is the
    /// environment's.
    fn is_shared_cache(&self) -> bool {
        self.part.bound == MemoryBound::Option(CACHE) && self.default == 0 && !self.is_set
    }

    fn least_bytes(&self) -> u64 {
        match self.is_set {
            true => self.bytes(),
            false => bytes_of(&self.part, self.part.least),
        }
    }
}

fn bytes_of(part: &MemoryPart, units: u64) -> u64 {
    units.saturating_mul(part.unit_bytes).min(MOST_BYTES)
}

impl MemoryPlan {
    /// Fits the parts of a store into the budget of an environment, and sets the options
    /// that were not set and have to be smaller than their defaults.
    ///
    /// `specs` has the options' defaults. A cache whose option is `shared` is the
    /// environment's: that takes its capacity of the budget once for all stores.
    ///
    /// ```
    /// use cambium_api::{MemoryPart, MemoryPlan, OptionSpec, OptionValues};
    /// use cambium_io::Environment;
    /// let (name, option) = ("write_buffer_limit_bytes", "write_buffer_bytes");
    /// let buffers = MemoryPart::of_option(name, "write buffers", option, 1 << 20, 3);
    /// let option = OptionSpec {
    ///     name: "write_buffer_bytes",
    ///     unit: "bytes",
    ///     default: "32MiB",
    ///     effect: "Writes that gather in memory.",
    ///     at_creation: false,
    /// };
    /// let environment = Environment::memory().with_memory(24 << 20);
    /// let mut options = OptionValues::default();
    /// let plan = MemoryPlan::fit(
    ///     &environment,
    ///     "forest",
    ///     (&[option], &[buffers]),
    ///     &mut options,
    /// )
    /// .unwrap();
    /// // Half of what is free, for three buffers.
    /// assert_eq!(options.get("write_buffer_bytes"), Some("4194304"));
    /// assert_eq!(environment.memory.used(), 12 << 20);
    /// drop(plan);
    /// assert_eq!(environment.memory.used(), 0);
    /// ```
    ///
    /// # Errors
    /// `LimitExceeded` where the budget is too small, with the least that would do.
    pub fn fit(
        environment: &Environment,
        engine: &str,
        specs_and_parts: (&[OptionSpec], &[MemoryPart]),
        options: &mut OptionValues,
    ) -> Result<Self> {
        MemoryPlan::fit_beside(environment, engine, specs_and_parts, options, 0)
    }

    /// The same, and leaves room for so many bytes that grow with the data, which the caller
    /// reserves next.
    ///
    /// # Errors
    /// As of [`MemoryPlan::fit`].
    pub fn fit_beside(
        environment: &Environment,
        engine: &str,
        (specs, parts): (&[OptionSpec], &[MemoryPart]),
        options: &mut OptionValues,
        growing: u64,
    ) -> Result<Self> {
        let budget = &environment.memory;
        let asked = parts.iter().map(|part| Grant::new(*part, specs, options));
        let mut grants: Vec<Grant> = asked.collect();
        let cache = grants.iter().any(Grant::is_shared_cache);
        let cache = cache.then_some(&environment.cache);
        let least: u64 = grants.iter().map(Grant::least_bytes).sum();
        let reservation = loop {
            let unpaid = cache.filter(|cache| !cache.is_paid());
            let cache_bytes = unpaid.map_or(0, |cache| cache.capacity());
            let free = budget.free().checked_sub(cache_bytes);
            let Some(free) = free.filter(|&free| least.saturating_add(growing) <= free) else {
                return Err(too_small(environment, engine, &grants, growing));
            };
            let mut fitted = grants.clone();
            if budget.limit().is_some() {
                let share = (free / SHARE).saturating_sub(growing);
                shrink(&mut fitted, share.max(least));
            }
            let paid = unpaid.map_or(Ok(()), |cache| cache.draw_on(budget));
            let reserved = paid.and_then(|()| budget.reserve(sum(&fitted)));
            // Where that fails, another store has been opened since: fit into what is left.
            if let Ok(reservation) = reserved {
                grants = fitted;
                break reservation;
            }
        };
        for grant in grants.iter().filter(|grant| grant.units < grant.default) {
            if let MemoryBound::Option(name) = grant.part.bound {
                if !grant.is_set {
                    options.set(name, &grant.units.to_string());
                }
            }
        }
        Ok(MemoryPlan {
            grants,
            shared_cache: cache.map(|cache| cache.capacity()),
            budget: budget.clone(),
            reservation: Mutex::new(Some(reservation)),
        })
    }

    /// The limit of a part, in its unit; 0 for a part that the plan does not have.
    pub fn limit(&self, name: &str) -> u64 {
        let mut grants = self.grants.iter();
        let found = grants.find(|grant| grant.part.name == name);
        found.map_or(0, |grant| grant.units)
    }

    /// Gives the memory back, where a store is closed and its handle is still there.
    pub fn give_back(&self) {
        _ = self.reservation().take();
    }

    fn reserved(&self) -> u64 {
        self.reservation().as_ref().map_or(0, Reservation::bytes)
    }

    fn reservation(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.reservation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A reservation of the same budget for memory that grows with the data.
    ///
    /// # Errors
    /// As of [`MemoryBudget::reserve`].
    pub fn reserve(&self, bytes: u64) -> Result<Reservation> {
        self.budget.reserve(bytes)
    }

    /// Adds the limit of each part, and what the environment has in all.
    pub fn statistics(&self, all: &mut Statistics) {
        for grant in &self.grants {
            let shared = self.shared_cache.filter(|_| grant.is_shared_cache());
            let bytes = shared.unwrap_or(grant.bytes());
            all.bytes(grant.part.name, bytes, grant.part.meaning);
        }
        all.bytes(
            "memory_reserved_bytes",
            self.reserved(),
            "sum of these limits: memory that the store has reserved of the environment's budget",
        );
        all.bytes(
            "environment_memory_bytes",
            self.budget.used(),
            "memory that all stores of the environment have reserved, their shared cache included",
        );
        if let Some(limit) = self.budget.limit() {
            all.bytes(
                "environment_memory_limit_bytes",
                limit,
                "the environment's memory budget",
            );
        }
    }
}

fn sum(grants: &[Grant]) -> u64 {
    grants.iter().map(Grant::bytes).sum()
}

/// Makes parts smaller until their sum is at most `target`, which is no less than the sum of
/// the least sizes.
fn shrink(grants: &mut [Grant], target: u64) {
    if sum(grants) <= target {
        return;
    }
    let least: u64 = grants.iter().map(Grant::least_bytes).sum();
    let room = target.saturating_sub(least);
    // A part with a huge default counts as no more than all the room there is: else it would
    // leave the others at their least.
    let wanted = |grant: &Grant| (grant.bytes().saturating_sub(grant.least_bytes())).min(room);
    let all: u64 = grants.iter().map(wanted).sum();
    for grant in grants.iter_mut().filter(|grant| !grant.is_set) {
        let share = u128::from(wanted(grant)) * u128::from(room) / u128::from(all.max(1));
        let bytes = grant.least_bytes() + (share as u64).min(wanted(grant));
        let units = bytes / grant.part.unit_bytes.max(1);
        grant.units = units.clamp(grant.part.least.min(grant.units), grant.units);
    }
}

fn too_small(environment: &Environment, engine: &str, grants: &[Grant], growing: u64) -> Error {
    let (budget, cache) = (&environment.memory, &environment.cache);
    let least: u64 = grants.iter().map(Grant::least_bytes).sum();
    let least = least.saturating_add(growing);
    let mut largest: Vec<(u64, &str)> = grants
        .iter()
        .map(|grant| (grant.least_bytes(), grant.part.meaning))
        .collect();
    largest.push((growing, "the entries that are there"));
    largest.sort_unstable_by(|one, other| other.cmp(one));
    largest.truncate(NAMED_PARTS);
    let parts: Vec<String> = largest
        .iter()
        .map(|(bytes, meaning)| format!("{bytes} for {meaning}"))
        .collect();
    let paid = if cache.is_paid() { cache.capacity() } else { 0 };
    let used = budget.used().saturating_sub(paid);
    let beside = match used {
        0 => least,
        // An open store takes up to half of a larger budget, and a part of the rest for values
        // after decompression.
        _ => {
            let ample = least.saturating_add(least / 4);
            used.saturating_add(ample).max(ample.saturating_mul(SHARE))
        }
    };
    let least_budget = match paid > 0 || grants.iter().any(Grant::is_shared_cache) {
        true => environment.least_memory(beside),
        false => beside,
    };
    Error::LimitExceeded(format!(
        "engine {engine} needs {least} bytes of memory at least (the most of it: {}), and the \
         environment's memory budget of {} bytes has {} of them in use; a budget of \
         {least_budget} bytes would do, or smaller options",
        parts.join(", "),
        budget.limit().unwrap_or(u64::MAX),
        budget.used(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const PARTS: [MemoryPart; 3] = [
        MemoryPart::cache("the cache"),
        MemoryPart::of_option(
            "write_buffer_limit_bytes",
            "write buffers",
            "write_buffer_bytes",
            MIB,
            3,
        ),
        MemoryPart::planned("tables_limit_bytes", "open tables", (1000, 2), MIB),
    ];

    const fn option(name: &'static str, default: &'static str) -> OptionSpec {
        OptionSpec {
            name,
            unit: "bytes",
            default,
            effect: "",
            at_creation: false,
        }
    }

    fn fit(environment: &Environment, options: &mut OptionValues) -> Result<MemoryPlan> {
        let specs = [
            option(CACHE, "shared"),
            option("write_buffer_bytes", "32MiB"),
        ];
        MemoryPlan::fit(environment, "zdb", (&specs, &PARTS), options)
    }

    #[test]
    fn without_a_limit_every_part_gets_its_default() {
        let environment = Environment::memory();
        let mut options = OptionValues::default();
        let plan = fit(&environment, &mut options).unwrap();
        assert!(options.is_empty());
        assert_eq!(plan.limit("tables_limit_bytes"), 1000);
        let used = environment.memory.used();
        assert_eq!(used, (64 + 3 * 32 + 1000) * MIB);
    }

    #[test]
    fn parts_shrink_together_and_leave_room_for_another_store() {
        let environment = Environment::memory().with_memory(128 * MIB);
        let mut options = OptionValues::default();
        let first = fit(&environment, &mut options).unwrap();
        // A quarter is the cache, half of the rest this store's.
        assert!(first.reserved() <= 48 * MIB);
        assert!(first.reserved() > 46 * MIB);
        let buffers = 3 * options
            .get("write_buffer_bytes")
            .and_then(parse_bytes)
            .unwrap();
        let tables = first.limit("tables_limit_bytes") * MIB;
        assert!(
            buffers > 15 * MIB && tables > 15 * MIB,
            "{buffers} {tables}"
        );
        let second = fit(&environment, &mut OptionValues::default()).unwrap();
        assert!(second.reserved() <= 24 * MIB);
        let mut statistics = Statistics::default();
        second.statistics(&mut statistics);
        assert_eq!(statistics.number("cache_limit_bytes"), Some(32 * MIB));
        drop((first, second));
        assert_eq!(environment.memory.used(), 32 * MIB, "the cache stays");
    }

    #[test]
    fn options_that_are_set_count_as_they_are() {
        let environment = Environment::memory().with_memory(128 * MIB);
        let mut options =
            OptionValues::from([("write_buffer_bytes", "20MiB"), ("cache_bytes", "10MiB")]);
        let plan = fit(&environment, &mut options).unwrap();
        assert_eq!(options.get("write_buffer_bytes"), Some("20MiB"));
        assert_eq!(plan.limit("tables_limit_bytes"), 2);
        assert_eq!(environment.memory.used(), (60 + 10 + 2) * MIB);
    }

    #[test]
    fn a_refusal_names_the_least_budget_that_would_do() {
        let set = [("cache_bytes", "1MiB"), ("write_buffer_bytes", "100MiB")];
        for (budget, options) in [
            (4 * MIB, OptionValues::default()),
            (300 * MIB, OptionValues::from([set[1]])),
            (200 * MIB, OptionValues::from(set)),
        ] {
            let environment = Environment::memory().with_memory(budget);
            let refused = fit(&environment, &mut options.clone()).unwrap_err();
            assert_eq!(environment.memory.used(), 0);
            let text = refused.to_string();
            assert!(text.contains("for write buffers"), "{text}");
            let (_, rest) = text.rsplit_once("a budget of ").unwrap();
            let least: u64 = rest.split(' ').next().unwrap().parse().unwrap();
            let retry = |bytes| {
                let environment = Environment::memory().with_memory(bytes);
                fit(&environment, &mut options.clone()).is_ok()
            };
            assert!(retry(least) && !retry(least - MIB), "{text}");
        }
    }
}
