//! What is named and what there is: pages in comments, dependencies in sources, and assertions for debugging where they are compiled.

use super::nothing;
use super::source::{Source, files, is_word, line, offsets, packages, reached, rust};

// ---- Pages ---------------------------------------------------------------------------------------------------------

#[test]
fn every_page_that_a_comment_names_is_in_the_checkout() {
    let files = files();
    let mut seen = 0;
    let mut found = Vec::new();
    for (path, text) in rust(&files) {
        for (at, page) in pages_in_comments(text) {
            seen += 1;
            let end = format!("/{page}");
            if !files.keys().any(|there| there == page || there.ends_with(&end)) {
                found.push(format!("{path}:{}: {page}", line(text, at)));
            }
        }
    }
    assert!(seen > 10, "only {seen} pages were found in comments; this rule no longer sees anything");
    nothing(&found, "comments cite pages that nobody can open; cite one of docs/, or state the rule:");
}

/// Names of Markdown files in comments, with the place of their ending. Those behind a scheme are somebody else's.
fn pages_in_comments(text: &str) -> Vec<(usize, &str)> {
    let ending = ".md";
    let without_comments = Source::whole(text).literals;
    let (bytes, kept) = (text.as_bytes(), without_comments.as_bytes());
    let mut found = Vec::new();
    for at in offsets(text, ending) {
        let end = at + ending.len();
        if bytes[at] == kept[at] || bytes.get(end).is_some_and(|byte| is_word(*byte)) {
            continue;
        }
        let length = bytes[..at].iter().rev().take_while(|byte| is_word(**byte) || b"-./".contains(*byte)).count();
        let page = &text[at - length..end];
        if length > 0 && !page.starts_with('/') {
            found.push((at, page));
        }
    }
    found
}

#[test]
fn pages_are_seen_in_comments_and_nowhere_else() {
    let of = |text: &str| pages_in_comments(text).into_iter().map(|(_, page)| page.to_owned()).collect::<Vec<_>>();
    assert_eq!(of(concat!("//! See `docs/a-b", ".md`, and c", ".md.\nfn f() {}")), ["docs/a-b.md", "c.md"]);
    assert_eq!(of(concat!("let x = \"d", ".md\"; // https://example.com/e", ".md")), Vec::<String>::new());
    assert_eq!(of(concat!("/* f", ".md and g", ".mdx */")), ["f.md"]);
}

// ---- Dependencies --------------------------------------------------------------------------------------------------

/// Dependencies that no source of their package names, each with what it is there for.
const UNNAMED: [(&str, &str, &str); 0] = [];

#[test]
fn every_dependency_is_named_in_the_sources_of_its_package() {
    let files = files();
    let packages = packages();
    let tests = reached(&files, &packages).tests;
    let mut seen = 0;
    let mut found = Vec::new();
    for package in &packages {
        let folder = format!("{}src/", package.manifest.trim_end_matches("Cargo.toml"));
        let shipped = rust(&files).filter(|(path, _)| path.starts_with(&folder) && !tests.contains(*path));
        let code: String = shipped.map(|(_, text)| Source::shipped(text).code).collect();
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind == "normal") {
            seen += 1;
            let stands = UNNAMED.iter().any(|(of, name, _)| *of == package.name && *name == dependency.name);
            if names(&code, &dependency.name) == stands {
                let what = if stands { "is named, and needs no reason" } else { "is not named" };
                found.push(format!("{}: {} {what}", package.manifest, dependency.name));
            }
        }
    }
    assert!(seen > 50, "only {seen} dependencies were found; this rule no longer sees anything");
    nothing(&found, "take what no source names out of the manifest, or say in UNNAMED what it is there for:");
}

/// Whether code has a path that begins with the crate, or uses the crate itself.
fn names(code: &str, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    offsets(code, &name).any(|at| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let whole = !before.bytes().next_back().is_some_and(is_word) && !after.bytes().next().is_some_and(is_word);
        let begins = !before.ends_with("::") || before.ends_with(" ::");
        whole && begins && (after.starts_with("::") || before.ends_with("use "))
    })
}

#[test]
fn a_crate_is_named_by_the_beginning_of_a_path_alone() {
    assert!(names("use serde_json::Value;", "serde-json"));
    assert!(names("#[tokio::test]", "tokio"));
    assert!(names("use futures as later;", "futures"));
    assert!(names("fn f() -> ::http::Uri {}", "http"));
    assert!(!names("use crate::http::fits;", "http"));
    assert!(!names("use axum_server::tls;", "axum"));
    assert!(!names("let rand = 4;", "rand"));
}

// ---- Assertions for debugging --------------------------------------------------------------------------------------

/// Packages of ours that the tests' profile compiles without assertions for debugging: `Cargo.toml`.
fn without_assertions(manifest: &str) -> Vec<String> {
    let sections = manifest.split("[profile.dev.package.").skip(1);
    let settings = sections.filter_map(|section| section.split_once(']'));
    let without = settings.filter(|(name, lines)| {
        let lines = lines.split("\n\n").next().unwrap_or_default();
        name.starts_with("muster") && lines.contains("debug-assertions = false")
    });
    without.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn nothing_is_asserted_for_debugging_where_that_is_not_compiled_and_what_overflows_panics_everywhere() {
    let files = files();
    let manifest = &files["Cargo.toml"];
    let without = without_assertions(manifest);
    assert!(!without.is_empty());
    let mut found = Vec::new();
    for package in packages().iter().filter(|package| without.contains(&package.name)) {
        let folder = format!("{}src/", package.manifest.trim_end_matches("Cargo.toml"));
        for (path, text) in rust(&files).filter(|(path, _)| path.starts_with(&folder)) {
            let code = Source::whole(text).code;
            for word in ["debug_assert!", "debug_assert_eq!", "debug_assert_ne!", "debug_assertions"] {
                found.extend(offsets(&code, word).map(|at| format!("{path}:{}: {word}", line(text, at))));
            }
        }
    }
    nothing(&found, "these would never run in a test; assert, or compile the package with debug-assertions:");
    let wraps: Vec<&str> = manifest.lines().filter(|line| line.replace(' ', "") == "overflow-checks=false").collect();
    assert_eq!(wraps, Vec::<&str>::new());
    let stated = manifest.lines().filter(|line| line.replace(' ', "") == "overflow-checks=true").count();
    assert_eq!(stated, without.len(), "each says so itself");
}
