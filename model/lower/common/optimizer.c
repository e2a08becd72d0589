/* optimizer.c -- an optimizer's states of a tensor, temporaries and passes of a step.  What it is called: optimizer_traits.c. */
#include "model/lower/common/optimizer.h"

#include <string.h>

#include "model/plan/optimizer_traits.h"

/* bitsandbytes: states in 8 bits from so many elements on, each block with its largest value in fp32. */
enum { BNB_LEAST = 4096 };
/* bitsandbytes: states of so many elements lie in managed memory, their blocks' values do not. */
enum { PAGED_LEAST = 100000 };
/* torchao: the same, where the block divides the elements; with a table of codes for each state. */
enum { AO_LEAST = 4096, AO_BLOCK_8 = 256, AO_BLOCK_4 = 128, AO_CODES_8 = 256, AO_CODES_4 = 16 };

static bool is_embedding(const struct tensor *t) { return t->role == ROLE_TOKENS || t->role == ROLE_POSITIONS; }

static bool is_paged(const struct plan *p, int64_t n) { return optimizer_traits(p->optimizer)->paged && n >= PAGED_LEAST; }

static bool is_bnb_in_8_bits(enum optimizer o)
{
    return optimizer_traits(o)->by == BY_BITSANDBYTES && optimizer_traits(o)->bits == 8;
}

bool optimizer_in_8_bits(const struct plan *p, const struct tensor *t, int64_t n)
{
    return is_bnb_in_8_bits(p->optimizer) && n >= BNB_LEAST && !is_embedding(t);
}

static int bnb_states(const struct plan *p, bool narrow, int64_t n, int64_t *bytes)
{
    int kinds = optimizer_traits(p->optimizer)->states, at = 0;

    for (int i = 0; i < kinds && !is_paged(p, n); i++)
        bytes[at++] = narrow ? n : 4 * n;
    for (int i = 0; i < kinds && narrow; i++)
        bytes[at++] = 4 * ceil_div(n, BNB_BLOCK);   /* absmax */
    return at;
}

int64_t optimizer_paged(const struct plan *p, const struct tensor *t)
{
    if (t->frozen || !is_paged(p, t->numel))
        return 0;
    return optimizer_traits(p->optimizer)->states * (optimizer_in_8_bits(p, t, t->numel) ? t->numel : 4 * t->numel);
}

static int ao_states(int64_t n, int64_t e, int block, int bits, int codes, int64_t *bytes)
{
    bool narrow = n >= AO_LEAST && n % block == 0;
    int at = 0;

    for (int i = 0; i < 2; i++) {
        bytes[at++] = narrow ? n * bits / 8 : n * e;
        if (narrow) {
            bytes[at++] = 4 * (n / block);
            bytes[at++] = 4 * codes;
        }
    }
    return at;
}

int optimizer_flat_states(const struct plan *p, int64_t n, int64_t bytes[OPTIMIZER_PARTS])
{
    if (optimizer_traits(p->optimizer)->by == BY_BITSANDBYTES)
        return bnb_states(p, is_bnb_in_8_bits(p->optimizer) && n >= BNB_LEAST, n, bytes);
    if (p->optimizer == OPTIMIZER_AO_ADAMW8 || p->optimizer == OPTIMIZER_AO_ADAMW4)
        return p->optimizer == OPTIMIZER_AO_ADAMW8 ? ao_states(n, 4, AO_BLOCK_8, 8, AO_CODES_8, bytes) : ao_states(n, 4, AO_BLOCK_4, 4, AO_CODES_4, bytes);
    bytes[0] = bytes[1] = 4 * n;
    return 2;
}

int64_t optimizer_flat_paged(const struct plan *p, int64_t n)
{
    return is_paged(p, n) ? optimizer_traits(p->optimizer)->states * (is_bnb_in_8_bits(p->optimizer) ? n : 4 * n) : 0;
}

/* torch.optim.Adafactor: of a matrix one number a row and one a column. */
static int factors(const struct tensor *t, int64_t rows, int64_t n, int64_t e, int64_t *bytes)
{
    if (t->ndim == 1) {
        bytes[0] = n * e;
        return 1;
    }
    bytes[0] = rows * e;
    bytes[1] = n / rows * e;
    return 2;
}

/* pytorch_optimizer's SOAP: a side of a matrix has a preconditioner and its eigenbasis (max_precondition_dim); a vector has none. */
enum { SOAP_MOST = 10000 };

/* flashoptim's codes, a scale in fp16 for each 32, and error bits; Transformer Engine's moments, the low half of each master weight, and for
 * moments in bf16 a scale of each that stays 1. */
enum { FLASH_GROUP = 32 };

static int flash_states(int64_t n, int64_t error_bytes, int64_t *bytes)
{
    const int64_t scales = 2 * ceil_div(n, FLASH_GROUP), all[] = { n, scales, n, scales, n * error_bytes };

    memcpy(bytes, all, sizeof all);
    return 5;
}

static int te_states(int64_t n, bool narrow, int64_t *bytes)
{
    const int64_t e = narrow ? 2 : 4, all[] = { n * e, n * e, 2 * n, 4, 4 };

    memcpy(bytes, all, narrow ? sizeof all : 3 * sizeof *all);
    return narrow ? 5 : 3;
}

static int64_t soap_side(const struct tensor *t, int i) { return t->ndim == 2 && t->shape[i] <= SOAP_MOST ? t->shape[i] : 0; }

static int soap_states(const struct tensor *t, int64_t n, int64_t e, int64_t *bytes)
{
    int at = 2;

    bytes[0] = bytes[1] = n * e;
    for (int i = 0; i < 4; i++)                         /* GG of both sides, then Q */
        if (soap_side(t, i % 2) > 0)
            bytes[at++] = soap_side(t, i % 2) * soap_side(t, i % 2) * e;
    return at;
}

int64_t optimizer_beside_muon(const struct plan *p, const struct tensor *t)
{
    bool adamw = p->optimizer == OPTIMIZER_MUON && !t->frozen && !plan_orthogonalises(p, t);

    return adamw ? round_up(t->numel * dtype_bytes(plan_recipe(p).kept), 512) : 0;
}

int optimizer_states(const struct plan *p, const struct tensor *t, int64_t rows, int64_t bytes[OPTIMIZER_PARTS])
{
    struct recipe r = plan_recipe(p);
    int64_t n = rows * (t->numel / t->shape[0]), e = dtype_bytes(plan_kept(&r, t));

    if (t->frozen || n == 0)
        return 0;
    switch (p->optimizer) {
    case OPTIMIZER_ADAMW: case OPTIMIZER_AO_ADAMW:
        bytes[0] = bytes[1] = n * e;
        return 2;
    case OPTIMIZER_SGD:
        bytes[0] = n * e;
        return 1;
    case OPTIMIZER_MUON:
        bytes[0] = bytes[1] = n * e;
        return plan_orthogonalises(p, t) ? 1 : 2;
    case OPTIMIZER_ADAFACTOR:  return factors(t, rows, n, e, bytes);
    case OPTIMIZER_SOAP:       return soap_states(t, n, e, bytes);
    case OPTIMIZER_FLASH_ADAMW: case OPTIMIZER_FLASH_ADAMW32:
        return flash_states(n, p->optimizer == OPTIMIZER_FLASH_ADAMW ? 1 : 2, bytes);
    case OPTIMIZER_TE_ADAMW: case OPTIMIZER_TE_ADAMW16:
        return te_states(n, p->optimizer == OPTIMIZER_TE_ADAMW16, bytes);
    case OPTIMIZER_BNB_ADAMW8: case OPTIMIZER_PAGED_ADAMW: case OPTIMIZER_PAGED_ADAMW8:
    case OPTIMIZER_BNB_LION: case OPTIMIZER_BNB_LION8: case OPTIMIZER_PAGED_LION: case OPTIMIZER_PAGED_LION8:
        return bnb_states(p, optimizer_in_8_bits(p, t, n), n, bytes);
    case OPTIMIZER_AO_ADAMW8:  return ao_states(n, e, AO_BLOCK_8, 8, AO_CODES_8, bytes);
    case OPTIMIZER_AO_ADAMW4:  return ao_states(n, e, AO_BLOCK_4, 4, AO_CODES_4, bytes);
    case NOPTIMIZER:           break;
    }
    return 0;
}

int64_t optimizer_tables(const struct plan *p)
{
    return is_bnb_in_8_bits(p->optimizer) ? 2 * 4 * BNB_BLOCK : 0;      /* name2qmap: dynamic and udynamic */
}

/* ---- Adafactor's loop ----
 *
 * _single_tensor_adafactor's variables keep what an earlier tensor left in them until they are bound again: the update of the one
 * before, rows and columns of the last matrix, the squares of the last vector. */
struct loop { int64_t update, rows, columns, squares, most; };

static void moment(struct loop *l, int64_t bytes[OPTIMIZER_MOMENT_PARTS], int *n, const int64_t now[3])
{
    const int64_t all[OPTIMIZER_MOMENT_PARTS] = { l->update, l->rows, l->columns, l->squares, now[0], now[1], now[2] };
    int64_t sum = 0;

    for (int i = 0; i < 7; i++)
        sum += all[i];
    if (sum <= l->most)
        return;
    l->most = sum;
    *n = 0;
    for (int i = 0; i < 7; i++)
        if (all[i] > 0)
            bytes[(*n)++] = all[i];
}

static int64_t whole_blocks(int64_t bytes) { return round_up(bytes, 512); }

/* ---- Muon's loop ----
 *
 * _single_tensor_muon() keeps the last matrix's update in `update` until it has the gradient's mean with the momentum.  From iteration 2
 * of _zeropower_via_newtonschulz() on, X (bf16) and two m x m matrices (m: the shorter side; the Gram matrix and its polynomial of the
 * iteration before) are live when a third m x m matrix or the next X is allocated. */
static int muon_moment(const struct plan *p, int64_t bytes[OPTIMIZER_MOMENT_PARTS])
{
    const struct model *m = &p->model;
    int64_t e = dtype_bytes(plan_recipe(p).kept), most = 0, before = 0;
    int n = 0;

    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (!plan_orthogonalises(p, t))
            continue;
        int64_t side = t->shape[0] < t->shape[1] ? t->shape[0] : t->shape[1];
        int64_t mean = whole_blocks(t->numel * e), x = whole_blocks(2 * t->numel), gram = whole_blocks(2 * side * side);
        int64_t third = x > gram ? x : gram;
        const int64_t loop[] = { mean, x, gram, gram, third };
        int64_t all = mean + x + 2 * gram + third;
        if (before + mean > most && before + mean > all) {
            bytes[0] = before;
            bytes[1] = mean;
            most = before + mean;
            n = 2;
        } else if (all > most) {
            for (n = 0; n < 5; n++)
                bytes[n] = loop[n];
            most = all;
        }
        before = x;
    }
    return n;
}

/* ---- SOAP's loop ----
 *
 * step()'s names keep what an earlier tensor left in them until they are bound again.  Fullest is a step that makes QR decompositions. */
enum soap_name { SOAP_PROJECTED, SOAP_ROOT, SOAP_AVG, SOAP_NORM,        /* of step() */
                 SOAP_OUTER,                                            /* of update_pre_conditioner() */
                 SOAP_SQ, SOAP_PRODUCT, SOAP_EIG, SOAP_ORDER, SOAP_POWER, SOAP_R, SOAP_Q0, SOAP_Q1,     /* of get_orthogonal_matrix_qr() */
                 SOAP_MADE, NSOAP };                                    /* what an operation makes, before a name is bound to it */
struct soap { int64_t now[NSOAP], most; int64_t *bytes; int n; };

/* An operation makes `made` bytes, beside `temporary` ones; then `name` is bound to them (NSOAP: they go). */
static void soap_makes(struct soap *l, enum soap_name name, int64_t made, int64_t temporary)
{
    int64_t sum = made = whole_blocks(made);

    temporary = whole_blocks(temporary);
    for (int i = 0; i < SOAP_MADE; i++)
        sum += l->now[i];
    if (sum + temporary > l->most) {
        l->most = sum + temporary;
        l->now[SOAP_MADE] = made;
        l->n = 0;
        for (int i = 0; i < NSOAP; i++)
            if (l->now[i] > 0)
                l->bytes[l->n++] = l->now[i];
        if (temporary > 0)
            l->bytes[l->n++] = temporary;
    }
    if (name < NSOAP)
        l->now[name] = made;
}

/* project(): a product with the eigenbasis of each side that has one, of `from` bytes that go then, or of a state (0). */
static void soap_projects(struct soap *l, enum soap_name name, const struct tensor *t, int64_t whole, int64_t from)
{
    int64_t before = from;

    for (int i = 0; i < 2; i++)
        if (soap_side(t, i) > 0) {
            soap_makes(l, NSOAP, whole, before);
            before = whole;
        }
    l->now[name] = whole_blocks(before);                /* 0: a view */
}

static void soap_decomposes(struct soap *l, const struct tensor *t, int64_t e)
{
    for (int i = 0; i < 2; i++) {
        int64_t n = soap_side(t, i), square = n * n * e;
        if (n == 0)
            continue;
        soap_makes(l, SOAP_PRODUCT, square, 0);
        soap_makes(l, SOAP_EIG, n * e, square);         /* the sum of a product */
        soap_makes(l, SOAP_ORDER, n * 8, n * e);        /* argsort(): values and places */
        soap_makes(l, SOAP_SQ, t->numel * e, 0);
        soap_makes(l, SOAP_POWER, square, 0);
        soap_makes(l, SOAP_R, square, square);          /* linalg.qr() */
        l->now[SOAP_Q0 + i] = whole_blocks(square);
    }
    for (int i = SOAP_SQ; i <= SOAP_Q1; i++)
        l->now[i] = 0;
}

static int soap_moment(const struct plan *p, int64_t bytes[OPTIMIZER_MOMENT_PARTS])
{
    const struct model *m = &p->model;
    int64_t e = dtype_bytes(plan_recipe(p).kept);
    struct soap l = { .bytes = bytes };

    for (int k = 0; k < m->ntensors; k++) {
        const struct tensor *t = &m->tensors[k];
        int64_t whole = t->numel * e;
        if (t->frozen)
            continue;
        soap_projects(&l, SOAP_PROJECTED, t, whole, 0);
        soap_makes(&l, NSOAP, whole, 0);                /* square() */
        soap_makes(&l, SOAP_ROOT, whole, 0);
        soap_projects(&l, SOAP_AVG, t, whole, 0);
        soap_makes(&l, NSOAP, whole, 0);                /* the quotient */
        soap_projects(&l, SOAP_NORM, t, whole, whole);
        for (int i = 0; i < 2; i++)
            if (soap_side(t, i) > 0)
                soap_makes(&l, SOAP_OUTER, soap_side(t, i) * soap_side(t, i) * e, 0);
        soap_decomposes(&l, t, e);
        l.now[SOAP_OUTER] = 0;
    }
    return l.n;
}

int optimizer_moment(const struct plan *p, int64_t bytes[OPTIMIZER_MOMENT_PARTS])
{
    if (p->optimizer == OPTIMIZER_MUON)
        return muon_moment(p, bytes);
    if (p->optimizer == OPTIMIZER_SOAP)
        return soap_moment(p, bytes);

    const struct model *m = &p->model;
    int64_t e = dtype_bytes(plan_recipe(p).kept);
    struct loop l = { 0 };
    int n = 0;

    for (int i = 0; i < m->ntensors && p->optimizer == OPTIMIZER_ADAFACTOR; i++) {
        const struct tensor *t = &m->tensors[i];
        int64_t whole = whole_blocks(t->numel * e);
        if (t->frozen)
            continue;
        if (t->ndim == 1) {
            moment(&l, bytes, &n, (int64_t[3]){ whole });                       /* the squares, beside those before */
            l.squares = whole;
            moment(&l, bytes, &n, (int64_t[3]){ whole });                       /* the clone */
        } else {
            int64_t rows = whole_blocks(t->shape[0] * e), columns = whole_blocks(t->shape[1] * e);
            moment(&l, bytes, &n, (int64_t[3]){ rows });
            l.rows = rows;
            moment(&l, bytes, &n, (int64_t[3]){ columns });
            l.columns = columns;
            moment(&l, bytes, &n, (int64_t[3]){ whole, whole_blocks(e) });      /* the estimate, and the rows' mean */
        }
        l.update = whole;
        moment(&l, bytes, &n, (int64_t[3]){ whole_blocks(e) });                 /* its norm */
    }
    return n;
}

bool optimizer_makes_list(const struct plan *p)
{
    return p->optimizer == OPTIMIZER_ADAMW && p->optimizer_form == OPTIMIZER_FOREACH;
}

/* Of fp32: lerp_ 3 and lerp 3 elements, the cast and its norm and division 6 and 8 bytes, mul_ 2 and add_ 2.5; AdamW's 20 of the rest.
 * Products of X[m, k]: five times X X^T, its square, and that times X: 4 m^2 k + 2 m^3. */
static struct optimizer_work muon_work(const struct plan *p)
{
    struct optimizer_work w = { .passes = 23, .each = true };
    double bytes = 0, elems = 0;
    int e = (int)dtype_bytes(plan_recipe(p).kept);

    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        double a = (double)t->shape[0], b = (double)t->shape[1], m = a < b ? a : b;
        bool muon = plan_orthogonalises(p, t);
        if (t->frozen)
            continue;
        elems += (double)t->numel;
        bytes += (double)t->numel * (muon ? 11 * e + 10 : 20 * e);
        w.flops += muon ? 5 * (4 * m * a * b + 2 * m * m * m) : 0;
    }
    w.bytes = elems > 0 ? (int)(bytes / elems + 0.5) : 0;
    return w;
}

/* Elements: lerp_ twice 3, square 2, sqrt 2, add_ 2, division 3, add_ 3, mul_ 2; of a preconditioner lerp_ 3.  Products with both
 * eigenbases of the gradient, of its mean and back, and the gradient's with itself: 8 flops for each element of the tensor and of a side. */
static struct optimizer_work soap_work(const struct plan *p)
{
    struct optimizer_work w = { .passes = 18, .each = true, .fp32 = true };
    double bytes = 0, elems = 0, e = (double)dtype_bytes(plan_recipe(p).kept);

    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        double n = (double)t->numel;
        if (t->frozen)
            continue;
        elems += n;
        bytes += 20 * e * n;
        for (int k = 0; k < 2; k++) {
            bytes += 3 * e * (double)(soap_side(t, k) * soap_side(t, k));
            w.flops += 8 * n * (double)soap_side(t, k);
        }
    }
    w.bytes = elems > 0 ? (int)(bytes / elems + 0.5) : 0;
    return w;
}

/* One kernel of dpx's: p and its moments in fp32, read and written, the gradient, and a copy in 16 bits where the weights have a
 * master.  Adafactor reads the gradient four times (rows, columns, norm, update) and p twice; in 8 bits both codes are read and
 * written. */
static struct optimizer_work own_work(const struct plan *p)
{
    struct recipe r = plan_recipe(p);
    int g = (int)dtype_bytes(r.grad), copy = r.kept == DT_FP32 ? 0 : 2;

    if (p->optimizer == OPTIMIZER_ADAFACTOR)
        return (struct optimizer_work){ 3 * 4 + 4 * g + copy, 4, true, 0, false };
    if (p->optimizer == OPTIMIZER_BNB_ADAMW8)
        return (struct optimizer_work){ 2 * 4 + 4 + g + copy, 1, true, 0, false };
    return (struct optimizer_work){ 2 * 4 * (1 + optimizer_moments(p->optimizer)) + g + copy, 1, false, 0, false };
}

/* Of fp32 parameters: p and g are 4 bytes, read, and p is written; what is kept is read and written.
 *     sgd          v*=, v+=g, p-=v: 2 + 3 + 3 elements; in one kernel 5
 *     adafactor    norms of p, g's rows and columns, the update: product, /=, clamp, rsqrt, *=, norm; p+=: 17 elements
 *     8 bits       p, g, p and the states' codes twice each; blocks' values are 1/64 of that and left out
 *     flash, te    p, g, p, two states and error bits or remainders twice each; one kernel a tensor, or of many
 *     stochastic   p, g, p and two states twice each: torchao compiles it to one kernel a tensor */
struct optimizer_work optimizer_work(const struct plan *p)
{
    bool fused = p->optimizer_form == OPTIMIZER_FUSED, loop = p->optimizer_form == OPTIMIZER_LOOP;
    int e = p->dialect == DIALECT_DEEPSPEED ? 4 : (int)(plan_trained_bytes(p) + 0.5);        /* its partitions are in fp32 */

    if (p->kernels == KERNELS_DPX || p->dialect == DIALECT_PAPER)
        return own_work(p);
    switch (p->optimizer) {
    case OPTIMIZER_SGD:        return fused ? (struct optimizer_work){ 5 * e, 1, false, 0, false } : (struct optimizer_work){ 8 * e, 3, loop, 0, false };
    case OPTIMIZER_ADAFACTOR:  return (struct optimizer_work){ 17 * e, 11, true, 0, false };
    case OPTIMIZER_PAGED_ADAMW:  return (struct optimizer_work){ 3 * e + 16, 1, true, 0, false };
    case OPTIMIZER_BNB_ADAMW8: case OPTIMIZER_PAGED_ADAMW8:
        return (struct optimizer_work){ 3 * e + 4, 1, true, 0, false };
    case OPTIMIZER_BNB_LION: case OPTIMIZER_PAGED_LION:
        return (struct optimizer_work){ 3 * e + 8, 1, true, 0, false };
    case OPTIMIZER_BNB_LION8: case OPTIMIZER_PAGED_LION8:
        return (struct optimizer_work){ 3 * e + 2, 1, true, 0, false };
    case OPTIMIZER_AO_ADAMW8:  return (struct optimizer_work){ 3 * e + 4, 1, true, 0, false };
    case OPTIMIZER_AO_ADAMW4:  return (struct optimizer_work){ 3 * e + 2, 1, true, 0, false };
    case OPTIMIZER_AO_ADAMW:   return (struct optimizer_work){ 7 * e, 1, true, 0, false };
    case OPTIMIZER_MUON:       return muon_work(p);
    case OPTIMIZER_SOAP:       return soap_work(p);
    case OPTIMIZER_FLASH_ADAMW: return (struct optimizer_work){ 3 * e + 6, 1, true, 0, false };
    case OPTIMIZER_FLASH_ADAMW32: return (struct optimizer_work){ 3 * e + 8, 1, true, 0, false };
    case OPTIMIZER_TE_ADAMW:   return (struct optimizer_work){ 3 * e + 20, 1, false, 0, false };
    case OPTIMIZER_TE_ADAMW16: return (struct optimizer_work){ 3 * e + 12, 1, false, 0, false };
    case OPTIMIZER_ADAMW:
    case NOPTIMIZER:           break;
    }
    return (struct optimizer_work){ 0, 0, false, 0, false };
}

const char *optimizer_title(const struct plan *p) { return optimizer_traits(p->optimizer)->title; }

const char *optimizer_states_title(const struct plan *p)
{
    const char *kept = optimizer_traits(p->optimizer)->kept;

    return kept ? kept : "optimizer states";
}

int optimizer_moments(enum optimizer o) { return optimizer_traits(o)->moments; }

bool optimizer_by_tensor(enum optimizer o) { return o == OPTIMIZER_ADAFACTOR || o == OPTIMIZER_BNB_ADAMW8; }
