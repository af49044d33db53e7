//! The options that exist: declared by components, collected by a program.

use crate::{OptionValue, OptionsError, Settings, ValueError};

/// The declaration of an option.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Dotted key, as in a TOML file.
    pub key: &'static str,
    /// Its value if it is not set.
    pub default: &'static str,
    /// Its purpose.
    pub help: &'static str,
    /// The form of a valid value.
    pub expected: &'static str,
    canonical: fn(&str) -> Result<String, ValueError>,
}

impl Field {
    /// The option `key` of type `T`.
    #[must_use]
    pub const fn new<T: OptionValue>(key: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { key, default, help, expected: T::EXPECTED, canonical: canonical::<T> }
    }

    /// The canonical form of a value.
    ///
    /// # Errors
    /// If the text is not a value of the option's type.
    pub fn canonical(&self, text: &str) -> Result<String, ValueError> {
        (self.canonical)(text)
    }
}

fn canonical<T: OptionValue>(text: &str) -> Result<String, ValueError> {
    T::parse(text).map(|value| value.show())
}

/// A plain struct of options, as made by [`options!`](crate::options!).
pub trait Section: Sized {
    /// Its options.
    const FIELDS: &'static [Field];

    /// The struct with the effective values.
    ///
    /// # Errors
    /// If the settings were resolved without these options.
    fn from_settings(settings: &Settings) -> Result<Self, OptionsError>;
}

/// All options of a program.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    fields: Vec<Field>,
}

impl Schema {
    /// A schema without options.
    #[must_use]
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Adds the options of another component.
    #[must_use]
    pub fn with<S: Section>(mut self) -> Self {
        self.fields.extend_from_slice(S::FIELDS);
        self
    }

    /// The options in the order of their declaration.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The option with this key.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.key == key)
    }
}

/// Declares a plain struct of options: name, type, default and help in one place.
///
/// The text after `in` is put before every key: `"engine."` for a table, `""` for the top of the file.
///
/// ```
/// use atoll_options::{Schema, Section, Size, Sources, TomlText, resolve};
/// atoll_options::options! {
///     /// How the engine runs.
///     pub struct EngineOptions in "engine." {
///         /// Memory budget.
///         memory: Size = "1GiB",
///         /// Threads.
///         threads: u16 = "2",
///     }
/// }
/// let file = TomlText { name: "atoll.toml", text: "[engine]\nmemory = \"64MiB\"" };
/// let sources = Sources { files: &[file], ..Sources::default() };
/// let settings = resolve(&Schema::new().with::<EngineOptions>(), &sources)?;
/// let options = EngineOptions::from_settings(&settings)?;
/// assert_eq!(options, EngineOptions { memory: Size(64 << 20), threads: 2 });
/// # Ok::<(), atoll_options::OptionsError>(())
/// ```
#[macro_export]
macro_rules! options {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident in $section:literal {
        $( $(#[doc = $help:literal])+ $field:ident: $kind:ty = $default:literal, )+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $visibility struct $name { $( $(#[doc = $help])+ pub $field: $kind, )+ }

        impl $crate::Section for $name {
            const FIELDS: &'static [$crate::Field] = &[ $(
                $crate::Field::new::<$kind>(
                    concat!($section, stringify!($field)),
                    $default,
                    concat!($($help),+),
                ),
            )+ ];

            fn from_settings(settings: &$crate::Settings) -> Result<Self, $crate::OptionsError> {
                Ok(Self { $( $field: settings.get::<$kind>(concat!($section, stringify!($field)))?, )+ })
            }
        }
    };
}
