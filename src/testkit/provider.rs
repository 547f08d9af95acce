//! A provider on the other side of a real connection: it has effects, counts them, and answers or
//! does not as it is told.

use std::collections::VecDeque;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::http::{Message, deadline};
use crate::engine::clock::Clock;

/// What the provider does with the `Idempotency-Key` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keys {
    /// One effect for each path and key, for ever. A repeat gets the first answer, with the header
    /// `Idempotent-Replayed: true`; a repeat with another body gets status 422.
    Honour,
    /// Every request has an effect.
    Ignore,
    /// As [`Keys::Honour`] for so long after the first request, then the key is new again.
    ForgetAfter(Duration),
    /// As [`Keys::Honour`] for so many further requests of any kind but GET, then the key is new
    /// again.
    ForgetAfterRequests(u64),
}

/// How one request is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The effect goes through, and the answer is status 200 at once.
    Answer,
    /// The effect goes through at once; the answer comes so much later.
    Late(Duration),
    /// Effect and answer both come so much later: after a client that has given up.
    LateEffect(Duration),
    /// The effect goes through; the connection is closed without an answer.
    CloseAfter,
    /// No effect; the connection is closed without an answer.
    CloseBefore,
    /// The effect goes through; the answer is this error status. With a key, a repeat that is
    /// answered gets the answer of the effect.
    ErrorAfter(u16),
    /// No effect; the answer is this error status.
    ErrorBefore(u16),
}

/// A request the provider got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `POST`, `GET` and so on.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The `Idempotency-Key` header.
    pub key: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// A key that was used, and what for.
#[derive(Debug)]
struct Used {
    request: Request,
    answer: String,
    at: Duration,
    number: u64,
}

/// An open connection, to be cut when the provider goes.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Desk {
    keys: Keys,
    script: VecDeque<Reply>,
    default: Reply,
    log: Vec<Request>,
    effects: Vec<Request>,
    used: Vec<Used>,
    /// Requests but GET so far.
    requests: u64,
    closing: bool,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Shared {
    desk: Mutex<Desk>,
    /// Wakes late answers when the provider goes.
    closing: Condvar,
    started: Instant,
    clock: Option<Arc<dyn Clock>>,
}

/// An HTTP/1.1 server on loopback with effects to count.
///
/// Any method but GET has an effect and is answered with `{"effect":N}`, N counting effects from 1.
/// GET has none and says how many effects its path had, with its `Idempotency-Key` if it carries
/// one: `{"effects":N}`; it is always answered. Each request is met by the next [`Reply`] of the
/// script, or by the default. Dropping the provider ends its connections and joins its threads.
#[derive(Debug)]
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl FakeProvider {
    /// Starts a provider. Windows of [`Keys::ForgetAfter`] are real time.
    ///
    /// # Errors
    /// Where there is no port to listen on, or no thread.
    pub fn start(keys: Keys) -> io::Result<Self> {
        FakeProvider::launch(keys, None)
    }

    /// Starts a provider whose windows go by a clock's wall time.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_clock(keys: Keys, clock: Arc<dyn Clock>) -> io::Result<Self> {
        FakeProvider::launch(keys, Some(clock))
    }

    fn launch(keys: Keys, clock: Option<Arc<dyn Clock>>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let desk = Desk {
            keys,
            script: VecDeque::new(),
            default: Reply::Answer,
            log: Vec::new(),
            effects: Vec::new(),
            used: Vec::new(),
            requests: 0,
            closing: false,
            connections: Vec::new(),
        };
        let started = Instant::now();
        let shared = Arc::new(Shared { desk: Mutex::new(desk), closing: Condvar::new(), started, clock });
        let server = Arc::clone(&shared);
        let listener =
            thread::Builder::new().name("fake-provider".to_owned()).spawn(move || server.listen(&listener))?;
        Ok(FakeProvider { address, shared, listener: Some(listener) })
    }

    /// Where it listens: `http://127.0.0.1:port`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How the next requests are met, one each, after those already scripted.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.desk.lock().script.extend(replies);
    }

    /// How requests are met that the script does not cover; at first with [`Reply::Answer`].
    pub fn set_default(&self, reply: Reply) {
        self.shared.desk.lock().default = reply;
    }

    /// What is done with keys from now on.
    pub fn set_keys(&self, keys: Keys) {
        self.shared.desk.lock().keys = keys;
    }

    /// Forgets every key used so far.
    pub fn forget_keys(&self) {
        self.shared.desk.lock().used.clear();
    }

    /// Every request in the order it was read.
    pub fn log(&self) -> Vec<Request> {
        self.shared.desk.lock().log.clone()
    }

    /// Every effect in order, as the request that had it.
    pub fn effects(&self) -> Vec<Request> {
        self.shared.desk.lock().effects.clone()
    }

    /// How many effects there were.
    pub fn effect_count(&self) -> usize {
        self.shared.desk.lock().effects.len()
    }

    /// How many effects this path and body had.
    pub fn effects_of(&self, path: &str, body: &[u8]) -> usize {
        let desk = self.shared.desk.lock();
        desk.effects.iter().filter(|effect| effect.path == path && effect.body == body).count()
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.shared.desk.lock().closing = true;
        self.shared.closing.notify_all();
        // Wakes the listener; where it is gone already there is nothing to wake.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        let connections = std::mem::take(&mut self.shared.desk.lock().connections);
        for mut connection in connections {
            let _ = connection.stream.shutdown(Shutdown::Both);
            if let Some(thread) = connection.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// What goes back on the connection.
enum Answer {
    Status(u16, String, bool),
    Close,
}

impl Shared {
    fn now(&self) -> Duration {
        match &self.clock {
            Some(clock) => {
                let ms = clock.read().wall_ns / 1_000_000;
                Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
            }
            None => self.started.elapsed(),
        }
    }

    fn listen(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let mut desk = self.desk.lock();
            if desk.closing {
                return;
            }
            let Ok(stream) = stream else { continue };
            let Ok(kept) = stream.try_clone() else { continue };
            let server = Arc::clone(&self);
            let thread = thread::Builder::new()
                .name("fake-provider-call".to_owned())
                // A client that goes away is its own affair.
                .spawn(move || drop(server.serve(&stream)));
            desk.connections
                .retain(|connection| connection.thread.as_ref().is_some_and(|thread| !thread.is_finished()));
            desk.connections.push(Connection { stream: kept, thread: thread.ok() });
        }
    }

    /// Meets one request and closes.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut out = stream;
        let message = Message::read(&mut BufReader::new(stream), false, |expect| match expect {
            Some(_) => out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n"),
            None => Ok(()),
        })?;
        let mut words = message.first.split(' ').map(str::to_owned);
        let request = Request {
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            key: message.header("idempotency-key").map(str::to_owned),
            body: message.body,
        };
        if let Answer::Status(status, body, replayed) = self.meet(request) {
            let replayed = if replayed { "Idempotent-Replayed: true\r\n" } else { "" };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} {}\r\nContent-Type: application/json\r\n{replayed}\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n",
                if status < 400 { "OK" } else { "Error" },
            );
            out.write_all(format!("{head}{body}").as_bytes())?;
        }
        stream.shutdown(Shutdown::Both)
    }

    fn meet(&self, request: Request) -> Answer {
        let mut desk = self.desk.lock();
        desk.log.push(request.clone());
        if request.method == "GET" {
            let same =
                |effect: &&Request| effect.path == request.path && (request.key.is_none() || effect.key == request.key);
            let count = desk.effects.iter().filter(same).count();
            return Answer::Status(200, format!("{{\"effects\":{count}}}"), false);
        }
        desk.requests += 1;
        let default = desk.default;
        let reply = desk.script.pop_front().unwrap_or(default);
        match reply {
            Reply::CloseBefore => return Answer::Close,
            Reply::ErrorBefore(status) => {
                return Answer::Status(status, "{\"error\":\"before\"}".to_owned(), false);
            }
            Reply::LateEffect(delay) => self.pause(&mut desk, delay),
            Reply::Answer | Reply::Late(_) | Reply::CloseAfter | Reply::ErrorAfter(_) => {}
        }
        if desk.closing {
            return Answer::Close;
        }
        let answer = desk.work(request, self.now());
        match reply {
            Reply::CloseAfter => Answer::Close,
            Reply::ErrorAfter(status) => Answer::Status(status, "{\"error\":\"after\"}".to_owned(), false),
            Reply::Late(delay) => {
                self.pause(&mut desk, delay);
                answer
            }
            _ => answer,
        }
    }

    /// Waits with the desk open to others, until the time is out or the provider goes.
    fn pause(&self, desk: &mut parking_lot::MutexGuard<'_, Desk>, delay: Duration) {
        let end = deadline(delay);
        while !desk.closing && !self.closing.wait_until(desk, end).timed_out() {}
    }
}

impl Desk {
    /// Has the effect, or finds that it was had.
    fn work(&mut self, request: Request, now: Duration) -> Answer {
        let (keys, requests) = (self.keys, self.requests);
        self.used.retain(|used| match keys {
            Keys::Honour | Keys::Ignore => true,
            Keys::ForgetAfter(window) => now.saturating_sub(used.at) < window,
            Keys::ForgetAfterRequests(count) => requests - used.number <= count,
        });
        let honoured = request.key.is_some() && keys != Keys::Ignore;
        let same = |used: &&Used| used.request.key == request.key && used.request.path == request.path;
        if honoured && let Some(used) = self.used.iter().find(same) {
            if used.request.body != request.body {
                let error = "{\"error\":\"key used for another body\"}";
                return Answer::Status(422, error.to_owned(), false);
            }
            return Answer::Status(200, used.answer.clone(), true);
        }
        self.effects.push(request.clone());
        let answer = format!("{{\"effect\":{}}}", self.effects.len());
        if honoured {
            let number = self.requests;
            self.used.push(Used { request, answer: answer.clone(), at: now, number });
        }
        Answer::Status(200, answer, false)
    }
}
