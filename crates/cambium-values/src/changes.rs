//! The change feed, with the form taken off values.

use std::sync::Arc;

use cambium_api::{Change, ChangeBatch, ChangeFeed, Operation};
use cambium_base::{Result, Value};

use crate::form;
use crate::store::Shared;

/// A feed of an engine whose values have forms.
pub(crate) struct FormedFeed {
    pub shared: Arc<Shared>,
    pub inner: Box<dyn ChangeFeed>,
    /// A batch that the engine's feed is past, and that could not be decoded.
    pub undecoded: Option<ChangeBatch>,
}

impl ChangeFeed for FormedFeed {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        let next = match self.undecoded.take() {
            Some(batch) => Some(batch),
            None => self.inner.next()?,
        };
        let Some(mut batch) = next else {
            return Ok(None);
        };
        if batch.changes.iter().all(is_plain) {
            return Ok(Some(batch));
        }
        let decoded: Result<Vec<_>> = batch.changes.iter().map(|it| self.decode(it)).collect();
        match decoded {
            Ok(decoded) => batch.changes = decoded,
            Err(error) => {
                // No batch is left out: the next call answers the same.
                self.undecoded = Some(batch);
                return Err(error);
            }
        }
        Ok(Some(batch))
    }

    fn looks_again(&self) -> bool {
        self.undecoded.is_none() && self.inner.looks_again()
    }
}

fn is_plain(change: &Change) -> bool {
    match &change.operation {
        Operation::Put { value, .. } => form::is_plain(value),
        Operation::Delete { .. } | Operation::DeleteRange { .. } => true,
    }
}

impl FormedFeed {
    /// A change with the value that was put; what has expired is shown all the same, since
    /// the deletion of it comes later.
    fn decode(&self, change: &Change) -> Result<Change> {
        let mut change = change.clone();
        if let Operation::Put { key, value } = &mut change.operation {
            let form = self.shared.form_of(key, value)?;
            let stored = Value::from(std::mem::take(value));
            *value = self.shared.body_once(key, &stored, form)?.to_vec();
            change.expires = form.expires;
        }
        Ok(change)
    }
}
