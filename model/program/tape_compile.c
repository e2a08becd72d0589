/* tape_compile.c -- graphs that torch.compile() compiles.
 *
 * Elementwise operations, norms and views are no kernels of their own: inductor computes them where a product, attention
 * or the caller needs their result, one kernel for each result, from tensors that lie in memory (leaves).  What autograd
 * saves is the same as without the compiler, but of a tensor that is computed its leaves are kept, and it is computed
 * again: the partitioner's cut (torch/_functorch/partitioners.py: operands of products, attention and reductions are
 * never computed again, cheap operations always; tests/golden/memory/torch_compile.txt).  In backward products wait
 * until everything else that can run has run, so that their gradients come from as few kernels as inductor fuses. */
#include <assert.h>
#include <stdlib.h>

#include "model/program/tape_collective.h"
#include "model/program/tape_internal.h"

bool tape_is_fused(const struct tape *t, enum kernel_class kc)
{
    return t->compiled && kc != KC_GEMM && kc != KC_ATTENTION && (t->backward || !t->stopped);
}

/* Collectives are kernels of their own, as products are. */
bool tape_node_is_fused(const struct tape *t, const struct node *n)
{
    return tape_is_fused(t, n->kc) && n->kind != NODE_COLLECTIVE;
}

static void add_leaf(struct tape *t, struct store *to, int leaf)
{
    for (int i = 0; i < to->nleaves; i++)
        if (to->leaf[i] == leaf)
            return;
    if (to->nleaves == TAPE_LEAVES) {
        t->bad = true;
        return;
    }
    to->leaf[to->nleaves++] = leaf;
    t->stores[leaf].refs++;
}

int tape_derive(struct tape *t, int64_t numel, int64_t elem, const int *from, int n, enum kernel_class kc)
{
    int i = tape_alloc(t, 0, elem, MEM_TEMPORARIES);
    struct store made = { .refs = 1, .freed_by = -1, .part = (int16_t)t->part, .cat = MEM_TEMPORARIES, .derived = true,
                          .norm = kc == KC_NORM, .module = (int16_t)(kc == KC_NORM ? t->module : -1) };

    if (t->bad || !checked_mul(numel, elem, &made.size)) {
        t->bad = true;
        return i;
    }
    made.size = round_up(made.size, t->rounding);
    for (int k = 0; k < n; k++) {
        const struct store *of = &t->stores[from[k]];
        made.norm |= of->derived && of->norm;
        made.module = made.module < 0 && of->derived ? of->module : made.module;
        if (from[k] && (!of->derived || of->whole))
            add_leaf(t, &made, from[k]);
        for (int l = 0; from[k] && !of->whole && l < of->nleaves; l++)
            add_leaf(t, &made, of->leaf[l]);
    }
    t->stores[i] = made;
    return i;
}

/* ---- kernels ---- */

/* References to a leaf from the first n stores. */
static int held_by(const struct tape *t, const int *stores, int n, int leaf)
{
    int held = 0;

    for (int i = 0; i < n; i++)
        for (int l = 0; l < t->stores[stores[i]].nleaves; l++)
            held += t->stores[stores[i]].leaf[l] == leaf;
    return held;
}

static void drop_leaves(struct tape *t, int store)
{
    int n = t->stores[store].nleaves;

    t->stores[store].nleaves = 0;
    for (int i = 0; i < n; i++)
        tape_unref(t, t->stores[store].leaf[i]);
}

/* A leaf that nothing reads afterwards and that is as large as the result is overwritten by it (inductor's
 * inplace_buffers; of what forward saved: donated_buffer). */
static int dying_leaf(const struct tape *t, const int *stores, int n, int64_t size)
{
    for (int i = 0; i < n; i++)
        for (int l = 0; l < t->stores[stores[i]].nleaves; l++) {
            int leaf = t->stores[stores[i]].leaf[l];
            const struct store *st = &t->stores[leaf];
            if (st->bytes == size && st->refs == held_by(t, stores, n, leaf))
                return leaf;
        }
    return 0;
}

static void forget_leaf(struct tape *t, const int *stores, int n, int leaf)
{
    for (int i = 0; i < n; i++) {
        struct store *st = &t->stores[stores[i]];
        for (int l = 0; l < st->nleaves; l++)
            if (st->leaf[l] == leaf) {
                st->leaf[l--] = st->leaf[--st->nleaves];
                tape_unref(t, leaf);
            }
    }
}

static int64_t leaf_bytes(const struct tape *t, const int *stores, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        for (int l = 0; l < t->stores[stores[i]].nleaves; l++)
            if (held_by(t, stores, i, t->stores[stores[i]].leaf[l]) == 0)
                sum += tape_leaf_bytes(t, t->stores[stores[i]].leaf[l]);
    return sum;
}

int64_t tape_leaf_bytes(const struct tape *t, int store)
{
    return t->stores[store].derived ? leaf_bytes(t, &store, 1) : t->stores[store].bytes;
}

/* A sum of two products, as an adapter's, that something saves is half of what it is computed from: the partitioner's cut. */
void tape_stay_whole(struct tape *t, var v)
{
    struct store *st = &t->stores[t->vars[v].store];

    st->whole = t->compiled && st->derived;
}

static void take_place(struct tape *t, struct kernel *k, const int *stores, int n, int store)
{
    struct store *st = &t->stores[store];
    int in_place = dying_leaf(t, stores, n, st->size);

    k->bytes += st->size;
    if (in_place)
        forget_leaf(t, stores, n, in_place);
    st->derived = st->whole = false;
    tape_place(t, store, st->size, t->backward ? MEM_TEMPORARIES : MEM_ACTIVATIONS);
}

/* Leaves that are whole come into memory beside the results, where something else will read them. */
static void place_leaves(struct tape *t, struct kernel *k, const int *stores, int n)
{
    for (int i = 0; i < n; i++)
        for (int l = 0; l < t->stores[stores[i]].nleaves; l++) {
            int leaf = t->stores[stores[i]].leaf[l];
            if (!t->stores[leaf].whole || t->stores[leaf].refs <= held_by(t, stores, n, leaf))
                continue;
            take_place(t, k, &leaf, 1, leaf);
            drop_leaves(t, leaf);
        }
}

void tape_make(struct tape *t, const int *stores, int n)
{
    int make[TAPE_LEAVES], nmake = 0;
    bool norm = false;

    for (int i = 0; i < n && nmake < TAPE_LEAVES; i++)
        if (t->stores[stores[i]].derived) {
            make[nmake++] = stores[i];
            norm |= t->stores[stores[i]].norm;
        }
    if (nmake == 0)
        return;
    struct kernel *k = tape_kernel(t, norm ? "fused norm" : "fused", norm ? KC_NORM : KC_ELEMENTWISE);
    k->bytes = leaf_bytes(t, make, nmake);
    k->module = t->stores[make[0]].module;
    place_leaves(t, k, make, nmake);
    for (int i = 0; i < nmake; i++)
        take_place(t, k, make, nmake, make[i]);
    for (int i = 0; i < nmake; i++)
        drop_leaves(t, make[i]);
}

void tape_need(struct tape *t, var x)
{
    if (t->compiled && t->vars[x].store && !t->stopped)
        tape_make(t, &t->vars[x].store, 1);
}

void tape_need_grads(struct tape *t, int first)
{
    for (int i = 1; i < first && t->compiled; i++)
        for (int s = 0; s < t->nodes[i].nslots; s++)
            if (t->nodes[i].grad[s])
                tape_make(t, &t->nodes[i].grad[s], 1);
}

/* Equal operations of a graph are one (fx_graph_cse()); of casts it shows, since every product under autocast has its own. */
int tape_same_cast(const struct tape *t, int store, enum dtype to)
{
    for (int i = 0; i < t->ncast && store && t->compiled; i++)
        if (t->cast[i].from == store && t->cast[i].dt == to && t->stores[t->cast[i].to].refs > 0)
            return t->cast[i].to;
    return 0;
}

void tape_note_cast(struct tape *t, int from, int store, enum dtype to)
{
    if (t->compiled && t->autocast && from && t->ncast < TAPE_CASTS)
        t->cast[t->ncast++] = (struct tape_cast){ from, store, to };
}

static bool has_leaf(const struct store *st, int leaf)
{
    for (int i = 0; i < st->nleaves; i++)
        if (st->leaf[i] == leaf)
            return true;
    return false;
}

/* What came later and is computed from all that a sum was made from was computed from the sum, which lies in memory now. */
static void rebase(struct tape *t, const struct store *was, int store)
{
    for (int i = store + 1; i < t->nstores && was->nleaves > 1; i++) {
        struct store *st = &t->stores[i];
        int common = 0, left = 0;

        for (int l = 0; l < was->nleaves; l++)
            common += st->derived && st->refs > 0 && has_leaf(st, was->leaf[l]);
        if (common < was->nleaves)
            continue;
        for (int l = 0; l < st->nleaves; l++) {
            if (has_leaf(was, st->leaf[l]))
                tape_unref(t, st->leaf[l]);
            else
                st->leaf[left++] = st->leaf[l];
        }
        st->nleaves = (uint8_t)left;
        add_leaf(t, st, store);
    }
}

void tape_split(struct tape *t)
{
    for (int v = 1; v < t->nvars; v++) {
        int store = t->vars[v].store;
        const struct store was = t->stores[store];
        if (!store || !was.derived)
            continue;
        tape_make(t, &store, 1);
        rebase(t, &was, store);
    }
    t->ncast = 0;
    int module = t->module;
    t->module = -1;
    tape_kernel(t, "compiled graph", KC_COPY);
    t->module = module;                 /* the caller may be on its way to that module's kernel */
}

/* ---- backward ---- */

void tape_grad_waits(struct tape *t, const struct edge *e, int g)
{
    if (t->nwaits == TAPE_CASTS) {
        t->bad = true;
        return;
    }
    int at = t->nwaits++;
    for (; at > 0 && t->maker[at - 1] > t->running; at--) {
        t->waits[at] = t->waits[at - 1];
        t->waiting[at] = t->waiting[at - 1];
        t->maker[at] = t->maker[at - 1];
    }
    t->waits[at] = *e;
    t->waiting[at] = g;
    t->maker[at] = t->running;
}

/* The engine's queue of what is ready is a std::priority_queue: parameters' AccumulateGrad are equal (the last of all sequence numbers) and go before
 * the graph in front, -1.  Pops the root of a heap of n as libstdc++ does: the right one of equal children moves up. */
static int pop(int *heap, int n)
{
    int root = heap[0], last = heap[n - 1], hole = 0, child;

    for (child = 2; child < n - 1; child = 2 * hole + 2) {
        child -= heap[child] < 0 && heap[child - 1] >= 0;
        heap[hole] = heap[child];
        hole = child;
    }
    if (child == n - 1) {
        heap[hole] = heap[child - 1];
        hole = child - 1;
    }
    for (; hole > 0 && heap[(hole - 1) / 2] < 0 && last >= 0; hole = (hole - 1) / 2)
        heap[hole] = heap[(hole - 1) / 2];
    heap[hole] = last;
    return root;
}

static void push(int *heap, int n, int what)
{
    for (; n > 0 && heap[(n - 1) / 2] < 0 && what >= 0; n = (n - 1) / 2)
        heap[n] = heap[(n - 1) / 2];
    heap[n] = what;
}

/* AccumulateGrad follows the graph's own node, whose inputs are what it reads in order: the tensor before it, then parameters.  No kernel names more
 * than four gradients. */
void tape_hand_out(struct tape *t)
{
    int heap[TAPE_CASTS + 1], n = 0, nwaits = t->nwaits;

    push(heap, n++, -1);
    for (int i = 0; i < nwaits; i++)
        push(heap, n++, i);
    for (int i = 0; i < nwaits; i++) {
        int at = pop(heap, n--);
        if (i % 4 == 0)
            tape_kernel(t, "gradients", KC_COPY);
        tape_grad_arrived(t, &t->waits[at], t->waiting[at]);
    }
    t->nwaits = 0;
}

int tape_fused_weight_gradient(struct tape *t, const struct edge *e, const int *from, int n)
{
    int all = tape_derive(t, 0, 1, from, n, KC_NORM);

    tape_kernel(t, "fused weight gradient", KC_NORM)->bytes = leaf_bytes(t, &all, 1);
    int made = tape_alloc(t, e->numel, dtype_bytes(e->dt), MEM_GRADS);
    tape_unref(t, all);
    return made;
}

/* The gradient of a weight that autocast cast: a product's, in the weight's own dtype. */
static int widened(struct tape *t, const struct node *n, const struct edge *e)
{
    struct kernel *k = tape_kernel(t, "fused", KC_ELEMENTWISE);
    int made = tape_alloc(t, e->numel, dtype_bytes(e->dt), MEM_GRADS);

    k->bytes = t->stores[n->grad[0]].bytes + t->stores[made].bytes;
    return made;
}

void tape_run_fused(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    int from[TAPE_SLOTS + TAPE_SAVED], nfrom = 0;

    for (int i = 0; i < n->nslots; i++)
        if (n->grad[i])
            from[nfrom++] = n->grad[i];
    for (int i = 0; i < n->nsaved; i++)
        from[nfrom++] = n->saved[i];
    for (int i = 0; i < n->nedges; i++) {
        const struct edge *e = &n->edges[i];
        if (e->tensor >= 0 && n->kc == KC_COPY && t->stores[n->grad[0]].bytes > 0)
            out[i] = widened(t, n, e);
        else if (e->tensor >= 0)
            out[i] = tape_fused_weight_gradient(t, e, from, nfrom);
        else if (e->node)
            out[i] = tape_derive(t, e->numel, dtype_bytes(e->dt), from, nfrom, n->kc);
    }
}

static bool is_heavy(const struct tape *t, const struct node *n) { return !tape_node_is_fused(t, n); }

/* The gradient of what was gathered is computed into the order in which it is scattered; that of a float8 layer in 8 bits. */
static bool makes_own(const struct node *n)
{
    return (n->kind == NODE_COLLECTIVE && n->m == MOVED_GATHER) || n->kind == NODE_FLOAT8 || n->kind == NODE_FLOAT8_BACK;
}

/* Node i may run: its gradients are there, and nothing that runs later adds to them. */
static bool is_ready(const struct tape *t, int i, int end, const bool *live)
{
    if (!tape_has_gradient(&t->nodes[i]))
        return false;
    for (int k = i + 1; k < end; k++)
        for (int e = 0; live[k] && e < t->nodes[k].nedges; e++)
            if (t->nodes[k].edges[e].node == i)
                return false;
    return true;
}

/* Will it run? */
static void find_live(const struct tape *t, int first, int end, bool *live)
{
    for (int i = end - 1; i >= first; i--) {
        live[i] = tape_has_gradient(&t->nodes[i]);
        for (int k = i + 1; k < end && !live[i]; k++)
            for (int e = 0; live[k] && e < t->nodes[k].nedges; e++)
                live[i] |= t->nodes[k].edges[e].node == i;
    }
}

static bool share_a_leaf(const struct store *a, const struct store *b)
{
    for (int i = 0; i < a->nleaves; i++)
        for (int k = 0; k < b->nleaves; k++)
            if (a->leaf[i] == b->leaf[k])
                return true;
    return false;
}

/* The gradient that product i waits for, and those of other products that the same kernel can compute. */
static void make_gradients(struct tape *t, int first, int end, int i, const bool *live)
{
    int group[TAPE_LEAVES], n = 0, own = t->nodes[i].grad[0];

    group[n++] = own;
    for (int k = first; k < end && n < TAPE_LEAVES; k++) {
        int other = t->nodes[k].grad[0];
        if (k != i && is_ready(t, k, end, live) && is_heavy(t, &t->nodes[k]) && !makes_own(&t->nodes[k]) && t->stores[other].derived && other != own &&
            t->stores[own].derived && t->stores[other].size == t->stores[own].size &&
            share_a_leaf(&t->stores[own], &t->stores[other]))
            group[n++] = other;
    }
    t->half = t->nodes[i].half;
    tape_make(t, group, n);
}

void tape_backward_fused(struct tape *t, int first, int end)
{
    bool *live = calloc((size_t)end + 1, sizeof *live);

    if (!live) {
        t->bad = true;
        return;
    }
    t->backward = true;
    while (!t->bad) {
        int next = 0, product = 0;
        find_live(t, first, end, live);
        for (int i = end - 1; i >= first && !next; i--) {
            if (!is_ready(t, i, end, live))
                continue;
            if (!is_heavy(t, &t->nodes[i]))
                next = i;
            else if (!product)
                product = i;
        }
        if (!next && product && !makes_own(&t->nodes[product]))
            make_gradients(t, first, end, product, live);
        if (!next && !(next = product))
            break;
        tape_run_node(t, &t->nodes[next]);
    }
    t->backward = false;
    free(live);
}
