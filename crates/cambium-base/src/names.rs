//! Enumerations whose names stand beside their variants, and how far two names are apart.

/// Declares an enumeration and its `ALL`: every variant with its name.
///
/// ```
/// cambium_base::named! {
///     /// Parts of a tree.
///     pub enum Part {
///         /// Takes water up.
///         Root = "root",
///         /// Takes light up.
///         Leaf = "leaf",
///     }
/// }
/// assert_eq!(Part::ALL, [(Part::Root, "root"), (Part::Leaf, "leaf")]);
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $see:vis enum $Name:ident {
        $($(#[$of:meta])* $Variant:ident = $name:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $see enum $Name {
            $($(#[$of])* $Variant,)*
        }

        impl $Name {
            /// Every variant, with its name.
            $see const ALL: [($Name, &'static str); [$($name),*].len()] =
                [$(($Name::$Variant, $name)),*];
        }
    };
}

/// Edits that turn one word into the other (Levenshtein), for suggestions.
pub fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for column in 0..to.len() {
            let substituted = diagonal + usize::from(letter != to[column]);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
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
        ] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }
}
