#!/bin/sh
# tests/lab/test_lab_quant.sh -- ZeRO++ between two nodes of an emulated cluster (lab.sh): what each of its three parts leaves of ZeRO-3's
# bytes over the link, counted there.  What that does to a step's time is measured by measure_wire.sh.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/lab/lab.sh
. tests/lab/lab.sh
lab_begin 'codes between two nodes'
can_hold

# 13.2 million parameters P, in 16 bits: 26.4 MB.  Nothing stays whole, one micro-step: two gathers and a reduction of P, a step.
lab_llama "$lab_dir/config.json" 512 1376
P=$((2 * 512 * 512 + 4 * (4 * 512 * 512 + 3 * 1376 * 512 + 2 * 512) + 512))

steps() {       # NAME STEPS KEYS: into NAME.json and NAME.sent; a complaint where it does not run
    cat >"$lab_dir/plan.json" <<PLAN
{ "dpx_plan": 1, "model": "$lab_dir/config.json", "kernels": "dpx", "seq": 32, "micro_batch": 1, "strategy": "zero3",
  "dialect": "deepspeed", "precision": "bf16", "deepspeed": { "stage3_param_persistence_threshold": 0,
    "stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0, "reduce_bucket_size": 1000000$3 },
  "cluster": { "name": "lab", "host": true, "nodes": 2, "gpus_per_node": 2, "gpu": { "name": "cpu", "memory_bytes": 2000000000 },
    "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } } }
PLAN
    before=$(lab_sent)
    lab_run 2 "$B/dpxrun" "$lab_dir/plan.json" --steps "$2" --no-db --json >"$lab_dir/$1.json" 2>"$lab_dir/said" ||
        { echo "exit status $?"; head -n 20 "$lab_dir/said"; }
    hold_answer "$lab_dir/$1.json" dpxrun
    echo $(($(lab_sent) - before)) >"$lab_dir/$1.sent"
}

# Bytes from a to b that the schedule has: a ring of the 4 ranks crosses once each way, 3/4 of a buffer; of an all-to-all across, the
# node's two ranks send half of theirs; the node's own calls none.
planned() {
    tr -d ' ,"' <"$1" | awk -F: '
        $1 == "op" { op = $2 } $1 == "group" { group = $2 }
        $1 == "predicted_bytes" && group == "world" { sum += $2 * 3 / 4 * (op == "all_reduce" ? 2 : 1) }
        $1 == "predicted_bytes" && group == "across" { sum += $2 }
        END { printf "%d\n", sum }'
}

# Of the three steps that a longer run has more: complaint, and the bytes of one step into NAME.step.  What is counted beyond the
# schedule's are Open MPI's heads of messages and their pieces, and what ranks tell each other after a step: some 20 to 40 KB a step.
over_the_link() {       # NAME KEYS
    steps "$1-short" 2 "$2"
    steps "$1" 5 "$2"
    want=$(($(planned "$lab_dir/$1.json") - $(planned "$lab_dir/$1-short.json")))
    got=$(($(cat "$lab_dir/$1.sent") - $(cat "$lab_dir/$1-short.sent")))
    echo $((got / 3)) >"$lab_dir/$1.step"
    echo "# $1: predicted $want bytes from a to b in 3 steps, counted $got" >&2
    [ "$want" -gt 1000000 ] && [ $((got * 1000)) -ge $((want * 1000)) ] && [ $((got * 1000)) -le $((want * 1005)) ] ||
        echo "predicted $want bytes over the link, counted $got"
}

weights=', "zero_quantized_weights": true' secondary=', "zero_hpz_partition_size": 2' gradients=', "zero_quantized_gradients": true'
check 'ZeRO-3: bytes over the link are the schedule'\''s within 0.5 %' "$(over_the_link plain '')"
check 'int8 gathers' "$(over_the_link weights "$weights")"
check 'secondary partitions' "$(over_the_link secondary "$secondary")"
check 'int4 reductions' "$(over_the_link gradients "$gradients")"
check 'all three' "$(over_the_link three "$weights$secondary$gradients")"

# 3/4 of 2 P bytes is the unit: ZeRO-3 sends three of it.  A gather in int8 half of one and its scales; one that stays in the node none;
# a reduction that goes across alone P/4 bytes each of two ranks, half of which leaves: a sixth.  So with all three half + a sixth
# = 0.67 and what scales, vectors and frames add.
share() { awk -v got="$(cat "$lab_dir/$1.step")" -v p=$P 'BEGIN { printf "%.3f", got / (1.5 * p) }'; }
near() { awk -v is="$(share "$1")" -v least="$2" -v most="$3" -v name="$1" 'BEGIN {
    if (!(is >= least && is <= most)) print name ": " is " times 3/4 of the model, not " least " to " most }'; }
echo "# in units of 3/4 of the model's bytes: ZeRO-3 $(share plain), int8 gathers $(share weights), secondary partitions" \
     "$(share secondary), int4 reductions $(share gradients), all three $(share three)" >&2
check 'ZeRO-3 sends three models' "$(near plain 3 3.05)"
check 'two in int8 are one' "$(near weights 2 2.05)"
check 'one stays in the node' "$(near secondary 2 2.05)"
check 'a reduction in int4 is a sixth' "$(near gradients 2.16 2.25)"
check 'with all three less than 0.75 models are left' "$(near three 0.66 0.75)"

finish
