#!/bin/sh
# T14: branch coverage of the pure core: the table of transitions, what an event makes of a record, the
# codec, canonical JSON.
#
# Needs a nightly toolchain, and llvm-profdata and llvm-cov of its LLVM: its component llvm-tools, or
# LLVM_PROFDATA and LLVM_COV name them. rustc counts conditions (if, &&, ||, let and guards), not the arms
# of a match. A branch that no test took is an error, unless its line stands in tests/branches.txt, where it is argued.
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}/branches"
tools=$(echo "$(rustc +nightly --print sysroot)"/lib/rustlib/*/bin)
profdata="${LLVM_PROFDATA:-$tools/llvm-profdata}"
cov="${LLVM_COV:-$tools/llvm-cov}"
files="src/engine/state.rs src/engine/replay.rs src/engine/codec.rs $(echo src/canonical/*.rs)"
tests="--lib --test keys --test format --test corpus"

for tool in "$profdata" "$cov"; do
    command -v "$tool" > /dev/null && continue
    echo "no $tool: rustup component add llvm-tools --toolchain nightly, or name it in LLVM_PROFDATA and LLVM_COV" >&2
    exit 2
done

rm -rf "$target/profiles"
mkdir -p "$target/profiles"
export CARGO_TARGET_DIR="$target" CARGO_TERM_COLOR=never
export RUSTFLAGS="${RUSTFLAGS:-} -Cinstrument-coverage -Zcoverage-options=branch"
export LLVM_PROFILE_FILE="$target/profiles/%m-%p.profraw"
# Without optimisations a branch is counted where it stands.
export CARGO_PROFILE_DEV_OPT_LEVEL=0
# shellcheck disable=SC2086
cargo +nightly test --all-features $tests --no-run 2> "$target/built" || { cat "$target/built" >&2; exit 1; }
# shellcheck disable=SC2086
cargo +nightly test --all-features $tests
"$profdata" merge -sparse "$target"/profiles/*.profraw -o "$target/profile"
objects=$(sed -n 's/^ *Executable .*(\(.*\))$/--object=\1/p' "$target/built")
# shellcheck disable=SC2086
"$cov" export --format=lcov --instr-profile="$target/profile" $objects --sources $files > "$target/lcov"

# Each branch of the core that was never taken, with its line; what follows `mod tests` is no core.
awk -F'[:,]' -v root="$PWD/" '
    FNR == NR { if (!/^#/) argued[$0]; next }
    /^SF:/ {
        file = substr($0, 4)
        core = 0
        while ((got = (getline text < file)) > 0 && text !~ /^mod tests/) {
            sub(/^ +/, "", text)
            source[++core] = text
        }
        close(file)
        sub(root, "", file)
        if (got < 0) {
            print "cannot read " file
            wrong++
        }
    }
    /^BRDA:/ && $2 <= core {
        branches++
        if ($5 != "-" && $5 != 0) next
        is_argued = source[$2] in argued
        print (is_argued ? "argued: " : "NOT TAKEN: ") file ":" $2 ": " source[$2]
        if (is_argued) count++; else missed++
        # One of the branches of a line is argued, not all.
        delete argued[source[$2]]
    }
    END {
        for (line in argued) {
            print "ARGUED, BUT NOT MISSED: " line
            wrong++
        }
        printf "T14 branches=%d taken=%d argued=%d not_taken=%d\n", branches, branches - count - missed, count, missed
        exit missed + wrong > 0 || branches < 200
    }
' tests/branches.txt "$target/lcov"
