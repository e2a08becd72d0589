/* framework.h -- what dpx knows of a framework beside its options: a row for each, whose functions are in a file of its own.
 *
 *     if (framework_of(p)->resolve)
 *         framework_of(p)->resolve(p);
 *
 * A framework is one or several cells of the table of strategies and dialects that the same code runs.  What a column cannot say with
 * a number is a function of its file: framework_paper.c, framework_torch.c (DataParallel, DDP, ZeroRedundancyOptimizer),
 * framework_fsdp.c (FSDP2, FSDP1), framework_deepspeed.c (stage 0, stages 1 and 2, stage 3), framework_megatron.c.  A column that is left out
 * says the usual: no, none, or what the comment of its caller says.  Its schedules are model/lower/lower.c's. */
#ifndef DPX_FRAMEWORK_H
#define DPX_FRAMEWORK_H

#include "model/plan/loss_scaling.h"
#include "model/plan/plan.h"
#include "model/plan/plan_groups.h"

/* What each step of framework_version changes, by the packages' own sources at these versions. */
struct framework_version { const char *version, *about; };

/* What a dialect is called, and its versions, the newest first. */
struct framework_tool {
    const char *name;
    const struct framework_version *versions;
    int  nversions;                 /* 0: it has none */
    int  usual;                     /* which of them a plan takes that names none */
    bool torch;                     /* they are PyTorch's; else the newest PyTorch is under it */
};

/* Sets of strategies, units and pipelines: a bit each. */
#define OF_STRATEGY(s) (1u << (s))
#define OF_UNIT(u)     (1u << (u))
#define OF_PIPELINE(k) (1u << (k))
enum { EVERY_STRATEGY = (1 << NSTRATEGY) - 1 };

/* Units that a search tries, in this order. */
struct unit_tried { enum unit_kind kind; int64_t blocks; };

/* Mixtures of experts: none; of blocks that are all alike, without latent attention; any. */
enum mixtures { MIXTURES_NONE, MIXTURES_ALIKE, MIXTURES_ANY };

typedef int framework_check(const struct plan *p, const char *where);
typedef void framework_groups(const struct plan *p, const struct mesh *m, struct plan_groups *out);

struct framework {
    const struct framework_tool *tool;

    /* ---- when gradients are reduced, over whom ---- */
    unsigned syncs;                 /* strategies that reduce after every micro-step by default, outside of a pipeline */
    unsigned sync_is_choice;        /* where sync_every_micro_step is a choice, */
    unsigned group_is_choice;       /* where shard_group is, */
    bool     tries_groups;          /* and a search varies it */

    /* ---- process groups, appended ---- */
    framework_groups *state_groups; /* of those that share states; NULL: shards and replicas, where there is more than one copy */
    framework_groups *copy_groups;  /* more of those that compute one copy together; NULL: none */
    bool     experts_span_replicas; /* experts are shared out over replicas, too */
    bool     lone_expert_data;      /* ranks that have the same experts are a group also where that is one rank */
    bool     biases_routers;        /* tokens of routers with a bias are counted over a stage */

    /* ---- units ---- */
    enum unit_kind unit;            /* the default where gradients or parameters are sharded; else it is the model */
    unsigned       units;           /* which exist, */
    const char    *units_text;      /* and in words */
    const struct unit_tried *unit_tries;
    int            nunit_tries;

    /* ---- defaults; NULL: knob_rules.c's own ---- */
    double (*kernels)(const struct plan *p);
    double (*reduce_dtype)(const struct plan *p);
    double (*model_dtype)(const struct plan *p);
    double (*check_overflow)(const struct plan *p);
    bool   sequence;                /* of norms, with tensor-parallel ranks */
    enum context_method context_method;
    bool   balances_heads;          /* positions are dealt out in balance where ranks exchange heads, too */
    bool   ends_count;              /* a pipeline's split counts the embedding and the head as a block each */
    bool   cuts_experts;            /* experts may be cut over tensor-parallel ranks */

    /* ---- what is refused, by name: 0, or -1 reported; NULL: nothing ---- */
    framework_check *check_first;   /* before anything else looks at the plan but ranges of its keys */
    framework_check *check;         /* the framework's options, beside each other and the model */
    framework_check *check_group;   /* shard_group, where it is a choice */
    framework_check *check_train;   /* beside adapters, frozen weights and packed ones */
    int    (*check_optimizer)(const struct plan *p, const char *where, const char *word);   /* not AdamW; NULL: optimizer_check_torch() */
    framework_check *check_experts; /* a mixture of experts; */
    int    (*check_expert_ranks)(const struct plan *p, int64_t sharing, const char *where); /* with ranks that share experts out, `sharing` the same */
    framework_check *check_tensor, *check_context;  /* with ranks of that axis */
    framework_check *check_pipeline;        /* NULL: it has none */
    enum mixtures mixtures;         /* that are planned */
    bool     runs_pipelines;        /* by schedules of its own, not PyTorch's torch.distributed.pipelining */
    bool     ends_alone;            /* its first and last stage may have the embedding or the head alone */
    bool     fills_partly;          /* with fewer micro-steps than stages, too */
    const char *not_run;            /* why dpxrun does not run it; NULL: it does, */
    bool     runs_tensor, runs_context;     /* with ranks of these axes, too, */
    int    (*check_run)(const struct plan *p);      /* but for what this refuses */
    unsigned pipelines_fold;        /* those whose micro-steps are alike: many cost no more to plan than few */

    /* ---- what a plan's options make of each other ---- */
    void (*resolve)(struct plan *p);
    /* What the number formats are, beside *r that has the plan's precision everywhere and an fp32 master. */
    void (*recipe)(const struct plan *p, struct recipe *r);
    bool (*wide_adapters)(const struct plan *p);            /* of adapters: plan_has_wide_adapters() */
    bool narrow_copies;             /* beside them lora.modules_to_save trains in the dtype of the frozen weights; else it is made fp32 */
    bool meets_tied_grads;          /* both parts of a tied tensor's gradient go through the framework's hands */
    bool megatron_layers;           /* its kernels are Megatron-core's layers */
    bool numbers_whole;             /* a head of one number is whole on each tensor-parallel rank of the last stage */
    bool records_streams;           /* tensors of other streams are handed back by tensor.record_stream() */
    bool plain_host;                /* memory of the host is allocated as it is asked for, not by PyTorch's allocator of pinned memory */
    int  (*registered)(const struct plan *p, struct model *out);    /* the model as it registers its parameters; NULL: as transformers does */
    enum loss_scaling_rule loss_scaling;
    bool flat_units;                /* parameters are views of their unit's one tensor */
    bool autocasts_adapters;        /* PEFT's autocast_adapter_dtype is a choice beside packed weights */
    bool (*orthogonalises)(const struct tensor *t);         /* Muon's matrices; NULL: those of blocks */
};

/* The row of a plan's cell, and of any; NULL: there is no such cell. */
const struct framework *framework_of(const struct plan *p);
const struct framework *framework_at(enum strategy s, enum dialect d);

/* The row of framework_version that says what a dialect is called. */
const struct framework_tool *framework_tool(enum dialect d);

/* ---- rows, each in its file ---- */

extern const struct framework_tool framework_paper_tool, framework_torch_tool, framework_fsdp1_tool, framework_deepspeed_tool,
                                   framework_megatron_tool;
extern const struct framework framework_paper_dp, framework_paper, framework_torch_dp, framework_torch_ddp, framework_torch_zro, framework_fsdp2,
                              framework_fsdp1, framework_deepspeed_0, framework_deepspeed_12, framework_deepspeed_3, framework_megatron;

#endif
