/* Quantisers, casts to fp16 and PowerSGD's matrices have series of their own: each here takes another time for a byte. */
#include "sim/price/coded_cost.h"
#include "tests/check.h"

#include <jansson.h>

#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"

enum { MiB = 1 << 20 };

static double per_byte(enum measured_pass pass) { return 1e-9 * (1 + (double)pass); }

struct machine { struct measured_device d; struct measured_bytes bytes[NMEASURED_PASS]; };

static void measure(struct machine *m)
{
    for (int i = 0; i < NMEASURED_PASS; i++)
        m->bytes[i] = (struct measured_bytes){ (enum measured_pass)i, MiB, per_byte((enum measured_pass)i) * MiB, 0, KERNELS_DPX };
    m->d = (struct measured_device){ .bytes = m->bytes, .nbytes = NMEASURED_PASS };
}

static enum measured_pass pass_of(const struct plan *p, enum copy_fn fn, int bits, int64_t reads, int64_t writes)
{
    struct quant quants[2] = { { 0 }, { .bits = bits } };
    struct schedules s = { .quants = quants, .nquants = 2 };
    struct op o = { .kind = OP_COPY, .u.copy = { .fn = fn, .quant = bits > 0, .reads = reads, .writes = writes, .scale = 1 } };

    return coded_pass(p, &s, &o);
}

static void codes_go_by_their_bits(void **state)
{
    struct plan p = { .precision = DT_BF16 };

    (void)state;
    assert_int_equal(pass_of(&p, COPY_QUANTIZE, 8, 2, 1), MP_QUANTIZE8);
    assert_int_equal(pass_of(&p, COPY_QUANTIZE, 4, 4, 1), MP_QUANTIZE4);
    assert_int_equal(pass_of(&p, COPY_DEQUANTIZE, 8, 1, 2), MP_DEQUANTIZE8);
    assert_int_equal(pass_of(&p, COPY_DEQUANTIZE, 4, 1, 4), MP_DEQUANTIZE4);
    assert_int_equal(pass_of(&p, COPY_REQUANTIZE, 4, 2, 1), MP_REQUANTIZE4);
    assert_int_equal(pass_of(&p, COPY_MEAN, 0, 4, 2), MP_MEAN_FP16);
    assert_int_equal(pass_of(&p, COPY_ADD, 0, 4, 2), NMEASURED_PASS);
}

/* An entry has bytes, no dtypes: the plan says what 16 bits are. */
static void casts_go_by_what_is_sent(void **state)
{
    struct plan p = { .precision = DT_FP32, .strategy = STRAT_DDP, .dialect = DIALECT_TORCH };

    (void)state;
    assert_int_equal(pass_of(&p, COPY_SET, 0, 4, 2), NMEASURED_PASS);
    p.ddp.comm_hook = HOOK_BF16;
    assert_int_equal(pass_of(&p, COPY_SET, 0, 4, 2), MP_CAST);
    p.ddp.comm_hook = HOOK_FP16;
    assert_int_equal(pass_of(&p, COPY_SET, 0, 2, 4), MP_CAST_FP16);
    assert_int_equal(pass_of(&p, COPY_SET, 0, 4, 4), NMEASURED_PASS);
    p = (struct plan){ .precision = DT_FP32, .strategy = STRAT_ZERO3, .dialect = DIALECT_DEEPSPEED };
    assert_int_equal(pass_of(&p, COPY_SET, 0, 4, 2), NMEASURED_PASS);
    p.ds.zero_quantized_weights = true;
    assert_int_equal(pass_of(&p, COPY_SET, 0, 4, 2), MP_CAST_FP16);
    p.precision = DT_BF16;
    assert_int_equal(pass_of(&p, COPY_SET, 0, 4, 2), MP_CAST);
}

/* 512 x 256 and 128 x 1024 numbers, of a rank. */
static double seconds_of(const struct machine *m, enum copy_fn fn, int64_t rank)
{
    struct narrow narrows[] = { { .rows = 512, .cols = 256, .rank = rank }, { .rows = 128, .cols = 1024, .rank = rank } };
    struct schedules s = { .narrows = narrows };
    struct op o = { .kind = OP_COPY, .u.copy = { .fn = fn, .narrows = 2, .reads = 2 * MiB, .writes = MiB } };
    struct estimate e;

    assert_true(coded_matrices(&m->d, &s, &o, &e));
    return e.s;
}

static void powersgd_goes_by_its_matrices(void **state)
{
    static struct machine m;
    double numbers = 512 * 256 + 128 * 1024, narrow = 4 * (512 + 256 + 128 + 1024);

    (void)state;
    measure(&m);
    for (int64_t rank = 1; rank <= 4; rank *= 2)        /* they live off M */
        assert_close(seconds_of(&m, COPY_P_OF_Q, rank), 4 * (numbers + narrow) * per_byte(MP_NARROW_P), 1e-12);
    assert_close(seconds_of(&m, COPY_Q_OF_P, 8), 2 * 4 * (numbers + narrow) * per_byte(MP_NARROW_Q), 1e-12);
    assert_close(seconds_of(&m, COPY_M_OF_BOTH, 4), 4 * (numbers + narrow) * per_byte(MP_NARROW_M), 1e-12);
    assert_close(seconds_of(&m, COPY_ORTHOGONAL_P, 4), 8 * 4 * (512 + 128) * per_byte(MP_ORTHOGONAL), 1e-12);
    assert_close(seconds_of(&m, COPY_ORTHOGONAL_Q, 8), 4 * 8 * 4 * (256 + 1024) * per_byte(MP_ORTHOGONAL), 1e-12);
    assert_close(seconds_of(&m, COPY_LOST, 4), MiB * (2 * per_byte(MP_COPY) + 3 * per_byte(MP_ADD)), 1e-12);
}

/* An older calibration has no such series: then the prior stands. */
static void what_was_not_timed_is_not_priced(void **state)
{
    struct measured_device none = { 0 };
    struct narrow one = { .rows = 8, .cols = 8, .rank = 1 };
    struct schedules s = { .narrows = &one };
    struct op o = { .kind = OP_COPY, .u.copy = { .fn = COPY_P_OF_Q, .narrows = 1 } };
    struct estimate e;

    (void)state;
    assert_false(coded_matrices(&none, &s, &o, &e));
    o.u.copy.fn = COPY_LOST;
    assert_false(coded_matrices(&none, &s, &o, &e));
    o.u.copy.fn = COPY_SET;
    assert_false(coded_matrices(&none, &s, &o, &e));
}

/* The schedule of a prediction, which has no layouts, has the matrices. */
static void a_whole_plan_is_priced(void **state)
{
    static const char text[] =
        "{\"dpx_plan\": 1, \"model\": {\"model_type\": \"gpt2\", \"n_layer\": 3, \"n_embd\": 64, \"n_head\": 2, \"n_positions\": 64,"
        "\"vocab_size\": 256, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0}, \"cluster\": \"localhost:2\","
        "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"kernels\": \"dpx\", \"seq\": 64, \"micro_batch\": 1, \"precision\": \"fp32\","
        "\"ddp\": {\"comm_hook\": \"powerSGD_hook\", \"PowerSGDState\": {\"matrix_approximation_rank\": 4, \"start_powerSGD_iter\": 2}}}";
    static struct machine quick, slow;
    json_t *j = json_loads(text, 0, NULL);
    struct evaluation e;
    struct timing t[2];
    struct plan p;

    (void)state;
    assert_int_equal(plan_from_json(j, "test", &p), 0);
    json_decref(j);
    measure(&quick);
    measure(&slow);
    for (int i = 0; i < NMEASURED_PASS; i++)
        if (slow.bytes[i].pass == MP_NARROW_Q)
            slow.bytes[i].s = 1;        /* for a MiB */
    for (int i = 0; i < 2; i++) {
        p.cluster.measured = i ? &slow.d : &quick.d;
        assert_int_equal(evaluate(&p, &e), 0);
        assert_int_equal(simulate_plan(&p, &e, &t[i], NULL), 0);
        evaluation_free(&e);
    }
    /* Every number of the model's 2-D tensors is read once by Q = M' P, at a second for a MiB: 3 blocks of 12 * 64^2, and the embeddings. */
    double least = 4. * (3 * 12 * 64 * 64 + (256 + 64) * 64) / MiB;
    assert_true(t[1].line.step_s - t[0].line.step_s > least && t[1].line.step_s - t[0].line.step_s < 1.3 * least);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_go_by_their_bits),
        cmocka_unit_test(casts_go_by_what_is_sent),
        cmocka_unit_test(powersgd_goes_by_its_matrices),
        cmocka_unit_test(what_was_not_timed_is_not_priced),
        cmocka_unit_test(a_whole_plan_is_priced),
    };
    return cmocka_run_group_tests_name("sim/coded_cost", tests, NULL, NULL);
}
