/* bounds_units.c -- what a rank holds at least while a unit of FSDP, or the head, is whole (bounds.h).
 *
 * Of FSDP2 (lower_fsdp2_group.c): a unit's copy-out has the gathered buffer beside the parameters that it fills; its copy-in has the
 * gradients beside the reduction's input.  Backward takes the last unit first: blocks before a unit still keep all that they kept. */
#include "sim/search/bounds_internal.h"

#include "model/arch/training.h"
#include "model/program/torch_model.h"

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Dimension 0 of every tensor is cut in ceil(rows / ranks). */
static int64_t padded(const struct tensor *t, int64_t ranks)
{
    return (t->shape[0] + ranks - 1) / ranks * ranks * (t->numel / t->shape[0]);
}

/* Nothing but FSDP's ranks cuts a tensor, and all of them are gathered in the dtype of compute. */
static bool is_plain(const struct plan *p)
{
    return p->strategy == STRAT_FSDP && p->shard_group > 1 && p->parallel.tensor == 1 && p->parallel.pipeline == 1 && p->parallel.expert <= 1 &&
           !p->model.recorded && p->model.training.base == BASE_PLAIN && p->float8.recipe == FLOAT8_NONE;
}

bool bounds_rows(const struct plan *p) { return is_plain(p) && p->dialect == DIALECT_TORCH; }

int64_t bounds_row_share(const struct plan *p, bool trains)
{
    int64_t sum = 0;

    for (int i = 0; i < p->model.ntensors; i++)
        sum += p->model.tensors[i].frozen == trains ? 0 : padded(&p->model.tensors[i], p->shard_group) / p->shard_group;
    return sum;
}

/* ---- units ---- */

/* Elements of a unit, as they are and as they are sent: with rows that make them divide; and of what trains. */
struct gathered { int64_t all, sent, trains, reduced; };

static void add_tensor(struct gathered *u, const struct plan *p, const struct tensor *t)
{
    int64_t sent = padded(t, p->dialect == DIALECT_TORCH ? p->shard_group : 1);

    u->all += t->numel;
    u->sent += sent;
    u->trains += t->frozen ? 0 : t->numel;
    u->reduced += t->frozen ? 0 : sent;
}

/* Of a block's tensors those of its MLP alone, or all. */
static void add_block(struct gathered *u, const struct plan *p, int64_t block, bool mlp_alone)
{
    const struct tensor *t = &p->model.tensors[model_block_first(&p->model, block)];

    for (int i = 0, n = model_block_tensors(&p->model, block); i < n; i++)
        if (!mlp_alone || t[i].mlp_half)
            add_tensor(u, p, &t[i]);
}

static int64_t kept_by(const struct plan *p, const struct program *g, int64_t block)
{
    return bounds_leave(p) ? 0 : g->whole[program_piece_of_block(p, block)][PASS_FORWARD][GRADS_DROP].net[MEM_ACTIVATIONS];
}

/* Bytes at a unit's copy-out; FSDP1 has one tensor of all, which is gathered itself. */
static int64_t at_copy_out(const struct plan *p, const struct gathered *u)
{
    struct recipe r = plan_recipe(p);

    if (bounds_stays_whole(p))
        return 0;
    return u->all * dtype_bytes(r.used) + (p->dialect == DIALECT_TORCH ? u->sent * dtype_bytes(r.wire_gather) : 0);
}

/* At its copy-in, beside all gradients that are whole in any case. */
static int64_t at_copy_in(const struct plan *p, const struct gathered *u)
{
    struct recipe r = plan_recipe(p);

    if (p->dialect != DIALECT_TORCH)
        return 0;
    return (bounds_grads_stay_whole(p) ? 0 : u->trains * dtype_bytes(r.used)) + u->reduced * dtype_bytes(r.wire_reduce);
}

/* What blocks have no more behind a unit's reduction, of what bounds_states() counts: parameters, and gradients. */
static int64_t gone_with(const struct plan *p, int64_t first, int64_t end)
{
    int64_t used = dtype_bytes(plan_recipe(p).used);
    struct gathered u = { 0, 0, 0, 0 };

    for (int64_t b = first; b < end; b++)
        add_block(&u, p, b, false);
    return (bounds_stays_whole(p) ? u.all * used : 0) + (bounds_grads_stay_whole(p) ? u.trains * bounds_grad_bytes(p) : 0);
}

/* What a unit leaves until backward ends: of FSDP2 with replicas the reductions' outputs, which are summed over these. */
static int64_t left_behind(const struct plan *p, const struct gathered *u)
{
    bool stays = p->dialect == DIALECT_TORCH && p->shard_group < plan_data_ranks(p) && p->accumulation > 1 && p->sync_every_micro_step && !p->fsdp.cpu_offload;

    return stays ? u->reduced / p->shard_group * dtype_bytes(plan_recipe(p).wire_reduce) : 0;
}

/* Units of n blocks each, the last of what is left; of half blocks, their MLPs.  `held`: what blocks keep, less what units behind have no
 * more, and what reductions leave. */
static int64_t of_units(const struct plan *p, const struct program *g, int64_t n, bool mlp_alone)
{
    int64_t held = bounds_leave(p) ? 0 : g->whole[PIECE_EMBED][PASS_FORWARD][GRADS_DROP].net[MEM_ACTIVATIONS], sum = 0;

    for (int64_t b = 0; b < p->model.layers; b++)
        held += kept_by(p, g, b);
    for (int64_t end = p->model.layers, first; end > 0; end = first) {
        struct gathered u = { 0, 0, 0, 0 };
        first = (end - 1) / n * n;
        for (int64_t b = first; b < end; b++)
            add_block(&u, p, b, mlp_alone);
        sum = most(sum, held + at_copy_out(p, &u));
        for (int64_t b = first; b < end; b++)
            held -= kept_by(p, g, b);
        int64_t whole = bounds_stays_whole(p) ? u.all * dtype_bytes(plan_recipe(p).used) : 0;      /* it goes before the copy-in */
        sum = most(sum, held - whole + at_copy_in(p, &u));
        held += left_behind(p, &u) - gone_with(p, first, end);
    }
    return sum;
}

/* All of the model is one unit. */
static int64_t of_one_unit(const struct plan *p)
{
    struct gathered u = { 0, 0, 0, 0 };

    for (int i = 0; i < p->model.ntensors; i++)
        add_tensor(&u, p, &p->model.tensors[i]);
    return bounds_stays_whole(p) ? 0 : most(at_copy_out(p, &u), at_copy_in(p, &u));
}

int64_t bounds_units(const struct plan *p, const struct program *g)
{
    if (!is_plain(p) || (p->dialect != DIALECT_TORCH && p->dialect != DIALECT_TORCH_FSDP1))
        return 0;
    return p->unit == UNIT_MODEL ? of_one_unit(p) : p->unit == UNIT_BLOCK ? of_units(p, g, 1, false) : p->unit == UNIT_BLOCKS ? of_units(p, g, p->unit_blocks, false) :
           p->unit == UNIT_HALF_BLOCK ? of_units(p, g, 1, true) : 0;
}

/* ---- the head ---- */

/* Of ZeRO-3 a block that is not run again keeps the weights whole that autograd saved as they were gathered (lower_zero3_fetch.c). */
static int64_t kept_gathered(const struct plan *p)
{
    bool linear = torch_linear_saves_view(&p->model);
    int64_t sum = 0;

    for (int64_t b = 0; b < p->model.layers && p->strategy == STRAT_ZERO3 && p->kernels != KERNELS_DPX && p->parallel.expert <= 1; b++) {
        const struct tensor *t = &p->model.tensors[model_block_first(&p->model, b)];
        if (piece_is_recomputed(program_piece_of_block(p, b)) && recompute_whole(p->recompute))
            continue;
        for (int i = 0, n = model_block_tensors(&p->model, b); i < n; i++)
            if (t[i].numel > p->ds.stage3_param_persistence_threshold && (role_is_of_experts(t[i].role) || (t[i].ndim == 2 && linear)))
                sum += t[i].numel;
    }
    return sum * dtype_bytes(plan_recipe(p).used);
}

/* Where all is one unit: of its parameters what bounds_states() does not count. */
static int64_t of_whole_model(const struct plan *p)
{
    int64_t sum = p->model.params;

    for (int64_t b = 0; b < p->model.layers && bounds_stays_whole(p); b++) {
        struct gathered u = { 0, 0, 0, 0 };
        add_block(&u, p, b, false);
        sum -= u.all;
    }
    return sum * dtype_bytes(plan_recipe(p).used);
}

/* Of FSDP2, where all is one unit: the gathered buffer goes when another is gathered, and none is in forward (lower_fsdp2_group.c). */
int64_t bounds_head_gathered(const struct plan *p)
{
    struct gathered all = { 0, 0, 0, 0 };

    if (!bounds_rows(p) || p->unit != UNIT_MODEL)
        return 0;
    for (int i = 0; i < p->model.ntensors; i++)
        add_tensor(&all, p, &p->model.tensors[i]);
    return all.sent * dtype_bytes(plan_recipe(p).wire_gather);
}

int64_t bounds_head_whole(const struct plan *p)
{
    bool gathers = p->dialect == DIALECT_TORCH || p->dialect == DIALECT_TORCH_FSDP1 || (p->strategy == STRAT_ZERO3 && p->dialect == DIALECT_DEEPSPEED);
    const struct model *m = &p->model;
    int64_t used = dtype_bytes(plan_recipe(p).used), sum = 0;

    if (!gathers || plan_keeps_whole(p->strategy) || p->shard_group < 2 || p->parallel.tensor > 1 || p->parallel.pipeline > 1 || m->recorded ||
        p->float8.recipe != FLOAT8_NONE || m->training.base != BASE_PLAIN)
        return 0;
    if (p->strategy == STRAT_FSDP && p->unit == UNIT_MODEL)
        return of_whole_model(p);
    bool root = p->strategy == STRAT_FSDP && (p->unit == UNIT_BLOCK || p->unit == UNIT_BLOCKS || p->unit == UNIT_HALF_BLOCK) &&
                (p->dialect == DIALECT_TORCH_FSDP1 || p->fsdp.root_units == ROOT_TOGETHER);     /* it has all that is in no block */
    for (int i = 0; i < m->ntensors; i++)
        sum += root ? (m->tensors[i].block < 0 || m->tensors[i].block >= m->layers ? m->tensors[i].numel : 0) :
               m->tensors[i].role == (m->tied ? ROLE_TOKENS : ROLE_HEAD) ? m->tensors[i].numel : 0;
    return sum * used + kept_gathered(p);
}
