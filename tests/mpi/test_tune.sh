#!/bin/sh
# tests/mpi/test_tune.sh -- dpxrun fine-tunes as PyTorch and PEFT do: sgd, Lion, Adafactor, AdamW in 8 bits, some tensors, adapters, NF4; losses
# of 20 steps against tests/golden/tune/runs, on one rank and on two, and what is predicted.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/runs.sh
. tests/mpi/runs.sh
golden=$PWD/tests/golden/tune/runs
parity=$PWD/tests/golden/parity

number() { sed -n "s/^ \"$1\": \([0-9.e-]*\),*\$/\1/p" "$golden/$case/expected.json"; }

# one WHAT RANKS MICRO_BATCH ACCUMULATION KEYS: $case, whose model is $model and whose plan has $keys, with $options.
one() {
    next_run
    cat >"$run.plan" <<END
{ "dpx_plan": 1, "model": "$parity/$model", "cluster": "localhost:$2", "kernels": "dpx", "seq": 24,
  "micro_batch": $3, "accumulation": $4, "clip": 1.0, $keys, $5 }
END
    adapters=
    [ -d "$golden/$case/adapters" ] && adapters="--adapters $golden/$case/adapters --save $run.out"
    # shellcheck disable=SC2086
    later "$case, $1" "$2" "$run.plan" --no-db --json --steps 20 --data "$parity/tokens.bin" --sequential \
        --init "$parity/$model/init.safetensors" $adapters --lr "$(number lr)" --min-lr "$(number min_lr)" --warmup 5 --threads 1 $options
    judge "$case, $1: losses are PyTorch's" "$(compare losses "$golden/$case/expected.json" "$run.json" 1e-5)"
    [ -d "$golden/$case/adapters" ] &&
        judge "$case, $1: what was trained is PEFT's" \
            "$(compare tensors "$golden/$case/trained.safetensors" "$run.out/adapter_model.safetensors" 1e-4)"
    judge "$case, $1: bytes and memory are as predicted" "$(compare predicted "$run.json")"
}

# Ranks, samples of a micro-step, micro-steps, and the strategy.
ddp()     { one 'two ranks, ddp' 2 6 1 '"strategy": "ddp", "dialect": "paper"'; }
zero1()   { one 'two ranks, ZeRO-1' 2 3 2 '"strategy": "zero1", "dialect": "paper"'; }
zero2()   { one 'two ranks, ZeRO-2, recomputed' 2 6 1 '"strategy": "zero2", "dialect": "paper", "recompute": "full"'; }
zero3()   { one 'three ranks, ZeRO-3 by halves' 3 2 2 '"strategy": "zero3", "dialect": "paper", "unit": "half-block"'; }
fsdp()    { one 'two ranks, FSDP, attention recomputed' 2 6 1 '"strategy": "fsdp", "dialect": "paper", "recompute": "selective"'; }
torch()   { one 'two ranks, DDP' 2 3 2 '"strategy": "ddp", "dialect": "torch", "sync_every_micro_step": false'; }
wrapped() { one "two ranks, FSDP1 with adapters as units${1:+, $1}" 2 3 2 \
    "\"strategy\": \"fsdp\", \"dialect\": \"torch-fsdp1\", \"fsdp\": { \"wrap_adapters\": true${2:+, $2} }${3:+, $3}"; }
fsdp2()   { one 'two ranks, FSDP2' 2 6 1 '"strategy": "fsdp", "dialect": "torch", "recompute": "full"'; }
ds()      { stage=$1; one "two ranks, DeepSpeed's $stage" 2 3 2 "\"strategy\": \"$stage\", \"dialect\": \"deepspeed\""; }

# Stage 3, where every parameter is cut and gathered for each use.
ds3()     { one "two ranks, DeepSpeed's zero3${1:+, $1}" 2 3 2 '"strategy": "zero3", "dialect": "deepspeed", "recompute": "'"${2:-none}"'",
  "deepspeed": { "stage3_param_persistence_threshold": 40, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 4000 }'; }
whole()   { one 'one rank, checkpointed' 1 12 1 '"strategy": "ddp", "dialect": "torch", "recompute": "full"'; }

cases() {
    case=sgd model=gpt2 keys='"optimizer": "sgd"'
    options='--weight-decay 0.1'
    ddp
    zero1
    fsdp2
    options=
    case=lion model=llama keys='"optimizer": "lion_32bit"'
    torch
    zero2
    case=adafactor keys='"optimizer": "adafactor"'
    ddp
    case=adafactor-gpt2 model=gpt2
    torch
    case=adamw8 keys='"optimizer": "adamw_bnb_8bit"'
    options='--weight-decay 0.1 --betas 0.9,0.95'
    ddp
    torch
    options=

    case=mlp model=llama keys='"train": ["*.mlp.*", "*input_layernorm*"]'
    zero3
    ds zero2
    ds3
    case=down keys='"train": ["*.down_proj.*"], "optimizer": "sgd"'
    ddp
    zero2
    case=bias model=gpt2 keys='"train": ["*.bias"]'
    torch
    fsdp
    case=tokens keys='"train": ["*wte*", "*.ln_2.*"]'
    ddp
    zero1

    case=lora model=llama keys='"train": "lora", "lora": { "rank": 4, "alpha": 8, "target_modules": "all-linear" }'
    ddp
    torch
    zero2
    fsdp
    fsdp2
    wrapped 'flat' '"use_orig_params": false'
    wrapped 'no_sync' '"sharding_strategy": "SHARD_GRAD_OP"' '"sync_every_micro_step": false'
    ds ddp
    ds3
    ds3 recomputed full
    case=lora-attention keys='"train": "lora", "lora": { "rank": 3, "alpha": 5 }, "optimizer": "lion_32bit"'
    zero3
    case=lora-head keys='"train": "lora", "optimizer": "sgd",
      "lora": { "rank": 4, "alpha": 4, "target_modules": ["o_proj", "gate_proj"], "modules_to_save": ["lm_head"] }'
    zero1
    case=lora-gpt2 model=gpt2 keys='"train": "lora"'
    torch
    zero2
    wrapped
    ds zero1
    ds3
    case=lora-dropout model=llama keys='"train": "lora", "lora": { "rank": 4, "alpha": 8, "target_modules": "all-linear", "dropout": 0.2 }'
    ddp
    torch
    zero2
    fsdp
    fsdp2
    ds3
    case=qlora keys='"train": "lora", "lora": { "rank": 4, "alpha": 8, "target_modules": "all-linear" }, "base_dtype": "nf4", "precision": "fp32"'
    torch
    whole
    case=qlora-double keys='"train": "lora", "lora": { "rank": 4, "alpha": 8, "target_modules": "all-linear" }, "base_dtype": "nf4-double", "precision": "fp32"'
    torch
    case=lora-conv1d model=gpt2 keys='"train": "lora", "optimizer": "adafactor",
      "lora": { "rank": 2, "alpha": 6, "target_modules": ["c_attn", "c_proj", "c_fc"] }'
    ddp
}

all_runs
finish
