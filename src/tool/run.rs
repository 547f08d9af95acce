//! One call, run at most once.

use std::future::Future;

use super::approval::{asked, asked_async, request};
use super::book::{Class, Rule, Tool, ToolBook};
use super::call::{Call, Consent};
use super::reply::{Reply, Status};
use super::words;
use crate::approval::{Approval, ApprovalRequest};
use crate::canonical::{Value, shown};
use crate::claim::{Claim, FencingToken};
use crate::error::{Error, Result};
use crate::key::{ArgsDigest, Downstream, Key, Scope, Selection};
use crate::ledger::Ledger;
use crate::outcome::{Class as Failure, EffectError, Outcome};

/// What an effect is given: the arguments, and the names under which it runs.
#[derive(Clone, Debug)]
pub struct Permit {
    tool: Box<str>,
    arguments: Value,
    key: Key,
    token: Option<FencingToken>,
    attempt: u32,
}

impl Permit {
    /// The tool that was called.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The arguments, an object.
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// The action's key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The fencing token; `None` for a read and an idempotent write, which take no claim.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// How many times the key was granted, this time included; 1 without a claim.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The key to hand to the provider, the same in every attempt.
    pub fn downstream(&self, label: &str) -> Downstream {
        self.key.downstream(label)
    }
}

/// How a call is to be run.
enum Plan {
    /// Without the ledger.
    Free(Class, Permit),
    /// Under a claim, with the request for an approval where it needs one.
    Once(Box<Claim>, Permit, Option<Box<ApprovalRequest>>),
    /// Not at all: a person has to decide first, who is asked here.
    Ask(Box<Claim>, Box<ApprovalRequest>, ArgsDigest),
}

impl ToolBook {
    /// The key of a call: what makes it one action with others. See [`Rule`].
    ///
    /// # Errors
    /// `BadInput` for an unknown tool, malformed arguments, a missing identity field, an empty or
    /// overlong name, and a call without an id where the tool goes by it.
    pub fn key(&self, call: &Call, scope: &Scope, run: &str) -> Result<Key> {
        let tool = self.get(call.tool())?;
        let selection = select(tool, arguments(call)?)?;
        key(tool, call, scope, run, &selection)
    }

    /// The claim of a call, with everything that the tool says of it.
    ///
    /// # Errors
    /// As [`key`](ToolBook::key).
    pub fn claim(&self, call: &Call, scope: &Scope, run: &str) -> Result<Claim> {
        let tool = self.get(call.tool())?;
        claim(tool, call, scope, run).map(|(claim, _)| claim)
    }

    /// Runs a call at most once on this thread, and says what became of it.
    ///
    /// A call that has its result, waits for an approval or was refused one, has malformed arguments
    /// or no label, is not run. A panic in an effect leaves its claim uncertain; in a read or an
    /// idempotent write it goes on.
    pub fn run<R, F>(&self, ledger: &Ledger, call: &Call, scope: &Scope, run: &str, effect: F) -> Reply
    where
        F: FnOnce(&Permit) -> std::result::Result<R, EffectError>,
        R: Into<Outcome>,
    {
        match self.plan(call, scope, run) {
            Err(reply) => *reply,
            Ok(Plan::Free(class, permit)) => free(call, class, effect(&permit).map(Into::into)),
            Ok(Plan::Ask(claim, request, args)) => waits(call, &claim, args, ledger.request(&request)),
            Ok(Plan::Once(claim, mut permit, request)) => {
                let answer = ledger.once(&claim, |grant| {
                    permit.token = Some(grant.token());
                    permit.attempt = grant.attempt();
                    effect(&permit)
                });
                told(ledger, call, claim.key(), asked(ledger, request.as_deref(), answer))
            }
        }
    }

    /// [`run`](ToolBook::run) as a future, under any executor and holding no thread.
    ///
    /// Dropped before the effect, it leaves the key as it was; dropped while the effect runs, it
    /// leaves the claim uncertain; a settle once queued stands.
    pub fn run_async<R, F, E>(
        &self,
        ledger: &Ledger,
        call: &Call,
        scope: &Scope,
        run: &str,
        effect: F,
    ) -> impl Future<Output = Reply> + use<R, F, E>
    where
        F: FnOnce(Permit) -> E,
        E: Future<Output = std::result::Result<R, EffectError>>,
        R: Into<Outcome>,
    {
        let plan = self.plan(call, scope, run);
        let (ledger, call) = (ledger.clone(), call.clone());
        async move {
            match plan {
                Err(reply) => *reply,
                Ok(Plan::Free(class, permit)) => free(&call, class, effect(permit).await.map(Into::into)),
                Ok(Plan::Ask(claim, request, args)) => {
                    let approval = ledger.request_async(&request).await;
                    waits(&call, &claim, args, approval)
                }
                Ok(Plan::Once(claim, permit, request)) => {
                    let answer = ledger.once_async(&claim, |grants| {
                        effect(Permit { token: Some(grants.token()), attempt: grants.attempt(), ..permit })
                    });
                    let answer = asked_async(&ledger, request.as_deref(), answer.await).await;
                    told(&ledger, &call, claim.key(), answer)
                }
            }
        }
    }

    fn plan(&self, call: &Call, scope: &Scope, run: &str) -> std::result::Result<Plan, Box<Reply>> {
        if call.is_answered() {
            return Err(Box::new(Reply::plain(call, Status::ErrorBefore).with_words(words::ANSWERED)));
        }
        let failed = |error| Box::new(Reply::of_error(call, error));
        let tool = self.get(call.tool()).map_err(failed)?;
        let (claim, args) = claim(tool, call, scope, run).map_err(failed)?;
        let given = arguments(call).map_err(failed)?;
        let request = (tool.approval).then(|| Box::new(request(&claim, given, args)));
        match (call.consent(), request) {
            (Consent::Pending, Some(request)) => Ok(Plan::Ask(Box::new(claim), request, args)),
            (Consent::Pending, None) => Err(Box::new(Reply::of_consent(call, false, None, claim.key(), args))),
            (Consent::Refused, _) => Err(Box::new(Reply::of_consent(call, true, None, claim.key(), args))),
            (Consent::NotAsked | Consent::Given, request) => {
                let permit = Permit {
                    tool: call.tool().into(),
                    arguments: given.clone(),
                    key: claim.key().clone(),
                    token: None,
                    attempt: 1,
                };
                Ok(match tool.class {
                    Class::Read | Class::Idempotent => Plan::Free(tool.class, permit),
                    Class::Effect => Plan::Once(Box::new(claim), permit, request),
                })
            }
        }
    }
}

/// The reply to a call that a transcript holds back, and that the ledger was asked to have approved.
fn waits(call: &Call, claim: &Claim, args: ArgsDigest, approval: Result<Approval>) -> Reply {
    match approval {
        Ok(approval) => Reply::of_consent(call, false, Some(&approval), claim.key(), args),
        Err(error) => Reply::of_error(call, error),
    }
}

fn arguments(call: &Call) -> Result<&Value> {
    call.arguments().map_err(|malformed| {
        Error::bad_input(format!("the arguments of {} are malformed: {}", shown(call.tool()), malformed.why))
            .next("send one JSON object")
    })
}

fn select(tool: &Tool, arguments: &Value) -> Result<Selection> {
    Selection::tool(arguments, &tool.identity, &tool.guard)
}

fn key(tool: &Tool, call: &Call, scope: &Scope, run: &str, selection: &Selection) -> Result<Key> {
    match (tool.class, tool.rule) {
        // A read has no action of its own; it is named within its run.
        (Class::Read, _) | (_, Rule::Run) => Key::tool(&scope.run(run)?, call.tool(), selection),
        (_, Rule::Business) if scope.run_name().is_some() => {
            Err(Error::bad_input("the scope names a run, and a business action reaches over all runs")
                .next("give the scope without a run"))
        }
        (_, Rule::Business) => Key::tool(scope, call.tool(), selection),
        (_, Rule::Call) => {
            let id = call.action_id().ok_or_else(|| {
                Error::bad_input(format!("a call of {} has no id, and goes by its id", shown(call.tool())))
                    .next("send the id of the call (MCP: a key in `_meta`), or give the tool identity fields and the scope run or business")
            })?;
            Key::call(scope, run, &call_part(call.tool(), id), &selection.fingerprint())
        }
    }
}

/// Tool and id as one text: some servers give every call the same id, and two tools may be called
/// with equal arguments.
fn call_part(tool: &str, id: &str) -> String {
    Value::Array(vec![Value::String(tool.into()), Value::String(id.into())]).to_canonical()
}

fn claim(tool: &Tool, call: &Call, scope: &Scope, run: &str) -> Result<(Claim, ArgsDigest)> {
    let selection = select(tool, arguments(call)?)?;
    let key = key(tool, call, scope, run, &selection)?;
    let mut claim = Claim::selected(key, &selection).recovery(tool.recovery.clone()).label(call.tool());
    claim.lease = tool.lease;
    claim.keep = tool.keep;
    claim.remember = tool.remember;
    claim.wait = tool.wait;
    if tool.approval {
        claim = claim.needs_approval();
    }
    Ok((claim, selection.args_digest()))
}

/// The reply to a call that took no claim.
fn free(call: &Call, class: Class, ran: std::result::Result<Outcome, EffectError>) -> Reply {
    let error = match ran {
        Ok(outcome) => return Reply::plain(call, Status::Done).with_words(words::FREE_DONE).outcome(&outcome),
        Err(error) => error,
    };
    match (error.class(), class) {
        (Failure::Final, _) => Reply::plain(call, Status::Failed).said(&error),
        // Whatever became of a read, the world is as it was.
        (Failure::NotApplied, _) | (Failure::Unknown, Class::Read) => {
            Reply::plain(call, Status::NotApplied).said(&error)
        }
        (Failure::Unknown, Class::Idempotent | Class::Effect) => {
            Reply::plain(call, Status::Uncertain).with_words(words::FREE_UNCERTAIN).said(&error)
        }
    }
}

fn told(ledger: &Ledger, call: &Call, key: &Key, answer: Result<crate::Answer>) -> Reply {
    let reply = match answer {
        Ok(answer) => Reply::of_answer(call, answer),
        Err(error) => Reply::of_error(call, error),
    };
    match reply.status() {
        Status::ErrorBefore | Status::ErrorAfter => reply,
        _ => reply.at(ledger.since_ms(key)),
    }
}
