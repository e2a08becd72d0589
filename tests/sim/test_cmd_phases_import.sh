#!/bin/sh
# tests/sim/test_cmd_phases_import.sh -- dpxplan phases of verl's PPO, OpenRLHF's, prime-rl's and reward models: who is there, in which batches, and what is refused.
. tests/sim/phases_ask.sh

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
    # of 4 samples more logits of 151,936 numbers are in a forward 16 bits and fp32, 6 bytes each, in the update 10, and nothing of them behind it; the rest is of hidden states
    ask "$tmp/ppo.sh" 0
    cp "$tmp/doc" "$tmp/new"
    ask "$tmp/ppo.sh" 0 --set train.micro_batch_size=8 rollout.micro_batch_size=12
    python3 - "$tmp/new" "$tmp/doc" <<'PY'
import json, sys
a, b = ({p["name"]: p for p in json.load(open(f))["phases"]} for f in sys.argv[1:])
logits = 4 * 2048 * 151936
for name, each in (("log-probs", 6), ("reference", 6), ("update", 10)):
    more = b[name]["live_bytes"] - a[name]["live_bytes"]
    if not each * logits <= more <= each * logits + 4 * 2048 * 1536 * 2 * (10 if each == 6 else 60):
        print(name, "has", more / logits, "bytes of each logit more")
if a["weights"]["reserved_bytes"] != b["weights"]["reserved_bytes"]:
    print("logits stay behind the update")
PY
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
    "$dpxplan" phases "$tmp/ppo.sh" --cluster 8xh100 --set rolout=1 2>&1 >"$tmp/out" | grep -q 'not known, and may matter to memory or time: rolout' || echo 'a misspelt option is not told'
    # also within the sections that are read; what it has and no plan follows is told; usual values are not
    for key in train.zqx=1 ds.zqx=1 vllm.zqx=1 actor.zqx=1 ckpt.zqx=1 algo.kl.init_coeq=1 reward.zqx=1 train.full_determinism_enable=true vllm.sync_backend=gloo actor.entropy_coef=0.01; do
        ask "$tmp/ppo.sh" 0 --set "$key"
        grep -q "note: .*${key%=*}" "$tmp/err" || echo "silent: $key"
    done
    # 151,936 numbers of 4 bytes for each of 4 x 2048 tokens
    grep -q 'the entropy.s gradient, .* 4.98 GB in the update' "$tmp/err" || cat "$tmp/err"
    ask "$tmp/ppo.sh" 0 --set vllm.sync_backend=nccl actor.aux_loss_coef=0 train.seed=3 logger.wandb.project=x
    grep 'note: ' "$tmp/err" | grep -e sync_backend -e aux_loss -e seed -e wandb
    # where it stops itself
    says 'vllm.num_engines: 16 GPUs of engines (x 2) are not the actor.s 8' "$tmp/ppo.sh" --set vllm.num_engines=8
    says 'ref.num_gpus_per_node: 2 x 8 GPUs beside 1 x 8' "$tmp/ppo.sh" --set ref.num_nodes=2
    says 'reward.num_gpus_per_node: 1 x 8 GPUs beside 1 x 4' "$tmp/ppo.sh" --set train.colocate_critic_reward=true critic.num_gpus_per_node=4
    says 'algo.advantage.estimator: "grpo" is none of' "$tmp/ppo.sh" --set algo.advantage.estimator=grpo
    says 'n_samples_per_prompt: rloo compares' "$tmp/ppo.sh" --set algo.advantage.estimator=rloo rollout.n_samples_per_prompt=1
    says 'ds.load_in_4bit: weights in NF4 without adapters' "$tmp/ppo.sh" --set ds.load_in_4bit=true
}
check 'OpenRLHF: each model is a process, sections or none' "$(openrlhf)"

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
    "$dpxplan" phases "$tmp/reverse.toml" --cluster 2xh100 --set orchestrator.batchsize=2 inference.vllm.max_seqs=3 trainer.losses=1 trainer.model.sequence=2 orchestrator.renderer.zqx=1 \
        orchestrator.model.lora.zqx=1 --response 60,128 >"$tmp/out" 2>"$tmp/err"
    for told in orchestrator.batchsize inference.vllm.max_seqs trainer.losses model.sequence orchestrator.renderer.zqx orchestrator.model.lora.zqx; do
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
    # text where a section stands is no section that is left out
    for section in inference inference.vllm orchestrator.train orchestrator.train.sampling trainer.model trainer.model.lora; do
        refuses "$section: expected a section" reverse --cluster 2xh100 --set "$section=nonsense"
    done
    refuses 'orchestrator.train.source: expected sections' reverse --cluster 2xh100 --set orchestrator.train.source=x
    sed 's/^\[\[orchestrator.train.source\]\]/&\nzqx = 1/' "$tmp/reverse.toml" >"$tmp/source.toml"
    "$dpxplan" phases "$tmp/source.toml" --cluster 2xh100 --response 60,128 2>&1 >"$tmp/out" | grep -q 'orchestrator.train.source.zqx: not known' || echo 'a key of a source is silent'
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
    # Of the releases that know vllm_device: beta is 0.04, old log-probabilities are the update's own, and one engine has a GPU of its own.
    for want in grpo:weights,generate,log-probs,update grpo_old:weights,generate,reference,update; do
        "$dpxplan" phases "$tmp/${want%:*}.yaml" --cluster 8xh100 --json 2>/dev/null | python3 -c '
import json, sys
names = ",".join(p["name"] for p in json.load(sys.stdin)["phases"])
if names != sys.argv[1]: print(names)' "${want#*:}"
        "$dpxplan" phases "$tmp/${want%:*}.yaml" --cluster 8xh100 2>&1 | grep -c 'over 1 GPU of its own' | grep -qx "$(echo "$want" | grep -c old)" ||
            echo "$want: the engine's GPUs"
    done
    said=$({ cat "$tmp/grpo.yaml"; echo 'vllm_model_impl: transformers'; } >"$tmp/impl.yaml"; "$dpxplan" import "$tmp/impl.yaml" --cluster 8xh100 -o "$tmp/old.json" 2>&1)
    echo "$said" | grep -q "vllm_model_impl: transformers: the engine runs transformers' modules" || echo "$said"
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
