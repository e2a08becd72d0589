/* optimizer.c -- the table of optimizers: states of a tensor, temporaries and passes of a step. */
#include "model/lower/common/optimizer.h"

/* bitsandbytes: states in 8 bits from so many elements on, each block with its largest value in fp32. */
enum { BNB_LEAST = 4096, BNB_BLOCK = 256 };
/* torchao: the same, where the block divides the elements; with a table of codes for each state. */
enum { AO_LEAST = 4096, AO_BLOCK_8 = 256, AO_BLOCK_4 = 128, AO_CODES_8 = 256, AO_CODES_4 = 16 };

static bool is_embedding(const struct tensor *t) { return t->role == ROLE_TOKENS || t->role == ROLE_POSITIONS; }

static int bnb_states(const struct tensor *t, int64_t n, int states, bool bits8, int64_t *bytes)
{
    bool narrow = bits8 && n >= BNB_LEAST && !is_embedding(t);

    for (int i = 0; i < states; i++) {
        bytes[i] = narrow ? n : 4 * n;
        bytes[states + i] = 4 * ceil_div(n, BNB_BLOCK);     /* absmax, where there are codes */
    }
    return narrow ? 2 * states : states;
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

int optimizer_states(const struct plan *p, const struct tensor *t, int64_t rows, int64_t bytes[OPTIMIZER_PARTS])
{
    int64_t n = rows * (t->numel / t->shape[0]), e = dtype_bytes(plan_recipe(p).kept);

    if (t->frozen || n == 0)
        return 0;
    switch (p->optimizer) {
    case OPTIMIZER_ADAMW:
        bytes[0] = bytes[1] = n * e;
        return 2;
    case OPTIMIZER_SGD:
        bytes[0] = n * e;
        return 1;
    case OPTIMIZER_ADAFACTOR:  return factors(t, rows, n, e, bytes);
    case OPTIMIZER_BNB_ADAMW8: return bnb_states(t, n, 2, true, bytes);
    case OPTIMIZER_BNB_LION:   return bnb_states(t, n, 1, false, bytes);
    case OPTIMIZER_BNB_LION8:  return bnb_states(t, n, 1, true, bytes);
    case OPTIMIZER_AO_ADAMW8:  return ao_states(n, e, AO_BLOCK_8, 8, AO_CODES_8, bytes);
    case OPTIMIZER_AO_ADAMW4:  return ao_states(n, e, AO_BLOCK_4, 4, AO_CODES_4, bytes);
    case NOPTIMIZER:           break;
    }
    return 0;
}

int64_t optimizer_tables(const struct plan *p)
{
    switch (p->optimizer) {
    case OPTIMIZER_BNB_ADAMW8:
    case OPTIMIZER_BNB_LION8:
        return 2 * 4 * BNB_BLOCK;       /* name2qmap: dynamic and udynamic */
    default:
        return 0;
    }
}

bool optimizer_makes_list(const struct plan *p)
{
    return p->optimizer == OPTIMIZER_ADAFACTOR || (p->optimizer == OPTIMIZER_ADAMW && p->optimizer_form == OPTIMIZER_FOREACH);
}

/* Of fp32 parameters: p and g are 4 bytes, read, and p is written; what is kept is read and written.
 *     sgd          v*=, v+=g, p-=v: 2 + 3 + 3 elements; in one kernel 5
 *     adafactor    norms of p, g's rows and columns, the update: product, /=, clamp, rsqrt, *=, norm; p+=: 17 elements
 *     8 bits       p, g, p and the states' codes twice each; blocks' values are 1/64 of that and left out */
struct optimizer_work optimizer_work(const struct plan *p)
{
    bool fused = p->optimizer_form == OPTIMIZER_FUSED, loop = p->optimizer_form == OPTIMIZER_LOOP;
    int e = (int)dtype_bytes(plan_recipe(p).kept);

    switch (p->optimizer) {
    case OPTIMIZER_SGD:        return fused ? (struct optimizer_work){ 5 * e, 1, false } : (struct optimizer_work){ 8 * e, 3, loop };
    case OPTIMIZER_ADAFACTOR:  return (struct optimizer_work){ 17 * e, 11, false };
    case OPTIMIZER_BNB_ADAMW8: return (struct optimizer_work){ 3 * e + 4, 1, true };
    case OPTIMIZER_BNB_LION:   return (struct optimizer_work){ 3 * e + 8, 1, true };
    case OPTIMIZER_BNB_LION8:  return (struct optimizer_work){ 3 * e + 2, 1, true };
    case OPTIMIZER_AO_ADAMW8:  return (struct optimizer_work){ 3 * e + 4, 1, true };
    case OPTIMIZER_AO_ADAMW4:  return (struct optimizer_work){ 3 * e + 2, 1, true };
    case OPTIMIZER_ADAMW:
    case NOPTIMIZER:           break;
    }
    return (struct optimizer_work){ 0, 0, false };
}

const char *optimizer_title(const struct plan *p)
{
    static const char *const titles[NOPTIMIZER] = {
        [OPTIMIZER_ADAMW] = "AdamW", [OPTIMIZER_SGD] = "SGD", [OPTIMIZER_ADAFACTOR] = "Adafactor",
        [OPTIMIZER_BNB_ADAMW8] = "8-bit AdamW", [OPTIMIZER_BNB_LION] = "Lion", [OPTIMIZER_BNB_LION8] = "8-bit Lion",
        [OPTIMIZER_AO_ADAMW8] = "8-bit AdamW", [OPTIMIZER_AO_ADAMW4] = "4-bit AdamW",
    };

    return titles[p->optimizer];
}

const char *optimizer_states_title(const struct plan *p)
{
    return p->optimizer == OPTIMIZER_ADAMW ? "exp_avg, exp_avg_sq" : p->optimizer == OPTIMIZER_SGD ? "momentum" : "optimizer states";
}
