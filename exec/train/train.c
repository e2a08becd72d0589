/* train.c -- see train.h. */
#include "exec/train/train.h"

#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/room.h"
#include "base/size.h"
#include "exec/data/adapter_folder.h"
#include "exec/data/own_tensors.h"
#include "exec/device/host_info.h"
#include "exec/run/gather.h"
#include "exec/run/order_check.h"
#include "exec/run/watchdog.h"
#include "exec/train/loss_scale.h"
#include "exec/train/train_finite.h"
#include "model/arch/training.h"
#include "model/lower/lower.h"
#include "model/memory/overhead.h"
#include "model/program/workspace.h"

struct train {
    struct train_args a;
    struct local_model local;           /* the plan as this rank has it; its plan is NULL before */
    struct own_tensors *own;
    struct schedules  s;
    struct groups     groups;
    struct executor  *x;
    struct weights   *weights;
    struct tokens    *tokens;
    struct watchdog  *dog;
    struct grad_file *grads;
    atomic_bool stop;
    atomic_int  busy;               /* threads that compute */
    MPI_Comm control;               /* MPI_COMM_NULL with `null` */
    bool capturing;
    char why[512];                  /* of this rank, until ranks agree on one */
    char told[512];                 /* why it failed, on all ranks */
    int32_t *ids, *labels;          /* of one step */
    int32_t *sample;                /* tokens and labels of one, whole */
    int64_t *samples;
    struct loss_scale scale;        /* fp16 */
    int64_t  step, resident;        /* resident: before anything was allocated, on an asynchronous device there */
    struct device *device;
};

double train_lr(const struct train_args *a, int64_t step)
{
    int64_t i = step - 1;

    if (i < a->warmup)
        return a->lr * (double)(i + 1) / (double)a->warmup;
    double along = a->steps > a->warmup ? (double)(i - a->warmup) / (double)(a->steps - a->warmup) : 0;
    return a->min_lr + 0.5 * (1 + cos(3.14159265358979323846 * along)) * (a->lr - a->min_lr);
}

/* ---- agreement ---- */

/* An error mostly means that another rank has died: mpirun, which knows which one, then ends this process before
 * it says something less exact. */
static int mpi_ok(int status, const char *call)
{
    char why[MPI_MAX_ERROR_STRING];
    int n;

    if (status == MPI_SUCCESS)
        return 0;
    sleep(3);
    MPI_Error_string(status, why, &n);
    return fail("%s: %s", call, why);
}

/* From now on what this thread reports goes into why[], or to stderr. */
static void capture(struct train *t, bool on)
{
    t->capturing = on;
    fail_capture(on ? t->why : NULL, on ? sizeof t->why : 0);
}

/* A failure that ranks could not agree upon: only this rank can report it. */
static int end_capture(struct train *t, int rc)
{
    capture(t, false);
    if (rc < 0 && t->why[0]) {
        fail("%s", t->why);
        memcpy(t->told, t->why, sizeof t->told);
    }
    return rc;
}

/* The reason of the lowest rank that failed is everybody's: others mostly failed of the same.
 * Rank 0 reports it. */
static int share_reason(struct train *t, int rank, int lowest)
{
    if (rank == lowest)
        memcpy(t->told, t->why, sizeof t->told);
    t->why[0] = '\0';
    if (t->control != MPI_COMM_NULL &&
        mpi_ok(MPI_Bcast(t->told, sizeof t->told, MPI_CHAR, lowest, t->control), "MPI_Bcast") < 0)
        return -1;
    if (rank == 0 && lowest == 0 && t->told[0])
        fail("%s", t->told);
    else if (rank == 0 && t->told[0])
        fail("rank %d: %s", lowest, t->told);
    return -1;
}

int train_agree(struct train *t, bool failed)
{
    bool capturing = t->capturing;
    int rank = 0, lowest, mine, rc = 0;

    if (t->control != MPI_COMM_NULL)
        MPI_Comm_rank(t->control, &rank);
    mine = lowest = failed ? rank : INT_MAX;
    fail_capture(NULL, 0);
    watchdog_rest(t->dog, false);
    if (t->control != MPI_COMM_NULL)
        rc = mpi_ok(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, t->control), "MPI_Allreduce");
    if (rc == 0 && lowest != INT_MAX)
        rc = share_reason(t, rank, lowest);
    watchdog_rest(t->dog, true);
    capture(t, capturing);
    return rc;
}

const char *train_why(const struct train *t) { return t->told; }

void train_tell(struct train *t, watchdog_told *f, void *arg) { watchdog_tell(t->dog, f, arg); }

/* Runs a schedule.  The others may wait for a rank that failed in it: it must end the job. */
static int run(struct train *t, enum sched_id id, struct exec_step *s)
{
    watchdog_rest(t->dog, false);
    int rc = executor_run(t->x, id, s);
    watchdog_rest(t->dog, true);
    if (rc < 0 && t->dog)
        watchdog_failed(t->dog, t->why);
    return rc;
}

/* In the middle of a schedule ranks cannot agree: the others wait in a collective for this one. */
static int alone(struct train *t)
{
    fail_capture(NULL, 0);
    if (t->why[0])
        fail("%s", t->why);
    return -1;
}

int train_gather(struct train *t, int64_t mine, int64_t *out)
{
    out[0] = mine;
    if (t->control == MPI_COMM_NULL)
        return 0;
    return mpi_ok(MPI_Gather(&mine, 1, MPI_INT64_T, out, 1, MPI_INT64_T, 0, t->control), "MPI_Gather");
}

/* ---- opening ---- */

/* First weights: a file's, or the seed's; and adapters'. */
static struct weights *open_weights(const struct train *t)
{
    const struct model *m = &t->a.plan->model;
    struct weights *w = t->a.init ? weights_from_file(m, t->a.init, t->a.seed) : weights_from_seed(m, t->a.seed);
    char path[ADAPTER_PATH];

    if (!w || !t->a.adapters)
        return w;
    if (adapter_folder_check(m, t->a.adapters) == 0 && adapter_folder_weights(t->a.adapters, path) == 0 &&
        weights_take_adapters(w, path) == 0)
        return w;
    weights_close(w);
    return NULL;
}

static int open_data(struct train *t)
{
    const struct plan *p = t->a.plan;       /* files and seeds are of the whole model */
    size_t n = (size_t)(p->accumulation * p->micro_batch * plan_rank_seq(p));

    t->tokens = tokens_open(&(struct tokens_args){ .path = t->a.data, .vocab = p->model.vocab, .seq = p->seq,
                                                   .seed = t->a.seed,
                                                   .order = t->a.sequential ? TOKENS_SEQUENTIAL : TOKENS_SHUFFLED });
    t->weights = open_weights(t);
    t->ids = room_new(n, sizeof *t->ids);
    t->labels = room_new(n, sizeof *t->labels);
    t->sample = room_new(2 * (size_t)p->seq, sizeof *t->sample);
    t->samples = room_new((size_t)p->accumulation, sizeof *t->samples);
    return t->tokens && t->weights ? 0 : -1;
}

static struct executor_args executor_args(struct train *t)
{
    struct executor_args e = { .plan = t->local.plan, .share = &t->local.share, .own = t->own, .schedules = &t->s, .comm = t->groups.comm, .stop = &t->stop, .busy = &t->busy,
                               .device = t->device, .threads = t->a.threads, .guarded = t->a.guarded, .reference = t->a.reference,
                               .no_compute = t->a.no_compute, .limit = t->a.limit, .weights = t->weights,
                               .seed = t->a.seed, .folder = t->a.offload_dir, .io = t->a.offload_io,
                               .sum = t->a.plan->deterministic ? SUM_ONCE : t->a.sum };

    for (int op = 0; op < NCOLL; op++)
        e.algo[op] = t->s.star ? ALGO_SERVER : t->a.plan->deterministic ? ALGO_DIRECT : t->a.algo;
    return e;
}

/* Memory, by the dry run, before anything is mapped. */
static int open_executor(struct train *t)
{
    struct executor_args e = executor_args(t);
    struct overhead beside;
    int64_t extra = overhead_bytes(t->a.plan, &t->s.groups, t->s.communicates, &beside);

    if (e.limit < INT64_MAX)            /* the planner's verdict goes by the same sum */
        e.limit = e.limit > extra ? e.limit - extra : 0;
    t->x = executor_new(&e);
    if (!t->x)
        return -1;
    if (executor_over(t->x)->over)
        return fail("out of memory in the %s step, %s: with \"%s\" it takes %s; %s are usable beside %s for workspaces and staging",
                    sched_name(executor_over(t->x)->sched), executor_over(t->x)->where, executor_over(t->x)->buffer,
                    size_text(executor_over(t->x)->total).s, size_text(e.limit).s, size_text(extra).s);
    return 0;
}

/* The lowest rank that does not fit tells the others where. */
static int share_over(struct train *t, struct exec_over *over)
{
    int mine = INT_MAX, lowest;

    if (t->x)
        *over = *executor_over(t->x);
    if (t->control == MPI_COMM_NULL)
        return -1;
    if (over->over)
        MPI_Comm_rank(t->control, &mine);
    if (mpi_ok(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, t->control), "MPI_Allreduce") == 0 &&
        lowest != INT_MAX)
        mpi_ok(MPI_Bcast(over, sizeof *over, MPI_BYTE, lowest, t->control), "MPI_Bcast");
    return -1;
}

/* Of a device that others use as well, only what the driver tells of this process. */
static int64_t resident(const struct train *t, int64_t (*on_host)(void))
{
    int64_t mine;

    if (!device_async(t->device))
        return on_host();
    mine = device_process_used(t->device);
    return mine >= 0 ? mine : t->a.shared_device ? -1 : device_used(t->device);
}

static int open_groups(struct train *t)
{
    struct groups_args a = { .kind = t->a.null ? GROUPS_NULL : t->a.nccl ? GROUPS_NCCL : GROUPS_MPI,
                             .device = t->device, .stop = &t->stop, .busy = &t->busy };

    return groups_open(&t->s, &a, &t->groups);
}

static int open_schedules(struct train *t, int rank)
{
    t->s.detailed = true;
    if (local_model_of(t->a.plan, rank, &t->local) < 0) {
        t->local.plan = NULL;
        return -1;
    }
    t->own = own_tensors_new(&t->local);
    return t->own ? lower(t->a.plan, rank, &t->s) : -1;
}

/* "stage 2 of 8", "stages 1, 5 of 8"; NULL: the plan is no pipeline. */
static const char *stage_words(const struct plan *p, int64_t rank, char *to, size_t size)
{
    struct mesh m = plan_mesh(p);
    struct pipeline pipe = { p->parallel.pipeline_schedule, (int)m.size[AXIS_PIPE], (int)mesh_digit(&m, rank, AXIS_PIPE),
                             (int)p->parallel.virtual_stages, (int)p->accumulation, 0 };
    size_t n;

    if (pipe.ranks == 1)
        return NULL;
    n = (size_t)snprintf(to, size, "stage%s", pipe.chunks > 1 ? "s" : "");
    for (int c = 0; c < pipe.chunks && n < size; c++)
        n += (size_t)snprintf(to + n, size - n, "%s %d", c ? "," : "", pipeline_stage(&pipe, pipe.rank, c));
    if (n < size)
        snprintf(to + n, size - n, " of %d", pipe.ranks * pipe.chunks);
    return to;
}

static int open_all(struct train *t, struct train_refusal *why)
{
    int rank = t->a.rank;
    char stage[64];

    if (!t->a.null) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (mpi_ok(MPI_Comm_dup(MPI_COMM_WORLD, &t->control), "MPI_Comm_dup") < 0)
            return -1;
        MPI_Comm_set_name(t->control, "dpx control");
        MPI_Comm_set_errhandler(t->control, MPI_ERRORS_RETURN);
        t->dog = watchdog_open(t->control, stage_words(t->a.plan, rank, stage, sizeof stage));
        if (train_agree(t, !t->dog) < 0)
            return -1;
    }
    why->bad_input = true;
    if (train_agree(t, open_schedules(t, rank) < 0) < 0)
        return -1;
    if (train_agree(t, order_check(&t->s, t->control) < 0) < 0)
        return -1;
    t->resident = resident(t, host_resident);
    if (train_agree(t, open_data(t) < 0) < 0)
        return -1;
    why->bad_input = false;
    if (train_agree(t, open_groups(t) < 0) < 0)
        return -1;
    if (train_agree(t, open_executor(t) < 0 || executor_map(t->x) < 0) < 0)
        return share_over(t, &why->over);
    watchdog_follow(t->dog, executor_lanes(t->x));
    host_reset_peak();
    if (!t->a.resume && train_agree(t, run(t, SCHED_INIT, NULL) < 0) < 0)
        return -1;
    return train_agree(t, !t->a.allow_nan && weights_check_finite(t->weights) < 0);
}

struct train *train_open(const struct train_args *a, struct train_refusal *why)
{
    struct train *t = room_new(1, sizeof *t);

    t->a = *a;
    t->scale = loss_scale_new(loss_scaling_of(a->plan), a->plan->precision != DT_FP16 ? 1 : a->loss_scale > 0 ? a->loss_scale
                                                                                                          : LOSS_SCALING_FIRST);
    t->device = a->device ? a->device : device_host();
    t->control = MPI_COMM_NULL;
    capture(t, true);
    if (end_capture(t, open_all(t, why)) == 0)
        return t;
    train_close(t);
    return NULL;
}

void train_close(struct train *t)
{
    if (!t)
        return;
    watchdog_follow(t->dog, NULL);
    watchdog_close(t->dog);
    executor_free(t->x);
    groups_close(&t->groups);
    schedules_free(&t->s);
    tokens_close(t->tokens);
    weights_close(t->weights);
    own_tensors_free(t->own);
    if (t->local.plan)
        local_model_free(&t->local);
    free(t->ids);
    free(t->labels);
    free(t->sample);
    free(t->samples);
    if (t->control != MPI_COMM_NULL)
        MPI_Comm_free(&t->control);
    free(t);
}

/* ---- a step ---- */

/* The rank's positions of sample i. */
static int fetch_sample(struct train *t, int64_t i, int32_t *ids, int32_t *labels)
{
    const struct plan *p = t->a.plan;
    struct local_positions at = local_share_positions(p, &t->local.share);

    if (tokens_sample(t->tokens, i, t->sample, t->sample + p->seq) < 0)
        return -1;
    for (int r = 0; r < at.runs; r++) {
        memcpy(ids + r * at.run, t->sample + at.first[r], (size_t)at.run * sizeof *ids);
        memcpy(labels + r * at.run, t->sample + p->seq + at.first[r], (size_t)at.run * sizeof *labels);
    }
    return 0;
}

static int fetch(struct train *t)
{
    const struct plan *p = t->a.plan;
    int64_t ranks = plan_batch_ranks(p), mine = plan_batch_rank(p, t->s.rank);
    int64_t first = t->step * plan_global_batch(p), at = 0;

    for (int64_t m = 0; m < p->accumulation; m++)
        for (int64_t b = 0; b < p->micro_batch; b++, at += plan_rank_seq(p)) {
            struct tokens_place place = { .micro_step = m, .rank = mine, .slot = b };
            int64_t i = first + tokens_index(&place, p->micro_batch, ranks);
            if (b == 0)
                t->samples[m] = i;
            if (fetch_sample(t, i, t->ids + at, t->labels + at) < 0)
                return -1;
        }
    return 0;
}

/* Sums of losses, of which tensor-parallel ranks have the same, and the slowest rank; all skip a step, or none does. */
static int share(struct train *t, const struct exec_step *s, double seconds, struct train_report *out)
{
    bool counts = t->local.share.tensor_rank == 0;
    double sum[3] = { counts ? s->loss_sum : 0, counts ? (double)s->loss_tokens : 0, s->skipped }, all[3] = { sum[0], sum[1], sum[2] };
    int ranks = 1;

    out->seconds = seconds;
    if (t->control != MPI_COMM_NULL)
        MPI_Comm_size(t->control, &ranks);
    if (t->control != MPI_COMM_NULL &&
        (mpi_ok(MPI_Allreduce(sum, all, 3, MPI_DOUBLE, MPI_SUM, t->control), "MPI_Allreduce") < 0 ||
         mpi_ok(MPI_Allreduce(&seconds, &out->seconds, 1, MPI_DOUBLE, MPI_MAX, t->control), "MPI_Allreduce") < 0))
        return -1;
    if (all[2] > 0 && all[2] < ranks)
        return fail("step %lld: %.0f of %d ranks saw the gradient overflow", (long long)s->number, all[2], ranks);
    out->loss = all[1] > 0 ? all[0] / all[1] : NAN;
    return 0;
}

/* What was not finite, in the whole model's words. */
static int say_divergence(struct train *t, const struct exec_step *s, const struct train_report *out)
{
    struct exec_step whole = *s;
    struct own_run at;

    if (s->bad.found) {
        at = own_tensors_run(t->own, s->bad.tensor, s->bad.element, 1);
        whole.bad.tensor = at.tensor;
        whole.bad.element = at.from;
    }
    return train_say_divergence(t->control, &t->a.plan->model, &whole, out);
}

/* A diverged run ends unless --no-check-for-nan is given; the norm may differ from rank to rank where one of them has it. */
static int check_step(struct train *t, const struct exec_step *s, const struct train_report *out)
{
    int mine = train_diverged(out), any = mine;

    if (t->control == MPI_COMM_NULL || t->a.allow_nan || t->a.no_compute)
        return 0;
    if (mpi_ok(MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, t->control), "MPI_Allreduce") < 0)
        return -1;
    return any ? say_divergence(t, s, out) : 0;
}

static int step(struct train *t, bool record, struct train_report *out)
{
    const struct plan *p = t->a.plan;
    struct exec_step s = { .number = t->step + 1, .ids = t->ids, .labels = t->labels, .samples = t->samples,
                           .loss_scale = t->scale.scale };
    int64_t update = s.number - t->scale.skipped;
    enum sched_id id = sched_of_step(&t->s, t->step + 1);

    s.adamw = (struct adamw){ .lr = train_lr(&t->a, update), .beta1 = t->a.beta1, .beta2 = t->a.beta2,
                              .eps = t->a.eps, .weight_decay = t->a.weight_decay, .step = update,
                              .grad_scale = 1 / t->scale.scale };
    bool saves = t->a.save_grads && s.number == t->a.grads_step;
    if (saves)
        t->grads = gather_grad_file_new(&p->model, t->own, true);
    if (t->grads) {
        s.on_grad = gather_grad_file_add;
        s.on_grad_arg = t->grads;
    }
    bool bad = fetch(t) < 0 || executor_record(t->x, record) < 0 || (saves && !t->grads);
    if (train_agree(t, bad) < 0)                /* a barrier, too: all begin together */
        return -1;
    double began = lanes_now();
    int rc = run(t, id, &s);
    double seconds = lanes_now() - began;
    if (rc < 0)
        return alone(t);
    *out = (struct train_report){ .step = s.number, .lr = s.adamw.lr, .grad_norm = s.grad_norm,
                                  .tokens = plan_global_batch(p) * p->seq, .norm_taken = s.norm_taken,
                                  .skipped = s.skipped, .loss_scale = t->scale.scale };
    if (share(t, &s, seconds, out) < 0)
        return -1;
    if (t->grads) {
        rc = gather_grad_file_write(t->grads, t->control, 0, t->a.save_grads);
        gather_grad_file_free(t->grads);
        t->grads = NULL;
    }
    t->step++;
    if (p->precision == DT_FP16 && loss_scale_next(&t->scale, s.skipped) < 0)
        rc = -1;
    return train_agree(t, rc < 0 || check_step(t, &s, out) < 0);
}

int train_step(struct train *t, bool record, struct train_report *out)
{
    capture(t, true);
    return end_capture(t, step(t, record, out));
}

/* ---- afterwards ---- */

static int keep_param(void *arg, int tensor, int64_t from, int64_t n, const void *p, enum dtype dt, bool master)
{
    (void)master;
    gather_grad_file_add(arg, tensor, from, n, p, dt);
    return 0;
}

static int save(struct train *t, const char *path)
{
    const struct model *m = &t->a.plan->model;
    bool lora = training_is_lora(&m->training);
    struct grad_file *f = gather_grad_file_new(m, t->own, lora);
    int rc = f ? executor_params(t->x, keep_param, f) : -1;
    char file[ADAPTER_PATH];

    if (rc == 0 && lora)
        rc = adapter_folder_weights(path, file) < 0 || (t->s.rank == 0 && adapter_folder_write(m, path) < 0) ? -1 : 0;
    if (train_agree(t, rc < 0) == 0)
        rc = gather_grad_file_write(f, t->control, 0, lora ? file : path);
    gather_grad_file_free(f);
    return train_agree(t, rc < 0);
}

int train_save(struct train *t, const char *path)
{
    capture(t, true);
    return end_capture(t, save(t, path));
}

/* ---- a run that goes on in another process ---- */

struct train_progress train_progress(const struct train *t)
{
    return (struct train_progress){ t->step, t->scale.scale, t->scale.since, t->scale.lets_pass, t->scale.skipped };
}

int train_state_out(struct train *t, exec_state_fn *f, void *arg) { return exec_state_out(t->x, f, arg); }

int train_state_in(struct train *t, const struct train_progress *at, exec_state_fn *f, void *arg)
{
    t->step = at->step;
    t->scale.scale = at->scale;
    t->scale.since = at->since;
    t->scale.lets_pass = at->lets_pass;
    t->scale.skipped = at->skipped;
    return exec_state_in(t->x, at->step, f, arg);
}

int train_together(struct train *t, int (*f)(void *arg), void *arg)
{
    capture(t, true);
    return end_capture(t, train_agree(t, f(arg) < 0));
}

struct executor *train_executor(const struct train *t)        { return t->x; }
const struct schedules *train_schedules(const struct train *t) { return &t->s; }
double train_entropy(const struct train *t)                   { return tokens_entropy(t->tokens); }
const char *train_about_data(const struct train *t)           { return tokens_about(t->tokens); }

int64_t train_predicted_process(const struct train *t)
{
    const struct plan *p = t->local.plan;
    int64_t tokens = (p->accumulation * p->micro_batch * plan_rank_seq(p) + p->seq) * 8;
    struct overhead beside;

    if (device_async(t->device)) {
        int64_t own = overhead_own_process(&p->cluster.gpu, t->s.communicates, t->a.nccl);
        overhead_bytes(t->a.plan, &t->s.groups, t->s.communicates, &beside);
        return executor_extent(t->x) + workspace_device(p) + (t->a.nccl ? beside.by[OVERHEAD_OUTSIDE] : 0) + (own > 0 ? own : 0);
    }
    return executor_extent(t->x) + executor_extent_in(t->x, SPACE_PINNED) + executor_extent_in(t->x, SPACE_HOST) +
           executor_file_buffers(t->x) +
           workspace_kernels(p, t->a.threads) + tokens + (t->a.null ? 0 : groups_staging(&t->s));
}

int64_t train_process_peak(const struct train *t)
{
    int64_t peak = resident(t, host_resident_peak);

    return peak < 0 || t->resident < 0 ? -1 : peak - t->resident;
}
