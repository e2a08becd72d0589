/* bill_json.c -- the bill as a document. */
#include <math.h>

#include "sim/plan/bill.h"
#include "sim/plan/plan_words.h"

static json_t *known(double x, bool is) { return is && isfinite(x) ? json_real(x) : json_null(); }

static json_t *checkpoint_json(const struct bill *b)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:o, s:o, s:f, s:o, s:o, s:I, s:o}", "bytes", (json_int_t)b->saved.bytes, "weights_bytes",
                     (json_int_t)b->saved.weights, "states_bytes", (json_int_t)b->saved.states, "rank_bytes", (json_int_t)b->saved.rank, "node_bytes",
                     (json_int_t)b->saved.node, "written_by", b->saved.by, "snapshot_s", b->times.snapshot_s, "write_s",
                     known(b->times.write_s, b->times.write_s >= 0), "read_s", known(b->times.read_s, b->times.read_s >= 0), "blocked_s",
                     b->times.write_s >= 0 ? b->run.blocked_s : b->times.snapshot_s, "every_steps", b->known ? json_integer(b->run.every) : json_null(),
                     "every_s", known((double)b->run.every * b->run.step_s, b->known), "host_bytes_a_node", (json_int_t)b->host_bytes, "host_free_bytes",
                     b->host_bytes ? json_integer(b->host_free) : json_null());
}

static json_t *interruptions_json(const struct bill *b)
{
    const struct failures *f = &b->failures;
    double gpu = f->all_s > 0 ? f->all_s : f->gpu_s;
    json_t *causes = json_array();

    for (int i = 0; i < FAILURE_CAUSES; i++)
        if (b->by_cause[i] > 0)
            json_array_append_new(causes, json_pack("{s:s, s:f, s:f}", "cause", failure_cause_name(i), "every_s", 1 / b->by_cause[i], "share",
                                                    b->by_cause[i] * b->run.mtbf_s));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:o, s:f}", "mtbf_of_a_gpu_s", known(gpu, gpu > 0), "mtbf_of_a_node_s",
                     known(f->node_s, f->node_s > 0), "mtbf_of_the_network_s", known(f->network_s, f->network_s > 0), "mtbf_of_the_job_s",
                     known(b->run.mtbf_s, true), "causes", causes, "rate", f->published ? json_string(f->published->name) : json_null(), "source",
                     f->published ? json_string(f->published->source) : json_null(), "recover_s", b->run.recover_s, "found_s", b->found_s, "warm_up_s",
                     b->run.warm_s, "preempted_every_s", known(b->run.preempted_s, b->run.preempted_s > 0), "queue_s", b->run.queue_s);
}

static json_t *time_json(const struct bill_asked *a, const struct bill *b)
{
    const struct run_time *t = &b->time;
    const struct timeline *l = &b->e.t.line;

    if (!b->known || b->endless)
        return json_null();
    json_t *j = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "total_s", t->total_s, "low_s", b->low_s, "high_s", b->high_s,
                          "useful_s", t->useful_s, "exposed_s", l->exposed_s / l->step_s * t->useful_s, "bubble_s", l->bubble_s / l->step_s * t->useful_s,
                          "checkpoints_s", t->blocked_s, "lost_s", t->lost_s, "restarts_s", t->restarts_s, "warm_up_s", t->warm_s, "waiting_s", t->waiting_s, "queued_s", t->queued_s, "interruptions",
                          t->interruptions, "goodput", t->useful_s / t->total_s);
    json_object_set_new(j, "twice_as_often", known(b->half, b->half > 0));
    json_object_set_new(j, "longest_every_steps", b->longest ? json_integer(b->longest) : json_null());
    json_object_set_new(j, "half_as_often", known(b->twice, b->twice > 0));
    json_object_set_new(j, "ends", a->start ? json_string(bill_date_after(a, t->total_s).s) : json_null());
    return j;
}

static json_t *money_of_bill(const struct bill_asked *a, const struct bill *b)
{
    const struct cluster *c = &b->e.plan.cluster;
    double gpus = (double)(c->world_size + (b->spares > 0 ? b->spares : 0) * c->gpus_per_node), hours = bill_paid_s(b, b->time.total_s) / 3600 * gpus;
    bool is = b->known && !b->endless, priced = is && a->eval.money.price >= 0;

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "gpu_hours", known(hours, is), "useful_gpu_hours",
                     known(b->time.useful_s / 3600 * (double)c->world_size, is), "price", a->eval.money.price >= 0 ? json_real(a->eval.money.price) : json_null(),
                     "cost", known(hours * a->eval.money.price, priced), "low_cost", known(bill_paid_s(b, b->low_s) / 3600 * gpus * a->eval.money.price, priced), "high_cost",
                     known(bill_paid_s(b, b->high_s) / 3600 * gpus * a->eval.money.price, priced), "energy_kwh_at_most",
                     known(b->money.watts * hours / 1000, is && b->money.watts > 0));
}

/* null: not asked. */
static json_t *worlds_json(const struct bill_asked *a, const struct bill *b)
{
    struct bill_world w[BILL_WORLDS];
    json_t *rows = json_array();

    if (!a->worlds || bill_worlds(a, b, w) < 0) {
        json_decref(rows);
        return json_null();
    }
    for (int i = 0; i < BILL_WORLDS; i++)
        if (w[i].possible)
            json_array_append_new(rows, json_pack("{s:I, s:b, s:f, s:I, s:o, s:o}", "gpus", (json_int_t)w[i].gpus, "fits", w[i].fits, "step_s",
                                                  w[i].step_s, "every_steps", (json_int_t)w[i].every, "total_s", known(w[i].time.total_s, true), "goodput",
                                                  known(w[i].time.useful_s / w[i].time.total_s, true)));
    return rows;
}

json_t *bill_json(const struct bill_asked *a, const struct bill *b)
{
    const struct plan *p = &b->e.plan;
    char words[PLAN_WORDS], label[KNOB_LABEL];

    plan_words(p, words, sizeof words);
    knob_label(p, label, sizeof label);
    return json_pack("{s:i, s:o, s:o, s:s, s:s, s:b, s:b, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "dpx", 1, "model", evaluation_model_json(&p->model),
                     "cluster", evaluation_cluster_json(&p->cluster), "label", label, "words", words, "fits", b->e.e.m.fits, "endless", b->endless, "steps",
                     (json_int_t)b->money.steps, "step_s", b->e.t.line.step_s, "low_step_s", b->e.t.low_s, "high_step_s", b->e.t.high_s, "billed_step_s", b->run.step_s, "evaluation_s", b->eval_s, "beside_checkpoint", b->beside, "undisturbed_s",
                     b->money.days * 86400, "checkpoint", checkpoint_json(b), "interruptions", interruptions_json(b), "run", time_json(a, b), "money",
                     money_of_bill(a, b),
                     "worlds", worlds_json(a, b));
}
