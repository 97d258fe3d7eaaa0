//! Of which class a pod is: a digest that stands in NodeBatches, and so outlives the process and the version that wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::class::CLASS_VERSION;
use crate::model::digest::Fields;
use crate::model::gang::Pod;
use crate::model::pod::{HostPort, Operator, Requirement, SelectorTerm, Shape, Together, Toleration};
use crate::packing::{PodTerm, Rule, Spread};

/// What makes pods one class: namespace, shape and topology constraints.
pub(super) type Parts<'a> = (&'a Arc<str>, &'a Arc<Shape>, Option<&'a Arc<str>>);

/// What the class of a pod is made of. `None`: its shape is not known.
pub(super) fn parts(pod: &Pod) -> Option<Parts<'_>> {
    let shape = pod.shape.as_ref().ok()?;
    Some((&pod.key.namespace, shape, pod.neighbour.constraints.as_ref()))
}

/// Of which class a pod is, whichever process asks. `None`: its shape is not known.
#[must_use]
pub fn digest(pod: &Pod) -> Option<String> {
    parts(pod).map(digest_of)
}

/// The digest of a class: pods with equal ones take each other's places.
///
/// What it is made of is written out field by field. A field that a shape lacks adds nothing, so that one which is new to this
/// program leaves the digests of all shapes without it as they are. Where volumes can be reached does not count: that is
/// known of some only once they are bound. Neither do labels that no constraint of the pod itself looks at: most of them differ
/// between the pods of one template.
pub(super) fn digest_of((namespace, shape, constraints): Parts<'_>) -> String {
    let Shape {
        requests,
        node_selector,
        node_affinity,
        tolerations,
        ports,
        volumes: _,
        one_per_node,
        together,
        // Written down of pods of gangs alone; ordinary pods are kept apart by their own terms.
        apart: _,
        unsupported,
    } = &**shape;
    let mut fields = Fields::new("class of pods, 3").text(namespace);
    if !requests.is_empty() {
        fields = fields.text("requests").number(count(requests.iter().count()));
        fields =
            requests.iter().fold(fields, |fields, (name, amount)| fields.text(name.as_str()).text(&amount.to_string()));
    }
    if !node_selector.is_empty() {
        fields = labels(fields.text("nodeSelector"), node_selector);
    }
    if let Some(terms) = node_affinity {
        fields = all(fields.text("nodeAffinity"), terms, term);
    }
    if !tolerations.is_empty() {
        fields = all(fields.text("tolerations"), tolerations, toleration);
    }
    if !ports.is_empty() {
        fields = all(fields.text("ports"), ports, port);
    }
    if *one_per_node {
        fields = fields.text("onePerNode");
    }
    if !together.is_empty() {
        fields = all(fields.text("together"), together, near);
    }
    if !unsupported.is_empty() {
        fields = all(fields.text("unsupported"), unsupported, |fields, what| fields.text(what));
    }
    if let Some(constraints) = constraints {
        fields = fields.text("constraints").text(constraints);
    }
    let mut digest = fields.finish();
    digest.truncate(16);
    format!("{CLASS_VERSION}{digest}")
}

/// A digest of topology constraints, and of those of a pod's labels that they look at; `namespaces` has the selector of namespaces
/// of each term of affinity and anti-affinity. Preferences are not among them: they decide where a pod goes, not whether it can.
#[must_use]
pub fn constraints_digest(
    rules: &[Rule],
    namespaces: &[Option<Vec<Requirement>>],
    own: &BTreeMap<Arc<str>, Arc<str>>,
) -> Arc<str> {
    let mut asked: BTreeSet<&Arc<str>> = BTreeSet::new();
    for rule in rules {
        match rule {
            Rule::Spread(spread) => asked.extend(spread.selector.iter().map(|one| &one.key)),
            Rule::Affinity(terms) => asked.extend(terms.iter().flat_map(selector_keys)),
            Rule::AntiAffinity(term) => asked.extend(selector_keys(term)),
        }
    }
    let own = asked.into_iter().filter_map(|key| Some((Arc::clone(key), Arc::clone(own.get(key)?)))).collect();
    let fields = labels(all(Fields::new("topology constraints, 1"), rules, rule), &own);
    let mut digest = all(fields, namespaces, |fields, one| selector(fields, one.as_deref())).finish();
    digest.truncate(16);
    digest.into()
}

fn selector_keys(term: &PodTerm) -> impl Iterator<Item = &Arc<str>> {
    term.selector.iter().flatten().map(|one| &one.key)
}

fn rule(fields: Fields, one: &Rule) -> Fields {
    match one {
        Rule::Spread(spread) => {
            let Spread { key, selector, max_skew, min_domains, honor_affinity, honor_taints } = spread;
            let fields = all(fields.text("spread").text(key), selector, requirement);
            let fields = fields.number(u64::from(*max_skew)).number(u64::from(*min_domains));
            fields.number(u64::from(*honor_affinity)).number(u64::from(*honor_taints))
        }
        Rule::Affinity(terms) => all(fields.text("affinity"), terms, pod_term),
        Rule::AntiAffinity(term) => pod_term(fields.text("anti-affinity"), term),
    }
}

fn pod_term(fields: Fields, one: &PodTerm) -> Fields {
    let PodTerm { key, namespaces, selector: of_pods } = one;
    let names: Option<Vec<&Arc<str>>> = namespaces.as_ref().map(|names| names.iter().collect());
    let fields = match names {
        None => fields.text(key).number(0),
        Some(names) => all(fields.text(key).number(1), &names, |fields, name| fields.text(name)),
    };
    selector(fields, of_pods.as_deref())
}

fn selector(fields: Fields, one: Option<&[Requirement]>) -> Fields {
    match one {
        None => fields.number(0),
        Some(requirements) => all(fields.number(1), requirements, requirement),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn all<T>(fields: Fields, of: &[T], write: impl Fn(Fields, &T) -> Fields) -> Fields {
    of.iter().fold(fields.number(count(of.len())), write)
}

fn labels(fields: Fields, labels: &BTreeMap<Arc<str>, Arc<str>>) -> Fields {
    let fields = fields.number(count(labels.len()));
    labels.iter().fold(fields, |fields, (key, value)| fields.text(key).text(value))
}

fn term(fields: Fields, term: &SelectorTerm) -> Fields {
    let SelectorTerm { expressions, fields: of_node } = term;
    all(all(fields, expressions, requirement), of_node, requirement)
}

fn requirement(fields: Fields, one: &Requirement) -> Fields {
    let Requirement { key, operator, values } = one;
    let operator = match operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Gt => "Gt",
        Operator::Lt => "Lt",
        Operator::Unknown => "Unknown",
    };
    all(fields.text(key).text(operator), values, |fields, value| fields.text(value))
}

fn toleration(fields: Fields, one: &Toleration) -> Fields {
    let Toleration { key, exists, value, effect } = one;
    let effect = effect.map(|effect| effect.to_string());
    fields.text(key).text(if *exists { "Exists" } else { "Equal" }).text(value).optional(effect.as_deref())
}

fn port(fields: Fields, one: &HostPort) -> Fields {
    let HostPort { ip, protocol, port } = one;
    fields.text(ip).text(protocol).text(&port.to_string())
}

fn near(fields: Fields, one: &Together) -> Fields {
    let Together { key, workload: (label, value) } = one;
    fields.text(key).text(label).text(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::class::is_readable;
    use crate::model::resources::Resources;
    use crate::model::taint::TaintEffect;

    fn requirement(operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: "zone".into(), operator, values: values.iter().map(|value| Arc::from(*value)).collect() }
    }

    fn asks(cpu: i64) -> Shape {
        Shape { requests: Resources::from_iter([("cpu", cpu), ("pods", 1)]), ..Shape::default() }
    }

    fn class(namespace: &str, shape: Shape, constraints: Option<&str>) -> String {
        digest_of((&namespace.into(), &Arc::new(shape), constraints.map(Arc::from).as_ref()))
    }

    /// A shape for every field, each with what it has; their order is that of the digests below.
    fn shapes() -> Vec<(&'static str, Shape)> {
        let base = || asks(1_500);
        let terms =
            |expressions: Vec<Requirement>, fields: Vec<Requirement>| Some(vec![SelectorTerm { expressions, fields }]);
        let tolerates = |exists, effect| vec![Toleration { key: "team".into(), exists, value: "a".into(), effect }];
        let port = |port| vec![HostPort { ip: "0.0.0.0".into(), protocol: "TCP".into(), port }];
        let near = Together { key: "zone".into(), workload: ("app".into(), "web".into()) };
        let values = [
            (Operator::In, vec!["a", "b"]),
            (Operator::NotIn, vec!["a"]),
            (Operator::Exists, vec![]),
            (Operator::DoesNotExist, vec![]),
            (Operator::Gt, vec!["1"]),
            (Operator::Lt, vec!["1"]),
            (Operator::Unknown, vec![]),
        ];
        let mut shapes = vec![
            ("nothing", Shape::default()),
            ("requests", base()),
            ("nodeSelector", Shape { node_selector: [("zone".into(), "a".into())].into(), ..base() }),
            ("no term", Shape { node_affinity: Some(Vec::new()), ..base() }),
            ("field", Shape { node_affinity: terms(Vec::new(), vec![requirement(Operator::In, &["n"])]), ..base() }),
            ("tolerates a value", Shape { tolerations: tolerates(false, None), ..base() }),
            ("tolerates a key", Shape { tolerations: tolerates(true, None), ..base() }),
            ("tolerates an effect", Shape { tolerations: tolerates(true, Some(TaintEffect::NoExecute)), ..base() }),
            ("port", Shape { ports: port(80), ..base() }),
            ("another port", Shape { ports: port(8080), ..base() }),
            ("onePerNode", Shape { one_per_node: true, ..base() }),
            ("together", Shape { together: vec![near], ..base() }),
            ("unsupported", Shape { unsupported: vec![Arc::from(Shape::POD_AFFINITY)], ..base() }),
        ];
        for (operator, values) in values {
            let affinity = terms(vec![requirement(operator, &values)], Vec::new());
            shapes.push(("expression", Shape { node_affinity: affinity, ..base() }));
        }
        shapes
    }

    #[test]
    fn digests_are_those_that_stand_in_node_batches() {
        let digests: Vec<String> = shapes().into_iter().map(|(_, shape)| class("ml", shape, None)).collect();
        let known = [
            "3-khrmyiptjvkdjq6m",
            "3-lndgbj5clxx6m2ze",
            "3-obgugnqvedwbd7u4",
            "3-qm5obmmbce3ubuuj",
            "3-gdayvg65jwvldmsy",
            "3-gevjdgxqceapsf7d",
            "3-jm2ykkqembxtfdhh",
            "3-yrowbujugr2lz7hv",
            "3-4ojogxt77y2ugvbw",
            "3-e4esq3lkxswuyjxc",
            "3-xn63pmtyqweno4az",
            "3-paqvbaqv7vkam7ne",
            "3-rcm2547pwkghcudo",
            "3-ujwnw46st5qyirvv",
            "3-orasxv7zha6w5u6i",
            "3-zoaz4rnchspmlj2q",
            "3-4zc342us57moodof",
            "3-wv3bcuedne3zf2w3",
            "3-ebooxvg5w63s75sk",
            "3-oay7xbsw3fbumnio",
        ];
        assert_eq!(digests, known, "a shape that is written down in another way needs another version");
    }

    #[test]
    fn no_two_shapes_and_no_two_namespaces_share_a_digest_and_volumes_do_not_count() {
        let shapes = shapes();
        let all: std::collections::BTreeSet<String> =
            shapes.iter().flat_map(|(_, shape)| ["ml", "web"].map(|name| class(name, shape.clone(), None))).collect();
        assert_eq!(all.len(), 2 * shapes.len());
        let bound = Shape { volumes: vec![vec![SelectorTerm::default()]], ..asks(1_500) };
        assert_eq!(class("ml", bound, None), class("ml", asks(1_500), None));
        let old = ["abcdefghijklmnop", "2-a7bybr34g6dnx7vy"];
        assert!(all.iter().all(|class| is_readable(class)) && !old.into_iter().any(is_readable));
    }

    #[test]
    fn pods_that_ask_for_the_same_under_different_topology_constraints_are_of_different_classes() {
        let of = |constraints| class("ml", asks(1_500), constraints);
        assert_ne!(of(None), of(Some("a")));
        assert_ne!(of(Some("a")), of(Some("b")));
    }
}
