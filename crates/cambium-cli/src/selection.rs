//! Which entries `scan`, `count` and `delete` are about, and which pass over the
//! store finds them.
//!
//! | store | bounds, prefix or reverse | pass |
//! |---|---|---|
//! | ordered | any | `scan` of the range |
//! | ordered | none, `--unordered` | `iterate`, prefix as a filter |
//! | unordered | none | `iterate` |
//! | unordered | prefix and `--unordered` | `iterate`, prefix as a filter |
//! | unordered | any other | refused, exit status 2 |

use std::ffi::OsString;

use cambium::{
    Capabilities, Direction, Entries, Entry, IterationOrder, KeyKind, KeyRange, ResumeToken, Store,
    Value, limits,
};
use clap::Args;

use crate::failure::Failure;
use crate::notation::{bytes_argument, key_argument};

#[derive(Debug, Args)]
pub struct Selection {
    /// The first key
    #[arg(long, value_name = "KEY")]
    pub from: Option<OsString>,
    /// The key behind the last
    #[arg(long, value_name = "KEY")]
    pub to: Option<OsString>,
    /// What keys begin with
    #[arg(long)]
    pub prefix: Option<OsString>,
    /// A full pass in no order, with --prefix as a filter
    #[arg(long)]
    pub unordered: bool,
    /// Keys are hexadecimal digits (those of an integer table stay decimal)
    #[arg(long)]
    pub hex: bool,
    /// The namespace; without it, the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// How the store is walked.
pub struct Pass {
    /// The range in key order, or none for a pass in no order.
    pub range: Option<KeyRange>,
    direction: Direction,
    /// What keys must begin with, beyond the range.
    filter: Vec<u8>,
}

impl Pass {
    /// How to find the selected entries in a store that can do this.
    pub fn plan(
        arguments: &Selection,
        reverse: bool,
        capabilities: Capabilities,
    ) -> Result<Self, Failure> {
        let bounded = arguments.from.is_some() || arguments.to.is_some() || reverse;
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
        let bound = |text: &Option<OsString>| {
            text.as_deref()
                .map(|text| key_argument(capabilities.keys, arguments.hex, text))
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
            direction: if reverse {
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

    /// Begins the pass.
    pub fn begin(&self, store: &Store) -> cambium::Result<Found<'_>> {
        self.begin_after(store, None)
    }

    /// Begins the pass; one in no order where an earlier one ended.
    pub fn begin_after(
        &self,
        store: &Store,
        token: Option<&ResumeToken>,
    ) -> cambium::Result<Found<'_>> {
        let entries = match &self.range {
            Some(range) => store.scan(range)?,
            None => store.iterate_with(IterationOrder::Any, token)?,
        };
        Ok(Found {
            entries,
            direction: self.direction,
            filter: &self.filter,
        })
    }
}

/// A pass under way.
pub struct Found<'a> {
    entries: Entries,
    direction: Direction,
    filter: &'a [u8],
}

impl Found<'_> {
    /// A token with which a later pass in no order goes on behind the last entry found.
    pub fn resume_token(&self) -> Option<ResumeToken> {
        self.entries.resume_token()
    }

    /// The next key, without reading its value where the engine can do that.
    pub fn next_key(&mut self) -> cambium::Result<Option<Value>> {
        loop {
            let next = match self.direction {
                Direction::Forward => self.entries.next_key(),
                Direction::Reverse => self.entries.next_key_back(),
            };
            match next.transpose()? {
                Some(key) if !key.starts_with(self.filter) => {}
                found => return Ok(found),
            }
        }
    }

    /// The next key and its value.
    pub fn next_entry(&mut self) -> cambium::Result<Option<Entry>> {
        loop {
            match self.direction.advance(&mut self.entries).transpose()? {
                Some(entry) if !entry.key.starts_with(self.filter) => {}
                found => return Ok(found),
            }
        }
    }
}

fn prefix(arguments: &Selection, keys: KeyKind) -> Result<Option<Vec<u8>>, Failure> {
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
            changes: false,
            readers_beside_writer: false,
        };
        Pass::plan(&arguments.selection, arguments.reverse, capabilities)
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
