//! A tool book from TOML. Every mistake is told with its line, an unknown name with the nearest one.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::book::{Class, Rule, Shell, Tool, ToolBook, nearest};
use crate::canonical::shown;
use crate::claim::{Keep, Recovery};
use crate::error::{Error, Result};

const TOP: [&str; 2] = ["default_class", "tool"];

const FIELDS: [&str; 15] = [
    "approval",
    "class",
    "command",
    "downstream",
    "final",
    "guard",
    "identity",
    "keep",
    "lease",
    "not_applied",
    "recovery",
    "remember",
    "resend_window",
    "scope",
    "wait",
];

type Node<'a> = Spanned<DeValue<'a>>;

impl ToolBook {
    /// Reads a tool book: tables `[tool.NAME]`, see docs/TOOLS.md for their fields.
    ///
    /// # Errors
    /// `BadInput` with the line of the mistake: text that is not TOML, an unknown field or word, a
    /// value of the wrong kind, and what [`with`](ToolBook::with) refuses.
    pub fn from_toml(text: &str) -> Result<Self> {
        let source = Source(text);
        let table = DeTable::parse(text).map_err(|error| source.mistake(error.span(), error.message()))?;
        source.book(table.get_ref())
    }
}

struct Source<'t>(&'t str);

impl Source<'_> {
    /// A mistake at its place.
    fn mistake(&self, span: Option<Range<usize>>, what: impl std::fmt::Display) -> Error {
        match span.and_then(|span| self.0.get(..span.start)) {
            Some(before) => {
                let line = before.matches('\n').count() + 1;
                Error::bad_input(format!("line {line}: {what}"))
            }
            None => Error::bad_input(what.to_string()),
        }
    }

    fn wrong(&self, node: &Node<'_>, what: impl std::fmt::Display) -> Error {
        self.mistake(Some(node.span()), what)
    }

    fn book(&self, table: &DeTable<'_>) -> Result<ToolBook> {
        self.known(table, &TOP, "in the tool book")?;
        let mut book = ToolBook::new();
        if let Some(node) = table.get("default_class") {
            book = book.default_class(self.class(node)?);
        }
        let Some(node) = table.get("tool") else { return Ok(book) };
        // In the order of the file, so that the first mistake is the one that is told.
        let mut tools: Vec<_> = self.table(node, "tool")?.iter().collect();
        tools.sort_by_key(|(name, _)| name.span().start);
        for (name, node) in tools {
            let tool = self.tool(name.get_ref(), node)?;
            book.add(name.get_ref(), tool).map_err(|error| self.mistake(Some(name.span()), &error))?;
        }
        Ok(book)
    }

    fn tool(&self, name: &str, node: &Node<'_>) -> Result<Tool> {
        let table = self.table(node, &format!("tool {}", shown(name)))?;
        self.known(table, &FIELDS, &format!("of tool {}", shown(name)))?;
        let class = table.get("class").ok_or_else(|| {
            self.wrong(node, format!("tool {} has no class", shown(name))).next("write class = \"effect\"")
        })?;
        let class = self.class(class)?;
        let mut tool = Tool::new(class);
        self.only_effects(table, class, name)?;
        for (field, place) in [("identity", &mut tool.identity), ("guard", &mut tool.guard)] {
            *place = self.pointers(table, field)?;
        }
        tool.downstream = self.texts(table, "downstream")?.unwrap_or_default();
        if let Some(node) = table.get("scope") {
            tool.rule = self.word(node, &[("business", Rule::Business), ("run", Rule::Run), ("call", Rule::Call)])?;
        }
        tool.keep = table.get("keep").map(|node| self.keep(node)).transpose()?;
        tool.remember = table.get("remember").map(|node| self.keep(node)).transpose()?;
        tool.lease = table.get("lease").map(|node| self.lease(node)).transpose()?;
        tool.wait = table.get("wait").map(|node| self.duration(node)).transpose()?;
        tool.recovery = self.recovery(table)?;
        if let Some(node) = table.get("approval") {
            let yes = node.get_ref().as_bool();
            tool.approval = yes.ok_or_else(|| self.wrong(node, "`approval` must be true or false"))?;
        }
        tool.shell = self.shell(table)?;
        Ok(tool)
    }

    /// A field that does nothing would promise what nobody keeps.
    fn only_effects(&self, table: &DeTable<'_>, class: Class, name: &str) -> Result<()> {
        if class == Class::Effect {
            return Ok(());
        }
        for field in ["approval", "guard", "keep", "lease", "recovery", "remember", "resend_window", "wait"] {
            if let Some(node) = table.get(field) {
                let what = format!("`{field}` means nothing for tool {}, which is {}", shown(name), class.name());
                return Err(self.wrong(node, what).next("make it an effect, or leave the field out"));
            }
        }
        Ok(())
    }

    fn known(&self, table: &DeTable<'_>, names: &[&'static str], of: &str) -> Result<()> {
        let mut fields: Vec<_> = table.keys().collect();
        fields.sort_by_key(|field| field.span().start);
        for field in fields {
            let name: &str = field.get_ref();
            if names.contains(&name) {
                continue;
            }
            let error = self.mistake(Some(field.span()), format!("unknown field {} {of}", shown(name)));
            return Err(error.next(match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the fields are {}", names.join(", ")),
            }));
        }
        Ok(())
    }

    fn table<'a, 't>(&self, node: &'a Node<'t>, what: &str) -> Result<&'a DeTable<'t>> {
        node.get_ref().as_table().ok_or_else(|| self.wrong(node, format!("{what} must be a table")))
    }

    fn text<'a>(&self, node: &'a Node<'_>) -> Result<&'a str> {
        node.get_ref().as_str().ok_or_else(|| self.wrong(node, "this must be a text"))
    }

    fn word<T: Copy>(&self, node: &Node<'_>, words: &[(&'static str, T)]) -> Result<T> {
        let text = self.text(node)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let error = self.wrong(node, format!("unknown word {}", shown(text)));
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Err(error.next(match nearest(text, names.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("use one of {}", names.join(", ")),
        }))
    }

    fn class(&self, node: &Node<'_>) -> Result<Class> {
        let classes = [Class::Read, Class::Idempotent, Class::Effect].map(|class| (class.name(), class));
        self.word(node, &classes)
    }

    fn list<T>(
        &self,
        table: &DeTable<'_>,
        field: &str,
        one: impl Fn(&Node<'_>) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(node) = table.get(field) else { return Ok(None) };
        let items = node.get_ref().as_array().ok_or_else(|| self.wrong(node, format!("`{field}` must be a list")))?;
        items.iter().map(one).collect::<Result<_>>().map(Some)
    }

    fn texts(&self, table: &DeTable<'_>, field: &str) -> Result<Option<Vec<String>>> {
        self.list(table, field, |node| self.text(node).map(str::to_owned))
    }

    fn pointers(&self, table: &DeTable<'_>, field: &str) -> Result<Vec<String>> {
        let one = |node: &Node<'_>| {
            let pointer = self.text(node)?;
            let read = crate::canonical::Value::Null.pointer(pointer);
            read.map_err(|error| self.wrong(node, error)).map(|_| pointer.to_owned())
        };
        Ok(self.list(table, field, one)?.unwrap_or_default())
    }

    fn codes(&self, table: &DeTable<'_>, field: &str) -> Result<Vec<i32>> {
        let one = |node: &Node<'_>| {
            let number = node.get_ref().as_integer();
            let code = number.and_then(|number| i32::from_str_radix(number.as_str(), number.radix()).ok());
            code.filter(|code| (1..=255).contains(code))
                .ok_or_else(|| self.wrong(node, format!("`{field}` takes exit codes from 1 to 255")))
        };
        Ok(self.list(table, field, one)?.unwrap_or_default())
    }

    fn shell(&self, table: &DeTable<'_>) -> Result<Option<Shell>> {
        let command = self.texts(table, "command")?;
        let final_codes = self.codes(table, "final")?;
        let not_applied = self.codes(table, "not_applied")?;
        if let (Some(code), Some(node)) =
            (final_codes.iter().find(|code| not_applied.contains(code)), table.get("not_applied"))
        {
            return Err(self.wrong(node, format!("exit code {code} is both final and not applied")));
        }
        match (command, table.get("command")) {
            (Some(command), Some(node)) if command.first().is_none_or(String::is_empty) => {
                Err(self.wrong(node, "`command` names no program"))
            }
            (Some(command), _) => Ok(Some(Shell { command, final_codes, not_applied })),
            (None, _) => match table.get("final").or_else(|| table.get("not_applied")) {
                Some(node) => Err(self.wrong(node, "exit codes without a `command`")),
                None => Ok(None),
            },
        }
    }

    fn recovery(&self, table: &DeTable<'_>) -> Result<Recovery> {
        let rule =
            table.get("recovery").map(|node| self.word(node, &[("hold", false), ("resend", true)])).transpose()?;
        match (rule, table.get("resend_window"), table.get("recovery")) {
            (Some(true), Some(node), _) => Ok(Recovery::Resend { window: self.lease(node)? }),
            (Some(true), None, Some(node)) => Err(self
                .wrong(node, "`recovery = \"resend\"` without a `resend_window`")
                .next("say for how long the provider remembers a key, such as resend_window = \"24h\"")),
            (_, Some(node), _) => Err(self.wrong(node, "`resend_window` without `recovery = \"resend\"`")),
            _ => Ok(Recovery::Hold),
        }
    }

    fn keep(&self, node: &Node<'_>) -> Result<Keep> {
        if node.get_ref().as_str() == Some("forever") {
            return Ok(Keep::Forever);
        }
        self.duration(node).map(Keep::For)
    }

    fn lease(&self, node: &Node<'_>) -> Result<Duration> {
        let duration = self.duration(node)?;
        if duration.is_zero() {
            return Err(self.wrong(node, "a time of zero would be over at once").next("leave it out, or give it some"));
        }
        Ok(duration)
    }

    fn duration(&self, node: &Node<'_>) -> Result<Duration> {
        let read = node.get_ref().as_str().and_then(duration);
        read.ok_or_else(|| {
            self.wrong(node, "this is no time").next("write a whole number and ms, s, m, h, d or w, such as \"90d\"")
        })
    }
}

/// `500ms`, `30s`, `5m`, `24h`, `90d`, `2w`.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|char: char| !char.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => return Some(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}
