//! A running cluster as a recording: every kind the planner reads is listed, and nothing else is looked at.

use anyhow::Context as _;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Client, Error};
use muster_core::gang::Settings;
use muster_replay::kinds::{self, Kind};
use muster_replay::record::{self, Record};
use muster_viewer::bar::Bar;
use muster_viewer::output;
use serde_json::Value;

use crate::clock::now_real;
use crate::config::Config;

/// Objects asked for at once.
const PAGE: u32 = 500;

/// What a recording says of the settings in force.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    /// Topology levels; `None`: those that the nodes carry.
    pub(crate) levels: Option<muster_core::topology::Levels>,
    /// Names of our profiles.
    pub(crate) scheduler_names: Vec<String>,
    /// Names of others whose pods of no gang are provisioned for too.
    pub(crate) provisioner_scheduler_names: Vec<String>,
}

impl InForce {
    /// Those of a server.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            levels: Some(config.levels.clone()),
            scheduler_names: config.scheduler_names.clone(),
            provisioner_scheduler_names: config.provisioner_scheduler_names.clone(),
        }
    }
}

/// [`read`], with a line on standard error for each kind that may not be listed, and on a terminal one that shows how far
/// it is. `passes` are those of its server.
///
/// Errors: those of [`read`].
pub(crate) async fn record(client: &Client, in_force: InForce, passes: Vec<Value>) -> anyhow::Result<String> {
    let bar = Bar::counting(u64::try_from(kinds::listed().count()).unwrap_or(u64::MAX));
    let (recording, excluded) = read(client, kinds::listed(), in_force, passes, &bar).await?;
    drop(bar);
    for line in excluded {
        output::report(line);
    }
    Ok(recording)
}

/// Reads these kinds of the cluster, and says what is missing. `passes` are those of its server; `bar` shows the kind that is listed.
///
/// Kinds that the cluster does not serve are passed over. So are, with a line, kinds that may not be listed; nodes and pods
/// must be.
///
/// Errors: no answer, no permission to list nodes or pods.
pub(crate) async fn read(
    client: &Client,
    kinds: impl Iterator<Item = Kind>,
    in_force: InForce,
    passes: Vec<Value>,
    bar: &Bar,
) -> anyhow::Result<(String, Vec<String>)> {
    let time = now_real();
    let (mut objects, mut excluded, mut lines) = (passes, Vec::new(), Vec::new());
    for (done, kind) in (0..).zip(kinds) {
        let before = objects.len();
        let show = |listed: usize| bar.at(done, &format!("{}, {} objects", kind.plural, before + listed));
        match list(client, &kind, &show).await {
            Ok(found) => objects.extend(found),
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(Error::Api(status)) if status.code == 403 && !matches!(kind.plural, "nodes" | "pods") => {
                excluded.push(kind.plural.to_owned());
                lines.push(format!("{} are missing: {}", kind.plural, status.message));
            }
            Err(error) => return Err(error).with_context(|| format!("list {}", kind.plural)),
        }
    }
    let head = Record {
        time,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        levels: in_force.levels.map(|levels| levels.as_slice().to_vec()),
        scheduler_names: in_force.scheduler_names,
        provisioner_scheduler_names: in_force.provisioner_scheduler_names,
        excluded,
        policy: Settings::new(muster_api::keys::GANG_PENDING).policy.into(),
    };
    Ok((record::render(&head, objects), lines))
}

/// Every object of a kind, in the best version that is served. `show` learns how many there are so far.
async fn list(client: &Client, kind: &Kind, show: &(dyn Fn(usize) + Sync)) -> Result<Vec<Value>, Error> {
    let mut answer = Ok(Vec::new());
    for version in kind.versions {
        answer = list_version(client, kind, version, show).await;
        if !matches!(&answer, Err(Error::Api(status)) if status.code == 404) {
            break;
        }
    }
    answer
}

/// Every object of a kind in one version, page by page.
async fn list_version(
    client: &Client,
    kind: &Kind,
    version: &str,
    show: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Value>, Error> {
    let api_version = if kind.group.is_empty() { version.to_owned() } else { format!("{}/{version}", kind.group) };
    let resource = ApiResource {
        group: kind.group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.clone(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut objects = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        show(objects.len());
        let page = api.list(&parameters).await?;
        for object in page.items {
            let mut object = serde_json::to_value(object).map_err(Error::SerdeError)?;
            if let Some(fields) = object.as_object_mut() {
                // The items of a typed list carry neither.
                fields.insert("apiVersion".to_owned(), Value::from(api_version.as_str()));
                fields.insert("kind".to_owned(), Value::from(kind.kind));
            }
            objects.push(object);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}
