//! A store that does nothing: what is measured of it is the harness.
//!
//! Reads answer the same bytes, whatever was put; scans visit the key that
//! they begin with, again and again.

use std::sync::Arc;

use super::CAPABILITIES;
use crate::adapter::{Adapter, Capabilities, Change, OpenRequest, OpenStore, Session, Visit};
use crate::error::Result;

#[derive(Clone, Copy, Debug)]
pub struct Null;

impl Adapter for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn summary(&self) -> &'static str {
        "does nothing: the harness's own cost"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        Ok(Arc::new(NullStore {
            value_bytes: request.expected_value_bytes as usize,
        }))
    }

    fn keeps_data(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct NullStore {
    value_bytes: usize,
}

impl OpenStore for NullStore {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(NullSession {
            value: vec![b'0'; self.value_bytes],
        }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct NullSession {
    value: Vec<u8>,
}

impl Session for NullSession {
    fn get(&mut self, _key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        // Costs something the first time only.
        value.resize(self.value.len(), b'0');
        Ok(true)
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<()> {
        Ok(())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, _changes: &[Change<'_>]) -> Result<()> {
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        for _ in 0..limit {
            visit(from, &self.value);
        }
        Ok(limit)
    }

    fn walk(&mut self, _backwards: bool, _visit: &mut Visit<'_>) -> Result<u64> {
        Ok(0)
    }
}
