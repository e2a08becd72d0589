/* units.c -- which tensors are in which unit, in the order of forward and of backward. */
#include "model/schedule/units.h"

#include <assert.h>

#include "model/program/program.h"
#include "model/schedule/schedule.h"

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

/* The rank's tied embedding, or the last stage's copy of it; -1: it shares none with another stage. */
static int tied_of_stage(const struct local_model *local)
{
    enum tensor_role role = local->share.embeds ? ROLE_TOKENS : ROLE_HEAD;
    bool ends = local->share.embeds || local->share.heads;

    if (!local->whole->tied || local->plan->parallel.pipeline <= 1 || local->plan->unit == UNIT_MODEL || !ends)
        return -1;
    for (int t = 0; t < local->model->ntensors; t++)
        if (local->model->tensors[t].role == role)
            return t;
    return -1;
}

/* ---- a root that is taken apart ---- */

static bool is_apart(const struct unit_map *m) { return m->plan->fsdp.root_units != ROOT_TOGETHER; }

/* The class of a tensor outside of the blocks. */
static enum unit_class end_of(const struct unit_map *m, const struct tensor *t)
{
    switch (t->role) {
    case ROLE_TOKENS:
        return m->model->tied ? UC_OUTPUT : UC_EMBED;
    case ROLE_HEAD:
        return m->plan->fsdp.root_units == ROOT_EMBED ? UC_ROOT : UC_OUTPUT;
    case ROLE_NORM_FINAL:
        return m->plan->fsdp.root_units == ROOT_APART ? UC_OUTPUT : UC_ROOT;
    default:
        return UC_ROOT;
    }
}

/* Index of the i-th tensor outside of the blocks of a class; -1 after the last. */
static int end_tensor(const struct unit_map *m, enum unit_class c, int i)
{
    const struct model *model = m->model;

    for (int t = 0; t < model->ntensors; t++)
        if ((t < model->block0 || t >= model_block_first(model, model->layers)) && end_of(m, &model->tensors[t]) == c && i-- == 0)
            return t;
    return -1;
}

static void find_adapters(struct unit_map *m)
{
    const struct model *model = m->model;

    assert(training_adapters(model) <= ADAPTERS_MOST);  /* train_check() */
    for (int t = model->block0; t < model->block0 + model->per_block; t++)
        if (tensor_is_adapter(&model->tensors[t])) {
            m->of_class[UC_ADAPTER + m->nadapters] = (int)model->layers;
            m->adapter[m->nadapters++] = t;
        }
}

/* ---- units of different tensors ---- */

_Static_assert((int)HYBRID_SORTS == (int)RECORDED_KINDS, "either has a class for each sort");

/* The sort of a unit, counted in the order in which the first of each comes. */
static enum unit_class sort_of(const struct model *m, int64_t unit)
{
    int64_t first = model_first_alike(m, unit);
    int n = 0;

    for (int64_t u = 0; u < first; u++)
        n += model_first_alike(m, u) == u;
    return (enum unit_class)(UC_KIND + n);
}

/* The first unit of a sort. */
static int64_t first_of(const struct model *m, enum unit_class c)
{
    int64_t u = 0;

    while (model_first_alike(m, u) != u || sort_of(m, u) != c)
        u++;
    return u;
}

static void find_sorts(struct unit_map *m)
{
    m->n = m->period = (int)m->model->layers;
    for (int u = 0; u < m->n; u++)
        m->of_class[sort_of(m->model, u)]++;
}

static bool is_sorted(const struct unit_map *m) { return m->kind != UNIT_MODEL && model_is_uneven(m->model); }

/* Index of the i-th tensor of no unit; -1 after the last. */
static int root_tensor(const struct model *m, int i)
{
    if (m->recorded)
        return i < m->recorded->nroot ? m->recorded->root[i] : -1;
    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].block < 0 && i-- == 0)
            return t;
    return -1;
}

int unit_registered_after(const struct unit_map *m, int position)
{
    int next = -1;

    if (!is_sorted(m))
        return position + 1 < m->n ? position + 1 : -1;
    for (int u = 0; u < m->n; u++)
        if ((position < 0 || model_block_first(m->model, u) > model_block_first(m->model, position)) &&
            (next < 0 || model_block_first(m->model, u) < model_block_first(m->model, next)))
            next = u;
    return next;
}

void unit_map_init(struct unit_map *m, const struct local_model *local)
{
    const struct plan *p = local->plan;
    int layers = (int)local->model->layers;
    int every = program_period(p);

    *m = (struct unit_map){ .plan = p, .model = local->model, .kind = p->unit, .blocks = 1,
                            .tied = tied_of_stage(local) };
    m->of_class[UC_HEAD] = p->unit != UNIT_MODEL && local->share.nchunks > 1 && local->share.embeds && local->share.heads;
    m->of_class[UC_ROOT] = p->unit == UNIT_MODEL || local->share.embeds || local->share.heads;
    m->of_class[UC_TIED] = m->tied >= 0;
    if (m->tied >= 0 && unit_tensor(m, UC_ROOT, 0) < 0)
        m->of_class[UC_ROOT] = 0;
    for (enum unit_class c = UC_ROOT; is_apart(m) && c <= UC_OUTPUT; c++)
        m->of_class[c] = end_tensor(m, c, 0) >= 0;
    if (is_sorted(m)) {
        find_sorts(m);
        return;
    }
    switch (p->unit) {
    case UNIT_MODEL:
        break;
    case UNIT_HALF_BLOCK:
        m->of_class[UC_ATTENTION] = m->of_class[UC_MLP] = layers;
        m->n = 2 * layers;
        m->period = 2 * every;
        break;
    default:
        m->blocks = p->unit == UNIT_BLOCKS ? (int)p->unit_blocks : 1;
        m->of_class[UC_FULL] = layers / m->blocks;
        m->of_class[UC_TAIL] = layers % m->blocks != 0;
        m->n = m->of_class[UC_FULL] + m->of_class[UC_TAIL];     /* UC_DENSE are among them so far */
        m->period = every / gcd(every, m->blocks);
        if (model_blocks_differ(m->model)) {        /* whose units are single blocks as well */
            m->of_class[UC_DENSE] = layers - (int)model_routers(m->model);
            m->of_class[UC_FULL] -= m->of_class[UC_DENSE];
            m->alone = program_alone(p);
        }
        if (m->model->recorded)
            m->alone = program_alone(p);
        m->of_class[UC_EXPERTS] = p->parallel.expert > 1 ? (int)model_routers(m->model) : 0;    /* whose units are single blocks */
        if (p->fsdp.wrap_adapters)                                          /* likewise */
            find_adapters(m);
    }
}

struct unit_ref unit_at(const struct unit_map *m, int position)
{
    if (position < 0 || position >= m->n)
        return (struct unit_ref){ .cls = UC_ROOT };
    if (is_sorted(m))
        return (struct unit_ref){ sort_of(m->model, position), (int)model_place_in_kind(m->model, position), position, 1 };
    if (m->kind == UNIT_HALF_BLOCK)
        return (struct unit_ref){ position % 2 ? UC_MLP : UC_ATTENTION, position / 2, position / 2, 1 };
    if (m->of_class[UC_DENSE])
        return (struct unit_ref){ model_has_experts(m->model, position) ? UC_FULL : UC_DENSE,
                                  (int)model_place_in_kind(m->model, position), position, 1 };
    if (position < m->of_class[UC_FULL])
        return (struct unit_ref){ UC_FULL, position, position * m->blocks, m->blocks };
    return (struct unit_ref){ UC_TAIL, 0, position * m->blocks,
                              (int)m->model->layers - position * m->blocks };
}

const char *unit_class_name(enum unit_class c)
{
    static const char *const names[NUC] = { "root", "embedding unit", "head unit", "unit", "last unit", "attention", "mlp", "head", "tied", "experts", "dense unit",
                                            "adapter" };
    return names[c < UC_ADAPTER ? c : c < UC_KIND ? UC_ADAPTER : UC_FULL];
}

int64_t units_tensor_numel(const struct tensor *t, const void *unused)
{
    (void)unused;
    return t->numel;
}

static int64_t sum_range(const struct model *m, int first, int n, int half, tensor_fn *f, const void *arg)
{
    int64_t sum = 0;

    for (int i = first; i < first + n; i++)
        if (half < 0 || m->tensors[i].mlp_half == half)
            sum += f(&m->tensors[i], arg);
    return sum;
}

/* Is a tensor of a block in its class's unit, where the block's experts or adapters are units of their own? */
static bool is_of(const struct unit_map *m, const struct tensor *t, enum unit_class c)
{
    return m->nadapters > 0 ? !tensor_is_adapter(t) : role_is_of_experts(t->role) == (c == UC_EXPERTS);
}

static bool has_parts_apart(const struct unit_map *m) { return m->of_class[UC_EXPERTS] || m->nadapters > 0; }

/* The first block of a class: its first tensor, and how many it has. */
static int block_first(const struct unit_map *m, enum unit_class c)
{
    int64_t b = 0;

    while (m->of_class[UC_DENSE] && model_has_experts(m->model, b) != (c != UC_DENSE))
        b++;
    return model_block_first(m->model, b);
}

static int per_block(const struct unit_map *m, enum unit_class c) { return c == UC_DENSE ? m->model->per_dense : m->model->per_block; }

static int64_t sum_class(const struct unit_map *m, enum unit_class c, tensor_fn *f, const void *arg)
{
    const struct model *of = m->model;
    int64_t sum = 0;
    int first = block_first(m, c);

    for (int i = first; i < first + of->per_block; i++)
        if (is_of(m, &of->tensors[i], c))
            sum += f(&of->tensors[i], arg);
    return sum;
}

/* Over the tensors that unit_tensor() names. */
static int64_t sum_listed(const struct unit_map *m, enum unit_class c, tensor_fn *f, const void *arg)
{
    int64_t sum = 0;

    for (int i = 0, t; (t = unit_tensor(m, c, i)) >= 0; i++)
        sum += f(&m->model->tensors[t], arg);
    return sum;
}

int64_t unit_sum(const struct unit_map *m, enum unit_class c, tensor_fn *f, const void *arg)
{
    const struct model *model = m->model;
    int blocks_end = model_block_first(model, model->layers);
    int tail = (int)model->layers % m->blocks;

    if (unit_is_adapter(c))
        return f(&model->tensors[m->adapter[c - UC_ADAPTER]], arg);
    if (is_sorted(m))
        return sum_listed(m, c, f, arg);
    switch (c) {
    case UC_EMBED: case UC_OUTPUT:
        return sum_listed(m, c, f, arg);
    case UC_ROOT:
        if (is_apart(m))
            return sum_listed(m, c, f, arg);
        if (m->kind == UNIT_MODEL)
            return sum_range(model, 0, model->ntensors, -1, f, arg);
        return sum_range(model, 0, model->block0, -1, f, arg) - unit_sum(m, UC_TIED, f, arg) +
               (m->of_class[UC_HEAD] ? 0 : sum_range(model, blocks_end, model->ntensors - blocks_end, -1, f, arg));
    case UC_TIED:
        return m->tied < 0 ? 0 : f(&model->tensors[m->tied], arg);
    case UC_HEAD:
        return sum_range(model, blocks_end, model->ntensors - blocks_end, -1, f, arg);
    case UC_EXPERTS:
        return sum_class(m, c, f, arg);
    case UC_FULL:
        if (has_parts_apart(m))
            return sum_class(m, c, f, arg);
        return m->blocks * sum_range(model, block_first(m, c), model->per_block, -1, f, arg);
    case UC_DENSE:
        return sum_range(model, block_first(m, c), model->per_dense, -1, f, arg);
    case UC_TAIL:
        return tail * sum_range(model, model->block0, model->per_block, -1, f, arg);
    case UC_ATTENTION:
        return sum_range(model, model->block0, model->per_block, 0, f, arg);
    case UC_MLP:
        return sum_range(model, model->block0, model->per_block, 1, f, arg);
    case UC_ADAPTER: case UC_KIND: case NUC:
        break;
    }
    return 0;
}

/* ---- which tensors a unit holds ---- */

int unit_tensor(const struct unit_map *m, enum unit_class c, int i)
{
    const struct model *model = m->model;
    int blocks_end = model_block_first(model, model->layers);

    if (c == UC_EMBED || c == UC_OUTPUT || (c == UC_ROOT && is_apart(m)))
        return is_apart(m) ? end_tensor(m, c, i) : -1;
    if (is_sorted(m) && c == UC_ROOT)
        return root_tensor(model, i);
    if (is_sorted(m)) {
        int64_t u = c < UC_KIND ? -1 : first_of(model, c);
        return u >= 0 && i < model_block_tensors(model, u) ? model_block_first(model, u) + i : -1;
    }
    if (c == UC_TIED)
        return i == 0 ? m->tied : -1;
    if (unit_is_adapter(c))
        return i == 0 ? m->adapter[c - UC_ADAPTER] : -1;
    if (c == UC_ROOT) {                 /* all, or what is before and after the blocks, but for what is tied */
        if (m->tied >= 0 && i >= (m->tied < model->block0 ? m->tied : m->tied - blocks_end + model->block0))
            i++;
        if (m->kind != UNIT_MODEL && i >= model->block0)
            i = m->of_class[UC_HEAD] ? model->ntensors : i + blocks_end - model->block0;
        return i < model->ntensors ? i : -1;
    }
    if (c == UC_HEAD)
        return blocks_end + i < model->ntensors ? blocks_end + i : -1;
    if (has_parts_apart(m) && (c == UC_FULL || c == UC_EXPERTS)) {
        for (int t = block_first(m, c); t < block_first(m, c) + model->per_block; t++)
            if (is_of(m, &model->tensors[t], c) && i-- == 0)
                return t;
        return -1;
    }
    if (m->of_class[UC_DENSE] && (c == UC_FULL || c == UC_DENSE))
        return i < per_block(m, c) ? block_first(m, c) + i : -1;
    if (c == UC_FULL || c == UC_TAIL) {
        int blocks = c == UC_FULL ? m->blocks : (int)model->layers % m->blocks;
        int first = c == UC_FULL ? 0 : m->of_class[UC_FULL] * m->blocks;
        return i < blocks * model->per_block ? model->block0 + first * model->per_block + i : -1;
    }
    for (int t = model->block0; t < model->block0 + model->per_block; t++)
        if (model->tensors[t].mlp_half == (c == UC_MLP) && i-- == 0)
            return t;
    return -1;
}

int unit_stride(const struct unit_map *m, enum unit_class c)
{
    int tensors = m->model->per_block;

    if (is_sorted(m))
        return c < UC_KIND ? 0 : model_sort_stride(m->model, first_of(m->model, c));
    if (m->of_class[UC_DENSE] && (c == UC_FULL || c == UC_DENSE || c == UC_EXPERTS))    /* as far apart as the pattern has them */
        return per_block(m, c) + (int)(m->model->moe_every - 1) * per_block(m, c == UC_DENSE ? UC_FULL : UC_DENSE);
    if (unit_is_adapter(c))
        return tensors;
    return c == UC_FULL ? m->blocks * tensors : c == UC_ATTENTION || c == UC_MLP || c == UC_EXPERTS ? tensors : 0;
}

/* ---- emission ---- */

/* Position in forward order of the k-th unit that is emitted. */
static int emitted(const struct unit_map *m, bool backwards, int k)
{
    return backwards ? m->n - 1 - k : k;
}

static void emit_at(const struct unit_map *m, bool backwards, int k, bool repeated,
                    void (*emit)(void *arg, struct unit_step at), void *arg)
{
    struct unit_step at = { .position = emitted(m, backwards, k) };

    if (repeated) {
        int here = emitted(m, backwards, k), next = emitted(m, backwards, k + m->period);
        at.by = unit_at(m, next).index - unit_at(m, here).index;
        at.by_block = unit_at(m, next).block - unit_at(m, here).block;
    }
    emit(arg, at);
}

void units_emit(const struct unit_map *m, struct schedules *s, bool backwards,
                void (*emit)(void *arg, struct unit_step at), void *arg)
{
    int tail = m->of_class[UC_TAIL];
    /* The first and the last period stand alone: their neighbours differ.  So
     * does the shorter last unit, and the unit next to it. */
    int lead = m->period + (backwards ? tail : m->alone);
    int rest = m->period + (backwards ? m->alone : tail);
    int reps = m->period > 0 && m->n > lead + rest ? (m->n - lead - rest) / m->period : 0;
    int k = 0;

    if (reps > 1) {
        for (; k < lead; k++)
            emit_at(m, backwards, k, false, emit, arg);
        sched_repeat(s, reps);
        for (; k < lead + m->period; k++)
            emit_at(m, backwards, k, true, emit, arg);
        sched_repeat_end(s);
        k = lead + reps * m->period;
    }
    for (; k < m->n; k++)
        emit_at(m, backwards, k, false, emit, arg);
}

void units_blocks_emit(const struct local_model *local, struct schedules *s, bool backwards, bool last_alone,
                       void (*emit)(void *arg, int block, int by), void *arg)
{
    /* A first block that differs stands alone: a whole period, so that the pattern goes on behind it. */
    int period = program_period(local->plan), layers = (int)local->model->layers;
    int alone = program_alone(local->plan), first = period < layers ? period : layers;
    if (program_first_differs(local->plan) && alone < first)
        alone = first;
    int step = backwards ? -1 : 1, at = backwards ? layers - 1 : 0;

    for (int k = 0; !backwards && k < alone; k++, at++)
        emit(arg, at, 0);
    layers -= alone;
    int reps = layers / period, rest = layers % period;
    if (last_alone && rest == 0 && reps > 0) {
        rest = period;
        reps--;
    }

    /* What does not fill a period are the last blocks. */
    for (int k = 0; backwards && k < rest; k++, at--)
        emit(arg, at, 0);
    if (reps > 1) {
        sched_repeat(s, reps);
        for (int k = 0; k < period; k++)
            emit(arg, at + k * step, period * step);
        sched_repeat_end(s);
        at += reps * period * step;
    }
    for (int k = 0; k < (reps > 1 ? 0 : reps * period); k++, at += step)
        emit(arg, at, 0);
    for (int k = 0; !backwards && k < rest; k++, at++)
        emit(arg, at, 0);
    for (int k = 0; backwards && k < alone; k++, at--)
        emit(arg, at, 0);
}
