//! Engine zdb: a flat index of positions over append-only data files.
