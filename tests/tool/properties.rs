//! Whatever comes in, nothing panics, and what goes out is one line of JSON.

use onceledger::tool::{Calls, Class, ToolBook};
use onceledger::{EffectError, Options, Outcome};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use crate::{file, json, scope};

const WORDS: [&str; 40] = [
    "type",
    "function_call",
    "tool_use",
    "tool-call",
    "tool_call",
    "name",
    "id",
    "call_id",
    "arguments",
    "input",
    "args",
    "role",
    "assistant",
    "tool",
    "content",
    "parts",
    "functionCall",
    "functionResponse",
    "tool_calls",
    "function",
    "jsonrpc",
    "method",
    "tools/call",
    "params",
    "_meta",
    "com.example/idempotencyKey",
    "result",
    "$schemaVersion",
    "generated_items",
    "raw_item",
    "interruptions",
    "data",
    "ai",
    "lc",
    "kwargs",
    "choices",
    "candidates",
    "message",
    "toolName",
    "toolCallId",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned),
        1 => ".{0,8}",
        1 => Just(r#"{"order_id":"A1"}"#.to_owned()),
    ]
}

fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        word().prop_map(Json::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::vec((word(), inner), 0..7)
                .prop_map(|members| Json::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Puts something else at one place of a value.
fn edit(value: &mut Json, place: &mut usize, by: &Json) {
    if *place == 0 {
        *value = by.clone();
        *place = usize::MAX;
        return;
    }
    *place = place.saturating_sub(1);
    match value {
        Json::Array(items) => items.iter_mut().for_each(|item| edit_below(item, place, by)),
        Json::Object(members) => members.values_mut().for_each(|item| edit_below(item, place, by)),
        _ => {}
    }
}

fn edit_below(value: &mut Json, place: &mut usize, by: &Json) {
    if *place != usize::MAX {
        edit(value, place, by);
    }
}

/// Reads, runs and answers whatever is found.
fn survive(text: &str) -> usize {
    let Ok(calls) = Calls::parse(text) else { return 0 };
    if calls.all().is_empty() {
        return 0;
    }
    let ledger = Options::new().threads(false).in_memory().unwrap();
    let book = ToolBook::new().default_class(Class::Effect);
    for call in calls.all() {
        let reply = book.run(&ledger, call, &scope(), "run", |_| Ok::<_, EffectError>(Outcome::json("{ \"a\":\n1.0}")));
        let envelope = reply.envelope();
        assert!(json(&envelope).is_object(), "{envelope}");
        assert!(!envelope.contains('\n'), "{envelope}");
        if json(&reply.body())["status"] == "done" {
            assert!(reply.body().contains(r#""result":{ "a": 1.0},"#), "{}", reply.body());
        }
    }
    calls.all().len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_json_is_read_or_refused(value in value()) {
        survive(&value.to_string());
    }

    #[test]
    fn transcripts_with_something_else_at_one_place_are_read_or_refused(
        name in prop::sample::select(&["google_adk_events", "langchain_messages", "openai_agents_runstate_paused",
            "openai_responses_items", "vercel_ai_messages", "vercel_ai_messages_paused", "shapes"][..]),
        place in 0..600_usize,
        by in value(),
    ) {
        let mut value = json(&file(&format!("wire/{name}.json")));
        edit(&mut value, &mut place.clone(), &by);
        survive(&value.to_string());
    }

    #[test]
    fn arbitrary_text_as_arguments_is_an_object_or_malformed(text in ".{0,40}") {
        let call = json!({"type": "function_call", "call_id": "c", "name": "refund", "arguments": text});
        prop_assert_eq!(survive(&call.to_string()), 1);
    }
}
