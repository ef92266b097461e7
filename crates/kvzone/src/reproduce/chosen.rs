//! The stores and points of a figure that are measured: its own, or those asked for.

use kvzone_core::error::{Error, Result};
use kvzone_core::names::nearest;

use super::figure::{Contestant, Point, store};

/// The figure's stores, or those asked for; one that the figure does not have
/// takes part as it is.
///
/// # Errors
/// A usage error for a store that is not known, or named twice.
pub(super) fn contestants(own: &[Contestant], asked: &[String]) -> Result<Vec<Contestant>> {
    if asked.is_empty() {
        return Ok(own.to_vec());
    }
    let mut found: Vec<Contestant> = Vec::new();
    for name in asked {
        let named = crate::stores::find(name)?.name();
        if found.iter().any(|one| one.store == named) {
            return Err(Error::Usage(format!("--stores names {name} twice")));
        }
        let before = found.len();
        found.extend(own.iter().filter(|one| one.store == named));
        if found.len() == before {
            found.push(store(named));
        }
    }
    Ok(found)
}

/// The points that are asked for, in that order; without any, all points or
/// those that are not extra.
///
/// # Errors
/// A usage error that offers the nearest labels for one that is not there.
pub(super) fn points(
    figure: &str,
    own: &'static [Point],
    (asked, all): (&[String], bool),
) -> Result<Vec<&'static Point>> {
    if asked.is_empty() {
        return Ok(own.iter().filter(|it| all || !it.extra).collect());
    }
    let mut found = Vec::new();
    let mut rest = asked;
    while let Some(name) = rest.first() {
        let Some((point, pieces)) = longest(own, rest) else {
            let near = nearest(name, own.iter().map(|it| it.label));
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
fn longest<'a>(own: &'a [Point], pieces: &[String]) -> Option<(&'a Point, usize)> {
    (1..=pieces.len()).rev().find_map(|count| {
        let label = pieces[..count].join(",");
        let point = own.iter().find(|it| it.label == label.trim())?;
        Some((point, count))
    })
}

#[cfg(test)]
mod tests {
    use super::super::figure::variant;
    use super::*;

    const fn at(label: &'static str) -> Point {
        Point {
            label,
            ..Point::PLAIN
        }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn stores_asked_for_come_with_the_figures_settings_or_as_they_are() {
        let two = variant("forest 2", "forest", &[("index", "btree")]);
        let own = [store("zdb"), store("forest"), two];
        let chosen = |asked: &[&str]| contestants(&own, &words(asked));
        assert_eq!(chosen(&[]).ok(), Some(own.to_vec()));
        let expected = vec![store("memory"), own[1], two];
        assert_eq!(chosen(&["memory", "forest"]).ok(), Some(expected));
        assert!(matches!(chosen(&["zdb", "zdb"]), Err(Error::Usage(_))));
        assert!(matches!(chosen(&["zbd"]), Err(Error::Usage(_))));
    }

    #[test]
    fn points_asked_for_come_in_their_order_extra_or_not() {
        static OWN: [Point; 3] = [at("1 KB"), at("2 KB").extra(), at("4 KB")];
        static COMMAS: [Point; 2] = [at("A, 1 KB"), at("1 KB")];
        let chosen = |asked: &[&str], all| {
            let found = points("fig", &OWN, (&words(asked), all));
            found.map(|found| found.iter().map(|it| it.label).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], false).ok(), Some(vec!["1 KB", "4 KB"]));
        assert_eq!(chosen(&[], true).ok(), Some(vec!["1 KB", "2 KB", "4 KB"]));
        let asked = chosen(&["4 KB", "2 KB"], false);
        assert_eq!(asked.ok(), Some(vec!["4 KB", "2 KB"]));
        // As the command line cuts them.
        let cut = words(&["1 KB", "A", " 1 KB", " 1 KB"]);
        let found = points("fig", &COMMAS, (&cut, false)).ok();
        let labels = found.map(|found| found.iter().map(|it| it.label).collect::<Vec<_>>());
        assert_eq!(labels, Some(vec!["1 KB", "A, 1 KB", "1 KB"]));
        let refused = chosen(&["3 KB"], false)
            .err()
            .map(|error| error.to_string());
        assert!(refused.is_some_and(|words| words.contains("fig has no point \"3 KB\"")));
    }
}
