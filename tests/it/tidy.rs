//! The rules of the checkout that no compiler knows. Each has a test of its own, whose failure says what to do.
//!
//! Sources are read as text (`source`), manifests through `cargo metadata`, so that what is judged is what cargo builds.
//! Where a rule could go blind without anybody noticing, a test beside it shows that it still finds what it should.

mod directions;
mod imports;
mod named;
mod reference;
mod source;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use muster_api::keys;

use source::{Package, Source, files, fuzz, is_word, line, offsets, packages, reached, rust};

/// Fails with every finding and the way out.
#[track_caller]
fn nothing(found: &[String], remedy: &str) {
    assert!(found.is_empty(), "{remedy}\n  {}\n", found.join("\n  "));
}

// ---- 1. Dependencies -----------------------------------------------------------------------------------------------

/// What a package may name: in `[dependencies]`, and beside that in `[dev-dependencies]`.
struct Allowed {
    package: &'static str,
    why: &'static str,
    normal: &'static [&'static str],
    dev: &'static [&'static str],
}

/// Every library crate. The root package may use all of them, and anything but AWS.
const ALLOWED: [Allowed; 7] = [
    Allowed {
        package: "muster-core",
        why: "core is pure: no runtime, no client, no clock, no log",
        normal: &["imbl", "indexmap", "jiff", "rustc-hash", "serde", "sha2", "smallvec", "thiserror", "toml"],
        dev: &["good_lp", "nix", "proptest", "rand", "rand_chacha", "serde_json"],
    },
    Allowed {
        package: "muster-api",
        why: "api turns Kubernetes objects into core types: no client of its own, no runtime",
        normal: &["jiff", "k8s-openapi", "kube", "muster-core", "schemars", "serde", "serde_json", "thiserror"],
        dev: &["serde-saphyr"],
    },
    Allowed {
        package: "muster-ec2",
        why: "ec2 talks to AWS and to nothing else: no Kubernetes, and of ours only core",
        normal: &[
            "aws-config",
            "aws-sdk-ec2",
            "aws-sdk-eks",
            "aws-sdk-pricing",
            "aws-sdk-sqs",
            "aws-sdk-servicequotas",
            "aws-sdk-ssm",
            "aws-smithy-http-client",
            "aws-smithy-types",
            "base64",
            "jiff",
            "muster-core",
            "serde_json",
            "thiserror",
        ],
        dev: &["clap", "muster-ec2-sim", "tokio"],
    },
    Allowed {
        package: "muster-ec2-sim",
        why: "the simulator is a second opinion: nothing of ours, and no SDK",
        normal: &[
            "axum",
            "base64",
            "form_urlencoded",
            "futures",
            "jiff",
            "rand",
            "rand_chacha",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
        ],
        dev: &["tower"],
    },
    Allowed {
        package: "muster-replay",
        why: "replay works offline: no runtime, no client, no AWS",
        normal: &[
            "jiff",
            "k8s-openapi",
            "muster-api",
            "muster-core",
            "schemars",
            "serde",
            "serde-saphyr",
            "serde_json",
            "serde_path_to_error",
            "thiserror",
        ],
        dev: &[],
    },
    Allowed {
        package: "muster-view",
        why: "view is a function of a dump: no runtime, no client, no terminal, no socket",
        normal: &[
            "flate2",
            "jiff",
            "maud",
            "muster-api",
            "muster-core",
            "muster-replay",
            "ratatui",
            "schemars",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
        ],
        dev: &["proptest"],
    },
    Allowed {
        package: "muster-viewer",
        why: "viewer has a terminal and a loopback socket: no runtime, no client, no AWS",
        normal: &["anyhow", "clap", "indicatif", "muster-replay", "muster-view", "ratatui", "termion"],
        dev: &[],
    },
];

#[test]
fn every_package_stays_within_its_allow_list_of_dependencies() {
    nothing(
        &beyond_allow_list(&packages()),
        "dependencies beyond the allow-lists in tests/it/tidy.rs; move the code to the crate it belongs to, or extend \
         the list and say why in docs/decisions:",
    );
}

fn beyond_allow_list(packages: &[Package]) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let allowed = ALLOWED.iter().find(|allowed| allowed.package == package.name);
        if allowed.is_none() && package.name != "muster" {
            found.push(format!("{}: {} has no allow-list", package.manifest, package.name));
            continue;
        }
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let (fits, why) = match allowed {
                None => (!name.starts_with("aws"), "only muster-ec2 names AWS"),
                Some(Allowed { why, normal, dev, .. }) => {
                    let fits = match dependency.kind.as_str() {
                        "normal" => normal.contains(&name),
                        "dev" => normal.contains(&name) || dev.contains(&name),
                        _ => false,
                    };
                    (fits, *why)
                }
            };
            if !fits {
                found.push(format!("{}: {} dependency {name}: {why}", package.manifest, dependency.kind));
            }
        }
    }
    found
}

#[test]
fn the_allow_lists_refuse_a_runtime_in_core_and_aws_outside_its_crate() {
    let package = |name: &str, dependency: &str, kind: Option<&str>| {
        let metadata = serde_json::json!({"packages": [{
            "name": name,
            "manifest_path": source::checkout().join("Cargo.toml"),
            "dependencies": [{"name": dependency, "kind": kind}],
            "targets": [],
        }]});
        beyond_allow_list(&source::packages_of(&metadata)).len()
    };
    assert_eq!(package("muster-core", "serde", None), 0);
    assert_eq!(package("muster-core", "tokio", None), 1);
    assert_eq!(package("muster-core", "proptest", Some("dev")), 0);
    assert_eq!(package("muster-core", "proptest", None), 1);
    assert_eq!(package("muster-core", "serde", Some("build")), 1);
    assert_eq!(package("muster-core", "muster-api", None), 1);
    assert_eq!(package("muster-api", "muster-ec2", None), 1);
    assert_eq!(package("muster-ec2-sim", "muster-ec2", None), 1);
    assert_eq!(package("muster-ec2-sim", "muster-core", None), 1);
    assert_eq!(package("muster-ec2", "aws-config", None), 0);
    assert_eq!(package("muster", "aws-config", None), 1);
    assert_eq!(package("muster-new", "serde", None), 1);
}

#[test]
fn the_allow_lists_name_nothing_that_their_packages_do_without() {
    let packages = packages();
    let uses = |package: &str, name: &str, kind: &str| {
        let package = packages.iter().find(|one| one.name == package);
        package.is_some_and(|one| one.dependencies.iter().any(|of| of.name == name && of.kind == kind))
    };
    let mut found = Vec::new();
    for Allowed { package, normal, dev, .. } in &ALLOWED {
        for (kind, names) in [("normal", normal), ("dev", dev)] {
            let unused = names.iter().filter(|name| !uses(package, name, kind));
            found.extend(unused.map(|name| format!("{package}: {kind} dependency {name}")));
        }
    }
    nothing(&found, "tests/it/tidy.rs allows these and no manifest asks for them; take them out:");
}

#[test]
fn only_the_ec2_crate_names_the_sdk() {
    let crates = [concat!("aws_", "sdk_"), concat!("aws_", "config"), concat!("aws_", "smithy_")];
    let mut found = Vec::new();
    for (path, text) in rust(&files()) {
        if path.starts_with("crates/ec2/") {
            continue;
        }
        let source = Source::whole(text);
        for name in crates {
            found.extend(offsets(&source.code, name).map(|at| format!("{path}:{}: {name}…", line(text, at))));
        }
    }
    nothing(&found, "AWS's SDK outside crates/ec2; its types end there:");
}

#[test]
fn the_api_crate_holds_no_client() {
    let mut found = Vec::new();
    for (path, text) in rust(&files()).filter(|(path, _)| path.starts_with("crates/api/src/")) {
        let source = Source::whole(text);
        for name in ["kube::Client", "kube::Api", "kube::client", "kube::api", "kube::runtime", "async fn", ".await"] {
            found.extend(offsets(&source.code, name).map(|at| format!("{path}:{}: {name}", line(text, at))));
        }
    }
    nothing(&found, "the workspace enables kube's client for the root; crates/api uses its derive alone:");
}

// ---- 2, 3, 4, 7. Files ---------------------------------------------------------------------------------------------

#[test]
fn every_rust_file_is_reached_by_a_mod_line() {
    let files = files();
    let mut packages = packages();
    packages.push(fuzz(&files));
    let reached = reached(&files, &packages);
    let orphans: Vec<String> =
        rust(&files).map(|(path, _)| path.to_owned()).filter(|path| !reached.files.contains(path)).collect();
    nothing(&orphans, "no mod line leads to these files, so they are neither compiled nor tested:");
}

#[test]
fn each_package_has_one_test_binary() {
    let found: Vec<String> = packages()
        .iter()
        .flat_map(|package| {
            let folder = package.manifest.trim_end_matches("Cargo.toml");
            let mut allowed = vec![format!("{folder}tests/it/main.rs")];
            if package.name == "muster" {
                allowed.push("tests/e2e/main.rs".to_owned());
            }
            let tests = package.targets.iter().filter(|target| target.kind == "test");
            tests
                .filter(|target| !allowed.contains(&target.source))
                .map(|target| target.source.clone())
                .collect::<Vec<_>>()
        })
        .collect();
    nothing(&found, "every further test target links another binary; make these modules of tests/it/main.rs:");
}

/// A file may have this many lines.
const LINES: usize = 800;

/// Files that may have more, each with the reason why it cannot be split.
const LONG: [(&str, &str); 0] = [];

#[test]
fn no_file_is_too_long() {
    let files = files();
    let mut found = Vec::new();
    for (path, text) in rust(&files) {
        let lines = text.lines().count();
        let exempt = LONG.iter().find(|(long, _)| *long == path);
        match exempt {
            None if lines > LINES => found.push(format!("{path}: {lines} lines")),
            Some(_) if lines <= LINES => found.push(format!("{path}: {lines} lines need no exemption")),
            Some((_, "")) => found.push(format!("{path}: exemption without a reason")),
            None | Some(_) => {}
        }
    }
    found.extend(
        LONG.iter().filter(|(path, _)| !files.contains_key(*path)).map(|(path, _)| format!("{path}: no such file")),
    );
    nothing(&found, "a file ends at 800 lines; split it by subject, or exempt it in tests/it/tidy.rs with a reason:");
}

#[test]
fn every_module_says_what_it_is() {
    let found: Vec<String> = rust(&files())
        .filter(|(_, text)| !text.lines().find(|line| !line.trim().is_empty()).unwrap_or("").starts_with("//!"))
        .map(|(path, _)| path.to_owned())
        .collect();
    nothing(&found, "these files do not begin with //! and a sentence that says what they are:");
}

// ---- 5. Generated files --------------------------------------------------------------------------------------------

#[test]
fn the_shipped_definitions_are_those_of_the_types() {
    let files = files();
    let folder = "manifests/crds/";
    let rendered: BTreeMap<String, String> = muster::commands::crds::render().unwrap().into_iter().collect();
    let kustomization = files.get(&format!("{folder}kustomization.yaml")).map_or("", String::as_str);
    let mut found = Vec::new();
    for (name, yaml) in &rendered {
        match files.get(&format!("{folder}{name}")) {
            None => found.push(format!("{folder}{name} is missing")),
            Some(shipped) if shipped != yaml => {
                let pairs = shipped.lines().zip(yaml.lines()).enumerate();
                let (at, shipped, now) = pairs
                    .filter(|(_, (shipped, now))| shipped != now)
                    .map(|(index, (shipped, now))| (index + 1, shipped.trim(), now.trim()))
                    .next()
                    .unwrap_or((shipped.lines().count().min(yaml.lines().count()) + 1, "the end", "more or less"));
                found.push(format!("{folder}{name}:{at}: \"{shipped}\" is now \"{now}\""));
            }
            Some(_) => {}
        }
        if !kustomization.contains(&format!("- {name}\n")) {
            found.push(format!("{folder}kustomization.yaml does not list {name}"));
        }
    }
    let known = |name: &str| name == "kustomization.yaml" || rendered.contains_key(name);
    let shipped = files.keys().filter_map(|path| path.strip_prefix(folder));
    found.extend(shipped.filter(|name| !known(name)).map(|name| format!("{folder}{name} belongs to no kind")));
    nothing(&found, "manifests/crds differs from the types in crates/api; run `make crds`:");
}

// ---- 6. What operators read ----------------------------------------------------------------------------------------

#[test]
fn every_reason_of_an_event_is_documented() {
    let files = files();
    let folders = ["src/", "crates/core/src/gang/", "crates/api/src/conventions/"];
    let mut reasons: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in rust(&files).filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder))) {
        reasons.extend(reasons_of(text).into_iter().map(|reason| (reason, path.to_owned())));
    }
    assert!(!reasons.is_empty(), "no reason was found; this rule no longer sees anything");
    let codes = muster_core::reason::Code::ALL.into_iter();
    reasons.extend(codes.map(|code| (code.to_string(), "crates/core/src/reason/code.rs".to_owned())));
    let documented: BTreeSet<&str> = quoted(document(&files, "docs/operations.md")).collect();
    let found: Vec<String> = reasons
        .iter()
        .filter(|(reason, _)| !documented.contains(reason.as_str()))
        .map(|(reason, path)| format!("{reason}, from {path}"))
        .collect();
    nothing(&found, "a person meets these words; give each a line in docs/operations.md:");
}

/// Words of events and of `waiting.reason`: one word in CamelCase.
fn reasons_of(text: &str) -> Vec<String> {
    let source = Source::shipped(text);
    let mut found = Vec::new();
    for before in ["reason:", "reason =", "waiting("] {
        for at in offsets(&source.code, before) {
            let Some(word) = source::literal_at(&source, at + before.len()) else { continue };
            let camel =
                word.starts_with(|c: char| c.is_ascii_uppercase()) && word.bytes().all(|b| b.is_ascii_alphanumeric());
            if camel && word.len() > 1 {
                found.push(word.to_owned());
            }
        }
    }
    found
}

#[test]
fn a_reason_is_seen_in_every_form_in_which_it_is_written() {
    let text = "E { reason: \"Planned\", m }; event.reason = \"Replanned\"; waiting::waiting(\n  \"NoPool\", m);\n\
                #[expect(clippy::x, reason = \"a sentence\")]\n#[cfg(test)]\nmod tests { fn f() { E { reason: \"Fake\" } } }";
    assert_eq!(reasons_of(text), ["Planned", "Replanned", "NoPool"]);
}

#[test]
fn every_decision_is_in_the_index_of_decisions() {
    let files = files();
    let index = document(&files, "docs/decisions/0001-record.md");
    let pages = files.keys().filter_map(|path| path.strip_prefix("docs/decisions/"));
    let pages: Vec<&str> = pages.filter(|page| !page.starts_with("0001")).collect();
    assert!(pages.len() > 30, "the decisions were not found: {pages:?}");
    let missing = pages.iter().filter(|page| !index.contains(&format!("]({page})"))).map(|page| (*page).to_owned());
    nothing(&missing.collect::<Vec<_>>(), "pages without a row in docs/decisions/0001-record.md:");
}

#[test]
fn every_key_of_ours_is_in_the_user_guide() {
    let files = files();
    let source = Source::whole(document(&files, "crates/api/src/keys.rs"));
    let guide: BTreeSet<&str> = quoted(document(&files, "docs/user-guide.md")).collect();
    let found: Vec<String> = offsets(&source.literals, concat!("\"muster", ".dev/"))
        .filter_map(|at| source::literal_at(&source, at))
        .filter(|key| *key != keys::PREFIX && !guide.contains(key))
        .map(str::to_owned)
        .collect();
    nothing(&found, "these keys of crates/api/src/keys.rs are not in docs/user-guide.md:");
}

#[track_caller]
fn document<'a>(files: &'a BTreeMap<String, String>, path: &str) -> &'a str {
    files.get(path).unwrap_or_else(|| panic!("{path} is missing"))
}

/// What stands between back-ticks on one line, code blocks included.
fn quoted(markdown: &str) -> impl Iterator<Item = &str> {
    markdown.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let files = files();
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for at in offsets(text, "](") {
            let target = text[at + 2..].split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
            for part in target.split('/') {
                match part {
                    "" | "." => {}
                    ".." => {
                        parts.pop();
                    }
                    part => parts.push(part),
                }
            }
            if !source::checkout().join(parts.join("/")).exists() {
                found.push(format!("{path}:{}: {target}", line(text, at)));
            }
        }
    }
    nothing(&found, "links to files that do not exist:");
}

// ---- 8. Keys -------------------------------------------------------------------------------------------------------

#[test]
fn label_keys_are_spelt_out_in_one_file() {
    let files = files();
    let reached = reached(&files, &packages());
    let own_constants = ["crates/api/src/keys.rs", "crates/core/src/model/tags.rs", "crates/core/src/model/taint.rs"];
    let own_folders = ["src/testbed/", "crates/ec2-sim/"];
    let mut found = Vec::new();
    for (path, text) in rust(&files) {
        let exempt = own_constants.contains(&path)
            || own_folders.iter().any(|folder| path.starts_with(folder))
            || reached.tests.contains(path);
        if exempt {
            continue;
        }
        let source = Source::shipped(text);
        let key = concat!("\"muster", ".dev/");
        found.extend(offsets(&source.literals, key).map(|at| format!("{path}:{}", line(text, at))));
    }
    nothing(&found, "a key spelt out twice is misspelt one day; use the constants of muster_api::keys:");
}

#[test]
fn constants_that_crates_below_the_api_have_of_their_own_agree_with_it() {
    use muster_core::{ec2, offering, topology};
    assert_eq!(ec2::TAG_CLUSTER_UID, keys::CLUSTER_UID);
    assert_eq!(ec2::TAG_BATCH, keys::BATCH);
    assert_eq!(ec2::TAG_GANG_UID, keys::GANG_UID);
    assert_eq!(ec2::TAG_ATTEMPT, keys::ATTEMPT);
    assert_eq!(ec2::TAG_CLUSTER_PREFIX, keys::CLUSTER_TAG_PREFIX);
    assert_eq!(offering::NVIDIA_GPU, keys::NVIDIA_GPU);
    assert_eq!(offering::EFA, keys::EFA);
    assert_eq!(muster_core::model::node::GANG_PENDING, keys::GANG_PENDING);
    assert_eq!(topology::ZONE_KEY, keys::ZONE);
    assert_eq!(topology::ZONE_ID_KEY, keys::ZONE_ID);
    assert_eq!(topology::HOST_KEY, keys::HOSTNAME);
    for (index, key) in topology::NETWORK_LAYER_KEYS.iter().enumerate() {
        assert_eq!(*key, format!("{}{}", keys::NETWORK_LAYER_PREFIX, index + 1));
    }
    assert_eq!(muster_ec2_sim::CLUSTER_TAG, keys::CLUSTER_UID);
    assert_eq!(muster_ec2_sim::BATCH_TAG, keys::BATCH);
    assert_eq!(muster_ec2_sim::ATTEMPT_TAG, keys::ATTEMPT);
}

// ---- 9. External calls ---------------------------------------------------------------------------------------------

/// Methods of `kube::Api` that change something. Events are not among them: nothing depends on them.
const KUBE: [&str; 11] = [
    "create",
    "create_subresource",
    "delete",
    "delete_collection",
    "evict",
    "patch",
    "patch_metadata",
    "patch_status",
    "patch_subresource",
    "replace_status",
    "replace_subresource",
];

#[test]
fn every_call_that_changes_something_goes_through_step() {
    let mut found = Vec::new();
    let mut seen = 0;
    for (path, text) in rust(&files()) {
        let source = Source::shipped(text);
        let calls: Vec<Call<'_>> =
            if ["src/provisioner/", "src/gang/", "src/extender/"].iter().any(|of| path.starts_with(of)) {
                // `replace` is a method of str too; Api's takes parameters.
                method_calls(&source.code)
                    .into_iter()
                    .filter(|call| {
                        KUBE.contains(&call.method)
                            || (call.method == "replace" && call.arguments.contains("PostParams"))
                    })
                    .collect()
            } else if path.starts_with("src/cloud/") {
                let changes = |method: &str| {
                    ["create_", "delete_", "terminate_", "run_", "modify_", "resolve_"]
                        .iter()
                        .any(|verb| method.starts_with(verb))
                };
                method_calls(&source.code).into_iter().filter(|call| changes(call.method)).collect()
            } else {
                continue;
            };
        seen += calls.len();
        let beside = calls.iter().filter(|call| !call.in_step);
        found.extend(beside.map(|call| format!("{path}:{}: .{}(", line(text, call.at), call.method)));
    }
    assert!(seen > 10, "only {seen} calls were found; this rule no longer sees anything");
    nothing(&found, "calls beside step(), where no crash is tested; wrap them: step(Step::…, call).await:");
}

#[test]
fn the_client_behind_the_cloud_is_only_asked() {
    let mut found = Vec::new();
    for (path, text) in rust(&files()).filter(|(path, _)| path.starts_with("src/") && !path.starts_with("src/cloud/")) {
        let source = Source::shipped(text);
        for at in offsets(&source.code, ".ec2()") {
            let method = source.code[at + ".ec2()".len()..].trim_start().trim_start_matches('.');
            if !method.starts_with("describe_") {
                let method: String = method.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                found.push(format!("{path}:{}: {method}", line(text, at)));
            }
        }
    }
    nothing(&found, "what changes something in EC2 is a method of Cloud, with a crash point and a metric:");
}

/// One `.method(…)`.
#[derive(Clone, Copy, Debug)]
struct Call<'a> {
    at: usize,
    method: &'a str,
    arguments: &'a str,
    /// Whether it stands inside the parentheses of `step(…)`.
    in_step: bool,
}

fn method_calls(code: &str) -> Vec<Call<'_>> {
    // One entry per bracket that is open: the word before it, and the call it began.
    let mut open: Vec<(&str, Option<(usize, usize)>)> = Vec::new();
    let mut calls: Vec<Call<'_>> = Vec::new();
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' => {
                let (name, start) = called(code, at);
                let mut began = None;
                if !name.is_empty() && code[..start].trim_end().ends_with('.') {
                    let in_step = open.iter().any(|(word, _)| *word == "step");
                    began = Some((calls.len(), at + 1));
                    calls.push(Call { at: start, method: name, arguments: "", in_step });
                }
                open.push((name, began));
            }
            b'[' | b'{' => open.push(("", None)),
            b')' | b']' | b'}' => {
                if let Some((_, Some((call, start)))) = open.pop() {
                    calls[call].arguments = &code[start..at];
                }
            }
            _ => {}
        }
    }
    calls
}

/// Name and start of what is called by the parenthesis at `end`, with or without type arguments.
fn called(code: &str, end: usize) -> (&str, usize) {
    let end = if code[..end].ends_with('>') { type_arguments(&code[..end]).unwrap_or(end) } else { end };
    let length = code.as_bytes()[..end].iter().rev().take_while(|byte| is_word(**byte)).count();
    (&code[end - length..end], end - length)
}

/// Where the `::<…>` begins that ends the text; parameters of a declaration have no colons.
fn type_arguments(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().rev() {
        match byte {
            b'>' if !code[..at].ends_with('-') => depth += 1,
            b'<' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return code[..at].ends_with("::").then(|| at - 2);
                }
            }
            _ => {}
        }
    }
    None
}

#[test]
fn a_call_is_inside_step_by_its_parentheses_and_not_by_its_line() {
    let inside = |text: &str| {
        let code = Source::whole(text).code;
        method_calls(&code)
            .iter()
            .filter(|call| KUBE.contains(&call.method))
            .map(|call| (call.method.to_owned(), call.in_step))
            .collect::<Vec<_>>()
    };
    assert_eq!(inside("step(Step::A, pods.patch(&name, &p)).await"), [("patch".to_owned(), true)]);
    assert_eq!(
        inside("step(Step::A, async {\n pods\n .create_subresource::<V>(\"x\").await })"),
        [("create_subresource".to_owned(), true)]
    );
    assert_eq!(inside("step(Step::A, x).await; pods.delete(n)"), [("delete".to_owned(), false)]);
    assert_eq!(
        inside("step(Step::A, pods.create::<V>(x)); fn lock<T>(t: T) {}"),
        [("create".to_owned(), true)],
        "a declaration with parameters is no call"
    );
    assert_eq!(inside("misstep(pods.delete(n))"), [("delete".to_owned(), false)]);
    assert_eq!(inside("// pods.delete(n)\n\"pods.delete(n)\""), []);
}

// ---- 10. What must not be here -------------------------------------------------------------------------------------

#[test]
fn no_file_names_places_of_one_machine() {
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut found = Vec::new();
    for (path, text) in &files() {
        for (number, line) in text.lines().enumerate() {
            let named = places.iter().any(|place| {
                offsets(line, place)
                    .any(|at| at == 0 || !is_word(line.as_bytes()[at - 1]) && line.as_bytes()[at - 1] != b'.')
            });
            if named {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    nothing(&found, "paths that exist on one machine only:");
}

#[test]
fn every_dependency_comes_from_the_public_registry() {
    let files = files();
    let found: BTreeSet<String> = document(&files, "Cargo.lock")
        .lines()
        .filter(|line| {
            line.starts_with("source = ")
                && *line != "source = \"registry+https://github.com/rust-lang/crates.io-index\""
        })
        .map(str::to_owned)
        .collect();
    nothing(&Vec::from_iter(found), "Cargo.lock names sources that others cannot reach:");
}
