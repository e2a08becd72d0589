#!/bin/sh
# tests/emu/test_strategies.sh -- `dpxrun --device cuda` on the emulator beside the host's executor:
# every strategy and dialect, alone and on two ranks over NCCL (emulated as well) and over MPI through
# the host; the same losses, the allocated bytes that were predicted.
# Runs from the root of the tree; $B is the host's build, build-emu the emulator's.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/runs.sh
. tests/mpi/runs.sh
E=${E:-build-emu} H=$B
export DPX_EMU_DELAY=1

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

# Who runs them: the host's program; the emulator's, of which each rank has a device, or all have one.
lists='host nccl mpi'
run_list() {
    [ "$1" = host ] || B=$E
    for ranks in $(cut -d' ' -f1 "$dir/$1" | sort -nu); do
        DPX_EMU_DEVICES=1
        [ "$1" != nccl ] || DPX_EMU_DEVICES=$ranks
        export DPX_EMU_DEVICES
        run_all 500 "$1: " "$ranks" mpi_runs "$dir/$1" "$dir"
    done
    B=$H
}

plan() {        # FILE RANKS MODEL MORE; ZeRO's buckets as small as the model
    cat >"$1" <<PLAN
{ "dpx_plan": 1, "model": $3, "kernels": "dpx", "seq": 16, "micro_batch": 2,
  "cluster": ${cluster:-"\"localhost:$2\""}, $4 }
PLAN
}

losses() { tr -d ' \n' <"$1" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/' | tr ',' '\n'; }
number() { tr -d ' ,"' <"$1" | sed -n "s/^$2://p" | head -1; }

# run LIST WHAT RANKS MODEL KEYS ARGUMENT...: steps are large, so that a gradient or a weight that is wrong shows in the next loss.
run() {
    next_run
    list=$1 what=$2 ranks=$3
    plan "$run.plan" "$ranks" "$4" "$5"
    shift 5
    later "$what" "$ranks" "$run.plan" --steps 4 --lr 1e-2 --seed 7 --threads 1 --no-db --json ${scale:+--loss-scale "$scale"} "$@"
}

unlike() {      # TOLERANCE: what is wrong with $run on a device beside $host
    [ "$writing" ] && return
    losses "$host.json" >"$dir/a"
    losses "$run.json" >"$dir/b"
    paste "$dir/a" "$dir/b" | awk -v most="$1" '
        { d = $1 - $2; if (d < 0) d = -d; if (!(d <= most * $1)) print "step " NR ": host " $1 ", device " $2 }
        END { if (NR != 4) print NR " losses" }'
    [ ! "$scale" ] || compare scales "$host.json" "$run.json"
    [ "$(number "$run.json" allocated_peak_bytes)" = "$(number "$run.json" predicted_allocated_peak_bytes)" ] ||
        echo "allocated $(number "$run.json" allocated_peak_bytes) bytes, not what was predicted"
}

# on NUMBERS-OF-RANKS WHAT MODEL KEYS TOLERANCE [both]: on the host, and on as many devices over NCCL; both: two ranks on one over MPI, too.
on() {
    numbers=$1
    shift
    for n in $numbers; do
        on="$1$([ $n = 1 ] || echo ', two ranks')"
        run host "$on" $n "$2" "$3"
        host=$run
        run nccl "$on" $n "$2" "$3" --device cuda --comm nccl
        judge "$on over NCCL" "$(unlike "$4")"
        if [ $n = 2 ] && [ "${5:-}" ]; then
            run mpi "$on" $n "$2" "$3" --device cuda --comm mpi
            judge "$on on one device over MPI" "$(unlike "$4")"
        fi
    done
}

one() { on '1 2' "$@"; }
# One rank has the kernels of other cells.
pair() { on 2 "$@"; }
two() { on 2 "$@" both; }

# same WHAT: the losses of the last two plans on devices are equal to the bit.
same() {
    judge "$1" "$([ "$writing" ] || { losses "$last.json" >"$dir/a"; losses "$run.json" >"$dir/b"; cmp "$dir/a" "$dir/b"; })"
}

cases() {
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

    # From so high a scale the first steps overflow on both, and are skipped.
    scale=524288
    one 'FSDP2, fp16'          "$llama" '"strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "fp16", "clip": 1.0' 1e-3
    pair 'ZeRO-2 of DeepSpeed, fp16' "$gpt" "\"strategy\": \"zero2\", \"dialect\": \"deepspeed\", \"precision\": \"fp16\", \"clip\": 1.0, $buckets" 1e-3
    two 'DDP, fp16 by autocast, dropout' "$dropping" '"strategy": "ddp", "dialect": "torch", "precision": "fp16", "dropout": 0.1' 1e-3
    scale=

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

    # Where sums differ in the last bits, a number beside a tie falls to the other of two codes now and then: a sixteenth of it.
    eight='"strategy": "fsdp", "dialect": "torch", "unit": "block", "fp8"'
    gathers='"fsdp": { "enable_fsdp_float8_all_gather": true'
    pair 'float8 layers'       "$llama" "$eight: \"tensorwise\"" 1e-3
    last=$run
    pair 'float8 gathers'      "$llama" "$eight: \"tensorwise\", $gathers }" 1e-3
    same 'codes that are gathered have the bits of weights that are cast when gathered'
    two 'float8 gathers, scales behind the optimizer' "$llama" "$eight: \"tensorwise\", $gathers, \"precompute_float8_dynamic_scale_for_fsdp\": true }" 1e-3
    one 'float8 by rows, bf16, recomputed' "$llama" "$eight: \"rowwise\", \"precision\": \"bf16\", \"recompute\": \"full\"" 1e-2
    pair 'float8 by rows, weights in high precision' "$llama" "$eight: \"rowwise_with_gw_hp\"" 1e-3
}
all_runs

# What a device has not is said, not left out.
plan "$dir/plan.json" 1 "$gpt" '"strategy": "ddp", "dialect": "torch"'
check 'no device is one line and exit status 2 or 1' \
    "$(DPX_EMU_DEVICES=0 "$E/dpxrun" "$dir/plan.json" --device cuda --no-db >"$dir/out" 2>"$dir/said" </dev/null
       status=$?; [ $status = 1 ] || [ $status = 2 ] || echo "exit status $status"
       grep -q 'no CUDA device' "$dir/said" || head -3 "$dir/said")"
finish
