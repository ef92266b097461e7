//! The names nearest to one that was mistyped.

use cambium_base::names::distance;

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
    let lower = name.to_lowercase();
    let mut by_distance: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (distance(&candidate.to_lowercase(), &lower), candidate))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_there_is_always_one() {
        let stores = ["leveldb", "rocksdb", "lmdb", "zdb"];
        assert_eq!(nearest("leveldb2", stores)[0], "leveldb");
        assert_eq!(nearest("completely different", stores).len(), 1);
        assert!(nearest("x", []).is_empty());
    }
}
