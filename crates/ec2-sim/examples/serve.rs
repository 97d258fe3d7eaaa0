//! The simulator alone, without the rest of the binary and its AWS SDK: for scripts that need it in seconds.
//!
//! `cargo run -p muster-ec2-sim --example serve -- [SCENARIO.json] [ADDRESS]` prints the URL it listens on and serves
//! until its standard input ends.

use std::io::{Read as _, Write as _};

use muster_ec2_sim::{Scenario, Simulator};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let scenario = match arguments.next().as_deref() {
        None | Some("-") => Scenario { record_bodies: true, ..Scenario::demo() },
        Some(path) => Scenario::from_json(&std::fs::read_to_string(path)?)?,
    };
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let mut out = std::io::stdout();
    writeln!(out, "http://{}", listener.local_addr()?)?;
    out.flush()?;
    let (closed, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let read = std::io::stdin().read_to_end(&mut rest);
        closed.send(read.is_ok())
    });
    let shutdown = async {
        // However its input ended, there is nobody left to serve.
        let _closed = ended.await;
    };
    muster_ec2_sim::serve(listener, Simulator::new(scenario)?, shutdown).await?;
    Ok(())
}
