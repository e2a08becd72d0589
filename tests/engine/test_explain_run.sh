#!/bin/sh
# test_explain_run.sh -- dpxplan explain --run: which part of a run's difference is whose.
. tests/check.sh
. tests/engine/plans.sh
B=${B:-build}
keep_answers
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export XDG_DATA_HOME="$dir/none" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
explain() { "$B/dpxplan" explain --run "$@" >"$dir/out" 2>"$dir/err"; }
# measured PART: seconds of it in the document.
measured() { grep -A2 "\"part\": \"$1\"" "$dir/out" | sed -n 's/.*"measured_s": \([0-9.e-]*\).*/\1/p'; }

# refused WORDS ARGUMENTS...
refused() {
    words=$1
    shift
    explain "$@"
    got=$?
    check "refused: $words" "$([ $got = 2 ] || echo "exit status $got"; grep -q "$words" "$dir/err" || cat "$dir/err"; [ "$(wc -l <"$dir/err")" = 1 ] || cat "$dir/err")"
}

plan_of fsdp2-llama >"$dir/plan.json"
"$B/dpxrun" "$dir/plan.json" --steps 4 --db "$dir/db" >"$dir/run" 2>"$dir/err" </dev/null || {
    check 'a run to explain' "$(cat "$dir/err")"
    finish
}
explain 1 --db "$dir/db" --json
check 'predicted parts of a step are the step' "$(awk -F'[:,]' '/"predicted_step_s"/ { step = $2 } /"predicted_s"/ { sum += $2 }
    END { e = sum / step - 1; if (!(step > 0) || e > 1e-6 || e < -1e-6) print sum " of " step }' "$dir/out")"
check 'collectives of a run are those planned' "$(grep -q '"equal": true' "$dir/out" && ! grep '"equal": false' "$dir/out" || cat "$dir/out")"
explain 1 --db "$dir/db"
check 'in words: kernels, communication, issuing, memory by category' "$(for w in 'kernels of forward' 'no kernel hides' 'issuing' 'optimizer  ' 'calls and bytes are those predicted'
    do grep -q "$w" "$dir/out" || echo "not said: $w"; done)"

if command -v sqlite3 >/dev/null; then
    # Rank 0 has 5 s of exposed communication, rank 1 has 2 s: 3 s of rank 0's are for the slower rank.
    sqlite3 "$dir/db" "UPDATE phase SET measured_s = 5 WHERE name = 'exposed communication';
        INSERT INTO rank_part VALUES (1, 0, 10, 4, 5, 1, 0), (1, 1, 10, 7, 2, 1, 0)"
    explain 1 --db "$dir/db" --json
    check 'what a rank has beyond the least exposed one it waited for' "$([ "$(measured waiting)" = 3.0 ] && [ "$(measured 'exposed communication')" = 2.0 ] || cat "$dir/out")"
    check 'predictions of ranks are final' "$(sqlite3 "$dir/db" "INSERT INTO rank_phase (run, rank, phase, position, predicted_allocated_bytes)
        VALUES (1, 0, 'init', 0, 7); UPDATE rank_phase SET predicted_allocated_bytes = 8" 2>&1 | grep -q 'not changed afterwards' || echo 'it was changed')"
else
    skip 'what a rank has beyond the least exposed one it waited for' 'there is no sqlite3'
    skip 'predictions of ranks are final' 'there is no sqlite3'
fi
refused 'there is no run 7' 7 --db "$dir/db"
refused 'its plan is the run' 1 "$dir/plan.json" --db "$dir/db"
refused 'none.db' 1 --db "$dir/none.db"
refused 'not a number' x --db "$dir/db"
finish
