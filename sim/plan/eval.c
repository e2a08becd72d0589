/* eval.c -- reads and changes the plan, evaluates and simulates it, and forms the document. */
#include "sim/plan/eval.h"

#include <string.h>

#include "base/fail.h"
#include "model/arch/sample.h"
#include "model/plan/experts_check.h"
#include "sim/plan/commands.h"
#include "sim/plan/plan_words.h"
#include "sim/price/measured_gaps.h"

const char *eval_space_name(enum space m)
{
    return m == SPACE_PINNED ? "pinned memory of a node" : m == SPACE_HOST ? "host memory of a node" : "disk space of a node";
}

const char *eval_idle_name(bool elsewhere) { return elsewhere ? "idle (issue, copies, host)" : "idle (nothing launched yet)"; }

/* What needs no plan is refused first. */
static int read_args(const struct eval_args *a, struct eval_answer *out)
{
    struct caching_options unused = caching_allocator_defaults();

    out->noisy = a->noise != NULL;
    if (money_check(&a->money) < 0 || (a->noise && jitter_parse(a->noise, &out->noise) < 0) ||
        (a->conf && caching_allocator_configure(&unused, a->conf) < 0))
        return -1;
    if (plan_source_given(&a->plan, &a->set, &out->plan) < 0)
        return -1;
    if (a->conf && strlen(a->conf) >= sizeof out->plan.environment.alloc_conf)
        return plan_free(&out->plan), fail("--alloc-conf: at most %zu letters", sizeof out->plan.environment.alloc_conf - 1);
    if (a->conf)
        snprintf(out->plan.environment.alloc_conf, sizeof out->plan.environment.alloc_conf, "%s", a->conf);
    if (a->money.tokens && sample_refuse_tokens(&out->plan.model) < 0) {
        plan_free(&out->plan);
        return -1;
    }
    if (a->host_memory)
        out->plan.cluster.node.memory = a->host_memory;
    return 0;
}

/* The step on the clock, and what noise adds to it as it ran, with contention. */
static int on_clock(struct eval_answer *out)
{
    struct run run = { 0 };

    if (simulate_plan(&out->plan, &out->e, &out->t, out->noisy ? &run : NULL) < 0)
        return -1;
    bool seen = run.n > 0;
    if (seen)
        jitter_of(&out->noise, out->plan.cluster.world_size, &out->e.schedules, &run, &out->added);
    run_free(&run);
    return out->noisy && !seen ? fail("--jitter: this step has too many entries to look at each of them") : 0;
}

int eval_ask(const struct eval_args *a, struct eval_answer *out)
{
    int rc = EXIT_MISUSE;

    if (read_args(a, out) < 0)
        return EXIT_MISUSE;
    if (measured_load(a->db, out->plan.precision, out->plan.kernels, &out->plan.cluster) < 0)
        rc = measured_status();
    else if (evaluate_allocated(&out->plan, &out->e) == 0) {
        bool replayed = evaluation_reserve(&out->plan, &out->e, NULL) == 0;
        if (replayed && on_clock(out) == 0)
            return out->e.m.fits ? EXIT_DONE : EXIT_NO;
        evaluation_free(&out->e);
        rc = replayed || out->plan.model.recorded ? rc : EXIT_FAILED;      /* a recorded file's requests are the file's own */
    }
    measured_unload(&out->plan.cluster);
    plan_free(&out->plan);
    return rc;
}

json_t *eval_json(const struct eval_args *a, const struct eval_answer *e)
{
    json_t *doc = evaluation_json(&e->plan, &e->e), *time;

    plan_words_into(doc, &e->plan);
    simulate_timing_into(doc, &e->plan, &e->e, &e->t);
    time = json_object_get(doc, "time");
    json_object_set_new(time, "measured", measured_json(&e->plan, &e->e.schedules));
    if (a->money.tokens)
        json_object_set_new(doc, "training", money_json(&a->money, &e->plan, &e->t));
    if (e->noisy)
        json_object_set_new(time, "jitter", jitter_json(&e->noise, &e->added, e->t.line.step_s - e->t.line.slowest_s));
    json_object_set_new(doc, "dpx", json_integer(1));
    json_object_set_new(doc, "model", evaluation_model_json(&e->plan.model));
    if (e->plan.model.experts > 0)
        json_object_set_new(json_object_get(doc, "model"), "routing", json_string(experts_routing_of(&e->plan)));
    json_object_set_new(doc, "cluster", evaluation_cluster_json(&e->plan.cluster));
    return doc;
}

void eval_free(struct eval_answer *e)
{
    evaluation_free(&e->e);
    measured_unload(&e->plan.cluster);
    plan_free(&e->plan);
}
