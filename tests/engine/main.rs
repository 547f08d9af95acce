//! The engine, from the outside.

mod basic;
