//! KVZone: which store, with which settings, suits a workload on a machine.

#![deny(unsafe_code)]

fn main() -> std::process::ExitCode {
    kvzone::main(Vec::new)
}
