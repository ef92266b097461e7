//! `kvzone compare`, as people and scripts meet it.

use crate::harness::{assert_has, folder, kvzone, printed, report, said, text, words};

#[test]
fn compare_tells_by_its_exit_status_what_became_worse() {
    let folder = folder();
    let made = kvzone(
        folder.path(),
        &words(
            "run --stores memory --workload fill-random --keys 500 --repeat 5 --json \
            out.json",
        ),
    );
    printed(&made);
    let first = report(folder.path());
    let with_rate = |name: &str, rates: [f64; 5]| {
        let mut other = first.clone();
        for (run, rate) in other["runs"].as_array_mut().unwrap().iter_mut().zip(rates) {
            run["ops_per_second"] = rate.into();
        }
        let bytes = serde_json::to_vec(&other).unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
    };
    with_rate("before.json", [100.0, 101.0, 102.0, 100.5, 101.5]);
    with_rate("slower.json", [50.0, 51.0, 52.0, 50.5, 51.5]);
    let compare = |more: &[&str]| {
        let mut arguments = vec!["compare", "before.json"];
        arguments.extend(more);
        kvzone(folder.path(), &arguments)
    };
    printed(&compare(&["before.json"]));
    let slower = compare(&["slower.json"]);
    assert_eq!(slower.status.code(), Some(1));
    let told = text(&slower.stdout);
    assert_has(&told, "worse");
    assert_has(&told, "0.50");
    for more in [["--tolerance", "60"], ["--by", "p99,cpu"]] {
        let tolerant = compare(&[&["slower.json"], &more[..]].concat());
        assert!(tolerant.status.success(), "{more:?}");
    }
    let usage = [
        (compare(&["slower.json", "--by", "opss"]), "near it: ops"),
        (compare(&["none.json"]), "none.json"),
    ];
    for (output, words) in usage {
        assert!(!output.status.success());
        assert_has(&text(&output.stderr), words);
    }
    std::fs::write(folder.path().join("cut.json"), "{\"schema\": \"kvz").unwrap();
    let cut = compare(&["cut.json"]);
    assert_has(&said(&cut, 2), "line 1 column");
}
