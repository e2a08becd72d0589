/* admit.c -- see admit.h.  Keys: Kubeflow Trainer's TrainJob v1alpha1 (trainer.kubeflow.org), Slurm's sbatch(1). */
#define _GNU_SOURCE                             /* strcasestr() */
#include "sim/plan/admit.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/notes.h"
#include "base/opts.h"
#include "base/yaml.h"
#include "model/cluster/cluster.h"
#include "model/memory/evaluate.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/convert.h"

/* What the job asks for; `command` is what it runs, NULL: the file itself is the script; `unknown`: a product that is none
 * of ours. */
struct job { const char *kind; int64_t nodes, each; char gpu[32], unknown[64]; char *command; };

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

/* A whole number above 0 and nothing behind it; 0: it is none. */
static int64_t whole(const char *text)
{
    char *end;
    int64_t n = text ? strtoll(text, &end, 10) : 0;

    return text && isdigit((unsigned char)*text) && !*end && n <= 1 << 20 ? n : 0;
}

/* The same of YAML, where it may be a text; 0: none. */
static int64_t count(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) > 0 ? json_integer_value(v) : whole(json_string_value(v));
}

/* Are all parts of our name ("h100-pcie") whole words of the product ("NVIDIA-H100-PCIe")?  Letters that count, 0: they are not. */
static size_t names(const char *ours, const char *text)
{
    size_t letters = 0;

    while (*ours) {
        size_t n = strcspn(ours, "-");
        bool found = false;
        for (const char *at = text; !found && *at; at++)
            found = !strncasecmp(at, ours, n) && (at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[n]);
        if (!found)
            return 0;
        letters += n;
        ours += n + (ours[n] == '-');
    }
    return letters;
}

/* "NVIDIA-H100-80GB-HBM3" of the GPU operator, "a100" of Slurm: a name of ours that it ends with, or the type of ours that has most words of it;
 * "" where there is none.  -1 reported. */
static int product(const char *text, const char *where, struct job *out)
{
    size_t best = 0;

    if (!text)
        return 0;
    if (strcasestr(text, "mig") || strstr(text, "g."))
        return fail("%s: \"%.60s\": a part of a GPU (MIG) is not planned", where, text);
    if (strcasestr(text, "-shared"))        /* as the GPU operator's time-slicing names it */
        return fail("%s: \"%.60s\": a GPU that several pods share is not planned", where, text);
    const struct gpu *found = NULL, *g;
    for (const char *at = text; !found && *at; at++)
        found = at == text || !isalnum((unsigned char)at[-1]) ? gpu_find(at) : NULL;
    for (int i = 0; !found && (g = gpu_at(i)); i++)
        best = names(g->name, text) > best ? names(g->name, text) : best;
    for (int i = 0; !found && best && (g = gpu_at(i)); i++)
        found = names(g->name, text) == best ? g : NULL;
    snprintf(out->gpu, sizeof out->gpu, "%s", found ? found->name : "");
    snprintf(out->unknown, sizeof out->unknown, "%.60s", found ? "" : text);
    return 0;
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

static const char *product_label(const json_t *pod) { return json_string_value(json_object_get(at(pod, "nodeSelector"), "nvidia.com/gpu.product")); }

/* The GPU that the pods ask for: of podTemplateOverrides until Trainer 2.1, of runtimePatches later.  NULL: none. */
static const char *selector_of(const json_t *doc)
{
    const json_t *part, *job;
    const char *found = NULL, *label;
    size_t i, k;

    json_array_foreach((json_t *)(uintptr_t)at(doc, "spec/podTemplateOverrides"), i, part)
        found = (label = product_label(at(part, "spec"))) ? label : found;
    json_array_foreach((json_t *)(uintptr_t)at(doc, "spec/runtimePatches"), i, part)
        json_array_foreach((json_t *)(uintptr_t)at(part, "trainingRuntimeSpec/template/spec/replicatedJobs"), k, job)
            found = (label = product_label(at(job, "template/spec/template/spec"))) ? label : found;
    return found;
}

static int read_trainjob(const json_t *doc, const char *where, struct job *out)
{
    const json_t *trainer = at(doc, "spec/trainer");
    const char *kind = json_string_value(json_object_get(doc, "kind"));
    const json_t *limits = at(trainer, "resourcesPerNode/limits");

    if (!kind || strcmp(kind, "TrainJob"))
        return fail("%s: kind: \"%.40s\" is not TrainJob", where, kind ? kind : "(missing)");
    out->kind = "TrainJob";
    out->nodes = count(json_object_get(trainer, "numNodes"));
    int64_t gpus = count(json_object_get(limits, "nvidia.com/gpu")), processes = count(json_object_get(trainer, "numProcPerNode"));
    out->command = command_of(trainer);
    if (product(selector_of(doc), where, out) < 0)
        return -1;
    if (json_object_get(trainer, "numNodes") && !out->nodes)
        return fail("%s: spec.trainer.numNodes: not a whole number above 0", where);
    out->nodes = out->nodes ? out->nodes : 1;
    if (gpus && processes && gpus != processes)
        return fail("%s: spec.trainer: numProcPerNode %" PRId64 " beside a limit of %" PRId64 " GPUs: one process a GPU is planned", where, processes, gpus);
    out->each = gpus ? gpus : processes;
    return out->each > 0 ? 0 : fail("%s: spec.trainer: neither numProcPerNode nor a limit nvidia.com/gpu says how many GPUs a node has", where);
}

/* One option of an #SBATCH line, "--nodes=4", "--nodes 4", "-N 4" or "-N4"; *line goes behind it.  The value, "" where it has none; false: the
 * line ends. */
static bool next_option(const char **line, char name[64], char value[128])
{
    const char *s = *line + strspn(*line, " \t\r");
    size_t n = strcspn(s, " \t\r\n="), short_one = s[0] == '-' && s[1] && s[1] != '-';

    if (!*s || *s == '\n' || *s == '#')
        return false;
    n = short_one ? 2 : n;
    snprintf(name, 64, "%.*s", (int)n, s);
    s += n;
    s += *s == '=';
    const char *v = s + strspn(s, " \t");
    size_t m = *v == '-' && v != s ? 0 : strcspn(v, " \t\r\n");
    snprintf(value, 128, "%.*s", (int)m, v);
    *line = v + m;
    return true;
}

/* "8", "h100:8", "gpu:8", "gpu:h100:8(S:0)": how many; 0: reported. */
static int64_t read_gpus(char *text, const char *where, struct job *out)
{
    text[strcspn(text, "(")] = '\0';
    if (!strncmp(text, "gpu:", 4))
        text += 4;
    char *type = strrchr(text, ':') ? text : NULL, *last = type ? strrchr(text, ':') + 1 : text;
    int64_t n = !strcmp(text, "gpu") ? 1 : whole(last);

    if (type)
        last[-1] = '\0';
    if (n == 0)
        fail("%s: #SBATCH: \"%.60s\" does not say how many GPUs", where, last);
    return n > 0 && product(type, where, out) == 0 ? n : 0;
}

/* --gres=nvme:1,gpu:h100:8: the part that is of GPUs; NULL: none. */
static char *gres_of(char *text)
{
    for (char *part, *rest = text; (part = strsep(&rest, ",")); )
        if (!strcmp(part, "gpu") || !strncmp(part, "gpu:", 4))
            return part;
    return NULL;
}

/* "4", or "2-4", which starts on two; 0: it is neither. */
static int64_t fewest(const char *nodes)
{
    size_t n = strcspn(nodes, "-");
    char first[32];

    snprintf(first, sizeof first, "%.*s", (int)n, nodes);
    return !nodes[n] || whole(nodes + n + 1) >= whole(first) ? whole(first) : 0;
}

/* What the option says of GPUs and nodes; -1 reported. */
static int read_option(const char *name, char *value, const char *where, struct job *out, int64_t *all)
{
    char *part;

    if (!strcmp(name, "--nodes") || !strcmp(name, "-N")) {
        out->nodes = fewest(value);
        return out->nodes > 0 ? 0 : fail("%s: #SBATCH %s: \"%.60s\" is not a whole number above 0", where, name, value);
    }
    if (!strcmp(name, "--gpus") || !strcmp(name, "-G"))
        return (*all = read_gpus(value, where, out)) > 0 ? 0 : -1;
    if (!strcmp(name, "--gpus-per-node"))
        return (out->each = read_gpus(value, where, out)) > 0 ? 0 : -1;
    if (!strcmp(name, "hetjob") || !strcmp(name, "packjob"))
        return fail("%s: #SBATCH %s: a job of several parts is not judged: give the part that trains", where, name);
    if (!strcmp(name, "--gpus-per-task") || !strcmp(name, "--gpus-per-socket"))
        return fail("%s: #SBATCH %s is not read: say --gpus-per-node", where, name);
    if (!strcmp(name, "--gres") && (part = gres_of(value)))
        return (out->each = read_gpus(part, where, out)) > 0 ? 0 : -1;
    return 0;
}

/* Options stand before the first command; sbatch passes over later ones. */
static int read_sbatch(const char *text, const char *where, struct job *out)
{
    char name[64], value[128];
    int64_t all = 0;

    out->kind = "sbatch";
    for (const char *line = text; line && (*line == '#' || *line == '\n' || *line == '\r'); line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *at = line + 7;
        if (strncmp(line, "#SBATCH", 7))
            continue;
        while (next_option(&at, name, value))
            if (read_option(name, value, where, out, &all) < 0)
                return -1;
    }
    out->nodes = out->nodes ? out->nodes : 1;
    if (all % out->nodes)
        return fail("%s: #SBATCH --gpus: %" PRId64 " GPUs do not divide by %" PRId64 " nodes", where, all, out->nodes);
    if (all && out->each && out->each != all / out->nodes)
        return fail("%s: #SBATCH: %" PRId64 " GPUs on %" PRId64 " nodes are not %" PRId64 " each", where, all, out->nodes, out->each);
    out->each = all ? all / out->nodes : out->each;
    return out->each > 0 ? 0 : fail("%s: no #SBATCH --gres=gpu:N, --gpus-per-node or --gpus says how many GPUs", where);
}

static int read_job(const char *path, struct job *out, char **text)
{
    if (!(*text = input_text(path, 4 << 20, NULL)))
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
        const struct gpu *asked = a->gpu ? gpu_find(a->gpu) : NULL;
        bool two = a->gpu && job.gpu[0] && (!asked || strcmp(asked->name, job.gpu) != 0);
        if (a->gpu && !job.gpu[0])
            snprintf(job.gpu, sizeof job.gpu, "%s", a->gpu);
        if (two)
            fail("%s: the job asks for %s: leave out --gpu %.30s", a->file, job.gpu, a->gpu);
        else if (!job.gpu[0] && job.unknown[0])
            fail("%s: \"%s\" is not a GPU that dpx knows: name it with --gpu (dpxplan list gpus)", a->file, job.unknown);
        else if (!job.gpu[0])
            fail("%s: the job does not say which GPUs: give --gpu h100", a->file);
        else
            rc = answer(a, &job, text, doc);
    }
    free(job.command);
    free(text);
    return rc;
}
