//! The cambium command.
fn main() {}
