/* torch_ulysses.c -- UlyssesSPAttentionHF (deepspeed/runtime/sequence_parallel/ulysses_sp.py of 0.19.6; 0.19.8 has the same), line by
 * line; and verl's, under PyTorch's FSDP.
 *
 * Keys and values with fewer heads than there are ranks are repeated.  q, k, v are put in a part for each rank, exchanged, and copied
 * so that heads are outermost; the output is exchanged back, and each position's heads are brought together by a copy.  The
 * position ids of all ranks are gathered in every layer.  The layout that a tensor has decides where a copy is one: with a head
 * a rank, or with one sequence, some of them are views. */
#include "model/program/torch_ulysses.h"

#include "model/plan/attention.h"
#include "model/program/tape_exchange.h"
#include "model/program/tape_loss.h"
#include "model/program/torch_parts.h"

bool torch_is_ulysses(const struct torch_model *b)
{
    return b->context > 1 && b->p->parallel.context_method == CONTEXT_ULYSSES;
}

bool torch_is_verls_ulysses(const struct torch_model *b) { return torch_is_ulysses(b) && b->p->dialect != DIALECT_DEEPSPEED; }

/* Of heads of keys that are repeated a rank has one. */
static int64_t heads_of(const struct torch_model *b, int i)
{
    int64_t heads = i == 0 ? b->m->heads : b->m->kv_heads;

    return heads > b->context ? heads / b->context : 1;
}

/* The plan's attention as the kernel is called with it: all positions of the rank's heads; a plan whose model is not its own. */
static struct plan ulysses_plan(const struct plan *p)
{
    struct plan of = *p;
    int64_t n = p->parallel.context;

    of.seq = p->seq * n;
    of.model.heads /= n;
    of.model.kv_heads = of.model.kv_heads > n ? of.model.kv_heads / n : 1;
    return of;
}

/* combine_sequence(): a rank's positions of all heads become all positions of its heads. */
static var combine(struct torch_model *b, var x, int i)
{
    struct tape *t = b->t;
    int64_t heads = heads_of(b, i), all = i == 0 ? b->m->heads : b->m->kv_heads, times = heads * b->context / all;
    bool outermost = heads == 1 && b->p->micro_batch == 1;
    var y = times > 1 ? op_repeat(t, "repeat heads", x, times) : tape_hold(t, x);

    y = tmp(t, y, op_view(t, y, heads > 1));
    y = tmp(t, y, op_copy(t, "parts for each rank", y, true));
    return tmp(t, y, tape_exchange(t, y, !outermost));
}

/* The kernel of all positions of the rank's heads. */
static var attend(struct torch_model *b, const var in[3])
{
    struct plan of = ulysses_plan(b->as);
    int64_t heads = of.micro_batch * of.model.heads;
    bool efficient = b->kernel == ATTENTION_EFFICIENT;
    double flops = 4.0 * (double)heads * (double)of.seq * (double)of.seq * (double)of.model.head_dim;

    return op_attention(b->t, "attention", (const var[]){ in[0], in[1], in[2], 0 }, tape_var_numel(b->t, in[0]),
                        heads * (efficient ? round_up(of.seq, 32) : of.seq), b->kernel == ATTENTION_FLASH ? 2 : 1, attention_scratch(&of), flops);
}

/* Its output, of which heads lie outermost, brought together. */
static var merge_heads(struct torch_model *b, var o)
{
    bool efficient = b->kernel == ATTENTION_EFFICIENT;
    int64_t heads = ulysses_plan(b->as).model.heads;

    o = tmp(b->t, o, op_view(b->t, o, b->p->micro_batch > 1));
    return tmp(b->t, o, op_copy(b->t, "merge heads", o, heads > 1 && !efficient));
}

/* _partition_global_sequence(). */
static var partition(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    var parts = op_copy(t, "parts for each rank", x, b->p->micro_batch > 1);
    var came = tape_exchange(t, parts, true);
    var y = op_copy(t, "heads of a position", came, true);

    tape_drop(t, came);
    tape_drop(t, parts);
    return y;
}

/* _ulysses_flash_attention_forward() (verl/models/transformers/monkey_patch.py): all samples lie in one row, positions outermost, so that
 * parts by positions lie together and parts by heads do not. */
static var verls(struct torch_model *b, const var in[3])
{
    struct tape *t = b->t;
    var x[3];

    for (int i = 0; i < 3; i++) {
        int64_t all = i == 0 ? b->m->heads : b->m->kv_heads, times = heads_of(b, i) * b->context / all;
        x[i] = times > 1 ? op_repeat(t, "repeat heads", in[i], times) : tape_hold(t, in[i]);
        x[i] = tmp(t, x[i], tape_exchange_lists(t, x[i], true, false));
    }
    var list = tape_gather_numbers(t, "gather positions", b->tokens * b->context);
    var ids = op_new(t, "join positions", KC_COPY, b->tokens * b->context, DT_INT64);
    var o = attend(b, x), y = tape_exchange_lists(t, o, false, true);

    const var names[] = { o, ids, list, x[0], x[1], x[2] };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tape_drop(t, names[i]);
    return y;
}

var torch_ulysses(struct torch_model *b, const var in[3])
{
    struct tape *t = b->t;

    if (torch_is_verls_ulysses(b))
        return verls(b, in);
    var list = tape_gather_numbers(t, "gather positions", b->tokens * b->context);
    var ids = op_new(t, "join positions", KC_COPY, b->tokens * b->context, DT_INT64), x[3];

    for (int i = 0; i < 3; i++)
        x[i] = combine(b, in[i], i);
    for (int i = 0; i < 3; i++)
        x[i] = tmp(t, x[i], op_copy(t, "heads outermost", x[i], heads_of(b, i) > 1 || b->p->micro_batch > 1));
    var o = merge_heads(b, attend(b, x));
    var y = partition(b, o);
    tape_drop(t, o);
    for (int i = 0; i < 3; i++)
        tape_drop(t, x[i]);
    tape_drop(t, ids);
    tape_drop(t, list);
    return tmp(t, y, op_copy(t, "merge heads", y, b->p->micro_batch > 1));
}

/* Numbers: each is one tensor.  verl gathers the loss of every token (gather_outputs_and_unpad()). */
var torch_ulysses_loss(struct torch_model *b, var loss)
{
    struct tape *t = b->t;

    if (torch_is_verls_ulysses(b)) {
        var of_tokens = op_expand(t, "losses of tokens", loss, b->tokens), gathered = tape_gather_joined(t, "gather losses", of_tokens, b->context);
        tape_drop(t, of_tokens);
        return tmp(t, gathered, op_mean(t, "mean loss", gathered));
    }
    var losses = tape_gather_list(t, "gather losses", loss, b->context);
    var good = op_new(t, "count labels", KC_LOSS, 1, DT_INT64);
    var counts = tape_gather_numbers(t, "gather counts", b->context);
    var all = op_mul_const(t, "weigh losses", losses, counts);
    var y = op_mean(t, "mean loss", all);
    const var gone[] = { losses, good, counts, all };

    for (int i = 0; i < 4; i++)
        tape_drop(t, gone[i]);
    return y;
}
