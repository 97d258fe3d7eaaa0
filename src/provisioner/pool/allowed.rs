//! Which instance types each pool allows: asked for at every change of the cluster, and found out only when the pool's
//! spec or the catalogue has changed. A Region sells over a thousand types.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Names of allowed types by pool, each with what it was found out from.
#[derive(Debug, Default)]
pub(in crate::provisioner) struct Allowed(Mutex<BTreeMap<String, Known>>);

type Known = (Seen, Arc<Vec<String>>);

/// What the types of a pool follow from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::provisioner) struct Seen {
    pub(in crate::provisioner) uid: String,
    pub(in crate::provisioner) generation: i64,
    /// Counts up with every reading of the catalogue.
    pub(in crate::provisioner) catalogue: u64,
}

impl Allowed {
    /// The types of `pool`, by `scan` unless they are known for what is `seen`.
    pub(in crate::provisioner) fn get(
        &self,
        pool: &str,
        seen: &Seen,
        scan: impl FnOnce() -> Vec<String>,
    ) -> Arc<Vec<String>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(pool).cloned();
        if let Some((of, types)) = known
            && of == *seen
        {
            return types;
        }
        let types = Arc::new(scan());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(pool.to_owned(), (seen.clone(), Arc::clone(&types)));
        types
    }

    /// Forgets pools that are gone.
    pub(in crate::provisioner) fn keep(&self, exists: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|pool, _| exists(pool));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn types_are_scanned_once_for_each_spec_of_a_pool_and_each_reading_of_the_catalogue() {
        let (allowed, scans) = (Allowed::default(), Cell::new(0));
        let ask = |pool: &str, generation, catalogue| {
            let seen = Seen { uid: "u".to_owned(), generation, catalogue };
            allowed.get(pool, &seen, || {
                scans.set(scans.get() + 1);
                vec![format!("{pool}-{generation}-{catalogue}")]
            })
        };
        for _ in 0..1000 {
            assert_eq!(*ask("a", 1, 1), ["a-1-1"]);
            assert_eq!(*ask("b", 1, 1), ["b-1-1"]);
        }
        assert_eq!(scans.get(), 2, "a thousand ticks");
        assert_eq!(*ask("a", 2, 1), ["a-2-1"]);
        assert_eq!(*ask("b", 1, 2), ["b-1-2"]);
        assert_eq!(scans.get(), 4, "what changed is found out again, and nothing else");
        allowed.keep(|pool| pool == "a");
        assert_eq!(*ask("a", 2, 1), ["a-2-1"]);
        assert_eq!(scans.get(), 4);
        let _ = ask("b", 1, 2);
        assert_eq!(scans.get(), 5);
    }
}
