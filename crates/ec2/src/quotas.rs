//! Quotas of the account, from Service Quotas.

use aws_sdk_servicequotas::operation::get_aws_default_service_quota::builders::GetAwsDefaultServiceQuotaInputBuilder;
use aws_sdk_servicequotas::operation::get_service_quota::builders::GetServiceQuotaInputBuilder;
use aws_sdk_servicequotas::types::ServiceQuota;
use muster_core::ec2::CallError;

use crate::Client;
use crate::error::failure;

const GET: &str = "GetServiceQuota";
const DEFAULT: &str = "GetAWSDefaultServiceQuota";
const SERVICE: &str = "ec2";
/// The answer where a quota has no value of the account's own.
const NONE_APPLIED: &str = "NoSuchResourceException";

impl Client {
    /// Virtual CPUs that the account may have in use at once under a quota of EC2, `L-417A185B`, in the client's Region: the value
    /// that was granted, else AWS's default.
    ///
    /// Errors: those of the call.
    pub async fn vcpu_quota(&self, code: &str) -> Result<u32, CallError> {
        let call = GetServiceQuotaInputBuilder::default().service_code(SERVICE).quota_code(code);
        let answer = Box::pin(call.send_with(&self.quotas)).await;
        match answer.map_err(|error| failure(&self.quotas_endpoint, GET, error)) {
            Ok(output) => value(GET, code, output.quota()),
            Err(error) if error.code.as_deref() == Some(NONE_APPLIED) => self.default_quota(code).await,
            Err(error) => Err(error),
        }
    }

    async fn default_quota(&self, code: &str) -> Result<u32, CallError> {
        let call = GetAwsDefaultServiceQuotaInputBuilder::default().service_code(SERVICE).quota_code(code);
        let answer = Box::pin(call.send_with(&self.quotas)).await;
        value(DEFAULT, code, answer.map_err(|error| failure(&self.quotas_endpoint, DEFAULT, error))?.quota())
    }
}

/// Whole virtual CPUs: the API has fractions for every quota.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the bounds are checked before")]
fn value(operation: &str, code: &str, quota: Option<&ServiceQuota>) -> Result<u32, CallError> {
    match quota.and_then(ServiceQuota::value) {
        Some(value) if (0.0..=f64::from(u32::MAX)).contains(&value) => Ok(value as u32),
        answer => Err(CallError::refused_here(operation, format!("quota {code} has the value {answer:?}"))),
    }
}
