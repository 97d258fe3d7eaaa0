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
            attempt: text("amz-sdk-request").and_then(|v| {
                v.split(';').find_map(|part| part.trim().strip_prefix("attempt=")).and_then(|n| n.parse().ok())
            }),
            user_agent: text("user-agent").map(str::to_owned),
        }
    }
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
    if let Some(rest) = path.strip_prefix("/clusters/").filter(|_| *method == Method::GET) {
        let mut form = Form::default();
        match rest.split_once("/access-entries/") {
            Some((name, principal)) if !principal.contains('/') => {
                form.insert("name", name);
                form.insert("principalArn", &percent_decoded(principal));
                return (Service::Eks, "DescribeAccessEntry".to_owned(), form);
            }
            None if !rest.contains('/') => {
                form.insert("name", rest);
                return (Service::Eks, "DescribeCluster".to_owned(), form);
            }
            Some(_) | None => {}
        }
    }
    let operation = if path == "/" { String::new() } else { format!("{method} {path}") };
    (Service::Ec2, operation, form)
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
