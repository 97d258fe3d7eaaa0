//! Host processes in groups of their own, each with a log file, that never outlive the cluster.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::testbed::component::Component;
use crate::testbed::error::TestbedError;

/// Runs until its standard input ends, that is until the process that holds the cluster is gone
/// for whatever reason; then kills the groups that were named to it and removes the folder.
///
/// Lines: `+PGID` a group was started, `-PGID` it was killed, `keep` the folder stays.
const WATCHDOG: &str = r#"
folder=$1 groups= keep=
while read -r line; do
  case $line in
    +*) groups="$groups ${line#+}" ;;
    -*) left=; for group in $groups; do [ "$group" = "${line#-}" ] || left="$left $group"; done; groups=$left ;;
    keep) keep=yes ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
if [ -z "$keep" ]; then
  # A process that is being killed may still write: a second look finds what it left.
  rm -rf -- "$folder" 2>/dev/null || { sleep 1; rm -rf -- "$folder"; }
fi
"#;

/// A program with its arguments and additional environment.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program's path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables on top of this process's environment; proxies are always switched off.
    pub env: BTreeMap<OsString, OsString>,
}

impl Command {
    /// A command without additional environment.
    pub fn new<Arg: Into<OsString>>(program: impl Into<PathBuf>, args: impl IntoIterator<Item = Arg>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect(), env: BTreeMap::new() }
    }

    /// The same command with one more variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }
}

/// All processes of one cluster.
///
/// `std` processes, not tokio's: a cluster is shared by tests that each have a runtime of their
/// own, and a tokio child belongs to the runtime it was started in.
#[derive(Debug)]
pub(super) struct Processes {
    folder: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    watchdog: Child,
    /// Taken when the cluster is dropped; its end is what the watchdog waits for.
    to_watchdog: Option<ChildStdin>,
    started: BTreeMap<Component, Started>,
}

#[derive(Debug)]
struct Started {
    command: Command,
    child: Child,
    /// How it ended, once that is known. The group is then no longer ours to kill.
    ended: Option<String>,
}

impl Processes {
    /// Starts the watchdog of the cluster in `folder`.
    pub(super) fn new(folder: &Path) -> Result<Self, TestbedError> {
        let mut watchdog = std::process::Command::new("/bin/sh")
            .arg("-c")
            .arg(WATCHDOG)
            .arg("testbed-watchdog")
            .arg(folder)
            // Not the cluster's folder, which it removes, nor ours, which we may remove.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt at the terminal goes to the foreground group; the watchdog must survive it.
            .process_group(0)
            .spawn()
            .map_err(TestbedError::file("start the watchdog of", folder))?;
        let to_watchdog = watchdog.stdin.take();
        Ok(Self {
            folder: folder.to_owned(),
            inner: Mutex::new(Inner { watchdog, to_watchdog, started: BTreeMap::new() }),
        })
    }

    /// Where the component's output goes, over all its restarts.
    pub(super) fn log(&self, component: Component) -> PathBuf {
        self.folder.join(format!("{component}.log"))
    }

    /// Starts a component under a name that no running process has.
    pub(super) fn start(&self, component: Component, command: Command) -> Result<(), TestbedError> {
        let mut inner = self.lock();
        if inner.is_running(component) {
            return Err(TestbedError::AlreadyRunning(component));
        }
        let path = self.log(component);
        let log =
            OpenOptions::new().create(true).append(true).open(&path).map_err(TestbedError::file("open", &path))?;
        let errors = log.try_clone().map_err(TestbedError::file("open", &path))?;
        let child = std::process::Command::new(&command.program)
            .args(&command.args)
            // Go's HTTP clients and ours would send loopback requests of some kinds to a proxy.
            .env("NO_PROXY", "127.0.0.1,localhost")
            .env("no_proxy", "127.0.0.1,localhost")
            .envs(&command.env)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| TestbedError::Spawn { component, source })?;
        inner.tell_watchdog(&format!("+{}", child.id()));
        inner.started.insert(component, Started { command, child, ended: None });
        Ok(())
    }

    /// Ends the whole group of a component by SIGKILL and waits until it is gone. Killing one that
    /// has already ended is no error.
    pub(super) fn kill(&self, component: Component) -> Result<(), TestbedError> {
        let mut inner = self.lock();
        let Some(started) = inner.started.get_mut(&component) else {
            return Err(TestbedError::NotStarted(component));
        };
        let group = started.child.id();
        started.kill();
        inner.tell_watchdog(&format!("-{group}"));
        Ok(())
    }

    /// Sends a signal other than SIGKILL to the component's process group, e.g. SIGTERM or SIGSTOP.
    pub(super) fn signal(&self, component: Component, signal: Signal) -> Result<(), TestbedError> {
        let mut inner = self.lock();
        if !inner.is_running(component) {
            return Err(TestbedError::NotStarted(component));
        }
        let Some(started) = inner.started.get(&component) else {
            return Err(TestbedError::NotStarted(component));
        };
        killpg(group_of(&started.child), signal)
            .map_err(|errno| TestbedError::Spawn { component, source: errno.into() })
    }

    /// Starts a component again with the command it had and these arguments behind it.
    pub(super) fn restart(&self, component: Component, more: &[&str]) -> Result<(), TestbedError> {
        let mut command = match self.lock().started.get(&component) {
            Some(started) => started.command.clone(),
            None => return Err(TestbedError::NotStarted(component)),
        };
        command.args.extend(more.iter().map(OsString::from));
        self.kill(component)?;
        self.start(component, command)
    }

    /// Fails when the component has ended, with the last lines of its log.
    pub(super) fn check(&self, component: Component) -> Result<(), TestbedError> {
        let mut inner = self.lock();
        let Some(started) = inner.started.get_mut(&component) else {
            return Err(TestbedError::NotStarted(component));
        };
        match started.poll() {
            None => Ok(()),
            Some(status) => {
                Err(TestbedError::Exited { component, status: status.to_owned(), log: tail(&self.log(component), 20) })
            }
        }
    }

    /// Kills all but these, and forgets them with their logs.
    pub(super) fn retain(&self, kept: &[Component]) -> Result<(), TestbedError> {
        for component in self.components().into_iter().filter(|component| !kept.contains(component)) {
            self.kill(component)?;
            self.lock().started.remove(&component);
        }
        Ok(())
    }

    /// How the component ended: `None` while it runs or when it was never started.
    pub(super) fn exit_status(&self, component: Component) -> Option<String> {
        self.lock().started.get_mut(&component)?.poll().map(str::to_owned)
    }

    /// The process id of a running component.
    pub(super) fn pid(&self, component: Component) -> Option<u32> {
        let mut inner = self.lock();
        let started = inner.started.get_mut(&component)?;
        if started.poll().is_some() { None } else { Some(started.child.id()) }
    }

    /// Every component that was ever started.
    pub(super) fn components(&self) -> Vec<Component> {
        self.lock().started.keys().copied().collect()
    }

    /// Makes the folder survive.
    pub(super) fn keep_folder(&self) {
        self.lock().tell_watchdog("keep");
    }

    /// Kills everything. The watchdog then finds nothing to kill and removes the folder, unless
    /// that is kept; it is gone when this returns.
    pub(super) fn end(&self) {
        let mut inner = self.lock();
        let groups: Vec<u32> = inner
            .started
            .values_mut()
            .map(|started| {
                started.kill();
                started.child.id()
            })
            .collect();
        for group in groups {
            inner.tell_watchdog(&format!("-{group}"));
        }
        inner.to_watchdog = None;
        // An error means that it is gone already, which is all we want.
        let _ = inner.watchdog.wait();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while it was held leaves the table as true as it was before.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_running(&mut self, component: Component) -> bool {
        self.started.get_mut(&component).is_some_and(|started| started.poll().is_none())
    }

    fn tell_watchdog(&mut self, line: &str) {
        if let Some(pipe) = &mut self.to_watchdog {
            // A watchdog that somebody killed is no reason to fail: dropping the cluster still
            // cleans up.
            let _ = writeln!(pipe, "{line}");
        }
    }
}

impl Started {
    fn poll(&mut self) -> Option<&str> {
        if self.ended.is_none() {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => self.ended = Some(status.to_string()),
                Err(error) => self.ended = Some(format!("an unknown status ({error})")),
            }
        }
        self.ended.as_deref()
    }

    fn kill(&mut self) {
        if self.ended.is_some() {
            return;
        }
        // The leader is not reaped yet, so the group's number cannot have been given to anyone
        // else. Failure means that all of it is gone.
        let _ = killpg(group_of(&self.child), Signal::SIGKILL);
        self.ended = Some(match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => format!("an unknown status ({error})"),
        });
    }
}

fn group_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("process ids are positive i32 on Unix"))
}

/// The last `lines` lines of a log; empty when it cannot be read.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    /// More than this many lines of any log fit in here.
    const WINDOW: u64 = 64 * 1024;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(WINDOW)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own for a test, gone or not afterwards as the test expects.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("muster-process-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn is_alive(pid: u32) -> bool {
        nix::sys::signal::kill(Pid::from_raw(i32::try_from(pid).unwrap()), None).is_ok()
    }

    #[test]
    fn ending_kills_whole_groups_and_removes_the_folder() {
        let folder = folder("end");
        let processes = Processes::new(&folder).unwrap();
        processes.start(Component::Etcd, Command::new("/bin/sh", ["-c", "sleep 1000 & echo $!; wait"])).unwrap();
        let log = processes.log(Component::Etcd);
        let grandchild: u32 = loop {
            // The shell's line break says that the number is whole.
            let text = std::fs::read_to_string(&log).unwrap();
            if let Some(line) = text.strip_suffix('\n') {
                break line.parse().unwrap();
            }
            std::thread::yield_now();
        };
        processes.end();
        while is_alive(grandchild) {
            // Reparented: whoever adopted it reaps it at its own pace.
            std::thread::yield_now();
        }
        assert!(!folder.exists());
    }

    #[test]
    fn a_kept_folder_survives_and_a_restart_runs_the_same_command() {
        let folder = folder("keep");
        let processes = Processes::new(&folder).unwrap();
        processes.keep_folder();
        let muster = Component::Muster(1);
        processes.start(muster, Command::new("/bin/sh", ["-c", "sleep 1000"])).unwrap();
        let first = processes.pid(muster).unwrap();
        assert!(matches!(
            processes.start(muster, Command::new("/bin/true", [""; 0])),
            Err(TestbedError::AlreadyRunning(Component::Muster(1)))
        ));
        processes.restart(muster, &[]).unwrap();
        assert_ne!(processes.pid(muster).unwrap(), first);
        processes.kill(muster).unwrap();
        assert_eq!(processes.exit_status(muster).as_deref(), Some("signal: 9 (SIGKILL)"));
        processes.end();
        assert!(folder.join("muster-1.log").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_watchdog_kills_what_it_was_reported_of_when_nobody_holds_the_pipe() {
        let folder = folder("watchdog");
        let processes = Processes::new(&folder).unwrap();
        processes.start(Component::Kwok, Command::new("/bin/sh", ["-c", "sleep 1000"])).unwrap();
        {
            let mut inner = processes.lock();
            inner.to_watchdog = None;
            inner.watchdog.wait().unwrap();
        }
        loop {
            match processes.exit_status(Component::Kwok) {
                Some(status) => break assert_eq!(status, "signal: 9 (SIGKILL)"),
                None => std::thread::yield_now(),
            }
        }
        assert!(!folder.exists());
    }

    #[test]
    fn a_tail_is_the_last_lines_and_empty_for_a_missing_file() {
        let folder = folder("tail");
        let path = folder.join("log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, 2), "two\nthree");
        assert_eq!(tail(&folder.join("missing"), 2), "");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
