//! The server over a real socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use muster_replay::command::Arguments;
use muster_view::page::Frame;
use muster_view::web::Site;
use muster_viewer::server::Server;

fn site(source: &str) -> Site {
    // An empty cluster at a known moment: a page of its own, however little there is.
    let now = Some("2026-11-22T12:00:00Z");
    let overview = muster_view::of_texts(&Arguments { now, ..Arguments::default() }).unwrap();
    Site::new(&overview, &Frame { source: source.to_owned(), ..Frame::default() })
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
