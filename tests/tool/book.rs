//! What a tool book accepts, and how it tells of a mistake.

use onceledger::tool::{Class, Rule, Tool, ToolBook};

use crate::{ask, refund, scope};

#[test]
fn an_unknown_tool_is_an_error_that_names_the_nearest_unless_a_class_is_set() {
    let book = ToolBook::new().with("refund", refund()).unwrap().with("mail", Tool::effect()).unwrap();
    let error = book.get("refnud").unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("did you mean \"refund\"?"), "{error}");
    assert!(!book.get("something_else").unwrap_err().to_string().contains("did you mean"));
    let book = book.default_class(Class::Effect);
    assert_eq!(book.get("refnud").unwrap().class(), Class::Effect);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let cases = [
        (Tool::effect().identity(["order_id"]), "does not begin with `/`"),
        (Tool::effect().guard(["/amount"]), "no identity"),
        (Tool::read().approval(true), "takes no approval"),
        (Tool::effect().lease(std::time::Duration::ZERO), "lease of zero"),
    ];
    for (tool, told) in cases {
        let error = ToolBook::new().with("t", tool).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(told), "{error}");
        assert!(error.to_string().contains("tool \"t\""), "{error}");
    }
    let twice = ToolBook::new().with("t", Tool::read()).unwrap().with("t", Tool::read());
    assert!(twice.unwrap_err().to_string().contains("twice"));
}

#[test]
fn a_missing_identity_field_is_an_error_and_null_is_a_value() {
    let book = ToolBook::new().with("refund", refund()).unwrap();
    let error = book.key(&ask("t1", "{}"), &scope(), "r").unwrap_err();
    assert!(error.to_string().contains("/order_id"), "{error}");
    assert!(book.key(&ask("t1", r#"{"order_id": null}"#), &scope(), "r").is_ok());
}

#[test]
fn the_rule_says_how_far_an_action_reaches() {
    let key = |rule, call, run| {
        let book = ToolBook::new().with("refund", refund().rule(rule)).unwrap();
        book.key(&ask(call, r#"{"order_id": "A1", "amount": 79}"#), &scope(), run).unwrap()
    };
    assert_eq!(key(Rule::Business, "c1", "r1"), key(Rule::Business, "c2", "r2"));
    assert_eq!(key(Rule::Run, "c1", "r1"), key(Rule::Run, "c2", "r1"));
    assert_ne!(key(Rule::Run, "c1", "r1"), key(Rule::Run, "c1", "r2"));
    assert_eq!(key(Rule::Call, "c1", "r1"), key(Rule::Call, "c1", "r1"));
    assert_ne!(key(Rule::Call, "c1", "r1"), key(Rule::Call, "c2", "r1"));
    assert_ne!(key(Rule::Call, "c1", "r1"), key(Rule::Call, "c1", "r2"));
}

#[cfg(feature = "tools")]
mod toml {
    use std::time::Duration;

    use super::*;

    const BOOK: &str = r#"
default_class = "effect"

[tool.refund]
class = "effect"                       # read | idempotent | effect
identity = ["/order_id"]               # one refund for an order
guard = ["/amount", "/currency"]       # another amount for it is a mismatch
scope = "business"                     # business | run | call
keep = "7d"
remember = "forever"
lease = "30s"
wait = "500ms"
recovery = "resend"
resend_window = "24h"
approval = true
downstream = ["refund", "mail"]
command = ["sh", "-c", "refund-cli"]
final = [3]
not_applied = [75]

[tool."look up"]
class = "read"

[tool.set]
class = "idempotent"
identity = ["/id"]
"#;

    #[test]
    fn a_whole_book_is_read() {
        let book = ToolBook::from_toml(BOOK).unwrap();
        let names: Vec<_> = book.tools().map(|(name, tool)| (name, tool.class())).collect();
        assert_eq!(names, [("look up", Class::Read), ("refund", Class::Effect), ("set", Class::Idempotent)]);
        let refund = book.get("refund").unwrap();
        let shell = refund.command().unwrap();
        assert_eq!(shell.command, ["sh", "-c", "refund-cli"]);
        assert_eq!((&shell.final_codes[..], &shell.not_applied[..]), (&[3][..], &[75][..]));
        assert_eq!(refund.labels(), ["refund", "mail"]);
        assert_eq!(book.get("anything").unwrap().class(), Class::Effect);
        let by_hand = self::refund()
            .guard(["/amount", "/currency"])
            .rule(Rule::Business)
            .keep(Duration::from_secs(7 * 86_400))
            .remember(onceledger::Keep::Forever)
            .lease(Duration::from_secs(30))
            .wait(Duration::from_millis(500))
            .recovery(onceledger::Recovery::Resend { window: Duration::from_secs(86_400) })
            .approval(true)
            .downstream(["refund", "mail"])
            .shell(shell.clone());
        assert_eq!(format!("{refund:?}"), format!("{by_hand:?}"));
    }

    #[test]
    fn the_example_of_the_documents_is_read() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/TOOLS.md")).unwrap();
        let examples: Vec<_> = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(!examples.is_empty());
        for example in examples {
            ToolBook::from_toml(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_the_nearest_name() {
        let cases = [
            (
                "[tool.a]\nclass = \"effect\"\nidentiy = []\n",
                "line 3: unknown field \"identiy\"",
                "did you mean `identity`?",
            ),
            ("\n\n[tools.a]\n", "line 3: unknown field \"tools\"", "did you mean `tool`?"),
            ("[tool.a]\nclass = \"efect\"\n", "line 2: unknown word \"efect\"", "did you mean \"effect\"?"),
            ("[tool.a]\nclass = \"x\"\n", "line 2: ", "use one of read, idempotent, effect"),
            ("[tool.a]\n", "line 1: tool \"a\" has no class", "class = \"effect\""),
            ("[tool.a]\nclass = 1\n", "line 2: this must be a text", ""),
            ("[tool.a]\nclass = \"effect\"\nidentity = \"/a\"\n", "line 3: `identity` must be a list", ""),
            ("[tool.a]\nclass = \"effect\"\nidentity = [\n \"/a\",\n \"b\"]\n", "line 5: ", "does not begin with `/`"),
            ("[tool.a]\nclass = \"effect\"\nlease = \"0s\"\n", "line 3: ", "zero"),
            ("[tool.a]\nclass = \"effect\"\nlease = 30\n", "line 3: this is no time", "90d"),
            ("[tool.a]\nclass = \"effect\"\nkeep = \"99999999999999999999d\"\n", "line 3: this is no time", ""),
            ("[tool.a]\nclass = \"effect\"\napproval = 1\n", "line 3: ", "true or false"),
            ("[tool.a]\nclass = \"effect\"\ncommand = []\n", "line 3: ", "no program"),
            ("[tool.a]\nclass = \"effect\"\nfinal = [1]\n", "line 3: ", "without a `command`"),
            ("[tool.a]\nclass = \"effect\"\ncommand = [\"x\"]\nfinal = [1]\nnot_applied = [1]\n", "line 5: ", "both"),
            ("[tool.a]\nclass = \"effect\"\ncommand = [\"x\"]\nfinal = [0]\n", "line 4: ", "1 to 255"),
            ("[tool.a]\nclass = \"effect\"\nrecovery = \"resend\"\n", "line 3: ", "resend_window"),
            ("[tool.a]\nclass = \"effect\"\nresend_window = \"1h\"\n", "line 3: ", "without `recovery"),
            ("[tool.a]\nclass = \"read\"\nlease = \"1h\"\n", "line 3: `lease` means nothing", "effect"),
            (
                "[tool.a]\nclass = \"effect\"\n\n[tool.b]\nclass = \"effect\"\nguard = [\"/a\"]\n",
                "line 4: ",
                "no identity",
            ),
            ("[tool.a]\nclass = \"effect\"\nclass = \"read\"\n", "line 3: ", "duplicate"),
            ("[tool.a\n", "line 1: ", ""),
            ("tool = 1\n", "line 1: tool must be a table", ""),
        ];
        for (text, place, next) in cases {
            let error = ToolBook::from_toml(text).unwrap_err();
            let told = error.to_string();
            assert!(error.is_bad_input() && told.starts_with(place) && told.contains(next), "{text}\n{told}");
        }
        println!("{} mistakes", cases.len());
    }
}
