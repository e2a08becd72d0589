#!/bin/sh
# tests/sim/test_cmd_phases_nemo.sh -- dpxplan phases of NeMo-RL's recipes: who is there, in which batches, and what is refused.
. tests/sim/phases_ask.sh

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
    for section in policy policy.dtensor_cfg policy.generation policy.generation.vllm_cfg policy.generation.colocated grpo loss_fn checkpointing data logger \
        policy.tokenizer policy.megatron_cfg.scheduler env grpo.reward_shaping; do
        "$dpxplan" phases "$tmp/base.yaml" --cluster 8xh100 --response 200,400 --set "$section.zzz=1" 2>"$tmp/err" >/dev/null
        grep -q "$section.zzz: not known" "$tmp/err" || echo "$section.zzz: not told"
    done
    "$dpxplan" phases "$tmp/base.yaml" --cluster 8xh100 --response 200,400 --set 'policy.scheduler=[{"name": "a", "zzz": 1}]' 'data.train=[{"zzz": 1}]' \
        policy.dtensor_cfg.defer_fsdp_grad_sync=false 2>"$tmp/err" >/dev/null
    for told in 'policy.scheduler.zzz: not known' 'data.train.zzz: not known' 'defer_fsdp_grad_sync: .* each micro-step'; do
        grep -q "$told" "$tmp/err" || echo "$told: not told"
    done
    says 'checkpointing: .* a section of keys' "$tmp/base.yaml" --response 200,400 --set checkpointing=some
    # algorithms/grpo.py asserts both
    says 'reference_policy_kl_penalty is not 0' "$tmp/base.yaml" --set grpo.skip_reference_policy_logprobs_calculation=true loss_fn.reference_policy_kl_penalty=0.01
    says 'force_on_policy_ratio: NeMo-RL stops' "$tmp/base.yaml" --set loss_fn.force_on_policy_ratio=true policy.train_global_batch_size=8
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
            tells 'holds some 1.2 GB less' "$([ $worker:$packed = true:ddp:true ] && echo 0 || echo 1)"
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

finish
