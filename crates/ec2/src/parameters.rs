//! Parameters of SSM that name an image: AWS publishes the newest of its images so, and whoever makes images may too.

use aws_sdk_ssm::operation::get_parameter::builders::GetParameterInputBuilder;
use muster_core::ec2::CallError;

use crate::Client;
use crate::error::failure;

const GET: &str = "GetParameter";

impl Client {
    /// The id of the image that a parameter holds, `/aws/service/eks/optimized-ami/…/image_id`.
    ///
    /// The parameter is read, and not named in a launch template: EC2 resolves there only what has the data type
    /// `aws:ec2:image`, and Bottlerocket's parameters are `text`.
    pub async fn image_parameter(&self, name: &str) -> Result<String, CallError> {
        let call = GetParameterInputBuilder::default().name(name).send_with(&self.parameters);
        let output = Box::pin(call).await.map_err(|error| failure(&self.parameters_endpoint, GET, error))?;
        match output.parameter().and_then(|parameter| parameter.value()).map(str::trim) {
            Some(id) if id.starts_with("ami-") => Ok(id.to_owned()),
            answer => {
                let answer = answer.unwrap_or("nothing");
                Err(CallError::refused_here(GET, format!("parameter {name} holds {answer}, which is no image")))
            }
        }
    }
}
