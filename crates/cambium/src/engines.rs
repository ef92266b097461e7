//! The list of engines.
//!
//! A store's marker names its engine; this list turns the name into the code
//! that opens it. It is a value, not a global: a program (or a test) that has
//! an engine of its own adds it to a list and gives that to
//! [`Options::engines`](crate::Options::engines).

use std::fmt;
use std::sync::Arc;

use cambium_api::{EngineKind, Error, Result};
use cambium_base::names::distance;
use cambium_io::sync::OnceLock;
use cambium_values::ValueLayer;

/// The engine that is used where none is named.
pub const DEFAULT_ENGINE: &str = "forest";

/// Engine `forest`: `create(path, cambium::FOREST, ..)` is checked by the compiler.
#[cfg(feature = "forest")]
pub const FOREST: &str = "forest";
/// Engine `wisckey`.
#[cfg(feature = "wisckey")]
pub const WISCKEY: &str = "wisckey";
/// Engine `zdb`.
#[cfg(feature = "zdb")]
pub const ZDB: &str = "zdb";
/// Engine `alphard`.
#[cfg(feature = "alphard")]
pub const ALPHARD: &str = "alphard";

/// Engines by name. Cheap to clone.
#[derive(Clone)]
pub struct Engines {
    kinds: Arc<Vec<Arc<dyn EngineKind>>>,
}

/// The engines this library comes with: those whose feature is on, which all are
/// unless Cargo is told otherwise (`default-features = false, features = ["wisckey"]`).
/// Above each stands the [value layer](cambium_values): compression, expiry and merging.
///
/// ```
/// let names: Vec<&str> = cambium::engines().iter().map(|kind| kind.name()).collect();
/// assert!(names.contains(&cambium::DEFAULT_ENGINE));
/// ```
pub fn engines() -> Engines {
    static ALL: OnceLock<Engines> = OnceLock::new();
    ALL.get_or_init(|| {
        let kinds: Vec<Arc<dyn EngineKind>> = vec![
            #[cfg(feature = "forest")]
            Arc::new(cambium_forest::Forest),
            #[cfg(feature = "wisckey")]
            Arc::new(cambium_wisckey::Wisckey),
            #[cfg(feature = "zdb")]
            Arc::new(cambium_zdb::Zdb),
            #[cfg(feature = "alphard")]
            Arc::new(cambium_alphard::Alphard),
        ];
        let above = |kind| Arc::new(ValueLayer::above(kind)) as Arc<dyn EngineKind>;
        Engines {
            kinds: Arc::new(kinds.into_iter().map(above).collect()),
        }
    })
    .clone()
}

impl Default for Engines {
    fn default() -> Self {
        engines()
    }
}

impl Engines {
    /// The same list with one more engine, in the place of one that has the
    /// same name.
    ///
    /// ```
    /// use std::sync::Arc;
    /// let again = cambium::engines().with(cambium::engines().find("zdb")?);
    /// assert_eq!(again.iter().count(), cambium::engines().iter().count());
    /// # Ok::<(), cambium::Error>(())
    /// ```
    #[must_use]
    pub fn with(self, kind: Arc<dyn EngineKind>) -> Self {
        let mut kinds: Vec<_> = self
            .kinds
            .iter()
            .filter(|other| other.name() != kind.name())
            .cloned()
            .collect();
        kinds.push(kind);
        Engines {
            kinds: Arc::new(kinds),
        }
    }

    /// The engines in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn EngineKind>> {
        self.kinds.iter()
    }

    /// The engine of a name.
    ///
    /// # Errors
    /// `InvalidArgument` with the names there are, where it is none of them.
    ///
    /// ```
    /// let error = cambium::engines().find("zbd").err().map(|error| error.to_string());
    /// assert!(error.is_some_and(|text| text.contains("did you mean zdb?")));
    /// ```
    pub fn find(&self, name: &str) -> Result<Arc<dyn EngineKind>> {
        if let Some(kind) = self.get(name) {
            return Ok(kind);
        }
        let near = self
            .kinds
            .iter()
            .map(|kind| (distance(kind.name(), name), kind.name()))
            .min()
            .filter(|&(distance, _)| distance <= 2);
        let hint = near.map_or_else(String::new, |(_, near)| format!("; did you mean {near}?"));
        Err(Error::InvalidArgument(format!(
            "engine {name:?}: expected {}{hint}",
            self.names()
        )))
    }

    /// The engine of a name, if there is one.
    pub fn get(&self, name: &str) -> Option<Arc<dyn EngineKind>> {
        self.kinds.iter().find(|kind| kind.name() == name).cloned()
    }

    /// The names, for messages: `a, b or c`.
    ///
    /// ```
    /// println!("expected {}", cambium::engines().names());
    /// ```
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        match names.as_slice() {
            [] => "no engine (this list is empty)".to_string(),
            [one] => (*one).to_string(),
            [most @ .., last] => format!("{} or {last}", most.join(", ")),
        }
    }
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engines({})", self.names())
    }
}
