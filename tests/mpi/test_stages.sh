#!/bin/sh
# tests/mpi/test_stages.sh -- a pipeline's stages side by side: what dpxrun says of each, and what it records.
# Runs from the root of the tree; $B is where it was built.  Needs the sqlite3 shell for what is recorded.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
keep_answers
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

cat >"$tmp/config.json" <<'MODEL'
{ "model_type": "llama", "vocab_size": 128, "max_position_embeddings": 64, "hidden_size": 32,
  "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2,
  "tie_word_embeddings": false }
MODEL

plan() {        # NAME RANKS MORE
    cat >"$tmp/$1.json" <<PLAN
{ "dpx_plan": 1, "model": "$tmp/config.json", "cluster": "localhost:$2", "strategy": "ddp", "dialect": "paper",
  "kernels": "dpx", "seq": 16, "micro_batch": 1, "accumulation": 4, "precision": "fp32"$3 }
PLAN
}

ask() { sqlite3 "$tmp/dpx.db" "$1" 2>&1; }
is() { [ "$1" = "$2" ] || echo "$3: $1 instead of $2"; }

plan pipe 4 ', "parallel": { "pipeline": 2, "pipeline_schedule": "1f1b" }'
plan flat 2 ''
check 'a pipeline of two stages runs on four ranks' \
    "$("$B/dpxrun" "$tmp/pipe.json" --steps 3 --db "$tmp/dpx.db" --json >"$tmp/pipe.out" 2>"$tmp/err" || tail -n 3 "$tmp/err")"
check 'so does a plan without one' \
    "$("$B/dpxrun" "$tmp/flat.json" --steps 3 --db "$tmp/dpx.db" --json >"$tmp/flat.out" 2>"$tmp/err" || tail -n 3 "$tmp/err")"

# work + messages + bubble is the step, the same for both stages; shares are those of the sums.
sums() {        # predicted_, or nothing
    tr -d ' ,' <"$tmp/pipe.out" | awk -F: -v side="$1" '
        $1 == "\"stage\"" { n++ }
        $1 == "\"" side "work_s\"" || $1 == "\"" side "messages_s\"" { sum[n] += $2 }
        $1 == "\"" side "bubble_s\"" { sum[n] += $2; bubble[n] = $2 }
        $1 == "\"" side "bubble_share\"" { share = $2 }
        END {
            if (n != 2) print n " stages"
            if (!(sum[1] > 0) || sum[1] / sum[2] > 1 + 1e-9 || sum[2] / sum[1] > 1 + 1e-9) print "sums " sum[1] " and " sum[2]
            want = (bubble[1] / sum[1] + bubble[2] / sum[2]) / 2
            if (share - want > 1e-9 || want - share > 1e-9 || !(share > 0 && share < 1)) print "bubble " share ", by the parts " want
        }'
}
check 'parts of every stage add up to the step, as predicted' "$(sums predicted_)"
check 'and as measured' "$(sums '')"
check 'without a pipeline there are neither stages nor a bubble' "$(grep -n 'stages\|bubble' "$tmp/flat.out")"
check 'one rank alone says what is predicted of the bubble, and no more' \
    "$("$B/dpxrun" "$tmp/pipe.json" --comm null --rank 1 --steps 2 --no-db >"$tmp/one.out" 2>"$tmp/err" || tail -n 3 "$tmp/err"
       grep -q 'bubble, of all stages *[0-9.]* %$' "$tmp/one.out" || grep 'bubble' "$tmp/one.out"; grep 'nan' "$tmp/one.out")"

if ! command -v sqlite3 >/dev/null; then
    skip 'what is recorded of the stages' 'there is no sqlite3 shell'
    finish
fi
# Ranks are laid out with the pipe outermost: stage 1 begins at rank 2.
check 'the last step is recorded of one rank of each stage' \
    "$(is "$(ask "SELECT group_concat(rank) FROM (SELECT DISTINCT rank FROM entry WHERE run = 1 AND step = 3)")" 0,2 ranks)"
check 'with a forward and a backward of every micro-step on each' "$(for rank in 0 2; do for pass in forward backward; do
        is "$(ask "SELECT group_concat(m) FROM (SELECT DISTINCT micro_step m FROM entry WHERE run = 1 AND step = 3 AND rank = $rank
            AND pass = '$pass' ORDER BY m)")" 0,1,2,3 "$pass of rank $rank"
    done; done)"
check 'each entry has its prediction' \
    "$(is "$(ask "SELECT count(*) FROM entry WHERE run = 1 AND step = 3 AND predicted_end_s IS NULL")" 0 'entries without one')"
# When it ends is not asked: a small message's sender may be through before its receiver has come, and ranks' clocks agree as far as the
# barrier that aligns them is short.
check 'a message begins when both of its ranks have come' \
    "$(is "$(ask "SELECT count(*) > 0, min(met_s >= start_s) FROM entry WHERE run = 1 AND step = 3 AND pass = 'message'")" '1|1' 'messages')"
check 'parts are in the database, too, and predictions of them are final' "$(
    is "$(ask 'SELECT count(*), sum(bubble BETWEEN 0 AND 1), sum(predicted_bubble BETWEEN 0 AND 1) FROM stages WHERE run = 1')" '2|2|2' rows
    ask 'UPDATE stage SET predicted_work_s = 1' | grep -q 'not changed afterwards' || echo 'a prediction was changed')"
check 'of a plan without a pipeline there are none' "$(is "$(ask 'SELECT count(*) FROM stage WHERE run = 2')" 0 rows)"
finish
