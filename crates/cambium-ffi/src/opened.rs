//! Open stores and their snapshots: in the order of bytes, or in that of a comparator.
//!
//! A store with a comparator is a [`Database`], as LevelDB's interface has it: it keeps all keys
//! sorted in memory. Other stores are used as they are.

use std::path::Path;

use cambium::{
    Durability, Error, Precondition, Result, SequenceNumber, Snapshot, Store, Value, WriteBatch,
};
use cambium_bindings::walker::Bounds;
use cambium_bindings::{Database, Settings, View, Walker, order};

use crate::options::Chosen;

/// An open store.
pub enum Opened {
    Plain(Store),
    Compared(Database),
}

/// A store at one moment.
#[derive(Clone)]
pub enum Moment {
    Plain(Snapshot),
    Compared(View),
}

/// How a store is opened.
#[derive(Clone, Copy)]
pub enum How<'a> {
    /// Make it, by an engine.
    Create(&'a str),
    Open,
    OpenReadOnly,
    /// Open it, or make it by an engine.
    OpenOrCreate(&'a str),
}

/// Opens or makes a store.
pub fn open(folder: &Path, chosen: Chosen, how: How<'_>) -> Result<Opened> {
    let Chosen {
        options,
        comparator,
    } = chosen;
    let compared = comparator.filter(|order| order.name() != order::BYTEWISE_NAME);
    if let Some(comparator) = compared {
        let (engine, create_if_missing) = match how {
            How::Create(engine) | How::OpenOrCreate(engine) => (engine, true),
            How::Open | How::OpenReadOnly => (cambium::DEFAULT_ENGINE, false),
        };
        let settings = Settings {
            engine: engine.to_string(),
            create_if_missing,
            error_if_exists: matches!(how, How::Create(_)),
            read_only: matches!(how, How::OpenReadOnly),
            comparator: Some(comparator),
            options,
            ..Settings::default()
        };
        return Database::open(folder, &settings).map(Opened::Compared);
    }
    let mut is_there = !matches!(options.marker(folder), Err(Error::NotAStore { .. }));
    match how {
        How::Create(engine) => return options.create(folder, engine).map(Opened::Plain),
        How::OpenOrCreate(engine) if !is_there => match options.create(folder, engine) {
            // Another program made it since.
            Err(Error::AlreadyExists { .. }) if options.marker(folder).is_ok() => is_there = true,
            made => return made.map(Opened::Plain),
        },
        _ => {}
    }
    if is_there {
        order::check_stored(&options, folder, order::BYTEWISE_NAME)?;
    }
    let store = match how {
        How::OpenReadOnly => options.open_read_only(folder),
        _ => options.open(folder),
    };
    store.map(Opened::Plain)
}

impl Opened {
    /// The store, for calls on the whole of it.
    pub fn whole(&self) -> &Store {
        match self {
            Opened::Plain(store) => store,
            Opened::Compared(database) => database.store(),
        }
    }

    /// The store, for calls that need its keys in the order of their bytes.
    pub fn plain(&self) -> Result<&Store> {
        match self {
            Opened::Plain(store) => Ok(store),
            Opened::Compared(database) => Err(Error::Unsupported {
                engine: database.store().capabilities().engine,
                what: "this call in a store with a comparator",
                instead: "use gets, puts, deletes, batches and iterators, or a store without one",
            }),
        }
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            Opened::Plain(store) => store.get(key),
            Opened::Compared(database) => database.get(key),
        }
    }

    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        match self {
            Opened::Plain(store) => store.multi_get(keys),
            Opened::Compared(database) => database.view()?.multi_get(keys),
        }
    }

    pub fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        match self {
            Opened::Plain(store) => store.engine().put(key, value, durability).map(drop),
            Opened::Compared(database) => database.put(key, value, durability),
        }
    }

    pub fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        match self {
            Opened::Plain(store) => store.engine().delete(key, durability).map(drop),
            Opened::Compared(database) => database.delete(key, durability),
        }
    }

    /// Writes a batch if all conditions hold.
    pub fn write(
        &self,
        conditions: &[Precondition],
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<()> {
        match self {
            Opened::Compared(database) if conditions.is_empty() => {
                database.write(batch, durability)
            }
            _ if conditions.is_empty() => {
                let store = self.plain()?;
                store.engine().write(batch, durability).map(drop)
            }
            _ => {
                let engine = self.plain()?.engine();
                engine.write_if(conditions, batch, durability).map(drop)
            }
        }
    }

    /// The state now.
    pub fn moment(&self) -> Result<Moment> {
        match self {
            Opened::Plain(store) => store.snapshot().map(Moment::Plain),
            Opened::Compared(database) => database.view().map(Moment::Compared),
        }
    }

    pub fn close(&self) -> Result<()> {
        match self {
            Opened::Plain(store) => store.close(),
            Opened::Compared(database) => database.close(),
        }
    }
}

impl Moment {
    pub fn sequence(&self) -> SequenceNumber {
        match self {
            Moment::Plain(snapshot) => snapshot.sequence(),
            Moment::Compared(view) => view.sequence(),
        }
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            Moment::Plain(snapshot) => snapshot.get(key),
            Moment::Compared(view) => view.get(key),
        }
    }

    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        match self {
            Moment::Plain(snapshot) => snapshot.multi_get(keys),
            Moment::Compared(view) => view.multi_get(keys),
        }
    }

    /// The store's own snapshot of this moment, with all namespaces.
    pub fn whole(&self) -> &Snapshot {
        match self {
            Moment::Plain(snapshot) => snapshot,
            Moment::Compared(view) => view.snapshot(),
        }
    }

    /// The same moment of another namespace.
    pub fn namespace(&self, name: &str) -> Result<Option<Moment>> {
        Ok(match self {
            Moment::Plain(snapshot) => snapshot.namespace(name)?.map(Moment::Plain),
            Moment::Compared(view) => view.namespace(name)?.map(Moment::Compared),
        })
    }

    /// An iterator in order, unplaced.
    pub fn walker(&self, bounds: &Bounds) -> Walker {
        match self {
            Moment::Plain(snapshot) => Walker::over_store(snapshot.clone(), bounds),
            Moment::Compared(view) => view.walker(bounds),
        }
    }
}
