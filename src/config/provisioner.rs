//! What is provisioned for, and when.

use serde::Deserialize;

use super::{ConfigError, value};

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawProvisioner {
    pub(super) back_off: String,
    pub(super) max_usd_per_hour: Option<String>,
    pub(super) dry_run: bool,
    pub(super) batch_idle: String,
    pub(super) batch_max: String,
    pub(super) scheduler_names: Vec<String>,
}

impl Default for RawProvisioner {
    fn default() -> Self {
        Self {
            back_off: "30s".to_owned(),
            max_usd_per_hour: None,
            dry_run: false,
            batch_idle: "1s".to_owned(),
            batch_max: "10s".to_owned(),
            scheduler_names: Vec::new(),
        }
    }
}

/// Names of profiles, each once. One of ours among them is no mistake: its pods are provisioned for anyway.
pub(super) fn profiles(key: &str, names: Vec<String>) -> Result<Vec<String>, ConfigError> {
    for (index, name) in names.iter().enumerate() {
        let key = || format!("{key}[{index}]");
        if name.trim().is_empty() {
            return Err(value(key(), format!("\"{name}\" names no profile; write one such as default-scheduler")));
        }
        if names[..index].contains(name) {
            return Err(value(key(), format!("{name} is there already; name each profile once")));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn names(text: &str) -> Result<Vec<String>, String> {
        let config = Config::parse(text, "muster.yaml").map_err(|error| error.to_string())?;
        Ok(config.provisioner_scheduler_names)
    }

    #[test]
    fn profiles_that_are_provisioned_for_beside_ours_have_names_and_each_is_named_once() {
        assert_eq!(names(""), Ok(Vec::new()));
        let both = names("provisioner: {schedulerNames: [default-scheduler, muster]}");
        assert_eq!(both, Ok(vec!["default-scheduler".to_owned(), "muster".to_owned()]));
        let refused = names("provisioner: {schedulerNames: [default-scheduler, ' ']}").unwrap_err();
        assert!(refused.starts_with("muster.yaml: provisioner.schedulerNames[1]: \" \""), "{refused}");
        let refused = names("provisioner: {schedulerNames: [a, b, a]}").unwrap_err();
        assert!(refused.starts_with("muster.yaml: provisioner.schedulerNames[2]: a is there already"), "{refused}");
    }
}
