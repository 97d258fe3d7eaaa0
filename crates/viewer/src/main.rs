//! `muster-tour`: page, terminal and explanations of a recorded demo, for who has nothing but Rust.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use muster_replay::command::{self, Arguments, CommandError, Format};
use muster_replay::dump::Input;
use muster_replay::explain::Target;
use muster_view::page::{self, Frame};
use muster_view::web::Site;
use muster_view::{Overview, plain};
use muster_viewer::server::Server;
use muster_viewer::{output, terminal, usage};

/// A cluster of the demo, recorded while three gangs ran.
const RECORDING: &str = include_str!("../recordings/tour.json");
/// One Job more, which waits.
const NEXT: &str = include_str!("../recordings/next.yaml");

/// Look at a recorded cluster without having one.
#[derive(Debug, Parser)]
#[command(name = "muster-tour", version)]
struct Cli {
    #[command(subcommand)]
    look: Option<Look>,
}

#[derive(Debug, Subcommand)]
enum Look {
    /// Serve the page on this machine; the default.
    Page {
        /// Port on 127.0.0.1; 0: any that is free.
        #[arg(long, default_value_t = 7070)]
        port: u16,
        /// Seconds after which the page asks again, as that of a cluster does; a recording never changes.
        #[arg(long)]
        refresh: Option<std::num::NonZeroU64>,
    },
    /// Show it in the terminal, or as text where there is none.
    Top,
    /// Say why a gang waits.
    Explain {
        /// The gang.
        #[arg(default_value = "next")]
        gang: String,
    },
    /// Print the page as one file.
    Html,
}

/// Reads the arguments and does what they say. 0 = shown, 1 = failed, 2 = arguments that cannot be used.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return fail(&usage::one_line(&error), 2),
        Err(help) => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    match look(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<CommandError>() => fail(&error.to_string(), 2),
        Err(error) => fail(&format!("{error:#}"), 1),
    }
}

#[expect(clippy::print_stderr, reason = "the one line a user reads when nothing can be shown")]
fn fail(line: &str, code: u8) -> ExitCode {
    eprintln!("muster-tour: {line}");
    ExitCode::from(code)
}

fn look(cli: Cli) -> anyhow::Result<()> {
    let overview = || muster_view::of_texts(&arguments(Format::Json)).context("read the recording");
    match cli.look.unwrap_or(Look::Page { port: 7070, refresh: None }) {
        Look::Page { port, refresh } => {
            let frame = Frame { refresh: refresh.map(Into::into), ..frame(false) };
            let server = Server::bind(port, Site::new(&overview()?, &frame));
            let server =
                server.with_context(|| format!("listen on 127.0.0.1:{port}; --port 0 takes any that is free"))?;
            let address = server.address().context("read the address")?;
            print(&format!("The page is at http://{address}/; Ctrl-C ends it.\n"))?;
            server.run();
        }
        Look::Top => top(overview()?)?,
        Look::Explain { gang } => {
            let target = Target::Gang { namespace: "demo".to_owned(), name: gang };
            print(&command::explain(&arguments(Format::Table), &target)?.text)?;
        }
        Look::Html => print(&page::html(&overview()?, &frame(true)))?,
    }
    Ok(())
}

fn arguments(format: Format) -> Arguments<'static> {
    let files = vec![Input { name: "the recording", text: RECORDING }, Input { name: "next.yaml", text: NEXT }];
    Arguments { files, format, ..Arguments::default() }
}

fn frame(alone: bool) -> Frame {
    Frame { source: "a recording of the demo".to_owned(), alone, ..Frame::default() }
}

fn top(overview: Overview) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return print(&plain::text(&overview));
    }
    let (sender, events) = mpsc::channel();
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    terminal::run(overview, colour, &sender, &events).context("use the terminal")
}

fn print(text: &str) -> anyhow::Result<()> {
    output::write(text).context("write to standard output")
}
