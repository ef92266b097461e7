//! KVZone: which store, with which settings, suits a workload on a machine.
fn main() {}
