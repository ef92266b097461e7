//! An embeddable, persistent key-value store: a log of records and an index over it.
