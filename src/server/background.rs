//! Threads for what no pod waits for.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tracing::warn;

/// The lowest priority of ordinary threads: see setpriority(2).
const NICE: i32 = 19;
/// Calls that compute or block at once.
const BLOCKING: usize = 4;

/// A runtime whose threads yield to all others on the machine. Muster, kube-scheduler and what else runs beside them often share two
/// processors, and a page of 5,000 nodes computes for a second.
#[derive(Debug)]
pub struct Background {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Background {
    /// One thread for what waits, and some for what computes, under this name.
    ///
    /// Errors: no threads are to be had.
    pub fn new(name: &'static str) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING)
            .thread_name(name)
            .on_thread_start(yields)
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Where its tasks are started.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Background {
    /// Ends without waiting for what computes: nobody waits for it.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Linux keeps a priority for each thread, and this call is about the one that makes it.
fn yields() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        warn!(%error, "a thread of the page does not yield to others");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the thread that asks: the nineteenth field of proc_pid_stat(5), the seventeenth after the name.
    fn nice() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(16).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn what_runs_in_the_background_yields_and_what_started_it_does_not() {
        let before = nice();
        let background = Background::new("test").unwrap();
        let asked = background.handle().spawn(async { (nice(), tokio::task::spawn_blocking(nice).await) });
        let (waits, computes) = asked.await.unwrap();
        assert_eq!((waits, computes.unwrap(), nice()), (NICE, NICE, before));
        drop(background);
    }
}
