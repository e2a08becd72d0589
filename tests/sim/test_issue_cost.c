/* What issuing an entry costs the thread of the host that does it. */
#include "tests/check.h"

#include <string.h>

#include "model/lower/lower.h"
#include "tests/sim/kernel_beds.h"

/* Beside the launch of the first, 0.7 of the unit for each of 15 other products, 0.5 for each of 16 gradients that products add by themselves; of 128
 * chunks 0.05 each forward and 0.1 backward.  Gradients that a hook adds are a kernel more each.  Products are modules of Transformer Engine, whose Python takes what its Linear takes more than PyTorch's.  A graph's replay, and one batch of products, pay none of it. */
static void things_of_one_kernel_are_issued_one_by_one(void **state)
{
    (void)state;
    struct plan p = plan_of(DIALECT_MEGATRON, KERNELS_TE, STRAT_DDP, DT_BF16);
    struct kernel k[3] = { three[0], three[0], three[0] };
    struct schedules s = { 0 };
    static const double ratio[] = { [PASS_FORWARD] = 1.15, [PASS_BACKWARD] = 0.89 };
    double module = (99.66 / 37.08 + 90.53 / 33.17) / 2 - 1;        /* NVIDIA/TransformerEngine issue 2053 */

    for (int i = 0; i < 3; i++)
        k[i].kind = i < 2 ? KC_GEMM : KC_COPY, k[i].m = k[i].n = k[i].k = 64, k[i].batch = 16, k[i].flops = 1, k[i].bytes = 1;
    k[0].apart = k[1].apart = true;
    k[0].te_module = k[1].te_module = TE_PYTHON_LINEAR;
    k[1].sums = 1;
    k[2].chunks = 128;
    struct kernel hooked = k[0];
    hooked.te_module = TE_PYTHON_GRADS;
    s.program.piece[PIECE_BLOCK] = (struct piece){ .kernels = { &hooked, &hooked }, .nkernels = { 1, 1 } };
    struct cost_cache *of = cost_cache_new(&p);
    struct op dw = { .kind = OP_COMPUTE, .u.compute = { .piece = PIECE_BLOCK, .pass = PASS_BACKWARD, .k1 = 1 } };
    assert_close(op_issue_cost(of, &s, &dw), (16 * .89 + 15 * .7 + 16 * .5) * 12.8e-6, 1e-9);
    cost_cache_free(of);
    for (int captured = 0; captured < 2; captured++) {
        s.program.piece[PIECE_BLOCK] = (struct piece){ .kernels = { k, k }, .nkernels = { 3, 3 } };
        struct cost_cache *c = cost_cache_new(&p);
        for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++)
            for (int i = 0; i < 3; i++) {
                struct op one = { .kind = OP_COMPUTE, .u.compute = { .piece = PIECE_BLOCK, .pass = (uint8_t)pass } };
                one.u.compute.k0 = (uint16_t)i, one.u.compute.k1 = (uint16_t)(i + 1);
                double python = module * (pass == PASS_FORWARD ? 1 : .76);
                double more = i == 0 ? python + 15 * .7 : i == 1 ? python + 15 * .7 + 16 * .5 : 128 * (pass == PASS_FORWARD ? .05 : .1);
                if (!captured)
                    assert_close(op_issue_cost(c, &s, &one), (ratio[pass] + more) * 12.8e-6, 1e-9);
                else if (i > 0)
                    assert_true(op_issue_cost(c, &s, &one) == 0);
            }
        cost_cache_free(c);
        k[0].captured = k[1].captured = k[2].captured = true;
    }
}

/* Beside the kernel its module's Python: of what Linear takes more than PyTorch's so many times (tests/bench/issue_te.py). */
static void modules_of_transformer_engine_are_python(void **state)
{
    static const double times[][NPASS] = { { 0, 0 }, { 1, .76 }, { .8, .5 }, { 2.6, 1.1 }, { 0, 0 }, { 0, 0 }, { 0, 0 } };
    static const double units[] = { 0, 0, 0, 0, 0, 79, 27 };           /* of a mixture's router and dispatcher: issue_cost.py experts */
    double module = (99.66 / 37.08 + 90.53 / 33.17) / 2 - 1;        /* NVIDIA/TransformerEngine issue 2053 */
    struct plan p = plan_of(DIALECT_MEGATRON, KERNELS_TE, STRAT_DDP, DT_BF16);

    (void)state;
    for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++)
        for (int i = TE_PYTHON_NONE; i <= TE_PYTHON_DISPATCH_BARE; i++) {
            struct kernel k = three[0];
            struct schedules s = { 0 };
            struct op one = { .kind = OP_COMPUTE, .u.compute = { .piece = PIECE_BLOCK, .pass = (uint8_t)pass, .k1 = 1 } };
            k.kind = KC_GEMM, k.m = k.n = k.k = 64, k.batch = 1, k.flops = 1, k.bytes = 1, k.te_module = (uint8_t)i;
            s.program.piece[PIECE_BLOCK] = (struct piece){ .kernels = { &k, &k }, .nkernels = { 1, 1 } };
            struct cost_cache *c = cost_cache_new(&p);
            assert_close(op_issue_cost(c, &s, &one), ((pass == PASS_FORWARD ? 1.15 : .89) + times[i][pass] * module + units[i]) * 12.8e-6, 1e-9);
            cost_cache_free(c);
        }
}

/* A Linear's forward takes 37.08 us on GB200 and 13.48 on DGX H100. */
static void grace_issues_slower_than_a_xeon(void **state)
{
    struct cluster grace, xeon;

    (void)state;
    assert_int_equal(cluster_load("gb200-nvl72", &grace), 0);
    assert_int_equal(cluster_load("8xh100", &xeon), 0);
    assert_close(issue_unit_of(&grace), issue_unit_of(&xeon) * 37.08 / 13.48, 1e-12);
}

/* Three kernels forward of 1.15 x 12.8 us, and of a pass's hooks the share of its kernels. */
static void hooks_around_modules_take_the_issuing_thread(void **state)
{
    (void)state;
    struct plan p = plan_of(DIALECT_DEEPSPEED, KERNELS_TORCH_SDPA, STRAT_ZERO3, DT_BF16);
    struct schedules s = { .module_hooks = { [PIECE_BLOCK] = { [PASS_FORWARD] = { 26, 0 } } } };
    struct op all = { .kind = OP_COMPUTE, .u.compute = { .piece = PIECE_BLOCK, .k0 = 0, .k1 = 3 } }, one = all;
    struct cost_cache *c = cost_cache_new(&p);

    s.program.piece[PIECE_BLOCK] = (struct piece){ .kernels = { three, three }, .nkernels = { 3, 3 } };
    one.u.compute.k1 = 1;
    double kernel = 1.15 * 12.8e-6, hook = (op_issue_cost(c, &s, &all) - 3 * kernel) / 26;
    assert_true(hook > 1e-6);
    assert_close(op_issue_cost(c, &s, &one), kernel + 26 * hook / 3, 1e-9);
    cost_cache_free(c);
}

/* Of three kernels the first two are in a graph: they cost its replay, wherever a segment is cut, and the third 1.15 x 12.8 us.  A collective
 * inside it costs nothing; of a step that is one graph nothing but the optimizer costs anything. */
static void a_graphs_replay_is_one_call(void **state)
{
    (void)state;
    struct plan p = plan_of(DIALECT_MEGATRON, KERNELS_TE, STRAT_DDP, DT_BF16);
    struct kernel held[3] = { three[0], three[1], three[2] };
    struct schedules s = { 0 };
    struct op all = { .kind = OP_COMPUTE, .phase = PHASE_FORWARD, .u.compute = { .piece = PIECE_BLOCK, .k0 = 0, .k1 = 3 } };
    struct op one = all, two = all, rest = all;
    struct op inside = { .kind = OP_COLL, .phase = PHASE_FORWARD, .flags = OPF_GRAPH }, beside = { .kind = OP_COLL, .phase = PHASE_FORWARD };
    double kernel = 1.15 * 12.8e-6;

    p.megatron.cuda_graph_impl = GRAPHS_LOCAL;
    held[0].captured = held[1].captured = true;
    s.program.piece[PIECE_BLOCK] = (struct piece){ .kernels = { held, held }, .nkernels = { 3, 3 } };
    one.u.compute.k1 = 1;
    two.u.compute.k1 = 2;
    rest.u.compute.k0 = 1;
    struct cost_cache *c = cost_cache_new(&p);
    double replay = op_issue_cost(c, &s, &one);
    assert_close(replay, 2.5e-6 + 9.7 * 12.8e-6, 1e-9);     /* graph_cost.py's of Megatron-core, forward; below, of Transformer Engine backward */
    assert_close(op_issue_cost(c, &s, &two), replay, 1e-12);
    assert_close(op_issue_cost(c, &s, &all), replay + kernel, 1e-12);
    assert_close(op_issue_cost(c, &s, &rest), kernel, 1e-12);
    assert_true(op_issue_cost(c, &s, &inside) == 0 && op_issue_cost(c, &s, &beside) > 0);
    one.u.compute.pass = PASS_BACKWARD;
    p.megatron.cuda_graph_impl = GRAPHS_TE;
    assert_close(op_issue_cost(c, &s, &one), 2.5e-6 + 2.8 * 12.8e-6, 1e-9);
    p.megatron.cuda_graph_impl = GRAPHS_LOCAL;
    strcpy(p.megatron.cuda_graph_scope, "full_iteration");
    assert_true(op_issue_cost(c, &s, &all) == 0 && op_issue_cost(c, &s, &beside) == 0);
    beside.phase = PHASE_OPTIMIZER;
    assert_true(op_issue_cost(c, &s, &beside) > 0);
    cost_cache_free(c);
}

static void hooks_cost_the_issuing_thread_more_than_dtensors_and_those_than_a_reducer(void **state)
{
    (void)state;
    struct plan torch = plan_of(DIALECT_TORCH, KERNELS_TORCH_SDPA, STRAT_DDP, DT_BF16);
    struct plan ours = plan_of(DIALECT_PAPER, KERNELS_DPX, STRAT_DDP, DT_FP32);
    struct schedules s = { 0 };
    const struct plan *of[] = { &torch, &torch, &torch, &ours };
    const uint8_t flags[] = { OPF_HOOK, OPF_DTENSOR, 0, 0 };
    double cost[4];

    for (int i = 0; i < 4; i++) {
        struct op o = { .kind = OP_COLL, .stream = STREAM_GROUP, .flags = flags[i] };
        struct cost_cache *c = cost_cache_new(of[i]);
        cost[i] = op_issue_cost(c, &s, &o);
        cost_cache_free(c);
    }
    assert_true(cost[0] > cost[1] && cost[1] > cost[2] && cost[2] > cost[3] && cost[3] > 0);
}

/* By zero3_cost.py, which times DeepSpeed without a GPU: a gather of one parameter takes 16.4 of the unit, of eleven 10 times 4.4 more; a flush of
 * one gradient 38.7, of eleven 10 times 2.7 more.  What stage 3's optimizer sums, and experts' tokens, which have parts, are collectives as any.
 * Of stages 1 and 2 a gradient takes 5 beside its copy. */
static void deepspeeds_hooks_take_what_they_were_measured_to_take(void **state)
{
    (void)state;
    struct plan p = plan_of(DIALECT_DEEPSPEED, KERNELS_TORCH_SDPA, STRAT_ZERO3, DT_BF16);
    struct schedules s = { .hooks = HOOKS_OF_PARAMETERS };
    const struct { enum phase phase; enum coll_op op; int tensors; double units; } of[] = {
        { PHASE_FORWARD, COLL_ALL_GATHER, 1, 16.4 }, { PHASE_BACKWARD, COLL_ALL_GATHER, 11, 60.4 }, { PHASE_FORWARD, COLL_ALL_REDUCE, 11, 60.4 },
        { PHASE_REDUCE, COLL_REDUCE_SCATTER, 1, 38.7 }, { PHASE_REDUCE, COLL_ALL_REDUCE, 11, 65.7 },
        { PHASE_OPTIMIZER, COLL_ALL_REDUCE, 0, 15 / 12.8 }, { PHASE_FORWARD, COLL_ALL_TO_ALL, 11, 15 / 12.8 },
    };
    struct cost_cache *c = cost_cache_new(&p);

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct op o = { .kind = OP_COLL, .stream = STREAM_GROUP, .phase = (uint8_t)of[i].phase, .flags = OPF_HOOK };
        o.u.coll.op = (uint8_t)of[i].op;
        o.u.coll.tensors = of[i].tensors;
        assert_close(op_issue_cost(c, &s, &o), of[i].units * 12.8e-6, 1e-9);
    }
    s.hooks = HOOKS_OF_GRADIENTS;
    struct op flush = { .kind = OP_COLL, .phase = PHASE_REDUCE, .flags = OPF_HOOK }, step = { .kind = OP_COLL, .phase = PHASE_OPTIMIZER, .flags = OPF_HOOK };
    struct op gradients = { .kind = OP_COPY, .phase = PHASE_BACKWARD, .flags = OPF_HOOK, .u.copy.kernels = 3 };
    assert_close(op_issue_cost(c, &s, &flush), 5.5 * 12.8e-6, 1e-9);
    assert_close(op_issue_cost(c, &s, &step), 15e-6, 1e-9);
    assert_close(op_issue_cost(c, &s, &gradients), 3 * 6 * 12.8e-6, 1e-9);
    s.hooks = HOOKS_OF_UNITS;
    struct op unit = { .kind = OP_COLL, .stream = STREAM_GROUP, .flags = OPF_HOOK };
    assert_close(op_issue_cost(c, &s, &unit), 60 * 12.8e-6, 1e-9);
    cost_cache_free(c);
}

/* torchtitan's 8B cut over 8: a block gathers twice and scatters twice in forward and in backward, eight times, each at 125 of the unit.
 * Compiled blocks hold no DTensors (embedding and head are not compiled).  A norm's gradients are summed as DTensors move: 25. */
static void eager_layers_of_dtensors_hold_the_issuing_thread(void **state)
{
    (void)state;
    static const char *const kernels[] = { "torch-sdpa", "torch-compile" };

    for (int compiled = 0; compiled < 2; compiled++) {
        struct plan p;
        struct schedules s = { 0 };
        struct { int layers, hooks, sums; } n = { 0 };
        json_t *j = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:{s:i}}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster", "8xh100",
                              "seq", 8192, "micro_batch", 1, "strategy", "fsdp", "dialect", "torch", "kernels", kernels[compiled],
                              "parallel", "tensor", 8);

        assert_int_equal(plan_from_json(j, "plan", &p), 0);
        assert_int_equal(lower(&p, 0, &s), 0);
        struct cost_cache *c = cost_cache_new(&p);
        for (int i = 0; i < s.nops; i++) {
            const struct op *o = &s.ops[i];
            if (o->kind != OP_COLL || s.groups.group[o->u.coll.group].is != GROUP_TENSOR)
                continue;
            n.layers += (o->flags & OPF_LAYER) != 0 && !strcmp(o->of, "block");
            n.hooks += (o->flags & OPF_HOOK) != 0;
            n.sums += (o->flags & OPF_DTENSOR) != 0;
            if (o->flags & OPF_LAYER)
                assert_close(op_issue_cost(c, &s, o), 125 * 12.8e-6, 1e-12);
            if (o->flags & OPF_DTENSOR)
                assert_close(op_issue_cost(c, &s, o), 25 * 12.8e-6, 1e-12);
        }
        assert_true(compiled ? n.layers == 0 : n.layers >= 8 && n.layers % 8 == 0);
        assert_true(n.sums > 0 && n.hooks == 0);
        cost_cache_free(c);
        schedules_free(&s);
        plan_free(&p);
        json_decref(j);
    }
}

/* The hook of a unit that one rank has alone copies: 43 of the unit, where a copy of PyTorch's own is a kernel of one. */
static void a_hook_of_one_rank_is_a_hook(void **state)
{
    (void)state;
    struct plan p = plan_of(DIALECT_TORCH, KERNELS_TORCH_SDPA, STRAT_FSDP, DT_BF16);
    struct op copy = { .kind = OP_COPY, .stream = STREAM_COMPUTE, .u.copy = { 1, 1 } }, hook = copy;
    struct schedules s = { 0 };
    struct cost_cache *c = cost_cache_new(&p);

    hook.flags = OPF_HOOK;
    assert_close(op_issue_cost(c, &s, &copy), 12.8e-6, 1e-12);
    assert_close(op_issue_cost(c, &s, &hook), 43 * 12.8e-6, 1e-12);
    cost_cache_free(c);
}

/* The unit a pass, and of that 0.24 a tensor and pass, fused 0.53 a tensor; 1.7 more of DTensors.  The unit is the cluster's, if it states one. */
static void an_optimizer_is_issued_tensor_by_tensor(void **state)
{
    (void)state;
    struct plan torch = plan_of(DIALECT_TORCH, KERNELS_TORCH_SDPA, STRAT_DDP, DT_BF16);
    struct op o = { .kind = OP_OPTIMIZER, .stream = STREAM_COMPUTE,
                    .u.optimizer = { .elems = 850000000, .tensors = 10, .bytes = 80, .passes = 8 } };
    struct schedules s = { 0 };
    struct cost_cache *c = cost_cache_new(&torch);

    assert_close(op_issue_cost(c, &s, &o), (8 + 10 * 8 * 0.24) * 12.8e-6, 1e-12);
    torch.cluster.node.issue = 10e-6;
    assert_close(op_issue_cost(c, &s, &o), (8 + 10 * 8 * 0.24) * 10e-6, 1e-12);
    o.u.optimizer.passes = 1;
    assert_close(op_issue_cost(c, &s, &o), (1 + 10 * 0.53) * 10e-6, 1e-12);
    o.flags = OPF_DTENSOR;
    assert_close(op_issue_cost(c, &s, &o), (1 + 10 * (0.53 + 1.7)) * 10e-6, 1e-12);
    cost_cache_free(c);
}

/* An operator of 4.66 us, a copy of 13.95 and the Python of 0.25 kernels of 12.8: 21.81 us a number. */
static void a_number_read_back_waits_for_its_own_copy(void **state)
{
    (void)state;
    struct plan p = plan_of(DIALECT_TORCH, KERNELS_TORCH_SDPA, STRAT_FSDP, DT_BF16);
    struct cost_cache *c = cost_cache_new(&p);
    struct schedules s = { 0 };
    struct op none = { .kind = OP_WAIT, .stream = STREAM_ISSUE }, many = none;

    many.u.wait.reads = 16384;
    assert_close(op_issue_cost(c, &s, &many) - op_issue_cost(c, &s, &none), 16384 * 21.81e-6, 1e-9);
    cost_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(things_of_one_kernel_are_issued_one_by_one),
        cmocka_unit_test(modules_of_transformer_engine_are_python),
        cmocka_unit_test(grace_issues_slower_than_a_xeon),
        cmocka_unit_test(hooks_around_modules_take_the_issuing_thread),
        cmocka_unit_test(a_graphs_replay_is_one_call),
        cmocka_unit_test(hooks_cost_the_issuing_thread_more_than_dtensors_and_those_than_a_reducer),
        cmocka_unit_test(deepspeeds_hooks_take_what_they_were_measured_to_take),
        cmocka_unit_test(a_hook_of_one_rank_is_a_hook),
        cmocka_unit_test(a_number_read_back_waits_for_its_own_copy),
        cmocka_unit_test(eager_layers_of_dtensors_hold_the_issuing_thread),
        cmocka_unit_test(an_optimizer_is_issued_tensor_by_tensor),
    };
    return cmocka_run_group_tests_name("sim/issue_cost", tests, NULL, NULL);
}
