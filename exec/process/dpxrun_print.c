/* dpxrun_print.c -- what a run says: its progress, and its result as a table or as JSON. */
#include "exec/process/dpxrun.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/answer.h"
#include "base/fail.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/size.h"
#include "exec/process/launch.h"
#include "sim/clock/trace.h"
#include "sim/plan/plan_words.h"

/* ---- progress: one line, rewritten, on a terminal only ---- */

static bool line_open;

static void left_text(double s, char *to, size_t size)
{
    if (s >= 3600)
        snprintf(to, size, "%.1f h", s / 3600);
    else if (s >= 120)
        snprintf(to, size, "%.0f min", s / 60);
    else
        snprintf(to, size, "%.0f s", s);
}

void dpxrun_progress_line(const struct dpxrun *r, const struct train_report *s)
{
    int columns = launch_terminal();
    char line[256], left[24];

    if (columns < 20 || r->o.json)
        return;
    left_text(r->measured.seconds / (double)r->measured.n * (double)(r->o.steps - s->step), left, sizeof left);
    int n = snprintf(line, sizeof line, "step %" PRId64 "/%" PRId64 "  loss %.4f  %.0f tokens/s  %s  %s left", s->step,
                     r->o.steps, s->loss, (double)s->tokens / s->seconds,
                     size_text(executor_meter(train_executor(r->train))->peak).s, left);
    fprintf(stderr, "\r%.*s\033[K", n < columns ? n : columns - 1, line);
    fflush(stderr);
    line_open = true;
}

void dpxrun_progress_end(void)
{
    if (line_open)
        fputs("\r\033[K", stderr);
    line_open = false;
}

/* ---- the table ---- */

static const char *ratio(double measured, double predicted)
{
    static char text[32];

    if (!(predicted > 0) || isnan(measured))
        return "";
    snprintf(text, sizeof text, "%s", percent_change(measured / predicted).s);
    return text;
}

/* What the table shows as 0.0000 s. */
#define LEAST_S 0.5e-4

static void row_bytes(FILE *to, const char *what, int64_t predicted, int64_t measured)
{
    fprintf(to, "  %-28s %14s %14s %10s\n", what, predicted < 0 ? "-" : size_text(predicted).s,
           measured < 0 ? "-" : size_text(measured).s,
           measured < 0 || predicted <= 0 ? "" : ratio((double)measured, (double)predicted));
}

static void row_seconds(FILE *to, const char *what, double predicted, double measured)
{
    /* Nothing is no measure of anything. */
    fprintf(to, "  %-28s %12.4f s %12.4f s %10s\n", what, predicted, measured, predicted < LEAST_S ? "" : ratio(measured, predicted));
}

static void print_memory(const struct dpxrun *r, FILE *to)
{
    const struct predicted *p = &r->predicted;
    const struct measured *m = &r->measured;

    fprintf(to, "memory, rank %" PRId64 "\n", predict_shown_rank(r));
    row_bytes(to, "allocated, peak", predict_allocated(r), m->allocated[m->rank]);
    row_bytes(to, "held, peak", predict_held(r), m->held[m->rank]);
    for (enum space in = SPACE_PINNED; in < NSPACE; in++) {
        char what[40];
        snprintf(what, sizeof what, "%s, allocated, peak", space_name(in));
        if (r->predicted.e.schedules.spaces & IN(in))
            row_bytes(to, what, predict_elsewhere(r, in), m->elsewhere[in][m->rank]);
    }
    row_bytes(to, "process, beyond its start", p->process_bytes, m->process[m->rank]);
}

static void print_comm(const struct dpxrun *r, FILE *to)
{
    struct comm_pair pair[COMM_LINES];
    int n = predict_comm_pairs(r, pair);

    fprintf(to, "collectives of the whole run\n");
    for (int i = 0; i < n; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s %s %s x%" PRId64, coll_name(pair[i].op), pair[i].group_name,
                 dtype_name(pair[i].dtype), pair[i].count);
        row_bytes(to, what, pair[i].predicted_bytes, pair[i].bytes);
        if (pair[i].count != pair[i].predicted_count)
            fprintf(to, "    predicted %" PRId64 " calls, made %" PRId64 "\n", pair[i].predicted_count, pair[i].count);
    }
    if (n == 0)
        fprintf(to, "  none\n");
}

static void print_moved(const struct dpxrun *r, FILE *to)
{
    struct moved_pair pair[NSPACE * NSPACE];
    int n = moved_pairs(r, pair);

    if (n > 0)
        fprintf(to, "copies between memories, of the whole run, rank %d\n", r->rank);
    for (int i = 0; i < n; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s to %s x%" PRId64, space_name(pair[i].from), space_name(pair[i].to), pair[i].count);
        row_bytes(to, what, pair[i].predicted_bytes, pair[i].bytes);
        if (pair[i].count != pair[i].predicted_count)
            fprintf(to, "    predicted %" PRId64 " copies, made %" PRId64 "\n", pair[i].predicted_count, pair[i].count);
    }
}

static void print_time(const struct dpxrun *r, FILE *to)
{
    const struct predicted *p = &r->predicted;
    const struct measured *m = &r->measured;

    fprintf(to, "a steady step, %s (predicted 90 %%: %.3g to %.3g s; measured 10 to 90 %%: %.3g to %.3g s)\n",
           basis_name(p->t.basis), p->t.low_s, p->t.high_s, m->p10_s, m->p90_s);
    if (!isnan(p->as_calibrated_s))
        fprintf(to, "  the probe takes %.2f times as long as at calibration; without this probe dpxplan predicts %.4g s\n",
               p->known.now_s / p->known.probe_s, p->as_calibrated_s);
    row_seconds(to, "step", p->t.line.step_s, m->median_s);
    for (int i = 0; i < predict_phases(r); i++)
        row_seconds(to, predict_phase_names[i], p->phase[i], m->phase[i]);
    stages_print(r, to);
}

static bool is_fp16(const struct dpxrun *r) { return r->here.precision == DT_FP16; }

static int64_t skipped_steps(const struct measured *m)
{
    int64_t n = 0;

    for (int64_t i = 0; i < m->n; i++)
        n += m->report[i].skipped;
    return n;
}

/* One line, for scripts that run several plans. */
static void print_brief(const struct dpxrun *r)
{
    const struct measured *m = &r->measured;
    int64_t predicted = predict_allocated(r), allocated = m->allocated[m->rank], skipped = skipped_steps(m);

    printf("%-6s %-12s loss %.4f -> %.4f  %8.0f tokens/s  step %.4f s  peak %10s", strategy_name(r->here.strategy),
           dialect_name(r->here.dialect), m->report[0].loss, m->report[m->n - 1].loss,
           (double)m->report[m->n - 1].tokens / m->median_s, m->median_s, size_text(allocated).s);
    if (allocated == predicted)
        printf(" as predicted");
    else
        printf(", predicted %s", size_text(predicted).s);
    if (skipped)
        printf(", %" PRId64 " of %" PRId64 " steps skipped", skipped, m->n);
    puts("");
}

static void print_loss_scale(const struct dpxrun *r, FILE *to)
{
    const struct measured *m = &r->measured;
    int64_t skipped = skipped_steps(m);

    fprintf(to, "fp16: loss scale %.10g at first, %.10g at last; ", m->report[0].loss_scale, m->report[m->n - 1].loss_scale);
    if (skipped)
        fprintf(to, "%" PRId64 " of %" PRId64 " steps skipped, whose gradients overflowed\n", skipped, m->n);
    else
        fprintf(to, "no step skipped\n");
}

static void print_table(const struct dpxrun *r, FILE *to)
{
    const struct measured *m = &r->measured;
    const struct train_report *first = &m->report[0], *last = &m->report[m->n - 1];
    double entropy = train_entropy(r->train);
    char words[PLAN_WORDS];

    plan_words(&r->here, words, sizeof words);
    fprintf(to, "%s.\n%" PRId64 " rank%s, %" PRId64 " step%s of %" PRId64 " tokens, %s\n", words, r->here.cluster.world_size,
            r->here.cluster.world_size == 1 ? "" : "s", m->n, m->n == 1 ? "" : "s", last->tokens, train_about_data(r->train));
    bool elsewhere = r->o.comm == COMM_NULL && isnan(first->loss);
    if (elsewhere)
        fprintf(to, "no loss: another rank has it");
    else
        fprintf(to, "loss %.4f at first, %.4f at last", first->loss, last->loss);
    if (!isnan(entropy) && !elsewhere)
        fprintf(to, " (the data's entropy, its floor: %.4f)", entropy);
    fprintf(to, "; %.0f tokens/s\n", (double)last->tokens / m->median_s);
    if (is_fp16(r))
        print_loss_scale(r, to);
    fprintf(to, "\n  %-28s %14s %14s\n", "", "predicted", "measured");
    print_memory(r, to);
    print_comm(r, to);
    print_moved(r, to);
    print_time(r, to);
    checkpoints_print(r, to);
    if (r->run_id > 0)
        fprintf(to, "recorded as run %" PRId64 " in %s\n", r->run_id, db_path(r->db));
}

/* ---- JSON ---- */

static json_t *real(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *bytes(int64_t v) { return v < 0 ? json_null() : json_integer(v); }

static json_t *comm_json(const struct dpxrun *r)
{
    struct comm_pair pair[COMM_LINES];
    json_t *list = json_array();
    int n = predict_comm_pairs(r, pair);

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "op", coll_name(pair[i].op),
                                              "group", pair[i].group_name, "dtype",
                                              dtype_name(pair[i].dtype), "count", (json_int_t)pair[i].count,
                                              "bytes", (json_int_t)pair[i].bytes, "predicted_count",
                                              (json_int_t)pair[i].predicted_count, "predicted_bytes",
                                              (json_int_t)pair[i].predicted_bytes));
    return list;
}

/* Copies between memories; NULL: all buffers lie in device memory. */
static json_t *moved_json(const struct dpxrun *r)
{
    struct moved_pair pair[NSPACE * NSPACE];
    json_t *list = r->predicted.e.schedules.spaces ? json_array() : NULL;
    int n = list ? moved_pairs(r, pair) : 0;

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "from", space_name(pair[i].from), "to",
                                              space_name(pair[i].to), "count", (json_int_t)pair[i].count, "bytes",
                                              (json_int_t)pair[i].bytes, "predicted_count",
                                              (json_int_t)pair[i].predicted_count, "predicted_bytes",
                                              (json_int_t)pair[i].predicted_bytes));
    return list;
}

/* What was read and written for these copies, in whole blocks of 4096 bytes, and what the schedule says, in bytes; NULL: there
 * are no files. */
static json_t *files_json(const struct dpxrun *r)
{
    const struct store *s = executor_store(train_executor(r->train));
    struct moved_pair pair[NSPACE * NSPACE];
    int64_t read = 0, written = 0;

    for (int i = 0, n = s ? moved_pairs(r, pair) : 0; i < n; i++) {
        read += pair[i].from == SPACE_DISK ? pair[i].predicted_bytes : 0;
        written += pair[i].to == SPACE_DISK ? pair[i].predicted_bytes : 0;
    }
    return !s ? NULL : json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I}", "folder", r->o.offload_dir, "engine", store_engine(s),
                                 "direct", store_direct(s), "read_bytes", (json_int_t)store_blocks_read(s),
                                 "predicted_read_bytes", (json_int_t)read,
                                 "written_bytes", (json_int_t)store_blocks_written(s),
                                 "predicted_written_bytes", (json_int_t)written);
}

static json_t *phases_json(const struct dpxrun *r)
{
    json_t *list = json_array();

    for (int i = 0; i < predict_phases(r); i++)
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "name", predict_phase_names[i], "measured_s",
                                              real(r->measured.phase[i]), "predicted_s",
                                              real(r->predicted.phase[i])));
    return list;
}

static json_t *losses_json(const struct measured *m)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < m->n; i++)
        json_array_append_new(list, real(m->report[i].loss));
    return list;
}

/* Of each step, what its loss was multiplied with. */
static json_t *loss_scales_json(const struct measured *m)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < m->n; i++)
        json_array_append_new(list, json_real(m->report[i].loss_scale));
    return list;
}

/* What there is beyond device memory; NULL: nothing. */
static json_t *elsewhere_json(const struct dpxrun *r)
{
    const struct measured *m = &r->measured;
    json_t *list = r->predicted.e.schedules.spaces ? json_array() : NULL;

    for (enum space in = SPACE_PINNED; in < NSPACE && list; in++)
        if (r->predicted.e.schedules.spaces & IN(in))
            json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o}", "space", space_name(in), "allocated_peak_bytes",
                                                  bytes(m->elsewhere[in][m->rank]), "predicted_allocated_peak_bytes",
                                                  bytes(predict_elsewhere(r, in)), "held_peak_bytes",
                                                  bytes(m->elsewhere_held[in][m->rank])));
    return list;
}

static json_t *memory_json(const struct dpxrun *r)
{
    const struct measured *m = &r->measured;
    const struct predicted *p = &r->predicted;
    json_t *j = json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", (json_int_t)predict_shown_rank(r), "device_peak_bytes",
                          bytes(m->held[m->rank]), "predicted_peak_bytes", bytes(predict_held(r)),
                          "allocated_peak_bytes", bytes(m->allocated[m->rank]), "predicted_allocated_peak_bytes",
                          bytes(predict_allocated(r)), "process_peak_bytes", bytes(m->process[m->rank]),
                          "predicted_process_bytes", bytes(p->process_bytes));
    if (j && !on_host(r))               /* of rank 0's device, by whomever */
        json_object_set_new(j, "device_used_bytes", bytes(device_used(r->device)));
    json_t *spaces = elsewhere_json(r);
    if (j && spaces)
        json_object_set_new(j, "spaces", spaces);
    return j;
}

static json_t *result_json(const struct dpxrun *r)
{
    const struct measured *m = &r->measured;
    const struct timing *t = &r->predicted.t;
    json_t *doc = json_object();

    json_object_set_new(doc, "run_id", r->run_id > 0 ? json_integer(r->run_id) : json_null());
    json_object_set_new(doc, "plan", plan_to_json(&r->plan));
    json_object_set_new(doc, "device", json_string(device_label(r)));
    json_object_set_new(doc, "world_size", json_integer(r->here.cluster.world_size));
    json_object_set_new(doc, "steps", json_integer(m->n));
    json_object_set_new(doc, "loss", losses_json(m));
    if (is_fp16(r)) {
        json_object_set_new(doc, "loss_scale", loss_scales_json(m));
        json_object_set_new(doc, "skipped_steps", json_integer(skipped_steps(m)));
    }
    json_object_set_new(doc, "step_s", json_pack("{s:o, s:o, s:o}", "median", real(m->median_s), "p10",
                                                 real(m->p10_s), "p90", real(m->p90_s)));
    json_object_set_new(doc, "predicted_step_s", real(t->line.step_s));
    json_object_set_new(doc, "as_calibrated_step_s", real(r->predicted.as_calibrated_s));
    json_object_set_new(doc, "predicted_low_s", real(t->low_s));
    json_object_set_new(doc, "predicted_high_s", real(t->high_s));
    json_object_set_new(doc, "predicted_basis", json_string(basis_name(t->basis)));
    json_object_set_new(doc, "warning", r->predicted.known.warning[0] ? json_string(r->predicted.known.warning)
                                                                       : json_null());
    json_object_set_new(doc, "tokens_per_s", real((double)m->report[m->n - 1].tokens / m->median_s));
    json_object_set_new(doc, "memory", memory_json(r));
    json_object_set_new(doc, "comm", comm_json(r));
    json_t *moved = moved_json(r), *files = files_json(r);
    if (moved)
        json_object_set_new(doc, "copies", moved);
    if (files)
        json_object_set_new(doc, "files", files);
    json_object_set_new(doc, "phases", phases_json(r));
    stages_json(r, doc);
    checkpoints_json(r, doc);
    return doc;
}

/* What does not fit: the same document as far as it got, and where it stopped. */
static json_t *over_json(const struct dpxrun *r)
{
    const struct exec_over *v = &r->first_over;

    return json_pack("{s:n, s:o, s:s, s:I, s:b, s:{s:s, s:s, s:s, s:I}}", "run_id", "plan", plan_to_json(&r->plan),
                     "device", device_label(r), "world_size", (json_int_t)r->here.cluster.world_size, "fits", 0, "first_over",
                     "phase", sched_name(v->sched), "op", v->where, "buffer", v->buffer, "bytes", (json_int_t)v->bytes);
}

/* With --no-check-for-nan: NaN propagates to every later step. */
static void warn_of_divergence(const struct measured *m)
{
    for (int64_t i = 0; i < m->n; i++)
        if (!isfinite(m->report[i].loss)) {
            fprintf(stderr, "dpx: the loss is NaN or infinite from step %" PRId64 " on\n", m->report[i].step);
            return;
        }
}

int dpxrun_print_result(const struct dpxrun *r)
{
    int status = r->over ? EXIT_NO : EXIT_DONE;

    if (!r->over && r->o.comm != COMM_NULL)
        warn_of_divergence(&r->measured);
    if (r->o.json) {
        status = answer_print(r->over ? over_json(r) : result_json(r), status);
    } else if (!r->over && r->o.brief) {
        print_brief(r);
    } else if (!r->over) {
        FILE *page = page_open(stdout);
        if (!page)
            return EXIT_FAILED;
        print_table(r, page);
        page_close(page);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fail("cannot write to standard output");
        return EXIT_FAILED;
    }
    return status;
}

/* ---- the trace: the last sampled step, in the rows of the predicted one ---- */

int dpxrun_write_trace(const struct dpxrun *r)
{
    const struct measured *m = &r->measured;
    const struct sample *a = m->nsamples ? &m->sample[m->nsamples - 1] : NULL;
    struct run run = { .n = 0 };
    int rc;

    if (!a)
        return fail("--trace: no step was recorded");
    run.ran = calloc((size_t)a->n + 1, sizeof *run.ran);
    if (!run.ran)
        return fail("out of memory for the trace");
    for (int64_t i = 0; i < a->n; i++) {
        const struct exec_ran *e = &a->ran[i];
        double at = isnan(e->start) ? e->issued : e->start;
        run.ran[run.n++] = (struct ran){ e->op, e->iteration, e->issued, at, isnan(e->end) ? at : e->end, -1 };
    }
    run.total.step_s = m->report[a->step - 1 - r->saved.from].seconds;
    struct trace_role rank = { train_schedules(r->train), &run, executor_meter(train_executor(r->train))->live, NULL };
    rc = trace_write(&rank, 1, r->o.trace);
    free(run.ran);
    return rc;
}
