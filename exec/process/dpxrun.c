/* dpxrun.c -- executes a plan for real, and holds the prediction against what happened. */
#include "exec/process/dpxrun.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/input.h"
#include "base/opts.h"
#include "base/size.h"
#include "exec/device/cores.h"
#include "exec/device/host_info.h"
#include "exec/engine/engine.h"
#include "exec/process/build_info.h"
#include "exec/process/launch.h"
#include "model/arch/training.h"
#include "model/plan/can_run.h"
#include "model/plan/modelled.h"
#include "sim/price/gpu_rates.h"

enum { MOST_STEPS = 100000000 };        /* a report of each is kept */

static const char *const devices[] = { "cpu", "cuda", NULL };
static const char *const comms[] = { "mpi", "nccl", "null", NULL };
static const char *const algorithms[] = { "ring", "halving", "direct", "server", "library", NULL };
static const char *const ios[] = { "best", "io_uring", "threads", NULL };      /* enum block_io_kind */
static const char *const launchers[] = { "dpxrun", "torchrun", "mpirun", "srun", NULL };                               /* enum engine_launcher */
static const char *const sums[] = { "each-hop", "once", NULL };

/* ---- options ---- */

static int parse(int argc, char **argv, struct options *o)
{
    static const char engine[] = "In the framework itself (--engine)", weights[] = "Data and weights", optimizer[] = "The optimizer",
                      saved[] = "Checkpoints", ranks[] = "Ranks and collectives", disk[] = "Offload to disk", written[] = "What is written",
                      debug[] = "Debugging";
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxrun demo/10m/fsdp.json --steps 5"),
        OPTS_EXAMPLE("dpxrun demo/10m/ddp.json --steps 5 --memory 300MB"),
        OPTS_EXAMPLE("dpxrun demo/10m/zero3.json --steps 5 --trace step.json"),
        { "PLAN.json", "the plan (dpxplan search -o, or written by hand); with --engine several, which are run in turn", .many = &o->plans,
          .positional = true, .required = true },
        { "steps", "optimizer steps", .i = &o->steps, .min = 1, .often = true },
        { "data", "tokens: any file (its bytes), or llm.c's .bin; without it, a source of known entropy",
          .str = &o->data, .value = "FILE", .often = true },
        { "device", "where it computes", .word = &o->device, .words = devices, .often = true },
        { "memory", "bytes of device memory a rank may use, in place of this machine's share", .bytes = &o->memory, .min = MEMORY_LEAST, .often = true },
        { "engine", "who runs it: dpxrun's own kernels, or the framework that the plan is for", .word = &o->engine, .words = engine_words,
          .often = true },
        { "python", "the Python that has the framework (default python3 of PATH)", .str = &o->python, .value = "PROGRAM", .group = engine },
        { "launcher", "who starts the ranks", .word = &o->launcher, .words = launchers, .group = engine },
        { "reduce", "run the plan on so many ranks, with fewer layers", .i = &o->reduce, .min = 1, .group = engine },
        { "budget", "start no further plan after this time, such as 10min", .str = &o->budget, .value = "TIME", .group = engine },
        { "sequential", "samples of the file in order, not shuffled", .flag = &o->sequential, .group = weights },
        { "init", "first weights, in Hugging Face's names", .str = &o->init, .value = "F.safetensors", .group = weights },
        { "adapters", "the first adapters, as PEFT saves them; without it as PEFT begins", .str = &o->adapters, .value = "DIR", .group = weights },
        { "save", "where to write the last weights; adapters into a folder, as PEFT does", .str = &o->save,
          .value = "F.safetensors|DIR", .group = weights },
        { "save-grads", "where to write a step's gradients, as the optimizer reads them",
          .str = &o->save_grads, .value = "F.safetensors", .group = weights },
        { "grads-step", "which step's gradients --save-grads writes", .i = &o->grads_step, .min = 1, .group = weights },
        { "seed", "of weights, data and dropout", .i = &o->seed, .group = weights },
        { "lr", "largest learning rate (default of adamw 6e-4, sgd 1e-3, lion 1e-4, adafactor 1e-2)", .num = &o->lr, .group = optimizer },
        { "min-lr", "learning rate at the last step", .num = &o->min_lr, .group = optimizer },
        { "warmup", "steps in which the learning rate rises", .i = &o->warmup, .group = optimizer },
        { "betas", "AdamW's and Lion's; the first is sgd's momentum", .str = &o->betas, .value = "B1,B2", .group = optimizer },
        { "weight-decay", "on all parameters that train; decoupled, except with sgd (default of adamw 0.1, else 0)", .num = &o->weight_decay,
          .group = optimizer },
        { "clip", "largest gradient norm; in place of the plan's", .num = &o->clip, .group = optimizer },
        { "loss-scale", "fp16: what the loss is multiplied with at first; halved at each overflow (default 65536)",
          .num = &o->loss_scale, .group = optimizer },
        { "checkpoint-every", "save the whole training state after each K-th step", .i = &o->checkpoint_every, .min = 1, .value = "K", .group = saved },
        { "checkpoint-dir", "where; all machines must see it (default dpx-checkpoints)", .str = &o->checkpoint_dir, .value = "DIR", .group = saved },
        { "resume", "go on from the last checkpoint, bit for bit; where there is none, begin", .flag = &o->resume, .group = saved },
        { "comm", "who carries collectives (default nccl where each rank has a GPU of its own, else mpi); null: "
          "moves nothing, one process plays --rank", .word = &o->comm, .words = comms, .group = ranks },
        { "rank", "the rank played with --comm null", .i = &o->rank, .group = ranks },
        { "algorithm", "of collectives", .word = &o->algorithm, .words = algorithms, .group = ranks },
        { "bf16-sum", "16-bit sums: rounded after each hop, as on a ring's wire, or once",
          .word = &o->sum, .words = sums, .group = ranks },
        { "threads", "of a rank's compute; 0: its share of the cores", .i = &o->threads, .group = ranks },
        { "share-cores", "ranks of a machine run on any of its cores; without it each has its own, as in dpxcal",
          .flag = &o->share_cores, .group = ranks },
        { "hostfile", "machines to start ranks on, as Open MPI's", .str = &o->hostfile, .value = "FILE", .group = ranks },
        { "offload-dir", "a folder on a local disk for buffers that the plan keeps in files (default $TMPDIR, else "
          "/var/tmp); they are removed at the end", .str = &o->offload_dir, .value = "DIR", .group = disk },
        { "offload-io", "how these are read and written; best: io_uring where the kernel has it",
          .word = &o->offload_io, .words = ios, .group = disk },
        { "sbatch", "write this command line as a script for Slurm's sbatch, with nodes, GPUs, memory and time; run nothing",
          .str = &o->sbatch, .value = "FILE", .group = written },
        { "trace", "write the last step as a Chrome/Perfetto trace", .str = &o->trace, .value = "FILE", .group = written },
        { "tensorboard", "write each step's loss, learning rate, norm, seconds and memory beside those predicted, for TensorBoard; "
          "`python -m dpx.scalars DIR` sends them to Weights & Biases", .str = &o->tensorboard, .value = "DIR", .group = written },
        { "db", "the database", .str = &o->db, .value = "FILE", .group = written },
        { "no-db", "record nothing", .flag = &o->no_db, .group = written },
        { "brief", "print one line", .flag = &o->brief, .group = written },
        { "json", "print one JSON document", .flag = &o->json, .group = written },
        { "no-check-for-nan", "go on when weights, a loss or a gradient norm are NaN or infinite", .flag = &o->allow_nan, .group = debug },
        { "kernels", "refuse a plan that was written for PyTorch's kernels, instead of running it with dpx's own",
          .flag = &o->kernels, .group = debug },
        { "guarded", "guard pages behind buffers, NaN in freed ones", .flag = &o->guarded, .group = debug },
        { "reference", "kernels in plain C", .flag = &o->reference, .group = debug },
        { "no-compute", "kernels do nothing: memory of models too large to compute", .flag = &o->no_compute, .group = debug },
        { 0 }
    };

    return opts_parse_program("dpxrun", "Executes a plan on real ranks: it really trains a transformer, and prints what was predicted beside "
                              "what it measured.  Exits with 3 when the plan does not fit.", opts, argc, argv);
}

static int parse_betas(struct options *o)
{
    char rest;

    if (!o->betas)
        return 0;
    if (sscanf(o->betas, "%lf,%lf%c", &o->beta1, &o->beta2, &rest) != 2 || !(o->beta1 >= 0 && o->beta1 < 1) ||
        !(o->beta2 >= 0 && o->beta2 < 1))
        return fail("--betas %s: two numbers from 0 to below 1, such as 0.9,0.95", o->betas);
    return 0;
}

/* Recursive halving pairs ranks off. */
static bool halves(const struct plan *p)
{
    int64_t world = p->cluster.world_size, shard = p->shard_group;

    return (world & (world - 1)) == 0 && (shard < 1 || (shard & (shard - 1)) == 0);
}

/* What an optimizer is usually given, where nothing else is said: AdamW as GPT-2 was trained; torch.optim.SGD and Adafactor,
 * bitsandbytes' Lion and AdamW8bit (0.50.2, optim/lion.py, adamw.py) by their own defaults, with the usual momentum. */
static void usual_rates(struct dpxrun *r)
{
    static const struct { double lr, beta1, beta2, weight_decay; } usual[NOPTIMIZER] = {
        [OPTIMIZER_ADAMW]     = { 6e-4, 0.9, 0.95, 0.1 },
        [OPTIMIZER_SGD]       = { 1e-3, 0.9, 0, 0 },
        [OPTIMIZER_BNB_LION]  = { 1e-4, 0.9, 0.99, 0 },
        [OPTIMIZER_ADAFACTOR] = { 1e-2, 0, 0, 0 },
        [OPTIMIZER_BNB_ADAMW8] = { 1e-3, 0.9, 0.999, 1e-2 },
    };
    enum optimizer kind = r->plan.optimizer;
    struct options *o = &r->o;

    if (o->lr < 0)
        o->lr = usual[kind].lr;
    if (o->weight_decay < 0)
        o->weight_decay = usual[kind].weight_decay;
    if (!o->betas) {
        o->beta1 = usual[kind].beta1;
        o->beta2 = usual[kind].beta2;
    }
}

static int check_device(const struct options *o)
{
    bool cuda = o->device == DEVICE_CUDA;

    if ((cuda || o->comm == COMM_NCCL) && !device_cuda_built())
        return fail("--%s: this dpxrun was built without CUDA", cuda ? "device cuda" : "comm nccl");
    if (o->comm == COMM_NCCL && !cuda)
        return fail("--comm nccl: carries buffers of GPUs: add --device cuda");
    if (cuda && (o->guarded || o->reference))
        return fail("--%s: is for --device cpu", o->guarded ? "guarded" : "reference");
    return 0;
}

static int check_fp16(const struct dpxrun *r)
{
    const struct options *o = &r->o;

    if (r->plan.precision != DT_FP16)
        return o->loss_scale >= 0 ? fail("--loss-scale: is for plans in fp16: this one is in %s", dtype_name(r->plan.precision)) : 0;
    if (o->loss_scale == 0 || o->loss_scale > 0x1p100)
        return fail("--loss-scale %g: a number above 0, up to 2^100", o->loss_scale);
    if (o->save_grads)
        return fail("--save-grads: in fp16 the optimizer reads gradients of the scaled loss: not written");
    return 0;
}

/* What this build and this machine cannot do is refused, by name. */
static int check(struct dpxrun *r)
{
    const struct options *o = &r->o;

    if (check_device(o) < 0 || check_fp16(r) < 0)
        return -1;
    if (o->comm != COMM_NULL && o->rank)
        return fail("--rank is for --comm null");
    if (o->rank >= r->plan.cluster.world_size)
        return fail("--rank %lld: the plan has %lld ranks", (long long)o->rank, (long long)r->plan.cluster.world_size);
    if (o->steps > MOST_STEPS)
        return fail("--steps %lld: at most %d", (long long)o->steps, MOST_STEPS);
    if (o->min_lr > o->lr)
        return fail("--min-lr %g: above --lr %g", o->min_lr, o->lr);
    if (o->algorithm == ALGO_HALVING && !halves(&r->plan))
        return fail("--algorithm halving: needs groups of a power of two ranks");
    if (dpxrun_can_write(r) < 0 || (o->db && !o->no_db && db_takes(o->db) < 0))
        return -1;
    if (o->comm == COMM_NULL && (o->save || o->save_grads))
        return fail("--%s: with --comm null there are no weights worth keeping", o->save ? "save" : "save-grads");
    return checkpoints_check(r) < 0 ? -1 : can_run(&r->plan);
}

/* The first option that was given and that dpxrun's own kernels alone follow, or NULL. */
static const char *own_alone(const struct options *o)
{
    const struct { const char *name; bool given; } own[] = {
        { "adapters", o->adapters }, { "save", o->save }, { "save-grads", o->save_grads }, { "grads-step", o->grads_step != 1 },
        { "loss-scale", o->loss_scale >= 0 }, { "memory", o->memory > 0 }, { "comm", o->comm >= 0 }, { "rank", o->rank },
        { "algorithm", o->algorithm }, { "bf16-sum", o->sum }, { "share-cores", o->share_cores }, { "offload-dir", o->offload_dir },
        { "offload-io", o->offload_io }, { "hostfile", o->hostfile }, { "trace", o->trace }, { "no-check-for-nan", o->allow_nan },
        { "kernels", o->kernels }, { "guarded", o->guarded }, { "reference", o->reference }, { "no-compute", o->no_compute },
        { "brief", o->brief }, { "tensorboard", o->tensorboard },
    };

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].given)
            return own[i].name;
    return NULL;
}

/* What is for engines alone, or not for them. */
static int check_engine(struct options *o)
{
    const char *only = o->plans.n > 1 ? "several plans" : o->python ? "--python" : o->launcher ? "--launcher" : o->budget ? "--budget" : o->reduce ? "--reduce" : NULL;

    o->plan = o->plans.at[0];
    if (o->engine && own_alone(o))
        return fail("--%s: --engine %s does not follow it: leave it out, or run with dpxrun's own kernels", own_alone(o), engine_name((enum engine)o->engine));
    return only && !o->engine ? fail("%s: needs an --engine", only) : 0;
}

static int settle(struct options *o)
{
    if (parse_betas(o) < 0 || check_engine(o) < 0)
        return -1;
    if (!o->offload_dir)
        o->offload_dir = cluster_host_folder();
    return 0;
}

/* The plan as its framework has it, kernels and all. */
int dpxrun_plan_for_engine(struct dpxrun *r)
{
    if (plan_read(r->o.plan, &r->plan) < 0 || (r->o.reduce && engine_reduce(&r->plan, r->o.reduce) < 0))
        return -1;
    usual_rates(r);
    if (r->o.clip >= 0)
        r->plan.clip = r->o.clip;
    if (r->o.steps > MOST_STEPS)
        return fail("--steps %lld: at most %d", (long long)r->o.steps, MOST_STEPS);
    if (r->o.min_lr > r->o.lr)
        return fail("--min-lr %g: above --lr %g", r->o.min_lr, r->o.lr);
    if (checkpoints_check(r) < 0 || scalars_check(r) < 0)
        return -1;
    return r->o.db && !r->o.no_db ? db_takes(r->o.db) : 0;
}

/* Same shards, collectives and order with dpx's own kernels; what of the plan only PyTorch's have is refused by name. */
static int with_own_kernels(struct plan *p)
{
    char where[160];

    if (can_run_axes(p) < 0)      /* by that, not by kernels that some key asks for */
        return -1;
    snprintf(where, sizeof where, "the plan with dpx's kernels in place of %s", kernels_name(p->kernels));
    p->kernels = KERNELS_DPX;
    return plan_check(p, where);
}

/* The plan on this machine's cores, whatever it was made for; on GPUs as it is. */
static int plan_for_here(struct dpxrun *r)
{
    int fd = input_file(r->o.plan, NULL);       /* every rank reads it anew: no pipe can be it */

    if (fd < 0)
        return -1;
    close(fd);
    if (plan_read(r->o.plan, &r->plan) < 0 || plan_read(r->o.plan, &r->here) < 0)
        return -1;
    if (can_run_axes(&r->plan) < 0)
        return -1;
    r->written_for = r->plan.kernels;
    if (r->written_for != KERNELS_DPX && !r->o.kernels && (with_own_kernels(&r->plan) < 0 || with_own_kernels(&r->here) < 0))
        return -1;
    usual_rates(r);
    if (r->o.clip >= 0)
        r->plan.clip = r->here.clip = r->o.clip;
    if (on_host(r) && !r->here.cluster.is_host && cluster_of_host(&r->here.cluster, r->plan.cluster.world_size) < 0)
        return -1;
    if (r->o.memory > 0) {
        r->here.cluster.memory = r->o.memory;
        r->here.cluster.context = 0;
        r->here.cluster.headroom = 0;
    }
    return check(r);
}

/* ---- the run ---- */

int dpxrun_threads(const struct dpxrun *r)
{
    const struct cluster *c = &r->here.cluster;

    return r->o.threads ? (int)r->o.threads : host_threads((int)(c->is_host ? c->gpus_per_node : c->world_size));
}

static struct train_args train_args(const struct dpxrun *r)
{
    const struct options *o = &r->o;

    return (struct train_args){
        .plan = &r->here, .data = o->data, .init = o->init, .adapters = o->adapters, .sequential = o->sequential, .seed = (uint64_t)o->seed,
        .steps = o->steps, .warmup = o->warmup, .lr = o->lr, .min_lr = o->min_lr, .beta1 = o->beta1,
        .beta2 = o->beta2, .eps = o->eps, .weight_decay = o->weight_decay,
        .loss_scale = o->loss_scale,
        .limit = cluster_available(&r->here.cluster), .rank = (int)o->rank, .null = o->comm == COMM_NULL,
        .device = r->device, .shared_device = r->shared_device, .nccl = o->comm == COMM_NCCL,
        .allow_nan = o->allow_nan, .no_compute = o->no_compute, .guarded = o->guarded, .reference = o->reference,
        .threads = dpxrun_threads(r), .offload_dir = o->offload_dir, .offload_io = (enum block_io_kind)o->offload_io,
        .algo = (enum coll_algo)o->algorithm, .sum = (enum coll_sum)o->sum, .save_grads = o->save_grads,
        .grads_step = o->grads_step, .resume = r->saved.from > 0,
    };
}

/* Sampled are the first steady step and the last. */
static bool is_sampled(const struct dpxrun *r, int64_t step)
{
    return step == r->o.steps || step == 2 + train_schedules(r->train)->early;
}

static int one_step(struct dpxrun *r, int64_t step)
{
    struct measured *m = &r->measured;
    bool sampled = is_sampled(r, step);
    int rc = train_step(r->train, sampled, &m->report[r->rank == 0 ? m->n : 0]);

    if (rc < 0)
        return -1;
    m->n++;
    if (sampled && (r->rank == 0 || stages_has(r, r->rank)) && predict_keep_sample(r, step) < 0)
        return -1;
    if (r->rank != 0)
        return 0;
    const struct train_report *s = &m->report[m->n - 1];
    m->seconds += s->seconds;
    dpxrun_progress_line(r, s);
    return scalars_step(r, &(struct scalars){ s->step, s->tokens, executor_meter(train_executor(r->train))->peak, predict_held(r), s->loss,
                                              s->lr, s->grad_norm, s->seconds, r->predicted.t.line.step_s });
}

/* Steps are recorded a second's worth at a time, between timed ones. */
static int steps(struct dpxrun *r)
{
    int64_t recorded = 0;
    double since = lanes_now();
    int rc = 0;

    for (int64_t i = r->saved.from + 1; i <= r->o.steps && rc == 0; i++) {
        rc = one_step(r, i);
        if (rc == 0)
            rc = checkpoints_step(r, i);
        bool due = lanes_now() - since > 1 || i == r->o.steps || rc < 0;
        if (r->rank == 0 && due) {
            if (record_steps(r, recorded) < 0)
                rc = -1;
            recorded = r->measured.n;
            since = lanes_now();
        }
    }
    return rc;
}

static int run(struct dpxrun *r)
{
    r->measured.report = calloc(r->rank == 0 ? (size_t)r->o.steps : 1, sizeof *r->measured.report);
    if (!r->measured.report)
        return fail("out of memory for %lld steps", (long long)r->o.steps);
    bool unrecorded = r->rank == 0 && (scalars_begin(r) < 0 || record_begin(r) < 0);
    r->refused = train_agree(r->train, unrecorded && db_exit_status() == EXIT_MISUSE) < 0;
    if (r->refused || train_agree(r->train, unrecorded) < 0)
        return -1;
    if (r->run_id > 0)
        train_tell(r->train, record_told, r);
    if (r->rank == 0 && r->written_for != r->plan.kernels)
        fprintf(stderr, "dpx: the plan was written for PyTorch's kernels (%s): it runs with dpx's own, and the prediction is of "
                "those (--kernels: refuse it instead)\n", kernels_name(r->written_for));
    if (r->rank == 0 && executor_note(train_executor(r->train)))
        fprintf(stderr, "dpx: %s\n", executor_note(train_executor(r->train)));
    if (checkpoints_predict(r) < 0)
        return -1;
    if (checkpoints_load(r) < 0) {
        r->refused = true;
        return -1;
    }
    if (steps(r) < 0)
        return -1;
    if (r->o.save && train_save(r->train, r->o.save) < 0)
        return -1;
    if (dpxrun_measure(r) < 0)
        return -1;
    train_tell(r->train, NULL, NULL);
    return train_agree(r->train, r->rank == 0 && ((r->o.trace && dpxrun_write_trace(r) < 0) ||
                                                  record_end(r, RUN_FINISHED, NULL) < 0));
}

/* Quietly: one reason has been reported, and the database may be it. */
static void record_failure(struct dpxrun *r)
{
    const char *why = train_why(r->train);
    char unsaid[256];

    train_tell(r->train, NULL, NULL);
    fail_capture(unsaid, sizeof unsaid);
    record_end(r, RUN_FAILED, why[0] ? why : "rank 0 could not go on, as it said on stderr");
    fail_capture(NULL, 0);
}

static void release(struct dpxrun *r)
{
    train_close(r->train);
    device_close(r->device);
    db_close(r->db);
    if (r->rank == 0)
        predict_free(&r->predicted);
    predict_measured_free(&r->measured);
    stages_free(&r->stages);
    plan_free(&r->plan);
    plan_free(&r->here);
    checkpoints_free(r);
    scalars_end(r);
}

/* Where ranks are processes on cores, what this machine has now; else what the plan's cluster says. */
static bool host_is_short(const struct dpxrun *r, struct space_accounts *a)
{
    struct host_info h;

    *a = r->predicted.e.m.spaces;
    if (!a->of[SPACE_HOST].used)
        return false;
    if (r->here.cluster.is_host && r->here.cluster.nodes == 1 && host_info(&h) == 0 && h.available > 0) {
        a->of[SPACE_HOST].available = a->of[SPACE_PINNED].available = h.available;
        a->of[SPACE_HOST].fits = a->of[SPACE_HOST].peak <= h.available;
    }
    return !a->of[SPACE_HOST].fits;
}

/* A node whose memory is short would show in the midst of a step, where the kernel kills ranks.  Rank 0 knows what is
 * predicted; all ranks learn it: EXIT_NO, or EXIT_DONE. */
static int refuse_short_host(struct dpxrun *r)
{
    struct space_accounts a;
    int is_short = r->rank == 0 && host_is_short(r, &a);
    char why[512];

    if (is_short) {
        spaces_why_not(&a, why, sizeof why);
        fail("%s: `dpxplan eval` prints each memory", why);
    }
    if (MPI_Bcast(&is_short, 1, MPI_INT, 0, MPI_COMM_WORLD) != MPI_SUCCESS) {
        fail("MPI_Bcast failed before the first step");
        return EXIT_FAILED;
    }
    return is_short ? EXIT_NO : EXIT_DONE;
}

static int all(struct dpxrun *r)
{
    struct train_refusal why = { .bad_input = false };
    int status = dpxrun_open_device(r);

    if (status != EXIT_DONE)
        return status;
    if ((status = dpxrun_predict(r)) != EXIT_DONE)
        return status;
    if (r->o.comm != COMM_NULL && (status = refuse_short_host(r)) != EXIT_DONE)
        return status;
    if ((status = checkpoints_begin(r)) != EXIT_DONE)
        return status;
    struct train_args a = train_args(r);
    r->train = train_open(&a, &why);
    if (!r->train) {
        r->first_over = why.over;
        r->over = why.over.over;
        if (r->over)
            return r->rank == 0 ? dpxrun_print_result(r) : EXIT_NO;
        return why.bad_input ? EXIT_MISUSE : EXIT_FAILED;
    }
    status = run(r) == 0 ? EXIT_DONE : r->refused ? EXIT_MISUSE : EXIT_FAILED;
    dpxrun_progress_end();
    if (r->rank == 0 && status == EXIT_DONE)
        status = dpxrun_print_result(r);
    else if (r->rank == 0)
        record_failure(r);
    return status;
}

static int start_mpi(struct dpxrun *r, int *argc, char ***argv)
{
    int provided, world;

    watchdog_start();
    launch_tune_tcp();
    if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return fail("MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &r->rank);
    if (provided < MPI_THREAD_MULTIPLE)
        return fail("this MPI gives no MPI_THREAD_MULTIPLE");
    if (launch_check(world) < 0 || dpxrun_check_same(r) < 0)
        return -1;
    if (world != r->plan.cluster.world_size)
        return r->rank ? -1 : fail("the plan is for %lld ranks, %d were started",
                                   (long long)r->plan.cluster.world_size, world);
    return 0;
}

/* Which cores are near which GPU is not queried. */
static int keep_apart(const struct dpxrun *r)
{
    return r->o.share_cores || r->o.device == DEVICE_CUDA ? 0 : cores_keep_apart();
}

/* Ranks of several machines meet over a network, whatever cluster the plan was made for; over that of the
 * plan where it says one for machines such as these.  All ranks together. */
static int find_machines(struct dpxrun *r)
{
    struct cluster *c = &r->here.cluster;
    const struct cluster *planned = &r->plan.cluster;
    int64_t node_of_plan = plan_quantised_node(&r->plan);       /* its nodes are part of what it computes */
    MPI_Comm node;
    int here, range[2];

    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return fail("MPI_Comm_split_type failed");
    MPI_Comm_size(node, &here);
    MPI_Comm_free(&node);
    range[0] = -here;
    range[1] = here;
    if (MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS)
        return fail("MPI_Allreduce failed while counting machines");
    if (!c->is_host)
        return 0;
    if (-range[0] != range[1]) {
        if (r->rank == 0)
            fprintf(stderr, "warning: %d ranks on one machine and %d on another: what is predicted is for %" PRId64 " machine%s\n",
                    -range[0], range[1], c->nodes, c->nodes == 1 ? "" : "s");
        return 0;
    }
    cluster_over_machines(c, c->world_size / (node_of_plan > 0 ? node_of_plan : here));
    if (node_of_plan > 0 && node_of_plan != here && r->rank == 0)
        fprintf(stderr, "warning: gradients are reduced in int4 on nodes of %" PRId64 " ranks, as planned, and a machine has %d here: the "
                "predicted time is for such nodes\n", node_of_plan, here);
    if (r->o.memory > 0)
        c->memory = r->o.memory;
    if (planned->nodes == c->nodes && planned->inter > 0 && gpu_is_host(&planned->gpu)) {
        c->inter = planned->inter;
        c->alpha_inter = planned->alpha_inter;
        c->nics = planned->nics;
    }
    return 0;
}

static int as_rank(struct dpxrun *r, int *argc, char ***argv)
{
    int status = start_mpi(r, argc, argv) < 0 ? EXIT_MISUSE : keep_apart(r) < 0 || find_machines(r) < 0 ? EXIT_FAILED : all(r);

    answers_end(status);
    fflush(NULL);
    if (status == EXIT_FAILED) {        /* the others may wait for this rank */
        if (r->rank != 0)
            sleep(3);                   /* rank 0 records why and ends the job itself */
        MPI_Abort(MPI_COMM_WORLD, status);
    }
    release(r);
    MPI_Finalize();
    return status;
}

/* A file that is opened next would take the number of a stream that is closed, and what is meant for the stream
 * would be written into it. */
static int check_streams(void)
{
    bool closed = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    int fd;

    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd >= 0)
        close(fd);
    return closed ? fail("standard output is closed: the result has nowhere to go (>/dev/null drops it)") : 0;
}

/* Ranks that were killed leave files of their buffers. */
static int launched(const struct dpxrun *r, int argc, char **argv)
{
    int status = launch_exec(&(struct launch){ .nranks = (int)r->here.cluster.world_size, .threads = (int)r->o.threads,
                                               .hostfile = r->o.hostfile }, argc, argv);

    /* A rank that was killed may still be about to end. */
    for (int i = 0; status != EXIT_DONE && store_sweep(r->o.offload_dir) > 0 && i < 10; i++)
        nanosleep(&(struct timespec){ 0, 200 * 1000 * 1000 }, NULL);
    return status;
}

/* What holds where no option says otherwise. */
static struct dpxrun unasked(void)
{
    return (struct dpxrun){ .o = { .steps = 10, .grads_step = 1, .comm = -1, .seed = 1, .lr = -1, .weight_decay = -1, .clip = -1, .loss_scale = -1, .eps = 1e-8 } };
}

int main(int argc, char **argv)
{
    struct dpxrun r = unasked();
    int rc, status;

    opts_version_note(build_info);
    answers_begin(argc, argv, modelled_add);
    if (!launch_speaks())
        answer_given();
    rc = parse(argc, argv, &r.o);
    if (rc != OPTS_OK)
        return answers_end(rc < 0 ? EXIT_MISUSE : EXIT_DONE);
    if (check_streams() < 0)
        status = EXIT_FAILED;
    else if (settle(&r.o) < 0)
        status = EXIT_MISUSE;
    else if (r.o.plans.n > 1 && r.o.sbatch)
        status = fail("--sbatch: is of one plan") < 0 ? EXIT_MISUSE : EXIT_DONE;
    else if (r.o.plans.n > 1)
        status = dpxrun_in_turn(&r);
    else if ((r.o.engine ? dpxrun_plan_for_engine : plan_for_here)(&r) < 0)
        status = EXIT_MISUSE;
    else if (r.o.sbatch)
        status = dpxrun_sbatch(&r, argc, argv);
    else if (r.o.engine)
        status = dpxrun_engine(&r);
    else if (r.o.comm == COMM_NULL)
        status = all(&r);
    else if (launch_needed())
        status = launched(&r, argc, argv);
    else
        return as_rank(&r, &argc, &argv);
    release(&r);
    return answers_end(status);
}
