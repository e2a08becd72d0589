#!/bin/sh
# tests/sim/test_cmd_phases_import.sh -- dpxplan phases of verl's PPO, OpenRLHF's, NeMo-RL's, prime-rl's and reward models: who is there, in which batches, and what is refused.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none
export XDG_DATA_HOME
dpxplan=$B/dpxplan

# ask FILE EXIT OPTIONS...: the document, and complaints where the exit status is another.
ask() {
    file=$1 want=$2
    shift 2
    "$dpxplan" phases "$file" --cluster 8xh100 "$@" --json >"$tmp/doc" 2>"$tmp/err"
    rc=$?
    [ $rc = "$want" ] || { echo "phases $file $*: exit $rc, not $want"; cat "$tmp/err"; }
}
holds() { [ "$(python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); phase = {p["name"]: p for p in d["phases"]}; role = {r["name"]: r for r in d["roles"]}; plan = d["plan"]["roles"]; print(eval(sys.argv[2]))' "$tmp/doc" "$1")" = True ] || echo "does not hold: $1"; }

# says WORDS FILE OPTIONS...: exit 2 and the words on one line.
says() {
    words=$1
    shift
    "$dpxplan" phases "$@" --cluster 8xh100 >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "phases $*: exit $rc, not 2"
    grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}

# alone FILE OPTIONS...: on one GPU; tells WORDS RC: grep's exit status of them in what was said.
alone() { "$dpxplan" phases "$@" policy.generation.vllm_cfg.tensor_parallel_size=1 --cluster 1xh100 --json >"$tmp/doc" 2>"$tmp/err" || cat "$tmp/err"; }
tells() {
    grep -q -e "$1" "$tmp/err"
    [ $? = "$2" ] || { echo "told, or not: $1"; cat "$tmp/err"; }
}

# ---- variables that a script sets are those of all models that it starts ----

for of in dpo ppo grpo; do printf 'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nexport CUBLAS_WORKSPACE_CONFIG=:4096:8\nexport NCCL_MIN_NCHANNELS=4\n' >"$tmp/set-$of.sh"; done
cat >>"$tmp/set-dpo.sh" <<'END'
accelerate launch --num_processes 8 examples/scripts/dpo.py --model_name_or_path Qwen/Qwen2-0.5B-Instruct --per_device_train_batch_size 4 --max_length 1024 --bf16
END
cat >>"$tmp/set-ppo.sh" <<'END'
python3 -m openrlhf.cli.train_ppo_ray --ref_num_nodes 1 --ref_num_gpus_per_node 8 --actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 8 \
    --colocate_all_models --pretrain Qwen/Qwen2.5-1.5B --micro_train_batch_size 4 --train_batch_size 64 --micro_rollout_batch_size 8 --rollout_batch_size 64 \
    --n_samples_per_prompt 8 --prompt_max_len 512 --generate_max_len 512 --zero_stage 3 --bf16 --advantage_estimator group_norm --vllm_enable_sleep \
    --deepspeed_enable_sleep --vllm_gpu_memory_utilization 0.5
END
cat >>"$tmp/set-grpo.sh" <<'END'
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 data.max_prompt_length=512 data.max_response_length=1024 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8
END
environment() {
    for of in dpo ppo grpo; do
        ask "$tmp/set-$of.sh" 0
        holds "[r['train']['environment'] for r in plan.values() if 'train' in r] == [{'PYTORCH_ALLOC_CONF': 'expandable_segments:True', 'CUBLAS_WORKSPACE_CONFIG': ':4096:8'}]"
        grep -q 'NCCL_MIN_NCHANNELS' "$tmp/err" || echo "$of: a variable that is not followed is not told"
    done
}
check "a script's variables are those of the models that it starts" "$(environment)"

# ---- a command of a program that is not TRL's, with names of TRL's among its options (open-instruct's grpo.py and dpo.py) ----

cat >"$tmp/grpo.sh" <<'END'
uv run open_instruct/grpo.py --model_name_or_path Qwen/Qwen3-0.6B --dataset_mixer_list gsm8k 64 --response_length 512 --pack_length 1024 \
    --per_device_train_batch_size 1 --deepspeed_stage 2 --vllm_tensor_parallel_size 1 --beta 0.01
END
cat >"$tmp/dpo.sh" <<'END'
python submit.py --gpus 8 -- torchrun --nproc_per_node=8 open_instruct/dpo.py --model_name_or_path Qwen/Qwen3-0.6B --max_seq_length 1024 \
    --per_device_train_batch_size 1 --loss_type dpo_norm --beta 5 --mixer_list preferences 50
END
others() {
    says 'grpo.py is no program of TRL' "$tmp/grpo.sh"
    says 'dpo.py is no program of TRL' "$tmp/dpo.sh"
    for file in grpo dpo; do
        "$dpxplan" import "$tmp/$file.sh" --cluster 8xh100 -o "$tmp/plan.json" 2>"$tmp/err" && echo "$file.sh is read"
        grep -q 'no program of TRL' "$tmp/err" || cat "$tmp/err"
    done
}
check 'a command of another program with options of TRL is read as no phases of TRL' "$(others)"

# ---- alignment-handbook's DPO hands a second model over beside adapters: 6979321856 weights of Mistral's 32 blocks' layers in 4 bits with a scale of
# 4 bytes for each 64, and 262410240 of embedding, head and norms in 2 bytes ----

second() {
    file=tests/golden/forms/alignment-handbook/zephyr-7b-beta-dpo-qlora.yaml
    { echo 'dataset_mixer: {a: 1.0}'; grep -v '^dataset_mix' $file; } >"$tmp/handbook.yaml"
    "$dpxplan" phases "$tmp/handbook.yaml" --cluster 8xa100-80gb >/dev/null 2>"$tmp/err"
    grep -q 'hands over a second model, which older TRL keeps, 4.45 GB more' "$tmp/err" || cat "$tmp/err"
    "$dpxplan" phases $file --cluster 8xa100-80gb >/dev/null 2>"$tmp/err"
    grep 'a second model' "$tmp/err"
}
check 'the second model of the handbook is told with its size' "$(second)"

# ---- verl's PPO: gae has a critic ----

cat >"$tmp/ppo.yaml" <<'END'
data: { train_batch_size: 256, max_prompt_length: 512, max_response_length: 512 }
actor_rollout_ref:
  model: { path: Qwen/Qwen2.5-1.5B-Instruct }
  actor: { ppo_mini_batch_size: 128, ppo_micro_batch_size_per_gpu: 4 }
  rollout: { name: vllm, tensor_model_parallel_size: 1, gpu_memory_utilization: 0.4, log_prob_micro_batch_size_per_gpu: 8 }
critic:
  model: { path: Qwen/Qwen2.5-0.5B-Instruct }
  ppo_micro_batch_size_per_gpu: 8
algorithm: { adv_estimator: gae }
END

# 494,032,768 weights, their embedding tied to no head, 896 of the score and its bias: in fp32 over 8 GPUs; the update of 256 samples in 2 steps of 128,
# values in micro-steps of 8 on each GPU.
verl() {
    ask "$tmp/ppo.yaml" 0
    holds "role['critic']['model'] == 'qwen2.5-0.5b:value' and plan['critic']['train']['model']['num_labels'] == 1"
    holds "0 <= role['critic']['params_bytes'] - (494032768 + 896 + 1) * 4 / 8 <= 4096"
    holds "[p['name'] for p in d['phases']] == ['weights', 'generate', 'log-probs', 'values', 'critic', 'update']"
    holds "phase['critic']['times'] == 2 and phase['update']['times'] == 2 and phase['values']['times'] == 4"
    holds "plan['critic']['train']['micro_batch'] == 8 and plan['critic']['train']['accumulation'] == 2 and plan['critic']['train']['recompute'] == 'full'"
    holds "'loss' not in plan['critic']['train'] and plan['actor']['train']['loss'] == 'fused-in-place'"
    # each hand-over of weights to the engine ends with the allocator's segments expandable, of actor and critic, one process
    holds "all(plan[r]['train']['environment']['PYTORCH_ALLOC_CONF'] == 'expandable_segments:True' for r in ('actor', 'critic'))"
    [ "$(grep -c 'verl trains with expandable_segments:True' "$tmp/err")" = 1 ] || echo 'expandable segments are not told once'
    ask "$tmp/ppo.yaml" 0 --set critic.model.fsdp_config.param_offload=true critic.model.fsdp_config.optimizer_offload=true critic.forward_micro_batch_size_per_gpu=16 critic.ppo_epochs=2
    holds "role['critic']['between'] == 'host' and phase['values']['times'] == 2 and phase['critic']['times'] == 4"
    ask "$tmp/ppo.yaml" 0 --set critic.model.lora_rank=8 critic.strategy=fsdp2
    holds "plan['critic']['train']['lora']['modules_to_save'] == ['score']"
    # -1 and 0 stand for none
    ask "$tmp/ppo.yaml" 0 --set actor_rollout_ref.actor.fsdp_config.fsdp_size=-1 actor_rollout_ref.model.lora_rank=0
    # hydra's null is as if it were left out
    ask "$tmp/ppo.yaml" 0 --set actor_rollout_ref.rollout.quantization=null actor_rollout_ref.rollout.quantization_config_file=null
    holds "'quantization' not in plan['engine']"
    ask "$tmp/ppo.yaml" 0 --set critic.enable=false
    holds "'critic' not in role"
    says 'critic.model.path: not given' "$tmp/ppo.yaml" --set 'critic={}'
    # a critic on Megatron-LM beside an actor under FSDP: 494,032,768 weights and 896 of the value in bf16, whole on each GPU
    ask "$tmp/ppo.yaml" 0 --set critic.strategy=megatron
    holds "plan['critic']['train']['dialect'] == 'megatron' and 0 <= role['critic']['params_bytes'] - (494032768 + 896) * 2 <= 65536"
    says 'critic.ppo_max_token_len_per_gpu' "$tmp/ppo.yaml" --set critic.ppo_max_token_len_per_gpu=many
    # NVLink between trays, which verl's NCCL does without (constants_ppo.py: NCCL_CUMEM_ENABLE), is said; within one there is nothing to say
    for cluster in 1x8xgb200:4xgb200 1x16xgb200:4xgb200 2x4xgb200: 4xgb200: 8xh100:; do
        "$dpxplan" phases "$tmp/ppo.yaml" --cluster "${cluster%:*}" 2>&1 >"$tmp/out" | sed -n 's/.*NCCL_CUMEM_ENABLE.* write nodes of //p' >"$tmp/said"
        [ "$(cat "$tmp/said")" = "${cluster#*:}" ] || { echo "${cluster%:*}: said"; cat "$tmp/said"; }
    done
}
check 'verl: PPO has a critic, whose head is one number' "$(verl)"

# On Megatron-LM: 1,543,714,304 weights in bf16 of which half are on a GPU (the norms whole); the reference is cut the same way and has no gradients; offloading is
# actor.megatron's.  ppo_megatron_trainer's critic is on Megatron-LM, too.
megatron() {
    cat >"$tmp/megatron.sh" <<'END'
python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' algorithm.adv_estimator=grpo \
    data.train_batch_size=64 data.max_prompt_length=512 data.max_response_length=512 actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B-Instruct \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
    actor_rollout_ref.rollout.n=4 actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4 trainer.n_gpus_per_node=8 trainer.nnodes=1
END
    ask "$tmp/megatron.sh" 0
    holds "0 <= role['reference']['params_bytes'] - 1543714304 <= 1 << 20 and role['reference']['params_bytes'] == role['actor']['params_bytes']"
    holds "all(plan[r][of]['environment']['PYTORCH_ALLOC_CONF'] == 'expandable_segments:True' for r, of in (('actor', 'train'), ('reference', 'infer')))"
    holds "role['reference']['between'] == 'device' and role['actor']['between'] == 'device' and role['actor']['other_bytes'] >= 2 * 1543714304 and phase['reference']['times'] == 16"
    ask "$tmp/megatron.sh" 0 --set actor_rollout_ref.actor.megatron.param_offload=true actor_rollout_ref.actor.megatron.optimizer_offload=true
    holds "role['actor']['between'] == 'host' and role['reference']['between'] == 'host' and plan['actor']['frees_gradients'] and role['actor']['other_bytes'] < 1 << 20"
    says 'tensor_model_parallel_size: another number than the actor' "$tmp/megatron.sh" --set actor_rollout_ref.ref.megatron.tensor_model_parallel_size=4
    # a critic cut in two, with norms, biases of rows and the value whole (494,032,768 + 896 of which 24 x (2 x 896) + 896 are norms)
    ask "$tmp/megatron.sh" 0 --set algorithm.adv_estimator=gae critic.model.path=Qwen/Qwen2.5-0.5B critic.megatron.tensor_model_parallel_size=2 critic.ppo_micro_batch_size_per_gpu=4 \
        critic.megatron.param_offload=true critic.megatron.optimizer_offload=true
    holds "role['critic']['model'] == 'qwen2.5-0.5b:value' and role['critic']['between'] == 'host' and plan['critic']['frees_gradients'] and not plan['actor'].get('frees_gradients')"
    holds "0 <= role['critic']['params_bytes'] - (494032768 - 49 * 896 + 2 * 50 * 896) <= 65536"
    holds "[p['name'] for p in d['phases']] == ['weights', 'generate', 'log-probs', 'reference', 'values', 'critic', 'update']"
}
check 'verl: an actor on Megatron-LM, its reference and what is offloaded' "$(megatron)"

# ---- OpenRLHF ----

cat >"$tmp/ppo.sh" <<'END'
python3 -m openrlhf.cli.train_ppo_ray \
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.colocate_all --vllm.gpu_memory_utilization 0.4 \
   --actor.model_name_or_path Qwen/Qwen2.5-1.5B-Instruct --reward.model_name_or_path Qwen/Qwen2.5-0.5B --ds.zero_stage 3 --ds.param_dtype bf16 \
   --train.batch_size 128 --train.micro_batch_size 4 --rollout.batch_size 256 --rollout.micro_batch_size 8 --rollout.n_samples_per_prompt 2 --data.max_len 2048 \
   --rollout.max_new_tokens 1024 --actor.gradient_checkpointing_enable --vllm.enable_sleep --ds.enable_sleep --ckpt.path /tmp/x --actor.adam.lr 5e-7
END
sed 's/actor\.model_name_or_path/pretrain/; s/reward\.model_name_or_path/reward_pretrain/; s/--ds\.zero/--zero/; s/--ds\.param/--param/; s/--train\.batch/--train_batch/
     s/--train\.micro_batch/--micro_train_batch/; s/--rollout\.batch/--rollout_batch/; s/--rollout\.micro_batch/--micro_rollout_batch/; s/rollout\.n_samples/n_samples/
     s/--data\.max_len/--max_len/; s/--rollout\.max_new_tokens/--generate_max_len/; s/--actor\.gradient_checkpointing_enable/--gradient_checkpointing/
     s/--vllm\.enable/--vllm_enable/; s/--ds\.enable/--deepspeed_enable/; s/--vllm\.\([a-z]\)/--vllm_\1/g; s/--train\.colocate_all/--colocate_all_models/
     s/--actor\.num/--actor_num/g; s/--ckpt\.path/--ckpt_path/; s/--actor\.adam\.lr/--actor_learning_rate/' "$tmp/ppo.sh" >"$tmp/old.sh"

# 256 x 2 samples: log-probabilities in micro-steps of 8 on 8 GPUs, updates of 128; each model a process, with NCCL's buffers of its own.
openrlhf() {
    ask "$tmp/ppo.sh" 0
    holds "[p['name'] for p in d['phases']] == ['weights', 'generate', 'rewards', 'log-probs', 'values', 'reference', 'critic', 'update']"
    holds "role['reward']['model'] == 'qwen2.5-0.5b:score' and role['critic']['model'] == 'qwen2.5-0.5b:value' and role['reference']['model'] == 'qwen2.5-1.5b'"
    holds "[phase[n]['times'] for n in ('rewards', 'log-probs', 'values', 'reference', 'critic', 'update')] == [8, 8, 8, 8, 4, 4]"
    holds "d['samples'] == 512 and d['plan']['prompt'] == 1024 and d['plan']['of_prompt'] == 2"
    holds "role['actor']['between'] == 'states on host' and role['engine']['between'] == 'asleep' and plan['engine']['sleep'] == 1 and plan['engine']['driven'] == 'async'"
    holds "all(plan[n]['own_process'] for n in ('actor', 'critic', 'reward', 'reference'))"
    holds "phase['update']['outside_bytes'] > 4 * 570425344"
    # 494,032,768 + 896 weights in bf16 over 8 ranks, and what stage 3 keeps whole
    holds "0 <= role['reward']['params_bytes'] - (494032768 + 896) * 2 / 8 < 8 << 20"
    cp "$tmp/doc" "$tmp/new"
    ask "$tmp/old.sh" 0
    python3 - "$tmp/new" "$tmp/doc" <<'PY'
import json, sys
new, old = (json.load(open(f)) for f in sys.argv[1:])
for d in (new, old):
    d["why_not"] = None
if new["phases"] != old["phases"] or new["plan"]["roles"] != old["plan"]["roles"]:
    print("options without sections make another plan")
PY
    # grpo has no critic; rewards by a function no reward model
    ask "$tmp/ppo.sh" 0 --set algo.advantage.estimator=group_norm reward.remote_url=http://localhost algo.kl.init_coef=0
    holds "sorted(role) == ['actor', 'engine']"
    # apart: engines on GPUs of their own, actor and reference together
    ask "$tmp/ppo.sh" 0 --set algo.advantage.estimator=group_norm reward.remote_url=x train.colocate_all=false train.colocate_actor_ref=true train.async_enable=true vllm.enable_sleep=false
    holds "plan['engine']['cluster']['gpus_per_node'] == 8 and d['plan']['asynchronous'] and plan['engine']['sleep'] == 0"
    # critic and reward model on four GPUs of their own: what is on other GPUs runs at the same time
    ask "$tmp/ppo.sh" 0 --set train.colocate_all=false train.colocate_actor_ref=true train.colocate_critic_reward=true critic.num_gpus_per_node=4 \
        reward.num_gpus_per_node=4 vllm.enable_sleep=false ds.enable_sleep=false
    holds "sorted(d['plan']['places']) == ['critic'] and d['plan']['places']['critic']['gpus_per_node'] == 4 and plan['reward']['place'] == 'critic'"
    holds "[p['name'] for p in d['places'][0]['phases']] == ['rewards', 'values', 'critic'] and phase['critic']['times'] == 4 and phase['values']['times'] == 16"
    holds "0 <= role['critic']['params_bytes'] - (494032768 + 896) * 2 / 4 < 8 << 20"
    python3 - "$tmp/doc" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
s = {p["name"]: p["time"]["s"] for p in d["phases"]}
both = s["weights"] + s["generate"] + max(s["rewards"] + s["values"], s["log-probs"] + s["reference"]) + max(s["critic"], s["update"])
if abs(both - d["iteration"]["s"]) > 1e-9 * both:
    print("an iteration of", d["iteration"]["s"], "is not what the longer of two places takes,", both)
PY
    # each of them on eight GPUs
    ask "$tmp/ppo.sh" 0 --set train.colocate_all=false vllm.enable_sleep=false ds.enable_sleep=false
    holds "sorted(d['plan']['places']) == ['critic', 'reference', 'reward'] and [len(p['phases']) for p in d['places']] == [2, 1, 1]"
    says 'critic.num_gpus_per_node: expected not more GPUs than a node' "$tmp/ppo.sh" --set train.colocate_all=false critic.num_gpus_per_node=16
    says 'ds.enable_sleep: without it actor and critic train at the same time' "$tmp/ppo.sh" --set ds.enable_sleep=false
    says 'algo.dynamic_filtering_enable' "$tmp/ppo.sh" --set algo.dynamic_filtering_enable=true
    says 'ds.ring_attn_size' "$tmp/ppo.sh" --set ds.ring_attn_size=2
    says 'actor.optim: adam' "$tmp/ppo.sh" --set actor.optim=muon
    says 'several reward models' "$tmp/ppo.sh" --set reward.model_name_or_path=a,b
    says 'vllm.num_engines: not given' "$tmp/ppo.sh" --set vllm.num_engines=0
    says 'rollout.max_new_tokens: not given' "$tmp/ppo.sh" --set rollout.max_new_tokens=null
    ask "$tmp/ppo.sh" 0 --set rollout.max_new_tokens=null --response 300,1024
    # prompts are in the data, and older options have a length for them
    holds "d['plan']['prompt'] == 1024"
    grep -q "prompts' lengths are not in the file: taken as 1024 tokens, what data.max_len leaves" "$tmp/err" || echo 'prompts are silent'
    ask "$tmp/ppo.sh" 0 --response 300,1024,200
    holds "d['plan']['prompt'] == 200"
    says 'this file says how long prompts are' "$tmp/old.sh" --response 300,1024,200
    "$dpxplan" phases "$tmp/ppo.sh" --cluster 8xh100 --set rolout=1 2>&1 >"$tmp/out" | grep -q 'rolout: not known' || echo 'a misspelt option is not told'
}
check 'OpenRLHF: each model is a process, sections or none' "$(openrlhf)"

# ---- NeMo-RL ----

cat >"$tmp/base.yaml" <<'END'
grpo: { num_prompts_per_step: 32, num_generations_per_prompt: 16 }
loss_fn: { reference_policy_kl_penalty: 0.01 }
policy:
  model_name: Qwen/Qwen2.5-1.5B
  train_global_batch_size: 256
  train_micro_batch_size: 4
  logprob_batch_size: ${policy.train_micro_batch_size}
  max_total_sequence_length: 512
  precision: bfloat16
  max_grad_norm: 1.0
  dtensor_cfg: { enabled: true, tensor_parallel_size: 1, context_parallel_size: 1, activation_checkpointing: true, sequence_parallel: false }
  sequence_packing: { enabled: true, train_mb_tokens: "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}" }
  optimizer: { name: torch.optim.AdamW, kwargs: { lr: 5.0e-6 } }
  generation:
    backend: vllm
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg: { tensor_parallel_size: 2, gpu_memory_utilization: 0.5, precision: "${policy.precision}" }
    colocated: { enabled: true, resources: { gpus_per_node: null, num_nodes: null } }
cluster: { gpus_per_node: 8, num_nodes: 1 }
END
cat >"$tmp/megatron.yaml" <<'END'
defaults: base.yaml
policy:
  dtensor_cfg: { enabled: false }
  megatron_cfg:
    enabled: true
    activation_checkpointing: true
    tensor_model_parallel_size: 1
    pipeline_model_parallel_size: 1
    context_parallel_size: 1
    sequence_parallel: false
    apply_rope_fusion: true
    bias_activation_fusion: true
    gradient_accumulation_fusion: false
    moe_permute_fusion: true
    peft: { enabled: false }
    optimizer: { optimizer: adam, bf16: true, params_dtype: float32, use_distributed_optimizer: true, use_precision_aware_optimizer: true, clip_grad: 1.0 }
    distributed_data_parallel_config: { grad_reduce_in_fp32: false, overlap_grad_reduce: true, overlap_param_gather: true }
END
cat >"$tmp/ppo.yaml" <<'END'
defaults: base.yaml
ppo: { num_prompts_per_step: 32, num_generations_per_prompt: 16, ppo_epochs: 2, skip_reference_policy_logprobs_calculation: true }
value:
  model_name: Qwen/Qwen2.5-0.5B
  train_global_batch_size: ${policy.train_global_batch_size}
  train_micro_batch_size: 2
  max_total_sequence_length: ${policy.max_total_sequence_length}
  dtensor_cfg: { _v2: true, enabled: true, activation_checkpointing: true }
END
printf 'defaults: base.yaml\npolicy:\n  train_micro_batch_size: 8\n  generation: { colocated: { enabled: false, resources: { gpus_per_node: 4 } } }\n' >"$tmp/apart.yaml"
sed '/^grpo/d; /^  generation/,/colocated/d' "$tmp/base.yaml" >"$tmp/rest.yaml"

# 512 samples in 2 steps; of 112 tokens and up to 400 more, the longest first, they fill 79 rows of 4 x 512 in log-probabilities; 1,543,714,304 weights in
# fp32 over 8.
nemo() {
    ask "$tmp/base.yaml" 0 --response 200,400
    holds "[p['name'] for p in d['phases']] == ['weights', 'generate', 'log-probs', 'reference', 'update']"
    holds "phase['update']['times'] == 2 and phase['log-probs']['times'] == 10 and phase['reference']['times'] == 10"
    holds "plan['policy']['unpadded'] and plan['policy']['packed'] and d['plan']['phases'][0]['overlapped']"
    holds "0 <= role['policy']['params_bytes'] - 1543714304 * 4 / 8 <= 65536 and role['policy']['between'] == 'host' and role['policy']['empties_cache']"
    # a plain loss.backward() of each micro-batch (nemo_rl/models/automodel/train.py), whatever the key for Automodel's recipes says
    holds "plan['policy']['train']['sync_every_micro_step']"
    # the head of Qwen2 leaves logits cut, and DistributedLogprob takes them so (nemo_rl/models/dtensor/parallelize.py)
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.model_name=Qwen/Qwen2.5-7B policy.dtensor_cfg.tensor_parallel_size=2
    holds "plan['policy']['train']['parallel']['tensor'] == 2 and plan['policy']['train']['parallel']['loss_parallel']"
    says 'on_policy_distillation.enabled: a teacher' "$tmp/base.yaml" --set on_policy_distillation.enabled=true
    ask "$tmp/base.yaml" 0 --response 200,400
    # attention, MLP and norms each in a checkpoint_wrapper (nemo_rl/models/dtensor/parallelize.py)
    holds "plan['policy']['train']['recompute'] == 'modules' and plan['policy']['train']['accumulation'] == 8 and plan['engine']['sleep'] == 1"
    # the newer worker: whole layers of transformers' classes, of any family (Automodel's parallelizer.py), its own classes' modules; the Automodel that NeMo-RL
    # pins, and the older worker, have one root
    for model in Qwen/Qwen2.5-1.5B Qwen/Qwen3-8B meta-llama/Llama-3.1-8B mistralai/Mistral-7B-v0.1; do
        for worker in false:modules true:full; do
            ask "$tmp/base.yaml" 0 --response 200,400 --set "policy.model_name=$model" "policy.dtensor_cfg._v2=${worker%:*}"
            holds "plan['policy']['train']['recompute'] == '${worker#*:}' and plan['policy']['train']['fsdp']['root_units'] == 'together'"
            ! grep -q 'fsdp.root_units' "$tmp/err" || echo "$model, $worker: units of embedding and head are told"
        done
    done
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.model_name=google/gemma-2-2b       # four norms a block
    grep -q 'activation_checkpointing: MLP, .* a lower bound' "$tmp/err" || echo 'checkpoints of modules that are planned as one are not told'
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.model_name=mistralai/Ministral-3-8B-Base-2512 policy.dtensor_cfg._v2=true
    holds "plan['policy']['train']['recompute'] == 'modules'"
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.model_name=mistralai/Ministral-3-8B-Base-2512 'policy.dtensor_cfg={"_v2":true,"enabled":true,"activation_checkpointing":true,"automodel_kwargs":{"force_hf":true}}'
    holds "plan['policy']['train']['recompute'] == 'full'"
    ask "$tmp/base.yaml" 0 --response 200,400
    # flash attention of packed samples alone; transformers' own Qwen2, without Liger-Kernel (nemo_rl/models/automodel/setup.py)
    holds "plan['policy']['train']['attention'] == 'flash-2' and not any(plan['policy']['train']['liger'].values())"
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.sequence_packing.enabled=false policy.dtensor_cfg.activation_checkpointing=false
    holds "plan['policy']['train']['attention'] == 'sdpa' and not any(plan['policy']['train']['liger'].values())"
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.model_name=mistralai/Mistral-7B-v0.1
    holds "plan['policy']['train']['recompute'] == 'modules' and not any(plan['policy']['train']['liger'].values())"
    ask "$tmp/base.yaml" 0 --response 200,400
    # vLLM is in the worker's own process, and where it has several ranks Ray starts them
    holds "plan['engine']['driven'] == 'within' and d['generation']['gpu_s'] <= d['generation']['decode_s']"
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.generation.vllm_cfg.tensor_parallel_size=2 policy.generation.vllm_cfg.async_engine=true
    holds "plan['engine']['driven'] == 'async' and not plan['engine']['async_scheduling']"
    # blocks of fp8, and stages
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.generation.vllm_cfg.precision=fp8 policy.generation.vllm_cfg.pipeline_parallel_size=2 policy.generation.vllm_cfg.async_engine=true
    holds "plan['engine']['quantization'] == 'fp8-block' and plan['engine']['pipeline'] == 2 and role['engine']['quantization'] == 'fp8-block'"
    says 'num_last_layers_in_bf16: layers that stay' "$tmp/base.yaml" --set policy.generation.vllm_cfg.precision=fp8 policy.generation.vllm_cfg.num_last_layers_in_bf16=1
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.generation.vllm_kwargs.max_num_batched_tokens=4096 policy.generation.vllm_kwargs.moe_backend=triton
    holds "plan['engine']['max_num_batched_tokens'] == 4096"
    for given in generation.real_quant=true generation.quant_cfg=NVFP4 quant_cfg=NVFP4 generation.vllm_kwargs.kv_cache_memory_bytes=20e9; do
        says "policy.${given%%=*}: " "$tmp/base.yaml" --set "policy.$given"
    done
    # a key that NeMo-RL has not is told, in each section that decides
    for section in policy policy.dtensor_cfg policy.generation policy.generation.vllm_cfg policy.generation.colocated grpo loss_fn; do
        "$dpxplan" phases "$tmp/base.yaml" --cluster 8xh100 --response 200,400 --set "$section.zzz=1" 2>"$tmp/err" >/dev/null
        grep -q "$section.zzz: not known" "$tmp/err" || echo "$section.zzz: not told"
    done
    says 'expert 4: qwen2.5-1.5b has 0 experts' "$tmp/base.yaml" --set policy.generation.vllm_cfg.expert_parallel_size=4
    # what differs is over what is in the file of "defaults": 4 GPUs train, in micro-steps of 8; 39 rows of 8 x 512
    ask "$tmp/apart.yaml" 0 --response 200,400
    holds "d['cluster']['world_size'] == 4 and plan['engine']['cluster']['gpus_per_node'] == 4 and plan['policy']['train']['micro_batch'] == 8"
    holds "phase['log-probs']['times'] == 10 and role['policy']['between'] == 'device' and d['plan'].get('asynchronous') is None"
    ask "$tmp/apart.yaml" 0 --response 200,400 --set grpo.async_grpo.enabled=true grpo.async_grpo.max_trajectory_age_steps=3
    holds "d['plan']['asynchronous'] and d['plan']['ahead'] == 3"
    # the single controller's: as many steps ahead as its sampler lets (async_utils/staleness_sampler.py); none: training waits for its own
    ask "$tmp/apart.yaml" 0 --response 200,400 --set 'async_rl={"sampler":{"name":"in_order","max_lookahead_versions":2}}'
    holds "d['plan']['asynchronous'] and d['plan']['ahead'] == 2 and d['iteration']['s'] < sum(p['time']['s'] for p in d['phases'])"
    ask "$tmp/apart.yaml" 0 --response 200,400 --set 'async_rl={"sampler":{"name":"windowed"}}'
    holds "d['plan']['ahead'] == 1"
    ask "$tmp/apart.yaml" 0 --response 200,400 --set 'async_rl={"sampler":{"name":"in_order","max_lookahead_versions":0},"min_groups_for_streaming_train":8}'
    holds "d['plan'].get('asynchronous') is None"
    grep -q 'min_groups_for_streaming_train: training begins when 8 of 32' "$tmp/err" || echo 'streaming is not told'
    says 'async_rl.sampler.name: expected' "$tmp/apart.yaml" --set 'async_rl={"sampler":{"name":"custom","target":"a:B"}}'
    says 'async_rl.sampler: expected none that generates ahead' "$tmp/base.yaml" --set async_rl={}
    # workers' variables; a model's own fields; lists that are empty
    ask "$tmp/base.yaml" 0 --response 200,400 --set 'policy.dtensor_cfg.env_vars={"PYTORCH_CUDA_ALLOC_CONF":"expandable_segments:True"}'
    holds "plan['policy']['train']['environment']['PYTORCH_ALLOC_CONF'] == 'expandable_segments:True'"
    says 'hf_config_overrides.num_hidden_layers: another size' "$tmp/base.yaml" --set policy.hf_config_overrides.num_hidden_layers=2
    says 'model_overrides: fields of' "$tmp/megatron.yaml" --set 'policy.megatron_cfg.model_overrides={"hidden_size":64}'
    ask "$tmp/base.yaml" 0 --response 200,400 --set 'policy.dtensor_cfg.lora_cfg={"enabled":true,"dim":8,"alpha":32,"dropout":0.0,"match_all_linear":true,"target_modules":[],"exclude_modules":[]}'
    # weights and adapters are in fp32 (models/automodel/setup.py: lora_dtype)
    holds "plan['policy']['train']['train'] == 'lora' and not plan['policy']['train']['lora'].get('narrow') and plan['policy']['train']['fsdp']['model_dtype'] is None"
    # two of a recipe's four nodes of 4 GPUs, which one NVLink domain joins
    printf 'defaults: base.yaml\ncluster: { gpus_per_node: 4, num_nodes: 4 }\npolicy:\n  generation: { colocated: { enabled: false, resources: { num_nodes: 2, gpus_per_node: 4 } } }\n' >"$tmp/trays.yaml"
    for joined in 16xgb200 4x4xgb200; do
        "$dpxplan" phases "$tmp/trays.yaml" --cluster $joined --response 200,400 --json >"$tmp/doc" 2>"$tmp/err" || cat "$tmp/err"
        holds "d['cluster']['world_size'] == 8 and plan['engine']['cluster']['nodes'] * plan['engine']['cluster']['gpus_per_node'] == 8"
    done
    # a file over another one that says where its logs are
    printf 'defaults: apart.yaml\nlogger: { log_dir: logs/x }\n' >"$tmp/logs.yaml"
    ask "$tmp/logs.yaml" 0 --response 200,400
    holds "d['cluster']['world_size'] == 4 and plan['policy']['train']['micro_batch'] == 8"
    # 2 products of 2 x tokens x 1,536 x 151,936 in fp32, of which an H100 does 67 TFLOP a second (NVIDIA's data sheet)
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set policy.megatron_cfg.use_fused_linear_logprobs=true
    step=$(python3 -c 'import json, sys
t = json.load(open(sys.argv[1]))["plan"]["roles"]["policy"]["train"]
n, f = t["accumulation"], 4 * t["micro_batch"] * t["seq"] * t["model"]["hidden_size"] * t["model"]["vocab_size"] / t["parallel"]["tensor"]
print("%.2g TFLOP a micro-batch on the last stage: %.2g s and more in an update of %d micro-batches" % (f / 1e12, f * n / 67e12, n))' "$tmp/doc")
    tells "$step" 0
    # of one GPU the older worker's FSDP2 asks nothing (dtensor_policy_worker.py), Automodel's is left out (fsdp2.py) with its precision of outputs; packed sequences then
    # have logits in 16 bits one after the other: 4 bytes of each of 4 x 512 x 151,936 less
    for worker in false:fsdp true:ddp; do
        for packed in true false; do
            alone "$tmp/base.yaml" --response 200,400 --set "policy.dtensor_cfg._v2=${worker%:*}" policy.sequence_packing.enabled=$packed
            holds "plan['policy']['train']['strategy'] == '${worker#*:}' and plan['policy']['train']['cluster']['world_size'] == 1"
            [ $worker = true:ddp ] || holds "plan['policy']['train']['fsdp']['reshard_after_forward'] is True and plan['policy']['train']['fsdp']['root_units'] == 'together' and plan['policy']['train']['reduce_dtype'] == 'fp32'"
            tells output_dtype "$([ $worker = false:fsdp ] && echo 0 || echo 1)"
            tells 'holds at least 1.2 GB less' "$([ $worker:$packed = true:ddp:true ] && echo 0 || echo 1)"
        done
    done
    alone "$tmp/base.yaml" --response 200,400 --set policy.dtensor_cfg._v2=false policy.dtensor_cfg.cpu_offload=true
    holds "plan['policy']['train']['fsdp']['cpu_offload'] and not plan['policy']['train']['fsdp']['pin_memory']"
    # a pair is two sequences in one batch
    { echo 'dpo: {}'; cat "$tmp/rest.yaml"; } >"$tmp/dpo.yaml"
    ask "$tmp/dpo.yaml" 0
    holds "[p['name'] for p in d['phases']] == ['reference', 'update'] and plan['policy']['train']['micro_batch'] == 8 and d['samples'] == 512"
    { echo 'sft: {}'; cat "$tmp/rest.yaml"; } >"$tmp/sft.yaml"
    ask "$tmp/sft.yaml" 0
    holds "[p['name'] for p in d['phases']] == ['update'] and plan['policy']['train']['micro_batch'] == 4 and d['samples'] == 256"
    { echo 'rm: {}'; cat "$tmp/rest.yaml"; } >"$tmp/rm.yaml"
    ask "$tmp/rm.yaml" 0
    holds "role['policy']['model'] == 'qwen2.5-1.5b:score' and plan['policy']['train']['micro_batch'] == 8"
    ask "$tmp/apart.yaml" 0 --response 200,400 --set policy.offload_optimizer_for_logprob=true
    holds "phase['log-probs']['host_bytes'] == role['policy']['optimizer_bytes'] + role['policy']['params_bytes'] and phase['log-probs']['moved_bytes'] == role['policy']['optimizer_bytes']"
    says "kv_cache_dtype: other" "$tmp/base.yaml" --set policy.generation.vllm_cfg.kv_cache_dtype=other
    says 'grpo.batch_multiplier' "$tmp/base.yaml" --set grpo.batch_multiplier=2
    says 'grpo.async_grpo.enabled: NeMo-RL has it' "$tmp/base.yaml" --set grpo.async_grpo.enabled=true
    says 'beside sequence_packing' "$tmp/base.yaml" --set policy.dynamic_batching.enabled=true
    says 'max_model_len' "$tmp/base.yaml" --set policy.generation.vllm_cfg.max_model_len=other
    # the file does not say how long prompts are: 512 of a sample less the longest response's 400, unless one does; 512 samples of 250 tokens on average fill 63 rows
    # of 2048 or more, in eight ranks
    ask "$tmp/base.yaml" 0 --response 200,400
    holds "d['plan']['prompt'] == 112"
    grep -q "prompts' lengths are not in the file: taken as 112 tokens, what policy.max_total_sequence_length leaves" "$tmp/err" || echo 'prompts are silent'
    ask "$tmp/base.yaml" 0 --response 200,400,50
    holds "d['plan']['prompt'] == 50 and 8 <= phase['log-probs']['times'] < 10"
    grep -q "prompts' lengths" "$tmp/err" && echo 'prompts of --response are told as taken'
    says 'shorter than a prompt and the longest response, 513' "$tmp/base.yaml" --response 200,400,113
    # the trainer filters logits as the engine does (algorithms/logits_sampling_utils.py: need_top_k_or_top_p_filtering())
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.generation.top_k=null policy.generation.top_p=1.0
    ask "$tmp/base.yaml" 0 --response 200,400 --set policy.generation.top_k=-1
    for yaml in base megatron ppo; do
        says 'generation.top_k: 50: log-probabilities of filtered logits' "$tmp/$yaml.yaml" --set policy.generation.top_k=50
        says 'generation.top_p: 0.9: log-probabilities of filtered logits' "$tmp/$yaml.yaml" --set policy.generation.top_p=0.9
    done
    # a key of mixtures asks nothing of a dense model
    for model in Qwen/Qwen2.5-1.5B Qwen/Qwen3-30B-A3B; do
        "$dpxplan" phases "$tmp/megatron.yaml" --cluster 4x8xh100 --response 200,400 --set policy.model_name=$model policy.megatron_cfg.moe_router_load_balancing_type=aux_loss >"$tmp/out" 2>"$tmp/err"
        grep -c 'no plan: .*moe_router_load_balancing_type' "$tmp/err"
    done >"$tmp/counts"
    [ "$(tr '\n' ' ' <"$tmp/counts")" = '0 1 ' ] || { echo 'moe_router_load_balancing_type of a dense model and a mixture:'; cat "$tmp/counts"; }
    # one product after the other (from 0.7 on; setup.py: _apply_moe_config())
    says 'moe_grouped_gemm: missing: experts that run one after the other' "$tmp/megatron.yaml" --cluster 4x8xh100 --set policy.model_name=Qwen/Qwen3-30B-A3B policy.megatron_cfg.moe_grouped_gemm=false
    # 4 x 512 x 151,936 logits: log-probabilities from logits in fp32 hold three copies of 4 bytes, with defer_fp32_logits those of 16 bits besides
    # (distributed/model_utils.py: DistributedLogprob); in chunks of 128 positions the logits, their gradient and 24 bytes of 128 x 151,936.
    # Samples that are packed come one after the other: 8 bytes a logit where 14 are planned; with chunks 2 and a half more
    ask "$tmp/megatron.yaml" 0 --response 200,400
    holds "plan['policy']['train']['loss'] == 'distributed-logprob'"
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(*(p["needed_bytes"] for p in d["phases"] if p["name"] in ("update", "log-probs")))' "$tmp/doc" >"$tmp/whole"
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set policy.megatron_cfg.defer_fp32_logits=true
    holds "plan['policy']['train']['loss'] == 'distributed-logprob-late' and abs(phase['update']['needed_bytes'] - $(cut -d' ' -f2 "$tmp/whole") - 2 * 311164928) < 1 << 20"
    holds "abs(phase['log-probs']['needed_bytes'] - $(cut -d' ' -f1 "$tmp/whole") - 2 * 311164928) < 1 << 20"
    grep -q 'holds up to 1.9 GB less on the last stage' "$tmp/err" || echo 'packed samples of logits in 16 bits are not told'
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set policy.megatron_cfg.defer_fp32_logits=true policy.logprob_chunk_size=128
    holds "plan['policy']['train']['megatron']['logprob_chunk_size'] == 32"
    grep -q 'holds up to 0.31 GB more on the last stage' "$tmp/err" || echo 'packed samples of logits in chunks are not told'
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set policy.megatron_cfg.defer_fp32_logits=true policy.logprob_chunk_size=128 policy.sequence_packing.enabled=false
    holds "plan['policy']['train']['megatron']['logprob_chunk_size'] == 128"
    grep -q 'packed samples' "$tmp/err" && echo 'samples that are not packed are told as packed'
    says 'NeMo-RL asks for policy.megatron_cfg.defer_fp32_logits: true beside it' "$tmp/megatron.yaml" --set policy.logprob_chunk_size=128
    # the forward of log-probabilities is of logprob_batch_size samples, whatever the update's are
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set policy.sequence_packing.enabled=false policy.logprob_batch_size=8
    holds "phase['log-probs']['times'] == 8 and phase['log-probs']['needed_bytes'] > $(cut -d' ' -f1 "$tmp/whole") + 12 * 311164928"
    # environments that take turns and call tools; vLLM's compilation
    ask "$tmp/base.yaml" 0 --response 200,400 --set env.should_use_nemo_gym=true 'policy.generation.vllm_kwargs={"compilation_config": {"cudagraph_mode": "PIECEWISE"}}'
    grep -q 'env.should_use_nemo_gym: agents take turns and call tools' "$tmp/err" || echo 'turns of NeMo-Gym are not told'
    grep -q "vllm_kwargs.compilation_config: the plan has vLLM's usual CUDA graphs" "$tmp/err" || echo 'what compilation_config does is not told'
    "$dpxplan" phases "$tmp/base.yaml" --cluster 8xh100 --set policy.train_micro_batchsize=2 2>&1 >"$tmp/out" | grep -q 'policy.train_micro_batchsize: not known' || echo 'a misspelt key is not told'
    says 'one of them must be true' "$tmp/base.yaml" --set policy.megatron_cfg.enabled=true
    says 'one of them must be true' "$tmp/base.yaml" --set policy.dtensor_cfg.enabled=false
    # 1,543,714,304 weights in bf16, whole on each GPU; what they lack to fp32, and two moments, over eight.  Gradients are there in the update alone: 2 bytes each
    ask "$tmp/megatron.yaml" 0 --response 200,400
    holds "0 <= role['policy']['params_bytes'] - 1543714304 * 2 <= 1 << 20 and 0 <= role['policy']['optimizer_bytes'] - 1543714304 * 10 / 8 <= 1 << 20"
    holds "role['policy']['other_bytes'] < 1 << 20 and phase['update']['needed_bytes'] - phase['log-probs']['needed_bytes'] > 1543714304 * 2"
    holds "plan['policy']['train']['dialect'] == 'megatron' and plan['policy']['frees_gradients'] and [p['name'] for p in d['phases']][-1] == 'update'"
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set policy.megatron_cfg.pipeline_model_parallel_size=2 policy.megatron_cfg.tensor_model_parallel_size=2
    holds "phase['log-probs']['times'] == 40 and role['policy']['params_bytes'] < 1543714304"
    # adapters of rank 16 in all blocks' layers: 28 x 16 x (1536 + 2048 + 1536 + 1536 + 1536 + 17920 + 8960 + 1536), which have all states, gradients of two bytes
    # what decides and has one value here, or another effect
    for given in optimizer.bf16=false optimizer.fp16=true optimizer.params_dtype=qqq pipeline_dtype=qqq empty_unused_memory_level=3; do
        says "policy.megatron_cfg.${given%%=*}: " "$tmp/megatron.yaml" --set "policy.megatron_cfg.$given"
    done
    says 'pipeline_dtype: float32: what stages hand on' "$tmp/megatron.yaml" --set policy.megatron_cfg.pipeline_dtype=float32 policy.megatron_cfg.pipeline_model_parallel_size=2
    for given in empty_unused_memory_level=2 apply_rope_fusion=false; do
        ask "$tmp/megatron.yaml" 0 --response 200,400 --set "policy.megatron_cfg.$given"
        grep -q "policy.megatron_cfg.${given%%=*}: " "$tmp/err" || echo "not told: $given"
    done
    says 'peft.target_modules: .*output layer' "$tmp/megatron.yaml" --set 'policy.megatron_cfg.peft={"enabled":true,"dim":16,"alpha":32,"target_modules":[]}'
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set 'policy.megatron_cfg.peft={"enabled":true,"dim":16,"alpha":32,"dropout":0.0,"target_modules":[],"exclude_modules":["output_layer"],"lora_dtype":null}'
    holds "plan['policy']['train']['train'] == 'lora' and plan['policy']['train']['lora']['rank'] == 16"
    holds "0 <= role['policy']['params_bytes'] - 2 * (1543714304 + 28 * 16 * 36608) <= 1 << 20 and 0 <= role['policy']['optimizer_bytes'] - 28 * 16 * 36608 * 10 / 8 <= 1 << 20"
    holds "[p['name'] for p in d['phases']] == ['weights', 'generate', 'log-probs', 'reference', 'update']"
    # one of the layers
    ask "$tmp/megatron.yaml" 0 --response 200,400 --set 'policy.megatron_cfg.peft={"enabled":true,"dim":16,"alpha":32,"target_modules":["linear_proj"]}'
    holds "0 <= role['policy']['params_bytes'] - 2 * (1543714304 + 28 * 16 * 3072) <= 1 << 20"
    says 'use_precision_aware_optimizer' "$tmp/megatron.yaml" --set policy.megatron_cfg.optimizer.use_precision_aware_optimizer=false
    # a critic with keys of its own, which is updated in each epoch before the policy; neither is on the GPU while the other acts
    ask "$tmp/ppo.yaml" 0 --response 200,400
    holds "[p['name'] for p in d['phases']] == ['weights', 'generate', 'values', 'log-probs', 'critic 1', 'update 1', 'critic 2', 'update 2']"
    holds "role['critic']['model'] == 'qwen2.5-0.5b:value' and role['critic']['between'] == 'host' and role['policy']['between'] == 'host'"
    holds "0 <= role['critic']['params_bytes'] - (494032768 + 896 + 1) * 4 / 8 <= 65536 and phase['values']['times'] == 32"
    says 'value: PPO' "$tmp/ppo.yaml" --set value=null
    says 'one of them must be true' "$tmp/ppo.yaml" --set value.megatron_cfg.enabled=true
    ask "$tmp/ppo.yaml" 0 --response 200,400 --set value.megatron_cfg.enabled=true value.dtensor_cfg.enabled=false value.megatron_cfg.activation_checkpointing=true
    holds "plan['critic']['train']['dialect'] == 'megatron' and plan['critic']['frees_gradients'] and plan['critic']['train']['recompute'] == 'full'"
    holds "role['critic']['model'] == 'qwen2.5-0.5b:value' and 0 <= role['critic']['params_bytes'] - (494032768 + 896) * 2 <= 65536 and phase['critic 1']['times'] == 2"
    says 'ppo.ppo_epochs: 9' "$tmp/ppo.yaml" --set ppo.ppo_epochs=9
    says 'policy.generation.backend: sglang' "$tmp/base.yaml" --set policy.generation.backend=sglang
    says 'grpo.use_dynamic_sampling' "$tmp/base.yaml" --set grpo.use_dynamic_sampling=true
    says 'grpo, ppo, dpo, sft and rm are planned, not distillation' "$tmp/base.yaml" --set distillation={}
    says 'colocated.resources' "$tmp/apart.yaml" --set policy.generation.colocated.resources.gpus_per_node=8
    says 'train_micro_batch_size' "$tmp/base.yaml" --set policy.train_micro_batch_size=some
    says 'defaults: .*none.yaml' "$tmp/apart.yaml" --set defaults=none.yaml
    # import writes the phase plan of each, too, though no plan of one step is made of these files
    for of in base megatron apart dpo sft rm ppo; do
        responses=; case $of in dpo | sft | rm) ;; *) responses='--response 200,400' ;; esac
        # shellcheck disable=SC2086
        "$dpxplan" import "$tmp/$of.yaml" --cluster 8xh100 $responses -o "$tmp/plan.json" >"$tmp/out" 2>"$tmp/err" || { echo "import $of: exit $?"; cat "$tmp/err"; }
        grep -q 'read as NeMo-RL' "$tmp/err" && "$dpxplan" phases "$tmp/plan.json" >"$tmp/out" || echo "import $of"
    done
}
check 'NeMo-RL: GRPO, DPO, SFT and reward models, with defaults and references to other keys' "$(nemo)"

# ---- prime-rl ----

# toml NAME: a file, whose text is standard input.
toml() { cat >"$tmp/$1.toml"; }
toml reverse <<'END'
seq_len = 2048
max_steps = 20
[model]
name = "PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT"
[orchestrator]
batch_size = 128
group_size = 16
[orchestrator.train.sampling]
max_completion_tokens = 128
[[orchestrator.train.source]]
name = "reverse-text"
[trainer.optim]
lr = 3e-6
[ckpt]
[inference]
END
toml alphabet <<'END'
seq_len = 2048
[deployment]
num_train_gpus = 2
num_infer_gpus = 6
[model]
name = "Qwen/Qwen3-4B-Instruct-2507"
[orchestrator]
batch_size = 512
group_size = 8
max_off_policy_steps = 16
[orchestrator.train.sampling]
max_completion_tokens = 512
[trainer.model.ac]
freq = 1
[trainer.model.lora]
rank = 32
alpha = 64
[inference.vllm]
gpu_memory_utilization = 0.7
max_model_len = 2048
enable_lora = true
END
toml math <<'END'
[deployment]
num_train_gpus = 2
num_infer_gpus = 6
[model]
name = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
[orchestrator]
batch_size = 512
group_size = 16
seq_len = 8192
[orchestrator.train.sampling]
max_completion_tokens = 8192
[trainer.model]
seq_len = 16384
attn = "flash_attention_2"
[inference.vllm]
data_parallel_size = 6
END
toml nodes <<'END'
seq_len = 8192
[slurm]
job_name = "general-agent"
[deployment]
type = "multi_node"
num_train_nodes = 2
num_infer_nodes = 1
num_infer_replicas = 2
nodes_per_fsdp_group = 1
[model]
name = "Qwen/Qwen3-4B-Instruct-2507"
[orchestrator]
batch_size = 256
[trainer.model]
optim_cpu_offload = false
compile = "None"
[weight_broadcast]
type = "nccl"
timeout = 3600
[inference.vllm]
tensor_parallel_size = 4
max_num_seqs = 64
END

# 128 samples of 100 + 60 tokens are 20480, 10 rows of 2048; of the whole 2048 tokens 128 rows.  596,049,920 weights in fp32; no state is on a GPU between
# steps.  1.5B: 512 of 16384 tokens in two GPUs' rows.
primerl() {
    prime() { file=$1 cluster=$2 want=$3; shift 3; "$dpxplan" phases "$tmp/$file.toml" --cluster "$cluster" "$@" --json >"$tmp/doc" 2>"$tmp/err"; rc=$?
              [ $rc = "$want" ] || { echo "phases $file $*: exit $rc, not $want"; cat "$tmp/err"; }; }
    refuses() { words=$1 file=$2; shift 2; "$dpxplan" phases "$tmp/$file.toml" "$@" >"$tmp/out" 2>"$tmp/err"; rc=$?
                [ $rc = 2 ] && [ "$(grep -vc ': note: ' "$tmp/err")" = 1 ] || { echo "phases $file $*: exit $rc, not 2 with one line beside notes"; cat "$tmp/err"; }
                grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }; }
    prime reverse 2xh100 0 --response 60,128,100
    holds "[p['name'] for p in d['phases']] == ['weights', 'generate', 'update'] and d['plan']['asynchronous'] and d['plan']['prompt'] == 100"
    holds "plan['policy']['train']['accumulation'] == 10 and plan['policy']['train']['recompute'] == 'offload' and plan['policy']['train']['kernels'] == 'torch-compile'"
    holds "plan['policy']['train']['fsdp']['optimizer_offload'] and role['policy']['optimizer_bytes'] == 0 and role['policy']['empties_cache']"
    holds "role['policy']['params_bytes'] == 596049920 * 4 and plan['engine']['gpu_memory_utilization'] == 0.9 and plan['engine']['version'] == '0.26'"
    # the states that wait, two of fp32, are what the trainer pins beside 28 blocks' inputs of 2048 x 1024 in bf16, powers of two
    holds "d['host_bytes_of_a_node'] > 2 * 4 * 596049920 + 28 * 2048 * 1024 * 2 and phase['update']['needed_bytes'] > 4 * 4 * 596049920"
    prime reverse 2xh100 0 --response 60,128
    holds "d['plan']['prompt'] == 1920 and plan['policy']['train']['accumulation'] == -(-128 * 1980 // 2048)"
    prime reverse 2xh100 0 --set trainer.model.optim_cpu_offload=false trainer.model.ac_offloading=None --response 60,128,100
    holds "role['policy']['optimizer_bytes'] >= 8 * 596049920 and plan['policy']['train']['recompute'] == 'full'"
    prime reverse 2xh100 0 --set orchestrator.batch_size=null orchestrator.token_batch_size=16000 orchestrator.group_size=1 --response 60,128,100
    holds "d['samples'] == 100 and plan['policy']['train']['accumulation'] == 8"
    prime alphabet 8xh100 0 --response 300,512
    holds "d['cluster']['world_size'] == 2 and plan['engine']['cluster']['gpus_per_node'] == 6 and plan['policy']['train']['lora']['rank'] == 32"
    holds "plan['policy']['train']['kernels'] == 'torch-sdpa' and [p['name'] for p in d['phases']] == ['generate', 'update']"
    for told in 'model.compile: blocks with adapters' 'weight_broadcast: adapters alone' 'enable_lora: the engine' 'max_off_policy_steps'; do
        grep -q "$told" "$tmp/err" || echo "not told: $told"
    done
    prime math 8xh100 0 --response 2000,8192
    holds "plan['policy']['train']['seq'] == 16384 and d['plan']['prompt'] == 8192 and plan['policy']['train']['accumulation'] == -(-512 * 10192 // (16384 * 2))"
    # where nothing is said weights go by NCCL, and adapters through files (configs/rl.py)
    ! grep -q 'through files' "$tmp/err" || echo 'weights that go by NCCL are said to go through files'
    prime math 8xh100 0 --response 2000,8192 --set weight_broadcast.type=filesystem
    grep -q 'type filesystem: weights go through files' "$tmp/err" || echo 'weights through files are not told'
    refuses 'nccl: prime-rl refuses it of adapters' alphabet --cluster 8xh100 --set weight_broadcast.type=nccl
    prime math 8xh100 0 --response 2000,8192
    # an engine apart: other numbers of GPUs for it, as many samples in as many rows
    prime math 8xh100 0 --response 2000,8192 --search
    holds "len(d['search']['fit']) > 3 and all(l['layout'] == 'apart' for l in d['search']['fit'])"
    holds "all(l['plan']['cluster']['gpus_per_node'] + l['engine_gpus'] == 8 for l in d['search']['fit'])"
    holds "len({l['engine_gpus'] for l in d['search']['fit']}) >= 5 and all(l['plan']['phases'][-1]['samples'] >= 512 * 10192 / 16384 for l in d['search']['fit'])"
    prime nodes 4x8xh100 0 --response 500,2000,100
    holds "d['cluster']['world_size'] == 16 and plan['policy']['train']['shard_group'] == 8 and plan['engine']['tensor'] == 4 and plan['engine']['max_num_seqs'] == 64"
    "$dpxplan" import "$tmp/reverse.toml" --cluster 2xh100 -o "$tmp/r.json" 2>"$tmp/err" || cat "$tmp/err"
    grep -q '"dpx_phases": 1' "$tmp/r.json" || echo 'import writes no phase plan'
    "$dpxplan" phases "$tmp/reverse.toml" --cluster 2xh100 --set orchestrator.batchsize=2 inference.vllm.max_seqs=3 trainer.losses=1 trainer.model.sequence=2 --response 60,128 >"$tmp/out" 2>"$tmp/err"
    for told in orchestrator.batchsize inference.vllm.max_seqs trainer.losses model.sequence; do
        grep -q "$told" "$tmp/err" || echo "a key that nobody knows is not told: $told"
    done
    refuses 'deployment: 1 GPUs train and 1 generate, but --cluster has 8' reverse --cluster 8xh100
    refuses 'say on which GPUs' reverse
    refuses 'tensor_parallel_size: 4 does not divide 6' alphabet --cluster 8xh100 --set inference.vllm.tensor_parallel_size=4
    refuses 'not a mean and a longest' reverse --cluster 2xh100 --response 60,128,-1
    refuses 'inference: left out' reverse --cluster 2xh100 --set inference=None
    refuses 'only write are not planned' nodes --cluster 4x8xh100 --set inference.deployment.type=disaggregated
    refuses 'nixl: filesystem and nccl' nodes --cluster 4x8xh100 --set weight_broadcast.type=nixl
    refuses 'fp8, awq and gptq' reverse --cluster 2xh100 --set inference.vllm.quantization=bitsandbytes
    refuses 'KV cache in host memory' reverse --cluster 2xh100 --set inference.kv_cache_offload.cpu.num_bytes=1000
    refuses 'optim.type' reverse --cluster 2xh100 --set trainer.optim.type=muon
    refuses 'full_offload' reverse --cluster 2xh100 --set trainer.model.full_offload=true
    refuses 'compiled blocks beside cp' math --cluster 8xh100 --set trainer.model.cp=2
    refuses 'vision encoder' reverse --cluster 2xh100 --set model.vlm.freeze_vision_encoder=true
    refuses 'group_size' reverse --cluster 2xh100 --set orchestrator.group_size=7
    refuses 'only one of batch_size' reverse --cluster 2xh100 --set orchestrator.token_batch_size=1000
    refuses 'batch_size: expected a number' reverse --cluster 2xh100 --set orchestrator.batch_size=many
}
check 'prime-rl: trainer and vLLM apart, samples packed into rows' "$(primerl)"

# ---- TRL's keys of before ----

# 1.16's configs have none of the three, and its parser stops at them; without them nothing is said.
removed() {
    trl='model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\nmax_length: 512\nper_device_train_batch_size: 2\nbf16: true\n'
    printf "${trl}beta: 0.1\nloss_type: sigmoid\n" >"$tmp/dpo.yaml"
    { cat "$tmp/dpo.yaml"; echo 'max_prompt_length: 128'; } >"$tmp/dpo_old.yaml"
    printf "${trl}num_generations: 4\nmax_completion_length: 256\nuse_vllm: true\n" | grep -v max_length >"$tmp/grpo.yaml"
    { cat "$tmp/grpo.yaml"; printf 'max_prompt_length: 128\nvllm_device: cuda:7\nvllm_max_model_len: 512\n'; } >"$tmp/grpo_old.yaml"
    for want in dpo:0 dpo_old:1 grpo:0 grpo_old:3; do
        said=$("$dpxplan" import "$tmp/${want%:*}.yaml" --cluster 8xh100 -o "$tmp/old.json" 2>&1) || echo "${want%:*}: $said"
        n=$(echo "$said" | grep -c 'TRL 1.16 has no such key and stops at it')
        [ "$n" = "${want#*:}" ] || echo "${want%:*}: said $n times: $said"
        echo "$said" | grep 'not known, and may matter'
    done
}
check 'keys that TRL has no more are told' "$(removed)"

# ---- reward models ----

# 494,032,768 weights and 896 of the score, whole on each GPU under DDP, in fp32.
rewards() {
    printf 'python trl/scripts/reward.py --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_length 1024 --bf16 true\n' >"$tmp/reward.sh"
    ask "$tmp/reward.sh" 0
    holds "role['policy']['model'] == 'qwen2.5-0.5b:score' and role['policy']['params_bytes'] - (494032768 + 896) * 4 in range(0, 65536)"
    holds "plan['policy']['train']['micro_batch'] == 8 and d['samples'] == 8 * 2 * 8 and [p['name'] for p in d['phases']] == ['update']"
    # every command takes the name
    "$dpxplan" eval qwen2.5-0.5b:value --cluster 8xh100 --json 2>/dev/null | grep -q '"params": 494033665' || echo 'eval does not know qwen2.5-0.5b:value'
    "$dpxplan" import tests/golden/forms/openrlhf/train_rm.sh --model llama-3-8b --cluster 8xh100 -o "$tmp/rm.json" 2>"$tmp/err" || cat "$tmp/err"
    python3 - "$tmp/rm.json" <<'PY'
import json, sys
p = json.load(open(sys.argv[1]))
if (p["model"]["architectures"], p["micro_batch"], p["accumulation"]) != (["ForSequenceClassification"], 2, 32):
    print(p["model"].get("architectures"), p["micro_batch"], p["accumulation"])
PY
}
check 'reward models of TRL and OpenRLHF have a head of one number, and pairs' "$(rewards)"

# Who computes attention is the file's: prime-rl's auto by the GPU (resolve_auto_attn()), its own name where the GPU runs it, PyTorch's with a note where not;
# a recipe's attn_implementation.
attention_by() {
    printf '[model]\nname = "Qwen/Qwen3-4B"\ncompile = "None"\n%s\n[data]\nbatch_size = 8\nseq_len = 4096\nmicro_batch_size = 1\n' "$3" >"$tmp/prime.toml"
    said=$("$dpxplan" import "$tmp/prime.toml" --cluster "$1" 2>"$tmp/err" | sed -n 's/.*"attention": "\([^"]*\)".*/\1/p')
    [ "$said" = "$2" ] || { echo "$1, $3: \"$said\", not \"$2\""; cat "$tmp/err"; }
}
attentions() {
    attention_by 8xh100 flash-3 ''
    attention_by 8xb200 flash-4 ''
    attention_by 8xa100-80gb flash-2 ''
    attention_by 8xh100 flash-2 'attn = "flash_attention_2"'
    attention_by 8xa100-80gb sdpa 'attn = "flash_attention_3"'
    grep -q "flash_attention_3 is planned with PyTorch's kernels" "$tmp/err" || echo "not said: PyTorch's kernels"
    printf 'model_name_or_path: Qwen/Qwen3-4B\nmax_length: 4096\nbf16: true\nper_device_train_batch_size: 1\nattn_implementation: flash_attention_2\n' >"$tmp/trl.yaml"
    "$dpxplan" import "$tmp/trl.yaml" --cluster 8xh100 2>"$tmp/err" | grep -q '"attention": "flash-2"' || { echo "TRL: not flash-2"; cat "$tmp/err"; }
}
check 'attention is the package that the file names, where the GPU runs it' "$(attentions)"

finish
