//! A policy document, and what it allows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::protocol::wild::wild;

/// A policy document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Policy {
    /// The version of the language.
    #[serde(default)]
    pub version: Option<String>,
    /// The statements.
    pub statement: Vec<Statement>,
}

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Statement {
    /// Its name.
    #[serde(default)]
    pub sid: String,
    /// Whether it allows or denies.
    pub effect: Effect,
    /// For instance `ec2:RunInstances`; `*` and `?` are wild.
    pub action: Words,
    /// ARNs; `*` and `?` are wild.
    pub resource: Words,
    /// What has to hold beside.
    #[serde(default, skip_serializing_if = "Conditions::is_empty")]
    pub condition: Conditions,
}

/// What a statement does to what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// It is allowed unless another statement denies it.
    Allow,
    /// It is denied.
    Deny,
}

/// One word, or several of which any may match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Words {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Words {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match self {
            Self::One(word) => (Some(word), None),
            Self::Many(words) => (None, Some(words)),
        };
        one.into_iter().chain(many.into_iter().flatten()).map(String::as_str)
    }

    fn replace(&mut self, from: &str, to: &str) {
        match self {
            Self::One(word) => *word = word.replace(from, to),
            Self::Many(words) => words.iter_mut().for_each(|word| *word = word.replace(from, to)),
        }
    }
}

/// The conditions of a statement, all of which have to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Conditions {
    /// The key has one of the values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub string_equals: BTreeMap<String, Words>,
    /// The key has none of the values, or is absent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub string_not_equals: BTreeMap<String, Words>,
    /// The key matches one of the patterns.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub string_like: BTreeMap<String, Words>,
    /// The key is absent (`true`) or present (`false`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub null: BTreeMap<String, Words>,
}

impl Conditions {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn hold(&self, keys: &BTreeMap<String, String>) -> bool {
        let any = |wanted: &Words, fits: &dyn Fn(&str) -> bool| wanted.iter().any(fits);
        self.string_equals.iter().all(|(key, wanted)| keys.get(key).is_some_and(|v| any(wanted, &|w| w == v)))
            && self
                .string_not_equals
                .iter()
                .all(|(key, wanted)| keys.get(key).is_none_or(|v| !any(wanted, &|w| w == v)))
            && self.string_like.iter().all(|(key, wanted)| keys.get(key).is_some_and(|v| any(wanted, &|w| wild(w, v))))
            && self.null.iter().all(|(key, wanted)| {
                let absent = if keys.contains_key(key) { "false" } else { "true" };
                any(wanted, &|w| w == absent)
            })
    }

    fn replace(&mut self, from: &str, to: &str) {
        for keys in [&mut self.string_equals, &mut self.string_not_equals, &mut self.string_like, &mut self.null] {
            let replaced = std::mem::take(keys).into_iter().map(|(key, mut words)| {
                words.replace(from, to);
                (key.replace(from, to), words)
            });
            *keys = replaced.collect();
        }
    }
}

impl Policy {
    /// Puts values in the place of words such as `REGION`, which a shipped policy leaves open.
    #[must_use]
    pub fn filled(mut self, values: &BTreeMap<String, String>) -> Self {
        for statement in &mut self.statement {
            for (from, to) in values {
                statement.resource.replace(from, to);
                statement.condition.replace(from, to);
            }
        }
        self
    }

    /// Whether it allows an action on a resource, with these condition keys.
    pub(super) fn allows(&self, action: &str, resource: &str, keys: &BTreeMap<String, String>) -> bool {
        let matching = |effect: Effect| {
            self.statement.iter().any(|s| {
                s.effect == effect
                    && s.action.iter().any(|a| wild(&a.to_ascii_lowercase(), &action.to_ascii_lowercase()))
                    && s.resource.iter().any(|r| wild(r, resource))
                    && s.condition.hold(keys)
            })
        };
        matching(Effect::Allow) && !matching(Effect::Deny)
    }
}
