/* knob_rules.h -- functions that rows of the table of knobs point to: defaults, values to search and labels that
 * a constant cannot express.  For knob_rows.c, plan.c and plan_json.c only. */
#ifndef DPX_KNOB_RULES_H
#define DPX_KNOB_RULES_H

#include "model/plan/knob.h"

/* Defaults that depend on more than the cell. */
double knob_usual_kernels(const struct plan *p);
double knob_usual_reduce_dtype(const struct plan *p);
/* What transformers loads in 16 bits stays so where it is frozen; FSDP1 flattens what trains with what does not only as tensors of their own. */
double knob_usual_model_dtype(const struct plan *p);
double knob_usual_orig_params(const struct plan *p);
double knob_usual_wrap_adapters(const struct plan *p);
double knob_usual_clip(const struct plan *p);
double knob_usual_dropout(const struct plan *p);
double knob_usual_unit(const struct plan *p);
double knob_usual_shard_group(const struct plan *p);
double knob_usual_sync(const struct plan *p);
double knob_usual_check_overflow(const struct plan *p);
double knob_usual_host_threads(const struct plan *p);
double knob_usual_sequence(const struct plan *p);
double knob_usual_context_method(const struct plan *p);
double knob_usual_context_balance(const struct plan *p);
double knob_usual_reshard(const struct plan *p);
double knob_usual_virtual_stages(const struct plan *p);
double knob_usual_stage_less(const struct plan *p);
double knob_usual_bucket_size(const struct plan *p);
double knob_usual_expert_tensor(const struct plan *p);
double knob_usual_microbatch_group(const struct plan *p);

/* DeepSpeed's optimizer has one form: it is not AdamW, it is on the host, or dpx's kernels step it. */
bool knob_idle_form(const struct plan *p);

/* DeepSpeed's offload: nothing is, or nothing to or from a disk. */
bool knob_idle_optimizer(const struct plan *p);
bool knob_idle_optimizer_disk(const struct plan *p);
bool knob_idle_param(const struct plan *p);
bool knob_idle_away(const struct plan *p);
bool knob_idle_param_disk(const struct plan *p);
bool knob_idle_disk(const struct plan *p);
bool knob_idle_host(const struct plan *p);      /* no optimizer is on the host */

bool knob_idle_powersgd(const struct plan *p);
bool knob_idle_wrapped(const struct plan *p);           /* DistributedDataParallel wraps the model */
bool knob_idle_fused_parts(const struct plan *p);
bool knob_idle_narrow(const struct plan *p);            /* no adapters, or none beside a model in 16 bits */
bool knob_idle_base_head(const struct plan *p);
bool knob_idle_fsdp_packed(const struct plan *p);       /* no adapters, or none beside packed weights that FSDP2 shards */

/* Blocks are not recomputed as a whole; by parts. */
bool knob_idle_full(const struct plan *p);
bool knob_idle_selective(const struct plan *p);

/* The plan does not cut along the axis. */
bool knob_idle_tensor(const struct plan *p);
bool knob_idle_context(const struct plan *p);
bool knob_idle_pipeline(const struct plan *p);
bool knob_idle_expert(const struct plan *p);
bool knob_idle_no_chunks(const struct plan *p);     /* dialect megatron: not NeMo-RL's loss of logits in 16 bits */
bool knob_idle_experts_shared(const struct plan *p);    /* several ranks have the same experts, or all have all */
bool knob_idle_all_kept(const struct plan *p);      /* FSDP2: units are not resharded after forward */
bool knob_idle_native_moe(const struct plan *p);
bool knob_idle_native_capacity(const struct plan *p);
bool knob_idle_no_experts(const struct plan *p);
bool knob_idle_whole_mixture(const struct plan *p);     /* no experts, or experts of other ranks */
bool knob_idle_capacity(const struct plan *p);          /* experts take what comes */
bool knob_idle_whole_experts(const struct plan *p);     /* no tensor-parallel ranks, or no experts, to cut */
bool knob_idle_interleaved(const struct plan *p);   /* its ranks have one stage each */
bool knob_idle_undeferred(const struct plan *p);
bool knob_idle_no_latent(const struct plan *p);
bool knob_idle_fp8(const struct plan *p);           /* dialect megatron: no 8-bit floats */
bool knob_idle_delayed(const struct plan *p);       /* or other scales than delayed ones */
bool knob_idle_mxfp8(const struct plan *p);         /* or other parameters than gathered mxfp8 */
bool knob_idle_balance(const struct plan *p);
bool knob_idle_expert_codes(const struct plan *p);
bool knob_idle_scaled(const struct plan *p);        /* neither 8 nor 4 bits */
bool knob_idle_ends_bf16(const struct plan *p);     /* no layers in 16 bits beside them */

/* The plan has no adapters; nothing is frozen. */
bool knob_idle_lora(const struct plan *p);
bool knob_idle_base(const struct plan *p);

/* No layer multiplies in float8; none of its weights is gathered so. */
bool knob_idle_float8(const struct plan *p);
bool knob_idle_qat(const struct plan *p);
bool knob_idle_float8_gather(const struct plan *p);

/* No torch.compile(); dialect megatron: no CUDA graphs. */
bool knob_idle_no_logits(const struct plan *p);
bool knob_idle_no_kept(const struct plan *p);
bool knob_idle_eager(const struct plan *p);
/* Environment variables that are not set. */
bool knob_idle_no_alloc_conf(const struct plan *p);
bool knob_idle_no_workspace(const struct plan *p);
bool knob_idle_no_connections(const struct plan *p);
bool knob_idle_no_nvls(const struct plan *p);
bool knob_idle_no_buffsize(const struct plan *p);
bool knob_idle_graphs(const struct plan *p);
bool knob_idle_whole_states(const struct plan *p);  /* dialect megatron: no precision-aware optimizer */

/* Why a key with this rule says nothing: "parallel.tensor is 1". */
const char *knob_idle_because(bool (*idle)(const struct plan *p));

/* Values worth searching that depend on others, or that come in pairs. */
enum knob_tried knob_try_activations(struct plan *p, int i);
enum knob_tried knob_try_ds_optimizer(struct plan *p, int i);
enum knob_tried knob_try_ds_param(struct plan *p, int i);
enum knob_tried knob_try_interval(struct plan *p, int i);
enum knob_tried knob_try_sync(struct plan *p, int i);
enum knob_tried knob_try_shard_group(struct plan *p, int i);
enum knob_tried knob_try_sharding(struct plan *p, int i);
enum knob_tried knob_try_unit(struct plan *p, int i);
enum knob_tried knob_try_reshard(struct plan *p, int i);
enum knob_tried knob_try_prefetch(struct plan *p, int i);
enum knob_tried knob_try_live(struct plan *p, int i);
enum knob_tried knob_try_hpz(struct plan *p, int i);
enum knob_tried knob_try_param_gather(struct plan *p, int i);

/* Words of a plan's label. */
int knob_say_reshard(const struct plan *p, char *to, size_t size);
int knob_say_sharding(const struct plan *p, char *to, size_t size);
int knob_say_no_prefetch(const struct plan *p, char *to, size_t size);
int knob_say_sequence(const struct plan *p, char *to, size_t size);
int knob_say_loss_parallel(const struct plan *p, char *to, size_t size);
int knob_say_layout(const struct plan *p, char *to, size_t size);
int knob_say_alloc_conf(const struct plan *p, char *to, size_t size);
int knob_say_context_balance(const struct plan *p, char *to, size_t size);
int knob_say_form(const struct plan *p, char *to, size_t size);
int knob_say_recompute(const struct plan *p, char *to, size_t size);
int knob_say_graphs(const struct plan *p, char *to, size_t size);
int knob_say_train(const struct plan *p, char *to, size_t size);
int knob_say_wrapped(const struct plan *p, char *to, size_t size);
int knob_say_threads(const struct plan *p, char *to, size_t size);
int knob_say_no_sync(const struct plan *p, char *to, size_t size);

/* transformers' HfTrainerDeepSpeedConfig.trainer_config_finalize() and accelerate (accelerator.py): sizes
 * from the model's hidden size, cut as Python's int(). */
int64_t knob_auto_reduce_bucket(int64_t hidden);
int64_t knob_auto_prefetch_bucket(int64_t hidden);
int64_t knob_auto_persistence(int64_t hidden);

#endif
