/* knob.c -- looking rows up in the table of knobs, and words about them. */
#include "model/plan/knob.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_key(const struct knob *k, const char *object, const char *name)
{
    return !strcmp(k->name, name) && !strcmp(k->object, object);
}

/* Rows by the first two characters of their names, in the order of the table: rows are asked for hundreds of times by one answer.  Each
 * thread makes its own. */
enum { STARTS = 128 };
static _Thread_local struct { bool made; int16_t first[STARTS], next[PLAN_MAX_KNOBS]; } by_start;     /* of both: 1 + the row, 0: none */

static unsigned start_of(const char *name)
{
    return ((unsigned char)name[0] * 5u + (name[0] ? (unsigned char)name[1] : 0u)) % STARTS;
}

static void make_index(void)
{
    int n = 0;

    while (knob_at(n))
        n++;
    for (int i = n; i > 0; i--) {
        int16_t *first = &by_start.first[start_of(knob_at(i - 1)->name)];
        by_start.next[i - 1] = *first;
        *first = (int16_t)i;
    }
    by_start.made = true;
}

const struct knob *knob_find(const char *object, const char *name, uint64_t cell)
{
    if (!by_start.made)
        make_index();
    for (int i = by_start.first[start_of(name)]; i > 0; i = by_start.next[i - 1]) {
        const struct knob *k = knob_at(i - 1);
        if (k->name[0] == name[0] && k->cells & cell && is_key(k, object, name))
            return k;
    }
    return NULL;
}

bool knob_has(const struct plan *p, const char *object, const char *name)
{
    return knob_find(object, name, knob_cell(p)) != NULL;
}

uint64_t knob_cells(const char *object, const char *name)
{
    const struct knob *k;
    uint64_t cells = 0;

    for (int i = 0; (k = knob_at(i)); i++)
        if (is_key(k, object, name))
            cells |= k->cells;
    return cells;
}

bool knob_is_object(const char *name)
{
    const char *last = NULL;        /* rows of one object follow each other */
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); last = k->object, i++)
        if (k->object != last && k->object[0] && !strcmp(k->object, name))
            return true;
    return false;
}

const char *const *knob_words(const char *name)
{
    const struct knob *k = knob_find("", name, UINT64_MAX);

    assert(k && k->words);
    return k->words;
}

/* ---- other tools ---- */

static bool is_named(const struct knob *k, size_t tool, const char *section, const char *name)
{
    const struct knob_name *n = knob_name_in(k, tool);

    return n->section && !strcmp(n->section, section) && !strcmp(knob_spelt(k, n), name);
}

const struct knob *knob_named(size_t tool, const char *section, const char *name, uint64_t cell)
{
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)); i++)
        if (knob_concerns(k, knob_name_in(k, tool), cell) && is_named(k, tool, section, name))
            return k;
    return NULL;
}

uint64_t knob_named_cells(size_t tool, const char *section, const char *name)
{
    const struct knob *k;
    uint64_t cells = 0;

    for (int i = 0; (k = knob_at(i)); i++)
        if (is_named(k, tool, section, name))
            cells |= k->cells & knob_name_in(k, tool)->cells;
    return cells;
}

static bool same(double a, double b) { return !(a < b) && !(a > b); }

bool knob_sayable(const struct plan *p, const struct knob *k, const struct knob_name *n)
{
    double v = knob_get(p, k);

    if (!n->section)
        return same(v, n->only);
    if (k->type == KNOB_RESHARD)
        return v < 2;
    return !n->words || v < 0 || n->words[(int)v][0] != '\0';
}

/* ---- search and labels ---- */

enum knob_tried knob_try(struct plan *p, const struct knob *k, int i)
{
    if (k->try_with)
        return k->try_with(p, i);
    if (i >= k->ntries)
        return KNOB_NO_MORE;
    knob_set(p, k, k->tries[i]);
    return KNOB_TRIED;
}

int knob_label_part(const struct plan *p, const struct knob *k, char *to, size_t size)
{
    double v = knob_get(p, k);
    char unit[32];

    if (k->say)
        return k->say(p, to, size);
    if (!k->label || same(v, knob_default(p, k)))
        return 0;
    if (!strstr(k->label, "%s"))
        return snprintf(to, size, k->label, v);
    plan_unit_text(p, unit, sizeof unit);
    return snprintf(to, size, k->label, k->type == KNOB_UNIT ? unit : k->words[(int)v]);
}

void knob_label(const struct plan *p, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "%s %s b%" PRId64 "x%" PRId64, strategy_name(p->strategy),
                                dialect_name(p->dialect), p->micro_batch, p->accumulation);
    const struct knob *k;

    for (int i = 0; (k = knob_at(i)) && n < size; i++)
        if (k->cells & knob_cell(p))
            n += (size_t)knob_label_part(p, k, to + n, size - n);
}

/* ---- for people ---- */

void knob_key_text(const struct knob *k, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s", k->object, k->object[0] ? "." : "", k->name);
}

static void bounds_text(const struct knob *k, char *out, size_t size)
{
    const char *above = k->above ? "above " : "";

    if (k->hi == INT64_MAX)
        snprintf(out, size, "%s%" PRId64 " or more%s", above, k->lo, k->type == KNOB_INT ? ", null for no limit" : "");
    else
        snprintf(out, size, "%s%" PRId64 " to %" PRId64, above, k->lo, k->hi);
}

void knob_range_text(const struct knob *k, char *out, size_t size)
{
    size_t n = 0;

    switch (k->type) {
    case KNOB_INT: case KNOB_REAL: bounds_text(k, out, size); break;
    case KNOB_BOOL: case KNOB_FLAG: snprintf(out, size, "true, false"); break;
    case KNOB_UNIT:    snprintf(out, size, "model, <n> blocks, block, half-block, module"); break;
    case KNOB_RESHARD: snprintf(out, size, "true, false, ranks"); break;
    case KNOB_WORD: case KNOB_WORD_BOOL: case KNOB_GRAD_ACCUM: case KNOB_FIXED: case KNOB_TEXT: case KNOB_LIST:
        for (int i = 0; k->words[i] && n < size; i++)
            n += (size_t)snprintf(out + n, size - n, "%s%s", i && k->words[i][0] ? ", " : "", k->words[i]);
        break;
    }
    n = strlen(out);
    if (k->null == KNOB_NULL_VALUE && n < size)
        snprintf(out + n, size - n, ", null");
}

void knob_default_text(const struct knob *k, char *out, size_t size)
{
    bool null = k->null == KNOB_NULL_VALUE && same(k->def, k->null_value);

    if (k->required)
        snprintf(out, size, "none: required");
    else if (k->usually)
        snprintf(out, size, "%s", k->usually);
    else if (k->type == KNOB_FIXED)
        snprintf(out, size, "%s", k->words[0]);
    else if (null)
        snprintf(out, size, "null");
    else if (k->type == KNOB_BOOL || k->type == KNOB_FLAG)
        snprintf(out, size, "%s", k->def > 0 ? "true" : "false");
    else if (k->type == KNOB_LIST)
        snprintf(out, size, "%s", k->words[1] && k->words[1][0] ? k->words[1] : "null");
    else if (k->words)
        snprintf(out, size, "%s", k->words[(int)k->def]);
    else if (k->def >= (double)INT64_MAX)
        snprintf(out, size, "null");
    else
        snprintf(out, size, "%.15g", k->def);
}

/* ---- spelling ---- */

void knob_cells_text(uint64_t cells, char *out, size_t size)
{
    size_t at = 0;

    if (size)
        out[0] = '\0';
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if ((cells & CELL(s, d)) && at < size) {
                int n = snprintf(out + at, size - at, "%s%s/%s", at ? ", " : "",
                                 strategy_name((enum strategy)s), dialect_name((enum dialect)d));
                at += (size_t)n;
            }
}

static uint64_t cells_of(int dialect)
{
    uint64_t all = 0;

    for (int s = 0; s < NSTRATEGY; s++)
        if (dialect_has((enum dialect)dialect, (enum strategy)s))
            all |= CELL(s, dialect);
    return all;
}

void knob_cells_short(uint64_t cells, char *out, size_t size)
{
    uint64_t every = 0, rest = cells;
    size_t at = 0;

    out[0] = '\0';
    for (int d = 0; d < NDIALECT; d++) {
        uint64_t all = cells_of(d);
        every |= all;
        if ((cells & all) == all && at < size) {
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", dialect_name((enum dialect)d));
            rest &= ~all;
        }
    }
    if (cells == every)
        snprintf(out, size, "every cell");
    else if (rest && at + 2 < size) {
        at += (size_t)snprintf(out + at, size - at, "%s", at ? ", " : "");
        knob_cells_text(rest, out + at, size - at);
    }
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;

    return m < c ? m : c;
}

/* Words longer than a row of the table are cut: no key is that long. */
/* Edit distance, for suggestions. */
static int distance_of(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    int row[LONGEST + 1];
    int nb = (int)strnlen(b, LONGEST), na = (int)strnlen(a, LONGEST);

    for (int j = 0; j <= nb; j++)
        row[j] = j;
    for (int i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}

static void take_nearer(const char *name, const char *candidate, int *least, const char **best)
{
    int distance = distance_of(name, candidate);

    if (distance > *least)
        return;
    *least = distance - 1;
    *best = candidate;
}

const char *knob_nearest(const char *object, const char *name, uint64_t cell)
{
    static const char *const fixed[] = { "dpx_plan", "model", "cluster", "strategy", "dialect" };
    const struct knob *k;
    const char *best = NULL;
    int least = 1 + (int)strnlen(name, 60) / 3;     /* a third of its letters may be wrong */

    for (int i = 0; (k = knob_at(i)); i++)
        if ((k->cells & cell) && !strcmp(k->object, object))
            take_nearer(name, k->name, &least, &best);
    for (size_t i = 0; !object[0] && i < sizeof fixed / sizeof *fixed; i++)
        take_nearer(name, fixed[i], &least, &best);
    return best;
}

/* What frameworks have and plans do not yet.  `none` is the number that asks for
 * nothing (a partition over one rank, a threshold of 0). */
static const struct { const char *object, *name, *why; double none; } unsupported[] = {
    { "", "offload", "a plan names what is offloaded: deepspeed.offload_optimizer, deepspeed.offload_param, fsdp.cpu_offload "
      "or activation_offload", 0 },
    { "", "quantize", "quantised communication is DeepSpeed's: deepspeed.zero_quantized_weights and deepspeed.zero_quantized_gradients", 0 },
    { "", "tensor_parallel", "tensor parallelism is parallel.tensor", 1 },
    { "", "pipeline", "pipeline parallelism is parallel.pipeline", 1 },
    { "", "pipeline_parallel", "pipeline parallelism is parallel.pipeline", 1 },
    { "", "sequence_parallel", "sequence parallelism is parallel.sequence", 1 },
    { "", "context_parallel", "context parallelism is parallel.context", 1 },
    { "", "expert_parallel", "expert parallelism is parallel.expert", 1 },
    { "ddp", "lazy_bucket_allocation", "buckets that are allocated during backward and freed after it "
      "are not supported yet", 0 },
    { "ddp", "comm_wrapper", "a hook within fp16_compress_wrapper or bf16_compress_wrapper is not supported yet", 0 },
    { "ddp.PowerSGDState", "batch_tensors_with_same_shape", "matrices of one shape that are stacked are not supported yet", 0 },
    { "ddp.PowerSGDState", "orthogonalization_epsilon", "it changes numbers only: leave it out", 0 },
    { "ddp.PowerSGDState", "random_seed", "it changes numbers only: leave it out", 0 },
    { "deepspeed", "zenflow", "ZenFlow, which steps selected columns on every rank, is not supported yet", 0 },
    { "deepspeed.offload_optimizer", "super_offload", "SuperOffload, which steps sub-groups in another process "
      "during backward, is not supported yet", 0 },
    { "deepspeed", "zeropp_loco_param", "LoCo, the error feedback of qgZ, is not supported yet", 0 },
    { "deepspeed", "mics_shard_size", "MiCS is not supported yet", -1 },
    { "deepspeed", "mics_hierarchical_params_gather", "MiCS is not supported yet", 0 },
    { "deepspeed", "stage3_module_granularity_threshold",
      "fetching whole subtrees is not supported yet", 0 },
    { "deepspeed", "parameter_alignment", "padding between the parameters of a flat buffer is not "
      "supported yet", 0 },
    { "lora", "use_rslora", "it changes numbers only: leave it out", 0 },
    { "lora", "bias", "biases that train beside adapters are not supported yet", 0 },
    { "lora", "layers_to_transform", "adapters in some blocks only are not supported yet", 0 },
    { "lora", "rank_pattern", "ranks that differ are not supported yet", 0 },
    { "lora", "exclude_modules", "modules to exclude are not supported yet: name those to adapt", 0 },
    { "deepspeed", "legacy_stage1", "the old stage 1 is not supported", 0 },
};

/* Values that frameworks know and plans do not. */
static const struct { const char *object, *name, *value, *why; } lacking[] = {
    { "", "optimizer", "OneBitAdam", "DeepSpeed's 1-bit Adam, whose ranks send signs of momenta through a compressed all-reduce of their own, is not "
      "supported" },
    { "", "optimizer", "OneBitLamb", "DeepSpeed's 1-bit LAMB, whose ranks send signs of momenta through a compressed all-reduce of their own, is not "
      "supported" },
    { "", "optimizer", "ZeroOneAdam", "DeepSpeed's 0/1 Adam, whose ranks send signs at some steps and step alone at others, is not supported" },
    { "", "optimizer", "muon", "Muon is planned under ddp and fsdp (torch) and as DeepSpeed's own (zero1, zero2; its stage 3: "
      "\"Muon and reduce scatter cannot be used together\"), not of what ZeroRedundancyOptimizer, FSDP1 and Megatron divide" },
    { "ddp", "comm_hook", "batched_powerSGD_hook", "batched_powerSGD_hook, which takes a whole bucket as one square matrix, is not supported yet: "
      "powerSGD_hook is" },
    { "ddp", "comm_hook", "quantization_pertensor_hook", "quantization_pertensor_hook, with one scale for a whole bucket, is not supported yet: "
      "quantization_perchannel_hook is" },
    { "ddp", "comm_hook", "allreduce_hook", "allreduce_hook sums buckets as DDP does without a hook: \"none\"" },
};

const char *knob_lacks(const char *object, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (!strcmp(lacking[i].object, object) && !strcmp(lacking[i].name, name) && !strcasecmp(lacking[i].value, value))
            return lacking[i].why;
    return NULL;
}

static bool asks_for_nothing(const json_t *v, double none)
{
    const char *device = json_string_value(json_object_get(v, "device"));

    if (json_is_null(v) || json_is_false(v))
        return true;
    if (json_is_number(v))
        return fabs(json_number_value(v) - none) < 0.5;
    return json_is_object(v) && ((device && !strcmp(device, "none")) || json_object_size(v) == 0);
}

const char *knob_not_yet(const char *object, const char *name, const json_t *value)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (!strcmp(unsupported[i].object, object) && !strcmp(unsupported[i].name, name))
            return asks_for_nothing(value, unsupported[i].none) ? "" : unsupported[i].why;
    return NULL;
}

bool knob_refusal_at(size_t i, struct knob_refusal *r)
{
    const size_t keys = sizeof unsupported / sizeof *unsupported, values = sizeof lacking / sizeof *lacking;

    if (i >= keys + values)
        return false;
    *r = i < keys ? (struct knob_refusal){ unsupported[i].object, unsupported[i].name, NULL, unsupported[i].why }
                  : (struct knob_refusal){ lacking[i - keys].object, lacking[i - keys].name, lacking[i - keys].value, lacking[i - keys].why };
    return true;
}
