//! Index structures: the flat array of slots.
