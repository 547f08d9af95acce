//! From arguments to a key. `run`, `key`, `show`, `history` and `resolve` all come through here, so
//! that they mean the same key.

use std::ffi::OsStr;

use onceledger::canonical::Value;
use onceledger::{Claim, Key, Scope, Selection};

use crate::args::KeyArgs;
use crate::exit::Failure;

/// A key and what it was made from.
pub struct Named {
    pub key: Key,
    /// `None` where there are no arguments.
    pub selection: Option<Selection>,
}

impl Named {
    /// Derives the key that the arguments name.
    pub fn from_args(args: &KeyArgs) -> Result<Self, Failure> {
        let scope = Scope::new(&args.scope)?;
        let value = args.arguments.as_deref().map(Value::parse).transpose()?;
        if let Some(tool) = &args.tool {
            let Some(value) = value else {
                return Err(Failure::usage(
                    "--tool makes its key from its arguments; give them as --args JSON ({} for none)",
                ));
            };
            let selection = Selection::tool(&value, &args.identity, &args.guard)?;
            return Ok(Named { key: Key::tool(&scope, tool, &selection)?, selection: Some(selection) });
        }
        if !args.identity.is_empty() {
            return Err(Failure::usage(
                "--identity makes a tool's key; use it with --tool, or name the key by --key parts",
            ));
        }
        let Some((action, parts)) = args.parts.split_first() else {
            return Err(Failure::usage("no key is named; give --key PART, or --tool NAME with --args JSON"));
        };
        let Some(action) = action.to_str() else {
            return Err(Failure::usage(format!(
                "the first --key part {action:?} is not UTF-8; it names the action: write it as text"
            )));
        };
        let parts = parts.iter().map(|part| bytes(part)).collect::<Result<Vec<_>, _>>()?;
        let key = Key::action(&scope, action, parts)?;
        let selection = value.map(|value| Selection::by_hand(&value, &args.guard)).transpose()?;
        Ok(Named { key, selection })
    }

    /// The key by its digits, or derived.
    pub fn find(digits: Option<&str>, args: &KeyArgs) -> Result<Key, Failure> {
        match digits {
            Some(digits) => Ok(digits.parse()?),
            None => Ok(Named::from_args(args)?.key),
        }
    }

    pub fn claim(&self) -> Claim {
        match &self.selection {
            Some(selection) => Claim::selected(self.key.clone(), selection),
            None => Claim::unguarded(self.key.clone()),
        }
    }
}

/// A key part may be any bytes where the system's arguments are bytes.
#[cfg(unix)]
fn bytes(part: &OsStr) -> Result<&[u8], Failure> {
    Ok(std::os::unix::ffi::OsStrExt::as_bytes(part))
}

#[cfg(not(unix))]
fn bytes(part: &OsStr) -> Result<&[u8], Failure> {
    let text = part.to_str();
    text.map(str::as_bytes)
        .ok_or_else(|| Failure::usage(format!("the --key part {part:?} is not Unicode; write it as text")))
}
