//! List prices against a second opinion.

use muster_core::offering::on_demand_price;
use serde_json::Value;

/// Types with a list price in Muster's table.
const PRICED: usize = 18;

#[test]
fn list_prices_agree_to_the_cent_with_those_the_simulator_bills() {
    // Both tables were written from AWS's lists, each by itself; the simulator's is finer.
    let path = muster::testbed::repository().join("crates/ec2-sim/src/fixtures/instance-types.json");
    let fixture: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut compared = 0;
    for (name, facts) in fixture["types"].as_object().unwrap() {
        let Some(ours) = on_demand_price(name) else { continue };
        let billed = facts["microUsdPerHour"].as_u64();
        assert!(billed.is_some_and(|billed| billed.abs_diff(ours) < 5_000), "{name}: {ours}, billed {billed:?}");
        compared += 1;
    }
    assert_eq!(compared, PRICED, "a price that nothing is compared with; give the simulator the type");
}
