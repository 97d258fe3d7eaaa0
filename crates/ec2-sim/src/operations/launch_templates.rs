//! CreateLaunchTemplate, DescribeLaunchTemplates, DescribeLaunchTemplateVersions,
//! DeleteLaunchTemplate.

use crate::fixtures::{DataType, published_image};
use crate::operations::filters::{Filters, page};
use crate::operations::{Call, Reply, templates_data};
use crate::protocol::error::ApiError;
use crate::protocol::form::Form;
use crate::protocol::xml::Xml;
use crate::state::World;
use crate::state::templates::Template;
use crate::state::tokens::TokenUse;

/// User data at most, before base64.
const USER_DATA_LIMIT: usize = 16 * 1024;

pub(super) fn create(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let name = call.form.required("LaunchTemplateName")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || "()./_-".contains(c);
    if !(3..=128).contains(&name.len()) || !name.chars().all(legal) {
        return Err(ApiError::client(
            "InvalidLaunchTemplateName.MalformedException",
            format!("Launch template name {name} must have 3 to 128 characters of a-z, A-Z, 0-9, ( ) . / _ -"),
        ));
    }
    let data = call.form.sub("LaunchTemplateData");
    if data.is_empty() {
        return Err(ApiError::missing("LaunchTemplateData"));
    }
    if let Some(user_data) = data.get("UserData") {
        check_user_data(user_data)?;
    }
    let reserved = data.sub("CapacityReservationSpecification");
    if reserved.get("CapacityReservationPreference").is_some() && reserved.has("CapacityReservationTarget") {
        return Err(ApiError::client(
            world.scenario.choices.refusal.code(),
            "A launch template takes only one of CapacityReservationPreference and CapacityReservationTarget",
        ));
    }
    let token = call.form.get("ClientToken");
    if let Some(token) = token {
        let life = world.scenario.choices.token_life_seconds;
        if let Some(used) = world.tokens.find("CreateLaunchTemplate", "", token, life, call.now) {
            if used.parameters != call.form.identity() {
                return Err(mismatch());
            }
            // A template deleted since then is made again: the token's result is gone.
            if let Some(template) = world.templates.get(&used.made) {
                let mut reply = answer(template, world);
                reply.replayed = true;
                return Ok(reply);
            }
        }
    }
    if world.templates.values().any(|t| t.name == name) {
        return Err(ApiError::client(
            "InvalidLaunchTemplateName.AlreadyExistsException",
            format!("Launch template name already in use: {name}"),
        ));
    }
    let template = Template {
        id: world.ids.resource("lt"),
        name: name.to_owned(),
        created_at: call.now,
        tags: call.form.tags_for("launch-template"),
        data,
        visible_at: call.visible_at(),
        description: call.form.get("VersionDescription").map(str::to_owned),
    };
    if let Some(token) = token {
        let used = TokenUse { parameters: call.form.identity(), made: template.id.clone(), at: call.now };
        world.tokens.store("CreateLaunchTemplate", "", token, used);
    }
    let reply = answer(&template, world).about(template.id.clone());
    world.templates.insert(template.id.clone(), template);
    Ok(reply)
}

pub(super) fn describe(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let filters = Filters::parse(call.form, &["launch-template-name", "create-time"])?;
    let ids = call.form.list("LaunchTemplateId");
    let names = call.form.list("LaunchTemplateName");
    let seen = |t: &Template| t.visible_at <= call.now;
    for id in &ids {
        if !world.templates.get(id).is_some_and(seen) {
            return Err(unknown_id(id));
        }
    }
    for name in &names {
        if !world.templates.values().any(|t| t.name == *name && seen(t)) {
            return Err(unknown_name(name));
        }
    }
    let found: Vec<&Template> = world
        .templates
        .values()
        .filter(|t| {
            seen(t)
                && (ids.is_empty() || ids.contains(&t.id))
                && (names.is_empty() || names.contains(&t.name))
                && filters.pass(&t.tags, |filter| match filter {
                    "launch-template-name" => Some(&t.name),
                    _ => None,
                })
        })
        .collect();
    let (found, next) = page(call.form, found, 1..=200, None)?;
    let mut xml = Xml::new();
    xml.list("launchTemplates", found, |xml, t| write(xml, t, world));
    xml.optional("nextToken", next.as_deref());
    Ok(Reply::of(xml))
}

pub(super) fn versions(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let wanted = call.form.list("LaunchTemplateVersion");
    let template = find(world, call.form)?.clone();
    for version in &wanted {
        check_version(&template, version)?;
    }
    let mut data = template.data.clone();
    if call.form.flag("ResolveAlias")?
        && let Some(image) = data.get("ImageId")
    {
        let image = resolve(world, image)?;
        data.insert("ImageId", &image);
        // From now on the id itself is known too.
        world.resolved_images.insert(image);
    }
    let mut xml = Xml::new();
    xml.list("launchTemplateVersionSet", [&template], |xml, t| {
        xml.text("launchTemplateId", &t.id);
        xml.text("launchTemplateName", &t.name);
        xml.number("versionNumber", 1);
        xml.optional("versionDescription", t.description.as_deref());
        xml.time("createTime", t.created_at);
        xml.text("createdBy", &world.creator());
        xml.flag("defaultVersion", true);
        xml.node("launchTemplateData", |xml| templates_data::write(xml, &data));
    });
    Ok(Reply::of(xml))
}

pub(super) fn delete(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let id = find(world, call.form)?.id.clone();
    let Some(template) = world.templates.remove(&id) else {
        return Err(unknown_id(&id));
    };
    Ok(answer(&template, world).about(id))
}

/// The template that `LaunchTemplateId` or `LaunchTemplateName` of a structure names.
///
/// # Errors
/// The not-found codes, or the refusal of none or both.
pub(super) fn find<'a>(world: &'a World, form: &Form) -> Result<&'a Template, ApiError> {
    let seen = |t: &&Template| t.visible_at <= world.now;
    match (form.get("LaunchTemplateId"), form.get("LaunchTemplateName")) {
        (Some(id), None) => world.templates.get(id).filter(seen).ok_or_else(|| unknown_id(id)),
        (None, Some(name)) => {
            world.templates.values().filter(seen).find(|t| t.name == name).ok_or_else(|| unknown_name(name))
        }
        (None, None) => Err(ApiError::missing("LaunchTemplateId")),
        (Some(_), Some(_)) => Err(ApiError::client(
            "InvalidParameterCombination",
            "Only one of launch template id and launch template name may be specified",
        )),
    }
}

/// # Errors
/// `InvalidLaunchTemplateId.VersionNotFound`.
pub(super) fn check_version(template: &Template, version: &str) -> Result<(), ApiError> {
    if matches!(version, "1" | "$Latest" | "$Default") {
        return Ok(());
    }
    Err(ApiError::client(
        "InvalidLaunchTemplateId.VersionNotFound",
        format!("Could not find launch template version {version} for template {}", template.id),
    ))
}

/// The image id behind what a request names.
///
/// # Errors
/// `InvalidAMIID.NotFound`, `InvalidAMIID.Malformed`, or `InvalidParameterValue` for an unknown path.
pub(super) fn resolve(world: &World, image: &str) -> Result<String, ApiError> {
    if let Some(path) = image.strip_prefix("resolve:ssm:") {
        let own = world.scenario.images.iter().find(|i| i.path.as_deref() == Some(path));
        let refused = |why: &str| ApiError::client("InvalidParameterValue", format!("The SSM parameter {path} {why}"));
        return match own.map(|i| (i.id.clone(), DataType::Image)).or_else(|| published_image(path)) {
            Some((image, DataType::Image)) => Ok(image),
            Some((_, DataType::Text)) => Err(refused("does not have the data type aws:ec2:image")),
            None => Err(refused("cannot be found")),
        };
    }
    if !image.starts_with("ami-") {
        return Err(ApiError::client(
            "InvalidAMIID.Malformed",
            format!("Invalid id: \"{image}\" (expecting \"ami-...\")"),
        ));
    }
    let known = world.scenario.images.iter().any(|i| i.id == image) || world.resolved_images.contains(image);
    if known {
        Ok(image.to_owned())
    } else {
        Err(ApiError::client("InvalidAMIID.NotFound", format!("The image id '[{image}]' does not exist")))
    }
}

pub(super) fn check_user_data(base64: &str) -> Result<(), ApiError> {
    let malformed = || ApiError::client("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.");
    let body = base64.trim_end_matches('=');
    let legal = base64.len().is_multiple_of(4)
        && base64.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
    if !legal {
        return Err(malformed());
    }
    if body.len() * 3 / 4 > USER_DATA_LIMIT {
        return Err(ApiError::client(
            "InvalidParameterValue",
            format!("User data is limited to {USER_DATA_LIMIT} bytes"),
        ));
    }
    Ok(())
}

pub(super) fn mismatch() -> ApiError {
    ApiError::client(
        "IdempotentParameterMismatch",
        "The client token you have provided is associated with a different request. You cannot use the same client token with different parameters.",
    )
}

fn answer(template: &Template, world: &World) -> Reply {
    let mut xml = Xml::new();
    xml.node("launchTemplate", |xml| write(xml, template, world));
    Reply::of(xml)
}

fn write(xml: &mut Xml, template: &Template, world: &World) {
    xml.text("launchTemplateId", &template.id);
    xml.text("launchTemplateName", &template.name);
    xml.time("createTime", template.created_at);
    xml.text("createdBy", &world.creator());
    xml.number("defaultVersionNumber", 1);
    xml.number("latestVersionNumber", 1);
    xml.tags(&template.tags);
}

fn unknown_id(id: &str) -> ApiError {
    ApiError::client(
        "InvalidLaunchTemplateId.NotFound",
        format!("The specified launch template, with template ID {id}, does not exist."),
    )
}

fn unknown_name(name: &str) -> ApiError {
    ApiError::client(
        "InvalidLaunchTemplateName.NotFoundException",
        format!("At least one of the launch templates specified in the request does not exist: {name}"),
    )
}
