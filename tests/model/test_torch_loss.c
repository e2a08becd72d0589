/* Losses that take the logits apart: what the head holds, counted by hand.  The others, and Liger-Kernel's, are held against PyTorch's own
 * trackers (test_torch_memory.c); torchtune's is not, since autograd treats fake tensors, as subclasses, otherwise there:
 * it copies gradients that it would take as they are. */
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/plan/loss_check.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

enum { T = 2048, H = 4096, V = 128256 };

static void build(const char *loss, int batch, struct plan *p, struct program *g)
{
    json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.1-8b",
                             "cluster", "8xh100", "seq", T, "micro_batch", batch, "strategy", "fsdp", "dialect", "torch",
                             "precision", "bf16", "loss", loss);

    assert_int_equal(plan_from_json(plan, loss, p), 0);
    json_decref(plan);
    memset(g, 0, sizeof *g);
    assert_int_equal(program_build(p, g), 0);
}

static void drop(struct plan *p, struct program *g)
{
    program_free(g);
    plan_free(p);
}

static int64_t peak(const struct program *g, enum pass pass)
{
    const struct span *s = &g->whole[PIECE_HEAD][pass][GRADS_KEEP];

    return s->peak[MEM_ACTIVATIONS] + s->peak[MEM_TEMPORARIES] + s->peak[MEM_GRADS];
}

static int count(const struct program *g, enum pass pass, const char *name)
{
    int n = 0;

    for (int i = 0; i < g->piece[PIECE_HEAD].nkernels[pass]; i++)
        n += !strcmp(g->piece[PIECE_HEAD].kernels[pass][i].name, name);
    return n;
}

/* 128256 is 31.3 times 4096: 2048 rows in chunks of 64 (64 <= 128, 2048/32), the next power of two, hence 32 chunks of
 * logits.  Both gradients are made in forward: 2 T H and 2 V H bytes; there are never more logits than 2 x 64 x V. */
static void fused_linear_has_its_gradients_in_forward(void **state)
{
    struct plan p, q;
    struct program g, all;

    (void)state;
    build("fused-linear", 1, &p, &g);
    build("fp32", 1, &q, &all);
    assert_int_equal(count(&g, PASS_FORWARD, "logits"), 32);
    assert_int_equal(count(&g, PASS_FORWARD, "logits dX"), 32);
    assert_int_equal(count(&g, PASS_FORWARD, "logits dW"), 32);
    assert_int_equal(count(&g, PASS_BACKWARD, "logits dW"), 0);
    /* Products are as many FLOPs as ever, in another pass. */
    double done = g.piece[PIECE_HEAD].flops[PASS_FORWARD] + g.piece[PIECE_HEAD].flops[PASS_BACKWARD];
    assert_close(done, 6.0 * T * H * V, 1);
    assert_close(done, all.piece[PIECE_HEAD].flops[PASS_FORWARD] + all.piece[PIECE_HEAD].flops[PASS_BACKWARD], 1);
    /* Logits and gradients, and of the final norm at most its input in fp32, twice, and its result. */
    int64_t made = 2 * (int64_t)T * H + 2 * (int64_t)V * H + 2 * 64 * (int64_t)V;
    assert_in_range(peak(&g, PASS_FORWARD) - made, 0, (4 + 4 + 2 + 2) * (int64_t)T * H + (1 << 20));
    assert_true(g.piece[PIECE_HEAD].saved >= 2 * (int64_t)V * H);
    drop(&p, &g);
    drop(&q, &all);
}

/* Eight chunks: their logits are all there (2 bytes each), as are the log-probabilities that backward needs (4), but
 * of what is in fp32 beside them only one chunk's. */
static void chunked_upcasts_one_chunk_at_a_time(void **state)
{
    int64_t logits = (int64_t)T * V;
    struct plan p, q;
    struct program g, all;

    (void)state;
    build("chunked", 1, &p, &g);
    build("fp32", 1, &q, &all);
    assert_int_equal(count(&g, PASS_FORWARD, "logits"), 8);
    assert_int_equal(count(&g, PASS_FORWARD, "log-softmax"), 8);
    assert_in_range(peak(&g, PASS_FORWARD), 6 * logits + 4 * logits / 8, 6 * logits + 4 * logits / 8 + 12 * (int64_t)T * H + (1 << 20));
    assert_in_range(peak(&all, PASS_FORWARD), 10 * logits, 10 * logits + 12 * (int64_t)T * H + (1 << 20));
    assert_close(g.piece[PIECE_HEAD].flops[PASS_BACKWARD], all.piece[PIECE_HEAD].flops[PASS_BACKWARD], 1);
    drop(&p, &g);
    drop(&q, &all);
}

/* Each of the chunks' gradients of the weight is a view: the first sum is a third tensor, the others are in place. */
static void the_weights_gradient_is_handed_out_once(void **state)
{
    struct plan p;
    struct program g;
    int ready = 0;

    (void)state;
    build("chunked", 2, &p, &g);
    assert_int_equal(count(&g, PASS_BACKWARD, "logits dW"), 8);
    assert_int_equal(count(&g, PASS_FORWARD, "copy chunk"), 8);
    for (int i = 0; i < g.piece[PIECE_HEAD].nkernels[PASS_BACKWARD]; i++)
        for (int k = 0; k < 4; k++)
            ready += g.piece[PIECE_HEAD].kernels[PASS_BACKWARD][i].ready[k] >= 0;
    assert_int_equal(ready, 2);                 /* the head's and the final norm's */
    assert_close((double)g.whole[PIECE_HEAD][PASS_BACKWARD][GRADS_KEEP].net[MEM_GRADS], 2.0 * ((double)V * H + H), 1024);
    drop(&p, &g);
}

static void refuses(const char *change)
{
    json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster",
                             "8xh100", "seq", 512, "strategy", "fsdp", "dialect", "torch", "precision", "bf16");
    json_t *other = json_loads(change, 0, NULL);
    struct plan p;
    char why[512] = "";

    json_object_update(plan, other);
    fail_capture(why, sizeof why);
    int rc = plan_from_json(plan, "plan", &p);
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, ": loss: "))
        fail_msg("%s: %s", change, why);
    json_decref(plan);
    json_decref(other);
}

static void what_a_loss_cannot_be_is_refused(void **state)
{
    (void)state;
    refuses("{\"loss\":\"bf16\",\"precision\":\"fp32\"}");
    refuses("{\"loss\":\"fused\",\"kernels\":\"dpx\"}");
    refuses("{\"loss\":\"chunked\",\"strategy\":\"zero2\",\"dialect\":\"deepspeed\"}");
    refuses("{\"loss\":\"bf16\",\"strategy\":\"ddp\"}");
    refuses("{\"loss\":\"cut-cross-entropy\",\"strategy\":\"ddp\"}");      /* of a model in fp32 */
    refuses("{\"loss\":\"cut-cross-entropy\",\"precision\":\"fp32\"}");
    refuses("{\"loss\":\"fused-linear\",\"parallel\":{\"tensor\":2}}");
}

/* The bytes of the head's gathers along the tensors' axis that two ranks end up with. */
static int64_t gathered(const struct program *g, const char **dtype)
{
    const struct piece *head = &g->piece[PIECE_HEAD];
    int64_t bytes = 0;

    for (int i = 0; i < head->ncollectives[PASS_FORWARD]; i++) {
        const struct collective *c = &head->collectives[PASS_FORWARD][i];
        if (c->op == COLL_ALL_GATHER && c->elems >= T * V) {
            bytes += c->elems * dtype_bytes((enum dtype)c->dtype);
            *dtype = dtype_name((enum dtype)c->dtype);
        }
    }
    return bytes;
}

/* torchtitan's model returns whole logits, in 16 bits; NeMo Automodel's loss gathers them behind its cast (masked_ce.py), which fp32_upcast: false leaves out. */
static void whole_logits_are_gathered_as_the_loss_has_them(void **state)
{
    static const struct { int apart; const char *loss, *dtype; int64_t each; } plans[] = {
        { 0, "fp32", "bf16", 2 }, { 0, "bf16", "bf16", 2 }, { 1, "fp32", "fp32", 4 }, { 1, "bf16", "bf16", 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:{s:i, s:b, s:b, s:b}}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster",
                                 "8xh100", "seq", T, "micro_batch", 1, "strategy", "fsdp", "dialect", "torch", "precision", "bf16", "loss", plans[i].loss,
                                 "parallel", "tensor", 2, "sequence", 0, "loss_parallel", 0, "inputs_apart", plans[i].apart);
        struct plan p;
        struct program g = { 0 };
        const char *dtype = "none";
        assert_int_equal(plan_from_json(plan, "plan", &p), 0);
        json_decref(plan);
        assert_int_equal(program_build(&p, &g), 0);
        int64_t bytes = gathered(&g, &dtype);
        if (bytes != plans[i].each * T * V || strcmp(dtype, plans[i].dtype) != 0)
            fail_msg("plan %d: %lld bytes of %s", (int)i, (long long)bytes, dtype);
        drop(&p, &g);
    }
}

/* Of tensors cut over two ranks with whole logits on each (loss_parallel false) the head keeps log-probabilities of V numbers a token: in bf16 2 bytes of
 * each, in fp32 4.  Cut logits have a loss in fp32 alone. */
static void whole_logits_of_cut_tensors_have_a_loss_in_bf16(void **state)
{
    static const char *const losses[] = { "fp32", "bf16" };
    int64_t saved[2];

    (void)state;
    for (int parallel = 0; parallel < 2; parallel++)
        for (int i = 0; i < 2; i++) {
            json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:{s:i, s:b, s:b}}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster",
                                     "8xh100", "seq", T, "micro_batch", 1, "strategy", "fsdp", "dialect", "torch", "precision", "bf16", "loss", losses[i],
                                     "parallel", "tensor", 2, "sequence", 1, "loss_parallel", parallel);
            struct plan p;
            struct program g = { 0 };
            char why[512] = "";
            fail_capture(why, sizeof why);
            int rc = plan_from_json(plan, "plan", &p);
            fail_capture(NULL, 0);
            json_decref(plan);
            assert_int_equal(rc, parallel && i ? -1 : 0);
            if (rc < 0) {
                assert_non_null(strstr(why, "loss: with parallel.tensor bf16 is of whole logits"));
                continue;
            }
            assert_int_equal(program_build(&p, &g), 0);
            saved[i] = g.piece[PIECE_HEAD].saved;
            if (!parallel && i)
                assert_int_equal(saved[0] - saved[1], 2LL * T * V);
            drop(&p, &g);
        }
}

/* A loop that names logits until the next ones are there has V numbers a token more all the time, from the first step on: of 2 bytes as the model made
 * them, of 4 in fp32; two tensor-parallel ranks half of them where the loss has them cut.  What has none refuses the key. */
static void logits_that_a_loop_names_stay(void **state)
{
    static const char *const kept[] = { "none", "as-made", "fp32" };
    static const int64_t bytes[] = { 0, 2, 4 };
    static const struct { const char *more, *dialect; int64_t share; } plans[] = {
        { "{}", "torch", 1 }, { "{}", "torch-fsdp1", 1 }, { "{\"parallel\": {\"tensor\": 2, \"sequence\": true}}", "torch", 2 },
        { "{\"parallel\": {\"tensor\": 2, \"sequence\": true, \"loss_parallel\": false}}", "torch", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        int64_t allocated = 0, served = 0;
        for (int k = 0; k < 3; k++) {
            json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster", "8xh100", "seq", T,
                                     "micro_batch", 1, "strategy", "fsdp", "dialect", plans[i].dialect, "precision", "bf16", "logits_kept", kept[k]);
            json_object_update_new(plan, json_loads(plans[i].more, 0, NULL));
            struct plan p;
            struct evaluation e;
            assert_int_equal(plan_from_json(plan, "plan", &p), 0);
            json_decref(plan);
            assert_int_equal(evaluate(&p, &e), 0);
            int64_t more = bytes[k] * T * V / plans[i].share;
            allocated = k == 0 ? e.allocated_peak : allocated;
            assert_int_equal(e.allocated_peak - allocated, more);
            served = k == 0 ? e.reserved.allocated_peak : served;
            if (llabs(e.reserved.allocated_peak - served - more) > 2 << 20)         /* blocks are not split by less than 1 MiB */
                fail_msg("plan %d, %s: the allocator serves %lld more of %lld", (int)i, kept[k], (long long)(e.reserved.allocated_peak - served), (long long)more);
            evaluation_free(&e);
            plan_free(&p);
        }
    }
    /* Those of a function that returns when backward has ended are not there in the optimizer's step, where this plan is fullest. */
    static const char *const untils[][2] = { { "none", "next" }, { "as-made", "next" }, { "as-made", "backward" } };
    int64_t fullest[3];
    for (int k = 0; k < 3; k++) {
        struct plan p;
        struct evaluation e;
        json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.2-1b", "cluster", "2xh100", "seq", 64,
                                 "micro_batch", 1, "strategy", "ddp", "dialect", "torch", "precision", "bf16", "logits_kept", untils[k][0]);
        json_object_set_new(plan, "logits_until", json_string(untils[k][1]));
        assert_int_equal(plan_from_json(plan, "plan", &p), 0);
        json_decref(plan);
        assert_int_equal(evaluate(&p, &e), 0);
        fullest[k] = e.allocated_peak;
        evaluation_free(&e);
        plan_free(&p);
    }
    assert_int_equal(fullest[1] - fullest[0], 2LL * 64 * 128256);
    assert_int_equal(fullest[2], fullest[0]);
    /* And for logits[..., :-1, :].contiguous(), which copies T - 1 rows of each of several samples, and nothing of one. */
    for (int samples = 1; samples <= 2; samples++) {
        int64_t peak[2];
        for (int k = 0; k < 2; k++) {
            struct plan p;
            struct evaluation e;
            json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster", "8xh100", "seq", T,
                                     "micro_batch", samples, "strategy", "fsdp", "dialect", "torch", "precision", "bf16", "logits_kept", k ? "as-made-shifted" : "as-made");
            assert_int_equal(plan_from_json(plan, "plan", &p), 0);
            json_decref(plan);
            assert_int_equal(evaluate(&p, &e), 0);
            peak[k] = e.allocated_peak;
            evaluation_free(&e);
            plan_free(&p);
        }
        assert_int_equal(peak[1] - peak[0], samples > 1 ? 2LL * samples * (T - 1) * V : 0);
    }
    static const char *const refused[] = { "{\"loss\": \"fused-linear\"}", "{\"kernels\": \"dpx\"}", "{\"logits_kept\": \"as-made-shifted\", \"parallel\": {\"context\": 2}}", "{\"accumulation\": 2, \"parallel\": {\"pipeline\": 2}}" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster", "8xh100", "seq", T,
                                 "micro_batch", 1, "strategy", "fsdp", "dialect", "torch", "precision", "bf16", "logits_kept", "fp32");
        json_object_update_new(plan, json_loads(refused[i], 0, NULL));
        struct plan p;
        char why[512] = "";
        fail_capture(why, sizeof why);
        assert_int_equal(plan_from_json(plan, "plan", &p), -1);
        fail_capture(NULL, 0);
        if (!strstr(why, "logits_kept"))
            fail_msg("%s: %s", refused[i], why);
        json_decref(plan);
    }
}

/* OpenRLHF's: of L bytes of logits in fp32 there are, in forward, they and the 16 bits that they were made of, 1.5 L.  In backward they, their gradient and its
 * cast: 2 L, as the kernel lets go of them before the cast, or 2.5 L where the loop names them, too (PyTorch's own profiler, on the CPU, counts 1.500, 2.000 and 2.500 of the same lines). */
static void logits_cast_for_the_kernel_are_in_fp32(void **state)
{
    int64_t seq = 4 * T, logits = 4 * seq * V, room = 12 * seq * H + (1 << 20), most[2];

    (void)state;
    for (int named = 0; named < 2; named++) {
        struct plan p;
        struct program g = { 0 };
        struct evaluation e;
        json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:{s:b}}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster", "8x8xh100", "seq", (int)seq,
                                 "micro_batch", 1, "strategy", "zero3", "precision", "bf16", "recompute", "full", "loss", "fused-fp32", "logits_kept",
                                 named ? "fp32" : "none", "deepspeed", "zero_init", 1);
        assert_int_equal(plan_from_json(plan, "plan", &p), 0);
        json_decref(plan);
        assert_int_equal(program_build(&p, &g), 0);
        assert_in_range(peak(&g, PASS_FORWARD), logits * 3 / 2, logits * 3 / 2 + room);
        assert_in_range(g.piece[PIECE_HEAD].saved, named ? 0 : logits, (named ? 0 : logits) + room);
        assert_in_range(peak(&g, PASS_BACKWARD) + 12 * seq, named ? logits * 3 / 2 : logits, (named ? logits * 3 / 2 : logits) + room);   /* labels have gone, and a number a row */
        assert_int_equal(loss_kept_bytes(&p), named ? logits : 0);
        assert_int_equal(evaluate(&p, &e), 0);
        most[named] = e.allocated_peak;
        evaluation_free(&e);
        drop(&p, &g);
    }
    assert_in_range(logits / 2 - (most[1] - most[0]), 0, 32 * seq);     /* but for labels and numbers of a row, which go with the kernel */
}

/* ---- verl's own, beside their Python's tensors (tests/golden/memory/torch_actor_loss.py) ---- */

static void build_actor(const json_t *of, const char *with, struct plan *p, struct program *g)
{
    const char *lora = json_is_true(json_object_get(of, "trains")) ? "" : ", \"train\": \"lora\", \"lora\": { \"rank\": 2, \"target_modules\": [\"q_proj\"] }";
    int hidden = (int)json_integer_value(json_object_get(of, "hidden"));
    char text[2048];

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": { \"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": %d, \"intermediate_size\": 256, "
             "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": %d, \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, "
             "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false }, \"cluster\": \"2xh100\", \"seq\": %d, \"precision\": \"bf16\", \"loss\": \"%s\"%s%s }",
             hidden, (int)json_integer_value(json_object_get(of, "vocab")), (int)json_integer_value(json_object_get(of, "rows")),
             json_string_value(json_object_get(of, "loss")), lora, with);
    json_t *plan = json_loads(text, 0, NULL);
    assert_non_null(plan);
    assert_int_equal(plan_from_json(plan, text, p), 0);
    json_decref(plan);
    memset(g, 0, sizeof *g);
    assert_int_equal(program_build(p, g), 0);
}

/* The most bytes above those before the first of the kernels [first, end), and above those what there is behind them. */
static int64_t most_of(const struct piece *of, enum pass pass, int first, int end, int64_t *left)
{
    int64_t live = 0, most = 0;

    for (int i = first; i < end; i++) {
        const struct kernel *k = &of->kernels[pass][i];
        int64_t up = 0, net = 0;
        for (int c = 0; c < NMEM; c++) {
            up += k->peak[c];
            net += k->net[c];
        }
        most = live + up > most ? live + up : most;
        live += net;
    }
    *left = live;
    return most;
}

static int named(const struct piece *of, enum pass pass, const char *name, bool last)
{
    int at = -1;

    for (int i = 0; i < of->nkernels[pass] && (at < 0 || last); i++)
        if (!strcmp(of->kernels[pass][i].name, name))
            at = i;
    return at;
}

/* Tensors of a number a row that live for some kernels are not counted: of the labels' gradient, the entropy's, of sums. */
static void an_actors_losses_hold_what_verls_make(void **state)
{
    static const char *const with[] = { ", \"strategy\": \"fsdp\", \"dialect\": \"torch\"", ", \"strategy\": \"fsdp\", \"dialect\": \"torch-fsdp1\"" };
    FILE *in = fopen("tests/golden/memory/torch_actor_loss.jsonl", "r");
    char line[1024];
    int seen = 0;

    (void)state;
    assert_non_null(in);
    for (; fgets(line, sizeof line, in); seen++) {
        json_t *of = json_loads(line, 0, NULL);
        if (!json_object_get(of, "loss")) {
            json_decref(of);
            continue;
        }
        struct plan p;
        struct program g;
        int64_t rows = json_integer_value(json_object_get(of, "rows")), h = json_integer_value(json_object_get(of, "hidden")), left;
        int64_t v = json_integer_value(json_object_get(of, "vocab"));
        bool chunks = !strcmp(json_string_value(json_object_get(of, "loss")), "actor-chunks");
        build_actor(of, with[seen % 2], &p, &g);
        const struct piece *head = &g.piece[PIECE_HEAD];
        int64_t most = most_of(head, PASS_FORWARD, named(head, PASS_FORWARD, "actor loss", false), named(head, PASS_FORWARD, "mean loss", false), &left);
        assert_in_range(json_integer_value(json_object_get(of, "forward")) - most, 0, 32 * rows);
        assert_in_range(left, json_integer_value(json_object_get(of, "kept")) - (chunks ? 2 : 4) * rows, json_integer_value(json_object_get(of, "kept")) + 8 * rows);
        int end = named(head, PASS_BACKWARD, "logits dW", true) + 2;
        most = most_of(head, PASS_BACKWARD, named(head, PASS_BACKWARD, chunks ? "zeros" : "logits", false) - 1, end, &left);      /* the losses' gradient first */
        assert_in_range(json_integer_value(json_object_get(of, "backward")) - most + 16 * rows, 0, 48 * rows);
        /* Each way once, again in backward, and there both gradients: Triton's kernel computes whole parts of 9504 columns. */
        double again = chunks ? (double)v : 9504.0 * (double)((v + 9503) / 9504);
        assert_close(head->flops[PASS_FORWARD] + head->flops[PASS_BACKWARD], 2.0 * (double)(rows * h) * (3 * (double)v + again), 1);
        drop(&p, &g);
        json_decref(of);
    }
    fclose(in);
    assert_int_equal(seen, 17);
}

/* The entropy by single operations (tests/golden/memory/torch_entropy.py): of numbers a row, those that live for some kernels are not counted.  Backward's
 * first gradient is a number's. */
static void an_entropy_in_steps_holds_what_pythons_does(void **state)
{
    FILE *in = fopen("tests/golden/memory/torch_entropy.jsonl", "r");
    char line[1024];
    int seen = 0;

    (void)state;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        json_t *of = json_loads(line, 0, NULL);
        int64_t rows = json_integer_value(json_object_get(of, "rows")), left;
        struct plan p;
        struct program g;
        if (rows == 0) {
            json_decref(of);
            continue;
        }
        json_object_set_new(of, "hidden", json_integer(128));
        json_object_set_new(of, "trains", json_true());
        json_object_set_new(of, "loss", json_string("fused-entropy-eager"));
        build_actor(of, ", \"strategy\": \"fsdp\", \"dialect\": \"torch\", \"fsdp\": { \"model_dtype\": \"bf16\" }", &p, &g);
        const struct piece *head = &g.piece[PIECE_HEAD];
        int64_t most = most_of(head, PASS_FORWARD, named(head, PASS_FORWARD, "entropy softmax", false), named(head, PASS_FORWARD, "entropy", true) + 1, &left);
        assert_in_range(json_integer_value(json_object_get(of, "forward")) - most + 8 * rows, 0, 16 * rows);
        assert_in_range(json_integer_value(json_object_get(of, "kept")) - left + 8 * rows, 0, 16 * rows);
        most = most_of(head, PASS_BACKWARD, named(head, PASS_BACKWARD, "entropy product", false), named(head, PASS_BACKWARD, "entropy softmax", true) + 2, &left);
        assert_in_range(json_integer_value(json_object_get(of, "backward")) - most + 8 * rows, 0, 16 * rows);
        drop(&p, &g);
        json_decref(of);
        seen++;
    }
    fclose(in);
    assert_int_equal(seen, 3);
}

/* Megatron-LM's ranks share the vocabulary: three all-reduces, the gather in front of them and the sum on the way back; no logits are there. */
static void the_actors_kernel_joins_what_ranks_have(void **state)
{
    json_t *plan = json_loads("{ \"dpx_plan\": 1, \"model\": \"llama-3.1-8b\", \"cluster\": \"8xh100\", \"seq\": 2048, \"strategy\": \"zero1\", "
                              "\"dialect\": \"megatron\", \"precision\": \"bf16\", \"loss\": \"actor-triton\", \"parallel\": { \"tensor\": 2, \"sequence\": true } }", 0, NULL);
    struct plan p;
    struct program g = { 0 };
    int64_t left;

    (void)state;
    assert_int_equal(plan_from_json(plan, "plan", &p), 0);
    json_decref(plan);
    assert_int_equal(program_build(&p, &g), 0);
    const struct piece *head = &g.piece[PIECE_HEAD];
    int reduced = 0, gathered = named(head, PASS_FORWARD, "all-gather", false);
    for (int i = 0; i < head->nkernels[PASS_FORWARD]; i++)
        reduced += !strcmp(head->kernels[PASS_FORWARD][i].name, "all-reduce");
    assert_int_equal(reduced, 3);
    assert_true(gathered >= 0);
    assert_true(named(head, PASS_BACKWARD, "reduce-scatter", false) >= 0);
    int64_t most = most_of(head, PASS_BACKWARD, named(head, PASS_BACKWARD, "logits", false) - 1, named(head, PASS_BACKWARD, "logits dW", true) + 1, &left);
    /* dX, dW, parts of the logits' gradient and the last one's columns. */
    assert_in_range(most, 2 * (int64_t)(T * H + V / 2 * H + T * 9504), 2 * (int64_t)(T * H + V / 2 * H + 2 * T * 9504) + (1 << 20));
    drop(&p, &g);
}

/* NeMo-RL's log-probabilities (tests/golden/memory/torch_logprob.py), from the head's product to the gradient of its result.  Of numbers a row, and of what
 * backward's indices are made of, those that live for some kernels are not counted: at most 48 bytes a row. */
static void log_probabilities_hold_what_nemo_rls_do(void **state)
{
    FILE *in = fopen("tests/golden/memory/torch_logprob.jsonl", "r");
    char line[512], text[1024];
    int seen = 0;

    (void)state;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
        json_t *of = json_loads(line, 0, NULL);
        int64_t samples = json_integer_value(json_object_get(of, "samples")), rows = samples * json_integer_value(json_object_get(of, "positions")), left;
        if (rows > 0) {
            bool late = json_is_true(json_object_get(of, "late"));
            snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": { \"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 128, \"intermediate_size\": "
                     "256, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": %d, \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, "
                     "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false }, \"cluster\": \"2xh100\", \"strategy\": \"ddp\", \"dialect\": \"megatron\", \"kernels\": \"te\", "
                     "\"precision\": \"bf16\", \"seq\": %d, \"micro_batch\": %d, \"loss\": \"distributed-logprob%s\", \"megatron\": { \"make_vocab_size_divisible_by\": 1%s%.0d } }",
                     (int)json_integer_value(json_object_get(of, "vocab")), (int)(rows / samples), (int)samples, late ? "-late" : "",
                     json_integer_value(json_object_get(of, "chunk")) > 0 ? ", \"logprob_chunk_size\": " : "", (int)json_integer_value(json_object_get(of, "chunk")));
            json_t *plan = json_loads(text, 0, NULL);
            struct program g = { 0 };
            struct plan p;
            assert_int_equal(plan_from_json(plan, text, &p), 0);
            json_decref(plan);
            assert_int_equal(program_build(&p, &g), 0);
            const struct piece *head = &g.piece[PIECE_HEAD];
            int64_t most = most_of(head, PASS_FORWARD, named(head, PASS_FORWARD, "logits", false), named(head, PASS_FORWARD, "mean loss", false), &left);
            assert_in_range(json_integer_value(json_object_get(of, "forward")) - most + 16 * rows, 0, 64 * rows);
            assert_in_range(json_integer_value(json_object_get(of, "kept")) - left + 16 * rows, 0, 32 * rows);
            int first = named(head, PASS_BACKWARD, late && json_integer_value(json_object_get(of, "chunk")) > 0 ? "zeros" : "loss backward", false);
            most = most_of(head, PASS_BACKWARD, first, named(head, PASS_BACKWARD, "logits dX", false), &left);
            assert_in_range(json_integer_value(json_object_get(of, "backward")) - most + 16 * rows, 0, 64 * rows);
            drop(&p, &g);
            seen++;
        }
        json_decref(of);
    }
    fclose(in);
    assert_int_equal(seen, 12);
}

/* Of T - 1 positions once in forward; once more in backward, beside both products.  Tiles of 32768 columns: four, the last of 29952. */
static void tiles_of_logits_come_again_in_backward(void **state)
{
    struct plan p;
    struct program g;

    (void)state;
    build("chunked-logprob", 1, &p, &g);
    const struct piece *head = &g.piece[PIECE_HEAD];
    assert_int_equal(count(&g, PASS_FORWARD, "logits"), 4);
    assert_int_equal(count(&g, PASS_BACKWARD, "logits"), 4);
    assert_int_equal(count(&g, PASS_BACKWARD, "logits dW"), 4);
    assert_close(head->flops[PASS_FORWARD], 2.0 * (T - 1) * H * V, 1);
    assert_close(head->flops[PASS_BACKWARD], 6.0 * (T - 1) * H * V, 1);
    /* A tile, both sums in fp32 and their casts; at most the hidden states a few times beside them. */
    int64_t made = 2 * (int64_t)(T - 1) * 32768 + (4 + 2) * ((int64_t)V * H + (int64_t)(T - 1) * H);
    assert_in_range(peak(&g, PASS_BACKWARD) - made, 0, 12 * (int64_t)T * H);
    drop(&p, &g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_of_logits_come_again_in_backward), cmocka_unit_test(an_actors_losses_hold_what_verls_make), cmocka_unit_test(the_actors_kernel_joins_what_ranks_have),
        cmocka_unit_test(an_entropy_in_steps_holds_what_pythons_does), cmocka_unit_test(log_probabilities_hold_what_nemo_rls_do),
        cmocka_unit_test(fused_linear_has_its_gradients_in_forward),
        cmocka_unit_test(chunked_upcasts_one_chunk_at_a_time),
        cmocka_unit_test(the_weights_gradient_is_handed_out_once),
        cmocka_unit_test(what_a_loss_cannot_be_is_refused),
        cmocka_unit_test(whole_logits_of_cut_tensors_have_a_loss_in_bf16),
        cmocka_unit_test(whole_logits_are_gathered_as_the_loss_has_them),
        cmocka_unit_test(logits_that_a_loop_names_stay), cmocka_unit_test(logits_cast_for_the_kernel_are_in_fp32),
    };
    return cmocka_run_group_tests_name("model/torch loss", tests, NULL, NULL);
}
