//! Sizes of ranges that are too long to be counted.

use cambium_forest::Forest;
use cambium_io::Environment;
use cambium_testkit::conformance::{check_sizes, write_random_values};
use cambium_testkit::stores;

#[test]
fn sizes_of_long_ranges_are_about_right() {
    let shapes: [fn(u64) -> Vec<u8>; 2] = [
        |number| format!("{number:08}").into_bytes(),
        // Sub-trees of 50 to 50,000 entries.
        |number| {
            let group = number.checked_ilog10().unwrap_or(0);
            format!(
                "table {group} of some/row {:03}/{number:08}",
                number / 2_000
            )
            .into_bytes()
        },
    ];
    for key in shapes {
        let options = stores::options(&[&[("write_buffer_entries", "4096")]]);
        let store = stores::create(&Forest, &Environment::memory(), &options);
        let lengths = write_random_values(&*store, &key, 150_000, 200).unwrap();
        check_sizes(&*store, &key, &lengths).unwrap();
        store.compact(&Default::default(), &()).unwrap();
        check_sizes(&*store, &key, &lengths).unwrap();
    }
}
