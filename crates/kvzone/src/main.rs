//! KVZone: which store, with which settings, suits a workload on a machine.
#![forbid(unsafe_code)]
fn main() {}
