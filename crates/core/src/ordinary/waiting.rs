//! A pod that a round looks at.

use std::sync::Arc;

use crate::model::gang::Pod;
use crate::packing::Class;

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its class with every preference kept first, then with one less at a time; the last has only what is required. Pods that are
    /// alike had better share one: it is looked at once for all of them.
    pub ladder: Arc<[Class]>,
}
