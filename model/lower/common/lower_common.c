/* lower_common.c -- entries that lowerings of several families emit. */
#include "model/lower/common/lower_internal.h"

#include <assert.h>
#include <string.h>

#include "model/lower/common/optimizer.h"
#include "model/plan/qat.h"
#include "model/program/torch_model.h"

void lower_declare_activations(struct schedules *s, const struct local_model *local, int acts[NPIECE])
{
    int steps = local->plan->parallel.pipeline > 1 ? (int)local->plan->accumulation : 1;

    for (int i = 0; i < PIECE_RECEIVED; i++) {
        if (i >= PIECE_KIND && i < PIECE_HEAD && s->program.piece[i].nkernels[PASS_FORWARD] == 0)
            continue;
        bool block = piece_is_block(i);
        /* Below zero where a piece frees more than it keeps: autocast's cached casts of
         * the blocks' weights go when the head's forward leaves it. */
        int64_t saved = s->program.piece[i].saved > 0 ? s->program.piece[i].saved : 0;
        bool units = local->model->recorded != NULL;
        acts[i] = sched_buf(s, CAT_ACTIVATIONS, i == PIECE_EMBED ? units ? "activations before the first unit" : "activations of the embedding" :
                            i == PIECE_HEAD ? units ? "activations behind the last unit" : "activations of the head" : "activations",
                            block ? "block" : NULL, 0, steps * (block ? (int)local->model->layers : 1),
                            saved);
    }
}

/* Linear8bitLt.forward() casts its bias to the dtype of its input, in which it stays: under autocast attention gives 16 bits, LayerNorm fp32,
 * and all that follows from norms of a model in fp32 is fp32, the layers' own results among it. */
static bool is_wide_bias(const struct recipe *r, const struct model *m, const struct tensor *t)
{
    return t->packed == BASE_INT8 && t->is_bias && t->role != ROLE_ATTN_OUT && (r->frozen == DT_FP32 || m->norm != NORM_RMS);
}

int lower_declare_statistics(struct schedules *s, const struct local_model *local)
{
    const struct model *m = local->whole;
    int64_t bytes[PACKED_PARTS], sum = 0;
    int buf = -1;

    for (int pass = 0; pass < 2; pass++) {
        for (int t = 0; t < m->ntensors; t++)
            for (int i = packed_whole_from(m->tensors[t].packed), n = packed_parts(&m->tensors[t], bytes); i < n; i++) {
                sum += pass ? 0 : round512(bytes[i]);
                if (pass)
                    sched_part(s, buf, round512(bytes[i]));
            }
        if (sum == 0)
            return -1;
        if (!pass)
            buf = sched_buf(s, CAT_PARAMS, "quantisation statistics", NULL, 0, 1, sum);
    }
    return buf;
}

void lower_load_statistics(struct schedules *s, int statistics)
{
    if (statistics < 0)
        return;
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "quantisation statistics")->flags = OPF_LOAD;
    sched_act(s, ACT_ALLOC | ACT_WRITE, statistics, 0, 0);
}

/* Scales and zero points that layers keep until their next forward; here from the beginning. */
static void load_scales(struct schedules *s, const struct plan *p)
{
    int64_t sum = 0;
    int buf = -1;

    for (int pass = 0; pass < 2; pass++) {
        for (int t = 0; t < p->model.ntensors; t++)
            for (int i = 0; i < 4 && qat_converts(p, &p->model.tensors[t]); i++) {
                const struct tensor *x = &p->model.tensors[t];
                int64_t bytes = qat_in_parts(p, x) && i % 2 == 0 ? 0 : round512(4 * (i < 2 ? qat_weight_scales(p, x) : qat_token_scales(p, x)));
                sum += pass ? 0 : bytes;
                if (pass && bytes > 0)
                    sched_part(s, buf, bytes);
            }
        if (sum == 0)
            return;
        if (!pass)
            buf = sched_buf(s, CAT_PARAMS, "scales and zero points", NULL, 0, 1, sum);
    }
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "scales and zero points")->flags = OPF_LOAD;
    sched_act(s, ACT_ALLOC | ACT_WRITE, buf, 0, 0);
}

/* model.to(device) has moved them before anything else is made. */
void lower_load_buffers(struct schedules *s, const struct local_model *local)
{
    const struct recorded *r = local->model->recorded;
    int64_t bytes = 0;
    int buf;

    load_scales(s, local->plan);

    for (int64_t i = 0; r && i < r->nbuffers + r->nkept; i++)
        bytes += round512(r->buffer[i].bytes);
    if (bytes == 0)
        return;
    buf = sched_buf(s, CAT_PARAMS, "module buffers", NULL, 0, 1, bytes);
    for (int64_t i = 0; i < r->nbuffers + r->nkept; i++)
        sched_part(s, buf, round512(r->buffer[i].bytes));
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "module buffers")->flags = OPF_LOAD;
    sched_act(s, ACT_ALLOC | ACT_WRITE, buf, 0, 0);
}

int lower_kept_parts(const struct recipe *r, const struct model *m, const struct tensor *t, int64_t bytes[PACKED_PARTS])
{
    int n = packed_parts(t, bytes);

    if (is_wide_bias(r, m, t))
        bytes[0] = 4 * t->numel;
    if (n > 0)
        return n;
    bytes[0] = t->numel * dtype_bytes(plan_kept(r, t));
    return 1;
}

void lower_trained_parts(struct schedules *s, const struct model *m, int buf, const struct recipe *r, const int64_t *owner, int64_t rank)
{
    for (int t = 0; t < m->ntensors; t++)
        if ((!owner || owner[t] == rank) && !m->tensors[t].frozen)
            sched_part(s, buf, round512(m->tensors[t].numel * dtype_bytes(plan_kept(r, &m->tensors[t]))));
}

/* Rotary embeddings register a table of all positions (gptj), or inv_freq and original_inv_freq, each of half the rotated
 * dimensions, once for each kind of layer, and Falcon builds one even where ALiBi is used;
 * Gemma's token embedding registers embed_scale, a single number, DeepSeek's routers e_score_correction_bias (transformers 5.23). */
int lower_model_buffer_elems(const struct model *m)
{
    bool scaled = family_for(m)->scaled_table;
    if (family_for(m)->position_table)
        return (int)(m->context * m->rotary_dim);
    int64_t rotary = m->position == POS_ROPE ? m->rotary_dim : family_for(m)->falcon ? m->head_dim : 0;

    return (int)(torch_has_two_tables(m) ? 2 * rotary : rotary) + scaled + (int)(m->route_groups > 0 ? m->experts * model_routers(m) : 0);
}

uint16_t lower_sum_norm(struct schedules *s, enum stream st, const struct norm_sum *sums, int n, bool exact)
{
    uint16_t after = 0;

    for (int i = 0; i < n; i++)
        if (sums[i].elems > 0) {
            sched_coll(s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, sums[i].over, exact ? DT_INT64 : DT_FP32, RED_SUM,
                       exact ? NORM_LIMBS : sums[i].elems)->after = AFTER(st);
            sched_moves(s, OF_NORM);
            after = AFTER(STREAM_GROUP);
        }
    if (sched_group_ranks(s, GROUP_PIPE) > 1) {     /* of this stage's gradients: one number for each */
        sched_coll(s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_PIPE, exact ? DT_INT64 : DT_FP32, RED_SUM,
                   exact ? NORM_LIMBS : 1)->after = AFTER(st);
        sched_moves(s, OF_NORM);
        after = AFTER(STREAM_GROUP);
    }
    return after;
}

void lower_clip_by_norm(struct schedules *s, enum stream st, int64_t bytes, const struct norm_sum *sums, int n, bool exact,
                  act_fn *gradients, void *arg)
{
    uint16_t summed;

    sched_copy(s, st, PHASE_OPTIMIZER, "gradient norm", bytes, 0);
    sched_does(s, COPY_NORM, 1);
    if (s->detailed || s->steps_on_host || st == STREAM_HOST)
        gradients(s, ACT_R, arg);
    summed = lower_sum_norm(s, st, sums, n, exact);
    sched_copy(s, st, PHASE_OPTIMIZER, "scale gradients", bytes, bytes)->after = summed;
    sched_does(s, COPY_CLIP, 1);
    if (s->detailed || s->steps_on_host || st == STREAM_HOST)
        gradients(s, ACT_RW, arg);
}

void lower_emit_settled(struct schedules *s, void (*emit)(void *arg), settled_fn *settled, void *arg)
{
    int nops = s->nops, nacts = s->nacts;

    for (int attempt = 0; ; attempt++) {
        assert(attempt < 8);
        if (settled)
            settled(arg, true);
        emit(arg);
        if (!settled || settled(arg, false))
            return;
        s->nops = nops;
        s->nacts = nacts;
    }
}

/* Bytes an element and passes over memory.  One kernel reads p, m, v and the gradient and writes p, m, v.
 * torch/optim/adamw.py, _multi_tensor_adamw: p*=, lerp m, v*=, addcmul v, sqrt, /=, +=, addcdiv p: 8 + 12
 * + 8 + 12 + 8 + 8 + 8 + 16 bytes in fp32, 20 elements.  The 16-bit copy costs 2, and 4 more to read the
 * master where that is another pass. */
static void set_bytes(struct op *o, const struct plan *p, enum adamw_form form)
{
    struct recipe r = plan_recipe(p);
    bool   master = r.optimizer > 8;
    int    state = (int)dtype_bytes(master ? DT_FP32 : r.kept);
    int    bytes = state * 6 + (int)dtype_bytes(master ? DT_FP32 : r.grad), passes = 1;
    double each = r.copies != r.kept ? plan_trained_bytes(p) : state;

    if (p->optimizer != OPTIMIZER_ADAMW) {
        struct optimizer_work w = optimizer_work(p);
        o->u.optimizer.bytes = (uint32_t)w.bytes;
        o->u.optimizer.passes = (uint8_t)w.passes;
        o->u.optimizer.each = w.each;
        if (master && form == ADAMW_THEN_CAST) {
            o->u.optimizer.bytes += 6;
            o->u.optimizer.passes++;
        }
        o->u.optimizer.flops = w.flops;
        o->u.optimizer.fp32 = w.fp32;
        return;
    }
    if ((form == ADAMW_FOREACH || form == ADAMW_LOOP) && p->kernels != KERNELS_DPX) {
        passes = 8;
        bytes = (int)(20 * each + 0.5);
    } else if (master && form != ADAMW_ON_HOST) {
        passes = form == ADAMW_THEN_CAST ? 2 : 1;
        bytes += form == ADAMW_THEN_CAST ? 6 : 2;
    }
    o->u.optimizer.bytes = (uint32_t)bytes;
    o->u.optimizer.passes = (uint8_t)passes;
    o->u.optimizer.each = form == ADAMW_LOOP;
}

struct op *lower_adamw(struct schedules *s, const struct plan *p, enum adamw_form form, int64_t elems)
{
    enum stream st = form == ADAMW_ON_HOST ? STREAM_HOST : STREAM_COMPUTE;
    struct op *o = sched_op(s, OP_OPTIMIZER, st, PHASE_OPTIMIZER, optimizer_title(p));

    o->u.optimizer.elems = elems;
    o->u.optimizer.tensors = p->model.ntrainable;
    o->flags |= p->dialect == DIALECT_TORCH && (p->strategy == STRAT_FSDP || p->parallel.tensor > 1) ? OPF_DTENSOR : 0;
    set_bytes(o, p, form);
    return o;
}

struct op *lower_torch_adamw(struct schedules *s, const struct plan *p, int64_t elems)
{
    static const enum adamw_form forms[NOPTIMIZER_FORM] = {
        [OPTIMIZER_FOREACH] = ADAMW_FOREACH, [OPTIMIZER_FUSED] = ADAMW_ONE_KERNEL, [OPTIMIZER_LOOP] = ADAMW_LOOP,
    };

    return lower_adamw(s, p, forms[p->optimizer_form], elems);
}

int64_t lower_adamw_step_bytes(const struct plan *p)
{
    bool there = p->optimizer_form == OPTIMIZER_FUSED || p->fsdp.optimizer_offload;      /* which brings all states from the second step on */

    return p->optimizer == OPTIMIZER_ADAMW && there ? round512(4) : 0;
}

void lower_state_parts(struct schedules *s, const struct plan *p, int buf, const struct tensor *t, int64_t rows)
{
    int64_t bytes[OPTIMIZER_PARTS];
    int n = optimizer_states(p, t, rows, bytes);

    for (int i = 0; i < n; i++)
        sched_part(s, buf, round512(bytes[i]));
}

int64_t lower_state_bytes(const struct plan *p, const struct tensor *t, int64_t rows)
{
    int64_t bytes[OPTIMIZER_PARTS], sum = 0;
    int n = optimizer_states(p, t, rows, bytes);

    for (int i = 0; i < n; i++)
        sum += round512(bytes[i]);
    return sum;
}

/* One of a tensor's states, n numbers of dtype dt. */
struct state { enum holds holds; enum dtype dt; int64_t n; };

static int states_of(const struct plan *p, const struct tensor *t, struct state out[4])
{
    int64_t blocks = ceil_div(t->numel, BNB_BLOCK);

    if (p->optimizer == OPTIMIZER_ADAFACTOR && t->ndim == 1) {
        out[0] = (struct state){ HOLDS_EXP_AVG_SQ, DT_FP32, t->numel };
        return 1;
    }
    if (p->optimizer == OPTIMIZER_ADAFACTOR) {
        out[0] = (struct state){ HOLDS_ROW_VAR, DT_FP32, t->shape[0] };
        out[1] = (struct state){ HOLDS_COL_VAR, DT_FP32, t->shape[1] };
        return 2;
    }
    bool codes = optimizer_in_8_bits(p, t, t->numel);
    out[0] = (struct state){ HOLDS_EXP_AVG, codes ? DT_UINT8 : DT_FP32, t->numel };
    out[1] = (struct state){ HOLDS_EXP_AVG_SQ, codes ? DT_UINT8 : DT_FP32, t->numel };
    out[2] = (struct state){ HOLDS_MAX_AVG, DT_FP32, blocks };
    out[3] = (struct state){ HOLDS_MAX_SQ, DT_FP32, blocks };
    return codes ? 4 : 2;
}

int64_t lower_whole_states(struct schedules *s, const struct plan *p, int tensor, int64_t at, int64_t to)
{
    const struct tensor *t = &p->model.tensors[tensor];
    struct state of[4];
    int n = t->frozen ? 0 : states_of(p, t, of);
    int64_t bytes = 0;

    for (int i = 0; i < n; i++) {
        if (s)
            sched_slice(s, of[i].holds, of[i].dt, tensor, 0, of[i].n, at + bytes);
        bytes += round_up(of[i].n * dtype_bytes(of[i].dt), to);
    }
    return bytes;
}

/* AdamW's list beside Muon.  Its bytes; `into`: a part for each. */
static int64_t list_beside_muon(struct schedules *s, const struct plan *p, int buf, bool into)
{
    int64_t bytes = 0;

    for (int i = 0; i < p->model.ntensors; i++) {
        int64_t one = optimizer_beside_muon(p, &p->model.tensors[i]);
        bytes += one;
        if (into && one > 0)
            sched_part(s, buf, one);
    }
    return bytes;
}

void lower_adamw_temporaries(struct schedules *s, const struct plan *p, int buf, int64_t largest)
{
    struct buf *b = &s->bufs[buf];
    int64_t moment[OPTIMIZER_MOMENT_PARTS], rest = list_beside_muon(s, p, buf, false), sum = 0;
    int n = optimizer_moment(p, moment);

    if (optimizer_makes_list(p))
        return;
    for (int i = 0; i < n; i++)
        sum += moment[i];
    n = rest > sum ? 0 : n;
    assert(b->nparts == 0 || b->part0 + b->nparts == s->nparts);
    for (int i = 0; i < b->nparts; i++)
        largest = s->parts[b->part0 + i] > largest ? s->parts[b->part0 + i] : largest;
    s->nparts -= b->nparts;
    b->nparts = 0;
    b->bytes = p->optimizer == OPTIMIZER_ADAMW && p->optimizer_form == OPTIMIZER_LOOP ? 2 * largest : 0;
    for (int i = 0; i < 2 && b->bytes > 0; i++)
        sched_part(s, buf, largest);
    for (int i = 0; i < n; i++) {
        b->bytes += moment[i];
        sched_part(s, buf, moment[i]);
    }
    if (rest > sum)
        b->bytes += list_beside_muon(s, p, buf, true);
}

void lower_read_loss(struct schedules *s)
{
    struct op *o = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read the loss");

    o->after = (uint16_t)~AFTER(STREAM_ISSUE) & ((1u << NSTREAM) - 1);
}
