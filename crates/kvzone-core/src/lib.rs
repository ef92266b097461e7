//! KVZone's load generator, measurements and reports.
