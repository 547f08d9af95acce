//! What `calls` reads: JSON Lines, or one JSON value over any number of lines.

use std::io::Read;
use std::path::Path;

use onceledger::canonical::Value;
use onceledger::tool::{Call, Calls};

use crate::exit::Failure;

/// The calls of a file, and what of it could not be read.
#[derive(Debug, Default)]
pub struct Input {
    /// The calls that have no result yet, in order.
    pub calls: Vec<Asked>,
    /// How many have their result in the file.
    pub skipped: usize,
    pub broken: Vec<Broken>,
}

/// A call and its line; without one where the whole file is one value.
#[derive(Debug)]
pub struct Asked {
    pub line: Option<usize>,
    pub call: Call,
}

/// Something that cannot be read.
#[derive(Debug)]
pub struct Broken {
    pub line: Option<usize>,
    pub why: String,
}

impl Broken {
    pub fn words(&self) -> String {
        match self.line {
            Some(line) => format!("line {line}: {}", self.why),
            None => self.why.clone(),
        }
    }
}

/// Reads a file, or standard input where it is `-`.
pub fn read(path: &Path) -> Result<Input, Failure> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        read.map_err(|error| Failure::io("reading the calls from standard input", &error))?;
    } else {
        bytes = std::fs::read(path)
            .map_err(|error| Failure::usage(format!("the calls cannot be read: {}: {error}", path.display())))?;
    }
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Input {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let first = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let mut input = Input::default();
    match Value::parse_bytes(bytes).map(|value| Calls::read(&value)) {
        _ if first.is_none() => {}
        Ok(Ok(calls)) => {
            input.broken.extend(calls.broken().iter().map(|error| Broken { line: None, why: error.to_string() }));
            input.take(&calls, |_| None);
        }
        // A value in no known shape; or one that is laid out over many lines and broken somewhere.
        Ok(Err(error)) => input.broken.push(Broken { line: Some(1), why: error.to_string() }),
        Err(error) if matches!(first, Some(b"{" | b"[")) => {
            input.broken.push(Broken { line: None, why: format!("the file is one JSON value, and broken: {error}") });
        }
        Err(_) => input.lines(bytes),
    }
    input
}

impl Input {
    fn take(&mut self, calls: &Calls, line: impl Fn(usize) -> Option<usize>) {
        self.skipped = calls.answered();
        let all = calls.all().iter().enumerate().filter(|(_, call)| !call.is_answered());
        self.calls.extend(all.map(|(at, call)| Asked { line: line(at), call: call.clone() }));
    }

    /// Each line by itself tells whether it is broken; all of them together tell which calls have
    /// their result, or wait for an approval, on another line.
    fn lines(&mut self, bytes: &[u8]) {
        let mut values = Vec::new();
        let mut line_of_call = Vec::new();
        for (at, text) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = Some(at + 1);
            if text.trim_ascii().is_empty() {
                continue;
            }
            let read = Value::parse_bytes(text).and_then(|value| Ok((Calls::read(&value)?, value)));
            let (calls, value) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.broken.push(Broken { line, why: error.to_string() });
                    continue;
                }
            };
            self.broken.extend(calls.broken().iter().map(|error| Broken { line, why: error.to_string() }));
            line_of_call.resize(line_of_call.len() + calls.all().len(), line);
            match value {
                Value::Array(items) => values.extend(items),
                other => values.push(other),
            }
        }
        match Calls::read(&Value::Array(values)) {
            Ok(calls) => self.take(&calls, |at| line_of_call.get(at).copied().flatten()),
            // Every line is broken.
            Err(error) if self.broken.is_empty() => self.broken.push(Broken { line: None, why: error.to_string() }),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Option<usize>> {
        parse(text.as_bytes()).calls.iter().map(|asked| asked.line).collect()
    }

    const CALL: &str = r#"{"type":"function_call","call_id":"c1","name":"refund","arguments":"{}"}"#;
    const RESULT: &str = r#"{"type":"function_call_output","call_id":"c1","output":"ok"}"#;

    #[test]
    fn a_result_on_another_line_answers_its_call() {
        assert_eq!(lines(&format!("{CALL}\n\n{CALL}\r\n")), [Some(1), Some(3)]);
        assert_eq!(lines(&format!("[{CALL},{CALL}]\n{RESULT}\n{CALL}")), [Some(1), Some(3)]);
        let input = parse(format!("{CALL}\n{RESULT}\n").as_bytes());
        assert_eq!((input.calls.len(), input.skipped, input.broken.len()), (0, 1, 0));
    }

    #[test]
    fn one_value_has_no_lines_and_a_broken_one_is_told_once() {
        assert_eq!(lines(&format!("\u{feff}[\n{CALL}\n]\n")), [None]);
        assert!(parse(b" \n\n").broken.is_empty());
        let input = parse(format!("[\n{CALL},\n{RESULT}\n").as_bytes());
        assert_eq!((input.calls.len(), input.broken.len()), (0, 1));
        let input = parse(format!("{CALL}\n{{\n\"text\"\n[]\n\u{0}").as_bytes());
        assert_eq!(input.broken.iter().map(|broken| broken.line).collect::<Vec<_>>(), [Some(2), Some(3), Some(5)]);
        assert_eq!(input.calls.len(), 1);
    }
}
