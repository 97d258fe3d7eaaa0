//! Pieces that many requests and answers share.

use aws_sdk_ec2::types::{Filter, ResourceType, Tag, TagSpecification};
use muster_core::ec2::{CallError, ResourceKind, Tags};

/// One filter per tag, all of which must match; `*` and `?` in a value are wildcards.
pub(crate) fn tag_filters(tags: &Tags) -> Vec<Filter> {
    tags.iter().map(|(key, value)| filter(&format!("tag:{key}"), [value.clone()])).collect()
}

/// A filter any of whose values may match.
pub(crate) fn filter(name: &str, values: impl IntoIterator<Item = String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().collect())).build()
}

/// `None` instead of an empty list: some operations refuse an empty list of filters or ids.
pub(crate) fn some<T>(items: Vec<T>) -> Option<Vec<T>> {
    if items.is_empty() { None } else { Some(items) }
}

pub(crate) fn to_tags(tags: &Tags) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

pub(crate) fn from_tags(tags: &[Tag]) -> Tags {
    tags.iter().filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()))).collect()
}

/// Tags for what a call creates; `None` without tags, since an empty specification is refused.
pub(crate) fn tag_specification(kind: ResourceKind, tags: &Tags) -> Option<TagSpecification> {
    if tags.is_empty() {
        return None;
    }
    let resource_type = ResourceType::from(kind.as_str());
    Some(TagSpecification::builder().resource_type(resource_type).set_tags(Some(to_tags(tags))).build())
}

/// A number of ours as EC2's signed one; what does not fit is refused before anything is sent.
pub(crate) fn signed(operation: &str, what: &str, number: impl Into<u64>) -> Result<i32, CallError> {
    let number = number.into();
    i32::try_from(number).map_err(|_| CallError::refused_here(operation, format!("{what} {number} is too large")))
}

/// A number of EC2's as ours; absent and negative ones are 0.
pub(crate) fn unsigned(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

pub(crate) fn unsigned_long(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

pub(crate) fn text(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// A text, unless absent or empty.
pub(crate) fn present(text: Option<&str>) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}
