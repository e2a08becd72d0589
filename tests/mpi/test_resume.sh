#!/bin/sh
# tests/mpi/test_resume.sh [matrix|grid|device] -- runs that go on from a checkpoint are, bit for bit, the run that was never interrupted:
# losses of the steps that are left and the last weights, by optimizer, adapters, precision and strategy.  With a word the executor's state by
# itself, for every plan of the matrix' and the grid's covering sets, after each of four steps, on the host and on an asynchronous device
# (resume_check.h; minutes).
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/runs.sh
. tests/mpi/runs.sh
parity=$PWD/tests/golden/parity

case ${1:-runs} in
runs) ;;
matrix | device)
    list_plans mpi_matrix some
    for n in 1 2 3 4; do run_all 3600 "$1: " $n mpi_resume "$([ "$1" = device ] && echo device || echo host)" "$dir/list"; done
    finish ;;
grid)
    list_plans mpi_grid few
    for n in 1 2 3 4; do run_all 3600 'grid: ' $n mpi_grid resume "$dir/list"; done
    finish ;;
*)  echo "usage: $0 [matrix|grid|device]" >&2; exit 2 ;;
esac

losses() { tr -d ' \n' <"$1.json" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/' | tr , '\n'; }

# one WHAT RANKS STEPS AT KEYS [OPTION...]: a run of so many steps, and one that goes on from the checkpoint of step AT.
one() {
    what=$1 ranks=$2 steps=$3 at=$4 keys=$5
    shift 5
    next_run
    cat >"$run.plan" <<END
{ "dpx_plan": 1, "model": "$parity/${model:-llama}", "cluster": "localhost:$ranks", "kernels": "dpx", "seq": 24, "clip": 1.0,
  "micro_batch": 1, "accumulation": 2, $keys }
END
    plan=$run.plan whole=$run
    later "$what" "$ranks" "$plan" --no-db --json --steps "$steps" --seed 9 --threads 1 --checkpoint-every "$at" --checkpoint-dir "$whole.saved" \
        --save "$whole.out" "$@"
    next_run
    later "$what, resumed" "$ranks" "$plan" --no-db --json --steps "$steps" --seed 9 --threads 1 --resume --checkpoint-dir "$whole.saved" \
        --save "$run.out" "$@"
    [ "$writing" ] && return
    left=$((steps - (steps - 1) / at * at))
    check "$what: losses of the last $left steps" "$(losses "$whole" | tail -n $left >"$dir/want"; losses "$run" | diff "$dir/want" - | head -n 4)"
    check "$what: the last weights" "$(diff -r "$whole.out" "$run.out")"
    check "$what: bytes of a checkpoint are those that the schedule keeps" "$(awk -F'[:,]' '
        /"checkpoints"/ { of = 1 } of && $1 ~ /"bytes"/ { b = $2 + 0 } of && $1 ~ /"predicted_bytes"/ { p = $2 + 0; of = 0 }
        END { if (!(b > 0) || b != p) print b " bytes, predicted " p }' "$whole.json")"
}

cases() {
    one 'AdamW, DDP' 2 8 3 '"strategy": "ddp", "dialect": "torch"'
    one 'AdamW, FSDP2 with dropout' 2 8 3 '"strategy": "fsdp", "dialect": "torch", "dropout": 0.2'
    one 'ZeRO-3 of DeepSpeed, bf16' 2 6 2 '"strategy": "zero3", "dialect": "deepspeed", "precision": "bf16"'
    one 'FSDP1, bf16' 3 6 2 '"strategy": "fsdp", "dialect": "torch-fsdp1", "precision": "bf16"'
    one 'SGD with momentum, ZeRO-1' 2 6 4 '"strategy": "zero1", "dialect": "paper", "optimizer": "sgd"'
    one 'Lion' 2 6 4 '"strategy": "ddp", "dialect": "torch", "optimizer": "lion_32bit"'
    one 'Adafactor' 2 6 4 '"strategy": "ddp", "dialect": "paper", "optimizer": "adafactor"'
    one 'AdamW in 8 bits' 2 6 4 '"strategy": "ddp", "dialect": "torch", "optimizer": "adamw_bnb_8bit"'
    lora='"train": "lora", "lora": { "rank": 4, "alpha": 8, "target_modules": "all-linear", "dropout": 0.1 }'
    one 'LoRA, FSDP2' 2 6 4 "\"strategy\": \"fsdp\", \"dialect\": \"torch\", $lora"
    one 'QLoRA, DDP' 2 6 4 "\"strategy\": \"ddp\", \"dialect\": \"torch\", $lora, \"base_dtype\": \"nf4\", \"precision\": \"fp32\""
    # The first scale overflows: steps are skipped before the checkpoint and after it.
    one 'fp16, skipped steps' 2 8 3 '"strategy": "fsdp", "dialect": "paper", "precision": "fp16"' --loss-scale 1e12
    one 'tensors and a pipeline' 4 6 2 '"strategy": "ddp", "dialect": "paper", "parallel": { "tensor": 2, "pipeline": 2, "pipeline_schedule": "1f1b" }'
    one 'warm-up and a cosine' 1 9 4 '"strategy": "ddp", "dialect": "paper"' --warmup 3 --min-lr 1e-5 --data "$parity/tokens.bin"
}

all_runs
finish
