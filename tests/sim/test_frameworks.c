/* Which frameworks a search looks at, and that it says which it does not. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "sim/plan/commands.h"
#include "sim/plan/search_answer.h"
#include "sim/plan/search_beyond.h"

/* dpxplan.c's main program joins the database; here there is none. */
int  measured_load(const char *db, enum dtype precision, enum kernel_set kernels, struct cluster *c) { return (void)db, (void)precision, (void)kernels, (void)c, 0; }
void measured_unload(struct cluster *c) { (void)c; }
int  measured_status(void) { return EXIT_MISUSE; }

struct asked { struct search_asked a; struct search_answer s; int rc; char beyond[SEARCH_BEYOND]; };

static void ask(struct asked *q, const char *model, const char *cluster, int64_t seq, int64_t batch, int framework)
{
    q->a = (struct search_asked)SEARCH_ASKED;
    q->a.ask.model = model;
    q->a.ask.cluster = cluster;
    q->a.ask.seq = seq;
    q->a.ask.global_batch = batch;
    q->a.ask.framework = framework;
    q->a.top = 40;
    assert_int_equal(search_answer_open(&q->a, &q->s), EXIT_DONE);
    q->rc = search_answer_find(&q->a, &q->s);
    search_beyond_words(&q->a.ask, &q->s.q.options, &q->s.r, q->beyond);
}

/* Fastest of all that fit; INFINITY: none does. */
static double best(const struct asked *q) { return q->s.r.nfit > 0 ? q->s.r.found[0].step_s : INFINITY; }

static const struct { int framework; const char *dialects, *others; } known[] = {
    { FRAMEWORK_TORCH, "torch torch-fsdp1", "not looked at: deepspeed and megatron (--framework any)" },
    { FRAMEWORK_DEEPSPEED, "deepspeed", "not looked at: torch and megatron (--framework any)" },
    { FRAMEWORK_MEGATRON, "megatron", "not looked at: torch and deepspeed (--framework any)" },
    { FRAMEWORK_ANY, "torch torch-fsdp1 deepspeed megatron", NULL },
};
enum { NKNOWN = sizeof known / sizeof *known };

/* `any` has every framework's plans with that framework's kernels, and so finds what the best of them finds. */
static void any_finds_what_the_best_framework_finds(void **state)
{
    static const struct { const char *model, *cluster; int64_t seq, batch; } problems[] = {
        { "gpt2", "2x2xa100-40gb", 256, 8 }, { "llama-3.2-1b", "4xh100", 2048, 16 }, { "olmoe-1b-7b", "8xh100", 2048, 16 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        double least = INFINITY;
        for (int k = 0; k < NKNOWN; k++) {
            struct asked q;
            ask(&q, problems[i].model, problems[i].cluster, problems[i].seq, problems[i].batch, known[k].framework);
            for (int64_t n = 0; n < q.s.n; n++)
                assert_non_null(strstr(known[k].dialects, dialect_name(q.s.ranked[n].found->plan.dialect)));
            if (known[k].others)
                assert_int_equal(strncmp(q.beyond, known[k].others, strlen(known[k].others)), 0);
            else
                assert_close(best(&q), least, 1e-12);
            least = fmin(least, best(&q));
            search_answer_free(&q.s);
        }
    }
}

/* DeepSeek-V3 has no plan in dialect deepspeed: the reason is said, and no option looks at it. */
static void a_framework_without_a_plan_is_named_with_its_reason(void **state)
{
    struct asked q;

    (void)state;
    ask(&q, "moonlight-16b-a3b", "8xh100", 2048, 8, FRAMEWORK_ANY);
    assert_non_null(strstr(q.beyond, "not looked at: deepspeed, which has no such plan: model: deepseek_v3"));
    json_t *list = search_beyond_json(&q.a.ask, &q.s.q.options, &q.s.r);
    assert_true(json_is_null(json_object_get(json_array_get(list, 0), "option")));
    json_decref(list);
    search_answer_free(&q.s);
}

/* 70B in FSDP2 on 512 H100 takes 10.37 s, in Megatron-LM's tensor and pipeline parallelism 11 % less. */
static void megatrons_plan_of_70b_on_512_gpus_is_found(void **state)
{
    struct asked q;

    (void)state;
    ask(&q, "llama-3.1-70b", "64x8xh100", 8192, 512, FRAMEWORK_ANY);
    assert_int_equal(q.rc, EXIT_DONE);
    assert_int_equal(q.s.ranked[0].found->plan.dialect, DIALECT_MEGATRON);
    search_answer_free(&q.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_finds_what_the_best_framework_finds),
        cmocka_unit_test(a_framework_without_a_plan_is_named_with_its_reason),
        cmocka_unit_test(megatrons_plan_of_70b_on_512_gpus_is_found),
    };
    return cmocka_run_group_tests_name("sim/frameworks", tests, NULL, NULL);
}
