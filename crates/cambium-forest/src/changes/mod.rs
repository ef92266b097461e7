//! The change feed: committed batches, read from the log.
//!
//! The log of a database file has every write since the file's *base*: the header with which
//! the store was made, or which a compaction, a repair or a rollback wrote. So a feed is a
//! cursor over a chain of files:
//!
//! ```text
//!  kept file           kept file           database file
//! │ … H D D H D D │   │ … H D D D D │    │ moved │ H D D H D D … ▶ writers
//!     ▲           ▲       ▲         ▲            ▲
//!     from        to  =  from       to     =     changes_from
//! ```
//!
//! A compaction copies live documents only, in key order: what lies before the new file's
//! base is no history. The old file's history ends where the new file's begins. Without
//! consumers the old file is removed. With consumers the first header of the new file
//! lists it, and [`history`] decides how long the store keeps it.
//!
//! | module | what it does |
//! |---|---|
//! | [`reader`] | reads the records of one file in large pieces |
//! | [`feed`] | groups them into batches, goes from file to file |
//! | [`history`] | which files the feed may read, which consumers need them |
//! | [`retention`] | what a compaction keeps; the removal of what no consumer needs |
//! | [`consumers`] | makes and moves consumers |
//!
//! A feed finds its place in a file by the chain of headers, newest first: each header says
//! up to which write the log before its replay offset goes.
//!
//! Sequence numbers prove that a feed leaves nothing out: they have no gap but those that a
//! recovery's header names. A feed reads up to the number that readers see (or that is
//! synced), and never looks at what lies behind it.

mod consumers;
mod feed;
mod history;
mod reader;
mod retention;

pub(crate) use feed::check_history;
pub(crate) use history::History;
