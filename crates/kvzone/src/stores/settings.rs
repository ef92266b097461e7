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

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl Settings {
    pub(super) fn new(store: &'static str, request: &OpenRequest) -> Self {
        Settings {
            store,
            overrides: request.overrides.clone(),
            chosen: BTreeMap::new(),
        }
    }

    fn value<T: ToString>(
        &mut self,
        name: &str,
        chosen: T,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T> {
        let value = match self.overrides.remove(name) {
            None => chosen,
            Some(text) => parse(&text).ok_or_else(|| {
                let store = self.store;
                Error::Usage(format!(
                    "setting {store}.{name}={text}: expected {expected}"
                ))
            })?,
        };
        self.state(name, value.to_string());
        Ok(value)
    }

    /// A number; an override may be written with a unit of bytes.
    pub(super) fn number(&mut self, name: &str, chosen: u64) -> Result<u64> {
        let expected = "a number, or a size such as 64MiB";
        self.value(name, chosen, expected, |text| size::parse(text).ok())
    }

    /// A number that the library takes as another type.
    pub(super) fn fitting<T: TryFrom<u64>>(&mut self, name: &str, chosen: u64) -> Result<T> {
        let (number, store) = (self.number(name, chosen)?, self.store);
        let words = || format!("setting {store}.{name}={number} is too large");
        T::try_from(number).map_err(|_| Error::Usage(words()))
    }

    /// A number that must fit a C `int`.
    pub(super) fn int(&mut self, name: &str, chosen: i32) -> Result<i32> {
        self.value(name, chosen, "a whole number", |text| text.parse().ok())
    }

    pub(super) fn share(&mut self, name: &str, chosen: f64) -> Result<f64> {
        self.value(name, chosen, "a share from 0 to 1", |text| {
            let share = text.parse().ok();
            share.filter(|share| (0.0..=1.0).contains(share))
        })
    }

    pub(super) fn flag(&mut self, name: &str, chosen: bool) -> Result<bool> {
        let word = self.word(name, on_or_off(chosen), &["on", "off"])?;
        Ok(word == "on")
    }

    pub(super) fn word(
        &mut self,
        name: &str,
        chosen: &'static str,
        allowed: &[&'static str],
    ) -> Result<&'static str> {
        self.value(name, chosen, &allowed.join(" or "), |text| {
            allowed.iter().copied().find(|word| *word == text)
        })
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

    pub(super) fn state_flag(&mut self, name: &str, on: bool) {
        self.state(name, on_or_off(on));
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
