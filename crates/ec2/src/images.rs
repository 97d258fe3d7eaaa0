//! Machine images.

use aws_sdk_ec2::operation::describe_images::builders::DescribeImagesInputBuilder;
use aws_sdk_ec2::operation::describe_launch_template_versions::builders::DescribeLaunchTemplateVersionsInputBuilder;
use muster_core::ec2::{CallError, CapacityType, Image, MetadataOptions, Tags, TemplateSpec};

use crate::Client;
use crate::convert::{filter, some, tag_filters, text};

const DESCRIBE: &str = "DescribeImages";
const RESOLVE: &str = "DescribeLaunchTemplateVersions";

/// Where an image is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// By id: nothing to resolve.
    Id(String),
    /// By an SSM parameter, `/aws/service/eks/optimized-ami/…/image_id`.
    SsmParameter(String),
}

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
    /// The AMI id behind a source.
    ///
    /// A parameter is resolved by EC2 itself: a template that holds `resolve:ssm:<path>` is made (or found; it is named
    /// by its content and carries `template_tags`) and read back with `ResolveAlias`. So Muster needs no SSM client. The
    /// template stays for the next resolution.
    pub async fn resolve_image(&self, source: &ImageSource, template_tags: &Tags) -> Result<String, CallError> {
        let path = match source {
            ImageSource::Id(id) => return Ok(id.clone()),
            ImageSource::SsmParameter(path) => path,
        };
        let template = self.create_launch_template(&resolver(path, template_tags)).await?;
        let call = DescribeLaunchTemplateVersionsInputBuilder::default()
            .launch_template_id(&template.id)
            .versions(template.latest_version.to_string())
            .resolve_alias(true)
            .send_with(&self.calls);
        let output = Box::pin(call).await.map_err(|error| self.failed(RESOLVE, error))?;
        let data = output.launch_template_versions().first().and_then(|version| version.launch_template_data());
        match data.and_then(|data| data.image_id()) {
            Some(id) if id.starts_with("ami-") => Ok(id.to_owned()),
            answer => {
                let answer = answer.unwrap_or("nothing");
                Err(CallError::refused_here(RESOLVE, format!("parameter {path} resolves to {answer}, not to an image")))
            }
        }
    }

    /// Describes images, newest first, then by id.
    pub async fn describe_images(&self, query: &ImageQuery) -> Result<Vec<Image>, CallError> {
        let call = images(query).send_with(&self.calls);
        let output = Box::pin(call).await.map_err(|error| self.failed(DESCRIBE, error))?;
        let mut images: Vec<_> = output.images().iter().map(image).collect();
        images.sort_by(|one, other| other.created.cmp(&one.created).then_with(|| one.id.cmp(&other.id)));
        Ok(images)
    }
}

fn resolver(path: &str, template_tags: &Tags) -> TemplateSpec {
    TemplateSpec {
        image_id: format!("resolve:ssm:{path}"),
        instance_profile: String::new(),
        network_interfaces: Vec::new(),
        subnet_id: None,
        public_address: None,
        metadata: MetadataOptions::default(),
        user_data: String::new(),
        block_devices: Vec::new(),
        detailed_monitoring: false,
        capacity_type: CapacityType::OnDemand,
        template_tags: template_tags.clone(),
        resource_tags: Tags::new(),
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
