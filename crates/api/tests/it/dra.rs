//! What ResourceClaims, DeviceClasses and ResourceSlices come to for a pod and a node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::api::core::v1 as core;
use muster_api::dra::{DeviceUse, Devices};
use muster_api::pod_state;
use muster_core::model::gang::{Membership, Pod};
use muster_core::model::names::ObjectKey;
use muster_core::model::resources::Resources;
use serde_json::{Value, json};

const GPU: &str = "deviceclass.resource.kubernetes.io/gpu";

fn class(devices: &mut Devices, name: &str, selector: &str, extended: Option<&str>) {
    let class = json!({
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": selector}}], "extendedResourceName": extended},
    });
    devices.apply_class(&serde_json::from_value(class).unwrap());
}

fn gpu(name: &str, model: &str) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}}})
}

fn slice(devices: &mut Devices, node: &str, generation: i64, of: i64, list: &Value) {
    let slice = json!({
        "metadata": {"name": format!("{node}-gpus-{generation}")},
        "spec": {
            "driver": "gpu.example.com", "nodeName": node, "devices": list,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": of},
        },
    });
    devices.apply_slice(&serde_json::from_value(slice).unwrap());
}

fn eight() -> Value {
    (0..8).map(|index| gpu(&format!("gpu-{index}"), "h100")).collect()
}

/// The class `gpu` and a node `a` with eight devices of it.
fn cluster() -> Devices {
    let mut devices = Devices::default();
    class(&mut devices, "gpu", "device.driver == 'gpu.example.com'", None);
    slice(&mut devices, "a", 1, 1, &eight());
    devices.take_touched();
    devices
}

fn exactly(class: &str, count: i64) -> Value {
    json!({"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": class, "count": count}}]}})
}

fn template(devices: &mut Devices, name: &str, spec: &Value) {
    let template = json!({"metadata": {"name": name, "namespace": "ml"}, "spec": {"spec": spec}});
    devices.apply_template(&serde_json::from_value(template).unwrap());
}

/// A claim of `ml` with these devices of node `a`, used by a pod of this UID.
fn claim(devices: &mut Devices, name: &str, spec: &Value, has: &[&str], pod: Option<&str>) {
    let results: Vec<Value> = has
        .iter()
        .map(|device| json!({"request": "gpus", "driver": "gpu.example.com", "pool": "a", "device": device}))
        .collect();
    let users: Vec<Value> = pod.iter().map(|uid| json!({"resource": "pods", "name": uid, "uid": uid})).collect();
    let claim = json!({
        "metadata": {"name": name, "namespace": "ml"}, "spec": spec,
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": users},
    });
    devices.apply_claim(&serde_json::from_value(claim).unwrap());
}

/// A pod with this UID, these claims and requests, completed.
fn pod(devices: &mut Devices, uid: &str, claims: &Value, limits: &Value) -> Pod {
    let object: core::Pod = serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "ml", "uid": uid},
        "spec": {"resourceClaims": claims, "containers": [{"name": "main", "resources": {"limits": limits}}]},
    }))
    .unwrap();
    let used = DeviceUse::read(&object);
    devices.apply_pod(uid, used.clone());
    let mut pod = pod_state::read(&object, Membership::Single, &[]);
    if let Some(used) = used {
        devices.complete(&mut pod, &used);
    }
    pod
}

fn by_template(name: &str) -> Value {
    json!([{"name": "gpus", "resourceClaimTemplateName": name}])
}

fn refusals(pod: &Pod) -> Vec<String> {
    pod.shape.as_ref().unwrap().unsupported.iter().map(ToString::to_string).collect()
}

fn asks(pod: &Pod, resource: &str) -> i64 {
    let shape = pod.shape.as_ref().unwrap();
    assert!(shape.unsupported.is_empty(), "{:?}", shape.unsupported);
    assert_eq!(shape.requests.get(resource), pod.held.requested.get(resource));
    shape.requests.get(resource)
}

fn free(devices: &mut Devices, resource: &str) -> i64 {
    devices.take_touched();
    devices.on_node("a", &Resources::default(), |pod| pod == "counted").get(resource)
}

#[test]
fn a_claim_of_a_template_asks_for_devices_of_its_class_and_a_node_has_what_its_slices_publish() {
    let mut devices = cluster();
    template(&mut devices, "four", &exactly("gpu", 4));
    let pod = pod(&mut devices, "p", &by_template("four"), &Value::Null);
    assert_eq!(asks(&pod, GPU), 4);
    assert_eq!(free(&mut devices, GPU), 8);
    assert_eq!(devices.on_node("b", &Resources::default(), |_| true).get(GPU), 0);
}

#[test]
fn devices_of_claims_are_gone_unless_what_their_pod_asks_for_is_counted_already() {
    let mut devices = cluster();
    template(&mut devices, "two", &exactly("gpu", 2));
    pod(&mut devices, "counted", &by_template("two"), &Value::Null);
    pod(&mut devices, "ended", &by_template("two"), &Value::Null);
    claim(&mut devices, "of-counted", &exactly("gpu", 2), &["gpu-0", "gpu-1"], Some("counted"));
    assert_eq!(free(&mut devices, GPU), 8, "its pod holds two");
    claim(&mut devices, "of-ended", &exactly("gpu", 2), &["gpu-2", "gpu-3"], Some("ended"));
    claim(&mut devices, "of-nobody", &exactly("gpu", 1), &["gpu-4"], None);
    assert_eq!(free(&mut devices, GPU), 5);
    devices.delete_claim(&ObjectKey::new("ml", "of-ended"));
    assert!(devices.take_touched().nodes.contains("a"));
    assert_eq!(free(&mut devices, GPU), 7);
}

#[test]
fn what_is_asked_in_a_way_that_is_not_counted_takes_the_very_devices() {
    let mut devices = cluster();
    let all = json!({"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}});
    template(&mut devices, "all", &all);
    let pod = pod(&mut devices, "counted", &by_template("all"), &Value::Null);
    assert_eq!(refusals(&pod), ["resourceClaims: allocationMode All in request gpus of ResourceClaimTemplate all"]);
    claim(&mut devices, "c", &all, &["gpu-0", "gpu-1", "gpu-2"], Some("counted"));
    assert_eq!(free(&mut devices, GPU), 5);
}

#[test]
fn an_extended_resource_that_a_class_gives_is_one_of_the_node_unless_a_device_plugin_gives_it() {
    let mut devices = Devices::default();
    class(&mut devices, "gpu", "device.driver == 'gpu.example.com'", Some("example.com/gpu"));
    slice(&mut devices, "a", 1, 1, &eight());
    assert_eq!(free(&mut devices, "example.com/gpu"), 8);
    let own: Resources = [("example.com/gpu", 4)].into_iter().collect();
    let beside = devices.on_node("a", &own, |_| true);
    assert_eq!(beside.get("example.com/gpu"), 0, "the kubelet says four");
    // A claim takes of both names: of the class, since device plugins do not serve claims, and of what others request.
    template(&mut devices, "two", &exactly("gpu", 2));
    let by_claim = pod(&mut devices, "p", &by_template("two"), &Value::Null);
    assert_eq!((asks(&by_claim, GPU), asks(&by_claim, "example.com/gpu")), (2, 2));
    let by_name = pod(&mut devices, "q", &Value::Null, &json!({GPU: "3"}));
    assert_eq!((asks(&by_name, GPU), asks(&by_name, "example.com/gpu")), (3, 3));
    // The claim that kube-scheduler makes for such a pod is what the pod holds.
    let of_pod = json!({
        "metadata": {"name": "q-extended-resources", "namespace": "ml",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}},
        "spec": exactly("gpu", 1),
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}]}},
            "reservedFor": [{"resource": "pods", "name": "r", "uid": "counted"}],
        },
    });
    devices.apply_claim(&serde_json::from_value(of_pod).unwrap());
    assert_eq!(free(&mut devices, "example.com/gpu"), 8);
    assert_eq!(devices.on_node("a", &Resources::default(), |_| false).get("example.com/gpu"), 7);
}

#[test]
fn a_device_of_two_classes_counts_as_gone_for_both() {
    let mut devices = cluster();
    class(&mut devices, "big", "device.attributes['gpu.example.com'].model == 'h200'", Some("example.com/big"));
    let mut mixed = eight();
    mixed[0] = gpu("gpu-0", "h200");
    slice(&mut devices, "a", 2, 1, &mixed);
    template(&mut devices, "one", &exactly("gpu", 1));
    let before = devices.take_touched();
    assert!(before.nodes.contains("a"), "{before:?}");
    let pod = pod(&mut devices, "p", &by_template("one"), &Value::Null);
    let big = "deviceclass.resource.kubernetes.io/big";
    assert_eq!((asks(&pod, GPU), asks(&pod, big)), (1, 1), "whichever it gets may be the big one");
    assert_eq!((free(&mut devices, GPU), free(&mut devices, big)), (8, 1));
    assert_eq!(free(&mut devices, "example.com/big"), 0, "who requests that does not say that it takes a gpu");
}

#[test]
fn only_the_newest_whole_generation_of_a_pool_counts_and_only_plain_devices_of_one_node() {
    let mut devices = cluster();
    slice(&mut devices, "a", 2, 2, &eight());
    assert_eq!(free(&mut devices, GPU), 0, "one of two slices is missing");
    slice(
        &mut devices,
        "a",
        3,
        1,
        &json!([gpu("gpu-0", "h100"), {"name": "gpu-1", "allowMultipleAllocations": true},
        {"name": "gpu-2", "taints": [{"key": "sick", "effect": "NoExecute"}]},
        {"name": "gpu-3", "consumesCounters": [{"counterSet": "c", "counters": {}}]}]),
    );
    assert_eq!(free(&mut devices, GPU), 1);
    devices.delete_slice("a-gpus-3");
    devices.delete_slice("a-gpus-2");
    assert_eq!(free(&mut devices, GPU), 8);
}

#[test]
fn a_class_whose_selector_fails_for_a_device_of_the_node_gives_nothing_there() {
    let mut devices = cluster();
    class(&mut devices, "h100", "device.attributes['gpu.example.com'].model == 'h100'", None);
    let mut some = eight();
    some[7] = json!({"name": "gpu-7"});
    slice(&mut devices, "a", 2, 1, &some);
    assert_eq!(free(&mut devices, "deviceclass.resource.kubernetes.io/h100"), 0);
    assert_eq!(free(&mut devices, GPU), 8);
}

#[test]
fn every_other_claim_is_refused_by_name() {
    let mut devices = cluster();
    class(&mut devices, "odd", "device.attributes['x'].y.matches('z')", None);
    let request = |request: &Value| json!({"devices": {"requests": [request]}});
    let sub = |extra: &Value| {
        let mut exactly = json!({"deviceClassName": "gpu"});
        exactly.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        request(&json!({"name": "r", "exactly": exactly}))
    };
    let selectors = json!({"selectors": [{"cel": {"expression": "true"}}]});
    let cases = [
        (exactly("none", 1), "DeviceClass none does not exist"),
        (
            exactly("odd", 1),
            "selector of DeviceClass odd that is not understood: device.attributes['x'].y.matches('z')",
        ),
        (sub(&selectors), "selectors in request r: a DeviceClass may have them of ResourceClaimTemplate t"),
        (sub(&json!({"adminAccess": true})), "adminAccess in request r of ResourceClaimTemplate t"),
        (
            sub(&json!({"capacity": {"requests": {"memory": "1Gi"}}})),
            "capacity in request r of ResourceClaimTemplate t",
        ),
        (
            request(&json!({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]})),
            "firstAvailable in request r of ResourceClaimTemplate t",
        ),
        (
            json!({"devices": {"requests": [], "constraints": [{"matchAttribute": "x/y"}]}}),
            "constraints between its devices of ResourceClaimTemplate t",
        ),
    ];
    for (spec, expected) in cases {
        template(&mut devices, "t", &spec);
        let pod = pod(&mut devices, "p", &by_template("t"), &Value::Null);
        assert_eq!(refusals(&pod), [format!("resourceClaims: {expected}")]);
    }
    let missing = pod(&mut devices, "p", &by_template("gone"), &Value::Null);
    assert_eq!(refusals(&missing), ["resourceClaims: ResourceClaimTemplate gone does not exist"]);
    let unknown = pod(&mut devices, "q", &Value::Null, &json!({"deviceclass.resource.kubernetes.io/none": "1"}));
    assert_eq!(refusals(&unknown), ["resourceClaims: DeviceClass none does not exist"]);
}

#[test]
fn a_claim_that_a_pod_names_is_its_own_or_refused() {
    let mut devices = cluster();
    let named = json!([{"name": "gpus", "resourceClaimName": "mine"}]);
    let early = pod(&mut devices, "p", &named, &Value::Null);
    assert_eq!(refusals(&early), ["resourceClaims: ResourceClaim mine does not exist"]);
    claim(&mut devices, "mine", &exactly("gpu", 2), &[], None);
    assert!(devices.take_touched().pods.contains("p"));
    let own = pod(&mut devices, "p", &named, &Value::Null);
    assert_eq!(asks(&own, GPU), 2);
    let other = pod(&mut devices, "q", &named, &Value::Null);
    assert_eq!(refusals(&other), ["resourceClaims: ResourceClaim mine that several pods use"]);
    assert!(devices.take_touched().pods.contains("p"), "the first one is looked at again");
}
