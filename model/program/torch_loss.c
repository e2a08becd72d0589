/* torch_loss.c -- logits and their cross-entropy: transformers' in fp32, or what replaces it. */
#include "model/program/torch_loss.h"

#include "model/plan/loss_check.h"
#include "model/program/tape_actor.h"
#include "model/program/tape_collective.h"
#include "model/program/tape_loss.h"
#include "model/program/torch_number.h"
#include "model/program/torch_parts.h"
#include "model/program/torch_ulysses.h"

/* What a family makes of the head's products. */
static var finish_logits(struct torch_model *b, var logits)
{
    struct tape *t = b->t;

    if (b->family->scaled_logits)
        logits = tmp(t, logits, op_mul_const(t, "logit scale", logits, 0));
    if (b->m->softcap > 0) {
        var s = op_mul_const(t, "softcap", logits, 0);
        s = tmp(t, s, op_unary(t, "softcap tanh", KC_ELEMENTWISE, s, SAVE_OUT));
        tape_drop(t, logits);
        logits = tmp(t, s, op_mul_const(t, "softcap", s, 0));
    }
    return logits;
}

/* ForCausalLMLoss pads and shifts the labels. */
static var shifted_labels(struct torch_model *b)
{
    struct tape *t = b->t;
    if (b->context > 1) {               /* shifted before positions are dealt out */
        b->padded = 0;
        return tape_hold(t, b->labels);
    }
    var padded = op_new(t, "pad labels", KC_COPY, b->tokens + b->p->micro_batch, DT_INT64);
    /* With one row the shifted view is contiguous, hence no copy. */
    var shifted = b->p->micro_batch == 1 ? tape_hold_part(t, padded, b->tokens) :
                  op_new(t, "shift labels", KC_COPY, b->tokens, DT_INT64);

    b->padded = padded;
    return shifted;
}

/* Mean cross-entropy of logits in `dt`. */
static var cross_entropy(struct torch_model *b, var logits, enum dtype dt)
{
    struct tape *t = b->t;
    var in = op_cast(t, logits, dt);
    var shifted = shifted_labels(b);
    var logp = op_unary(t, "log-softmax", KC_LOSS, in, SAVE_OUT);
    var nll = op_nll(t, logp, shifted);

    tape_drop(t, logp);
    tape_drop(t, in);
    tape_drop(t, b->padded);
    tape_drop(t, shifted);
    return nll;
}

/* transformers' loss function with Liger-Kernel's cross_entropy() in the place of PyTorch's: logits.float() all the same. */
static var in_place(struct torch_model *b, var logits)
{
    struct tape *t = b->t;
    var in = op_cast(t, logits, DT_FP32), labels = shifted_labels(b);
    var loss = op_in_place_loss(t, "liger cross-entropy", in, b->m->vocab);

    tape_drop(t, in);
    tape_drop(t, b->padded);
    tape_drop(t, labels);
    return loss;
}

/* verl's dp_actor.py: log-probabilities are flash-attn's, whose gradient is written over the logits unless their entropy is in the loss, too. */
static var of_actor(struct torch_model *b, var logits)
{
    struct tape *t = b->t;
    var shifted = shifted_labels(b), loss;

    if (b->p->loss == LOSS_FUSED_IN_PLACE) {
        loss = op_fused_loss_in_place(t, "fused cross-entropy", logits, shifted, b->m->vocab);
    } else {
        loss = op_fused_loss(t, "fused cross-entropy", logits, shifted, b->m->vocab, 1, false);
        var entropy = b->p->loss == LOSS_FUSED_ENTROPY ? op_entropy(t, "entropy", logits, b->m->vocab) : op_entropy_eager(t, logits, b->m->vocab);
        if (torch_is_ulysses(b)) {              /* both are gathered */
            loss = tmp(t, loss, torch_ulysses_loss(b, loss));
            entropy = tmp(t, entropy, torch_ulysses_loss(b, entropy));
        }
        loss = tmp(t, loss, op_add(t, "loss and entropy", loss, entropy));
        tape_drop(t, entropy);
    }
    tape_drop(t, b->padded);
    tape_drop(t, shifted);
    return loss;
}

/* flash-attn's kernel keeps each row's log-sum-exp; inductor its maximum and the logarithm of the sum. */
static var fused(struct torch_model *b, var logits, int numbers, bool cast)
{
    struct tape *t = b->t;
    bool named = b->p->logits_kept != LOGITS_DROPPED && (b->p->logits_kept == LOGITS_IN_FP32 ? tape_var_dtype(t, logits) == DT_FP32 : !cast);
    var shifted = shifted_labels(b);
    var loss = op_fused_loss(t, "fused cross-entropy", logits, shifted, b->m->vocab, numbers, named);

    tape_drop(t, b->padded);
    tape_drop(t, shifted);
    return loss;
}

/* torchtune's CEWithChunkedOutputLoss: the head for each of eight parts of the sequence, then each part's loss. */
enum { CHUNKS = HEAD_CALLS };

static var chunked(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    int64_t width = b->m->token_width, vocab = b->m->vocab, seq = b->p->seq;
    int parts = seq < CHUNKS ? (int)seq : CHUNKS;
    var w = torch_weight(b, ROLE_HEAD, vocab * width, true), chunk[CHUNKS], logits[CHUNKS], loss = 0;

    for (int i = 0; i < parts; i++)
        chunk[i] = op_slice(t, "head chunk", n, (seq / parts + (i < seq % parts)) * b->p->micro_batch * width);
    for (int i = 0; i < parts; i++) {
        var x = tmp(t, chunk[i], op_copy(t, "copy chunk", chunk[i], b->p->micro_batch > 1));
        logits[i] = torch_linear_with(b, GEMM("logits"), x, vocab, width, w, ROLE_HEAD);
        tape_drop(t, x);
        logits[i] = finish_logits(b, logits[i]);
    }
    tape_drop(t, w);
    t->module = -1;
    for (int i = 0; i < parts; i++) {
        var in = op_cast(t, logits[i], DT_FP32);
        var labels = b->p->micro_batch == 1 ? tape_hold(t, b->labels) :
                     op_new(t, "chunk labels", KC_COPY, tape_var_numel(t, in) / vocab, DT_INT64);
        var logp = op_unary(t, "log-softmax", KC_LOSS, in, SAVE_OUT);
        var nll = op_nll(t, logp, labels);
        tape_drop(t, logp);
        tape_drop(t, in);
        tape_drop(t, labels);
        loss = loss ? tmp(t, loss, op_add(t, "sum losses", loss, nll)) : tape_hold(t, nll);
        tape_drop(t, nll);
    }
    tape_drop(t, n);
    for (int i = 0; i < parts; i++)
        tape_drop(t, logits[i]);
    return loss;
}

static void marks(struct torch_model *b, int at[2])
{
    at[0] = tape_cut(b->t);
    at[1] = b->t->nnodes;
}

/* torchtune's LinearCrossEntropyLoss: of the tokens that count, here all, head and loss come for each of eight parts. */
static var linear_chunks(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    int64_t width = b->m->token_width, vocab = b->m->vocab, tokens = b->tokens;
    int parts = tokens < CHUNKS ? (int)tokens : CHUNKS;
    bool unit = b->p->fsdp.root_units == ROOT_EMBED_HEAD;   /* the head's module is one, which the loss calls for each part */
    if (unit)
        marks(b, b->returned);
    b->ncalls = unit ? parts : 0;
    var picked = op_index(t, "tokens that count", n, tokens * width), labels = op_new(t, "labels that count", KC_COPY, tokens, DT_INT64);
    var chunk[CHUNKS], loss = 0;

    for (int i = 0; i < parts; i++)
        chunk[i] = op_slice(t, "head chunk", picked, (tokens / parts + (i < tokens % parts)) * width);
    if (unit)
        marks(b, b->called[0][0]);
    var w = torch_weight(b, ROLE_HEAD, vocab * width, true);        /* AccumulateGrad runs as soon as the first part's product has */
    torch_share_head_adapter(b);
    for (int i = 0; i < parts; i++) {
        if (unit && i > 0)
            marks(b, b->called[i][0]);
        var y = torch_linear_with(b, GEMM("logits"), chunk[i], vocab, width, w, ROLE_HEAD);
        y = torch_adapted(b, y, chunk[i], vocab, width, ROLE_HEAD);
        if (unit)
            marks(b, b->called[i][1]);
        var logits = finish_logits(b, y);
        t->module = -1;
        var in = op_cast(t, logits, DT_FP32), of = tape_hold_part(t, labels, tape_var_numel(t, in) / vocab);
        var logp = op_unary(t, "log-softmax", KC_LOSS, in, SAVE_OUT);
        var nll = op_nll(t, logp, of);
        tape_drop(t, logp);
        tape_drop(t, in);
        tape_drop(t, of);
        tape_drop(t, logits);
        loss = loss ? tmp(t, loss, op_add(t, "sum losses", loss, nll)) : tape_hold(t, nll);
        tape_drop(t, nll);
    }
    for (int i = 0; i < parts; i++)
        tape_drop(t, chunk[i]);
    torch_drop_head_adapter(b);
    tape_drop(t, w);
    tape_drop(t, labels);
    tape_drop(t, picked);
    tape_drop(t, n);
    return loss;
}

/* As many rows at a time as keep logits below the hidden states: a power of two (triton.next_power_of_2). */
static int64_t liger_chunk(int64_t rows, int64_t width, int64_t vocab)
{
    int64_t times = (vocab + width - 1) / width, want = (rows + times - 1) / times, chunk = 1;

    while (chunk < want)
        chunk *= 2;
    return chunk < rows ? chunk : rows;
}

/* The weight as it is kept: where autocast copies it, these functions decide. */
static struct head_loss of_head(struct torch_model *b, const char *name, var n)
{
    static const struct gemm_names names = { "logits", "logits dX", "logits dW", "logits db" };
    int64_t width = b->m->token_width, vocab = b->m->vocab;
    int arch = b->p->cluster.gpu.sm_arch;

    return (struct head_loss){ .names = &names, .name = name, .x = n, .w = torch_weight(b, ROLE_HEAD, vocab * width, false), .n = vocab,
                               .k = width, .chunk = liger_chunk(b->tokens, width, vocab), .autocast = b->autocast,
                               .narrow_sums = (arch > 0 && arch < 80) || plan_torch_before(b->p, 2008) };
}

static var linear_loss(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    var labels = shifted_labels(b), cast;
    struct head_loss h = of_head(b, "liger linear cross-entropy", n);
    var loss = op_linear_loss(t, &h, &cast);

    if (cast)
        b->casts[b->ncasts++] = cast;
    t->module = -1;
    tape_drop(t, h.w);
    tape_drop(t, b->padded);
    tape_drop(t, labels);
    return loss;
}

/* cut_cross_entropy(shift=True) reads labels where they lie. */
static var cut_loss(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    struct head_loss h = of_head(b, "cut cross-entropy", n);
    var loss = op_cut_loss(t, &h, b->labels);

    t->module = -1;
    tape_drop(t, h.w);
    return loss;
}

/* verl's patched forward rolls the ids, of every position. */
static var actor_loss(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    var labels = op_new(t, "rolled ids", KC_COPY, b->tokens, DT_INT64);
    struct head_loss h = of_head(b, "actor loss", n);
    var loss = b->p->loss == LOSS_ACTOR_CHUNKS ? tape_actor_chunks(t, &h, labels) : tape_actor_kernel(t, &h, labels, 0);

    t->module = -1;
    tape_drop(t, labels);
    tape_drop(t, h.w);
    return tmp(t, loss, op_mean(t, "mean loss", loss));
}

/* TRL's fused head (trl/trainer/utils.py, add_fused_lm_head()): of each sample all positions but the last, here all with a label, picked by a mask. */
static var logprob_loss(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    bool shifts = b->context == 1;
    int64_t rows = b->tokens - (shifts ? b->p->micro_batch : 0), width = b->m->token_width;
    var part = shifts ? op_slice(t, "all but the last", n, rows * width) : tape_hold(t, n);
    var x = op_index(t, "positions that count", part, rows * width), labels = op_new(t, "labels that count", KC_COPY, rows, DT_INT64);
    struct head_loss h = of_head(b, "chunked log-probabilities", x);
    var loss = tape_actor_tiles(t, &h, labels);
    const var gone[] = { part, labels, x, h.w };

    t->module = -1;
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        tape_drop(t, gone[i]);
    loss = tmp(t, loss, op_copy(t, "scatter", loss, true));
    return tmp(t, loss, op_mean(t, "mean loss", loss));
}

static void head_returns(struct torch_model *b)
{
    if (b->p->fsdp.root_units == ROOT_TOGETHER)
        return;
    marks(b, b->headed);
}

/* The trainer's: loss_parallel() of logits as they lie, or of all of them on every rank, in fp32 or as they are.  The model has
 * returned.  Whole logits are what torchtitan's model returns; NeMo Automodel's loss gathers them, behind its cast (components/loss/masked_ce.py: logits.float(),
 * then full_tensor()). */
static var of_cut_logits(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    var logits = torch_linear(b, GEMM("logits"), n, b->m->vocab, b->m->token_width, ROLE_HEAD), in, l;
    bool gathers = b->ranks > 1 && !b->p->parallel.loss_parallel, late = gathers && loss_cuts_logits(b->p);

    t->module = -1;
    if (gathers && !late)
        logits = tmp(t, logits, tape_collective(t, MOVED_GATHER_LAST, logits, b->ranks, true, false));
    logits = finish_logits(b, logits);
    tape_drop(t, n);
    head_returns(b);
    marks(b, b->returned);
    in = op_cast(t, logits, b->p->loss == LOSS_FP32 ? DT_FP32 : tape_var_dtype(t, logits));
    if (late)
        in = tmp(t, in, tape_collective(t, MOVED_GATHER_LAST, in, b->ranks, true, false));
    if (b->ranks > 1 && b->p->parallel.loss_parallel) {
        l = tape_parallel_loss(t, in, b->labels);
    } else {
        var logp = op_unary(t, "log-softmax", KC_LOSS, in, SAVE_OUT);
        l = tmp(t, logp, op_nll(t, logp, b->labels));
    }
    tape_drop(t, in);
    tape_drop(t, logits);
    return l;
}

/* Of logits that the model has made, and names until forward returns. */
static var of_logits(struct torch_model *b, var n, var *made)
{
    struct tape *t = b->t;
    enum loss_kind kind = b->p->loss;
    var logits = torch_linear(b, GEMM("logits"), n, b->m->vocab, b->m->token_width, ROLE_HEAD);

    if (torch_is_autotp(b))             /* the tp_plan's "colwise_gather_output" */
        logits = tmp(t, logits, tape_collective(t, MOVED_GATHER_LAST, logits, b->ranks, true, false));
    head_returns(b);
    logits = finish_logits(b, logits);
    if (b->family->float_logits)
        logits = tmp(t, logits, op_cast(t, logits, DT_FP32));
    t->module = -1;
    bool casts = kind == LOSS_FUSED_FP32 && tape_var_dtype(t, logits) != DT_FP32;
    if (casts)                          /* in the place of what the model returned (OpenRLHF's models/actor.py) */
        logits = tmp(t, logits, op_cast(t, logits, DT_FP32));
    *made = logits;
    if (kind == LOSS_FUSED || kind == LOSS_FUSED_FP32 || kind == LOSS_COMPILED)
        return fused(b, logits, kind == LOSS_COMPILED ? 2 : 1, casts);
    if (kind == LOSS_FUSED_IN_PLACE || kind == LOSS_FUSED_ENTROPY || kind == LOSS_FUSED_ENTROPY_EAGER)
        return of_actor(b, logits);
    return kind == LOSS_LIGER ? in_place(b, logits) : cross_entropy(b, logits, kind == LOSS_FP32 ? DT_FP32 : tape_var_dtype(t, logits));
}

var torch_loss(struct torch_model *b, var n)
{
    struct tape *t = b->t;
    enum loss_kind kind = b->p->loss;
    bool cut = (b->ranks > 1 && !torch_is_autotp(b)) || (b->context > 1 && !torch_is_ulysses(b));
    var l, logits = 0;

    if (b->m->head != HEAD_LOGITS)
        return torch_number_loss(b, n);
    if (cut && (kind == LOSS_FP32 || (kind == LOSS_COMPUTE && b->ranks > 1)))
        return of_cut_logits(b, n);
    if (kind == LOSS_CHUNKED)
        return chunked(b, n);
    if (kind == LOSS_LINEAR_CHUNKS)
        return linear_chunks(b, n);
    switch (kind) {
    case LOSS_ACTOR_CHUNKS: case LOSS_ACTOR_KERNEL:
                               l = actor_loss(b, n); break;
    case LOSS_CHUNKED_LOGPROB: l = logprob_loss(b, n); break;
    case LOSS_FUSED_LINEAR:    l = linear_loss(b, n); break;
    case LOSS_CUT:             l = cut_loss(b, n); break;
    default:                   l = of_logits(b, n, &logits); break;
    }
    if (torch_is_ulysses(b) && kind != LOSS_FUSED_ENTROPY && kind != LOSS_FUSED_ENTROPY_EAGER)
        l = tmp(t, l, torch_ulysses_loss(b, l));
    tape_drop(t, n);                         /* last_hidden_state, until forward returns */
    tape_drop(t, logits);                    /* with the output object */
    return l;
}
