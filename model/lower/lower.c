/* lower.c -- the lowering of each strategy and dialect, and what all of them share around it. */
#include "model/lower/lower.h"

#include <inttypes.h>

#include "base/fail.h"
#include "model/lower/common/lower_internal.h"
#include "model/lower/common/pinned.h"
#include "model/framework/torch_fsdp1/lower_fsdp1.h"
#include "model/plan/attention.h"
#include "model/plan/elsewhere.h"
#include "model/plan/experts_check.h"
#include "model/plan/framework.h"
#include "model/plan/graphs.h"
#include "model/plan/megatron_check.h"
#include "model/plan/optimizer_traits.h"
#include "model/schedule/schedule_cut.h"
#include "model/schedule/schedule_offload.h"

typedef int lowering(const struct local_model *local, struct schedules *s);

/* Data ranks: rank 0 serves, the others work. */
static int dp_ranks(const struct local_model *local, int64_t ranks[LOWER_KINDS])
{
    ranks[0] = 0;
    ranks[1] = 1;
    return local->data_ranks > 1 ? 2 : 1;
}

/* FP16_Optimizer masks the flat gradient on ranks behind the first of those that share tensors, or positions (lower_ds_other.c). */
static bool masks_differ(const struct plan *p)
{
    return p->parallel.tensor * p->parallel.context > 1 && p->precision != DT_FP32;
}

/* What makes each framework's schedules. */
static const struct lowered {
    const struct framework *of;
    lowering *lower;
    int     (*check)(const struct plan *p);         /* of lower_check(); NULL: nothing */
    int     (*ranks)(const struct local_model *local, int64_t ranks[LOWER_KINDS]);      /* data ranks that can differ; NULL: none does */
    bool    (*within)(const struct plan *p);        /* whether ranks of one copy differ; NULL: they do not */
} table[] = {
    { &framework_paper_dp,     lower_dp,       NULL,              dp_ranks,     NULL },
    { &framework_paper,        lower_paper,    NULL,              NULL,         NULL },
    { &framework_torch_dp,     lower_dp,       NULL,              dp_ranks,     NULL },
    { &framework_torch_ddp,    lower_ddp,      NULL,              NULL,         NULL },
    { &framework_torch_zro,    lower_ddp,      NULL,              zro_ranks,    NULL },
    { &framework_fsdp2,        lower_fsdp2,    NULL,              NULL,         NULL },
    { &framework_fsdp1,        lower_fsdp1,    NULL,              fsdp1_ranks,  NULL },
    { &framework_deepspeed_0,  lower_zero12,   NULL,              NULL,         masks_differ },
    { &framework_deepspeed_12, lower_zero12,   NULL,              zero12_ranks, NULL },
    { &framework_deepspeed_3,  lower_zero3,    lower_zero3_check, NULL,         NULL },
    { &framework_megatron,     lower_megatron, NULL,              NULL,         NULL },
};

/* NULL: the plan's cell does not exist. */
static const struct lowered *lowered_of(const struct plan *p)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].of == framework_of(p))
            return &table[i];
    return NULL;
}

/* What the plan says of activations, as one pass over any strategy's schedules. */
static void offload_activations(const struct plan *p, struct schedules *s)
{
    bool inputs = p->recompute == RECOMPUTE_OFFLOAD;    /* offload_wrapper(): save_on_cpu(pin_memory=True) */
    bool pinned = inputs || p->activation_offload != OFFLOAD_SAVE_ON_CPU;
    bool rounds = pinned && !framework_of(p)->plain_host;
    struct offload_way way = {
        .to = pinned ? SPACE_PINNED : SPACE_HOST, .streams = p->activation_offload == OFFLOAD_STREAMS,
        .recomputed = inputs, .room = rounds ? pinned_bytes : pageable_bytes,
        .saved = program_saves_on_host(p), .rounds = rounds,
    };

    if (inputs || p->activation_offload != OFFLOAD_NOTHING)
        schedules_offload(s, &way);
    if (p->activation_offload == OFFLOAD_STREAMS && p->kernels != KERNELS_DPX)
        sched_note(s, "what a block keeps leaves once, behind its forward; torchtune's OffloadActivations copies a tensor as "
                   "often as it is saved");
}

int lower_check(const struct plan *p)
{
    const struct lowered *f = lowered_of(p);

    return f && f->check ? f->check(p) : 0;
}

int lower_using(const struct plan *p, int64_t rank, const struct program *g, struct schedules *s)
{
    const struct lowered *f = lowered_of(p);
    struct local_model local;
    int rc;

    if (!f)
        return fail("strategy \"%s\" does not exist in dialect \"%s\"", strategy_name(p->strategy),
                    dialect_name(p->dialect));
    if (rank < 0 || rank >= p->cluster.world_size)
        return fail("rank %lld is not in a world of %lld", (long long)rank,
                    (long long)p->cluster.world_size);
    if (lower_check(p) < 0)
        return -1;
    schedules_reset(s);
    s->program = *g;
    s->borrowed = true;
    s->rank = rank;
    s->world_size = p->cluster.world_size;
    s->seed = 1.0 / (double)p->accumulation;
    plan_groups(p, &s->groups);
    s->recorded = p->model.recorded;
    if (local_model_of(p, rank, &local) < 0)
        return -1;
    s->recorded_from = p->model.recorded ? (int)local.share.chunk[0].first : 0;
    rc = f->lower(&local, s);
    local_model_free(&local);
    if (rc < 0)
        return -1;
    offload_activations(p, s);
    schedules_cut(s);
    if (attention_note(p))
        sched_note(s, attention_note(p));
    if (experts_note(p))
        sched_note(s, experts_note(p));
    if (experts_router_note(p))
        sched_note(s, experts_router_note(p));
    if (experts_adapters_note(p))
        sched_note(s, experts_adapters_note(p));
    if (experts_base_note(p))
        sched_note(s, experts_base_note(p));
    if (megatron_note(p))
        sched_note(s, megatron_note(p));
    if (optimizer_traits(p->optimizer)->note)
        sched_note(s, optimizer_traits(p->optimizer)->note);
    if (graphs_note(p))
        sched_note(s, graphs_note(p));
    if (elsewhere_note(p))
        sched_note(s, elsewhere_note(p));
    if (s->too_long)
        return fail("accumulation %" PRId64 ": no two of this plan's micro-steps are alike, and its schedule would have more than %d "
                    "entries: lower it", p->accumulation, SCHED_MOST_OPS);
    if (s->overflow)
        return fail("a buffer or a collective of this plan exceeds 2^60 bytes: "
                    "reduce micro_batch, seq or the model");
    return 0;
}

int lower_unless(const struct plan *p, int64_t rank, const struct program *g, struct schedules *s)
{
    return s->nops > 0 && s->rank == rank ? 0 : lower_using(p, rank, g, s);
}

int lower(const struct plan *p, int64_t rank, struct schedules *s)
{
    struct program g = { 0 };
    int rc;

    if (program_build(p, &g) < 0)
        return -1;
    rc = lower_using(p, rank, &g, s);
    if (s->program.store != g.store)    /* refused before the program was taken */
        program_free(&g);
    else
        s->borrowed = false;
    return rc;
}

int lower_ranks(const struct plan *p, int64_t ranks[LOWER_KINDS])
{
    const struct lowered *f = lowered_of(p);
    struct plan_groups groups;
    struct local_model first;
    int n = 1;

    ranks[0] = 0;
    if (f->ranks) {
        if (local_model_of(p, 0, &first) < 0)
            return -1;
        n = f->ranks(&first, ranks);
        local_model_free(&first);
    }
    plan_groups(p, &groups);
    for (int i = 0; i < n; i++)
        ranks[i] = mesh_member(&groups.group[plan_groups_find(&groups, GROUP_DATA)].of, 0, ranks[i]);
    if (f->within && f->within(p))
        ranks[n++] = mesh_member(&groups.group[plan_groups_find(&groups, p->parallel.tensor > 1 ? GROUP_TENSOR : GROUP_CONTEXT)].of, 0, 1);
    return n;
}
