//! The suites of `cambium-index` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-index --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod btree_damage;
mod btree_model;
mod hbtrie;
mod relocate;
mod support;
