//! An MCP server whose tools are safe against re-sent requests.
//!
//!     cargo run LEDGER             serves on standard input and output
//!     cargo run -- --demo          asks itself, and re-sends
//!
//! A client that lost a connection sends its request again under a new JSON-RPC id. `refund` is one
//! action for an order, whatever the request says else. `publish` has nothing in its arguments that
//! names the action, so it goes by the key that the client puts into `_meta`, and without one answers
//! that it was not started.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceledger::tool::{Calls, Permit, Rule, Tool, ToolBook};
use onceledger::{EffectError, Ledger, Outcome, Scope};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, ListToolsResult, PaginatedRequestParams,
    RequestMetaObject, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServiceExt};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

#[derive(Clone)]
struct Server {
    ledger: Ledger,
    book: Arc<ToolBook>,
    scope: Scope,
    /// What the outside counts.
    effects: Arc<AtomicUsize>,
}

impl Server {
    fn new(ledger: Ledger) -> Result<Self, onceledger::Error> {
        let refund = Tool::effect().identity(["/order_id"]).guard(["/amount"]).rule(Rule::Business);
        let book = ToolBook::new().with("refund", refund)?.with("publish", Tool::effect().rule(Rule::Call))?;
        let scope = Scope::new("acme/mcp")?;
        Ok(Server { ledger, book: Arc::new(book), scope, effects: Arc::default() })
    }

    /// The effect. A real one sends `permit.downstream(..)` along as the provider's idempotency key.
    async fn effect(&self, permit: Permit) -> Result<Outcome, EffectError> {
        let number = self.effects.fetch_add(1, Ordering::Relaxed) + 1;
        eprintln!("effect {number}: {} {}", permit.tool(), permit.arguments().to_canonical());
        Ok(Outcome::json(json!({ "effect": number }).to_string()))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = |properties: Value| -> JsonObject {
            let required: Vec<_> = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
            let schema = json!({ "type": "object", "properties": properties, "required": required });
            schema.as_object().cloned().unwrap_or_default()
        };
        // No output schema: a result is the ledger's body, whatever the tool returned in it.
        let tool = |name, description, properties| rmcp::model::Tool::new(name, description, schema(properties));
        Ok(ListToolsResult::with_all_items(vec![
            tool(
                "refund",
                "Refund an order, once.",
                json!({ "order_id": { "type": "string" }, "amount": { "type": "integer" } }),
            ),
            tool("publish", "Publish a text, once for each key in _meta.", json!({ "text": { "type": "string" } })),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let message = json!({
            "jsonrpc": "2.0", "id": context.id, "method": "tools/call",
            "params": { "name": request.name, "arguments": request.arguments, "_meta": context.meta },
        });
        let bad = |error: &dyn std::fmt::Display| ErrorData::invalid_params(error.to_string(), None);
        let calls = Calls::parse(&message.to_string()).map_err(|error| bad(&error))?;
        let [call] = calls.all() else { return Err(bad(&"not one call")) };
        let reply = self.book.run_async(&self.ledger, call, &self.scope, "mcp", |permit| self.effect(permit)).await;
        let answer: Value = serde_json::from_str(&reply.envelope()).map_err(|error| bad(&error))?;
        let result: CallToolResult = serde_json::from_value(answer["result"].clone()).map_err(|error| bad(&error))?;
        Ok(result.into())
    }
}

/// A client that re-sends everything, and what it hears.
async fn demo() -> Result<(), Box<dyn Error>> {
    let server = Server::new(Ledger::in_memory()?)?;
    let effects = Arc::clone(&server.effects);
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move { server.serve(ours).await });
    let client = ().serve(theirs).await?;
    let serving = serving.await??;
    let order = json!({ "order_id": "ord_42", "amount": 79 });
    let asked = [
        ("refund", order.clone(), None, "done"),
        ("refund", order, None, "already_done"),
        ("refund", json!({ "order_id": "ord_42", "amount": 790 }), None, "mismatch"),
        ("publish", json!({ "text": "hello" }), None, "error_before"),
        ("publish", json!({ "text": "hello" }), Some("post-1"), "done"),
        ("publish", json!({ "text": "hello" }), Some("post-1"), "already_done"),
        ("publish", json!({ "text": "hello" }), Some("post-2"), "done"),
    ];
    for (tool, arguments, key, expected) in asked {
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = arguments.as_object().cloned();
        if let Some(key) = key {
            let mut meta = RequestMetaObject::new();
            meta.0.insert("com.example/idempotencyKey".to_owned(), key.into());
            request.meta = Some(meta);
        }
        let result = client.peer().call_tool(request).await?;
        let body = result.structured_content.unwrap_or_default();
        println!(
            "{tool:<8} {:<7} {:<13} {}",
            key.unwrap_or("-"),
            body["status"].as_str().unwrap_or("?"),
            body["result"]
        );
        if body["status"] != expected {
            return Err(format!("{tool} answered {} instead of {expected}", body["status"]).into());
        }
    }
    client.cancel().await?;
    serving.waiting().await?;
    match effects.load(Ordering::Relaxed) {
        3 => Ok(()),
        other => Err(format!("{other} effects instead of 3").into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("--demo") => demo().await,
        Some(path) => {
            let server = Server::new(Ledger::open_or_create(path)?)?.serve(rmcp::transport::stdio()).await?;
            server.waiting().await?;
            Ok(())
        }
        None => Err("name the ledger file, or say --demo".into()),
    }
}
