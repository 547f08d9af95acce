//! What agent frameworks save: the OpenAI Agents run state, and approvals as frameworks ask for them.

use super::call::{Consent, Shape};
use super::meta;
use super::read::{Reader, text};
use crate::canonical::Value;
use crate::error::{Error, Result};

/// Reads a run state: the calls are the tool-call items of `generated_items`, the approval requests
/// are the `interruptions` of the current step. Every other copy of either is ignored.
pub(super) fn read(reader: &mut Reader, value: &Value) -> Result<()> {
    let items = value.get("generated_items").and_then(Value::as_array).ok_or_else(|| {
        Error::bad_input("a run state without `generated_items`").next("save the run state with OpenAI's Python SDK")
    })?;
    for (index, item) in items.iter().enumerate() {
        let raw = item.get("raw_item").unwrap_or(&Value::Null);
        match (text(item, "type"), text(raw, "type")) {
            (Some("tool_call_item"), Some("function_call")) => {
                let taken = meta::arguments(raw.get("arguments"), None);
                let read = reader.call(Shape::OpenAiResponses, raw.get("name"), raw.get("call_id"), taken);
                reader.keep_error(read, format!("/generated_items/{index}"));
            }
            (Some("tool_call_output_item"), _) => reader.result(text(raw, "call_id"), None),
            _ => {}
        }
    }
    let step = value.get("current_step").and_then(|step| step.get("data"));
    let waiting = step.and_then(|data| data.get("interruptions")).or_else(|| value.get("interruptions"));
    for item in waiting.and_then(Value::as_array).into_iter().flatten() {
        let raw = item.get("raw_item").unwrap_or(&Value::Null);
        reader.request(None, text(raw, "call_id"), text(raw, "name"));
    }
    Ok(())
}

/// What several requests for one call say together: a no outweighs what is pending, and that a yes.
pub(super) fn consent(so_far: Consent, decided: Option<bool>) -> Consent {
    let this = match decided {
        None => Consent::Pending,
        Some(true) => Consent::Given,
        Some(false) => Consent::Refused,
    };
    match (so_far, this) {
        (Consent::Refused, _) | (_, Consent::Refused) => Consent::Refused,
        (Consent::Pending, _) | (_, Consent::Pending) => Consent::Pending,
        (Consent::Given | Consent::NotAsked, this) => this,
    }
}

/// The call by which Google's ADK asks a person to confirm another call. It is no tool.
pub(super) const ADK_CONFIRMATION: &str = "adk_request_confirmation";

/// The call that a confirmation is asked for.
pub(super) fn adk_original(call: &Value) -> Option<&Value> {
    let args = call.get("args")?;
    args.get("originalFunctionCall").or_else(|| args.get("original_function_call"))
}

/// ADK answers a call that waits for its confirmation with an error of its own. It is not the
/// call's result.
pub(super) fn adk_interim(response: &Value) -> bool {
    let error = response.get("response").and_then(|response| text(response, "error"));
    error.is_some_and(|error| error.starts_with("This tool call requires confirmation"))
}
