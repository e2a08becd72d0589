/* dpxrun_engine_record.c -- a framework's run in the tables of dpxrun's own runs, and what each of its ranks recorded. */
#include "exec/process/dpxrun_engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/version.h"
#include "calib/store/runs_memory.h"
#include "exec/device/host_info.h"

static double wall_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Collectives of the run's first steps as planned: of what ranks record. */
static int planned_comm(const struct engine_run *e, int64_t steps, struct run_comm comm[COMM_LINES])
{
    const struct schedules *s = &e->rank[0].s;
    struct comm_table t;
    int n = 0;

    for (int id = 0; id < NSCHED; id++) {
        int64_t times = sched_times(s, (enum sched_id)id, steps);
        evaluation_comm_count(s, (enum sched_id)id, &t);
        for (int i = 0; i < t.n && times > 0; i++) {
            struct run_comm c = { coll_name(t.line[i].op), s->groups.group[t.line[i].group].name, dtype_name(t.line[i].dtype),
                                  times * t.line[i].count, times * t.line[i].bytes };
            int k = 0;
            while (k < n && (strcmp(comm[k].op, c.op) || strcmp(comm[k].group, c.group) || strcmp(comm[k].dtype, c.dtype)))
                k++;
            if (k == n)
                comm[n++] = (struct run_comm){ c.op, c.group, c.dtype, 0, 0 };
            comm[k].count += c.count;
            comm[k].bytes += c.bytes;
        }
    }
    return n;
}

static int begin(struct engine_run *e, const char *plan, const char *options)
{
    struct dpxrun *r = e->r;
    const struct predicted *p = &r->predicted;
    struct run_comm comm[COMM_LINES];
    struct run_phase phase[RP_BUBBLE];
    struct host_info h;

    if (host_info(&h) < 0)
        return -1;
    for (int i = 0; i < RP_BUBBLE; i++)
        phase[i] = (struct run_phase){ predict_phase_names[i], p->phase[i] };
    struct run_start start = { .started = wall_clock(), .host = h.host, .device = e->job.cuda ? "cuda" : "cpu", .cpu = h.cpu, .cores = h.cores,
                               .memory = h.memory, .dpx_version = version_text(), .comm_version = e->job.cuda ? "NCCL" : "gloo",
                               .kernels_version = e->job.versions, .plan = plan, .options = options, .world_size = r->plan.cluster.world_size,
                               .seed = r->o.seed };
    struct run_predicted pred = { .basis = basis_name(p->t.basis), .step_s = p->t.line.step_s, .low_s = p->t.low_s, .high_s = p->t.high_s,
                                  .rank = p->e.m.rank, .held_bytes = engine_planned_reserved(e), .allocated_bytes = p->e.m.ledger.peak.bytes,
                                  .process_bytes = -1, .comm = comm, .phase = phase, .ncomm = planned_comm(e, r->o.steps < 3 ? r->o.steps : 3, comm),
                                  .nphase = RP_BUBBLE };
    r->run_id = runs_begin(r->db, &start, &pred);
    return r->run_id > 0 ? 0 : -1;
}

/* What each rank is to allocate in each phase, and of what the fullest one's peak consists. */
static int predicted_ranks(struct engine_run *e)
{
    const struct memory_verdict *v = &e->r->predicted.e.m;
    int64_t n = e->r->plan.cluster.world_size;
    struct run_rank_phase *p = calloc((size_t)n * NEP, sizeof *p);
    struct run_part part[NCAT];
    struct run_memory_side side = { .available = v->available - (v->needed - v->ledger.peak.bytes), .part = part, .nparts = NCAT };

    for (int c = 0; c < NCAT; c++)
        part[c] = (struct run_part){ .rank = v->rank, .category = category_name((enum category)c), .bytes = -1,
                                     .predicted_bytes = v->ledger.peak.by[c] };
    for (int64_t i = 0; p && i < n * NEP; i++)
        p[i] = (struct run_rank_phase){ .rank = i / NEP, .phase = engine_phase_names[i % NEP],
                                        .predicted_allocated = engine_peak_planned(&e->rank[i / NEP], (int)(i % NEP)) };
    int rc = !p ? fail("out of memory for %" PRId64 " ranks", n)
           : runs_ranks_predicted(e->r->db, e->r->run_id, p, n * NEP) < 0 || runs_memory_predicted(e->r->db, e->r->run_id, &side) < 0 ? -1 : 0;
    free(p);
    return rc;
}

int engine_record_begun(struct engine_run *e)
{
    struct dpxrun *r = e->r;

    if (r->o.no_db)
        return 0;
    if (!(r->db = db_open(r->o.db)))
        return -1;
    json_t *doc = plan_to_json(&r->plan), *o = json_pack("{s:s, s:I, s:s?, s:s?, s:f}", "engine", engine_name(e->job.engine), "steps",
                                                         (json_int_t)r->o.steps, "data", r->o.data, "init", r->o.init, "lr", r->o.lr);
    char *plan = doc ? json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS) : NULL, *options = o ? json_dumps(o, JSON_COMPACT) : NULL;
    int rc = plan && options ? (begin(e, plan, options) < 0 || predicted_ranks(e) < 0 ? -1 : 0) : fail("out of memory for the run's record");
    json_decref(doc);
    json_decref(o);
    free(plan);
    free(options);
    return rc;
}

/* The group of the plan that has these ranks, seen from rank 0. */
static const char *group_of(const struct schedules *s, const char *ranks)
{
    char these[600];

    for (int g = 0; g < s->groups.n; g++) {
        const struct mesh_group *of = &s->groups.group[g].of;
        int at = 0;
        these[0] = '\0';
        for (int64_t i = 0; i < mesh_ranks(of) && at < (int)sizeof these - 24; i++)
            at += snprintf(these + at, sizeof these - (size_t)at, "%s%" PRId64, i ? "," : "", mesh_member(of, 0, i));
        if (!strcmp(these, ranks))
            return s->groups.group[g].name;
    }
    return "another";
}

static int64_t bytes_of(const char *dtype, int64_t elements)
{
    for (int d = 0; d < NDTYPE; d++)
        if (!strcmp(dtype, dtype_name((enum dtype)d)))
            return elements * dtype_bytes((enum dtype)d);
    return 0;
}

/* What rank 0 issued in init and the first three steps, each collective, group and dtype a row. */
static int record_comm(struct engine_run *e)
{
    enum { ROWS = 64 };
    static struct { char op[32], ranks[600], dtype[16]; } word[ROWS];
    struct run_comm comm[ROWS];
    int n = 0;

    for (int p = 0; p < NEP; p++)
        for (int64_t i = 0; i < e->rows.rank[0].calls[p].n; i++) {
            long long elements;
            int k = 0;
            if (n == ROWS || sscanf(e->rows.rank[0].calls[p].line[i], "%31s %599s %15s %lld", word[n].op, word[n].ranks, word[n].dtype, &elements) != 4)
                continue;
            while (strcmp(word[k].op, word[n].op) || strcmp(word[k].ranks, word[n].ranks) || strcmp(word[k].dtype, word[n].dtype))
                k++;                    /* at the latest, itself */
            if (k == n)
                comm[n++] = (struct run_comm){ word[k].op, group_of(&e->rank[0].s, word[k].ranks), word[k].dtype, 0, 0 };
            comm[k].count++;
            comm[k].bytes += bytes_of(word[k].dtype, elements);
        }
    return runs_comm(e->r->db, e->r->run_id, comm, n);
}

static int record_rows(struct engine_run *e)
{
    struct dpxrun *r = e->r;
    int64_t n = e->rows.n;
    struct run_step *s = calloc((size_t)e->steps + 1, sizeof *s);
    struct run_memory *m = calloc((size_t)n, sizeof *m);
    int rc = s && m ? 0 : fail("out of memory for the run's record");

    for (int64_t i = 0; rc == 0 && i < e->steps; i++)
        s[i] = (struct run_step){ i + 1, sched_name(sched_of_step(&e->rank[0].s, i + 1)), e->loss[i], e->seconds[i], e->lr[i], e->rows.rank[0].norm[i],
                                  engine_tokens(&r->plan) };
    for (int64_t i = 0; rc == 0 && i < n; i++)
        m[i] = (struct run_memory){ i, NULL, engine_most(&e->rows.rank[i], true), engine_most(&e->rows.rank[i], false), e->rows.rank[i].driver };
    if (rc == 0 && (runs_steps(r->db, r->run_id, s, (int)e->steps) < 0 || runs_memory(r->db, r->run_id, m, (int)n) < 0 ||
                    record_comm(e) < 0))
        rc = -1;
    free(s);
    free(m);
    return rc;
}

static int record_ranks(struct engine_run *e)
{
    int64_t n = e->rows.n, most = e->r->o.steps;
    struct run_ranks m = { .phase = calloc((size_t)n * NEP, sizeof *m.phase), .step = calloc((size_t)(n * most), sizeof *m.step), .part = e->part,
                           .nparts = e->part ? n : 0, .clock = calloc((size_t)n, sizeof *m.clock) };
    int rc = m.phase && m.step && m.clock ? 0 : fail("out of memory for the ranks' record");

    for (int64_t i = 0; rc == 0 && i < n; i++) {
        const struct engine_rank *k = &e->rows.rank[i];
        for (int p = 0; p < NEP; p++)
            m.phase[m.nphases++] = (struct run_rank_phase){ i, engine_phase_names[p], -1, k->phase[p].allocated, k->phase[p].active,
                                                            k->phase[p].reserved, k->phase[p].retries };
        for (int64_t s = 0; s < k->steps; s++)
            m.step[m.nsteps++] = (struct run_rank_step){ i, s + 1, k->loss[s], k->seconds[s] };
        if (k->clocks.sm >= 0)
            m.clock[m.nclocks++] = (struct run_rank_clock){ i, k->clocks.sm, k->clocks.sm_most, k->clocks.memory, k->clocks.memory_most };
    }
    if (rc == 0)
        rc = runs_ranks_measured(e->r->db, e->r->run_id, &m);
    if (rc == 0 && e->part) {
        const double s[] = { [RP_COMPUTE] = e->part[0].compute, [RP_EXPOSED] = e->part[0].exposed, [RP_OPTIMIZER] = e->part[0].optimizer,
                             [RP_IDLE] = e->part[0].idle };
        struct run_phase phase[RP_BUBBLE];
        for (int i = 0; i < RP_BUBBLE; i++)
            phase[i] = (struct run_phase){ predict_phase_names[i], s[i] };
        rc = runs_phases(e->r->db, e->r->run_id, phase, RP_BUBBLE);
    }
    free(m.phase);
    free(m.step);
    free(m.clock);
    return rc;
}

int engine_record_ended(struct engine_run *e)
{
    struct dpxrun *r = e->r;
    static const enum run_outcome outcome[] = { [ENDED_WELL] = RUN_FINISHED, [ENDED_REFUSED] = RUN_FAILED, [ENDED_OOM] = RUN_FAILED,
                                                [ENDED_FAILED] = RUN_FAILED, [ENDED_HUNG] = RUN_FAILED, [ENDED_BY_SIGNAL] = RUN_INTERRUPTED };
    struct run_end end = { .outcome = outcome[e->end.how], .reason = e->end.how == ENDED_WELL ? NULL : e->end.why, .ended = wall_clock(), .step_s = e->median_s,
                           .p10_s = e->p10_s, .p90_s = e->p90_s, .tokens_per_s = (double)engine_tokens(&r->plan) / e->median_s };

    if (!r->db || r->run_id <= 0)
        return 0;
    return record_rows(e) < 0 || record_ranks(e) < 0 || runs_end(r->db, r->run_id, &end) < 0 ? -1 : 0;
}
