/* Matrix products on oneDNN's matmul, 2.6 and 3.x, through its C API.
 *
 * A product is direct (one primitive on the caller's arrays), or cut into tiles: operands
 * copied, widened or narrowed into dense tiles, products of tiles summed in an fp32 tile that
 * stays in cache, and what follows (bias, dropout, residual, narrowing) done on the way out.
 * Tiles serve what oneDNN cannot do (strided rows, operands of two dtypes, dropout, scales, bf16
 * where the CPU has none, fp16) and what it does slowly: 2.6 does not block for the second-level
 * cache, and loses half its speed where b is larger than that.
 *
 * Primitives are made once for each shape and kept.  Their scratchpads are the user's, that
 * is, cut from the workspace; so a direct product whose scratchpad is too large is tiled. */
#include "exec/kernels/kernels_internal.h"

#include <assert.h>
#include <dnnl.h>
#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"

enum {
    TILE = 512,                 /* of m and k at most, where a is copied */
    WIDEST = 1024,              /* columns of a tile at most */
    TILE_ELEMS = TILE * TILE,   /* in a tile of a, b or c: 1 MiB stays in a second-level cache */
    PANEL_ELEMS = 1 << 20,      /* in all tiles of b with the same columns */
    DEEPEST = 4096,             /* k, for tiles of 64 columns and panels of 256 */
    SCRATCHPAD = 1 << 20,       /* bytes a thread, and as much again: tiles were seen to take half */
    BUCKETS = 256,
};

int64_t gemm_workspace(int threads)
{
    return (2 * (int64_t)TILE_ELEMS + PANEL_ELEMS) * 4 + (1 + (int64_t)threads) * SCRATCHPAD + 4 * 64;
}

/* ---- primitives ---- */

/* What a primitive is made for: all int64_t, so that equal keys are equal bytes. */
struct key { int64_t m, n, k, a_row, a_col, b_row, b_col, in, out, bias, add; };

struct primitive {
    struct primitive *next;     /* in its bucket */
    struct key      key;
    dnnl_primitive_t exec;      /* NULL: oneDNN has none for this key */
    dnnl_memory_t   a, b, c, bias, scratch;
    int64_t         scratch_bytes;
    bool            packs;      /* copies operands into memory that it allocates */
};

struct gemm {
    dnnl_engine_t    engine;
    dnnl_stream_t    stream;
    bool             widens;
    struct primitive *bucket[BUCKETS];
};

static int dnnl_ok(dnnl_status_t status, const char *call)
{
    return status == dnnl_success ? 0 : fail("oneDNN: %s failed with status %d", call, (int)status);
}

#define DNNL_OK(call) dnnl_ok((call), #call)

static dnnl_data_type_t type_of(int64_t t) { return t == DT_BF16 ? dnnl_bf16 : dnnl_f32; }

/* Descriptors became opaque in 3.0, and a primitive descriptor needs no operation's. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc;
typedef const_dnnl_memory_desc_t desc_ref;
#define DESC_REF(d) (d)

static dnnl_status_t desc_init(desc *d, const dnnl_dims_t dims, dnnl_data_type_t t, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(d, 2, dims, t, strides);
}

static void desc_free(desc *d) { dnnl_memory_desc_destroy(*d); }

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const desc md[4], bool bias,
                                 const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, md[0], md[1], bias ? md[3] : NULL, md[2], attr);
}
#else
typedef dnnl_memory_desc_t desc;
typedef const dnnl_memory_desc_t *desc_ref;
#define DESC_REF(d) (&(d))

static dnnl_status_t desc_init(desc *d, const dnnl_dims_t dims, dnnl_data_type_t t, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(d, 2, dims, t, strides);
}

static void desc_free(desc *d) { (void)d; }

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1); }

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const desc md[4], bool bias,
                                 const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    dnnl_status_t status = dnnl_matmul_desc_init(&op, &md[0], &md[1], bias ? &md[3] : NULL, &md[2]);

    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &op, attr, engine, NULL) : status;
}
#endif

/* md: a, b, c, bias. */
static int describe(const struct key *key, desc md[4])
{
    const dnnl_dims_t dims[4] = { { key->m, key->k }, { key->k, key->n }, { key->m, key->n }, { 1, key->n } };
    const dnnl_dims_t strides[4] = { { key->a_row, key->a_col }, { key->b_row, key->b_col },
                                     { key->n, 1 }, { key->n, 1 } };
    const int64_t type[4] = { key->in, key->in, key->out, key->bias };

    for (int i = 0; i < 4; i++)
        if (DNNL_OK(desc_init(&md[i], dims[i], type_of(type[i]), strides[i])) < 0) {
            while (i-- > 0)
                desc_free(&md[i]);
            return -1;
        }
    return 0;
}

static int attributes(const struct key *key, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops = NULL;
    int rc = -1;

    if (DNNL_OK(dnnl_primitive_attr_create(attr)) < 0)
        return -1;
    if (DNNL_OK(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user)) < 0)
        goto out;
    if (key->add && (DNNL_OK(dnnl_post_ops_create(&ops)) < 0 || DNNL_OK(append_sum(ops)) < 0 ||
                     DNNL_OK(dnnl_primitive_attr_set_post_ops(*attr, ops)) < 0))
        goto out;
    rc = 0;
out:
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (rc < 0)
        dnnl_primitive_attr_destroy(*attr);
    return rc;
}

/* "brg:avx512_core", "gemm:jit", "ref:any": who carries it out. */
static const char *carried_by(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;

    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name)
        return "";
    return name;
}

static int make_memory(dnnl_memory_t *m, desc_ref md, dnnl_engine_t engine)
{
    return DNNL_OK(dnnl_memory_create(m, md, engine, DNNL_MEMORY_NONE));
}

/* Fills in p from the descriptors; p->exec stays NULL where oneDNN has nothing fast. */
static int make_from(struct gemm *g, struct primitive *p, const desc md[4], const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = matmul_desc(&pd, g->engine, md, p->key.bias >= 0, attr);
    desc_ref scratch;
    int rc = -1;

    if (status == dnnl_unimplemented)
        return 0;
    if (dnnl_ok(status, "creating a matmul") < 0)
        return -1;
    if (!strncmp(carried_by(pd), "ref", 3)) {           /* a hundred times slower than tiles */
        rc = 0;
        goto out;
    }
    /* Megabytes where operands are large, outside any scratchpad; 34 KB for tiles. */
    p->packs = !strncmp(carried_by(pd), "gemm", 4);
    scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = scratch ? (int64_t)dnnl_memory_desc_get_size(scratch) : 0;
    if (make_memory(&p->a, DESC_REF(md[0]), g->engine) < 0 ||
        make_memory(&p->b, DESC_REF(md[1]), g->engine) < 0 ||
        make_memory(&p->c, DESC_REF(md[2]), g->engine) < 0 ||
        (p->key.bias >= 0 && make_memory(&p->bias, DESC_REF(md[3]), g->engine) < 0) ||
        (p->scratch_bytes > 0 && make_memory(&p->scratch, scratch, g->engine) < 0))
        goto out;
    rc = DNNL_OK(dnnl_primitive_create(&p->exec, pd));
out:
    dnnl_primitive_desc_destroy(pd);
    return rc;
}

static void primitive_free(struct primitive *p)
{
    const dnnl_memory_t all[] = { p->a, p->b, p->c, p->bias, p->scratch };

    for (int i = 0; i < 5; i++)
        if (all[i])
            dnnl_memory_destroy(all[i]);
    if (p->exec)
        dnnl_primitive_destroy(p->exec);
    free(p);
}

static struct primitive *primitive_new(struct gemm *g, const struct key *key)
{
    struct primitive *p = calloc(1, sizeof *p);
    dnnl_primitive_attr_t attr = NULL;
    desc md[4];
    int rc = -1;

    if (!p) {
        fail("out of memory for a matrix product");
        return NULL;
    }
    p->key = *key;
    if (describe(key, md) == 0) {
        if (attributes(key, &attr) == 0) {
            rc = make_from(g, p, md, attr);
            dnnl_primitive_attr_destroy(attr);
        }
        for (int i = 0; i < 4; i++)
            desc_free(&md[i]);
    }
    if (rc == 0)
        return p;
    primitive_free(p);
    return NULL;
}

/* FNV-1a over the key's words. */
static uint64_t bucket_of(const struct key *key)
{
    const int64_t word[] = { key->m, key->n, key->k, key->a_row, key->a_col, key->b_row, key->b_col,
                             key->in, key->out, key->bias, key->add };
    uint64_t h = 0xcbf29ce484222325;

    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        h = (h ^ (uint64_t)word[i]) * 0x100000001b3;
    return (h ^ h >> 32) % BUCKETS;
}

static struct primitive *primitive_for(struct gemm *g, const struct key *key)
{
    struct primitive **head = &g->bucket[bucket_of(key)], *p;

    for (p = *head; p; p = p->next)
        if (!memcmp(&p->key, key, sizeof *key))
            return p;
    if (!(p = primitive_new(g, key)))
        return NULL;
    p->next = *head;
    *head = p;
    return p;
}

/* The arrays of one execution. */
struct operands { const void *a, *b, *bias; void *c; };

static void *writable(const void *p) { return (void *)(uintptr_t)p; }

static int set_handles(const struct primitive *p, const struct operands *o, void *scratch)
{
    if (DNNL_OK(dnnl_memory_set_data_handle(p->a, writable(o->a))) < 0 ||
        DNNL_OK(dnnl_memory_set_data_handle(p->b, writable(o->b))) < 0 ||
        DNNL_OK(dnnl_memory_set_data_handle(p->c, o->c)) < 0 ||
        (p->bias && DNNL_OK(dnnl_memory_set_data_handle(p->bias, writable(o->bias))) < 0) ||
        (p->scratch && DNNL_OK(dnnl_memory_set_data_handle(p->scratch, scratch)) < 0))
        return -1;
    return 0;
}

static int execute(struct gemm *g, const struct primitive *p, const struct operands *o, struct cut space)
{
    dnnl_exec_arg_t arg[5] = { { DNNL_ARG_SRC, p->a }, { DNNL_ARG_WEIGHTS, p->b }, { DNNL_ARG_DST, p->c } };
    int n = 3;
    void *scratch = p->scratch ? kernels_take(&space, p->scratch_bytes, "oneDNN's scratchpad") : NULL;

    if ((p->scratch && !scratch) || set_handles(p, o, scratch) < 0)
        return -1;
    if (p->bias)
        arg[n++] = (dnnl_exec_arg_t){ DNNL_ARG_BIAS, p->bias };
    if (p->scratch)
        arg[n++] = (dnnl_exec_arg_t){ DNNL_ARG_SCRATCHPAD, p->scratch };
    if (DNNL_OK(dnnl_primitive_execute(p->exec, g->stream, n, arg)) < 0)
        return -1;
    return DNNL_OK(dnnl_stream_wait(g->stream));
}

/* ---- direct products ---- */

static bool dense(int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    return (row == cols && col == 1) || (row == 1 && col == rows);
}

/* fp16 everywhere: oneDNN 2.6 has it for GPUs alone, 3.x for CPUs with AVX512-FP16.  A product of two of its numbers is exact in fp32. */
static bool is_widened(const struct gemm *g, enum dtype as) { return as == DT_FP16 || (as == DT_BF16 && g->widens); }

static bool puts_fp16(const struct product *p) { return p->tc == DT_FP16 || (p->bias && p->tbias == DT_FP16); }

/* The product as one primitive, where its arrays allow that. */
static bool direct_key(const struct gemm *g, const struct product *p, struct key *key)
{
    if (p->ta != p->as || p->tb != p->as || is_widened(g, p->as) || puts_fp16(p) || p->drop || p->scales.a ||
        !dense(p->m, p->k, p->a_row, p->a_col) || !dense(p->k, p->n, p->b_row, p->b_col) || p->ldc != p->n)
        return false;
    if (p->as == DT_FP32 && p->b_col == 1 && p->k * p->n > TILE_ELEMS)
        return false;
    *key = (struct key){ p->m, p->n, p->k, p->a_row, p->a_col, p->b_row, p->b_col, p->as, p->tc,
                         p->bias ? (int64_t)p->tbias : -1, p->residual != NULL };
    return true;
}

static int direct_product(struct kernels *k, const struct product *p, const struct primitive *prim)
{
    struct operands o = { p->a, p->b, p->bias, p->c };

    if (p->residual && p->residual != p->c &&
        k->ops.copy(k, p->m * p->n, p->c, p->tc, p->residual, p->tc, 1, false) < 0)
        return -1;
    return execute(k->gemm, prim, &o, kernels_cut(k));
}

/* ---- tiles ---- */

struct tiles {
    const struct product *p;
    enum dtype type;            /* of the tiles of a and b */
    int64_t m, n, k;            /* of a whole tile */
    bool    a_in_place, b_in_place;
    bool    panel;              /* the tiles of b for all of k are there at once */
    void   *a, *b;
    float  *c;
    struct cut space;           /* what is left, for scratchpads */
    struct dropout_rule drop;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Copies cost mkn/n for a and, b being kept as a panel, kn for b; so n is as large as the
 * panel allows.  a is used in place where it is dense, of the right dtype, and not too deep;
 * slices of dense columns of b are dense. */
static void choose_tiles(struct tiles *t)
{
    const struct product *p = t->p;
    int64_t columns = least(WIDEST, round_up(p->n, 64));

    t->panel = p->k <= DEEPEST;
    t->n = t->panel ? least(columns, PANEL_ELEMS / p->k / 64 * 64) : TILE;
    t->m = least(TILE, TILE_ELEMS / t->n);
    t->k = least(TILE, TILE_ELEMS / t->n);
    if (p->ta == t->type && p->a_col == 1 && p->a_row == p->k && t->panel) {
        t->a_in_place = true;
        t->k = p->k;
        t->n = least(columns, least(TILE, TILE_ELEMS / p->k / 64 * 64));
        t->m = TILE_ELEMS / t->n;
        t->b_in_place = p->tb == t->type && p->tb == p->as && p->b_row == 1 && p->b_col == p->k;
    }
}

/* rows x cols elements of x from (row, col) on, dense in the order they had: lines of
 * contiguous elements. */
struct slice { const void *x; enum dtype t; int64_t line, lines, length, at; };

static struct slice slice_of(const void *x, enum dtype t, int64_t row_stride, int64_t col_stride, int64_t row,
                             int64_t rows, int64_t col, int64_t cols)
{
    bool by_rows = col_stride == 1;

    return (struct slice){ x, t, by_rows ? row_stride : col_stride, by_rows ? rows : cols,
                           by_rows ? cols : rows, row * row_stride + col * col_stride };
}

static void copy_line(const struct simd *s, const struct slice *from, int64_t at, const struct tiles *t,
                      void *to, int64_t into)
{
    const char *x = from->x;
    int64_t e = dtype_bytes(from->t);

    if (from->t == t->type && from->t == t->p->as)
        memcpy((char *)to + into * e, x + at * e, (size_t)(from->length * e));
    else if (from->t == t->type)
        floats_round(s, t->p->as, from->length, (const float *)from->x + at, (float *)to + into);
    else if (t->type == DT_FP32)
        floats(s, from->x, from->t, at, from->length, (float *)to + into);
    else
        s->narrow(from->length, (const float *)from->x + at, (uint16_t *)to + into);
}

static void copy_tile(struct kernels *k, const struct slice *from, const struct tiles *t, void *to)
{
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < from->lines; i++)
        copy_line(k->simd, from, from->at + i * from->line, t, to, i * from->length);
}

/* One tile of a times one of b, into the tile of c. */
static int multiply_tile(struct kernels *k, const struct tiles *t, int64_t i, int64_t m, int64_t j, int64_t n,
                         int64_t l, int64_t depth)
{
    const struct product *p = t->p;
    bool a_rows = p->a_col == 1, b_rows = p->b_col == 1;
    struct key key = { m, n, depth, a_rows ? depth : 1, a_rows ? 1 : m, b_rows ? n : 1, b_rows ? 1 : depth,
                       t->type, DT_FP32, -1, l > 0 };
    struct primitive *prim = primitive_for(k->gemm, &key);
    int64_t e = dtype_bytes(t->type);
    char *b = (char *)t->b + (t->panel ? l * n * e : 0);
    struct operands o = { t->a, b, NULL, t->c };

    if (!prim)
        return -1;
    if (!prim->exec)
        return fail("oneDNN has no %s product of %" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64,
                    dtype_name(t->type), m, depth, depth, n);
    if (t->a_in_place)
        o.a = (const char *)p->a + i * p->a_row * e;
    if (t->b_in_place)
        o.b = (const char *)p->b + j * p->b_col * e;
    if (!t->a_in_place) {
        struct slice s = slice_of(p->a, p->ta, p->a_row, p->a_col, i, m, l, depth);
        copy_tile(k, &s, t, t->a);
    }
    if (!t->b_in_place && (i == 0 || !t->panel)) {
        struct slice s = slice_of(p->b, p->tb, p->b_row, p->b_col, l, depth, j, n);
        copy_tile(k, &s, t, b);
    }
    return execute(k->gemm, prim, &o, t->space);
}

/* A row of the tile of c, from column j of the product on, on its way out. */
static void put_row(const struct simd *s, const struct tiles *t, int64_t row, int64_t j, int64_t n,
                    float *sum)
{
    const struct product *p = t->p;
    float tmp[WIDEST];

    scales_apply(&p->scales, row, j, n, sum);
    if (p->narrows)
        floats_round(s, p->as, n, sum, sum);
    if (p->bias)
        s->axpy(n, 1, floats(s, p->bias, p->tbias, j, n, tmp), sum);
    if (t->drop.limit)
        s->drop(n, sum, t->drop.seed, row * p->n + j, t->drop.limit, t->drop.keep);
    if (p->residual)
        s->axpy(n, 1, floats(s, p->residual, p->tc, row * p->ldc + j, n, tmp), sum);
    floats_put(s, p->c, p->tc, row * p->ldc + j, n, sum);
}

static int tile_product(struct kernels *k, const struct tiles *t, int64_t i, int64_t j)
{
    const struct product *p = t->p;
    int64_t m = least(t->m, p->m - i), n = least(t->n, p->n - j);

    for (int64_t l = 0; l < p->k; l += t->k)
        if (multiply_tile(k, t, i, m, j, n, l, least(t->k, p->k - l)) < 0)
            return -1;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t r = 0; r < m; r++)
        put_row(k->simd, t, i + r, j, n, t->c + r * n);
    return 0;
}

static int tiled_product(struct kernels *k, const struct product *p)
{
    struct tiles t = { .p = p, .type = is_widened(k->gemm, p->as) ? DT_FP32 : p->as, .space = kernels_cut(k),
                       .drop = dropout_rule(p->drop) };

    choose_tiles(&t);
    if (!(t.a = kernels_take(&t.space, 4 * TILE_ELEMS, "matrix product")) ||
        !(t.b = kernels_take(&t.space, 4 * PANEL_ELEMS, "matrix product")) ||
        !(t.c = kernels_take(&t.space, 4 * TILE_ELEMS, "matrix product")))
        return -1;
    for (int64_t j = 0; j < p->n; j += t.n)
        for (int64_t i = 0; i < p->m; i += t.m)
            if (tile_product(k, &t, i, j) < 0)
                return -1;
    return 0;
}

int gemm_product(struct kernels *k, const struct product *p)
{
    struct primitive *prim = NULL;
    struct key key;

    omp_set_num_threads(k->threads);        /* oneDNN asks for the calling thread's */
    if (p->m < 1 || p->n < 1 || p->k < 1)
        return fail("a matrix product of %" PRId64 "x%" PRId64 "x%" PRId64, p->m, p->n, p->k);
    if (direct_key(k->gemm, p, &key) && !(prim = primitive_for(k->gemm, &key)))
        return -1;
    /* Not what there happens to be: the same product is carried out alike in any plan. */
    if (prim && prim->exec && !prim->packs && prim->scratch_bytes + 64 <= gemm_workspace(k->threads))
        return direct_product(k, p, prim);
    return tiled_product(k, p);
}

/* ---- opening ---- */

static int probe(struct gemm *g)
{
    const struct key key = { 64, 64, 64, 64, 1, 64, 1, DT_BF16, DT_FP32, -1, 0 };
    struct primitive *p = primitive_new(g, &key);

    if (!p)
        return -1;
    g->widens = !p->exec;
    primitive_free(p);
    return 0;
}

struct gemm *gemm_open(int threads)
{
    struct gemm *g = calloc(1, sizeof *g);

    if (!g) {
        fail("out of memory for oneDNN");
        return NULL;
    }
    omp_set_num_threads(threads);
    if (DNNL_OK(dnnl_engine_create(&g->engine, dnnl_cpu, 0)) < 0 ||
        DNNL_OK(dnnl_stream_create(&g->stream, g->engine, dnnl_stream_default_flags)) < 0 || probe(g) < 0) {
        gemm_close(g);
        return NULL;
    }
    return g;
}

void gemm_close(struct gemm *g)
{
    if (!g)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (struct primitive *p = g->bucket[i], *next; p; p = next) {
            next = p->next;
            primitive_free(p);
        }
    if (g->stream)
        dnnl_stream_destroy(g->stream);
    if (g->engine)
        dnnl_engine_destroy(g->engine);
    free(g);
}

void gemm_name(char *into, size_t size)
{
    const dnnl_version_t *v = dnnl_version();

    snprintf(into, size, "onednn %d.%d.%d", v->major, v->minor, v->patch);
}

bool gemm_widens(const struct gemm *g) { return g->widens; }
