/* phases_json.c -- phases as a document. */
#include "sim/plan/phases.h"

#include "model/memory/evaluate.h"

static json_t *cost_json(const struct cost *c)
{
    return json_pack("{s:f, s:f, s:f, s:s}", "s", c->s, "low_s", c->low_s, "high_s", c->high_s, "basis", basis_name(c->basis));
}

static json_t *role_json(const struct phases *p, int i)
{
    const struct phase_role *r = &p->plan.role[i];
    const struct role_bytes *b = &p->bytes[i];
    static const char *const kinds[] = { "train", "infer", "engine" };
    json_t *j = json_pack("{s:s, s:s, s:s}", "name", r->name, "kind", kinds[r->kind], "between",
                          r->kind == ROLE_IS_ENGINE ? (r->engine.sleep ? "asleep" : "awake") : role_where_name(r->between));

    if (r->kind == ROLE_IS_ENGINE)
        json_object_update_new(j, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:s}", "engine", engine_kind_name(r->engine.kind), "model",
                               p->engine_model.name, "tensor", (json_int_t)r->engine.tensor, "weights_bytes", (json_int_t)p->served.weights, "kv_bytes_per_token",
                               (json_int_t)p->served.kv_token, "kv_bytes", (json_int_t)p->served.kv, "kv_tokens", (json_int_t)p->served.kv_tokens, "awake_bytes",
                               (json_int_t)p->served.awake, "asleep_bytes", (json_int_t)p->served.asleep, "graphs_bytes", (json_int_t)p->served.graphs,
                               "graphs_high_bytes", (json_int_t)p->served.graphs_high, "host_bytes", (json_int_t)p->served.host, "apart", role_is_apart(r), "pipeline", (json_int_t)r->engine.pipeline,
                               "expert", (json_int_t)r->engine.expert, "quantization", engine_codes_name(r->engine.codes)));
    else
        json_object_update_new(j, json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "model", p->role[i].plan.model.name, "params_bytes", (json_int_t)b->params,
                               "optimizer_bytes", (json_int_t)b->states, "other_bytes", (json_int_t)b->other, "update_bytes", (json_int_t)b->update,
                               "empties_cache", json_boolean(r->empties)));
    return j;
}

static json_t *phase_json(const struct phases *p, int k, const struct moment *of)
{
    const struct phase_step *s = &p->plan.step[k];
    const struct moment *m = &of[k];

    return json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", s->name, "does", phase_does_name(s->does), "role",
                     s->role >= 0 ? json_string(p->plan.role[s->role].name) : json_null(), "time", cost_json(&p->time[k]), "times", (json_int_t)p->times[k],
                     "live_bytes", (json_int_t)m->live, "reserved_bytes", (json_int_t)m->reserved, "outside_bytes", (json_int_t)m->outside, "engine_bytes",
                     (json_int_t)m->engine, "needed_bytes", (json_int_t)m->needed, "taken_bytes", (json_int_t)m->taken, "host_bytes", (json_int_t)m->host, "moved_bytes",
                     (json_int_t)m->moved);
}

static json_t *generation_json(const struct phases *p)
{
    const struct generation *g = &p->generation;

    if (!p->generates)
        return json_null();
    return json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f}", "time", cost_json(&g->time), "prefill_s", g->prefill_s, "again_s", g->again_s, "decode_s",
                     g->decode_s, "gpu_s", g->gpu_s, "tail_s", g->tail_s, "preempted", (json_int_t)g->preempted,
                     "sequences_at_once", (json_int_t)g->slots, "tokens_after_one_another", g->steps, "tokens_per_s_of_an_engine", g->tokens_per_s);
}

static json_t *handover_json(const struct phases *p)
{
    const struct handover *h = &p->handover;

    if (!p->hands_over)
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "tensors", (json_int_t)h->tensors, "bytes", (json_int_t)h->bytes, "gathered_bytes", (json_int_t)h->gathered, "calls", (json_int_t)h->calls,
                     "peak_bytes", (json_int_t)h->peak, "time", cost_json(&h->time));
}

static json_t *layouts_json(const struct phases *p)
{
    struct phases_layout l[PHASE_LAYOUTS];
    json_t *rows = json_array();
    int tried, n = phases_search(p, l, &tried);

    for (int i = 0; i < n; i++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:f, s:i, s:s, s:I, s:I, s:o, s:f, s:I, s:o}", "layout", l[i].apart ? "apart" : "together", "others", l[i].others, "tight",
                                              l[i].tight, "trainer_gpus", (json_int_t)l[i].trainer_gpus, "engine_gpus",
                                              (json_int_t)l[i].engine_gpus, "tensor", (json_int_t)l[i].tensor, "share", l[i].share, "sleep", l[i].sleep,
                                              "between", role_where_name(l[i].between), "micro_batch_times", (json_int_t)l[i].update_times,
                                              "forward_micro_batch_times", (json_int_t)l[i].forward_times, "iteration", cost_json(&l[i].iteration), "idle", l[i].idle,
                                              "needed_bytes", (json_int_t)l[i].needed, "plan", l[i].doc));
    const struct phases_layout *together = phases_fastest(l, n, false), *apart = phases_fastest(l, n, true);
    int faster = together && apart ? phases_faster(together, apart) : 0;
    json_t *quotient = json_null();

    if (together && apart) {
        struct phases_quotient q = phases_quotient_of(together, apart);
        quotient = json_pack("{s:f, s:f, s:f}", "middle", q.middle, "low", q.low, "high", q.high);
    }
    return json_pack("{s:i, s:o, s:s?, s:o}", "tried", tried, "fit", rows, "faster", faster == 0 ? NULL : faster < 0 ? "together" : "apart", "together_over_apart", quotient);
}

/* GPUs beside the first ones. */
static json_t *places_json(const struct phases *p)
{
    json_t *places = json_array();

    for (int i = 1; i < p->plan.nplaces; i++) {
        const struct phases_place *m = &p->more[i];
        json_t *phases = json_array();
        for (int k = 0; k < p->plan.nsteps; k++)
            if (phase_place(&p->plan, &p->plan.step[k]) == i)
                json_array_append_new(phases, phase_json(p, k, m->moment));
        json_array_append_new(places, json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:o}", "name", p->plan.place[i].name, "cluster", evaluation_cluster_json(&m->cluster),
                                                "largest", p->plan.step[m->largest].name, "usable_bytes", (json_int_t)m->available, "limit_bytes",
                                                (json_int_t)m->limit, "host_bytes_of_a_node", (json_int_t)m->host, "phases", phases));
    }
    return places;
}

static json_t *draws_json(const struct phases *p)
{
    json_t *draws = json_array();

    for (int i = 0; i < PHASE_DRAWS; i++)
        json_array_append_new(draws, json_real(p->draw[i]));
    return draws;
}

json_t *phases_json(const struct phases *p)
{
    struct phases_change c[PHASE_CHANGES];
    json_t *roles = json_array(), *phases = json_array(), *changes = json_array();
    int n = p->fits ? 0 : phases_changes(p, c);

    for (int i = 0; i < p->plan.nroles; i++)
        json_array_append_new(roles, role_json(p, i));
    for (int k = 0; k < p->plan.nsteps; k++)
        json_array_append_new(phases, phase_json(p, k, p->moment));
    for (int i = 0; i < n; i++)
        json_array_append_new(changes, json_pack("{s:s, s:I}", "change", c[i].words, "needed_bytes", (json_int_t)c[i].needed));
    json_t *j = json_pack("{s:i, s:o, s:b, s:b, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "dpx", 1, "cluster", evaluation_cluster_json(&p->cluster), "fits",
                          p->fits, "tight", p->tight, "why_not", p->fits ? json_null() : json_string(p->why_not), "largest",
                          p->plan.step[p->largest].name, "usable_bytes", (json_int_t)p->available, "limit_bytes", (json_int_t)p->limit, "host_bytes_of_a_node",
                          (json_int_t)p->host, "samples", (json_int_t)p->plan.samples, "iteration", cost_json(&p->iteration), "roles", roles, "phases", phases);
    json_object_set_new(j, "iteration_draws_s", draws_json(p));
    json_object_set_new(j, "moves_s", json_real(p->moves_s));
    json_object_set_new(j, "generation", generation_json(p));
    json_object_set_new(j, "hand_over", handover_json(p));
    json_object_set_new(j, "changes", changes);
    json_object_set_new(j, "places", places_json(p));
    json_object_set(j, "plan", p->doc);
    json_object_set_new(j, "search", p->search ? layouts_json(p) : json_null());
    return j;
}
