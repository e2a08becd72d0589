/* tape_liger.c -- see tape_liger.h. */
#include "model/program/tape_liger.h"

static int make(struct tape *t, int64_t numel, enum dtype dt, int mem) { return tape_alloc(t, numel, dtype_bytes(dt), mem); }

/* ---- ops/rms_norm.py ---- */

var op_liger_norm(struct tape *t, const char *name, var x, int64_t rows, var w, int64_t sms, bool in_place)
{
    int64_t numel = tape_var_numel(t, x);
    enum dtype dt = tape_var_dtype(t, x);

    tape_begin_saving(t, name, KC_NORM)->bytes = 2 * tape_var_bytes(t, x);
    struct node *n = tape_node(t, NODE_LIGER_NORM, name, KC_NORM);
    n->k = numel / rows;
    n->batch = sms;
    n->m = in_place;
    tape_edge(t, n, x);
    tape_edge(t, n, w);
    tape_save_var(t, n, x);
    tape_save_var(t, n, w);                     /* counted where it is on the host */
    var y = tape_var(t, make(t, numel, dt, MEM_ACTIVATIONS), numel, dt, t->nnodes - 1, 0);
    int rstd = make(t, rows, DT_FP32, MEM_ACTIVATIONS);
    tape_save(t, &t->nodes[t->nnodes - 1], rstd);
    tape_unref(t, rstd);
    return y;
}

/* What it returns as x's gradient is a view(): a sum with it is made out of place. */
static void run_norm(struct tape *t, const struct node *n, int out[])
{
    const struct edge *x = &n->edges[0], *w = &n->edges[1];
    int64_t bytes = x->numel * dtype_bytes(x->dt);

    tape_back(t, n, n->name)->bytes = 3 * bytes;
    int parts = tape_wants(n, 1) ? make(t, n->batch * n->k, DT_FP32, MEM_TEMPORARIES) : 0;
    if (tape_wants(n, 0)) {
        out[0] = n->m ? tape_share(t, n->grad[0]) : make(t, x->numel, x->dt, MEM_TEMPORARIES);
        t->stores[out[0]].view = true;
    }
    if (!parts)
        return;
    tape_back(t, n, n->name)->bytes = n->batch * n->k * 4;
    int sum = w->dt == DT_FP32 ? 0 : make(t, n->k, DT_FP32, MEM_TEMPORARIES);
    out[1] = make(t, w->numel, w->dt, w->tensor >= 0 ? MEM_GRADS : MEM_TEMPORARIES);
    tape_unref(t, sum);
    tape_unref(t, parts);
}

/* ---- ops/swiglu.py, ops/geglu.py ---- */

var op_liger_glu(struct tape *t, const char *name, var gate, var up, bool copies)
{
    const var in[2] = { gate, up };
    int64_t numel = tape_var_numel(t, gate);
    enum dtype dt = tape_var_dtype(t, gate);
    int kept[2] = { 0 };

    for (int i = 0; i < 2 && copies; i++) {
        tape_begin(t, "contiguous", KC_COPY)->bytes = 2 * tape_var_bytes(t, in[i]);
        kept[i] = make(t, numel, dt, MEM_ACTIVATIONS);
    }
    tape_begin_saving(t, name, KC_ELEMENTWISE)->bytes = 3 * tape_var_bytes(t, gate);
    struct node *n = tape_node(t, NODE_LIGER_GLU, name, KC_ELEMENTWISE);
    for (int i = 0; i < 2; i++)
        tape_edge(t, n, in[i]);
    for (int i = 0; i < 2; i++) {
        if (copies)
            tape_save(t, n, kept[i]);
        else
            tape_save_var(t, n, in[i]);
        tape_unref(t, kept[i]);
    }
    return tape_var(t, make(t, numel, dt, MEM_ACTIVATIONS), numel, dt, t->nnodes - 1, 0);
}

static void run_glu(struct tape *t, const struct node *n, int out[])
{
    tape_back(t, n, n->name)->bytes = 5 * n->edges[0].numel * dtype_bytes(n->edges[0].dt);
    for (int i = 0; i < 2; i++)
        out[i] = tape_wants(n, i) ? tape_share(t, n->saved[i]) : 0;
}

/* ---- ops/rope.py ---- */

void op_liger_rope(struct tape *t, const char *name, var *const x[2], var cos, var sin, bool copies, bool copies_back)
{
    int made[2];

    for (int i = 0; i < 2; i++) {
        if (copies)
            tape_begin(t, "contiguous", KC_COPY)->bytes = 2 * tape_var_bytes(t, *x[i]);
        made[i] = copies ? make(t, tape_var_numel(t, *x[i]), tape_var_dtype(t, *x[i]), MEM_ACTIVATIONS) : tape_share(t, t->vars[*x[i]].store);
    }
    tape_begin_saving(t, name, KC_ELEMENTWISE)->bytes = 2 * (tape_var_bytes(t, *x[0]) + tape_var_bytes(t, *x[1]));
    struct node *n = tape_node(t, NODE_LIGER_ROPE, name, KC_ELEMENTWISE);
    int at = t->nnodes - 1;
    n->m = copies_back;
    n->nslots = 2;
    for (int i = 0; i < 2; i++)
        tape_edge(t, n, *x[i]);
    tape_save_var(t, n, cos);
    tape_save_var(t, n, sin);
    for (int i = 0; i < 2; i++) {
        var y = tape_var(t, made[i], tape_var_numel(t, *x[i]), tape_var_dtype(t, *x[i]), at, i);
        tape_drop(t, *x[i]);
        *x[i] = y;
    }
}

static void run_rope(struct tape *t, const struct node *n, int out[])
{
    int64_t bytes = 0;

    for (int i = 0; i < 2; i++) {
        int64_t each = n->edges[i].numel * dtype_bytes(n->edges[i].dt);
        if (!tape_wants(n, i))
            continue;
        if (n->m)
            tape_back(t, n, "contiguous")->bytes = 2 * each;
        out[i] = n->m ? make(t, n->edges[i].numel, n->edges[i].dt, MEM_TEMPORARIES) : tape_share(t, n->grad[i]);
        bytes += 2 * each;
    }
    tape_back(t, n, n->name)->bytes = bytes;
}

void tape_run_liger(struct tape *t, const struct node *n, int out[TAPE_EDGES])
{
    if (n->kind == NODE_LIGER_NORM)
        run_norm(t, n, out);
    else if (n->kind == NODE_LIGER_GLU)
        run_glu(t, n, out);
    else
        run_rope(t, n, out);
}
