//! Data sets of one's own as keys and values of a run.

use std::fs;

use cambium_foreign::sqlite::{Connection, OPEN_FLAGS, load};

use crate::harness::{assert_has, folder, printed, run, runs, said, text, words};

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
    printed(&run(folder.path(), &[words, more].concat()));
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
        printed(&run(folder.path(), &words(&asked)));
        assert_eq!(runs(folder.path())[0]["keys"], 30);
    }
    fs::write(folder.path().join("trees"), lines + "{\"ib\":1}\n").unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (set, expected) in [
        (
            "jsonl:trees",
            "line 31: there is no field \"id\"; near it: ib",
        ),
        ("jsonl:none", "none"),
        ("dir:none", "none"),
        ("dir:empty", "data set dir:empty: it has no entry"),
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

#[test]
fn a_column_that_a_table_does_not_have_is_refused() {
    let loaded = match load() {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
    };
    let folder = folder();
    let file = folder.path().join("trees.db");
    let made = Connection::open_as(&loaded.functions, &file, OPEN_FLAGS).unwrap();
    made.execute("CREATE TABLE t (k TEXT, v TEXT); INSERT INTO t VALUES ('a', 'b')")
        .unwrap();
    drop(made);
    let told = |fields: &str| {
        let set = format!("sqlite:trees.db?table=t&{fields}");
        let asked = ["--stores", "memory", "--workload", "read-random"];
        run(folder.path(), &[&asked[..], &["--dataset", &set]].concat())
    };
    for fields in ["column=x", "column=v&key=x"] {
        assert_has(&said(&told(fields), 2), "no column \"x\"");
    }
    for fields in ["column=V", "column=v&key=k", "column=v&key=rowid"] {
        printed(&told(fields));
    }
}
