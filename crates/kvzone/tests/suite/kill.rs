//! `--reopen kill`: a real process is killed while it writes, and what it had
//! acknowledged is looked up.

use crate::harness::{assert_has, folder, kvzone, printed, run, said, words};

#[test]
fn nothing_is_killed_that_keeps_nothing_or_has_no_keys_to_write_on() {
    let folder = folder();
    let kill = ["--reopen=kill", "--workload"];
    let memory = run(
        folder.path(),
        &[&kill[..], &["ycsb-a", "--stores", "memory"]].concat(),
    );
    said(&memory, 2);
    let trace = words("--workload fill-random --stores memory --record trace");
    printed(&run(folder.path(), &trace));
    let replay = words("run --stores zdb --workload trace:trace --reopen=kill");
    let replay = kvzone(folder.path(), &replay);
    assert_has(&said(&replay, 2), "not of a trace");
}
