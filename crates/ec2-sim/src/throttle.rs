//! Request buckets with the numbers EC2 publishes, per account and Region.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::protocol::request::Service;

/// The buckets.
#[derive(Debug)]
pub(crate) struct Buckets {
    enabled: bool,
    levels: BTreeMap<&'static str, (f64, Timestamp)>,
}

impl Buckets {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { enabled, levels: BTreeMap::new() }
    }

    /// Takes `amount` from a bucket; false, and nothing taken, when it holds less.
    pub(crate) fn draw(&mut self, bucket: Bucket, amount: f64, now: Timestamp) -> bool {
        if !self.enabled {
            return true;
        }
        let level = self.levels.entry(bucket.name).or_insert((bucket.size, now));
        let passed = now.duration_since(level.1).as_secs_f64().max(0.0);
        level.0 = (level.0 + passed * bucket.refill).min(bucket.size);
        level.1 = now;
        if level.0 < amount {
            return false;
        }
        level.0 -= amount;
        true
    }
}

/// A bucket: its size and its refill per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    name: &'static str,
    size: f64,
    refill: f64,
}

impl Bucket {
    const fn new(name: &'static str, size: f64, refill: f64) -> Self {
        Self { name, size, refill }
    }

    /// The bucket of an operation's requests. `narrow`: whether a Describe call is filtered,
    /// paginated or names ids.
    pub(crate) fn of(service: Service, operation: &str, narrow: bool) -> Self {
        if service != Service::Ec2 {
            return Self::new("other services", 600.0, 600.0);
        }
        match operation {
            "RunInstances" => Self::new("RunInstances", 5.0, 2.0),
            "TerminateInstances" => Self::new("TerminateInstances", 100.0, 5.0),
            "CreateTags" => Self::new("CreateTags", 100.0, 10.0),
            "DescribeInstanceTopology" => Self::new("DescribeInstanceTopology", 1.0, 1.0),
            "DescribeInstances" | "DescribeInstanceStatus" | "DescribeSecurityGroups" if !narrow => {
                Self::new("unfiltered", 50.0, 10.0)
            }
            o if o.starts_with("Describe") || o.starts_with("Get") => Self::new("non-mutating", 100.0, 20.0),
            _ => Self::new("mutating", 50.0, 5.0),
        }
    }

    /// The bucket of the instances that a call launches or terminates.
    pub(crate) fn of_instances(operation: &str) -> Option<Self> {
        match operation {
            "RunInstances" => Some(Self::new("RunInstances instances", 1000.0, 2.0)),
            "TerminateInstances" => Some(Self::new("TerminateInstances instances", 1000.0, 20.0)),
            _ => None,
        }
    }
}
