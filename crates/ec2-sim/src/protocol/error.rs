//! Errors as the service answers them: a code, a message and an HTTP status.

use crate::protocol::xml::Xml;

/// A refused or failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl ApiError {
    /// The client's fault: status 400.
    pub(crate) fn client(code: &str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    /// Any status.
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into() }
    }

    pub(crate) fn missing(parameter: &str) -> Self {
        Self::client("MissingParameter", format!("The request must contain the parameter {parameter}"))
    }

    pub(crate) fn value(parameter: &str, value: &str) -> Self {
        Self::client("InvalidParameterValue", format!("Value ({value}) for parameter {parameter} is invalid."))
    }

    pub(crate) fn throttled() -> Self {
        Self::new(503, "RequestLimitExceeded", "Request limit exceeded.")
    }

    pub(crate) fn no_capacity(instance_type: &str, zone: &str) -> Self {
        // RunInstances lists this among the server errors; CreateFleet puts it into `errorSet`.
        Self::new(500, "InsufficientInstanceCapacity", no_capacity_text(instance_type, zone))
    }

    /// The body of EC2.
    pub(crate) fn to_xml(&self, request_id: &str) -> String {
        let mut xml = Xml::document();
        xml.node("Response", |xml| {
            xml.node("Errors", |xml| {
                xml.node("Error", |xml| {
                    xml.text("Code", &self.code);
                    xml.text("Message", &self.message);
                });
            });
            xml.text("RequestID", request_id);
        });
        xml.finish()
    }

    /// The body of STS and the other plain query services.
    pub(crate) fn to_query_xml(&self, request_id: &str) -> String {
        let mut xml = Xml::document();
        xml.node("ErrorResponse", |xml| {
            xml.node("Error", |xml| {
                xml.text("Type", if self.status < 500 { "Sender" } else { "Receiver" });
                xml.text("Code", &self.code);
                xml.text("Message", &self.message);
            });
            xml.text("RequestId", request_id);
        });
        xml.finish()
    }
}

/// The wording of a pool without capacity.
pub(crate) fn no_capacity_text(instance_type: &str, zone: &str) -> String {
    format!(
        "We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested ({zone}). Our system will be working on provisioning additional capacity."
    )
}

/// Whether a code says that there are too few hosts.
pub(crate) fn is_capacity(code: &str) -> bool {
    code.starts_with("Insufficient") && code.ends_with("Capacity")
}
