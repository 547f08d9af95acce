//! As much of HTTP/1.1 as a test needs: one request on one connection, over loopback, no TLS.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const HEAD_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: u64 = 64 << 20;
const TIME_OUT: Duration = Duration::from_secs(10);

/// A first line, headers with names in lower case, and a body.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) first: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad HTTP: {what}"))
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(HEAD_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("a line that is not text"))?;
    Ok(text.trim_end_matches('\r').to_owned())
}

fn value<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

impl Message {
    /// The value of a header; its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        value(&self.headers, name)
    }

    /// Reads a message. `before_body` sees the headers first; a body without a length goes on to
    /// the end of the connection where `to_end`, and is empty otherwise.
    pub(super) fn read(
        from: &mut impl BufRead,
        to_end: bool,
        before_body: impl FnOnce(Option<&str>) -> io::Result<()>,
    ) -> io::Result<Message> {
        let first = line(from)?;
        let mut headers = Vec::new();
        let mut size = first.len();
        loop {
            let text = line(from)?;
            if text.is_empty() {
                break;
            }
            size += text.len();
            if size as u64 > HEAD_BYTES_MAX {
                return Err(bad("too many headers"));
            }
            let (name, value) = text.split_once(':').ok_or_else(|| bad("a header without colon"))?;
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        before_body(value(&headers, "expect"))?;
        let chunked = value(&headers, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        let body = match value(&headers, "content-length") {
            _ if chunked => read_chunks(from)?,
            Some(length) => {
                let length = length.parse().map_err(|_| bad("a length that is no number"))?;
                read_bytes(from, length)?
            }
            None if to_end => {
                let mut body = Vec::new();
                from.take(BODY_BYTES_MAX).read_to_end(&mut body)?;
                body
            }
            None => Vec::new(),
        };
        Ok(Message { first, headers, body })
    }
}

fn read_bytes(from: &mut impl BufRead, length: u64) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES_MAX {
        return Err(bad("a body that is too long"));
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let text = line(from)?;
        let size = text.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| bad("a chunk without size"))?;
        if size == 0 {
            while !line(from)?.is_empty() {}
            return Ok(body);
        }
        let left = BODY_BYTES_MAX - body.len() as u64;
        body.extend(read_bytes(from, size.min(left + 1))?);
        if size > left {
            return Err(bad("a body that is too long"));
        }
        line(from)?;
    }
}

/// The moment after which a wait of this length ends; a year from now where there is none.
pub(super) fn deadline(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now + Duration::from_secs(366 * 86_400))
}

/// A connection whose every step ends by one deadline.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn named<T>(result: io::Result<T>) -> io::Result<T> {
        // Unix says `WouldBlock` when a socket's time-out passes.
        result.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

impl Read for Timed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        Timed::named(self.stream.read(out))
    }
}

impl Write for Timed {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        Timed::named(self.stream.write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Posts a body to an `http://` address and waits for the answer, at most 10 seconds: its status
/// and body.
///
/// # Errors
/// Whatever the connection fails with: `TimedOut` after ten seconds, `UnexpectedEof` where the
/// other side closes without answering. The request may have had its effect all the same.
pub fn post(url: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    request("POST", url, headers, body, TIME_OUT)
}

/// Gets an `http://` address, and is otherwise as [`post`].
///
/// # Errors
/// As [`post`].
pub fn get(url: &str, headers: &[(&str, &str)]) -> io::Result<(u16, Vec<u8>)> {
    request("GET", url, headers, &[], TIME_OUT)
}

/// Sends one request and waits for its answer until the time is out.
///
/// # Errors
/// As [`post`], and `InvalidInput` for an address that does not start with `http://host:port`.
pub fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    time_out: Duration,
) -> io::Result<(u16, Vec<u8>)> {
    let rest = url.strip_prefix("http://").ok_or(io::ErrorKind::InvalidInput)?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    let deadline = deadline(time_out);
    let mut stream = Timed { stream: TcpStream::connect(host)?, deadline };
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let answer = Message::read(&mut BufReader::new(stream), true, |_| Ok(()))?;
    let status = answer.first.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| bad("an answer without status"))?, answer.body))
}
