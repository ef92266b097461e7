//! Defects that suites switch on, to prove that they find something.
//!
//! Each engine lists its own. The option `seeded_bug` selects one when a store is opened, in
//! builds with the feature `seeded-bugs` alone: the testkit enables it, and no crate that
//! ships does. Every other build refuses the option as an unknown one, and the compiler leaves
//! the defects out.

use cambium_base::{Error, Result};

use crate::OptionValues;

const OPTION: &str = "seeded_bug";

/// The defect of an open store, one of `B`; none in a build without the feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeded<B>(Option<B>);

impl<B> Default for Seeded<B> {
    fn default() -> Self {
        Seeded(None)
    }
}

impl<B: Copy + PartialEq> Seeded<B> {
    /// Takes the option from those of an opening of `engine`, whose defects are `all`.
    /// Without the feature it stays there, for the engine to refuse.
    ///
    /// # Errors
    /// If the engine has no defect of that name.
    pub fn take(options: &mut OptionValues, engine: &str, all: &[(B, &str)]) -> Result<Self> {
        let name = match cfg!(feature = "seeded-bugs") {
            true => options.take(OPTION),
            false => None,
        };
        let Some(name) = name else {
            return Ok(Seeded::default());
        };
        let known = all.iter().find(|(_, known)| *known == name);
        known.map(|(bug, _)| Seeded(Some(*bug))).ok_or_else(|| {
            Error::InvalidArgument(format!("engine {engine} has no seeded bug {name:?}"))
        })
    }

    /// As [`Seeded::take`], of a layer above an engine: the name of another defect stays
    /// there, for the engine.
    pub fn take_known(options: &mut OptionValues, all: &[(B, &str)]) -> Self {
        let name = options.get(OPTION).unwrap_or_default();
        let known = all.iter().find(|(_, known)| *known == name);
        match known {
            Some((bug, _)) if cfg!(feature = "seeded-bugs") => {
                _ = options.take(OPTION);
                Seeded(Some(*bug))
            }
            _ => Seeded::default(),
        }
    }

    /// True if the store has this defect.
    #[inline(always)]
    pub fn is(&self, bug: B) -> bool {
        cfg!(feature = "seeded-bugs") && self.0 == Some(bug)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Bug {
        NoSync,
        Torn,
    }

    const ALL: [(Bug, &str); 2] = [(Bug::NoSync, "no_sync"), (Bug::Torn, "torn")];

    fn take(name: &str) -> (Result<Seeded<Bug>>, OptionValues) {
        let mut options = OptionValues::from([(OPTION, name)]);
        (Seeded::take(&mut options, "tree", &ALL), options)
    }

    #[test]
    #[cfg(feature = "seeded-bugs")]
    fn a_suite_seeds_a_known_defect() {
        let (seeded, options) = take("torn");
        let seeded = seeded.unwrap();
        assert!(seeded.is(Bug::Torn) && !seeded.is(Bug::NoSync));
        options.finish("tree", &[]).unwrap();
        assert!(take("other").0.is_err());
    }

    #[test]
    #[cfg(not(feature = "seeded-bugs"))]
    fn a_build_that_ships_has_no_defect_and_refuses_the_option() {
        let (seeded, options) = take("torn");
        assert!(!seeded.unwrap().is(Bug::Torn));
        assert!(options.finish("tree", &[]).is_err());
        assert!(take("other").0.is_ok());
    }
}
