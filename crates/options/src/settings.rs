//! Effective values: the strongest layer that sets an option wins, and each value records which layer that
//! was.

use crate::sources::PREFIX;
use crate::{
    Assignment, Field, OptionValue, OptionsError, Origin, Schema, Sources, environment_name, parse_toml,
};
use atoll_errors::nearest;

/// One option with its effective value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The option.
    pub field: Field,
    /// Its value in canonical form.
    pub text: String,
    /// Where the value was set.
    pub origin: Origin,
}

/// The effective value of every option of a schema.
#[derive(Clone, Debug)]
pub struct Settings {
    settings: Vec<Setting>,
}

impl Settings {
    /// All settings, in the order of the schema.
    #[must_use]
    pub fn all(&self) -> &[Setting] {
        &self.settings
    }

    /// The setting of `key`.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.field.key == key)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// If the schema has no such option of this type.
    pub fn get<T: OptionValue>(&self, key: &str) -> Result<T, OptionsError> {
        let setting = self.setting(key).ok_or_else(|| OptionsError::Undeclared { key: key.to_owned() })?;
        T::parse(&setting.text).map_err(|source| OptionsError::Value {
            key: key.to_owned(),
            origin: setting.origin.clone(),
            source,
        })
    }
}

/// Applies the sources on top of the defaults of the schema.
///
/// # Errors
/// The first fault in the order files, environment, flags, with its place.
pub fn resolve(schema: &Schema, sources: &Sources<'_>) -> Result<Settings, OptionsError> {
    let mut settings = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        settings.push(setting(field, field.default, Origin::Default)?);
    }
    let mut resolved = Settings { settings };
    for file in sources.files {
        for assignment in parse_toml(*file)? {
            resolved.assign(schema, assignment)?;
        }
    }
    for assignment in from_environment(schema, sources)? {
        resolved.assign(schema, assignment)?;
    }
    for assignment in sources.flags {
        resolved.assign(schema, assignment.clone())?;
    }
    Ok(resolved)
}

impl Settings {
    fn assign(&mut self, schema: &Schema, assignment: Assignment) -> Result<(), OptionsError> {
        let Assignment { key, text, origin } = assignment;
        let Some(field) = schema.field(&key) else {
            let keys = schema.fields().iter().map(|field| field.key);
            let nearest = nearest(&key, keys).map(str::to_owned);
            return Err(OptionsError::UnknownKey { key, origin, nearest });
        };
        let value = setting(field, &text, origin)?;
        if let Some(place) = self.settings.iter_mut().find(|setting| setting.field.key == key) {
            *place = value;
        }
        Ok(())
    }
}

fn setting(field: &Field, text: &str, origin: Origin) -> Result<Setting, OptionsError> {
    match field.canonical(text) {
        Ok(text) => Ok(Setting { field: *field, text, origin }),
        Err(source) => Err(OptionsError::Value { key: field.key.to_owned(), origin, source }),
    }
}

fn from_environment(schema: &Schema, sources: &Sources<'_>) -> Result<Vec<Assignment>, OptionsError> {
    let names: Vec<String> = schema.fields().iter().map(|field| environment_name(field.key)).collect();
    let mut assignments = Vec::new();
    for (variable, text) in sources.environment {
        if !variable.starts_with(PREFIX) || sources.reserved_variables.contains(&variable.as_str()) {
            continue;
        }
        let origin = Origin::Environment { variable: variable.clone() };
        let Some(at) = names.iter().position(|name| name == variable) else {
            let nearest = nearest(variable, names.iter().map(String::as_str)).map(str::to_owned);
            return Err(OptionsError::UnknownKey { key: variable.clone(), origin, nearest });
        };
        assignments.push(Assignment { key: schema.fields()[at].key.to_owned(), text: text.clone(), origin });
    }
    Ok(assignments)
}
