#!/bin/sh
# T13: builds the crate with each of twelve deliberate faults in it and shows the named test that fails.
# A fault that no test notices is an error. One or more names as arguments try only those.
#
# The faults are behind `cfg(onceledger_canary = "...")`, which only a compiler flag can set. A wrapper
# for this crate alone sets it, so that the dependencies are built once.
set -eu
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-$PWD/target}/canaries"
mkdir -p "$target"

# Name of the fault, then the tests of tests/faults that are run against it.
canaries="
acknowledge_before_sync      t01_what_was_answered
skip_the_fingerprint         t08_without_faults
expire_to_free               t16_no_clock
reuse_a_token                t08_without_faults
ignore_a_failed_sync         t04_the_ledger
crc_without_key              t07_a_row_in_anothers_place
publish_before_commit        t11_nothing_is_seen_before
lost_wake_up                 schedules
wall_clock_for_both_times    t16_no_clock
anchor_not_synced            t02_a_crash_while_creating
no_directory_sync            t01_what_was_answered
deadline_off_by_one          t16_no_clock
"

caught=0
missed=""
total=0
echo "$canaries" | grep -v '^$' > "$target/list"
while read -r name test; do
    if [ $# -gt 0 ]; then
        case " $* " in *" $name "*) ;; *) continue ;; esac
    fi
    total=$((total + 1))
    wrapper="$target/$name.sh"
    flags="--cfg onceledger_canary=\\\"$name\\\""
    if [ "$test" = schedules ]; then
        # The whole build is another one: see tests/schedules.sh.
        export CARGO_ENCODED_RUSTFLAGS="--cfg=onceledger_shuttle"
        what="--lib schedules"
        dir="${CARGO_TARGET_DIR:-$PWD/target}/schedules"
    else
        unset CARGO_ENCODED_RUSTFLAGS || true
        what="--features testkit --test faults $test"
        dir="$target"
    fi
    printf '#!/bin/sh\nexec "$@" --cfg '"'"'onceledger_canary="%s"'"'"'\n' "$name" > "$wrapper.new"
    chmod +x "$wrapper.new"
    cmp -s "$wrapper.new" "$wrapper" 2>/dev/null || mv "$wrapper.new" "$wrapper"
    rm -f "$wrapper.new"
    log="$target/$name.log"
    # Fewer optimisations: it is the build that takes the time.
    if ! RUSTC_WORKSPACE_WRAPPER="$wrapper" CARGO_TARGET_DIR="$dir" CARGO_PROFILE_DEV_OPT_LEVEL=0 \
        cargo test -q $what --no-run > "$log" 2>&1 < /dev/null; then
        echo "$name: does not build, see $log"
        exit 1
    fi
    if RUSTC_WORKSPACE_WRAPPER="$wrapper" CARGO_TARGET_DIR="$dir" CARGO_PROFILE_DEV_OPT_LEVEL=0 \
        timeout 600 cargo test -q $what > "$log" 2>&1 < /dev/null; then
        missed="$missed $name"
        echo "$name: NOT caught by $test"
    else
        failed=$(grep -o '^    [a-z0-9_:]*::[a-z0-9_]*$' "$log" | sort -u | tr -d ' ' | tr '\n' ' ')
        caught=$((caught + 1))
        echo "$name: caught by ${failed:-$test (timed out)}"
    fi
done < "$target/list"
echo "T13 cases=$total faults=$total unknown=0 violations=0 caught=$caught"
[ -z "$missed" ] || { echo "not caught:$missed"; exit 1; }
