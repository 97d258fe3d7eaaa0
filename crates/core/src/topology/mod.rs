//! The topology tree: configured levels, domains by whole path, nodes as leaves.
//!
//! A *level* is one layer (zone, network layers, host), named and read from one node label. A *domain* is one value of
//! a level, identified by its whole path from the top: rack `1` of zone `a` and rack `1` of zone `b` are two domains.

mod natural;
mod tree;
mod zones;

use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use natural::natural_cmp;
pub use tree::{Domain, SplitLabel, Step, Tree};
pub use zones::{EBS_ZONE_KEY, REGION_KEY, beside_zone, region_of};

/// Index into the configured levels; 0 is the top.
pub type LevelIndex = usize;

/// Label key of the last level.
pub const HOST_KEY: &str = "kubernetes.io/hostname";
/// Label key of the zone.
pub const ZONE_KEY: &str = "topology.kubernetes.io/zone";
/// Label key of the zone's id, on EKS.
pub const ZONE_ID_KEY: &str = "topology.k8s.aws/zone-id";
/// Label keys of EC2's network layers, top to bottom: 1 is the top, the highest number is closest to the instance.
pub const NETWORK_LAYER_KEYS: [&str; 4] = [
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    "topology.k8s.aws/network-node-layer-4",
];
/// More levels than any fabric has; bounds the width of the planner's cost vectors.
pub const MAX_LEVELS: usize = 16;

/// The word for the last level, whatever its name.
const HOST_WORD: &str = "host";
/// The word for the deepest network level, whatever its name.
const LEAF_WORD: &str = "leaf";
/// Levels by their distance from the host: `tier-1` is next to it.
const TIER_PREFIX: &str = "tier-";
/// The name by which the zone level is found when its key is not a well-known one.
const ZONE_WORD: &str = "zone";

/// Levels from top to bottom; never empty, the last is `kubernetes.io/hostname`.
///
/// Every level between the zone (or the top, if no zone is configured) and the host is a *network level*.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Level>", into = "Vec<Level>")]
pub struct Levels(Vec<Level>);

/// One level of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Name used in topology requests: `zone`, `spine`, …
    pub name: Arc<str>,
    /// Node label key.
    pub key: Arc<str>,
}

/// Why a list of levels is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LevelsError {
    /// No level at all.
    #[error("list of topology levels is empty")]
    Empty,
    /// A level without a name or without a key.
    #[error("topology level {index} has an empty name or key")]
    Unnamed {
        /// Position in the list, 0 = top.
        index: usize,
    },
    /// The same text names two levels, as name or as key.
    #[error("topology level {text} is named twice")]
    Duplicate {
        /// The text.
        text: Arc<str>,
    },
    /// `kubernetes.io/hostname` stands above another level.
    #[error("topology level {HOST_KEY} must be the last")]
    HostNotLast,
    /// `host` or `leaf` is the name of a level other than the one the word stands for.
    #[error("topology level name {name} is reserved for another level")]
    Reserved {
        /// The name.
        name: Arc<str>,
    },
    /// More than [`MAX_LEVELS`] levels, the host included.
    #[error("{count} topology levels are more than {MAX_LEVELS}")]
    TooMany {
        /// How many.
        count: usize,
    },
}

impl Levels {
    /// Validates a list of levels, top to bottom, and appends the host if it is missing.
    ///
    /// Errors: [`LevelsError`]; names and keys are unique together, so that a topology request names one level.
    pub fn new(mut levels: Vec<Level>) -> Result<Self, LevelsError> {
        if levels.is_empty() {
            return Err(LevelsError::Empty);
        }
        if levels.iter().all(|level| &*level.key != HOST_KEY) {
            levels.push(level(HOST_WORD, HOST_KEY));
        }
        if levels.len() > MAX_LEVELS {
            return Err(LevelsError::TooMany { count: levels.len() });
        }
        let mut seen = FxHashSet::default();
        for (index, level) in levels.iter().enumerate() {
            if level.name.is_empty() || level.key.is_empty() {
                return Err(LevelsError::Unnamed { index });
            }
            if !seen.insert(&*level.name) {
                return Err(LevelsError::Duplicate { text: Arc::clone(&level.name) });
            }
            if level.key != level.name && !seen.insert(&*level.key) {
                return Err(LevelsError::Duplicate { text: Arc::clone(&level.key) });
            }
            if &*level.key == HOST_KEY && index + 1 != levels.len() {
                return Err(LevelsError::HostNotLast);
            }
        }
        let levels = Self(levels);
        for (index, level) in levels.0.iter().enumerate() {
            let stands_for = match &*level.name {
                HOST_WORD => Some(levels.host()),
                LEAF_WORD => levels.leaf(),
                _ => continue,
            };
            if stands_for != Some(index) {
                return Err(LevelsError::Reserved { name: Arc::clone(&level.name) });
            }
        }
        Ok(levels)
    }

    /// The levels, top to bottom.
    #[must_use]
    pub fn as_slice(&self) -> &[Level] {
        &self.0
    }

    /// How many levels there are, the host included; at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a list of levels is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The level a topology request names: by name, by label key, or by one of the words `leaf` and `host`.
    ///
    /// `leaf` is the deepest network level, and `None` if there is none. A node whose deepest layers are absent has
    /// its deepest present one as its leaf domain, so it satisfies a ask for this level with that domain (see
    /// [`Tree::satisfies`]).
    ///
    /// `tier-1` is the level above the host, `tier-2` the one above that, up to the top: other systems count so. Of
    /// several with commas between them the lowest counts, if all are known.
    #[must_use]
    pub fn resolve(&self, name_or_key: &str) -> Option<LevelIndex> {
        if name_or_key.contains(',') {
            let levels = name_or_key.split(',').map(|one| self.resolve(one.trim()));
            return levels.collect::<Option<Vec<LevelIndex>>>()?.into_iter().max();
        }
        let named = self.0.iter().position(|level| &*level.name == name_or_key || &*level.key == name_or_key);
        named.or_else(|| match name_or_key {
            LEAF_WORD => self.leaf(),
            HOST_WORD => Some(self.host()),
            text => {
                let tier: usize = text.strip_prefix(TIER_PREFIX)?.parse().ok().filter(|tier| *tier > 0)?;
                self.host().checked_sub(tier)
            }
        })
    }

    /// The zone: the default cap. Known by its key, else by the name `zone`; `None` if it is not configured.
    #[must_use]
    pub fn zone(&self) -> Option<LevelIndex> {
        let by_key = self.0.iter().rposition(|level| [ZONE_KEY, ZONE_ID_KEY].contains(&&*level.key));
        by_key.or_else(|| self.0.iter().position(|level| &*level.name == ZONE_WORD))
    }

    /// The last level.
    #[must_use]
    pub fn host(&self) -> LevelIndex {
        self.0.len() - 1
    }

    /// The deepest network level, if there is one.
    #[must_use]
    pub fn leaf(&self) -> Option<LevelIndex> {
        self.network().next_back()
    }

    /// The network levels: everything below the zone and above the host.
    pub fn network(&self) -> std::ops::Range<LevelIndex> {
        let first = self.zone().map_or(0, |zone| zone + 1);
        first.min(self.host())..self.host()
    }
}

impl Default for Levels {
    /// Zone, EC2's four network layers, host.
    fn default() -> Self {
        let layers = ["layer-1", "layer-2", "layer-3", "layer-4"];
        let mut levels = vec![level(ZONE_WORD, ZONE_KEY)];
        levels.extend(layers.into_iter().zip(NETWORK_LAYER_KEYS).map(|(name, key)| level(name, key)));
        levels.push(level(HOST_WORD, HOST_KEY));
        Self(levels)
    }
}

impl TryFrom<Vec<Level>> for Levels {
    type Error = LevelsError;

    fn try_from(levels: Vec<Level>) -> Result<Self, LevelsError> {
        Self::new(levels)
    }
}

impl From<Levels> for Vec<Level> {
    fn from(levels: Levels) -> Self {
        levels.0
    }
}

fn level(name: &str, key: &str) -> Level {
    Level { name: Arc::from(name), key: Arc::from(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_appended_when_missing() {
        let levels = Levels::new(vec![level("zone", ZONE_KEY), level("rack", "example.com/rack")]).unwrap();
        assert_eq!(levels.len(), 3);
        assert_eq!(&*levels.as_slice()[2].key, HOST_KEY);
        assert_eq!(levels.resolve("host"), Some(2));
        assert_eq!(levels.resolve("leaf"), Some(1));
        assert_eq!(levels.resolve("example.com/rack"), Some(1));
        assert_eq!(levels.resolve("block"), None);
    }

    #[test]
    fn the_default_is_zone_four_layers_and_host() {
        let levels = Levels::default();
        assert_eq!(Levels::new(levels.as_slice().to_vec()), Ok(levels.clone()));
        assert_eq!(levels.zone(), Some(0));
        assert_eq!(levels.resolve("leaf"), Some(4));
        assert_eq!(levels.resolve("layer-2"), Some(2));
        assert_eq!(levels.network(), 1..5);
    }

    #[test]
    fn a_tier_counts_from_the_host_and_of_several_levels_the_lowest_counts() {
        let levels = Levels::default();
        assert_eq!(levels.resolve("tier-1"), levels.resolve("layer-4"));
        assert_eq!(levels.resolve("tier-5"), Some(0));
        for unknown in ["tier-6", "tier-0", "tier-", "tier-x"] {
            assert_eq!(levels.resolve(unknown), None, "{unknown}");
        }
        assert_eq!(levels.resolve("layer-3,layer-1"), levels.resolve("layer-3"));
        assert_eq!(levels.resolve("layer-3, rack"), None, "a level that is not known is not passed over");
    }

    #[test]
    fn bad_lists_are_refused() {
        #[track_caller]
        fn check(list: &[(&str, &str)], expected: &LevelsError) {
            let list = list.iter().map(|(name, key)| level(name, key)).collect();
            assert_eq!(Levels::new(list).as_ref(), Err(expected));
        }
        check(&[], &LevelsError::Empty);
        check(&[("a", "")], &LevelsError::Unnamed { index: 0 });
        check(&[("a", "x"), ("a", "y")], &LevelsError::Duplicate { text: "a".into() });
        check(&[("a", "x"), ("b", "x")], &LevelsError::Duplicate { text: "x".into() });
        check(&[("a", "x"), ("x", "y")], &LevelsError::Duplicate { text: "x".into() });
        check(&[("node", HOST_KEY), ("b", "x")], &LevelsError::HostNotLast);
        check(&[("leaf", "x"), ("rack", "y")], &LevelsError::Reserved { name: "leaf".into() });
        check(&[("host", "x"), ("node", HOST_KEY)], &LevelsError::Reserved { name: "host".into() });
        let many: Vec<(String, String)> = (0..16).map(|i| (format!("n{i}"), format!("k{i}"))).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, key)| (name.as_str(), key.as_str())).collect();
        check(&many, &LevelsError::TooMany { count: 17 });
    }

    #[test]
    fn deserialising_validates() {
        let text = r#"[{"name":"node","key":"kubernetes.io/hostname"},{"name":"rack","key":"r"}]"#;
        let error = serde_json::from_str::<Levels>(text).unwrap_err();
        assert!(error.to_string().contains("must be the last"), "{error}");
        let levels = Levels::default();
        let text = serde_json::to_string(&levels).unwrap();
        assert_eq!(serde_json::from_str::<Levels>(&text).unwrap(), levels);
    }

    #[test]
    fn without_a_network_level_there_is_no_leaf() {
        let levels = Levels::new(vec![level("zone", ZONE_KEY)]).unwrap();
        assert_eq!(levels.resolve("leaf"), None);
    }
}
