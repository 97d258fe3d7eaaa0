//! What the loopback server answers: a function of the request and of the state, rendered once for all who ask.

use sha2::{Digest as _, Sha256};

use crate::overview::Overview;
use crate::page::{self, Frame};

/// Nothing but the style and images of this origin; no frame may hold the page.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Names of this machine for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// One state, rendered.
#[derive(Clone, Debug)]
pub struct Site {
    page: String,
    still: String,
    json: String,
    style: String,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Header `Host`.
    pub host: Option<String>,
    /// Header `If-None-Match`.
    pub if_none_match: Option<String>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code and its words.
    pub status: &'static str,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body; for `HEAD` too, where only its length is sent.
    pub body: String,
}

impl Site {
    /// Renders a state.
    #[must_use]
    pub fn new(overview: &Overview, frame: &Frame) -> Self {
        Self {
            page: page::html(overview, frame),
            still: page::html(overview, &Frame { refresh: None, ..frame.clone() }),
            json: overview.to_json(),
            style: page::style(),
        }
    }

    /// Answers. Only `GET` and `HEAD`, and only for names of this machine: a page elsewhere that points a name at
    /// 127.0.0.1 learns nothing.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Answer {
        if !request.host.as_deref().is_some_and(is_loopback) {
            return Answer::text("421 Misdirected Request", "this server answers for localhost alone\n");
        }
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            let mut answer = Answer::text("405 Method Not Allowed", "GET and HEAD only\n");
            answer.headers.push(("Allow", "GET, HEAD".to_owned()));
            return answer;
        }
        let (kind, body) = match request.target.as_str() {
            "/" => ("text/html; charset=utf-8", &self.page),
            "/?still" => ("text/html; charset=utf-8", &self.still),
            "/overview.json" => ("application/json", &self.json),
            "/style.css" => ("text/css; charset=utf-8", &self.style),
            _ => return Answer::text("404 Not Found", "there is no such page\n"),
        };
        let digest = Sha256::digest(body.as_bytes());
        let tag: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let tag = format!("\"{tag}\"");
        let known = request.if_none_match.as_deref().is_some_and(|known| {
            known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag || one.trim() == "*")
        });
        let mut answer = if known {
            Answer::of("304 Not Modified", kind, String::new())
        } else {
            Answer::of("200 OK", kind, body.clone())
        };
        answer.headers.push(("ETag", tag));
        answer
    }
}

impl Answer {
    /// A line of text.
    #[must_use]
    pub fn text(status: &'static str, text: &str) -> Self {
        Self::of(status, "text/plain; charset=utf-8", text.to_owned())
    }

    fn of(status: &'static str, kind: &str, body: String) -> Self {
        let headers = vec![
            ("Content-Type", kind.to_owned()),
            ("Content-Security-Policy", POLICY.to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
            ("Referrer-Policy", "no-referrer".to_owned()),
            ("Cross-Origin-Resource-Policy", "same-origin".to_owned()),
            ("Cache-Control", "no-cache".to_owned()),
        ];
        Self { status, headers, body }
    }
}

/// Whether a `Host` header names this machine, with or without a port.
fn is_loopback(host: &str) -> bool {
    LOOPBACK.into_iter().any(|name| {
        host.strip_prefix(name).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    })
}
