//! The suites of `cambium-forest` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-forest --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod addresses;
mod beside;
mod changes;
mod checkpoints;
mod cleaning;
mod compaction;
mod conformance;
mod copies;
mod crashes;
mod damage;
mod dealing;
mod decoders;
mod device;
mod dropped;
mod failed_flushes;
mod golden;
mod left_out_numbers;
mod packed_blocks;
mod packing;
mod past_cache;
mod ranges;
mod records_together;
mod room;
mod sizes;
mod small_namespaces;
mod snapshot_space;
mod snapshots_meanwhile;
mod soundness;
mod states;
mod support;
mod threads;
mod unfinished_compactions;
mod versions;
