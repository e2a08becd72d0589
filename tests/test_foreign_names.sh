#!/bin/sh
# tests/test_foreign_names.sh -- names that files bring along, with line ends, terminal escapes and
# quotes, or of any length, stay names: in what every program writes and in every message, which is
# one line of bounded length.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export XDG_DATA_HOME="$dir/home" ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
escape=$(printf '\033')

plan() {        # FILE MODEL-MEMBERS [PLAN-MEMBERS]
    cat >"$1" <<END
{"dpx_plan": 1, "model": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300,
 "n_positions": 64$2}, "cluster": "4xh100", "strategy": "fsdp", "dialect": "torch", "precision": "bf16", "seq": 32, "dropout": 0$3}
END
}

# one_line STATUS WORDS PROGRAM ARGUMENT...: complaints unless it ends so, with one line of at most 1600 bytes that
# has the words and no control character.
one_line() {
    wanted=$1 words=$2
    shift 2
    timeout 30 "$@" >"$dir/out" 2>"$dir/said" </dev/null
    status=$?
    [ $status = "$wanted" ] || echo "exit status $status instead of $wanted"
    [ "$(wc -l <"$dir/said")" = 1 ] || echo "$(wc -l <"$dir/said") lines on stderr"
    [ "$(wc -c <"$dir/said")" -le 1600 ] || echo "$(wc -c <"$dir/said") bytes on stderr"
    grep -q "$words" "$dir/said" || echo "not said: $words: $(head -c 300 "$dir/said")"
    tame "$dir/said"
}

# Complaints about control characters other than line ends in a file.
tame() {
    [ "$(LC_ALL=C tr -d '\n\t\r\040-\176\200-\377' <"$1" | wc -c)" = 0 ] || echo "$1: control characters"
}

# ---- models ----

plan "$dir/evil.json" ', "_name_or_path": "x\n--module evil"'
for to in torchtitan fsdp deepspeed accelerate; do
    check "a line end in a model's name begins no line of an export to $to" \
        "$(one_line 2 '_name_or_path.*without control characters' "$B/dpxplan" export --to $to "$dir/evil.json"
           grep -n '^--module evil' "$dir/out")"
done
plan "$dir/colour.json" ', "_name_or_path": "x\u001b[31m"'
for command in eval explain; do
    check "a terminal escape in a model's name is refused by $command" \
        "$(one_line 2 '_name_or_path' "$B/dpxplan" $command "$dir/colour.json")"
done
plan "$dir/run.json" ', "_name_or_path": "x\u001b[31m"' ', "kernels": "dpx"'
check 'and by dpxrun' "$(one_line 2 '_name_or_path' "$B/dpxrun" "$dir/run.json" --no-db)"
plan "$dir/c1.json" ', "_name_or_path": "x\u009b31m"'
check 'one of a single character too' "$(one_line 2 '_name_or_path' "$B/dpxplan" eval "$dir/c1.json")"

# A file may be called anything.
file="$dir/a
--module evil$escape[31m.json"
echo '{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300, "n_positions": 64}' >"$file"
cat >"$dir/byfile.json" <<'END'
{"dpx_plan": 1, "model": "a\n--module evil\u001b[31m.json", "cluster": "4xh100", "strategy": "fsdp", "dialect": "torch",
 "precision": "bf16", "seq": 32, "dropout": 0}
END
"$B/dpxplan" export --to torchtitan "$dir/byfile.json" >"$dir/exported" 2>"$dir/said"
"$B/dpxplan" eval "$dir/byfile.json" >"$dir/out" 2>>"$dir/said"
check 'a model called by its file brings no line end of the file name along' \
    "$(grep -n '^--module evil' "$dir/exported" "$dir/out"; [ -s "$dir/exported" ] || cat "$dir/said"
       tame "$dir/out"; tame "$dir/exported")"
check 'a file that is missing is named in one line' \
    "$(one_line 2 'No such file' "$B/dpxplan" eval "$dir/none
$escape[2J.json")"

# ---- messages ----

long=$(awk 'BEGIN { for (i = 0; i < 70000; i++) printf "x" }')
plan "$dir/long.json" '' ", \"$long\": 1"
check 'an unknown key of 70,000 characters is one line of bounded length' "$(one_line 2 'long.json' "$B/dpxplan" eval "$dir/long.json")"
plan "$dir/key.json" '' ', "a\n\u001b[2Jb": 1'
check 'an unknown key with a terminal escape is one line without it' "$(one_line 2 'key.json' "$B/dpxplan" eval "$dir/key.json")"
plan "$dir/version.json" '' ', "framework_version": "\n--module evil"'
check 'so is a value' "$(one_line 2 'framework_version' "$B/dpxplan" eval "$dir/version.json")"
check 'and an option' "$(one_line 2 'dpxplan' "$B/dpxplan" eval "--x
$escape[2J$long")"
for program in dpxrun dpxcal dpxreport; do
    check "$program names an option in one line of bounded length" "$(one_line 2 . "$B/$program" "--x
$escape[2J$long")"
done
cat >"$dir/ds.json" <<'END'
{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "od\u001b[2J\nd": 1}, "o\u001bdd\n": 2}
END
"$B/dpxplan" import --ds-config "$dir/ds.json" --model gpt2 --cluster 4xh100 --seq 32 -o "$dir/imported.json" \
    >"$dir/out" 2>"$dir/said"
check 'a key of a framework config is shown without control characters' "$(tame "$dir/said"
    grep -v '^dpx: \|^    [a-z]' "$dir/said")"

# ---- databases and traces ----

db=$dir/db
cat >"$dir/calibration.json" <<'END'
{"dpx_calibrations": 1, "calibrations": [{"started": 1.75e9, "ended": 1.75e9, "host": "no\u001b[31mde\n7", "device": "cpu",
 "cpu": "Some\u001b]0;title\u0007 CPU", "cores": 2, "memory_bytes": 1, "source": "dpxcal", "ranks": 2, "threads": 1, "options": "{}",
 "series": [{"kind": "collective", "name": "all_reduce", "dtype": "fp32", "algorithm": "ri\u001bng", "beside": "",
  "ranks": 2, "per_node": 2, "threads": 1, "batch": 0, "m": 0, "n": 0, "k": 0, "seq": 0, "dim": 0, "bytes": 1024,
  "flops": 0, "dropout": 0, "started": 1.75e9, "of_ranks": 0, "seconds": [1e-5, 2e-5, 3e-5]},
 {"kind": "collective", "name": "all_reduce", "dtype": "fp32", "algorithm": "ri\u001bng", "beside": "",
  "ranks": 2, "per_node": 2, "threads": 1, "batch": 0, "m": 0, "n": 0, "k": 0, "seq": 0, "dim": 0, "bytes": 4096,
  "flops": 0, "dropout": 0, "started": 1.75e9, "of_ranks": 0, "seconds": [4e-5, 5e-5, 6e-5]}]}]}
END
"$B/dpxcal" import "$dir/calibration.json" --db "$db" >"$dir/out" 2>"$dir/said"
"$B/dpxcal" show --db "$db" >>"$dir/out" 2>>"$dir/said"
"$B/dpxcal" show --fits --db "$db" >>"$dir/out" 2>>"$dir/said"
check 'dpxcal shows what a database calls a machine without control characters' "$(tame "$dir/out"; tame "$dir/said"
    grep -q 'no.x1b' "$dir/out" || cat "$dir/out" "$dir/said")"
cat >"$dir/trace.json" <<'END'
{"traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 100},
 {"ph": "X", "cat": "kernel", "name": "nccl\u001b[2JAllReduce\n", "ts": 10, "dur": 50, "args": {"stream": 1, "dtype": "Flo\u001bat"}}]}
END
"$B/dpxreport" --kineto "$dir/trace.json" >"$dir/out" 2>"$dir/said"
check 'dpxreport shows the kernels of a trace so' "$(tame "$dir/out"; grep -q AllReduce "$dir/out" || cat "$dir/out" "$dir/said")"
finish
