/* family.h -- what dpx knows of a family of models: one struct, one file a family.
 *
 *     const struct family *f = family_for(&model);
 *     if (f->two_tables) ...
 *
 * model/family/llama.c reads beside transformers 5.23's models/llama/: its config's keys with their defaults, its tensors in the order
 * of __init__(), the order in which forward() calls modules, what forward() does to memory, which masks it makes, and what other tools
 * call its parts.  Sizes are the config's; torch_model.c is the forward pass that these facts steer.
 *
 * A new file is a new family: the Makefile lists the folder.  README.md says how to write one. */
#ifndef DPX_FAMILY_H
#define DPX_FAMILY_H

#include "model/family/hf_keys.h"
#include "model/family/hybrid.h"
#include "model/family/model.h"

/* ---- tensors ---- */

/* Extents of a weight, in the fields of struct model. */
enum extent {
    EXT_NONE,                   /* a vector has no second extent */
    EXT_VOCAB, EXT_POSITIONS, EXT_HIDDEN, EXT_HEAD_DIM,
    EXT_Q,                      /* heads * head_dim */
    EXT_KV,                     /* kv_heads * head_dim */
    EXT_QKV,                    /* EXT_Q + 2 EXT_KV */
    EXT_HEADS, EXT_KV_HEADS,
    EXT_FFN, EXT_2FFN,
    EXT_TOKEN,                  /* width of the token embedding */
    EXT_EXPERTS, EXT_EXPERT_FFN, EXT_2EXPERT_FFN, EXT_SHARED_FFN,
    EXT_Q_RANK, EXT_KV_RANK,    /* of latent attention; */
    EXT_KV_RANK_ROPE,           /* with the rotated elements of a key, which heads share; */
    EXT_KV_UP,                  /* heads * (a key's other elements, a value's) */
    EXT_VALUES,                 /* heads * a value's elements */
    EXT_SSM_HEADS, EXT_SSM_INNER,       /* of Mamba-2: heads; heads * a head's elements; */
    EXT_SSM_CONV,               /* x, B and C; */
    EXT_SSM_IN,                 /* gate, x, B, C, a time step a head; */
    EXT_SSM_TAPS,               /* weights of the convolution for each of its channels */
};

/* When a part is there. */
enum when {
    ALWAYS,
    IF_UNTIED,
    IF_PLAIN, IF_GATED,         /* the MLP: enum mlp_kind */
    IF_LEARNED,                 /* positions */
    IF_QK_NORM,
    IF_QK_NORM_EACH,            /* one module a head: "<module>.0" ... */
    IF_NORM_FIRST, IF_NORM_AROUND,      /* where norms are: enum norm_place */
    IF_SEQUENTIAL,              /* attention, then MLP */
    IF_PROJECTED,               /* the token embedding is narrower than the blocks */
    IF_ONE_NORM, IF_TWO_NORMS,  /* parallel halves that share a norm, or do not */
    IF_Q_RANK, IF_NO_Q_RANK,    /* q by way of fewer dimensions */
};

struct module_row {
    const char      *module;    /* below the model, or below its block; NULL ends a list.  "mlp.experts:down_proj" is
                                   a parameter that is not called weight; those in a row of one module are its own */
    enum tensor_role role;
    enum extent      out, in;   /* as nn.Linear: a weight of [out, in]; of experts' parameters: [expert, out, in] as stored */
    enum when        when;
};

/* ---- the order of calls ---- */

/* Names of modules in call order, which ZeRO-3 traces; [ ] holds a container's children, @ stands for the blocks.
 * !  no release in backward: no positional input that needs a gradient
 *    (parameter_offload.py, _post_backward_module_hook)
 * ~  no hook in backward at all
 * ?  a dropout: where it is active, recomputation must reach its mask
 * %  a function, not a module: nn.functional.dropout
 * $  saves a tensor in any case: recomputation must reach it
 * *  only where the model has such a module
 * &  only in the eager code with ALiBi
 * #  a list: one module for each of its numbers
 * +  its forward asks for its first child's weight (input_ids.to(self.embed_tokens.weight.device)), as what PEFT puts in a layer's place does
 * =  called once for each kind of layer, where these rotate by tables of their own
 * <  only in layers with rotary positions, where q and k are normed (llama4)
 * ^  a leaf: no hooks below it (DEFAULT_LEAF_MODULE_CLASSES of leaf_module_config.py: Mixtral's and Qwen3's mixtures) */
struct calls {
    const char *variant;        /* "": of every model of the family, but with "+qk" of those that norm q and k where others do not, "+sums" of
                                   norms of sums (opt-350m), "+dpx" of our own kernels, which norm q and k once both and v are there, "+autoep"
                                   of experts that AutoEP shares out (AutoEPMoELayer, no leaf), "+autoep-0.19.6" where a hook calls the gate once
                                   more, of which there is no backward (_register_logit_hook()) */
    const char *outer, *block;  /* outer NULL: no such variant */
};

/* ---- other tools ---- */

enum liger_part { LIGER_NONE, LIGER_HAS, LIGER_OTHER };         /* OTHER: a kernel that is not modelled */

/* Liger-Kernel's apply_liger_kernel_to_<family>(). */
struct liger_family {
    enum liger_part rope, norm, glu;
    bool known;                 /* there is such a function; */
    bool factory;               /* LLaMA-Factory calls it (model_utils/liger_kernel.py) */
    bool in_place;              /* norms' backward writes into the gradient of their output */
    bool gelu;                  /* LigerGEGLUMLP: its gate is a gelu */
    bool own_loss;              /* cross_entropy, not fused_linear_cross_entropy, is its default and all that it takes */
    bool replaces_nothing;      /* its CrossEntropyLoss stands in a class that transformers 5 does not call */
};

enum { FAMILY_CALLS = 4, FAMILY_NAMES = 3, FAMILY_EXPERT_PARTS = 4, FAMILY_OWN_KEYS = 4 };

struct family {
    const char *name;                       /* Hugging Face model_type */
    const char *also;                       /* another model_type with the same code */
    const char *text_of[FAMILY_NAMES];      /* multimodal types whose "text_config" without a type is of this family */
    const char *text_as;                    /* a text model's type whose blocks are this family's */

    /* The config: configuration_<family>.py. */
    const struct hf_key   *keys;
    const struct hf_fixed *fixed;           /* NULL: none */
    bool        experts;                    /* a mixture of experts */
    bool        heads_divide;               /* hidden must be a multiple of heads */
    bool        own_head_dim;               /* the modelling code looks at no head_dim: any is read, and none matters */
    const char *theta_key;                  /* of the rotary base, outside rope_parameters */
    double      theta;                      /* its default, 0: 10000 */
    const char *local_theta_key;            /* of the base in layers with a window; NULL: the same */
    double      local_theta;                /* its default */
    const char *partial_key;                /* of the rotated share of a head; NULL: all */
    double      partial;                    /* its default */
    int       (*read)(const struct hf *c, struct model *m);             /* what is more than a key, or NULL */
    const char *own_keys[FAMILY_OWN_KEYS];  /* that no class of transformers has */
    int       (*write)(const struct model *m, json_t *config);          /* ... and back */

    /* Tensors, in the order of named_parameters(); tests/model/test_transformer.c holds them against transformers. */
    const char        *blocks;              /* "model.layers": block b is "model.layers.<b>" */
    const struct module_row *before, *block, *after;
    const struct module_row *kinds[NBLOCK_KIND];  /* blocks by enum block_kind, of models whose blocks have one mixer each; else none */
    const struct module_row *dense;               /* a block without experts; NULL: there is none, or blocks have none anyway */
    int                extra_positions;     /* rows of the position table beyond the context */
    enum norm_kind     norm;
    enum norm_place    norm_place;
    enum mlp_kind      mlp;
    enum position_kind position;
    bool in_out;                            /* Conv1D: weights of linear layers are [in, out] */
    bool fused_qkv, fused_gate_up, qkv_grouped;
    bool parallel, one_norm;                /* halves that read the same input, and share a norm */
    bool qk_norm, qk_norm_bias;
    bool norm_bias, head_bias, router_bias;
    bool experts_in_out;                    /* experts' weights are [expert, in, out] */

    struct calls calls[FAMILY_CALLS];       /* forward()'s; none: modules in the order of their roles */

    /* What forward() does beside what the shapes say: modeling_<family>.py on the tape (model/program/torch_model.c). */
    bool conv1d;                /* Conv1D (x W + b) instead of nn.Linear */
    bool keeps_names;           /* the block holds its norm's and attention's output to its end */
    bool attention_named;       /* ... attention's alone */
    bool falcon;                /* modeling_falcon.py: FalconLinear multiplies by itself; heads split by index, both norms before attention,
                                   scores and halves added in place */
    bool scaled_table;          /* embeddings times sqrt(hidden), a buffer of the embedding (gemma) */
    bool scaled_embed, scaled_residual, scaled_logits;      /* by numbers of the config */
    bool float_logits;          /* the model itself makes them fp32 */
    bool positions_per_row;     /* position ids and embeddings for every row of the batch */
    bool attn_dropout;          /* the config's dropout acts on attention probabilities, */
    bool hidden_dropout;        /* on what the halves add to the residual, */
    bool mlp_dropout;           /* on what the MLP adds, */
    bool embed_dropout;         /* on the embeddings */
    bool one_plus_weight;       /* RMSNorm in fp32 with weight 1 + w */
    bool fp32_weight;           /* RMSNorm that multiplies by its weight in fp32, */
    bool cast_weight;           /* which it casts itself */
    bool centred_by_hand;       /* LayerNorm as single operations in fp32 (cohere) */
    bool layer_norm_1p;         /* LayerNorm with weight 1 + w (nemotron) */
    bool gelu_function;         /* GELU as an autograd.Function with elementwise temporaries */
    bool partial_rotary;        /* rotated and passed-through parts are concatenated */
    bool rotary_names;          /* ... and have names until attention returns */
    bool rotary_upcast;         /* q and k are rotated in fp32 */
    bool rotary_fp32;           /* by tables in fp32 */
    bool rotary_interleaved;    /* every block makes its tables from halves of the model's */
    bool position_table;        /* gptj: sines and cosines of all positions are a buffer in fp32, each forward takes its rows, and k and q each
                                   repeat them; "rotary_dim" counts the rotated elements, and no position is beyond the table */
    bool half_tables;           /* of cosines and sines hold each angle once; halves are rotated */
    bool two_tables;            /* of cosines and sines: for layers with a sliding window, and for the others */
    bool complex_rotary;        /* llama4: pairs are rotated as complex numbers in fp32, in layers with a window alone; behind it a norm
                                   without weights; in the others q is scaled by its position */
    bool scaled_rotated;        /* q times a number for each position, behind the rotation (ministral3) */
    bool scaled_query;          /* q is scaled before the scores, which are scaled as well */
    bool qk_norm_first;         /* q is normed before k is projected, k before v */
    bool qk_norm_rotated;       /* q and k are normed behind the rotation */
    bool qk_norm_whole;         /* ... all heads at once */
    bool qk_norm_listed;        /* ... each head by a module of its own */
    bool biased_scores;         /* a bias in fp32 is added to scores, then a mask of bools fills them */
    bool wide_scores;           /* the eager code multiplies q and k in fp32 */
    bool low_softmax;           /* softmax in the compute dtype, not in fp32 */
    bool wide_router;           /* from_pretrained() leaves the router in fp32 (_keep_in_fp32_modules_strict; transformers 5.24 and later) */
    bool sinks;                 /* beside the scores of each head a number */
    bool routes_first;          /* a token's experts are those of the largest scores, not probabilities */
    bool routes_low;            /* ... in the compute dtype throughout */
    bool routes_fp32;           /* ... and their weights stay in fp32 */
    bool clamped_gate;          /* experts with biases, whose gate and up are clamped (swiglu-oai) and whose class says is_transposed */
    bool every_expert;          /* computes every token, times its score for it */

    /* Masks that it asks transformers for (model/plan/attention.c). */
    const char *no_sdpa;        /* why transformers falls back to the eager code; NULL: it does not */
    bool always_masked;         /* create_causal_mask(allow_is_causal_skip=False) */
    bool both_masks;            /* one for layers with a window and one for the others, whatever it has */
    bool typed_masks;           /* the former only if it has such layers */
    bool own_groups;            /* calls sdpa by itself: one head of keys, or a copy for each query head */

    /* What other tools call it, and which of them take it. */
    const char *block_class;    /* of modeling_<family>.py: FSDP's auto_wrap_policy, accelerate's classes to wrap */
    const char *lora_targets;   /* PEFT's default target_modules; NULL: it has none */
    const char *peft_experts[FAMILY_EXPERT_PARTS];      /* names of router, gate, up and down of experts that PEFT converts into parameters */
    bool lora_mixture;          /* LoRA of the mixture is planned */
    bool linear_router;         /* the router is nn.Linear's child */
    struct liger_family liger;
    bool compiles;              /* torch.compile's partition of its blocks was compared (tests/model/test_torch_compile.c) */
    bool automodel_tensor;      /* NeMo Automodel's does (_parallelize_phi()), beside those of titan_tensor */
    bool titan_tensor;          /* torchtitan's tensor-parallel plan names its layers (transformers_modeling_backend: apply_non_moe_tp) */
    bool autotp;                /* DeepSpeed's AutoTP in training is modelled */
    bool no_kv_heads;           /* its config has no num_key_value_heads, which DeepSpeed's UlyssesSPAttentionHF reads */
    bool autoep;                /* DeepSpeed's AutoEP has a preset, and context parallelism of its mixture is planned */
    bool engine_axes;           /* dpxrun --engine torch cuts its tensors and layers */
    bool engine_titan;          /* dpxrun --engine torchtitan makes torchtitan's model of it */
    bool megatron;              /* Megatron-LM's options state its blocks */
    bool megatron_only;         /* ... and no class of transformers has them: framework Megatron-LM alone */
    const char *not_megatron;   /* why they do not; NULL: because nobody added it */
    bool residual_init;         /* weights of residual projections start smaller by the square root of 2 layers */
    const char *not_run;        /* arithmetic of it that dpxrun has no kernels for; NULL: nothing that its shapes do not show */
};

/* By its model_type; NULL: unknown. */
const struct family *family_find(const char *model_type);

/* Of a model; of one without a family (recorded, synthetic) what torch_model.c computes by default. */
const struct family *family_for(const struct model *m);

/* The i-th family by name, NULL after the last. */
const struct family *family_at(int i);

#endif
