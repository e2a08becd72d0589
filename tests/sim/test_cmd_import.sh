#!/bin/sh
# tests/sim/test_cmd_import.sh -- files that people bring, seen from outside: whose they are, what is said, what is refused.
. tests/check.sh
B=${B:-build}
keep_answers
COLUMNS=1000                    # no line wraps
export COLUMNS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none HF_HUB_CACHE=$tmp/none
export XDG_DATA_HOME HF_HUB_CACHE

# refused WORDS COMMAND...: exit 2 and one line with the words.
refused() {
    words=$1
    shift
    "$B/dpxplan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "dpxplan $*: exit $rc, not 2"
    [ "$(wc -l <"$tmp/err")" = 1 ] || cat "$tmp/err"
    grep -q -- "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}
# reads FILE CLUSTER [OPTION...]: the plan is in $tmp/p.json, what was said in $tmp/err.
reads() {
    file=$1 cluster=$2
    shift 2
    "$B/dpxplan" import "$file" --cluster "$cluster" "$@" -o "$tmp/p.json" 2>"$tmp/err" || cat "$tmp/err"
}
said() { grep -q -- "$1" "$tmp/err" || { echo "not said: $1"; cat "$tmp/err"; }; }
has() { grep -q "$1" "$tmp/p.json" || { echo "the plan has not $1"; grep -E '"(seq|train|strategy|tensor|micro_batch)"' "$tmp/p.json"; }; }

printf 'colour: green\nsizes: [1, 2]\n' >"$tmp/nothing.yaml"
printf 'output_dir: x\nlearning_rate: 1.0e-5\nseed: 1\n' >"$tmp/common.yaml"
printf 'project = "x"\n' >"$tmp/nothing.toml"
printf 'model: { name: x }\ndata: { batch_size: 64, seq_len: 8 }\ntraining: { lr: 1 }\n' >"$tmp/sections.yaml"
printf 'ls -l\n' >"$tmp/nothing.sh"
check 'a file that no form claims is refused with the list of forms, whatever it is written in' "$(
    for f in nothing.yaml common.yaml sections.yaml nothing.toml nothing.sh; do
        refused 'not a file that dpx knows' import "$tmp/$f" --cluster 8xh100 --model gpt2 --seq 128
        grep -q 'torchtune (model._component_' "$tmp/err" || cat "$tmp/err"
        refused 'not a file that dpx knows' eval "$tmp/$f" --cluster 8xh100
    done)"

cat >"$tmp/bridge.yaml" <<'END'
model: { tensor_model_parallel_size: 2, seq_length: 4096, some_new_field: 7 }
train: { micro_batch_size: 1, global_batch_size: 64 }
ddp: { use_distributed_optimizer: true }
mixed_precision: bf16_mixed
END
check "a field of Megatron-Bridge's sections that is not known is said; LoRA beside them is read, DoRA refused" "$(
    reads "$tmp/bridge.yaml" 8xh100 --model llama-3-8b
    said 'some_new_field'
    { cat "$tmp/bridge.yaml"; printf 'peft: { dim: 8 }\n'; } >"$tmp/peft.yaml"
    reads "$tmp/peft.yaml" 8xh100 --model llama-3-8b
    said 'LoRA of rank 8 on linear_qkv,linear_proj,linear_fc1,linear_fc2'
    { cat "$tmp/bridge.yaml"; printf 'peft: { _target_: megatron.bridge.peft.dora.DoRA, dim: 8 }\n'; } >"$tmp/dora.yaml"
    refused 'planned as LoRA alone' import "$tmp/dora.yaml" --cluster 8xh100 --model llama-3-8b)"

# As its runs write it: what is usual says nothing, what is not is told, a mapping as a number is.
cat >"$tmp/run.yaml" <<'END'
model: { tensor_model_parallel_size: 2, seq_length: 4096, deallocate_pipeline_outputs: true, masked_softmax_fusion: true, persist_layer_norm: true, pipeline_dtype: { _call_: false, _target_: torch.bfloat16 } }
train: { micro_batch_size: 1, global_batch_size: 64, rampup_batch_size: null, train_sync_interval: null }
ddp: { use_distributed_optimizer: true, overlap_grad_reduce: true, overlap_param_gather: true, check_for_nan_in_grad: true, align_param_gather: false }
optimizer: { main_grads_dtype: { _call_: false, _target_: torch.float32 }, optimizer_offload_fraction: 0.0, pin_cpu_grads: true }
comm_overlap: { align_param_gather: false, bucket_size: null }
dist: { distributed_backend: nccl }
logger: { timing_log_level: 0 }
mixed_precision: { bf16: true, fp16: false, fp32: false, autocast_enabled: false, grad_reduce_in_fp32: true, params_dtype: { _call_: false, _target_: torch.bfloat16 } }
END
run() { sed "$1" "$tmp/run.yaml" >"$tmp/changed.yaml"; cmp -s "$tmp/run.yaml" "$tmp/changed.yaml" && echo "nothing changed: $1"; reads "$tmp/changed.yaml" 8xh100 --model llama-3-8b; said "$2"; }
check "a config that Megatron-Bridge writes: usual values are silent, others told, unknown names whatever their value is" "$(
    reads "$tmp/run.yaml" 8xh100 --model llama-3-8b
    grep -e 'not looked at' -e 'not known' -e 'is not in the plan' "$tmp/err"
    run 's/params_dtype/params_dtyqe/' 'not looked at, .*params_dtyqe'
    run 's/deallocate_pipeline_outputs: true/deallocate_pipeline_outputs: false/' 'not looked at, .*deallocate_pipeline_outputs'
    run 's/backend: nccl/backend: gloo/' 'distributed_backend: collectives are planned as nccl'
    run 's/level: 0/level: 2/' 'timing_log_level: the host waits'
    run 's/rampup_batch_size: null/rampup_batch_size: [16, 16, 3000]/' 'rampup_batch_size: a step begins with 16'
    run 's/params_dtype: { _call_: false, _target_: torch.bfloat16/params_dtype: { _call_: false, _target_: torch.float32/' 'not looked at, .*params_dtype'
    sed 's/^optimizer:.*/optimizer: nonsense/' "$tmp/run.yaml" >"$tmp/changed.yaml"
    refused 'optimizer: expected a section' import "$tmp/changed.yaml" --cluster 8xh100 --model llama-3-8b
    sed 's/main_grads_dtype/main_grads_dtyqe/' "$tmp/run.yaml" >"$tmp/changed.yaml"
    refused 'main_grads_dtyqe: did you mean main_grads_dtype' import "$tmp/changed.yaml" --cluster 8xh100 --model llama-3-8b
    sed 's/rampup_batch_size: null/rampup_batch_size: 2/' "$tmp/run.yaml" >"$tmp/changed.yaml"
    refused 'rampup_batch_size: expected three numbers' import "$tmp/changed.yaml" --cluster 8xh100 --model llama-3-8b)"

printf 'set -x\ndeepspeed openrlhf/cli/train_sft.py --pretrain meta-llama/Meta-Llama-3-8B --max_len 512 --micro_train_batch_size 2 --train_batch_size 64\n' >"$tmp/path.sh"
printf 'deepspeed ../train_rm.py --pretrain meta-llama/Meta-Llama-3-8B --max_len 512 --micro_train_batch_size 2 --train_batch_size 64\n' >"$tmp/old.sh"
printf 'python my/train_sft.py --pretrain meta-llama/Meta-Llama-3-8B --train_batch_size 64\n' >"$tmp/own.sh"
check "OpenRLHF's programs are known by their path, another's of the same name are not" "$(
    reads "$tmp/path.sh" 8xh100
    said 'read as OpenRLHF'
    has '"loss": "fused-fp32"'
    reads "$tmp/old.sh" 8xh100
    said 'read as OpenRLHF'
    "$B/dpxplan" import "$tmp/own.sh" 8xh100 2>&1 | grep 'read as OpenRLHF')"

printf 'A=("$@")\npython pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 --vocab-size 1024 --seq-length 128 --micro-batch-size 1 --bf16 "${A[@]}" --global-batch-size 8\n' >"$tmp/own_args.sh"
check "a script's own arguments are none, and said, in an array or not" "$(
    reads "$tmp/own_args.sh" 8xh100
    said '.@: the script.s own arguments: planned as without any'
    sed 's/^A=.*//; s/"${A\[@\]}"/"$@"/' "$tmp/own_args.sh" >"$tmp/own_args2.sh"
    reads "$tmp/own_args2.sh" 8xh100
    said '.@: the script.s own arguments')"

# torch-eager keeps 64 x 4096 x 4096 scores a sample and block: "no" is no verdict on kernels that keep none.
check 'where scores of attention decide, a plan that keeps them is called an upper bound' "$(
    reads tests/golden/forms/automodel/gpt_oss_20b.yaml 8xh100 --seq 4096
    said 'fits  *no: .*; an upper bound where another kernel runs'
    said "keep them: an upper bound"
    reads demo/qwen3-sft.yaml 1xh100
    said 'fits  *no: '
    ! grep 'upper bound' "$tmp/err")"

# axolotl has no key for variables: what stands in one is told, wherever it stands, and is not in the plan.
check 'a variable where the framework reads none is told and not taken' "$(
    for at in 'env: { PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:64" }' 'runtime: { env_vars: { PYTORCH_CUDA_ALLOC_CONF: "max_split_size_mb:64" } }'; do
        cat >"$tmp/axolotl.yaml" <<END
base_model: openai-community/gpt2
datasets: [{ path: x, type: alpaca }]
sequence_len: 512
micro_batch_size: 1
optimizer: adamw_torch
bf16: true
attn_implementation: flash_attention_2
$at
END
        reads "$tmp/axolotl.yaml" 8xh100
        said "not known, and may matter to memory or time: ${at%%:*}"
        grep max_split_size "$tmp/p.json"
    done)"

# axolotl's command sets the variable where the job does not; its module, started without that command, leaves it.
check "axolotl's own allocator is the plan's, unless a script sets one" "$(
    own() {                         # WANTED COMMANDS
        printf "$2 %s\n" "$tmp/axolotl.yaml" >"$tmp/axolotl.sh"
        reads "$tmp/axolotl.sh" 8xh100
        is=$(sed -n 's/.*"PYTORCH_ALLOC_CONF": "\(.*\)".*/\1/p' "$tmp/p.json")
        [ "$is" = "$1" ] || echo "$2: $is"
    }
    own expandable_segments:True 'axolotl train'
    own '' 'accelerate launch -m axolotl.cli.train'
    own max_split_size_mb:64 'export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\naxolotl train')"

cat >"$tmp/trl.yaml" <<'END'
model_name_or_path: mistralai/Mistral-7B-v0.1
torch_dtype: bfloat16
max_length: 4096
bf16: true
gradient_checkpointing: true
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
some_new_key: 3
END
check "import finds TRL's form, says in five lines what it understood, then what it left out, then where the plan is" "$(
    reads "$tmp/trl.yaml" 8xa100-80gb
    has '"train": "all"' && has '"seq": 4096'
    said 'read as TRL (told by '
    said '^    model     mistral-7b, 7.24B parameters (the file names mistralai/Mistral-7B-v0.1)$'
    said '^    trains    everything$'
    said '^    batch     4 x accumulation 2 x 8 data-parallel ranks = 64 samples of 4096 tokens$'
    said '^    sharing   DDP on 8 x a100-80gb$'
    said '^    memory    bf16, every block recomputed, '
    said 'may matter to memory or time: some_new_key$'
    tail -1 "$tmp/err" | grep -q "wrote $tmp/p.json" || cat "$tmp/err"
    ! grep -q learning_rate "$tmp/err" || cat "$tmp/err")"
check 'eval and explain take the file itself, and answer as for the imported plan' "$(
    reads "$tmp/trl.yaml" 8xa100-80gb
    "$B/dpxplan" eval "$tmp/p.json" --json >"$tmp/a" 2>/dev/null
    "$B/dpxplan" eval "$tmp/trl.yaml" --cluster 8xa100-80gb --json >"$tmp/b" 2>/dev/null
    cmp "$tmp/a" "$tmp/b"
    "$B/dpxplan" explain "$tmp/trl.yaml" --cluster 8xa100-80gb >"$tmp/out" 2>/dev/null
    grep -q '^The peak of ' "$tmp/out" || cat "$tmp/out"
    refused 'say on which GPUs: --cluster 8xh100' eval "$tmp/trl.yaml"
    refused 'a plan has its own model, cluster and seq: --set changes them' eval "$tmp/p.json" --cluster 8xh100)"
check 'standard input has a form, too' "$(
    "$B/dpxplan" import - --cluster 8xa100-80gb <"$tmp/trl.yaml" >"$tmp/q.json" 2>/dev/null
    grep -q '"seq": 4096' "$tmp/q.json" || head -5 "$tmp/q.json")"

# Megatron-LM's examples have their options in arrays, with defaults of the environment.
cat >"$tmp/pretrain.sh" <<'END'
#!/bin/bash
# Runs something
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-2}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP=${TP:-4}
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE   # each
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --seq-length 4096 --max-position-embeddings 131072 --vocab-size 128256
    --swiglu --normalization RMSNorm --position-embedding-type rope --use-rope-scaling --rotary-base 500000
    --untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout 0 --hidden-dropout 0
    --norm-epsilon 1e-5
)
TRAINING_ARGS="--micro-batch-size 1 --global-batch-size 64 \
    --bf16 --lr 3e-4"
if [ -n "$DEBUG" ]; then
    EXTRA="--log-interval 1"
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS} \
    --tensor-model-parallel-size $TP --sequence-parallel --use-distributed-optimizer
END
check "a script of Megatron-LM is followed: arrays, assignments, an environment's defaults" "$(
    reads "$tmp/pretrain.sh" 2x8xh100 --model llama-3.1-8b
    has '"tensor": 4' && has '"micro_batch": 1' && has '"accumulation": 16' && has '"strategy": "zero1"')"
check "its model is the one that the options describe, where none is given" "$(
    reads "$tmp/pretrain.sh" 2x8xh100
    said '8.03B parameters' && has '"model_type": "llama"' && has '"num_key_value_heads": 8'
    sed 's/--vocab-size 128256//' "$tmp/pretrain.sh" >"$tmp/vocab.sh"
    refused 'vocab_size: the options do not say it' import "$tmp/vocab.sh" --cluster 2x8xh100
    sed 's/--swiglu//' "$tmp/pretrain.sh" >"$tmp/act.sh"
    refused 'describe neither a model as Llama' import "$tmp/act.sh" --cluster 2x8xh100)"
check 'a condition on what the script sets is decided' "$(
    sed 's/^torchrun/DTYPE=fp8\nif [ "$DTYPE" = fp8 ]; then TRAINING_ARGS+=" --fp8-format hybrid"; fi\ntorchrun/' "$tmp/pretrain.sh" >"$tmp/fp8.sh"
    reads "$tmp/fp8.sh" 2x8xh100
    has '"fp8_format": "hybrid"')"
check 'a variable whose value the job sets is told where it may matter, and not where none does' "$(
    sed 's/^torchrun/export WANDB_PROJECT=run-$RUN HF_HOME=$DATA\nexport NCCL_ALGO=$CHOICE\ntorchrun/' "$tmp/pretrain.sh" >"$tmp/vars.sh"
    reads "$tmp/vars.sh" 2x8xh100 --model llama-3.1-8b
    said 'NCCL_ALGO is not in the plan: the file does not say its value'
    grep 'WANDB_PROJECT\|HF_HOME' "$tmp/err")"
printf 'MODULE=llama3 CONFIG=llama3_70b ./run_train.sh\n' >"$tmp/run.sh"
# Options of 0.2.2, whose sections have dashes: read back as the plan that they were written from.
check 'what is exported for torchtitan 0.2.2 is read as the same plan' "$(
    for of in '"recompute": "op", "kernels": "torch-compile", "fp8": "tensorwise", "fsdp": { "enable_fsdp_float8_all_gather": true, "root_units": "apart" }' \
              '"recompute": "full", "recompute_interval": 2, "clip": 1.0, "fsdp": { "root_units": "apart" }' \
              '"recompute": "none", "parallel": { "tensor": 2, "sequence": true }, "fsdp": { "root_units": "apart" }'; do
        printf '{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "8xh100", "strategy": "fsdp", "dialect": "torch", "seq": 512, "micro_batch": 2,
            "accumulation": 4, "precision": "bf16", %s }' "$of" >"$tmp/was.json"
        "$B/dpxplan" export "$tmp/was.json" --to torchtitan-0.2.2 2>&1 | sed '/^#/d; 1i python -m torchtitan.train' | tr '\n' ' ' >"$tmp/run_train.sh"
        "$B/dpxplan" import "$tmp/run_train.sh" --cluster 8xh100 --model llama-3.1-8b -o "$tmp/is.json" 2>"$tmp/err" || cat "$tmp/err"
        grep 'not known' "$tmp/err"
        [ "$("$B/dpxplan" eval "$tmp/was.json" --json | sed -n '/"memory"/,$p')" = "$("$B/dpxplan" eval "$tmp/is.json" --json | sed -n '/"memory"/,$p')" ] ||
            echo "another plan: $of"
    done)"
# A plan of a config by its name is written as that name with overrides, and read back as the same plan; --config beside --module is no file.
check 'what is exported for torchtitan 0.3.0 under a name of its registry is read as the same plan' "$(
    for of in llama3_70b qwen3_14b qwen3_32b; do
        printf 'MODULE=%s CONFIG=%s ./run_train.sh\n' "${of%%_*}" $of >"$tmp/named.sh"
        "$B/dpxplan" import "$tmp/named.sh" --cluster 8xh100 -o "$tmp/was.json" 2>"$tmp/err" || cat "$tmp/err"
        "$B/dpxplan" export "$tmp/was.json" --to torchtitan >"$tmp/named.txt" 2>&1 || cat "$tmp/named.txt"
        "$B/dpxplan" import "$tmp/named.txt" --cluster 8xh100 -o "$tmp/is.json" 2>"$tmp/err" || cat "$tmp/err"
        cmp -s "$tmp/was.json" "$tmp/is.json" || diff "$tmp/was.json" "$tmp/is.json" | head -5
    done)"
check "torchtitan's CONFIG is the registry's, and one that is not known is refused" "$(
    reads "$tmp/run.sh" 32x8xh100
    has '"seq": 8192' && has '"tensor": 8' && has '"micro_batch": 8'
    sed 's/70b/71b/' "$tmp/run.sh" >"$tmp/other.sh"
    refused 'did you mean llama3_70b' import "$tmp/other.sh" --cluster 32x8xh100)"
cat >"$tmp/fsdp.yaml" <<'END'
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
END
check 'a recipe that accelerate launches is shared out as accelerate says' "$(
    printf 'accelerate launch --config_file fsdp.yaml sft.py --model_name_or_path Qwen/Qwen3-8B --max_length 4096 %s\n' \
        '--per_device_train_batch_size 2 --dtype bfloat16 --bf16' >"$tmp/sft.sh"
    reads "$tmp/sft.sh" 8xh100
    has '"strategy": "fsdp"' && has '"dialect": "torch"' && has '"micro_batch": 2'
    reads "$tmp/trl.yaml" 8xh100 --accelerate "$tmp/fsdp.yaml"
    has '"strategy": "fsdp"' && has '"accumulation": 2'
    printf 'accelerate launch --use_deepspeed --zero_stage 3 sft.py --model_name_or_path Qwen/Qwen3-8B --max_length 4096\n' >"$tmp/ds.sh"
    reads "$tmp/ds.sh" 8xh100
    has '"strategy": "zero3"'
    printf 'model_name_or_path: Qwen/Qwen3-8B\nmax_length: 4096\nfsdp: full_shard auto_wrap\nbf16: true\n' >"$tmp/shares.yaml"
    for of in 'accelerate launch' 'accelerate launch --multi_gpu --mixed_precision bf16' 'accelerate launch --num_processes 8'; do
        printf '%s train.py --config shares.yaml\n' "$of" >"$tmp/shares.sh"      # which leaves it to the recipe
        reads "$tmp/shares.sh" 8xh100
        has '"strategy": "fsdp"'
    done
    sed 's/accelerate launch/& --config_file fsdp.yaml/' "$tmp/shares.sh" >"$tmp/twice.sh"
    "$B/dpxplan" import "$tmp/twice.sh" --cluster 8xh100 >"$tmp/out" 2>"$tmp/err" && echo 'two say who shares what, and one is taken'
    said 'both say who shares what'
    sed 's/sft.py/--num_processes 4 sft.py/' "$tmp/sft.sh" >"$tmp/four.sh"
    reads "$tmp/four.sh" 8xh100
    said 'num_processes: the file starts 4 ranks, the plan has 8, those of --cluster'
    refused 'accelerate.s config goes with recipes' import "$tmp/run.sh" --accelerate "$tmp/fsdp.yaml" --cluster 8xh100)"
check 'an actor on Megatron-LM is not read as FSDP; a path of another machine is taken by its name, and said' "$(
    printf 'python3 -m verl.trainer.main_ppo --config-path=config --config-name=%s %s\n' "'ppo_megatron_trainer.yaml'" \
        'actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2' >"$tmp/verl.sh"
    reads "$tmp/verl.sh" 8xh100
    has '"dialect": "megatron"' && has '"bias_swiglu_fusion": false' && has '"accumulation": 4'
    printf 'python3 -m verl.trainer.main_ppo %s\n' 'actor_rollout_ref.model.path=${HOME}/models/Qwen3-8B actor_rollout_ref.actor.ppo_mini_batch_size=64 \
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2' >"$tmp/verl.sh"
    reads "$tmp/verl.sh" 8xh100
    said 'taken as Qwen3-8B, by its name' && has '"accumulation": 4')"
check 'behind a training a script may evaluate: the training is read' "$(
    printf 'torchrun --nproc_per_node 8 train_math.py --model_name_or_path gpt2 --max_length 512 --bf16 --per_device_train_batch_size 4\npython eval_gsm8k.py --model out\n' >"$tmp/both.sh"
    reads "$tmp/both.sh" 8xh100
    has '"micro_batch": 4'
    ! grep -q 'commands of the script' "$tmp/err" || cat "$tmp/err")"
check 'what a script leaves open is said' "$(
    printf 'if [ "$1" ]; then LEN=512; fi\ntorchrun --nproc_per_node 4 sft.py --model_name_or_path gpt2 --max_length $LEN --bf16\n' >"$tmp/if.sh"
    reads "$tmp/if.sh" 8xh100
    said 'LEN is set in a condition' && said 'starts 4 ranks, the plan has 8')"
printf '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1}\n' >"$tmp/ds.json"
check 'what the command line gives goes before the file, and is said' "$(
    reads "$tmp/trl.yaml" 8xh100 --micro-batch 1 --global-batch 32
    has '"micro_batch": 1' && has '"accumulation": 4' && said 'global-batch 32 goes before whatever the file says'
    refused 'global-batch 33 is not a multiple of' import "$tmp/trl.yaml" --cluster 8xh100 --global-batch 33
    refused 'say the same' import "$tmp/trl.yaml" --cluster 8xh100 --global-batch 32 --accumulation 2
    reads "$tmp/trl.yaml" 8xh100 --seq 200000
    said 'tokens are longer than the')"
check 'a DeepSpeed config says that it names no model' "$(
    refused 'model: required: DeepSpeed' import "$tmp/ds.json" --cluster 8xh100 --seq 512
    reads "$tmp/ds.json" 8xh100 --model gpt2 --seq 512
    has '"strategy": "zero2"')"
# phase_of KEY: of the phase plan that an import of DPO wrote, its one update.
phase_of() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2], {"d": d, "u": d["phases"][0], "r": d["roles"]}))' "$tmp/p.json" "$1"; }
printf 'model_name_or_path: Qwen/Qwen3-4B\nstage: dpo\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\ncutoff_len: 2048\nbf16: true\nper_device_train_batch_size: 1\n' >"$tmp/lf.yaml"
sed 's/stage: dpo/stage: kto/' "$tmp/lf.yaml" >"$tmp/kto.yaml"
printf 'base_model: Qwen/Qwen2.5-0.5B\nrl: dpo\nsequence_len: 1024\nmicro_batch_size: 2\nbf16: true\nflash_attention: true\noptimizer: adamw_torch_fused\n' >"$tmp/ax.yaml"
cat >"$tmp/tune.yaml" <<'END'
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  max_seq_len: 1024
ref_checkpointer:
  checkpoint_dir: /tmp/Meta-Llama-3.1-8B-Instruct/
batch_size: 4
gradient_accumulation_steps: 8
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss:
  _component_: torchtune.rlhf.loss.DPOLoss
  beta: 0.05
  label_smoothing: 0
dtype: bf16
enable_activation_checkpointing: True
END
check "DPO is imported as a phase plan: pairs, the reference model beside, and phases says of it what it says of the recipe" "$(
    for f in "$tmp/lf.yaml" "$tmp/ax.yaml" "$tmp/tune.yaml" demo/dpo.yaml; do
        reads "$f" 8xh100
        said 'a phase plan, in which models take turns' && said 'chosen and a rejected sequence' && said 'fits '
        "$B/dpxplan" phases "$tmp/p.json" --json >"$tmp/a.json" 2>/dev/null
        "$B/dpxplan" phases "$f" --cluster 8xh100 --json >"$tmp/b.json" 2>/dev/null
        python3 -c 'import json, sys; a, b = (json.load(open(f)) for f in sys.argv[1:]); print("" if a["phases"] == b["phases"] else "phases differ")' "$tmp/a.json" "$tmp/b.json"
    done
    reads "$tmp/lf.yaml" 8xh100     # logits of a pair of 2048 tokens over 151936 in fp32, held while the reference model runs; one set of weights
    [ "$(phase_of 'u["beside"], u["held_bytes"], r["reference"]["shares_weights"], r["policy"]["train"]["micro_batch"]')" = "('reference', $((2 * 2048 * 151936 * 4)), True, 2)" ] || cat "$tmp/p.json"
    reads "$tmp/tune.yaml" 8xh100   # 4 pairs a micro-batch, 8 micro-steps, 8 ranks: 256 pairs; a copy of the model, in bf16, sharded as the policy
    [ "$(phase_of '"held_bytes" in u, r["reference"]["shares_weights"], r["policy"]["train"]["micro_batch"], d["samples"], r["policy"]["train"]["loss"]')" = "(False, False, 8, 512, 'fp32')" ] || cat "$tmp/p.json"
    sed 's/llama3_1_8b/lora_&\n  lora_attn_modules: [q_proj, v_proj]/' "$tmp/tune.yaml" >"$tmp/tune-lora.yaml"
    reads "$tmp/tune-lora.yaml" 1xh100      # the reference model is the policy without its adapters
    [ "$(phase_of 'r["reference"]["shares_weights"]')" = True ] || cat "$tmp/p.json"
    reads "$tmp/ax.yaml" 8xh100
    [ "$(phase_of '"held_bytes" in u, r["reference"]["shares_weights"], r["policy"]["train"]["micro_batch"]')" = "(False, False, 4)" ] || cat "$tmp/p.json"
    sed 's/finetuning_type: lora/finetuning_type: full/; /lora_/d' "$tmp/lf.yaml" >"$tmp/full.yaml"
    reads "$tmp/full.yaml" 8xh100   # the copy has no gradients: 16 bits, where what trains is in fp32
    [ "$(phase_of 'r["reference"]["infer"]["ddp"]["model_dtype"], r["policy"]["train"].get("ddp", {}).get("model_dtype")')" = "('bf16', None)" ] || cat "$tmp/p.json"
    printf 'ref_model: Qwen/Qwen3-8B\n' >>"$tmp/full.yaml"
    refused 'ref_model: a reference model that is another one' import "$tmp/full.yaml" --cluster 8xh100
    refused 'change it in the file' import "$tmp/lf.yaml" --cluster 8xh100 --micro-batch 1
    refused 'kto: a reference model' import "$tmp/kto.yaml" --cluster 8xh100)"
printf 'model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 1024\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 2\ndesirable_weight: 1.0\n' >"$tmp/trl-kto.yaml"
check "KTO is imported as a phase plan: a forward for its KL term, and two of the reference model beside the training's" "$(
    reads "$tmp/trl-kto.yaml" 8xh100
    said 'a phase plan, in which models take turns' && said 'samples of 1024 tokens' && said 'fits '
    [ "$(phase_of '[[p["name"], p.get("forward"), p.get("beside_forwards")] for p in d["phases"]], r["policy"]["train"]["micro_batch"], d["samples"]')" = \
        "([['KL', 'policy', None], ['update', None, 2]], 4, 64)" ] || cat "$tmp/p.json"
    python3 - "$tmp" <<'END'
import json, sys
d = json.load(open(sys.argv[1] + '/p.json'))
for n in 0, 1, 2:
    u = d['phases'][1]
    u.pop('beside_forwards', None)
    u.pop('beside', None) if n == 0 else u.update(beside='reference', beside_forwards=n)
    if n == 0:
        d['phases'].append({'name': 'other', 'forward': 'reference'})      # each role acts somewhere
    elif len(d['phases']) > 2:
        d['phases'].pop()
    json.dump(d, open('%s/n%d.json' % (sys.argv[1], n), 'w'))
END
    for n in 0 1 2; do "$B/dpxplan" phases "$tmp/n$n.json" --json >"$tmp/o$n.json" 2>"$tmp/err" || cat "$tmp/err"; done
    # a second forward takes as long as the first, and no more memory
    python3 -c 'import json, sys; t = [[p for p in json.load(open(f))["phases"] if p["name"] == "update"][0] for f in sys.argv[1:]]
s = [x["time"]["s"] for x in t]; print("" if abs((s[2] - s[1]) - (s[1] - s[0])) < 1e-9 and s[1] > s[0] else s)' "$tmp/o0.json" "$tmp/o1.json" "$tmp/o2.json"
    sed 's/per_device_train_batch_size: 4/per_device_train_batch_size: 1/' "$tmp/trl-kto.yaml" >"$tmp/one.yaml"
    "$B/dpxplan" import "$tmp/one.yaml" --cluster 8xh100 -o "$tmp/p.json" 2>&1 | grep -q 'KTO takes 2 at least' || echo 'one sample is taken'
    printf 'loss_type: apo_zero_unpaired\n' >>"$tmp/trl-kto.yaml"
    reads "$tmp/trl-kto.yaml" 8xh100    # no KL term
    [ "$(phase_of '[[p["name"], p.get("beside_forwards")] for p in d["phases"]]')" = "[['update', 1]]" ] || cat "$tmp/p.json")"
# TRL's trainers of preferences, which axolotl has, and LLaMA-Factory's call disable_dropout_in_model() behind PEFT, unless TRL's disable_dropout is false.
check "preferences are learned without dropout, the adapters' neither; what calls the function keeps its rate" "$(
    adapters='use_peft: true\nlora_r: 8\nlora_dropout: 0.1\n'
    rates() { phase_of 'r["policy"]["train"]["dropout"], r["policy"]["train"].get("lora", {}).get("dropout")'; }
    for more in "$adapters" 'use_peft: true\nlora_r: 8\n'; do
        for trainer in 'beta: 0.1' 'desirable_weight: 1.0' 'center_rewards_coefficient: 0.01'; do
            printf "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 1024\nper_device_train_batch_size: 4\n$trainer\n$more" >"$tmp/pair.yaml"
            reads "$tmp/pair.yaml" 8xh100
            said 'lora_dropout: 0, as the trainer takes dropout away'
            [ "$(rates)" = '(0.0, 0.0)' ] || echo "$trainer: $(rates)"
        done
    done
    printf "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 1024\nbeta: 0.1\ndisable_dropout: false\n$adapters" >"$tmp/pair.yaml"
    reads "$tmp/pair.yaml" 8xh100
    [ "$(rates)" = '(0.0, 0.1)' ] || rates
    (cat "$tmp/lf.yaml"; echo 'lora_dropout: 0.1') >"$tmp/pair.yaml"
    reads "$tmp/pair.yaml" 8xh100
    [ "$(rates)" = '(0.0, 0.0)' ] || rates
    (cat "$tmp/ax.yaml"; printf 'adapter: lora\nlora_r: 8\nlora_dropout: 0.1\nlora_target_linear: true\n') >"$tmp/pair.yaml"
    reads "$tmp/pair.yaml" 8xh100
    [ "$(rates)" = '(0.0, 0.0)' ] || rates
    # GPT-2 drops by modules, OPT by the function
    for model in gpt2 facebook/opt-125m; do
        printf "model_name_or_path: $model\nmax_length: 512\nbeta: 0.1\n" >"$tmp/pair.yaml"
        reads "$tmp/pair.yaml" 8xh100
        rates
    done | tr '\n' ' ' | grep -qx '(0.0, None) (0.1, None) ' || rates)"
cat >"$tmp/ppo.sh" <<'END'
python3 -m openrlhf.cli.train_ppo_ray \
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.colocate_all --vllm.gpu_memory_utilization 0.4 \
   --actor.model_name_or_path Qwen/Qwen2.5-1.5B-Instruct --reward.model_name_or_path Qwen/Qwen2.5-0.5B --ds.zero_stage 3 --ds.param_dtype bf16 \
   --train.batch_size 128 --train.micro_batch_size 4 --rollout.batch_size 256 --rollout.micro_batch_size 8 --rollout.n_samples_per_prompt 2 --data.max_len 2048 \
   --rollout.max_new_tokens 1024 --actor.gradient_checkpointing_enable --vllm.enable_sleep --ds.enable_sleep
END
check "OpenRLHF's PPO is imported as a phase plan: the actor, and beside it a critic, two models without gradients and an engine" "$(
    reads "$tmp/ppo.sh" 8xh100
    for line in 'model     qwen2.5-1.5b' 'beside    critic: it trains, too' 'beside    reward: a copy' 'beside    reference: a copy' 'beside    an engine' 'a phase plan'; do said "$line"; done
    "$B/dpxplan" phases "$tmp/p.json" --json >"$tmp/a.json" 2>/dev/null
    "$B/dpxplan" phases "$tmp/ppo.sh" --cluster 8xh100 --json >"$tmp/b.json" 2>/dev/null
    python3 -c 'import json, sys; a, b = (json.load(open(f)) for f in sys.argv[1:]); print("" if a["phases"] == b["phases"] else "phases differ")' "$tmp/a.json" "$tmp/b.json"
    sed 's/--rollout.max_new_tokens 1024//' "$tmp/ppo.sh" >"$tmp/any.sh"
    refused 'response MEAN,LONGEST says it' import "$tmp/any.sh" --cluster 8xh100
    reads "$tmp/any.sh" 8xh100 --response 300,700
    [ "$(phase_of 'd["response"]["mean"], d["response"]["longest"], d["prompt"]')" = '(300.0, 700.0, 1348)' ] || cat "$tmp/p.json"
    refused 'a step of one model' import "$tmp/verl.sh" --cluster 8xh100 --response 300,700)"
# Options without sections (before 0.10), and --optimizer of its forks, in its PPO and in its supervised training.
cat >"$tmp/old.sh" <<'END'
python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --colocate_all_models \
   --vllm_gpu_memory_utilization 0.4 --pretrain Qwen/Qwen2.5-1.5B-Instruct --reward_pretrain Qwen/Qwen2.5-0.5B --zero_stage 3 --bf16 --train_batch_size 128 \
   --micro_train_batch_size 4 --rollout_batch_size 256 --micro_rollout_batch_size 8 --n_samples_per_prompt 2 --prompt_max_len 1024 --generate_max_len 1024 \
   --gradient_checkpointing --vllm_enable_sleep --deepspeed_enable_sleep
END
check "OpenRLHF: what an option changes that no plan has is refused in its old spelling, too" "$(
    for old in "$tmp/old.sh" tests/golden/forms/openrlhf/train_sft_0.9.sh; do
        sed '$s/$/ --optimizer AdamW/' "$old" >"$tmp/more.sh"
        reads "$tmp/more.sh" 8xh100
        grep 'optimizer.*not known\|not known.*optimizer' "$tmp/err"
        for with in 'use_liger_kernel' 'deepcompile' 'torch_compile' 'ds_tensor_parallel_size 2' 'ring_attn_size 2' 'optimizer lion' 'optim muon'; do
            sed "\$s/\$/ --$with/" "$old" >"$tmp/more.sh"
            refused "${with%% *}: " import "$tmp/more.sh" --cluster 8xh100
        done
    done)"
printf 'python3 -m verl.trainer.main_ppo %s\n' 'actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
    trainer.n_gpus_per_node=8 trainer.nnodes=$NNODES' >"$tmp/verl.sh"
check "verl: a number of nodes that the job sets is told, and one that is a word refused" "$(
    reads "$tmp/verl.sh" 2x8xh100
    said 'trainer.nnodes: ' && said 'is set where the script runs'
    sed 's/\$NNODES/many/' "$tmp/verl.sh" >"$tmp/many.sh"
    refused 'trainer.nnodes: expected a number' import "$tmp/many.sh" --cluster 2x8xh100)"
printf 'MODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: 64\n  --num-attention-heads: 4\n  --seq-length: 64\n  --max-position-embeddings: 64\n  --micro-batch-size: 1\n
  --global-batch-size: 8\n  --vocab-size: 256\n  --bf16: true\nENV_VARS:\n  NVTE_FLASH_ATTN: 0\n  A_JOBS_OWN: x\nRUN: 2\n' >"$tmp/args.yaml"
check "what stands beside MODEL_ARGS is said once" "$(
    reads "$tmp/args.yaml" 8xh100
    said 'RUN' && said 'A_JOBS_OWN is not known to change memory or time'
    grep -q '"attention_backend": "fused"' "$tmp/p.json" || cat "$tmp/p.json"
    [ "$(grep -c A_JOBS_OWN "$tmp/err")" = 1 ] || cat "$tmp/err")"
check "8-bit products are in the summary" "$(
    reads "$tmp/fp8.sh" 2x8xh100
    said 'bf16 with fp8 (hybrid)')"
# Llama 3.2 1B's last block waits for backward.  Qwen3 30B: 48 routers of 128 experts, 8 of a token, for 2048 tokens; experts that a GPU has alone are no unit's.  Adapters of rank 8 on all seven layers
# of 16 blocks, whose outputs are 7 x 8 numbers of 8 x 512 tokens.  gpt-oss 20B: 24 blocks of 64 heads, 32 samples of 4096 x 4096 scores of two bytes.
check "Automodel: what a plan has not is told with its size" "$(
    reads tests/golden/forms/automodel/llama3_2_1b_squad.yaml 8xh100 --seq 512
    grep -q '"keeps_last_unit": true' "$tmp/p.json" || cat "$tmp/p.json"
    reads tests/golden/forms/automodel/qwen3_moe_te_remainders.yaml 8xh100
    said 'logits and choices of routers are kept, not recomputed: 0.033 GB a micro-batch'
    grep -q '"ignores_experts": true' "$tmp/p.json" || cat "$tmp/p.json"
    reads tests/golden/forms/automodel/gpt_oss_20b.yaml 8xh100 --seq 4096
    said "keep them: an upper bound of memory and time, of 1649 GB a micro-batch more"
    reads tests/golden/forms/automodel/llama3_2_1b_squad_peft.yaml 8xh100 --seq 512
    said "A's outputs are made again in backward: the plan keeps them: 0.0073 GB more")"
# 8 samples of 4096 x 128,256 logits of two bytes are 7.83 GiB, which a loss without logits has not.
# States on the host leave the GPU two copies of the weights at init, and fewer bytes in a step.
check "DeepSpeed: a peak where parameters are flattened names the release" "$(
    for stage in 2 3; do
        echo '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": '$stage', "offload_optimizer": {"device": "cpu"}}}' >"$tmp/ds.json"
        "$B/dpxplan" import "$tmp/ds.json" --model llama-2-13b --cluster 8xa100-80gb --seq 512 --recompute full -o "$tmp/p.json" >"$tmp/out" 2>&1
        grep -c 'flattens the parameters on the GPU, as since 0.18.7' "$tmp/out" | grep -qx $((3 - stage)) || cat "$tmp/out"
        COLUMNS=200 "$B/dpxplan" eval "$tmp/p.json" >"$tmp/out" 2>&1
        tr '\n' ' ' <"$tmp/out" | grep -c 'as since 0.18.7 (February 2026)' | grep -qx $((3 - stage)) || { echo "eval, stage $stage:"; cat "$tmp/out"; }
    done)"
# A folder that another file names hides no options; a list of them that is not set does.
check "Megatron-LM: a program in a folder that is not set is the program" "$(
    options='--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 64 --vocab-size 50257 --bf16'
    for program in pretrain_gpt.py '"${MEGATRON_ROOT}/pretrain_gpt.py"' '$MEGATRON_PATH/pretrain_gpt.py'; do
        printf 'source setup_env.sh\ntorchrun --nproc_per_node 8 %s %s\n' "$program" "$options" >"$tmp/m.sh"
        "$B/dpxplan" import "$tmp/m.sh" 8xh100 -o "$tmp/p.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
        [ "$program" = pretrain_gpt.py ] && cp "$tmp/p.json" "$tmp/whole.json"
        cmp -s "$tmp/p.json" "$tmp/whole.json" || echo "$program: another plan"
    done)"
check "Automodel: a loss without logits is advised, with what the loop keeps of them" "$(
    reads tests/golden/forms/automodel/llama3_2_1b_squad.yaml 8xh100 --seq 4096
    "$B/dpxplan" explain "$tmp/p.json" >"$tmp/out" 2>&1
    grep -q '7.83 GiB  logits that have a name' "$tmp/out" || cat "$tmp/out"
    "$B/dpxplan" explain "$tmp/p.json" --set logits_until=next 2>/dev/null | grep -q '7.83 GiB  logits that the training loop keeps (beside the schedule)' ||
        echo 'explain leaves out logits that a loop names until the next ones are there'
    "$B/dpxplan" eval "$tmp/p.json" --set loss=fused-linear 2>/dev/null | grep -o '[0-9.]* GiB allocated' | sed 's/ allocated//' >"$tmp/less"
    "$B/dpxplan" explain "$tmp/p.json" 2>&1 | grep -q "fused-linear, without logits: $(cat "$tmp/less")," || cat "$tmp/less" "$tmp/out")"
finish
