/* engine_job.c -- the folder that ranks read: job.json, tokens.bin, init.safetensors, and the runner itself. */
#define _GNU_SOURCE             /* nftw */
#include "exec/engine/engine.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/size.h"
#include "exec/data/safetensors.h"
#include "exec/data/tokens.h"
#include "exec/data/weights.h"
#include "model/plan/plan_groups.h"

/* common_py, torch_py, ...: their lines, made from the files beside this one. */
#include "exec/engine/scripts.inc"

/* The runners, and what they share: all of them lie in the folder. */
static const struct script { const char *name; const char *const *lines; } scripts[] = {
    { "dpx_common.py", common_py }, { "dpx_torch.py", torch_py }, { "dpx_torch_axes.py", torch_axes_py }, { "dpx_deepspeed.py", deepspeed_py },
    { "dpx_accelerate.py", accelerate_py }, { "dpx_megatron.py", megatron_py }, { "dpx_torchtitan.py", torchtitan_py },
};
enum { NSCRIPTS = sizeof scripts / sizeof *scripts };

/* Bytes of weights beyond which none are written down: the framework makes its own, of the same distribution.  On a GPU it does so in the
 * time in which a tenth of them is read from a file. */
#define MOST_WEIGHTS ((int64_t)8 << 30)
#define MOST_OF_GPU  ((int64_t)1 << 30)

int engine_folder(struct engine_job *j)
{
    const char *in = getenv("TMPDIR");

    snprintf(j->folder, sizeof j->folder, "%s/dpx-engine-XXXXXX", in && *in ? in : "/tmp");
    if (!mkdtemp(j->folder)) {
        int why = errno;
        fail("%s: %s: a run needs a folder for its ranks (TMPDIR)", j->folder, strerror(why));
        j->folder[0] = '\0';
        return -1;
    }
    return 0;
}

void engine_trace_path(const struct engine_job *j, int64_t rank, char *path, size_t size)
{
    snprintf(path, size, "%s/rank%" PRId64 ".trace.json", j->folder, rank);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* Frameworks leave files of their own there. */
void engine_remove(struct engine_job *j)
{
    if (j->folder[0])
        nftw(j->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    j->folder[0] = '\0';
}

static FILE *create(const struct engine_job *j, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", j->folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        fail("%s: %s", path, strerror(errno));
    return f;
}

static int finish(FILE *f, const char *path)
{
    bool wrong = ferror(f);

    if (fclose(f) != 0 || wrong)
        return fail("%s: %s", path, strerror(errno));
    return 0;
}

static int write_script(const struct engine_job *j, const char *name, const char *const *lines)
{
    char path[600];
    FILE *f = create(j, name, path, sizeof path);

    if (!f)
        return -1;
    for (int i = 0; lines[i]; i++)
        fputs(lines[i], f);
    return finish(f, path);
}

/* ---- tokens ---- */

/* One micro-batch of one batch rank: ids and labels of each sample. */
static int write_samples(struct tokens *t, const struct plan *p, int64_t step, int64_t micro, int64_t batch_rank, int32_t *both, FILE *f)
{
    int64_t world = plan_batch_ranks(p), global = p->micro_batch * p->accumulation * world;

    for (int64_t slot = 0; slot < p->micro_batch; slot++) {
        struct tokens_place at = { micro, batch_rank, slot };
        if (tokens_sample(t, step * global + tokens_index(&at, p->micro_batch, world), both, both + p->seq) < 0)
            return -1;
        fwrite(both, sizeof *both, 2 * (size_t)p->seq, f);
    }
    return 0;
}

/* Bytes of tokens.bin beyond which none is written. */
#define MOST_TOKENS ((int64_t)4 << 30)

static int few_enough_tokens(const struct engine_job *j)
{
    double bytes = 2.0 * sizeof(int32_t) * (double)j->steps * (double)(plan_global_batch(j->plan) * j->plan->seq);

    return bytes <= MOST_TOKENS ? 0 : fail("--steps %" PRId64 ": their tokens take %s in a file, of %s at most: fewer steps", j->steps,
                                           size_text(bytes < 9e18 ? (int64_t)bytes : INT64_MAX).s, size_text(MOST_TOKENS).s);
}

static int write_tokens(const struct engine_job *j)
{
    const struct plan *p = j->plan;

    struct tokens *t = tokens_open(&(struct tokens_args){ .path = j->data, .vocab = p->model.vocab, .seq = p->seq, .seed = j->seed,
                                                          .order = j->sequential ? TOKENS_SEQUENTIAL : TOKENS_SHUFFLED });
    int32_t *both = malloc(2 * (size_t)p->seq * sizeof *both);
    char path[600];
    FILE *f = t && both ? create(j, "tokens.bin", path, sizeof path) : NULL;
    int rc = f ? 0 : -1;

    for (int64_t step = 0; rc == 0 && step < j->steps; step++)
        for (int64_t micro = 0; rc == 0 && micro < p->accumulation; micro++)
            for (int64_t r = 0; rc == 0 && r < plan_batch_ranks(p); r++)
                rc = write_samples(t, p, step, micro, r, both, f);
    if (f && finish(f, path) < 0)
        rc = -1;
    free(both);
    tokens_close(t);
    return rc;
}

/* ---- weights ---- */

static int write_tensor(const struct weights *w, const struct model *m, int tensor, struct st_writer *out, int entry)
{
    enum { PIECE = 1 << 16 };
    static float piece[PIECE];
    int64_t numel = m->tensors[tensor].numel;

    for (int64_t at = 0; at < numel; at += PIECE) {
        int64_t n = numel - at < PIECE ? numel - at : PIECE;
        if (weights_fill(w, tensor, at, n, piece) < 0 || safetensors_write(out, entry, at, n, piece) < 0)
            return -1;
    }
    return 0;
}

static bool writes_weights(const struct engine_job *j)
{
    return j->init || 4 * j->plan->model.params <= (j->cuda ? MOST_OF_GPU : MOST_WEIGHTS);
}

static int write_weights(const struct engine_job *j)
{
    const struct model *m = &j->plan->model;
    struct weights *w = j->init ? weights_from_file(m, j->init, j->seed) : weights_from_seed(m, j->seed);
    struct st_entry *e = calloc((size_t)m->ntensors, sizeof *e);
    char path[600];
    struct st_writer *out = NULL;
    int rc = w && e ? 0 : -1;

    for (int i = 0; rc == 0 && i < m->ntensors; i++) {
        e[i] = (struct st_entry){ .name = m->tensors[i].name, .dtype = DT_FP32, .ndim = m->tensors[i].ndim < 3 ? m->tensors[i].ndim : 3 };
        memcpy(e[i].shape, m->tensors[i].shape, (size_t)e[i].ndim * sizeof *e[i].shape);
    }
    snprintf(path, sizeof path, "%s/init.safetensors", j->folder);
    if (rc == 0 && !(out = safetensors_create(path, e, m->ntensors)))
        rc = -1;
    for (int i = 0; rc == 0 && i < m->ntensors; i++)
        rc = write_tensor(w, m, i, out, i);
    if (rc == 0)
        rc = safetensors_finish(out);
    else
        safetensors_discard(out);
    free(e);
    weights_close(w);
    return rc;
}

/* ---- job.json ---- */

/* A port that is free now, for ranks to meet at. */
static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0), port = 29400;

    if (s >= 0 && bind(s, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(s, (struct sockaddr *)&a, &size) == 0)
        port = ntohs(a.sin_port);
    if (s >= 0)
        close(s);
    return port;
}

static json_t *job_json(const struct engine_job *j)
{
    const struct plan *p = j->plan;
    json_t *lr = json_array(), *ranks = json_array();

    for (int64_t i = 0; i < j->steps; i++)
        json_array_append_new(lr, json_real(j->lr[i]));
    for (int64_t r = 0; r < p->cluster.world_size; r++)
        json_array_append_new(ranks, json_integer(plan_batch_rank(p, r)));
    json_t *config = engine_config(j->engine, p);
    return json_pack("{s:b, s:o, s:o, s:s, s:s, s:I, s:i, s:i, s:I, s:I, s:o, s:f, s:f, s:f, s:f, s:o, s:I, s:o}", "trace", engine_traces(j->steps), "config", config, "plan", plan_to_json(p), "folder", j->folder,
                     "device", j->cuda ? "cuda" : "cpu", "world_size", (json_int_t)p->cluster.world_size, "threads", j->threads, "port", free_port(),
                     "steps", (json_int_t)j->steps, "seed", (json_int_t)j->seed, "lr", lr, "beta1", j->beta1, "beta2", j->beta2, "eps", j->eps,
                     "weight_decay", j->weight_decay, "init", writes_weights(j) ? json_sprintf("%s/init.safetensors", j->folder) : json_null(),
                     "batch_ranks", (json_int_t)plan_batch_ranks(p), "batch_rank", ranks);
}

static int write_job(const struct engine_job *j)
{
    char path[600];
    json_t *doc = job_json(j);
    FILE *f = doc ? create(j, "job.json", path, sizeof path) : NULL;
    int rc = f && json_dumpf(doc, f, JSON_INDENT(1)) == 0 ? 0 : -1;

    if (f && finish(f, path) < 0)
        rc = -1;
    json_decref(doc);
    return rc < 0 ? fail("%s/job.json: could not be written", j->folder) : 0;
}

int engine_write(const struct engine_job *j)
{
    if (few_enough_tokens(j) < 0)           /* before job.json has a rate of each step */
        return -1;
    for (int i = 0; i < NSCRIPTS; i++)
        if (write_script(j, scripts[i].name, scripts[i].lines) < 0)
            return -1;
    if (write_job(j) < 0 || write_tokens(j) < 0)
        return -1;
    return writes_weights(j) ? write_weights(j) : 0;
}
