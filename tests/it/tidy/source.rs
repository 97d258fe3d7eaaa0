//! The checkout as the tidy rules see it: files, Rust text without comments and literals, the tree of modules.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder that holds the root `Cargo.toml`.
pub(super) fn checkout() -> PathBuf {
    muster::testbed::repository()
}

/// Every text file of the checkout by its path below it, with `/` between the parts; what git and cargo keep for
/// themselves is excluded, and so is what is not UTF-8.
pub(super) fn files() -> BTreeMap<String, String> {
    let root = checkout();
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let name = entry.file_name();
            if name == ".git" {
                // A folder, or in a second work tree a file that names one.
                continue;
            }
            if kind.is_dir() {
                if name != "target" {
                    folders.push(entry.path());
                }
            } else if kind.is_file() {
                // A file may vanish between the two calls: an editor's, or one that another build writes.
                let Ok(bytes) = std::fs::read(entry.path()) else { continue };
                if let Ok(text) = String::from_utf8(bytes) {
                    found.insert(below(&root, &entry.path()), text);
                }
            }
        }
    }
    found
}

/// Rust files among [`files`].
pub(super) fn rust(files: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| (path.as_str(), text.as_str()))
}

fn below(root: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(root).unwrap_or(path);
    relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// A package of the workspace, as cargo reads its manifest.
#[derive(Clone, Debug)]
pub(super) struct Package {
    pub(super) name: String,
    /// Path of `Cargo.toml` below the checkout.
    pub(super) manifest: String,
    pub(super) dependencies: Vec<Dependency>,
    pub(super) targets: Vec<Target>,
}

/// One line of a `[dependencies]` table.
#[derive(Clone, Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// `normal`, `dev` or `build`.
    pub(super) kind: String,
}

/// One thing that cargo builds from a package.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// `lib`, `bin`, `test`, `example`, `bench` or `custom-build`.
    pub(super) kind: String,
    /// Path of its first source file below the checkout.
    pub(super) source: String,
}

/// The packages of the workspace.
pub(super) fn packages() -> Vec<Package> {
    // Without dependencies nothing is resolved, so this needs neither a network nor a lock.
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(checkout())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    packages_of(&serde_json::from_slice(&output.stdout).unwrap())
}

/// Reads the answer of `cargo metadata`.
pub(super) fn packages_of(metadata: &Value) -> Vec<Package> {
    let root = checkout();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&metadata["packages"])
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            manifest: below(&root, Path::new(&text(&package["manifest_path"]))),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(|dependency| Dependency {
                    name: text(&dependency["name"]),
                    kind: dependency["kind"].as_str().unwrap_or("normal").to_owned(),
                })
                .collect(),
            targets: list(&package["targets"])
                .iter()
                .map(|target| Target {
                    kind: text(&target["kind"][0]),
                    source: below(&root, Path::new(&text(&target["src_path"]))),
                })
                .collect(),
        })
        .collect()
}

/// Rust text, byte for byte as long as the original, so that offsets and lines agree.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Comments, and what stands inside string and character literals, are blank.
    pub(super) code: String,
    /// Only comments are blank.
    pub(super) literals: String,
}

impl Source {
    /// The whole file.
    pub(super) fn whole(text: &str) -> Self {
        let mut code = text.as_bytes().to_vec();
        let mut literals = code.clone();
        for (range, comment) in blanks(text.as_bytes()) {
            blank(&mut code[range.clone()]);
            if comment {
                blank(&mut literals[range]);
            }
        }
        let utf8 = |bytes| String::from_utf8(bytes).expect("only whole comments and literals are blanked");
        Self { code: utf8(code), literals: utf8(literals) }
    }

    /// Without the modules in it that only tests see.
    pub(super) fn shipped(text: &str) -> Self {
        let mut source = Self::whole(text);
        for range in test_modules(&source.code) {
            for text in [&mut source.code, &mut source.literals] {
                let hidden: String = text[range.clone()]
                    .chars()
                    .map(|c| if c == '\n' { "\n".to_owned() } else { " ".repeat(c.len_utf8()) })
                    .collect();
                text.replace_range(range.clone(), &hidden);
            }
        }
        source
    }
}

/// Line of an offset, from 1.
pub(super) fn line(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Every offset of `needle`.
pub(super) fn offsets<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(needle).map(|(offset, _)| offset)
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// Comments (`true`) and insides of literals (`false`).
fn blanks(bytes: &[u8]) -> Vec<(Range<usize>, bool)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let start = at;
        if rest.starts_with(b"//") {
            at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            found.push((start..at, true));
        } else if rest.starts_with(b"/*") {
            at += block_comment(rest);
            found.push((start..at, true));
        } else if let Some(hashes) = raw_string(bytes, at) {
            // r, the hashes, the quote.
            let inside = at + hashes + 2;
            let mut end = b"\"".to_vec();
            end.resize(hashes + 1, b'#');
            let length = bytes[inside..].windows(end.len()).position(|window| window == end);
            let length = length.unwrap_or(bytes.len() - inside);
            found.push((inside..inside + length, false));
            at = (inside + length + end.len()).min(bytes.len());
        } else if rest[0] == b'"' {
            at += closing(rest, b'"');
            found.push((start + 1..at, false));
            at += 1;
        } else if rest[0] == b'\'' && is_character(rest) {
            at += closing(rest, b'\'');
            found.push((start + 1..at, false));
            at += 1;
        } else {
            at += 1;
        }
    }
    for (range, _) in &mut found {
        range.end = range.end.min(bytes.len());
    }
    found
}

/// Length of a block comment, which may hold others.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Number of hashes, if a raw string begins here.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|index| bytes[index]);
    if bytes[at] != b'r' || before.is_some_and(|byte| is_word(byte) && byte != b'b') {
        return None;
    }
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

/// Offset of the quote that ends the literal which begins `rest`.
fn closing(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at.min(rest.len())
}

/// Whether a quote begins a character and not a lifetime.
fn is_character(rest: &[u8]) -> bool {
    let Some(first) = rest.get(1) else { return false };
    let width = match first {
        b'\\' => return true,
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    };
    rest.get(1 + width) == Some(&b'\'')
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Inline modules behind `#[cfg(test)]`.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for start in offsets(code, "#[cfg(test)]") {
        let Some(open) = code[start..].find(['{', ';']).map(|offset| start + offset) else { continue };
        let head = &code[start..open];
        if code.as_bytes()[open] == b'{' && head.split_whitespace().any(|word| word == "mod") {
            found.push(start..matching(code, open));
        }
    }
    found
}

/// Offset behind the brace that closes the one at `open`.
fn matching(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// `mod name;`: the name, the `#[path]`, and whether only tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    pub(super) name: String,
    pub(super) path: Option<String>,
    pub(super) test: bool,
}

/// The modules a file declares to be in files of their own. Declarations inside inline modules are not followed.
pub(super) fn declarations(text: &str) -> Vec<Declaration> {
    let source = Source::whole(text);
    let code = source.code.as_bytes();
    let mut found = Vec::new();
    for start in offsets(&source.code, "mod ") {
        if start > 0 && is_word(code[start - 1]) {
            continue;
        }
        let rest = source.code[start + 4..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if name.is_empty() || !rest[name.len()..].trim_start().starts_with(';') {
            continue;
        }
        let head = source.code[..start].rfind([';', '{', '}']).map_or(0, |offset| offset + 1);
        let attributes = &source.literals[head..start];
        let path = attributes
            .split_once("path")
            .and_then(|(_, rest)| rest.trim_start().strip_prefix('='))
            .and_then(|rest| rest.split('"').nth(1))
            .map(str::to_owned);
        found.push(Declaration { name, path, test: attributes.contains("cfg(test)") });
    }
    found
}

/// A path without `..`.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// The fuzz targets, which are a workspace of their own.
pub(super) fn fuzz(files: &BTreeMap<String, String>) -> Package {
    let manifest = "fuzz/Cargo.toml";
    let text = files.get(manifest).map_or("", String::as_str);
    let paths = text.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
    let targets = paths.chain(["src/lib.rs"]);
    Package {
        name: "muster-fuzz".to_owned(),
        manifest: manifest.to_owned(),
        dependencies: Vec::new(),
        targets: targets.map(|path| Target { kind: "bin".to_owned(), source: format!("fuzz/{path}") }).collect(),
    }
}

/// Files that `mod` lines lead to.
#[derive(Clone, Debug, Default)]
pub(super) struct Reached {
    pub(super) files: BTreeSet<String>,
    /// Those that only tests see.
    pub(super) tests: BTreeSet<String>,
}

/// Follows `mod` lines from the first file of every target.
pub(super) fn reached(files: &BTreeMap<String, String>, packages: &[Package]) -> Reached {
    let mut reached = Reached::default();
    let mut next: Vec<(String, bool, bool)> = packages
        .iter()
        .flat_map(|package| &package.targets)
        .map(|target| (target.source.clone(), true, matches!(target.kind.as_str(), "test" | "bench" | "example")))
        .collect();
    while let Some((path, is_root, test)) = next.pop() {
        let Some(text) = files.get(&path) else { continue };
        if !reached.files.insert(path.clone()) {
            continue;
        }
        if test {
            reached.tests.insert(path.clone());
        }
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", &path));
        let children = if is_root || file == "mod.rs" {
            folder.to_owned()
        } else {
            format!("{folder}/{}", file.trim_end_matches(".rs"))
        };
        for declaration in declarations(text) {
            let candidates = match &declaration.path {
                Some(path) => vec![plain(&format!("{folder}/{path}"))],
                None => vec![
                    format!("{children}/{}.rs", declaration.name),
                    format!("{children}/{}/mod.rs", declaration.name),
                ],
            };
            let child = candidates.into_iter().find(|candidate| files.contains_key(candidate));
            next.extend(child.map(|child| (child, false, test || declaration.test)));
        }
    }
    reached
}

/// The first string literal behind an offset, if only white space stands before it.
pub(super) fn literal_at(source: &Source, offset: usize) -> Option<&str> {
    let rest = source.literals[offset..].trim_start();
    let rest = rest.strip_prefix('"')?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &str) {
        let source = Source::whole(text);
        assert_eq!(source.code, code);
        assert_eq!(source.literals.len(), text.len());
    }

    #[test]
    fn comments_are_blank() {
        check("a; // b(\nc", "a;      \nc");
        check("a /* b /* c */ d */ e", "a                   e");
    }

    #[test]
    fn the_insides_of_literals_are_blank_and_comments_in_them_are_none() {
        check(r#"f("{ \" //"); g"#, r#"f("       "); g"#);
        check("r#\"a(\"b\"#; c", "r#\"    \"#; c");
        check("'{' '\\'' 'é' fn f<'a>(x: &'a str)", "' ' '  ' '  ' fn f<'a>(x: &'a str)");
        assert!(Source::whole("f(\"// no comment\")").literals.contains("// no comment"));
    }

    #[test]
    fn a_module_of_tests_is_not_shipped() {
        let source = Source::shipped("fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c() }\n}\nfn d() {}");
        assert!(source.code.contains("fn a") && source.code.contains("fn d") && !source.code.contains("fn b"));
        assert_eq!(line(&source.code, source.code.find("fn d").unwrap()), 6);
    }

    #[test]
    fn declarations_are_found_with_their_attributes() {
        let text =
            "pub mod a;\n// mod no;\n#[cfg(test)]\n#[path = \"x/b.rs\"]\nmod b;\nmod c { fn f() {} }\nlet mod_d = 1;";
        let found = declarations(text);
        assert_eq!(
            found,
            [
                Declaration { name: "a".to_owned(), path: None, test: false },
                Declaration { name: "b".to_owned(), path: Some("x/b.rs".to_owned()), test: true },
            ]
        );
    }
}
