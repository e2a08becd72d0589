/* model.h -- a model as shapes and a table of its tensors.
 *
 * A family (family.h) says which config key is which field, and which tensors there are; model/arch/ reads the config and makes
 * the table.  transformer.h has the functions. */
#ifndef DPX_MODEL_H
#define DPX_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

enum norm_kind     { NORM_LAYER, NORM_RMS };
/* Norms of a block: of what each half reads; of what it adds to the residual too, or
 * only of that (olmo2); or of the residual once it is added (opt-350m). */
enum norm_place    { NORM_FIRST, NORM_AROUND, NORM_BEHIND, NORM_OF_SUM };
enum mlp_kind      { MLP_PLAIN, MLP_GATED };
enum activation    { ACT_GELU, ACT_GELU_TANH, ACT_RELU, ACT_SILU, ACT_RELU2 };
/* How transformers computes it (activations.py): by one kernel, or in Python, a kernel for each operation: tanh of a power ("gelu_new"), of
 * products ("gelu_fast"), erf ("gelu_python"). */
enum activation_code { ACT_ONE_KERNEL, ACT_OF_POWER, ACT_OF_PRODUCTS, ACT_OF_ERF };
enum position_kind { POS_LEARNED, POS_ROPE, POS_ALIBI, POS_NONE };
/* What the last hidden states are read by: logits of the vocabulary; or a linear layer "score" of one column, which is never tied: a
 * number a sequence, as a reward model has it (AutoModelForSequenceClassification with num_labels 1: without a bias), or a number
 * a token, as a critic has it (AutoModelForTokenClassification: with one). */
enum head_kind { HEAD_LOGITS, HEAD_SCORE, HEAD_VALUE };

/* A depth d of multi-token prediction is of the head's tensors: TENSOR_HEAD - d asks for its own. */
enum { TENSOR_EMBED = -1, TENSOR_HEAD = -2 };

/* What a parameter is for; lets lowerings and kernels find it without knowing
 * a family's names.  The fused forms hold several projections in one tensor. */
enum tensor_role {
    ROLE_TOKENS, ROLE_POSITIONS, ROLE_PROJECT_IN, ROLE_EMBED_NORM,
    ROLE_NORM_ATTN, ROLE_Q, ROLE_K, ROLE_V, ROLE_QKV, ROLE_Q_NORM, ROLE_K_NORM,
    ROLE_ATTN_OUT, ROLE_NORM_ATTN_POST, ROLE_NORM_MLP, ROLE_GATE, ROLE_UP,
    ROLE_GATE_UP, ROLE_DOWN, ROLE_NORM_MLP_POST, ROLE_NORM_FINAL,
    ROLE_PROJECT_OUT, ROLE_HEAD,
    /* Of attention: a number a head beside the scores (gpt_oss); the projections through few dimensions of multi-head
     * latent attention, with the norms between them. */
    ROLE_SINKS, ROLE_Q_A, ROLE_Q_A_NORM, ROLE_Q_B, ROLE_KV_A, ROLE_KV_A_NORM, ROLE_KV_B,
    /* Of a mixture of experts: all experts' gate and up projections in one tensor, and their down projections; the
     * expert that every token takes. */
    ROLE_ROUTER, ROLE_EXPERTS_IN, ROLE_EXPERTS_UP, ROLE_EXPERTS_OUT, ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_GATE_UP, ROLE_SHARED_DOWN,
    /* Of multi-token prediction: norms of the next token's embedding and of the hidden states, and the projection of both. */
    ROLE_MTP_EMBED_NORM, ROLE_MTP_HIDDEN_NORM, ROLE_MTP_PROJECT,
    /* Of a Mamba-2 mixer: the projection of gate, x, B, C and time steps; the convolution of x, B and C; what is a number a head: the
     * steps' bias, A's logarithm, D; the gated norm; the projection back. */
    ROLE_SSM_IN, ROLE_SSM_CONV, ROLE_SSM_DT, ROLE_SSM_A, ROLE_SSM_D, ROLE_SSM_NORM, ROLE_SSM_OUT,
};

/* All experts' weights of one kind, or adapters beside them. */
static inline bool role_is_of_experts(enum tensor_role r) { return r == ROLE_EXPERTS_IN || r == ROLE_EXPERTS_UP || r == ROLE_EXPERTS_OUT; }

/* Parts of a model with adapters (training.h).  REPLACED: a copy of it, of the same role, trains in its place; it is
 * kept, but nothing reads it. */
enum adapter { ADAPTER_NONE, ADAPTER_LORA_A, ADAPTER_LORA_B, ADAPTER_MAGNITUDE, ADAPTER_REPLACED };

/* What linear layers of blocks keep frozen weights in (packed.h): as they are; bitsandbytes' NF4, with its blocks' maxima in
 * fp32 or in 8 bits; its int8 (LLM.int8()); torchao's int8; its int4 in two packings, with which nothing trains (train_check.c); its NF4. */
enum base_dtype { BASE_PLAIN, BASE_NF4, BASE_NF4_DOUBLE, BASE_INT8, BASE_AO_INT8, BASE_AO_INT4, BASE_AO_INT4_TILED, BASE_AO_NF4, NBASE };

struct tensor {
    char             name[104];
    int64_t          shape[3];      /* as transformers has it; 1 beyond ndim */
    int              ndim;          /* 1 or 2; 3: [expert, ...] */
    int64_t          numel;
    enum tensor_role role;
    bool             is_bias;       /* the bias of its role, else the weight */
    int              module;        /* index into modules[]: the nn.Module that owns it */
    int              block;         /* 0..layers-1, TENSOR_EMBED or TENSOR_HEAD */
    int              depth;         /* of multi-token prediction, in TENSOR_HEAD; 0: of none */
    bool             mlp_half;      /* belongs to the MLP half of its block (its norm too) */
    bool             in_out;        /* weight stored [in, out] (GPT-2's Conv1D, gpt_oss's experts), not [out, in] */
    bool             frozen;        /* it does not train: no gradient, no optimizer state */
    bool             unused;        /* of a recorded module: it would train, but no gradient reaches it; it is `frozen`, too */
    enum adapter     adapter;
    enum base_dtype  packed;        /* of a layer that keeps its weight so; its bias says the same */
};

/* An nn.Module that directly owns parameters, in registration order. */
struct module {
    char name[96];                  /* "model.layers.3.self_attn.q_proj" */
    int  first, ntensors;           /* its own tensors, contiguous */
    int  block;                     /* as in struct tensor */
};

/* Room for a list of names, separated by commas. */
enum { TRAINING_LIST = 256 };

/* What trains: plan.json's "train" and "lora", PEFT's words and defaults. */
enum qkv_parts { PART_Q = 1, PART_K = 2, PART_V = 4 };
enum dropout_position { DROPOUT_PRE, DROPOUT_POST };

struct training {
    char    what[TRAINING_LIST];            /* "": everything; "lora"; or patterns of tensor names */
    int64_t rank;
    double  alpha, dropout;
    char    target_modules[TRAINING_LIST];  /* "": PEFT's of the family; "all-linear"; or names */
    char    target_parameters[TRAINING_LIST];   /* "": none; or names of parameters of experts */
    char    modules_to_save[TRAINING_LIST];
    enum base_dtype base;                   /* "base_dtype" */
    bool    base_head;                      /* of an untied head, too */
    bool    narrow;                         /* adapters in the model's 16 bits, computed without autocast */
    int     qkv_parts;                      /* enum qkv_parts, added up: litgpt's adapters of a fused layer's parts; 0: of the layer */
    bool    dora;                           /* DoRA: a magnitude for each column beside A and B, as torchtune has it */
    bool    grouped;                        /* adapters of experts are of w1, w2 and w3 each, of the same rank, and of no router (prime-rl) */
    bool    bridge;                         /* adapters are Megatron-Bridge's, of GPTModel's layers: names are linear_qkv and so on */
    int     dropout_position;               /* enum dropout_position: bridge alone */
    bool    a2a_experimental;               /* likewise */
};

struct model {
    char    name[96];               /* built-in name, or _name_or_path, or the file's */
    char    family[24];             /* Hugging Face model_type */
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int64_t context;                /* longest sequence the config states */
    int64_t positions;              /* rows of the learned position table, 0 if none */
    bool    tied;                   /* head shares the token embedding */
    enum norm_kind     norm;
    enum mlp_kind      mlp;
    enum activation    act;
    enum activation_code act_code;
    enum position_kind position;
    bool    parallel;               /* attention and MLP read the same input (neox, falcon) */
    bool    qk_norm, qk_norm_bias;  /* norms on q and k (qwen3), with biases (phi) */
    enum norm_place norm_place;
    bool    fused_qkv, fused_gate_up;
    bool    qkv_grouped;            /* fused rows are [group: its q's, k, v]..., not [q | k | v] */
    bool    qkv_bias, out_bias, mlp_bias;       /* which linear layers have one */
    bool    norm_weight, norm_bias; /* what a norm owns; neither: OPT without affine norms */
    bool    mlp_norm;               /* false: the MLP reads attention's norm (falcon-7b) */
    enum head_kind     head;
    bool    head_bias;              /* of the head (phi's, and that of values) */
    int64_t token_width;            /* of the token embedding: hidden, or less (opt-350m) */
    int64_t window;                 /* keys that a query sees in layers with a sliding window, 0: no layer has one */
    int64_t window_from;            /* layers before this one have no window (qwen2, qwen3), else 0 */
    int64_t full_every;             /* nor has every n-th layer; 0: all have it */
    int64_t nope_every;             /* every n-th layer has no rotary positions (smollm3), 0: none */
    bool    l2_norm, tuned;         /* llama4: q and k are normed without weights in layers with rotary positions; q is scaled by its
                                       position in the others.  Its window is a chunk, of the layers with rotary positions */
    int64_t experts, experts_used;  /* of a block with experts: how many, and how many of them a token takes; 0: none */
    int64_t expert_ffn, shared_ffn; /* widths of one expert, and of what every token takes beside; ffn: of the other blocks */
    int64_t dense_first, moe_every; /* the first so many blocks have no experts, of the others every n-th has */
    int64_t route_groups;           /* of experts, of which a token's are chosen from the best few (deepseek_v3); 0: none */
    bool    topk_norm;              /* the weights of the experts that a token takes are made to add up to 1 */
    int64_t q_rank, kv_rank;        /* of multi-head latent attention (deepseek_v3); 0: none */
    int64_t rope_dim, value_dim;    /* ... rotated elements of head_dim, and a head's width in values; 0: head_dim */
    int64_t ssm_heads, ssm_head_dim, ssm_groups, ssm_state, ssm_chunk, ssm_conv;    /* of Mamba-2 mixers; 0: none */
    bool    ssm_conv_bias;
    int64_t mtp;                    /* depths of multi-token prediction among the head's tensors (megatron_model.h); 0: none */
    double  dropout;                /* on what attention and MLP add to the residual stream */
    double  embed_dropout, attn_dropout;        /* on the embeddings; on the probabilities */
    double  softcap;                /* final logit soft-capping (gemma2), 0 if none */

    /* What only the numbers depend on, not sizes or times. */
    double  norm_eps, init_std;
    double  attn_softcap;           /* soft-capping of attention scores (gemma2), 0 if none */
    int64_t route_best;             /* of route_groups those that a token's experts are chosen from, and what their weights, which add */
    double  route_scale;            /* up to 1, are multiplied by (deepseek_v3) */
    int64_t attn_scalar;            /* scores are divided by its square root: head_dim, mostly */
    double  embed_scale, residual_scale;        /* granite's multipliers; gemma's follows from hidden */
    double  logit_scale;            /* granite divides logits by it, cohere multiplies */
    double  attn_scale;             /* of the scores (granite); 0: by attn_scalar */
    double  rope_theta;             /* POS_ROPE only, as the next three */
    double  rope_local_theta;       /* in layers with a window, 0 if the same (gemma3) */
    int64_t rotary_dim;             /* leading elements of a head that are rotated */
    json_t *rope_scaling;           /* the config's own object if frequencies are scaled, or NULL */

    struct hybrid *hybrid;          /* kinds of its blocks, each with one mixer (hybrid.h); NULL: all have attention and an MLP */
    struct recorded *recorded;      /* what a recorded module ran (recorded.h); NULL: the model is of a family */

    struct tensor *tensors;
    int            ntensors;
    struct module *modules;
    int            nmodules;
    int            block0, per_block, per_dense;    /* per_dense: of a block without experts where others have some, else 0 */
    int64_t        params;          /* sum of numel */
    int64_t        active;          /* those that a token uses: all but the experts that it does not take */
    int64_t        trainable;       /* the same of what trains, */
    int            ntrainable;      /* and how many tensors these are */
    struct training training;       /* what the table above was made for (training.h) */
};

/* Upper bounds that a config must keep; beyond them it is refused by field. */
#define MODEL_MAX_LAYERS 4096
#define MODEL_MAX_DIM    ((int64_t)1 << 24)
/* Heads that have a norm each (stablelm). */
#define MODEL_MAX_LISTED 256

/* Has this layer a sliding window?  How many have? */
bool model_windowed(const struct model *m, int64_t layer);
int64_t model_windowed_layers(const struct model *m);

#endif
