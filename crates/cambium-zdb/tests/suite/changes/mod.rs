//! The change feed of `zdb`: over both kinds of keys, many files and tables, crashes,
//! compactions and threads, with defaults and with options so small that every path is met.
//! Each seeded bug of the feed must be found by one of these programs.

mod crashed;
mod device;
mod following;
mod history;
mod support;

use crashed::crashed;
use following::{followed, several_writers};
use history::kept_for_a_consumer;
use support::{KINDS, Outcome, Setting};

#[test]
fn every_seeded_bug_of_the_feed_is_found() {
    let found = |bug: &'static str, program: &dyn Fn(Setting) -> Outcome| {
        let (is_small, bug) = (true, Some(bug));
        let failures = KINDS.map(|keys| {
            program(Setting {
                keys,
                is_small,
                bug,
            })
        });
        assert!(failures.iter().any(Result::is_err), "{bug:?}");
    };
    let anywhere = |program: fn(Setting, u64) -> Outcome| {
        move |setting| (1..=150).try_for_each(|seed| program(setting, seed))
    };
    found("changes_split", &anywhere(followed));
    found("changes_split", &|setting| several_writers(setting, 20));
    found("unsynced_changes_shown", &anywhere(crashed));
    found("cut_changes_shown", &anywhere(crashed));
    found("consumers_forgotten", &kept_for_a_consumer);
}
