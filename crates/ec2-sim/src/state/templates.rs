//! Launch templates. This version keeps one version of each.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::protocol::form::Form;

/// A launch template.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) created_at: Timestamp,
    pub(crate) tags: BTreeMap<String, String>,
    /// The members of `LaunchTemplateData` as they came.
    pub(crate) data: Form,
    /// When other calls see it.
    pub(crate) visible_at: Timestamp,
    pub(crate) description: Option<String>,
}
