/* test_sharding.c -- what a buffer holds of a list of tensors, cut in the ways that strategies have. */
#include "tests/model/plans.h"

#include "model/schedule/sharding.h"

/* Tensors of 5, 3 and 8 elements. */
static const struct tensor tensors[] = { { .numel = 5 }, { .numel = 3 }, { .numel = 8 } };

static struct sharding begin(struct schedules *s)
{
    s->detailed = true;
    sched_layout(s, 0);
    return (struct sharding){ s, tensors, HOLDS_PARAM, DT_FP32, .at = 0 };
}

static void is_slice(const struct schedules *s, int i, int tensor, int64_t from, int64_t n, int64_t at)
{
    assert_true(i < s->nslices);
    assert_int_equal(s->slices[i].tensor, tensor);
    assert_int_equal(s->slices[i].n, n);
    assert_int_equal(s->slices[i].at, at);
    if (n > 0)
        assert_int_equal(s->slices[i].from, from);
}

static void whole_tensors_lie_in_places_that_are_rounded_up(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct sharding x = begin(&s);

    for (int t = 0; t < 3; t++)
        sharding_whole(&x, t, 16);
    is_slice(&s, 0, 0, 0, 5, 0);            /* 20 bytes, of 32 */
    is_slice(&s, 1, 1, 0, 3, 32);           /* 12 of 16 */
    is_slice(&s, 2, 2, 0, 8, 48);
    assert_int_equal(x.at, 80);
    schedules_free(&s);
}

/* Four ranks have 2, 1 and 2 elements of each; the last one none of the first two. */
static void a_ranks_parts_end_where_their_tensor_ends(void **state)
{
    (void)state;
    static const int64_t part[] = { 2, 1, 2 }, had[4][3] = { { 2, 1, 2 }, { 2, 1, 2 }, { 1, 1, 2 }, { 0, 0, 2 } };

    for (int64_t rank = 0; rank < 4; rank++) {
        struct schedules s = { 0 };
        struct sharding x = begin(&s);
        for (int t = 0; t < 3; t++)
            sharding_part(&x, t, part[t], rank, part[t] * 4);
        for (int t = 0; t < 3; t++)
            is_slice(&s, t, t, rank * part[t], had[rank][t], t == 0 ? 0 : t == 1 ? 8 : 12);
        assert_int_equal(x.at, 20);
        schedules_free(&s);
    }
}

/* Of 16 elements three ranks have 6 each: two are padding. */
static void ranges_of_tensors_as_one_array_have_each_element_once(void **state)
{
    (void)state;
    int64_t sum = 0;

    for (int64_t rank = 0; rank < 3; rank++) {
        struct schedules s = { 0 };
        struct sharding x = begin(&s);
        x.from = 6 * rank;
        x.n = 6;
        for (int t = 0; t < 3; t++)
            sum += sharding_flat(&x, t);
        if (rank == 0) {
            is_slice(&s, 0, 0, 0, 5, 0);
            is_slice(&s, 1, 1, 0, 1, 20);
        } else if (rank == 1) {
            is_slice(&s, 0, 1, 1, 2, 0);
            is_slice(&s, 1, 2, 0, 4, 8);
        } else {
            is_slice(&s, 0, 2, 4, 4, 0);
        }
        assert_int_equal(s.nslices, rank < 2 ? 2 : 1);
        schedules_free(&s);
    }
    assert_int_equal(sum, 16);
}

static void a_buffer_that_begins_with_padding_has_a_place(void **state)
{
    (void)state;
    struct schedules s = { 0 };
    struct sharding x = begin(&s);

    x.at = 100;
    x.from = 16;
    x.n = 6;
    sharding_begins(&x, 0);
    for (int t = 0; t < 3; t++)
        assert_int_equal(sharding_flat(&x, t), 0);
    assert_int_equal(s.nslices, 1);
    is_slice(&s, 0, 0, 0, 0, 100);
    schedules_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_tensors_lie_in_places_that_are_rounded_up),
        cmocka_unit_test(a_ranks_parts_end_where_their_tensor_ends),
        cmocka_unit_test(ranges_of_tensors_as_one_array_have_each_element_once),
        cmocka_unit_test(a_buffer_that_begins_with_padding_has_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
