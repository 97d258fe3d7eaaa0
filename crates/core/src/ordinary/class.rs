//! Of which class a pod is: a digest that stands in NodeBatches, and so outlives the process and the version that wrote it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::digest::Fields;
use crate::model::pod::{HostPort, Operator, Requirement, SelectorTerm, Shape, Together, Toleration};

/// The version of the digest, which every digest begins with. Another way to write a shape down is another version.
const VERSION: &str = "2-";

/// Of which class a pod is, whichever process asks: pods with equal digests take each other's places.
///
/// What it is made of is written out field by field. A field that a shape lacks adds nothing, so that one which is new to this
/// program leaves the digests of all shapes without it as they are. Where volumes can be reached does not count: that is
/// known of some only once they are bound.
#[must_use]
pub fn digest(namespace: &str, shape: &Shape) -> String {
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
    } = shape;
    let mut fields = Fields::new("class of pods, 2").text(namespace);
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
    let mut digest = fields.finish();
    digest.truncate(16);
    format!("{VERSION}{digest}")
}

/// Whether a class was written by a version that makes its digests as this one does. Of another nobody here can say which pods it
/// has.
pub(super) fn is_readable(class: &str) -> bool {
    class.starts_with(VERSION)
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
    use crate::model::resources::Resources;
    use crate::model::taint::TaintEffect;

    fn requirement(operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: "zone".into(), operator, values: values.iter().map(|value| Arc::from(*value)).collect() }
    }

    fn asks(cpu: i64) -> Shape {
        Shape { requests: Resources::from_iter([("cpu", cpu), ("pods", 1)]), ..Shape::default() }
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
        let digests: Vec<String> = shapes().iter().map(|(_, shape)| digest("ml", shape)).collect();
        let known = [
            "2-a7bybr34g6dnx7vy",
            "2-ay6mkfarlfurrqqb",
            "2-6ekkw7qajnhzncku",
            "2-ktokseylfflbje2n",
            "2-ibv7hj3wpavfogoy",
            "2-ay3golbmxucpn3qn",
            "2-ybx23ldvr6kncyhb",
            "2-sfy5botnyaibbpap",
            "2-d4nsaayf6tcgque7",
            "2-oik6rwubfmk5sxd3",
            "2-aormh4xd7jn62lau",
            "2-crgkf7e76bmirm3u",
            "2-mrcgc7hvjubyabhe",
            "2-ktvvrztv5hlomoz5",
            "2-36eeob7ttdfdwl5v",
            "2-telxueufdkkwnmbd",
            "2-clfmzivyxpwi6zqo",
            "2-gjrl3qez23e3dqvq",
            "2-fpvxqrffqrsqzxxs",
            "2-7xjgmtjdfkoatwma",
        ];
        assert_eq!(digests, known, "a shape that is written down in another way needs another version");
    }

    #[test]
    fn no_two_shapes_and_no_two_namespaces_share_a_digest_and_volumes_do_not_count() {
        let shapes = shapes();
        let all: std::collections::BTreeSet<String> =
            shapes.iter().flat_map(|(_, shape)| ["ml", "web"].map(|namespace| digest(namespace, shape))).collect();
        assert_eq!(all.len(), 2 * shapes.len());
        let bound = Shape { volumes: vec![vec![SelectorTerm::default()]], ..asks(1_500) };
        assert_eq!(digest("ml", &bound), digest("ml", &asks(1_500)));
        assert!(all.iter().all(|class| is_readable(class)) && !is_readable("abcdefghijklmnop"));
    }
}
