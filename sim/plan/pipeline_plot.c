/* pipeline_plot.c -- see pipeline_plot.h. */
#include "sim/plan/pipeline_plot.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_stages.h"
#include "base/room.h"
#include "base/sort.h"
#include "sim/clock/passes.h"
#include "sim/plan/figure.h"

/* ---- passes ---- */

int64_t pipeline_plot_spans(const struct trace_role *stage, struct pipeline_span **out)
{
    struct passes at = { 0 };
    int64_t n = 0, room = 0, under_way = -1;

    *out = NULL;
    for (int64_t i = 0; i < stage->r->n; i++) {
        const struct ran *ran = &stage->r->ran[i];
        const struct op *o = &stage->s->ops[ran->op];
        if (!(ran->end > ran->start) && !passes_is_mark(o))
            continue;
        struct pass_part part = passes_next(&at, stage->s, o, ran->iteration);
        if (!part.kind)
            continue;
        if (part.begins || under_way < 0) {
            *out = room_for(*out, n, &room, sizeof **out);
            (*out)[n] = (struct pipeline_span){ part.kind, part.number, ran->start, ran->end };
            under_way = part.kind == PASS_IS_MESSAGE ? under_way : n;
            n++;
        } else {
            (*out)[under_way].end = ran->end;
        }
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
        for (int c = (int)(spans[i].start / cell); spans[i].kind != PASS_IS_MESSAGE && c < width && c * cell < spans[i].end; c++) {
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
    bool split = false;

    for (int i = 0; i < n; i++) {
        struct pipeline_span *spans;
        int64_t count = pipeline_plot_spans(&stages[i], &spans);
        fill_row(spans, count, step_s / width, width, row);
        for (int64_t k = 0; k < count; k++)
            split |= spans[k].kind == PASS_IS_WEIGHTS;
        fprintf(to, "%10s |%s|\n", stages[i].name, row);
        free(spans);
    }
    fprintf(to, "%10s  0%*.4g s\n%11s F, f forward and B, b backward of one micro-step and the next, %sO optimizer\n", "",
            width + 1, step_s, "", split ? "W, w weights' gradients, " : "");
    free(row);
}

/* ---- a figure ---- */

static enum stage_does does(char kind)
{
    switch (kind) {
    case PASS_IS_FORWARD:   return STAGE_FORWARD;
    case PASS_IS_BACKWARD:  return STAGE_BACKWARD;
    case PASS_IS_WEIGHTS:   return STAGE_WEIGHTS;
    case PASS_IS_OPTIMIZER: return STAGE_OPTIMIZER;
    default:                return STAGE_MESSAGE;
    }
}

static int by_begin(const void *a, const void *b)
{
    double x = ((const struct chart_stage_span *)a)->from, y = ((const struct chart_stage_span *)b)->from;

    return (x > y) - (x < y);
}

int pipeline_plot_figure(const struct trace_role *stages, int n, double step_s, const char *path)
{
    struct chart *c = chart_new(CHART_SPANS, "figure", "One step, stage by stage", "");
    struct chart_stage *lane = room_new((size_t)n, sizeof *lane);
    int rc;

    for (int i = 0; i < n; i++) {
        struct pipeline_span *spans;
        int64_t count = pipeline_plot_spans(&stages[i], &spans);
        struct chart_stage_span *of = room_new((size_t)count + 1, sizeof *of);
        for (int64_t k = 0; k < count; k++)
            of[k] = (struct chart_stage_span){ does(spans[k].kind), spans[k].kind == PASS_IS_OPTIMIZER ? -1 : spans[k].number,
                                               spans[k].start, spans[k].end };
        sort_stable(of, (size_t)count, sizeof *of, by_begin);
        lane[i] = (struct chart_stage){ stages[i].name ? stages[i].name : "all ranks", of, count };
        free(spans);
    }
    chart_axis(c, AXIS_X, "time in the step", UNIT_SECONDS, false);
    chart_stages(c, NULL, lane, n, step_s);
    rc = figure_chart(c, path);
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)lane[i].span);
    free(lane);
    chart_free(c);
    return rc;
}
