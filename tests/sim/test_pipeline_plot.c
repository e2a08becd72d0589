/* A pipeline's drawing: passes told apart, rows worked out on paper, a figure. */
#include "tests/check.h"

#include <unistd.h>

#include "sim/plan/pipeline_plot.h"
#include "tests/sim/pipeline_beds.h"

struct bed {
    struct pipe pipe;
    struct timeline lines[STAGES];
    struct run runs[STAGES];
    struct trace_role roles[STAGES];
    double makespan_s;
};

/* The last entry becomes one of block `block`. */
static void as_block(struct stage *g, const char *of, int block, enum pass pass, int k0)
{
    struct op *o = &g->s.ops[g->s.nops - 1];

    o->kind = OP_COMPUTE;
    o->of = of;
    o->unit = block;
    memset(&o->u, 0, sizeof o->u);
    o->u.compute.pass = (uint8_t)pass;
    o->u.compute.k0 = (uint16_t)k0;
    o->u.compute.k1 = (uint16_t)(k0 + 1);
    o->u.compute.piece = !strcmp(of, "received") ? PIECE_RECEIVED : !strcmp(of, "sent") ? PIECE_SENT : PIECE_BLOCK;
}

static void bed_run(struct bed *b)
{
    struct clock_result r;

    pipe_end(&b->pipe);
    assert_true(clock_run(b->pipe.role, b->pipe.p, SCHED_STEADY, b->lines, b->runs, &r));
    b->makespan_s = r.makespan_s;
    for (int i = 0; i < b->pipe.p; i++)
        b->roles[i] = (struct trace_role){ &b->pipe.stage[i].s, &b->runs[i], 0, b->pipe.stage[i].name };
}

static void bed_close(struct bed *b)
{
    for (int i = 0; i < b->pipe.p; i++)
        run_free(&b->runs[i]);
    pipe_close(&b->pipe);
}

/* GPipe, p = 2, m = 2, forward 1, backward 2, of one block a stage. */
static void gpipe(struct bed *b)
{
    static const struct pace pace = { 1, 2, 0 };

    memset(b, 0, sizeof *b);
    pipe_open(&b->pipe, 2);
    for (int r = 0; r < 2; r++)
        for (int pass = 0; pass < 2; pass++)
            for (int m = 0; m < 2; m++) {
                int from = b->pipe.stage[r].s.nops;
                (pass ? stage_backward : stage_forward)(&b->pipe, r, &pace, m);
                for (int i = from; i < b->pipe.stage[r].s.nops; i++)
                    if (b->pipe.stage[r].s.ops[i].stream == STREAM_COMPUTE) {
                        struct op *o = &b->pipe.stage[r].s.ops[i];
                        o->kind = OP_COMPUTE;
                        o->of = "block";
                        o->unit = r;
                        memset(&o->u, 0, sizeof o->u);
                        o->u.compute.pass = (uint8_t)pass;
                    }
            }
    bed_run(b);
}

/* (2 + 1)(1 + 2) = 9 columns of a second. */
static void rows_of_gpipe(void **state)
{
    struct bed b;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    (void)state;
    gpipe(&b);
    assert_close(b.makespan_s, 9, 1e-14);
    pipeline_plot_print(b.roles, 2, b.makespan_s, 9, f);
    fclose(f);
    assert_non_null(strstr(text, "   stage 0 |Ff...BBbb|\n"));
    assert_non_null(strstr(text, "   stage 1 |.FfBBbb..|\n"));
    free(text);
    bed_close(&b);
}

/* One pass runs up through embedding, blocks and head, and down again; backward may run a block's forward first.  Where an
 * entry goes the other way, or the same kernels come again, another pass has begun. */
static void passes_are_told_apart(void **state)
{
    static const struct { char kind; const char *of; int block; enum pass pass; int k0, number; } e[] = {
        { 'F', "embedding", 0, PASS_FORWARD, 0, 0 }, { 'F', "block", 0, PASS_FORWARD, 0, 0 },
        { 'F', "block", 0, PASS_FORWARD, 5, 0 },     { 'F', "block", 1, PASS_FORWARD, 0, 0 },
        { 'F', "head", 0, PASS_FORWARD, 0, 0 },      { 'F', "embedding", 0, PASS_FORWARD, 0, 1 },
        { 'F', "block", 0, PASS_FORWARD, 0, 1 },     { 'B', "head", 0, PASS_BACKWARD, 0, 0 },
        { 'B', "block", 1, PASS_FORWARD, 0, 0 },     { 'B', "block", 1, PASS_BACKWARD, 0, 0 },
        { 'B', "block", 0, PASS_FORWARD, 0, 0 },     { 'B', "block", 0, PASS_BACKWARD, 0, 0 },
        { 'B', "embedding", 0, PASS_BACKWARD, 0, 0 }, { 'B', "head", 0, PASS_BACKWARD, 0, 1 },
        { 'F', "block", 1, PASS_FORWARD, 0, 2 },     { 'F', "block", 1, PASS_FORWARD, 0, 3 },
        { 0, "received", 7, PASS_FORWARD, 1, 0 },    { 'F', "block", 2, PASS_FORWARD, 0, 7 },
        { 0, "sent", 3, PASS_FORWARD, 0, 0 },        { 0, "received", 8, PASS_FORWARD, 0, 0 },
        { 'F', "block", 2, PASS_FORWARD, 0, 5 },
    };
    enum { N = sizeof e / sizeof *e };
    struct pipeline_span *spans;
    struct bed b;
    int64_t n, at = -1;

    (void)state;
    memset(&b, 0, sizeof b);
    pipe_open(&b.pipe, 1);
    for (int i = 0; i < N; i++) {
        stage_work(&b.pipe.stage[0], STREAM_COMPUTE, e[i].kind == 'B' ? PHASE_BACKWARD : PHASE_FORWARD, 1);
        as_block(&b.pipe.stage[0], e[i].of, e[i].block, e[i].pass, e[i].k0);
    }
    bed_run(&b);
    n = pipeline_plot_spans(&b.roles[0], &spans);
    for (int i = 0; i < N; i++) {
        if (!e[i].kind)
            continue;
        if (i == 0 || e[i].kind != e[i - 1].kind || e[i].number != e[i - 1].number) {
            at++;
            assert_true(at < n);
            assert_close(1 + spans[at].start, 1 + i, 1e-14);
        }
        assert_int_equal(spans[at].kind, e[i].kind);
        assert_int_equal(spans[at].number, e[i].number);
        assert_true(spans[at].end >= i + 1 - 1e-9);
    }
    assert_int_equal(n, at + 1);
    free(spans);
    bed_close(&b);
}

static void a_figure(void **state)
{
    char folder[] = "/tmp/dpx-plot-XXXXXX", path[64], text[1 << 16];
    struct bed b;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.svg", folder);
    gpipe(&b);
    assert_int_equal(pipeline_plot_figure(b.roles, 2, b.makespan_s, path), 0);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "<svg"));
    assert_non_null(strstr(text, "stage 1"));
    assert_non_null(strstr(text, "backward"));
    assert_int_equal(pipeline_plot_figure(b.roles, 2, b.makespan_s, "x.pdf"), -1);
    unlink(path);
    rmdir(folder);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_gpipe),
        cmocka_unit_test(passes_are_told_apart),
        cmocka_unit_test(a_figure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
