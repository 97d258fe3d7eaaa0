//! Names and identifiers: cheap to clone, ordered, and never confused with one another.

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        name!($(#[$doc])* $name, Arc::<str>::from);
    };
    ($(#[$doc:meta])* $name:ident, $wrap:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text as it is; nothing is validated.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text, to be shared.
            #[must_use]
            pub fn text(&self) -> &Arc<str> {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self($wrap(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.as_str())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name!(
    /// `metadata.name` of a Node.
    NodeName
);
name!(
    /// `metadata.uid` of a Pod: the only key a pod has here, since a name can come again.
    PodUid
);
name!(
    /// A resource as in a pod's requests: `cpu`, `memory`, `nvidia.com/gpu`, …
    ResourceName,
    common
);

/// Resources that nearly every pod and node has: each object would keep a copy of their names.
fn common(text: &str) -> Arc<str> {
    static COMMON: LazyLock<[Arc<str>; 6]> = LazyLock::new(|| {
        ["cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu", "vpc.amazonaws.com/efa"].map(Arc::from)
    });
    COMMON.iter().find(|known| &***known == text).map_or_else(|| Arc::from(text), Arc::clone)
}

name!(
    /// An EC2 instance id, `i-…`.
    InstanceId
);

/// Namespace and name of an object, ordered by both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of a namespaced object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}
