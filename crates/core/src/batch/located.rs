//! Where instances lie in the network, before they are nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::names::InstanceId;
use crate::topology::NETWORK_LAYER_KEYS;

/// How many network nodes the instances of a launch hang on, per layer from the top.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Located {
    /// Distinct network nodes per layer, whole paths distinguished.
    pub layers: Vec<u32>,
}

/// Reads the answer of DescribeInstanceTopology for these instances.
///
/// `None` unless it names all of them with equally many layers: for types EC2 does not report there is nothing to
/// judge, and of half an answer nothing follows. What else lies in the group (it may be shared) is not looked at.
#[must_use]
pub fn located(instances: &[InstanceId], places: &BTreeMap<InstanceId, Vec<String>>) -> Option<Located> {
    let paths: Vec<&[String]> = instances.iter().map(|id| places.get(id).map(Vec::as_slice)).collect::<Option<_>>()?;
    let depth = paths.first()?.len();
    if depth == 0 || paths.iter().any(|path| path.len() != depth) {
        return None;
    }
    let layers = (1..=depth)
        .map(|layer| {
            let domains: BTreeSet<&[String]> = paths.iter().filter_map(|path| path.get(..layer)).collect();
            u32::try_from(domains.len()).unwrap_or(u32::MAX)
        })
        .collect();
    Some(Located { layers })
}

impl Located {
    /// Domains of the level with this label key; `None` for a level that says nothing about the network, or that these
    /// instances do not have.
    #[must_use]
    pub fn domains(&self, key: &str) -> Option<u32> {
        let layer = NETWORK_LAYER_KEYS.iter().position(|known| *known == key)?;
        self.layers.get(layer).copied()
    }
}

impl std::fmt::Display for Located {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layers: Vec<String> = self.layers.iter().map(u32::to_string).collect();
        write!(f, "{} network nodes from the top", layers.join(" / "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(paths: &[(&str, &[&str])]) -> BTreeMap<InstanceId, Vec<String>> {
        paths
            .iter()
            .map(|(id, path)| (InstanceId::from(*id), path.iter().map(|node| (*node).to_owned()).collect()))
            .collect()
    }

    fn ids(ids: &[&str]) -> Vec<InstanceId> {
        ids.iter().map(|id| InstanceId::from(*id)).collect()
    }

    #[test]
    fn a_launch_over_two_leaves_of_one_spine_is_counted_layer_by_layer() {
        let places = answer(&[
            ("i-1", &["core", "spine", "leaf-a"]),
            ("i-2", &["core", "spine", "leaf-a"]),
            ("i-3", &["core", "spine", "leaf-b"]),
            ("i-other", &["core", "far", "leaf-z"]),
        ]);
        let located = located(&ids(&["i-1", "i-2", "i-3"]), &places).unwrap();
        assert_eq!(located.layers, [1, 1, 2]);
        assert_eq!(located.domains(NETWORK_LAYER_KEYS[1]), Some(1));
        assert_eq!(located.domains(NETWORK_LAYER_KEYS[2]), Some(2));
        assert_eq!(located.domains(NETWORK_LAYER_KEYS[3]), None);
        assert_eq!(located.domains("topology.kubernetes.io/zone"), None);
        assert_eq!(located.to_string(), "1 / 1 / 2 network nodes from the top");
    }

    #[test]
    fn leaves_of_equal_name_under_two_spines_are_two() {
        let places = answer(&[("i-1", &["core", "s1", "leaf"]), ("i-2", &["core", "s2", "leaf"])]);
        assert_eq!(located(&ids(&["i-1", "i-2"]), &places).unwrap().layers, [1, 2, 2]);
    }

    #[test]
    fn half_an_answer_is_none() {
        let places = answer(&[("i-1", &["core", "spine", "leaf"]), ("i-2", &["core"]), ("i-3", &[])]);
        for asked in [&["i-1", "i-9"][..], &["i-1", "i-2"], &["i-3"], &[]] {
            assert_eq!(located(&ids(asked), &places), None, "{asked:?}");
        }
    }
}
