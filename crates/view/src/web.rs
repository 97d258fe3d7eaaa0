//! What the loopback server answers: a function of the request and of the state, rendered once for all who ask.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::assets;
use crate::overview::Overview;
use crate::page::{self, Frame, State};
use crate::would;

/// Scripts, style, images and answers of this origin alone, nothing inline; no frame may hold the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Names of this machine for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// A browser asks again whether it has the newest.
const ASK: &str = "no-cache";
const HTML: &str = "text/html; charset=utf-8";
/// A year: the address has a digest of the content.
const KEEP: &str = "max-age=31536000, immutable";
/// What fits into one packet is sent as it is.
const SMALL: usize = 1400;

/// One state, rendered, and what questions about it are answered from.
#[derive(Clone, Debug)]
pub struct Site {
    overview: Arc<Overview>,
    served: Vec<Served>,
}

/// One address.
#[derive(Clone, Debug)]
struct Served {
    target: String,
    kind: &'static str,
    cache: &'static str,
    tag: String,
    body: Arc<str>,
    /// The body compressed, once for all who ask; see [`Site::compressed`].
    packed: Option<Arc<[u8]>>,
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
    /// Header `Accept-Encoding`. `None` where nothing is compressed.
    pub accept_encoding: Option<String>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code and its words.
    pub status: &'static str,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body; for `HEAD` too, where only its length is sent.
    pub body: Arc<str>,
    /// The body as `gzip`, which is sent in its place.
    pub packed: Option<Arc<[u8]>>,
}

impl Site {
    /// Renders a state.
    #[must_use]
    pub fn new(overview: &Overview, frame: &Frame) -> Self {
        let state = State::new(overview, frame);
        let still = state.page(&Frame { still: true, ..frame.clone() });
        let fragment = Served { tag: state.tag().to_owned(), ..Served::html(page::FRAGMENT, state.fragment(frame)) };
        let served = vec![
            Served::html("/", state.page(frame)),
            Served::html("/?still", still),
            fragment,
            Served::new("/overview.json", "application/json", ASK, overview.to_json()),
            Served::new("/style.css", "text/css; charset=utf-8", ASK, page::style()),
            Served::new("/icon.svg", "image/svg+xml", ASK, assets::ICON),
            Served::new(assets::htmx_path(), "text/javascript; charset=utf-8", KEEP, assets::HTMX),
            Served::new(assets::script_path(), "text/javascript; charset=utf-8", KEEP, assets::SCRIPT),
        ];
        Self { overview: Arc::new(overview.clone()), served }
    }

    /// Compresses what is worth it, for a server that others ask over a network.
    #[must_use]
    pub fn compressed(mut self) -> Self {
        for served in &mut self.served {
            served.packed = packed(&served.body);
        }
        self
    }

    /// Answers. Only `GET` and `HEAD`, and only for names of this machine: a page elsewhere that points a name at
    /// 127.0.0.1 learns nothing.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Answer {
        if let Some(refused) = refused(request) {
            return refused;
        }
        if let Some(query) = request.target.strip_prefix(would::PATH).and_then(|rest| rest.strip_prefix('?')) {
            return self.fit(query);
        }
        let Some(served) = self.served.iter().find(|served| served.target == request.target) else {
            return Answer::text("404 Not Found", "there is no such page\n");
        };
        let known = request.if_none_match.as_deref().is_some_and(|known| {
            known.split(',').any(|one| one.trim().trim_start_matches("W/") == served.tag || one.trim() == "*")
        });
        let mut answer = if known {
            Answer::of("304 Not Modified", served.kind, served.cache, Arc::default())
        } else {
            Answer::of("200 OK", served.kind, served.cache, Arc::clone(&served.body))
        };
        let accepts = request.accept_encoding.as_deref().is_some_and(takes_gzip);
        let packed = served.packed.as_ref().filter(|_| accepts);
        if served.packed.is_some() {
            answer.headers.push(("Vary", "Accept-Encoding".to_owned()));
        }
        // The same state in other bytes; a 304 has the tag of what it stands for (RFC 9110, 15.4.5).
        let weak = if packed.is_some() { "W/" } else { "" };
        answer.headers.push(("ETag", format!("{weak}{}", served.tag)));
        if let Some(packed) = packed.filter(|_| !known) {
            answer.headers.push(("Content-Encoding", "gzip".to_owned()));
            answer.packed = Some(Arc::clone(packed));
        }
        answer
    }

    /// The answer to the form: a count over the nodes, so it is made when it is asked for.
    fn fit(&self, query: &str) -> Answer {
        let asked = match would::read(query) {
            Ok(asked) => asked,
            Err(why) => return Answer::text("400 Bad Request", &format!("{why}\n")),
        };
        let body = page::fit(&self.overview, &asked, &would::answer(&self.overview, &asked));
        Answer::of("200 OK", HTML, ASK, body.into())
    }
}

/// The refusal of a request that is none for this server, whatever it shows.
#[must_use]
pub fn refused(request: &Request) -> Option<Answer> {
    if !request.host.as_deref().is_some_and(is_loopback) {
        return Some(Answer::text("421 Misdirected Request", "this server answers for localhost alone\n"));
    }
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        let mut answer = Answer::text("405 Method Not Allowed", "GET and HEAD only\n");
        answer.headers.push(("Allow", "GET, HEAD".to_owned()));
        return Some(answer);
    }
    None
}

impl Served {
    fn new(target: impl Into<String>, kind: &'static str, cache: &'static str, body: impl Into<Arc<str>>) -> Self {
        let body: Arc<str> = body.into();
        Self { target: target.into(), kind, cache, tag: format!("\"{}\"", assets::digest(&body)), body, packed: None }
    }

    fn html(target: &str, body: String) -> Self {
        Self::new(target, HTML, ASK, body)
    }
}

impl Answer {
    /// A line of text.
    #[must_use]
    pub fn text(status: &'static str, text: &str) -> Self {
        Self::of(status, "text/plain; charset=utf-8", ASK, text.into())
    }

    fn of(status: &'static str, kind: &str, cache: &str, body: Arc<str>) -> Self {
        let headers = vec![
            ("Content-Type", kind.to_owned()),
            ("Content-Security-Policy", POLICY.to_owned()),
            ("X-Content-Type-Options", "nosniff".to_owned()),
            ("Referrer-Policy", "no-referrer".to_owned()),
            ("Cross-Origin-Resource-Policy", "same-origin".to_owned()),
            ("Cache-Control", cache.to_owned()),
        ];
        Self { status, headers, body, packed: None }
    }
}

/// A body as `gzip`, where that is worth it.
fn packed(body: &str) -> Option<Arc<[u8]>> {
    if body.len() <= SMALL {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes()).ok()?;
    encoder.finish().ok().map(Arc::from)
}

/// Whether an `Accept-Encoding` header has gzip, and not with the weight 0 (RFC 9110, 12.5.3).
fn takes_gzip(header: &str) -> bool {
    header.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.eq_ignore_ascii_case("q"));
        is_gzip && weight.is_none_or(|(_, weight)| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

/// Whether a `Host` header names this machine, with or without a port.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    LOOPBACK.into_iter().any(|name| {
        host.strip_prefix(name).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    })
}
