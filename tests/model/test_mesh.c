/* Groups of a mesh against enumeration: every rank's coordinates are counted by nested loops, and a
 * group's instances are found by comparing coordinates, which shares nothing with mesh.c. */
#include "tests/check.h"
#include "model/cluster/mesh.h"

#include <stdlib.h>
#include <string.h>

/* torchtitan's and Megatron's orders, slowest first. */
static const enum mesh_axis titan[] = { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_CONTEXT, AXIS_EXPERT, AXIS_TENSOR };
static const enum mesh_axis megatron[] = { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_EXPERT, AXIS_CONTEXT, AXIS_TENSOR };
enum { MAX_WORLD = 8192 };

static struct mesh mesh_from(const enum mesh_axis *order, const int64_t size[NAXIS])
{
    struct mesh m;

    memcpy(m.order, order, sizeof m.order);
    memcpy(m.size, size, sizeof m.size);
    return m;
}

static struct mesh replica_by_shard(int64_t replicas, int64_t shard)
{
    return mesh_from(titan, (int64_t[NAXIS]){ [AXIS_PIPE] = 1, [AXIS_REPLICA] = replicas, [AXIS_SHARD] = shard,
                                              [AXIS_CONTEXT] = 1, [AXIS_EXPERT] = 1, [AXIS_TENSOR] = 1 });
}

/* coordinate[r][axis], by counting as an odometer does: the last axis of the order turns fastest. */
static int16_t coordinate[MAX_WORLD][NAXIS];
static void count_ranks(const struct mesh *m)
{
    int16_t at[NAXIS] = { 0 };

    for (int64_t r = 0; r < mesh_world(m); r++) {
        memcpy(coordinate[r], at, sizeof at);
        for (int i = NAXIS - 1; i >= 0 && ++at[m->order[i]] == m->size[m->order[i]]; i--)
            at[m->order[i]] = 0;
    }
}

static bool together(int64_t a, int64_t b, unsigned axes)
{
    for (int i = 0; i < NAXIS; i++)
        if (!(axes & MESH_AXIS(i)) && coordinate[a][i] != coordinate[b][i])
            return false;
    return true;
}

/* One rank's instance, and how it lies, by comparing with every rank of the world. */
static void instance_by_enumeration(const struct mesh *m, const struct mesh_group *g, unsigned axes, int64_t rank,
                                    int64_t per_node)
{
    int64_t world = mesh_world(m), n = 0, nodes = 0, most = 0, least = world, here = 0, node = -1;
    struct mesh_lie l = mesh_lie(g, rank, per_node);

    for (int64_t r = 0; r < world; r++) {
        if (!together(r, rank, axes))
            continue;
        if (r / per_node != node) {
            if (node >= 0)
                least = here < least ? here : least;
            node = r / per_node;
            nodes++;
            here = 0;
        }
        here++;
        most = here > most ? here : most;
        assert_int_equal(mesh_member(g, rank, n), r);
        if (r == rank)
            assert_int_equal(mesh_place(g, rank), n);
        n++;
    }
    least = here < least ? here : least;
    assert_int_equal(mesh_ranks(g), n);
    assert_int_equal(l.nodes, nodes);
    assert_int_equal(l.most, most);
    assert_int_equal(l.least, least);
}

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;  /* Knuth's MMIX */
    return (uint32_t)(*state >> 33) % below;
}

/* A mesh of at most `most` ranks. */
static struct mesh drawn(uint64_t *rng, int64_t most)
{
    int64_t size[NAXIS];
    struct mesh m;

    do {
        for (int a = 0; a < NAXIS; a++)
            size[a] = draw(rng, 2) ? 1 : 1 + (int64_t)draw(rng, 9);
        m = mesh_from(draw(rng, 2) ? titan : megatron, size);
    } while (mesh_world(&m) > most);
    return m;
}

static void every_instance_of_thousands_of_meshes_equals_enumeration(void **state)
{
    uint64_t rng = 7;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        struct mesh m = drawn(&rng, 600);
        unsigned axes = draw(&rng, 1u << NAXIS);
        struct mesh_group g = mesh_group(&m, axes);
        int64_t per_node = 1 + (int64_t)draw(&rng, 12);
        count_ranks(&m);
        for (int k = 0; k < 4; k++)
            instance_by_enumeration(&m, &g, axes, draw(&rng, (uint32_t)mesh_world(&m)), per_node);
    }
}

static void the_slowest_instance_is_on_most_nodes_and_then_thinnest(void **state)
{
    uint64_t rng = 11;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        struct mesh m = drawn(&rng, 400);
        struct mesh_group g = mesh_group(&m, draw(&rng, 1u << NAXIS));
        int64_t per_node = 1 + (int64_t)draw(&rng, 16), world = mesh_world(&m);
        struct mesh_lie slowest = mesh_slowest(&g, world, per_node);
        bool found = false;
        for (int64_t r = 0; r < world; r++) {
            struct mesh_lie l = mesh_lie(&g, r, per_node);
            assert_true(l.nodes < slowest.nodes || (l.nodes == slowest.nodes && l.least >= slowest.least));
            found |= l.nodes == slowest.nodes && l.least == slowest.least && l.most == slowest.most;
        }
        assert_true(found);
    }
}

static void sisters_are_instances_with_ranks_here_and_elsewhere(void **state)
{
    uint64_t rng = 13;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct mesh m = drawn(&rng, 200);
        struct mesh_group g = mesh_group(&m, draw(&rng, 1u << NAXIS));
        int64_t per_node = 1 + (int64_t)draw(&rng, 12), world = mesh_world(&m), n = 0;
        int64_t rank = draw(&rng, (uint32_t)world), node = rank / per_node;
        for (int64_t first = 0; first < world; first++) {
            bool here = false, elsewhere = false;
            for (int64_t k = 0; k < mesh_ranks(&g) && mesh_place(&g, first) == 0; k++) {
                here |= mesh_member(&g, first, k) / per_node == node;
                elsewhere |= mesh_member(&g, first, k) / per_node != node;
            }
            n += here && elsewhere;
        }
        assert_int_equal(mesh_sisters(&g, world, rank, per_node), n);
    }
}

/* 3 nodes of 8, groups of 6: 6 | 2+4 | 4+2 | 6. */
static void groups_of_six_on_nodes_of_eight_straddle_two_of_them(void **state)
{
    struct mesh m = replica_by_shard(4, 6);
    struct mesh_group g = mesh_group(&m, MESH_AXIS(AXIS_SHARD));
    int64_t nodes[] = { 1, 2, 2, 1 }, least[] = { 6, 2, 2, 6 }, most[] = { 6, 4, 4, 6 };
    struct mesh_lie slowest = mesh_slowest(&g, 24, 8);

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct mesh_lie l = mesh_lie(&g, 6 * i + 3, 8);
        assert_int_equal(l.nodes, nodes[i]);
        assert_int_equal(l.least, least[i]);
        assert_int_equal(l.most, most[i]);
    }
    assert_int_equal(slowest.nodes, 2);
    assert_int_equal(slowest.least, 2);
    assert_int_equal(mesh_sisters(&g, 24, 0, 8), 1);    /* ranks 6 and 7 of the second group */
    assert_int_equal(mesh_sisters(&g, 24, 8, 8), 2);
}

/* HSDP on 4x8: shards fill nodes, replicas take one rank of each, and 8 of them share its adapters. */
static void replicas_across_nodes_share_the_adapters(void **state)
{
    struct mesh m = replica_by_shard(4, 8);
    struct mesh_group shard = mesh_group(&m, MESH_AXIS(AXIS_SHARD)), replica = mesh_group(&m, MESH_AXIS(AXIS_REPLICA));
    struct mesh_group world = mesh_group(&m, MESH_AXIS(AXIS_REPLICA) | MESH_AXIS(AXIS_SHARD));

    (void)state;
    assert_int_equal(mesh_member(&replica, 11, 0), 3);
    assert_int_equal(mesh_member(&replica, 11, 3), 27);
    assert_int_equal(mesh_slowest(&shard, 32, 8).nodes, 1);
    assert_int_equal(mesh_slowest(&replica, 32, 8).nodes, 4);
    assert_int_equal(mesh_sisters(&replica, 32, 11, 8), 8);
    assert_int_equal(mesh_sisters(&shard, 32, 11, 8), 0);
    assert_int_equal(world.ndigits, 1);         /* one run */
    assert_int_equal(mesh_sisters(&world, 32, 0, 8), 1);
}

static void an_inner_group_is_a_run_of_its_group(void **state)
{
    struct mesh m = replica_by_shard(2, 8);
    struct mesh_group shard = mesh_group(&m, MESH_AXIS(AXIS_SHARD)), two = mesh_inner(&shard, 2);
    struct mesh_group replica = mesh_group(&m, MESH_AXIS(AXIS_REPLICA)), all = mesh_inner(&shard, 8);

    (void)state;
    assert_int_equal(mesh_ranks(&two), 2);
    assert_int_equal(mesh_member(&two, 13, 0), 12);
    assert_int_equal(mesh_member(&two, 13, 1), 13);
    assert_int_equal(mesh_ranks(&all), 8);
    assert_int_equal(mesh_member(&all, 13, 0), 8);
    assert_int_equal(mesh_ranks(&replica), 2);
    assert_int_equal(mesh_member(&replica, 13, 0), 5);
}

/* Runs of 2 of 8 ranks, twice: each rank of the group is at one place of one run. */
static void an_outer_group_has_one_rank_of_each_run(void **state)
{
    (void)state;
    for (int64_t k = 1; k <= 8; k *= 2) {
        struct mesh m = replica_by_shard(2, 8);
        struct mesh_group shard = mesh_group(&m, MESH_AXIS(AXIS_SHARD)), run = mesh_inner(&shard, k), over = mesh_outer(&shard, k);
        assert_int_equal(mesh_ranks(&over) * mesh_ranks(&run), 8);
        for (int64_t r = 0; r < 16; r++)
            for (int64_t i = 0; i < mesh_ranks(&over); i++)
                assert_int_equal(mesh_member(&over, r, i), r / 8 * 8 + i * k + r % k);
    }
    struct mesh m = replica_by_shard(2, 8);
    struct mesh_group all = mesh_group(&m, MESH_AXIS(AXIS_REPLICA) | MESH_AXIS(AXIS_SHARD)), over = mesh_outer(&all, 8);
    assert_int_equal(mesh_member(&over, 13, 0), 5);
    assert_int_equal(mesh_member(&over, 13, 1), 13);
}

static void a_digit_is_the_coordinate_on_its_axis(void **state)
{
    uint64_t rng = 17;

    (void)state;
    for (int i = 0; i < 500; i++) {
        struct mesh m = drawn(&rng, 300);
        count_ranks(&m);
        for (int64_t r = 0; r < mesh_world(&m); r++)
            for (int a = 0; a < NAXIS; a++)
                assert_int_equal(mesh_digit(&m, r, (enum mesh_axis)a), coordinate[r][a]);
    }
}

/* The instance of `rank` that a list of places leaves, by enumeration: the ranks together with it are
 * numbered as they come. */
static int64_t listed(const struct mesh *m, unsigned axes, int64_t rank, int n, const int64_t *places, int64_t *out)
{
    int64_t place = 0, found = 0;

    for (int64_t r = 0; r < mesh_world(m); r++)
        if (together(r, rank, axes)) {
            for (int i = 0; i < n; i++)
                if (places[i] == place)
                    out[found++] = r;
            place++;
        }
    return found;
}

static void a_list_has_the_ranks_at_its_places_and_no_others(void **state)
{
    uint64_t rng = 19;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct mesh m = drawn(&rng, 200);
        unsigned axes = draw(&rng, 1u << NAXIS);
        struct mesh_group g = mesh_group(&m, axes);
        int64_t per_node = 1 + (int64_t)draw(&rng, 12), places[MESH_PLACES], want[MESH_PLACES];
        int64_t nodes_most = 0, least_then = 0, world = mesh_world(&m);
        int n = 0;
        for (int64_t k = 0; k < mesh_ranks(&g) && n < MESH_PLACES; k++)
            if (draw(&rng, 2) || (n == 0 && k + 1 == mesh_ranks(&g)))
                places[n++] = k;
        struct mesh_group some = mesh_some(&g, n, places);
        count_ranks(&m);
        assert_int_equal(mesh_ranks(&some), n);
        for (int64_t r = 0; r < world; r++) {
            int64_t place = -1, node = -1, nodes = 0, here = 0, least = n, most = 0;
            assert_int_equal(listed(&m, axes, r, n, places, want), n);
            for (int k = 0; k < n; k++) {
                assert_int_equal(mesh_member(&some, r, k), want[k]);
                place = want[k] == r ? k : place;
                nodes += want[k] / per_node != node;
                here = want[k] / per_node != node ? 1 : here + 1;
                node = want[k] / per_node;
                most = here > most ? here : most;
                if (k + 1 == n || want[k + 1] / per_node != node)
                    least = here < least ? here : least;
            }
            assert_int_equal(mesh_place(&some, r), place);
            struct mesh_lie l = mesh_lie(&some, r, per_node);
            assert_int_equal(l.nodes, nodes);
            assert_int_equal(l.most, most);
            assert_int_equal(l.least, least);
            if (nodes > nodes_most || (nodes == nodes_most && least < least_then)) {
                nodes_most = nodes;
                least_then = least;
            }
        }
        struct mesh_lie slowest = mesh_slowest(&some, world, per_node);
        assert_int_equal(slowest.nodes, nodes_most);
        assert_int_equal(slowest.least, least_then);
    }
}

/* A pipeline of 4 stages over 2 tensor-parallel ranks: stage 0 is ranks 0 and 1, stage 3 ranks 6 and 7.
 * They share a tied embedding: 0 with 6, 1 with 7; the stages between are in no instance. */
static void the_first_and_the_last_stage_are_a_list(void **state)
{
    struct mesh m = mesh_from(titan, (int64_t[NAXIS]){ [AXIS_PIPE] = 4, [AXIS_REPLICA] = 1, [AXIS_SHARD] = 1,
                                                       [AXIS_CONTEXT] = 1, [AXIS_EXPERT] = 1, [AXIS_TENSOR] = 2 });
    struct mesh_group pipe = mesh_group(&m, MESH_AXIS(AXIS_PIPE));
    struct mesh_group tied = mesh_some(&pipe, 2, (int64_t[]){ 0, 3 });

    (void)state;
    assert_int_equal(mesh_ranks(&tied), 2);
    assert_int_equal(mesh_member(&tied, 1, 0), 1);
    assert_int_equal(mesh_member(&tied, 1, 1), 7);
    assert_int_equal(mesh_place(&tied, 6), 1);
    assert_int_equal(mesh_place(&tied, 2), -1);
    assert_int_equal(mesh_slowest(&tied, 8, 4).nodes, 2);
    assert_int_equal(mesh_sisters(&tied, 8, 7, 4), 2);
}

/* Enumerating 16,384 ranks a hundred thousand times would take minutes. */
static void a_large_world_costs_nothing_where_nodes_are_aligned(void **state)
{
    struct mesh m = replica_by_shard(2048, 8);
    struct mesh_group g = mesh_group(&m, MESH_AXIS(AXIS_REPLICA));

    (void)state;
    for (int i = 0; i < 100000; i++)
        assert_int_equal(mesh_slowest(&g, 16384, 8).nodes, 2048);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instance_of_thousands_of_meshes_equals_enumeration),
        cmocka_unit_test(the_slowest_instance_is_on_most_nodes_and_then_thinnest),
        cmocka_unit_test(sisters_are_instances_with_ranks_here_and_elsewhere),
        cmocka_unit_test(groups_of_six_on_nodes_of_eight_straddle_two_of_them),
        cmocka_unit_test(replicas_across_nodes_share_the_adapters),
        cmocka_unit_test(an_inner_group_is_a_run_of_its_group),
        cmocka_unit_test(an_outer_group_has_one_rank_of_each_run),
        cmocka_unit_test(a_digit_is_the_coordinate_on_its_axis),
        cmocka_unit_test(a_list_has_the_ranks_at_its_places_and_no_others),
        cmocka_unit_test(the_first_and_the_last_stage_are_a_list),
        cmocka_unit_test(a_large_world_costs_nothing_where_nodes_are_aligned),
    };
    return cmocka_run_group_tests_name("model/mesh", tests, NULL, NULL);
}
