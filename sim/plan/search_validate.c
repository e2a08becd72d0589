/* search_validate.c -- see search_validate.h. */
#include "sim/plan/search_validate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "sim/plan/commands.h"

/* How many are worth a run: their predicted order is what is in question. */
enum { TO_RUN = 5, PATHS = 8192 };

/* The engine of dpxrun that runs a plan; NULL: none does, for one because its kernels are dpxrun's own. */
static const char *engine_of(const struct plan *p)
{
    enum dialect d = p->dialect;

    if (p->kernels == KERNELS_DPX)
        return NULL;
    if (d == DIALECT_TORCH || d == DIALECT_TORCH_FSDP1)
        return "torch";
    return d == DIALECT_DEEPSPEED ? "deepspeed" : d == DIALECT_MEGATRON ? "megatron" : NULL;
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

static int64_t plans_to_run(const struct search_answer *s) { return s->n < TO_RUN ? s->n : TO_RUN; }

static int write_plans(const struct search_answer *s, const char *path)
{
    char name[4200];

    for (int64_t i = 1; i < plans_to_run(s); i++) {
        name_of(path, i, name, sizeof name);
        if (engine_of(&s->ranked[i].found->plan) && convert_write_plan(&s->ranked[i].found->plan, name) < 0)
            return -1;
    }
    return 0;
}

static json_t *command_of(const struct search_answer *s, const char *path, const char *engine)
{
    char paths[PATHS] = "", name[4200], word[4300];
    int n = 0;
    size_t at = 0;

    for (int64_t i = 0; i < plans_to_run(s); i++) {
        const char *of = engine_of(&s->ranked[i].found->plan);
        if (!of || strcmp(of, engine))
            continue;
        name_of(path, i, name, sizeof name);
        quote(name, word, sizeof word);
        if (at + strlen(word) + 2 > sizeof paths)
            break;
        at += (size_t)snprintf(paths + at, sizeof paths - at, " %s", word);
        n++;
    }
    bool cpu = s->ranked[0].found->plan.cluster.is_host;
    return n == 0 ? NULL : json_sprintf("dpxrun%s --engine %s --device %s%s", paths, engine, cpu ? "cpu" : "cuda", n > 1 ? " --budget 10min" : "");
}

json_t *search_validate(const struct search_answer *s, const char *path)
{
    static const char *const engines[] = { "torch", "deepspeed", "megatron" };
    json_t *out = json_array();

    if (!out || write_plans(s, path) < 0) {
        json_decref(out);
        return NULL;
    }
    for (size_t e = 0; e < sizeof engines / sizeof *engines; e++) {
        json_t *c = command_of(s, path, engines[e]);
        if (c)
            json_array_append_new(out, c);
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
