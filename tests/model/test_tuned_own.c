/* test_tuned_own.c -- what trains, with dpx's own kernels and the papers' strategies: states, volumes and products by counting. */
#include "tests/model/plans.h"

#include "model/arch/training.h"
#include "model/schedule/ledger.h"

static struct schedules s;

/* Of GPT-2, cut to `layers`; what trains, "": all; adapters of rank r on these layers. */
static void tuned(struct plan *p, const char *model, int64_t layers, const char *what, int64_t rank, const char *targets, enum strategy st,
                  enum dtype t, int64_t world)
{
    struct training train = training_default();

    plan_of(p, model, layers, world, st, DIALECT_PAPER, t);
    snprintf(train.what, sizeof train.what, "%s", what);
    snprintf(train.target_modules, sizeof train.target_modules, "%s", targets);
    if (rank > 0)
        train.rank = rank;
    assert_int_equal(training_apply(&p->model, &train, "test"), 0);
    p->train = train;
    p->dropout = 0;
}

/* ---- states ---- */

/* c_attn's adapters of rank 8: 12 (8 * 768 + 2304 * 8) = 294,912 numbers train, beside 124,439,808 that do not.  e bytes of each
 * parameter; of what trains e of gradient and k of states: 12 or 8, with one moment in place of two 8 or 4. */
static void states_are_those_of_what_trains(void **state)
{
    (void)state;
    static const enum strategy strategies[] = { STRAT_DDP, STRAT_ZERO1, STRAT_ZERO2, STRAT_ZERO3, STRAT_FSDP };
    static const int64_t ranks[] = { 1, 2, 4 };
    const int64_t frozen = 124439808, trains = 294912;

    for (int i = 0; i < 5; i++)
        for (int w = 0; w < 3; w++)
            for (int v = 0; v < 4; v++) {
                int64_t n = ranks[w], e = v & 1 ? 2 : 4, k = (v & 1 ? 8 : 4) + (v & 2 ? 0 : 4);
                int64_t by_g = strategies[i] >= STRAT_ZERO2 ? n : 1, by_k = strategies[i] > STRAT_DDP ? n : 1;
                int64_t by_p = strategies[i] >= STRAT_ZERO3 ? n : 1;
                struct plan p;
                struct ledger l;
                tuned(&p, "gpt2", 0, "lora", 8, "", strategies[i], v & 1 ? DT_BF16 : DT_FP32, n);
                p.optimizer = v & 2 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
                assert_int_equal(p.model.trainable, trains);
                lowered(&p, n - 1, &s);
                ledger_run(&s, &l);
                assert_int_equal(l.persistent[CAT_PARAMS], e * (frozen + trains) / by_p);
                assert_int_equal(l.persistent[CAT_GRADS], e * trains / by_g);
                assert_int_equal(l.persistent[CAT_OPTIMIZER], k * trains / by_k);
                plan_free(&p);
            }
}

/* Adafactor's are a number for each row and each column of a matrix, one for each element of a vector. */
static void adafactor_keeps_rows_and_columns(void **state)
{
    struct plan p;
    struct ledger l;
    int64_t elems = 0;

    (void)state;
    tuned(&p, "gpt2", 2, "", 0, "", STRAT_DDP, DT_FP32, 2);
    p.optimizer = OPTIMIZER_ADAFACTOR;
    for (int t = 0; t < p.model.ntensors; t++) {
        const struct tensor *x = &p.model.tensors[t];
        elems += x->ndim == 2 ? x->shape[0] + x->shape[1] : x->numel;
    }
    lowered(&p, 0, &s);
    ledger_run(&s, &l);
    assert_int_equal(l.persistent[CAT_OPTIMIZER], 4 * elems);
    plan_free(&p);
}

/* On the wire of n = 4, full buffers times 3/4: what trains is reduced, twice (an all-reduce is two passes) or gathered after the
 * update; stage 3 gathers everything, frozen or not, in forward and in backward. */
static void volumes_are_those_of_what_trains(void **state)
{
    (void)state;
    static const struct { enum strategy st; int64_t trained, all; } want[] = {
        { STRAT_DDP, 2, 0 }, { STRAT_ZERO1, 2, 0 }, { STRAT_ZERO2, 2, 0 }, { STRAT_ZERO3, 1, 2 }, { STRAT_FSDP, 1, 2 },
    };
    const int64_t frozen = 124439808, trains = 294912;

    for (int i = 0; i < 5; i++) {
        struct plan p;
        tuned(&p, "gpt2", 0, "lora", 8, "", want[i].st, DT_FP32, 4);
        lowered(&p, 0, &s);
        assert_int_equal(sent(&s, SCHED_STEADY), 3 * (want[i].trained * trains + want[i].all * (frozen + trains)));
        plan_free(&p);
    }
}

/* ---- programs ---- */

static double products(const struct piece *q, enum pass pass, bool adapters)
{
    double sum = 0;

    for (int i = 0; i < q->nkernels[pass]; i++) {
        const struct kernel *k = &q->kernels[pass][i];
        sum += k->kind == KC_GEMM && (k->adapter != ADAPTER_NONE) == adapters ? k->flops : 0;
    }
    return sum;
}

/* Frozen layers have no dW: backward has as many products as forward, adapters twice as many.  Behind the frozen embedding nothing
 * reads a gradient below c_attn's B: neither its layer's dX nor that of its A, 2 N h (3h) and 2 N h r. */
static void frozen_layers_have_no_weight_gradients(void **state)
{
    const double n = 64, h = 768, r = 8;
    struct plan p;
    struct program g = { 0 };

    (void)state;
    tuned(&p, "gpt2", 3, "lora", 8, "", STRAT_DDP, DT_FP32, 2);
    assert_int_equal(program_build(&p, &g), 0);
    const struct piece *block = &g.piece[PIECE_BLOCK], *first = &g.piece[PIECE_FIRST];
    assert_close(products(block, PASS_FORWARD, false), 2 * n * h * h * 12, 0);
    assert_close(products(block, PASS_FORWARD, true), 2 * n * r * 4 * h, 0);
    assert_close(products(block, PASS_BACKWARD, false), products(block, PASS_FORWARD, false), 0);
    assert_close(products(block, PASS_BACKWARD, true), 2 * products(block, PASS_FORWARD, true), 0);
    assert_close(products(first, PASS_BACKWARD, false), 2 * n * h * h * 9, 0);
    assert_close(products(first, PASS_BACKWARD, true), 2 * products(block, PASS_FORWARD, true) - 2 * n * h * r, 0);
    assert_close(products(&g.piece[PIECE_HEAD], PASS_BACKWARD, false), products(&g.piece[PIECE_HEAD], PASS_FORWARD, false), 0);
    assert_close(products(&g.piece[PIECE_EMBED], PASS_BACKWARD, false), 0, 0);
    program_free(&g);
    plan_free(&p);
}

/* A block of c_attn's adapters keeps, beside what attention, the activation and the norms read in backward, only c_attn's input and
 * A's output: 4 N (x, norm, 3 qkv, attention, mid: 7 h; the MLP's 4 h before its activation; r), 4 N heads of log-sum-exp, 16 N of
 * statistics.  The first block keeps neither x nor the first norm's statistics. */
static void a_block_keeps_what_backward_reads(void **state)
{
    const int64_t n = 64, h = 768, r = 8, heads = 12;
    const int64_t want = 4 * n * (11 * h + r) + 4 * n * heads + 16 * n;
    struct plan p;
    struct program g = { 0 };

    (void)state;
    tuned(&p, "gpt2", 3, "lora", 8, "", STRAT_DDP, DT_FP32, 2);
    assert_int_equal(program_build(&p, &g), 0);
    assert_int_equal(g.piece[PIECE_BLOCK].saved, want);
    assert_int_equal(g.piece[PIECE_FIRST].saved, want - 4 * n * h - 8 * n);
    program_free(&g);
    plan_free(&p);
}

static int64_t net_of(const struct piece *q, enum mem m)
{
    int64_t sum = 0;

    for (int pass = 0; pass < NPASS; pass++)
        for (int i = 0; i < q->nkernels[pass]; i++)
            sum += q->kernels[pass][i].net[m];
    return sum;
}

/* Whatever trains, a micro-step leaves nothing but gradients; and what backward reads has been kept. */
static void a_micro_step_leaves_what_it_found(void **state)
{
    (void)state;
    static const char *const models[] = { "gpt2", "llama-3.2-1b" };
    static const struct { const char *what, *gpt2, *llama; } cases[] = {
        { "lora", "", "" }, { "lora", "all-linear", "all-linear" }, { "lora", "mlp.c_proj", "down_proj" },
        { "lora", "attn.c_proj", "o_proj" }, { "lora", "c_fc", "gate_proj" }, { "", "*.mlp.*", "*.mlp.*" },
        { "", "*.mlp.c_proj.*", "*.down_proj.*" }, { "", "*.ln_1.*", "*.input_layernorm.*" },
        { "", "*.ln_2.*", "*.post_attention_layernorm.*" }, { "", "*.c_attn.*", "*.k_proj.*" }, { "", "*.attn.c_proj.*", "*.o_proj.*" },
        { "", "*wte*,*.ln_1.weight", "*embed_tokens*,*.up_proj.*" }, { "", "*.bias", "*.v_proj.*,lm_head.*" },
        { "", "*wpe*,*.mlp.c_fc.bias", "*.q_proj.*,model.norm.*" },
    };
    enum { NCASES = sizeof cases / sizeof *cases };
    static const enum recompute recomputes[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };

    for (int i = 0; i < 2 * NCASES * 3; i++) {
        bool llama = i % 2, lora = cases[i / 2 % NCASES].what[0];
        const char *of = llama ? cases[i / 2 % NCASES].llama : cases[i / 2 % NCASES].gpt2;
        struct plan p;
        if (llama && strstr(of, "lm_head"))
            of = "*.v_proj.*";              /* tied */
        tuned(&p, models[llama], 3, lora ? "lora" : of, lora ? 4 : 0, lora ? of : "", STRAT_FSDP, DT_FP32, 2);
        p.recompute = recomputes[i / (2 * NCASES)];
        p.dropout = i % 5 == 0 ? 0.1 : 0;
        lowered(&p, 1, &s);
        const struct program *g = &s.program;
        for (int m = 0; m < NMEM; m++) {
            int64_t sum = net_of(&g->piece[PIECE_EMBED], (enum mem)m) + net_of(&g->piece[PIECE_HEAD], (enum mem)m);
            for (int64_t b = 0; b < 3; b++)
                sum += net_of(&g->piece[program_piece_of_block(&p, b)], (enum mem)m);
            if (m != MEM_GRADS)
                assert_int_equal(sum, 0);
        }
        plan_free(&p);
    }
}

/* ---- refused by name ---- */

static void refused(struct plan *p, const char *why)
{
    char said[512] = "";

    fail_capture(said, sizeof said);
    bool taken = plan_check(p, "test") == 0 && lower(p, 0, &s) == 0;
    fail_capture(NULL, 0);
    assert_false(taken);
    if (!strstr(said, why))
        fail_msg("\"%s\" does not say \"%s\"", said, why);
    plan_free(p);
}

static void what_dpx_has_no_kernels_for_is_refused(void **state)
{
    struct plan p;

    (void)state;
    tuned(&p, "gpt2", 2, "", 0, "", STRAT_ZERO1, DT_FP32, 2);
    p.optimizer = OPTIMIZER_ADAFACTOR;
    refused(&p, "needs whole tensors");
    tuned(&p, "gpt2", 2, "", 0, "", STRAT_ZERO1, DT_FP32, 2);
    p.optimizer = OPTIMIZER_BNB_ADAMW8;
    refused(&p, "needs whole tensors");
    tuned(&p, "gpt2", 2, "", 0, "", STRAT_DDP, DT_FP32, 2);
    p.optimizer = OPTIMIZER_BNB_LION8;
    refused(&p, "not lion_8bit");
    tuned(&p, "phi-3-mini", 2, "lora", 8, "qkv_proj", STRAT_DDP, DT_FP32, 2);
    refused(&p, "gate and up in one matrix");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_those_of_what_trains),
        cmocka_unit_test(adafactor_keeps_rows_and_columns),
        cmocka_unit_test(volumes_are_those_of_what_trains),
        cmocka_unit_test(frozen_layers_have_no_weight_gradients),
        cmocka_unit_test(a_block_keeps_what_backward_reads),
        cmocka_unit_test(a_micro_step_leaves_what_it_found),
        cmocka_unit_test(what_dpx_has_no_kernels_for_is_refused),
    };

    return cmocka_run_group_tests_name("model/tuned_own", tests, NULL, NULL);
}
