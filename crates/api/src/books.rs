//! What NodePools have spent, between the API server and core.

use muster_core::batch::{Books, Payer, Spent};

use crate::crd::{NodePool, PoolSpent};

/// The books of a pool. Rows of the same namespace and capacity type, which only somebody else could have written, are one.
#[must_use]
pub fn read(pool: &NodePool) -> Books {
    let mut books = Books::default();
    let Some(status) = &pool.status else { return books };
    for row in &status.spent {
        let payer = Payer { namespace: row.namespace.clone(), capacity_type: row.capacity_type.clone() };
        let more = Spent { all: row.spent_micro_usd, stranded: row.stranded_micro_usd.clone() };
        books.rows.entry(payer).or_default().add(&more);
    }
    books.booked.extend(status.booked.iter().cloned());
    books
}

/// `status.spent` and `status.booked` as they are written.
#[must_use]
pub fn write(books: &Books) -> (Vec<PoolSpent>, Vec<String>) {
    let row = |(payer, spent): (&Payer, &Spent)| PoolSpent {
        namespace: payer.namespace.clone(),
        capacity_type: payer.capacity_type.clone(),
        spent_micro_usd: spent.all,
        stranded_micro_usd: spent.stranded.clone(),
    };
    (books.rows.iter().map(row).collect(), books.booked.iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_are_written_back_as_they_were_read_with_words_of_a_newer_version() {
        let status = serde_json::json!({
            "spent": [
                {"namespace": "-", "capacityType": "spot", "spentMicroUsd": 3},
                {"namespace": "ml", "capacityType": "on-demand", "spentMicroUsd": 5, "strandedMicroUsd": {"join": 2, "novel": 1}},
                {"namespace": "ml", "capacityType": "novel", "spentMicroUsd": 7},
            ],
            "booked": ["u-1", "u-2"],
        });
        let pool: NodePool = serde_json::from_value(serde_json::json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "h100"},
            "spec": {"template": {"spec": {"nodeClassRef": {"group": "muster.dev", "kind": "EC2NodeClass", "name": "gpu"}}}},
            "status": status,
        }))
        .unwrap();
        let (spent, booked) = write(&read(&pool));
        let before = pool.status.unwrap();
        let sorted = |mut rows: Vec<PoolSpent>| {
            rows.sort_by(|one, other| {
                (&one.namespace, &one.capacity_type).cmp(&(&other.namespace, &other.capacity_type))
            });
            rows
        };
        assert_eq!((sorted(spent), booked), (sorted(before.spent), before.booked));
    }
}
