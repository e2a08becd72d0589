#!/bin/sh
# tests/sim/test_cmd_pipeline.sh -- a plan with a pipeline on the command line: its stages in eval and explain, drawn, traced and
# listed; what is not run or read is refused in one line.
. tests/check.sh
B=${B:-build}
keep_answers
COLUMNS=1000                    # no line wraps
export COLUMNS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME
plan=demo/8b-pipeline.json

check 'eval has a row for each stage, the fullest and the busiest marked once' "$(
    "$B/dpxplan" eval $plan >"$tmp/out" 2>&1 || cat "$tmp/out"
    [ "$(grep -c '^  stage [0-3], rank' "$tmp/out")" = 4 ] && [ "$(grep -c ' fullest' "$tmp/out")" = 1 ] &&
        [ "$(grep -c ' busiest$' "$tmp/out")" = 1 ] && grep -q 'stage [0-3] of 4, steady' "$tmp/out" && grep -q '^  bubble' "$tmp/out" || cat "$tmp/out")"
check 'a plan without a pipeline has no stages' "$(
    "$B/dpxplan" eval demo/8b-fsdp.json | grep -i 'stage\|bubble'
    "$B/dpxplan" eval demo/8b-fsdp.json --json | grep 'bubble_s\|"roles"')"
check 'explain draws each stage and names the bottleneck and the balance' "$(
    "$B/dpxplan" explain $plan >"$tmp/out" 2>&1
    [ "$(grep -c '^ *stage [0-3] |[FfBbO.]*|$' "$tmp/out")" = 4 ] && grep -q '^Stage [0-3] is the bottleneck' "$tmp/out" &&
        grep -q '^Balance: ' "$tmp/out" || cat "$tmp/out")"
check 'a stage lists its own entries: 8 micro-steps to and from each neighbour, 7 blocks in the last' "$(
    for stage in 0 1 3; do
        "$B/dpxplan" explain $plan --schedule --stage $stage | sed -n '/^steady {/,/^}/p' >"$tmp/$stage"
    done
    messages() { grep -c " $1 micro-step .* pipe " "$tmp/$2"; }
    [ "$(messages send 0) $(messages recv 0)" = '8 8' ] || echo "stage 0: $(messages send 0) $(messages recv 0)"
    [ "$(messages send 1) $(messages recv 1)" = '16 16' ] || echo "stage 1: $(messages send 1) $(messages recv 1)"
    grep -q 'forward block 6 ' "$tmp/3" && ! grep -q 'forward block 7 ' "$tmp/3" || echo 'stage 3 has not 7 blocks'
    "$B/dpxplan" explain $plan --schedule --rank 2 | sed -n '/^steady {/,/^}/p' | cmp - "$tmp/1")"
check 'the stages are drawn, in any locale' "$(
    LC_ALL=C "$B/dpxplan" explain $plan -o "$tmp/a.svg" >"$tmp/out" 2>"$tmp/err" || cat "$tmp/out"
    cat "$tmp/err"
    grep -q '<svg' "$tmp/a.svg" && grep -q 'stage 3' "$tmp/a.svg" || echo 'no drawing')"
check 'the trace has a process for each stage' "$(
    "$B/dpxplan" explain $plan --trace "$tmp/t.json" >/dev/null 2>&1
    [ "$(grep -c 'process_name.*stage [0-3]' "$tmp/t.json")" = 4 ] || echo "$(grep -c process_name "$tmp/t.json") processes")"
refused() {
    words=$1
    shift
    "$@" >"$tmp/out" 2>"$tmp/err"
    [ $? = 2 ] && grep -q -- "$words" "$tmp/err" && [ "$(grep -c . "$tmp/err")" = 1 ] ||
        { echo "not refused with '$words': $*"; cat "$tmp/out" "$tmp/err"; }
}
check 'places that are none are refused' "$(
    refused '--stage 4: the plan has 4 stages' "$B/dpxplan" explain $plan --schedule --stage 4
    refused 'no pipeline' "$B/dpxplan" explain demo/8b-fsdp.json --schedule --stage 1
    refused '--rank 8: the plan has ranks 0 to 7' "$B/dpxplan" explain $plan --schedule --rank 8
    refused 'a figure is .svg' "$B/dpxplan" explain $plan -o "$tmp/x.pdf"
    refused 'has parallel.pipeline 1' "$B/dpxplan" explain demo/8b-fsdp.json --draw stages -o "$tmp/x.svg")"
check 'options that would say nothing are refused' "$(
    refused 'one of --rank and --stage' "$B/dpxplan" explain $plan --schedule --rank 7 --stage 0
    refused '--stage goes with --schedule' "$B/dpxplan" explain $plan --stage 1
    refused '--rank goes with --schedule, --detail or --snapshot of one plan' "$B/dpxplan" explain $plan demo/8b-fsdp.json --schedule --rank 0
    refused 'one of --schedule and --oom' "$B/dpxplan" explain $plan --schedule --oom demo/oom.txt
    refused '-o is of one' "$B/dpxplan" explain $plan demo/8b-fsdp.json -o "$tmp/x.svg"
    refused '--trace is of one' "$B/dpxplan" explain $plan --oom demo/oom.txt --trace "$tmp/x.json")"
check 'more passes of a rank than a schedule has events for are refused' "$(
    refused 'at most 1536 micro-steps' "$B/dpxplan" eval $plan --set accumulation=1540 parallel.pipeline_schedule=interleaved
    refused 'at most 3072 micro-steps' "$B/dpxplan" eval $plan --set accumulation=3073 parallel.pipeline_schedule=gpipe
    refused 'at most 65536 micro-steps' "$B/dpxplan" eval $plan --set accumulation=65537)"
check 'a step of 10,000 micro-steps holds and takes what its passes say: 7,500 more of 2,500 take 7,500 of the busiest stage' "$(
    for m in 2500 5000 10000; do "$B/dpxplan" eval $plan --set accumulation=$m --json >"$tmp/$m" 2>"$tmp/err" || cat "$tmp/err"; done
    get() { sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" "$tmp/$2" | head -n 1; }
    [ "$(get peak_bytes 2500)" = "$(get peak_bytes 10000)" ] || echo "peaks $(get peak_bytes 2500), $(get peak_bytes 10000)"
    echo "$(get step_s 2500) $(get step_s 5000) $(get step_s 10000)" |
        awk '{ d = ($3 - $1) / ($2 - $1) / 3 - 1; if (d > 1e-9 || d < -1e-9) print "steps " $0 }')"
check 'what dpxrun does not take of it is refused by name, and a trace of other ranks' "$(
    sed 's/"parallel".*/"parallel": { "tensor": 2 } }/' $plan >"$tmp/tensor.json"
    refused 'parallel.tensor 2: dpxrun' "$B/dpxrun" "$tmp/tensor.json"
    sed 's/"parallel".*/"parallel": { "context": 2 } }/' $plan >"$tmp/context.json"
    refused 'parallel.context 2: dpxrun' "$B/dpxrun" "$tmp/context.json"
    refused 'the trace is of 2 ranks and the plan of' "$B/dpxreport" --kineto tests/golden/kineto/ddp.json.gz --plan $plan -o "$tmp/report"
    refused 'no kernels of a GPU in it' "$B/dpxcal" import kineto tests/golden/kineto/ddp.json.gz --plan $plan --db "$tmp/x.db")"
finish
