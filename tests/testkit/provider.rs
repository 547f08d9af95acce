//! The provider, over real connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceledger::testkit::{FakeClock, FakeProvider, Keys, Reply, get, post, request};

fn refund(provider: &FakeProvider, key: &str, body: &str) -> io::Result<(u16, String)> {
    let url = format!("{}/refund", provider.url());
    let headers = [("Idempotency-Key", key)];
    let (status, body) = post(&url, if key.is_empty() { &[] } else { &headers }, body.as_bytes())?;
    Ok((status, String::from_utf8(body).unwrap()))
}

fn answer(number: u32) -> (u16, String) {
    (200, format!("{{\"effect\":{number}}}"))
}

#[test]
fn an_honoured_key_has_one_effect_and_the_same_answer_again() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    for _ in 0..3 {
        assert_eq!(refund(&provider, "k1", "79").unwrap(), answer(1));
    }
    assert_eq!(refund(&provider, "k2", "79").unwrap(), answer(2));
    assert_eq!(refund(&provider, "k1", "80").unwrap().0, 422);
    assert_eq!(refund(&provider, "", "79").unwrap(), answer(3));
    assert_eq!(refund(&provider, "", "79").unwrap(), answer(4));
    assert_eq!(provider.effect_count(), 4);
    assert_eq!(provider.effects_of("/refund", b"79"), 4);
    assert_eq!(provider.effects_of("/refund", b"80"), 0);
    let log = provider.log();
    assert_eq!(log.len(), 7);
    assert_eq!((log[0].method.as_str(), log[0].path.as_str()), ("POST", "/refund"));
    assert_eq!((log[0].key.as_deref(), log[0].body.as_slice()), (Some("k1"), &b"79"[..]));
    assert_eq!(log[6].key, None);
}

#[test]
fn an_ignored_key_has_an_effect_every_time() {
    let provider = FakeProvider::start(Keys::Ignore).unwrap();
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(1));
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(2));
    provider.set_keys(Keys::Honour);
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(3), "it was never kept");
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(3));
    provider.forget_keys();
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(4));
}

#[test]
fn a_key_is_forgotten_after_its_window() {
    let clock = FakeClock::new();
    let day = Duration::from_secs(86_400);
    let provider = FakeProvider::start_with_clock(Keys::ForgetAfter(day), Arc::new(clock.clone())).unwrap();
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(1));
    clock.advance(day - Duration::from_millis(1));
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(1), "a repeat does not renew it");
    clock.advance(Duration::from_millis(1));
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(2));
}

#[test]
fn a_key_is_forgotten_after_so_many_requests() {
    let provider = FakeProvider::start(Keys::ForgetAfterRequests(2)).unwrap();
    let numbers = ["k", "k", "k", "k"].map(|key| refund(&provider, key, "79").unwrap());
    assert_eq!(numbers, [answer(1), answer(1), answer(1), answer(2)]);
}

#[test]
fn an_error_after_the_effect_is_counted_and_one_before_is_not() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    provider.script([Reply::ErrorBefore(503), Reply::ErrorAfter(502)]);
    assert_eq!(refund(&provider, "k", "79").unwrap().0, 503);
    assert_eq!(provider.effect_count(), 0);
    assert_eq!(refund(&provider, "k", "79").unwrap().0, 502);
    assert_eq!(provider.effect_count(), 1);
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(1));
}

#[test]
fn a_closed_connection_is_an_error_whether_or_not_there_was_an_effect() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    provider.script([Reply::CloseBefore, Reply::CloseAfter]);
    for effects in [0, 1] {
        let kind = refund(&provider, "k", "79").unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{kind:?}");
        assert_eq!(provider.effect_count(), effects);
    }
}

#[test]
fn a_late_answer_outlasts_the_client_and_holds_up_nobody_else() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    provider.script([Reply::Late(Duration::from_secs(3600)), Reply::Late(Duration::from_millis(20))]);
    let started = Instant::now();
    let url = format!("{}/late", provider.url());
    let error = request("POST", &url, &[], b"x", Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(provider.effects_of("/late", b"x"), 1);
    assert_eq!(refund(&provider, "k", "79").unwrap(), answer(2));
    drop(provider);
    assert!(started.elapsed() < Duration::from_secs(60), "dropping does not wait for the hour");
}

#[test]
fn a_late_effect_comes_after_the_client_gave_up() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    provider.set_default(Reply::LateEffect(Duration::from_millis(300)));
    let error = request("POST", &provider.url(), &[], b"x", Duration::from_millis(30)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(provider.effect_count(), 0);
    let end = Instant::now() + Duration::from_secs(20);
    while provider.effect_count() == 0 {
        assert!(Instant::now() < end, "the effect never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_probe_finds_an_effect_by_its_key_and_has_none() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    provider.set_default(Reply::CloseAfter);
    refund(&provider, "k", "79").unwrap_err();
    let url = format!("{}/refund", provider.url());
    let probe = |key: &str| get(&url, &[("Idempotency-Key", key)]).unwrap();
    assert_eq!(probe("k"), (200, b"{\"effects\":1}".to_vec()));
    assert_eq!(probe("other"), (200, b"{\"effects\":0}".to_vec()));
    assert_eq!(get(&url, &[]).unwrap(), (200, b"{\"effects\":1}".to_vec()));
    assert_eq!(provider.effect_count(), 1);
}

#[test]
fn many_clients_with_one_key_have_one_effect() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(refund(&provider, "k", "79").unwrap(), answer(1)));
        }
    });
    assert_eq!((provider.effect_count(), provider.log().len()), (1, 8));
}

#[test]
fn other_clients_may_send_chunks_and_wait_to_be_asked_for_the_body() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    let mut stream = TcpStream::connect(provider.url().strip_prefix("http://").unwrap()).unwrap();
    let head = "PUT /x?y=1 HTTP/1.1\r\nhost: x\r\nIDEMPOTENCY-key:  k \r\n\
                Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"effect\":1}"), "{answer}");
    let log = provider.log();
    assert_eq!((log[0].path.as_str(), log[0].key.as_deref()), ("/x?y=1", Some("k")));
    assert_eq!(log[0].body, b"abc0123456789");
}

#[test]
fn a_provider_that_is_gone_refuses_connections() {
    let provider = FakeProvider::start(Keys::Honour).unwrap();
    let url = provider.url();
    let idle = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    drop(provider);
    assert_eq!(post(&url, &[], b"").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    drop(idle);
    assert_eq!(post("ftp://x", &[], b"").unwrap_err().kind(), ErrorKind::InvalidInput);
}
