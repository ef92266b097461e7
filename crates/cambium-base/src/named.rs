//! Enumerations whose names stand beside their variants.

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
