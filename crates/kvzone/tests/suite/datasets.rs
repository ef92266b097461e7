//! Data sets of one's own as keys and values of a run.

use std::fs;

use crate::harness::{folder, run, runs, text, words};

#[test]
fn paths_and_contents_of_a_folder_are_keys_and_values() {
    let folder = folder();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    for number in 0..40 {
        let path = tree.join(format!("below/file-{number}"));
        fs::write(path, vec![b'x'; number * 10]).unwrap();
    }
    let words = ["--stores", "memory,forest", "--workload", "read-random"];
    let more = ["--dataset", "dir:tree", "--verify-every", "1"];
    let output = run(folder.path(), &[words, more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = runs(folder.path());
    for run in &found {
        assert_eq!(run["keys"], 40, "{run}");
        assert_eq!(run["value_size"], 195.0);
    }
    let measured: Vec<_> = found.iter().filter(|run| run["phase"] == "run").collect();
    assert_eq!(measured.len(), 2);
    assert_eq!(measured[0]["operations"], 40);
    assert_eq!(measured[0]["result_hash"], measured[1]["result_hash"]);
    // The files with keys and values are gone.
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn objects_of_a_text_are_values_under_one_of_their_fields() {
    let folder = folder();
    let lines: String = (0..30)
        .map(|number| format!("{{\"id\":{number},\"name\":\"tree {number}\"}}\n"))
        .collect();
    fs::write(folder.path().join("trees"), &lines).unwrap();
    for set in ["jsonl:trees", "jsonl:trees?key=name"] {
        let asked = format!("--stores memory --workload ycsb-a --dataset {set}");
        let output = run(folder.path(), &words(&asked));
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(runs(folder.path())[0]["keys"], 30);
    }
    fs::write(folder.path().join("trees"), lines + "{\"ib\":1}\n").unwrap();
    for (set, expected) in [
        (
            "jsonl:trees",
            "line 31: there is no field \"id\"; near it: ib",
        ),
        ("jsonl:none", "none"),
        ("dir:none", "none"),
        ("sqlite:none", "table=NAME"),
        ("jsonk:trees", "near it: jsonl"),
    ] {
        let asked = format!("--stores memory --workload ycsb-a --dataset {set}");
        let output = run(folder.path(), &words(&asked));
        let told = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 3)), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}
