//! What can go wrong while a test cluster is started, changed or asked.

use std::path::PathBuf;

use crate::testbed::binaries::BinariesError;
use crate::testbed::component::Component;
use crate::testbed::wait::WaitError;

/// Errors of the testbed. The demo prints the whole chain; tests unwrap it.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The control plane's binaries are missing and could not be built.
    #[error("failed to provide the control plane")]
    Binaries(#[from] BinariesError),
    /// A file or folder of the cluster could not be read or written.
    #[error("failed to {action} {}", path.display())]
    File {
        /// What was tried, as in "failed to {action}".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// No port on 127.0.0.1 could be had.
    #[error("failed to find a free port on 127.0.0.1")]
    Port(#[source] std::io::Error),
    /// The serving certificate or the service account key could not be made.
    #[error("failed to make the cluster's keys")]
    Keys(#[from] rcgen::Error),
    /// A process could not be started.
    #[error("failed to start {component}")]
    Spawn {
        /// Which one.
        component: Component,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A process ended although it should be serving.
    #[error("{component} ended with {status}, its last lines:\n{log}")]
    Exited {
        /// Which one.
        component: Component,
        /// How it ended, as the system says it.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// A component is asked for that was never started.
    #[error("{0} was never started")]
    NotStarted(Component),
    /// A component is started under a name that is already in use.
    #[error("{0} is already running")]
    AlreadyRunning(Component),
    /// A YAML file of ours cannot be read.
    #[error("failed to read {} as YAML: {message}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        message: String,
    },
    /// A shipped object or configuration lacks what the testbed needs to know.
    #[error("{what}: {problem}")]
    Malformed {
        /// The object or file.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The API server refused a request or could not be reached.
    #[error("failed to {action}")]
    Api {
        /// What was tried, as in "failed to {action}".
        action: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A condition did not come true in time.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl TestbedError {
    /// For `map_err`: a file operation that failed.
    pub(super) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    /// For `map_err`: a request to the API server that failed.
    pub(super) fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |source| Self::Api { action, source: Box::new(source) }
    }
}
