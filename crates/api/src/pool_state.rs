//! What a NodePool's status remembers of purchases in vain, as core types and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::ordinary::{OfPool, Refused, Times};

use crate::crd::{RefusedPods, RefusedType, SchedulerRefused};

/// What a status says.
#[must_use]
pub fn read(written: &SchedulerRefused) -> OfPool {
    let types = |all: &[RefusedType]| -> BTreeMap<Arc<str>, Times> {
        let times = |one: &RefusedType| Times { purchases: one.purchases, last: one.last };
        all.iter().map(|one| (Arc::from(&*one.instance_type), times(one))).collect()
    };
    let refused = |one: &RefusedPods| Refused { in_a_row: one.in_a_row, types: types(&one.instance_types) };
    OfPool {
        generations: (written.pool_generation, written.class_generation),
        classes: written.pods.iter().map(|one| (Arc::from(&*one.class), refused(one))).collect(),
    }
}

/// As it is written; `None`: there is nothing to remember.
#[must_use]
pub fn write(of: &OfPool) -> Option<SchedulerRefused> {
    let types = |row: &Refused| {
        let one = |(name, times): (&Arc<str>, &Times)| RefusedType {
            instance_type: name.to_string(),
            purchases: times.purchases,
            last: times.last,
        };
        row.types.iter().map(one).collect()
    };
    let pods = of.classes.iter().map(|(class, row)| RefusedPods {
        class: class.to_string(),
        in_a_row: row.in_a_row,
        instance_types: types(row),
    });
    let (pool_generation, class_generation) = of.generations;
    (!of.classes.is_empty()).then(|| SchedulerRefused { pool_generation, class_generation, pods: pods.collect() })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let last = Timestamp::from_second(1_700_000_000).unwrap();
        let types = BTreeMap::from([(Arc::from("m5.2xlarge"), Times { purchases: 2, last })]);
        let refused = |in_a_row| Refused { in_a_row, types: types.clone() };
        let classes = BTreeMap::from([(Arc::from("2-a"), refused(1)), (Arc::from("2-b"), refused(2))]);
        let of = OfPool { generations: (3, 4), classes };
        let written = write(&of).unwrap();
        assert_eq!(read(&written), of);
        let text = serde_json::to_value(&written).unwrap();
        assert_eq!(text["pods"][1]["instanceTypes"][0]["last"], "2023-11-14T22:13:20Z");
        assert_eq!(serde_json::from_value::<SchedulerRefused>(text).unwrap(), written);
        assert_eq!(write(&OfPool::default()), None);
    }
}
