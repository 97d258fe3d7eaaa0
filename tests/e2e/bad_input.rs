//! Bad input: a clear error that names field and value, nothing lost, the rest goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use muster::testbed::request::request;
use muster::testbed::workloads::TestJob;
use muster::testbed::{Stack, eventually, pools};
use muster_api::crd::{EC2NodeClass, NodePool};
use muster_ec2_sim::Scenario;
use serde_json::{Value, json};

use crate::cloud::{gang_job, journal, launched_fleets, provisioning_stack, provisioning_stack_with};
use crate::support::{DEADLINE, all_run, gangs, leaves, logs, options, says, stack, submit};

/// Waits until the object's condition `Ready` is false and its message contains `text`.
async fn not_ready<K>(stack: &Stack, name: &str, text: &str)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let api: Api<K> = Api::all(stack.admin().unwrap());
    let (api, reported) = (&api, format!("{name} to be not Ready because of {text:?}"));
    eventually(DEADLINE, &reported, || async move {
        let object = api.get(name).await.map_err(|error| error.to_string())?;
        let object = serde_json::to_value(&object).unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        match ready {
            Some(ready) if ready["status"] == "False" && ready["message"].as_str().unwrap().contains(text) => {
                Ok(Some(()))
            }
            ready => Err(format!("{ready:?}")),
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", stack.cluster.report(40)));
}

async fn refused_by_the_api_server<K>(stack: &Stack, object: Value, text: &str)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let client = stack.admin().unwrap();
    let resource = kube::api::ApiResource::erase::<K>(&());
    let object: kube::api::DynamicObject = serde_json::from_value(object).unwrap();
    let api: Api<kube::api::DynamicObject> = Api::all_with(client, &resource);
    let error = api.create(&PostParams::default(), &object).await.unwrap_err().to_string();
    assert!(error.contains(text), "{error:?} does not contain {text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_stated_and_everybody_else_goes_on() {
    let Some(mut options) = options().await else { return };
    options.scenario = Some(serde_json::to_value(Scenario::demo()).unwrap());
    options.factor = 20;
    let stack = stack(options, "ml").await;
    stack.create_nodes(leaves(&["a"], 2)).await.unwrap();
    let client = stack.admin().unwrap();

    // Gangs whose topology requests cannot be read wait and say why.
    for (name, key, value) in [
        ("level", "muster.dev/topology-required", "galaxy"),
        ("size", "muster.dev/gang-size", "0"),
        ("percent", "muster.dev/gang", "50%-off"),
        ("group", "muster.dev/placement-group", "maybe"),
    ] {
        let job = TestJob::new(name, 2).gpus(8).pod_annotation("muster.dev/gang", name).pod_annotation(key, value);
        submit(&client, "ml", job.build()).await;
    }
    says(&stack, "ml", "level", "muster.dev/topology-required: \"galaxy\" is no topology level; use one of zone").await;
    says(&stack, "ml", "size", "muster.dev/gang-size: \"0\" is not an integer of at least 1").await;
    says(&stack, "ml", "50--off", "muster.dev/gang: \"50%-off\" is not a DNS-1123 name").await;
    says(&stack, "ml", "group", "muster.dev/placement-group: \"maybe\" is not one of required, preferred, none").await;
    let phases: Vec<String> =
        gangs(&client, "ml").await.into_iter().filter_map(|gang| gang.status).map(|status| status.phase).collect();
    assert!(phases.iter().all(|phase| phase == "Invalid"), "{phases:?}");

    // Pools and classes that cannot work say what is wrong with them.
    let (class, pool) = pools::p5("60s").unwrap();
    let mut no_type = pool.clone();
    no_type.metadata.name = Some("no-type".to_owned());
    no_type.spec.template.spec.requirements[0].values = vec!["x99".to_owned()];
    pools::create(&client, &class, &no_type).await.unwrap();
    not_ready::<NodePool>(&stack, "no-type", "no instance type of this Region meets all of them").await;
    let mut nowhere = class.clone();
    nowhere.metadata.name = Some("nowhere".to_owned());
    nowhere.spec.subnet_selector_terms.truncate(1);
    nowhere.spec.subnet_selector_terms[0].id = Some("subnet-0123456789abcdef0".to_owned());
    let mut of_nowhere = pool.clone();
    of_nowhere.metadata.name = Some("of-nowhere".to_owned());
    of_nowhere.spec.template.spec.node_class_ref.name = "nowhere".to_owned();
    pools::create(&client, &nowhere, &of_nowhere).await.unwrap();
    not_ready::<EC2NodeClass>(&stack, "nowhere", "spec.subnetSelectorTerms: no subnet matches").await;
    not_ready::<NodePool>(&stack, "of-nowhere", "EC2NodeClass nowhere: spec.subnetSelectorTerms").await;

    // What the schema can refuse never gets that far.
    let mut raw = serde_json::to_value(&class).unwrap();
    raw["metadata"]["name"] = json!("both");
    raw["spec"]["role"] = json!("x");
    refused_by_the_api_server::<EC2NodeClass>(&stack, raw.clone(), "exactly one of role and instanceProfile").await;
    raw["spec"]["subnetSelectorTerms"] = json!([]);
    refused_by_the_api_server::<EC2NodeClass>(&stack, raw, "spec.subnetSelectorTerms").await;
    let mut raw = serde_json::to_value(&pool).unwrap();
    raw["metadata"]["name"] = json!("values");
    raw["spec"]["template"]["spec"]["requirements"][0]["values"] = json!([]);
    refused_by_the_api_server::<NodePool>(&stack, raw, "operator In and NotIn need values").await;
    for (path, value, stated) in [
        ("/spec/template/spec/expireAfter", json!("720h"), "expireAfter does not act yet"),
        ("/spec/template/spec/terminationGracePeriod", json!("1h"), "terminationGracePeriod does not act yet"),
        ("/spec/template/spec/requirements/0/minValues", json!(50), "minValues is more than there are values"),
        ("/spec/disruption/budgets", json!([{"nodes": "10%"}]), "budgets do"),
        ("/spec/disruption/consolidationPolicy", json!("WhenEmptyOrUnderutilized"), "consolidationPolicy"),
    ] {
        let mut raw = serde_json::to_value(&pool).unwrap();
        let (parent, field) = path.rsplit_once('/').unwrap();
        raw.pointer_mut(parent).unwrap()[field] = value;
        refused_by_the_api_server::<NodePool>(&stack, raw, stated).await;
    }

    // Malformed extender bodies are answered with an error and no percent sign.
    for body in ["", "{", "{\"Pod\": 7}", "[]", "{\"Pod\":{\"metadata\":{\"name\":\"%d\"}},\"Nodes\":{\"items\":[]}}"] {
        let answer = request(stack.extender(), "POST", "/v1/sync/filter", body).await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let error = answer["Error"].as_str().unwrap();
        assert!(!error.is_empty() && !error.contains('%'), "{error:?}");
        assert_eq!(request(stack.extender(), "POST", "/v1/sync/prioritize", "{").await.unwrap(), "[]");
    }

    // And a good gang runs all the same.
    let job = TestJob::new("good", 2).gpus(8).pod_annotation("muster.dev/gang", "good").build();
    submit(&client, "ml", job).await;
    all_run(&stack, "ml", "good", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_launched_while_the_definition_of_nodebatches_is_older_than_muster_and_afterwards_it_is() {
    let Some(stack) = provisioning_stack(&Scenario::demo(), 20, "1s").await else { return };
    let client = &stack.admin().unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let name = "nodebatches.muster.dev";
    let newer = definitions.get(name).await.unwrap();
    let mut older = serde_json::to_value(&newer.spec.versions).unwrap();
    let status = older.pointer_mut("/0/schema/openAPIV3Schema/properties/status/properties").unwrap();
    status.as_object_mut().unwrap().remove("instanceType").unwrap();
    let older = Patch::Merge(json!({"spec": {"versions": older}}));
    definitions.patch(name, &PatchParams::default(), &older).await.unwrap();
    eventually(DEADLINE, "the older definition to be served", || async move {
        let path = http::Request::get("/openapi/v3/apis/muster.dev/v1alpha1").body(Vec::new()).unwrap();
        let served: Value = client.request(path).await?;
        let batch = &served["components"]["schemas"]["dev.muster.v1alpha1.NodeBatch"]["properties"]["status"];
        let known = &batch["properties"];
        Ok::<_, kube::Error>((known["attempts"].is_object() && known["instanceType"].is_null()).then_some(()))
    })
    .await
    .unwrap();

    // The binary is replaced, its definitions are not.
    crate::crash::restart(&stack, None).await;
    submit(client, "ml", gang_job("train", 8)).await;
    logs(&stack, "older than this Muster and drop NodeBatch.status.instanceType", DEADLINE).await;
    not_ready::<EC2NodeClass>(&stack, "gpu", "upgrade the chart muster-crd").await;
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 0, "nothing is launched whose status is half kept");

    let mended = Patch::Merge(json!({"spec": {"versions": newer.spec.versions}}));
    definitions.patch(name, &PatchParams::default(), &mended).await.unwrap();
    all_run(&stack, "ml", "train", 8).await;
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1);
}

/// Starts `muster serve` again with this block `cluster`. Its endpoint of AWS is the simulator's under an address that is not known as one,
/// so that everything is asked and checked as in an account.
async fn serve_reaching(stack: &Stack, cluster: &Value) {
    stack.kill_muster().unwrap();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(stack.config()).unwrap()).unwrap();
    config["cluster"] = cluster.clone();
    let endpoint = config["ec2"]["endpointUrl"].as_str().unwrap().replace("127.0.0.1", "0.0.0.0");
    config["ec2"]["endpointUrl"] = endpoint.into();
    std::fs::write(stack.config(), config.to_string()).unwrap();
    stack.start_muster(&[("AWS_ACCESS_KEY_ID", "AK"), ("AWS_SECRET_ACCESS_KEY", "secret")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_way_to_the_cluster_nothing_is_launched_and_gangs_run_on_the_nodes_there_are() {
    let config = json!({"cluster": {"name": "demo"}});
    let Some(stack) = provisioning_stack_with(&Scenario::demo(), 20, "1s", config).await else { return };
    let client = stack.admin().unwrap();
    stack.create_nodes(leaves(&["a", "b"], 2)).await.unwrap();
    let elsewhere = json!({"name": "demo", "endpoint": "https://ABC.gr7.us-west-2.eks.amazonaws.com"});
    for (cluster, wrong) in [
        (elsewhere, "cluster.endpoint: is in us-west-2, but nodes are launched in us-east-1"),
        (json!({"name": "other"}), "eks:DescribeCluster of cluster.name other"),
    ] {
        serve_reaching(&stack, &cluster).await;
        not_ready::<EC2NodeClass>(&stack, "gpu", wrong).await;
    }
    submit(&client, "ml", gang_job("here", 4)).await;
    all_run(&stack, "ml", "here", 4).await;
    submit(&client, "ml", gang_job("nowhere", 8)).await;
    says(&stack, "ml", "nowhere", "no NodePool is ready to provision nodes").await;
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 0);

    // The name is enough: EKS has the rest.
    serve_reaching(&stack, &json!({"name": "demo"})).await;
    all_run(&stack, "ml", "nowhere", 8).await;
    assert_eq!(launched_fleets(&journal(&stack, 0).await).len(), 1);
}
