//! A request of any of the services on the port: whose operation it is, and with what parameters.

use axum::http::{HeaderMap, Method};
use serde_json::Value;

use crate::protocol::form::Form;

/// The services played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Ec2,
    Sqs,
    Sts,
    Iam,
    Eks,
    Ssm,
    Pricing,
    Quotas,
}

impl Service {
    /// As ARNs and policies spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Sqs => "sqs",
            Self::Sts => "sts",
            Self::Iam => "iam",
            Self::Eks => "eks",
            Self::Ssm => "ssm",
            Self::Pricing => "pricing",
            Self::Quotas => "servicequotas",
        }
    }
}

/// A request as far as the protocol is concerned.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) service: Service,
    pub(crate) operation: String,
    pub(crate) form: Form,
    /// As it came.
    pub(crate) body: String,
    pub(crate) host: String,
    pub(crate) signed: bool,
    /// Whose signature it is.
    pub(crate) access_key: Option<String>,
    pub(crate) attempt: Option<u32>,
    pub(crate) user_agent: Option<String>,
}

impl Request {
    /// What the cloud controller asks about each new node.
    pub(crate) fn of_the_cloud_controller(instance: &str) -> Self {
        let mut form = Form::default();
        form.insert("InstanceId.1", instance);
        Self {
            service: Service::Ec2,
            operation: "DescribeInstanceTopology".to_owned(),
            form,
            body: String::new(),
            host: String::new(),
            signed: true,
            access_key: None,
            attempt: Some(1),
            user_agent: Some("cloud-controller-manager".to_owned()),
        }
    }

    /// Reads the target header first, then the form's `Action`, then the path.
    pub(crate) fn read(method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        let (service, operation, form) = dispatch(method, path, text("x-amz-target"), body);
        Self {
            service,
            operation,
            form,
            body: String::from_utf8_lossy(body).into_owned(),
            host: text("host").unwrap_or("127.0.0.1").to_owned(),
            signed: text("authorization").is_some_and(|v| v.starts_with("AWS4-")),
            access_key: text("authorization").and_then(access_key),
            attempt: text("amz-sdk-request").and_then(|v| {
                v.split(';').find_map(|part| part.trim().strip_prefix("attempt=")).and_then(|n| n.parse().ok())
            }),
            user_agent: text("user-agent").map(str::to_owned),
        }
    }
}

/// `AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/ec2/aws4_request, SignedHeaders=…`
fn access_key(authorization: &str) -> Option<String> {
    let credential = authorization.split_once("Credential=")?.1;
    credential.split('/').next().filter(|key| !key.is_empty()).map(str::to_owned)
}

fn dispatch(method: &Method, path: &str, target: Option<&str>, body: &[u8]) -> (Service, String, Form) {
    if let Some(target) = target {
        let mut form = Form::default();
        if let Ok(json) = serde_json::from_slice(body) {
            flatten(&mut form, "", &json);
        }
        if let Some(operation) = target.strip_prefix("AmazonSSM.") {
            return (Service::Ssm, operation.to_owned(), form);
        }
        if let Some(operation) = target.strip_prefix("AWSPriceListService.") {
            return (Service::Pricing, operation.to_owned(), form);
        }
        if let Some(operation) = target.strip_prefix("ServiceQuotasV20190624.") {
            return (Service::Quotas, operation.to_owned(), form);
        }
        // A service that is not played is named by the whole target.
        let operation = target.strip_prefix("AmazonSQS.").unwrap_or(target);
        return (Service::Sqs, operation.to_owned(), form);
    }
    let mut form = Form::parse(body);
    if let Some(operation) = form.remove("Action") {
        let version = form.remove("Version");
        let service = match (operation.as_str(), version.as_deref()) {
            ("GetCallerIdentity", _) | (_, Some("2011-06-15")) => Service::Sts,
            ("GetInstanceProfile", _) | (_, Some("2010-05-08")) => Service::Iam,
            _ => Service::Ec2,
        };
        return (service, operation, form);
    }
    if let Some((operation, form)) = path.strip_prefix("/clusters/").and_then(|rest| eks(method, rest, body)) {
        return (Service::Eks, operation.to_owned(), form);
    }
    let operation = if path == "/" { String::new() } else { format!("{method} {path}") };
    (Service::Ec2, operation, form)
}

/// An operation of EKS by what of the path stands below `/clusters/`.
fn eks(method: &Method, path: &str, body: &[u8]) -> Option<(&'static str, Form)> {
    let segments: Vec<&str> = path.split('/').collect();
    let mut form = Form::default();
    form.insert("name", segments.first()?);
    let operation = match (method.as_str(), segments.as_slice()) {
        ("GET", [_]) => "DescribeCluster",
        ("GET", [_, "access-entries", principal]) => {
            form.insert("principalArn", &percent_decoded(principal));
            "DescribeAccessEntry"
        }
        ("GET", [_, "addons", addon]) => {
            form.insert("addonName", addon);
            "DescribeAddon"
        }
        ("POST", [_, "addons"]) => {
            flatten(&mut form, "", &serde_json::from_slice(body).ok()?);
            "CreateAddon"
        }
        _ => return None,
    };
    Some((operation, form))
}

/// A segment of a path: its sender escapes what is none, blanks included.
fn percent_decoded(segment: &str) -> String {
    form_urlencoded::parse(segment.as_bytes()).next().map_or_else(String::new, |(text, _)| text.into_owned())
}

/// JSON as the form that a query protocol would have sent.
fn flatten(form: &mut Form, name: &str, json: &Value) {
    let below = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
    match json {
        Value::Null => {}
        Value::Bool(flag) => form.insert(name, &flag.to_string()),
        Value::Number(number) => form.insert(name, &number.to_string()),
        Value::String(text) => form.insert(name, text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten(form, &below(&(index + 1).to_string()), item);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                flatten(form, &below(key), value);
            }
        }
    }
}
