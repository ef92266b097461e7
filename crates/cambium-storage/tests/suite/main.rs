//! The suites of `cambium-storage` in one program, which is linked once. Each module is a suite:
//! `cargo test -p cambium-storage --test suite NAME::`.

mod interleavings;
mod superblock;
