//! Where the control plane's binaries are, and how they get there.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::testbed::component::Component;

/// Exit code of `hack/control-plane/build.sh` when Go is missing or too old.
const NO_GO: i32 = 3;

/// The folder that holds etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kubectl
/// and kwok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
    /// A kube-scheduler of another version.
    scheduler: Option<PathBuf>,
}

/// Why there are no binaries.
#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    /// Go is missing or too old. The text is one line for people and says what to install.
    #[error("{0}")]
    NoGo(String),
    /// The build failed.
    #[error("{} ended with {status}, its last lines:\n{tail}", script.display())]
    Build {
        /// The script.
        script: PathBuf,
        /// How the script ended, as the system says it.
        status: String,
        /// Its last lines.
        tail: String,
    },
    /// The script could not be run at all.
    #[error("failed to run {}", path.display())]
    Run {
        /// The script.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A folder lacks a binary.
    #[error("{} is missing", _0.display())]
    Missing(PathBuf),
}

/// All of them.
const NAMES: [&str; 6] = ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "kwok"];

impl Binaries {
    /// How many there are to build.
    pub const COUNT: u64 = NAMES.len() as u64;

    /// Builds what is missing by `hack/control-plane/build.sh` of the checkout at `repository`
    /// (minutes when nothing is cached, milliseconds otherwise) and returns the folder.
    /// `progress` gets each line the script says for people.
    ///
    /// # Errors
    /// [`BinariesError::NoGo`] when Go is missing or too old: a caller may then skip what
    /// needs the control plane. Everything else is a failure.
    ///
    /// `MUSTER_KUBE_SCHEDULER` names a kube-scheduler to use instead of the one that is built: `make test-compat` runs the
    /// one of the minor version below.
    pub async fn ensure(repository: &Path, progress: impl FnMut(&str)) -> Result<Self, BinariesError> {
        let binaries = Self::at(&built(&repository.join("hack/control-plane/build.sh"), progress).await?)?;
        let scheduler = std::env::var_os("MUSTER_KUBE_SCHEDULER").map(PathBuf::from);
        match scheduler {
            Some(missing) if !missing.is_file() => Err(BinariesError::Missing(missing)),
            scheduler => Ok(Self { scheduler, ..binaries }),
        }
    }

    /// Takes the binaries that are in `folder`.
    ///
    /// # Errors
    /// [`BinariesError::Missing`] names the first that is not there.
    pub fn at(folder: &Path) -> Result<Self, BinariesError> {
        for name in NAMES {
            let path = folder.join(name);
            if !path.is_file() {
                return Err(BinariesError::Missing(path));
            }
        }
        Ok(Self { folder: folder.to_owned(), scheduler: None })
    }

    /// kubectl, for people who want to look around in a demo, and for tests of what they see.
    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
    }

    /// The binary behind a component, where it is one of the control plane.
    pub(super) fn of(&self, component: Component) -> PathBuf {
        if let (Component::Scheduler(_), Some(scheduler)) = (component, &self.scheduler) {
            return scheduler.clone();
        }
        self.folder.join(match component {
            Component::Etcd => "etcd",
            Component::ApiServer => "kube-apiserver",
            Component::ControllerManager => "kube-controller-manager",
            Component::Kwok => "kwok",
            Component::Scheduler(_) => "kube-scheduler",
            Component::Muster(_) => "muster",
            Component::Kueue => "kueue",
        })
    }
}

/// Runs a build script and returns the folder it names on its standard output.
pub(super) async fn built(script: &Path, mut progress: impl FnMut(&str)) -> Result<PathBuf, BinariesError> {
    let failed = |source| BinariesError::Run { path: script.to_owned(), source };
    let mut child = tokio::process::Command::new(script)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut stdout = child.stdout.take().expect("stdout is piped above");
    let stderr = child.stderr.take().expect("stderr is piped above");
    let mut lines = BufReader::new(stderr).lines();
    let mut tail: Vec<String> = Vec::new();
    while let Some(line) = lines.next_line().await.map_err(failed)? {
        progress(&line);
        // Enough to see a compiler's error.
        if tail.len() == 20 {
            tail.remove(0);
        }
        tail.push(line);
    }
    let mut folder = String::new();
    stdout.read_to_string(&mut folder).await.map_err(failed)?;
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(PathBuf::from(folder.trim_end()));
    }
    Err(if status.code() == Some(NO_GO) {
        let line = tail.pop().unwrap_or_default();
        let text = line.trim_start_matches("control plane: ").trim_start_matches("kueue: ");
        BinariesError::NoGo(text.to_owned())
    } else {
        BinariesError::Build { script: script.to_owned(), status: status.to_string(), tail: tail.join("\n") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_binaries_names_the_first_missing_one() {
        let error = Binaries::at(Path::new("/nonexistent")).expect_err("there is no such folder");
        assert_eq!(error.to_string(), "/nonexistent/etcd is missing");
    }
}
