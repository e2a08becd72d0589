#!/bin/sh
# tests/emu/test_strategies.sh -- `dpxrun --device cuda` on the emulator beside the host's executor:
# every strategy and dialect, alone and on two ranks over NCCL (emulated as well) and over MPI through
# the host; the same losses, the allocated bytes that were predicted.
# Runs from the root of the tree; $B is the host's build, build-emu the emulator's.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build} E=${E:-build-emu}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 DPX_EMU_DELAY=1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

if ! [ -x "$E/dpxrun" ]; then
    skip 'strategies on the emulated device' "$E/dpxrun is not built (make EMU=1)"
    finish
fi

gpt='{ "model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 16, "vocab_size": 61,
       "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0 }'
llama='{ "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 48, "vocab_size": 61, "max_position_embeddings": 16,
         "tie_word_embeddings": false }'

deep=$(echo "$gpt" | sed 's/"n_layer": 2/"n_layer": 4/')
dropping=$(echo "$gpt" | sed 's/"attn_pdrop": 0/"attn_pdrop": 0.1/')

plan() {        # FILE RANKS MODEL MORE; ZeRO's buckets as small as the model
    cat >"$1" <<PLAN
{ "dpx_plan": 1, "model": $3, "kernels": "dpx", "seq": 16, "micro_batch": 2,
  "cluster": ${cluster:-"\"localhost:$2\""}, $4 }
PLAN
}

losses() { tr -d ' \n' <"$1" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/' | tr ',' '\n'; }
number() { tr -d ' ,"' <"$1" | sed -n "s/^$2://p" | head -1; }

# Steps are large, so that a gradient or a weight that is wrong shows in the next loss.
run() {         # PROGRAM OUT ARGUMENT...
    program=$1 out=$2
    shift 2
    timeout 100 "$program" "$tmp/plan.json" --steps 4 --lr 1e-2 --seed 7 --threads 1 --no-db --json "$@" \
        >"$out" 2>"$tmp/said" </dev/null || { echo "$program: exit status $?"; head -n 5 "$tmp/said"; }
}

beside() {      # WHAT TOLERANCE ARGUMENT...: of the plan that lies there
    what=$1 tolerance=$2
    shift 2
    wrong=$(run "$E/dpxrun" "$tmp/device" --device cuda "$@")
    if [ -z "$wrong" ]; then
        losses "$tmp/host" >"$tmp/a"
        losses "$tmp/device" >"$tmp/b"
        wrong=$(paste "$tmp/a" "$tmp/b" | awk -v most="$tolerance" '
            { d = $1 - $2; if (d < 0) d = -d; if (!(d <= most * $1)) print "step " NR ": host " $1 ", device " $2 }
            END { if (NR != 4) print NR " losses" }')
        [ "$(number "$tmp/device" allocated_peak_bytes)" = "$(number "$tmp/device" predicted_allocated_peak_bytes)" ] ||
            wrong="$wrong allocated $(number "$tmp/device" allocated_peak_bytes) bytes, not what was predicted"
    fi
    check "$what" "$wrong"
}

on() {          # NUMBERS-OF-RANKS WHAT MODEL KEYS TOLERANCE [both]
    numbers=$1
    shift
    for ranks in $numbers; do
        plan "$tmp/plan.json" $ranks "$2" "$3"
        wrong=$(run "$B/dpxrun" "$tmp/host")
        if [ -n "$wrong" ]; then
            check "$1 on the host" "$wrong"
        elif [ $ranks = 1 ]; then
            beside "$1" "$4" --comm nccl
        else
            DPX_EMU_DEVICES=2 beside "$1, two ranks over NCCL" "$4" --comm nccl
            [ -z "${5:-}" ] || beside "$1, two ranks on one device over MPI" "$4" --comm mpi
        fi
    done
}

one() { on '1 2' "$@"; }
# One rank has the kernels of other cells.
pair() { on 2 "$@"; }

two() {         # WHAT MODEL KEYS TOLERANCE: on two ranks over NCCL and over MPI
    plan "$tmp/plan.json" 2 "$2" "$3"
    wrong=$(run "$B/dpxrun" "$tmp/host")
    check "$1 on the host" "$wrong"
    [ -n "$wrong" ] || DPX_EMU_DEVICES=2 beside "$1 over NCCL" "$4" --comm nccl
    [ -n "$wrong" ] || beside "$1 on one device over MPI" "$4" --comm mpi
}

buckets='"deepspeed": { "reduce_bucket_size": 2000, "allgather_bucket_size": 3000, "overlap_comm": true }'
one 'DDP'                  "$gpt"   '"strategy": "ddp", "dialect": "torch", "clip": 1.0' 1e-5 both
pair 'DP, paper'           "$gpt"   '"strategy": "dp", "dialect": "paper"' 1e-5
pair 'ZeRO-1, torch'       "$llama" '"strategy": "zero1", "dialect": "torch"' 1e-5
pair 'ZeRO-2, DeepSpeed'   "$gpt"   "\"strategy\": \"zero2\", \"dialect\": \"deepspeed\", \"clip\": 1.0, $buckets" 1e-5
one 'ZeRO-3, DeepSpeed'    "$llama" '"strategy": "zero3", "dialect": "deepspeed", "clip": 1.0' 1e-5
two 'tensor parallel'      "$gpt"   '"strategy": "ddp", "dialect": "paper", "clip": 1.0, "dropout": 0.1, "parallel": { "tensor": 2, "sequence": false, "loss_parallel": false }' 1e-5
two 'sequence parallel'    "$gpt"   '"strategy": "ddp", "dialect": "paper", "clip": 1.0, "dropout": 0.1, "parallel": { "tensor": 2, "sequence": true, "loss_parallel": true }' 1e-5
two 'a sequence shared, dropout' "$dropping" '"strategy": "ddp", "dialect": "paper", "clip": 1.0, "dropout": 0.1, "parallel": { "context": 2, "context_balance": true }' 1e-5
# NCCL tells messages of one direction apart by their order: several stages' in a V, of PyTorch's 1F1B on several streams.
two 'pipeline, zbv'        "$deep" '"strategy": "zero1", "dialect": "paper", "accumulation": 6, "parallel": { "pipeline": 2, "pipeline_schedule": "zbv", "virtual_stages": 2 }' 1e-5
two 'pipeline, 1f1b'       "$llama" '"strategy": "fsdp", "dialect": "torch", "unit": "block", "accumulation": 6, "parallel": { "pipeline": 2 }' 1e-5
one 'FSDP2'                "$llama" '"strategy": "fsdp", "dialect": "torch", "unit": "block", "clip": 1.0' 1e-5 both
pair 'FSDP1, accumulating' "$gpt"   '"strategy": "fsdp", "dialect": "torch-fsdp1", "accumulation": 2' 1e-5
one 'FSDP2, recompute'     "$gpt"   '"strategy": "fsdp", "dialect": "torch", "unit": "block", "recompute": "full"' 1e-5
one 'FSDP2, bf16'          "$llama" '"strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "bf16"' 1e-2
one 'DDP, bf16 by autocast' "$gpt"  '"strategy": "ddp", "dialect": "torch", "precision": "bf16"' 1e-2

# Casts to fp16 and codes; a device's kernels and NCCL's sums differ in the last bits, which at a tie are a step of a code.
coded=$(echo "$gpt" | sed 's/"vocab_size": 61/"vocab_size": 64/')
pair 'DDP, fp16 hook'      "$gpt"   '"strategy": "ddp", "dialect": "torch", "ddp": { "comm_hook": "fp16_compress_hook" }' 1e-4
pair 'DDP, PowerSGD'       "$gpt"   '"strategy": "ddp", "dialect": "torch", "ddp": { "comm_hook": "powerSGD_hook", "PowerSGDState": { "matrix_approximation_rank": 4, "start_powerSGD_iter": 2 } }' 1e-4
pair 'DDP, PowerSGD of rank 1, drawn each step' "$gpt" '"strategy": "ddp", "dialect": "torch", "ddp": { "bucket_cap_mb": 1, "comm_hook": "powerSGD_hook",
    "PowerSGDState": { "matrix_approximation_rank": 1, "start_powerSGD_iter": 2, "warm_start": false, "use_error_feedback": false } }' 1e-4
pair 'int8 gathers'        "$coded" '"strategy": "zero3", "dialect": "deepspeed", "deepspeed": { "zero_quantized_weights": true }' 1e-3
cluster='{ "name": "pair", "host": true, "nodes": 2, "gpus_per_node": 1, "gpu": { "name": "cpu", "memory_bytes": 2000000000 },
    "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 1 } }'
pair 'int4 reductions, int8 gathers' "$coded" '"strategy": "zero3", "dialect": "deepspeed", "clip": 1.0, "deepspeed": { "zero_quantized_weights": true,
    "zero_quantized_gradients": true, "reduce_bucket_size": 40000 }' 1e-3
cluster=

# What a device has not is said, not left out.
plan "$tmp/plan.json" 1 "$gpt" '"strategy": "ddp", "dialect": "torch"'
check 'no device is one line and exit status 2 or 1' \
    "$(DPX_EMU_DEVICES=0 "$E/dpxrun" "$tmp/plan.json" --device cuda --no-db >"$tmp/out" 2>"$tmp/said" </dev/null
       status=$?; [ $status = 1 ] || [ $status = 2 ] || echo "exit status $status"
       grep -q 'no CUDA device' "$tmp/said" || head -3 "$tmp/said")"
finish
