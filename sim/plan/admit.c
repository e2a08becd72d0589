/* admit.c -- see admit.h.  Keys: Kubeflow Trainer's TrainJob v1alpha1 (trainer.kubeflow.org), Slurm's sbatch(1). */
#define _GNU_SOURCE                             /* strcasestr() */
#include "sim/plan/admit.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "base/opts.h"
#include "base/yaml.h"
#include "model/cluster/cluster.h"
#include "model/memory/evaluate.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"

/* What the job asks for; `command` is what it runs, NULL: the file itself is the script. */
struct job { const char *kind; int64_t nodes, each; char gpu[32]; char *command; };

enum { MOST_NODES = 4096 };

static const json_t *at(const json_t *j, const char *path)
{
    char key[64];

    while (j && *path) {
        size_t n = strcspn(path, "/");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = json_object_get(j, key);
        path += n + (path[n] == '/');
    }
    return j;
}

/* A whole number, also as Kubernetes' text; 0: none. */
static int64_t count(const json_t *v)
{
    return json_is_integer(v) ? json_integer_value(v) : json_is_string(v) ? strtoll(json_string_value(v), NULL, 10) : 0;
}

/* "NVIDIA-H100-80GB-HBM3" of the GPU operator: the type of ours whose name is in it; "" where none is. */
static void product(const char *text, char out[32])
{
    const struct gpu *g;
    size_t best = 0;

    for (int i = 0; text && (g = gpu_at(i)); i++)
        if (strlen(g->name) > best && strcasestr(text, g->name)) {
            best = strlen(g->name);
            snprintf(out, 32, "%s", g->name);
        }
}

/* One line of a shell: words in single quotes. */
static void add_words(FILE *to, const json_t *words)
{
    const json_t *w;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)words, i, w) {
        fputc('\'', to);
        for (const char *s = json_string_value(w); s && *s; s++)
            if (*s == '\'')
                fputs("'\\''", to);
            else
                fputc(*s, to);
        fputs("' ", to);
    }
}

/* ["bash", "-c", "torchrun ..."]: the script itself. */
static char *command_of(const json_t *trainer)
{
    const json_t *command = json_object_get(trainer, "command"), *args = json_object_get(trainer, "args");
    const char *first = json_string_value(json_array_get(command, 0)), *second = json_string_value(json_array_get(command, 1));
    const char *script = second && !strcmp(second, "-c") ? json_string_value(json_array_get(command, 2)) : NULL;
    char *text = NULL;
    size_t size = 0;

    if (!first && !json_array_size(args))
        return NULL;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        abort();
    if (script)
        fputs(script, to);
    else
        add_words(to, command);
    if (!script)
        add_words(to, args);
    fputc('\n', to);
    fclose(to);
    return text;
}

static int read_trainjob(const json_t *doc, const char *where, struct job *out)
{
    const json_t *trainer = at(doc, "spec/trainer");
    const char *kind = json_string_value(json_object_get(doc, "kind"));
    const char *selector = NULL;
    const json_t *limits = at(trainer, "resourcesPerNode/limits"), *override;
    size_t i;

    if (!kind || strcmp(kind, "TrainJob"))
        return fail("%s: kind: \"%.40s\" is not TrainJob", where, kind ? kind : "(missing)");
    out->kind = "TrainJob";
    out->nodes = count(json_object_get(trainer, "numNodes"));
    out->each = count(json_object_get(limits, "nvidia.com/gpu"));
    if (!out->each)
        out->each = count(json_object_get(trainer, "numProcPerNode"));
    json_array_foreach((json_t *)(uintptr_t)at(doc, "spec/podTemplateOverrides"), i, override) {
        const json_t *labels = at(override, "spec/nodeSelector");
        selector = json_string_value(json_object_get(labels, "nvidia.com/gpu.product"));
    }
    product(selector, out->gpu);
    out->command = command_of(trainer);
    out->nodes = out->nodes ? out->nodes : 1;
    return out->each > 0 ? 0 : fail("%s: spec.trainer: neither numProcPerNode nor a limit nvidia.com/gpu says how many GPUs a node has", where);
}

/* The value of an #SBATCH option, "--nodes=4", "--nodes 4" or "-N 4"; false: the line has another. */
static bool option(const char *line, const char *name, char letter, char out[64])
{
    const char *s = line + strspn(line, " \t");
    size_t n = strlen(name);

    if (s[0] == '-' && s[1] == '-' && !strncmp(s + 2, name, n) && (s[2 + n] == '=' || isspace((unsigned char)s[2 + n])))
        s += 3 + n;
    else if (letter && s[0] == '-' && s[1] == letter)
        s += 2;
    else
        return false;
    s += strspn(s, " \t=");
    snprintf(out, 64, "%.*s", (int)strcspn(s, " \t\r\n#"), s);
    return true;
}

/* "8", "h100:8", "gpu:8", "gpu:h100:8". */
static void read_gpus(char *text, struct job *out)
{
    char *last = strrchr(text, ':'), *type;

    out->each = strtoll(last ? last + 1 : text, NULL, 10);
    if (last)
        *last = '\0';
    type = last ? strrchr(text, ':') ? strrchr(text, ':') + 1 : text : NULL;
    if (type && strcmp(type, "gpu"))
        product(type, out->gpu);
}

static int read_sbatch(const char *text, const char *where, struct job *out)
{
    char value[64];
    int64_t all = 0;

    out->kind = "sbatch";
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, "#SBATCH", 7))
            continue;
        if (option(line + 7, "nodes", 'N', value))
            out->nodes = strtoll(value, NULL, 10);
        else if (option(line + 7, "gres", 0, value) || option(line + 7, "gpus-per-node", 0, value))
            read_gpus(value, out);
        else if (option(line + 7, "gpus", 'G', value)) {
            read_gpus(value, out);
            all = out->each;
        }
    }
    out->nodes = out->nodes ? out->nodes : 1;
    if (all)
        out->each = all / out->nodes;
    return out->each > 0 ? 0 : fail("%s: no #SBATCH --gres=gpu:N, --gpus-per-node or --gpus says how many GPUs", where);
}

static char *text_of(const char *path)
{
    FILE *f = fopen(path, "r"), *to;
    char *text = NULL, part[4096];
    size_t size = 0, n, most = 1 << 22;

    if (!f || !(to = open_memstream(&text, &size))) {
        fail("%s: cannot be read", path);
        return NULL;
    }
    while ((n = fread(part, 1, sizeof part, f)) > 0 && most > n) {
        fwrite(part, 1, n, to);
        most -= n;
    }
    fclose(f);
    fclose(to);
    return text;
}

static int read_job(const char *path, struct job *out, char **text)
{
    if (!(*text = text_of(path)))
        return -1;
    if (strstr(*text, "#SBATCH"))
        return read_sbatch(*text, path, out);
    json_t *doc = yaml_read(*text, strlen(*text), path);
    int rc = doc ? read_trainjob(doc, path, out) : -1;
    json_decref(doc);
    return rc;
}

/* The plan of the job on so many nodes of so many GPUs. */
static int plan_on(const struct admit_args *a, const struct job *job, const char *text, int64_t nodes, int64_t each, struct plan *out)
{
    char cluster[96];
    struct import_args in = { .precision = -1, .recompute = -1, .model = a->model, .seq = a->seq, .cluster = cluster };

    snprintf(cluster, sizeof cluster, "%" PRId64 "x%" PRId64 "x%s", nodes, each, job->gpu);
    in.file = a->recipe ? a->recipe : a->file;
    in.text = a->recipe ? NULL : job->command ? job->command : text;
    return convert_import(&in, out);
}

static const char *const verdicts[] = { "fits", "tight", "does not fit" };

/* 0 fits, 1 tight, 2 does not; -1 with *status. */
static int judge(const struct plan *p, json_t *into, int *status)
{
    struct evaluation e;
    char why[512] = "";

    if (evaluate(p, &e) < 0) {
        *status = EXIT_MISUSE;
        return -1;
    }
    answer_lack(p, &e, why, sizeof why);
    int verdict = !e.m.fits ? 2 : e.verdict == VERDICT_TIGHT ? 1 : 0;
    if (into) {
        json_object_set_new(into, "verdict", json_string(verdicts[verdict]));
        json_object_set_new(into, "fits", json_boolean(verdict < 2));
        json_object_set_new(into, "taken_bytes", json_integer(evaluation_taken(&e.m, &e.reserved)));
        json_object_set_new(into, "usable_bytes", json_integer(e.m.available));
        json_object_set_new(into, "why_not", verdict == 2 ? json_string(why) : json_null());
    }
    evaluation_free(&e);
    return verdict;
}

/* The fewest nodes of the job's kind that hold the same recipe, its micro-batch and accumulation unchanged, up to MOST_NODES, by doubling. */
static json_t *least(const struct admit_args *a, const struct job *job, const char *text)
{
    json_t *found = json_null();
    char ignored[1024];

    struct fail_sink before = fail_divert(ignored, sizeof ignored);
    for (int64_t nodes = 1, each = 1; nodes <= MOST_NODES && json_is_null(found); ) {
        struct plan p;
        int status;
        if (plan_on(a, job, text, nodes, each, &p) == EXIT_DONE) {
            if (judge(&p, NULL, &status) >= 0 && judge(&p, NULL, &status) < 2)
                found = json_pack("{s:I, s:I, s:I}", "nodes", (json_int_t)nodes, "gpus_per_node", (json_int_t)each, "gpus", (json_int_t)(nodes * each));
            plan_free(&p);
        }
        if (each < job->each)
            each = each * 2 < job->each ? each * 2 : job->each;
        else
            nodes *= 2;
    }
    fail_restore(before);
    return found;
}

static int answer(const struct admit_args *a, const struct job *job, const char *text, json_t **doc)
{
    json_t *ignored = json_array(), *before;
    struct plan p;
    int status = plan_on(a, job, text, job->nodes, job->each, &p);

    if (status != EXIT_DONE) {
        json_decref(ignored);
        return status;
    }
    before = notes_divert(ignored);             /* said once, above */
    json_t *out = json_pack("{s:i, s:s, s:{s:I, s:I, s:s}}", "dpx", 1, "job", job->kind, "asks", "nodes", (json_int_t)job->nodes, "gpus_per_node",
                            (json_int_t)job->each, "gpu", job->gpu);
    int verdict = judge(&p, out, &status);
    if (verdict >= 0) {
        json_object_set_new(out, "least", least(a, job, text));
        json_object_set_new(out, "plan", plan_to_json(&p));
        status = verdict < 2 ? EXIT_DONE : EXIT_NO;
        *doc = json_incref(out);
    }
    notes_divert(before);
    json_decref(ignored);
    json_decref(out);
    plan_free(&p);
    return status;
}

int admit_ask(const struct admit_args *a, json_t **doc)
{
    struct job job = { .kind = "" };
    char *text = NULL;
    int rc = EXIT_MISUSE;

    if (read_job(a->file, &job, &text) == 0) {
        if (a->gpu)
            snprintf(job.gpu, sizeof job.gpu, "%s", a->gpu);
        if (!job.gpu[0])
            fail("%s: the job does not say which GPUs: give --gpu h100", a->file);
        else
            rc = answer(a, &job, text, doc);
    }
    free(job.command);
    free(text);
    return rc;
}
