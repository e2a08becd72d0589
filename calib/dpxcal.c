/* dpxcal.c -- measures this machine, or takes in what was measured elsewhere.  What the command line
 * or a file has wrong is said before ranks are started, and exits with 2. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#include <mpi.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/version.h"
#include "calib/bench/bench.h"
#include "calib/dpxcal_files.h"
#include "calib/import/nccl_log.h"
#include "calib/store/show.h"
#include "exec/device/cores.h"
#include "exec/device/host_info.h"
#include "exec/device/lanes.h"
#include "exec/process/build_info.h"
#include "exec/process/launch.h"
#include "model/cluster/cluster.h"
#include "model/plan/modelled.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2 };
enum { DEVICE_CPU, DEVICE_CUDA };

/* Within which an interrupted calibration is continued: after that the machine is another. */
static const double CONTINUED_S = 6 * 3600;
/* For waiting until other processes leave the cores, and for timing again what they disturbed. */
static const double QUICK_SPARE_S = 14, FULL_SPARE_S = 60;
/* From the command to its end.  Under a minute and under ten are promised; items overrun by a little. */
static const double QUICK_S = 45, FULL_S = 540;
/* When the command began, for its ranks: a monotonic clock of this machine. */
#define BEGUN "DPX_CAL_BEGUN"

struct cal {
    bool    quick, anew, json;
    int64_t ranks, threads, seq, seconds;
    int     device;
    uint64_t precision;
    double  probe_s;
    double  spare_s, lost_s;            /* left for waiting and timing again; so spent */
    double  timed_s, crowded_s, crowd_s;        /* timed; of that beside others; times the share that they had */
    int     repeated;
    const char *models, *micro_batches, *degrees, *db, *hostfile, *disk;
    struct bench b;
    struct bench_list list;
    char   *options;
    atomic_bool stop;
    bool    calibrates, continued;
};

static const char *const devices[] = { "cpu", "cuda", NULL };
/* Of plans: option words and what they ask for, in the same order. */
static const char *const precisions[] = { "fp32", "bf16", "fp16", NULL };
static const enum dtype precision_of[] = { DT_FP32, DT_BF16, DT_FP16 };
enum { NPRECISION = sizeof precision_of / sizeof *precision_of, WORD_FP32 = 1, WORD_BF16 = 2 };

static void wish_for(uint64_t words, struct bench_wish *w)
{
    for (int i = 0; i < NPRECISION; i++)
        w->precision[precision_of[i]] = (words >> i & 1) != 0;
}

/* ---- options ---- */

static int parse_run(struct cal *c, int argc, char **argv)
{
    static const char what[] = "What is measured", how[] = "With which ranks";
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxcal run --quick"),
        OPTS_EXAMPLE("dpxcal run --quick --ranks 2 --model demo/10m --seq 128"),
        { "quick", "less than a minute, fewer points; without it, less than ten", .flag = &c->quick, .often = true },
        { "ranks", "processes, all of them busy at once; default: one a core, or one a GPU", .i = &c->ranks, .min = 1, .often = true },
        { "model", "measure the exact shapes of these (names or config.json, with commas between), else a grid",
          .str = &c->models, .value = "M", .often = true },
        { "seq", "tokens of a sample", .length = &c->seq, .min = 1, .often = true },
        { "micro-batch", "samples of a micro-batch, with commas between", .str = &c->micro_batches, .value = "N", .group = what },
        { "degrees", "shapes that one of so many tensor- or context-parallel ranks has, with commas between; default 1 and, without "
          "--quick, every number that divides the ranks", .str = &c->degrees, .value = "N", .group = what },
        { "precision", "of plans, with commas between; default fp32, and without --quick bf16 as well", .set = &c->precision,
          .words = precisions, .group = what },
        { "threads", "of a rank's compute; 0: its share of the cores", .i = &c->threads, .group = how },
        { "seconds", "to take in all, in place of those of --quick and the full run", .i = &c->seconds, .min = 1, .group = what },
        { "device", "what computes, and is timed", .word = &c->device, .words = devices, .often = true },
        { "hostfile", "machines to start ranks on, as Open MPI's", .str = &c->hostfile, .value = "FILE", .group = how },
        { "disk", "a folder whose disk is timed, with files of 1 GB in all, --quick 128 MB (default as dpxrun's "
          "--offload-dir: $TMPDIR, else /var/tmp)", .str = &c->disk, .value = "DIR", .group = what },
        { "anew", "do not continue an interrupted calibration", .flag = &c->anew },
        { "db", "the database", .str = &c->db, .value = "FILE" },
        { "json", "print one JSON document", .flag = &c->json },
        { 0 }
    };

    return opts_parse("dpxcal run", "Times the executor's own kernels, collectives and hand-overs, into the database "
                      "that dpxplan and dpxrun read.  Interrupted, it continues when started again.", opts, argc, argv);
}

static struct bench_wish wish(const struct cal *c)
{
    struct bench_wish w = { .quick = c->quick, .models = c->models, .seq = c->seq, .micro_batches = c->micro_batches,
                            .degrees = c->degrees };

    w.cuda = c->device == DEVICE_CUDA;
    w.carries = c->b.carries;
    w.disk = c->disk ? c->disk : cluster_host_folder();
    wish_for(c->precision ? c->precision : c->quick ? WORD_FP32 : WORD_FP32 | WORD_BF16, &w);
    return w;
}

static char *options_json(const struct cal *c)
{
    struct bench_wish w = wish(c);
    json_t *j = json_pack("{s:b, s:s?, s:I, s:s?, s:s*, s:b, s:b, s:b}", "quick", c->quick, "model", c->models, "seq",
                          (json_int_t)c->seq, "micro_batch", c->micro_batches, "degrees", c->degrees, "fp32", w.precision[DT_FP32], "bf16",
                          w.precision[DT_BF16], "fp16", w.precision[DT_FP16]);
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

    json_decref(j);
    return text;
}

/* ---- what is checked before anything is measured ---- */

/* After something failed: by the database's fault, else as the caller says. */
static int status_or(int status)
{
    return db_exit_status() != EXIT_DONE ? db_exit_status() : status;
}

static int check_ranks(const struct cal *c)
{
    int64_t most = 64 * (int64_t)host_cores();

    if (c->device == DEVICE_CUDA && !device_cuda_built())
        return fail("--device cuda: this dpxcal was built without CUDA");
    if (c->device == DEVICE_CUDA && !c->hostfile && device_cuda_need() < 0)
        return -1;
    if (c->ranks > most && !c->hostfile)
        return fail("--ranks %lld: this machine has %d cores", (long long)c->ranks, host_cores());
    if (c->ranks > CLUSTER_MAX_RANKS)
        return fail("--ranks %lld: at most %d", (long long)c->ranks, CLUSTER_MAX_RANKS);
    if (c->threads > most)
        return fail("--threads %lld: this machine has %d cores", (long long)c->threads, host_cores());
    if (c->hostfile && access(c->hostfile, R_OK) < 0)
        return fail("--hostfile %s: %s", c->hostfile, strerror(errno));
    return 0;
}

/* The models, their shapes, and a database that can be written: an exit status. */
static int check_run(const struct cal *c, int nranks)
{
    struct bench_wish w = wish(c);
    struct bench_list l;
    struct host_info h;
    struct db *db;

    if (host_info(&h) < 0)
        return EXIT_FAILED;
    w.memory = c->hostfile || w.cuda ? 0 : h.available / nranks;
    if (bench_list(&w, nranks, &l) < 0)
        return EXIT_MISUSE;
    bench_list_free(&l);
    db = db_open(c->db);
    db_close(db);
    return db ? EXIT_DONE : status_or(EXIT_FAILED);
}

/* ---- the database: rank 0 ---- */

/* Whether no other dpxcal measures on this machine; it stays so until this process ends.  A name
 * without a file, which goes with the process however that ends; ranks of a command that was killed
 * live on for a second or two. */
static bool alone_here(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0dpxcal" };
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + sizeof "\0dpxcal" - 1;
    int s = socket(AF_UNIX, SOCK_STREAM, 0);

    for (int tries = 0; s >= 0 && tries < 40; tries++) {
        if (bind(s, (const struct sockaddr *)&name, size) == 0 || errno != EADDRINUSE)
            return true;
        nanosleep(&(struct timespec){ 0, 100 * 1000 * 1000 }, NULL);
    }
    return s < 0;
}

/* What clusters call a GPU ("h200"), so that a plan for one finds it; else what its driver calls it. */
static const char *gpu_word(const struct bench *b)
{
    const char *known = nccl_device(device_name(b->device));

    return known ? known : device_name(b->device);
}

static int open_database(struct cal *c)
{
    struct host_info h;
    char kernels[160], comm[64];
    struct calibration of = { .started = bench_wall_clock(), .host = h.host, .device = "cpu", .cpu = h.cpu,
                              .source = "dpxcal", .ranks = c->b.nranks, .threads = c->b.threads,
                              .dpx_version = version_text(), .comm_version = h.mpi, .kernels_version = h.onednn };

    if (c->b.cuda) {
        bench_versions(&c->b, kernels, sizeof kernels, comm, sizeof comm);
        of.device = gpu_word(&c->b);
        of.kernels_version = kernels;
        of.comm_version = comm;
    }

    if (host_info(&h) < 0 || !(c->b.db = db_open(c->db)))
        return -1;
    c->options = options_json(c);
    if (!c->options)
        return fail("out of memory");
    of.options = c->options;
    of.cores = h.cores;
    of.memory = h.memory;
    if (db_note(c->b.db))
        fprintf(stderr, "%s\n", db_note(c->b.db));
    if (!alone_here()) {
        fprintf(stderr, "warning: another dpxcal measures on this machine: both results will be too slow; run one at "
                "a time\n");
        c->anew = true;                 /* what has no end yet is the other's */
    }
    if (!c->anew)
        c->b.calibration = calibration_open_since(c->b.db, &of, CONTINUED_S);
    c->continued = c->b.calibration > 0;
    if (c->b.calibration == 0)
        c->b.calibration = calibration_begin(c->b.db, &of);
    return c->b.calibration < 0 ? -1 : 0;
}

/* ---- progress: rank 0 ---- */

static void progress(const struct cal *c, double done, double left_s, const char *what)
{
    enum { BAR = 20 };
    int columns = launch_terminal(), full = (int)(done * BAR);
    char line[320];

    if (columns < 20 || c->b.rank != 0)
        return;
    int n = snprintf(line, sizeof line, "[%.*s%*s] %3.0f %%  %d:%02d left  %s", full, "####################", BAR - full,
                     "", 100 * done, (int)left_s / 60, (int)left_s % 60, what);
    fprintf(stderr, "\r%.*s\033[K", n < columns ? n : columns - 1, line);
    fflush(stderr);
}

static void progress_end(const struct cal *c)
{
    if (launch_terminal() >= 20 && c->b.rank == 0)
        fputs("\r\033[K", stderr);
}

/* ---- the run ---- */

/* Seconds since the command was given: rank 0's, for all.  Negative reported. */
static double since_begun(const struct cal *c)
{
    const char *begun = getenv(BEGUN);
    double spent = begun && c->b.rank == 0 ? lanes_now() - strtod(begun, NULL) : 0;

    return bench_max(spent > 0 && spent < 60 ? spent : 0);
}

/* Removes what an item has recorded, on rank 0; 0 or -1 on all. */
static int forget(const struct cal *c, int64_t after)
{
    int rc = c->b.rank == 0 ? series_forget(c->b.db, c->b.calibration, after) : 0;

    return MPI_Bcast(&rc, 1, MPI_INT, 0, MPI_COMM_WORLD) != MPI_SUCCESS ? -1 : rc;
}

/* Once more where other processes took the cores meanwhile and have left since: while there is time to spare. */
static int run_item(struct cal *c, const struct bench_item *item, double seconds)
{
    double from = lanes_now();

    for (;;) {
        struct cpu_use before;
        int64_t last = c->b.rank == 0 ? series_last(c->b.db) : 0;
        double begun = lanes_now(), waited = 0;
        cpu_use_now(c->b.cpus, &before);
        if (last < 0 || bench_run(&c->b, item, seconds) < 0)
            return -1;
        double crowd = bench_crowd(&c->b, &before), took = bench_max(lanes_now() - begun);
        if (isnan(crowd) || isnan(took))
            return -1;
        bool again = crowd > BENCH_CROWDED && c->spare_s > took
                     && !(bench_wait_until_quiet(&c->b, c->spare_s - took, &waited) > BENCH_CROWDED);
        c->spare_s -= waited;
        if (!again) {
            c->timed_s += took;
            c->crowded_s += crowd > BENCH_CROWDED ? took : 0;
            c->crowd_s += crowd * took;
            return 0;
        }
        if (forget(c, last) < 0)
            return -1;
        c->spare_s -= took;
        c->repeated++;
        c->lost_s += lanes_now() - from;
        from = lanes_now();
    }
}

/* Each item gets its share of the time that is left, so that one that took longer is made up for. */
static int run_items(struct cal *c, double begun)
{
    double all = c->seconds ? (double)c->seconds : c->quick ? QUICK_S : FULL_S, weight = 0;
    double whole;

    c->spare_s = c->seconds ? all / 3 : c->quick ? QUICK_SPARE_S : FULL_SPARE_S;
    bench_wait_until_quiet(&c->b, c->spare_s, &c->lost_s);
    c->spare_s -= c->lost_s;
    for (int i = 0; i < c->list.n; i++)
        weight += c->list.item[i].weight;
    whole = weight;
    for (int i = 0; i < c->list.n; i++) {
        const struct bench_item *item = &c->list.item[i];
        double left = fmax(all - (lanes_now() - begun - c->lost_s), 0);
        progress(c, 1 - weight / whole, left, item->what);
        if (run_item(c, item, left * item->weight / weight) < 0)
            return -1;
        weight -= item->weight;
    }
    progress_end(c);
    return 0;
}

/* What was timed beside others' work is no measurement of this machine. */
static void say_crowded(const struct cal *c)
{
    if (c->repeated > 0 && !c->json)
        printf("%d item%s timed again, since other processes had used the cores\n", c->repeated, c->repeated == 1 ? " was" : "s were");
    if (c->crowded_s > .05 * c->timed_s)
        fprintf(stderr, "warning: other processes had %.0f %% of the cores during %.0f of %.0f s: these times are longer "
                "than the machine needs.  Calibrate again when it is quiet; until then predictions warn, and their "
                "intervals are wider\n", 100 * c->crowd_s / c->timed_s, c->crowded_s, c->timed_s);
}

/* Shares of time: of what was timed, that beside others' work; of the cores, what these had on average. */
static json_t *run_json(const struct cal *c, double seconds)
{
    double timed = c->timed_s > 0 ? c->timed_s : 1;

    return json_pack("{s:i, s:i, s:i, s:s, s:f, s:s, s:I, s:b, s:i, s:f, s:f}", "dpx", 1, "ranks", c->b.nranks, "threads", c->b.threads, "device",
                     c->b.cuda ? gpu_word(&c->b) : "cpu", "seconds", seconds, "database", db_path(c->b.db), "calibration", (json_int_t)c->b.calibration,
                     "continued", c->continued, "timed_again", c->repeated, "crowded_share", c->crowded_s / timed, "others_share", c->crowd_s / timed);
}

/* On rank 0 what is wrong is said, and the others follow. */
static int prepare(struct cal *c)
{
    struct bench_wish w = wish(c);
    char ignored[8];
    int ready = EXIT_FAILED;

    if (c->b.rank == 0) {
        ready = check_run(c, c->b.nranks);
        if (ready == EXIT_DONE && open_database(c) < 0)
            ready = status_or(EXIT_FAILED);
    }
    if (MPI_Bcast(&ready, 1, MPI_INT, 0, MPI_COMM_WORLD) != MPI_SUCCESS || ready != EXIT_DONE)
        return ready;
    fail_capture(c->b.rank ? ignored : NULL, sizeof ignored);
    ready = bench_list(&w, c->b.nranks, &c->list) < 0 ? EXIT_MISUSE : EXIT_DONE;
    fail_capture(NULL, 0);
    return ready;
}

static int measure(struct cal *c)
{
    int status = bench_open(&c->b) < 0 ? EXIT_FAILED : prepare(c);

    if (status != EXIT_DONE)
        return status;
    if (c->b.rank == 0 && c->continued && !c->json) {
        printf("continuing calibration %lld, which was interrupted\n", (long long)c->b.calibration);
        fflush(stdout);                 /* minutes before the end */
    }
    double spent = since_begun(c), begun = lanes_now() - spent;
    if (isnan(spent) || run_items(c, begun) < 0)
        return EXIT_FAILED;
    if (c->b.rank != 0)
        return EXIT_DONE;
    if (c->timed_s > 0 && calibration_crowd(c->b.db, c->b.calibration, c->crowd_s / c->timed_s) < 0)
        return EXIT_FAILED;
    if (calibration_end(c->b.db, c->b.calibration, bench_wall_clock()) < 0)
        return EXIT_FAILED;
    if (access(db_path(c->b.db), F_OK) < 0)
        return fail("%s: was removed while it was written: nothing is kept", db_path(c->b.db)), EXIT_FAILED;
    say_crowded(c);
    if (c->json)
        return answer_print(run_json(c, lanes_now() - begun), EXIT_DONE);
    printf("%d rank%s x %d %s%s measured in %.0f s, into %s as calibration %lld; `dpxcal show` lists what is known\n",
           c->b.nranks, c->b.nranks == 1 ? "" : "s", c->b.threads, c->b.cuda ? gpu_word(&c->b) : "thread",
           c->b.cuda || c->b.threads == 1 ? "" : "s", lanes_now() - begun, db_path(c->b.db),
           (long long)c->b.calibration);
    return EXIT_DONE;
}

static void release(struct cal *c)
{
    bench_close(&c->b);
    bench_list_free(&c->list);
    db_close(c->b.db);
    free(c->options);
}

static int start_mpi(struct cal *c)
{
    int provided, world;

    launch_tune_tcp();
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return fail("MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (provided < MPI_THREAD_MULTIPLE)
        return fail("this MPI gives no MPI_THREAD_MULTIPLE");
    if (c->ranks && c->ranks != world)
        return fail("--ranks %lld: the launcher started %d", (long long)c->ranks, world);
    c->b.cuda = c->device == DEVICE_CUDA;
    c->b.threads = c->b.cuda ? 1 : c->threads ? (int)c->threads : host_threads(world);
    c->b.stop = &c->stop;
    return launch_check(world) < 0 ? -1 : c->b.cuda ? 0 : cores_keep_apart();
}

/* Ranks get the whole line, from the program's name on. */
static int start_ranks(const struct cal *c, int nranks, int argc, char **argv)
{
    char begun[32];
    int status;

    snprintf(begun, sizeof begun, "%.6f", lanes_now());
    setenv(BEGUN, begun, 1);
    status = launch_exec(&(struct launch){ .nranks = nranks, .threads = (int)c->threads, .hostfile = c->hostfile },
                         argc + 1, argv - 1);
    if (status > 128)
        fprintf(stderr, "dpxcal: %s (signal %d); what was measured is kept%s\n",
                status == 128 + SIGINT ? "interrupted" : strsignal(status - 128), status - 128,
                c->calibrates ? ", and the same command goes on from there" : "");
    return status;
}

/* One a core, or one a GPU; without any, the one rank says so. */
static int usual_ranks(const struct cal *c)
{
    int gpus = c->device == DEVICE_CUDA ? device_cuda_count() : host_cores();

    return gpus > 0 ? gpus : 1;
}

/* Under a launcher: what every rank does, which returns an exit status.  Else the ranks are started. */
static int on_ranks(struct cal *c, int argc, char **argv, int (*what)(struct cal *c))
{
    int nranks = c->ranks ? (int)c->ranks : usual_ranks(c), status;

    if (launch_needed()) {
        status = c->calibrates ? check_run(c, nranks) : EXIT_DONE;
        return status != EXIT_DONE ? status : start_ranks(c, nranks, argc, argv);
    }
    if (start_mpi(c) < 0)
        return EXIT_FAILED;
    status = what(c);
    if (status != EXIT_DONE) {
        answers_end(status);
        fflush(NULL);
        MPI_Abort(MPI_COMM_WORLD, status);              /* the others may wait for this rank */
    }
    release(c);
    MPI_Finalize();
    return EXIT_DONE;
}

static int cmd_run(int argc, char **argv)
{
    static struct cal c = { .calibrates = true };
    int rc = parse_run(&c, argc, argv);

    if (rc == OPTS_OK)
        rc = check_ranks(&c);
    return rc != OPTS_OK ? (rc < 0 ? EXIT_MISUSE : EXIT_DONE) : on_ranks(&c, argc, argv, measure);
}

/* ---- the probe alone ---- */

static int probe(struct cal *c)
{
    double s = bench_open(&c->b) < 0 ? (double)NAN : probe_take(c->b.probe, c->probe_s);

    if (isnan(s))
        return EXIT_FAILED;
    if (c->b.rank == 0 && c->json)
        return answer_print(json_pack("{s:i, s:i, s:i, s:f}", "dpx", 1, "ranks", c->b.nranks, "threads", c->b.threads, "seconds", s), EXIT_DONE);
    if (c->b.rank == 0)
        printf("%.6e\n", s);
    return EXIT_DONE;
}

static int cmd_probe(int argc, char **argv)
{
    static struct cal c = { .probe_s = 0.5 };
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxcal probe"),
        { "ranks", "processes, all of them busy at once; default: one a core, or one a GPU", .i = &c.ranks, .min = 1 },
        { "device", "what computes", .word = &c.device, .words = devices },
        { "threads", "of a rank's compute; 0: its share of the cores", .i = &c.threads },
        { "for", "seconds of repeating it", .num = &c.probe_s, .value = "SECONDS" },
        { "hostfile", "machines to start ranks on, as Open MPI's", .str = &c.hostfile, .value = "FILE" },
        { "json", "print one JSON document", .flag = &c.json },
        { 0 }
    };
    int rc = opts_parse("dpxcal probe", "Prints the seconds of one small matrix product: how fast this machine is at this moment.  "
                        "dpxcal run times it before and after everything else.", opts, argc, argv);

    if (rc == OPTS_OK)
        rc = check_ranks(&c);
    return rc != OPTS_OK ? (rc < 0 ? EXIT_MISUSE : EXIT_DONE) : on_ranks(&c, argc, argv, probe);
}

/* ---- what is known, files ---- */

static int show(struct db *db, bool fits, bool json)
{
    json_t *doc = NULL;

    if (!json)
        return (fits ? show_fits : show_machines)(db) < 0 ? status_or(EXIT_FAILED) : EXIT_DONE;
    doc = (fits ? show_fits_json : show_machines_json)(db);
    return doc ? answer_print(doc, EXIT_DONE) : status_or(EXIT_FAILED);
}

static int show_lacks(struct db *db, const struct bench_list *l, int64_t ranks, bool json)
{
    json_t *plans = json ? json_array() : NULL;
    int status = EXIT_DONE;

    for (int i = 0; i < l->nplans && status == EXIT_DONE; i++)
        if (show_missing(db, &l->plan[i], ranks, plans) < 0)
            status = status_or(EXIT_FAILED);
    if (json && status == EXIT_DONE)
        return answer_print(json_pack("{s:i, s:s, s:I, s:o}", "dpx", 1, "database", db_path(db), "ranks", (json_int_t)ranks, "plans", plans), status);
    json_decref(plans);
    return status;
}

static int cmd_show(int argc, char **argv)
{
    const char *models = NULL, *batches = NULL, *degrees = NULL, *path = NULL;
    int64_t seq = 0, ranks = host_cores();
    uint64_t precision = 1;
    bool fits = false, json = false;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxcal show"),
        OPTS_EXAMPLE("dpxcal show --model demo/10m --seq 128 --ranks 2"),
        { "model", "what of these is not measured yet", .str = &models, .value = "M" },
        { "seq", "tokens of a sample", .length = &seq, .min = 1 },
        { "micro-batch", "samples of a micro-batch, with commas between", .str = &batches, .value = "N" },
        { "degrees", "shapes that one of so many tensor- or context-parallel ranks has, with commas between; default 1",
          .str = &degrees, .value = "N" },
        { "precision", "of plans", .set = &precision, .words = precisions },
        { "ranks", "busy at once", .i = &ranks, .min = 1 },
        { "fits", "the laws that times follow, how far from them they lie, and in which range", .flag = &fits },
        { "db", "the database", .str = &path, .value = "FILE" },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    struct bench_list l = { 0 };
    int rc = opts_parse("dpxcal show", "What was measured on which machine, how old and how noisy it is; with --model what "
                        "that model still lacks.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    struct bench_wish w = { .quick = true, .models = models, .seq = seq, .micro_batches = batches, .degrees = degrees };
    struct db *db = db_open_reader(path);
    if (!db)
        return status_or(EXIT_FAILED);
    wish_for(precision, &w);
    if (!models)
        rc = show(db, fits, json);
    else if ((rc = bench_list(&w, 1, &l) < 0 ? EXIT_MISUSE : EXIT_DONE) == EXIT_DONE)
        rc = show_lacks(db, &l, ranks, json);
    bench_list_free(&l);
    db_close(db);
    return rc;
}

static const char about[] =
    "Measures a machine, so that dpxplan and dpxrun predict with its own speeds instead of a datasheet's.\n"
    "\n"
    "  dpxcal run --quick\n"
    "      times this machine's kernels, collectives and disk in less than a minute\n"
    "  dpxcal show\n"
    "      what is known now, how old and how noisy it is\n"
    "  dpxcal export here.json\n"
    "      writes it for another machine's `dpxcal import here.json`\n";

int main(int argc, char **argv)
{
    const struct command commands[] = {
        OPTS_COMMANDS("Measure"),
        { "run",    "measure this machine", cmd_run },
        { "probe",  "how fast is this machine at this moment?", cmd_probe },
        OPTS_COMMANDS("Look"),
        { "show",   "what was measured on which machine, and what a model still lacks", cmd_show },
        OPTS_COMMANDS("Take in and hand on"),
        { "import", "take in what was exported, the output of nccl-tests, or a trace of PyTorch's profiler", dpxcal_import },
        { "export", "calibrations as a file for another machine", dpxcal_export },
        { "fit",    "what dpxplan reads of a GPU's exported calibration, without the samples", dpxcal_fit },
        { 0 }
    };

    opts_version_note(build_info);
    answers_begin(argc, argv, modelled_add);
    if (!launch_speaks())
        answer_given();
    int rc = answers_end(opts_command_run("dpxcal", about, commands, argc, argv));
    /* A full disk shows only now. */
    bool lost = ferror(stdout) != 0;
    if ((fflush(stdout) != 0 || lost) && rc == EXIT_DONE) {
        fail("cannot write to standard output");
        return EXIT_FAILED;
    }
    return rc;
}
