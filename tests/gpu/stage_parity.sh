# stage_parity.sh -- what the device computes is what the host computes, and what PyTorch does.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
how="--no-db --threads ${THREADS:-4} --seed 7"

# beside NAME MODEL SEQ MICRO_BATCH KEYS TOLERANCE_LOSS TOLERANCE_GRAD: one rank of each.
beside() {
    name=$1 loss=$6 grad=$7
    [ -s "$dir/done.$name" ] && { check "$name: as the host computes it" ''; return; }
    enough 20 || return
    plan "$dir/plan.json" '"localhost:1"' "$2" "$3" "$4" "$5"
    wrong=$(run "$dir/host" "$dir/plan.json" $how --steps 3 --save-grads "$dir/host.grads"
            run "$dir/device" "$dir/plan.json" $how --steps 3 --save-grads "$dir/device.grads" --device cuda)
    [ "$wrong" ] || wrong=$(compare losses "$dir/host.json" "$dir/device.json" "$loss"
                            compare tensors "$dir/host.grads" "$dir/device.grads" "$grad")
    [ "$wrong" ] || echo ok >"$dir/done.$name"
    check "$name: as the host computes it" "$wrong"
}

# half NAME MODEL KEYS SCALE: fp16 from that loss scale on; losses, scales and skipped steps are the host's.
half() {
    name=$1
    [ -s "$dir/done.$name" ] && { check "$name: as the host computes it" ''; return; }
    enough 20 || return
    plan "$dir/plan.json" '"localhost:1"' "$2" 128 4 "$3, \"precision\": \"fp16\", \"clip\": 1.0"
    wrong=$(run "$dir/host" "$dir/plan.json" $how --steps 12 --loss-scale "$4"
            run "$dir/device" "$dir/plan.json" $how --steps 12 --loss-scale "$4" --device cuda)
    [ "$wrong" ] || wrong=$(compare losses "$dir/host.json" "$dir/device.json" 2e-3
                            compare scales "$dir/host.json" "$dir/device.json")
    [ "$wrong" ] || echo ok >"$dir/done.$name"
    check "$name: as the host computes it" "$wrong"
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
beside gpt-dropout "$(echo "$small_gpt" | sed 's/pdrop": 0/pdrop": 0.1/g')" 128 4 '"strategy": "ddp", "dialect": "torch"' 1e-5 2e-5

# PyTorch's figures: tests/golden/parity/README.md says where they come from.
torch() {       # NAME MODEL RANKS MICRO_BATCH ACCUMULATION PRECISION ARGUMENTS...
    name=$1 model=$2 precision=$6
    enough 30 || return
    plan "$dir/plan.json" "\"localhost:$3\"" "\"$golden/$model\"" 24 "$4" \
        "\"accumulation\": $5, \"clip\": 1.0, \"precision\": \"$precision\", $strategy"
    shift 6
    [ $precision = fp16 ] || set -- --save-grads "$dir/grads" "$@"
    wrong=$(run "$dir/torch" "$dir/plan.json" $how --steps 20 --data "$golden/tokens.bin" --sequential \
        --init "$golden/$model/init.safetensors" --save "$dir/final" --lr 1e-3 --min-lr 1e-4 \
        --warmup 5 --betas 0.9,0.95 --weight-decay 0.1 --device cuda "$@")
    if [ ! "$wrong" ] && [ "$precision" = fp32 ]; then
        wrong=$(compare losses "$golden/$model/expected.json" "$dir/torch.json" 1e-5
                compare tensors "$golden/$model/grads.safetensors" "$dir/grads" 1e-5 "$golden/$model/expected.json"
                compare tensors "$golden/$model/final.safetensors" "$dir/final" 1e-4)
    elif [ ! "$wrong" ] && [ "$precision" = fp16 ]; then
        wrong=$(compare losses "$golden/$model/fp16/forced-1.json" "$dir/torch.json" 1e-4
                compare scales "$golden/$model/fp16/forced-1.json" "$dir/torch.json")
    elif [ ! "$wrong" ]; then
        wrong=$(compare losses "$golden/$model/expected.json" "$dir/torch.json" 1e-2)
    fi
    check "$name, $model, $precision: as PyTorch computes it" "$wrong"
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
