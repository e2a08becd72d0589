/* Tensor, sequence and loss parallelism, as torchtitan plans them: numbers that a reader can redo, by the sections of
 * the frameworks' sources that the tests name, and the memory of steps that PyTorch's own trackers recorded
 * (tests/golden/grid/record_memory.py).  Collectives are compared entry for entry in test_collectives.c. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "model/plan/local_model.h"
#include "model/schedule/ledger.h"
#include "model/schedule/schedule.h"

/* ---- plans ---- */

static const char *const model_70b = "{ \"model_type\": \"llama\", \"hidden_size\": 8192, \"num_hidden_layers\": 80, \"intermediate_size\": 28672, "
    "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"vocab_size\": 128256, \"max_position_embeddings\": 131072, \"tie_word_embeddings\": false }";

static struct plan plan_of(const char *model, const char *cluster, const char *words)
{
    char text[2048];
    struct plan p;
    json_t *j;

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": %s, \"cluster\": \"%s\", \"strategy\": \"fsdp\", \"dialect\": \"torch\","
             " \"kernels\": \"torch-sdpa\", \"micro_batch\": 1, \"precision\": \"bf16\", \"clip\": 1.0, %s }", model, cluster, words);
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    return p;
}

/* ---- counting ---- */

struct count { enum group in; enum phase phase; int op; int64_t sent, calls, elems; bool any_phase; };

static int add_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct count *c = arg;

    (void)iteration;
    if (o->kind != OP_COLL || sched_group(s, o)->is != c->in || (!c->any_phase && o->phase != c->phase)
        || (c->op >= 0 && o->u.coll.op != c->op))
        return 0;
    c->sent += sched_sent_bytes(s, o);
    c->calls++;
    c->elems = o->u.coll.elems;
    return 0;
}

/* Of a steady step's collectives in a group; op < 0: of any kind. */
static struct count counted(const struct schedules *s, enum group in, enum phase phase, int op)
{
    struct count c = { .in = in, .phase = phase, .op = op };

    sched_walk(s, SCHED_STEADY, add_op, &c);
    return c;
}

static struct count counted_whole(const struct schedules *s, enum group in, int op)
{
    struct count c = { .in = in, .op = op, .any_phase = true };

    sched_walk(s, SCHED_STEADY, add_op, &c);
    return c;
}

static void lowered(struct plan *p, struct schedules *s)
{
    char why[256];

    assert_int_equal(lower(p, 0, s), 0);
    if (!schedules_check(s, why, sizeof why))
        fail_msg("%s", why);
}

/* ---- a rank's share ---- */

static void a_rank_of_70b_has_an_eighth_of_a_block_and_whole_norms(void **state)
{
    struct plan p = plan_of(model_70b, "8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8 }");
    struct local_model local;
    int64_t block = 0;

    (void)state;
    assert_int_equal(local_model_of(&p, 0, &local), 0);
    for (int t = local.model->block0; t < local.model->block0 + local.model->per_block; t++)
        block += local.model->tensors[t].numel;
    assert_int_equal(block, 106971136);                 /* (855,654,400 - 16,384) / 8 + 16,384 */
    assert_int_equal(local.model->params, 8820367360);
    local_model_free(&local);
    plan_free(&p);
}

/* Padding: every tensor's local rows to a multiple of FSDP's ranks. */
static void units_of_8b_are_padded_by_their_local_rows(void **state)
{
    static const struct { const char *cluster, *words; int64_t padded; } row[] = {
        { "8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 4 }", 54534144 },
        { "8x8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8 }", 27271168 },
        { "32x8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8 }", 27271168 },
        { "12x8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 4 }", 54800400 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan p = plan_of("\"llama-3.1-8b\"", row[i].cluster, row[i].words);
        struct schedules s = { 0 };
        struct count c;
        lowered(&p, &s);
        for (int u = 0; u < s.nunits; u++)
            if (!strcmp(s.units[u].kind, "block"))
                assert_int_equal(s.units[u].padded, row[i].padded);
        c = counted(&s, GROUP_DATA, PHASE_BACKWARD, COLL_ALL_GATHER);
        assert_int_equal(c.calls, 32);
        assert_int_equal(c.elems, row[i].padded);
        if (i == 0)
            assert_int_equal(c.sent, 32 * 54534144LL);      /* half of 109,068,288 bytes */
        schedules_free(&s);
        plan_free(&p);
    }
}

/* ---- volumes ---- */

static void a_block_of_70b_sends_four_halves_forward_and_four_backward(void **state)
{
    struct plan p = plan_of(model_70b, "8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8 }");
    struct schedules s = { 0 };
    struct count c;

    (void)state;
    lowered(&p, &s);
    c = counted(&s, GROUP_TENSOR, PHASE_FORWARD, COLL_ALL_GATHER);
    assert_int_equal(c.calls, 2 * 80 + 1);
    assert_int_equal(c.elems * 2, 134217728);           /* bytes */
    assert_int_equal(c.sent, c.calls * 117440512);
    c = counted(&s, GROUP_TENSOR, PHASE_FORWARD, COLL_REDUCE_SCATTER);
    assert_int_equal(c.sent, (2 * 80 + 1) * 117440512LL);       /* with the all-gathers 4 x 80 + 2: 80 x 469,762,048 and two */
    for (int pass = 0; pass < 2; pass++) {
        enum phase phase = pass ? PHASE_BACKWARD : PHASE_FORWARD;
        int64_t sent = counted(&s, GROUP_TENSOR, phase, COLL_ALL_GATHER).sent + counted(&s, GROUP_TENSOR, phase, COLL_REDUCE_SCATTER).sent;
        assert_int_equal(sent, 37815844864);
    }
    schedules_free(&s);
    plan_free(&p);
}

static void a_model_of_8b_on_4_ranks_sends_as_much_back_as_forward(void **state)
{
    struct plan p = plan_of("\"llama-3.1-8b\"", "4xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 4 }");
    struct schedules s = { 0 };

    (void)state;
    lowered(&p, &s);
    for (int pass = 0; pass < 2; pass++) {
        enum phase phase = pass ? PHASE_BACKWARD : PHASE_FORWARD;
        int64_t sent = counted(&s, GROUP_TENSOR, phase, COLL_ALL_GATHER).sent + counted(&s, GROUP_TENSOR, phase, COLL_REDUCE_SCATTER).sent;
        assert_int_equal(sent, 6543114240);
    }
    schedules_free(&s);
    plan_free(&p);
}

/* Recomputing stops before the block's last reduce-scatter; operators that are kept are not sent again.  Vectors 9 and 10: 8 halves of
 * 117,440,512 bytes a block, and 11. */
static void recompute_gathers_again(void **state)
{
    static const struct { const char *words; int64_t gathers, scatters; } row[] = {
        { "none", 2, 2 }, { "full", 2 + 2, 2 + 1 }, { "op", 2 + 2, 2 }, { "selective", 2, 2 },
    };
    int64_t half = 117440512;

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char words[128];
        snprintf(words, sizeof words, "\"seq\": 8192, \"recompute\": \"%s\", \"parallel\": { \"tensor\": 8 }", row[i].words);
        struct plan p = plan_of(model_70b, "8xh100", words);
        struct schedules s = { 0 };
        lowered(&p, &s);
        /* The embedding's gradient is gathered once, the head's added up once. */
        assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_ALL_GATHER).calls, 80 * row[i].gathers + 1);
        assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_REDUCE_SCATTER).calls, 80 * row[i].scatters + 1);
        if (i < 2)                          /* forward and backward of a block */
            assert_int_equal(half * (4 + row[i].gathers + row[i].scatters), i ? 1291845632 : 939524096);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* One all-reduce takes the place of a reduce-scatter and an all-gather: 2 a block each way, and the ends'. */
static void without_sequence_parallelism_sums_are_of_all_positions(void **state)
{
    struct plan p = plan_of(model_70b, "8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8, \"sequence\": false }");
    struct schedules s = { 0 };
    struct count c;

    (void)state;
    lowered(&p, &s);
    c = counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_ALL_REDUCE);
    assert_int_equal(c.calls, 2 * 80 + 1);
    assert_int_equal(c.sent, c.calls * 234881024);
    c = counted(&s, GROUP_TENSOR, PHASE_FORWARD, COLL_ALL_REDUCE);
    assert_int_equal(c.calls, 2 * 80 + 1 + 3);          /* and the loss's */
    assert_int_equal(counted_whole(&s, GROUP_TENSOR, COLL_ALL_GATHER).calls, 0);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_REDUCE, -1).calls, 0);     /* norms see all positions */
    schedules_free(&s);
    plan_free(&p);
}

/* Three all-reduces of a number a token, in fp32, and none back; or all logits gathered, in bf16. */
static void the_loss_sends_three_numbers_a_token(void **state)
{
    struct plan p = plan_of("\"llama-3.1-8b\"", "4xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 4 }");
    struct plan q = plan_of("\"llama-3.1-8b\"", "4xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 4, \"loss_parallel\": false }");
    struct schedules s = { 0 };
    struct count c;

    (void)state;
    lowered(&p, &s);
    c = counted(&s, GROUP_TENSOR, PHASE_FORWARD, COLL_ALL_REDUCE);
    assert_int_equal(c.calls, 3);
    assert_int_equal(c.elems * 4, 32768);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_ALL_REDUCE).calls, 0);
    lowered(&q, &s);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_FORWARD, COLL_ALL_REDUCE).calls, 0);
    c = counted(&s, GROUP_TENSOR, PHASE_FORWARD, COLL_ALL_GATHER);
    assert_int_equal(c.calls, 2 * 32 + 2);
    assert_int_equal(c.elems, 8192LL * 128256);
    schedules_free(&s);
    plan_free(&p);
    plan_free(&q);
}

/* 2 a block and the last: each before the unit's copy-in, in fp32; in 2.9 in the gradient's own dtype. */
static void gradients_of_norms_are_added_up_one_by_one(void **state)
{
    static const struct { const char *version; enum dtype dt; } row[] = { { "2.15", DT_FP32 }, { "2.9", DT_BF16 } };

    (void)state;
    for (int i = 0; i < 2; i++) {
        char words[128];
        snprintf(words, sizeof words, "\"seq\": 8192, \"framework_version\": \"%s\", \"parallel\": { \"tensor\": 4 }", row[i].version);
        struct plan p = plan_of("\"llama-3.1-8b\"", "8xh100", words);
        struct schedules s = { 0 };
        struct count c;
        lowered(&p, &s);
        c = counted(&s, GROUP_TENSOR, PHASE_REDUCE, COLL_ALL_REDUCE);
        assert_int_equal(c.calls, 65);
        assert_int_equal(c.elems, 4096);
        assert_int_equal(c.sent, 65 * (4096 * dtype_bytes(row[i].dt) * 2 * 3 / 4));
        schedules_free(&s);
        plan_free(&p);
    }
}

/* A number for each parameter, over FSDP's ranks, then over the tensor-parallel ones; replicas hold the same. */
static void the_norm_of_gradients_is_a_vector_on_two_axes(void **state)
{
    static const char *const words[] = { "\"seq\": 8192, \"parallel\": { \"tensor\": 4 }",
                                         "\"seq\": 8192, \"shard_group\": 2, \"parallel\": { \"tensor\": 2 }" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan p = plan_of("\"llama-3.1-8b\"", "8xh100", words[i]);
        struct schedules s = { 0 };
        struct count c;
        lowered(&p, &s);
        c = counted(&s, i ? GROUP_SHARD : GROUP_DATA, PHASE_OPTIMIZER, COLL_ALL_REDUCE);
        assert_int_equal(c.calls, 1);
        assert_int_equal(c.elems, 9 * 32 + 3);
        c = counted(&s, GROUP_TENSOR, PHASE_OPTIMIZER, COLL_ALL_REDUCE);
        assert_int_equal(c.calls, 1);
        assert_int_equal(c.elems, 9 * 32 + 3);
        if (i)
            assert_int_equal(counted(&s, GROUP_REPLICA, PHASE_OPTIMIZER, -1).calls, 0);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* ---- what is refused ---- */

static void what_torchtitan_or_pytorch_refuses_is_refused_by_name(void **state)
{
    static const struct { const char *model, *words, *because; } row[] = {
        { "llama-3.1-8b", "\"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 16 }", "key/value heads" },
        { "llama-3.2-1b", "\"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 8 }", "two parameters of a tied embedding" },
        { "gpt2", "\"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 4 }", "llama's layers" },
        { "llama-3.1-8b", "\"strategy\": \"ddp\", \"parallel\": { \"tensor\": 4 }", "autocast" },
        { "llama-3.1-8b", "\"strategy\": \"fsdp\", \"kernels\": \"torch-eager\", \"parallel\": { \"tensor\": 4 }", "create_causal_mask()" },
        { "llama-3.1-8b", "\"strategy\": \"fsdp\", \"kernels\": \"torch-compile\", \"parallel\": { \"tensor\": 4, \"sequence\": false }", "parallel.sequence true" },
        { "llama-3.1-8b", "\"strategy\": \"fsdp\", \"parallel\": { \"tensor\": 4, \"async_tensor\": true }", "Async TP requires compile" },
        { "llama-3.1-70b", "\"strategy\": \"fsdp\", \"kernels\": \"torch-compile\", \"cluster\": \"4x4xh100\", \"parallel\": { \"tensor\": 8, \"async_tensor\": true }", "lie within nodes" },
        { "llama-3.1-8b", "\"strategy\": \"fsdp\", \"loss\": \"chunked\", \"parallel\": { \"tensor\": 4 }", "logits that lie on several ranks" },
        { "llama-3.1-8b", "\"strategy\": \"fsdp\", \"seq\": 1026, \"parallel\": { \"tensor\": 4 }", "does not divide" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[1024], why[512] = "";
        struct plan p;
        snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": \"%s\", \"cluster\": \"2x8xh100\", %s \"micro_batch\": 1, \"dialect\": \"torch\","
                 " \"precision\": \"bf16\", %s }", row[i].model, strstr(row[i].words, "\"seq\"") ? "" : "\"seq\": 1024,", row[i].words);
        json_t *j = json_loads(text, 0, NULL);
        assert_non_null(j);
        fail_capture(why, sizeof why);
        int rc = plan_from_json(j, "plan", &p);
        fail_capture(NULL, 0);
        json_decref(j);
        if (rc == 0 || !strstr(why, row[i].because))
            fail_msg("%s: refused with \"%s\", not \"%s\"", row[i].words, why, row[i].because);
    }
}

/* ---- beside DDP ---- */

/* One sum a norm and micro-step, behind all of backward; buckets after them.  What the parameters get waits till then: at the end of
 * a first micro-step every gradient is there once, later each twice. */
static void beside_ddp_gradients_wait_for_the_end_of_backward(void **state)
{
    static const char *const words[] = { "\"accumulation\": 1", "\"accumulation\": 3", "\"accumulation\": 3, \"sync_every_micro_step\": false" };

    (void)state;
    for (int i = 0; i < 6; i++) {
        char text[512];
        struct schedules s = { 0 };
        struct ledger l;
        snprintf(text, sizeof text, "\"strategy\": \"ddp\", \"precision\": \"fp32\", \"seq\": 256, \"clip\": null, \"parallel\": { \"tensor\": 4 }, "
                 "\"ddp\": { \"gradient_as_bucket_view\": %s }, %s", i % 2 ? "true" : "false", words[i / 2]);
        struct plan p = plan_of("\"llama-3.1-8b\"", "8xh100", text);
        lowered(&p, &s);
        int64_t sums = counted(&s, GROUP_TENSOR, PHASE_REDUCE, COLL_ALL_REDUCE).calls;
        assert_int_equal(sums, 65 * p.accumulation);
        for (int k = s.begin[SCHED_STEADY], reduced = 0; k < s.end[SCHED_STEADY] && i / 2 == 0; k++) {
            const struct op *o = &s.ops[k];
            reduced += o->kind == OP_COLL && o->u.coll.op == COLL_ALL_REDUCE && sched_group(&s, o)->is == GROUP_DATA;
            assert_true(!reduced || o->kind != OP_COMPUTE);
        }
        ledger_run(&s, &l);
        assert_int_equal(l.phase[SCHED_STEADY].bytes > 0, 1);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* ---- every option beside it ---- */

/* The lowest digit of a number whose digits have bases of their own. */
static int digit(int *number, int values)
{
    int d = *number % values;

    *number /= values;
    return d;
}

static void whatever_fsdp2_can_have_is_sound_beside_it(void **state)
{
    static const char *const unit[] = { "block", "half-block", "2 blocks", "model" };
    static const char *const recompute[] = { "none", "full", "selective", "op" };
    static const char *const more[] = { "", "\"accumulation\": 3,", "\"accumulation\": 3, \"sync_every_micro_step\": false,",
        "\"fsdp\": { \"reshard_after_forward\": false },", "\"shard_group\": 2,", "\"fsdp\": { \"reshard_after_forward\": 2 },",
        "\"framework_version\": \"2.9\",", "\"accumulation\": 2, \"sync_every_micro_step\": false, \"reduce_dtype\": \"bf16\",",
        "\"fsdp\": { \"root_reshard_after_forward\": true },", "\"fsdp\": { \"root_reshard_after_forward\": 2 }," };
    static const char *const model = "{ \"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_hidden_layers\": 4, \"intermediate_size\": 160, "
        "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 16, \"vocab_size\": 259, \"tie_word_embeddings\": false }";
    struct schedules s = { 0 };

    (void)state;
    for (int i = 0; i < 4 * 4 * 10 * 2 * 2; i++) {
        int n = i;
        char words[512];
        snprintf(words, sizeof words, "\"seq\": 64, \"unit\": \"%s\", \"recompute\": \"%s\", %s \"parallel\": { \"tensor\": 4, \"sequence\": %s, "
                 "\"loss_parallel\": %s }", unit[digit(&n, 4)], recompute[digit(&n, 4)], more[digit(&n, 10)],
                 digit(&n, 2) ? "true" : "false", digit(&n, 2) ? "true" : "false");
        struct plan p = plan_of(model, "2x8xh100", words);
        for (int64_t rank = 0; rank < 16; rank += 15) {     /* the last has fewer rows of the vocabulary */
            char why[256];
            assert_int_equal(lower(&p, rank, &s), 0);
            if (!schedules_check(&s, why, sizeof why))
                fail_msg("%s: rank %d: %s", words, (int)rank, why);
        }
        plan_free(&p);
    }
    schedules_free(&s);
}

/* ---- the papers' forms, by our own kernels ---- */

static struct plan paper_of(const char *model, const char *cluster, const char *words)
{
    char text[2048];
    struct plan p;
    json_t *j;

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": %s, \"cluster\": \"%s\", \"dialect\": \"paper\", \"seq\": 8192,"
             " \"micro_batch\": 1, \"precision\": \"bf16\", \"clip\": 1.0, %s }", model, cluster, words);
    j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    return p;
}

static int64_t sent(const struct schedules *s, enum phase phase)
{
    return counted(s, GROUP_TENSOR, phase, COLL_ALL_GATHER).sent + counted(s, GROUP_TENSOR, phase, COLL_REDUCE_SCATTER).sent;
}

/* Shoeybi et al.: f and g, two all-reduces a block each way, the embedding's and the head's, the loss's three. */
static void megatrons_block_sums_twice_each_way(void **state)
{
    struct plan p = paper_of(model_70b, "8xh100", "\"strategy\": \"ddp\", \"parallel\": { \"tensor\": 8 }");
    struct schedules s = { 0 };

    (void)state;
    assert_false(p.parallel.sequence);
    lowered(&p, &s);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_FORWARD, COLL_ALL_REDUCE).calls, 2 * 80 + 1 + 3);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_ALL_REDUCE).calls, 2 * 80 + 1);
    assert_int_equal(sent(&s, PHASE_FORWARD) + sent(&s, PHASE_BACKWARD), 0);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_REDUCE, -1).calls, 0);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_OPTIMIZER, COLL_ALL_REDUCE).elems, 1);     /* the norm, a scalar */
    schedules_free(&s);
    plan_free(&p);
}

/* Korthikanti et al.: what norms left is gathered again in backward, 10 halves a block and 5 at the ends. */
static void with_sequence_parallelism_it_gathers_again(void **state)
{
    struct plan p = paper_of(model_70b, "8xh100", "\"strategy\": \"ddp\", \"parallel\": { \"tensor\": 8, \"sequence\": true }");
    struct plan q = paper_of(model_70b, "8xh100", "\"strategy\": \"ddp\", \"recompute\": \"full\", \"parallel\": { \"tensor\": 8, \"sequence\": true }");
    struct schedules s = { 0 };
    struct count c;

    (void)state;
    lowered(&p, &s);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_ALL_GATHER).calls, 4 * 80 + 2);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_REDUCE_SCATTER).calls, 2 * 80 + 1);
    assert_int_equal(10 * 117440512LL, 1174405120);
    assert_int_equal(sent(&s, PHASE_FORWARD) + sent(&s, PHASE_BACKWARD), 94539612160);
    c = counted(&s, GROUP_TENSOR, PHASE_REDUCE, COLL_ALL_REDUCE);
    assert_int_equal(c.calls, 1);                       /* the gradients of all norms */
    assert_int_equal(c.elems, (2 * 80 + 1) * 8192);
    lowered(&q, &s);                                    /* and forward again, but for the last sum */
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_ALL_GATHER).calls, 6 * 80 + 2);
    assert_int_equal(counted(&s, GROUP_TENSOR, PHASE_BACKWARD, COLL_REDUCE_SCATTER).calls, 3 * 80 + 1);
    schedules_free(&s);
    plan_free(&p);
    plan_free(&q);
}

/* A block keeps nothing whole: an eighth of all of it (Korthikanti et al., equation 2); without sequence parallelism the two
 * norms' inputs and outputs and their statistics stay whole. */
static void megatrons_block_keeps_shares_only(void **state)
{
    struct plan p = paper_of(model_70b, "8xh100", "\"strategy\": \"ddp\"");
    struct program g = { 0 };
    int64_t n = 8192, h = 8192, all;

    (void)state;
    assert_int_equal(program_build(&p, &g), 0);
    all = g.piece[PIECE_BLOCK].saved;
    for (int sequence = 0; sequence < 2; sequence++) {
        struct plan q = paper_of(model_70b, "8xh100", sequence ? "\"strategy\": \"ddp\", \"parallel\": { \"tensor\": 8, \"sequence\": true }"
                                                               : "\"strategy\": \"ddp\", \"parallel\": { \"tensor\": 8 }");
        int64_t whole = sequence ? 0 : n * (4 * h * 2 + 2 * 4);
        assert_int_equal(program_build(&q, &g), 0);
        assert_int_equal(g.piece[PIECE_BLOCK].saved, (all - whole) / 8 + whole);
        plan_free(&q);
    }
    program_free(&g);
    plan_free(&p);
}

/* Every strategy of the papers, with and without, is sound. */
static void every_papers_strategy_takes_it(void **state)
{
    static const char *const strategy[] = { "ddp", "zero1", "zero2", "zero3", "fsdp" };
    static const char *const more[] = { "", "\"recompute\": \"full\",", "\"recompute\": \"selective\", \"accumulation\": 3," };
    struct schedules s = { 0 };

    (void)state;
    for (int i = 0; i < 5; i++)
        for (int m = 0; m < 3; m++)
            for (int how = 0; how < 4; how++) {
                char words[256];
                snprintf(words, sizeof words, "\"strategy\": \"%s\", %s \"parallel\": { \"tensor\": 4, \"sequence\": %s, \"loss_parallel\": %s }",
                         strategy[i], more[m], how & 1 ? "true" : "false", how & 2 ? "true" : "false");
                struct plan p = paper_of("\"llama-3.1-8b\"", "8xh100", words);
                lowered(&p, &s);
                plan_free(&p);
            }
    schedules_free(&s);
}

/* ---- memory ---- */

/* Vector 19: what a block keeps with t ranks is (all - 4 sbh) / t + 4 sbh, since the two gathered inputs, 2 bytes each, stay whole (the
 * vector's `all` is a CPU's, 46.625 sbh).  Vector 21: so 80 blocks of 70B keep 80 x 4 x 8192 x 8192 bytes however many ranks there are. */
static void gathered_inputs_stay_whole(void **state)
{
    static const int64_t ranks[] = { 2, 4, 8 };
    struct plan p = plan_of("\"llama-3.1-8b\"", "8xh100", "\"seq\": 8192");
    struct program g = { 0 };
    int64_t sbh = 8192 * 4096, all;

    (void)state;
    assert_int_equal(program_build(&p, &g), 0);
    all = g.piece[PIECE_BLOCK].saved;
    for (int i = 0; i < 3; i++) {
        char words[128];
        snprintf(words, sizeof words, "\"seq\": 8192, \"parallel\": { \"tensor\": %lld }", (long long)ranks[i]);
        struct plan q = plan_of("\"llama-3.1-8b\"", "8xh100", words);
        int64_t want = (all - 4 * sbh) / ranks[i] + 4 * sbh;
        assert_int_equal(program_build(&q, &g), 0);
        /* to some allocations' rounding, and to the random generator's state, which every rank has */
        assert_in_range(g.piece[PIECE_BLOCK].saved, want - 4096, want + 4096);
        plan_free(&q);
    }
    plan_free(&p);
    p = plan_of(model_70b, "8xh100", "\"seq\": 8192");
    struct plan cut = plan_of(model_70b, "8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8 }");
    sbh = 8192 * 8192;
    assert_int_equal(program_build(&p, &g), 0);
    all = g.piece[PIECE_BLOCK].saved;
    assert_int_equal(program_build(&cut, &g), 0);
    int64_t whole = 80 * (g.piece[PIECE_BLOCK].saved - (all - 4 * sbh) / 8);
    assert_in_range(whole, 21474836480 - 80 * 4096, 21474836480 + 80 * 4096);
    program_free(&g);
    plan_free(&cut);
    plan_free(&p);
}

/* Vector 24: V x h in bf16, on every rank: DTensor's gradient of the embedding. */
static void the_embeddings_gradient_is_of_the_whole_table(void **state)
{
    static const struct { const char *model; int64_t bytes; } row[] = { { "\"llama-3.1-8b\"", 1050673152 },
                                                                        { NULL, 2101346304 }, { "\"llama-3.1-405b\"", 4202692608 } };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p = plan_of(row[i].model ? row[i].model : model_70b, "8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8 }");
        struct schedules s = { 0 };
        bool found = false;
        lowered(&p, &s);
        for (int b = 0; b < s.nbufs; b++)
            if (!strcmp(s.bufs[b].what, "unsharded grads of the whole table")) {
                assert_int_equal(s.bufs[b].bytes, row[i].bytes);
                found = true;
            }
        assert_true(found);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* fp32 log-probabilities of a rank's columns: 4 T V / t; logits are not kept. */
static void log_probabilities_are_kept_by_columns(void **state)
{
    struct plan p = plan_of("\"llama-3.1-8b\"", "8xh100", "\"seq\": 8192, \"parallel\": { \"tensor\": 8 }");
    struct program g = { 0 };
    int64_t gathered = 2 * 8192 * 4096;             /* the head's input */

    (void)state;
    assert_int_equal(program_build(&p, &g), 0);
    /* and the last norm's rows: 4 + 2 bytes an element */
    assert_in_range(g.piece[PIECE_HEAD].saved, 525336576 + gathered, 525336576 + gathered + 8192 * 4096 / 8 * 6 + (1 << 20));
    program_free(&g);
    plan_free(&p);
}

/* ---- recorded steps ---- */

/* The trackers go on counting the batch, some kilobytes, after backward has released it here. */
#define FOLLOWED 1e-3

/* What autograd keeps of a block that is not recomputed, but for its first, and the first that keeps positions: to the byte.  The recorder leaves parameters
 * out, but not FSDP's unsharded ones. */
static void check_saved(const char *name, const json_t *line, const struct plan *p, const struct schedules *s)
{
    int64_t want = json_integer_value(json_object_get(json_object_get(line, "saved"), json_object_get(json_object_get(line, "saved"), "block 2") ? "block 2" : "block 1")), unsharded = 0;

    for (int b = 0; b < s->nbufs; b++)
        if (!strcmp(s->bufs[b].what, "unsharded params") && s->bufs[b].of)
            unsharded = s->bufs[b].bytes;
    for (int t = p->model.block0; t < p->model.block0 + p->model.per_block; t++)
        if (p->model.tensors[t].is_bias)            /* which no gradient needs */
            unsharded -= round_up(p->model.tensors[t].numel / p->parallel.tensor * dtype_bytes(plan_recipe(p).used), 512);
    if (s->program.piece[PIECE_BLOCK].saved + unsharded != want)
        fail_msg("%s: a block keeps %lld bytes and %lld of parameters, recorded: %lld", name,
                 (long long)s->program.piece[PIECE_BLOCK].saved, (long long)unsharded, (long long)want);
}

/* 1: compared; 0: recorded before it is modelled, or of context parallelism. */
static int step_agrees(const json_t *line, const json_t *models)
{
    json_t *plan = json_object_get(line, "plan");
    const char *name = json_string_value(json_object_get(line, "name"));
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;

    if (!plan || json_object_get(json_object_get(plan, "parallel"), "context"))
        return 0;
    json_object_set(plan, "model", json_object_get(models, json_string_value(json_object_get(plan, "model"))));
    assert_int_equal(plan_from_json(plan, name, &p), 0);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&s, &l);
    double got = (double)l.phase[SCHED_STEADY].bytes;
    double want = (double)json_integer_value(json_object_get(json_object_get(line, "steady"), "peak_total"));
    if (fabs(got - want) > FOLLOWED * want)
        fail_msg("%s: %.0f bytes, PyTorch counts %.0f (%+.3f %%)", name, got, want, 100 * (got - want) / want);
    if (p.recompute == RECOMPUTE_NONE && json_object_get(line, "saved"))
        check_saved(name, line, &p, &s);
    schedules_free(&s);
    plan_free(&p);
    return 1;
}

/* How many of a file were compared. */
static int steps_agree(const char *path)
{
    FILE *f = fopen(path, "r");
    char text[32768];
    json_t *head;
    int n = 0;

    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    head = json_loads(text, 0, NULL);
    while (fgets(text, sizeof text, f)) {
        json_t *line = json_loads(text, 0, NULL);
        n += step_agrees(line, json_object_get(head, "models"));
        json_decref(line);
    }
    json_decref(head);
    fclose(f);
    return n;
}

static void steps_take_what_pytorch_counted(void **state)
{
    (void)state;
    assert_true(steps_agree("tests/golden/grid/memory.jsonl") >= 30);
    assert_int_equal(steps_agree("tests/golden/grid/offload.jsonl"), 14);
}

static void automodels_adapters_take_what_pytorch_counted(void **state)
{
    (void)state;
    assert_true(steps_agree("tests/golden/grid/automodel.jsonl") >= 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_of_70b_has_an_eighth_of_a_block_and_whole_norms),
        cmocka_unit_test(units_of_8b_are_padded_by_their_local_rows),
        cmocka_unit_test(a_block_of_70b_sends_four_halves_forward_and_four_backward),
        cmocka_unit_test(a_model_of_8b_on_4_ranks_sends_as_much_back_as_forward),
        cmocka_unit_test(recompute_gathers_again),
        cmocka_unit_test(without_sequence_parallelism_sums_are_of_all_positions),
        cmocka_unit_test(the_loss_sends_three_numbers_a_token),
        cmocka_unit_test(gradients_of_norms_are_added_up_one_by_one),
        cmocka_unit_test(the_norm_of_gradients_is_a_vector_on_two_axes),
        cmocka_unit_test(what_torchtitan_or_pytorch_refuses_is_refused_by_name),
        cmocka_unit_test(beside_ddp_gradients_wait_for_the_end_of_backward),
        cmocka_unit_test(whatever_fsdp2_can_have_is_sound_beside_it),
        cmocka_unit_test(megatrons_block_sums_twice_each_way),
        cmocka_unit_test(with_sequence_parallelism_it_gathers_again),
        cmocka_unit_test(megatrons_block_keeps_shares_only),
        cmocka_unit_test(every_papers_strategy_takes_it),
        cmocka_unit_test(gathered_inputs_stay_whole),
        cmocka_unit_test(the_embeddings_gradient_is_of_the_whole_table),
        cmocka_unit_test(log_probabilities_are_kept_by_columns),
        cmocka_unit_test(steps_take_what_pytorch_counted),
        cmocka_unit_test(automodels_adapters_take_what_pytorch_counted),
    };
    return cmocka_run_group_tests_name("tensor parallelism", tests, NULL, NULL);
}
