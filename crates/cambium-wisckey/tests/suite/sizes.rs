//! Sizes of ranges that are too long to be counted.

use cambium_io::Environment;
use cambium_testkit::conformance::{check_sizes, write_random_values};
use cambium_testkit::stores;
use cambium_wisckey::Wisckey;

#[test]
fn sizes_of_long_ranges_are_about_right() {
    let key = |number| format!("{number:08}").into_bytes();
    // Values in the tree, and values in the log.
    for longest in [60, 1_500] {
        let options =
            stores::options(&[&[("write_buffer_bytes", "1MiB"), ("table_bytes", "1MiB")]]);
        let store = stores::create(&Wisckey, &Environment::memory(), &options);
        let lengths = write_random_values(&*store, &key, 40_000, longest).unwrap();
        check_sizes(&*store, &key, &lengths).unwrap();
        store.compact(&Default::default(), &()).unwrap();
        check_sizes(&*store, &key, &lengths).unwrap();
    }
}
