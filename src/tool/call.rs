//! One tool call, whatever API it came from.

use super::read::Reader;
use crate::canonical::Value;
use crate::error::{Error, Result};

/// The form in which a call came, and in which its result goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Shape {
    /// OpenAI Responses: `function_call`.
    OpenAiResponses,
    /// OpenAI Chat: `tool_calls` with a `function`.
    OpenAiChat,
    /// Anthropic: `tool_use`.
    Anthropic,
    /// Gemini: `functionCall`.
    Gemini,
    /// Gemini as Google's Python SDK writes it: `function_call` with `args`.
    GeminiSnake,
    /// Vercel AI SDK at provider level: `tool-call` with `input` as text.
    AiSdkProvider,
    /// Vercel AI SDK messages: `tool-call` with `input` as an object.
    AiSdk,
    /// LangChain: `args`.
    LangChain,
    /// MCP: `tools/call`.
    Mcp,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Shape; 9] = [
        Shape::OpenAiResponses,
        Shape::OpenAiChat,
        Shape::Anthropic,
        Shape::Gemini,
        Shape::GeminiSnake,
        Shape::AiSdkProvider,
        Shape::AiSdk,
        Shape::LangChain,
        Shape::Mcp,
    ];

    /// A short, stable name.
    pub fn name(self) -> &'static str {
        match self {
            Shape::OpenAiResponses => "openai_responses",
            Shape::OpenAiChat => "openai_chat",
            Shape::Anthropic => "anthropic",
            Shape::Gemini => "gemini",
            Shape::GeminiSnake => "gemini_snake",
            Shape::AiSdkProvider => "ai_sdk_provider",
            Shape::AiSdk => "ai_sdk",
            Shape::LangChain => "langchain",
            Shape::Mcp => "mcp",
        }
    }
}

/// What the file says of an approval for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consent {
    /// Nothing: nobody was asked.
    #[default]
    NotAsked,
    /// A request is pending: the call must not run.
    Pending,
    /// Somebody said yes. The ledger's own approvals are not given by this.
    Given,
    /// Somebody said no: the call must not run.
    Refused,
}

/// Arguments that are no JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// What came instead.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

/// A tool call as a model asked for it.
#[derive(Clone, Debug)]
pub struct Call {
    pub(super) tool: Box<str>,
    pub(super) id: Option<Box<str>>,
    /// The key that a client put into `_meta`.
    pub(super) carried: Option<Box<str>>,
    pub(super) arguments: std::result::Result<Value, Malformed>,
    pub(super) shape: Shape,
    /// The JSON-RPC id: it goes into the answer, never into a key.
    pub(super) request: Option<Value>,
    pub(super) answered: bool,
    pub(super) consent: Consent,
}

impl Call {
    /// The tool's name.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The call id as it came; it may be empty. MCP has none.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// What names this call in its run: the key in `_meta` where a client sent one, or else the call
    /// id. `None` where both are absent or empty.
    pub fn action_id(&self) -> Option<&str> {
        self.carried.as_deref().or(self.id.as_deref()).filter(|id| !id.is_empty())
    }

    /// The arguments, an object. Members of `_meta` with a reverse-DNS prefix are not among them.
    ///
    /// # Errors
    /// What came instead of an object.
    pub fn arguments(&self) -> std::result::Result<&Value, &Malformed> {
        self.arguments.as_ref()
    }

    /// The form in which it came.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether its result is in the same file.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// What the same file says of an approval.
    pub fn consent(&self) -> Consent {
        self.consent
    }
}

/// The tool calls of one message or of a whole transcript, in order.
#[derive(Debug, Default)]
pub struct Calls {
    pub(super) calls: Vec<Call>,
    pub(super) broken: Vec<Error>,
}

impl Calls {
    /// Reads one call, a provider's message, or a whole transcript: a list of messages, items or
    /// events, a request or response body, or a run state.
    ///
    /// # Errors
    /// `BadInput` for a value in no known shape. A broken call among others is
    /// [`broken`](Calls::broken).
    pub fn read(value: &Value) -> Result<Self> {
        Reader::read(value)
    }

    /// [`read`](Calls::read) from JSON text.
    ///
    /// # Errors
    /// `BadInput` where the text is not strict JSON, and as [`read`](Calls::read).
    pub fn parse(text: &str) -> Result<Self> {
        Calls::read(&Value::parse(text)?)
    }

    /// Every call, those with a result too.
    pub fn all(&self) -> &[Call] {
        &self.calls
    }

    /// The calls that have no result yet. Those that wait for an approval are among them: running
    /// one answers that.
    pub fn to_run(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| !call.answered)
    }

    /// How many calls have their result in the file already.
    pub fn answered(&self) -> usize {
        self.calls.iter().filter(|call| call.answered).count()
    }

    /// What looked like a call and could not be read: each names its place as a JSON pointer.
    pub fn broken(&self) -> &[Error] {
        &self.broken
    }
}
