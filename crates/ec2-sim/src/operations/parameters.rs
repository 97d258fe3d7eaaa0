//! The part of SSM that reads a parameter: GetParameter, for the images that AWS publishes and those of the scenario.

use serde_json::json;

use crate::fixtures::{DataType, published_image};
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::state::World;

pub(super) fn get(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let Some(name) = call.form.get("Name").filter(|name| !name.is_empty()) else {
        return Err(ApiError::client(
            "ValidationException",
            "1 validation error detected: Value at 'name' failed to satisfy constraint: Member must not be null",
        ));
    };
    let own = world.scenario.images.iter().find(|image| image.path.as_deref() == Some(name));
    let own = own.map(|image| (image.id.clone(), DataType::Image));
    let Some((image, data_type)) = own.or_else(|| published_image(name)) else {
        return Err(ApiError::client("ParameterNotFound", format!("Parameter {name} not found.")));
    };
    // From now on the id itself is known too.
    world.resolved_images.insert(image.clone());
    let owner = if name.starts_with("/aws/service/") { "" } else { world.scenario.account.as_str() };
    Ok(Reply::json(json!({"Parameter": {
        "ARN": format!("arn:aws:ssm:{}:{owner}:parameter{name}", world.scenario.region),
        "DataType": data_type.name(),
        "LastModifiedDate": world.origin.as_second(),
        "Name": name,
        "Type": "String",
        "Value": image,
        "Version": 1,
    }})))
}
