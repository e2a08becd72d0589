/* recorded_check.c -- see recorded_check.h.  A recording is one rank's step of the module as it is: what would change the step's operations has to be
 * in it, and what cuts the module is not known of it. */
#include "model/plan/recorded_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/recorded.h"
#include "model/arch/training.h"
#include "model/plan/knob.h"
#include "model/plan/optimizer_traits.h"

const char *recorded_precision(const struct plan *p)
{
    struct recipe r = plan_recipe(p);

    return r.autocast ? "autocast" : r.used == DT_BF16 ? "bf16" : r.used == DT_FP32 ? "fp32" : dtype_name(r.used);
}

enum rec_again recorded_again(const struct plan *p)
{
    return p->recompute == RECOMPUTE_FULL ? REC_WHOLE : p->recompute == RECOMPUTE_OP ? REC_BY_OPERATOR : REC_NOTHING;
}

bool recorded_stage3(const struct plan *p)
{
    return p->strategy == STRAT_ZERO3;
}

/* Keys that change what a block computes. */
static int check_keys(const struct plan *p, const char *where)
{
    const struct { bool asked; const char *key, *why; } keys[] = {
        { p->kernels != KERNELS_TORCH_SDPA, "kernels", "a recorded module runs the operators that were recorded: leave it out" },
        { p->dropout > 0, "dropout", "what the module drops was recorded: leave it out" },
        { !training_is_all(&p->train) || p->train.base != BASE_PLAIN, "train", "what trains was recorded: set requires_grad in the function that makes the module, and record it" },
        { p->loss != LOSS_FP32, "loss", "the module's own loss was recorded: leave it out" },
        { p->liger.rope || p->liger.rms_norm || p->liger.glu_activation, "liger", "patch the module before it is recorded" },
        { p->activation_offload != OFFLOAD_NOTHING, "activation_offload", "which tensors it moves is not known of a recorded module yet: take recompute full" },
        { p->unit != UNIT_BLOCK && p->unit != UNIT_MODEL && p->strategy != STRAT_ZERO3, "unit", "of a recorded module units are those of its file: leave it out, or record with --unit" },
        { optimizer_traits(p->optimizer)->not_recorded, "optimizer", optimizer_traits(p->optimizer)->not_recorded },
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].asked)
            return fail("%s: %s: %s", where, keys[i].key, keys[i].why);
    return 0;
}

enum dtype recorded_hands(const struct plan *p)
{
    const struct rec_program *g = recorded_program(p->model.recorded, recorded_precision(p), recorded_again(p), recorded_stage3(p));

    return g ? (enum dtype)g->hands_dtype : DT_FP32;
}

/* torch.distributed.pipelining of its units: each stage the modules of a run of units, the root's on the first and the last. */
static int check_pipeline(const struct plan *p, const char *where)
{
    const struct recorded *r = p->model.recorded;
    const struct rec_program *g = recorded_program(r, recorded_precision(p), recorded_again(p), recorded_stage3(p));
    const char *why = NULL;

    if (p->parallel.pipeline <= 1)
        return 0;
    if (p->dialect != DIALECT_TORCH || (p->strategy != STRAT_FSDP && p->strategy != STRAT_DDP) || plan_version(p) < 2015)
        why = "a recorded module is cut into stages under FSDP2 and DDP of PyTorch 2.15 alone";
    else if (p->parallel.pipeline_schedule > PIPELINE_1F1B || p->parallel.virtual_stages != 1)
        why = "a recorded module is cut into stages under gpipe and 1f1b alone";
    else if (r->nunits < p->parallel.pipeline)
        why = "it has fewer units than there are stages";
    else if (r->nshared > 0)
        why = "it shares a parameter between modules, which may be of different stages";
    else if (r->nbuffers + r->nkept > 0)
        why = "it has buffers, and the file does not say of which stage they are";
    else if (g && g->whole)
        why = g->whole;
    return why ? fail("%s: parallel.pipeline: %s is not cut: %s", where, r->name, why) : 0;
}

static int check_parallel(const struct plan *p, const char *where)
{
    static const char whole[] = "DDP, FSDP1, FSDP2, HSDP and DeepSpeed's stages divide its parameters";
    const struct { int64_t ranks; const char *key; } axes[] = { { p->parallel.tensor, "tensor" }, { p->parallel.context, "context" }, { p->parallel.expert, "expert" } };

    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].ranks > 1)
            return fail("%s: parallel.%s: a recorded module is planned whole on each rank: %s", where, axes[i].key, whole);
    if (p->dialect != DIALECT_TORCH && p->dialect != DIALECT_TORCH_FSDP1 && p->dialect != DIALECT_DEEPSPEED)
        return fail("%s: dialect: a recorded module is PyTorch's: take torch, torch-fsdp1 or deepspeed", where);
    return check_pipeline(p, where);
}

/* The programs there are, in words. */
static void list_programs(const struct recorded *r, char *to, size_t size)
{
    size_t n = 0;

    to[0] = '\0';
    for (int i = 0; i < r->nprograms && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%s%s%s%s", i ? ", " : "", r->program[i].precision, r->program[i].again ? " with recompute " : "", r->program[i].again ? recorded_again_name((enum rec_again)r->program[i].again) : "",
                              r->program[i].stage3 ? " under stage 3" : "");
}

static int check_program(const struct plan *p, const char *where)
{
    const struct recorded *r = p->model.recorded;
    char has[400];

    if ((p->recompute != RECOMPUTE_NONE && p->recompute != RECOMPUTE_FULL && p->recompute != RECOMPUTE_OP) || p->recompute_interval != 1)
        return fail("%s: recompute%s: of a recorded module none, full or op", where, p->recompute_interval != 1 ? "_interval" : "");
    if (recorded_program(r, recorded_precision(p), recorded_again(p), recorded_stage3(p)))
        return 0;
    if (recorded_stage3(p) && recorded_program(r, recorded_precision(p), recorded_again(p), false))
        return fail("%s: strategy: DeepSpeed's stage 3 fetches by the modules' hooks, which %s was recorded without: record it with --stage3, or take "
                    "zero2, or fsdp", where, p->model.name);
    list_programs(r, has, sizeof has);
    return fail("%s: %s: %s/%s runs %s in %s with recompute %s, which was not recorded; its file has: %s", where,
                p->recompute == RECOMPUTE_NONE ? "precision" : "recompute", strategy_name(p->strategy), dialect_name(p->dialect), p->model.name,
                recorded_precision(p), recompute_name(p->recompute), has);
}

/* MixedPrecision._module_classes_to_ignore: FSDP1 wraps each BatchNorm apart, in fp32. */
static int check_fsdp1(const struct plan *p, const char *where)
{
    const struct recorded *r = p->model.recorded;

    if (p->dialect != DIALECT_TORCH_FSDP1)
        return 0;
    for (int u = 0; u < r->nunits; u++)
        if (r->ntensors[u] == 0)
            return fail("%s: dialect: FSDP1 has no unit for %s, which has no parameters: leave it out of the units", where, r->unit[u]);
    for (int u = 0; u < r->nunits; u++)
        if (r->turn[u] == REC_FORWARD_ONLY)
            return fail("%s: dialect: %s has no backward: which units FSDP1 gathers in vain then is not followed: take torch (FSDP2, DDP) or deepspeed", where, r->unit[u]);
    for (int64_t i = 0; i < r->nkernels && p->precision != DT_FP32; i++)
        if (strstr(r->kernels[i].name, "batch_norm"))
            return fail("%s: dialect: under mixed precision FSDP1 makes each BatchNorm of %s a unit of its own, in fp32, which is not planned: take torch "
                        "(FSDP2, DDP) or deepspeed", where, r->name);
    return 0;
}

/* A gradient of the root's, in a unit's piece, would need a place in each unit. */
static int check_stage3(const struct plan *p, const char *where)
{
    const struct recorded *r = p->model.recorded;
    const struct rec_program *g = recorded_program(r, recorded_precision(p), recorded_again(p), true);

    if (!recorded_stage3(p))
        return 0;
    for (int u = 0; u < r->nunits; u++) {
        const struct rec_piece *piece = &r->pieces[g->kind[g->of_unit[u]]];
        for (int i = piece->hook0[1]; i < piece->hook0[1] + piece->nhooks[1]; i++)
            if (r->hooks[i].kind == REC_TAKE && r->hooks[i].of >= r->ntensors[u])
                return fail("%s: strategy: the gradient of %s, which is of no unit, is complete in %s: what stage 3 does with it is not followed", where,
                            p->model.tensors[recorded_tensor(r, u, r->hooks[i].of)].name, r->unit[u]);
    }
    return 0;
}

static int check_size(const struct plan *p, const char *where)
{
    const struct recorded *r = p->model.recorded;

    if (r->batch > 0 && p->micro_batch != r->batch)
        return fail("%s: micro_batch: %" PRId64 ": %s was recorded at batch %" PRId64 " alone", where, p->micro_batch, r->name, r->batch);
    if (r->only > 0 && p->seq != r->only)
        return fail("%s: seq: %" PRId64 ": %s was recorded at size %" PRId64 " alone", where, p->seq, r->name, r->only);
    if (r->only == 0 && p->seq > r->most)
        return fail("%s: seq: %" PRId64 ": %s takes up to %" PRId64, where, p->seq, r->name, r->most);
    if (r->only == 0 && (p->seq < r->least || p->seq % r->step))
        return fail("%s: seq: %" PRId64 ": %s was recorded for multiples of %" PRId64 " from %" PRId64 " on", where, p->seq, r->name, r->step, r->least);
    return 0;
}

/* A tensor that would train and gets no gradient.  To fully_shard() it is as a frozen one; a reducer has a place for it in a bucket, and must be
 * told to look for it; what other frameworks do was not followed. */
static int check_unused(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    bool reducer = p->dialect == DIALECT_TORCH && (p->strategy == STRAT_DDP || p->strategy == STRAT_ZERO1);
    int n = 0, first = 0;

    for (int t = m->ntensors - 1; t >= 0; t--)
        if (m->tensors[t].unused) {
            n++;
            first = t;
        }
    if (n == 0 || (p->dialect == DIALECT_TORCH && p->strategy == STRAT_FSDP))
        return 0;
    if (!reducer)
        return fail("%s: model: %d tensors of %s get no gradient (%s first); what %s/%s does with them is not known: freeze them in the module "
                    "(requires_grad = False), which changes no result, and record it again", where, n, m->name, m->tensors[first].name,
                    strategy_name(p->strategy), dialect_name(p->dialect));
    if (!p->ddp.find_unused_parameters || p->ddp.static_graph)
        return fail("%s: ddp.%s: %d tensors of %s get no gradient (%s first): DDP then fails in the second step; set %s, or freeze them "
                    "in the module", where, p->ddp.static_graph ? "static_graph" : "find_unused_parameters", n, m->name, m->tensors[first].name,
                    p->ddp.static_graph ? "it to false" : "it");
    return 0;
}

/* fully_shard() refuses these itself. */
static int check_tensors(const struct plan *p, const char *where)
{
    if (check_unused(p, where) < 0)
        return -1;
    for (int t = 0; t < p->model.ntensors; t++)
        if (p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH && p->model.tensors[t].ndim == 0)
            return fail("%s: strategy: fully_shard does not take scalar parameters: make %s a tensor of one dimension", where, p->model.tensors[t].name);
    return 0;
}

/* ProcessGroupNCCL's table of dtypes has no 16-bit integers. */
static int check_buffers(const struct plan *p, const char *where)
{
    const struct recorded *r = p->model.recorded;
    bool sends = p->dialect == DIALECT_TORCH && (p->strategy == STRAT_DDP || p->strategy == STRAT_ZERO1) && p->ddp.wrapped;

    for (int64_t i = 0; i < r->nbuffers && sends && (p->ddp.broadcast_buffers || p->ddp.forward_sync_buffers >= 0); i++)
        if (r->buffer[i].kind == REC_INT16)
            return fail("%s: strategy: %s has buffers of int16, which DDP broadcasts and NCCL does not: make them int32, or take fsdp", where, r->name);
    return 0;
}

int recorded_check(const struct plan *p, const char *where)
{
    if (!p->model.recorded)
        return 0;
    return check_parallel(p, where) < 0 || check_keys(p, where) < 0 || check_size(p, where) < 0 || check_fsdp1(p, where) < 0 || check_program(p, where) < 0 ||
           check_stage3(p, where) < 0 || check_tensors(p, where) < 0 || check_buffers(p, where) < 0 ? -1 : 0;
}
