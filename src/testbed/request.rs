//! HTTP as the testbed needs it: whole answers from loopback.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::testbed::error::TestbedError;

/// One HTTP request to a loopback address. Errors: no connection, or an answer other than 200.
pub async fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<String, TestbedError> {
    let failed =
        |problem: String| TestbedError::Malformed { what: format!("{method} http://{address}{path}"), problem };
    let mut stream = tokio::net::TcpStream::connect(address).await.map_err(|error| failed(error.to_string()))?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.map_err(|error| failed(error.to_string()))?;
    stream.write_all(body.as_bytes()).await.map_err(|error| failed(error.to_string()))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(|error| failed(error.to_string()))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "200" { Ok(body.to_owned()) } else { Err(failed(format!("{status}: {body}"))) }
}
