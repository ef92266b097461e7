//! `cambium scan`: which pass over the store answers which bounds.
//!
//! | store | bounds, prefix or reverse | pass |
//! |---|---|---|
//! | ordered | any | `scan` of the range |
//! | ordered | none, `--unordered` | `iterate`, prefix as a filter |
//! | unordered | none | `iterate` |
//! | unordered | prefix and `--unordered` | `iterate`, prefix as a filter |
//! | unordered | any other | refused, exit status 2 |

use std::ffi::OsStr;

use cambium::{Capabilities, Direction, Entries, KeyKind, KeyRange, Store, limits};

use crate::arguments::ScanArguments;
use crate::failure::{Failure, Status};
use crate::namespaces;
use crate::notation::{bytes_argument, key_argument, write_line};
use crate::output::Output;

/// Writes the entries that were asked for.
pub fn run(arguments: &ScanArguments) -> Result<Status, Failure> {
    let store = namespaces::open(&arguments.path, arguments.namespace.as_deref())?;
    let capabilities = store.capabilities();
    let pass = Pass::plan(arguments, capabilities)?;
    let mut output = Output::standard()?;
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    let mut entries = pass.entries(&store)?;
    // The limit is asked first: no entry is read that is not written.
    while left > 0 {
        let (key, value) = if arguments.keys_only {
            (entries.next_key().transpose()?, None)
        } else {
            let entry = entries.next().transpose()?;
            entry.map_or((None, None), |entry| (Some(entry.key), Some(entry.value)))
        };
        let Some(key) = key else {
            break;
        };
        if !key.starts_with(&pass.filter) {
            continue;
        }
        left -= 1;
        let (format, value) = (arguments.format, value.as_deref());
        write_line(&mut output, format, capabilities.keys, &key, value).map_err(Failure::output)?;
    }
    output.finish()?;
    store.close()?;
    Ok(Status::Done)
}

/// How the store is walked.
struct Pass {
    /// The range in key order, or none for a pass in no order.
    range: Option<KeyRange>,
    direction: Direction,
    /// What keys must begin with, beyond the range.
    filter: Vec<u8>,
}

impl Pass {
    fn plan(arguments: &ScanArguments, capabilities: Capabilities) -> Result<Self, Failure> {
        let bounded = arguments.from.is_some() || arguments.to.is_some() || arguments.reverse;
        let prefix = prefix(arguments, capabilities.keys)?;
        if arguments.unordered {
            if bounded {
                return Err(Failure::usage(
                    "--unordered is a full pass in no order: leave it away, or --from, --to and --reverse",
                ));
            }
            return Ok(Pass::everything(prefix));
        }
        if !capabilities.ordered {
            if bounded || prefix.is_some() {
                return Err(Failure::usage(format!(
                    "this store of engine {} keeps keys in no order, so it has no --from, --to, --prefix or --reverse; \
                     with --unordered, --prefix is a filter over a full pass",
                    capabilities.engine
                )));
            }
            return Ok(Pass::everything(None));
        }
        let bound = |text: &Option<std::ffi::OsString>| {
            text.as_deref()
                .map(|text: &OsStr| key_argument(capabilities.keys, arguments.hex, text))
                .transpose()
        };
        let mut range = KeyRange {
            from: bound(&arguments.from)?,
            to: bound(&arguments.to)?,
        };
        if let Some(prefix) = prefix {
            range = intersection(range, KeyRange::prefix(&prefix));
        }
        Ok(Pass {
            range: Some(range),
            direction: if arguments.reverse {
                Direction::Reverse
            } else {
                Direction::Forward
            },
            filter: Vec::new(),
        })
    }

    fn everything(filter: Option<Vec<u8>>) -> Self {
        Pass {
            range: None,
            direction: Direction::Forward,
            filter: filter.unwrap_or_default(),
        }
    }

    fn entries(&self, store: &Store) -> cambium::Result<Entries> {
        match &self.range {
            Some(range) => store.scan(range, self.direction),
            None => store.iterate(),
        }
    }
}

fn prefix(arguments: &ScanArguments, keys: KeyKind) -> Result<Option<Vec<u8>>, Failure> {
    let Some(prefix) = &arguments.prefix else {
        return Ok(None);
    };
    if keys == KeyKind::Integer {
        return Err(Failure::usage(
            "this store has integer keys, and numbers have no --prefix: use --from and --to",
        ));
    }
    let prefix = bytes_argument(arguments.hex, "prefix", prefix)?;
    limits::check_key(&prefix)?;
    Ok(Some(prefix))
}

fn intersection(one: KeyRange, other: KeyRange) -> KeyRange {
    let to = match (one.to, other.to) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    KeyRange {
        // `None` sorts below every key.
        from: one.from.max(other.from),
        to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn plan(ordered: bool, keys: KeyKind, arguments: &str) -> Result<Pass, Failure> {
        let words = ["cambium", "scan", "s"].into_iter();
        let line = words.chain(arguments.split_whitespace());
        let Command::Scan(arguments) = Arguments::try_parse_from(line).unwrap().command else {
            panic!("not a scan");
        };
        let capabilities = Capabilities {
            engine: "test",
            keys,
            ordered,
            insertion_order: false,
            named_snapshots: false,
            namespaces: false,
            droppable_namespaces: false,
            native_submit: false,
        };
        Pass::plan(&arguments, capabilities)
    }

    fn ordered(arguments: &str) -> Pass {
        plan(true, KeyKind::Bytes, arguments).unwrap()
    }

    #[test]
    fn an_ordered_store_answers_bounds_and_prefixes_by_a_range() {
        assert_eq!(ordered("").range, Some(KeyRange::all()));
        let pass = ordered("--from b --to c --reverse");
        assert_eq!(pass.range, Some(KeyRange::between(b"b", b"c")));
        assert_eq!(pass.direction, Direction::Reverse);
        let pass = ordered("--prefix a --from ab");
        assert_eq!(pass.range, Some(KeyRange::between(b"ab", b"b")));
        assert!(pass.filter.is_empty());
        let pass = ordered("--hex --from 00 --to ff00");
        assert_eq!(pass.range, Some(KeyRange::between(b"\0", b"\xff\0")));
    }

    #[test]
    fn bounds_that_leave_nothing_are_an_empty_range() {
        let range = ordered("--prefix a --from c").range.unwrap();
        assert!(!range.contains(b"a") && !range.contains(b"c"));
    }

    #[test]
    fn an_unordered_pass_filters_by_prefix_on_any_engine() {
        for is_ordered in [true, false] {
            let pass = plan(is_ordered, KeyKind::Bytes, "--unordered --prefix a").unwrap();
            assert_eq!((pass.range, pass.filter), (None, b"a".to_vec()));
            for bound in ["--from a", "--to a", "--reverse"] {
                let arguments = format!("--unordered {bound}");
                assert!(plan(is_ordered, KeyKind::Bytes, &arguments).is_err());
            }
        }
    }

    #[test]
    fn an_intersection_keeps_the_tighter_bound_of_each_side() {
        let both = intersection(KeyRange::between(b"ab", b"c"), KeyRange::prefix(b"a"));
        assert_eq!(both, KeyRange::between(b"ab", b"b"));
        let open = intersection(KeyRange::all(), KeyRange::prefix(b"a"));
        assert_eq!(open, KeyRange::between(b"a", b"b"));
    }
}
