//! Form bodies: decoded parameters with dotted, 1-based names.

use std::collections::BTreeMap;

use crate::protocol::error::ApiError;

/// The decoded parameters of a request, or of one structure within it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Form(BTreeMap<String, String>);

impl Form {
    /// Decodes a body of type `application/x-www-form-urlencoded`. Of a name given twice the last
    /// value counts.
    pub(crate) fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Takes a parameter out.
    pub(crate) fn remove(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub(crate) fn parameters(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// The value of a parameter; an empty one counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// # Errors
    /// `MissingParameter`.
    pub(crate) fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| ApiError::missing(name))
    }

    /// # Errors
    /// `InvalidParameterValue` for what is not a whole number of 0 or more.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>, ApiError> {
        self.get(name).map(|v| v.parse().map_err(|_| ApiError::value(name, v))).transpose()
    }

    /// # Errors
    /// `InvalidParameterValue` for what is not a decimal number.
    pub(crate) fn decimal(&self, name: &str) -> Result<Option<f64>, ApiError> {
        self.get(name).map(|v| v.parse().map_err(|_| ApiError::value(name, v))).transpose()
    }

    /// # Errors
    /// `InvalidParameterValue` for what is neither `true` nor `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(ApiError::value(name, other)),
        }
    }

    /// The members `prefix.…` as a form of their own, names without the prefix.
    pub(crate) fn sub(&self, prefix: &str) -> Self {
        let dotted = format!("{prefix}.");
        Self(
            self.0
                .iter()
                .filter_map(|(k, v)| k.strip_prefix(&dotted).map(|rest| (rest.to_owned(), v.clone())))
                .collect(),
        )
    }

    /// Whether anything is given under `prefix`.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        let dotted = format!("{prefix}.");
        self.0.keys().any(|k| k == prefix || k.starts_with(&dotted))
    }

    /// The values of a flattened list `name.1`, `name.2`, …, by their index.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let mut found: Vec<(u32, String)> =
            self.sub(name).0.into_iter().filter_map(|(k, v)| k.parse().ok().map(|index| (index, v))).collect();
        found.sort();
        found.into_iter().map(|(_, v)| v).collect()
    }

    /// The structures of a flattened list `name.1.…`, by their index.
    pub(crate) fn structs(&self, name: &str) -> Vec<Self> {
        let mut found: BTreeMap<u32, BTreeMap<String, String>> = BTreeMap::new();
        for (key, value) in self.sub(name).0 {
            if let Some((index, rest)) = key.split_once('.')
                && let Ok(index) = index.parse()
            {
                found.entry(index).or_default().insert(rest.to_owned(), value);
            }
        }
        found.into_values().map(Self).collect()
    }

    /// The tags of `TagSpecification.N` for a resource type; of a key given twice the last counts.
    pub(crate) fn tags_for(&self, resource_type: &str) -> BTreeMap<String, String> {
        self.tags_of("TagSpecification", resource_type)
    }

    /// The same, of a list which has another name.
    pub(crate) fn tags_of(&self, list: &str, resource_type: &str) -> BTreeMap<String, String> {
        self.structs(list)
            .iter()
            .filter(|spec| spec.get("ResourceType") == Some(resource_type))
            .flat_map(Self::tags)
            .collect()
    }

    /// The tags `Tag.N.Key`, `Tag.N.Value`.
    pub(crate) fn tags(&self) -> BTreeMap<String, String> {
        self.structs("Tag")
            .iter()
            .filter_map(|tag| tag.get("Key").map(|key| (key.to_owned(), tag.get("Value").unwrap_or("").to_owned())))
            .collect()
    }

    /// The parameters that make two requests the same: all but those that only carry the call.
    pub(crate) fn identity(&self) -> BTreeMap<String, String> {
        self.0
            .iter()
            .filter(|(k, _)| !matches!(k.as_str(), "ClientToken" | "DryRun"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }
}
