/* The Chrome trace and the chart, read back. */
#include "tests/model/plans.h"

#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "sim/clock/simulate.h"
#include "sim/clock/trace.h"

/* A plan run on the clock with contention; every cell of the table in some form. */
static const struct { enum strategy s; enum dialect d; int64_t accumulation; } cells[] = {
    { STRAT_DP, DIALECT_PAPER, 1 },   { STRAT_DDP, DIALECT_TORCH, 2 },  { STRAT_ZERO1, DIALECT_TORCH, 1 },
    { STRAT_ZERO2, DIALECT_DEEPSPEED, 3 }, { STRAT_ZERO3, DIALECT_DEEPSPEED, 1 }, { STRAT_ZERO3, DIALECT_PAPER, 1 },
    { STRAT_FSDP, DIALECT_TORCH, 3 }, { STRAT_FSDP, DIALECT_TORCH_FSDP1, 2 },
};
enum { NCELLS = sizeof cells / sizeof *cells };

struct shown {
    struct plan       p;
    struct evaluation e;
    struct run        r;
    json_t          *doc, *events;
    char             path[64];
};

static void show_run(struct shown *h, int64_t before)
{
    json_error_t why;
    int file;

    snprintf(h->path, sizeof h->path, "/tmp/dpx-trace-XXXXXX");
    file = mkstemp(h->path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(trace_write(&(struct trace_role){ &h->e.schedules, &h->r, before, NULL }, 1, h->path), 0);
    h->doc = json_load_file(h->path, JSON_REJECT_DUPLICATES, &why);
    if (!h->doc)
        fail_msg("line %d: %s", why.line, why.text);
    h->events = json_object_get(h->doc, "traceEvents");
    assert_true(json_is_array(h->events));
}

static void show(struct shown *h, int cell)
{
    struct timing t;

    memset(h, 0, sizeof *h);
    plan_of(&h->p, "gpt2", 5, 8, cells[cell].s, cells[cell].d, DT_BF16);
    h->p.accumulation = cells[cell].accumulation;
    h->p.seq = 1024;
    h->p.micro_batch = 2;
    assert_int_equal(plan_check(&h->p, "test"), 0);
    assert_int_equal(evaluate(&h->p, &h->e), 0);
    assert_int_equal(simulate_plan(&h->p, &h->e, &t, &h->r), 0);
    show_run(h, 1000000);
}

static void unshow(struct shown *h)
{
    json_decref(h->doc);
    run_free(&h->r);
    evaluation_free(&h->e);
    plan_free(&h->p);
    remove(h->path);
}

static const char *text(const json_t *e, const char *key)
{
    const char *s = json_string_value(json_object_get(e, key));
    return s ? s : "";
}

static double number(const json_t *e, const char *key)
{
    return json_number_value(json_object_get(e, key));
}

/* Written with three digits of a microsecond. */
static const double ROUNDED_US = 0.0011;

static void slices_of_a_stream_are_in_order_and_do_not_overlap(void **state)
{
    (void)state;
    for (int c = 0; c < NCELLS; c++) {
        struct shown h;
        double end[NSTREAM] = { 0 }, busy[NSTREAM] = { 0 };
        size_t i, slices = 0;
        json_t *e;
        show(&h, c);
        json_array_foreach(h.events, i, e) {
            if (strcmp(text(e, "ph"), "X"))
                continue;
            int st = (int)number(e, "tid");
            assert_true(st >= 0 && st < NSTREAM);
            assert_true(number(e, "ts") >= end[st] - ROUNDED_US);
            assert_true(number(e, "dur") >= 0 && *text(e, "name"));
            end[st] = number(e, "ts") + number(e, "dur");
            busy[st] += number(e, "dur");
            assert_true(end[st] <= 1e6 * h.r.total.step_s + ROUNDED_US);
            slices++;
        }
        assert_true(slices > 10);
        for (int64_t k = 0; k < h.r.n; k++)     /* none is left out but those that take no time */
            slices -= h.r.ran[k].end > h.r.ran[k].start;
        assert_int_equal(slices, 0);
        assert_true(busy[STREAM_COMPUTE] > 0);
        unshow(&h);
    }
}

static void memory_counters_end_where_they_began(void **state)
{
    (void)state;
    for (int c = 0; c < NCELLS; c++) {
        static const char *const names[] = { "allocated", "held" };
        struct shown h;
        show(&h, c);
        for (int k = 0; k < 2; k++) {
            double last = -1, at = 0, most = 0;
            size_t i;
            json_t *e;
            json_array_foreach(h.events, i, e) {
                if (strcmp(text(e, "ph"), "C") || strcmp(text(e, "name"), names[k]))
                    continue;
                assert_true(number(e, "ts") >= at - ROUNDED_US);
                at = number(e, "ts");
                last = number(json_object_get(e, "args"), "bytes");
                most = last > most ? last : most;
            }
            if (k == 0) {                       /* the ledger's own: what is there all the time */
                struct ledger l;
                ledger_run(&h.e.schedules, &l);
                int64_t persistent = 0;
                for (int q = 0; q < NCAT; q++)
                    persistent += l.persistent[q];
                assert_true(last == (double)persistent);
            } else {
                assert_true(last == 1000000);
            }
            assert_true(most > last);
        }
        unshow(&h);
    }
}

static double sum_of(const json_t *args)
{
    double sum = 0;
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)args, key, v)
        sum += json_number_value(v);
    return sum;
}

/* A counter of categories follows where one of them has changed. */
static void categories_sum_to_what_is_allocated(void **state)
{
    (void)state;
    for (int c = 0; c < NCELLS; c++) {
        struct shown h;
        double sum = -1;
        size_t i, counters = 0;
        json_t *e;
        show(&h, c);
        json_array_foreach(h.events, i, e) {
            const json_t *next = json_array_get(h.events, i + 1);
            if (strcmp(text(e, "ph"), "C") || strcmp(text(e, "name"), "allocated"))
                continue;
            if (next && !strcmp(text(next, "ph"), "C") && !strcmp(text(next, "name"), "allocated by category")) {
                sum = sum_of(json_object_get(next, "args"));
                counters++;
            }
            assert_true(sum == number(json_object_get(e, "args"), "bytes"));
        }
        assert_true(counters > 5);
        unshow(&h);
    }
}

/* From the start of the step to its end; where a slice does not begin with the end of
 * the one before, it waited to be issued. */
static void the_critical_path_has_no_gaps_but_issuing(void **state)
{
    (void)state;
    for (int c = 0; c < NCELLS; c++) {
        struct shown h;
        size_t i, steps = 0, marked = 0;
        json_t *e;
        double at = -1;
        show(&h, c);
        int64_t *path = calloc((size_t)h.r.n + 1, sizeof *path), n = run_critical(&h.r, path, h.r.n);
        assert_true(n > 0);                             /* 1: bound by issuing alone */
        assert_close(h.r.ran[path[0]].end, h.r.total.step_s, 1e-12);
        for (int64_t k = 0; k < n; k++) {
            const struct ran *here = &h.r.ran[path[k]], *before = k + 1 < n ? &h.r.ran[path[k + 1]] : NULL;
            marked += here->end > here->start;
            if (here->start > here->issued * (1 + 1e-9))
                assert_close(here->start, before ? before->end : 0, 1e-9);
            else
                assert_true(!before || before->end <= here->start * (1 + 1e-9));
        }
        json_array_foreach(h.events, i, e) {
            if (!strcmp(text(e, "cat"), "critical")) {
                assert_string_equal(text(e, "ph"), steps == 0 ? "s" : steps + 1 < (size_t)n ? "t" : "f");
                assert_true(number(e, "ts") >= at - ROUNDED_US);
                at = number(e, "ts");
                steps++;
            } else if (json_is_true(json_object_get(json_object_get(e, "args"), "critical"))) {
                marked--;
            }
        }
        assert_int_equal(steps, n);
        assert_int_equal(marked, 0);
        free(path);
        unshow(&h);
    }
}

static void names_from_anywhere_stay_json(void **state)
{
    struct shown h = { 0 };
    double work[8] = { 1, 1, 1 }, issue[8] = { 0 };
    struct durations d = { work, issue };
    struct timeline t;
    size_t i, found = 0;
    json_t *e;

    (void)state;
    hand_begin(&h.e.schedules);
    sched_begin(&h.e.schedules, SCHED_STEADY);
    sched_copy(&h.e.schedules, STREAM_COMPUTE, PHASE_FORWARD, "a \"quote\", a \\ and\n\ta\x01 control", 1, 1);
    sched_copy(&h.e.schedules, STREAM_COMPUTE, PHASE_FORWARD, "\xc3\xa9t\xc3\xa9", 1, 1);
    sched_copy(&h.e.schedules, STREAM_COMPUTE, PHASE_FORWARD, "", 1, 1);
    sched_end(&h.e.schedules, SCHED_STEADY);
    clock_one(&h.e.schedules, SCHED_STEADY, &d, NULL, &t, &h.r);
    show_run(&h, 0);
    json_array_foreach(h.events, i, e)
        found += !strcmp(text(e, "ph"), "X") && strstr(text(e, "name"), "a \"quote\", a \\ and\n\ta\x01 control");
    assert_int_equal(found, 1);
    json_decref(h.doc);
    run_free(&h.r);
    schedules_free(&h.e.schedules);
    remove(h.path);
}

static void a_path_that_cannot_be_written_is_an_error(void **state)
{
    struct shown h;
    char why[256] = "";

    (void)state;
    show(&h, 0);
    fail_capture(why, sizeof why);
    assert_int_equal(trace_write(&(struct trace_role){ &h.e.schedules, &h.r, 0, NULL }, 1, "/no/such/folder/trace.json"), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "/no/such/folder"));
    unshow(&h);
}

static void rows_of_the_chart_are_as_wide_as_asked(void **state)
{
    static const int widths[] = { 1, 7, 84, 500 };

    (void)state;
    for (int c = 0; c < NCELLS; c++) {
        struct shown h;
        show(&h, c);
        for (int w = 0; w < 4; w++) {
            char *all = NULL;
            size_t size = 0;
            FILE *f = open_memstream(&all, &size);
            bool forward = false;
            int rows = 0;
            trace_gantt_print(&h.e.schedules, &h.r, widths[w], f);
            fclose(f);
            for (char *line = all, *end; *line && (end = strchr(line, '\n')); line = end + 1) {
                char *open, *close;
                *end = '\0';
                if (!(open = strchr(line, '|')))
                    continue;
                close = strrchr(line, '|');
                assert_int_equal(close - open - 1, widths[w]);
                assert_int_equal(strspn(open + 1, ".FBOGSRcb "), widths[w]);
                forward |= memchr(open + 1, 'F', (size_t)widths[w]) != NULL;
                rows++;
            }
            assert_true(rows >= 1);
            assert_true(widths[w] < 84 || forward);
            free(all);
        }
        unshow(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_a_stream_are_in_order_and_do_not_overlap),
        cmocka_unit_test(memory_counters_end_where_they_began),
        cmocka_unit_test(categories_sum_to_what_is_allocated),
        cmocka_unit_test(the_critical_path_has_no_gaps_but_issuing),
        cmocka_unit_test(names_from_anywhere_stay_json),
        cmocka_unit_test(a_path_that_cannot_be_written_is_an_error),
        cmocka_unit_test(rows_of_the_chart_are_as_wide_as_asked),
    };
    return cmocka_run_group_tests_name("sim/trace", tests, NULL, NULL);
}
