//! `--reopen kill`: a real process is killed while it writes, and what it had
//! acknowledged is looked up.

use crate::harness::{assert_has, folder, kvzone, run, text, words};

#[test]
fn nothing_is_killed_that_keeps_nothing_or_has_no_keys_to_write_on() {
    let folder = folder();
    let kill = ["--reopen=kill", "--workload"];
    let memory = run(
        folder.path(),
        &[&kill[..], &["ycsb-a", "--stores", "memory"]].concat(),
    );
    assert_eq!(memory.status.code(), Some(2), "{}", text(&memory.stderr));
    let trace = words("--workload fill-random --stores memory --record trace");
    assert!(run(folder.path(), &trace).status.success());
    let replay = words("run --stores zdb --workload trace:trace --reopen=kill");
    let replay = kvzone(folder.path(), &replay);
    assert_eq!(replay.status.code(), Some(2));
    assert_has(&text(&replay.stderr), "not of a trace");
}
