//! House rules as a program: tidy, generated documents.
fn main() {}
