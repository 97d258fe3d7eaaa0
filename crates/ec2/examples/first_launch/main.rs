//! `make test-aws`: launches two small instances in your account as Muster would, and leaves nothing behind.
//!
//! Skipped in one line where there are no credentials. Ends with 1 if something was not as Muster relies on it.

mod trial;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser;
use jiff::Timestamp;
use muster_ec2::{Client, ClientOptions, Credentials, Exchange, Journal, find_credentials};
use serde_json::json;
use trial::{Trial, Wanted};

/// Between two looks: EC2 asks for moderate calls.
const PAUSE: Duration = Duration::from_secs(5);
/// Looks after which it gives up: ten minutes.
const LOOKS: u32 = 120;
const WITHOUT_CREDENTIALS: &str = "make test-aws: skipped, there are no AWS credentials";

/// Launches two small instances in your account, on demand and then on spot, and ends them.
#[derive(Debug, Parser)]
struct Args {
    /// Region
    #[arg(long, env = "AWS_REGION")]
    region: Option<String>,
    /// Instance type: one that goes into cluster placement groups
    #[arg(long = "type", default_value = "c6i.large")]
    instance_type: String,
    /// Subnet; without it a default subnet of the Region
    #[arg(long)]
    subnet: Option<String>,
    /// Dollars that it may cost at most
    #[arg(long, default_value_t = 5.0)]
    max_usd: f64,
    /// Do not ask before it spends
    #[arg(long)]
    yes: bool,
    /// Only end what an earlier run left
    #[arg(long)]
    clean_up: bool,
    /// File for requests and answers, JSON lines
    #[arg(long)]
    journal: Option<PathBuf>,
    /// Another endpoint than EC2's own, such as that of `muster ec2-sim`
    #[arg(long)]
    endpoint_url: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run(Args::parse())).await {
        Ok(code) => code,
        Err(text) => {
            say(&format!("make test-aws: {text}"));
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    // Whoever closed the pipe does not want to read on; what was launched is ended all the same.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

async fn run(args: Args) -> Result<ExitCode, String> {
    let options = ClientOptions {
        region: args.region.clone().unwrap_or_default(),
        endpoint_url: args.endpoint_url.clone(),
        credentials: Credentials::Default,
        launch_timeout: ClientOptions::LAUNCH_TIMEOUT,
    };
    if let Err(why) = Box::pin(find_credentials(options.clone())).await {
        say(&format!("{WITHOUT_CREDENTIALS}: {why}"));
        return Ok(ExitCode::SUCCESS);
    }
    let Some(region) = args.region.clone() else {
        return Err("no Region; set AWS_REGION or give --region".to_owned());
    };
    let client = match &args.journal {
        Some(path) => Box::pin(Client::connect_recorded(options, journal(path)?)).await,
        None => Box::pin(Client::connect(options)).await,
    };
    let client = client.map_err(|error| error.to_string())?;
    let mut trial = Trial { client: &client, report: &say, pause: PAUSE, looks: LOOKS, wrong: Vec::new() };
    Box::pin(trial.clean_up()).await?;
    if args.clean_up {
        say("nothing of an earlier run is left");
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = Wanted { instance_type: args.instance_type.clone(), subnet: args.subnet.clone(), region };
    let chosen = Box::pin(trial.choose(&wanted)).await?;
    let most = dollars(chosen.most());
    if most > args.max_usd {
        return Err(format!("it could cost ${most:.2}, more than --max-usd {}", args.max_usd));
    }
    if !args.yes && !agreed(&chosen, most)? {
        say("nothing was launched");
        return Ok(ExitCode::SUCCESS);
    }
    let run = format!("{:08x}", Timestamp::now().as_second());
    let outcome = tokio::select! {
        outcome = Box::pin(trial.run(&chosen, &run)) => Some(outcome),
        () = interrupted() => None,
    };
    let Some(outcome) = outcome else {
        say("interrupted");
        Box::pin(trial.clean_up()).await?;
        say("nothing is left");
        return Ok(ExitCode::from(130));
    };
    outcome?;
    if trial.wrong.is_empty() {
        say("all as Muster relies on it; nothing is left");
        return Ok(ExitCode::SUCCESS);
    }
    Err(format!("{} were not as Muster relies on it:\n  {}", trial.wrong.len(), trial.wrong.join("\n  ")))
}

/// Asks a person. Where there is none nothing is launched.
fn agreed(chosen: &trial::Chosen, most: f64) -> Result<bool, String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err("nobody can be asked here; give --yes to launch without".to_owned());
    }
    let spot = chosen.spot.map_or_else(|| "no spot price".to_owned(), |spot| format!("${:.4} on spot", dollars(spot)));
    say(&format!(
        "This launches 2 x {} in {} (${:.4} an hour on demand, {spot}), once on demand and once on spot, and ends them. They live \
         for minutes; half an hour at most, which would cost ${most:.2}.",
        chosen.instance_type,
        chosen.zone,
        dollars(chosen.on_demand)
    ));
    say("Go on? [y/N]");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(|error| error.to_string())?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[expect(clippy::cast_precision_loss, reason = "shown to a person")]
fn dollars(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// A journal in a file, in the form that hack/botocore-check.py reads.
fn journal(path: &std::path::Path) -> Result<Journal, String> {
    let file = std::fs::File::create(path).map_err(|error| format!("--journal {}: {error}", path.display()))?;
    let state = Mutex::new((file, 0_u64));
    Ok(Journal::new(move |exchange| {
        let Exchange { service, operation, status, request, response } = exchange;
        let Ok(mut state) = state.lock() else { return };
        let (file, number) = &mut *state;
        let line = json!({"number": number, "service": service, "operation": operation, "status": status,
            "request": request, "response": response});
        *number += 1;
        let _ = writeln!(file, "{line}");
    }))
}

/// SIGINT or SIGTERM.
async fn interrupted() {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate => {}
    }
}
