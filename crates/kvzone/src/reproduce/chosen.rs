//! What of a figure is measured: its own stores and points, or those asked for.

use kvzone_core::error::{Error, Result};
use kvzone_core::names::nearest;

/// A store as it takes part in a figure.
pub(super) trait Contestant: Copy {
    /// One that the figure does not have, as it is.
    fn plain(store: &'static str) -> Self;

    /// The adapter's name.
    fn store(&self) -> &'static str;
}

/// A place on a figure's axis.
pub(super) trait Labelled {
    /// What rows call it.
    fn label(&self) -> &'static str;

    /// Left out unless all points are asked for.
    fn is_extra(&self) -> bool;
}

/// The figure's stores, or those asked for; one that the figure does not have
/// takes part as it is.
///
/// # Errors
/// A usage error for a store that is not known, or named twice.
pub(super) fn contestants<C: Contestant>(own: &[C], asked: &[String]) -> Result<Vec<C>> {
    if asked.is_empty() {
        return Ok(own.to_vec());
    }
    let mut found: Vec<C> = Vec::new();
    for name in asked {
        let store = crate::stores::find(name)?.name();
        if found.iter().any(|one| one.store() == store) {
            return Err(Error::Usage(format!("--stores names {name} twice")));
        }
        let before = found.len();
        found.extend(own.iter().filter(|one| one.store() == store));
        if found.len() == before {
            found.push(C::plain(store));
        }
    }
    Ok(found)
}

/// The points that are asked for, in that order; without any, all points or
/// those that are not extra.
///
/// # Errors
/// A usage error that offers the nearest labels for one that is not there.
pub(super) fn points<P: Labelled>(
    figure: &str,
    own: &'static [P],
    (asked, all): (&[String], bool),
) -> Result<Vec<&'static P>> {
    if asked.is_empty() {
        return Ok(own.iter().filter(|it| all || !it.is_extra()).collect());
    }
    let mut found = Vec::new();
    let mut rest = asked;
    while let Some(name) = rest.first() {
        let Some((point, pieces)) = longest(own, rest) else {
            let near = nearest(name, own.iter().map(|it| it.label()));
            return Err(Error::Usage(format!(
                "{figure} has no point {name:?}; near it: {}",
                near.join(", ")
            )));
        };
        found.push(point);
        rest = &rest[pieces..];
    }
    Ok(found)
}

/// The point with the longest label that the pieces begin with, and how many they
/// are: what was asked for is cut at commas, and labels may hold some.
fn longest<'a, P: Labelled>(own: &'a [P], pieces: &[String]) -> Option<(&'a P, usize)> {
    (1..=pieces.len()).rev().find_map(|count| {
        let label = pieces[..count].join(",");
        let point = own.iter().find(|it| it.label() == label.trim())?;
        Some((point, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct One(&'static str, u32);

    impl Contestant for One {
        fn plain(store: &'static str) -> Self {
            One(store, 0)
        }

        fn store(&self) -> &'static str {
            self.0
        }
    }

    struct At(&'static str, bool);

    impl Labelled for At {
        fn label(&self) -> &'static str {
            self.0
        }

        fn is_extra(&self) -> bool {
            self.1
        }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn stores_asked_for_come_with_the_figures_settings_or_as_they_are() {
        let own = [One("zdb", 1), One("forest", 2), One("forest", 3)];
        let chosen = |asked: &[&str]| contestants(&own, &words(asked));
        assert_eq!(chosen(&[]).ok(), Some(own.to_vec()));
        let expected = vec![One("memory", 0), One("forest", 2), One("forest", 3)];
        assert_eq!(chosen(&["memory", "forest"]).ok(), Some(expected));
        assert!(matches!(chosen(&["zdb", "zdb"]), Err(Error::Usage(_))));
        assert!(matches!(chosen(&["zbd"]), Err(Error::Usage(_))));
    }

    #[test]
    fn points_asked_for_come_in_their_order_extra_or_not() {
        static OWN: [At; 3] = [At("1 KB", false), At("2 KB", true), At("4 KB", false)];
        static COMMAS: [At; 2] = [At("A, 1 KB", false), At("1 KB", false)];
        let chosen = |asked: &[&str], all| {
            let found = points("fig", &OWN, (&words(asked), all));
            found.map(|found| found.iter().map(|it| it.label()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], false).ok(), Some(vec!["1 KB", "4 KB"]));
        assert_eq!(chosen(&[], true).ok(), Some(vec!["1 KB", "2 KB", "4 KB"]));
        let asked = chosen(&["4 KB", "2 KB"], false);
        assert_eq!(asked.ok(), Some(vec!["4 KB", "2 KB"]));
        // As the command line cuts them.
        let cut = words(&["1 KB", "A", " 1 KB", " 1 KB"]);
        let found = points("fig", &COMMAS, (&cut, false)).ok();
        let labels = found.map(|found| found.iter().map(|it| it.label()).collect::<Vec<_>>());
        assert_eq!(labels, Some(vec!["1 KB", "A, 1 KB", "1 KB"]));
        let refused = chosen(&["3 KB"], false)
            .err()
            .map(|error| error.to_string());
        assert!(refused.is_some_and(|words| words.contains("fig has no point \"3 KB\"")));
    }
}
