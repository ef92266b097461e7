//! The names nearest to one that was mistyped.

/// Says that there is no such name, and which are near it.
///
/// ```
/// use kvzone_core::names::unknown;
/// let words = unknown("store", "rockdb", ["leveldb", "rocksdb"]);
/// assert_eq!(words, "there is no store \"rockdb\"; near it: rocksdb");
/// ```
pub fn unknown<'a>(
    kind: &str,
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    let near = nearest(name, candidates).join(", ");
    let hint = if near.is_empty() { "" } else { "; near it: " };
    format!("there is no {kind} {name:?}{hint}{near}")
}

/// An enumeration whose texts, in serde's form and as its `name`, stand beside its variants.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $see:vis enum $Name:ident {
        $($(#[$of:meta])* $Variant:ident = $text:tt,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $see enum $Name {
            $($(#[$of])* #[serde(rename = $text)] $Variant,)*
        }

        #[allow(dead_code)]
        impl $Name {
            $see const ALL: [$Name; [$($text),*].len()] = [$($Name::$Variant),*];

            $see fn name(self) -> &'static str {
                match self {
                    $($Name::$Variant => $text,)*
                }
            }
        }
    };
}

/// Up to three candidates, the nearest first, by Levenshtein's distance:
/// those that are less than half of the name away, or else the nearest alone.
fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut by_distance: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .collect();
    by_distance.sort();
    let bound = name.chars().count() / 2;
    let near = by_distance
        .iter()
        .filter(|(distance, _)| *distance < bound)
        .count();
    by_distance
        .into_iter()
        .take(near.clamp(1, 3))
        .map(|(_, candidate)| candidate)
        .collect()
}

/// Letters to insert, delete or replace to make one of the other; upper and
/// lower case alike.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_lowercase().chars().collect();
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(l != r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_levenshteins() {
        for (left, right, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("ZDB", "zdb", 0),
        ] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn the_nearest_come_first_and_there_is_always_one() {
        let stores = ["leveldb", "rocksdb", "lmdb", "zdb"];
        assert_eq!(nearest("leveldb2", stores)[0], "leveldb");
        assert_eq!(nearest("completely different", stores).len(), 1);
        assert!(nearest("x", []).is_empty());
    }
}
