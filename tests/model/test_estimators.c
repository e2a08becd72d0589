/* test_estimators.c -- DeepSpeed's memory estimators, to the byte. */
#include "tests/check.h"
#include "base/fail.h"
#include "model/exchange/estimators.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN "tests/golden/estimators/estimators.txt"

static char said[256];

static struct estimator_input small(int64_t gpus_per_node, int64_t nodes)
{
    return (struct estimator_input){ 125000000, 40000000, gpus_per_node, nodes,
                                     ESTIMATOR_BUFFER_FACTOR };
}

static void is(struct estimate e, int64_t cpu, int64_t gpu)
{
    assert_int_equal(e.cpu_bytes, cpu);
    assert_int_equal(e.gpu_bytes, gpu);
}

/* 125M parameters, largest layer 40M, on one node of 8: by hand.  18*125e6/8 = 281.25e6. */
static void eight_gpus_by_hand(void **state)
{
    struct estimator_input in = small(8, 1);
    struct estimate_row    r[ESTIMATE_ROWS];

    (void)state;
    assert_int_equal(estimate_all(&in, r), 0);
    is(r[0].zero_init, 6000000000, 250000000 + 281250000);      /* 125e6*4*8*1.5 */
    is(r[1].zero_init, 6000000000, 250000000);                  /* 125e6*max(32,16)*1.5 */
    is(r[1].no_zero_init, 6000000000, 250000000);
    is(r[2].zero_init, 1920000000, 160000000 + 281250000);      /* 40e6*4*8*1.5 */
    is(r[2].no_zero_init, 6000000000, 441250000);
    is(r[3].zero_init, 3000000000, 160000000 + 31250000);       /* 125e6*16*1.5; 2*125e6/8 */
    is(r[3].no_zero_init, 6000000000, 191250000);               /* 125e6*max(32,16)*1.5 */
    is(r[4].zero_init, 3375000000, 160000000);                  /* 125e6*18*1.5 */
    is(r[4].no_zero_init, 6000000000, 160000000);
    assert_string_equal(r[3].name, "zero3_offload_optimizer");
    assert_string_equal(r[4].name, "zero3_offload_all");
}

/* With two nodes zero2's host term counts all 16 GPUs, zero3's only a node's share. */
static void two_nodes_by_hand(void **state)
{
    struct estimator_input in = small(8, 2);
    struct estimate_row    r[ESTIMATE_ROWS];

    (void)state;
    assert_int_equal(estimate_all(&in, r), 0);
    is(r[0].zero_init, 6000000000, 390625000);
    is(r[1].zero_init, 12000000000, 250000000);
    is(r[2].zero_init, 1920000000, 300625000);
    is(r[3].zero_init, 1500000000, 175625000);
    is(r[4].zero_init, 1687500000, 160000000);
}

static int64_t next(char **s)
{
    return strtoll(*s, s, 10);
}

static void check_line(char *s)
{
    struct estimator_input in;
    struct estimate e;

    in.params = next(&s);
    in.largest_layer = next(&s);
    in.gpus_per_node = next(&s);
    in.nodes = next(&s);
    in.buffer_factor = strtod(s, &s);
    for (int i = 0; i < 8; i++) {
        static const enum estimate_offload offload[] = {
            ESTIMATE_OFFLOAD_ALL, ESTIMATE_OFFLOAD_ALL, ESTIMATE_OFFLOAD_OPTIMIZER,
            ESTIMATE_OFFLOAD_OPTIMIZER, ESTIMATE_OFFLOAD_NONE, ESTIMATE_OFFLOAD_NONE };
        int64_t cpu = next(&s), gpu = next(&s);

        if (i < 2)
            assert_int_equal(estimate_zero2(&in, i == 0, &e), 0);
        else
            assert_int_equal(estimate_zero3(&in, offload[i - 2], i % 2 == 0, &e), 0);
        if (e.cpu_bytes != cpu || e.gpu_bytes != gpu)
            fail_msg("call %d of P=%" PRId64 " LL=%" PRId64 " gpus=%" PRId64 " nodes=%" PRId64
                     " abf=%a: cpu %" PRId64 " for %" PRId64 ", gpu %" PRId64 " for %" PRId64,
                     i, in.params, in.largest_layer, in.gpus_per_node, in.nodes,
                     in.buffer_factor, e.cpu_bytes, cpu, e.gpu_bytes, gpu);
    }
}

/* What the package itself computed, Python's roundings included. */
static void deepspeed_agrees_to_the_byte(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    char  line[1024];
    int   cases = 0;

    (void)state;
    if (!f)
        fail_msg("%s cannot be read: run from the repository's root", GOLDEN);
    while (fgets(line, sizeof line, f))
        if (line[0] != '#') {
            check_line(line);
            cases++;
        }
    fclose(f);
    assert_true(cases >= 800);
}

/* Above 2^53 not every integer is a double.  18*(2^53+8)/3 = 6*2^53+48 is one, and must
 * come out; rounding 18*(2^53+8) = 18*2^53+144 first (to a multiple of 32, +128) and then
 * its third, +42.7, to a multiple of 8 gives +40. */
static void the_quotient_is_rounded_once(void **state)
{
    struct estimator_input in = { ((int64_t)1 << 53) + 8, 1, 3, 1, 0 };
    struct estimate e;

    (void)state;
    assert_int_equal(estimate_zero2(&in, false, &e), 0);
    assert_int_equal(e.gpu_bytes - 2 * in.params, 6 * ((int64_t)1 << 53) + 48);
}

static void refused(struct estimator_input in, const char *field)
{
    struct estimate e;

    fail_capture(said, sizeof said);
    assert_int_equal(estimate_zero3(&in, ESTIMATE_OFFLOAD_NONE, true, &e), -1);
    fail_capture(NULL, 0);
    if (!strstr(said, field))
        fail_msg("no '%s' in: %s", field, said);
}

static void nonsense_is_refused_by_field(void **state)
{
    struct estimator_input in = small(8, 1);

    (void)state;
    in.params = 0;
    refused(in, "params");
    in.params = INT64_MAX;
    refused(in, "params");
    in = small(8, 1);
    in.largest_layer = -1;
    refused(in, "largest_layer");
    refused(small(0, 1), "gpus_per_node");
    refused(small(8, 0), "nodes");
    refused(small(100000, 1000), "gpus_per_node * nodes");
    refused(small((int64_t)1 << 40, (int64_t)1 << 40), "gpus_per_node * nodes");
    in = small(8, 1);
    in.buffer_factor = -1;
    refused(in, "buffer_factor");
    in.buffer_factor = (double)NAN;
    refused(in, "buffer_factor");
}

static void a_result_beyond_63_bits_is_refused(void **state)
{
    struct estimator_input in = { (int64_t)1 << 59, 1, 1000, 1, 1.5 };
    struct estimate e;

    (void)state;
    fail_capture(said, sizeof said);
    assert_int_equal(estimate_zero2(&in, true, &e), -1);
    in.gpus_per_node = 1;       /* 2*2^59 + 18*2^59 > 2^63 */
    assert_int_equal(estimate_zero2(&in, false, &e), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "2^63"));
}

/* GPT-2: the token embedding, 50257*768; the tied head has no parameters of its own. */
static void the_largest_layer_counts_direct_parameters(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(model_load("gpt2", &m), 0);
    assert_int_equal(estimator_largest_layer(&m), 50257 * 768);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_gpus_by_hand),
        cmocka_unit_test(two_nodes_by_hand),
        cmocka_unit_test(deepspeed_agrees_to_the_byte),
        cmocka_unit_test(the_quotient_is_rounded_once),
        cmocka_unit_test(nonsense_is_refused_by_field),
        cmocka_unit_test(a_result_beyond_63_bits_is_refused),
        cmocka_unit_test(the_largest_layer_counts_direct_parameters),
    };
    return cmocka_run_group_tests_name("model/estimators", tests, NULL, NULL);
}
