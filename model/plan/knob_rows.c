/* knob_rows.c -- the table of knobs: README.md, "A new knob".
 *
 * Defaults are the frameworks' own: DistributedDataParallel.__init__,
 * FullyShardedDataParallel.__init__ (torch 2.15), fully_shard(), and DeepSpeed
 * 0.19.6's runtime/zero/config.py, runtime/constants.py, precision_config.py. */
#include "model/plan/knob_rules.h"

#include <stddef.h>

#define DP_TORCH  CELL(STRAT_DP, DIALECT_TORCH)
#define DDP_TORCH CELL(STRAT_DDP, DIALECT_TORCH)
#define ZRO       CELL(STRAT_ZERO1, DIALECT_TORCH)
#define FSDP2     CELL(STRAT_FSDP, DIALECT_TORCH)
#define FSDP1     CELL(STRAT_FSDP, DIALECT_TORCH_FSDP1)
#define DS0       CELL(STRAT_DDP, DIALECT_DEEPSPEED)
#define DS1       CELL(STRAT_ZERO1, DIALECT_DEEPSPEED)
#define DS2       CELL(STRAT_ZERO2, DIALECT_DEEPSPEED)
#define DS3       CELL(STRAT_ZERO3, DIALECT_DEEPSPEED)
#define DS12      (DS1 | DS2)
#define DS123     (DS1 | DS2 | DS3)
#define DS        (DS0 | DS123)
#define P_DP      CELL(STRAT_DP, DIALECT_PAPER)
#define P_DDP     CELL(STRAT_DDP, DIALECT_PAPER)
#define P_ZERO1   CELL(STRAT_ZERO1, DIALECT_PAPER)
#define P_ZERO2   CELL(STRAT_ZERO2, DIALECT_PAPER)
#define P_ZERO3   CELL(STRAT_ZERO3, DIALECT_PAPER)
#define P_FSDP    CELL(STRAT_FSDP, DIALECT_PAPER)
#define P_OFFLOAD (P_ZERO2 | P_ZERO3 | P_FSDP)
#define PAPER     (P_DP | P_DDP | P_ZERO1 | P_ZERO2 | P_ZERO3 | P_FSDP)
#define M_DDP     CELL(STRAT_DDP, DIALECT_MEGATRON)
#define M_ZERO1   CELL(STRAT_ZERO1, DIALECT_MEGATRON)
#define MEGATRON  (M_DDP | M_ZERO1)
#define TORCH     (DP_TORCH | DDP_TORCH | ZRO | FSDP2)
#define ALL       (PAPER | TORCH | FSDP1 | DS | MEGATRON)
/* Where adapters and frozen weights are planned, and optimizers beside AdamW. */
#define P_TUNED   (P_DDP | P_ZERO1 | P_ZERO2 | P_ZERO3 | P_FSDP)
#define PEFT      (P_TUNED | DDP_TORCH | FSDP2 | FSDP1 | DS)
#define TUNED     (PEFT | MEGATRON)
/* Where torchtitan, Megatron-LM or the papers divide a model as well. */
#define GRID      (PAPER | DDP_TORCH | FSDP2 | MEGATRON)
/* There, and with DeepSpeed's AutoTP or Ulysses. */
#define SHARES    (GRID | DS)

/* Element counts and distances: anything up to the largest int64. */
#define ANY INT64_MAX

static const char *const kernel_words[]    = { "dpx", "torch-eager", "torch-sdpa", "torch-compile", "te", "megatron-local", NULL };
static const char *const dtype_words[]     = { "fp32", "bf16", "fp16", NULL };
static const char *const recompute_words[] = { "none", "selective", "modules", "full", "op", "offload", "reentrant", NULL };
static const char *const attention_words[] = { "sdpa", "flash-2", "flash-3", "flash-4", NULL };
static const char *const until_words[]     = { "next", "backward", NULL };
static const char *const kept_words[]      = { "none", "as-made", "fp32", "as-made-shifted", NULL };
static const char *const loss_words[]      = { "fp32", "bf16", "fused", "compiled", "chunked", "fused-linear", "liger-cross-entropy",
                                               "cut-cross-entropy", "linear-chunks", "fused-in-place", "fused-entropy", "actor-chunks", "actor-triton", "chunked-logprob",
                                               "fused-entropy-eager", "distributed-logprob", "distributed-logprob-late", "fused-fp32", NULL };
static const char *const form_words[]      = { "foreach", "fused", "loop", NULL };
static const char *const away_words[]      = { "none", "save_on_cpu", "save_on_cpu-pinned", "streams", NULL };
static const char *const root_words[]      = { "together", "apart", "embed-head", "embed", NULL };
static const char *const prefetch_words[]  = { "BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", NULL };
static const char *const sharding_words[]  = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                               "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", NULL };
#define HOOK_WORD(name, word, ...) word,
static const char *const hook_words[]      = { COMM_HOOKS(HOOK_WORD) NULL };
#undef HOOK_WORD
static const char *const moe_words[]       = { "autoep", "MoE", NULL };
static const char *const gather_words[]    = { "loss", "logits", NULL };
static const char *const mode_words[]      = { "default", "reduce-overhead", NULL };
static const char *const graph_words[]     = { "none", "local", "transformer_engine", NULL };
static const char *const scope_words[]     = { "parts of layers", "", "full_iteration", NULL };
static const char *const optimizer_words[] = { "adamw", NULL };
static const char *const optim_words[]     = { "adamw", "sgd", "adafactor", "adamw_bnb_8bit", "lion_32bit", "lion_8bit",
                                               "adamw_torch_8bit", "adamw_torch_4bit", "adamw_stochastic_bf16", "muon", "paged_adamw_32bit", "paged_adamw_8bit",
                                               "paged_lion_32bit", "paged_lion_8bit", "soap", "flash_adamw", "flash_adamw_32bit", "te_adamw", "te_adamw_bf16", NULL };
static const char *const base_words[]      = { "plain", "nf4", "nf4-double", "int8", "int8-torchao", "int4-torchao", "int4-torchao-tiled", "nf4-torchao", NULL };
static const char *const device_words[]    = { "none", "cpu", "nvme", NULL };
static const char *const context_words[]   = { "all-gather", "ring", "ulysses", NULL };
static const char *const partition_words[] = { "parameters", "uniform", "type:block", NULL };
static const char *const pipeline_words[]  = { "gpipe", "1f1b", "interleaved", "looped-bfs", "zb1p", "zbv", "dualpipev", NULL };
static const char *const fp8_words[]       = { "none", "e4m3", "hybrid", NULL };
static const char *const scaling_words[]   = { "delayed", "tensorwise", "blockwise", "mxfp8", NULL };
static const char *const backend_words[]   = { "auto", "flash", "fused", "unfused", NULL };
static const char *const fp4_words[]       = { "none", "e2m1", NULL };
static const char *const train_words[]     = { "patterns of tensor names", "all", "lora", NULL };
static const char *const target_words[]    = { "names of modules", "", "all-linear", NULL };
static const char *const layer_words[]     = { "names of layers", "", NULL };
static const char *const parts_words[]     = { "layer", "q", "k", "q+k", "v", "q+v", "k+v", "q+k+v", NULL };
static const char *const position_words[]  = { "pre", "post", NULL };
static const char *const module_words[]    = { "names of modules", NULL };
static const char *const parameter_words[] = { "names of parameters", NULL };
static const char *const float8_words[]    = { "none", "tensorwise", "rowwise", "rowwise_with_gw_hp", NULL };
static const char *const qat_words[]       = { "none", "8da4w", "8da4w-mslk", NULL };
static const char *const filter_words[]    = { "parts of names of modules", "", "none", "auto_filter_small_kn", NULL };
static const char *const a_version[]       = { "a version", NULL };
static const char *const a_path[]          = { "a path", NULL };
static const char *const a_conf[]          = { "KEY:VALUE,KEY:VALUE", NULL };
static const char *const a_workspace[]     = { ":KIB:COUNT", NULL };
static const char *const nvls_words[]      = { "2", "1", "0", NULL };
static const char *const a_layout[]        = { "a layout", NULL };
static const char *const adam_words[]      = { "fp32", "bf16", "fp16", "fp8", NULL };
static const char *const main_words[]      = { "fp32", "fp16", NULL };
static const char *const balance_words[]   = { "aux_loss", "seq_aux_loss", NULL };
static const char *const again_words[]     = { "names of modules", "core_attn", "mlp", "moe", "shared_experts", NULL };

/* accelerate 1.15: utils/dataclasses.py; torchtitan 0.3.0: config/configs.py. */
static const char *const accelerate_precision[] = { "no", "bf16", "fp16", NULL };
static const char *const accelerate_sharding[]  = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                    "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", NULL };
static const char *const titan_precision[]      = { "float32", "bfloat16", "", NULL };
static const char *const titan_reduce[]         = { "float32", "", "", NULL };
static const char *const titan_form[]           = { "foreach", "fused", "for-loop", NULL };
static const char *const titan_pipeline[]       = { "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble",
                                                    "ZBVZeroBubble", "DualPipeV", NULL };
static const char *const titan_recompute[]      = { "none", "", "", "full", "", "", "", NULL };

#define AT(member) .offset = offsetof(struct plan, member)
#define INT(member, low, high, d)  .type = KNOB_INT, AT(member), .lo = (low), .hi = (high), .def = (d)
#define REAL(member, low, high, d) .type = KNOB_REAL, AT(member), .lo = (low), .hi = (high), .def = (d)
#define BOOL(member, d)            .type = KNOB_BOOL, AT(member), .def = (d)
#define WORD(member, w, d)         .type = KNOB_WORD, AT(member), .words = w, .def = (d)

#define TEXT(member, what)         .type = KNOB_TEXT, AT(member), .words = what, .hi = sizeof ((struct plan *)0)->member

#define LIST(member, w)            .type = KNOB_LIST, AT(member), .words = w, .hi = sizeof ((struct plan *)0)->member

#define IDLE(f)             .idle = knob_idle_##f
#define USUAL(f, in_words)  .usual = knob_usual_##f, .usually = (in_words)
#define FOLLOWS(f, in_words)  USUAL(f, in_words), .follows = true
#define NULL_IS(v)          .null = KNOB_NULL_VALUE, .null_value = (v)
#define TRY(t, f)           .turn = (t), .try_with = knob_try_##f
#define TRIES(t, ...)       .turn = (t), .tries = (const double[]){ __VA_ARGS__ }, \
                            .ntries = (int)(sizeof (const double[]){ __VA_ARGS__ } / sizeof(double))

/* DeepSpeed's sections; "dpx" holds what DeepSpeed takes from the model or from its own version. */
#define ZERO        .ds = { .cells = DS, "zero_optimization" }
#define DS_TOP(key) .ds = { .cells = DS, "", key }
#define LIGER(name) .ds = { .cells = DS, "dpx", name }, ACCELERATE_HAS(0, "accelerate leaves kernels to the model"), \
                    TITAN_HAS(0, "it has no Liger kernels")
#define OURS        .ds = { .cells = DS, "dpx" }
#define IN_OPTIMIZER .ds = { .cells = DS123, "zero_optimization.offload_optimizer" }
#define IN_PARAM     .ds = { .cells = DS3, "zero_optimization.offload_param" }
#define IN_AIO       .ds = { .cells = DS3, "aio" }
/* accelerate's, and what it cannot say. */
#define FSDP_KEY(key, ...)  .accelerate = { .cells = FSDP1 | FSDP2, "fsdp_config", key, __VA_ARGS__ }
#define ACCELERATE_DS(key)  .accelerate = { .cells = DS, "deepspeed_config", key }
#define ACCELERATE_HAS(value, why) .accelerate = { .cells = FSDP1 | FSDP2, .only = (value), .lacks = (why) }
#define NOT_ACCELERATE(value)  .accelerate = { .cells = FSDP2 | DDP_TORCH, .only = (value), \
                                              .lacks = "accelerate's parallelism_config is not written or read" }
#define TITAN(option, ...)  .titan = { .cells = FSDP2, "", option, __VA_ARGS__ }
#define TITAN_HAS(value, why)      .titan = { .cells = FSDP2, .only = (value), .lacks = (why) }

static const struct knob rows[] = {
    { "", "kernels", WORD(kernels, kernel_words, KERNELS_DPX), .cells = PAPER,
      .about = "which kernels: decides activations and compute time" },
    { "", "kernels", WORD(kernels, kernel_words, KERNELS_TORCH_SDPA), .cells = ALL & ~PAPER, OURS,
      USUAL(kernels, "what transformers picks; on localhost dpx; megatron: te"),
      .about = "which kernels; torch-eager where transformers has no sdpa" },
    { "", "compile_mode", WORD(compile_mode, mode_words, COMPILE_DEFAULT), .cells = FSDP2, IDLE(eager), .label = ", %s",
      TITAN_HAS(COMPILE_DEFAULT, "its compile section has no mode"),
      ACCELERATE_HAS(COMPILE_DEFAULT, "dynamo_config is read, and not written"),
      .about = "torch.compile()'s mode: reduce-overhead replays each block's kernels as CUDA graphs" },
    { "", "attention", WORD(attention, attention_words, ATTENTION_BY_SDPA), .cells = TORCH | FSDP1 | DS, OURS, .label = ", attention by %s",
      ACCELERATE_HAS(ATTENTION_BY_SDPA, "accelerate leaves attention to the model"), TITAN_HAS(ATTENTION_BY_SDPA, "its models call PyTorch's attention"),
      .about = "who computes attention: PyTorch (sdpa; which kernel depends on framework_version and GPU), or the flash-attn package, version 2, 3 (Hopper) or 4 (Blackwell): transformers' attn_implementation" },
    { "", "seq", INT(seq, 1, 1 << 24, 0), .cells = ALL, .required = true, TITAN("--training.seq-len"),
      .about = "tokens in a sample" },
    { "", "micro_batch", INT(micro_batch, 1, PLAN_MAX_BATCH, 1), .cells = ALL,
      DS_TOP("train_micro_batch_size_per_gpu"), TITAN("--training.local-batch-size"),
      .about = "samples per rank and micro-step" },
    { "", "accumulation", INT(accumulation, 1, PLAN_MAX_BATCH, 1), .cells = ALL,
      DS_TOP("gradient_accumulation_steps"), ACCELERATE_DS("gradient_accumulation_steps"),
      .about = "micro-steps per optimizer step" },
    { "", "precision", WORD(precision, dtype_words, DT_FP32), .cells = ALL,
      .accelerate = { .cells = DDP_TORCH | FSDP1 | FSDP2 | DS, "", "mixed_precision", accelerate_precision },
      TITAN("--training.mixed-precision-param", titan_precision, "it computes in bfloat16 or float32"),
      .about = "number format of compute" },
    { "", "reduce_dtype", WORD(reduce_dtype, dtype_words, 0), .cells = ALL, .null = KNOB_NULL_DEFAULT,
      USUAL(reduce_dtype, "what the framework reduces in"),
      TITAN("--training.mixed-precision-reduce", titan_reduce, "mixed_precision_reduce is float32 only"),
      .about = "number format of gradient reductions" },
    { "", "optimizer", WORD(optimizer, optim_words, OPTIMIZER_ADAMW), .cells = P_TUNED | DDP_TORCH | FSDP2 | DS123, .label = ", %s", .ds = { .cells = DS123, "dpx" },
      ACCELERATE_HAS(OPTIMIZER_ADAMW, "the optimizer is in the training script"), TITAN_HAS(OPTIMIZER_ADAMW, "its optimizers are Adam and AdamW"),
      .about = "by its transformers name; sgd has momentum; bitsandbytes' (bnb, lion, paged) need DDP or DeepSpeed; torchao's have states in 8 and 4 bits; muon also runs under DeepSpeed's stages 1 and 2; soap needs DDP" },
    { "", "optimizer", .type = KNOB_FIXED, .words = optimizer_words, .cells = ALL & ~(P_TUNED | DDP_TORCH | FSDP2 | DS123),
      .about = "the only optimizer of the cell so far" },
    { "", "optimizer_form", WORD(optimizer_form, form_words, OPTIMIZER_FOREACH), .cells = DDP_TORCH | ZRO | FSDP2 | FSDP1,
      TRIES(19, OPTIMIZER_FOREACH, OPTIMIZER_FUSED), .say = knob_say_form, TITAN("--optimizer.implementation", titan_form),
      .about = "how AdamW runs: a kernel for each operation on all tensors (foreach), one kernel for all of it (fused), or one tensor after another (loop)" },
    { "", "optimizer_form", WORD(optimizer_form, form_words, OPTIMIZER_FUSED), .cells = DS, OURS, IDLE(form), .say = knob_say_form,
      .about = "fused: DeepSpeed's FusedAdam, or torch's fused AdamW; torch.optim.AdamW that deepspeed.initialize() is given: foreach or loop" },
    { "", "loss", WORD(loss, loss_words, LOSS_FP32), .cells = ALL & ~PAPER, OURS, .label = ", loss %s",
      ACCELERATE_HAS(LOSS_FP32, "accelerate leaves the loss to the model"),
      TITAN_HAS(LOSS_FP32, "its cross-entropy is in fp32"),
      .about = "cross-entropy in fp32, in the logits' bf16, flash-attn's kernel, of logits as they are (fused) or cast to fp32 (fused-fp32), torch.compile()d, torchtune's chunks of logits (chunked) or of head and logits (linear-chunks), Liger's without logits, Liger's in place, "
               "Apple's without logits, flash-attn's whose gradient is written over the logits (fused-in-place), or beside the logits' entropy, compiled (fused-entropy) or not (fused-entropy-eager), "
               "as verl's actors have them, and its own without whole logits: chunks by PyTorch (actor-chunks) or its kernel (actor-triton), TRL's tiles of logits (chunked-logprob), NeMo-RL's under Megatron-LM, from logits in fp32 (distributed-logprob) or in 16 bits (distributed-logprob-late)" },
    { "", "logits_kept", WORD(logits_kept, kept_words, LOGITS_DROPPED), .cells = TORCH | FSDP1 | DS, OURS, IDLE(no_logits), .label = ", logits kept %s",
      ACCELERATE_HAS(LOGITS_DROPPED, "it has no key for what a training script names"), TITAN_HAS(LOGITS_DROPPED, "it deletes them before backward"),
      .about = "logits that the training loop names until the next micro-step's are there, as the model made them (logits, loss = model(x, y)) or "
               "cast to fp32, or as made and once more without each sample's last (logits[..., :-1, :].contiguous()); in a pipeline those of all micro-steps of a schedule.step() without return_outputs=False" },
    { "", "logits_until", WORD(logits_until, until_words, UNTIL_NEXT_LOGITS), .cells = TORCH | FSDP1 | DS, OURS, IDLE(no_kept), .label = ", until %s ends",
      .about = "logits_kept's names go when the next micro-step's logits are there (a loop's own), or when the function returns that ran backward" },
    { "liger", "rope", BOOL(liger.rope, false), .cells = TORCH | FSDP1 | DS, LIGER("liger_rope"), .label = ", liger rope",
      .about = "Liger-Kernel's rotary embedding, which rotates queries and keys in place" },
    { "liger", "rms_norm", BOOL(liger.rms_norm, false), .cells = TORCH | FSDP1 | DS, LIGER("liger_rms_norm"), .label = ", liger norms",
      .about = "Liger-Kernel's RMSNorm, which keeps its input as it is and a number a row" },
    { "liger", "glu_activation", BOOL(liger.glu_activation, false), .cells = TORCH | FSDP1 | DS, LIGER("liger_glu_activation"),
      .label = ", liger glu", .about = "Liger-Kernel's SwiGLU (Gemma: GeGLU), which keeps gate and up alone" },
    { "", "clip", REAL(clip, 0, 1 << 30, 0), .cells = ALL & ~DS & ~MEGATRON, NULL_IS(0), TITAN("--training.max-norm"),
      .about = "largest global gradient norm, null: no clipping" },
    { "", "clip", REAL(clip, 0, 1 << 30, 1), .cells = DS, NULL_IS(0), USUAL(clip, "1; null up to DeepSpeed 0.16"),
      DS_TOP("gradient_clipping"), ACCELERATE_DS("gradient_clipping"),
      .about = "largest global gradient norm, null: no clipping" },
    { "", "clip", REAL(clip, 0, 1 << 30, 1), .cells = MEGATRON, NULL_IS(0), .about = "largest global gradient norm (clip_grad), null: no clipping" },
    { "", "dropout", REAL(dropout, 0, 1, 0), .cells = ALL, USUAL(dropout, "the model config's"), OURS,
      TITAN_HAS(0, "its models have none"),
      .about = "probability; the model config's own by default" },
    { "", "recompute", WORD(recompute, recompute_words, RECOMPUTE_NONE), .cells = ALL, OURS,
      TRIES(1, RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL, RECOMPUTE_OP), .say = knob_say_recompute,
      FSDP_KEY("fsdp_activation_checkpointing"),
      TITAN("activation-checkpoint:", titan_recompute,
            "its selective checkpointing names the products that it saves; up to 0.2 every other one (\"op\")"),
      .about = "activations recomputed in backward" },
    { "", "recompute_interval", INT(recompute_interval, 1, MODEL_MAX_LAYERS, 1), .cells = ALL, OURS,
      TRY(2, interval), .label = "/%.0f", TITAN_HAS(1, "it recomputes all blocks or none"),
      .about = "every k-th block is recomputed" },
    { "", "activation_offload", WORD(activation_offload, away_words, OFFLOAD_NOTHING), .cells = ALL, OURS,
      TRY(22, activations), .label = ", activations %s", TITAN_HAS(OFFLOAD_NOTHING, "its releases have no activation offload"),
      .about = "what blocks keep for backward waits in host memory" },
    { "", "unit", .type = KNOB_UNIT, .cells = FSDP1 | FSDP2 | P_ZERO2 | P_ZERO3 | P_FSDP | DS3,
      USUAL(unit, "block; DeepSpeed's module"), .everywhere = true, TRY(6, unit), .label = ", unit %s",
      FSDP_KEY("fsdp_auto_wrap_policy"), TITAN_HAS(UNIT_BLOCK, "it wraps one block at a time"),
      .about = "what is gathered, reduced and freed together" },
    { "", "shard_group", INT(shard_group, 1, CLUSTER_MAX_RANKS, 0), .cells = ALL, .null = KNOB_NULL_DEFAULT,
      FOLLOWS(shard_group, "all ranks; FSDP1's hybrid strategies: a node's"), TRY(4, shard_group),
      .label = ", shard group %.0f", .accelerate = { .cells = FSDP2, "parallelism_config", "parallelism_config_dp_shard_size" },
      TITAN("--parallelism.data-parallel-shard-degree"), .about = "ranks that share one copy" },
    { "", "sync_every_micro_step", BOOL(sync_every_micro_step, true), .cells = ALL,
      FOLLOWS(sync, "what the framework does; PyTorch: true"), TRY(3, sync), .say = knob_say_no_sync,
      .about = "false: reduce after the last micro-step only (no_sync)" },
    { "", "deterministic", BOOL(deterministic, false), .cells = ALL,
      TITAN_HAS(false, "its debug.deterministic is another thing"),
      .about = "sums in rank order, then micro-step order" },
    { "", "host_threads", INT(host_threads, 0, 1 << 12, 0), .cells = DS123 | P_OFFLOAD | FSDP1 | FSDP2, OURS,
      USUAL(host_threads, "1 where torchrun starts several ranks on a node: it sets OMP_NUM_THREADS"), IDLE(host),
      .say = knob_say_threads, .about = "threads of a rank's optimizer on the host; 0: its share of the cores" },
    { "", "framework_version", TEXT(framework_version, a_version), .cells = ALL & ~PAPER,
      NULL_IS(0), OURS, .about = "null: the newest known, of DeepSpeed 0.19.6" },

    { "", "train", LIST(train.what, train_words), .cells = TUNED, .say = knob_say_train,
      .about = "all; lora: PEFT's adapters (with dialect megatron Megatron-Bridge's) beside frozen weights; or names of tensors that train (* and ? stand for letters)" },
    { "", "base_dtype", WORD(train.base, base_words, BASE_PLAIN), .cells = DDP_TORCH | FSDP1 | FSDP2, .null = KNOB_NULL_DEFAULT, IDLE(base),
      .label = ", base %s", .about = "bits of frozen weights in blocks: bitsandbytes' NF4 with maxima in fp32 or 8 bits, its int8; torchao's int8 and NF4 (its int4 is refused: nothing trains with it)" },
    { "", "base_head", BOOL(train.base_head, false), .cells = DDP_TORCH | FSDP2, IDLE(base_head), .label = ", its head, too",
      .about = "the head's weight is in base_dtype, too (NeMo Automodel's own loader; transformers leaves it as it is)" },
    { "", "fp8", WORD(float8.recipe, float8_words, FLOAT8_NONE), .cells = FSDP2, .label = ", fp8 %s",
      ACCELERATE_HAS(FLOAT8_NONE, "its FP8RecipeKwargs are not written or read"),
      .about = "torchao's float8 linear layers: one scale a tensor, one a row, or that with weights' gradients in 16 bits" },
    { "", "fp8_filter", LIST(float8.filter, filter_words), .cells = FSDP2, .null = KNOB_NULL_DEFAULT, IDLE(float8),
      .about = "linear layers that stay as they are, by parts of their names (filter_fqns); null: the head" },
    { "", "qat", WORD(qat.kind, qat_words, QAT_NONE), .cells = DDP_TORCH | FSDP2, .label = ", qat %s", TITAN_HAS(QAT_NONE, "its quantised layers are of float8 and MXFP8"),
      .accelerate = { .cells = FSDP2 | DDP_TORCH, .only = QAT_NONE, .lacks = "layers that round are made by the training script" },
      .about = "torchao's fake quantisation: linear layers (those with adapters, where adapters train) round inputs as if to 8 bits a token, weights to 4; -mslk: weights as its kernels have them, which axolotl asks for" },
    { "", "qat_group", INT(qat.group, 2, 1 << 16, 256), .cells = DDP_TORCH | FSDP2, IDLE(qat), .about = "with qat: weights of a row that share a scale" },
    { "lora", "rank", INT(train.rank, 1, 1 << 16, 8), .cells = PEFT, IDLE(lora), .about = "LoraConfig's r" },
    { "lora", "rank", INT(train.rank, 1, 1 << 16, 32), .cells = MEGATRON, IDLE(lora), .about = "dim of Megatron-Bridge's LoRA" },
    { "lora", "alpha", REAL(train.alpha, 0, 1 << 30, 8), .above = true, .cells = PEFT, IDLE(lora), .about = "lora_alpha: adapters count alpha / rank" },
    { "lora", "alpha", REAL(train.alpha, 0, 1 << 30, 32), .above = true, .cells = MEGATRON, IDLE(lora), .about = "adapters count alpha / rank" },
    { "lora", "dropout", REAL(train.dropout, 0, 1, 0), .cells = TUNED, IDLE(lora), .about = "lora_dropout: on what adapters read" },
    { "lora", "autocast_adapter_dtype", BOOL(fsdp.autocast_adapter_dtype, false), .cells = FSDP2, IDLE(fsdp_packed), .label = ", adapters in fp32",
      .about = "get_peft_model()'s: adapters beside weights in 4 bits are in fp32; TRL gives false, PEFT's own default is true" },
    { "lora", "narrow", BOOL(train.narrow, false), .cells = DDP_TORCH | FSDP2, IDLE(narrow), .label = ", adapters in 16 bits",
      NOT_ACCELERATE(false), .about = "adapters in the model's 16 bits, computed without autocast: torchtune's, litgpt's and Automodel's; PEFT's are in fp32 under autocast" },
    { "lora", "qkv_parts", WORD(train.qkv_parts, parts_words, 0), .cells = DDP_TORCH | FSDP2, IDLE(fused_parts), .label = ", adapters of %s",
      NOT_ACCELERATE(0), .about = "litgpt's adapters of a layer that is q, k and v in one: A for each of these parts, B for their columns; layer: one of the whole layer, as PEFT has it" },
    { "lora", "use_dora", BOOL(train.dora, false), .cells = DDP_TORCH | FSDP2, IDLE(narrow), .label = ", DoRA",
      NOT_ACCELERATE(false), .about = "torchtune's DoRA, with lora.narrow: a magnitude for each output beside A and B, and the norm of each row of W + B A" },
    { "lora", "dropout_position", WORD(train.dropout_position, position_words, DROPOUT_PRE), .cells = DDP_TORCH | FSDP2, IDLE(lora), .label = ", dropout %s",
      NOT_ACCELERATE(DROPOUT_PRE), .about = "dropout on what adapters read (pre), as PEFT has it, or on what they add (post), as NeMo Automodel has it" },
    { "lora", "dropout_position", WORD(train.dropout_position, position_words, DROPOUT_PRE), .cells = MEGATRON, IDLE(lora),
      .about = "dropout on what adapters read (pre), or on what they add (post)" },
    { "lora", "a2a_experimental", BOOL(train.a2a_experimental, false), .cells = MEGATRON, IDLE(lora),
      .about = "row-parallel layers' adapters exchange columns for positions instead of gathering columns; with parallel.sequence" },
    { "lora", "target_modules", LIST(train.target_modules, layer_words), .cells = MEGATRON, .null = KNOB_NULL_DEFAULT, IDLE(lora),
      .about = "layers that get adapters; null: linear_qkv, linear_proj, linear_fc1, linear_fc2" },
    { "lora", "target_modules", LIST(train.target_modules, target_words), .cells = PEFT, .null = KNOB_NULL_DEFAULT, IDLE(lora),
      .about = "layers that get adapters; null: PEFT's of the family" },
    { "lora", "target_parameters", LIST(train.target_parameters, parameter_words), .cells = DDP_TORCH | FSDP2, .null = KNOB_NULL_DEFAULT, IDLE(lora),
      .about = "parameters of experts that get adapters (mlp.experts.down_proj); null: none" },
    { "lora", "modules_to_save", LIST(train.modules_to_save, module_words), .cells = PEFT, .null = KNOB_NULL_DEFAULT, IDLE(lora),
      .about = "modules of which a copy trains; null: none" },

    { "parallel", "tensor", INT(parallel.tensor, 1, 1 << 12, 1), .cells = SHARES, .ds = { .cells = DS, "tensor_parallel", "autotp_size" }, .label = ", tensor %.0f", NOT_ACCELERATE(1),
      TITAN("--parallelism.tensor-parallel-degree"), .about = "ranks that share each block's tensors" },
    { "parallel", "sequence", BOOL(parallel.sequence, true), .cells = GRID, USUAL(sequence, "true; in paper and megatron false"), IDLE(tensor),
      .say = knob_say_sequence, NOT_ACCELERATE(1), TITAN("--parallelism.enable-sequence-parallel"),
      .about = "with tensor: norms and residuals on a share of the positions" },
    { "parallel", "loss_parallel", BOOL(parallel.loss_parallel, true), .cells = GRID & ~MEGATRON, .everywhere = true, IDLE(tensor), .say = knob_say_loss_parallel,
      NOT_ACCELERATE(1), TITAN_HAS(true, "its tensor parallelism keeps logits cut"), .about = "with tensor: cross-entropy of logits that stay cut by vocabulary" },
    { "parallel", "async_tensor", BOOL(parallel.async_tensor, false), .cells = FSDP2, IDLE(tensor), .label = ", async",
      NOT_ACCELERATE(0),
      .about = "with tensor: products in parts beside their collective" },
    { "parallel", "inputs_apart", BOOL(parallel.inputs_apart, false), .cells = FSDP2, IDLE(tensor), .label = ", inputs apart",
      NOT_ACCELERATE(0), TITAN_HAS(0, "its blocks' inputs are prepared once for all layers that read them"),
      .about = "with tensor: every column-parallel layer makes a DTensor of its input by itself, as in NeMo Automodel; without sequence each adds up that "
               "input's gradient over the ranks" },
    { "parallel", "context", INT(parallel.context, 1, 1 << 11, 1), .cells = SHARES | FSDP1, .label = ", context %.0f", NOT_ACCELERATE(1),
      DS_TOP("sequence_parallel_size"),
      TITAN_HAS(1, "its context parallelism is of FlexAttention, which no plan has"), .about = "ranks that share each sample's positions" },
    { "parallel", "context_method", WORD(parallel.context_method, context_words, CONTEXT_ALL_GATHER), .cells = GRID, .everywhere = true,
      USUAL(context_method, "all-gather; in paper and megatron ring; DeepSpeed and FSDP1 have ulysses alone"), IDLE(context), .label = " %s", NOT_ACCELERATE(CONTEXT_ALL_GATHER),
      .about = "how attention sees the other ranks' positions" },
    { "parallel", "context_balance", BOOL(parallel.context_balance, true), .cells = GRID, FOLLOWS(context_balance, "true; with ulysses false"),
      IDLE(context), .say = knob_say_context_balance, NOT_ACCELERATE(1), .about = "a chunk from the sequence's begin and one from its end" },
    { "parallel", "pipeline", INT(parallel.pipeline, 1, 1 << 12, 1), .cells = SHARES, .ds = { .cells = DS, "pipeline", "stages" }, .label = ", pipeline %.0f", NOT_ACCELERATE(1),
      TITAN("--parallelism.pipeline-parallel-degree"), .about = "ranks that share the blocks; micro-steps are accumulation" },
    { "parallel", "pipeline_schedule", WORD(parallel.pipeline_schedule, pipeline_words, PIPELINE_1F1B), .cells = GRID, .everywhere = true,
      IDLE(pipeline), .label = " %s", NOT_ACCELERATE(PIPELINE_1F1B),
      TITAN("--parallelism.pipeline-parallel-schedule", titan_pipeline), .about = "the order of forwards and backwards" },
    { "parallel", "virtual_stages", INT(parallel.virtual_stages, 1, PLAN_MAX_CHUNKS, 1), .cells = GRID,
      FOLLOWS(virtual_stages, "2; gpipe and 1f1b: 1"), IDLE(pipeline), .label = ", %.0f chunks", NOT_ACCELERATE(1),
      .about = "stages of a rank" },
    { "parallel", "pipeline_flushes", INT(parallel.pipeline_flushes, 1, PLAN_MAX_BATCH, 1), .cells = FSDP2, IDLE(pipeline), .label = ", %.0f flushes",
      NOT_ACCELERATE(1), TITAN_HAS(1, "a step is one run of the schedule"),
      .about = "times that a step runs the schedule, with accumulation / pipeline_flushes micro-steps each; gradients are reduced after each" },
    { "parallel", "pipeline_reduce_last", BOOL(parallel.pipeline_reduce_last, false), .cells = FSDP2, IDLE(pipeline), .label = ", reduced after the last",
      NOT_ACCELERATE(0), TITAN_HAS(0, "stages reduce with their last backward"),
      .about = "gradients are reduced once a step, after the last run of the schedule, and gathered units stay until then" },
    { "parallel", "first_stage_less_layers", INT(parallel.first_stage_less, 0, MODEL_MAX_LAYERS, 1), .cells = GRID,
      USUAL(stage_less, "1; in paper and megatron 0"), IDLE(pipeline), .label = ", first stage -%.0f", NOT_ACCELERATE(0),
      TITAN("--parallelism.pipeline-parallel-first-stage-less-layers"), .about = "blocks fewer in place of the embedding" },
    { "parallel", "last_stage_less_layers", INT(parallel.last_stage_less, 0, MODEL_MAX_LAYERS, 1), .cells = GRID,
      USUAL(stage_less, "1; in paper and megatron 0"), IDLE(pipeline), .label = ", last stage -%.0f", NOT_ACCELERATE(0),
      TITAN("--parallelism.pipeline-parallel-last-stage-less-layers"), .about = "blocks fewer in place of the head" },
    { "parallel", "expert", INT(parallel.expert, 1, 1 << 12, 1), .cells = FSDP2 | MEGATRON | DS,
      .ds = { .cells = DS, "expert_parallel", "autoep_size" }, .label = ", expert %.0f", NOT_ACCELERATE(1),
      TITAN("--parallelism.expert-parallel-degree"), .about = "ranks that share out each block's experts: data-, context- and tensor-parallel ones" },
    { "parallel", "expert_tensor", INT(parallel.expert_tensor, 1, 1 << 12, 1), .cells = MEGATRON, .everywhere = true,
      FOLLOWS(expert_tensor, "parallel.tensor"), IDLE(whole_experts), .label = ", experts' tensor %.0f", .about = "tensor-parallel ranks that cut each expert: 1, or parallel.tensor" },
    { "parallel", "expert_imbalance", REAL(parallel.expert_imbalance, 1, 1 << 10, 1), .cells = FSDP2 | MEGATRON | DS,
      .ds = { .cells = DS, "dpx" }, IDLE(expert), .label = " x %g rows", NOT_ACCELERATE(1),
      TITAN_HAS(1, "how tokens spread over experts is no option of it"),
      .about = "with expert: rows of the busiest rank, times the mean" },

    { "dp", "gather", .type = KNOB_WORD_BOOL, AT(dp.gather_logits), .words = gather_words,
      .cells = DP_TORCH, .about = "what the model returns to device 0" },

    { "ddp", "bucket_cap_mb", REAL(ddp.bucket_cap_mb, 0, 1 << 30, -1), .above = true,
      .cells = DDP_TORCH | ZRO, NULL_IS(-1), TRIES(9, -1, 50, 100, 200), .label = ", buckets %g MiB",
      .about = "MiB; null: 25 with a first bucket of 1" },
    { "ddp", "gradient_as_bucket_view", BOOL(ddp.gradient_as_bucket_view, false),
      .cells = DDP_TORCH | ZRO, TRIES(8, false, true), .label = ", bucket view",
      .about = ".grad is a view of its bucket" },
    { "ddp", "static_graph", BOOL(ddp.static_graph, false), .cells = DDP_TORCH | ZRO,
      .about = "the graph never changes" },
    { "ddp", "find_unused_parameters", BOOL(ddp.find_unused_parameters, false),
      .cells = DDP_TORCH | ZRO, .about = "one more all-reduce; buckets are not rebuilt" },
    { "ddp", "broadcast_buffers", BOOL(ddp.broadcast_buffers, true), .cells = DDP_TORCH | ZRO,
      .about = "buffers from rank 0 at construction and at every forward" },
    { "ddp", "forward_sync_buffers", .type = KNOB_FLAG, AT(ddp.forward_sync_buffers), .def = -1,
      .cells = DDP_TORCH | ZRO, NULL_IS(-1),
      .about = "at every forward only, replaces broadcast_buffers; null: as that one says" },
    { "ddp", "parameters_as_bucket_view", BOOL(ddp.parameters_as_bucket_view, false), .cells = ZRO,
      .about = "ZeroRedundancyOptimizer broadcasts one bucket per rank" },
    { "ddp", "model_dtype", WORD(ddp.model_dtype, dtype_words, -1), .cells = DDP_TORCH | ZRO,
      NULL_IS(-1), FOLLOWS(model_dtype, "null; beside adapters of PyTorch's kernels in bf16: bf16"),
      .about = "\"bf16\": model.to(bfloat16), without autocast, with adapters frozen weights alone; null or \"fp32\": fp32" },
    { "ddp", "wrapped", BOOL(ddp.wrapped, true), .cells = DDP_TORCH, .say = knob_say_wrapped,
      .about = "false: one GPU without DistributedDataParallel, as trainers have it: no buckets" },
    { "ddp", "optimizer_in_backward", BOOL(ddp.optimizer_in_backward, false), .cells = DDP_TORCH, IDLE(wrapped), .label = ", optimizer in backward",
      .about = "each parameter is updated in backward and its gradient freed at once" },
    { "ddp", "comm_hook", WORD(ddp.comm_hook, hook_words, HOOK_NONE), .cells = DDP_TORCH | ZRO, .null = KNOB_NULL_DEFAULT,
      .label = ", %s", .about = "register_comm_hook(): gradients cross the network in 16 bits, as bytes with scales, or matrices as two narrow ones" },

    /* PowerSGDState.__init__ */
    { "ddp.PowerSGDState", "matrix_approximation_rank", INT(ddp.powersgd.rank, 1, 1 << 16, 1), .cells = DDP_TORCH | ZRO, IDLE(powersgd),
      .label = " of rank %.0f", .about = "columns of the two narrow matrices" },
    { "ddp.PowerSGDState", "start_powerSGD_iter", INT(ddp.powersgd.start, 0, ANY, 1000), .cells = DDP_TORCH | ZRO, IDLE(powersgd),
      .about = "reductions of whole buckets before the first that is compressed" },
    { "ddp.PowerSGDState", "min_compression_rate", REAL(ddp.powersgd.least_rate, 0, 1 << 30, 2), .cells = DDP_TORCH | ZRO, IDLE(powersgd),
      .about = "a tensor with less to gain is reduced as it is" },
    { "ddp.PowerSGDState", "use_error_feedback", BOOL(ddp.powersgd.error_feedback, true), .cells = DDP_TORCH | ZRO, IDLE(powersgd),
      .about = "what compression lost is added to the next step's gradients" },
    { "ddp.PowerSGDState", "warm_start", BOOL(ddp.powersgd.warm_start, true), .cells = DDP_TORCH | ZRO, IDLE(powersgd),
      .about = "the narrow matrices stay from step to step" },

    { "fsdp", "reshard_after_forward", .type = KNOB_RESHARD, AT(fsdp.reshard_after_forward),
      .lo = 2, .hi = SIZE_LIMIT, .def = -1, .cells = FSDP2, NULL_IS(-1), TRY(7, reshard), .say = knob_say_reshard,
      FOLLOWS(reshard, "true; under a pipeline false"),
      FSDP_KEY("fsdp_reshard_after_forward", .lacks = "accelerate takes true or false, not ranks"),
      TITAN("--parallelism.fsdp-reshard-after-forward"),
      .about = "null or true: units are freed after forward; false, or ranks to reshard to" },
    { "fsdp", "root_reshard_after_forward", .type = KNOB_RESHARD, AT(fsdp.root_reshard_after_forward),
      .lo = 2, .hi = SIZE_LIMIT, .def = -1, .cells = FSDP2, NULL_IS(-1),
      ACCELERATE_HAS(-1, "accelerate leaves the root at null"),
      .about = "the same for the root's own call, or where it is taken apart for the unit of the head; null: it keeps its parameters" },
    { "fsdp", "root_units", WORD(fsdp.root_units, root_words, ROOT_TOGETHER), .cells = FSDP2, .label = ", root %s",
      .about = "units of embedding, last norm and head: the root has all (together), the embedding is one and norm with head another (apart), embedding and head without the norm (embed-head), or the embedding alone (embed)" },
    { "fsdp", "keeps_last_unit", BOOL(fsdp.keeps_last_unit, false), .cells = FSDP2, IDLE(all_kept), .label = ", last unit kept",
      ACCELERATE_HAS(false, "it reshards all blocks alike"), TITAN_HAS(false, "it reshards all blocks alike"),
      .about = "where units are freed after forward, the last one of a chunk is not, as backward begins with it (NeMo Automodel)" },
    { "fsdp", "ignores_experts", BOOL(fsdp.ignores_experts, false), .cells = FSDP2, IDLE(experts_shared), .label = ", experts outside of units",
      ACCELERATE_HAS(false, "it shares out no experts"), TITAN_HAS(false, "its experts are always in FSDP's units"),
      .about = "experts that a rank has alone are no parameters of FSDP's: no copy is gathered, gradients are as autograd leaves them (NeMo Automodel)" },
    { "fsdp", "wrap_adapters", BOOL(fsdp.wrap_adapters, false), .cells = FSDP1, IDLE(lora), .label = ", wrapped adapters",
      FOLLOWS(wrap_adapters, "false; of PyTorch's kernels in bf16: true"),
      .about = "PEFT's fsdp_auto_wrap_policy, which transformers' Trainer takes: each lora_A and lora_B is a unit beside its block's" },
    { "fsdp", "model_dtype", WORD(fsdp.model_dtype, dtype_words, -1), .cells = FSDP1 | FSDP2, NULL_IS(-1),
      FOLLOWS(model_dtype, "null; beside adapters of PyTorch's kernels in bf16: bf16"),
      ACCELERATE_HAS(-1, "accelerate makes all that trains fp32"), TITAN_HAS(-1, "its training.dtype is another thing"),
      .about = "\"bf16\": parameters, gradients and states in bf16, with adapters frozen weights alone; null or \"fp32\": fp32" },
    { "fsdp", "cpu_offload", BOOL(fsdp.cpu_offload, false), .cells = FSDP1 | FSDP2, TRIES(20, false, true), .label = ", CPU offload",
      FSDP_KEY("fsdp_offload_params"), TITAN("--training.enable-cpu-offload"),
      .about = "sharded parameters, gradients and optimizer states are the host's, and its AdamW" },
    { "fsdp", "pin_memory", BOOL(fsdp.pin_memory, true), .cells = FSDP2, IDLE(away),
      ACCELERATE_HAS(true, "accelerate's CPUOffloadPolicy() pins"), TITAN_HAS(true, "its CPUOffloadPolicy() pins"),
      .about = "CPUOffloadPolicy's: parameters and gradients are page-locked" },
    { "fsdp", "reads_positions", BOOL(fsdp.reads_positions, false), .cells = FSDP2, OURS, .label = ", positions read back",
      ACCELERATE_HAS(false, "its Trainer reads no positions"), TITAN_HAS(false, "its loop reads no positions"),
      .about = "the training loop reads each token's position back from the GPU, one by one, between forward and backward: prime-rl's RL trainer until 14 June 2026 (get_response_lengths())" },
    { "fsdp", "grouped_experts", BOOL(fsdp.grouped_experts, false), .cells = FSDP2, IDLE(whole_mixture), .label = ", torchtitan's experts",
      ACCELERATE_HAS(false, "its models are transformers'"), TITAN_HAS(false, "its experts are torchtitan's where parallel.expert is over 1"),
      .about = "experts that no rank shares are torchtitan's MoE module, as prime-rl has it: scores in fp32 behind the experts, rows added up by atomics; adapters of their products" },
    { "fsdp", "optimizer_offload", BOOL(fsdp.optimizer_offload, false), .cells = FSDP2, .label = ", states on the host",
      ACCELERATE_HAS(false, "it is prime-rl's"), TITAN_HAS(false, "it is prime-rl's"),
      .about = "optimizer states wait in page-locked host memory but in the optimizer's step (prime-rl's optim_cpu_offload)" },
    { "fsdp", "enable_fsdp_float8_all_gather", BOOL(fsdp.float8_all_gather, false), .cells = FSDP2, IDLE(float8), .label = ", fp8 gathers",
      ACCELERATE_HAS(false, "it has no such gathers"), TITAN_HAS(false, "its float8 linear layers have been rowwise since 0.2.2, and gather in 16 bits"),
      .about = "float8 weights are cast before they are gathered: a byte each, and their largest values are all-reduced" },
    { "fsdp", "precompute_float8_dynamic_scale_for_fsdp", BOOL(fsdp.float8_precomputed, false), .cells = FSDP2, IDLE(float8_gather),
      .label = " precomputed", ACCELERATE_HAS(false, "it has no such gathers"), TITAN_HAS(false, "as enable_fsdp_float8_all_gather"),
      .about = "one all-reduce of all largest values behind the optimizer, none in gathers" },
    { "fsdp", "sharding_strategy", WORD(fsdp.sharding_strategy, sharding_words, FSDP1_FULL_SHARD),
      .cells = FSDP1, TRY(5, sharding), .say = knob_say_sharding,
      FSDP_KEY("fsdp_sharding_strategy", accelerate_sharding), .about = "FSDP1's ShardingStrategy" },
    /* accelerate launch passes none where the file is silent, and use_orig_params. */
    { "fsdp", "backward_prefetch", WORD(fsdp.backward_prefetch, prefetch_words, PREFETCH_PRE),
      .cells = FSDP1, NULL_IS(PREFETCH_NONE), TRY(7, prefetch), .say = knob_say_no_prefetch,
      FSDP_KEY("fsdp_backward_prefetch", .silent = true, .absent = PREFETCH_NONE),
      .about = "BackwardPrefetch; null: none" },
    { "fsdp", "forward_prefetch", BOOL(fsdp.forward_prefetch, false), .cells = FSDP1, .label = ", forward prefetch",
      FSDP_KEY("fsdp_forward_prefetch"), .about = "gather the next unit before computing this one" },
    { "fsdp", "limit_all_gathers", BOOL(fsdp.limit_all_gathers, true), .cells = FSDP1,
      ACCELERATE_HAS(true, "accelerate's config always limits them"),
      .about = "the issuing thread waits: at most two units in flight" },
    { "fsdp", "use_orig_params", BOOL(fsdp.use_orig_params, false), .cells = FSDP1,
      FOLLOWS(orig_params, "false; where not everything trains: true"),
      FSDP_KEY("fsdp_use_orig_params", .silent = true, .absent = true),
      .about = "aligns every parameter in its FlatParameter" },

    { "megatron", "overlap_grad_reduce", BOOL(megatron.overlap_grad_reduce, false), .cells = MEGATRON, TRIES(8, false, true),
      .label = ", overlap_grad_reduce", .about = "gradient buckets are reduced beside the last backward" },
    { "megatron", "overlap_param_gather", BOOL(megatron.overlap_param_gather, false), .cells = M_ZERO1, TRY(9, param_gather),
      .label = ", overlap_param_gather", .about = "buckets of parameters are gathered beside the next forward" },
    { "megatron", "ddp_bucket_size", INT(megatron.ddp_bucket_size, 1, (int64_t)1 << 50, 40000000), .cells = MEGATRON, .null = KNOB_NULL_DEFAULT,
      FOLLOWS(bucket_size, "4e7, or 1e6 for each data-parallel rank where that is more"), .label = ", bucket %g",
      .about = "elements of a bucket on the pipeline's first rank, with overlap_grad_reduce" },
    { "megatron", "ddp_average_in_collective", BOOL(megatron.ddp_average_in_collective, false), .cells = MEGATRON,
      .about = "the collective averages, not a pass over gradients before it" },
    { "megatron", "ddp_pad_buckets_for_high_nccl_busbw", BOOL(megatron.ddp_pad_buckets_for_high_nccl_busbw, false), .cells = M_ZERO1,
      .about = "buckets are filled up to a multiple of 65536 elements" },
    { "megatron", "gradient_accumulation_fusion", BOOL(megatron.gradient_accumulation_fusion, true), .cells = MEGATRON,
      .about = "products add weights' gradients to main_grad; false: each is a tensor first" },
    { "megatron", "bias_swiglu_fusion", BOOL(megatron.bias_swiglu_fusion, true), .cells = MEGATRON,
      .about = "of a gated MLP: activation and product are one kernel; false: silu's result is kept beside its input" },
    { "megatron", "apply_rope_fusion", BOOL(megatron.apply_rope_fusion, true), .cells = MEGATRON, IDLE(no_latent),
      .about = "latent attention's rotary positions are one kernel of queries, one of keys and values; false: single operations" },
    { "megatron", "scale_logits", BOOL(megatron.scale_logits, false), .cells = MEGATRON,
      .about = "a kernel multiplies the logits before the loss, and their gradient behind it, as --use-mup does" },
    { "megatron", "logprob_chunk_size", INT(megatron.logprob_chunk_size, 0, 1 << 30, 0), .cells = MEGATRON, IDLE(no_chunks), .label = " of %.0f",
      .about = "with loss distributed-logprob-late: positions whose logits are cast to fp32 at once (policy.logprob_chunk_size of NeMo-RL); 0: all" },
    { "megatron", "check_for_nan_in_loss_and_grad", BOOL(megatron.check_for_nan_in_loss_and_grad, true), .cells = MEGATRON,
      .about = "each bucket's norm is read by the host before it is reduced" },
    { "megatron", "tp_comm_overlap", BOOL(megatron.tp_comm_overlap, false), .cells = MEGATRON, IDLE(tensor), .label = ", tp_comm_overlap",
      .about = "with tensor and sequence: products in parts beside their gather or scatter, by Transformer Engine's userbuffers" },
    { "megatron", "overlap_p2p_comm", BOOL(megatron.overlap_p2p_comm, true), .cells = MEGATRON, IDLE(interleaved),
      .about = "an interleaved pipeline's messages beside compute" },
    { "megatron", "defer_embedding_wgrad_compute", BOOL(megatron.defer_embedding_wgrad_compute, false), .cells = MEGATRON, IDLE(pipeline),
      .label = ", head's wgrad deferred",
      .about = "the output layer's weight gradients are computed behind the last backward, and what they are made of waits until then" },
    { "megatron", "wgrad_deferral_limit", INT(megatron.wgrad_deferral_limit, 0, PLAN_MAX_BATCH, 0), .cells = MEGATRON, IDLE(undeferred),
      .label = " (%.0f)", .about = "with defer_embedding_wgrad_compute: those of the first so many micro-steps; 0: of all" },
    { "megatron", "microbatch_group_size_per_vp_stage", INT(megatron.microbatch_group_size_per_vp_stage, 1, PLAN_MAX_BATCH, 1),
      .cells = MEGATRON, .null = KNOB_NULL_DEFAULT, FOLLOWS(microbatch_group, "parallel.pipeline"), IDLE(interleaved),
      .about = "micro-steps that go through a chunk before the next one's turn" },
    { "megatron", "make_vocab_size_divisible_by", INT(megatron.make_vocab_size_divisible_by, 1, 1 << 20, 128), .cells = MEGATRON,
      .about = "the vocabulary is filled up to a multiple of this for each tensor-parallel rank" },
    { "megatron", "attention_backend", WORD(megatron.attention_backend, backend_words, BACKEND_AUTO), .cells = MEGATRON, .label = ", %s attention",
      .about = "whose kernel Transformer Engine takes: flash, flash-attn's; fused, cuDNN's; unfused, single products and a softmax; auto, cuDNN's from Hopper on" },
    { "megatron", "fp8_format", WORD(megatron.fp8_format, fp8_words, FP8_OFF), .cells = MEGATRON, .null = KNOB_NULL_DEFAULT, .label = ", fp8 %s",
      .about = "8-bit floats in the products of linear layers, by Transformer Engine; hybrid: gradients in e5m2" },
    { "megatron", "fp8_recipe", WORD(megatron.fp8_recipe, scaling_words, FP8_DELAYED), .cells = MEGATRON, IDLE(fp8), .label = " %s",
      .about = "scales: of a tensor, from steps before (delayed) or at once (tensorwise); blockwise of 128 numbers; mxfp8 of 32" },
    { "megatron", "fp8_param_gather", BOOL(megatron.fp8_param_gather, false), .cells = M_ZERO1, IDLE(fp8), .label = ", fp8_param_gather",
      .about = "parameters of linear layers are kept and gathered in 8 bits" },
    { "megatron", "reuse_grad_buf_for_mxfp8_param_ag", BOOL(megatron.reuse_grad_buf_for_mxfp8_param_ag, false), .cells = M_ZERO1, IDLE(mxfp8),
      .about = "with fp8_param_gather: parameters are gathered in 16 bits, into the gradients' buffer" },
    { "megatron", "tp_only_amax_red", BOOL(megatron.tp_only_amax_red, false), .cells = MEGATRON, IDLE(delayed),
      .about = "largest numbers are reduced over tensor-parallel ranks alone" },
    { "megatron", "fp8_amax_history_len", INT(megatron.fp8_amax_history_len, 1, 1 << 20, 1), .cells = MEGATRON, IDLE(delayed),
      .about = "steps whose largest numbers are kept" },
    { "megatron", "first_last_layers_bf16", BOOL(megatron.first_last_layers_bf16, false), .cells = MEGATRON, IDLE(scaled), .label = ", ends in bf16",
      .about = "the first and the last layers stay in 16 bits" },
    { "megatron", "num_layers_at_start_in_bf16", INT(megatron.num_layers_at_start_in_bf16, 0, 4096, 1), .cells = MEGATRON, IDLE(ends_bf16),
      .about = "so many, with first_last_layers_bf16" },
    { "megatron", "num_layers_at_end_in_bf16", INT(megatron.num_layers_at_end_in_bf16, 0, 4096, 1), .cells = MEGATRON, IDLE(ends_bf16),
      .about = "so many, with first_last_layers_bf16" },
    { "megatron", "fp4_format", WORD(megatron.fp4_format, fp4_words, FP4_OFF), .cells = MEGATRON, .null = KNOB_NULL_DEFAULT, .label = ", fp4 %s",
      .about = "4-bit floats (NVFP4) in the products of linear layers, by Transformer Engine" },
    { "megatron", "hierarchical_a2a_ranks", INT(megatron.a2a_ranks, 1, 1 << 11, 1), .cells = MEGATRON, IDLE(context), .label = ", a2a of %.0f",
      .about = "the first of --hierarchical-context-parallel-sizes: runs of so many ranks exchange heads, keys go round the runs (a2a+p2p)" },
    { "megatron", "calculate_per_token_loss", BOOL(megatron.calculate_per_token_loss, false), .cells = MEGATRON,
      .about = "gradients are divided by the tokens of the whole batch, which ranks add up and the host reads" },
    { "megatron", "moe_expert_capacity_factor", REAL(megatron.moe_expert_capacity_factor, 0, 1 << 10, -1), .above = true, .cells = MEGATRON,
      NULL_IS(-1), IDLE(no_experts), .label = ", capacity x %g",
      .about = "rows an expert takes at most of one rank, times the mean; the others are dropped; null: all" },
    { "megatron", "moe_pad_expert_input_to_capacity", BOOL(megatron.moe_pad_expert_input_to_capacity, false), .cells = MEGATRON, IDLE(capacity),
      .label = ", padded", .about = "every expert gets its capacity of rows from every rank: no numbers are exchanged, no host waits" },
    { "megatron", "moe_aux_loss_coeff", REAL(megatron.moe_aux_loss_coeff, 0, 1 << 10, 0), .cells = MEGATRON, IDLE(no_experts),
      .about = "above 0: a loss balances experts: scores of all of them, and tokens that are counted over ranks, in each layer" },
    { "megatron", "moe_router_load_balancing_type", WORD(megatron.moe_router_load_balancing_type, balance_words, BALANCE_AUX_LOSS), .cells = MEGATRON,
      IDLE(balance), .about = "what the loss balances over: a micro-batch (aux_loss), or each sample (seq_aux_loss)" },
    { "megatron", "moe_router_padding_for_quantization", BOOL(megatron.moe_router_padding_for_quantization, false), .cells = MEGATRON,
      IDLE(expert_codes), .label = ", router padding",
      .about = "in 8 bits routers give each expert more tokens, up to a multiple of 16 (mxfp8: 32), and no rows are copied among zeros" },
    { "megatron", "moe_permute_fusion", BOOL(megatron.moe_permute_fusion, false), .cells = MEGATRON, IDLE(no_experts), .label = ", permute fusion",
      .about = "rows go to experts and back by Transformer Engine's fused kernels, which keep a map of rows for backward" },
    { "megatron", "recompute_num_layers", INT(megatron.recompute_num_layers, 0, MODEL_MAX_LAYERS, 0), .cells = MEGATRON, IDLE(full),
      .label = " of %.0f a chunk", .about = "--recompute-method block: the first so many blocks of each chunk; 0: all, one by one (uniform, 1)" },
    { "megatron", "mtp_num_layers", INT(megatron.mtp_num_layers, 0, 16, 0), .cells = MEGATRON, .null = KNOB_NULL_DEFAULT, .label = ", %.0f MTP",
      .about = "depths of multi-token prediction: a layer more on the last stage, which predicts the token after the next" },
    { "megatron", "recompute_modules", LIST(megatron.recompute_modules, again_words), .cells = MEGATRON, IDLE(selective),
      .about = "recompute selective: core_attn, mlp, layernorm, moe, moe_act, shared_experts, mla_up_proj" },
    { "megatron", "cuda_graph_impl", WORD(megatron.cuda_graph_impl, graph_words, GRAPHS_NONE), .cells = MEGATRON, .say = knob_say_graphs,
      .about = "forward and backward of layers are captured once and replayed: by Megatron-core (local) or by Transformer Engine" },
    { "megatron", "cuda_graph_scope", LIST(megatron.cuda_graph_scope, scope_words), .cells = MEGATRON, .null = KNOB_NULL_DEFAULT, IDLE(graphs),
      .about = "what of a layer: attn, mlp, moe, moe_router, moe_preprocess, mamba; null: all of it; full_iteration: a step's passes as one graph" },
    { "megatron", "use_precision_aware_optimizer", BOOL(megatron.use_precision_aware_optimizer, false), .cells = M_ZERO1,
      .label = ", precision-aware", .about = "FusedAdam keeps the fp32 parameters, reads gradients as they are, and its states have the formats that follow" },
    { "megatron", "main_params_dtype", WORD(megatron.main_params_dtype, main_words, MAIN_FP32), .cells = M_ZERO1, IDLE(whole_states),
      .label = ", %s parameters", .about = "with use_precision_aware_optimizer: what parameters are updated in" },
    { "megatron", "exp_avg_dtype", WORD(megatron.exp_avg_dtype, adam_words, ADAM_FP32), .cells = M_ZERO1, IDLE(whole_states),
      .label = ", exp_avg %s", .about = "with use_precision_aware_optimizer: Adam's mean of gradients" },
    { "megatron", "exp_avg_sq_dtype", WORD(megatron.exp_avg_sq_dtype, adam_words, ADAM_FP32), .cells = M_ZERO1, IDLE(whole_states),
      .label = ", exp_avg_sq %s", .about = "with use_precision_aware_optimizer: Adam's mean of their squares" },
    { "megatron", "store_param_remainders", BOOL(megatron.store_param_remainders, true), .cells = M_ZERO1, IDLE(whole_states),
      .about = "with use_precision_aware_optimizer: of fp32 parameters the 16 bits are kept that the bf16 ones lack" },
    { "megatron", "pipeline_model_parallel_layout", TEXT(megatron.pipeline_layout, a_layout), .cells = MEGATRON, NULL_IS(0), IDLE(pipeline), .say = knob_say_layout,
      .about = "blocks of each stage, such as \"Et*7|(t*8|)*14t*7L\"; null: even parts" },

    { "environment", "PYTORCH_ALLOC_CONF", TEXT(environment.alloc_conf, a_conf), .cells = ALL & ~PAPER, NULL_IS(0), IDLE(no_alloc_conf), .say = knob_say_alloc_conf,
      .about = "options of PyTorch's allocator, such as expandable_segments:True; PYTORCH_CUDA_ALLOC_CONF is its older name" },
    { "environment", "CUBLAS_WORKSPACE_CONFIG", TEXT(environment.cublas_workspace, a_workspace), .cells = ALL & ~PAPER, NULL_IS(0),
      IDLE(no_workspace), .about = "a cuBLAS handle's workspace, such as :4096:8; null: PyTorch's (32 MiB from Hopper on)" },
    { "environment", "CUDA_DEVICE_MAX_CONNECTIONS", INT(environment.max_connections, 0, 32, 0), .cells = ALL & ~PAPER, NULL_IS(0), IDLE(no_connections),
      .about = "hardware queues of a process: Megatron-LM wants 1 beside tensor or context parallelism before Blackwell; null: as the framework asks" },
    { "environment", "NCCL_NVLS_ENABLE", WORD(cluster.nccl.nvls, nvls_words, NVLS_AUTO), .cells = ALL, .null = KNOB_NULL_DEFAULT, IDLE(no_nvls),
      .label = ", NCCL_NVLS_ENABLE=%s", .about = "0: collectives without NVLink SHARP, and none of its buffers" },
    { "environment", "NCCL_BUFFSIZE", INT(cluster.nccl.buffsize, 0, (int64_t)1 << 30, 0), .cells = ALL, NULL_IS(0), IDLE(no_buffsize),
      .about = "bytes of a buffer of the Simple protocol, one a connection; null: 4 MiB" },

    { "deepspeed", "reduce_bucket_size", INT(ds.reduce_bucket_size, 1, (int64_t)1 << 50, 5e8), .cells = DS123, ZERO,
      .ds_auto = knob_auto_reduce_bucket, TRIES(8, 5e8, 5e7), .label = ", bucket %g",
      .about = "elements of the gradient bucket" },
    { "deepspeed", "allgather_bucket_size", INT(ds.allgather_bucket_size, 0, ANY, 5e8), .cells = DS12, ZERO,
      .about = "elements; used only where torch lacks all_gather_into_tensor" },
    { "deepspeed", "overlap_comm", .type = KNOB_FLAG, AT(ds.overlap_comm), .def = 0, .cells = DS12, ZERO,
      .null = KNOB_NULL_DEFAULT, TRIES(9, false, true), .label = ", overlap_comm",
      .about = "reduce on a stream of its own" },
    { "deepspeed", "overlap_comm", .type = KNOB_FLAG, AT(ds.overlap_comm), .def = 1, .cells = DS3, ZERO, .label = ", no overlap_comm",
      .null = KNOB_NULL_DEFAULT, .about = "reduce on a stream of its own" },
    { "deepspeed", "reduce_scatter", BOOL(ds.reduce_scatter, true), .cells = DS123, ZERO,
      .about = "each rank keeps its slices" },
    { "deepspeed", "use_multi_rank_bucket_allreduce", BOOL(ds.use_multi_rank_bucket_allreduce, true),
      .cells = DS12, ZERO, .about = "one all-reduce a bucket instead of a reduce per owner" },
    { "deepspeed", "contiguous_gradients", BOOL(ds.contiguous_gradients, true), .cells = DS123, ZERO,
      .about = "gradients are copied into one buffer" },
    { "deepspeed", "round_robin_gradients", BOOL(ds.round_robin_gradients, false), .cells = DS12, ZERO,
      .about = "spreads gradients over the ranks" },
    { "deepspeed", "sub_group_size", INT(ds.sub_group_size, 0, ANY, 1e9), .cells = DS3, ZERO,
      .about = "partition elements the optimizer takes at a time" },
    { "deepspeed", "stage3_prefetch_bucket_size", INT(ds.stage3_prefetch_bucket_size, 0, ANY, 5e7),
      .cells = DS3, ZERO, .ds_auto = knob_auto_prefetch_bucket, .about = "elements fetched ahead at a time" },
    { "deepspeed", "stage3_param_persistence_threshold", INT(ds.stage3_param_persistence_threshold, 0, ANY, 1e5),
      .cells = DS3, ZERO, .ds_auto = knob_auto_persistence, .about = "smaller parameters stay gathered" },
    { "deepspeed", "stage3_model_persistence_threshold",
      INT(ds.stage3_model_persistence_threshold, 0, ANY, (double)INT64_MAX), .cells = DS3, ZERO,
      .about = "elements that may stay gathered in all" },
    { "deepspeed", "stage3_max_live_parameters", INT(ds.stage3_max_live_parameters, 0, ANY, 1e9), .cells = DS3, ZERO,
      TRY(9, live), .about = "elements beyond which nothing is prefetched" },
    { "deepspeed", "stage3_max_reuse_distance", INT(ds.stage3_max_reuse_distance, 0, ANY, 1e9), .cells = DS3, ZERO,
      .label = ", reuse %g", .about = "elements: a parameter used again sooner is kept" },
    { "deepspeed", "stage3_use_all_reduce_for_fetch_params", BOOL(ds.stage3_use_all_reduce_for_fetch_params, false),
      .cells = DS3, ZERO, .about = "several parameters are fetched by all-reduce of a zeroed buffer" },
    { "deepspeed", "stage3_allgather_sequential", BOOL(ds.stage3_allgather_sequential, false), .cells = DS3, ZERO,
      .about = "parameters are gathered one by one" },
    { "deepspeed", "zero_init", BOOL(ds.zero_init, false), .cells = DS3, OURS, ACCELERATE_DS("zero3_init_flag"),
      .about = "built under zero.Init, as from_pretrained() of transformers' recipes; false: whole on every rank at first, if a GPU holds it" },
    { "deepspeed", "decay_groups", BOOL(ds.decay_groups, false), .cells = DS123, OURS,
      .label = ", two parameter groups",
      .about = "the optimizer has two parameter groups, what decays and what does not (norms, biases), as transformers' Trainer makes them; "
               "not where ds_config has an optimizer" },
    { "deepspeed", "zero_hpz_partition_size", INT(ds.zero_hpz_partition_size, 1, ANY, 1), .cells = DS3, ZERO,
      TRY(10, hpz), .label = ", hpZ %g", .about = "ZeRO++: ranks that keep a second copy of the parameters, of which they gather; 1: none" },
    { "deepspeed", "zero_quantized_weights", BOOL(ds.zero_quantized_weights, false), .cells = DS3, ZERO, .label = ", qwZ",
      .about = "ZeRO++: parameters are gathered in int8, which rounds them" },
    { "deepspeed", "zero_quantized_gradients", BOOL(ds.zero_quantized_gradients, false), .cells = DS3, ZERO, .label = ", qgZ",
      .about = "ZeRO++: gradients are reduced in int4, in the node and then across nodes, which rounds them" },
    { "deepspeed", "zero_quantized_nontrainable_weights", BOOL(ds.zero_quantized_nontrainable_weights, false), .cells = DS3, ZERO,
      .label = ", frozen int8", .about = "refused where anything is frozen: DeepSpeed 0.19 loses such weights; else it does nothing" },
    { "deepspeed", "grad_accum_dtype", .type = KNOB_GRAD_ACCUM, AT(ds.grad_accum_fp32), .words = dtype_words,
      .cells = DS123, NULL_IS(0), .ds = { .cells = DS, "data_types" },
      .about = "null: the model's; stage 2 has it from 0.19.8 on" },
    { "deepspeed", "check_grad_overflow", BOOL(ds.check_grad_overflow, true), .cells = DS12, .ds = { .cells = DS, "bf16" },
      USUAL(check_overflow, "true; of bf16 false up to DeepSpeed 0.16"), .everywhere = true,
      .about = "bf16: look for overflow before the step" },
    { "deepspeed", "compute_grad_norm", BOOL(ds.compute_grad_norm, true), .cells = DS12, ZERO,
      .about = "0.19.8: false: no gradient norm, which clipping needs" },
    { "deepspeed", "communication_data_type", WORD(ds.communication_dtype, dtype_words, -1),
      .cells = DS, NULL_IS(-1), .ds = { .cells = DS, "" }, .about = "null: the model's" },
    { "deepspeed", "partition_method", WORD(ds.partition_method, partition_words, PARTITION_PARAMETERS), .cells = DS0 | DS1, IDLE(pipeline),
      .ds = { .cells = DS, "pipeline", "partition" }, .label = ", by %s",
      .about = "what PipelineModule balances over its stages; \"type:block\" is its \"type:\" with the class of the blocks" },
    { "deepspeed", "moe_layer", WORD(ds.moe_layer, moe_words, MOE_AUTOEP), .cells = DS0 | DS12, IDLE(expert),
      .label = ", %s layers",
      .about = "with expert: AutoEP, or deepspeed.moe.layer.MoE in the model's code, whose experts take a capacity of rows each" },
    { "deepspeed", "moe_capacity_factor", REAL(ds.moe_capacity_factor, 0, 1 << 10, 1), .above = true, .cells = DS0 | DS12,
      IDLE(native_capacity), .label = ", capacity x %g",
      .about = "MoE's capacity_factor: rows that an expert takes of one rank, times the mean" },
    { "deepspeed", "moe_min_capacity", INT(ds.moe_min_capacity, 0, 1 << 30, 4), .cells = DS0 | DS12,
      IDLE(native_capacity), .label = ", %.0f rows at least", .about = "MoE's min_capacity: rows that it takes at least" },
    { "deepspeed", "moe_drop_tokens", BOOL(ds.moe_drop_tokens, true), .cells = DS0 | DS12, IDLE(native_moe),
      .label = ", no token dropped",
      .about = "MoE's drop_tokens: false: the capacity is the busiest expert's rows, which ranks agree on in every layer" },
    { "deepspeed", "gradient_predivide_factor", REAL(ds.prescale, 0, 1 << 30, 1), .above = true,
      .cells = DS, .ds = { .cells = DS, "" }, .about = "gradients are divided by it before the reduction" },

    /* runtime/zero/offload_config.py, runtime/swap_tensor/constants.py: alike in 0.19.6 and 0.19.8. */
    { "deepspeed.offload_optimizer", "device", WORD(ds.offload_optimizer.device, device_words, OFFLOAD_NONE),
      .cells = DS123 | P_OFFLOAD, IN_OPTIMIZER, IDLE(optimizer), TRY(20, ds_optimizer), .label = ", optimizer on %s",
      ACCELERATE_DS("offload_optimizer_device"),
      .about = "where optimizer states are; stages 1 and 2 take nvme for cpu" },
    { "deepspeed.offload_optimizer", "pin_memory", BOOL(ds.offload_optimizer.pin_memory, true), .cells = DS123,
      IN_OPTIMIZER, IDLE(optimizer), .label = ", optimizer not pinned", .about = "in page-locked memory" },
    { "deepspeed.offload_optimizer", "ratio", REAL(ds.offload_optimizer.ratio, 0, 1, 1), .cells = DS3, IN_OPTIMIZER,
      IDLE(optimizer), .label = ", ratio %g", .about = "Twin-Flow: share of the sub-groups whose states are offloaded" },
    { "deepspeed.offload_optimizer", "nvme_path", TEXT(ds.offload_optimizer.nvme_path, a_path), .cells = DS3, NULL_IS(0),
      IN_OPTIMIZER, IDLE(optimizer_disk), .about = "folder of the states' files, which DeepSpeed needs" },
    { "deepspeed.offload_optimizer", "buffer_count", INT(ds.offload_optimizer.buffer_count, 0, ANY, 4), .cells = DS3,
      IN_OPTIMIZER, IDLE(optimizer_disk), .label = ", %.0f buffers", .about = "host buffers of the largest sub-group" },
    { "deepspeed.offload_optimizer", "pipeline_read", BOOL(ds.offload_optimizer.pipeline_read, false), .cells = DS3,
      IN_OPTIMIZER, IDLE(optimizer_disk), .label = ", pipelined reads", .about = "read the next sub-group during the step" },
    { "deepspeed.offload_optimizer", "pipeline_write", BOOL(ds.offload_optimizer.pipeline_write, false), .cells = DS3,
      IN_OPTIMIZER, IDLE(optimizer_disk), .label = ", pipelined writes", .about = "write the last sub-group during the step" },
    { "deepspeed.offload_optimizer", "fast_init", BOOL(ds.offload_optimizer.fast_init, false), .cells = DS3,
      IN_OPTIMIZER, IDLE(optimizer_disk), .about = "masters are initialised through the host buffers" },

    { "deepspeed.offload_param", "device", WORD(ds.offload_param.device, device_words, OFFLOAD_NONE),
      .cells = DS3 | P_ZERO3 | P_FSDP,
      IN_PARAM, IDLE(param), TRY(21, ds_param), .label = ", parameters on %s",
      ACCELERATE_DS("offload_param_device"),
      .about = "where partitions of parameters are" },
    { "deepspeed.offload_param", "pin_memory", BOOL(ds.offload_param.pin_memory, true), .cells = DS3,
      IN_PARAM, IDLE(param), .label = ", parameters not pinned", .about = "in page-locked memory" },
    { "deepspeed.offload_param", "nvme_path", TEXT(ds.offload_param.nvme_path, a_path), .cells = DS3, NULL_IS(0),
      IN_PARAM, IDLE(param_disk), .about = "folder of the parameters' files, which DeepSpeed needs" },
    { "deepspeed.offload_param", "buffer_count", INT(ds.offload_param.buffer_count, 0, ANY, 5), .cells = DS3,
      IN_PARAM, IDLE(param_disk), .about = "host buffers, one for a partition in flight" },
    { "deepspeed.offload_param", "buffer_size", INT(ds.offload_param.buffer_size, 0, ANY, 1e8), .cells = DS3,
      IN_PARAM, IDLE(param_disk), .about = "elements of such a buffer: the largest partition must fit" },
    { "deepspeed.offload_param", "max_in_cpu", INT(ds.offload_param.max_in_cpu, 0, ANY, 1e9), .cells = DS3,
      IN_PARAM, IDLE(param_disk), .about = "elements that stay in host memory all the same" },

    { "deepspeed.aio", "block_size", INT(ds.aio.block_size, 1, ANY, 1 << 20), .cells = DS3, IN_AIO, IDLE(disk),
      .about = "bytes of one request to a disk" },
    { "deepspeed.aio", "queue_depth", INT(ds.aio.queue_depth, 1, 1 << 20, 8), .cells = DS3, IN_AIO, IDLE(disk),
      .about = "requests in flight" },
    { "deepspeed.aio", "intra_op_parallelism", INT(ds.aio.intra_op_parallelism, 1, 1 << 10, 1), .cells = DS3, IN_AIO,
      IDLE(disk), .about = "threads that share one read or write" },
    { "deepspeed.aio", "single_submit", BOOL(ds.aio.single_submit, false), .cells = DS3, IN_AIO, IDLE(disk),
      .about = "requests are submitted one by one" },
    { "deepspeed.aio", "overlap_events", BOOL(ds.aio.overlap_events, true), .cells = DS3, IN_AIO, IDLE(disk),
      .about = "requests are submitted while others complete" },
    { "deepspeed.aio", "use_gds", BOOL(ds.aio.use_gds, false), .cells = DS3, IN_AIO, IDLE(disk),
      .about = "GPUDirect Storage: the parameters' buffers are on the GPU" },
};

_Static_assert(sizeof rows / sizeof *rows <= PLAN_MAX_KNOBS, "struct plan_stated has a bit for each row");

enum { ROWS = sizeof rows / sizeof *rows };

const struct knob *knob_at(int i)
{
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}
