//! Threads of their own, for what must not wait for all the rest and for what nobody waits for.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tracing::warn;

/// The lowest priority of ordinary threads: see setpriority(2).
const NICE: i32 = 19;
/// Calls that compute or block at once.
const BLOCKING: usize = 4;
/// Threads that answer: one that reads a call, and one for the calls that come meanwhile.
const ANSWERING: usize = 2;

/// A runtime beside the one of the process.
#[derive(Debug)]
pub struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Threads {
    /// Threads that answer callers who wait: kube-scheduler asks for one pod after the other, and whatever else the process computes
    /// meanwhile, a gang of 5,000 or a pass over a crowd, keeps no call from being read.
    ///
    /// Errors: no threads are to be had.
    pub fn answering(name: &'static str) -> io::Result<Self> {
        Self::built(Builder::new_multi_thread().worker_threads(ANSWERING).thread_name(name))
    }

    /// One thread for what waits, and some for what computes, that yield to all others on the machine. Muster, kube-scheduler and what else
    /// runs beside them often share two processors, and a page of 5,000 nodes computes for a second.
    ///
    /// Errors: no threads are to be had.
    pub fn yielding(name: &'static str) -> io::Result<Self> {
        let threads = &mut Builder::new_multi_thread();
        Self::built(threads.worker_threads(1).max_blocking_threads(BLOCKING).thread_name(name).on_thread_start(yields))
    }

    fn built(threads: &mut Builder) -> io::Result<Self> {
        let runtime = threads.enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Where its tasks are started.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Threads {
    /// Ends without waiting for what is left: what has to be finished was awaited before, and for the rest nobody waits.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Linux keeps a priority for each thread, and this call is about the one that makes it.
fn yields() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        warn!(%error, "a thread does not yield to others");
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
    async fn threads_for_what_nobody_waits_for_yield_and_those_that_answer_or_started_them_do_not() {
        let before = nice();
        for (threads, own) in [(Threads::yielding("test"), NICE), (Threads::answering("test"), before)] {
            let threads = threads.unwrap();
            let asked = threads.handle().spawn(async { (nice(), tokio::task::spawn_blocking(nice).await) });
            let (waits, computes) = asked.await.unwrap();
            assert_eq!((waits, computes.unwrap(), nice()), (own, own, before));
        }
    }
}
