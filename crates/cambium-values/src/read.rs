//! Snapshots and cursors that take the form off values.

use std::ops::ControlFlow;
use std::sync::Arc;

use cambium_api::conflicts::FirstExpiry;
use cambium_api::{
    Cursor, Direction, Entry, IterationOrder, KeyRange, Reader, ResumeToken, Snapshot, UnixMillis,
    Visit,
};
use cambium_base::{Error, Result, SequenceNumber, Value};
use cambium_io::cache::Block;
use cambium_storage::compression::{Compression, Packed, check_known};

use crate::expiry::FirstRead;
use crate::form::{self, Form};
use crate::seeded_bug::SeededBug;
use crate::store::Shared;

impl Shared {
    /// The value of stored bytes; `None` if it has expired at a moment, or else now.
    #[inline]
    pub fn decode(
        &self,
        key: &[u8],
        stored: Value,
        moment: Option<UnixMillis>,
    ) -> Result<Option<Value>> {
        if form::is_plain(&stored) {
            return Ok(Some(stored));
        }
        self.decode_form(key, stored, moment)
    }

    fn decode_form(
        &self,
        key: &[u8],
        stored: Value,
        moment: Option<UnixMillis>,
    ) -> Result<Option<Value>> {
        let form = self.form_of(key, &stored)?;
        if self.has_expired(form, moment) {
            return Ok(None);
        }
        self.body(key, stored, form).map(Some)
    }

    /// The value of stored bytes with these parts, expired or not.
    pub fn body(&self, key: &[u8], stored: Value, form: Form) -> Result<Value> {
        // A value is decompressed by LZ4 in less time than the cache takes to find it.
        let is_slow = form.compression > Compression::Lz4.number();
        let Some(kept) = self.decompressed.as_ref().filter(|_| is_slow) else {
            return self.body_once(key, &stored, form);
        };
        let body = &stored[..form.body_bytes];
        if let Some(value) = kept.get(body) {
            return Ok(value);
        }
        let packed = self.packed(key, &stored, form)?;
        let Some(mut block) = kept.block(body, packed.length()) else {
            return self.decompress(key, &packed, form);
        };
        self.decompress_into(key, &packed, form, (&mut block, body.len()))?;
        kept.put(body, &block);
        Ok(Value::part_of(&block, body.len()..block.len()))
    }

    /// As [`Shared::body`] of a value that is not soon read again.
    pub fn body_once(&self, key: &[u8], stored: &Value, form: Form) -> Result<Value> {
        if form.compression == 0 {
            return Ok(stored.slice(0..form.body_bytes));
        }
        let packed = self.packed(key, stored, form)?;
        self.decompress(key, &packed, form)
    }

    fn packed<'a>(&self, key: &[u8], stored: &'a [u8], form: Form) -> Result<Packed<'a>> {
        let packed = form.packed(stored);
        packed.map_err(|what| self.damaged(key, &what))
    }

    fn decompress(&self, key: &[u8], packed: &Packed<'_>, form: Form) -> Result<Value> {
        let mut block: Block = std::iter::repeat_n(0, packed.length()).collect();
        self.decompress_into(key, packed, form, (&mut block, 0))?;
        Ok(Value::part_of(&block, 0..block.len()))
    }

    /// Writes a value into a block of which there is no other reference, from a place on.
    fn decompress_into(
        &self,
        key: &[u8],
        packed: &Packed<'_>,
        form: Form,
        (block, from): (&mut Block, usize),
    ) -> Result<()> {
        if self.dictionary.get().is_none() && form.needs_dictionary() {
            // The process that writes the store may have made it since this one opened it.
            let file_system = &*self.environment.file_system;
            self.dictionary.refresh(file_system, &self.path)?;
        }
        let dictionary = self.dictionary.get();
        let into = Arc::get_mut(block).map_or(&mut [][..], |block| &mut block[from..]);
        check_known(self.engine, form.codec())?;
        match form.decompress(dictionary, packed, into) {
            Err(what) if !self.seeded(SeededBug::DamageAnswered) => Err(self.damaged(key, &what)),
            _ => Ok(()),
        }
    }

    /// The parts of a stored value.
    pub fn form_of(&self, key: &[u8], stored: &[u8]) -> Result<Form> {
        Form::of(stored).map_err(|what| self.damaged(key, &what))
    }

    /// True if an entry is not there at a moment, or else now.
    pub fn has_expired(&self, form: Form, moment: Option<UnixMillis>) -> bool {
        let expires = form.expires;
        let moment = moment.filter(|_| !self.seeded(SeededBug::SnapshotWithoutMoment));
        expires.is_some_and(|expires| expires <= moment.unwrap_or_else(|| self.expiry.now()))
    }

    fn damaged(&self, key: &[u8], what: &str) -> Error {
        let key = String::from_utf8_lossy(key);
        Error::corruption(&self.path, 0, format!("the value of key {key:?}: {what}"))
    }

    /// The values of several keys.
    pub fn decode_all(
        &self,
        keys: &[&[u8]],
        mut stored: Vec<Option<Value>>,
        moment: Option<UnixMillis>,
    ) -> Result<Vec<Option<Value>>> {
        for (key, value) in keys.iter().zip(&mut stored) {
            if value.as_ref().is_some_and(|value| !form::is_plain(value)) {
                if let Some(formed) = value.take() {
                    *value = self.decode_form(key, formed, moment)?;
                }
            }
        }
        Ok(stored)
    }

    /// The moment at which a stored value expires; `None` of one that has already.
    pub fn expiry_of(
        &self,
        key: &[u8],
        stored: Option<&Value>,
        moment: Option<UnixMillis>,
    ) -> Result<Option<UnixMillis>> {
        let Some(stored) = stored else {
            return Ok(None);
        };
        let form = self.form_of(key, stored)?;
        Ok(form.expires.filter(|_| !self.has_expired(form, moment)))
    }
}

/// The wall clock's moment of a snapshot or cursor.
#[derive(Clone)]
pub(crate) struct Moment {
    now: UnixMillis,
    /// A snapshot's readers note its entries here. All of its namespaces share it.
    first: Option<(Arc<FirstRead>, u16)>,
}

impl Moment {
    /// The moment of a cursor that belongs to no snapshot.
    pub fn of_cursor(now: UnixMillis) -> Self {
        Moment { now, first: None }
    }

    /// An entry that has not expired was read.
    fn note(&self, key: &[u8], form: Form) {
        if let (Some(moment), Some((first, namespace))) = (form.expires, &self.first) {
            first.note(moment, *namespace, key);
        }
    }
}

/// A snapshot of an engine, with its moment.
pub(crate) struct FormedSnapshot {
    shared: Arc<Shared>,
    inner: Arc<dyn Snapshot>,
    now: UnixMillis,
    first: Arc<FirstRead>,
}

impl FormedSnapshot {
    /// Above an engine's snapshot, at a moment.
    pub fn new(shared: &Arc<Shared>, inner: Arc<dyn Snapshot>, now: UnixMillis) -> Self {
        FormedSnapshot {
            shared: shared.clone(),
            inner,
            now,
            first: Arc::default(),
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            now: self.now,
            first: Some((self.first.clone(), self.namespace_number())),
        }
    }

    /// An entry was read that may expire.
    fn note(&self, key: &[u8], stored: &Value) -> Result<()> {
        if form::is_plain(stored) || !self.shared.expiry.is_used() {
            return Ok(());
        }
        let form = self.shared.form_of(key, stored)?;
        if let (Some(moment), false) = (form.expires, self.shared.has_expired(form, Some(self.now)))
        {
            self.first.note(moment, self.namespace_number(), key);
        }
        Ok(())
    }
}

impl Reader for FormedSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self.inner.get(key)? {
            Some(stored) => {
                self.note(key, &stored)?;
                self.shared.decode(key, stored, Some(self.now))
            }
            None => Ok(None),
        }
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let stored = self.inner.multi_get(keys)?;
        for (key, stored) in keys.iter().zip(&stored) {
            stored
                .iter()
                .try_for_each(|stored| self.note(key, stored))?;
        }
        self.shared.decode_all(keys, stored, Some(self.now))
    }

    fn expires_at(&self, key: &[u8]) -> Result<Option<UnixMillis>> {
        let stored = self.inner.get(key)?;
        self.shared.expiry_of(key, stored.as_ref(), Some(self.now))
    }

    fn scan(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let cursor = self.inner.scan(range, direction)?;
        Ok(FormedCursor::above(&self.shared, cursor, self.moment()))
    }

    fn iterate(
        &self,
        order: IterationOrder,
        resume: Option<&ResumeToken>,
    ) -> Result<Box<dyn Cursor>> {
        let cursor = self.inner.iterate(order, resume)?;
        Ok(FormedCursor::above(&self.shared, cursor, self.moment()))
    }
}

impl Snapshot for FormedSnapshot {
    fn sequence(&self) -> SequenceNumber {
        self.inner.sequence()
    }

    fn namespace_number(&self) -> u16 {
        self.inner.namespace_number()
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.inner.namespaces()
    }

    fn namespace(&self, name: &str) -> Result<Option<Arc<dyn Snapshot>>> {
        let snapshot = self.inner.namespace(name)?;
        Ok(snapshot.map(|inner| {
            Arc::new(FormedSnapshot {
                shared: self.shared.clone(),
                inner,
                now: self.now,
                first: self.first.clone(),
            }) as Arc<dyn Snapshot>
        }))
    }

    fn first_expiry(&self) -> Option<FirstExpiry> {
        self.first.entry(&self.shared.expiry)
    }
}

/// A cursor that passes over entries that have expired at its moment.
pub(crate) struct FormedCursor {
    inner: Box<dyn Cursor>,
    decoder: Decoder,
}

/// Takes the form off the values that a cursor passes.
struct Decoder {
    shared: Arc<Shared>,
    moment: Moment,
    /// Entries that the cursor sees may expire.
    may_expire: bool,
    /// The moment at which the last one does.
    expires: Option<UnixMillis>,
}

impl FormedCursor {
    /// Above an engine's cursor.
    pub fn above(shared: &Arc<Shared>, inner: Box<dyn Cursor>, moment: Moment) -> Box<dyn Cursor> {
        let decoder = Decoder {
            shared: shared.clone(),
            moment,
            may_expire: shared.expiry.is_used(),
            expires: None,
        };
        Box::new(FormedCursor { inner, decoder })
    }

    /// Decodes the value of an entry, or of the first one after it that has not expired.
    #[inline(never)]
    fn decode_in_place(&mut self, next: &mut Result<Option<Entry>>) {
        while let Ok(Some(Entry { key, value })) = next {
            match self.decoder.decode(key, value) {
                Ok(Some(decoded)) => {
                    *value = decoded;
                    return;
                }
                Ok(None) => *next = self.inner.next(),
                Err(error) => *next = Err(error),
            }
        }
    }
}

impl Decoder {
    /// True if stored bytes are the value, and do not expire.
    #[inline]
    fn is_plain(&self, stored: &[u8]) -> bool {
        !self.may_expire && form::is_plain(stored)
    }

    /// A stored value as a caller sees it; `None` if it has expired. It is not kept in memory.
    fn decode(&mut self, key: &[u8], stored: &Value) -> Result<Option<Value>> {
        let form = self.shared.form_of(key, stored)?;
        self.expires = form.expires;
        let is_shown = self.shared.seeded(SeededBug::ScanShowsExpired);
        if self.shared.has_expired(form, Some(self.moment.now)) && !is_shown {
            return Ok(None);
        }
        self.moment.note(key, form);
        self.shared.body_once(key, stored, form).map(Some)
    }
}

impl Cursor for FormedCursor {
    fn another(&self, range: &KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let cursor = self.inner.another(range, direction)?;
        let Decoder { shared, moment, .. } = &self.decoder;
        Ok(FormedCursor::above(shared, cursor, moment.clone()))
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        let mut next = self.inner.next();
        // Most entries are handed on where they are.
        match &next {
            Ok(Some(entry)) if !self.decoder.is_plain(&entry.value) => {
                self.decode_in_place(&mut next);
            }
            _ => {}
        }
        next
    }

    fn visit(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        let mut failure = None;
        let end = self.inner.visit(&mut |key, stored| {
            if self.decoder.is_plain(stored) {
                return visit(key, stored);
            }
            match self.decoder.decode(key, &Value::copy_of(stored)) {
                Ok(Some(value)) => visit(key, &value),
                Ok(None) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        failure.map_or(end, Err)
    }

    fn next_key(&mut self) -> Result<Option<Value>> {
        if !self.decoder.may_expire || self.decoder.shared.seeded(SeededBug::KeysShowExpired) {
            return self.inner.next_key();
        }
        while let Some(Entry { key, value }) = self.inner.next()? {
            let form = self.decoder.shared.form_of(&key, &value)?;
            let moment = &self.decoder.moment;
            if !self.decoder.shared.has_expired(form, Some(moment.now)) {
                moment.note(&key, form);
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek(key)
    }

    fn resume_token(&self) -> Option<ResumeToken> {
        self.inner.resume_token()
    }

    fn expires_at(&self) -> Option<UnixMillis> {
        self.decoder.expires
    }
}
