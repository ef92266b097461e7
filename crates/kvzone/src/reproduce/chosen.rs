//! The stores and points of a figure that are measured: its own, or those asked for.

use kvzone_core::error::{Error, Result};
use kvzone_core::names::unknown;

use super::figure::{Contestant, Figure, Point, plain};

/// The figure's stores, or those asked for; one that the figure does not have
/// takes part as it is.
///
/// # Errors
/// A usage error for a store that is not known, or named twice.
pub(super) fn contestants(figure: &Figure, asked: &[String]) -> Result<Vec<Contestant>> {
    let own = &figure.says.stores;
    if asked.is_empty() {
        return Ok(own.clone());
    }
    let mut found: Vec<Contestant> = Vec::new();
    for name in asked {
        let named = crate::stores::find(name)?.name();
        if found.iter().any(|one| one.store == named) {
            return Err(Error::Usage(format!("--stores names {name} twice")));
        }
        let before = found.len();
        found.extend(own.iter().filter(|one| one.store == named).cloned());
        if found.len() == before {
            found.push(plain(named));
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
    figure: &'static Figure,
    asked: &[String],
    all: bool,
) -> Result<Vec<&'static Point>> {
    let own = &figure.points;
    if asked.is_empty() {
        return Ok(own.iter().filter(|it| all || !it.extra).collect());
    }
    let mut found = Vec::new();
    let mut rest = asked;
    while let Some(name) = rest.first() {
        let Some((point, pieces)) = longest(own, rest) else {
            let words = unknown("point", name, own.iter().map(|it| it.label.as_str()));
            return Err(Error::Usage(format!("{}: {words}", figure.says.name)));
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
    use super::super::figure;
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    fn named(name: &str) -> &'static Figure {
        let mut all = figure::all().unwrap().iter();
        all.find(|figure| figure.says.name == name).unwrap()
    }

    #[test]
    fn stores_asked_for_come_with_the_figures_settings_or_as_they_are() {
        let figure = named("wisckey/fig15");
        let own = &figure.says.stores;
        let chosen = |asked: &[&str]| contestants(figure, &words(asked));
        assert_eq!(chosen(&[]).ok().as_ref(), Some(own));
        let expected = vec![plain("memory"), own[3].clone(), own[4].clone()];
        assert_eq!(chosen(&["memory", "wisckey"]).ok(), Some(expected));
        assert!(matches!(chosen(&["nothing"]), Err(Error::Usage(_))));
        assert!(chosen(&["memory", "memory"]).is_err());
    }

    #[test]
    fn points_come_in_the_order_asked_for_and_labels_may_hold_commas() {
        let figure = named("forestdb/fig15");
        let labels = |asked: &[&str], all: bool| {
            let found = points(figure, &words(asked), all).ok()?;
            Some(
                found
                    .iter()
                    .map(|point| point.label.as_str())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(labels(&[], true).map(|all| all.len()), Some(11));
        assert!(labels(&[], false).is_some_and(|some| !some.contains(&"40 % updates")));
        let asked = ["1 reader", " writer", "0 % updates"];
        assert_eq!(
            labels(&asked, false),
            Some(vec!["1 reader, writer", "0 % updates"])
        );
        assert_eq!(labels(&["1 reader", "other"], false), None);
    }
}
