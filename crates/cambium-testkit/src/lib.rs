//! Model, conformance suite and crash driver that every engine is held against.
