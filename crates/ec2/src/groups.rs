//! Placement groups.

use std::sync::PoisonError;

use aws_sdk_ec2::operation::create_placement_group::builders::CreatePlacementGroupInputBuilder;
use aws_sdk_ec2::operation::delete_placement_group::builders::DeletePlacementGroupInputBuilder;
use aws_sdk_ec2::operation::describe_placement_groups::builders::DescribePlacementGroupsInputBuilder;
use aws_sdk_ec2::types::{Placement, PlacementStrategy};
use muster_core::ec2::{CallError, ErrorClass, GroupState, PlacementGroup, ResourceKind, Tags};

use crate::Client;
use crate::convert::{filter, from_tags, tag_filters, tag_specification, text};

const CREATE: &str = "CreatePlacementGroup";
const DESCRIBE: &str = "DescribePlacementGroups";
const DELETE: &str = "DeletePlacementGroup";

/// Which placement groups to describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupQuery {
    /// The one of this name.
    Name(String),
    /// All that carry these tags.
    Tags(Tags),
}

impl Client {
    /// Creates a cluster placement group.
    ///
    /// There is no client token: the name is the idempotency key. [`ErrorClass::AlreadyExists`] means describe it and
    /// adopt it if it carries our batch tag; it may be this very call's first attempt.
    pub async fn create_placement_group(&self, name: &str, tags: &Tags) -> Result<PlacementGroup, CallError> {
        let call = creation(name, tags).send_with(&self.calls);
        let output = Box::pin(call).await.map_err(|error| self.failed(CREATE, error))?;
        let empty = aws_sdk_ec2::types::PlacementGroup::builder().group_name(name).build();
        Ok(group(output.placement_group().unwrap_or(&empty)))
    }

    /// Describes placement groups, in order of name; a name that EC2 does not know gives an empty list.
    pub async fn describe_placement_groups(&self, query: &GroupQuery) -> Result<Vec<PlacementGroup>, CallError> {
        let request = match query {
            GroupQuery::Name(name) => DescribePlacementGroupsInputBuilder::default().group_names(name),
            GroupQuery::Tags(tags) => {
                DescribePlacementGroupsInputBuilder::default().set_filters(Some(tag_filters(tags)))
            }
        };
        self.groups_of(request).await
    }

    /// How a launch names the group of an ARN: by its name, or by its id where another account shares it. A group that is not
    /// found, or not asked for, is named by its name.
    ///
    /// Source: the EC2 User Guide, "Shared placement groups": a participant names a group by its id.
    pub(crate) async fn reference(&self, arn: &str) -> String {
        let known = self.references.lock().unwrap_or_else(PoisonError::into_inner).get(arn).cloned();
        if let Some(known) = known {
            return known;
        }
        let name = arn.rsplit_once('/').map_or(arn, |(_, name)| name);
        let here = || DescribePlacementGroupsInputBuilder::default().filters(filter("group-arn", [arn.to_owned()]));
        self.turns(DESCRIBE).further().next().await;
        let reference = match self.groups_of(here().group_names(name)).await {
            Ok(own) if !own.is_empty() => name.to_owned(),
            Ok(_) => {
                self.turns(DESCRIBE).further().next().await;
                match self.groups_of(here()).await {
                    Ok(shared) => match shared.into_iter().find(|group| is_id(&group.id)) {
                        Some(group) => group.id,
                        None => return name.to_owned(),
                    },
                    Err(_) => return name.to_owned(),
                }
            }
            Err(_) => return name.to_owned(),
        };
        let mut references = self.references.lock().unwrap_or_else(PoisonError::into_inner);
        references.insert(arn.to_owned(), reference.clone());
        reference
    }

    async fn groups_of(&self, request: DescribePlacementGroupsInputBuilder) -> Result<Vec<PlacementGroup>, CallError> {
        match Box::pin(request.send_with(&self.calls)).await.map_err(|error| self.failed(DESCRIBE, error)) {
            Ok(output) => {
                let mut groups: Vec<_> = output.placement_groups().iter().map(group).collect();
                groups.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(groups)
            }
            Err(error) if error.kind == ErrorClass::NotVisibleYet => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Deletes a placement group; one that does not exist counts as deleted. [`ErrorClass::InUse`] means that its
    /// instances are not yet terminated: try again in 5 to 30 seconds.
    pub async fn delete_placement_group(&self, name: &str) -> Result<(), CallError> {
        let call = DeletePlacementGroupInputBuilder::default().group_name(name).send_with(&self.calls);
        match Box::pin(call).await.map_err(|error| self.failed(DELETE, error)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorClass::NotVisibleYet => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The placement of a launch in a group, which is named by its name or by its id.
pub(crate) fn placement(group: &str) -> Placement {
    let placement = Placement::builder();
    let placement = if is_id(group) { placement.group_id(group) } else { placement.group_name(group) };
    placement.build()
}

/// Whether this is the id of a group: `pg-` and 17 digits in base 16.
fn is_id(group: &str) -> bool {
    let digits = group.strip_prefix("pg-").unwrap_or_default();
    digits.len() == 17 && digits.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'a'..=b'f'))
}

pub(crate) fn creation(name: &str, tags: &Tags) -> CreatePlacementGroupInputBuilder {
    CreatePlacementGroupInputBuilder::default()
        .group_name(name)
        .strategy(PlacementStrategy::Cluster)
        .set_tag_specifications(tag_specification(ResourceKind::PlacementGroup, tags).map(|tags| vec![tags]))
}

fn group(group: &aws_sdk_ec2::types::PlacementGroup) -> PlacementGroup {
    PlacementGroup {
        name: text(group.group_name()),
        id: text(group.group_id()),
        state: GroupState::parse(group.state().map_or("", |state| state.as_str())),
        strategy: text(group.strategy().map(PlacementStrategy::as_str)),
        tags: from_tags(group.tags()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_names_a_group_by_its_name_or_by_what_can_only_be_an_id() {
        let named = |group: &str| {
            let placement = placement(group);
            (placement.group_name().map(str::to_owned), placement.group_id().map(str::to_owned))
        };
        let id = "pg-0123456789abcdef0";
        assert_eq!(named(id), (None, Some(id.to_owned())));
        for name in ["theirs", "pg-1", "pg-0123456789abcdef", "pg-0123456789ABCDEF0", "pg-b0000000-1", "pg-", ""] {
            assert_eq!(named(name), (Some(name.to_owned()), None));
        }
    }

    #[test]
    fn a_group_is_created_as_cluster_with_its_tags() {
        let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
        let input = creation("g", &tags).build().unwrap();
        assert_eq!(input.group_name(), Some("g"));
        assert_eq!(input.strategy(), Some(&PlacementStrategy::Cluster));
        let specification = &input.tag_specifications()[0];
        assert_eq!(specification.resource_type().unwrap().as_str(), "placement-group");
        assert_eq!(from_tags(specification.tags()), tags);
    }
}
