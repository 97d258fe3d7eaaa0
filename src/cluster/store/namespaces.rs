//! Labels of namespaces, by which terms of pod affinity select them.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use muster_api::convert::ordinary::namespace_labels;

use super::Store;

impl Store {
    /// A namespace was seen. Its status is not kept.
    pub fn apply_namespace(&mut self, namespace: &Namespace) {
        let name: Arc<str> = namespace.name_any().into();
        let labels = namespace_labels(&name, namespace.metadata.labels.as_ref());
        if self.state.namespaces.get(&name) != Some(&labels) {
            Arc::make_mut(&mut self.state.change().namespaces).insert(name, labels);
        }
    }

    /// A namespace is gone.
    pub fn delete_namespace(&mut self, name: &str) {
        if self.state.namespaces.contains_key(name) {
            Arc::make_mut(&mut self.state.change().namespaces).remove(name);
        }
    }

    /// Namespaces that are not among `names` are gone.
    pub fn retain_namespaces(&mut self, names: &BTreeSet<String>) {
        let gone: Vec<Arc<str>> =
            self.state.namespaces.keys().filter(|name| !names.contains(&***name)).cloned().collect();
        gone.iter().for_each(|name| self.delete_namespace(name));
    }
}
