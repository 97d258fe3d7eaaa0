//! The command line. Help text is the documentation of the fields.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::CompleteEnv;
use muster_viewer::{output, usage};

use crate::commands::{
    Unusable, check_config, completion, crds, demo, doctor, ec2_sim, explain, gc, iam, plan, record, serve, top, ui,
    uninstall, version,
};

/// The binary as a plugin of kubectl, which then is `kubectl muster`.
const PLUGIN: &str = "kubectl-muster";
/// What kubectl runs for completions of that plugin.
const PLUGIN_COMPLETION: &str = "kubectl_complete-muster";

/// What each exit code means, for every command.
pub const EXIT_CODES: [(u8, &str); 5] = [
    (0, "done, and nothing is in the way"),
    (1, "failed: no cluster, no answer, a check that failed"),
    (2, "unusable: arguments, configuration or input; no such object, context or namespace"),
    (3, "done, and something is left: not all placed, not the same again, held or still there"),
    (130, "interrupted"),
];

/// Whole gangs or nothing, side by side: an extender for a stock kube-scheduler and a provisioner of EC2 nodes.
#[derive(Debug, Parser)]
#[command(name = "muster", version, propagate_version = true, after_help = exit_codes())]
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
    /// Print the version, and those of the documents that are written.
    Version(version::VersionArgs),
    /// Print the script that has a shell complete commands, flags, and names of gangs, pods, nodes and namespaces.
    Completion(completion::CompletionArgs),
}

fn exit_codes() -> String {
    let lines = EXIT_CODES.iter().map(|(code, meaning)| format!("\n  {code:<4} {meaning}"));
    format!("Exit codes:{}", lines.collect::<String>())
}

/// Everything: the name the binary was called by, completions, the command.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let called = args.first().and_then(|path| Path::new(path).file_stem()?.to_str()).unwrap_or("muster");
    let command = || {
        let command = Cli::command();
        if called == PLUGIN { command.bin_name("kubectl muster") } else { command }
    };
    if called == PLUGIN_COMPLETION {
        return match completion::for_kubectl(&mut command(), args.get(1..).unwrap_or_default()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    // Answers a shell that completes, and does not return then.
    CompleteEnv::with_factory(command).var(completion::VARIABLE).complete();
    match command().try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli.run(),
        Err(error) => unusable(&error),
    }
}

/// Help and version are printed as they are; what is wrong with the arguments is one line that helps.
fn unusable(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            output::report(usage::one_line(error));
            ExitCode::from(2)
        }
    }
}

impl Cli {
    /// Runs the command. The exit code is one of [`EXIT_CODES`].
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
                Command::Version(args) => version::run(&args),
                Command::Completion(args) => completion::run(&args),
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

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    output::report(crate::telemetry::chain(error));
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        usage::one_line(&Cli::try_parse_from(line.split(' ')).unwrap_err())
    }

    #[test]
    fn what_is_wrong_with_the_arguments_is_one_line_that_helps() {
        assert_eq!(refused("muster top --onc"), "unexpected argument '--onc' found; did you mean --once?");
        assert_eq!(refused("muster plam"), "unrecognized subcommand 'plam'; did you mean plan?");
        assert_eq!(
            refused("muster top -o text"),
            "invalid value 'text' for '--output <OUTPUT>' [possible values: table, wide, json, yaml, name]; --help has what there is"
        );
        assert_eq!(
            refused("muster explain gang"),
            "the following required arguments were not provided: <NAME>; --help has what there is"
        );
    }

    #[test]
    fn no_flag_means_two_things() {
        Cli::command().debug_assert();
    }

    #[test]
    fn output_is_the_form_and_never_a_file_wherever_a_command_has_it() {
        fn visit(command: &clap::Command, seen: &mut Vec<String>) {
            for argument in command.get_arguments().filter(|argument| argument.get_short() == Some('o')) {
                let values: Vec<String> =
                    argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
                assert_eq!(values, ["table", "wide", "json", "yaml", "name"], "{}", command.get_name());
                seen.push(command.get_name().to_owned());
            }
            command.get_subcommands().for_each(|command| visit(command, seen));
        }
        let mut seen = Vec::new();
        visit(&Cli::command(), &mut seen);
        for command in [
            "plan",
            "gang",
            "pod",
            "node",
            "reason",
            "top",
            "doctor",
            "gc",
            "version",
            "replay",
            "check-config",
            "uninstall",
        ] {
            assert!(seen.iter().any(|name| name == command), "{command} has no --output");
        }
    }

    #[test]
    fn every_command_that_reads_the_cluster_takes_the_same_flags() {
        let command = Cli::command();
        let of = |path: &[&str]| {
            let found = path.iter().fold(&command, |command, name| command.find_subcommand(name).unwrap());
            found.get_arguments().filter_map(|one| one.get_long().map(str::to_owned)).collect::<Vec<_>>()
        };
        let scoped: [&[&str]; 5] = [&["top"], &["ui"], &["explain", "gang"], &["explain", "pod"], &["explain", "node"]];
        let whole: [&[&str]; 4] = [&["record"], &["doctor"], &["gc"], &["uninstall"]];
        for path in scoped.iter().chain(&whole) {
            for flag in ["kubeconfig", "context"] {
                assert!(of(path).iter().any(|long| long == flag), "{path:?} has no --{flag}");
            }
        }
        for path in scoped {
            for flag in ["namespace", "all-namespaces"] {
                assert!(of(path).iter().any(|long| long == flag), "{path:?} has no --{flag}");
            }
        }
    }
}
