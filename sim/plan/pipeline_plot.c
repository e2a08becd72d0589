/* pipeline_plot.c -- see pipeline_plot.h. */
#include "sim/plan/pipeline_plot.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "sim/plan/figure.h"

/* ---- passes ---- */

/* How far a pass is through its stage: the embedding below all blocks, the head above. */
static int64_t depth_of(const struct op *o, int64_t iteration)
{
    if (!o->of || !strcmp(o->of, "embedding"))
        return -1;
    return !strcmp(o->of, "head") ? INT_MAX : o->unit + o->unit_by * iteration;
}

/* What a stage does before a pass that it receives something for. */
static bool is_mark(const struct op *o)
{
    return o->kind == OP_COMPUTE && o->of && !strcmp(o->of, "micro-step");
}

static char kind_of(const struct op *o)
{
    if (o->stream != STREAM_COMPUTE || (o->kind != OP_COMPUTE && o->kind != OP_OPTIMIZER))
        return 0;
    return o->phase == PHASE_FORWARD ? 'F' : o->phase == PHASE_BACKWARD ? 'B' : o->phase == PHASE_OPTIMIZER ? 'O' : 0;
}

/* The last entry of the pass under way. */
struct under_way { char kind; uint8_t pass; int64_t depth; int k0; };

/* Does this entry go on with the pass?  Backward may run a block's forward again first. */
static bool goes_on(const struct under_way *last, const struct under_way *now)
{
    if (now->kind != last->kind || now->kind == 'O')
        return now->kind == last->kind;
    if (now->depth != last->depth)
        return (now->depth > last->depth) == (now->kind == 'F');
    return now->pass != last->pass ? now->pass == PASS_BACKWARD : now->k0 > last->k0;
}

int64_t pipeline_plot_spans(const struct trace_role *stage, struct pipeline_span **out)
{
    struct under_way last = { 0 };
    int64_t n = 0, room = 0, mark = -1;
    int count[UCHAR_MAX + 1] = { 0 };

    *out = NULL;
    for (int64_t i = 0; i < stage->r->n; i++) {
        const struct ran *ran = &stage->r->ran[i];
        const struct op *o = &stage->s->ops[ran->op];
        struct under_way now = { .kind = kind_of(o) };
        if (is_mark(o)) {
            last.kind = 0;
            mark = o->unit + o->unit_by * ran->iteration;
        }
        if (!now.kind || !(ran->end > ran->start) || is_mark(o))
            continue;
        if (o->kind == OP_COMPUTE) {
            now.pass = o->u.compute.pass;
            now.depth = depth_of(o, ran->iteration);
            now.k0 = o->u.compute.k0;
        }
        if (n == 0 || !goes_on(&last, &now)) {
            *out = room_for(*out, n, &room, sizeof **out);
            int number = count[(unsigned char)now.kind]++;
            (*out)[n++] = (struct pipeline_span){ now.kind, mark >= 0 ? (int)mark : number, ran->start, ran->end };
            mark = -1;
        }
        (*out)[n - 1].end = ran->end;
        last = now;
    }
    return n;
}

/* ---- in a terminal ---- */

/* The span that has most of each cell; '.' where little of it is filled. */
static void fill_row(const struct pipeline_span *spans, int64_t n, double cell, int width, char *row)
{
    double *most = room_new((size_t)width, sizeof *most), *filled = room_new((size_t)width, sizeof *filled);

    memset(row, '.', (size_t)width);
    for (int64_t i = 0; i < n; i++)
        for (int c = (int)(spans[i].start / cell); c < width && c * cell < spans[i].end; c++) {
            double from = spans[i].start > c * cell ? spans[i].start : c * cell;
            double to = spans[i].end < (c + 1) * cell ? spans[i].end : (c + 1) * cell;
            filled[c] += to - from;
            if (to - from > most[c]) {
                most[c] = to - from;
                row[c] = (char)(spans[i].number % 2 ? tolower(spans[i].kind) : spans[i].kind);
            }
        }
    for (int c = 0; c < width; c++)
        if (filled[c] < cell / 2)
            row[c] = '.';
    free(most);
    free(filled);
}

void pipeline_plot_print(const struct trace_role *stages, int n, double step_s, int width, FILE *to)
{
    char *row = room_new((size_t)width + 1, 1);

    for (int i = 0; i < n; i++) {
        struct pipeline_span *spans;
        int64_t count = pipeline_plot_spans(&stages[i], &spans);
        fill_row(spans, count, step_s / width, width, row);
        fprintf(to, "%10s |%s|\n", stages[i].name, row);
        free(spans);
    }
    fprintf(to, "%10s  0%*.4g s\n%11s F, f forward and B, b backward of one micro-step and the next, O optimizer\n", "",
            width + 1, step_s, "");
    free(row);
}

/* ---- by gnuplot ---- */

struct drawn { const struct trace_role *stages; int n; double step_s; };

static const struct { char kind; const char *words, *colour; } kinds[] = {
    { 'F', "forward", "#4477aa" }, { 'B', "backward", "#228833" }, { 'O', "optimizer", "#bbbbbb" },
};
enum { NKINDS = sizeof kinds / sizeof *kinds };

/* A block for each kind: from, to, stage. */
static int write_data(void *of, FILE *to)
{
    const struct drawn *d = of;

    for (int k = 0; k < NKINDS; k++) {
        int64_t written = 0;
        for (int i = 0; i < d->n; i++) {
            struct pipeline_span *spans;
            int64_t count = pipeline_plot_spans(&d->stages[i], &spans);
            for (int64_t j = 0; j < count; j++)
                if (spans[j].kind == kinds[k].kind && ++written)
                    fprintf(to, "%.9g %.9g %d\n", spans[j].start, spans[j].end, i);
            free(spans);
        }
        fputs(written ? "\n\n" : "0 0 0\n\n\n", to);       /* gnuplot counts no empty block */
    }
    return ferror(to) ? fail("the figure's data cannot be written") : 0;
}

static void write_script(void *of, FILE *to)
{
    const struct drawn *d = of;

    fprintf(to, "set key below noenhanced\nset tics nomirror\nset xlabel 'seconds' noenhanced\nset xrange [0:%.9g]\n"
            "set yrange [%.1f:-0.5]\nset style fill solid 0.8 border rgb 'white'\nset ytics (", d->step_s, d->n - 0.5);
    for (int i = 0; i < d->n; i++) {
        fputs(i ? ", " : "", to);
        figure_quoted(d->stages[i].name, to);
        fprintf(to, " %d", i);
    }
    fputs(")\n", to);
    for (int k = 0; k < NKINDS; k++)
        fprintf(to, "%s'data' index %d using ($1+$2)/2:3:1:2:($3-0.4):($3+0.4) with boxxyerror lc rgb '%s' title '%s'",
                k ? ", " : "plot ", k, kinds[k].colour, kinds[k].words);
    fputc('\n', to);
}

int pipeline_plot_figure(const struct trace_role *stages, int n, double step_s, const char *path)
{
    struct drawn d = { stages, n, step_s };

    return figure_draw(&(struct figure){ write_data, write_script, &d, 1000, 120 + 40 * n }, path,
                       "--trace writes the same for Perfetto");
}
