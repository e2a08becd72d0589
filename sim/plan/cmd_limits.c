/* cmd_limits.c -- dpxplan limits: how large a model, how large a micro-batch, how
 * few GPUs, strategy by strategy. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/columns.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/page.h"
#include "base/size.h"
#include "model/arch/sample.h"
#include "model/plan/knob.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/limits_answer.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/progress.h"

static int add_deadline(const struct limits_row *r, char *to, size_t size)
{
    const struct money_question *money = &r->asked->money;
    struct money_fewest f;
    size_t n = strlen(to);

    if (money->days < 0 || r->plan.cluster.is_host)
        return 0;
    if (money_fewest_gpus(money, &r->plan, &r->t, &f) < 0)
        return -1;
    if (f.meets)
        snprintf(to + n, size - n, "; in %g days with %" PRId64 " GPU%s", money->days, f.gpus, f.gpus == 1 ? "" : "s");
    else
        snprintf(to + n, size - n, "; not in %g days", money->days);
    return 0;
}

/* ---- a row ---- */

static const struct column columns[] = {
    { "strategy", false, 0 }, { "largest model", true, 0 }, { "blocks", true, 2 }, { "micro-batch", true, 0 }, { "fewest GPUs", true, 0 },
    { "bytes/param", true, 3 }, { "", false, 0 },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void add_gpus(struct columns *t, const struct limits_asked *a, const struct limit *l)
{
    if (l->min_gpus && !l->max_micro_batch && l->min_gpus < a->world)
        columns_cell(t, "fits on %" PRId64, l->min_gpus);
    else if (l->min_gpus)
        columns_cell(t, "%" PRId64, l->min_gpus);
    else if (l->min_gpus_recompute && a->recompute >= 0)        /* else a row of its own */
        columns_cell(t, "%" PRId64 " if recomputed", l->min_gpus_recompute);
    else
        columns_cell(t, "none");
}

/* What ends the growth where data wait elsewhere, what is assumed, and what was asked of a training. */
static int add_note(struct columns *t, const struct limits_row *r)
{
    const struct limit *l = &r->limit;
    char text[400] = "", training[200] = "";

    if (r->asked->elsewhere != ELSEWHERE_NOTHING && l->then_short[0])
        snprintf(text, sizeof text, "then %s %s short", l->then_short, strstr(l->then_short, " and ") ? "are" : "is");
    else if (r->asked->elsewhere != ELSEWHERE_NOTHING)
        snprintf(text, sizeof text, "more were not tried");
    if (r->narrow)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sweights and states in bf16 (ddp.model_dtype)", text[0] ? "; " : "");
    if (r->timed) {
        money_short(&r->asked->money, &r->plan, r->t.line.step_s, training, sizeof training);
        size_t n = strlen(training);
        snprintf(training + n, sizeof training - n, " with a global batch of %" PRId64, plan_global_batch(&r->plan));
        if (add_deadline(r, training, sizeof training) < 0)
            return -1;
    }
    columns_cell(t, "%s%s", text, training + (text[0] ? 0 : strspn(training, "; ")));
    return 0;
}

/* ---- what was asked, and what is the same in all rows ---- */

static void print_question(const struct limits_row *r, FILE *to)
{
    const struct limits_asked *a = r->asked;
    const struct plan *p = r->base;

    if (a->states_only) {
        fprintf(to, "model states alone in %s on %" PRId64 " rank%s: no activations, no buffers\n", size_text(a->memory).s, a->world,
                a->world > 1 ? "s" : "");
        return;
    }
    fprintf(to, "%s (%s parameters), ", p->model.name, count_text(p->model.params).s);
    answer_training(&a->tuned, to);
    fprintf(to, ", samples of %s.\nOn ", sample_text(&p->model, p->seq).s);
    answer_cluster(&p->cluster, to);
    fputs(".\nEach column varies one thing alone: the model's blocks, samples a GPU, or the number of GPUs. The rest stays as asked, with 1 sample a GPU", to);
    fprintf(to, p->accumulation > 1 ? " and %" PRId64 " accumulation steps.\n\n" : " and no accumulation.\n\n", p->accumulation);
}

/* What search and fit try, and this does not. */
static void print_held(const struct limits_row *r, FILE *to)
{
    const struct limits_asked *a = r->asked;

    fprintf(to, "\nHeld: %s, optimizer %s, ", dtype_name((enum dtype)a->precision), knob_words("optimizer")[r->base->optimizer]);
    if (a->tuned.optimizer.form >= 0)
        fprintf(to, "its form %s, ", knob_words("optimizer_form")[a->tuned.optimizer.form]);
    if (a->recompute >= 0)
        fprintf(to, "recompute %s, ", knob_words("recompute")[a->recompute]);
    fprintf(to, "%s, the loss with all its logits. dpxplan fit asks for a whole batch, and also tries a fused optimizer, tensor and pipeline parallelism.\n",
            a->elsewhere == ELSEWHERE_NOTHING ? "nothing offloaded" : a->elsewhere == ELSEWHERE_OPTIMIZER ? "optimizer states in host memory" :
            a->elsewhere == ELSEWHERE_DISK ? "parameters and optimizer states in files" : "parameters and optimizer states in host memory");
    fputs("bytes/param: parameters, gradients and optimizer states on a GPU, for each parameter of the model.\n", to);
}

/* Cells that have no answer for the same reason are one line. */
struct printing {
    struct columns *rows;
    FILE *page;
    bool begun, none, full;         /* none: of some no number of GPUs is enough; full: of some not one sample a GPU fits */
    char held[800];
    struct progress progress;
    int64_t done;
    int  nrefused;
    struct { char cells[600], why[sizeof ((struct limits_row *)0)->refused]; } refused[NSTRATEGY * NDIALECT];
};

/* Without the plan's key that it begins with, without " for dp in dialect torch", which the row's own words say, and without the list of
 * those that have it, which are the rows. */
static void shorten(const struct limits_row *r, char *why)
{
    char cell[96], *at;
    size_t key;

    if (!strncmp(why, "limits: ", 8))
        memmove(why, why + 8, strlen(why + 8) + 1);
    key = strcspn(why, " ");
    if (key && why[key - 1] == ':' && why[key])
        memmove(why, why + key + 1, strlen(why + key + 1) + 1);
    if ((at = strstr(why, "; these have ")))
        *at = '\0';
    snprintf(cell, sizeof cell, " for %s in dialect %s", strategy_name(r->strategy), dialect_name(r->dialect));
    if ((at = strstr(why, cell)))
        memmove(at, at + strlen(cell), strlen(at + strlen(cell)) + 1);
}

static void keep_refused(struct printing *p, const struct limits_row *r)
{
    char why[sizeof r->refused];
    int i = 0;

    memcpy(why, r->refused, sizeof why);
    shorten(r, why);
    while (i < p->nrefused && strcmp(p->refused[i].why, why))
        i++;
    size_t n = strlen(p->refused[i].cells);
    snprintf(p->refused[i].cells + n, sizeof p->refused[i].cells - n, "%s%s", n ? ", " : "", plan_words_name(r->strategy, r->dialect));
    memcpy(p->refused[i].why, why, sizeof why);
    p->nrefused += i == p->nrefused;
}

/* The first row knows what is said of all. */
static void begin(struct printing *p, const struct limits_row *r)
{
    FILE *to = r->asked->states_only ? NULL : fmemopen(p->held, sizeof p->held, "w");

    p->begun = true;
    print_question(r, p->page);
    if (to) {
        print_held(r, to);
        fclose(to);
    }
}

static int take_row(void *of, const struct limits_row *r)
{
    const struct limits_asked *a = r->asked;
    struct printing *p = of;

    if (progress_stopped())             /* the table ends here */
        return -1;
    progress_at(&p->progress, ++p->done, 0);
    if (!p->begun)
        begin(p, r);
    if (r->refused[0]) {
        keep_refused(p, r);
        return 0;
    }
    bool second = a->recompute < 0 && r->recompute != RECOMPUTE_NONE;       /* below that without */
    columns_cell(p->rows, "%s", second ? "  every block recomputed" : plan_words_name(r->strategy, r->dialect));
    columns_cell(p->rows, "%s", !r->limit.max_params ? "none" : r->base->model.recorded || r->base->model.hybrid ? "as it is" : count_text(r->limit.max_params).s);
    p->none |= !r->limit.max_params;
    if (a->states_only) {
        columns_cell(p->rows, "%s", "");
        columns_cell(p->rows, "%s", "");
        columns_cell(p->rows, "%s", "");
    } else {
        columns_cell(p->rows, r->limit.max_layers ? "%" PRId64 : "", r->limit.max_layers);
        columns_cell(p->rows, r->limit.max_micro_batch ? "up to %" PRId64 : "does not fit", r->limit.max_micro_batch);
        add_gpus(p->rows, a, &r->limit);
        p->full |= !r->limit.max_micro_batch;
        p->none |= !r->limit.min_gpus && (a->recompute < 0 || !r->limit.min_gpus_recompute);
    }
    columns_cell(p->rows, r->limit.max_params ? "%.4g" : "", r->limit.bytes_per_param);
    return add_note(p->rows, r);
}

static int say(const struct limits_asked *a)
{
    FILE *page = page_open(stdout);
    struct printing p = { .rows = columns_new(columns, COLUMNS), .page = page };

    if (!page)
        return EXIT_FAILED;
    progress_start(&p.progress, 0, "strategies looked at");
    int rc = limits_answer(a, take_row, &p);
    progress_end(&p.progress);
    if (progress_stopped()) {
        fail("limits: stopped after %" PRId64 " strateg%s", p.done, p.done == 1 ? "y" : "ies");
        rc = EXIT_FAILED;
    }
    if (rc == EXIT_DONE || rc == EXIT_NO || progress_stopped()) {
        columns_print(p.rows, page, page_width(stdout));
        if (p.none)
            fputs("none: one block alone, or the whole model, is too large, however many GPUs there are.\n", page);
        for (int i = 0; i < p.nrefused; i++)
            fprintf(page, "No answer for %s: %s\n", p.refused[i].cells, p.refused[i].why);
        if (p.full && a->recompute == RECOMPUTE_NONE)
            fputs("Blocks keep all their activations here; with --recompute full they need less.\n", page);
        fputs(p.held, page);
    }
    page_close(page);
    return rc;
}

int cmd_limits(int argc, char **argv)
{
    struct limits_asked a = LIMITS_ASKED;
    bool json = false;
    const struct opt opts[] = {
        LIMITS_OPTS(a),
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    json_t *doc;
    int rc = opts_parse("dpxplan limits", "Per strategy: the largest model, the largest micro-batch, the fewest GPUs.  "
                        "Exits with 3 when\nno strategy holds any model.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if (!json)
        return say(&a);
    rc = limits_json(&a, &doc);
    return doc ? dpxplan_print_json(doc, rc) : rc;
}
