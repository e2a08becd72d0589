#!/bin/sh
# tests/calib/test_dpxcal_words.sh -- what dpxcal is given wrong ends with 2 and one line that says
# what and where, before any rank is started; what is right is taken.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export XDG_DATA_HOME="$dir/home" ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

# refused WORDS ARGUMENT...: complaints unless it exits with 2 and one line on stderr that has the words.
refused() {
    words=$1
    shift
    timeout 20 "$B/dpxcal" "$@" >"$dir/out" 2>"$dir/said" </dev/null
    status=$?
    [ $status = 2 ] || echo "dpxcal $*: exit status $status instead of 2"
    [ "$(wc -l <"$dir/said")" = 1 ] && grep -q "^dpx: .*$words" "$dir/said" || {
        echo "dpxcal $*: said, instead of one line with '$words':"
        cat "$dir/said"
    }
    [ ! -s "$dir/out" ] || echo "dpxcal $*: said on stdout: $(head -1 "$dir/out")"
}
taken() {
    timeout 20 "$B/dpxcal" "$@" >"$dir/out" 2>"$dir/said" </dev/null || {
        echo "dpxcal $*: exit status $?"
        cat "$dir/said"
    }
}

# ---- files ----

db=$dir/good.db
cat >"$dir/good.json" <<'END'
{"dpx_calibrations": 1, "calibrations": [{"started": 1.75e9, "ended": 1.75e9, "host": "node7", "device": "cpu",
 "cpu": "Some CPU", "cores": 2, "memory_bytes": 1, "source": "dpxcal", "ranks": 2, "threads": 1, "options": "{}",
 "series": [{"kind": "collective", "name": "all_reduce", "dtype": "fp32", "algorithm": "ring", "beside": "",
  "ranks": 2, "per_node": 2, "threads": 1, "batch": 0, "m": 0, "n": 0, "k": 0, "seq": 0, "dim": 0, "bytes": 1024,
  "flops": 0, "dropout": 0, "started": 1.75e9, "of_ranks": 0, "seconds": [1e-5, 2e-5, 3e-5]},
 {"kind": "collective", "name": "all_reduce", "dtype": "fp32", "algorithm": "ring", "beside": "",
  "ranks": 2, "per_node": 2, "threads": 1, "batch": 0, "m": 0, "n": 0, "k": 0, "seq": 0, "dim": 0, "bytes": 4096,
  "flops": 0, "dropout": 0, "started": 1.75e9, "of_ranks": 0, "seconds": [4e-5, 5e-5, 6e-5]}]}]}
END
check 'an exported file is taken in' "$(taken import "$dir/good.json" --db "$db"
    grep -q '1 calibration taken in, 0 were known' "$dir/out" || cat "$dir/out")"
: >"$dir/empty"
check 'a name that SQLite has a meaning for is a file like any other' "$(
    program=$(cd "$(dirname "$B/dpxcal")" && pwd)/dpxcal
    cd "$dir" || exit
    for name in :memory: 'file:x.db?mode=memory'; do
        "$program" import good.json --db "$name" >/dev/null 2>said || cat said
        [ -s "$name" ] || echo "no file $name"
    done)"
check 'an export does not write over a database' "$(refused 'is an SQLite database' export "$db" --db "$db"
    taken show --db "$db")"
head -c 300 "$dir/good.json" >"$dir/half.json"
{ printf x; head -c 2999 /dev/urandom; } >"$dir/noise"         # a log that began with a brace would be read as JSON
echo 'step,loss' >"$dir/loss.csv"
echo '{"dpx_calibrations": 2, "calibrations": []}' >"$dir/newer.json"
sed 's/"fp32"/"fp12"/' "$dir/good.json" >"$dir/dtype.json"
sed 's/"seconds": \[4e-5/"seconds": [-4e-5/' "$dir/good.json" >"$dir/negative.json"
sed 's/"bytes": 4096/"bytes": 1e999/' "$dir/good.json" >"$dir/huge.json"

check 'dpxcal fit makes what comes with dpx of its samples' "$(for f in tests/calib/measured/*.json; do
    gpu=$(basename "$f" .json)
    taken fit "$f" "$dir/$gpu.fits"
    cmp "$dir/$gpu.fits" "calib/measured/$gpu.fits"
done)"
check 'fits are of the kernels of one GPU' "$(
    refused 'has kernels of 0 types of GPU' fit "$dir/good.json" "$dir/none.fits"
    refused 'half.json:.*malformed JSON' fit "$dir/half.json" "$dir/none.fits"
    refused 'No such file' fit tests/calib/measured/h100.json "$dir/no/where.fits"
    [ ! -e "$dir/none.fits" ] || echo 'a file was left')"
check 'what is no export is refused' "$(
    refused 'none.json: No such file' import "$dir/none.json" --db "$db"
    refused 'empty:1:0: malformed JSON' import "$dir/empty" --db "$db"
    refused 'half.json:.*malformed JSON' import "$dir/half.json" --db "$db"
    refused 'noise:.*malformed JSON' import "$dir/noise" --db "$db"
    refused 'loss.csv:1:4: malformed JSON' import "$dir/loss.csv" --db "$db"
    refused 'a newer dpx made it' import "$dir/newer.json" --db "$db"
    refused 'not calibrations that' import tests/golden/parity/llama/config.json --db "$db"
    refused 'dtype "fp12" is not known' import "$dir/dtype.json" --db "$dir/nothing.db"
    refused 'not a list of times' import "$dir/negative.json" --db "$dir/nothing.db"
    refused 'huge.json:.*malformed JSON' import "$dir/huge.json" --db "$db"
    refused 'is a folder, not a regular file' import "$dir" --db "$db"
    refused 'no file named' import --db "$db"
    refused 'no file named' import nccl-tests --db "$db")"
check 'and leaves no database behind that was not there' "$(
    refused 'none.json: No such file' import "$dir/none.json" --db "$dir/new.db"
    [ ! -e "$dir/new.db" ] || echo 'new.db was made')"

# ---- nccl-tests ----

# sweep NODES GPUS PROGRAM REDOP BUSBW/ALGBW: as nccl-tests 2.17 prints it, 20 us and 1 us for each KiB.
sweep() {
    awk -v nodes="$1" -v gpus="$2" -v program="$3" -v redop="$4" -v factor="$5" 'BEGIN {
        print "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807"
        print "# Collective test starting: " program
        print "# nThread 1 nGpus 1 minBytes 1024 maxBytes 65536 step: 2(factor) warmup iters: 1 iters: 20\n#\n# Using devices"
        for (r = 0; r < nodes * gpus; r++)
            printf "#  Rank %2d Group  0 Pid %6d on %10s%d device %2d [0000:0%d:00] NVIDIA H200\n", r, 100 + r, "node",
                int(r / gpus), r % gpus, r % gpus
        print "#\n#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
        for (b = 1024; b <= 65536; b *= 2) {
            us = 20 + b / 1024; bw = b / us / 1e3
            printf "%12d %13d %9s %7s      -1 %8.2f %7.2f %7.2f       0 %8.2f %7.2f %7.2f       0\n", b, b / 4, "float",
                redop, us, bw, bw * factor, us, bw, bw * factor
        }
        print "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.2\n#\n# Collective test concluded: " program }'
}
sweep 1 8 all_reduce_perf sum 1.75 >"$dir/one.log"
{ sweep 2 8 all_reduce_perf sum 1.875; sweep 4 8 all_reduce_perf sum 1.9375; } >"$dir/several.log"
sweep 2 8 reduce_scatter_perf sum 0.9375 >"$dir/scattered.log"
awk 'BEGIN {
    printf "{\"version\": 1, \"args\": [\"./build/all_gather_perf\", \"-J\", \"g.json\"], \"nccl_version\": 22807, \"config\": {\"devices\": ["
    for (r = 0; r < 16; r++)
        printf "%s{\"rank\": %d, \"hostname\": \"node%d\", \"device_info\": \"NVIDIA H200\"}", r ? ", " : "", r, r / 8
    printf "]}, \"results\": ["
    for (b = 1024; b <= 65536; b *= 2)
        printf "%s{\"size\": %d, \"count\": %d, \"type\": \"float\", \"redop\": \"none\", \"root\": \"-1\", \"out_of_place\": {\"time\": %g, \"alg_bw\": 1, \"bus_bw\": 1, \"nwrong\": 0}, \"in_place\": {\"time\": %g, \"alg_bw\": 1, \"bus_bw\": 1, \"nwrong\": 0}}", (b > 1024) ? ", " : "", b, b / 4, 20 + b / 1024, 20 + b / 1024
    print "], \"out_of_bounds\": {\"count\": 0, \"okay\": true}}" }' </dev/null >"$dir/gather.json"
check 'several logs of several numbers of nodes, text and JSON, are taken in' "$(
    taken import nccl-tests "$dir/one.log" "$dir/several.log" "$dir/scattered.log" "$dir/gather.json" --db "$dir/nccl.db"
    sed 's,.*/,,' "$dir/out" >"$dir/short"
    diff - "$dir/short" <<END
one.log: all_reduce on 1 x 8 h200, 7 points
several.log: all_reduce on 2 x 8 h200, 7 points
several.log: all_reduce on 4 x 8 h200, 7 points
scattered.log: reduce_scatter on 2 x 8 h200, 7 points
gather.json: all_gather on 2 x 8 h200, 7 points
END
    )"
# 20 us and 1 us a KiB are 1.02 GB/s, exactly.
check 'their laws are kept, with residuals and range' "$(
    COLUMNS=300 taken show --fits --db "$dir/nccl.db"
    n=$(grep -c '20 us + 1.02 GB/s  *0.0 %  *0.0 % .* 7  1 KiB to 64 KiB  (imported, h200)$' "$dir/out")
    [ "$n" = 5 ] || cat "$dir/out")"
check 'what was taken in is known' "$(taken import nccl-tests "$dir/one.log" --db "$dir/nccl.db"
    grep -q 'was taken in before' "$dir/out" || cat "$dir/out")"
check 'predictions for that machine rest on them' "$(
    echo '{"dpx_plan": 1, "model": "gpt2", "cluster": "2x8xh200", "seq": 128, "micro_batch": 1, "strategy": "ddp",
        "dialect": "torch", "precision": "fp32"}' >"$dir/plan.json"
    "$B/dpxplan" eval "$dir/plan.json" --db "$dir/nccl.db" 2>&1 | grep -q 'measured: .* series' || echo 'not measured')"
# The plan with this cluster and this database: its exit status and whether it is measured.
by() {
    printf '{"dpx_plan": 1, "model": "gpt2", "cluster": %s, "seq": 128, "micro_batch": 1, "strategy": "ddp",
        "dialect": "torch", "precision": "fp32"}' "$1" >"$dir/by.json"
    "$B/dpxplan" eval "$dir/by.json" --db "$2" >"$dir/out" 2>"$dir/said"
    status=$?
    grep -q 'measured: .* series' "$dir/out" && echo "$status measured" || echo "$status"
}
check 'a log of one cluster moves no other cluster of those GPUs' "$(
    taken import nccl-tests "$dir/several.log" --cluster atlas --db "$dir/named.db"
    for pair in '"2x8xh200":0' '"2x8xh200@none":0' '"2x8xh200@atlas":0 measured' '"2x8xh200@borg":2' \
        '{"name": "atlas", "nodes": 2, "gpus_per_node": 8, "gpu": "h200"}:0 measured' \
        '{"name": "borg", "nodes": 2, "gpus_per_node": 8, "gpu": "h200"}:0' \
        '{"calibration": "atlas", "nodes": 2, "gpus_per_node": 8, "gpu": "h200"}:0 measured'; do
        got=$(by "${pair%:*}" "$dir/named.db")
        [ "$got" = "${pair##*:}" ] || { echo "${pair%:*}: $got"; cat "$dir/said"; }
    done
    by '"2x8xh200"' "$dir/named.db" >/dev/null
    grep -q 'note: calibrations of h200 that are not used, .*: atlas; "2x8xh200@atlas" would' "$dir/said" || cat "$dir/said")"
check 'two that could be meant are both named, whatever asks' "$(
    taken import nccl-tests "$dir/several.log" --cluster borg --db "$dir/named.db"
    [ "$(by '"2x8xh200"' "$dir/named.db")" = 2 ] || echo 'eval takes one of them'
    for ask in "eval $dir/by.json" "explain $dir/by.json" "search --model gpt2 --cluster 2x8xh200 --seq 128 --global-batch 16" \
        "sweep $dir/by.json --over seq=64,128"; do
        # shellcheck disable=SC2086
        "$B/dpxplan" $ask --db "$dir/named.db" >"$dir/out" 2>"$dir/said"
        [ $? = 2 ] && grep -q 'atlas and borg could be meant' "$dir/said" || { echo "$ask: "; cat "$dir/said"; }
    done
    [ "$(by '"2x8xh200@borg"' "$dir/named.db")" = '0 measured' ] || echo 'borg is not found')"
check 'an export is its host'"'"'s, or the cluster'"'"'s that --cluster names' "$(
    sed 's/"cpu", *$/"h200",/' "$dir/good.json" >"$dir/gpu.json"
    taken import "$dir/gpu.json" --db "$dir/portable.db"
    taken import "$dir/gpu.json" --cluster atlas --db "$dir/portable.db"
    for pair in '"2xh200@node7":0 measured' '"2xh200@atlas":0 measured'; do
        got=$(by "${pair%:*}" "$dir/portable.db")
        [ "$got" = "${pair##*:}" ] || { echo "${pair%:*}: $got"; cat "$dir/said"; }
    done)"
check 'a name that no plan could write is refused' "$(
    for name in '' none a@b; do refused 'cluster' import nccl-tests "$dir/one.log" --cluster "$name" --db "$db"; done)"
check 'files whose names begin with a minus are files behind --' "$(
    bin=$(cd "$B" && pwd)
    cd "$dir" || exit
    for name in '-->' -2+3 -- - --db; do
        cp one.log "./$name"
        "$bin/dpxcal" import nccl-tests --db "minus.db" -- "$name" <&- >out 2>said || { echo "$name:"; cat said; }
        grep -q 'all_reduce on 1 x 8 h200' out || { echo "$name:"; cat out; }
    done)"
head -c 700 "$dir/one.log" >"$dir/head.log"
head -c 900 "$dir/gather.json" >"$dir/head.json"
sed 's/H200/Q9000/' "$dir/one.log" >"$dir/gpu.log"
sed 's/all_reduce_perf/alltoall_perf/' "$dir/one.log" >"$dir/op.log"
sed '/# Rank/d; /#  Rank/d' "$dir/one.log" >"$dir/ranks.log"
sed '/Rank 15/d' "$dir/scattered.log" >"$dir/uneven.log"
check 'what is no log is refused' "$(
    refused 'none.log: No such file' import nccl-tests "$dir/none.log" --db "$db"
    refused 'no results of nccl-tests' import nccl-tests "$dir/empty" --db "$db"
    refused 'no results of nccl-tests' import nccl-tests "$dir/loss.csv" --db "$db"
    refused 'no results of nccl-tests' import nccl-tests "$dir/noise" --db "$db"
    refused 'no results of nccl-tests' import nccl-tests "$dir/head.log" --db "$db"
    refused 'head.json:.*malformed JSON' import nccl-tests "$dir/head.json" --db "$db"
    refused 'taken without the word nccl-tests' import nccl-tests "$dir/good.json" --db "$db"
    refused 'is not a GPU that dpx knows' import nccl-tests "$dir/gpu.log" --db "$db"
    refused 'no GPU of this name' import nccl-tests "$dir/one.log" --gpu q9000 --db "$db"
    refused 'no schedule of dpx' import nccl-tests "$dir/op.log" --db "$db"
    refused 'lines that list the ranks' import nccl-tests "$dir/ranks.log" --db "$db"
    refused 'every node needs the same number' import nccl-tests "$dir/uneven.log" --db "$db"
    refused 'is a folder, not a regular file' import nccl-tests "$dir" --db "$db")"
check 'nor anything of what came before it' "$(
    timeout 20 "$B/dpxcal" import nccl-tests "$dir/scattered.log" "$dir/gpu.log" --db "$db" >/dev/null 2>&1
    "$B/dpxcal" show --db "$db" | grep -q h200 && echo 'the first of two files stayed')"

# ---- databases ----

mkfifo "$dir/pipe"
cp "$db" "$dir/newer.db"
cp "$db" "$dir/half.db"
truncate -s 20000 "$dir/half.db"
if command -v sqlite3 >/dev/null; then
    sqlite3 "$dir/newer.db" 'PRAGMA user_version = 99'
    sqlite3 "$dir/other.db" 'CREATE TABLE t (x); INSERT INTO t VALUES (1)'
fi
for command in show "export $dir/x.json" "import $dir/good.json" 'run --ranks 1 --quick'; do
    # shellcheck disable=SC2086
    check "a database that is none is refused by ${command%% *}" "$(
        refused 'is a folder, not a database' $command --db "$dir"
        refused 'is no regular file' $command --db "$dir/pipe"
        refused 'not an SQLite database' $command --db "$dir/noise"
        refused 'the file is damaged' $command --db "$dir/half.db"
        refused 'No such file or directory' $command --db "$dir/no/such/folder.db"
        refused 'is empty' $command --db ''
        command -v sqlite3 >/dev/null || exit 0
        refused 'schema 99, made by a newer dpx' $command --db "$dir/newer.db"
        refused 'database of another program' $command --db "$dir/other.db")"
done
check 'a database that is not there is not shown' "$(
    refused 'none.db: No such file or directory: `dpxcal run` makes' show --db "$dir/none.db"
    refused 'dpx.db: No such file or directory: `dpxcal run` makes' show
    refused 'dpx.db: No such file' export "$dir/x.json"
    [ ! -e "$dir/none.db" ] && [ ! -e "$XDG_DATA_HOME" ] || echo 'it was made')"

# Permissions do not stop root.
as_nobody() {
    if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi
}
mkdir "$dir/locked"
cp "$db" "$dir/locked/cal.db"
cp "$B/dpxcal" "$dir/dpxcal"
chmod 755 "$dir" "$dir/dpxcal"
chmod 444 "$dir/locked/cal.db"
chmod 555 "$dir/locked"
if as_nobody "$dir/dpxcal" --version >/dev/null 2>&1; then
    check 'a read-only database can be read' "$(
        as_nobody "$dir/dpxcal" show --db "$dir/locked/cal.db" >"$dir/out" 2>&1 || cat "$dir/out"
        grep -q 'all_reduce, ring' "$dir/out" || cat "$dir/out")"
    check 'and not written: said before anything is measured' "$(
        for command in 'run --ranks 1 --quick' "import $dir/good.json"; do
            # shellcheck disable=SC2086
            as_nobody timeout 20 "$dir/dpxcal" $command --db "$dir/locked/cal.db" >"$dir/out" 2>&1
            [ $? = 2 ] && grep -q 'read-only' "$dir/out" || { echo "$command:"; cat "$dir/out"; }
        done)"
else
    skip 'a read-only database can be read' 'cannot become the user nobody here'
    skip 'and not written: said before anything is measured' 'cannot become the user nobody here'
fi
chmod 755 "$dir/locked"

# ---- where an export goes ----

check 'an export that cannot be written is refused, and nothing is left of it' "$(
    refused 'No such file or directory' export "$dir/no/such/x.json" --db "$db"
    refused 'Is a directory' export "$dir/locked" --db "$db"
    refused 'has no calibration 7' export "$dir/x.json" --calibration 7 --db "$db"
    refused 'FILE' export --db "$db"
    [ ! -e "$dir/x.json" ] || echo 'x.json was written')"
check 'a full disk is no wrong usage' "$(
    "$B/dpxcal" export /dev/full --db "$db" >"$dir/out" 2>"$dir/said"
    [ $? = 1 ] && grep -q 'No space left' "$dir/said" || cat "$dir/said"
    "$B/dpxcal" show --db "$db" >/dev/full 2>"$dir/said"
    [ $? = 1 ] && grep -q 'cannot write to standard output' "$dir/said" || cat "$dir/said")"
check 'what was exported is what was taken in' "$(
    taken export "$dir/x.json" --db "$db"
    taken import "$dir/x.json" --db "$dir/copy.db"
    taken export "$dir/y.json" --db "$dir/copy.db"
    for f in x y; do sed 's/"origin":"[^"]*"//' "$dir/$f.json" >"$dir/$f.same"; done
    cmp "$dir/x.same" "$dir/y.same")"

# ---- numbers and names ----

check 'numbers that make no sense are refused' "$(
    refused "seconds: '0' is too small" run --seconds 0 --db "$db"
    refused "seconds: '-5'" run --seconds -5 --db "$db"
    refused "seconds: 'soon'" run --seconds soon --db "$db"
    refused "seconds: '1e99'" run --seconds 1e99 --db "$db"
    refused "ranks: '0' is too small" run --ranks 0 --db "$db"
    refused "ranks: '-1'" run --ranks -1 --db "$db"
    refused "ranks: '2.5'" run --ranks 2.5 --db "$db"
    refused "ranks 1000000: this machine has" run --ranks 1000000 --db "$db"
    refused "threads 1000000: this machine has" run --threads 1000000 --db "$db"
    refused "hostfile $dir/none: No such file" run --hostfile "$dir/none" --db "$db"
    refused "micro-batch" run --model gpt2 --micro-batch 1,x --db "$db"
    refused "micro-batch" run --model gpt2 --micro-batch 4x --db "$db"
    refused "micro-batch" run --model gpt2 --micro-batch 1,,2 --db "$db"
    refused "micro-batch" run --model gpt2 --micro-batch 0 --db "$db"
    refused "micro-batch" run --model gpt2 --micro-batch -3 --db "$db"
    refused "micro-batch" run --quick --micro-batch 1e30 --db "$db"
    refused "choose a smaller" run --model gpt2 --micro-batch 1000000 --db "$db"
    refused "seq: '0' is too small" run --model gpt2 --seq 0 --db "$db"
    refused "seq" run --model gpt2 --seq 4096 --db "$db"
    refused "precision: 'fp12' is not one of" run --precision fp12 --db "$db"
    refused "device: 'tpu' is not one of" run --device tpu --db "$db"
    CUDA_VISIBLE_DEVICES='' refused "without CUDA\|no CUDA device" run --device cuda --db "$db"
    refused "for: 'x' is not a number" probe --for x
    refused "for: '-1' is negative" probe --for -1
    refused "ranks: '0'" probe --ranks 0
    refused "ranks: '0'" show --ranks 0 --db "$db"
    refused "calibration: '0'" export "$dir/x.json" --calibration 0 --db "$db")"
echo '{"model_type": "gpt2", "n_embd": 64' >"$dir/config.json"
check 'models that are none are refused' "$(
    refused 'nosuch' run --model nosuch --db "$db"
    refused 'nosuch' run --model gpt2,nosuch --db "$db"
    refused 'malformed JSON' run --model "$dir/config.json" --db "$db"
    refused 'nosuch' show --model nosuch --db "$db"
    refused 'micro-batch' show --model gpt2 --micro-batch x --db "$db")"
check 'commands and options that are none are refused' "$(
    refused 'shwo' shwo
    refused 'quik' run --quik
    refused 'extra' run extra --db "$db"
    refused 'clutser' import "$dir/good.json" --clutser x --db "$db"
    refused "op: 'all_reduce' is not one of" import nccl-tests "$dir/one.log" --op all_reduce --db "$db")"
finish
