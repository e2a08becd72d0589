/* float8.c -- see float8.h. */
#include "model/plan/float8.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/family/family.h"

bool float8_is_linear(const struct tensor *t)
{
    switch (t->role) {
    case ROLE_Q: case ROLE_K: case ROLE_V: case ROLE_QKV: case ROLE_ATTN_OUT: case ROLE_GATE: case ROLE_UP: case ROLE_GATE_UP:
    case ROLE_DOWN: case ROLE_PROJECT_IN: case ROLE_PROJECT_OUT: case ROLE_HEAD:
        return t->ndim == 2 && !t->is_bias && !t->in_out;
    default:
        return false;
    }
}

/* The i-th name of the filter; false: there are no more. */
static bool name_at(const char *list, int i, char name[TRAINING_LIST])
{
    while (i-- > 0 && list)
        list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
    if (!list || !*list)
        return false;
    size_t n = strcspn(list, ",");
    memcpy(name, list, n);
    name[n] = '\0';
    return true;
}

/* _auto_filter_for_tensorwise(), _auto_filter_for_rowwise(): N rows, K columns. */
static bool is_small(const struct plan *p, int64_t n, int64_t k)
{
    if (p->float8.recipe == FLOAT8_TENSORWISE)
        return k <= 4096 && n <= 1024;
    return n <= 2048 || k <= 1024 || (n <= 4096 && k <= 2048);
}

static bool is_filtered(const struct plan *p, const struct tensor *t)
{
    char name[TRAINING_LIST];

    if (!p->float8.filter[0])
        return t->role == ROLE_HEAD;
    for (int i = 0; name_at(p->float8.filter, i, name); i++)
        if (!strcmp(name, "auto_filter_small_kn") ? is_small(p, t->shape[0], t->shape[1]) : strstr(t->name, name) != NULL)
            return true;
    return false;
}

bool float8_converts(const struct plan *p, const struct tensor *t)
{
    return p->float8.recipe != FLOAT8_NONE && float8_is_linear(t) && t->shape[0] % 16 == 0 && t->shape[1] % 16 == 0 && !is_filtered(p, t);
}

bool float8_gathers(const struct plan *p, const struct tensor *t)
{
    return p->fsdp.float8_all_gather && float8_converts(p, t);
}

/* ---- what is refused ---- */

/* FSDPParam.all_gather_inputs (torch 2.15): a shard that is shorter than the others fails an assertion, and after a reshard to some ranks
 * there is no such gather (NotImplementedError). */
static int check_gather(const struct plan *p, const char *where)
{
    static const char *const key = "fsdp.enable_fsdp_float8_all_gather";

    if (!p->fsdp.float8_all_gather)
        return 0;
    if (p->float8.recipe != FLOAT8_TENSORWISE)
        return fail("%s: %s: \"enable_fsdp_float8_all_gather only supports tensorwise scaling granularity\" (torchao): fp8 \"tensorwise\"", where,
                    key);
    if (p->shard_group < 2)
        return fail("%s: %s: nothing is gathered in a shard group of one rank", where, key);
    if (p->fsdp.reshard_after_forward > 1)
        return fail("%s: %s: FSDP2 has no such gather after a reshard to a number of ranks: fsdp.reshard_after_forward true or false", where, key);
    for (int t = 0; t < p->model.ntensors; t++) {
        const struct tensor *x = &p->model.tensors[t];
        bool by_rows = x->role != ROLE_ATTN_OUT && x->role != ROLE_DOWN;        /* tensor parallelism cuts them */
        int64_t rows = by_rows && x->block >= 0 ? x->shape[0] / p->parallel.tensor : x->shape[0];
        if (float8_converts(p, x) && rows % p->shard_group)
            return fail("%s: %s: %s has %" PRId64 " rows, which %" PRId64 " ranks do not share evenly: FSDP2 refuses such shards", where, key, x->name,
                        rows, p->shard_group);
    }
    return 0;
}

/* A filter's name may be part of one block's: programs of blocks are made once. */
static int check_alike(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;

    for (int t = m->block0; t < m->block0 + (int)m->layers * m->per_block; t++)
        if (float8_converts(p, &m->tensors[t]) != float8_converts(p, &m->tensors[m->block0 + (t - m->block0) % m->per_block]))
            return fail("%s: fp8_filter: %s: blocks whose layers differ are not modelled", where, m->tensors[t].name);
    return 0;
}

/* The layers that are converted, one by one: _scaled_mm() takes multiples of 16. */
static int check_layers(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    int n = 0;

    for (int t = 0; t < m->ntensors; t++) {
        const struct tensor *x = &m->tensors[t];
        if (float8_tensor_parallel(p) && x->block >= 0 && float8_is_linear(x) && !float8_converts(p, x))
            return fail("%s: fp8_filter: %s: beside parallel.tensor and tensorwise scales torchtitan's styles take a block's layers all or none",
                        where, x->name);
        if (!float8_converts(p, x))
            continue;
        n++;
        if (x->block < 0 && p->parallel.tensor > 1)
            return fail("%s: fp8_filter: a head in float8 beside parallel.tensor is not modelled: torchtitan leaves it out", where);
        int cut = x->role == ROLE_ATTN_OUT || x->role == ROLE_DOWN;
        if (x->block >= 0 && x->shape[cut] / p->parallel.tensor % 16)
            return fail("%s: fp8: %s has %" PRId64 " of %" PRId64 " %s on each of %" PRId64 " ranks: products of 8-bit floats need multiples of 16",
                        where, x->name, x->shape[cut] / p->parallel.tensor, x->shape[cut], cut ? "columns" : "rows", p->parallel.tensor);
    }
    for (int t = 0; t < m->ntensors && (p->parallel.tensor > 1 || p->kernels == KERNELS_TORCH_COMPILE || p->kernels == KERNELS_DPX); t++)
        if (m->tensors[t].is_bias && m->tensors[t].role != ROLE_HEAD && float8_is_linear(&(struct tensor){ .role = m->tensors[t].role, .ndim = 2 }))
            return fail("%s: fp8: %s: linear layers with biases (%s) are modelled in float8 with torch-sdpa and torch-eager, without parallel.tensor",
                        where, m->name, m->tensors[t].name);
    return n > 0 ? 0 : fail("%s: fp8: no linear layer of %s would be converted: dimensions are multiples of 16, and names are not in fp8_filter",
                            where, m->name);
}

/* convert_to_float8_training() takes a head whose weight is the embedding's like any other. */
static int check_head(const struct plan *p, const char *where)
{
    struct tensor head = { .role = ROLE_HEAD, .name = "lm_head" };

    if (!p->model.tied || is_filtered(p, &head))
        return 0;
    return fail("%s: fp8_filter: the head in float8, whose weight is the embedding's, is not modelled: name lm_head", where);
}

/* A name that is part of no linear layer's leaves out none: a slip, but for the head of models that have none of their own. */
static int check_filter(const struct plan *p, const char *where)
{
    char name[TRAINING_LIST];

    for (int i = 0; name_at(p->float8.filter, i, name); i++) {
        bool known = !strcmp(name, "none") || !strcmp(name, "auto_filter_small_kn") || !strcmp(name, "lm_head");
        for (int t = 0; t < p->model.ntensors && !known; t++)
            known = float8_is_linear(&p->model.tensors[t]) && strstr(p->model.tensors[t].name, name);
        if (!known)
            return fail("%s: fp8_filter: \"%s\" is part of no linear layer's name in %s: it leaves out none", where, name, p->model.name);
    }
    return 0;
}

/* Our own kernels round to 8 bits and multiply in the activations' dtype, on any machine. */
static int check_own(const struct plan *p, const char *where)
{
    if (p->precision != DT_BF16 && p->precision != DT_FP32)
        return fail("%s: fp8: kernels \"dpx\" have it beside precision bf16 and fp32", where);
    if (!plan_is_data_parallel(p))
        return fail("%s: fp8: kernels \"dpx\" have it where each rank has the whole model and whole samples", where);
    return 0;
}

/* What kernels of either kind have no form of. */
static int check_all(const struct plan *p, const char *where)
{
    if (!training_is_all(&p->train))
        return fail("%s: fp8: beside adapters and frozen weights it is not modelled", where);
    if (p->model.experts > 0 || family_for(&p->model)->falcon)     /* FalconLinear multiplies by itself */
        return fail("%s: fp8: %s: modelled for layers that are nn.Linear, without experts", where, p->model.name);
    if (p->fsdp.cpu_offload || p->activation_offload != OFFLOAD_NOTHING || p->recompute == RECOMPUTE_OFFLOAD || p->recompute == RECOMPUTE_SELECTIVE)
        return fail("%s: fp8: beside offload, or recompute \"selective\", it is not modelled", where);
    if (p->loss == LOSS_CHUNKED || p->loss == LOSS_LINEAR_CHUNKS)
        return fail("%s: loss: beside fp8 \"chunked\" is not modelled", where);
    if (p->parallel.pipeline > 1 && pipeline_splits(p->parallel.pipeline_schedule))
        return fail("%s: parallel.pipeline_schedule: backward passes in two halves are not modelled beside fp8", where);
    if (p->parallel.tensor > 1 && strstr(p->float8.filter, "auto_filter_small_kn"))
        return fail("%s: fp8_filter: \"auto_filter_small_kn\" goes by whole layers: beside parallel.tensor name what stays as it is", where);
    if (p->parallel.tensor > 1 && !p->parallel.sequence)
        return fail("%s: parallel.sequence: beside fp8 tensor parallelism is modelled with it", where);
    return check_filter(p, where) < 0 || check_head(p, where) < 0 || check_alike(p, where) < 0 || check_layers(p, where) < 0 ? -1 : check_gather(p, where);
}

int float8_check(const struct plan *p, const char *where)
{
    if (p->float8.recipe == FLOAT8_NONE)
        return 0;
    if (p->kernels == KERNELS_DPX)
        return check_own(p, where) < 0 ? -1 : check_all(p, where);
    if (!(p->cluster.gpu.fp8 > 0))
        return fail("%s: fp8: %s: it has no units for 8-bit floats (torchao asks for compute capability 8.9 or more)", where,
                    p->cluster.gpu.name[0] ? p->cluster.gpu.name : "host");
    if (p->precision != DT_BF16)
        return fail("%s: fp8: modelled beside precision bf16", where);
    return check_all(p, where);
}
