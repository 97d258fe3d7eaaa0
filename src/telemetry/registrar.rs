//! Registers what is in the table, and keeps what the lease holder alone knows from being scraped elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::table::{self, Metric};

/// Whether this replica holds the lease, as metrics see it.
#[derive(Clone, Debug, Default)]
pub struct Leads(Arc<AtomicBool>);

impl Leads {
    /// This replica holds the lease, or does not.
    pub(super) fn set(&self, holds: bool) {
        self.0.store(holds, Ordering::Relaxed);
    }
}

/// Registers what is in the table.
#[derive(Debug)]
pub struct Registrar<'a> {
    registry: &'a mut Registry,
    leads: Leads,
    registered: Vec<&'static str>,
}

impl<'a> Registrar<'a> {
    /// Registers there.
    pub(super) fn new(registry: &'a mut Registry, leads: Leads) -> Self {
        Self { registry, leads, registered: Vec::new() }
    }

    /// Names of what was registered.
    pub(super) fn into_registered(self) -> Vec<&'static str> {
        self.registered
    }

    /// A metric of the table. What the lease holder alone has values for is scraped only while this replica is.
    pub fn register(&mut self, metric: Metric, counts: impl prometheus_client::registry::Metric) {
        self.registered.push(metric.name);
        match metric.by {
            table::By::Each => metric.register(self.registry, counts),
            table::By::Leader => {
                let counts = WhileLeading { counts, leads: self.leads.clone() };
                metric.register(self.registry, counts);
            }
        }
    }
}

/// A metric without values while another replica holds the lease.
#[derive(Debug)]
struct WhileLeading<M> {
    counts: M,
    leads: Leads,
}

impl<M: EncodeMetric> EncodeMetric for WhileLeading<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.counts.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.counts.metric_type()
    }

    fn is_empty(&self) -> bool {
        !self.leads.0.load(Ordering::Relaxed) || self.counts.is_empty()
    }
}

/// A second to twelve hours: gangs on running nodes start in seconds, nodes boot in minutes, capacity comes in hours.
pub(crate) fn minutes() -> Histogram {
    Histogram::new([
        1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 180.0, 240.0, 300.0, 420.0, 600.0, 900.0, 1_800.0, 3_600.0,
        7_200.0, 14_400.0, 43_200.0,
    ])
}
