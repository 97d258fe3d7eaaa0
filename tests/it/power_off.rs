//! The part of an AL2023 node's user data that ends a machine which never becomes a node, run in bash beside stubs of what it
//! calls: every `sleep` returns at once, and one of them may bring what happens meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_core::ec2::{Bootstrap, ClusterAccess, Kubelet, user_data_al2023};

/// Seconds after which the machine ends itself.
const LIMIT: u64 = 1140;

/// A machine's file system, with stubs on its path.
struct Machine(PathBuf);

impl Machine {
    /// Installed by the user data, `uptime` seconds after it started.
    fn boot(name: &str, uptime: u64) -> Self {
        let root = std::env::temp_dir().join(format!("muster-power-off-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let machine = Self(root);
        for folder in ["bin", "proc", "var/lib/kubelet/pki", "var/lib/kubelet/pods"] {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        fs::write(machine.path("proc/uptime"), format!("{uptime}.42 100.00\n")).unwrap();
        machine.stub("systemctl", "echo \"$@\" >> \"$MUSTER_ROOT/systemctl\"");
        machine.stub("journalctl", "cat \"$MUSTER_ROOT/journal\" 2>/dev/null");
        machine.stub(
            "sleep",
            "echo >> \"$MUSTER_ROOT/slept\"\n\
             if [ \"$(wc -l < \"$MUSTER_ROOT/slept\")\" = \"$(cat \"$MUSTER_ROOT/at\" 2>/dev/null)\" ]; then\n\
             . \"$MUSTER_ROOT/event\"\nfi",
        );
        machine.run(&script());
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn stub(&self, name: &str, body: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/bash\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What happens during a sleep.
    fn during(&self, sleep: u64, event: &str) {
        fs::write(self.path("at"), sleep.to_string()).unwrap();
        fs::write(self.path("event"), event).unwrap();
    }

    fn run(&self, script: &str) {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let done = Command::new("bash").arg("-c").arg(script).env("MUSTER_ROOT", &self.0).env("PATH", path).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs the unit, as systemd does at the first start and after a reboot; whether the machine ended.
    fn unit(&self) -> bool {
        let unit = fs::read_to_string(self.path("etc/systemd/system/muster-power-off.service")).unwrap();
        let guard = unit.lines().find_map(|line| line.strip_prefix("ConditionPathExists=!/")).unwrap();
        if self.path(guard).exists() {
            return false;
        }
        let before = self.calls().len();
        self.run(&fs::read_to_string(self.path("usr/local/sbin/muster-power-off")).unwrap());
        self.calls()[before..].iter().any(|call| call == "poweroff")
    }

    fn calls(&self) -> Vec<String> {
        lines(&self.path("systemctl"))
    }

    fn slept(&self) -> u64 {
        10 * u64::try_from(lines(&self.path("slept")).len()).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The script as it stands in the user data.
fn script() -> String {
    let user_data = user_data_al2023(&Bootstrap {
        cluster: ClusterAccess {
            name: "prod".to_owned(),
            endpoint: "https://example.com".to_owned(),
            certificate_authority: "Y2E=".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
        },
        labels: Default::default(),
        taints: Vec::new(),
        kubelet: Kubelet::default(),
        local_storage_raid0: false,
        user_data: "#!/bin/sh\nexec sleep infinity\n".to_owned(),
        power_off_after: Some(LIMIT),
    })
    .unwrap();
    let part = user_data.split("--//\n").find(|part| part.contains("text/x-shellscript")).unwrap();
    let (_, script) = part.split_once("\n\n").unwrap();
    assert!(script.contains("muster-power-off"), "ours comes before one that never ends: {script}");
    script.to_owned()
}

#[test]
fn a_machine_that_never_registers_ends_itself_at_its_limit_counted_from_its_start() {
    let machine = Machine::boot("never", 40);
    assert_eq!(machine.calls(), ["daemon-reload", "enable --now --no-block muster-power-off.service"]);
    assert!(machine.unit());
    assert_eq!(machine.slept(), LIMIT - 40);
}

#[test]
fn whatever_shows_that_the_kubelet_registered_disarms_for_good() {
    for (name, event) in [
        ("client", "touch \"$MUSTER_ROOT/var/lib/kubelet/pki/kubelet-client-current.pem\""),
        ("server", "touch \"$MUSTER_ROOT/var/lib/kubelet/pki/kubelet-server-current.pem\""),
        ("pods", "mkdir \"$MUSTER_ROOT/var/lib/kubelet/pods/0f9c2d4e\""),
        ("journal", "echo 'I1122 kubelet_node_status.go] \"Successfully registered node\"' > \"$MUSTER_ROOT/journal\""),
    ] {
        let machine = Machine::boot(name, 40);
        machine.during(6, event);
        assert!(!machine.unit(), "{name}");
        assert_eq!(machine.slept(), 60, "{name}");
        assert!(machine.calls().contains(&"disable muster-power-off.service".to_owned()), "{name}");
    }
}

#[test]
fn a_machine_that_registers_in_the_last_seconds_stays() {
    let machine = Machine::boot("late", 40);
    machine.during((LIMIT - 40) / 10, "touch \"$MUSTER_ROOT/var/lib/kubelet/pki/kubelet-server-current.pem\"");
    assert!(!machine.unit());
    assert_eq!(machine.slept(), LIMIT - 40);
}

#[test]
fn a_reboot_after_the_registration_never_ends_it_whatever_the_kubelet_forgot() {
    let machine = Machine::boot("rebooted", 40);
    machine.during(1, "mkdir \"$MUSTER_ROOT/var/lib/kubelet/pods/0f9c2d4e\"");
    assert!(!machine.unit());
    fs::remove_dir(machine.path("var/lib/kubelet/pods/0f9c2d4e")).unwrap();
    assert!(!machine.unit());
    // Even without systemd's own guard.
    machine.run(&fs::read_to_string(machine.path("usr/local/sbin/muster-power-off")).unwrap());
    assert!(!machine.calls().contains(&"poweroff".to_owned()));
}

#[test]
fn a_reboot_before_the_registration_does_not_begin_again() {
    let machine = Machine::boot("looping", 40);
    fs::write(machine.path("var/lib/muster/seconds"), "1000\n").unwrap();
    fs::write(machine.path("proc/uptime"), "5.00 1.00\n").unwrap();
    assert!(machine.unit());
    assert_eq!(machine.slept(), LIMIT - 1000);
}
