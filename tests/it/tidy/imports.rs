//! Which file of a crate uses which other, read from `use` lines and paths.
//!
//! A file is what counts, not the module that passes a name on: an item that `mod.rs` re-exports is used where it is
//! defined, and re-exporting uses nothing. What a module's own children use of it is excluded, since a module and its
//! children are one unit to Rust: the parent may call them, and they may use what it defines for all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, is_word, offsets};

/// For each file, those it uses.
pub(super) type Uses = BTreeMap<String, BTreeSet<String>>;

/// One name that a `use` line brings into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    /// What is named, as it is written: `crate`, `super`, a child, or another crate first.
    path: Vec<String>,
    /// Under which name; `*` for all.
    name: String,
    /// Whether others see it under that name.
    passed_on: bool,
}

#[derive(Debug)]
struct File {
    module: Vec<String>,
    imports: Vec<Import>,
    /// Everything but `use` lines, comments, literals and tests.
    body: String,
}

/// The files of one crate.
#[derive(Debug)]
struct Crate<'a> {
    files: BTreeMap<&'a str, File>,
    modules: BTreeMap<Vec<String>, &'a str>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target<'a> {
    /// A module as such.
    Module,
    /// Something defined in a file.
    Item(&'a str),
    /// Something of another crate.
    Outside,
}

/// Uses between the files below `root`, which ends with `/`. Files in `tests` are excluded, and so are modules of tests
/// in other files.
pub(super) fn uses(files: &BTreeMap<String, String>, root: &str, tests: &BTreeSet<String>) -> Uses {
    let own = files.iter().filter(|(path, _)| path.starts_with(root) && path.ends_with(".rs"));
    // A binary beside a library is a crate of its own.
    let library = files.contains_key(&format!("{root}lib.rs"));
    let excluded = |path: &String| tests.contains(path) || library && *path == format!("{root}main.rs");
    let own = own.filter(|(path, _)| !excluded(path));
    let mut found = Crate { files: BTreeMap::new(), modules: BTreeMap::new() };
    for (path, text) in own {
        let module = module_of(&path[root.len()..]);
        let (imports, body) = imports(&Source::shipped(text).code);
        found.modules.insert(module.clone(), path);
        found.files.insert(path, File { module, imports, body });
    }
    let uses = found.files.keys().map(|path| ((*path).to_owned(), found.used_by(path)));
    uses.collect()
}

/// Circles among the files: each as its files in order of path, files on no circle excluded.
pub(super) fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|path| (path.as_str(), reached_from(uses, path))).collect();
    for (path, reached) in &reach {
        let known = found.iter().any(|circle| circle.iter().any(|file| file == path));
        if known || !reached.contains(path) {
            continue;
        }
        let back = |other: &&&str| reach.get(**other).is_some_and(|reached| reached.contains(path));
        found.push(reached.iter().filter(back).map(|file| (*file).to_owned()).collect());
    }
    found
}

/// Everything that can be reached over one use or more.
fn reached_from<'a>(uses: &'a Uses, start: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = uses.get(start).into_iter().flatten().map(String::as_str).collect();
    while let Some(path) = next.pop() {
        if reached.insert(path) {
            next.extend(uses.get(path).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

/// The module of a file, from its path below the crate's root.
fn module_of(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

impl<'a> Crate<'a> {
    fn used_by(&self, path: &str) -> BTreeSet<String> {
        let file = &self.files[path];
        let mut used: BTreeSet<&str> = BTreeSet::new();
        let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for import in &file.imports {
            let Some(full) = self.absolute(&import.path, &file.module) else { continue };
            if import.name == "*" {
                used.extend(self.modules.get(&full).filter(|_| !import.passed_on));
                continue;
            }
            if let Target::Item(of) = self.resolve(&full, &mut BTreeSet::new())
                && (!import.passed_on || has_word(&file.body, &import.name))
            {
                used.insert(of);
            }
            names.insert(&import.name, full);
        }
        for path in paths(&file.body) {
            let full = match names.get(path[0].as_str()) {
                Some(start) => start.iter().chain(&path[1..]).cloned().collect(),
                None => match self.absolute(&path, &file.module) {
                    Some(full) => full,
                    None => continue,
                },
            };
            if let Target::Item(of) = self.resolve(&full, &mut BTreeSet::new()) {
                used.insert(of);
            }
        }
        let above = |other: &str| file.module.starts_with(&self.files[other].module);
        used.into_iter().filter(|other| !above(other)).map(str::to_owned).collect()
    }

    /// From the crate's root; `None` for what begins in another crate, or with a name that is none of a module.
    fn absolute(&self, path: &[String], module: &[String]) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let (start, rest) = match path.first()?.as_str() {
            "crate" => (&module[..0], &path[1..]),
            "self" => (module, &path[1..]),
            "super" => (&module[..module.len().checked_sub(supers)?], &path[supers..]),
            child => {
                let mut full = module.to_vec();
                full.push(child.to_owned());
                if !self.modules.contains_key(&full) {
                    return None;
                }
                (module, path)
            }
        };
        Some(start.iter().chain(rest).cloned().collect())
    }

    /// Follows a path over everything that is passed on.
    fn resolve(&self, full: &[String], seen: &mut BTreeSet<(&'a str, String)>) -> Target<'a> {
        let known = (0..=full.len()).rev().find(|length| self.modules.contains_key(&full[..*length]));
        let Some(length) = known else { return Target::Outside };
        let path = self.modules[&full[..length]];
        let Some(name) = full.get(length) else { return Target::Module };
        if !seen.insert((path, name.clone())) {
            return Target::Item(path);
        }
        let file = &self.files[path];
        if let Some(import) = file.imports.iter().find(|import| import.name == *name) {
            let Some(mut next) = self.absolute(&import.path, &file.module) else { return Target::Outside };
            next.extend_from_slice(&full[length + 1..]);
            return self.resolve(&next, seen);
        }
        let all = file.imports.iter().filter(|import| import.name == "*" && import.passed_on);
        let mut all = all.filter_map(|import| self.modules.get(&self.absolute(&import.path, &file.module)?));
        Target::Item(all.find(|other| defines(&self.files[**other].body, name)).unwrap_or(&path))
    }
}

/// The imports of a file, and what is left of its text.
fn imports(code: &str) -> (Vec<Import>, String) {
    let mut found = Vec::new();
    let mut body = code.to_owned();
    for at in offsets(code, "use ").chain(offsets(code, "use{")) {
        let head = code[..at].rfind([';', '{', '}', ']']).map_or(0, |offset| offset + 1);
        let visibility = code[head..at].trim();
        let starts = at == 0 || !is_word(code.as_bytes()[at - 1]);
        if !starts || !(visibility.is_empty() || visibility == "pub" || visibility.starts_with("pub(")) {
            continue;
        }
        let Some(end) = code[at..].find(';').map(|length| at + length) else { continue };
        tree(&code[at + 3..end], &[], visibility.starts_with("pub"), &mut found);
        body.replace_range(head..=end, &" ".repeat(end + 1 - head));
    }
    (found, body)
}

/// Reads what a `use` line names, braces included.
fn tree(text: &str, before: &[String], passed_on: bool, found: &mut Vec<Import>) {
    let text = text.trim();
    if let Some((head, inner)) = text.split_once('{') {
        let mut path = before.to_vec();
        path.extend(head.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        for part in parts(inner) {
            tree(part, &path, passed_on, found);
        }
        return;
    }
    let (named, alias) = match text.split_once(" as ") {
        Some((named, alias)) => (named, Some(alias.trim())),
        None => (text, None),
    };
    let mut path = before.to_vec();
    path.extend(named.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    // `self` in braces is what stands before them, `*` all of it.
    let last =
        if path.len() > 1 && path.last().is_some_and(|part| part == "self" || part == "*") { path.pop() } else { None };
    let all = last.is_some_and(|last| last == "*");
    let name = if all { Some("*") } else { alias.or(path.last().map(String::as_str)) };
    if let Some(name) = name.map(str::to_owned) {
        found.push(Import { path, name, passed_on });
    }
}

/// Splits at the commas outside of braces.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut found = Vec::new();
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Every `a::b…` in a text, at least two names long.
fn paths(body: &str) -> Vec<Vec<String>> {
    let bytes = body.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let before = at.checked_sub(1).map(|index| bytes[index]);
        if !is_word(bytes[at]) || before.is_some_and(|byte| is_word(byte) || byte == b':' || byte == b'.') {
            at += 1;
            continue;
        }
        let mut path = Vec::new();
        loop {
            let length = bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
            if length == 0 {
                break;
            }
            path.push(body[at..at + length].to_owned());
            at += length;
            if !bytes[at..].starts_with(b"::") {
                break;
            }
            at += 2;
        }
        if path.len() > 1 {
            found.push(path);
        }
    }
    found
}

fn has_word(text: &str, word: &str) -> bool {
    let bytes = text.as_bytes();
    offsets(text, word).any(|at| {
        let end = at + word.len();
        (at == 0 || !is_word(bytes[at - 1])) && bytes.get(end).is_none_or(|byte| !is_word(*byte))
    })
}

/// Whether a file has an item of this name.
fn defines(body: &str, name: &str) -> bool {
    let items = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];
    items.iter().any(|item| has_word(body, &format!("{item} {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Uses {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        uses(&files, "src/", &BTreeSet::from(["src/a_tests.rs".to_owned()]))
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: &[(&str, &[&str])]) {
        let found = found(files);
        let used = found.iter().filter(|(_, used)| !used.is_empty());
        let used: Vec<(&str, Vec<&str>)> =
            used.map(|(path, used)| (path.as_str(), used.iter().map(String::as_str).collect())).collect();
        let expected: Vec<(&str, Vec<&str>)> = expected.iter().map(|(path, used)| (*path, used.to_vec())).collect();
        assert_eq!(used, expected);
    }

    #[test]
    fn a_use_line_and_a_path_use_the_file_that_defines_what_they_name() {
        check(
            &[
                ("src/lib.rs", "mod a; mod b; mod c;"),
                ("src/a.rs", "use crate::{b::{self, One}, c as other};\nfn f() { other::two(); }"),
                ("src/b.rs", "pub struct One; fn f() -> crate::c::Two { super::c::two::<Self>() }"),
                ("src/c.rs", "use std::fmt; impl fmt::Display for Two {}"),
            ],
            &[("src/a.rs", &["src/b.rs", "src/c.rs"]), ("src/b.rs", &["src/c.rs"])],
        );
    }

    #[test]
    fn a_module_that_is_named_and_not_used_is_no_use() {
        check(&[("src/lib.rs", ""), ("src/a.rs", "use crate::b;"), ("src/b.rs", "")], &[]);
    }

    #[test]
    fn what_is_passed_on_is_used_where_it_is_defined() {
        check(
            &[
                ("src/lib.rs", "mod a; mod capacity;"),
                ("src/a.rs", "use crate::capacity::{One, Two, three};"),
                ("src/capacity/mod.rs", "mod x; mod y; pub use x::{One, inner as three}; pub use y::*;"),
                ("src/capacity/x.rs", "pub struct One; pub fn inner() {}"),
                ("src/capacity/y.rs", "pub enum Two {}"),
            ],
            &[("src/a.rs", &["src/capacity/x.rs", "src/capacity/y.rs"])],
        );
    }

    #[test]
    fn a_parent_uses_its_children_and_not_the_other_way_round() {
        check(
            &[
                ("src/lib.rs", ""),
                ("src/capacity/mod.rs", "mod x; pub struct Of; fn f() { x::g() }"),
                ("src/capacity/x.rs", "use super::Of; pub fn g() {}"),
            ],
            &[("src/capacity/mod.rs", &["src/capacity/x.rs"])],
        );
    }

    #[test]
    fn tests_comments_and_literals_use_nothing() {
        check(
            &[
                ("src/lib.rs", ""),
                (
                    "src/a.rs",
                    "// crate::b::f()\nconst A: &str = \"crate::b::f\";\n#[cfg(test)]\nmod tests { use crate::b::f; }",
                ),
                ("src/a_tests.rs", "use crate::b::f;"),
                ("src/b.rs", "fn g() -> impl Fn() + use<'_> {}"),
            ],
            &[],
        );
    }

    #[test]
    fn every_file_on_a_circle_is_found_and_no_other() {
        let uses = found(&[
            ("src/lib.rs", ""),
            ("src/a.rs", "use crate::b::f;"),
            ("src/b.rs", "use crate::c::f; fn g() { crate::d::f() }"),
            ("src/c.rs", "use super::a::f;"),
            ("src/d.rs", ""),
            ("src/e.rs", "use crate::f::f; use crate::a::f;"),
            ("src/f.rs", "use crate::e::f;"),
        ]);
        assert_eq!(circles(&uses), [vec!["src/a.rs", "src/b.rs", "src/c.rs"], vec!["src/e.rs", "src/f.rs"]]);
    }
}
