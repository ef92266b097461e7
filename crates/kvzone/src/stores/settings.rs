//! Settings of a store: chosen by profile, overridden by name, printed whole.
//!
//! An adapter asks a [`Settings`] for each of its settings once, with the value
//! that the profile would choose; an override given by the user wins. What was
//! asked for is what is printed, so that a report cannot leave out a setting
//! that was made. [`Settings::finish`] refuses an override that nobody asked
//! for, and offers the nearest name.

use std::collections::BTreeMap;

use kvzone_core::adapter::OpenRequest;
use kvzone_core::error::{Error, Result};
use kvzone_core::names;
use kvzone_core::size;

pub(super) struct Settings {
    store: &'static str,
    overrides: BTreeMap<String, String>,
    chosen: BTreeMap<String, String>,
}

impl Settings {
    pub(super) fn new(store: &'static str, request: &OpenRequest) -> Self {
        Settings {
            store,
            overrides: request.overrides.clone(),
            chosen: BTreeMap::new(),
        }
    }

    pub(super) fn number(&mut self, name: &str, chosen: u64) -> Result<u64> {
        let value = match self.overrides.remove(name) {
            None => chosen,
            Some(text) => size::parse(&text)
                .map_err(|_| self.malformed(name, &text, "a number, or a size such as 64MiB"))?,
        };
        self.state(name, value);
        Ok(value)
    }

    /// A number that must fit a C `int`.
    pub(super) fn int(&mut self, name: &str, chosen: i32) -> Result<i32> {
        let text = self.overrides.get(name).cloned();
        let Some(text) = text else {
            self.state(name, chosen);
            return Ok(chosen);
        };
        self.overrides.remove(name);
        let value = text
            .parse()
            .map_err(|_| self.malformed(name, &text, "a whole number"))?;
        self.state(name, value);
        Ok(value)
    }

    pub(super) fn share(&mut self, name: &str, chosen: f64) -> Result<f64> {
        let value = match self.overrides.remove(name) {
            None => chosen,
            Some(text) => text
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(|| self.malformed(name, &text, "a share from 0 to 1"))?,
        };
        self.state(name, value);
        Ok(value)
    }

    pub(super) fn flag(&mut self, name: &str, chosen: bool) -> Result<bool> {
        let word = self.word(name, if chosen { "on" } else { "off" }, &["on", "off"])?;
        Ok(word == "on")
    }

    pub(super) fn word(
        &mut self,
        name: &str,
        chosen: &'static str,
        allowed: &[&'static str],
    ) -> Result<&'static str> {
        let value = match self.overrides.remove(name) {
            None => chosen,
            Some(text) => allowed
                .iter()
                .copied()
                .find(|word| **word == text)
                .ok_or_else(|| self.malformed(name, &text, &allowed.join(" or ")))?,
        };
        self.state(name, value);
        Ok(value)
    }

    pub(super) fn text(&mut self, name: &str, chosen: &str) -> String {
        let value = self.overrides.remove(name);
        let value = value.unwrap_or_else(|| chosen.to_string());
        self.state(name, &value);
        value
    }

    /// Prints something that is so, and cannot be overridden.
    pub(super) fn state(&mut self, name: &str, value: impl ToString) {
        self.chosen.insert(name.to_string(), value.to_string());
    }

    /// Everything that was chosen.
    ///
    /// # Errors
    /// A usage error if an override is left that the store does not have.
    pub(super) fn finish(self) -> Result<BTreeMap<String, String>> {
        let Some(unknown) = self.overrides.keys().next() else {
            return Ok(self.chosen);
        };
        let names = self.chosen.keys().map(String::as_str);
        let words = names::unknown("setting", unknown, names);
        Err(Error::Usage(format!("store {}: {words}", self.store)))
    }

    fn malformed(&self, name: &str, text: &str, expected: &str) -> Error {
        Error::Usage(format!(
            "setting {}.{name}={text}: expected {expected}",
            self.store
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::conformance::request;
    use std::path::Path;

    #[test]
    fn what_was_asked_for_is_what_is_printed() {
        let mut asked = request(Path::new("nowhere"));
        asked.overrides.insert("cache".into(), "2KiB".into());
        let mut settings = Settings::new("x", &asked);
        assert_eq!(settings.number("cache", 7).unwrap(), 2048);
        assert!(settings.flag("sync", true).unwrap());
        let printed = settings.finish().unwrap();
        assert_eq!(printed["cache"], "2048");
        assert_eq!(printed["sync"], "on");
    }

    #[test]
    fn a_malformed_value_says_what_was_expected() {
        let mut asked = request(Path::new("nowhere"));
        asked.overrides.insert("sync".into(), "perhaps".into());
        let mut settings = Settings::new("x", &asked);
        let words = settings.flag("sync", true).unwrap_err().to_string();
        assert_eq!(words, "setting x.sync=perhaps: expected on or off");
    }

    #[test]
    fn an_unknown_name_offers_the_nearest() {
        let mut asked = request(Path::new("nowhere"));
        asked.overrides.insert("cachee".into(), "1".into());
        let mut settings = Settings::new("x", &asked);
        settings.number("cache", 7).unwrap();
        let words = settings.finish().unwrap_err().to_string();
        assert!(words.contains("near it: cache"), "{words}");
    }
}
