//! What the terms of an EC2NodeClass ask EC2 for.

use muster_api::crd::{AmiSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm};
use muster_ec2::{ImageQuery, NetworkQuery};

/// The subnets of a term.
pub(crate) fn subnets(term: &SubnetSelectorTerm) -> NetworkQuery {
    term.id.clone().map_or_else(|| NetworkQuery::Tags(term.tags.clone()), NetworkQuery::Id)
}

/// The security groups of a term.
pub(crate) fn security_groups(term: &SecurityGroupSelectorTerm) -> NetworkQuery {
    match (&term.id, &term.name) {
        (Some(id), _) => NetworkQuery::Id(id.clone()),
        (None, Some(name)) => NetworkQuery::Name(name.clone()),
        (None, None) => NetworkQuery::Tags(term.tags.clone()),
    }
}

/// The images of a term by name, owner or tags.
pub(crate) fn images(term: &AmiSelectorTerm) -> ImageQuery {
    ImageQuery {
        ids: Vec::new(),
        names: term.name.iter().cloned().collect(),
        owners: term.owner.clone().map_or_else(|| vec!["self".to_owned(), "amazon".to_owned()], |owner| vec![owner]),
        tags: term.tags.clone(),
    }
}
