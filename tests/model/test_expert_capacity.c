/* How many rows an expert takes of a rank's tokens, at most. */
#include "tests/check.h"

#include "model/plan/expert_capacity.h"
#include "model/program/program.h"

/* Vector 72: 4096 tokens that take 2 of 8 experts, 1.25 times the mean of 1024: 1280 rows by Megatron-LM's rule and by DeepSpeed's. */
static void vector_72_an_expert_takes_1280_rows(void **state)
{
    (void)state;
    assert_int_equal(expert_capacity(4096, 2, 8, 1.25, 0), 1280);
    assert_int_equal(expert_capacity(4096, 2, 8, 1.25, 4), 1280);
}

/* A part of a row counts as one; DeepSpeed's least is 4. */
static void rows_are_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(expert_capacity(100, 2, 8, 1.1, 0), 28);
    assert_int_equal(expert_capacity(8, 1, 8, 1, 0), 1);
    assert_int_equal(expert_capacity(8, 1, 8, 1, 4), 4);
}

/* Elements that a block's forward hands to other ranks' experts. */
static int64_t handed_on(const char *context, const char *capacity)
{
    struct program g = { 0 };
    struct plan p;
    char text[800];
    int64_t elems = 0;

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"model\": \"mixtral-8x7b\", \"cluster\": \"4x8xh100\", \"seq\": 4096, \"micro_batch\": 1,"
             " \"dialect\": \"megatron\", \"precision\": \"bf16\", \"strategy\": \"zero1\", \"parallel\": { \"tensor\": 4, \"sequence\": true,"
             " \"context\": %s, \"expert\": 4, \"expert_tensor\": 4 }, \"megatron\": { %s } }", context, capacity);
    json_t *j = json_loads(text, 0, NULL);
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    assert_int_equal(program_build(&p, &g), 0);
    const struct piece *block = &g.piece[PIECE_BLOCK];
    for (int i = 0; i < block->ncollectives[PASS_FORWARD]; i++) {
        const struct collective *c = &block->collectives[PASS_FORWARD][i];
        if (c->op == COLL_ALL_TO_ALL && c->elems % (4096 * 4) == 0 && c->elems > elems)
            elems = c->elems;
    }
    program_free(&g);
    plan_free(&p);
    json_decref(j);
    return elems;
}

/* A capacity of the mean takes as many rows as are there, in a context of two ranks as in one: 1024 and 512 tokens of a rank, two experts each. */
static void a_context_halves_the_capacity_once(void **state)
{
    static const char *const padded = "\"moe_expert_capacity_factor\": 1, \"moe_pad_expert_input_to_capacity\": true";

    (void)state;
    assert_int_equal(handed_on("1", ""), 2 * 1024 * 4096);
    assert_int_equal(handed_on("1", padded), 2 * 1024 * 4096);
    assert_int_equal(handed_on("2", ""), 2 * 512 * 4096);
    assert_int_equal(handed_on("2", padded), 2 * 512 * 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_72_an_expert_takes_1280_rows),
        cmocka_unit_test(rows_are_rounded_up),
        cmocka_unit_test(a_context_halves_the_capacity_once),
    };

    return cmocka_run_group_tests_name("model/expert_capacity", tests, NULL, NULL);
}
