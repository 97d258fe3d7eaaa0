//! The command line. Help text is the documentation of the fields.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{
    Unusable, check_config, crds, demo, doctor, ec2_sim, explain, gc, iam, plan, record, serve, top, ui, uninstall,
};

/// Whole gangs or nothing, side by side: an extender for a stock kube-scheduler and a provisioner of EC2 nodes.
#[derive(Debug, Parser)]
#[command(name = "muster", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer kube-scheduler, plan gangs and provision their nodes.
    Serve(serve::ServeArgs),
    /// Run the EC2 simulator: a wire-level fake for EC2 with finite capacity and faults.
    #[command(name = "ec2-sim")]
    Ec2Sim(ec2_sim::Ec2SimArgs),
    /// Start a whole cluster and a simulated EC2 on this machine, and watch gangs get their nodes.
    Demo(demo::DemoArgs),
    /// Check account, cluster and configuration before the first gang, and name what mends what is wrong; changes nothing.
    Doctor(doctor::DoctorArgs),
    /// Write the custom resource definitions.
    Crds(crds::CrdsArgs),
    /// Write the IAM policy of Muster's AWS identity, its words filled in.
    Iam(iam::IamArgs),
    /// Show what the orphan sweep holds back, and release it; or what AWS has of a cluster, and end it.
    Gc(gc::GcArgs),
    /// Print what the planner would do with a dump of a cluster.
    Plan(plan::PlanArgs),
    /// Say why a gang or a pod waits and where it goes, or who holds a node; live or from a dump.
    Explain(explain::ExplainArgs),
    /// Show nodes, gangs, batches and what fits now, in the terminal or as text; live or from a recording.
    Top(top::TopArgs),
    /// Serve a page of nodes, gangs, batches, pools and money on this machine; of a cluster or of a recording.
    Ui(ui::UiArgs),
    /// Write everything the planner reads of a cluster into one file, which `plan` and `explain` read again.
    Record(record::RecordArgs),
    /// Plan recorded decisions of a server again and compare.
    Replay(record::ReplayArgs),
    /// Check a KubeSchedulerConfiguration against the traps that would break up gangs.
    #[command(name = "check-config")]
    CheckConfig(check_config::CheckConfigArgs),
    /// Take the admission policy away, and list held pods and what EC2 still bills.
    Uninstall(uninstall::UninstallArgs),
}

impl Cli {
    /// Runs the command. 0 = done, 1 = failed, 2 = unusable arguments or configuration; `plan` and `replay` add 3 = not all
    /// placed, or not the same again.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&anyhow::Error::new(error).context("start the runtime"), 1),
        };
        let result = runtime.block_on(async {
            match self.command {
                Command::Serve(args) => Box::pin(serve::run(args)).await,
                Command::Ec2Sim(args) => Box::pin(ec2_sim::run(args)).await,
                Command::Demo(args) => Box::pin(demo::run(args)).await,
                Command::Doctor(args) => Box::pin(doctor::run(args)).await,
                Command::Crds(args) => crds::run(&args),
                Command::Iam(args) => iam::run(&args),
                Command::Gc(args) => gc::run(&args).await,
                Command::Plan(args) => plan::run(&args),
                Command::Explain(args) => Box::pin(explain::run(args)).await,
                Command::Top(args) => Box::pin(top::run(args)).await,
                Command::Ui(args) => Box::pin(ui::run(args)).await,
                Command::Record(args) => Box::pin(record::record(args)).await,
                Command::Replay(args) => record::replay(&args),
                Command::CheckConfig(args) => check_config::run(&args),
                Command::Uninstall(args) => Box::pin(uninstall::run(args)).await,
            }
        });
        // A blocking task that hangs must not keep the process alive.
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        match result {
            Ok(code) => code,
            Err(error) => {
                let unusable = error.is::<crate::config::ConfigError>() || error.is::<Unusable>();
                let code = if unusable { 2 } else { 1 };
                fail(&error, code)
            }
        }
    }
}

#[expect(clippy::print_stderr, reason = "the one line a user reads when a command fails")]
fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("muster: {}", crate::telemetry::chain(error));
    ExitCode::from(code)
}
