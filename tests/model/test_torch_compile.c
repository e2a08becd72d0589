/* What a block compiled by torch.compile() keeps for backward, held against inductor's partitioner:
 * tests/golden/memory/record_torch_compile.py. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

static json_t *models;
static FILE   *rows, *adapted, *cut;

/* A recording; its first line has its models. */
static FILE *recording(const char *path)
{
    char line[32768];
    FILE *f = fopen(path, "r");
    json_t *more = f && fgets(line, sizeof line, f) ? json_loads(line, 0, NULL) : NULL;

    if (!more || json_object_update(models, more) < 0)
        return NULL;
    json_decref(more);
    return f;
}

static int open_rows(void **state)
{
    (void)state;
    models = json_object();
    rows = recording("tests/golden/memory/torch_compile.txt");
    adapted = recording("tests/golden/memory/torch_compile_lora.txt");
    cut = recording("tests/golden/memory/torch_compile_ddp.txt");
    return rows && adapted && cut ? 0 : -1;
}

static int close_rows(void **state)
{
    (void)state;
    fclose(rows);
    fclose(adapted);
    fclose(cut);
    json_decref(models);
    return 0;
}

/* "all-linear", or a list. */
static json_t *names_of(const char *targets)
{
    json_t *all = json_array();
    char name[64];

    if (!strchr(targets, ','))
        return json_decref(all), json_string(targets);
    for (const char *at = targets; sscanf(at, "%63[^,]", name) == 1; at += strlen(name) + (at[strlen(name)] == ','))
        json_array_append_new(all, json_string(name));
    return all;
}

/* Targets of adapters, with commas; NULL: everything trains. */
static void load_adapted(const char *model, int batch, int seq, const char *recompute, const char *kernels, const char *targets, struct plan *p)
{
    json_t *plan = json_pack("{s:i, s:O, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model",
                             json_object_get(models, model), "cluster", "8xh100", "seq", seq, "micro_batch", batch,
                             "strategy", "fsdp", "dialect", "torch", "precision", "bf16", "kernels", kernels, "recompute",
                             recompute);

    if (targets)
        json_object_update_new(plan, json_pack("{s:s, s:{s:i, s:o}}", "train", "lora", "lora", "rank", 8, "target_modules", names_of(targets)));
    assert_int_equal(plan_from_json(plan, model, p), 0);
    json_decref(plan);
}

static void load(const char *model, int batch, int seq, const char *recompute, const char *kernels, struct plan *p)
{
    load_adapted(model, batch, seq, recompute, kernels, NULL, p);
}

/* Forward leaves what it saves, and the block's output. */
static void what_forward_saves_is_the_partitioners_cut(void **state)
{
    char line[256], model[64], recompute[16];
    int batch, seq, n = 0;
    long long want;

    (void)state;
    while (fgets(line, sizeof line, rows)) {
        struct plan p;
        struct program g = { 0 };
        assert_int_equal(sscanf(line, "%63s %d %d %15s %lld", model, &batch, &seq, recompute, &want), 5);
        load(model, batch, seq, recompute, "torch-compile", &p);
        assert_int_equal(program_build(&p, &g), 0);
        int64_t got = g.piece[strcmp(recompute, "none") ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK].saved;
        if (got != want)
            fail_msg("%s %d x %d, recompute %s: %lld, the partitioner keeps %lld", model, batch, seq, recompute,
                     (long long)got, want);
        program_free(&g);
        plan_free(&p);
        n++;
    }
    assert_int_equal(n, 108);
}

/* A sum of a frozen weight's product and its adapter's is kept whole; what a frozen weight alone would read is not. */
static void adapters_leave_what_the_partitioner_cuts(void **state)
{
    char line[256], model[64], recompute[16], targets[64];
    int batch, seq, n = 0;
    long long want;

    (void)state;
    while (fgets(line, sizeof line, adapted)) {
        struct plan p;
        struct program g = { 0 };
        assert_int_equal(sscanf(line, "%63s %d %d %15s %63s %lld", model, &batch, &seq, recompute, targets, &want), 6);
        load_adapted(model, batch, seq, recompute, "torch-compile", targets, &p);
        assert_int_equal(program_build(&p, &g), 0);
        int64_t got = g.piece[strcmp(recompute, "none") ? PIECE_BLOCK_RECOMPUTED : PIECE_BLOCK].saved;
        if (got != want)
            fail_msg("%s %d x %d, recompute %s, adapters of %s: %lld, the partitioner keeps %lld", model, batch, seq, recompute, targets,
                     (long long)got, want);
        program_free(&g);
        plan_free(&p);
        n++;
    }
    assert_int_equal(n, 9);
}

/* Of a LLaMA block with adapters of rank k at all layers: the first norm, q and k rotated, v, attention's output, the residual, its norm,
 * gate, up, their product and the block's output; A's results; log-sum-exp of each head and two reciprocal roots in fp32; dropout's seed and offset. */
static void what_a_llama_block_beside_adapters_saves_can_be_counted(void **state)
{
    const int64_t T = 512, h = 4096, r = 1024, f = 14336, k = 8, heads = 32;
    struct plan p;
    struct program g = { 0 };

    (void)state;
    load_adapted("llama-8b", 1, (int)T, "none", "torch-compile", "all-linear", &p);
    assert_int_equal(program_build(&p, &g), 0);
    assert_int_equal(g.piece[PIECE_BLOCK].saved, 2 * T * (6 * h + 2 * r + 3 * f + 7 * k) + 4 * T * heads + 2 * 4 * T + 2 * 512);
    program_free(&g);
    plan_free(&p);
}

/* Weights in bf16, or in fp32 under autocast; cap 0: one GPU, whose model DistributedDataParallel does not wrap. */
static int read_ddp(const char *model, int batch, int seq, const char *dtype, int cap, struct plan *p)
{
    json_t *ddp = json_pack("{s:b}", "wrapped", cap > 0), *plan;

    if (!strcmp(dtype, "bfloat16"))
        json_object_set_new(ddp, "model_dtype", json_string("bf16"));
    if (cap > 0)
        json_object_set_new(ddp, "bucket_cap_mb", json_integer(cap));
    plan = json_pack("{s:i, s:O, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:o}", "dpx_plan", 1, "model", json_object_get(models, model), "cluster",
                     cap ? "8xh100" : "1xh100", "seq", seq, "micro_batch", batch, "strategy", "ddp", "dialect", "torch", "precision", "bf16", "kernels",
                     "torch-compile", "recompute", "none", "ddp", ddp);
    int rc = plan_from_json(plan, model, p);
    json_decref(plan);
    return rc;
}

static void load_ddp(const char *model, int batch, int seq, const char *dtype, int cap, struct plan *p)
{
    assert_int_equal(read_ddp(model, batch, seq, dtype, cap, p), 0);
}

static int graphs_of(const struct program *g, enum pass pass)
{
    int n = 0;

    for (int i = 0; i < g->piece[PIECE_BLOCK].nkernels[pass]; i++)
        n += !strcmp(g->piece[PIECE_BLOCK].kernels[pass][i].name, "compiled graph");
    return n;
}

/* TorchDynamo's DDPOptimizer cuts a block where its buckets are full. */
static void what_graphs_that_ddp_cuts_save_is_the_partitioners_cut(void **state)
{
    char line[256], model[64], dtype[16];
    int batch, seq, cap, graphs, n = 0, wrong = 0;
    long long want;

    (void)state;
    while (fgets(line, sizeof line, cut)) {
        struct plan p;
        struct program g = { 0 };
        assert_int_equal(sscanf(line, "%63s %d %d %15s %d %d %lld", model, &batch, &seq, dtype, &cap, &graphs, &want), 7);
        n++;
        if (!strcmp(model, "hunyuan_v1_dense") && !strcmp(dtype, "float32")) {
            char why[512] = "";
            fail_capture(why, sizeof why);
            assert_int_equal(read_ddp(model, batch, seq, dtype, cap, &p), -1);
            fail_capture(NULL, 0);
            assert_non_null(strstr(why, "behind the rotation"));
            continue;
        }
        load_ddp(model, batch, seq, dtype, cap, &p);
        assert_int_equal(program_build(&p, &g), 0);
        if (graphs_of(&g, PASS_FORWARD) != graphs || graphs_of(&g, PASS_BACKWARD) != graphs || g.piece[PIECE_BLOCK].saved != want) {
            print_error("%s %d x %d, %s, buckets of %d MiB: %d graphs keep %lld, recorded were %d and %lld\n", model, batch, seq, dtype, cap,
                        graphs_of(&g, PASS_FORWARD), (long long)g.piece[PIECE_BLOCK].saved, graphs, want);
            wrong++;
        }
        program_free(&g);
        plan_free(&p);
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(n, 216);
}

static double bytes_of(const struct program *g, bool products)
{
    double sum = 0;

    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < g->piece[PIECE_BLOCK].nkernels[pass]; i++) {
            const struct kernel *k = &g->piece[PIECE_BLOCK].kernels[pass][i];
            if ((k->kind == KC_GEMM || k->kind == KC_ATTENTION) == products)
                sum += (double)k->bytes;
        }
    return sum;
}

/* h hidden, f the MLP's width, r of keys, T tokens, 2 bytes each.  Forward: the first norm reads x and writes (2 h); q and
 * k are rotated (2 h + 2 r); the second norm reads x and attention's product and writes (3 h); the gated product 3 f; the
 * block's output reads x, both products (4 h).  Backward: the gated product's gradients come from one kernel (its
 * gradient, gate, up in; both out: 5 f); the second norm's from two products, x, attention's product, the incoming
 * gradient (5 h in, h out), its weight's from the first four; rotary's 2 h + 2 r; the first norm's from three products,
 * x and the second's (5 h in, h out), its weight's from the first four.  Beside that only rows and tables. */
static void fused_kernels_move_what_can_be_counted(void **state)
{
    struct plan p;
    struct program g = { 0 };

    (void)state;
    load("llama-8b", 1, 512, "none", "torch-compile", &p);
    assert_int_equal(program_build(&p, &g), 0);
    double T = 512, h = 4096, r = 1024, f = 14336;
    double forward = 2 * h + 2 * h + 2 * r + 3 * h + 3 * f + 4 * h, backward = 5 * f + 6 * h + 4 * h + 2 * h + 2 * r + 6 * h + 4 * h;
    assert_close(bytes_of(&g, false), 2 * T * (forward + backward), 0.01);
    program_free(&g);
    plan_free(&p);
}

/* Under autocast a graph casts each matrix, 4 bytes in and 2 out, and its gradient, 2 in and 4 out: what does not grow with the tokens.  Norms' weights
 * are 4 bytes a read and a written gradient, h numbers. */
static void what_autocast_casts_in_a_graph_can_be_counted(void **state)
{
    const double h = 4096, r = 1024, f = 14336, matrices = 2 * h * h + 2 * h * r + 3 * h * f;
    double bytes[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan p;
        struct program g = { 0 };
        load_ddp("llama-8b", 1, 512 << i, "float32", 25, &p);
        assert_int_equal(program_build(&p, &g), 0);
        bytes[i] = bytes_of(&g, false);
        program_free(&g);
        plan_free(&p);
    }
    assert_close(2 * bytes[0] - bytes[1], 12 * matrices, 1e-4);
}

/* Recomputed blocks under autocast keep no weight: their input in fp32; by operator also q's, v's and gate's products, attention's output, its log-sum-exp and
 * the generator's seed and offset.  A checkpoint is one operation of the graph, which nothing cuts. */
static void recomputed_blocks_keep_no_cast(void **state)
{
    const int64_t T = 512, h = 4096, r = 1024, f = 14336, heads = 32;

    (void)state;
    for (int op = 0; op < 2; op++) {
        struct plan p;
        struct program g = { 0 };
        load_ddp("llama-8b", 1, (int)T, "float32", 25, &p);
        p.recompute = op ? RECOMPUTE_OP : RECOMPUTE_FULL;
        assert_int_equal(plan_check(&p, "test"), 0);
        assert_int_equal(program_build(&p, &g), 0);
        assert_int_equal(g.piece[PIECE_BLOCK_RECOMPUTED].saved, 4 * T * h + (op ? 2 * T * (2 * h + r + f) + 4 * T * heads + 2 * 512 : 0));
        program_free(&g);
        plan_free(&p);
    }
}

/* Gradients of a graph come together, when its backward has run: each in the last kernels of one, all of them, and no more than one bucket's and the
 * tensor that fills it, but for the first graph. */
static void gradients_of_a_graph_come_when_it_ends(void **state)
{
    struct plan p;
    struct program g = { 0 };
    int ready = 0;

    (void)state;
    load_ddp("llama-8b", 1, 512, "float32", 25, &p);
    assert_int_equal(program_build(&p, &g), 0);
    const struct piece *block = &g.piece[PIECE_BLOCK];
    for (int i = 0; i < block->nkernels[PASS_BACKWARD]; i++) {
        const struct kernel *k = &block->kernels[PASS_BACKWARD][i];
        for (int n = 0; n < 4 && k->ready[n] >= 0; n++, ready++)
            assert_string_equal(k->name, "gradients");
        bool last = i + 1 == block->nkernels[PASS_BACKWARD] || !strcmp(k[1].name, "compiled graph") || !strcmp(k[1].name, "gradients");
        assert_true(strcmp(k->name, "gradients") || last);
    }
    assert_int_equal(ready, 9);
    program_free(&g);
    plan_free(&p);
}

struct reduced { int64_t bytes[16]; int n; };

static int one_bucket(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct reduced *r = arg;

    (void)s;
    (void)iteration;
    if (o->kind == OP_COLL && o->u.coll.op == COLL_ALL_REDUCE && r->n < 16)
        r->bytes[r->n++] = o->u.coll.elems * dtype_bytes(o->u.coll.dtype);
    return 0;
}

/* tests/golden/memory/compiled_order.py: torch 2.15 on a CPU, LlamaForCausalLM of transformers 5.23, its layers compiled by aot_eager; the buckets
 * that DistributedDataParallel has rebuilt ("rebuilt_bucket_sizes").  What a graph hands out at once is in the order of the engine's heap: of a block whose
 * last graph is down alone, input norm, q, second norm, up, o, k, gate, v. */
static void buckets_are_in_the_order_of_the_engines_heap(void **state)
{
    static const struct { int cap, n; int64_t bytes[10]; } recorded[] = {
        { 2, 10, { 4194304, 3147776, 3145728, 3145728, 2361344, 3409920, 3145728, 3145728, 2361344, 4458496 } },
        { 25, 2, { 28059648, 4456448 } },
    };

    (void)state;
    json_object_set_new(models, "ordered", json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "llama", "hidden_act", "silu",
                        "hidden_size", 512, "intermediate_size", 1536, "num_hidden_layers", 2, "num_attention_heads", 8, "num_key_value_heads", 2,
                        "vocab_size", 2048, "max_position_embeddings", 128, "tie_word_embeddings", 0));
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        struct plan p;
        struct schedules s = { 0 };
        struct reduced got = { 0 };
        load_ddp("ordered", 1, 32, "float32", recorded[i].cap, &p);
        assert_int_equal(lower(&p, 0, &s), 0);
        sched_walk(&s, SCHED_STEADY, one_bucket, &got);
        for (int k = 0; k < recorded[i].n; k++)
            assert_int_equal(got.bytes[k], recorded[i].bytes[k]);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* The same beside adapters at all layers, each result a sum of two products.  Forward: the first norm (2 h), q and k summed and rotated
 * (3 h + 3 r), v summed (3 r); the second norm reads x and both of attention's products, the sum and the norm come (5 h); the gated product
 * reads four, and gate, up and itself come (7 f); the output reads x, the sum, both products (5 h).  Backward: the output's gradient by B's
 * scale (2 h); the gated product's two gradients, each plain and scaled, from two products, gate and up (8 f); the second norm's from four
 * products, x, the sum, the incoming gradient, plain and scaled (9 h); attention's from two products (3 h); q's, k's and v's, plain and
 * scaled (3 h + 3 r, v's plain one is attention's own: 2 r); the first norm's from six products, x and the second's (9 h). */
static void fused_kernels_beside_adapters_move_what_can_be_counted(void **state)
{
    struct plan p;
    struct program g = { 0 };

    (void)state;
    load_adapted("llama-8b", 1, 512, "none", "torch-compile", "all-linear", &p);
    assert_int_equal(program_build(&p, &g), 0);
    double T = 512, h = 4096, r = 1024, f = 14336;
    double forward = 15 * h + 6 * r + 7 * f, backward = 26 * h + 5 * r + 8 * f;
    assert_close(bytes_of(&g, false), 2 * T * (forward + backward), 0.01);
    program_free(&g);
    plan_free(&p);
}

/* Products and attention are the eager ones. */
static void products_are_those_of_the_eager_block(void **state)
{
    struct plan eager, compiled;
    struct program a = { 0 }, b = { 0 };

    (void)state;
    load("llama-8b", 1, 512, "none", "torch-sdpa", &eager);
    load("llama-8b", 1, 512, "none", "torch-compile", &compiled);
    assert_int_equal(program_build(&eager, &a), 0);
    assert_int_equal(program_build(&compiled, &b), 0);
    for (int pass = 0; pass < NPASS; pass++)
        assert_close(b.piece[PIECE_BLOCK].flops[pass], a.piece[PIECE_BLOCK].flops[pass], 0);
    assert_close(bytes_of(&b, true), bytes_of(&a, true), 0);
    assert_true(bytes_of(&b, false) < 0.5 * bytes_of(&a, false));
    program_free(&a);
    program_free(&b);
    plan_free(&eager);
    plan_free(&compiled);
}

/* The recorded graphs are of a block alone.  FSDP1's hooks are around it as FSDP2's are, so every block's kernels are the same. */
static void a_block_under_fsdp1_is_the_same_graph(void **state)
{
    const char *name;
    json_t *config;
    int n = 0;

    (void)state;
    json_object_foreach(models, name, config) {
        struct program g[2];
        memset(g, 0, sizeof g);
        for (int flat = 0; flat < 2; flat++) {
            struct plan p;
            load(name, 1, 64, "none", "torch-compile", &p);
            p.dialect = flat ? DIALECT_TORCH_FSDP1 : DIALECT_TORCH;
            p.fsdp.use_orig_params = flat;
            plan_resolve(&p);
            assert_int_equal(plan_check(&p, name), 0);
            assert_int_equal(program_build(&p, &g[flat]), 0);
            plan_free(&p);
        }
        const struct piece *a = &g[0].piece[PIECE_BLOCK], *b = &g[1].piece[PIECE_BLOCK];
        assert_true(a->saved == b->saved && a->saved > 0);
        for (int pass = 0; pass < NPASS; pass++) {
            assert_int_equal(a->nkernels[pass], b->nkernels[pass]);
            for (int k = 0; k < a->nkernels[pass]; k++)
                assert_true(!strcmp(a->kernels[pass][k].name, b->kernels[pass][k].name) && a->kernels[pass][k].bytes == b->kernels[pass][k].bytes);
        }
        program_free(&g[0]);
        program_free(&g[1]);
        n++;
    }
    assert_true(n >= 10);
}

static void what_is_not_modelled_is_refused(void **state)
{
    static const char *const refused[] = {
        "{\"model\":\"gpt2\"}", "{\"strategy\":\"ddp\",\"train\":\"lora\"}", "{\"recompute\":\"selective\"}", "{\"unit\":\"half-block\"}",
        "{\"liger\":{\"rms_norm\":true}}", "{\"train\":\"lora\",\"base_dtype\":\"nf4\"}",
        "{\"train\":\"lora\",\"lora\":{\"dropout\":0.1}}",
        "{\"dialect\":\"torch-fsdp1\"}",
        "{\"train\":\"lora\",\"recompute\":\"op\"}", "{\"train\":\"lora\",\"compile_mode\":\"reduce-overhead\"}", "{\"train\":[\"*norm*\"]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster",
                                 "8xh100", "seq", 512, "strategy", "fsdp", "dialect", "torch", "precision", "bf16", "kernels",
                                 "torch-compile");
        json_t *change = json_loads(refused[i], 0, NULL);
        struct plan p;
        char why[512] = "";
        json_object_update(plan, change);
        fail_capture(why, sizeof why);
        assert_int_equal(plan_from_json(plan, "plan", &p), -1);
        fail_capture(NULL, 0);
        if (!strstr(why, "torch-compile"))
            fail_msg("%s: %s", refused[i], why);
        json_decref(plan);
        json_decref(change);
    }
}

/* Whatever is fused, every weight gets its gradient: as many bytes of them as without the compiler. */
static void a_compiled_block_has_every_gradient_of_the_eager_one(void **state)
{
    static const enum dtype precision[] = { DT_BF16, DT_FP32 };
    const char *name;
    json_t *config;
    int n = 0;

    (void)state;
    json_object_foreach(models, name, config) {
        for (int i = 0; i < 2; i++) {
            struct plan p[2];
            struct program g[2];
            struct span of[2];
            memset(g, 0, sizeof g);
            for (int compiled = 0; compiled < 2; compiled++) {
                load(name, 1, 64, "none", compiled ? "torch-compile" : "torch-eager", &p[compiled]);
                p[compiled].precision = precision[i];
                assert_int_equal(program_build(&p[compiled], &g[compiled]), 0);
                program_span(&g[compiled], PIECE_BLOCK, PASS_BACKWARD, 0, g[compiled].piece[PIECE_BLOCK].nkernels[PASS_BACKWARD], GRADS_KEEP, &of[compiled]);
            }
            if (of[0].net[MEM_GRADS] != of[1].net[MEM_GRADS])
                fail_msg("%s in %s: %lld bytes of gradients, compiled %lld", name, dtype_name(precision[i]), (long long)of[0].net[MEM_GRADS],
                         (long long)of[1].net[MEM_GRADS]);
            for (int compiled = 0; compiled < 2; compiled++) {
                program_free(&g[compiled]);
                plan_free(&p[compiled]);
            }
            n++;
        }
    }
    assert_true(n >= 30);
}

/* Whatever is cut, a block's backward frees what its forward kept, as what it was: nothing is left of activations, nor of temporaries. */
static void blocks_leave_nothing_of_either_kind(void **state)
{
    static const char *const again[] = { "none", "full" }, *const in[] = { "bf16", "fp32" }, *const names[] = { "llama-3.2-1b", "qwen3-0.6b", "mistral-7b" };

    (void)state;
    for (int i = 0; i < 24; i++) {
        json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:{s:b}}", "dpx_plan", 1, "model", names[i / 8], "cluster", i % 2 ? "8xh100" : "1xh100",
                              "strategy", "ddp", "dialect", "torch", "kernels", "torch-compile", "loss", "compiled", "seq", 512, "micro_batch", 2, "precision", in[i / 2 % 2],
                              "recompute", again[i / 4 % 2], "ddp", "wrapped", i % 2);
        struct program g = { 0 };
        struct plan p;
        int held = 0;
        assert_int_equal(plan_from_json(j, "plan", &p), 0);
        json_decref(j);
        assert_int_equal(program_build(&p, &g), 0);
        for (int piece = 0; piece < NPIECE; piece++) {
            int64_t left[NMEM] = { 0 };
            if (!piece_is_block((enum piece_id)piece) || g.piece[piece].nkernels[PASS_FORWARD] == 0)
                continue;
            for (int pass = 0; pass < NPASS; pass++)
                for (int k = 0; k < g.piece[piece].nkernels[pass]; k++)
                    for (int m = 0; m < MEM_GRADS; m++)
                        left[m] += g.piece[piece].kernels[pass][k].net[m];
            if (left[MEM_ACTIVATIONS] != 0 || left[MEM_TEMPORARIES] != 0)
                fail_msg("%s, %s, recompute %s, piece %d: %lld of activations and %lld of temporaries are left", names[i / 8], in[i / 2 % 2], again[i / 4 % 2], piece,
                         (long long)left[MEM_ACTIVATIONS], (long long)left[MEM_TEMPORARIES]);
            held++;
        }
        assert_true(held > 0);
        program_free(&g);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_leave_nothing_of_either_kind), cmocka_unit_test(what_forward_saves_is_the_partitioners_cut),
        cmocka_unit_test(what_graphs_that_ddp_cuts_save_is_the_partitioners_cut),
        cmocka_unit_test(what_autocast_casts_in_a_graph_can_be_counted),
        cmocka_unit_test(recomputed_blocks_keep_no_cast),
        cmocka_unit_test(gradients_of_a_graph_come_when_it_ends),
        cmocka_unit_test(buckets_are_in_the_order_of_the_engines_heap),
        cmocka_unit_test(adapters_leave_what_the_partitioner_cuts),
        cmocka_unit_test(what_a_llama_block_beside_adapters_saves_can_be_counted),
        cmocka_unit_test(fused_kernels_move_what_can_be_counted),
        cmocka_unit_test(fused_kernels_beside_adapters_move_what_can_be_counted),
        cmocka_unit_test(products_are_those_of_the_eager_block),
        cmocka_unit_test(a_compiled_block_has_every_gradient_of_the_eager_one),
        cmocka_unit_test(a_block_under_fsdp1_is_the_same_graph),
        cmocka_unit_test(what_is_not_modelled_is_refused),
    };
    return cmocka_run_group_tests_name("model/torch compile", tests, open_rows, close_rows);
}
