/* What PyTorch's allocator reserves for long pipelines: a repeat that has asked the device for nothing for long enough is taken to ask nothing
 * to its end (requests_again.c).  Random pipelines of every framework, one stage of each replayed with that rule and without: with room, and
 * with less than that takes.
 *
 *     test_quiet [PLANS [SEED]]                        6 */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "model/memory/requests.h"
#include "model/memory/reserved.h"

static int plans = 6;
static uint64_t state = 54;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static const struct { const char *keys; int first, orders; } frameworks[] = {
    { "'strategy': 'fsdp', 'dialect': 'torch'", 0, 2 }, { "'strategy': 'ddp', 'dialect': 'torch'", 0, 2 },
    { "'strategy': 'zero1', 'dialect': 'megatron'", 0, 2 }, { "'strategy': 'ddp', 'dialect': 'megatron'", 0, 2 },
    { "'strategy': 'zero1', 'dialect': 'deepspeed'", 0, 0 },
};
static const char *const orders[] = { "1f1b", "interleaved" };
static const char *const recompute[] = { "none", "full", "selective" };
static const char *const models[] = { "llama-3.1-8b", "qwen2.5-7b" };

static bool draw_plan(struct plan *p)
{
    char text[1024], says[128] = "", why[400];
    int with = (int)draw(5), pipe = 4 << draw(2), tensor = 1 << draw(3);

    if (frameworks[with].orders > 0) {
        int order = frameworks[with].first + (int)draw((uint32_t)frameworks[with].orders);
        snprintf(says, sizeof says, "'pipeline_schedule': '%s', 'virtual_stages': %d, ", orders[order], order < 1 ? 1 : 2);
    }
    snprintf(text, sizeof text, "{ 'dpx_plan': 1, 'model': '%s', 'cluster': '%dx8xh200', %s, 'seq': %d, 'micro_batch': %d, 'accumulation': %d,"
             " 'precision': 'bf16', 'recompute': '%s', 'parallel': { %s'pipeline': %d, 'tensor': %d } }",
             models[draw(2)], (pipe * tensor * (1 + (int)draw(2)) + 7) / 8, frameworks[with].keys, 1024 << draw(3), 1 << draw(3),
             pipe * (3200 / pipe + (int)draw(40)), recompute[draw(3)], says, pipe, tensor);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    struct fail_sink before = fail_divert(why, sizeof why);
    bool ok = plan_from_json(j, "plan", p) == 0;
    fail_restore(before);
    json_decref(j);
    return ok;
}

struct walked { int64_t reserved, requested, retries, refused, requests, made; };

static int64_t made;

static int count_made(void *of, int64_t bytes, int stream)
{
    made++;
    return caching_allocator_malloc(of, bytes, stream);
}

static struct walked walk(const struct plan *p, const struct schedules *s, bool proven, int64_t capacity)
{
    struct caching_allocator *a = caching_allocator_new(capacity, NULL);
    struct request_target t = reserved_target(a);
    struct request_options o = reserved_options(p);
    struct request_report r;

    o.proven = proven;
    t.allocate = count_made;
    t.serve = NULL;
    made = 0;
    requests_walk(p, s, o, &t, &r);
    const struct caching_stats *c = caching_allocator_stats(a);
    struct walked w = { c->reserved.peak, c->requested.peak, r.steady_retries, r.refused, r.requests, made };
    caching_allocator_delete(a);
    return w;
}

static int same, apart, fewer, other_verdict;
static double most;

static void compare(const struct plan *p, const struct schedules *s)
{
    struct walked x = walk(p, s, false, (int64_t)1 << 48), y = walk(p, s, true, (int64_t)1 << 48);
    double off = (double)llabs(x.reserved - y.reserved) / (double)y.reserved;

    assert_int_equal(x.requested, y.requested);
    assert_int_equal(x.requests, y.requests);
    same += x.reserved == y.reserved;
    apart += x.reserved != y.reserved;
    fewer += 3 * x.made < 2 * y.made;
    most = off > most ? off : most;
    if (y.reserved == y.requested)
        return;
    int64_t tight = y.requested + (y.reserved - y.requested) / (1 + (int64_t)draw(4));
    x = walk(p, s, false, tight);
    y = walk(p, s, true, tight);
    other_verdict += (x.refused > 0) != (y.refused > 0) || (x.retries > 0) != (y.retries > 0);
}

static void what_is_quiet_stays_quiet(void **unused)
{
    (void)unused;
    for (int done = 0; done < plans; ) {
        struct schedules s = { 0 };
        struct memory_verdict m;
        struct program g = { 0 };
        struct plan p;
        if (!draw_plan(&p) || program_build(&p, &g) < 0)
            continue;
        if (evaluate_stage(&p, &g, (int)draw((uint32_t)p.parallel.pipeline), &s, &m) == 0) {
            compare(&p, &s);
            done++;
        }
        s.borrowed = true;
        schedules_free(&s);
        program_free(&g);
        plan_free(&p);
    }
    print_message("%d pipelines: %d reserve the same, %d another amount (at most %.3g %%); %d make less than two thirds of the requests; "
                  "with little room %d have another verdict\n", plans, same, apart, 100 * most, fewer, other_verdict);
    assert_true(apart * 50 <= plans && most < .01 && other_verdict * 50 <= plans);
    assert_true(fewer > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_quiet_stays_quiet) };

    plans = argc > 1 ? atoi(argv[1]) : plans;
    state = argc > 2 ? (uint64_t)atoll(argv[2]) : state;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
