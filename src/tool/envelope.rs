//! JSON out: the body that a model reads, and the provider's envelope around it.
//!
//! Texts are put together, not values: a result that is JSON goes back digit for digit as the effect
//! wrote it. Every text is one line.

use super::call::{Call, Shape};
use crate::canonical::Value;
use crate::outcome::{Kind, Outcome};

/// An object under construction.
pub(super) struct Members(String);

impl Members {
    pub(super) fn new() -> Self {
        Members(String::from("{"))
    }

    /// A member whose value is JSON text.
    pub(super) fn json(mut self, name: &str, json: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    pub(super) fn text(self, name: &str, text: &str) -> Self {
        self.json(name, &quoted(text))
    }

    pub(super) fn bool(self, name: &str, bool: bool) -> Self {
        self.json(name, if bool { "true" } else { "false" })
    }

    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    Value::String(text.into()).write_canonical(&mut out);
    out
}

/// An outcome as JSON: JSON as it is, text as a string, bytes as base64url in an object. What calls
/// itself JSON and is not goes as a string.
pub(super) fn result(outcome: &Outcome) -> String {
    match (outcome.kind(), outcome.as_str()) {
        // Line breaks in JSON stand between its parts only: inside strings they are escaped.
        (Kind::Json, Some(text)) if Value::parse(text).is_ok() => text.trim().replace(['\n', '\r'], " "),
        (Kind::Json | Kind::Text, Some(text)) => quoted(text),
        _ => Members::new().text("base64url", &crate::encoding::base64url(outcome.body())).end(),
    }
}

/// Whom a result goes back to.
#[derive(Clone, Debug)]
pub(super) struct Address {
    shape: Shape,
    tool: Box<str>,
    id: Option<Box<str>>,
    request: Option<Value>,
}

impl Address {
    pub(super) fn of(call: &Call) -> Self {
        Address { shape: call.shape, tool: call.tool.clone(), id: call.id.clone(), request: call.request.clone() }
    }

    pub(super) fn tool(&self) -> &str {
        &self.tool
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// The part of a message that answers the call. Where a message holds one answer only, this is the
    /// message.
    pub(super) fn part(&self, body: &str, error: bool, denied: bool) -> String {
        match self.shape {
            Shape::OpenAiResponses => Members::new()
                .text("type", "function_call_output")
                .text("call_id", self.id())
                .text("output", body)
                .end(),
            Shape::OpenAiChat => {
                Members::new().text("role", "tool").text("tool_call_id", self.id()).text("content", body).end()
            }
            Shape::Anthropic => Members::new()
                .text("type", "tool_result")
                .text("tool_use_id", self.id())
                .text("content", body)
                .bool("is_error", error)
                .end(),
            Shape::Gemini => self.gemini("functionResponse", body, error),
            Shape::GeminiSnake => self.gemini("function_response", body, error),
            Shape::AiSdk | Shape::AiSdkProvider => self.ai_sdk(body, error, denied),
            Shape::LangChain => Members::new()
                .text("type", "tool")
                .text("tool_call_id", self.id())
                .text("name", &self.tool)
                .text("content", body)
                .text("status", if error { "error" } else { "success" })
                .end(),
            Shape::Mcp => self.mcp(body, error),
        }
    }

    /// A whole message around one part.
    pub(super) fn message(&self, part: String) -> String {
        let role = match self.shape {
            Shape::Anthropic => "user",
            Shape::AiSdk | Shape::AiSdkProvider => "tool",
            Shape::OpenAiResponses
            | Shape::OpenAiChat
            | Shape::Gemini
            | Shape::GeminiSnake
            | Shape::LangChain
            | Shape::Mcp => return part,
        };
        Members::new().text("role", role).json("content", &format!("[{part}]")).end()
    }

    fn gemini(&self, name: &str, body: &str, error: bool) -> String {
        let mut response = Members::new();
        if let Some(id) = &self.id {
            response = response.text("id", id);
        }
        let told = Members::new().json(if error { "error" } else { "output" }, body).end();
        Members::new().json(name, &response.text("name", &self.tool).json("response", &told).end()).end()
    }

    fn ai_sdk(&self, body: &str, error: bool, denied: bool) -> String {
        let output = match (denied, error) {
            (true, _) => Members::new().text("type", "execution-denied").text("reason", body),
            (false, true) => Members::new().text("type", "error-text").text("value", body),
            (false, false) => Members::new().text("type", "json").json("value", body),
        };
        Members::new()
            .text("type", "tool-result")
            .text("toolCallId", self.id())
            .text("toolName", &self.tool)
            .json("output", &output.end())
            .end()
    }

    fn mcp(&self, body: &str, error: bool) -> String {
        let content = Members::new().text("type", "text").text("text", body).end();
        let result = Members::new()
            .json("content", &format!("[{content}]"))
            .json("structuredContent", body)
            .bool("isError", error);
        let id = self.request.as_ref().map_or_else(|| "null".to_owned(), Value::to_canonical);
        Members::new().text("jsonrpc", "2.0").json("id", &id).json("result", &result.end()).end()
    }
}
