# stage_parity.sh -- what the device computes is what the host computes, and what PyTorch does.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
how="--no-db --threads ${THREADS:-4} --seed 7"

# beside NAME MODEL SEQ MICRO_BATCH KEYS TOLERANCE_LOSS TOLERANCE_GRAD: one rank of each.
beside() { later "$1: as the host computes it" beside_host "$@"; }
beside_host() {
    plan "$at/plan.json" '"localhost:1"' "$2" "$3" "$4" "$5"
    wrong=$(run "$at/host" "$at/plan.json" $how --steps 3 --save-grads "$at/host.grads"
            run "$at/device" "$at/plan.json" $how --steps 3 --save-grads "$at/device.grads" --device cuda)
    [ "$wrong" ] || wrong=$(compare losses "$at/host.json" "$at/device.json" "$6"
                            compare tensors "$at/host.grads" "$at/device.grads" "$7")
    rm -f "$at"/*.grads
    [ ! "$wrong" ] || echo "$wrong"
}

# half NAME MODEL KEYS SCALE: fp16 from that loss scale on; losses, scales and skipped steps are the host's.
half() { later "$1: as the host computes it" half_host "$@"; }
half_host() {
    plan "$at/plan.json" '"localhost:1"' "$2" 128 4 "$3, \"precision\": \"fp16\", \"clip\": 1.0"
    wrong=$(run "$at/host" "$at/plan.json" $how --steps 12 --loss-scale "$4"
            run "$at/device" "$at/plan.json" $how --steps 12 --loss-scale "$4" --device cuda)
    [ "$wrong" ] || wrong=$(compare losses "$at/host.json" "$at/device.json" 2e-3
                            compare scales "$at/host.json" "$at/device.json")
    [ ! "$wrong" ] || echo "$wrong"
}

small_gpt=$(gpt 2 256 4 128 1009) small_llama=$(llama 2 256 4 2 704 1009)
for family in gpt llama; do
    case $family in gpt) m=$small_gpt ;; *) m=$small_llama ;; esac
    for s in '"strategy": "ddp", "dialect": "paper"' '"strategy": "ddp", "dialect": "torch"' \
             '"strategy": "zero1", "dialect": "deepspeed"' '"strategy": "zero2", "dialect": "deepspeed"' \
             '"strategy": "zero3", "dialect": "deepspeed"' '"strategy": "fsdp", "dialect": "torch", "unit": "block"'; do
        word=$(echo "$family $s" | tr -d '",:' | tr ' ' '-')
        beside "$word-fp32" "$m" 128 4 "$s, \"clip\": 1.0" 1e-5 2e-5
        beside "$word-bf16" "$m" 128 4 "$s, \"precision\": \"bf16\", \"clip\": 1.0" 1e-2 5e-2
        half "$word-fp16" "$m" "$s" 1024
        half "$word-fp16-overflow" "$m" "$s" 16777216
    done
    beside "$family-recompute" "$m" 128 4 '"strategy": "ddp", "dialect": "torch", "recompute": "full"' 1e-5 2e-5
    beside "$family-accumulation" "$m" 128 2 '"strategy": "fsdp", "dialect": "torch", "unit": "block", "accumulation": 3' \
        1e-5 2e-5
done
for scales in tensorwise rowwise; do
    beside "llama-fsdp-float8-$scales" "$small_llama" 128 4 "\"strategy\": \"fsdp\", \"dialect\": \"torch\", \"unit\": \"block\", \"precision\": \"bf16\", \"fp8\": \"$scales\"" 1e-2 5e-2
done
beside gpt-dropout "$(echo "$small_gpt" | sed 's/pdrop": 0/pdrop": 0.1/g')" 128 4 '"strategy": "ddp", "dialect": "torch"' 1e-5 2e-5

# PyTorch's figures: tests/golden/parity/README.md says where they come from.
torch() {       # NAME MODEL RANKS MICRO_BATCH ACCUMULATION PRECISION ARGUMENTS...
    later "$1, $2, $6: as PyTorch computes it" torch_trains "$strategy" "$@"
}
torch_trains() {        # STRATEGY and the same
    strategy=$1 model=$3 precision=$7
    plan "$at/plan.json" "\"localhost:$4\"" "\"$golden/$model\"" 24 "$5" \
        "\"accumulation\": $6, \"clip\": 1.0, \"precision\": \"$precision\", $strategy"
    shift 7
    [ $precision = fp16 ] || set -- --save-grads "$at/grads" "$@"
    wrong=$(run "$at/torch" "$at/plan.json" $how --steps 20 --data "$golden/tokens.bin" --sequential \
        --init "$golden/$model/init.safetensors" --save "$at/final" --lr 1e-3 --min-lr 1e-4 \
        --warmup 5 --betas 0.9,0.95 --weight-decay 0.1 --device cuda "$@")
    if [ ! "$wrong" ] && [ "$precision" = fp32 ]; then
        wrong=$(compare losses "$golden/$model/expected.json" "$at/torch.json" 1e-5
                compare tensors "$golden/$model/grads.safetensors" "$at/grads" 1e-5 "$golden/$model/expected.json"
                compare tensors "$golden/$model/final.safetensors" "$at/final" 1e-4)
    elif [ ! "$wrong" ] && [ "$precision" = fp16 ]; then
        wrong=$(compare losses "$golden/$model/fp16/forced-1.json" "$at/torch.json" 1e-4
                compare scales "$golden/$model/fp16/forced-1.json" "$at/torch.json")
    elif [ ! "$wrong" ]; then
        wrong=$(compare losses "$golden/$model/expected.json" "$at/torch.json" 1e-2)
    fi
    rm -rf "$at/grads" "$at/final"
    [ ! "$wrong" ] || echo "$wrong"
}
for model in gpt2 llama; do
    for precision in fp32 bf16; do
        strategy='"strategy": "ddp", "dialect": "paper"'
        torch 'one rank' $model 1 12 1 $precision
    done
    torch 'one rank' $model 1 12 1 fp16 --loss-scale 16777216
done

# Several ranks: a GPU each over NCCL, else one GPU for all over MPI.
if ! has_mpi; then
    skip 'ranks together' 'there is no MPI to start them with'
else
    if [ "$gpus" -ge 2 ]; then carrier=nccl; else carrier=mpi; fi
    [ $carrier = nccl ] || skip 'NCCL between ranks' 'there is one GPU'
    for model in gpt2 llama; do
        for s in '"strategy": "ddp", "dialect": "torch"' '"strategy": "zero1", "dialect": "deepspeed"' \
                 '"strategy": "zero2", "dialect": "deepspeed"' '"strategy": "zero3", "dialect": "deepspeed"' \
                 '"strategy": "fsdp", "dialect": "torch", "unit": "block"'; do
            strategy=$s
            torch "two ranks over $carrier, $(echo "$s" | tr -d '",')" $model 2 6 1 fp32 --comm $carrier
        done
        [ "$gpus" -lt 4 ] || torch "four ranks over nccl, FSDP2" $model 4 3 1 fp32 --comm nccl
    done
fi
checks
