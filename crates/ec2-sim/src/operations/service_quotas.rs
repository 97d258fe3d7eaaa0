//! The part of Service Quotas that a new account needs: GetServiceQuota, GetAWSDefaultServiceQuota and
//! RequestServiceQuotaIncrease, for the quotas of virtual CPUs. Source: the Service Quotas API reference; codes from "Amazon EC2
//! service quotas" of the user guide.

use serde_json::{Value, json};

use crate::choices::QuotaValue;
use crate::operations::{Call, Reply};
use crate::protocol::error::ApiError;
use crate::quota;
use crate::state::World;

/// What a quota that the scenario does not limit is shown as, in virtual CPUs.
const WITHOUT_A_LIMIT: u32 = 100_000;

struct Found<'a> {
    code: &'a str,
    quota: &'static str,
    arn: String,
}

fn find<'a>(world: &World, call: &Call<'a>) -> Result<Found<'a>, ApiError> {
    let service = call.form.required("ServiceCode")?;
    let code = call.form.required("QuotaCode")?;
    let quota = quota::of_code(code).filter(|_| service == "ec2").ok_or_else(none)?;
    let scenario = &world.scenario;
    let arn = format!("arn:aws:servicequotas:{}:{}:ec2/{code}", scenario.region, scenario.account);
    Ok(Found { code, quota, arn })
}

fn none() -> ApiError {
    ApiError::client("NoSuchResourceException", "The request failed because the specified quota does not exist.")
}

fn common(found: &Found<'_>) -> Value {
    json!({
        "GlobalQuota": false,
        "QuotaArn": found.arn,
        "QuotaCode": found.code,
        "QuotaName": format!("Running instances: {}", found.quota),
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "Unit": "None",
    })
}

pub(super) fn get(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let found = find(world, call)?;
    match world.scenario.choices.quota_value {
        QuotaValue::Applied => Ok(value(world, &found)),
        QuotaValue::DefaultAlone => Err(none()),
    }
}

pub(super) fn get_default(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    Ok(value(world, &find(world, call)?))
}

fn value(world: &World, found: &Found<'_>) -> Reply {
    let mut quota = common(found);
    quota["Adjustable"] = true.into();
    quota["Value"] = f64::from(*world.scenario.quotas.get(found.quota).unwrap_or(&WITHOUT_A_LIMIT)).into();
    Reply::json(json!({"Quota": quota}))
}

/// It is asked for, and not granted.
pub(super) fn request_increase(world: &mut World, call: &Call<'_>) -> Result<Reply, ApiError> {
    let found = find(world, call)?;
    let desired: f64 = call
        .form
        .required("DesiredValue")?
        .parse()
        .map_err(|_| ApiError::client("IllegalArgumentException", "The desired value is no number."))?;
    let mut requested = common(&found);
    requested["Id"] = world.ids.uuid().into();
    requested["DesiredValue"] = desired.into();
    requested["Status"] = "PENDING".into();
    requested["Created"] = world.origin.as_second().into();
    requested["Requester"] = json!({"accountId": world.scenario.account}).to_string().into();
    Ok(Reply::json(json!({"RequestedQuota": requested})))
}
