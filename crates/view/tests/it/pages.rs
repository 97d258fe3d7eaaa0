//! The page and what the server answers.

use muster_view::page::{self, Frame};
use muster_view::web::{Request, Site};

use crate::support::{agreed, dump, dumps, overview};

fn get(target: &str) -> Request {
    let host = Some("127.0.0.1:7070".to_owned());
    Request { method: "GET".to_owned(), target: target.to_owned(), host, if_none_match: None }
}

fn site() -> Site {
    Site::new(&overview(&dump("refused")), &Frame { source: "a dump".to_owned(), ..Frame::default() })
}

#[test]
fn the_page_of_a_refused_gang_is_what_was_agreed_on() {
    let frame = Frame { source: "refused".to_owned(), alone: true, ..Frame::default() };
    agreed("tests/screens/page.html", &page::html(&overview(&dump("refused")), &frame));
}

#[test]
fn only_get_and_head_are_answered() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"] {
        let answer = site().answer(&Request { method: method.to_owned(), ..get("/") });
        assert_eq!(answer.status, "405 Method Not Allowed", "{method}");
    }
    for method in ["GET", "HEAD"] {
        assert_eq!(site().answer(&Request { method: method.to_owned(), ..get("/") }).status, "200 OK");
    }
    assert_eq!(site().answer(&get("/../etc/passwd")).status, "404 Not Found");
}

#[test]
fn a_foreign_host_is_refused() {
    for host in
        ["evil.example", "evil.example:7070", "127.0.0.1.evil.example", "localhost:99999", "localhost:7070@evil", ""]
    {
        let answer = site().answer(&Request { host: Some(host.to_owned()), ..get("/") });
        assert_eq!(answer.status, "421 Misdirected Request", "{host}");
    }
    assert_eq!(site().answer(&Request { host: None, ..get("/") }).status, "421 Misdirected Request");
    for host in ["localhost", "localhost:7070", "127.0.0.1:1", "[::1]:7070"] {
        assert_eq!(site().answer(&Request { host: Some(host.to_owned()), ..get("/") }).status, "200 OK", "{host}");
    }
}

#[test]
fn a_state_that_is_known_is_not_sent_again() {
    let tag = |target: &str| {
        let headers = site().answer(&get(target)).headers;
        headers.into_iter().find(|(name, _)| *name == "ETag").unwrap().1
    };
    let again = site().answer(&Request { if_none_match: Some(tag("/")), ..get("/") });
    assert_eq!((again.status, again.body.as_str()), ("304 Not Modified", ""));
    let other = site().answer(&Request { if_none_match: Some(tag("/overview.json")), ..get("/") });
    assert_eq!(other.status, "200 OK");
}

#[test]
fn nothing_foreign_is_loaded_and_no_script_runs() {
    for (name, text) in dumps() {
        let shown = page::html(&overview(&text), &Frame::default());
        for word in ["<script", "http://", "https://", " style=\"", "javascript:", " on"] {
            let found = shown.match_indices(word).find(|(at, _)| word != " on" || is_handler(&shown[*at..]));
            assert!(found.is_none(), "{name}: {word} in the page");
        }
    }
    let policy = site().answer(&get("/")).headers.into_iter().find(|(name, _)| *name == "Content-Security-Policy");
    assert!(policy.unwrap().1.starts_with("default-src 'none'; style-src 'self'; img-src 'self'"));
}

/// Whether text that begins with ` on` is an attribute such as ` onload="`.
fn is_handler(text: &str) -> bool {
    let word: String = text.chars().skip(1).take_while(char::is_ascii_alphabetic).collect();
    word.len() > 2 && text[1 + word.len()..].starts_with('=')
}

#[test]
fn hostile_text_is_shown_as_text() {
    let hostile = [
        "<script>alert(1)</script>".to_owned(),
        "\"><svg onload=alert(1)>".to_owned(),
        "\u{202e}gnihton\u{2066}".to_owned(),
        "x".repeat(10_000),
    ];
    for text in hostile {
        let mut overview = overview(&dump("refused"));
        let gang = &mut overview.gangs[0];
        (gang.name, gang.headline, gang.namespace) = (text.clone(), text.clone(), text.clone());
        gang.placement = Some(text.clone());
        gang.remedies[0].text.clone_from(&text);
        overview.nodes[0].name.clone_from(&text);
        overview.nodes[0].instance_type.clone_from(&text);
        overview.nodes[0].gangs = vec![0];
        overview.nodes[0].why = Some(text.clone());
        overview.domains[3].path.clone_from(&text);
        overview.pools[0].message = Some(text.clone());
        overview.pools[0].name = Some(text.clone());
        overview.batches.push(muster_view::overview::BatchEntry {
            name: text.clone(),
            phase: text.clone(),
            owner: Some(text.clone()),
            count: 1,
            ready: 0,
            instance_type: Some(text.clone()),
            zone: None,
            capacity_type: None,
            usd_micro_per_hour: 0,
            spent_usd_micro: 0,
            stranded_usd_micro: 0,
            message: Some(text.clone()),
            created: None,
            age_seconds: None,
            attempts: Vec::new(),
        });
        let frame = Frame { source: text.clone(), trouble: Some(text.clone()), ..Frame::default() };
        let shown = page::html(&overview, &frame);
        assert!(
            !shown.contains("<script") && !shown.contains("<svg onload") && !shown.contains("\"><svg o"),
            "{text:.40}"
        );
        assert!(!shown.contains('\u{202e}') && !shown.contains('\u{2066}'), "marks of direction are shown as such");
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        assert!(text.contains('\u{202e}') || shown.contains(&escaped), "{text:.40} is shown");
    }
}

#[test]
fn whatever_the_map_shows_the_table_says_too() {
    let overview = overview(&dump("running"));
    let shown = page::html(&overview, &Frame::default());
    let table = shown.split("The map as a table").nth(1).unwrap().split("</table>").next().unwrap();
    for node in &overview.nodes {
        assert!(table.contains(&node.name) && table.contains(node.state.as_str()), "{}", node.name);
    }
    assert!(table.contains("B team-a/train"), "{table}");
}
