//! Plans of some dozens of pods with constraints against an integer programme: the cases that `make bench` prints.

#[path = "../../../examples/packing/patterns.rs"]
mod patterns;

use muster_core::packing::check::check;
use muster_core::packing::{Place, plan};

#[test]
fn plans_of_some_dozens_of_pods_stay_near_an_integer_programme() {
    let (mut sum, mut worst, mut counted) = (0_u64, 0, 0_u64);
    for (seed, case) in (0..).filter_map(|seed| patterns::draw(seed).map(|case| (seed, case))).take(20) {
        let Some(least) = case.least() else { continue };
        let made = plan(&case.problem);
        assert_eq!(check(&case.problem, &made), Vec::<String>::new(), "seed {seed}");
        assert!(!made.places.contains(&Place::None), "seed {seed}: somebody has no place, and could have one");
        // The programme is in floats: a millionth is nothing.
        assert!(made.cost + least / 1_000_000 >= least, "seed {seed}: {} is below the optimum {least}", made.cost);
        let bound = made.bound.as_ref().map_or(0, |bound| bound.value);
        assert!(bound <= least + least / 1_000_000, "seed {seed}: the bound {bound} is above the optimum {least}");
        let excess = made.cost.saturating_sub(least) * 1_000 / least;
        (sum, worst, counted) = (sum + excess, worst.max(excess), counted + 1);
    }
    let mean = sum / counted.max(1);
    eprintln!("{counted} plans of some dozens of pods: mean {mean} and worst {worst} thousandths over the optimum");
    assert!(counted >= 15, "only {counted} cases have a plan: they no longer show anything");
    assert!(mean <= 10, "mean {mean} thousandths over the optimum, worst {worst}");
}
