//! Dry runs: whether a call would be carried out, as far as permissions and parameters tell. Capacity is never looked at.

use muster_core::ec2::{CallError, ErrorClass, LaunchParameters, LaunchWay, Tags};

use crate::Client;
use crate::groups::creation;
use crate::launch::fleet;
use crate::run::run;

impl Client {
    /// Asks whether a launch would be carried out, by the call that its parameters name.
    ///
    /// Errors: what it would be refused for. EC2 documents that a dry run looks at the permissions; how much it looks at
    /// the parameters it does not say, so `Ok` guarantees nothing about them.
    pub async fn dry_run_launch(&self, parameters: &LaunchParameters) -> Result<(), CallError> {
        let error = match parameters.way {
            LaunchWay::Fleet => {
                let call = fleet(parameters)?.dry_run(true).send_with(&self.calls);
                Box::pin(call).await.map(|_| ()).map_err(|error| self.failed("CreateFleet", error))
            }
            LaunchWay::Run => {
                let call = run(parameters)?.dry_run(true).send_with(&self.calls);
                Box::pin(call).await.map(|_| ()).map_err(|error| self.failed("RunInstances", error))
            }
        };
        passed(error)
    }

    /// Asks whether a cluster placement group of this name and with these tags could be made.
    ///
    /// Errors: what it would be refused for.
    pub async fn dry_run_placement_group(&self, name: &str, tags: &Tags) -> Result<(), CallError> {
        let call = creation(name, tags).dry_run(true).send_with(&self.calls);
        passed(Box::pin(call).await.map(|_| ()).map_err(|error| self.failed("CreatePlacementGroup", error)))
    }
}

/// A dry run that would have succeeded is answered by an error of that name.
fn passed(answer: Result<(), CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.kind == ErrorClass::DryRunPassed => Ok(()),
        answer => answer,
    }
}
