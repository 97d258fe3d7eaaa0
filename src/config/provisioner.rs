//! What is provisioned for, and when.

use jiff::SignedDuration;
use serde::Deserialize;

use super::{ConfigError, duration, value};

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

/// How long pods of no gang are collected: since the last one came, and at most.
pub(super) fn window(idle: &str, max: &str) -> Result<(SignedDuration, SignedDuration), ConfigError> {
    let key = "provisioner.batchIdle";
    let window = (duration(key, idle)?, duration("provisioner.batchMax", max)?);
    if window.0 > window.1 {
        let message = format!(
            "{idle} is above provisioner.batchMax {max}: pods would never wait for it; choose a shorter one, or a longer \
             provisioner.batchMax"
        );
        return Err(value(key, message));
    }
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn names(text: &str) -> Result<Vec<String>, String> {
        let config = Config::parse(text, "muster.yaml").map_err(|error| error.to_string())?;
        Ok(config.provisioner_scheduler_names)
    }

    #[test]
    fn a_pause_longer_than_pods_are_collected_at_most_is_refused() {
        let window = |idle: &str, max: &str| {
            let text = format!("provisioner: {{batchIdle: {idle}, batchMax: {max}}}");
            let config = Config::parse(&text, "muster.yaml").map_err(|error| error.to_string())?;
            Ok::<_, String>((config.batch_idle.as_millis(), config.batch_max.as_millis()))
        };
        assert_eq!(window("500ms", "2s"), Ok((500, 2_000)));
        assert_eq!(window("2s", "2s"), Ok((2_000, 2_000)));
        let refused = window("3s", "2s").unwrap_err();
        assert!(
            refused.starts_with("muster.yaml: provisioner.batchIdle: 3s is above provisioner.batchMax 2s:"),
            "{refused}"
        );
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
