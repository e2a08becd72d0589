/* engine_start.c -- ranks of a framework as children: started, watched, ended.
 *
 * dpxrun starts them itself, with the variables that torchrun sets (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or hands
 * that to torchrun, mpirun or srun.  All are in one process group.  What a launcher leaves behind becomes this process's child
 * (PR_SET_CHILD_SUBREAPER) and is killed before engine_run() returns. */
#include "exec/engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "model/arch/training.h"

enum { POLL_MS = 100, GRACE_MS = 5000, TIMEOUT_S = 300 };

static int64_t milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){ ms / 1000, (ms % 1000) * 1000000L }, NULL); }

static int64_t patience_ms(void)
{
    const char *v = getenv("DPX_TIMEOUT");

    return v && atof(v) > 0 ? (int64_t)(1000 * atof(v)) : 1000 * TIMEOUT_S;
}

/* ---- what is there ---- */

/* Versions by their distributions' metadata, which takes no import; GPUs as torch sees them. */
static const char ask[] =
    "import sys, json, importlib.util as u, importlib.metadata as m\n"
    "def has(n):\n"
    "    try: return u.find_spec(n) is not None\n"
    "    except ImportError: return False\n"
    "out = {n: m.version(n.replace('.', '-')) if has(n) else None for n in sys.argv[2:]}\n"
    "if sys.argv[1] == 'cuda' and out.get('torch'):\n"
    "    import torch\n"
    "    out['gpus'] = torch.cuda.device_count()\n"
    "print(json.dumps(out))\n";

/* Whose version a plan's "framework_version" is. */
static const char *framework_of(const struct plan *p)
{
    return p->dialect == DIALECT_DEEPSPEED ? "deepspeed" : p->dialect == DIALECT_MEGATRON ? "megatron.core" : "torch";
}

/* The modules that a run imports, ended by NULL. */
enum { MOST_MODULES = 6 };
static void modules_of(const struct engine_job *j, const char *module[MOST_MODULES + 1])
{
    static const char *const own[NENGINE] = { [ENGINE_DEEPSPEED] = "deepspeed", [ENGINE_ACCELERATE] = "accelerate",
                                              [ENGINE_TORCHTITAN] = "torchtitan", [ENGINE_MEGATRON] = "megatron.core" };
    int n = 0;

    module[n++] = "torch";
    module[n++] = "transformers";
    if (own[j->engine])
        module[n++] = own[j->engine];
    if (j->engine == ENGINE_ACCELERATE && j->plan->dialect == DIALECT_DEEPSPEED)
        module[n++] = "deepspeed";
    if (training_is_lora(&j->plan->train))
        module[n++] = "peft";
    if (j->plan->train.base == BASE_NF4 || j->plan->train.base == BASE_NF4_DOUBLE)
        module[n++] = "bitsandbytes";
    if (j->plan->float8.recipe != FLOAT8_NONE)
        module[n++] = "torchao";
    module[n] = NULL;
}

/* What pip calls a module. */
static const char *package_of(const char *module) { return !strcmp(module, "megatron.core") ? "megatron-core" : module; }

static int missing(const struct engine_job *j, const char *package)
{
    return fail("--engine %s: %s has no %s: install it there (pip install %s), or name another Python by --python", engine_name(j->engine), j->python,
                package, package);
}

static int take_answer(struct engine_job *j, const json_t *doc, const char *const *want)
{
    int at = 0;

    for (int i = 0; want[i]; i++) {
        const char *version = json_string_value(json_object_get(doc, want[i]));
        if (!version)
            return missing(j, package_of(want[i]));
        if (!strcmp(want[i], framework_of(j->plan)))
            snprintf(j->framework, sizeof j->framework, "%.*s", (int)strcspn(version, "+"), version);
        at += snprintf(j->versions + at, sizeof j->versions - (size_t)at, "%s%s %.30s", at ? ", " : "", package_of(want[i]), version);
    }
    j->gpus = (int)json_integer_value(json_object_get(doc, "gpus"));
    if (j->cuda && j->gpus == 0)
        return fail("--device cuda: the torch of %s sees no GPU", j->python);
    return 0;
}

/* Its stdout; *child is to be waited for. */
static int ask_python(const struct engine_job *j, const char *const *want, pid_t *child)
{
    const char *args[MOST_MODULES + 5] = { j->python, "-c", ask, j->cuda ? "cuda" : "cpu" };
    int out[2], n = 4;

    for (int i = 0; want[i]; i++)
        args[n++] = want[i];
    if (pipe(out) < 0)
        return -1;
    *child = fork();
    if (*child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], 1);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 2);
        execvp(args[0], (char **)(uintptr_t)args);
        _exit(127);
    }
    close(out[1]);
    if (*child < 0)
        close(out[0]);
    return *child < 0 ? -1 : out[0];
}

/* Its line that begins with "{", at most size - 1 bytes of it, until `end` in milliseconds(): a module may say something as it is imported.
 * false: it was too slow. */
static bool read_answer(int from, char *text, size_t size, int64_t end)
{
    enum { MOST_SAID = 1 << 16 };
    size_t at = 0, all = 0;
    ssize_t n = 1;
    char *line = NULL;

    while (n > 0 && at < size - 1 && all < MOST_SAID && !line) {
        int64_t left = end - milliseconds();
        struct pollfd p = { .fd = from, .events = POLLIN };
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            return false;
        n = read(from, text + at, size - 1 - at);
        at += n > 0 ? (size_t)n : 0;
        all += n > 0 ? (size_t)n : 0;
        while ((line = memchr(text, '\n', at)) != NULL && *text != '{') {
            at -= (size_t)(line + 1 - text);
            memmove(text, line + 1, at);
        }
    }
    text[at] = '\0';
    return true;
}

int engine_find(struct engine_job *j)
{
    const char *want[MOST_MODULES + 1];
    char text[4096] = "";
    pid_t child;
    int status = 0;

    modules_of(j, want);
    int from = ask_python(j, want, &child);
    if (from < 0)
        return fail("--python %s: %s", j->python, strerror(errno));
    bool in_time = read_answer(from, text, sizeof text, milliseconds() + patience_ms());
    close(from);
    pid_t gone = 0;
    for (int tries = 0; in_time && tries < 50 && (gone = waitpid(child, &status, WNOHANG)) == 0; tries++)
        pause_ms(20);
    if (gone == 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (gone > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return fail("--python %s: %s", j->python, "there is no such program in PATH");
    if (!in_time)
        return fail("--python %s: did not say in %" PRId64 " s (DPX_TIMEOUT) what it has installed", j->python, patience_ms() / 1000);
    json_t *doc = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    if (!doc)
        return fail("--python %s: could not be asked what it has installed", j->python);
    int rc = take_answer(j, doc, want);
    json_decref(doc);
    return rc;
}

/* ---- starting ---- */

static void set_number(const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, value);
    setenv(name, text, 1);
}

/* Of a job that dpxrun itself is started in: its ranks, and where they meet, are not these. */
static void forget_outer_job(const struct engine_job *j)
{
    static const char *const outer[] = { "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "MPI_LOCALRANKID", "SLURM_PROCID", "SLURM_LOCALID" };

    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
        unsetenv(outer[i]);
    if (j->plan->cluster.nodes == 1)
        setenv("MASTER_ADDR", "127.0.0.1", 1);
}

/* In the child: becomes rank `rank`, or the launcher (-1). */
static void become(const struct engine_job *j, int64_t rank, pid_t group, pid_t parent)
{
    static char script[700], ranks[24];
    int64_t n = j->plan->cluster.world_size;
    char log[700];

    setpgid(0, group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    snprintf(script, sizeof script, "%s/dpx_%s.py", j->folder, engine_name(j->engine));
    snprintf(ranks, sizeof ranks, "%" PRId64, n);
    snprintf(log, sizeof log, "%s/launcher.log", j->folder);
    int null = open("/dev/null", O_RDONLY), out = open(log, O_CREAT | O_APPEND | O_WRONLY, 0600);
    if (null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(1);
    forget_outer_job(j);
    if (rank >= 0) {
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        set_number("RANK", rank);
        set_number("LOCAL_RANK", rank);
        set_number("WORLD_SIZE", n);
    }
    const char *self[] = { j->python, script, NULL };
    const char *torchrun[] = { j->python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, script, NULL };
    const char *mpirun[] = { "mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, j->python, script, NULL };
    const char *srun[] = { "srun", "--kill-on-bad-exit=1", "-n", ranks, j->python, script, NULL };
    const char **const all[] = { [LAUNCH_SELF] = self, [LAUNCH_TORCHRUN] = torchrun, [LAUNCH_MPIRUN] = mpirun, [LAUNCH_SRUN] = srun };
    execvp(all[j->launcher][0], (char **)(uintptr_t)all[j->launcher]);
    dprintf(2, "%s: %s\n", all[j->launcher][0], strerror(errno));
    _exit(127);
}

/* ---- what a rank has come to ---- */

struct watched {
    int64_t n;                          /* ranks */
    int64_t size[ENGINE_MOST_RANKS];           /* of what each has written */
    bool    ended[ENGINE_MOST_RANKS];          /* by its own word */
    int64_t steps;                      /* of rank 0, told so far */
    int64_t moved;                      /* when any rank last wrote */
    engine_step_done *f;
    void *arg;
};

/* The last words of rank `rank`; false: it goes on. */
static bool read_words(struct watched *w, const struct engine_job *j, int64_t rank, struct engine_end *end)
{
    static const struct { const char *event; enum engine_ended how; } endings[] = { { "end", ENDED_WELL }, { "refused", ENDED_REFUSED },
                                                                                    { "oom", ENDED_OOM }, { "failed", ENDED_FAILED } };
    char path[600], *line = NULL;
    size_t room = 0;
    int64_t step = 0;
    bool last = false;

    snprintf(path, sizeof path, "%s/rank%" PRId64 ".jsonl", j->folder, rank);
    FILE *f = fopen(path, "r");
    while (f && getline(&line, &room, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(row, "event")), *text = json_string_value(json_object_get(row, "text"));
        for (size_t i = 0; event && i < sizeof endings / sizeof *endings; i++)
            if (!strcmp(event, endings[i].event)) {
                last = true;
                if (endings[i].how != ENDED_WELL && end->how == ENDED_WELL) {
                    *end = (struct engine_end){ .how = endings[i].how, .rank = (int)rank };
                    snprintf(end->why, sizeof end->why, "%s", text ? text : "");
                }
            }
        if (event && !strcmp(event, "step") && rank == 0 && ++step > w->steps) {
            w->steps = step;
            if (w->f)
                w->f(w->arg, step, json_number_value(json_object_get(row, "seconds")), json_is_number(json_object_get(row, "loss")) ?
                     json_number_value(json_object_get(row, "loss")) : (double)NAN);
        }
        json_decref(row);
    }
    free(line);
    if (f)
        fclose(f);
    return last;
}

static void look(struct watched *w, const struct engine_job *j, struct engine_end *end)
{
    for (int64_t r = 0; r < w->n; r++) {
        char path[600];
        struct stat st;
        snprintf(path, sizeof path, "%s/rank%" PRId64 ".jsonl", j->folder, r);
        if (stat(path, &st) < 0 || st.st_size == w->size[r])
            continue;
        w->size[r] = st.st_size;
        w->moved = milliseconds();
        w->ended[r] = read_words(w, j, r, end);
    }
}

static bool all_ended(const struct watched *w)
{
    for (int64_t r = 0; r < w->n; r++)
        if (!w->ended[r])
            return false;
    return true;
}

/* The rank that wrote least. */
static int64_t behind(const struct watched *w)
{
    int64_t least = 0;

    for (int64_t r = 1; r < w->n; r++)
        if (w->size[r] < w->size[least])
            least = r;
    return least;
}

/* ---- the watch ---- */

static volatile sig_atomic_t told;

static void on_signal(int sig) { told = sig; }

static const int heeded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
enum { NHEEDED = sizeof heeded / sizeof *heeded };

static void heed(struct sigaction old[NHEEDED])
{
    struct sigaction a = { .sa_handler = on_signal };

    sigemptyset(&a.sa_mask);
    told = 0;
    for (int i = 0; i < NHEEDED; i++) {
        sigaction(heeded[i], NULL, &old[i]);
        if (old[i].sa_handler != SIG_IGN)       /* nohup */
            sigaction(heeded[i], &a, NULL);
    }
}

/* Whatever became a child of this process. */
static void kill_orphans(void)
{
    char path[64];
    long pid;

    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    for (int tries = 0; tries < 50; tries++) {
        FILE *f = fopen(path, "r");
        bool any = false;
        while (f && fscanf(f, "%ld", &pid) == 1) {
            any = true;
            kill((pid_t)pid, SIGKILL);
        }
        if (f)
            fclose(f);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (!any)
            return;
        pause_ms(20);
    }
}

/* Reaps; what a rank's death says where it said nothing itself.  Children left. */
static int reap(pid_t *child, int n, const struct engine_job *j, struct watched *w, struct engine_end *end)
{
    int status, left = 0;

    for (int i = 0; i < n; i++) {
        if (child[i] > 0 && waitpid(child[i], &status, WNOHANG) == child[i]) {
            child[i] = 0;
            look(w, j, end);
            bool silent = j->launcher == LAUNCH_SELF ? !w->ended[i] : !all_ended(w);
            if (silent && end->how == ENDED_WELL) {
                *end = (struct engine_end){ .how = ENDED_FAILED, .rank = j->launcher == LAUNCH_SELF ? i : -1 };
                if (WIFSIGNALED(status))
                    snprintf(end->why, sizeof end->why, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
                else
                    snprintf(end->why, sizeof end->why, "ended with status %d before its last step", WEXITSTATUS(status));
            }
        }
        left += child[i] > 0;
    }
    return left;
}

/* What ends the group, so many milliseconds after the first of it: srun, killed, would leave its ranks on other nodes. */
static int last_signal(const struct engine_job *j, int64_t ms) { return j->launcher == LAUNCH_SRUN && ms < GRACE_MS ? SIGTERM : SIGKILL; }

static void watch(pid_t *child, int n, const struct engine_job *j, struct watched *w, struct engine_end *end)
{
    int64_t patience = patience_ms(), since = 0;
    pid_t group = child[0];

    while (reap(child, n, j, w, end) > 0) {
        look(w, j, end);
        if (told && end->how != ENDED_BY_SIGNAL) {
            *end = (struct engine_end){ .how = ENDED_BY_SIGNAL, .rank = -1, .signal = told };
            snprintf(end->why, sizeof end->why, "interrupted (%s)", strsignal(told));
        }
        if (end->how == ENDED_WELL && milliseconds() > w->moved + patience) {
            *end = (struct engine_end){ .how = ENDED_HUNG, .rank = (int)behind(w) };
            snprintf(end->why, sizeof end->why, "nothing has been done on any rank for %" PRId64 " s (DPX_TIMEOUT): rank %d is behind, after %" PRId64
                     " steps of rank 0", patience / 1000, end->rank, w->steps);
        }
        if (end->how != ENDED_WELL && !since)
            since = milliseconds();             /* the others may wait for the rank that ended */
        int64_t grace = end->how == ENDED_HUNG || end->how == ENDED_BY_SIGNAL ? 0 : GRACE_MS;
        if (since && milliseconds() > since + grace)
            kill(-group, last_signal(j, milliseconds() - since - grace));
        pause_ms(POLL_MS);
    }
    look(w, j, end);
}

int engine_run(const struct engine_job *j, engine_step_done *f, void *arg, struct engine_end *end)
{
    int n = j->launcher == LAUNCH_SELF ? (int)j->plan->cluster.world_size : 1;
    pid_t self = getpid(), *child = calloc((size_t)n, sizeof *child);
    struct watched *w = calloc(1, sizeof *w);
    struct sigaction old[NHEEDED];

    *end = (struct engine_end){ .how = ENDED_WELL, .rank = -1 };
    if (!child || !w) {
        free(child);
        free(w);
        return fail("out of memory for %d ranks", n);
    }
    *w = (struct watched){ .n = j->plan->cluster.world_size, .moved = milliseconds(), .f = f, .arg = arg };
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    heed(old);
    for (int i = 0; i < n && end->how == ENDED_WELL; i++) {
        child[i] = fork();
        if (child[i] == 0)
            become(j, j->launcher == LAUNCH_SELF ? i : -1, i ? child[0] : 0, self);
        if (child[i] < 0)
            *end = (struct engine_end){ .how = ENDED_FAILED, .rank = i, .why = "could not be started" };
        else
            setpgid(child[i], child[0]);
    }
    watch(child, n, j, w, end);
    kill_orphans();
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    for (int i = 0; i < NHEEDED; i++)
        sigaction(heeded[i], &old[i], NULL);
    free(child);
    free(w);
    return 0;
}
