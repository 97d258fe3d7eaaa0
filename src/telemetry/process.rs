//! The process as its clients of Prometheus describe themselves: processor time, memory, files, start. Read at the scrape.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::table::{self, Metric};

/// Ticks of the kernel's accounts per second: a constant of Linux towards programs.
const TICKS: f64 = 100.0;

/// What is written.
pub(super) const METRICS: [Metric; 5] =
    [table::PROCESS_CPU, table::PROCESS_MEMORY, table::PROCESS_FDS, table::PROCESS_MAX_FDS, table::PROCESS_START];

/// Reads `/proc` when it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut write = |metric: Metric, value: &dyn EncodeMetric| {
            let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
            let described = encoder.encode_descriptor(name, metric.help, None, value.metric_type())?;
            value.encode(described)
        };
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some((cpu, start)) = times(&stat, &fs::read_to_string("/proc/stat").unwrap_or_default()) {
            write(table::PROCESS_CPU, &ConstCounter::new(cpu))?;
            write(table::PROCESS_START, &ConstGauge::new(start))?;
        }
        if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident) {
            write(table::PROCESS_MEMORY, &ConstGauge::new(bytes))?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            write(table::PROCESS_FDS, &ConstGauge::new(i64::try_from(open.count()).unwrap_or(i64::MAX)))?;
        }
        if let Some(most) = fs::read_to_string("/proc/self/limits").ok().as_deref().and_then(most_files) {
            write(table::PROCESS_MAX_FDS, &ConstGauge::new(most))?;
        }
        Ok(())
    }
}

/// Seconds of processors used, and the start in seconds since 1970.
fn times(own: &str, machine: &str) -> Option<(f64, f64)> {
    // The name of the program is in parentheses and may hold anything.
    let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    let booted: f64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    // Fields 14, 15 and 22 of proc(5); the first behind the name is the third.
    Some(((ticks(11)? + ticks(12)?) / TICKS, booted + ticks(19)? / TICKS))
}

fn resident(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok()?.checked_mul(1_024)
}

fn most_files(limits: &str) -> Option<i64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_whatever_the_program_is_called() {
        let own = "42 (a) b (c) S 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 8 0 1000 0 0";
        assert_eq!(times(own, "cpu 1 2\nbtime 1700000000\n"), Some((3.0, 1_700_000_010.0)));
        assert_eq!(times("", ""), None);
    }

    #[test]
    fn memory_and_files_are_read_from_what_the_kernel_writes() {
        assert_eq!(resident("Name:\tmuster\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
        assert_eq!(
            most_files("Limit  Soft  Hard\nMax open files            1024                 4096  files\n"),
            Some(1_024)
        );
    }
}
