//! `muster ui`: the page of a cluster or of a recording, on loopback.

use std::process::ExitCode;
use std::thread;

use anyhow::Context as _;
use clap::Args;
use muster_view::page::Frame;
use muster_view::web::Site;
use muster_viewer::output;
use muster_viewer::server::Server;

use crate::commands::top::Source;

/// Arguments of `muster ui`.
#[derive(Debug, Args)]
pub struct UiArgs {
    #[command(flatten)]
    source: Source,
    /// Port on 127.0.0.1; 0: any that is free.
    #[arg(long, default_value_t = 7070)]
    port: u16,
}

/// Serves until Ctrl-C. 0 = ended, 1 = no cluster or no port, 2 = input that cannot be read.
///
/// Errors: the first look at the cluster fails; the port is taken.
pub async fn run(args: UiArgs) -> anyhow::Result<ExitCode> {
    let live = args.source.is_live();
    let frame = Frame {
        source: if live { "the cluster".to_owned() } else { "a recording".to_owned() },
        refresh: live.then(|| args.source.refresh().as_secs()),
        ..Frame::default()
    };
    let mut overview = args.source.look().await?;
    let server = Server::bind(args.port, Site::new(&overview, &frame))
        .with_context(|| format!("listen on 127.0.0.1:{}", args.port))?;
    let address = server.address().context("read the address")?;
    output::report(format_args!("the page is at http://{address}/; Ctrl-C ends it"));
    let shown = server.shown();
    thread::spawn(move || server.run());
    let end = tokio::signal::ctrl_c();
    tokio::pin!(end);
    loop {
        let wait = async {
            match live {
                true => tokio::time::sleep(args.source.refresh()).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut end => {
                ended.context("wait for Ctrl-C")?;
                return Ok(ExitCode::SUCCESS);
            }
            () = wait => {}
        }
        match args.source.look().await {
            Ok(newer) => {
                overview = newer;
                shown.set(Site::new(&overview, &frame));
            }
            Err(error) => {
                let trouble = Some(crate::telemetry::chain(&error));
                shown.set(Site::new(&overview, &Frame { trouble, ..frame.clone() }));
            }
        }
    }
}
