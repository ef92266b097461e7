//! What the bindings to other languages share.
//!
//! A binding should do no more than turn a language's values into ours and
//! back. What is harder than that, and the same for all of them, is here, and
//! tested in Rust:
//!
//! ```text
//! C program ──▶ handle (a number) ──Handles──▶ Arc of the object, or an error
//! plyvel, leveldb/c.h ──▶ Database ──▶ View ──▶ Walker ──▶ facade ──▶ engine
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`c`] | pointers, text and memory that cross the border to C; all of the crate's unsafe code |
//! | [`handles`] | [`Handles`]: opaque handles that may be stale, foreign or made up, and are then an error |
//! | [`walker`] | [`Walker`]: an iterator that goes both ways and seeks |
//! | [`database`] | [`Database`]: a store opened, read and written as LevelDB's interface has it |
//! | [`view`] | [`View`]: one moment of it |
//! | [`runs`] | [`RunWalker`]: the same, reading several entries at a time |
//! | [`reader`] | a thread that reads ahead of such walks |
//! | [`transaction`] | transactions of a database |
//! | [`settings`] | [`Settings`]: LevelDB's options, and what they mean for an engine |
//! | [`order`] | keys in the order of a comparator that the program brings |
//! | [`sorted_keys`] | all keys in that order, as of a moment |
//! | [`long_keys`] | keys longer than an engine takes |
//! | [`process`] | [`OfProcess`]: objects of a store, in a process that was forked off |
//! | [`properties`] | `leveldb.stats` and the like |
//! | [`remove`] | taking a store off the disk |
#![deny(unsafe_code)]

pub mod c;
pub mod database;
pub mod handles;
pub mod long_keys;
pub mod order;
pub mod process;
pub mod properties;
mod reader;
pub mod remove;
pub mod runs;
pub mod settings;
pub mod sorted_keys;
pub mod transaction;
pub mod view;
pub mod walker;

pub use database::Database;
pub use handles::{HandleError, Handles};
pub use order::Comparator;
pub use process::OfProcess;
pub use runs::RunWalker;
pub use settings::Settings;
pub use view::View;
pub use walker::Walker;
