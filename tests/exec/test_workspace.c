/* What the planner counts for the executor's workspaces is what the executor takes. */
#include "tests/check.h"

#include "exec/comm/comm.h"
#include "exec/kernels/kernels.h"
#include "model/program/workspace.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void kernels_take_what_is_planned(void **state)
{
    (void)state;
    static const int64_t hidden[] = { 1, 64, 320, 768, 4096 }, seq[] = { 1, 127, 1024, 16384 };
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 4; j++)
            for (int threads = 1; threads <= 64; threads *= 4) {
                struct plan p = { .seq = seq[j], .micro_batch = 1 + i, .model = {
                    .hidden = hidden[i], .ffn = 4 * hidden[i], .heads = 4, .kv_heads = 2,
                    .head_dim = hidden[i] < 4 ? 1 : hidden[i] / 4, .vocab = 1 + 50256 * j } };
                const struct model *m = &p.model;
                int64_t qkv = (m->heads + 2 * m->kv_heads) * m->head_dim;
                struct kernels_need need = { .n = p.micro_batch * p.seq, .widest_in = larger(m->ffn, m->hidden),
                                             .widest_out = qkv, .vocab = m->vocab, .seq = p.seq,
                                             .dim = m->head_dim, .threads = threads };
                assert_int_equal(workspace_kernels(&p, threads), kernels_workspace(&need));
            }
}

static void communicators_take_what_is_planned(void **state)
{
    (void)state;
    for (int n = 1; n <= 512; n *= 2)
        assert_int_equal(workspace_staging(n), comm_staging(n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_take_what_is_planned),
        cmocka_unit_test(communicators_take_what_is_planned),
    };
    return cmocka_run_group_tests_name("exec/workspace", tests, NULL, NULL);
}
