//! The loopback server of the page: one thread a connection, a handful at a time, and every wait ends.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use muster_view::web::{Answer, Request, Site};

/// Connections served at once; further ones are closed.
const MOST: usize = 32;
/// Bytes of a request's head.
const HEAD: u64 = 16 * 1024;
/// A client that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    site: Arc<Mutex<Arc<Site>>>,
    busy: Arc<AtomicUsize>,
}

/// What changes the state that a server shows.
#[derive(Clone, Debug)]
pub struct Shown(Arc<Mutex<Arc<Site>>>);

impl Server {
    /// Listens on 127.0.0.1; port 0: any that is free.
    ///
    /// Errors: the port is taken.
    pub fn bind(port: u16, site: Site) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Ok(Self { listener, site: Arc::new(Mutex::new(Arc::new(site))), busy: Arc::default() })
    }

    /// Where it listens.
    ///
    /// Errors: those of the socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What changes the state that is shown.
    #[must_use]
    pub fn shown(&self) -> Shown {
        Shown(Arc::clone(&self.site))
    }

    /// Answers until the process ends.
    pub fn run(&self) {
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, most likely: connections that are open end soon.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if self.busy.fetch_add(1, Ordering::SeqCst) >= MOST {
                self.busy.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let site = Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner));
            let busy = Arc::clone(&self.busy);
            thread::spawn(move || {
                // A client that went away is no failure of ours.
                let _ = serve(&stream, &site);
                busy.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

impl Shown {
    /// Shows another state from the next request on.
    pub fn set(&self, site: Site) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(site);
    }
}

fn serve(mut stream: &TcpStream, site: &Site) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = Vec::new();
    let mut reader = BufReader::new(stream.take(HEAD));
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let (answer, head_only) = match read(&lines) {
        Some(request) => (site.answer(&request), request.method == "HEAD"),
        None => (Answer::text("400 Bad Request", "this is no request\n"), false),
    };
    let mut head = format!("HTTP/1.1 {}\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&[*name, ": ", value, "\r\n"].concat());
    }
    // A browser that has the body would take the length of an answer without one for the body's.
    if !answer.status.starts_with("304") {
        head.push_str(&["Content-Length: ", &answer.body.len().to_string(), "\r\n"].concat());
    }
    head.push_str("Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    if !head_only {
        stream.write_all(answer.body.as_bytes())?;
    }
    stream.flush()
}

/// A request's head; `None` if it is none.
fn read(lines: &[String]) -> Option<Request> {
    let mut words = lines.first()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let header = |name: &str| {
        let mut found = lines.iter().skip(1).filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        });
        // Two of them: somebody on the way may have read the other one.
        found.next().filter(|_| found.next().is_none())
    };
    Some(Request {
        method: method.to_owned(),
        target: target.to_owned(),
        host: header("host"),
        if_none_match: header("if-none-match"),
        // Nothing leaves this machine.
        accept_encoding: None,
    })
}
