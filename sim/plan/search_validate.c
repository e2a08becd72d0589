/* search_validate.c -- see search_validate.h. */
#include "sim/plan/search_validate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/engines.h"
#include "sim/plan/commands.h"

/* How many are worth a run: their predicted order is what is in question. */
enum { TO_RUN = 5, PATHS = 8192 };

/* Those that `dpxrun --engine` is called with here; accelerate's plans are torch's or DeepSpeed's. */
static const enum engine engines[] = { ENGINE_TORCH, ENGINE_DEEPSPEED, ENGINE_MEGATRON };
enum { NENGINES = sizeof engines / sizeof *engines };

struct choice { const struct plan *plan; enum engine engine; };     /* ENGINE_NONE: none runs it */

/* The engine that runs a plan on the GPUs or CPUs that it is for; ENGINE_NONE, with what the last of its dialect refuses in `why`. */
static enum engine engine_of(const struct plan *p, char *why, size_t size)
{
    static const enum engine of[NDIALECT] = { [DIALECT_TORCH] = ENGINE_TORCH, [DIALECT_TORCH_FSDP1] = ENGINE_TORCH, [DIALECT_DEEPSPEED] = ENGINE_DEEPSPEED,
                                               [DIALECT_MEGATRON] = ENGINE_MEGATRON };
    enum engine e = of[p->dialect];

    snprintf(why, size, "no framework has dialect %s", dialect_name(p->dialect));
    if (e == ENGINE_NONE)
        return e;
    struct fail_sink before = fail_divert(why, size);
    int rc = engine_follows(e, p, !p->cluster.is_host);
    fail_restore(before);
    return rc == 0 ? e : ENGINE_NONE;
}

/* "plan.json" for the first, "plan-2.json" for the second. */
static void name_of(const char *path, int64_t i, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');

    if (!dot || (slash && dot < slash))
        dot = path + strlen(path);
    if (i == 0)
        snprintf(out, size, "%s", path);
    else
        snprintf(out, size, "%.*s-%" PRId64 "%s", (int)(dot - path), path, i + 1, dot);
}

/* Shell's own words and paths stay as they are. */
static void quote(const char *word, char *out, size_t size)
{
    bool plain = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+,=:@%") == strlen(word);
    size_t at = 0;

    if (plain) {
        snprintf(out, size, "%s", word);
        return;
    }
    out[at++] = '\'';
    for (; *word && at < size - 8; word++)
        at += (size_t)snprintf(out + at, size - at, *word == '\'' ? "'\\''" : "%c", *word);
    snprintf(out + at, size - at, "'");
}

/* The answer, which lies at `path`, then the best others. */
static int choose(const struct search_answer *s, const struct found *first, struct choice *out)
{
    int n = 0;

    out[n++].plan = &first->plan;
    for (int64_t i = 0; i < s->n && n < TO_RUN; i++)
        if (s->ranked[i].found != first)
            out[n++].plan = &s->ranked[i].found->plan;
    return n;
}

/* Writes plan i where it is not there yet, if an engine runs it. */
static int settle(struct choice *c, const char *path, int i)
{
    char name[4200], why[1600];

    name_of(path, i, name, sizeof name);
    c->engine = engine_of(c->plan, why, sizeof why);
    if (c->engine != ENGINE_NONE)
        return i == 0 ? 0 : convert_write_plan(c->plan, name);
    notes_say("plan %d of --validate is run by no engine: %s", i + 1, why);
    return 0;
}

static json_t *command_of(const struct choice *c, int nchoices, const char *path, enum engine engine)
{
    char paths[PATHS] = "", name[4200], word[4300];
    int n = 0;
    size_t at = 0;

    for (int i = 0; i < nchoices; i++) {
        if (c[i].engine != engine)
            continue;
        name_of(path, i, name, sizeof name);
        quote(name, word, sizeof word);
        if (at + strlen(word) + 2 > sizeof paths)
            break;
        at += (size_t)snprintf(paths + at, sizeof paths - at, " %s", word);
        n++;
    }
    return n == 0 ? NULL : json_sprintf("dpxrun%s --engine %s --device %s%s", paths, engine_name(engine), c[0].plan->cluster.is_host ? "cpu" : "cuda",
                                        n > 1 ? " --budget 10min" : "");
}

json_t *search_validate(const struct search_answer *s, const struct found *first, const char *path)
{
    struct choice c[TO_RUN];
    int n = choose(s, first, c);

    for (int i = 0; i < n; i++)
        if (settle(&c[i], path, i) < 0)
            return NULL;
    json_t *out = json_array();
    for (int e = 0; e < NENGINES; e++) {
        json_t *command = command_of(c, n, path, engines[e]);
        if (command)
            json_array_append_new(out, command);
    }
    return out;
}

void search_validate_print(const json_t *commands, FILE *to)
{
    size_t i;
    const json_t *c;

    if (json_array_size(commands) == 0) {
        fprintf(to, "\nTo measure: dpxrun's engines run none of these plans: search with --kernels torch-sdpa, and\n"
                    "--framework torch or deepspeed.\n");
        return;
    }
    fprintf(to, "\nTo measure the best of these where the GPUs are, the shortest first, with the ranking before and after:\n");
    json_array_foreach(commands, i, c)
        fprintf(to, "  %s\n", json_string_value(c));
    fprintf(to, "  (with fewer GPUs: --reduce N)\n");
}
