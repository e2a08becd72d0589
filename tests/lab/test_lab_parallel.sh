#!/bin/sh
# tests/lab/test_lab_parallel.sh -- which axis crosses the network: on two nodes of an emulated cluster (lab.sh) a pipeline
# across them against tensor parallelism across them, predicted and run; and messages of a pipeline counted on the link.
# Runs from the root of the tree; $B is where it was built.
#
# Predicted steps are compared, and bytes counted: they are far apart, for tensor parallelism moves every block's activations four times a
# micro-step over 1 Gbit/s where the pipeline moves them twice at one place.  Measured steps (10th percentile) are printed beside, and not
# compared: what else runs on the machine comes and goes.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/lab/lab.sh
. tests/lab/lab.sh
lab_begin 'pipelines against tensor parallelism between two nodes'
can_hold

cat >"$lab_dir/config.json" <<'MODEL'
{ "model_type": "llama", "vocab_size": 512, "max_position_embeddings": 256, "hidden_size": 128,
  "intermediate_size": 344, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 4,
  "hidden_act": "silu", "rms_norm_eps": 1e-05, "tie_word_embeddings": false }
MODEL
SEQ=256 STEPS=8 ACCUMULATION=4

plan() {        # RANKS_A_NODE PARALLEL
    cat >"$lab_dir/plan.json" <<PLAN
{ "dpx_plan": 1, "model": "$lab_dir/config.json", "kernels": "dpx", "seq": $SEQ, "micro_batch": 1,
  "accumulation": $ACCUMULATION, "strategy": "ddp", "dialect": "paper", "precision": "fp32", "parallel": $2,
  "cluster": { "name": "lab", "host": true, "nodes": 2, "gpus_per_node": $1,
    "gpu": { "name": "cpu", "memory_bytes": 2000000000 }, "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } } }
PLAN
}

# A complaint where it does not run; into NAME.json, and the bytes over the link into NAME.sent.
steps() {       # RANKS_A_NODE NAME PARALLEL
    plan "$1" "$3"
    before=$(lab_sent)
    lab_run "$1" "$B/dpxrun" "$lab_dir/plan.json" --steps $STEPS --no-db --json >"$lab_dir/$2.json" 2>"$lab_dir/said" ||
        { echo "exit status $?"; head -n 20 "$lab_dir/said"; }
    hold_answer "$lab_dir/$2.json" dpxrun
    echo $(($(lab_sent) - before)) >"$lab_dir/$2.sent"
}

less() {        # NAME A OTHER B: unless A is less than B
    awk -v one="$1" -v a="$2" -v other="$3" -v b="$4" 'BEGIN { if (!(a > 0 && b > 0 && a < b)) print one " " a ", " other " " b }'
}

say() {         # NAME
    awk -v name="$1" -v p="$(lab_figure "$lab_dir/$1.json" predicted_step_s)" -v m="$(lab_figure "$lab_dir/$1.json" p10)" \
        -v sent="$(cat "$lab_dir/$1.sent")" 'BEGIN {
            printf "#  %-34s predicted %6.3f s, measured %6.3f s, %5.1f MB over the link\n", name, p, m, sent / 1e6 }' >&2
}

compare() {     # RANKS_A_NODE, then NAME and PARALLEL of the pipeline across nodes, and of tensors across nodes
    check "$2 runs" "$(steps "$1" "$2" "$3")"
    check "$4 runs" "$(steps "$1" "$4" "$5")"
    say "$2"
    say "$4"
    check "$2 beats $4, in prediction" "$(less "$2" "$(lab_figure "$lab_dir/$2.json" predicted_step_s)" \
        "$4" "$(lab_figure "$lab_dir/$4.json" predicted_step_s)")"
    check "$2 sends less over the link than $4" "$(less "$2" "$(cat "$lab_dir/$2.sent")" "$4" "$(cat "$lab_dir/$4.sent")")"
}

one='{ "pipeline": 2, "pipeline_schedule": "1f1b" }'
compare 1 pipeline-across "$one" tensor-across '{ "tensor": 2 }'
# Ranks are laid out with the pipe outermost and tensors innermost: on 2 x 2 tensors stay in a node beside a pipeline, and 4 of
# them do not.
compare 2 pipeline-across-tensor-within '{ "tensor": 2, "pipeline": 2, "pipeline_schedule": "1f1b" }' \
    tensor-across-all '{ "tensor": 4 }'

# What one stage sends the other, each micro-step: the activations of its tokens, fp32, 128 wide; gradients the other way.
# Frames add 0.2 %, and losses, times and start-up are the same in a longer run, whose steps that it has more are counted.
short=$(cat "$lab_dir/pipeline-across.sent")
STEPS=24
check 'a longer pipeline runs' "$(steps 1 longer "$one")"
long=$(cat "$lab_dir/longer.sent")
check 'bytes over the link are those of the messages within 2 %' "$(
    want=$((16 * ACCUMULATION * SEQ * 128 * 4)) got=$((long - short))
    echo "#  predicted $want bytes from a to b in 16 steps, counted $got" >&2
    [ $((got * 100)) -ge $((want * 100)) ] && [ $((got * 100)) -le $((want * 102)) ] ||
        echo "predicted $want bytes over the link, counted $got")"
finish
