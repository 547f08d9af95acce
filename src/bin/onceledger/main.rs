//! The `onceledger` command.

fn main() {}
