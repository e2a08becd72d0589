/* form_rows.c -- see form_rows.h. */
#include "model/form/form_launcher.h"
#include "model/form/form_rows.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "model/memory/evaluate.h"
#include "model/plan/attention.h"
#include "model/plan/knob.h"

void form_fail(struct form_reading *r, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!r->failed)
        fail("%s: %s", r->file->path, text);
    r->failed = true;
}

/* ---- values ---- */

/* The product of two fits 64 bits; no cluster has as many GPUs. */
#define LARGEST_COUNT 1e9

const json_t *form_value(const json_t *doc, const char *path)
{
    char name[128];

    for (size_t n; *path && doc; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        doc = json_object_get(doc, name);
    }
    return json_is_null(doc) ? NULL : doc;
}

static const json_t *value(const struct form_reading *r, const char *path) { return form_value(r->file->doc, path); }

double form_number(struct form_reading *r, const char *path, double usual)
{
    const json_t *v = value(r, path);
    const char *s = json_string_value(v);
    char *end = NULL;
    double x = s ? strtod(s, &end) : json_number_value(v);

    if (!v)
        return usual;
    if ((!s && !json_is_number(v)) || (s && (end == s || *end)) || !(x >= 0 && x <= 1e15)) {
        form_fail(r, "%s: expected a number", path);
        return usual;
    }
    return x;
}

int64_t form_ranks(int64_t a, int64_t b, int64_t c)
{
    return (double)a * (double)b * (double)c <= LARGEST_COUNT ? a * b * c : (int64_t)LARGEST_COUNT;
}

int64_t form_count(struct form_reading *r, const char *path, int64_t usual)
{
    double x = value(r, path) ? form_number(r, path, 1) : 1;
    int64_t n = x <= LARGEST_COUNT ? (int64_t)x : 0;

    if (!value(r, path))
        return usual;
    if (n < 1 || x > (double)n || x < (double)n) {
        form_fail(r, "%s: expected a whole number from 1 to %.0f", path, LARGEST_COUNT);
        return usual;
    }
    return n;
}

int64_t form_integer(struct form_reading *r, const char *path, int64_t usual)
{
    const json_t *v = value(r, path);
    const char *s = json_string_value(v);
    char *end = NULL;
    double most = (double)LARGEST_COUNT, x = s ? strtod(s, &end) : json_number_value(v);
    bool number = s ? *s && !*end : json_is_number(v);
    int64_t n = number && x >= -most && x <= most ? (int64_t)x : 0;

    if (!v)
        return usual;
    if (!number || x > (double)n || x < (double)n) {
        form_fail(r, "%s: expected a whole number", path);
        return usual;
    }
    return n;
}

bool form_true(struct form_reading *r, const char *path, bool usual)
{
    const json_t *v = value(r, path);
    const char *s = json_string_value(v);

    if (!v)
        return usual;
    if (json_is_boolean(v))
        return json_is_true(v);
    if (s && (!strcasecmp(s, "true") || !strcasecmp(s, "false")))
        return !strcasecmp(s, "true");
    form_fail(r, "%s: expected true or false", path);
    return usual;
}

static bool is_said(const struct form_reading *r, const char *path)
{
    const json_t *v = form_value(r->file->doc, path);

    return v && !json_is_null(v);
}

const char *form_of_adamw(struct form_reading *r)
{
    bool usual = !is_said(r, "optimizer.fused") && !is_said(r, "optimizer.foreach");

    if (form_true(r, "optimizer.fused", false))
        return "fused";
    return form_true(r, "optimizer.foreach", usual) || json_is_true(form_value(r->plan, "fsdp.cpu_offload")) ? "foreach" : "loop";
}

const char *form_text(struct form_reading *r, const char *path, const char *usual)
{
    const json_t *v = value(r, path);

    if (v && !json_is_string(v))
        form_fail(r, "%s: expected a text", path);
    return json_is_string(v) ? json_string_value(v) : usual;
}

int form_word(struct form_reading *r, const char *path, const char *const *words, int usual)
{
    const char *s = form_text(r, path, NULL);
    char all[256] = "";
    size_t n = 0;

    if (!s)
        return usual;
    for (int i = 0; words[i]; i++) {
        if (!strcmp(s, words[i]))
            return i;
        if (n < sizeof all)
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", words[i]);
    }
    form_fail(r, "%s: \"%.60s\" is not modelled: %s", path, s, all);
    return usual;
}

void form_set(struct form_reading *r, const char *key, json_t *v)
{
    const char *dot = strrchr(key, '.');
    char object[96];

    snprintf(object, sizeof object, "%.*s", dot ? (int)(dot - key) : 0, key);
    json_object_set_new(knob_object_at(r->plan, object), dot ? dot + 1 : key, v);
}

void form_narrow_adapters(struct form_reading *r, const char *whose)
{
    const char *base = json_string_value(form_value(r->plan, "base_dtype")), *strategy = json_string_value(form_value(r->plan, "strategy"));

    if (!base)
        form_set(r, "lora.narrow", json_true());
    else if (strategy && !strcmp(strategy, "ddp"))          /* under FSDP2 adapters of packed weights are in 16 bits anyway */
        notes_add(r->notes, "adapters: %s keeps them in the model's 16 bits and computes without autocast; beside packed weights the plan keeps them "
                  "in fp32 under autocast, as PEFT does: an upper bound", whose);
}

/* A kernel of the hub goes by the package that it was made of: "kernels-community/vllm-flash-attn3". */
static bool flash_of(const char *word, enum attention_by *by)
{
    static const struct { const char *in; enum attention_by by; } packages[] = {
        { "attention_2", ATTENTION_BY_FLASH_2 }, { "attn2", ATTENTION_BY_FLASH_2 }, { "attention_3", ATTENTION_BY_FLASH_3 },
        { "attn3", ATTENTION_BY_FLASH_3 }, { "attention_4", ATTENTION_BY_FLASH_4 }, { "attn4", ATTENTION_BY_FLASH_4 },
    };

    for (size_t i = 0; strstr(word, "flash") && i < sizeof packages / sizeof *packages; i++)
        if (strstr(word, packages[i].in)) {
            *by = packages[i].by;
            return true;
        }
    return false;
}

/* Bytes that the plan without the window, by the kernels that it has not, needs less; 0: not known. */
static double mask_bytes(const struct plan *p, enum attention_by by)
{
    const struct plan *each[2] = { p, NULL };
    struct plan q = *p;
    double needed[2] = { 0, 0 };
    char ignored[512];

    q.model.window = 0;
    q.attention = attention_takes(&q, by) ? by : q.attention;
    each[1] = &q;
    for (int i = 0; i < 2; i++) {
        struct evaluation e;
        struct fail_sink before = fail_divert(ignored, sizeof ignored);
        int known = evaluate(each[i], &e);
        fail_restore(before);
        if (known < 0)
            return 0;
        needed[i] = (double)e.m.needed;
        evaluation_free(&e);
    }
    return needed[0] - needed[1];
}

static void note_mask(const struct plan *p, enum attention_by by, const char *key, const char *word, struct notes *notes)
{
    double bytes = mask_bytes(p, by);
    char size[60] = "";

    if (bytes > 0)
        snprintf(size, sizeof size, " of memory and time, of up to %.2g GB more", bytes * 1e-9);
    notes_add(notes, "%s: %.40s is handed the window; PyTorch's kernels, which are handed a mask, are planned: an upper bound%s", key, word, size);
}

void form_put_attention(struct plan *p, const char *key, const char *word, struct notes *notes)
{
    enum attention_by by = ATTENTION_BY_SDPA;
    bool flash = flash_of(word, &by);

    if (flash && attention_takes(p, by))
        p->attention = by;
    else if (flash && p->kernels == KERNELS_TORCH_EAGER)
        notes_add(notes, "%s: %.40s keeps no scores; PyTorch's own kernels for %s (torch-eager) keep them, which is planned: an upper bound of memory and time, of "
                  "%.3g GB a micro-batch more", key, word, p->model.family, evaluate_scores(p) * 1e-9);
    else if (flash && attention_masked(p))
        note_mask(p, by, key, word, notes);
    else if (flash || (strcmp(word, "sdpa") != 0 && strcmp(word, "eager") != 0))
        notes_add(notes, "%s: %.40s is planned with PyTorch's kernels here", key, word);
}

/* ---- rows ---- */

const struct form_row *form_row_of(const struct form_row *rows, int n, const char *path)
{
    for (int i = 0; i < n; i++) {
        const char *p = rows[i].path;
        size_t m = strlen(p);
        bool whole = m > 2 && !strcmp(p + m - 2, ".*") && !strncmp(path, p, m - 2) && !path[m - 2];      /* the section itself, as where it is null */
        if (whole || (p[m - 1] == '*' ? !strncmp(path, p, m - 1) : !strcmp(path, p)))
            return &rows[i];
    }
    return NULL;
}

/* Does a row name a key below this path? */
static bool leads_on(const struct form_reading *r, const char *path)
{
    size_t n = strlen(path);

    for (int i = 0; i < r->nrows; i++)
        if (!strncmp(r->rows[i].path, path, n) && r->rows[i].path[n] == '.')
            return true;
    return false;
}

/* The row's path, without the star of a section. */
static const char *path_of(const struct form_row *row, char path[128])
{
    snprintf(path, 128, "%s", row->path);
    if (strlen(path) > 2 && !strcmp(path + strlen(path) - 2, ".*"))
        path[strlen(path) - 2] = '\0';
    return path;
}

int form_check(const struct form *form, const struct form_file *f)
{
    char path[128];

    if (launcher_check(f) < 0 || (form->check && form->check(f) < 0))
        return -1;
    for (int i = 0; i < form->nrows; i++) {
        const json_t *v = form->rows[i].says == ROW_REFUSED ? form_value(f->doc, path_of(&form->rows[i], path)) : NULL;
        if (v && !unread_asks_nothing(v))
            return fail("%s: %s: %s", f->path, path, form->rows[i].what);
    }
    return 0;
}

/* A word or number where a row's key would lie in a section: read on, the section would count as left out. */
static void check_section(struct form_reading *r, const struct form_row *row)
{
    if (row->says != ROW_READ && row->says != ROW_SETS)
        return;
    for (const char *dot = strchr(row->path, '.'); dot && !r->failed; dot = strchr(dot + 1, '.')) {
        char section[128];
        snprintf(section, sizeof section, "%.*s", (int)(dot - row->path), row->path);
        const json_t *v = value(r, section);
        if (v && !json_is_object(v) && !json_is_array(v) && !json_is_false(v) && !form_row_of(r->rows, r->nrows, section))
            form_fail(r, "%s: expected a section of keys (%s ...), not a word or number", section, row->path);
    }
}

void form_begin(struct form_reading *r, const struct form_file *f, const struct form_row *rows, int n, struct notes *notes)
{
    *r = (struct form_reading){ .file = f, .rows = rows, .nrows = n, .plan = json_object(), .notes = notes };
    json_object_set_new(r->plan, "dpx_plan", json_integer(1));
    for (int i = 0; i < n; i++) {
        char path[128];
        const json_t *v = value(r, path_of(&rows[i], path));
        check_section(r, &rows[i]);
        if (rows[i].says == ROW_SETS && v)
            form_set(r, rows[i].what, json_deep_copy(v));
        if (rows[i].says == ROW_REFUSED && v && !unread_asks_nothing(v))
            form_fail(r, "%s: %s", path, rows[i].what);
    }
}

enum { DEEPEST = 12 };

/* Of a section that says nothing of a step, names that nobody knows. */
static void list_silent(const struct form_row *row, const char *at, const char *key, const json_t *v, struct unread *u)
{
    bool within = strlen(at) + 2 > strlen(row->path) && row->path[strlen(row->path) - 1] == '*';

    if (within && !unread_is_name(key))
        unread_add(u, at, NULL, false);
    else
        unread_section(u, at, v);
}

static void list(const struct form_reading *r, const json_t *in, const char *path, int depth, struct unread *u)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)in, key, v) {
        char at[256];
        snprintf(at, sizeof at, "%.140s%s%.100s", path, *path ? "." : "", key);
        const struct form_row *row = form_row_of(r->rows, r->nrows, at);
        if (json_object_size(v) > 0 && depth < DEEPEST && (!row || leads_on(r, at)))
            list(r, v, at, depth + 1, u);
        else if (row && (row->says == ROW_READ || row->says == ROW_SETS || row->says == ROW_REFUSED))
            continue;
        else if (row && row->says == ROW_SILENT)
            list_silent(row, at, key, v, u);
        else if (!row || !unread_asks_nothing(v))
            unread_add(u, at, row ? row->what : NULL, false);
    }
}

void form_list_rest(const struct form_file *f, const struct form_row *rows, int n, struct notes *notes)
{
    struct form_reading r = { .rows = rows, .nrows = n };
    struct unread u = { .notes = notes };

    list(&r, f->doc, "", 0, &u);
    unread_end(&u);
}

/* ---- the plan ---- */

int64_t form_micro_steps(struct form_reading *r, const struct plan *p, const char *path, int64_t global, int64_t each)
{
    static const char *const axes[] = { "parallel.tensor", "parallel.context", "parallel.pipeline" };
    int64_t ranks = p->cluster.world_size;

    for (int i = 0; i < 3; i++) {
        const json_t *v = form_value(r->plan, axes[i]);
        if (json_integer_value(v) > 1)
            ranks /= json_integer_value(v);
    }
    if (ranks < 1 || global % (ranks * each)) {
        form_fail(r, "%s: %" PRId64 " samples a step are not a multiple of %" PRId64 " data-parallel ranks x %" PRId64, path, global, ranks, each);
        return 1;
    }
    return global / (ranks * each);
}

static void given(struct form_reading *r, const char *key, int64_t n)
{
    if (n > 0)
        form_set(r, key, json_integer(n));
}

/* One GPU of a plan that says ddp: no form's program wraps its model. */
static void leave_unwrapped(struct form_reading *r, const struct plan *p)
{
    const char *strategy = json_string_value(form_value(r->plan, "strategy")), *dialect = json_string_value(form_value(r->plan, "dialect"));

    if (p->cluster.world_size == 1 && strategy && !strcmp(strategy, "ddp") && (!dialect || !strcmp(dialect, "torch")))
        form_set(r, "ddp.wrapped", json_false());
}

int form_end(struct form_reading *r, struct plan *p)
{
    struct plan made;
    int rc = -1;

    leave_unwrapped(r, p);

    given(r, "seq", p->seq);
    given(r, "micro_batch", p->micro_batch);
    given(r, "accumulation", p->accumulation);
    json_object_set_new(r->plan, "model", model_to_config(&p->model));
    json_object_set_new(r->plan, "cluster", cluster_to_json(&p->cluster));
    if (!r->failed && (rc = plan_from_json(r->plan, r->file->path, &made)) == 0) {
        snprintf(made.model.name, sizeof made.model.name, "%s", p->model.name);
        snprintf(made.cluster.name, sizeof made.cluster.name, "%s", p->cluster.name);
        plan_free(p);
        *p = made;
        form_list_rest(r->file, r->rows, r->nrows, r->notes);
    }
    json_decref(r->plan);
    return rc;
}
