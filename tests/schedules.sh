#!/bin/sh
# T10: explores schedules of the line, its cells and the index. ONCELEDGER_FLOOR=long for the long floor.
# A build of its own: the switch changes the types that the crate is made of.
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}/schedules"
RUSTFLAGS="${RUSTFLAGS:-} --cfg onceledger_shuttle" CARGO_TARGET_DIR="$target" \
    cargo test --lib schedules -- --nocapture --test-threads=2
