//! A dump as a source of entries.

use cambium::KeyKind;

use crate::dump::{DumpError, DumpReader};
use crate::failure::Failure;
use crate::import::position::Position;
use crate::import::source::{Input, Item, Source, elsewhere};
use crate::progress::Meter;

/// What `cambium export` wrote.
pub struct DumpSource {
    name: String,
    reader: DumpReader<Input>,
}

impl DumpSource {
    /// Reads the header, and refuses keys that the store cannot have.
    pub fn open(input: Input, keys: KeyKind) -> Result<Self, Failure> {
        let name = input.name().to_string();
        let reader = DumpReader::open(input).map_err(|error| broken(&name, error))?;
        // Integers are 8 bytes, so a store of byte strings takes them, in
        // the same order; the other way round there is none.
        if keys == KeyKind::Integer && reader.keys() != keys {
            return Err(Failure::usage(format!(
                "{name} is a dump of byte-string keys, and this store has integer keys: import it into a store made without --set keys=integer"
            )));
        }
        Ok(DumpSource { name, reader })
    }
}

fn broken(name: &str, DumpError(what): DumpError) -> Failure {
    Failure::failed(format!("{name}: {what}"))
}

impl Source for DumpSource {
    fn next_item(&mut self, _: &Meter) -> Result<Option<Item>, Failure> {
        let entry = self.reader.next_entry();
        let entry = entry.map_err(|error| broken(&self.name, error))?;
        let namespace = self.reader.whole().namespace.clone();
        Ok(entry.map(|(key, value, expires)| Item {
            namespace,
            key,
            value,
            expires,
        }))
    }

    fn position(&self) -> Option<Position> {
        Some(Position::Dump(self.reader.whole().clone()))
    }

    fn resume(&mut self, position: &Position) -> Result<(), Failure> {
        let Position::Dump(state) = position else {
            return Err(elsewhere());
        };
        let taken = self.reader.whole().offset;
        self.reader.input().move_to(state.offset, taken)?;
        self.reader.resume(state.clone());
        Ok(())
    }
}
