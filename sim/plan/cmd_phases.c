/* cmd_phases.c -- dpxplan phases: several models that take turns on the same GPUs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/columns.h"
#include "base/duration.h"
#include "base/opts.h"
#include "base/page.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/plan/phases.h"
#include "sim/plan/plan_words.h"
#include "sim/plan/phases_role.h"
#include "sim/plan/progress.h"

/* ---- who ---- */

/* What a model does between its phases: "it is in host memory". */
static const char *between_words(enum role_where w)
{
    static const char *const words[] = { [WHERE_DEVICE] = "it stays on the GPU", [WHERE_STATES_AWAY] = "its optimizer states are in host memory",
                                         [WHERE_HOST] = "it is in host memory", [WHERE_WEIGHTS_AWAY] = "its weights are in host memory" };

    return words[w];
}

/* Routers that nothing balances: of roles in whose plan ranks share experts. */
static const char *uneven_words(const struct phases *p, int i)
{
    return phases_is_uneven(p, i) ? "    Nothing balances its routers: times are of the busiest rank, with 2.28 times the mean of tokens (1.30 to 4.01).\n" : "";
}

static void print_model(const struct phases *p, int i, FILE *to)
{
    const struct phase_role *r = &p->plan.role[i];
    const struct plan *plan = &p->role[i].plan;
    const struct role_bytes *b = &p->bytes[i];
    char words[PLAN_WORDS];

    plan_words(plan, words, sizeof words);
    const char *where = r->place ? " (other GPUs, below)" : "";
    if (r->kind == ROLE_INFERS) {
        fprintf(to, "  %s%s: %s without gradients, %s of weights on a GPU. Between phases %s%s.\n", r->name, where, plan->model.name, size_text(b->params).s,
                between_words(r->between), r->own_process ? ", in a process of its own" : "");
        fputs(uneven_words(p, i), to);
        return;
    }
    fprintf(to, "  %s%s: %s, %s.\n    %s of weights and %s of optimizer states on a GPU. Between phases %s, and PyTorch's cache %s%s.\n", r->name, where, plan->model.name, words,
            size_text(b->params).s, size_text(b->states).s, between_words(r->between), r->empties ? "is emptied" : "stays",
            r->own_process ? "; it is a process of its own" : "");
    fputs(uneven_words(p, i), to);
}

static void print_engine(const struct phases *p, FILE *to)
{
    const struct phase_role *r = &p->plan.role[p->engine];
    const struct engine *e = &r->engine;
    const struct engine_memory *m = &p->served;

    fprintf(to, "  %s: %s of %s over %" PRId64 " GPU%s%s", r->name, engine_kind_name(e->kind), p->engine_model.name, engine_ranks(e), engine_ranks(e) == 1 ? "" : "s",
            role_is_apart(r) ? " of its own" : "");
    if (e->pipeline > 1)
        fprintf(to, " (%" PRId64 " stages)", e->pipeline);
    if (e->expert > 1)
        fprintf(to, ", experts shared out over %" PRId64, e->expert);
    if (e->codes != CODES_NONE)
        fprintf(to, ", weights in %s", engine_codes_name(e->codes));
    fprintf(to, ", %s %g.\n", engine_share_name(e->kind), e->share);
    fprintf(to, "    Awake %s: %s of weights, %s of KV cache for %" PRId64 " tokens, %s outside PyTorch", size_text(m->awake).s, size_text(m->weights).s,
            size_text(m->kv).s, m->kv_tokens, size_text(m->outside).s);
    if (m->graphs)
        fprintf(to, ", %s of CUDA graphs (at most %s)", size_text(m->graphs).s, size_text(m->graphs_high).s);
    fputs(".\n", to);
    if (e->sleep)
        fprintf(to, "    Asleep (level %d) %s%s%s.\n", e->sleep, size_text(m->asleep).s, m->host ? ", and in host memory " : "", m->host ? size_text(m->host).s : "");
    else if (!role_is_apart(r))
        fputs("    It does not sleep: all of it stays in every phase.\n", to);
}

/* ---- when ---- */

static const struct column step_columns[] = {
    { "phase", false, 0 }, { "time", true, 0 }, { "90 %", true, 1 }, { "trainers", true, 2 }, { "engine", true, 2 }, { "needs", true, 0 }, { "reserved", true, 0 },
};

static void cell_gib(struct columns *t, int64_t bytes)
{
    columns_cell(t, bytes ? "%.1f" : "-", (double)bytes / 1073741824);
}

/* "7.6-8.95 s", "82-119 ms". */
static void cell_interval(struct columns *t, const struct cost *c)
{
    bool seconds = c->high_s >= 1;

    columns_cell(t, c->s > 0 ? "%.3g-%.3g %s" : "-", c->low_s * (seconds ? 1 : 1000), c->high_s * (seconds ? 1 : 1000), seconds ? "s" : "ms");
}

static void print_step(struct columns *t, const struct phases *p, int k, const struct moment *of, int largest)
{
    const struct moment *m = &of[k];
    const struct cost *c = &p->time[k];

    columns_cell(t, "%s%s", p->plan.step[k].name, k == largest ? " *" : "");
    columns_cell(t, "%s", c->s > 0 ? duration_text(c->s).s : "-");
    cell_interval(t, c);
    cell_gib(t, m->live);
    cell_gib(t, m->engine);
    cell_gib(t, m->needed);
    cell_gib(t, m->taken);
}

static void print_step_table(const struct phases *p, FILE *to)
{
    struct columns *t = columns_new(step_columns, 7);

    for (int k = 0; k < p->plan.nsteps; k++) {
        int place = phase_place(&p->plan, &p->plan.step[k]);
        if (place == 0 || place == PHASE_PLACES)
            print_step(t, p, k, p->moment, p->largest);
    }
    columns_print(t, to, page_width(stdout));
}

static void print_steps(const struct phases *p, FILE *to)
{
    fputs("Memory of a GPU in GiB: what the trainers' process has, what the engine has, both with NCCL (needs), and that with what PyTorch's allocator keeps (reserved).\n", to);
    print_step_table(p, to);
    int64_t needed = p->moment[p->largest].needed;
    fprintf(to, "* The largest moment: %s of %s usable%s.\n", size_text(needed).s, size_text(p->available).s,
            needed > p->limit ? ", more than the whole card" : needed > p->available ? ", so little of the card stays free" : "");
}

/* Processes beside the first have a context each. */
static const char *outside_words(const struct phases *p)
{
    for (int i = 0; i < p->plan.nroles; i++)
        if (p->plan.role[i].own_process)
            return "NCCL and CUDA contexts";
    return "NCCL";
}

/* What the largest moment consists of. */
static void print_largest(const struct phases *p, FILE *to)
{
    const struct moment *m = &p->moment[p->largest];
    const struct phase_step *s = &p->plan.step[p->largest];

    int64_t trainers = s->does == DOES_GENERATE || s->role < 0 ? m->reserved : m->live;
    const char *sign = ":";

    fprintf(to, "  \"%s\"", s->name);
    if (trainers) {
        fprintf(to, "%s %s in the trainers' process", sign, size_text(trainers).s);
        sign = ",";
    }
    if (m->outside) {
        fprintf(to, "%s %s of %s", sign, size_text(m->outside).s, outside_words(p));
        sign = ",";
    }
    if (m->engine)
        fprintf(to, "%s %s of the engine", sign, size_text(m->engine).s);
    fputs(".\n", to);
    if (p->host)
        fprintf(to, "  Host memory of a node: %s of %s for what sleeps there.\n", size_text(p->host).s, size_text(p->host_available).s);
}

/* The same of other GPUs: their roles' phases. */
static void print_place(const struct phases *p, int i, FILE *to)
{
    const struct phases_place *m = &p->more[i];
    struct columns *t = columns_new(step_columns, 7);
    int64_t needed = m->moment[m->largest].needed;

    fprintf(to, "\n%s, ", p->plan.place[i].name);
    answer_cluster(&m->cluster, to);
    fputs(":\n", to);
    for (int k = 0; k < p->plan.nsteps; k++)
        if (phase_place(&p->plan, &p->plan.step[k]) == i)
            print_step(t, p, k, m->moment, m->largest);
    columns_print(t, to, page_width(stdout));
    fprintf(to, "* The largest moment: %s of %s usable.\n", size_text(needed).s, size_text(m->available).s);
    if (m->host)
        fprintf(to, "  Host memory of a node: %s of %s for what sleeps there.\n", size_text(m->host).s, size_text(m->host_available).s);
}

/* ---- the answer ---- */

static void print_verdict(const struct phases *p, FILE *to)
{
    struct phases_change c[PHASE_CHANGES];

    if (p->fits) {
        fprintf(to, "%s\n", p->tight ? "Tight: PyTorch's allocator has to give back what it keeps, or less than usual stays free." : "Fits in every phase.");
        return;
    }
    fprintf(to, "Does not fit: %s.\n", p->why_not);
    int n = phases_changes(p, c);
    if (n == 1 && !strncmp(c[0].words, "together", 8))
        fputs("No single change makes it fit, but several do:\n", to);
    else
        fputs(n ? "Each of these changes alone makes it fit, the smallest first:\n" : "None of the changes that were tried makes it fit (host memory between phases, an emptied cache, a smaller engine, half the\n"
              "micro-batch, recomputation, FSDP2 for DDP): more GPUs, or larger ones, may.\n", to);
    for (int i = 0; i < n; i++)
        fprintf(to, "  %s: then %s\n", c[i].words, size_text(c[i].needed).s);
}

static void print_generation(const struct phases *p, FILE *to)
{
    const struct generation *g = &p->generation;

    if (!p->generates)
        return;
    if (p->plan.ahead > 1)
        fprintf(to, "  Responses of %" PRId64 " iterations are generated together; of all of them:\n", p->plan.ahead);
    fprintf(to, "  Generation: %" PRId64 " sequences at once in each engine, %s; %s to read prompts, %s to write.\n", g->slots,
            answer_rate(&p->role[0].plan, g->tokens_per_s).s, answer_seconds(g->prefill_s).s, answer_seconds(g->decode_s).s);
    if (g->gpu_s < 0.95 * g->decode_s)
        fprintf(to, "    The GPU works for %.0f %% of that; for the rest it waits for the engine's Python.\n", 100 * g->gpu_s / g->decode_s);
    if (g->preempted)
        fprintf(to, "    The KV cache fills up: %" PRId64 " times the newest response is stopped and continued later.\n", g->preempted);
    if (g->tail_s < g->decode_s)
        fprintf(to, "    For the last %.0f %% of that no response waits any more, and the batch empties.\n", 100 * g->tail_s / g->decode_s);
    else
        fprintf(to, "    All begin at once, and the longest decides: %.0f tokens one after another.\n", g->steps);
}

static void print_time(const struct phases *p, FILE *to)
{
    const struct cost *c = &p->iteration;

    fprintf(to, "\nAn iteration of %" PRId64 " samples takes %s (90 %%: %s to %s).\n", p->plan.samples, duration_text(c->s).s, duration_text(c->low_s).s,
            duration_text(c->high_s).s);
    fprintf(to, "  Times rest on %s%s.\n",
            c->basis == BASIS_MEASURED ? "measurements" : c->basis == BASIS_DATASHEET ? "datasheets" : "published measurements",
            p->generates ? "; what an engine loses beside the GPU's work is not known, hence its wide interval" : "");
    if (p->moves_s > 0)
        fprintf(to, "  Of that %s for what moves to host memory and back.\n", answer_seconds(p->moves_s).s);
    print_generation(p, to);
    if (p->plan.asynchronous)
        fprintf(to, "  The shorter side, %s, waits for the other one: its GPUs are idle %.0f %% of the time.\n", duration_text(p->apart_s).s,
                100 * (1 - p->apart_s / c->s));
    else if (p->engine >= 0 && role_is_apart(&p->plan.role[p->engine]) && p->plan.nplaces > 1)
        fprintf(to, "  All other GPUs are idle while the engine generates, its own %" PRId64 " the rest of the time.\n", p->engine_cluster.world_size);
    else if (p->engine >= 0 && role_is_apart(&p->plan.role[p->engine]))
        fprintf(to, "  The %" PRId64 " GPUs of the trainers are idle while the engine generates, its own %" PRId64 " the rest of the time.\n", p->cluster.world_size,
                p->engine_cluster.world_size);
}

static const struct column layout_columns[] = {
    { "layout", false, 0 }, { "iteration", true, 0 }, { "90 %", true, 1 }, { "idle", true, 0 }, { "engine", false, 0 }, { "trainers wait on", false, 2 },
    { "micro-batches", false, 0 }, { "needs", true, 0 },
};
enum { LAYOUTS_SHOWN = 8, LAYOUT_COLUMNS = sizeof layout_columns / sizeof *layout_columns, COLUMN_WAITS = 5, COLUMN_BATCHES = 6 };

/* Where no row has other micro-batches than the plan, a narrow page leaves that column out first. */
static void rank_columns(const struct phases_layout *l, int n, struct column c[LAYOUT_COLUMNS])
{
    bool others = false;

    memcpy(c, layout_columns, sizeof layout_columns);
    for (int i = 0; i < n && i < LAYOUTS_SHOWN; i++)
        others |= l[i].forward_times > 1;
    c[COLUMN_BATCHES].rank = others ? 0 : 3;
    c[COLUMN_WAITS].rank = others ? 2 : 0;
}

static void print_layout(struct columns *t, const struct phases_layout *l)
{
    char how[40];

    snprintf(how, sizeof how, l->apart ? "%" PRId64 " + %" PRId64 " apart" : "together", l->trainer_gpus, l->engine_gpus);
    columns_cell(t, "%s%s%s", how, *l->others ? ", " : "", l->others);
    columns_cell(t, "%s", duration_text(l->iteration.s).s);
    cell_interval(t, &l->iteration);
    columns_cell(t, "%.0f %%", 100 * l->idle);
    columns_cell(t, "TP %" PRId64 ", %.1f%s", l->tensor, l->share, l->apart ? "" : l->sleep ? ", sleeps" : ", awake");
    columns_cell(t, "%s", l->between == WHERE_HOST ? "host" : "device");
    columns_cell(t, l->forward_times > 1 ? "x %" PRId64 ", forwards x %" PRId64 : "as given", l->update_times, l->forward_times);
    columns_cell(t, "%.1f%s", (double)l->needed / 1073741824, l->tight ? ", tight" : "");
}

static void print_faster(const struct phases_layout *l, int n, FILE *to)
{
    const struct phases_layout *together = phases_fastest(l, n, false), *apart = phases_fastest(l, n, true);

    if (!together || !apart)
        return;
    struct phases_quotient q = phases_quotient_of(together, apart);
    int faster = phases_faster(together, apart);
    fprintf(to, "  The fastest together takes %.2f times as long as the fastest apart (90 %%: %.2f to %.2f): %s.\n", q.middle, q.low, q.high,
            faster == 0 ? "cannot tell which is faster" : faster < 0 ? "together is faster" : "apart is faster");
}

/* Where it is another plan than the one that was asked about. */
static void print_fastest(const struct phases *p, const struct phases_layout *l, bool picture, FILE *to)
{
    struct phases fastest;

    if (json_equal(l->doc, p->doc) || !phases_evaluated(p, l->doc, true, &fastest))
        return;
    fputs("\nThe fastest of them by phase:\n", to);
    print_step_table(&fastest, to);
    for (int i = 1; i < fastest.plan.nplaces; i++)
        print_place(&fastest, i, to);
    if (picture)
        phases_picture(&fastest, page_width(stdout), to);
    phases_free(&fastest);
}

static void print_layouts(const struct phases *p, bool picture, FILE *to)
{
    struct phases_layout l[PHASE_LAYOUTS];
    struct progress watch;
    bool tight = false;
    int tried;

    fflush(to);
    progress_watch(&watch, "trying layouts");
    int n = phases_search(p, l, &tried);
    progress_end(&watch);
    fprintf(to, "\nLayouts of the same GPUs: %d plans tried, %d layouts fit%s.\n", tried, n, n > LAYOUTS_SHOWN ? ", the fastest are" : "");
    struct column c[LAYOUT_COLUMNS];
    rank_columns(l, n, c);
    struct columns *t = columns_new(c, LAYOUT_COLUMNS);
    for (int i = 0; i < n && i < LAYOUTS_SHOWN; i++)
        print_layout(t, &l[i]);
    columns_print(t, to, page_width(stdout));
    for (int i = 0; i < n; i++)
        tight |= i < LAYOUTS_SHOWN && l[i].tight;
    if (tight)
        fputs("  Tight: PyTorch's allocator has to give back what it keeps, or less than usual stays free.\n", to);
    print_faster(l, n, to);
    if (n)
        fputs("  Trainers + engines; apart is one step off the policy.  --json has each as a plan.\n", to);
    if (n)
        print_fastest(p, &l[0], picture, to);
    for (int i = 0; i < n; i++)
        json_decref(l[i].doc);
}

static void print_answer(const struct phases *p, bool picture, FILE *to)
{
    fprintf(to, "%d models on ", p->plan.nroles);
    answer_cluster(&p->cluster, to);
    fputs(".\n", to);
    for (int i = 0; i < p->plan.nroles; i++)
        if (p->plan.role[i].kind != ROLE_IS_ENGINE)
            print_model(p, i, to);
    if (p->engine >= 0)
        print_engine(p, to);
    fputc('\n', to);
    print_verdict(p, to);
    fputc('\n', to);
    print_steps(p, to);
    print_largest(p, to);
    for (int i = 1; i < p->plan.nplaces; i++)
        print_place(p, i, to);
    if (picture)
        phases_picture(p, page_width(stdout), to);
    print_time(p, to);
    if (p->search)
        print_layouts(p, picture, to);
}

int cmd_phases(int argc, char **argv)
{
    struct phases_asked a = PHASES_ASKED;
    struct phases p;
    bool json = false, picture = false;
    const struct opt opts[] = {
        PHASES_OPTS(a),
        { "picture", "memory by phase as bars", .flag = &picture },
        { "json", "print one JSON document", .flag = &json },
        { 0 }
    };
    int rc = opts_parse("dpxplan phases", "Post-training (GRPO, DPO and their like): models that take turns on the same GPUs.  Memory and time of each phase, the largest "
                        "moment, and the\nsmallest change where it does not fit.  Exits with 3 then.", opts, argc, argv);

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    if ((rc = phases_answer(&a, &p)) != EXIT_DONE && rc != EXIT_NO)
        return rc;
    if (json) {
        rc = dpxplan_print_json(phases_json(&p), rc);
    } else {
        FILE *page = page_open(stdout);
        if (page) {
            print_answer(&p, picture, page);
            page_close(page);
        } else
            rc = EXIT_FAILED;
    }
    phases_free(&p);
    return rc;
}
