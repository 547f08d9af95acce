//! Finds the calls in what providers and SDKs write, and what the same file says of them.
//!
//! A result belongs to the oldest unanswered call of its id within the newest turn that has one: ids
//! repeat from turn to turn. Text, reasoning, tools that a provider runs itself, and items that are no
//! call are passed over; what looks like a call and lacks its name is reported.

use super::call::{Call, Calls, Shape};
use super::meta::{self, Taken};
use super::state;
use crate::canonical::{Value, shown};
use crate::error::{Error, Result};

#[derive(Default)]
pub(super) struct Reader {
    calls: Vec<Found>,
    broken: Vec<Error>,
    requests: Vec<Request>,
    turn: u32,
    /// A result came since the last call: the next call begins a turn.
    ended: bool,
}

struct Found {
    call: Call,
    turn: u32,
}

/// A request for somebody's approval.
struct Request {
    approval: Option<Box<str>>,
    /// The id of the call; `None` where the call has none.
    call: Option<Box<str>>,
    /// Where the request repeats the call.
    tool: Option<Box<str>>,
    decided: Option<bool>,
}

/// The member that holds the messages, where a value is a request, a response or a saved state.
const CONTAINERS: [&str; 6] = ["messages", "output", "choices", "candidates", "contents", "input"];

impl Reader {
    pub(super) fn read(value: &Value) -> Result<Calls> {
        let mut reader = Reader::default();
        let known = match value {
            Value::Array(items) if items.is_empty() => true,
            Value::Array(items) => reader.each(items, ""),
            other => reader.value(other, "")?,
        };
        if !known && reader.broken.is_empty() {
            return Err(Error::bad_input("this is no tool call, message or transcript in a known shape")
                .next("see docs/TOOLS.md for the shapes that are read"));
        }
        Ok(reader.finish())
    }

    fn finish(mut self) -> Calls {
        for request in &self.requests {
            let names =
                |call: &Call| call.id == request.call && request.tool.as_ref().is_none_or(|tool| *tool == call.tool);
            for found in self.calls.iter_mut().filter(|found| names(&found.call)) {
                found.call.consent = state::consent(found.call.consent, request.decided);
            }
        }
        Calls { calls: self.calls.into_iter().map(|found| found.call).collect(), broken: self.broken }
    }

    /// Whether any of these is in a known shape.
    pub(super) fn each(&mut self, items: &[Value], at: &str) -> bool {
        let mut known = false;
        for (index, item) in items.iter().enumerate() {
            let at = format!("{at}/{index}");
            match self.value(item, &at) {
                Ok(this) => known |= this,
                Err(error) => self.broken.push(error.about(format!("at {at}"))),
            }
        }
        known
    }

    /// Reads one value. False: it is in no known shape. An error is about this value alone.
    fn value(&mut self, value: &Value, at: &str) -> Result<bool> {
        let Value::Object(_) = value else { return Ok(false) };
        if value.get("$schemaVersion").is_some() {
            state::read(self, value)?;
            return Ok(true);
        }
        if value.get("lc").is_some() && value.get("kwargs").is_some_and(|inner| inner.as_object().is_some()) {
            return self.langchain(value.get("kwargs").unwrap_or(value), at);
        }
        match text(value, "type") {
            Some(kind) if self.typed(kind, value, at)? => return Ok(true),
            _ => {}
        }
        if value.get("method").is_some() || value.get("jsonrpc").is_some() {
            return self.json_rpc(value);
        }
        if self.part(value)? {
            return Ok(true);
        }
        if text(value, "role").is_some() {
            self.message(value, at)?;
            return Ok(true);
        }
        self.container(value, at)
    }

    /// Reads what says its type. False: the type alone does not say what it is.
    fn typed(&mut self, kind: &str, value: &Value, at: &str) -> Result<bool> {
        match kind {
            "function_call" => {
                let taken = meta::arguments(value.get("arguments"), None);
                self.call(Shape::OpenAiResponses, value.get("name"), value.get("call_id"), taken)?;
            }
            "function_call_output" => self.result(text(value, "call_id"), None),
            "tool_use" => {
                let taken = meta::arguments(value.get("input"), None);
                self.call(Shape::Anthropic, value.get("name"), value.get("id"), taken)?;
            }
            "tool_result" => self.result(text(value, "tool_use_id"), None),
            "tool-call" => self.ai_sdk(value)?,
            "tool-result" | "tool-error" => self.result(text(value, "toolCallId"), None),
            "tool-approval-request" => self.request(text(value, "approvalId"), text(value, "toolCallId"), None),
            "tool-approval-response" => self.decision(text(value, "approvalId"), value.get("approved")),
            "tool_call" | "invalid_tool_call" if value.get("args").is_some() => {
                let taken = meta::arguments(value.get("args"), None);
                self.call(Shape::LangChain, value.get("name"), value.get("id"), taken)?;
            }
            "function" if value.get("function").is_some() => self.chat_call(value)?,
            "human" | "system" | "ai" | "AIMessageChunk" | "tool" | "function" | "chat" | "remove" => {
                return self.langchain(value.get("data").unwrap_or(value), at);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn ai_sdk(&mut self, value: &Value) -> Result<()> {
        if value.get("providerExecuted").and_then(Value::as_bool) == Some(true) {
            return Ok(());
        }
        // `args` before version 5: a call is not read as one without arguments.
        let input = value.get("input").or_else(|| value.get("args"));
        let shape = match input {
            Some(Value::String(_)) => Shape::AiSdkProvider,
            _ => Shape::AiSdk,
        };
        let taken = meta::arguments(input, None);
        self.call(shape, value.get("toolName"), value.get("toolCallId"), taken)
    }

    fn chat_call(&mut self, value: &Value) -> Result<()> {
        let function = value.get("function").unwrap_or(&Value::Null);
        if value.get("id").is_none() && function.get("arguments").is_none() {
            return Err(Error::bad_input(
                "a function without an id and without `arguments` is a tool's definition, not a call",
            ));
        }
        let taken = meta::arguments(function.get("arguments"), None);
        self.call(Shape::OpenAiChat, function.get("name"), value.get("id"), taken)
    }

    /// A LangChain message: its content may hold the provider's own copy of the calls, which is not
    /// another call.
    fn langchain(&mut self, value: &Value, at: &str) -> Result<bool> {
        for (list, items) in ["tool_calls", "invalid_tool_calls"].map(|list| (list, value.get(list))) {
            for (index, item) in items.and_then(Value::as_array).into_iter().flatten().enumerate() {
                let taken = meta::arguments(item.get("args"), None);
                let read = self.call(Shape::LangChain, item.get("name"), item.get("id"), taken);
                self.keep_error(read, format!("{at}/{list}/{index}"));
            }
        }
        if let Some(id) = text(value, "tool_call_id") {
            self.result(Some(id), None);
        }
        Ok(value.get("content").is_some() || value.get("tool_calls").is_some())
    }

    /// A message with a role: OpenAI Chat, Anthropic, AI SDK, Gemini.
    fn message(&mut self, value: &Value, at: &str) -> Result<()> {
        if text(value, "role") == Some("tool") && value.get("tool_call_id").is_some() {
            self.result(text(value, "tool_call_id"), None);
            return Ok(());
        }
        for list in ["content", "parts"] {
            if let Some(items) = value.get(list).and_then(Value::as_array) {
                self.each(items, &format!("{at}/{list}"));
            }
        }
        for (index, item) in value.get("tool_calls").and_then(Value::as_array).into_iter().flatten().enumerate() {
            let read = match item.get("function") {
                Some(_) => self.chat_call(item),
                None if item.get("args").is_some() => self.typed("tool_call", item, at).map(drop),
                None => Err(Error::bad_input("a tool call that is neither a function nor has `args`")),
            };
            self.keep_error(read, format!("{at}/tool_calls/{index}"));
        }
        Ok(())
    }

    /// One part of a Gemini message, or a bare call that states no type.
    fn part(&mut self, value: &Value) -> Result<bool> {
        for (shape, name) in [(Shape::Gemini, "functionCall"), (Shape::GeminiSnake, "function_call")] {
            let Some(call) = value.get(name).filter(|call| call.as_object().is_some()) else { continue };
            if call.get("arguments").is_some() {
                return Err(Error::bad_input(
                    "`function_call` with `arguments` is the form that `tool_calls` replaced",
                )
                .next("send the call as `tool_calls`: the old form has no id to answer to"));
            }
            if text(call, "name") == Some(state::ADK_CONFIRMATION) {
                let of = state::adk_original(call);
                self.request(text(call, "id"), of.and_then(|of| text(of, "id")), of.and_then(|of| text(of, "name")));
                return Ok(true);
            }
            self.call(shape, call.get("name"), call.get("id"), meta::arguments(call.get("args"), None))?;
            return Ok(true);
        }
        for name in ["functionResponse", "function_response"] {
            let Some(response) = value.get(name).filter(|response| response.as_object().is_some()) else { continue };
            if text(response, "name") == Some(state::ADK_CONFIRMATION) {
                let confirmed = response.get("response").and_then(|response| response.get("confirmed"));
                self.decision(text(response, "id"), confirmed);
            } else if !state::adk_interim(response) {
                self.result(text(response, "id"), text(response, "name"));
            }
            return Ok(true);
        }
        let bare = value.get("name").is_some() && value.get("args").is_some() && value.get("id").is_some();
        if bare {
            let taken = meta::arguments(value.get("args"), None);
            self.call(Shape::LangChain, value.get("name"), value.get("id"), taken)?;
        }
        Ok(bare)
    }

    fn json_rpc(&mut self, value: &Value) -> Result<bool> {
        let id = value.get("id").filter(|id| !id.is_null());
        if text(value, "method") == Some("tools/call") {
            let params = value.get("params").unwrap_or(&Value::Null);
            let taken = meta::arguments(params.get("arguments"), params.get("_meta"));
            self.call(Shape::Mcp, params.get("name"), None, taken)?;
            if let Some(found) = self.calls.last_mut() {
                found.call.request = id.cloned();
            }
        } else if value.get("result").is_some() || value.get("error").is_some() {
            let open = self.calls.iter_mut().filter(|found| !found.call.answered && id.is_some());
            if let Some(found) = open.into_iter().find(|found| found.call.request.as_ref() == id) {
                found.call.answered = true;
            }
        }
        Ok(true)
    }

    /// A request or response body, an ADK event, or a saved state that holds messages.
    fn container(&mut self, value: &Value, at: &str) -> Result<bool> {
        if let Some(content) = value.get("content").filter(|content| content.get("parts").is_some()) {
            self.message(content, &format!("{at}/content"))?;
            return Ok(true);
        }
        for name in CONTAINERS {
            let Some(items) = value.get(name).and_then(Value::as_array) else { continue };
            let at = format!("{at}/{name}");
            match name {
                "choices" => self.alternatives(items, "message", &at)?,
                "candidates" => self.alternatives(items, "content", &at)?,
                _ => _ = self.each(items, &at),
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Answers of which one is taken. Which one, nobody says where several have calls.
    fn alternatives(&mut self, items: &[Value], member: &str, at: &str) -> Result<()> {
        let before = self.calls.len();
        for (index, item) in items.iter().enumerate() {
            let Some(message) = item.get(member) else { continue };
            let so_far = self.calls.len();
            self.message(message, &format!("{at}/{index}/{member}"))?;
            if so_far > before && self.calls.len() > so_far {
                self.calls.truncate(before);
                return Err(Error::bad_input("several alternative answers have tool calls")
                    .next("send the message that the conversation goes on with"));
            }
        }
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        shape: Shape,
        name: Option<&Value>,
        id: Option<&Value>,
        (arguments, carried): Taken,
    ) -> Result<()> {
        let tool = name.and_then(Value::as_str).filter(|name| !name.is_empty()).ok_or_else(|| {
            Error::bad_input("a tool call does not name its tool").next("send the tool's name as a text")
        })?;
        let id = match id {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => {
                return Err(Error::bad_input(format!("the id of a call of {} is not a text", shown(tool))));
            }
        };
        if std::mem::take(&mut self.ended) {
            self.turn += 1;
        }
        let call = Call {
            tool: tool.into(),
            id,
            carried,
            arguments,
            shape,
            request: None,
            answered: false,
            consent: Default::default(),
        };
        self.calls.push(Found { call, turn: self.turn });
        Ok(())
    }

    /// Notes a result by its call's id, or by name where the call has none.
    pub(super) fn result(&mut self, id: Option<&str>, name: Option<&str>) {
        self.ended = true;
        let answers = |call: &Call| match id {
            Some(id) => call.id.as_deref() == Some(id) && name.is_none_or(|name| *call.tool == *name),
            // Google's SDKs answer without the id that the call has.
            None => name.is_some_and(|name| *call.tool == *name),
        };
        let open = |found: &&Found| !found.call.answered && answers(&found.call);
        let Some(turn) = self.calls.iter().rfind(open).map(|found| found.turn) else { return };
        if let Some(first) = self.calls.iter_mut().find(|found| found.turn == turn && open(&&**found)) {
            first.call.answered = true;
        }
    }

    pub(super) fn request(&mut self, approval: Option<&str>, call: Option<&str>, tool: Option<&str>) {
        if call.is_none() && tool.is_none() {
            return;
        }
        self.requests.push(Request {
            approval: approval.map(Box::from),
            call: call.map(Box::from),
            tool: tool.map(Box::from),
            decided: None,
        });
    }

    fn decision(&mut self, approval: Option<&str>, approved: Option<&Value>) {
        let Some(approved) = approved.and_then(Value::as_bool) else { return };
        for request in self.requests.iter_mut().filter(|request| request.approval.as_deref() == approval) {
            // The first decision stands.
            request.decided = request.decided.or(Some(approved));
        }
    }

    pub(super) fn keep_error(&mut self, read: Result<()>, at: String) {
        if let Err(error) = read {
            self.broken.push(error.about(format!("at {at}")));
        }
    }
}

/// The text under a name.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}
