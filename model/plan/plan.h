/* plan.h -- one candidate: a model, a cluster, a strategy and all its options.
 *
 *     struct plan p;
 *     if (plan_read("plan.json", &p) < 0)
 *         return 2;
 *     ... lower(&p, rank, &schedules) ...
 *     plan_free(&p);
 *
 * A plan that plan_read() or plan_check() accepted is complete: every option
 * has a value, the dialect's default where the file said nothing, and the
 * lowering need not check again.  Options keep their framework's names and
 * units. */
#ifndef DPX_PLAN_H
#define DPX_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "model/arch/transformer.h"
#include "model/cluster/cluster.h"
#include "model/plan/comm_hook.h"
#include "model/plan/pipeline.h"

enum strategy { STRAT_DP, STRAT_DDP, STRAT_ZERO1, STRAT_ZERO2, STRAT_ZERO3, STRAT_FSDP, NSTRATEGY };
enum dialect  { DIALECT_PAPER, DIALECT_TORCH, DIALECT_TORCH_FSDP1, DIALECT_DEEPSPEED, DIALECT_MEGATRON, NDIALECT };
enum kernel_set  { KERNELS_DPX, KERNELS_TORCH_EAGER, KERNELS_TORCH_SDPA, KERNELS_TORCH_COMPILE,
                   KERNELS_TE, KERNELS_MEGATRON_LOCAL, NKERNELS };     /* Megatron-core's layers: transformer_impl */
/* SELECTIVE: the attention core; OP: all but the operators that torchtitan's `selective op` saves;
 * OFFLOAD: as FULL, and what a recomputed block keeps, its input, waits in pinned memory. */
/* MODULES: attention, MLP and the norms before them are checkpoints of their own. */
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_MODULES, RECOMPUTE_FULL, RECOMPUTE_OP, RECOMPUTE_OFFLOAD, RECOMPUTE_REENTRANT, NRECOMPUTE };
/* FP32: transformers' and torchtitan's, of logits in fp32; COMPUTE: F.cross_entropy() of logits as they are;
 * FUSED: flash-attn's kernel; FUSED_FP32: the same of logits cast to fp32; CHUNKED: torchtune's; FUSED_LINEAR: Liger-Kernel's, without logits; COMPILED: torchtitan's
 * under torch.compile() (compile.components "loss", since 2025); LIGER: Liger-Kernel's of transformers' logits in fp32, in place; CUT: Apple's
 * cut cross-entropy, without logits. */
enum loss_kind { LOSS_FP32, LOSS_COMPUTE, LOSS_FUSED, LOSS_COMPILED, LOSS_CHUNKED, LOSS_FUSED_LINEAR, LOSS_LIGER, LOSS_CUT, LOSS_LINEAR_CHUNKS, LOSS_FUSED_IN_PLACE,
                 LOSS_FUSED_ENTROPY, LOSS_ACTOR_CHUNKS, LOSS_ACTOR_KERNEL, LOSS_CHUNKED_LOGPROB, LOSS_FUSED_ENTROPY_EAGER,
                 LOSS_DISTRIBUTED, LOSS_DISTRIBUTED_LATE, LOSS_FUSED_FP32, NLOSS };
/* Logits that a training loop still has a name for while backward runs, until the next micro-step's are there; AND_SHIFTED: and for logits[..., :-1, :].contiguous(),
 * which is a copy where there are several samples. */
enum logits_kept { LOGITS_DROPPED, LOGITS_AS_MADE, LOGITS_IN_FP32, LOGITS_AND_SHIFTED };
/* Till when: the next micro-step's are there, or the function that ran forward and backward returns. */
enum logits_until { UNTIL_NEXT_LOGITS, UNTIL_BACKWARD_ENDS };
/* Who computes attention: PyTorch's scaled_dot_product_attention, or the flash-attn packages of 2, 3 (Hopper) and 4 (Blackwell). */
enum attention_by { ATTENTION_BY_SDPA, ATTENTION_BY_FLASH_2, ATTENTION_BY_FLASH_3, ATTENTION_BY_FLASH_4 };
/* torch.compile(mode=): with REDUCE_OVERHEAD inductor's kernels are recorded as CUDA graphs (cudagraph trees). */
enum compile_mode { COMPILE_DEFAULT, COMPILE_REDUCE_OVERHEAD };
/* Words and sources: model/lower/common/optimizer.h. */
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_SGD, OPTIMIZER_ADAFACTOR, OPTIMIZER_BNB_ADAMW8, OPTIMIZER_BNB_LION, OPTIMIZER_BNB_LION8,
                 OPTIMIZER_AO_ADAMW8, OPTIMIZER_AO_ADAMW4, OPTIMIZER_AO_ADAMW, OPTIMIZER_MUON, OPTIMIZER_PAGED_ADAMW, OPTIMIZER_PAGED_ADAMW8, OPTIMIZER_PAGED_LION,
                 OPTIMIZER_PAGED_LION8, OPTIMIZER_SOAP, OPTIMIZER_FLASH_ADAMW, OPTIMIZER_FLASH_ADAMW32,
                 OPTIMIZER_TE_ADAMW, OPTIMIZER_TE_ADAMW16, NOPTIMIZER };
/* torch.optim.AdamW(foreach=True), (fused=True), (foreach=False); of SGD likewise. */
enum optimizer_form { OPTIMIZER_FOREACH, OPTIMIZER_FUSED, OPTIMIZER_LOOP, NOPTIMIZER_FORM };
/* What the host keeps of a block from forward to backward. */
enum activation_offload {
    OFFLOAD_NOTHING,
    OFFLOAD_SAVE_ON_CPU,            /* torch.autograd.graph.save_on_cpu(): every saved tensor, copies block */
    OFFLOAD_SAVE_ON_CPU_PINNED,     /* ... with pin_memory=True */
    OFFLOAD_STREAMS,                /* copies on streams of their own, beside compute (torchtune's use_streams) */
    NACTIVATION_OFFLOAD
};
enum unit_kind { UNIT_MODEL, UNIT_BLOCKS, UNIT_BLOCK, UNIT_HALF_BLOCK, UNIT_TENSOR, UNIT_MODULE };
enum prefetch  { PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE };      /* FSDP backward_prefetch */
enum root_units { ROOT_TOGETHER, ROOT_APART, ROOT_EMBED_HEAD, ROOT_EMBED };   /* FSDP2: what is outside of the blocks, by units */
enum fsdp1_sharding { FSDP1_FULL_SHARD, FSDP1_SHARD_GRAD_OP, FSDP1_NO_SHARD,
                      FSDP1_HYBRID_SHARD, FSDP1_HYBRID_SHARD_ZERO2 };

struct powersgd_options {           /* PowerSGDState */
    int64_t rank, start;            /* matrix_approximation_rank; start_powerSGD_iter: reductions before the first that is compressed */
    double  least_rate;             /* min_compression_rate */
    bool    error_feedback, warm_start;
};

struct ddp_options {                /* torch.nn.parallel.DistributedDataParallel */
    double bucket_cap_mb;           /* MiB; < 0: not given, 25 with a first bucket of 1 MiB */
    bool   gradient_as_bucket_view, static_graph, find_unused_parameters, broadcast_buffers;
    bool   parameters_as_bucket_view;   /* ZeroRedundancyOptimizer (zero1) */
    int    forward_sync_buffers;    /* 0, 1; -1: not given, and broadcast_buffers decides */
    int    model_dtype;             /* DT_BF16: model.to(bfloat16), no autocast; -1: fp32 parameters; with adapters: plan_has_wide_adapters() */
    enum comm_hook comm_hook;
    struct powersgd_options powersgd;
    bool   wrapped;                 /* false: one GPU, whose model no DistributedDataParallel wraps */
    bool   optimizer_in_backward;   /* then: each parameter is updated as soon as its gradient is there, which goes (torchtune) */
};

/* torchao's Float8LinearRecipeName: linear layers that multiply in 8-bit floats (float8.h). */
enum float8_recipe { FLOAT8_NONE, FLOAT8_TENSORWISE, FLOAT8_ROWWISE, FLOAT8_ROWWISE_GW_HP, NFLOAT8 };

struct float8_options {
    enum float8_recipe recipe;
    char    filter[TRAINING_LIST];  /* torchtitan's filter_fqns: modules whose name has one of these in it stay as they are.  "": the head;
                                     * "none": no name */
};

/* torchao's fake quantisation: linear layers round what they multiply as if it were in few bits (qat.h). */
enum qat { QAT_NONE, QAT_8DA4W, QAT_MSLK, NQAT };
struct qat_options { enum qat kind; int64_t group; };   /* group: weights of a row that share a scale */

/* Liger-Kernel's kernels in the place of transformers' operations (liger.h). */
struct liger_options { bool rope, rms_norm, glu_activation; };

struct fsdp_options {
    int64_t reshard_after_forward;  /* FSDP2: -1 None (root kept), 0 false, 1 true, k: ranks of the smaller group */
    int64_t root_reshard_after_forward; /* FSDP2, the root's own, or its head's unit's: -1 None (kept), 0, 1, or ranks */
    enum root_units root_units;         /* FSDP2 */
    bool    keeps_last_unit;            /* FSDP2, where units are resharded after forward: the last one (of a chunk) is not (NeMo Automodel) */
    bool    ignores_experts;            /* FSDP2: experts that a rank has alone are no parameters of its units (ignored_params; NeMo Automodel) */
    enum prefetch backward_prefetch;    /* FSDP1 */
    bool    forward_prefetch;           /* FSDP1 */
    bool    limit_all_gathers;          /* FSDP1 */
    bool    use_orig_params;            /* FSDP1 */
    bool    wrap_adapters;              /* FSDP1: each matrix of an adapter is a unit */
    bool    autocast_adapter_dtype;     /* FSDP2, beside packed weights: PEFT's, adapters in fp32; false: in 16 bits as the rest */
    enum fsdp1_sharding sharding_strategy;  /* FSDP1 */
    int     model_dtype;            /* DT_BF16: model.to(bfloat16), states likewise; -1: fp32 parameters; with adapters: plan_has_wide_adapters() */
    bool    cpu_offload;                /* FSDP2 CPUOffloadPolicy, FSDP1 CPUOffload(offload_params=True) */
    bool    pin_memory;                 /* FSDP2, with cpu_offload */
    bool    reads_positions;            /* FSDP2: the loop reads each token's position back behind a forward (prime-rl until June 2026) */
    bool    grouped_experts;            /* FSDP2: torchtitan's MoE module, and adapters of its products (prime-rl) */
    bool    optimizer_offload;          /* FSDP2: states are on the device in the optimizer's step alone (prime-rl's optim_cpu_offload) */
    bool    float8_all_gather, float8_precomputed;  /* FSDP2: enable_fsdp_float8_all_gather, precompute_float8_dynamic_scale_for_fsdp */
};

enum offload_device { OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };

/* Longest path in a plan, its end included. */
enum { PLAN_MAX_PATH = 128 };

/* DeepSpeed's offload_optimizer, offload_param and aio (runtime/zero/offload_config.py, swap_tensor/constants.py).  Where `device` is none, or
 * no disk is used, what concerns them has its default. */
struct ds_offload_optimizer {
    enum offload_device device;     /* stages 1 and 2 take nvme for cpu */
    bool    pin_memory;
    double  ratio;                  /* stage 3: share of the sub-groups on the host */
    int64_t buffer_count;           /* nvme from here on: buffers of the largest sub-group */
    bool    pipeline_read, pipeline_write, fast_init;
    char    nvme_path[PLAN_MAX_PATH];
};

struct ds_offload_param {           /* stage 3 */
    enum offload_device device;
    bool    pin_memory;
    int64_t buffer_count, buffer_size, max_in_cpu;      /* nvme: buffers; elements; elements that stay in host memory */
    char    nvme_path[PLAN_MAX_PATH];
};

struct ds_aio {                     /* how files are read and written */
    int64_t block_size, queue_depth, intra_op_parallelism;      /* bytes; requests in flight; threads */
    bool    single_submit, overlap_events, use_gds;
};

/* What PipelineModule balances over its stages (partition_method): trainable parameters, layers, or blocks ("type:" and their class). */
enum partition_method { PARTITION_PARAMETERS, PARTITION_UNIFORM, PARTITION_BLOCKS };

/* How DeepSpeed shares experts out: by itself, or by its layer in the model's code (deepspeed.moe.layer.MoE). */
enum moe_layer { MOE_AUTOEP, MOE_NATIVE };

struct deepspeed_options {          /* zero_optimization and neighbours; element counts */
    int64_t reduce_bucket_size, allgather_bucket_size;
    int     overlap_comm;           /* resolved: 0 or 1 */
    bool    reduce_scatter, use_multi_rank_bucket_allreduce, contiguous_gradients, round_robin_gradients;
    int64_t sub_group_size;
    int64_t stage3_prefetch_bucket_size, stage3_param_persistence_threshold,
            stage3_model_persistence_threshold, stage3_max_live_parameters,
            stage3_max_reuse_distance;
    bool    stage3_use_all_reduce_for_fetch_params, stage3_allgather_sequential;
    bool    zero_init;              /* stage 3: built under zero.Init, module by module, as transformers' from_pretrained() does */
    bool    decay_groups;           /* the optimizer has two parameter groups: what decays, and norms and biases (transformers' Trainer) */
    int64_t zero_hpz_partition_size;        /* ranks of a secondary partition; 1: none */
    bool    zero_quantized_weights, zero_quantized_gradients, zero_quantized_nontrainable_weights;
    bool    grad_accum_fp32;        /* data_types.grad_accum_dtype "fp32": stage 1 bf16 becomes BF16_Optimizer;
                                     * stage 2 only in 0.19.8 */
    bool    compute_grad_norm;      /* stages 1 and 2; false only in 0.19.8 */
    bool    check_grad_overflow;    /* resolved: fp16 true, fp32 false, bf16 in stages 1 and 2 as
                                     * bf16.check_grad_overflow says */
    int     communication_dtype;    /* enum dtype, or -1: the model's */
    double  prescale;               /* gradient_predivide_factor */
    enum partition_method partition_method;     /* of a pipeline */
    enum moe_layer moe_layer;       /* with parallel.expert; of MoE its arguments, under their names: */
    double  moe_capacity_factor;
    int64_t moe_min_capacity;
    bool    moe_drop_tokens;
    struct ds_offload_optimizer offload_optimizer;
    struct ds_offload_param     offload_param;
    struct ds_aio               aio;
};

/* Transformer Engine's 8-bit floats in linear layers (Megatron-core's TransformerConfig.fp8): gradients in e5m2 where it is hybrid.  What a
 * scale is of, and when it is known: of a tensor, from the largest of steps before; of a tensor; of 128 numbers, of a weight 128 x 128; of 32. */
enum fp8_format { FP8_OFF, FP8_E4M3, FP8_HYBRID };
enum fp8_recipe { FP8_DELAYED, FP8_TENSORWISE, FP8_BLOCKWISE, FP8_MXFP8 };
enum fp4_format { FP4_OFF, FP4_E2M1 };
/* Longest list of --recompute-modules, and longest --pipeline-model-parallel-layout, their ends included. */
enum { PLAN_MAX_MODULES = 64, PLAN_MAX_LAYOUT = 128 };

/* --cuda-graph-impl: no CUDA graphs; Megatron-core's own (CudaGraphManager); Transformer Engine's make_graphed_callables(). */
enum graph_impl { GRAPHS_NONE, GRAPHS_LOCAL, GRAPHS_TE };

/* What FusedAdam keeps a state in (--exp-avg-dtype), and the fp32 parameters (--main-params-dtype): in the order of the knobs' words. */
enum adam_state { ADAM_FP32, ADAM_BF16, ADAM_FP16, ADAM_FP8 };
enum adam_main { MAIN_FP32, MAIN_FP16 };

/* Whose fused attention Transformer Engine takes: of its choice; flash-attn's; cuDNN's (NVTE_FLASH_ATTN, NVTE_FUSED_ATTN). */
enum attention_backend { BACKEND_AUTO, BACKEND_FLASH, BACKEND_FUSED, BACKEND_UNFUSED };

/* Megatron-LM's, under the names of its command line (training/arguments.py); the distributed optimizer is strategy zero1, the
 * number format of gradients reduce_dtype. */
/* Over what a loss balances experts: all tokens of a micro-batch, or each sample's. */
enum balance { BALANCE_AUX_LOSS, BALANCE_SEQ_AUX_LOSS };

struct megatron_options {
    bool    overlap_grad_reduce;    /* buckets are reduced beside the last backward */
    bool    overlap_param_gather;   /* zero1: buckets are gathered beside the next forward */
    int64_t ddp_bucket_size;        /* elements */
    bool    ddp_average_in_collective, ddp_pad_buckets_for_high_nccl_busbw;
    bool    gradient_accumulation_fusion;   /* products add weights' gradients to main_grad; else each is a tensor, which a kernel adds */
    bool    apply_rope_fusion;      /* of latent attention: rotary positions are one kernel of queries and one of keys, values; else single operations */
    int64_t logprob_chunk_size;     /* LOSS_DISTRIBUTED_LATE: positions of a sequence at once; 0: all */
    bool    scale_logits;           /* logits are multiplied by a number before the loss (MuP) */
    bool    bias_swiglu_fusion;     /* of a gated MLP: activation and product are one kernel, which keeps its input alone */
    bool    check_for_nan_in_loss_and_grad;
    enum attention_backend attention_backend;
    bool    tp_comm_overlap;        /* with sequence parallelism: products in parts beside their gather or scatter (userbuffers) */
    bool    overlap_p2p_comm;       /* an interleaved pipeline's messages beside compute */
    bool    defer_embedding_wgrad_compute;  /* of a pipeline: the output layer's weight gradients are computed behind the last backward, */
    int64_t wgrad_deferral_limit;           /* those of the first so many micro-steps; 0: of all */
    int64_t microbatch_group_size_per_vp_stage;     /* of an interleaved pipeline */
    int64_t make_vocab_size_divisible_by;   /* the vocabulary is filled up to a multiple of this for each tensor-parallel rank */
    enum fp8_format fp8_format;
    enum fp8_recipe fp8_recipe;
    enum fp4_format fp4_format;     /* NVFP4; not beside fp8_format */
    bool    fp8_param_gather;       /* zero1: parameters of linear layers are kept and gathered in 8 bits */
    bool    reuse_grad_buf_for_mxfp8_param_ag;      /* with that and mxfp8: gathered in 16 bits, into the gradients' buffer */
    bool    tp_only_amax_red;       /* delayed: largest numbers are those of the tensor-parallel ranks, not of the stage's */
    int64_t fp8_amax_history_len;   /* delayed */
    bool    first_last_layers_bf16; /* so many layers of the model's ends stay in 16 bits */
    int64_t num_layers_at_start_in_bf16, num_layers_at_end_in_bf16;
    int64_t a2a_ranks;              /* with CONTEXT_RING: runs of so many ranks exchange heads, keys go round the runs (a2a+p2p); 1: p2p */
    bool    calculate_per_token_loss;
    double  moe_expert_capacity_factor;     /* an expert's rows of one rank, at most, times the mean; below 0: as many as come */
    bool    moe_pad_expert_input_to_capacity;       /* with that: at least as many, too */
    double  moe_aux_loss_coeff;                     /* above 0: a loss that balances experts is attached to routers' probabilities */
    int     moe_router_load_balancing_type;         /* enum balance; with that */
    bool    moe_permute_fusion;                     /* rows move by Transformer Engine's kernels, which keep maps of them */
    bool    moe_router_padding_for_quantization;    /* in 8 bits: of each rank a multiple of what products ask for (plan_expert_unit()) */
    int64_t recompute_num_layers;   /* RECOMPUTE_FULL: the first so many blocks of each chunk (method block); 0: all of them (uniform, 1) */
    int64_t mtp_num_layers;         /* depths of multi-token prediction, on the pipeline's last stage */
    char    recompute_modules[PLAN_MAX_MODULES];    /* RECOMPUTE_SELECTIVE: names between commas; "": core_attn */
    enum graph_impl cuda_graph_impl;
    char    cuda_graph_scope[PLAN_MAX_MODULES];     /* with that: names between commas; "": whole layers */
    bool    use_precision_aware_optimizer;  /* zero1: megatron_states.h; with that: */
    enum adam_main  main_params_dtype;
    enum adam_state exp_avg_dtype, exp_avg_sq_dtype;
    bool    store_param_remainders;         /* of fp32 parameters the 16 bits that bf16 parameters lack */
    char    pipeline_layout[PLAN_MAX_LAYOUT];       /* pipeline_layout.h; "": stages as even as parallel.* says */
};

struct dp_options {
    bool gather_logits;             /* "gather": the model returns logits (else the loss) */
};

/* How attention sees positions of other context-parallel ranks: their keys and values gathered; passed round a ring; or an
 * all-to-all that gives each rank all positions of some heads (DeepSpeed-Ulysses). */
enum context_method { CONTEXT_ALL_GATHER, CONTEXT_RING, CONTEXT_ULYSSES };

/* Ranks that compute one copy of the model together: by tensors, by positions, by blocks. */
struct parallel_options {
    int64_t tensor, context, pipeline;      /* ranks of each; 1: none */
    bool    sequence;               /* with tensor: norms and residuals on a share of the positions */
    bool    loss_parallel;          /* with tensor: cross-entropy of logits that stay cut by vocabulary */
    bool    async_tensor;           /* with tensor: products in parts beside their collective */
    bool    inputs_apart;           /* with tensor: every column-parallel layer makes a DTensor of its input by itself (NeMo Automodel) */
    enum context_method context_method;
    bool    context_balance;        /* a rank has a chunk from the sequence's begin and one from its end */
    enum pipeline_kind pipeline_schedule;
    int64_t virtual_stages;         /* chunks of a rank of the pipe */
    int64_t pipeline_flushes;       /* times that a step runs the schedule, each with its share of the micro-steps; at most 1: once */
    bool    pipeline_reduce_last;   /* gradients are reduced behind the last of these alone, and units stay until then */
    int64_t first_stage_less, last_stage_less;  /* blocks fewer, in place of the embedding and of the head */
    int64_t expert;                 /* ranks that share out the experts of each block; 1: none */
    int64_t expert_tensor;          /* tensor-parallel ranks that cut each expert: one, or all of them */
    double  expert_imbalance;       /* rows of the busiest of them, times the mean */
};

/* Most chunks of a rank. */
enum { PLAN_MAX_CHUNKS = 32 };

/* Where frameworks cut what they move, by constants of theirs that no option changes: no key of a plan
 * either.  plan_defaults() sets them; tests lower them, so that tiny models lie on both sides. */
struct framework_limits {
    int64_t ddp_broadcast;          /* bytes: DDP's broadcast_bucket_size, 250 MiB */
    int64_t ddp_first_bucket;       /* bytes: dist._DEFAULT_FIRST_BUCKET_BYTES, 1 MiB */
    int64_t ddp_bucket;             /* bytes where bucket_cap_mb is not given, 25 MiB */
    int64_t dp_coalesce;            /* bytes: comm.broadcast_coalesced, reduce_add_coalesced, 10 MiB */
    int64_t ds_allreduce;           /* elements: engine.buffered_allreduce_fallback, 5e8 */
    int64_t ds_aio_least, ds_aio_align;     /* bytes: swap_tensor/utils.py, MIN_AIO_BYTES, 1 MiB; AIO_ALIGNED_BYTES, 1 KiB */
};

/* Most samples in a micro-batch, most micro-batches in a step. */
enum { PLAN_MAX_BATCH = 1 << 20 };

/* What a plan's file says itself, by row of the table of knobs (knob_at()); none of a plan that no file gave. */
enum { PLAN_MAX_KNOBS = 256 };
struct plan_stated {
    bool    all;                    /* more than half of its cell's keys: dpx wrote the file, defaults and all */
    uint8_t rows[PLAN_MAX_KNOBS / 8];
};

/* Environment variables (environment.h); NCCL's are the cluster's. */
struct environment {
    char    alloc_conf[128];        /* PYTORCH_ALLOC_CONF; "": PyTorch's defaults */
    char    cublas_workspace[64];   /* CUBLAS_WORKSPACE_CONFIG; "": PyTorch's */
    int64_t max_connections;        /* CUDA_DEVICE_MAX_CONNECTIONS; 0: as the framework asks, else CUDA's 8 */
};

struct plan {
    struct model   model;
    struct training train;          /* for which `model` is made: training_apply() */
    struct cluster cluster;
    enum strategy  strategy;
    enum dialect   dialect;
    enum kernel_set   kernels;
    enum compile_mode compile_mode;
    enum attention_by attention;
    int64_t        seq, micro_batch, accumulation;      /* tokens, samples per rank, micro-steps per step */
    enum dtype     precision;       /* compute: fp32, bf16, fp16 */
    enum dtype     reduce_dtype;    /* gradients on the wire, resolved to the dialect's default */
    double         clip;            /* global gradient norm, 0: no clipping */
    double         dropout;
    enum loss_kind loss;
    enum logits_kept logits_kept;
    enum logits_until logits_until;
    enum optimizer optimizer;
    enum optimizer_form optimizer_form;
    enum recompute recompute;
    int64_t        recompute_interval;  /* every k-th block is recomputed; 1: all */
    enum activation_offload activation_offload;
    enum unit_kind unit;
    int64_t        unit_blocks;     /* blocks per unit for UNIT_BLOCKS, else 1 */
    int64_t        shard_group;     /* ranks that share one copy, context-parallel ones among them; plan_data_ranks(): flat */
    bool           sync_every_micro_step;
    bool           deterministic;
    char           framework_version[24];   /* "" : the newest known; see plan_version() */
    int64_t        host_threads;    /* of a rank's optimizer on the host; 0: its share of the node's cores */
    struct parallel_options  parallel;
    struct ddp_options       ddp;
    struct float8_options    float8;
    struct qat_options       qat;
    struct liger_options     liger;
    struct fsdp_options      fsdp;
    struct deepspeed_options ds;
    struct dp_options        dp;
    struct megatron_options  megatron;
    struct environment       environment;
    struct framework_limits  limits;
    struct plan_stated       stated;
};

/* Bytes per element of each copy that the dialect keeps. */
struct recipe {
    enum dtype kept;        /* the parameter that persists (sharded or not), */
    enum dtype frozen;      /* and that which does not train; */
    enum dtype copies;      /* beside adapters, PEFT's copies of whole modules (lora.modules_to_save) */
    enum dtype used;        /* what compute reads */
    enum dtype grad;        /* the gradient as it is kept (FSDP: the shard; autograd gives `used`) */
    enum dtype wire_gather; /* all-gather */
    enum dtype wire_reduce; /* gradient reduction */
    int        optimizer;   /* bytes per parameter of optimizer state: 8, or 12 with an fp32 master; fewer with narrow ones (megatron_states.h)
                             * (DeepSpeed fp32: 8, its clone of the partition not among them) */
    bool       autocast;    /* torch DDP in bf16: fp32 parameters, casts cached while in use */
};

/* Reads plan.json (model and cluster embedded or named; a path in it is relative
 * to the folder of the file, which `where` names).  0, or -1 with one line that
 * names file and key, and nothing to free. */
int plan_read(const char *path, struct plan *out);
int plan_from_json(const json_t *j, const char *where, struct plan *out);
/* The value of its key "cluster", a name, a path beside the file or the object itself.  0, or -1 reported. */
int plan_read_cluster(const char *where, const json_t *j, struct cluster *out);
/* The complete plan.json document, model and cluster embedded (new reference). */
json_t *plan_to_json(const struct plan *p);

/* Fills the dialect's defaults for strategy, dialect and precision into a plan
 * whose model, cluster, seq and micro_batch are set. */
void plan_defaults(struct plan *p, enum strategy s, enum dialect d, enum dtype precision);

/* Sets what follows from other options, after some were changed: DeepSpeed's
 * reduce_dtype from communication_dtype; syncing where `deterministic` asks for
 * it and the dialect leaves no choice; defaults where a key says nothing (knob.h: idle). */
void plan_resolve(struct plan *p);

/* Refuses what the dialect does not have, with the key named. */
int  plan_check(const struct plan *p, const char *where);
void plan_free(struct plan *p);

struct recipe plan_recipe(const struct plan *p);

/* The format of the operands of linear layers' products in blocks; SCALED_NONE: the number format of the plan. */
enum scaled plan_scaled(const struct plan *p);

/* Adapters in fp32 beside frozen weights in 16 bits (model_dtype): PEFT casts them (cast_adapter_dtype()).  DDP then runs under autocast
 * (transformers' bf16=True, fp16=True); FSDP casts shards to its param_dtype, as it does where all weights are in fp32. */
bool plan_has_wide_adapters(const struct plan *p);
/* The dtype in which a tensor persists. */
enum dtype plan_kept(const struct recipe *r, const struct tensor *t);
/* The mean bytes of an element that trains. */
double plan_trained_bytes(const struct plan *p);
/* The dtype that an adapter's weight has where PEFT casts the layer's input to it (_cast_input_dtype()): that in which the layer computes; but
 * FSDP1's unit that is not gathered, an adapter by itself, shows with use_orig_params its shard. */
enum dtype plan_adapter_input(const struct plan *p);
/* torch's DDP: in which dtype gradients cross the network, their own or the hook's. */
enum dtype plan_ddp_wire(const struct plan *p);
/* Does autograd compute the tensor's gradient?  That of what trains; FSDP1's parameters are views of their unit's one tensor, which
 * needs a gradient where any of them does (_flat_param.py, _use_unsharded_views()). */
bool plan_gets_gradient(const struct plan *p, const struct tensor *t);

/* With tensor parallelism: in which dtype FSDP2 adds up gradients of what every rank has whole, a norm's weights
 * (_fsdp_params_with_wider_grad_dtype of 2.15 excepts them; before, as autograd gave them). */
enum dtype    plan_partial_dtype(const struct plan *p);

/* Ranks that have the same tensors, over which gradients are averaged: world_size / (tensor * pipeline).  Of them
 * those that take different samples: the same / context. */
int64_t plan_data_ranks(const struct plan *p);
int64_t plan_batch_ranks(const struct plan *p);
/* Positions of each sample that a rank has: seq / context. */
int64_t plan_rank_seq(const struct plan *p);
/* Positions that the queries of one call of attention have: plan_rank_seq(); with Ulysses seq, of 1/context of the heads; where
 * runs of ranks exchange heads theirs, of as many fewer heads. */
int64_t plan_attention_seq(const struct plan *p);

/* Does selective recompute run this module again: "core_attn", "mlp", "layernorm"? */
bool plan_recomputes_module(const struct plan *p, const char *module);

/* Samples of an optimizer step: micro_batch * accumulation * plan_batch_ranks(). */
int64_t plan_global_batch(const struct plan *p);

/* Does every rank have the whole model and whole samples? */
bool plan_is_data_parallel(const struct plan *p);

/* Micro-steps of one run of a pipeline's schedule. */
static inline int64_t plan_flush_steps(const struct plan *p)
{
    return p->parallel.pipeline_flushes > 1 ? p->accumulation / p->parallel.pipeline_flushes : p->accumulation;
}

/* Is the tensor updated by Muon? */
bool plan_orthogonalises(const struct plan *p, const struct tensor *t);

/* The version as one number, major*1000 + minor (torch 2.9: 2009, DeepSpeed
 * 0.19.6: 19): what a lowering compares to follow a framework's changes. */
int plan_version(const struct plan *p);
/* Is it PyTorch before that version (2009: 2.9)?  Other dialects run on the newest that is known. */
bool plan_torch_before(const struct plan *p, int version);

/* DeepSpeed 0.19.8, which plan_version() does not tell from 0.19.6, the default. */
bool plan_has_deepspeed_0_19_8(const struct plan *p);
/* Beside what deepspeed.decay_groups is not modelled; NULL: beside all that the plan has. */
const char *deepspeed_groups_beside(const struct plan *p);
/* Ranks of a node where gradients are reduced in int4, in the node and then across nodes; 0: they are not (DeepSpeed does so with several
 * nodes only). */
int64_t plan_quantised_node(const struct plan *p);
/* Whether parameters or gradients travel as codes. */
bool plan_quantises(const struct plan *p);

/* Whether products are those of CUDA 12.8's cuBLAS or a later one, as in PyTorch's wheels since 2.8 (its release notes: cu126, cu128,
 * cu129); DeepSpeed's versions do not say which PyTorch, and the newest is meant. */
bool plan_has_cuda_12_8(const struct plan *p);

/* Whether DistributedDataParallel broadcasts buffers at every forward:
 * forward_sync_buffers, or broadcast_buffers where it is not given. */
bool plan_syncs_buffers(const struct plan *p);

/* Versions that `framework_version` may name for a dialect, newest first, with
 * what differs from the one before; NULL after the last. */
const char *plan_version_at(enum dialect d, int i, const char **about);

/* The unit's word ("block", "4 blocks") for messages and plan.json. */
void plan_unit_text(const struct plan *p, char *out, size_t size);

/* The words of plan.json for each enum, and back (-1: not known). */
const char *strategy_name(enum strategy s);
const char *dialect_name(enum dialect d);
const char *kernels_name(enum kernel_set k);
const char *recompute_name(enum recompute r);

/* Is a block that is recomputed run again as a whole? */
static inline bool recompute_whole(enum recompute r) { return r >= RECOMPUTE_FULL; }
int strategy_parse(const char *s);
int dialect_parse(const char *s);

/* PyTorch's own: framework_version is PyTorch's. */
bool dialect_is_torch(enum dialect d);

/* Are they those of Megatron-core's layers? */
static inline bool kernels_are_megatron(enum kernel_set k) { return k == KERNELS_TE || k == KERNELS_MEGATRON_LOCAL; }

/* Does attention run through scaled_dot_product_attention? */
static inline bool kernels_take_sdpa(enum kernel_set k) { return k == KERNELS_TORCH_SDPA || k == KERNELS_TORCH_COMPILE; }

/* Can the user choose whether each micro-step reduces, and over how many ranks
 * states are sharded?  Elsewhere the plan says what the framework does. */
bool plan_sync_is_choice(enum strategy s, enum dialect d);
bool plan_group_is_choice(enum strategy s, enum dialect d);

/* Does every rank keep whole parameters, so that all plans of a cell have the same parameters and optimizer
 * states on a rank? */
bool plan_keeps_whole(enum strategy s);
/* Does a rank keep the gradients of its shard alone? */
bool plan_shards_grads(enum strategy s);

/* Does this cell of the table of strategies and dialects exist? */
bool dialect_has(enum dialect d, enum strategy s);

#endif
