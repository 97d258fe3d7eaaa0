//! The page and what the server answers.

use std::io::Read as _;

use flate2::read::GzDecoder;
use muster_view::assets;
use muster_view::page::{self, Frame};
use muster_view::rows;
use muster_view::web::{Answer, Request, Site};

use crate::support::{agreed, dump, dumps, overview};

fn get(target: &str) -> Request {
    let host = Some("127.0.0.1:7070".to_owned());
    Request { method: "GET".to_owned(), target: target.to_owned(), host, ..Request::default() }
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

fn header(site: &Site, target: &str, name: &str) -> String {
    let headers = site.answer(&get(target)).headers;
    headers.into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// A page that follows a cluster.
fn following(trouble: Option<&str>) -> Site {
    let frame = Frame { refresh: Some(5), trouble: trouble.map(str::to_owned), ..Frame::default() };
    Site::new(&overview(&dump("refused")), &frame)
}

#[test]
fn a_state_that_is_known_is_not_sent_again() {
    let site = following(None);
    for target in ["/", "/?still", page::FRAGMENT, "/overview.json", "/style.css"] {
        let tag = header(&site, target, "ETag");
        for known in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".to_owned()] {
            let again = site.answer(&Request { if_none_match: Some(known), ..get(target) });
            assert_eq!((again.status, &*again.body), ("304 Not Modified", ""), "{target}");
            assert!(again.headers.contains(&("ETag", tag.clone())), "{target}");
        }
        let other = site.answer(&Request { if_none_match: Some("\"other\"".to_owned()), ..get(target) });
        assert_eq!(other.status, "200 OK", "{target}");
    }
}

#[test]
fn an_open_page_asks_with_the_version_it_shows_and_gets_the_next_one_once() {
    let (before, after) = (following(None), following(Some("no answer")));
    let tag = header(&before, page::FRAGMENT, "ETag");
    let asked =
        format!("hx-headers=\"{}\"", serde_json::json!({ "If-None-Match": tag }).to_string().replace('"', "&quot;"));
    for target in ["/", page::FRAGMENT] {
        assert!(before.answer(&get(target)).body.contains(&asked), "{target}");
    }
    let next = after.answer(&Request { if_none_match: Some(tag.clone()), ..get(page::FRAGMENT) });
    assert!(next.status == "200 OK" && next.body.contains("Not current: no answer") && !next.body.contains(&asked));
    assert_ne!(header(&after, page::FRAGMENT, "ETag"), tag);
    assert_eq!(header(&following(None), page::FRAGMENT, "ETag"), tag, "the same state has the same version");
}

#[test]
fn the_fragment_is_the_main_part_of_the_page() {
    let site = following(None);
    let (page, fragment) = (site.answer(&get("/")).body, site.answer(&get(page::FRAGMENT)).body);
    let (title, main) = fragment.split_at(fragment.find("<main").unwrap());
    assert!(title.starts_with("<title>Muster: ") && page.contains(title) && page.contains(main), "{title}");
    assert!(main.ends_with("</main>") && page.matches("<main").count() == 1);
}

#[test]
fn a_page_follows_by_script_or_without_and_a_still_one_does_neither() {
    let site = following(None);
    let page = site.answer(&get("/")).body;
    assert!(page.contains("<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"), "{page:.900}");
    assert!(page.contains(" hx-get=\"/main\" hx-trigger=\"every 5s\" hx-swap=\"outerMorph\""), "{page:.900}");
    let alone = page::html(&overview(&dump("refused")), &Frame { alone: true, refresh: Some(5), ..Frame::default() });
    for quiet in [&*site.answer(&get("/?still")).body, &*self::site().answer(&get("/")).body, &alone] {
        for word in ["<script", "refresh\"", " hx-", "htmx"] {
            assert!(!quiet.contains(word), "{word}");
        }
    }
}

#[test]
fn the_vendored_script_is_the_published_one_and_is_served_for_good() {
    use sha2::{Digest as _, Sha256};
    let digest: String = Sha256::digest(assets::HTMX).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, assets::HTMX_SHA256);
    let notice = include_str!("../../vendor/htmx-4.0.1/README.md");
    assert!(notice.contains(&format!("sha256 {digest}  htmx.min.js")), "the note beside it names another digest");
    assert!(assets::HTMX.contains("this.version=\"4.0.1\""));
    let (site, page) = (following(None), following(None).answer(&get("/")).body);
    for (path, text) in [(assets::htmx_path(), assets::HTMX), (assets::script_path(), assets::SCRIPT)] {
        assert!(page.contains(&format!("<script src=\"{path}\" defer></script>")), "{path}");
        assert_eq!(&*site.answer(&get(&path)).body, text);
        assert_eq!(header(&site, &path, "Cache-Control"), "max-age=31536000, immutable");
        assert_eq!(header(&site, &path, "Content-Type"), "text/javascript; charset=utf-8");
    }
    assert_eq!(header(&site, "/", "Cache-Control"), "no-cache");
    serde_json::from_str::<serde_json::Value>(assets::HTMX_CONFIG).unwrap();
}

#[test]
fn every_answer_has_the_policy() {
    let site = following(None);
    for target in ["/", "/?still", page::FRAGMENT, &assets::htmx_path(), &assets::script_path(), "/icon.svg", "/none"] {
        assert_eq!(
            header(&site, target, "Content-Security-Policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            "{target}"
        );
    }
}

#[test]
fn nothing_foreign_is_loaded_and_no_script_stands_in_the_page() {
    for (name, text) in dumps() {
        let frame = Frame { refresh: Some(5), ..Frame::default() };
        let mut shown = page::html(&overview(&text), &frame);
        for path in [assets::htmx_path(), assets::script_path()] {
            shown = shown.replace(&format!("<script src=\"{path}\" defer></script>"), "");
        }
        let words = [
            "<script",
            "http://",
            "https://",
            "<style",
            " style=\"",
            "javascript:",
            "js:",
            " hx-on",
            "data-hx-",
            " on",
        ];
        for word in words {
            let found = shown.match_indices(word).find(|(at, _)| word != " on" || is_handler(&shown[*at..]));
            assert!(found.is_none(), "{name}: {word} in the page");
        }
    }
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
            attempts: vec![muster_view::overview::AttemptEntry {
                number: 1,
                instance_type: text.clone(),
                zone: text.clone(),
                capacity_type: text.clone(),
                count: 1,
                outcome: text.clone(),
                code: Some(text.clone()),
                message: Some(text.clone()),
                started: None,
                ended: None,
            }],
        });
        overview.spent.push(muster_view::overview::SpentEntry {
            namespace: text.clone(),
            node_pool: text.clone(),
            capacity_type: text.clone(),
            spent_usd_micro: 1,
            stranded_usd_micro: 0,
        });
        let frame = Frame { source: text.clone(), trouble: Some(text.clone()), refresh: Some(5), ..Frame::default() };
        let site = Site::new(&overview, &frame);
        for target in ["/", "/?still", page::FRAGMENT] {
            let shown = site.answer(&get(target)).body;
            for word in ["<script>", "<svg onload", "\"><svg o", "\u{202e}", "\u{2066}"] {
                assert!(!shown.contains(word), "{target}: {word} of {text:.40}");
            }
            let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            assert!(text.contains('\u{202e}') || shown.contains(&escaped), "{target}: {text:.40} is shown");
        }
    }
}

/// Where foreign text comes from: an annotation of a pod, labels of a node, and what EC2 reported of an attempt.
#[test]
fn hostile_text_of_objects_is_text_on_the_page_too() {
    for text in
        ["<script>alert(1)</script>".to_owned(), "\"><svg onload=alert(1)>".to_owned(), "\u{202e}gnihton".to_owned()]
    {
        let items = serde_json::json!([
            {
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "n-1", "labels": {
                    "node.kubernetes.io/instance-type": text, "topology.kubernetes.io/zone": text, "muster.dev/nodepool": text,
                }},
                "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]},
            },
            {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p-0", "namespace": "ml", "uid": "p-0", "annotations": {
                    "muster.dev/gang": text, "muster.dev/gang-size": "1", "muster.dev/topology-required": text,
                }},
                "spec": {"schedulerName": "muster", "containers": [{"name": "main", "image": text}]},
                "status": {"phase": "Pending"},
            },
            {
                "apiVersion": "muster.dev/v1alpha1", "kind": "NodeBatch",
                "metadata": {"name": "b-1", "uid": "b-1"},
                "spec": {"gangRef": {"namespace": "ml", "name": "g", "uid": "u"}, "count": 1},
                "status": {"phase": "Failed", "message": text, "attempts": [{
                    "number": 1, "instanceType": text, "zone": text, "capacityType": "on-demand", "count": 1,
                    "outcome": "Lost", "code": text, "message": text,
                }]},
            },
        ]);
        let dump = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let site = Site::new(&overview(&dump), &Frame { refresh: Some(5), ..Frame::default() });
        for target in ["/", page::FRAGMENT] {
            let shown = site.answer(&get(target)).body;
            for word in ["<script>", "<svg onload", "\"><svg o", "\u{202e}"] {
                assert!(!shown.contains(word), "{target}: {word}");
            }
            let escaped = rows::clean(&text).replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            // Of the node's type, the gang's name, and twice of the attempt at least.
            assert!(shown.matches(&escaped).count() >= 4, "{target}: {text}");
        }
    }
}

#[test]
fn nothing_on_the_page_moves() {
    let style = page::style();
    for word in ["animation", "transition", "@keyframes", "scroll-behavior"] {
        assert!(!style.contains(word), "{word}");
    }
}

#[test]
fn every_object_has_a_url_of_its_own() {
    let overview = overview(&dump("running"));
    let shown = page::html(&overview, &Frame::default());
    let mut ids: Vec<&str> = shown.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let count = |kind: &str| ids.iter().filter(|id| id.starts_with(kind)).count();
    assert_eq!(
        (count("node-"), count("gang-"), count("pool-")),
        (overview.nodes.len(), overview.gangs.len(), overview.pools.len())
    );
    assert!(shown.contains(&format!("<tr id=\"node-{}\">", overview.nodes[0].name)), "{shown:.300}");
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "no id is there twice");
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
    // SVG knows no void elements: what follows an open rect is inside it, and not drawn.
    assert_eq!(shown.matches("<rect ").count(), shown.matches("></rect><text ").count(), "every cell shows its letter");
}

/// The sentence that answers the form.
fn fit(site: &Site, query: &str) -> (&'static str, String) {
    let answer = site.answer(&get(&format!("/fit?{query}")));
    let sentence = answer.body.split("role=\"status\">").nth(1).and_then(|rest| rest.split("</p>").next());
    (answer.status, sentence.unwrap_or(&answer.body).to_owned())
}

#[test]
fn the_form_answers_where_so_many_nodes_of_a_type_are_idle_and_how_many_are_missing() {
    let node = |name: &str, zone: &str, labels: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{{\"name\":\"{name}\",\"labels\":{{\"topology.kubernetes.io/zone\":\"{zone}\",\
             \"node.kubernetes.io/instance-type\":\"p5.48xlarge\"{labels}}}}},\"status\":{{\"allocatable\":{{\"nvidia.com/gpu\":\"8\",\"pods\":\"100\"}},\
             \"conditions\":[{{\"type\":\"Ready\",\"status\":\"True\"}}]}}}}"
        )
    };
    let dump = [node("a-1", "a", ""), node("a-2", "a", ""), node("b-1", "b", "")].join("\n---\n");
    let input = muster_replay::dump::Input { name: "nodes", text: &dump };
    let levels = vec!["topology.kubernetes.io/zone".to_owned(), "kubernetes.io/hostname".to_owned()];
    let arguments = muster_replay::command::Arguments { files: vec![input], levels, ..Default::default() };
    let site = Site::new(&muster_view::of_texts(&arguments).unwrap(), &Frame::default());
    let of = |query: &str| fit(&site, query).1;
    assert_eq!(of("nodes=2&type=p5.48xlarge"), "Yes: 2 nodes of p5.48xlarge fit now in one zone, a, which has 2 idle.");
    assert_eq!(of("type=p5.48xlarge&nodes=1"), "Yes: 1 node of p5.48xlarge fits now in one zone, a, which has 2 idle.");
    assert_eq!(
        of("nodes=3&type=p5.48xlarge"),
        "3 nodes of p5.48xlarge fit now, but in no single domain: 3 are idle in the cluster."
    );
    assert_eq!(
        of("nodes=4&type=p5.48xlarge"),
        "No: 4 nodes of p5.48xlarge: 3 idle in the cluster; 2 in the best zone, a."
    );
    assert_eq!(of("nodes=1&type=g6.xlarge"), "No: 1 node of g6.xlarge: 0 idle in the cluster; none in any zone.");
    let page = site.answer(&get("/")).body;
    assert!(
        page.contains("<form action=\"/fit\" method=\"get\"") && page.contains("<option value=\"p5.48xlarge\">"),
        "{page}"
    );
}

#[test]
fn a_browser_that_takes_gzip_gets_it_and_the_same_state_is_known_again() {
    assert!(site().answer(&Request { accept_encoding: Some("gzip".to_owned()), ..get("/") }).packed.is_none());
    let site = site().compressed();
    let of = |target: &str, accepts: Option<&str>| {
        site.answer(&Request { accept_encoding: accepts.map(str::to_owned), ..get(target) })
    };
    let header = |answer: &Answer, name: &str| {
        answer.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    for target in ["/", "/main", "/overview.json", "/style.css"] {
        for accepts in ["gzip", "br, GZIP;q=0.5", "deflate,gzip ; q=1"] {
            let answer = of(target, Some(accepts));
            let mut read = String::new();
            GzDecoder::new(&*answer.packed.clone().unwrap()).read_to_string(&mut read).unwrap();
            assert_eq!(read, *answer.body, "{target}");
            assert_eq!(
                (header(&answer, "Content-Encoding").as_str(), header(&answer, "Vary").as_str()),
                ("gzip", "Accept-Encoding")
            );
            let known = Some(header(&answer, "ETag"));
            let again = site.answer(&Request {
                if_none_match: known.clone(),
                accept_encoding: Some("gzip".to_owned()),
                ..get(target)
            });
            assert_eq!(
                (again.status, again.packed.is_none(), again.body.len()),
                ("304 Not Modified", true, 0),
                "{target}"
            );
            assert_eq!(Some(header(&again, "ETag")), known, "{target}");
        }
        for accepts in
            [None, Some(""), Some("br"), Some("gzip;q=0"), Some("gzip;Q=0"), Some("gzip;q=none"), Some("xgzip")]
        {
            let answer = of(target, accepts);
            assert!(answer.packed.is_none() && header(&answer, "Content-Encoding").is_empty(), "{target}: {accepts:?}");
        }
    }
    assert!(of("/icon.svg", Some("gzip")).packed.is_none(), "not worth it");
}

#[test]
fn where_no_node_has_accelerators_yet_the_type_is_typed_in() {
    let text = "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":\"n-1\"},\"status\":{}}";
    let files = vec![muster_replay::dump::Input { name: "nodes", text }];
    let arguments = muster_replay::command::Arguments { files, ..Default::default() };
    let site = Site::new(&muster_view::of_texts(&arguments).unwrap(), &Frame::default());
    let page = site.answer(&get("/")).body;
    assert!(page.contains("<input id=\"fit-type\" name=\"type\" required"), "{page}");
    let (status, answer) = fit(&site, "nodes=1&type=g6.xlarge");
    assert_eq!((status, answer.as_str()), ("200 OK", "No: 1 node of g6.xlarge: 0 idle in the cluster."));
}

#[test]
fn a_question_that_cannot_be_read_names_the_field_and_is_no_markup() {
    let site = site();
    for (query, wanted) in [
        ("", "nodes: \"\" is no number"),
        ("nodes=0&type=p5.48xlarge", "nodes: \"0\""),
        ("nodes=4294967296&type=p5.48xlarge", "nodes: \"4294967296\""),
        ("nodes=8", "type: \"\""),
        ("nodes=8&type=<script>alert(1)</script>", "type: \"<script>"),
        ("nodes=8&type=p5%2E48xlarge", "type: \"p5%2E48xlarge\""),
    ] {
        let answer = site.answer(&get(&format!("/fit?{query}")));
        assert!(answer.status == "400 Bad Request" && answer.body.starts_with(wanted), "{query}: {}", answer.body);
        assert!(answer.headers.contains(&("Content-Type", "text/plain; charset=utf-8".to_owned())));
    }
}
