//! Options that print, parse and explain themselves.

use std::collections::BTreeMap;

use cambium_base::names::distance;
use cambium_base::{Error, Result};

/// One option of an engine: everything `cambium options` prints.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The name used in `--set name=value`.
    pub name: &'static str,
    /// The unit, or the words that are allowed.
    pub unit: &'static str,
    /// The default as text that parses.
    pub default: &'static str,
    /// What it does, what larger and smaller do, who should leave it alone.
    pub effect: &'static str,
    /// True if it is fixed when the store is created.
    pub at_creation: bool,
}

impl OptionSpec {
    /// An option by its fields; see them.
    pub const fn new(
        name: &'static str,
        unit: &'static str,
        default: &'static str,
        at_creation: bool,
        effect: &'static str,
    ) -> OptionSpec {
        OptionSpec {
            name,
            unit,
            default,
            effect,
            at_creation,
        }
    }
}

/// Options given as text, in the order of their names.
///
/// ```
/// use cambium_api::OptionValues;
/// let mut options = OptionValues::default();
/// options.set("data_files", "4");
/// assert_eq!(options, OptionValues::from([("data_files", "4")]));
/// assert_eq!(options.take_u64("data_files").unwrap(), Some(4));
/// options.finish("zdb", &[]).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionValues {
    values: BTreeMap<String, String>,
}

impl<const N: usize> From<[(&str, &str); N]> for OptionValues {
    fn from(pairs: [(&str, &str); N]) -> Self {
        OptionValues::from(&pairs[..])
    }
}

impl From<&[(&str, &str)]> for OptionValues {
    fn from(pairs: &[(&str, &str)]) -> Self {
        let mut options = OptionValues::default();
        for (name, value) in pairs {
            options.set(name, value);
        }
        options
    }
}

impl OptionValues {
    /// Sets one option, replacing what it had.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.values.insert(name.to_string(), value.to_string());
        self
    }

    /// Parses `name=value`.
    pub fn set_assignment(&mut self, assignment: &str) -> Result<()> {
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(Error::InvalidArgument(format!(
                "option {assignment:?}: expected name=value"
            )));
        };
        self.set(name.trim(), value.trim());
        Ok(())
    }

    /// What an option was set to, if it was.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True if nothing is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Takes an option's text out.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.values.remove(name)
    }

    /// Takes a number out; `KiB`, `MiB` and `GiB` multiply.
    pub fn take_u64(&mut self, name: &str) -> Result<Option<u64>> {
        self.take(name)
            .map(|text| {
                parse_bytes(&text).ok_or_else(|| {
                    Error::InvalidArgument(format!(
                        "option {name}={text}: expected a number, with KiB, MiB or GiB if you like"
                    ))
                })
            })
            .transpose()
    }

    /// Takes a number out, or the default, and refuses it outside of a range.
    pub fn take_ranged(&mut self, name: &str, default: u64, least: u64, most: u64) -> Result<u64> {
        let value = self.take_u64(name)?.unwrap_or(default);
        if (least..=most).contains(&value) {
            return Ok(value);
        }
        Err(invalid_option(
            name,
            &value.to_string(),
            &format!("{least} to {most}"),
        ))
    }

    /// Takes out the option `cache_bytes`: the store's own cache, or `None` for the
    /// environment's, which stores share.
    pub fn take_cache_bytes(&mut self) -> Result<Option<u64>> {
        const MOST: u64 = 1 << 50;
        if self.get("cache_bytes").is_none_or(|text| text == "shared") {
            _ = self.take("cache_bytes");
            return Ok(None);
        }
        self.take_ranged("cache_bytes", 0, 0, MOST).map(Some)
    }

    /// Refuses options that are fixed when a store is created: for opening one
    /// that is there.
    pub fn refuse_fixed(&self, specs: &[OptionSpec]) -> Result<()> {
        let fixed = specs
            .iter()
            .find(|option| option.at_creation && self.get(option.name).is_some());
        match fixed {
            None => Ok(()),
            Some(option) => Err(Error::InvalidArgument(format!(
                "option {} is fixed when a store is created; create a new store to change it",
                option.name
            ))),
        }
    }

    /// Takes out what is fixed when a store is created: for opening one that is there,
    /// which may be told its own values again ([`OptionValues::check_fixed`]).
    #[must_use]
    pub fn take_fixed(&mut self, specs: &[OptionSpec]) -> OptionValues {
        let fixed = specs.iter().filter(|option| option.at_creation);
        let mut taken = OptionValues::default();
        for option in fixed {
            if let Some(text) = self.take(option.name) {
                taken.set(option.name, &text);
            }
        }
        taken
    }

    /// Refuses an option whose value is not the one that the store was created with.
    ///
    /// ```
    /// use cambium_api::OptionValues;
    /// let stored = OptionValues::from([("block_bytes", "4096")]);
    /// assert!(OptionValues::from([("block_bytes", "4KiB")]).check_fixed(&stored).is_ok());
    /// assert!(OptionValues::from([("block_bytes", "512")]).check_fixed(&stored).is_err());
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`, with both values.
    pub fn check_fixed(&self, stored: &OptionValues) -> Result<()> {
        let number = |text: &str| parse_bytes(text);
        let is_same = |asked: &str, has: &str| match (number(asked), number(has)) {
            (Some(asked), Some(has)) => asked == has,
            _ => asked == has,
        };
        for (name, asked) in &self.values {
            let has = stored.get(name);
            if !has.is_some_and(|has| is_same(asked, has)) {
                let has = has.unwrap_or("another value");
                return Err(Error::InvalidArgument(format!(
                    "option {name}={asked}: it is fixed when a store is created, and this one \
                     has {has}; create a new store to change it"
                )));
            }
        }
        Ok(())
    }

    /// Takes a yes or no out.
    pub fn take_bool(&mut self, name: &str) -> Result<Option<bool>> {
        self.take(name)
            .map(|text| match text.as_str() {
                "on" | "true" | "yes" | "1" => Ok(true),
                "off" | "false" | "no" | "0" => Ok(false),
                _ => Err(Error::InvalidArgument(format!(
                    "option {name}={text}: expected on or off"
                ))),
            })
            .transpose()
    }

    /// Refuses what was not taken out, offering the nearest name.
    pub fn finish(self, engine: &str, specs: &[OptionSpec]) -> Result<()> {
        let Some((name, _)) = self.values.into_iter().next() else {
            return Ok(());
        };
        let hint = match nearest(&name, specs) {
            _ if specs.is_empty() => "it has none".to_string(),
            Some(near) if near == name => {
                "it is one of creating or opening a store, not of this call".to_string()
            }
            Some(near) => format!("did you mean {near}?"),
            None => format!("`cambium options --engine {engine}` lists those that it has"),
        };
        Err(Error::InvalidArgument(format!(
            "engine {engine} has no option {name:?}; {hint}"
        )))
    }
}

/// The option that was meant: one that is a few letters off, or shares a word.
fn nearest(name: &str, specs: &[OptionSpec]) -> Option<&'static str> {
    let words: Vec<&str> = name.split(['_', '-']).collect();
    let near = specs.iter().filter_map(|spec| {
        let letters = distance(spec.name, name);
        let theirs = spec.name.split('_');
        let shared = theirs
            .filter(|word| word.len() > 1 && words.contains(word))
            .count();
        let is_typo = letters <= name.len().div_ceil(3);
        let is_worth = is_typo || shared > 0;
        is_worth.then_some((!is_typo, usize::MAX - shared, letters, spec.name))
    });
    near.min().map(|(.., name)| name)
}

/// The error of an option whose value cannot be.
pub fn invalid_option(name: &str, value: &str, expected: &str) -> Error {
    Error::InvalidArgument(format!("option {name}={value}: expected {expected}"))
}

/// A number of bytes: digits, then nothing, `KiB`, `MiB`, `GiB` or `TiB`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "KiB" | "K" => 10,
        "MiB" | "M" => 20,
        "GiB" | "G" => 30,
        "TiB" | "T" => 40,
        _ => return None,
    };
    let number: u64 = digits.replace('_', "").parse().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_with_units_and_overflow_is_refused() {
        assert_eq!(parse_bytes("64KiB"), Some(65536));
        assert_eq!(parse_bytes("7"), Some(7));
        assert_eq!(parse_bytes("x"), None);
        assert_eq!(parse_bytes("99999999999GiB"), None);
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let spec = OptionSpec {
            name: "slot_bytes",
            unit: "bytes",
            default: "8",
            effect: "",
            at_creation: true,
        };
        let other = OptionSpec {
            name: "batch",
            ..spec
        };
        for (name, said) in [
            ("slot_byte", "did you mean slot_bytes?"),
            ("slots-bytes", "did you mean slot_bytes?"),
            ("bytes_of_each_slot", "did you mean slot_bytes?"),
            ("bach", "did you mean batch?"),
            // It was there, and nobody took it.
            ("batch", "it is one of creating or opening"),
            // Nothing is like it, however short it is.
            ("io", "`cambium options --engine zdb` lists"),
        ] {
            let mut options = OptionValues::default();
            options.set(name, "4");
            let error = options.finish("zdb", &[spec, other]);
            let error = error.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
