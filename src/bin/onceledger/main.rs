//! The `onceledger` command: any program, run at most once, and what one asks of a ledger file.
//!
//! `main.rs` reads the arguments and picks the command; each command gives back an exit code, or a
//! [`Failure`] that carries one. Nothing here decides what may run: that is the library's.

mod approvals;
mod args;
mod calls;
mod cells;
mod command;
mod duration;
mod exit;
mod input;
mod keys;
mod output;
mod pause;
mod printer;
mod program;
mod replay;
mod run;
mod show;
mod signals;
mod tap;
mod tend;

use std::io::Write;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::exit::Failure;

fn main() {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help goes to stdout, which may be closed: then nobody reads it.
            let _ = error.print();
            std::process::exit(if error.use_stderr() { exit::USAGE } else { exit::DONE });
        }
    };
    let json = arguments.command.is_json();
    let code = match command(arguments.command) {
        Ok(code) => code,
        Err(failure) => report(&failure, json),
    };
    std::process::exit(code);
}

fn command(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Init(args) => tend::init(&args),
        Command::Run(args) => run::run(&args),
        Command::Calls(args) => calls::calls(&args),
        Command::Show(args) => show::show(&args),
        Command::List(args) => show::list(&args),
        Command::History(args) => show::history(&args),
        Command::Resolve(args) => tend::resolve(&args),
        Command::Key(args) => show::key(&args),
        Command::Sweep(args) => tend::sweep(&args),
        Command::Verify(args) => tend::verify(&args),
        Command::Stats(args) => show::stats(&args),
        Command::Adopt(args) => tend::adopt(&args),
        Command::Approve(args) => approvals::approve(&args),
        Command::Deny(args) => approvals::deny(&args),
        Command::Approvals(args) => approvals::approvals(&args),
        Command::Cell(command) => cells::cell(&command),
    }
}

/// Says what failed: always on stderr, and with `--json` as an object too.
fn report(failure: &Failure, json: bool) -> i32 {
    // With stderr closed there is nobody to tell; the exit code still does.
    let _ = writeln!(std::io::stderr(), "onceledger: {}", failure.message);
    if json {
        let _ = output::object(&output::ErrorLine::new(failure));
    }
    failure.code
}
