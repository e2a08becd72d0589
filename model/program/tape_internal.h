/* tape_internal.h -- what tape.c (stores, engine) and tape_ops.c (operations) share. */
#ifndef DPX_TAPE_INTERNAL_H
#define DPX_TAPE_INTERNAL_H

#include "model/program/tape.h"

struct kernel *tape_kernel(struct tape *t, const char *name, enum kernel_class kc);
int   tape_alloc(struct tape *t, int64_t numel, int64_t elem, int cat);
void  tape_unref(struct tape *t, int store);
/* Names a store that has just been made: its coming and going is recorded as places. */
void  tape_name(struct tape *t, int store, enum slot slot);
/* What becomes of a store, among the moves of the kernel that is open. */
void  tape_move(struct tape *t, enum move_kind kind, int store);
var   tape_var(struct tape *t, int store, int64_t numel, enum dtype dt, int node, int slot);
struct node *tape_node(struct tape *t, enum node_kind kind, const char *name, enum kernel_class kc);
/* A result that a selective checkpoint keeps; and the next one that it kept, with its reference. */
void  tape_keep_result(struct tape *t, int store);
int   tape_kept_result(struct tape *t);
/* Opens the kernel of a forward operation that saves nothing. */
struct kernel *tape_begin(struct tape *t, const char *name, enum kernel_class kc);
/* The same of one that saves what it reads, its output. */
struct kernel *tape_begin_reading(struct tape *t, const char *name, enum kernel_class kc);
struct kernel *tape_begin_saving(struct tape *t, const char *name, enum kernel_class kc);
/* Notes that the last kernel is a collective; returns its number from 1.  The next kernel needs its result, or that which
 * follows tape_needs(its number). */
int   tape_note_collective(struct tape *t, const struct collective *c);
void  tape_needs(struct tape *t, int collective);
/* ... or that with this index. */
void  tape_needs_at(struct tape *t, int collective, int kernel);
/* Saves a tensor that no variable names; one that v names, of which a view has its own elements alone. */
void  tape_save(struct tape *t, struct node *n, int store);
void  tape_save_var(struct tape *t, struct node *n, var v);
void  tape_edge(struct tape *t, struct node *n, var v);

/* A store of the pass that runs: backward's are temporaries.  One more reference to a store. */
static inline int tape_new(struct tape *t, int64_t numel, enum dtype dt)
{
    return tape_alloc(t, numel, dtype_bytes(dt), t->backward ? MEM_TEMPORARIES : MEM_ACTIVATIONS);
}
static inline int tape_share(struct tape *t, int store)
{
    t->stores[store].refs++;
    return store;
}
/* A kernel of the pass that runs; of copies; which passes over so many bytes.  One of a node's backward, in the node's module. */
static inline struct kernel *tape_either(struct tape *t, const char *name, enum kernel_class kc)
{
    return t->backward ? tape_kernel(t, name, kc) : tape_begin(t, name, kc);
}
static inline struct kernel *tape_begin_copy(struct tape *t, const char *name) { return tape_either(t, name, KC_COPY); }
static inline struct kernel *tape_pass(struct tape *t, const char *name, enum kernel_class kc, int64_t bytes)
{
    struct kernel *k = tape_either(t, name, kc);

    k->bytes = bytes;
    return k;
}
static inline struct kernel *tape_back(struct tape *t, const struct node *n, const char *name)
{
    struct kernel *k = tape_kernel(t, name, n->kc);

    k->module = n->module;
    k->half = n->half;
    return k;
}
/* A node with an edge to x.  Does somebody want the gradient of its i-th edge? */
static inline struct node *tape_node_of(struct tape *t, enum node_kind kind, const char *name, enum kernel_class kc, var x)
{
    struct node *n = tape_node(t, kind, name, kc);

    tape_edge(t, n, x);
    return n;
}
static inline bool tape_wants(const struct node *n, int i) { return i < n->nedges && (n->edges[i].tensor >= 0 || n->edges[i].node); }
static inline int64_t tape_elem(const struct tape *t, var v) { return dtype_bytes(tape_var_dtype(t, v)); }
static inline enum dtype tape_wider(enum dtype a, enum dtype b) { return dtype_bytes(a) >= dtype_bytes(b) ? a : b; }

/* A tensor of a compiled graph that is computed from n others where it is needed: it has no memory. */
int   tape_derive(struct tape *t, int64_t numel, int64_t elem, const int *from, int n, enum kernel_class kc);
/* One kernel computes those of the stores that are derived. */
void  tape_make(struct tape *t, const int *stores, int n);
/* Memory for a store that is there, as tape_alloc() gives it. */
void  tape_place(struct tape *t, int store, int64_t bytes, int cat);
/* Is it computed wherever it is used? */
bool  tape_is_fused(const struct tape *t, enum kernel_class kc);
bool  tape_node_is_fused(const struct tape *t, const struct node *n);
/* Under autocast: the tensor into which this graph has cast a store already, 0: none; it has. */
int   tape_same_cast(const struct tape *t, int store, enum dtype to);
void  tape_note_cast(struct tape *t, int from, int store, enum dtype to);
/* A parameter's gradient of a graph that hands out all of them at its end. */
void  tape_grad_waits(struct tape *t, const struct edge *e, int g);
/* Bytes that a kernel reads which computes a store, or the store's own. */
int64_t tape_leaf_bytes(const struct tape *t, int store);
/* Backward of nodes [first, end) of a compiled graph; of one of them that is fused. */
void  tape_backward_fused(struct tape *t, int first, int end);
void  tape_run_fused(struct tape *t, const struct node *n, int out[TAPE_EDGES]);
/* The gradient of a norm's weight, a sum over the tokens, from n stores that may be computed; its store. */
int   tape_fused_weight_gradient(struct tape *t, const struct edge *e, const int *from, int n);
void  tape_run_node(struct tape *t, struct node *n);
bool  tape_has_gradient(const struct node *n);

/* A node's backward: gradients in n->grad[], its kernels appended, the gradient of
 * every edge in out[] (0: none), each with one reference, and its dtype in got[]. */
void  tape_run(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES]);
/* Casts what is not of its operand's dtype, as the engine does with what a node returns. */
void  tape_validate(struct tape *t, const struct node *n, int out[TAPE_EDGES],
                    const enum dtype got[TAPE_EDGES]);
/* The gradient of a parameter is there (category MEM_GRADS already). */
void  tape_grad_arrived(struct tape *t, const struct edge *e, int g);

#endif
