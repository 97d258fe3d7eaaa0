//! Machine images.

use aws_sdk_ec2::operation::describe_images::builders::DescribeImagesInputBuilder;
use muster_core::ec2::{CallError, Image, Tags};

use crate::Client;
use crate::convert::{filter, some, tag_filters, text};

const DESCRIBE: &str = "DescribeImages";

/// Which images to describe; empty fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageQuery {
    /// Ids.
    pub ids: Vec<String>,
    /// Names, wildcards allowed.
    pub names: Vec<String>,
    /// Owners: account ids, `self`, `amazon`.
    pub owners: Vec<String>,
    /// Tags.
    pub tags: Tags,
}

impl Client {
    /// Describes images, newest first, then by id.
    pub async fn describe_images(&self, query: &ImageQuery) -> Result<Vec<Image>, CallError> {
        let call = images(query).send_with(&self.calls);
        let output = Box::pin(call).await.map_err(|error| self.failed(DESCRIBE, error))?;
        let mut images: Vec<_> = output.images().iter().map(image).collect();
        images.sort_by(|one, other| other.created.cmp(&one.created).then_with(|| one.id.cmp(&other.id)));
        Ok(images)
    }
}

fn images(query: &ImageQuery) -> DescribeImagesInputBuilder {
    let mut filters = tag_filters(&query.tags);
    if !query.names.is_empty() {
        filters.push(filter("name", query.names.iter().cloned()));
    }
    DescribeImagesInputBuilder::default()
        .set_image_ids(some(query.ids.clone()))
        .set_owners(some(query.owners.clone()))
        .set_filters(some(filters))
}

fn image(image: &aws_sdk_ec2::types::Image) -> Image {
    Image {
        id: text(image.image_id()),
        name: text(image.name()),
        architecture: text(image.architecture().map(|architecture| architecture.as_str())),
        created: text(image.creation_date()),
    }
}
