//! The suites of `cambium-bindings` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-bindings --test suite NAME::`.

mod databases;
mod removed;
