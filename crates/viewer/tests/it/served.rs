//! The server over a real socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use muster_replay::command::Arguments;
use muster_view::assets;
use muster_view::page::Frame;
use muster_view::web::Site;
use muster_viewer::server::Server;

fn site(source: &str) -> Site {
    // An empty cluster at a known moment: a page of its own, however little there is.
    let now = Some("2026-11-22T12:00:00Z");
    let overview = muster_view::of_texts(&Arguments { now, ..Arguments::default() }).unwrap();
    Site::new(&overview, &Frame { source: source.to_owned(), refresh: Some(5), ..Frame::default() })
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_is_served_on_loopback_with_its_policy_and_changes_with_the_state() {
    let server = Server::bind(0, site("first")).unwrap();
    let (address, shown) = (server.address().unwrap(), server.shown());
    assert!(address.ip().is_loopback());
    thread::spawn(move || server.run());
    let page = ask(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("\r\nContent-Security-Policy: default-src 'none'; ") && page.contains("first at"), "{page}");
    let head = ask(address, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET / HTTP/1.1\r\n\r\n", "421"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    shown.set(site("second"));
    assert!(ask(address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("second at"));
}

#[test]
fn an_open_page_gets_what_changed_and_nothing_while_nothing_does() {
    let server = Server::bind(0, site("first")).unwrap();
    let (address, shown) = (server.address().unwrap(), server.shown());
    thread::spawn(move || server.run());
    let fragment = |extra: &str| ask(address, &format!("GET /main HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n"));
    let first = fragment("");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.contains("first at"), "{first}");
    let tag = first.split("\r\nETag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let known = format!("If-None-Match: {tag}\r\n");
    let same = fragment(&known);
    assert!(same.starts_with("HTTP/1.1 304 Not Modified\r\n") && same.ends_with("\r\n\r\n"), "{same}");
    assert!(!same.contains("Content-Length") && same.contains(&format!("\r\nETag: {tag}\r\n")), "{same}");
    shown.set(site("second"));
    let second = fragment(&known);
    assert!(second.starts_with("HTTP/1.1 200 OK\r\n") && second.contains("second at"), "{second}");
    assert!(!second.contains("first at") && !second.contains("<html"), "{second}");
}

#[test]
fn fragment_and_scripts_are_read_only_and_have_the_policy_of_the_page() {
    let server = Server::bind(0, site("first")).unwrap();
    let address = server.address().unwrap();
    thread::spawn(move || server.run());
    for target in ["/", "/main", &assets::htmx_path(), &assets::script_path()] {
        let full = ask(address, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let (head, body) = full.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; "), "{head}");
        let alone = ask(address, &format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(alone, format!("{head}\r\n\r\n"), "HEAD is GET without the body");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let refused = ask(address, &format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert!(refused.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{method} {target}: {refused}");
            assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
        }
    }
}
