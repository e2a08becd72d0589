/* What a program takes it frees: the nets of all kernels of a micro-step add up to nothing, for each set of kernels. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/plan/plan.h"
#include "model/program/program.h"

/* Activations and temporaries that a micro-step leaves; gradients are their schedule's. */
static void left_by(const struct plan *p, int64_t left[2])
{
    struct program g = { 0 };
    int64_t times[NPIECE] = { [PIECE_EMBED] = 1, [PIECE_HEAD] = 1 };

    left[0] = left[1] = 0;
    assert_int_equal(program_build(p, &g), 0);
    for (int64_t b = 0; b < p->model.layers; b++)
        times[program_piece_of_block(p, b)]++;
    for (int id = 0; id < NPIECE; id++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int i = 0; i < g.piece[id].nkernels[pass]; i++) {
                left[0] += times[id] * g.piece[id].kernels[pass][i].net[MEM_ACTIVATIONS];
                left[1] += times[id] * g.piece[id].kernels[pass][i].net[MEM_TEMPORARIES];
            }
    program_free(&g);
}

static void a_micro_step_leaves_nothing(void **state)
{
    static const char *const models[] = { "llama-3.1-8b", "gpt2", "opt-125m", "qwen3-0.6b", "gemma-2-2b" };
    static const char *const recomputes[] = { "none", "full", "op", "selective" };
    static const char *const trains[] = { "\"all\"", "\"lora\"", "[\"*.bias\", \"*norm*\"]" };
    int of[NKERNELS] = { 0 }, tuned = 0;

    (void)state;
    for (int i = 0; i < 5 * NKERNELS * 4 * 2 * 2 * 3; i++) {
        const char *train = trains[i / (5 * NKERNELS * 4 * 2 * 2)];
        const char *recompute = recomputes[i / 5 / NKERNELS % 4];
        enum kernel_set set = (enum kernel_set)(i / 5 % NKERNELS);
        bool megatron = kernels_are_megatron(set);
        json_t *plan = json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:i}", "dpx_plan", 1, "model", models[i % 5],
                                 "cluster", "8xh100", "seq", 512, "micro_batch", 1 + i / 20 / NKERNELS % 2, "strategy", megatron ? "zero1" : "fsdp",
                                 "dialect", megatron ? "megatron" : "torch", "precision", "bf16", "kernels",
                                 kernels_name(set), "recompute", recompute, "recompute_interval", 1 + i / 40 / NKERNELS % 2);
        if (!megatron)
            json_object_set_new(plan, "train", json_loads(train, JSON_DECODE_ANY, NULL));
        struct plan p;
        int64_t left[2];
        char why[256];
        fail_capture(why, sizeof why);
        int rc = plan_from_json(plan, "plan", &p);      /* some sets have no such recompute */
        fail_capture(NULL, 0);
        json_decref(plan);
        if (rc < 0)
            continue;
        left_by(&p, left);
        if (left[0] || left[1])
            fail_msg("%s x %d, %s, recompute %s every %d: %lld bytes of activations are left, %lld of temporaries", p.model.name,
                     (int)p.micro_batch, kernels_name(set), recompute, (int)p.recompute_interval, (long long)left[0], (long long)left[1]);
        plan_free(&p);
        of[set]++;
        tuned += !megatron && train != trains[0];
    }
    assert_true(tuned >= 5 * 2 * 3 * 2);
    for (int set = 0; set < NKERNELS; set++)
        assert_true(of[set] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_micro_step_leaves_nothing) };

    return cmocka_run_group_tests_name("model/program nets", tests, NULL, NULL);
}
