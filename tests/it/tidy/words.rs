//! One word per concept: the field's, as `docs/glossary.md` lists them. And words of a state machine are compared in one
//! place alone.

use std::collections::BTreeSet;

use super::nothing;
use super::source::{files, line, rust};

/// A word that is not the field's, and the one that is. A word is a part of an identifier (`snake_case`, `CamelCase`) or
/// of a sentence.
const WORDS: [(&str, &str); 29] = [
    ("wish", "topology request"),
    ("wishes", "topology requests"),
    ("promise", "assignment"),
    ("promised", "assigned"),
    ("promises", "assignments"),
    ("room", "capacity"),
    ("rooms", "capacities"),
    ("buy", "provision, launch"),
    ("buys", "provisions, launches"),
    ("buying", "provisioning"),
    ("bought", "provisioned, launched"),
    ("market", "capacity type"),
    ("markets", "capacity types"),
    ("hint", "nomination"),
    ("hints", "nominations"),
    ("wake", "requeue"),
    ("wakes", "requeues"),
    ("woken", "requeued"),
    ("believe", "assume, trust"),
    ("believed", "assumed, trusted"),
    ("drought", "insufficient capacity"),
    ("canary", "probe"),
    ("brake", "safety threshold"),
    ("told", "reported"),
    ("said", "reported, stated"),
    ("rights", "permissions"),
    ("anew", "again"),
    ("standin", "fake kubelet"),
    ("braked", "held"),
];

/// Several words that mean one thing, and what they are called.
const PHRASES: [(&str, &str); 7] = [
    ("give back", "terminate, release"),
    ("gives back", "terminates, releases"),
    ("given back", "terminated, released"),
    ("left out", "excluded"),
    ("leaves out", "excludes"),
    ("stops the gang", "evicts the gang"),
    ("ICE memory", "unavailable offerings"),
];

/// What may stand, each with its reason. It is cut out before words are looked for.
const STAYS: [(&str, &str); 22] = [
    ("muster.dev/wake", "a key on pods, persisted"),
    ("\"wishes\"", "a field of Gangs and of recordings, persisted"),
    ("wishes:", "a field of Gangs, persisted"),
    ("\"rooms\"", "a field of Gangs, persisted"),
    ("rooms:", "a field of Gangs, persisted"),
    ("- rooms", "a field of Gangs, persisted"),
    ("\"room\"", "a field of recordings, persisted"),
    ("\"canary\"", "a field of NodeBatches, persisted"),
    ("canary:", "a field of NodeBatches, persisted"),
    ("Canary", "an outcome in NodeBatches, persisted"),
    ("\"market\"", "a field of launch parameters and documents, persisted"),
    ("\\\"market\\\"", "the same, inside a string"),
    ("market: ", "a field of scenarios, a published format"),
    ("\"/market\"", "a path into a scenario's view, a published format"),
    ("\"promised\"", "a field of documents, a published format"),
    ("\"buy\"", "a field of documents, a published format"),
    ("`buy`", "the same, in prose"),
    ("`market`", "a field of scenarios and documents, in prose"),
    ("otherMarket", "an answer of the error table, persisted"),
    ("rehint", "an older spelling of a key of the configuration"),
    ("rights-alone", "a choice of the simulator, a published name"),
    ("MarketType", "a type of the EC2 API"),
];

/// Files that are not ours to word: licences, what is generated from elsewhere, and the list itself.
fn is_ours(path: &str) -> bool {
    let worded = [".rs", ".md", ".yaml", ".toml", "Makefile"].iter().any(|end| path.ends_with(end));
    let foreign =
        ["tests/it/tidy/words.rs", "docs/glossary.md", "fixtures/", "/golden/", "/seeds/", "/dumps/", "Cargo.lock"];
    worded && !foreign.iter().any(|part| path.contains(part))
}

/// Every word of a text with its place: parts of identifiers are words of their own.
fn words(text: &str) -> impl Iterator<Item = (usize, String)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !bytes[at].is_ascii_alphabetic() {
            at += 1;
        }
        let start = at;
        while at < bytes.len() && bytes[at].is_ascii_alphabetic() {
            // A new word begins with a capital that follows a small letter, or that a small letter follows.
            let capital = bytes[at].is_ascii_uppercase() && at > start;
            let next_is_small = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            if capital && (bytes[at - 1].is_ascii_lowercase() || next_is_small) {
                break;
            }
            at += 1;
        }
        (at > start).then(|| (start, text[start..at].to_ascii_lowercase()))
    })
}

fn findings(path: &str, text: &str) -> Vec<String> {
    let mut text = text.to_owned();
    for (stays, _) in STAYS {
        text = text.replace(stays, &" ".repeat(stays.len()));
    }
    // EC2 names these itself, in whatever case.
    for stays in
        ["InstanceMarketOptions", "instanceMarketOptions", "instance_market_options", "market_type", "marketType"]
    {
        text = text.replace(stays, &" ".repeat(stays.len()));
    }
    // Of the standard library and of an executor.
    for stays in ["size_hint", "SizeHint"] {
        text = text.replace(stays, &" ".repeat(stays.len()));
    }
    let mut found = Vec::new();
    for (at, word) in words(&text) {
        if let Some((_, instead)) = WORDS.iter().find(|(private, _)| *private == word) {
            found.push(format!("{path}:{}: {word}, say {instead}", line(&text, at)));
        }
    }
    for (phrase, instead) in PHRASES {
        for (at, _) in text.match_indices(phrase) {
            found.push(format!("{path}:{}: {phrase}, say {instead}", line(&text, at)));
        }
    }
    found
}

#[test]
fn every_concept_has_the_fields_word_in_code_documents_and_messages() {
    let files = files();
    let ours: Vec<_> = files.iter().filter(|(path, _)| is_ours(path)).collect();
    assert!(ours.len() > 300, "the checkout was not found: {} files", ours.len());
    let found: Vec<String> = ours.iter().flat_map(|(path, text)| findings(path, text)).collect();
    nothing(&found, "words that are not the field's; docs/glossary.md has the terms:");
}

#[test]
fn a_private_word_is_found_in_identifiers_and_sentences_and_a_persisted_name_is_not() {
    let of = |text: &str| findings("a.rs", text).len();
    assert_eq!(of("let more_room = 1;"), 1);
    assert_eq!(of("struct GangWish;"), 1);
    assert_eq!(of("const NODES_BOUGHT: u32 = 1;"), 1);
    assert_eq!(of("// what nobody promised"), 1);
    assert_eq!(of("// nodes are given back"), 1);
    assert_eq!(of("let headroom = classroom; // mushroom"), 0);
    assert_eq!(of("#[serde(rename = \"wishes\")]"), 0);
    assert_eq!(of("pub const REQUEUE: &str = \"muster.dev/wake\";"), 0);
}

#[test]
fn the_glossary_has_every_word_of_the_list() {
    let files = files();
    let glossary = &files["docs/glossary.md"];
    let missing: Vec<String> = WORDS
        .iter()
        .flat_map(|(_, instead)| instead.split(", "))
        .map(|term| term.trim_end_matches('s'))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|term| {
            let stem = &term[..term.len().min(6)];
            !glossary.to_ascii_lowercase().contains(stem)
        })
        .map(str::to_owned)
        .collect();
    nothing(&missing, "terms without a line in docs/glossary.md:");
}

// ---- Words of the state machine ------------------------------------------------------------------------------------

/// Phases of a NodeBatch that are nothing else besides.
const PHASES: [&str; 5] = ["\"InUse\"", "\"Launching\"", "\"Draining\"", "\"Replacing\"", "\"Joining\""];

#[test]
fn no_phase_of_a_batch_is_compared_as_text_behind_the_edge() {
    let files = files();
    let mut found = Vec::new();
    let mut seen = 0;
    for (path, text) in rust(&files) {
        let shipped = text.split("#[cfg(test)]").next().unwrap_or_default();
        // The simulator reads objects by itself: it is a second opinion and shares nothing with ours.
        if path.starts_with("crates/ec2-sim/") {
            continue;
        }
        if path.starts_with("crates/api/src/") {
            seen += PHASES.iter().filter(|phase| shipped.contains(**phase)).count();
            continue;
        }
        if !(path.starts_with("src/") || (path.starts_with("crates/") && path.contains("/src/"))) {
            continue;
        }
        for (number, text) in shipped.lines().enumerate() {
            let compares = text.contains("==") || text.contains("!=") || text.contains("matches!");
            if compares && PHASES.iter().any(|phase| text.contains(*phase)) {
                found.push(format!("{path}:{}: {}", number + 1, text.trim()));
            }
        }
    }
    assert!(seen >= PHASES.len(), "crates/api no longer writes these words: {seen}");
    nothing(&found, "phases are compared as enums; read the batch with muster_api::batch_state:");
}
