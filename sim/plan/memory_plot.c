/* memory_plot.c -- columns of block characters, one for several entries, with the usable memory as a line. */
#include "sim/plan/memory_plot.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/terminal.h"
#include "model/schedule/ledger.h"

/* SCALE: what stands to the left and right of the columns. */
enum { MOST = 240, ROWS = 14, POINTS = 65536, SCALE = 22 };

/* The largest peak among the entries that one column stands for. */
static int64_t column_peak(const struct point *p, int64_t n, int column, int columns)
{
    int64_t from = n * column / columns, to = n * (column + 1) / columns, most = 0;

    if (to <= from)
        to = from + 1;
    for (int64_t i = from; i < to && i < n; i++)
        if (p[i].peak > most)
            most = p[i].peak;
    return most;
}

/* The phase that most of a column's entries belong to, as its letter. */
static char column_phase(const struct schedules *s, const struct point *p, int64_t n, int column, int columns)
{
    static const char letters[NPHASE] = { 'i', 'f', 'b', 'r', 'o' };
    int64_t i = n * column / columns;

    return letters[s->ops[p[i < n ? i : n - 1].op].phase];
}

void memory_plot(const struct schedules *s, enum sched_id id, int64_t before, int64_t limit, int width, FILE *to)
{
    static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const ascii[] = { " ", ".", ".", ".", ":", ":", ":", "#", "#" };
    bool utf8 = terminal_utf8();
    const char *const *eighths = utf8 ? blocks : ascii;
    struct point *p = malloc(POINTS * sizeof *p);
    int64_t n, top = limit > 0 ? limit : 1, peaks[MOST];
    int columns = width - SCALE < MOST ? width - SCALE : MOST;

    if (!p)
        abort();
    n = ledger_curve(s, id, p, POINTS);
    for (int c = 0; c < columns && n > 0; c++) {
        peaks[c] = before + column_peak(p, n, c, columns);
        if (peaks[c] > top)
            top = peaks[c];
    }
    for (int row = ROWS - 1; row >= 0 && n > 0; row--) {
        double low = (double)top * row / ROWS, step = (double)top / ROWS;
        bool at_limit = limit > 0 && (double)limit > low && (double)limit <= low + step;
        fprintf(to, "%12s %s", row == ROWS - 1 || row == ROWS / 2 ? size_text((int64_t)(low + step)).s :
                at_limit ? size_text(limit).s : "", utf8 ? "│" : "|");
        for (int c = 0; c < columns; c++) {
            double fill = ((double)peaks[c] - low) / step;
            int e = fill >= 1 ? 8 : fill <= 0 ? 0 : (int)(fill * 8);
            fputs(at_limit && e == 0 ? utf8 ? "┄" : "-" : eighths[e], to);
        }
        fputs(at_limit ? "  usable\n" : "\n", to);
    }
    if (n > 0) {
        fprintf(to, "%12s %s", "0", utf8 ? "└" : "+");
        for (int c = 0; c < columns; c++)
            fputc(column_phase(s, p, n, c, columns), to);
        fprintf(to, "\n%14sf forward, b backward, r reduce, o optimizer; entries in issue order, not time\n", "");
    }
    free(p);
}
