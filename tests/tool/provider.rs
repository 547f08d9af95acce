//! Refunds over HTTP: the effect of every test that counts at the provider's side.

use std::time::Duration;

use onceledger::testkit::{FakeProvider, Keys, get, request};
use onceledger::tool::Permit;
use onceledger::{EffectError, Finding, Outcome, Probe, Recovery};

/// Runs a test against a provider that honours keys and one that does not.
pub fn each(test: impl Fn(&FakeProvider)) {
    for keys in [Keys::Honour, Keys::Ignore] {
        println!("{keys:?}");
        test(&FakeProvider::start(keys).unwrap());
    }
}

/// Asks a provider for a refund, and waits a moment for its answer.
pub fn refund_at(url: &str, permit: &Permit) -> Result<Outcome, EffectError> {
    let order = permit.arguments().get("order_id").unwrap().as_str().unwrap();
    let key = permit.downstream("refund").as_uuid();
    let body = permit.arguments().get("amount").unwrap().to_canonical();
    let headers = [("Idempotency-Key", &*key)];
    let url = format!("{url}/refunds/{order}");
    match request("POST", &url, &headers, body.as_bytes(), Duration::from_millis(400)) {
        Ok((200, answer)) => Ok(Outcome::json(String::from_utf8(answer).unwrap())),
        Ok((400..=499, answer)) => Err(EffectError::final_failure(String::from_utf8(answer).unwrap())),
        Ok((status, _)) => Err(EffectError::unknown(format!("status {status}"))),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Err(EffectError::not_applied(error)),
        Err(error) => Err(EffectError::unknown(error)),
    }
}

/// Looks at the provider whether an order was refunded.
pub fn look(url: &str) -> Recovery {
    let url = format!("{url}/refunds/ord_42");
    Recovery::Reconcile(Probe::new(move |_| match get(&url, &[]) {
        Ok((200, body)) if body == b"{\"effects\":0}" => Finding::NotApplied,
        Ok((200, _)) => Finding::Applied(Outcome::json("{\"effect\":1}")),
        _ => Finding::Unknown,
    }))
}
