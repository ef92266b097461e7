//! KVZone's load generator, measurements and reports.
#![forbid(unsafe_code)]
