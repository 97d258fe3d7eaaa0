//! Requirements on labels as sets of values: one algebra for NodePools, pods and volumes.
//!
//! A [`Values`] is a set of what a label may be, its absence included. Sets are closed under intersection. Bounds are
//! integers, inclusive; a value that is no integer is in no bounded set. Operators and their meaning are those of
//! `core/v1` NodeSelectorOperator with Karpenter's `Gte` and `Lte`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a label may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// The values, or with `complement` all others.
    listed: BTreeSet<Arc<str>>,
    complement: bool,
    least: Option<i64>,
    most: Option<i64>,
    /// Whether the label may be absent.
    absent: bool,
}

impl Values {
    /// Anything, and nothing too.
    #[must_use]
    pub fn any() -> Self {
        Self { listed: BTreeSet::new(), complement: true, least: None, most: None, absent: true }
    }

    /// `In`.
    pub fn one_of<V: Into<Arc<str>>>(values: impl IntoIterator<Item = V>) -> Self {
        Self { listed: values.into_iter().map(Into::into).collect(), complement: false, absent: false, ..Self::any() }
    }

    /// `NotIn`: the complement of `In`, absence included.
    pub fn none_of<V: Into<Arc<str>>>(values: impl IntoIterator<Item = V>) -> Self {
        Self { listed: values.into_iter().map(Into::into).collect(), ..Self::any() }
    }

    /// `Exists`.
    #[must_use]
    pub fn present() -> Self {
        Self { absent: false, ..Self::any() }
    }

    /// `DoesNotExist`: the complement of `Exists`.
    #[must_use]
    pub fn absent() -> Self {
        Self { complement: false, ..Self::any() }
    }

    /// `Gte` and `Gt` (`least` is the bound itself or one more).
    #[must_use]
    pub fn at_least(least: i64) -> Self {
        Self { least: Some(least), ..Self::present() }
    }

    /// `Lte` and `Lt`.
    #[must_use]
    pub fn at_most(most: i64) -> Self {
        Self { most: Some(most), ..Self::present() }
    }

    /// What is in both.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let least = self.least.max(other.least);
        let most = match (self.most, other.most) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let (complement, mut listed) = match (self.complement, other.complement) {
            (true, true) => (true, self.listed.union(&other.listed).cloned().collect::<BTreeSet<_>>()),
            (false, false) => (false, self.listed.intersection(&other.listed).cloned().collect()),
            (false, true) => (false, self.listed.difference(&other.listed).cloned().collect()),
            (true, false) => (false, other.listed.difference(&self.listed).cloned().collect()),
        };
        if !complement {
            listed.retain(|value| within(value, least, most));
        }
        // A finite set has its bounds applied, so that equal sets are equal.
        let (least, most) = if complement { (least, most) } else { (None, None) };
        Self { listed, complement, least, most, absent: self.absent && other.absent }
    }

    /// The other values, absence included, of a set without bounds; `None` for one with bounds, whose complement is no set of
    /// this kind.
    #[must_use]
    pub fn complement(&self) -> Option<Self> {
        let bounded = self.least.is_some() || self.most.is_some();
        (!bounded).then(|| Self { complement: !self.complement, absent: !self.absent, ..self.clone() })
    }

    /// Whether the label may have this value, or be absent (`None`).
    #[must_use]
    pub fn contains(&self, value: Option<&str>) -> bool {
        value.map_or(self.absent, |value| {
            self.listed.contains(value) != self.complement && within(value, self.least, self.most)
        })
    }

    /// Whether nothing is in it, not even absence. An integer has many spellings, so that a range is empty only if its bounds
    /// have passed each other.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let crossed = self.least.zip(self.most).is_some_and(|(least, most)| least > most);
        !self.absent
            && (crossed || (!self.complement && !self.listed.iter().any(|value| within(value, self.least, self.most))))
    }

    /// The values of a finite set, ascending; `None` where it is not finite.
    pub fn finite(&self) -> Option<impl Iterator<Item = &Arc<str>>> {
        (!self.complement).then(|| self.listed.iter().filter(|value| within(value, self.least, self.most)))
    }
}

fn within(value: &str, least: Option<i64>, most: Option<i64>) -> bool {
    if least.is_none() && most.is_none() {
        return true;
    }
    let Ok(number) = value.parse::<i64>() else { return false };
    least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most)
}

/// Requirements on several labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements(BTreeMap<Arc<str>, Values>);

impl Requirements {
    /// Adds a requirement on a label.
    pub fn add(&mut self, key: &str, values: &Values) {
        let now = self.0.entry(Arc::from(key)).or_insert_with(Values::any);
        *now = now.intersect(values);
    }

    /// What the label may be; `None` if nothing is required of it.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<&Values> {
        self.0.get(key)
    }

    /// Whether the label may have this value, or be absent.
    #[must_use]
    pub fn allows(&self, key: &str, value: Option<&str>) -> bool {
        self.of(key).is_none_or(|values| values.contains(value))
    }

    /// The labels of which something is required, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Values)> {
        self.0.iter()
    }

    /// The first label that nothing satisfies.
    #[must_use]
    pub fn contradiction(&self) -> Option<&str> {
        self.iter().find(|(_, values)| values.is_empty()).map(|(key, _)| &**key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values that the enumeration looks at, absence first.
    const WORLD: [Option<&str>; 9] =
        [None, Some(""), Some("a"), Some("b"), Some("-1"), Some("0"), Some("1"), Some("2"), Some("03")];

    /// A set with its definition.
    fn drawn() -> impl Strategy<Value = (Values, Vec<bool>)> {
        let some = proptest::sample::subsequence(vec!["", "a", "b", "0", "1", "2"], 0..4);
        (0..6_u8, some, -1..4_i64).prop_map(|(operator, values, bound)| {
            let listed = |value: &str| values.contains(&value);
            let number = |value: &str| value.parse::<i64>().ok();
            let set = match operator {
                0 => Values::one_of(values.clone()),
                1 => Values::none_of(values.clone()),
                2 => Values::present(),
                3 => Values::absent(),
                4 => Values::at_least(bound),
                _ => Values::at_most(bound),
            };
            let holds = |value: Option<&str>| match operator {
                0 => value.is_some_and(listed),
                1 => !value.is_some_and(listed),
                2 => value.is_some(),
                3 => value.is_none(),
                4 => value.and_then(number).is_some_and(|number| number >= bound),
                _ => value.and_then(number).is_some_and(|number| number <= bound),
            };
            (set, WORLD.into_iter().map(holds).collect())
        })
    }

    proptest! {
        #[test]
        fn an_intersection_holds_what_every_part_holds(parts in proptest::collection::vec(drawn(), 0..5)) {
            let mut all = Values::any();
            for (set, _) in &parts {
                all = all.intersect(set);
            }
            for (index, value) in WORLD.into_iter().enumerate() {
                let expected = parts.iter().all(|(_, holds)| holds[index]);
                prop_assert_eq!(all.contains(value), expected, "{:?} in {:?}", value, all);
            }
        }

        #[test]
        fn a_complement_holds_what_the_set_does_not((set, holds) in drawn()) {
            if let Some(other) = set.complement() {
                for (index, value) in WORLD.into_iter().enumerate() {
                    prop_assert_eq!(other.contains(value), !holds[index], "{:?} in {:?}", value, other);
                }
            }
        }

        #[test]
        fn a_set_that_is_empty_holds_nothing(parts in proptest::collection::vec(drawn(), 0..4)) {
            let all = parts.iter().fold(Values::any(), |all, (set, _)| all.intersect(set));
            if all.is_empty() {
                prop_assert!(WORLD.into_iter().all(|value| !all.contains(value)));
            }
            if let Some(values) = all.finite() {
                let listed: Vec<_> = values.collect();
                prop_assert_eq!(listed.is_empty() && !all.contains(None), all.is_empty());
                prop_assert!(listed.into_iter().all(|value| all.contains(Some(value))));
            }
        }
    }

    #[test]
    fn requirements_on_one_key_add_up_and_a_contradiction_is_named() {
        let mut all = Requirements::default();
        all.add("category", &Values::one_of(["c", "m", "r"]));
        all.add("generation", &Values::at_least(6));
        assert!(all.allows("category", Some("m")) && all.allows("generation", Some("7")) && all.allows("size", None));
        assert!(!all.allows("generation", Some("5")) && !all.allows("category", None));
        assert_eq!(all.contradiction(), None);
        all.add("generation", &Values::at_most(5));
        assert_eq!(all.contradiction(), Some("generation"));
    }
}
