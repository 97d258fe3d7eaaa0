//! One network interface of an instance.

use serde::{Deserialize, Serialize};

/// EC2's `InterfaceType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceKind {
    /// IP only.
    Interface,
    /// IP and EFA.
    Efa,
    /// EFA without an address.
    EfaOnly,
}

impl InterfaceKind {
    /// EC2's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Efa => "efa",
            Self::EfaOnly => "efa-only",
        }
    }

    /// Reads EC2's spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Interface, Self::Efa, Self::EfaOnly].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// One interface of a launch template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Network card index.
    pub card: u32,
    /// Device index on the card.
    pub device: u32,
    /// Kind.
    pub kind: InterfaceKind,
    /// Security group ids: with interfaces in the template, groups go in them and nowhere else.
    pub security_groups: Vec<String>,
    /// Whether it goes with the instance. Always true in what Muster builds: a leaked interface blocks its subnet.
    pub delete_on_termination: bool,
}
