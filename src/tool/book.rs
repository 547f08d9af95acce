//! Which tools there are, and what each of them may do to the world.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::canonical::{Value, shown};
use crate::claim::{Keep, Recovery};
use crate::error::{Error, Result};

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nothing: it runs freely, and no claim is made.
    Read,
    /// A write that may be repeated: it runs every time, under the same downstream key.
    Idempotent,
    /// Something that must happen once: it needs the ledger.
    Effect,
}

impl Class {
    /// `read`, `idempotent` or `effect`.
    pub fn name(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Idempotent => "idempotent",
            Class::Effect => "effect",
        }
    }
}

/// How far an action's identity reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Once for its identity fields, whichever run asks.
    Business,
    /// Once for its identity fields in each run.
    #[default]
    Run,
    /// Once for each run and call id: two equal calls with two ids are two actions. A call without
    /// an id is an error.
    Call,
}

impl Rule {
    /// `business`, `run` or `call`.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Business => "business",
            Rule::Run => "run",
            Rule::Call => "call",
        }
    }
}

/// How the command line runs a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shell {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Exit codes that are a final failure.
    pub final_codes: Vec<i32>,
    /// Exit codes that say that certainly nothing happened.
    pub not_applied: Vec<i32>,
}

/// A labelled tool. What is not set takes the ledger's defaults.
#[derive(Clone, Debug)]
pub struct Tool {
    pub(super) class: Class,
    pub(super) identity: Vec<String>,
    pub(super) guard: Vec<String>,
    pub(super) rule: Rule,
    pub(super) keep: Option<Keep>,
    pub(super) remember: Option<Keep>,
    pub(super) lease: Option<Duration>,
    pub(super) wait: Option<Duration>,
    pub(super) recovery: Recovery,
    pub(super) approval: bool,
    pub(super) downstream: Vec<String>,
    pub(super) shell: Option<Shell>,
}

impl Tool {
    /// A tool of this class. Without [`identity`](Tool::identity) fields every argument is identity.
    pub fn new(class: Class) -> Self {
        Tool {
            class,
            identity: Vec::new(),
            guard: Vec::new(),
            rule: Rule::Run,
            keep: None,
            remember: None,
            lease: None,
            wait: None,
            recovery: Recovery::Hold,
            approval: false,
            downstream: Vec::new(),
            shell: None,
        }
    }

    /// A tool that only reads.
    pub fn read() -> Self {
        Tool::new(Class::Read)
    }

    /// A write that may be repeated.
    pub fn idempotent() -> Self {
        Tool::new(Class::Idempotent)
    }

    /// A tool whose calls must happen once.
    pub fn effect() -> Self {
        Tool::new(Class::Effect)
    }

    /// The arguments that name the action, as JSON pointers. They make the key.
    pub fn identity<P: Into<String>>(mut self, pointers: impl IntoIterator<Item = P>) -> Self {
        self.identity = pointers.into_iter().map(Into::into).collect();
        self
    }

    /// The arguments that must not differ between two calls of one action. What is neither identity
    /// nor guard is free text, which a model may rephrase.
    pub fn guard<P: Into<String>>(mut self, pointers: impl IntoIterator<Item = P>) -> Self {
        self.guard = pointers.into_iter().map(Into::into).collect();
        self
    }

    /// How far an action's identity reaches. Default: [`Rule::Run`].
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// How long the outcome's body is kept after the settle.
    pub fn keep(mut self, keep: impl Into<Keep>) -> Self {
        self.keep = Some(keep.into());
        self
    }

    /// How long the key is remembered after the settle.
    pub fn remember(mut self, remember: impl Into<Keep>) -> Self {
        self.remember = Some(remember.into());
        self
    }

    /// An upper bound on how long one call may run. Default: none.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long a second call waits for the first one's outcome. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// What may happen to a call whose process is gone. Default: [`Recovery::Hold`].
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// Whether an effect needs an approval first. Default: no.
    pub fn approval(mut self, needed: bool) -> Self {
        self.approval = needed;
        self
    }

    /// The labels of the tool's effects downstream: one provider key for each.
    pub fn downstream<L: Into<String>>(mut self, labels: impl IntoIterator<Item = L>) -> Self {
        self.downstream = labels.into_iter().map(Into::into).collect();
        self
    }

    /// How the command line runs it.
    pub fn shell(mut self, shell: Shell) -> Self {
        self.shell = Some(shell);
        self
    }

    /// What the tool does to the world.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The labels of its effects downstream.
    pub fn labels(&self) -> &[String] {
        &self.downstream
    }

    /// How the command line runs it, where that is said.
    pub fn command(&self) -> Option<&Shell> {
        self.shell.as_ref()
    }

    /// Checks what can be checked without a call.
    fn check(&self, name: &str) -> Result<()> {
        let of = |error: Error| error.about(format!("tool {}", shown(name)));
        for pointer in self.identity.iter().chain(&self.guard) {
            Value::Null.pointer(pointer).map_err(of)?;
        }
        if self.class != Class::Effect && (self.approval || self.lease.is_some() || !self.guard.is_empty()) {
            let what = format!("tool {} is {}: it takes no approval, lease or guard", shown(name), self.class.name());
            return Err(Error::bad_input(what).next("make it an effect, or leave them out"));
        }
        if self.identity.is_empty() && !self.guard.is_empty() {
            let what = format!("tool {} has guard fields and no identity", shown(name));
            return Err(
                Error::bad_input(what).next("name the identity fields: without them every argument is identity")
            );
        }
        if let Some(lease) = self.lease {
            crate::ledger::lease_ms(lease).map_err(of)?;
        }
        Ok(())
    }
}

/// The tools that may be called.
#[derive(Clone, Default)]
pub struct ToolBook {
    tools: BTreeMap<Box<str>, Tool>,
    /// What an unknown tool is, where that is not an error.
    unknown: Option<Tool>,
}

impl ToolBook {
    /// A book without tools: every call is an error.
    pub fn new() -> Self {
        ToolBook::default()
    }

    /// The book with one more tool.
    ///
    /// # Errors
    /// `BadInput` for a malformed pointer, a lease of zero, a name given twice, and what makes no
    /// sense together.
    pub fn with(mut self, name: impl AsRef<str>, tool: Tool) -> Result<Self> {
        self.add(name.as_ref(), tool)?;
        Ok(self)
    }

    pub(super) fn add(&mut self, name: &str, tool: Tool) -> Result<()> {
        if name.is_empty() {
            return Err(Error::bad_input("a tool has an empty name"));
        }
        tool.check(name)?;
        if self.tools.insert(name.into(), tool).is_some() {
            return Err(Error::bad_input(format!("tool {} is in the book twice", shown(name))));
        }
        Ok(())
    }

    /// Takes every tool that is not in the book for one of this class. Default: it is an error.
    pub fn default_class(mut self, class: Class) -> Self {
        self.unknown = Some(Tool::new(class));
        self
    }

    /// A tool by name.
    ///
    /// # Errors
    /// `BadInput` for a tool that is not in the book, where no default class is set.
    pub fn get(&self, name: &str) -> Result<&Tool> {
        if let Some(tool) = self.tools.get(name).or(self.unknown.as_ref()) {
            return Ok(tool);
        }
        let error = Error::bad_input(format!("there is no tool {}", shown(name)));
        let near = nearest(name, self.tools.keys().map(|name| &**name));
        Err(error.next(match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => "use one of the tools that were offered, or label this one in the tool book".to_owned(),
        }))
    }

    /// The tools in the book, in the order of their names.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &Tool)> {
        self.tools.iter().map(|(name, tool)| (&**name, tool))
    }
}

impl fmt::Debug for ToolBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

/// The name that a misspelt one most probably means.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const CHARS_MAX: usize = 64;
    let short = |name: &str| name.len() <= CHARS_MAX;
    let limit = (name.chars().count() / 3).max(1);
    let near = names.filter(|other| short(name) && short(other)).map(|other| (distance(name, other), other));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, other)| other)
}

/// How many characters must be changed, put in or left out.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, char) in from.chars().enumerate() {
        let mut diagonal = at;
        let mut left = at + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&to) {
            let changed = diagonal + usize::from(char != *other);
            diagonal = *cell;
            left = changed.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = at + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
