//! `kvzone matrix`, as people and scripts meet it: one page, what was measured kept, and
//! a store that fails shown as failed where it failed.

use serde_json::Value;

use crate::harness::{assert_has, folder, kvzone, matrix, printed, read, said, text, units, words};

#[test]
fn what_was_measured_is_kept_and_gone_on_with() {
    let folder = folder();
    let stores = ["--stores", "forest,memory", "--repeat", "2"];
    printed(&matrix(folder.path(), &stores));
    let whole = units(folder.path());
    // Two stores in two rounds, and what measuring costs in one.
    assert_eq!(whole.len(), 5);
    let path = folder.path().join("matrix.json");
    let lines = read(folder.path(), "matrix.json");
    let kept: Vec<&str> = lines.lines().take(1 + 3).collect();
    let cut: Vec<Value> = whole[..3].to_vec();
    std::fs::write(&path, kept.join("\n") + "\n").unwrap();

    let other = matrix(
        folder.path(),
        &["--stores", "forest", "--repeat", "2", "--resume"],
    );
    let told = said(&other, 2);
    assert_has(&told, "matrix.json");
    assert_has(&told, "other conditions");
    assert_eq!(
        units(folder.path()).len(),
        3,
        "nothing is lost by a mistake"
    );

    // A kill may cut the last line off.
    let torn = kept.join("\n") + "\n{\"program\": \"ma";
    std::fs::write(&path, torn).unwrap();
    let resumed = [&stores[..], &["--resume"]].concat();
    printed(&matrix(folder.path(), &resumed));
    let again = units(folder.path());
    assert_eq!(again[..3], cut[..], "kept as they were");
    assert_eq!(again.len(), whole.len());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_measured() {
    let folder = folder();
    for (arguments, expected) in [
        (&["--stores", "forset"][..], "near it: forest"),
        (&["--programs", "mian"], "near it: main"),
        (&["--sizes", "100:1000000000000"], "available"),
    ] {
        let refused = matrix(folder.path(), arguments);
        let told = text(&refused.stderr);
        assert!(
            !refused.status.success() && told.contains(expected),
            "{told}"
        );
        assert!(!folder.path().join("matrix.json").exists());
    }
    let refused = kvzone(folder.path(), &words("matrix --quick --budget 1KiB"));
    assert_has(&said(&refused, 2), "1MiB at least");
}
