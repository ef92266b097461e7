//! Durable byte structures: file headers, records, logs, superblocks, group commit.
