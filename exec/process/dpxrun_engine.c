/* dpxrun_engine.c -- dpxrun --engine: a plan run by its framework, beside the prediction, in the same tables of the database. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/size.h"
#include "calib/import/import_kineto.h"
#include "calib/store/measured_for.h"
#include "calib/trace/kineto_load.h"
#include "exec/device/host_info.h"
#include "exec/process/dpxrun_engine.h"
#include "exec/process/launch.h"
#include "sim/plan/plan_words.h"

/* ---- before ---- */

int64_t engine_peak_planned(const struct planned *p, int phase)
{
    static const enum sched_id of[NEP] = { SCHED_INIT, SCHED_FIRST, SCHED_STEADY, SCHED_STEADY };

    return p->l.phase[of[phase]].bytes;
}

static int plan_ranks(struct engine_run *e)
{
    int64_t n = e->r->plan.cluster.world_size;

    e->rank = calloc((size_t)n, sizeof *e->rank);
    if (!e->rank)
        return fail("out of memory for %" PRId64 " ranks", n);
    for (int64_t i = 0; i < n; i++) {
        if (lower(&e->r->plan, i, &e->rank[i].s) < 0)
            return -1;
        ledger_run(&e->rank[i].s, &e->rank[i].l);
    }
    return 0;
}

int dpxrun_engine_predict(struct dpxrun *r)
{
    struct predicted *p = &r->predicted;

    r->plan.cluster.measured = NULL;
    predict_free(p);
    *p = (struct predicted){ 0 };
    if (!r->o.no_db && measured_for(r->o.db, false, r->plan.precision, r->plan.kernels, &r->plan.cluster, &p->known) < 0)
        return -1;
    if (evaluate(&r->plan, &p->e) < 0 || simulate_plan(&r->plan, &p->e, &p->t, &p->run) < 0)
        return -1;
    p->phase[RP_COMPUTE] = p->t.line.compute_s;
    p->phase[RP_EXPOSED] = p->t.line.exposed_s;
    p->phase[RP_OPTIMIZER] = p->t.line.optimizer_s;
    p->phase[RP_IDLE] = p->t.line.idle_s;
    return 0;
}

static int rates(struct engine_run *e)
{
    const struct options *o = &e->r->o;
    struct train_args a = { .plan = &e->r->plan, .steps = o->steps, .warmup = o->warmup, .lr = o->lr, .min_lr = o->min_lr };

    e->lr = calloc((size_t)o->steps, sizeof *e->lr);
    e->seconds = calloc((size_t)o->steps, sizeof *e->seconds);
    e->loss = calloc((size_t)o->steps, sizeof *e->loss);
    if (!e->lr || !e->seconds || !e->loss)
        return fail("out of memory for %" PRId64 " steps", o->steps);
    for (int64_t i = 0; i < o->steps; i++)
        e->lr[i] = train_lr(&a, i + 1);
    e->job.lr = e->lr;
    return 0;
}

static struct engine_job job_of(const struct dpxrun *r)
{
    const struct options *o = &r->o;

    return (struct engine_job){ .engine = (enum engine)o->engine, .launcher = (enum engine_launcher)o->launcher, .plan = &r->plan,
                                .python = o->python ? o->python : "python3", .init = o->init, .data = o->data, .sequential = o->sequential,
                                .seed = (uint64_t)o->seed, .steps = o->steps, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                                .weight_decay = o->weight_decay, .cuda = o->device == DEVICE_CUDA,
                                .threads = o->threads ? (int)o->threads : host_threads((int)r->plan.cluster.world_size) };
}

/* More ranks than GPUs would share them, which NCCL refuses in the midst of a run. */
static int starts_as_many(const struct engine_job *j)
{
    int64_t want = j->plan->cluster.world_size;

    if (want > ENGINE_MOST_RANKS)
        return fail("the plan is for %" PRId64 " ranks, and an engine starts %d at most: --reduce 8 runs it on 8, with fewer layers", want, ENGINE_MOST_RANKS);
    if (!j->cuda || j->launcher == LAUNCH_SRUN || want <= j->gpus)
        return 0;
    return fail("the plan is for %" PRId64 " GPUs, and this machine has %d: --reduce %d runs it on as many, with fewer layers", want, j->gpus, j->gpus);
}

/* Ranks of a CPU share the machine's memory: a plan that is too large would be killed in the midst of a step. */
static int enough_memory(const struct engine_run *e)
{
    struct host_info h;
    int64_t want = 0;

    for (int64_t i = 0; i < e->r->plan.cluster.world_size; i++)
        want += e->rank[i].l.peak.bytes;
    if (e->job.cuda || host_info(&h) < 0 || h.available <= 0 || want <= h.available)
        return EXIT_DONE;
    fail("the plan's %" PRId64 " ranks allocate %s, and this machine has %s left: --device cuda, or a smaller model", e->r->plan.cluster.world_size,
         size_text(want).s, size_text(h.available).s);
    return EXIT_NO;
}

/* What PyTorch's allocator takes of a GPU; of the CPU's nothing is reserved. */
int64_t engine_planned_reserved(const struct engine_run *e)
{
    const struct reserved *r = &e->r->predicted.e.reserved;

    return e->job.cuda && r->known ? r->reserved_peak : -1;
}

/* ---- after: figures ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Steps behind the three that are tracked, but the last, which is traced; without one all behind the first. */
static void medians(struct engine_run *e)
{
    int64_t first = e->steps > 3 ? 3 : e->steps > 1 ? 1 : 0, n = e->steps - first - engine_traces(e->steps);
    double *s = calloc((size_t)n + 1, sizeof *s);

    e->median_s = e->p10_s = e->p90_s = NAN;
    if (!s || n < 1) {
        free(s);
        return;
    }
    memcpy(s, e->seconds + first, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_value);
    e->median_s = n % 2 ? s[n / 2] : .5 * (s[n / 2 - 1] + s[n / 2]);
    e->p10_s = s[(n - 1) / 10];
    e->p90_s = s[(9 * (n - 1) + 9) / 10];
    free(s);
}

/* Seconds of the slowest rank; the mean of the losses of ranks that have one: as many ranks share each sample. */
static void over_ranks(struct engine_run *e)
{
    e->steps = e->r->o.steps;
    for (int64_t i = 0; i < e->rows.n; i++)
        if (e->rows.rank[i].steps < e->steps)
            e->steps = e->rows.rank[i].steps;
    for (int64_t s = 0; s < e->steps; s++) {
        double sum = 0;
        int n = 0;
        for (int64_t i = 0; i < e->rows.n; i++) {
            const struct engine_rank *k = &e->rows.rank[i];
            e->seconds[s] = fmax(e->seconds[s], k->seconds[s]);
            if (!isnan(k->loss[s])) {
                sum += k->loss[s];
                n++;
            }
        }
        e->loss[s] = n ? sum / n : (double)NAN;
    }
    medians(e);
    e->r->measured.median_s = e->median_s;
}

/* Where the time of the traced step went on each rank. */
static int read_traces(struct engine_run *e)
{
    if (!engine_traces(e->steps) || e->end.how != ENDED_WELL)
        return 0;
    e->part = calloc((size_t)e->rows.n, sizeof *e->part);
    for (int64_t i = 0; e->part && i < e->rows.n; i++) {
        struct kineto k;
        char path[600];
        engine_trace_path(&e->job, i, path, sizeof path);
        if (kineto_load(path, &k) < 0)
            return -1;
        const double *v = k.median.v;
        double optimizer = isnan(v[M_OPTIMIZER]) ? 0 : v[M_OPTIMIZER];
        e->part[i] = (struct run_rank_part){ i, v[M_COMPUTE] - optimizer, v[M_EXPOSED], optimizer,
                                             fmax(0, v[M_STEP] - v[M_COMPUTE] - v[M_EXPOSED]) /* each a median of its own */ };
        kineto_free(&k);
    }
    return e->part ? 0 : fail("out of memory for %" PRId64 " ranks", e->rows.n);
}

/* The traces into the database, as `dpxcal import kineto` takes them: what is predicted from now on rests on this type of GPU.  A trace
 * that it refuses teaches nothing, and says why. */
static void learn(struct engine_run *e)
{
    enum { MOST = 64 };
    static char path[MOST][600];
    char *paths[MOST], plan[600];
    int n = e->rows.n < MOST ? (int)e->rows.n : MOST;
    bool refused;

    if (!e->r->learns || !e->r->db || !e->part || !e->job.cuda)
        return;
    snprintf(plan, sizeof plan, "%s/plan.json", e->job.folder);
    json_t *doc = plan_to_json(&e->r->plan);
    int rc = doc ? json_dump_file(doc, plan, JSON_INDENT(1)) : -1;
    json_decref(doc);
    for (int i = 0; i < n; i++) {
        engine_trace_path(&e->job, i, path[i], sizeof path[i]);
        paths[i] = path[i];
    }
    if (rc < 0 || import_kineto(e->r->db, &(struct import_kineto){ .plan = plan }, paths, n, &refused) < 0)
        fprintf(stderr, "dpx: nothing was learned from this run\n");
}

/* megatron-core calls collectives of groups of one rank, which send nothing and are in no plan. */
static bool is_alone(const struct plan *p, const char *call)
{
    const char *ranks = strchr(call, ' ');

    return p->dialect == DIALECT_MEGATRON && ranks && !memchr(ranks + 1, ',', strcspn(ranks + 1, " "));
}

/* "reduce_scatter 0,1 fp32 1024 sum", without the reduction where that is not compared. */
static void add_call(const struct engine_run *e, struct engine_lines *to, const char *call)
{
    char line[1024];
    size_t at = 0;

    for (int words = 0; call[at] && at < sizeof line - 1; at++)
        if (call[at] == ' ' && ++words == 4 && !e->reductions)
            break;
    snprintf(line, sizeof line, "%.*s", (int)at, call);
    engine_lines_add(to, line);
}

/* Each rank's collectives of init, and of the first three steps as one list, against its schedules: DDP rebuilds its buckets where the
 * schedules say that step 1 ends, and the recorded step 2 begins. */
static void compare_calls(struct engine_run *e)
{
    for (int64_t i = 0; i < e->rows.n; i++)
        for (int d = 0; d < NDIFFER; d++) {
            struct engine_lines want = { 0 }, got = { 0 };
            struct difference *to = &e->rank[i].differs[d];
            for (int64_t step = d; step <= (d ? 3 : 0) && step <= e->steps; step++) {
                if (step == 2 && engine_step_2_is_another(&e->r->plan))
                    continue;
                const struct engine_lines *of = &e->rows.rank[i].calls[EP_INIT + step];
                engine_planned_calls(&e->rank[i].s, step, e->reductions, &want);
                for (int64_t k = 0; k < of->n; k++)
                    if (!is_alone(&e->r->plan, of->line[k]))
                        add_call(e, &got, of->line[k]);
            }
            to->at = engine_first_difference(&want, &got);
            if (to->at >= 0) {
                snprintf(to->planned, sizeof to->planned, "%s", to->at < want.n ? want.line[to->at] : "nothing");
                snprintf(to->issued, sizeof to->issued, "%s", to->at < got.n ? got.line[to->at] : "nothing");
            }
            engine_lines_free(&want);
            engine_lines_free(&got);
        }
}

/* NULL: the rank issued what was planned. */
static const struct difference *first_difference(const struct planned *p)
{
    return p->differs[0].at >= 0 ? &p->differs[0] : p->differs[1].at >= 0 ? &p->differs[1] : NULL;
}

static bool calls_agree(const struct engine_run *e)
{
    for (int64_t i = 0; i < e->rows.n; i++)
        if (first_difference(&e->rank[i]))
            return false;
    return true;
}

int64_t engine_most(const struct engine_rank *k, bool reserved)
{
    int64_t top = -1;

    for (int p = 0; p < NEP; p++) {
        int64_t v = reserved ? k->phase[p].reserved : k->phase[p].allocated;
        top = v > top ? v : top;
    }
    return top;
}

int64_t engine_tokens(const struct plan *p) { return plan_global_batch(p) * p->seq; }

/* ---- after: words ---- */

static void progress(void *arg, int64_t step, double seconds, double loss)
{
    const struct engine_run *e = arg;

    if (launch_terminal() >= 20 && !e->r->o.json)
        fprintf(stderr, "\rstep %" PRId64 "/%" PRId64 "  loss %.4f  %.3f s\033[K", step, e->r->o.steps, loss, seconds);
}

static void print_memory(const struct engine_run *e, FILE *to)
{
    if (engine_most(&e->rows.rank[0], false) < 0) {
        fprintf(to, "memory: not counted%s\n", e->job.cuda ? "" : " (of states or parameters on the host: on the CPU that is the device's memory, too)");
        return;
    }
    fprintf(to, "memory, allocated at most%s\n", e->job.cuda ? " (torch.cuda.memory_stats)" : " (storages of the CPU, counted by PyTorch's profiler, each rounded up to 512 bytes)");
    for (int64_t i = 0; i < e->rows.n; i++)
        for (int p = EP_INIT; p < NEP; p++) {
            int64_t got = e->rows.rank[i].phase[p].allocated, want = engine_peak_planned(&e->rank[i], p);
            if (got >= 0)
                fprintf(to, "  rank %" PRId64 ", %-8s %23s %14s %10s\n", i, p == EP_SECOND ? "step 2" : engine_phase_names[p], size_text(want).s, size_text(got).s,
                       percent_change((double)got / (double)want).s);
        }
    if (engine_most(&e->rows.rank[0], true) >= 0)
        fprintf(to, "  reserved                      %14s %14s\n", size_text(engine_planned_reserved(e)).s, size_text(engine_most(&e->rows.rank[0], true)).s);
}

static void print_calls(const struct engine_run *e, FILE *to)
{
    int64_t n = 0;

    for (int p = 0; p < NEP; p++)
        n += e->rows.rank[0].calls[p].n;
    if (calls_agree(e)) {
        fprintf(to, "collectives: %" PRId64 " on rank 0 in init and the first %" PRId64 " steps; on every rank equal to the plan's, entry for entry%s\n", n,
               e->steps < 3 ? e->steps : 3, engine_step_2_is_another(&e->r->plan) ? " (but step 2, in which ranks compare their traces of modules)" : "");
        return;
    }
    fprintf(to, "collectives: not those of the plan\n");
    for (int64_t i = 0; i < e->rows.n; i++) {
        const struct difference *d = first_difference(&e->rank[i]);
        if (!d)
            continue;
        fprintf(to, "  rank %" PRId64 ", %s, entry %" PRId64 " is the first that differs:\n    planned: %s\n    issued:  %s\n", i,
               d == &e->rank[i].differs[0] ? "init" : "the first steps", d->at + 1, d->planned, d->issued);
        return;
    }
}

/* Of the traced step on rank 0, which its profiler makes somewhat longer. */
static void print_parts(const struct engine_run *e, FILE *to)
{
    for (int i = 0; e->part && i < RP_BUBBLE; i++) {
        const double of[] = { [RP_COMPUTE] = e->part[0].compute, [RP_EXPOSED] = e->part[0].exposed, [RP_OPTIMIZER] = e->part[0].optimizer,
                              [RP_IDLE] = e->part[0].idle };
        fprintf(to, "  %-28s %12.4f s %12.4f s\n", predict_phase_names[i], e->r->predicted.phase[i], of[i]);
    }
}

/* Of the GPU whose SMs ran slowest: below its most they were held back by heat or power, which no prediction knows. */
static void print_clocks(const struct engine_run *e, FILE *to)
{
    int64_t slowest = -1;

    for (int64_t i = 0; i < e->rows.n; i++)
        if (e->rows.rank[i].clocks.sm >= 0 && (slowest < 0 || e->rows.rank[i].clocks.sm < e->rows.rank[slowest].clocks.sm))
            slowest = i;
    if (slowest < 0)
        return;
    fprintf(to, "clock of the SMs while steps ran: %" PRId64 " MHz on rank %" PRId64 ", the slowest", e->rows.rank[slowest].clocks.sm, slowest);
    if (e->rows.rank[slowest].clocks.sm_most > 0)
        fprintf(to, "; its GPU can at most %" PRId64 " MHz", e->rows.rank[slowest].clocks.sm_most);
    fputc('\n', to);
}

static void print_table(const struct engine_run *e, FILE *to)
{
    const struct dpxrun *r = e->r;
    const struct timing *t = &r->predicted.t;
    char words[PLAN_WORDS];

    plan_words(&r->plan, words, sizeof words);
    fprintf(to, "%s.\nIn %s, %" PRId64 " rank%s on %s, %" PRId64 " steps of %" PRId64 " tokens\n", words, e->rows.rank[0].versions, r->plan.cluster.world_size,
            r->plan.cluster.world_size == 1 ? "" : "s", e->rows.rank[0].device, e->steps, engine_tokens(&r->plan));
    fprintf(to, "loss %.4f at first, %.4f at last; %.0f tokens/s\n\n  %-28s %14s %14s\n", e->loss[0], e->loss[e->steps - 1],
           (double)engine_tokens(&r->plan) / e->median_s, "", "predicted", "measured");
    print_memory(e, to);
    print_calls(e, to);
    fprintf(to, "a steady step (predicted 90 %%: %.3g to %.3g s; measured 10 to 90 %%: %.3g to %.3g s)\n  %-28s %12.4f s %12.4f s\n", t->low_s, t->high_s, e->p10_s,
           e->p90_s, "step", t->line.step_s, e->median_s);
    print_parts(e, to);
    print_clocks(e, to);
    if (r->run_id > 0)
        fprintf(to, "recorded as run %" PRId64 " in %s\n", r->run_id, db_path(r->db));
}

static json_t *real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *bytes(int64_t v) { return v < 0 ? json_null() : json_integer(v); }

static json_t *part_json(const struct run_rank_part *p)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "compute_s", real(p->compute), "exposed_comm_s", real(p->exposed), "optimizer_s", real(p->optimizer), "idle_s",
                     real(p->idle));
}

static json_t *clocks_json(const struct engine_clocks *c)
{
    return c->sm < 0 ? json_null() : json_pack("{s:I, s:o, s:o, s:o}", "sm_mhz", (json_int_t)c->sm, "sm_most_mhz", bytes(c->sm_most), "memory_mhz",
                                               bytes(c->memory), "memory_most_mhz", bytes(c->memory_most));
}

static json_t *rank_json(const struct engine_run *e, int64_t i)
{
    const struct engine_rank *k = &e->rows.rank[i];
    json_t *phases = json_array(), *seconds = json_array();

    for (int p = 0; p < NEP; p++)
        json_array_append_new(phases, json_pack("{s:s, s:o, s:o, s:o, s:I, s:I}", "phase", engine_phase_names[p], "allocated_bytes",
                                                bytes(k->phase[p].allocated), "active_bytes", bytes(k->phase[p].active), "reserved_bytes",
                                                bytes(k->phase[p].reserved), "predicted_allocated_bytes", (json_int_t)engine_peak_planned(&e->rank[i], p),
                                                "collectives", (json_int_t)k->calls[p].n));
    for (int64_t s = 0; s < k->steps; s++)
        json_array_append_new(seconds, real(k->seconds[s]));
    const struct difference *d = first_difference(&e->rank[i]);
    json_t *differs = !d ? json_null() : json_pack("{s:s, s:I, s:s, s:s}", "phase", d == &e->rank[i].differs[0] ? "init" : "steps", "entry", (json_int_t)d->at + 1,
                                                   "planned", d->planned, "issued", d->issued);
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", (json_int_t)i, "first_difference", differs, "phases", phases, "step_s", seconds, "driver_bytes",
                     bytes(k->driver), "traced_step", e->part ? part_json(&e->part[i]) : json_null(), "clocks", clocks_json(&k->clocks));
}

static json_t *result_json(const struct engine_run *e)
{
    const struct dpxrun *r = e->r;
    json_t *ranks = json_array(), *losses = json_array();

    for (int64_t i = 0; i < e->rows.n; i++)
        json_array_append_new(ranks, rank_json(e, i));
    for (int64_t i = 0; i < e->steps; i++)
        json_array_append_new(losses, real(e->loss[i]));
    return json_pack("{s:o, s:s, s:s, s:s, s:o, s:I, s:I, s:o, s:{s:o, s:o, s:o}, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "run_id",
                     r->run_id > 0 ? json_integer(r->run_id) : json_null(), "engine", engine_name(e->job.engine), "versions", e->rows.rank[0].versions,
                     "device", e->rows.rank[0].device, "plan", plan_to_json(&r->plan), "world_size", (json_int_t)r->plan.cluster.world_size, "steps",
                     (json_int_t)e->steps, "loss", losses, "step_s", "median", real(e->median_s), "p10", real(e->p10_s), "p90", real(e->p90_s),
                     "predicted_step_s", real(r->predicted.t.line.step_s), "predicted_low_s", real(r->predicted.t.low_s), "predicted_high_s",
                     real(r->predicted.t.high_s), "predicted_reserved_bytes", bytes(engine_planned_reserved(e)), "collectives_equal", calls_agree(e),
                     "tokens_per_s", real((double)engine_tokens(&r->plan) / e->median_s), "ranks", ranks);
}

static int print_result(const struct engine_run *e)
{
    if (e->r->o.json) {
        return answer_print(result_json(e), EXIT_DONE);
    } else {
        FILE *page = page_open(stdout);
        if (!page)
            return EXIT_FAILED;
        print_table(e, page);
        page_close(page);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fail("cannot write to standard output");
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* The last lines of what a rank said, for whoever looks for the reason; before it has a log of its own they are in the launcher's. */
static void show_log(const struct engine_run *e)
{
    char path[700], line[400];
    long size;

    snprintf(path, sizeof path, "%s/rank%d.log", e->job.folder, e->end.rank);
    FILE *f = fopen(path, "r");
    if (!f) {
        snprintf(path, sizeof path, "%s/launcher.log", e->job.folder);
        f = fopen(path, "r");
    }
    if (!f)
        return;
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) > 2000)
        fseek(f, size - 2000, SEEK_SET);
    else
        rewind(f);
    while (fgets(line, sizeof line, f))
        fprintf(stderr, "  | %s", line);
    fclose(f);
}

/* PyTorch's message to `dpxplan explain --oom`, which lies beside this program. */
static void explain_oom(const struct engine_run *e)
{
    char self[4096], file[600];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 16);
    FILE *f;

    snprintf(file, sizeof file, "%s/launcher.log", e->job.folder);
    if (n <= 0 || !(f = fopen(file, "w")))
        return;
    self[n] = '\0';
    strcpy(strrchr(self, '/') + 1, "dpxplan");
    fprintf(f, "%s\n", e->end.why);
    fclose(f);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(2, 1);
        execl(self, "dpxplan", "explain", e->r->o.plan, "--oom", file, (char *)NULL);
        _exit(127);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}

static int failed(const struct engine_run *e)
{
    switch (e->end.how) {
    case ENDED_REFUSED:
        fail("--engine %s: rank %d: %s", engine_name(e->job.engine), e->end.rank, e->end.why);
        return EXIT_MISUSE;
    case ENDED_OOM:
        fail("--engine %s: rank %d ran out of memory: %s", engine_name(e->job.engine), e->end.rank, e->end.why);
        explain_oom(e);
        return EXIT_FAILED;
    case ENDED_BY_SIGNAL:
        fail("--engine %s: %s", engine_name(e->job.engine), e->end.why);
        return 128 + e->end.signal;
    default:
        show_log(e);
        fail("--engine %s: %s%s", engine_name(e->job.engine), e->end.how == ENDED_FAILED && e->end.rank >= 0 ? "a rank failed: " : "", e->end.why);
        return EXIT_FAILED;
    }
}

/* ---- the run ---- */

/* A plan that names no version is of the one that is installed, where dpx tells it from others. */
static void take_version(struct engine_run *e)
{
    struct plan *p = &e->r->plan;
    const char *about, *v;

    for (int i = 0; !p->framework_version[0] && (v = plan_version_at(p->dialect, i, &about)) != NULL; i++)
        if (!strcmp(v, e->job.framework))
            snprintf(p->framework_version, sizeof p->framework_version, "%s", v);
}

/* A framework's steps are known when it has ended. */
static int write_scalars(struct engine_run *e)
{
    struct dpxrun *r = e->r;
    int rc = scalars_begin(r);

    for (int64_t i = 0; i < e->steps && rc == 0; i++)
        rc = scalars_step(r, &(struct scalars){ i + 1, engine_tokens(&r->plan), 0, 0, e->loss[i], e->lr[i], e->rows.rank[0].norm[i], e->seconds[i],
                                                r->predicted.t.line.step_s });
    scalars_end(r);
    return rc;
}

static int run(struct engine_run *e)
{
    if (engine_folder(&e->job) < 0 || engine_write(&e->job) < 0 || engine_record_begun(e) < 0)
        return EXIT_FAILED;
    if (engine_run(&e->job, progress, e, &e->end) < 0 || engine_read(&e->job, &e->rows) < 0)
        return EXIT_FAILED;
    if (launch_terminal() >= 20 && !e->r->o.json)
        fputs("\r\033[K", stderr);
    over_ranks(e);
    compare_calls(e);
    if (read_traces(e) < 0)
        return EXIT_FAILED;
    bool kept = engine_record_ended(e) == 0 && write_scalars(e) == 0;
    if (e->end.how != ENDED_WELL || e->steps != e->r->o.steps)
        return failed(e);
    if (kept) {
        int status = print_result(e);
        learn(e);
        return status;
    }
    e->r->run_id = 0;
    if (!e->r->o.json)              /* the document is that of the failure */
        print_result(e);            /* what was measured is not lost with the disk that is full */
    return EXIT_FAILED;
}

static void release(struct engine_run *e)
{
    for (int64_t i = 0; e->rank && i < e->r->plan.cluster.world_size; i++)
        schedules_free(&e->rank[i].s);
    free(e->rank);
    engine_rows_free(&e->rows);
    if (!getenv("DPX_ENGINE_KEEP"))
        engine_remove(&e->job);
    free(e->part);
    free(e->lr);
    free(e->seconds);
    free(e->loss);
}

int dpxrun_engine(struct dpxrun *r)
{
    struct engine_run e = { .r = r, .job = job_of(r), .reductions = r->o.device == DEVICE_CPU && r->o.engine != ENGINE_TORCHTITAN /* sums: it divides the loss */ };
    int status = EXIT_MISUSE;

    if (engine_follows(e.job.engine, &r->plan, e.job.cuda) == 0 && engine_find(&e.job) == 0 && starts_as_many(&e.job) == 0) {
        take_version(&e);
        status = dpxrun_engine_predict(r) == 0 && plan_ranks(&e) == 0 && rates(&e) == 0 ? EXIT_DONE : EXIT_FAILED;
    }
    if (status == EXIT_DONE && (status = enough_memory(&e)) == EXIT_DONE)
        status = run(&e);
    release(&e);
    return status;
}
