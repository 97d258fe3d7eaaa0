//! Filters and pages of the Describe calls.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::protocol::wild::wild;

/// The filters of a call: any of the values of each of them has to match.
#[derive(Debug)]
pub(crate) struct Filters(Vec<(String, Vec<String>)>);

impl Filters {
    /// Reads `Filter.N`.
    ///
    /// # Errors
    /// `InvalidParameterValue` for a name that the operation does not know; `tag:*` and `tag-key`
    /// are always known.
    pub(crate) fn parse(form: &Form, known: &[&str]) -> Result<Self, ApiError> {
        let mut filters = Vec::new();
        for filter in form.structs("Filter") {
            let name = filter.required("Name")?;
            if !known.contains(&name) && name != "tag-key" && !name.starts_with("tag:") {
                return Err(ApiError::client("InvalidParameterValue", format!("The filter '{name}' is invalid")));
            }
            filters.push((name.to_owned(), filter.list("Value")));
        }
        Ok(Self(filters))
    }

    /// Whether a resource passes; `value` gives its value for a known name.
    pub(crate) fn pass<'a>(&self, tags: &BTreeMap<String, String>, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|(name, patterns)| {
            let any = |text: &str| patterns.iter().any(|p| wild(p, text));
            if name == "tag-key" {
                tags.keys().any(|key| any(key))
            } else if let Some(key) = name.strip_prefix("tag:") {
                tags.get(key).is_some_and(|v| any(v))
            } else {
                value(name).is_some_and(any)
            }
        })
    }
}

/// Cuts one page out of the results.
///
/// # Errors
/// `InvalidParameterValue` for a `MaxResults` outside of `allowed` or a token that is none of ours.
pub(crate) fn page<T>(
    form: &Form,
    results: Vec<T>,
    allowed: RangeInclusive<u32>,
    default: Option<u32>,
) -> Result<(Vec<T>, Option<String>), ApiError> {
    let given = form.number("MaxResults")?;
    if let Some(given) = given
        && !allowed.contains(&given)
    {
        return Err(ApiError::value("MaxResults", &given.to_string()));
    }
    let start: usize = match form.get("NextToken") {
        None => 0,
        Some(token) => token
            .strip_prefix(TOKEN_PREFIX)
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| ApiError::client("InvalidNextToken", "The token is invalid."))?,
    };
    let size = given.or(default).map_or(usize::MAX, |n| n as usize);
    let end = start.saturating_add(size);
    let more = end < results.len();
    let page = results.into_iter().skip(start).take(size).collect();
    Ok((page, more.then(|| format!("{TOKEN_PREFIX}{end}"))))
}

const TOKEN_PREFIX: &str = "page-from-";
