//! `docs/getting-started-eks.md` as a shell reads it: commands as words, and manifests, with every variable filled in.

/// The page.
pub(crate) const PAGE: &str = include_str!("../../docs/getting-started-eks.md");

/// What the page's variables hold for the user of its examples. A longer name comes before one that it begins with.
const VARIABLES: [(&str, &str); 12] = [
    ("CLUSTER_UID", "01234567-89ab-cdef-0123-456789abcdef"),
    ("CLUSTER", "training"),
    ("AWS_REGION", "us-east-1"),
    ("SOURCE", "https://muster.dev"),
    ("ACCOUNT", "123456789012"),
    ("ARCHITECTURE", "amd64"),
    ("REGISTRY", "123456789012.dkr.ecr.us-east-1.amazonaws.com"),
    ("IMAGE", "123456789012.dkr.ecr.us-east-1.amazonaws.com/muster:0.1.0"),
    ("VPC", "vpc-00000000000000001"),
    ("SECURITY_GROUP", "sg-00000000000000001"),
    ("SUBNET_IDS", "subnet-00000000000000001,subnet-00000000000000002"),
    ("SUBNETS", "{id: subnet-00000000000000001}, {id: subnet-00000000000000002}"),
];

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// The blocks of shell, in order.
pub(crate) fn blocks() -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in PAGE.lines() {
        match &mut block {
            None if line == "```sh" => block = Some(String::new()),
            None => {}
            Some(_) if line == "```" => found.extend(block.take()),
            Some(text) => push_line(text, line),
        }
    }
    found
}

/// A text with its variables filled in. Those of a shell function stay.
fn filled(text: &str) -> String {
    VARIABLES.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
}

/// The manifests of the page, each as one text of one or more documents.
pub(crate) fn manifests() -> Vec<String> {
    let mut found = Vec::new();
    let mut manifest: Option<String> = None;
    for line in blocks().concat().lines() {
        match &mut manifest {
            None if line.ends_with("<<EOF") => manifest = Some(String::new()),
            None => {}
            Some(text) if line == "EOF" => {
                found.push(filled(text));
                manifest = None;
            }
            Some(text) => push_line(text, line),
        }
    }
    found
}

/// Every command of the page as its words, also those within others, and what `kubectl exec` runs.
pub(crate) fn commands() -> Vec<Vec<String>> {
    let mut script = String::new();
    let mut within = false;
    for line in blocks().concat().lines() {
        let starts = line.ends_with("<<EOF");
        if !within || starts {
            let line = line.trim_end_matches("<<EOF");
            match line.strip_suffix('\\') {
                Some(first) => script.push_str(first),
                None => push_line(&mut script, line),
            }
        }
        within = starts || (within && line != "EOF");
    }
    let mut found = Vec::new();
    split(&filled(&script), &mut found);
    found
}

/// Commands of one tool, without its name.
pub(crate) fn commands_of(tool: &str) -> Vec<Vec<String>> {
    commands().into_iter().filter(|words| words[0] == tool).map(|words| words[1..].to_vec()).collect()
}

/// Splits a script into commands as far as the page needs: quotes, substitutions, lists and pipes.
fn split(script: &str, found: &mut Vec<Vec<String>>) {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None | Some('"'), '$') if chars.peek() == Some(&'(') => {
                chars.next();
                split(&substitution(&mut chars), found);
                word.get_or_insert_default().push_str("ANSWER");
            }
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\n' | ';' | '|' | '&') => {
                words.extend(word.take());
                end(&mut words, found);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    end(&mut words, found);
}

/// The text up to the bracket that ends a substitution. A quoted bracket is text.
fn substitution(chars: &mut impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    let (mut depth, mut quote) = (1_u32, None);
    for c in chars {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (_, _) => {}
        }
        if depth == 0 {
            break;
        }
        text.push(c);
    }
    text
}

/// A command that has ended: without the shell's own words in front of it.
fn end(words: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    const SHELL: [&str; 6] = ["until", "do", "done", "[", "{", "}"];
    let command: Vec<String> = words.drain(..).skip_while(|word| SHELL.contains(&word.as_str())).collect();
    if command.is_empty() {
        return;
    }
    let within = command.iter().position(|word| word == "--").map(|at| command[at + 1..].to_vec());
    found.push(command);
    found.extend(within);
}
