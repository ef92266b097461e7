//! `--memory` bounds the stores of every command.

use crate::harness::Place;

#[test]
fn each_command_keeps_to_the_memory_that_it_is_given() {
    let place = Place::empty();
    place.run(["create", "s", "--memory", "64MiB"]).done();
    place
        .run(["--memory", "64MiB", "put", "s", "oak", "1"])
        .done();
    assert_eq!(
        place.run(["get", "s", "oak", "--memory", "64MiB"]).done(),
        "1"
    );
    let statistics = place
        .run(["stats", "s", "--json", "--memory", "64MiB"])
        .done();
    let limit = "\"environment_memory_limit_bytes\":67108864";
    assert!(statistics.contains(limit), "{statistics}");
    // A copy is a second store within the same budget.
    place.run(["copy", "s", "t", "--memory", "64MiB"]).done();
    place
        .run(["backup", "s", "b", "--incremental", "--memory", "64MiB"])
        .done();
    place.run(["restore", "b", "r", "--memory", "64MiB"]).done();
    for command in [
        vec!["get", "s", "oak"],
        vec!["scan", "r"],
        vec!["stats", "t"],
    ] {
        let bounded = command.iter().copied().chain(["--memory", "1MiB"]);
        place.run(bounded).refused(2, &["would do"]);
    }
    place
        .run(["scan", "s", "--memory", "lots"])
        .refused(2, &["--help"]);
    let shell = place.run_with_input(["shell", "s"], b"get oak --memory 64MiB\n");
    shell.refused(2, &["not in a shell"]);
}
