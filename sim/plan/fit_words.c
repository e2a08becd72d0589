/* fit_words.c -- a row as a document, and as the commands that go on from it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/memory/evaluate.h"
#include "model/arch/sample.h"
#include "sim/plan/fit_answer.h"
#include "sim/plan/plan_words.h"

/* ---- commands ---- */

/* Words with blanks between them; a backslash ends a line before it would be too long. */
struct shell_line { char *to; size_t n; int wrap, at; };

/* One option with its value is not torn apart. */
__attribute__((format(printf, 2, 3))) static void add(struct shell_line *l, const char *fmt, ...)
{
    enum { INDENT = 4 };
    char word[700];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(word, sizeof word, fmt, ap);
    va_end(ap);
    int n = (int)strlen(word);
    if (l->at > 0 && l->wrap > 0 && l->at + 1 + n + 2 > l->wrap) {
        l->n += (size_t)snprintf(l->to + l->n, FIT_COMMAND - l->n, " \\\n%*s%s", INDENT, "", word);
        l->at = INDENT + n;
    } else {
        l->n += (size_t)snprintf(l->to + l->n, FIT_COMMAND - l->n, "%s%s", l->at ? " " : "", word);
        l->at += n + (l->at > 0);
    }
    l->n = l->n < FIT_COMMAND ? l->n : FIT_COMMAND - 1;
}

/* As a shell reads it back. */
static void quoted(const char *word, char to[600])
{
    size_t n = 0;

    if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:+-") == strlen(word)) {
        snprintf(to, 600, "%s", word);
        return;
    }
    to[n++] = '\'';
    for (; *word && n < 590; word++) {
        if (*word == '\'') {
            memcpy(to + n, "'\\'", 3);
            n += 3;
        }
        to[n++] = *word;
    }
    to[n++] = '\'';
    to[n] = '\0';
}

static void add_training(struct shell_line *l, const struct search_tuned *t)
{
    char word[600];

    if (t->lora)
        add(l, "--lora %" PRId64, t->lora);
    if (t->targets) {
        quoted(t->targets, word);
        add(l, "--lora-targets %s", word);
    }
    if (t->saves) {
        quoted(t->saves, word);
        add(l, "--lora-save %s", word);
    }
    if (t->dropout > 0)
        add(l, "--lora-dropout %.17g", t->dropout);
    if (t->base != BASE_PLAIN)
        add(l, "--base-dtype %s", knob_words("base_dtype")[t->base]);
    if (t->optimizer.optimizer >= 0)
        add(l, "--optimizer %s", knob_words("optimizer")[t->optimizer.optimizer]);
}

void fit_search_command(const struct fit_answer *f, const struct fit_asked *a, const struct fit_row *r, int wrap, char to[FIT_COMMAND])
{
    const struct search_args *ask = &f->of.ask;
    struct shell_line l = { to, 0, wrap, 0 };
    char word[600];

    add(&l, "dpxplan search");
    quoted(ask->model_doc ? "config.json" : ask->model, word);
    add(&l, "--model %s", word);
    add(&l, "--cluster %s", r->cluster);
    add(&l, "--seq %" PRId64, ask->seq);
    add(&l, "--global-batch %" PRId64, plan_global_batch(&r->plan));
    add_training(&l, &ask->tuned);
    if (ask->precision >= 0)
        add(&l, "--precision %s", knob_words("precision")[ask->precision]);
    if (r->plan.loss == LOSS_FUSED_LINEAR || a->loss >= 0)
        add(&l, "--loss %s", knob_words("loss")[a->loss >= 0 ? a->loss : (int)r->plan.loss]);
    if (a->framework != FRAMEWORK_ANY)
        add(&l, "--framework %s", search_frameworks[a->framework]);
    if (!a->offload)
        add(&l, "--no-offload");
    bool tokens = f->tokens && sample_has_tokens(&f->model);
    if (tokens)
        add(&l, "--tokens %" PRId64, f->tokens);
    if (tokens && r->money.price >= 0) {
        char price[48];
        snprintf(price, sizeof price, "%s%.15g", f->sign, r->money.price);
        quoted(price, word);
        add(&l, "--price %s", word);
    }
    if (a->db) {
        quoted(a->db, word);
        add(&l, "--db %s", word);
    }
    add(&l, "-o plan.json");
}

/* ---- the document ---- */

/* Fewer GPUs with a loss without logits; null where that changes nothing. */
static json_t *fused_json(const struct fit_row *r)
{
    char words[PLAN_WORDS];

    if (!r->gpus)
        return json_null();
    plan_words(&r->plan, words, sizeof words);
    return json_pack("{s:I, s:s, s:s, s:I, s:b, s:f, s:f, s:o}", "gpus", (json_int_t)r->gpus, "cluster", r->cluster, "words", words, "taken_bytes",
                     (json_int_t)r->taken, "tight", r->tight, "step_s", r->step_s, sample_has_tokens(&r->plan.model) ? "tokens_per_s" : "samples_per_s",
                     sample_rate(&r->plan.model, r->plan.seq, r->tokens_per_s), "plan", plan_to_json(&r->plan));
}

static json_t *row_json(const struct fit_row *r)
{
    char words[PLAN_WORDS], label[KNOB_LABEL];
    json_t *j = json_pack("{s:s, s:s, s:o, s:o, s:I}", "gpu", r->gpu->name, "title", r->gpu->title, "gpus",
                          r->gpus ? json_integer(r->gpus) : json_null(), "cluster", r->gpus ? json_string(r->cluster) : json_null(), "tried",
                          (json_int_t)r->tried);

    if (!r->gpus) {
        json_object_set_new(j, "more_refused", r->why[0] ? json_string(r->why) : json_null());
        if (r->tried)
            json_object_update_new(j, json_pack("{s:{s:I, s:I}}", "memory", "needed_at_least_bytes", (json_int_t)r->needed,
                                                "available_bytes", (json_int_t)r->available));
        return j;
    }
    plan_words(&r->plan, words, sizeof words);
    knob_label(&r->plan, label, sizeof label);
    json_object_update_new(j, json_pack("{s:s, s:s, s:s, s:I, s:{s:I, s:I, s:I}, s:b, s:b, s:f, s:f, s:f, s:f, s:o}", "what", words, "label", label, "words", words,
        "global_batch", (json_int_t)plan_global_batch(&r->plan), "memory", "needed_bytes", (json_int_t)r->needed, "taken_bytes",
        (json_int_t)r->taken, "usable_bytes", (json_int_t)r->usable, "tight", r->tight, "waits_for_memory", r->waits, "step_s", r->step_s, "low_s", r->low_s, "high_s", r->high_s,
        sample_has_tokens(&r->plan.model) ? "tokens_per_s" : "samples_per_s",
        sample_rate(&r->plan.model, r->plan.seq, r->tokens_per_s), "plan", plan_to_json(&r->plan)));
    if (r->money.tokens)
        json_object_set_new(j, "training", json_pack("{s:I, s:f, s:f, s:f, s:f, s:o}", "steps", (json_int_t)r->training.steps, "days",
            r->training.days, "low_days", r->training.low_days, "high_days", r->training.high_days, "gpu_hours", r->training.gpu_hours,
            "cost", r->training.cost >= 0 ? json_real(r->training.cost) : json_null()));
    return j;
}

json_t *fit_json(const struct fit_asked *a, const struct fit_answer *f)
{
    const struct search_tuned *t = &f->of.ask.tuned;
    json_t *rows = json_array(), *next = json_array();
    char command[FIT_COMMAND];

    for (int i = 0; i < f->n; i++) {
        json_array_append_new(rows, row_json(&f->row[i]));
        json_object_set_new(json_array_get(rows, (size_t)i), "with_fused_loss", fused_json(&f->fused[i]));
    }
    if (f->best >= 0) {
        fit_search_command(f, a, &f->row[f->best], 0, command);
        json_array_append_new(next, json_string(command));
        json_array_append_new(next, json_string(FIT_EVAL_COMMAND));
    }
    return json_pack("{s:i, s:o, s:s, s:I, s:o, s:b, s:o, s:o}", "dpx", 1, "model", evaluation_model_json(&f->model), "train",
                     fit_trains[!t->lora ? 0 : t->base == BASE_PLAIN ? 1 : 2], "seq", (json_int_t)f->of.ask.seq, "tokens",
                     f->tokens && sample_has_tokens(&f->model) ? json_integer(f->tokens) : json_null(), "fits", f->best >= 0, "gpus", rows, "next", next);
}
