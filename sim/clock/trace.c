/* trace.c -- entries as events of a trace, with memory and the critical path, and as lines of characters. */
#include "sim/clock/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/output.h"
#include "base/room.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"

/* `"key":"value"`, escaped: names come from files too. */
static void put_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static bool has_entries(const struct schedules *s, enum stream st)
{
    for (int i = s->begin[SCHED_STEADY]; i < s->end[SCHED_STEADY]; i++)
        if (s->ops[i].stream == st)
            return true;
    return false;
}

/* The host's own streams only where there are any. */
static void put_rows(FILE *f, int pid, const char *name, const struct schedules *s)
{
    fprintf(f, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", pid, name);
    for (int st = 0; st < NSTREAM; st++) {
        if (stream_is_host((enum stream)st) && !has_entries(s, (enum stream)st))
            continue;
        fprintf(f, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":", pid, st);
        put_string(f, stream_name((enum stream)st));
        fprintf(f, "}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
                pid, st, st);
    }
}

static void put_args(FILE *f, const struct schedules *s, const struct op *o)
{
    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:
        fprintf(f, ",\"flops\":%.17g", s->spans[o->u.compute.span].flops);
        break;
    case OP_COLL:
        fprintf(f, ",\"group\":\"%s\",\"dtype\":\"%s\",\"bytes\":%" PRId64, sched_group(s, o)->name,
                dtype_name(o->u.coll.dtype), o->u.coll.elems * dtype_bytes(o->u.coll.dtype));
        break;
    case OP_COPY:
        fprintf(f, ",\"bytes_read\":%" PRId64 ",\"bytes_written\":%" PRId64, o->u.copy.reads, o->u.copy.writes);
        break;
    case OP_OPTIMIZER:
        fprintf(f, ",\"elements\":%" PRId64, o->u.optimizer.elems);
        break;
    case OP_WAIT: case OP_MEMORY: case OP_REPEAT: case OP_END:
        break;
    }
}

static void put_slice(FILE *f, int pid, const struct schedules *s, const struct ran *ran, bool critical)
{
    const struct op *o = &s->ops[ran->op];
    char words[96];

    evaluation_op_in_words(s, ran->op, ran->iteration, words, sizeof words);
    fprintf(f, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", pid, o->stream,
            1e6 * ran->start, 1e6 * (ran->end - ran->start));
    put_string(f, words);
    fprintf(f, ",\"cat\":\"%s\"%s,\"args\":{\"issued_us\":%.3f,\"critical\":%s", phase_name(o->phase),
            critical ? ",\"cname\":\"terrible\"" : "", 1e6 * ran->issued, critical ? "true" : "false");
    put_args(f, s, o);
    fputs("}}", f);
}

static void put_counter(FILE *f, int pid, const char *name, double t, int64_t bytes)
{
    fprintf(f, ",\n{\"ph\":\"C\",\"pid\":%d,\"ts\":%.3f,\"name\":\"%s\",\"args\":{\"bytes\":%" PRId64 "}}", pid,
            1e6 * t, name, bytes);
}

/* One counter of a series for each category that the step has. */
static void put_categories(FILE *f, int pid, double t, const int64_t by[NCAT], const int64_t most[NCAT])
{
    const char *comma = "";

    fprintf(f, ",\n{\"ph\":\"C\",\"pid\":%d,\"ts\":%.3f,\"name\":\"allocated by category\",\"args\":{", pid, 1e6 * t);
    for (int c = 0; c < NCAT; c++) {
        if (most[c] == 0)
            continue;
        fprintf(f, "%s\"%s\":%" PRId64, comma, category_name((enum category)c), by[c]);
        comma = ",";
    }
    fputs("}}", f);
}

/* Of device memory in issue order, each time the most inside the entry. */
static void put_allocated(FILE *f, int pid, const struct schedules *s, const struct run *r)
{
    struct point *p = room_new((size_t)r->n + 1, sizeof *p);
    int64_t (*by)[NCAT] = room_new((size_t)r->n + 1, sizeof *by), most[NCAT] = { 0 };
    int64_t n = ledger_curve_by(s, SCHED_STEADY, p, by, r->n);

    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < NCAT; c++)
            most[c] = by[i][c] > most[c] ? by[i][c] : most[c];
    for (int64_t i = 0; i < n; i++) {
        put_counter(f, pid, "allocated", r->ran[i].issued, p[i].peak);
        if (i == 0 || memcmp(by[i], by[i - 1], sizeof *by))
            put_categories(f, pid, r->ran[i].issued, by[i], most);
    }
    free(p);
    free(by);
}

static void put_memory(FILE *f, int pid, const struct schedules *s, const struct run *r, int64_t before)
{
    struct point *p = calloc((size_t)r->n + 1, sizeof *p);
    struct held_point *h;
    int64_t n, m;

    if (!p)
        abort();
    put_allocated(f, pid, s, r);
    for (enum space in = SPACE_PINNED; in < NSPACE; in++) {
        char name[32];
        snprintf(name, sizeof name, "allocated, %s", space_name(in));
        n = s->spaces & IN(in) ? ledger_curve_in(s, IN(in), SCHED_STEADY, p, r->n) : 0;
        for (int64_t i = 0; i < n && i < r->n; i++)
            put_counter(f, pid, name, r->ran[i].issued, p[i].peak);
    }
    free(p);
    m = held_curve(s, r, &h);
    for (int64_t i = 0; i < m; i++)
        put_counter(f, pid, "held", h[i].t, before + h[i].bytes);
    free(h);
}

static void put_critical(FILE *f, int pid, const struct schedules *s, const struct run *r, const int64_t *path, int64_t n)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        const struct ran *ran = &r->ran[path[i]];
        fprintf(f, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"id\":%d,\"name\":\"critical path\",\"cat\":\"critical\"%s}",
                i == n - 1 ? "s" : i ? "t" : "f", pid, s->ops[ran->op].stream, 1e6 * ran->start,
                pid, i ? "" : ",\"bp\":\"e\"");
    }
}

/* One role: a process. */
static void put_role(FILE *f, int pid, const struct trace_role *role)
{
    const struct run *r = role->r;
    int64_t *critical = room_new((size_t)r->n + 1, sizeof *critical);
    bool *on_path = room_new((size_t)r->n + 1, sizeof *on_path);
    int64_t n = run_critical(r, critical, r->n);

    for (int64_t i = 0; i < n; i++)
        on_path[critical[i]] = true;
    put_rows(f, pid, role->name ? role->name : "one rank", role->s);
    for (int64_t i = 0; i < r->n; i++)
        if (r->ran[i].end > r->ran[i].start)
            put_slice(f, pid, role->s, &r->ran[i], on_path[i]);
    put_memory(f, pid, role->s, r, role->before);
    put_critical(f, pid, role->s, r, critical, n);
    free(critical);
    free(on_path);
}

int trace_write(const struct trace_role *roles, int n, const char *path)
{
    struct output o;

    if (output_open(&o, path) < 0)
        return -1;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", o.f);
    for (int i = 0; i < n; i++) {
        fputs(i ? ",\n" : "", o.f);
        put_role(o.f, i + 1, &roles[i]);
    }
    fputs("\n]}\n", o.f);
    return output_close(&o);
}

/* ---- the chart ---- */

static char letter(const struct op *o)
{
    switch ((enum op_kind)o->kind) {
    case OP_COMPUTE:   return o->u.compute.pass == PASS_FORWARD ? 'F' : 'B';
    case OP_OPTIMIZER: return 'O';
    case OP_COPY:      return 'c';
    case OP_COLL:      break;
    default:           return ' ';
    }
    switch ((enum coll_op)o->u.coll.op) {
    case COLL_ALL_GATHER:     return 'G';
    case COLL_REDUCE_SCATTER: return 'S';
    case COLL_ALL_REDUCE:     return 'R';
    case COLL_ALL_TO_ALL:     return 'A';
    case COLL_SEND:           return '>';
    case COLL_RECV:           return '<';
    default:                  return 'b';
    }
}

/* The longest entry in each cell of one stream's row; '.' where little of it is filled. */
static void gantt_row(const struct schedules *s, const struct run *r, enum stream st, int width, char *row)
{
    double cell = r->total.step_s / width;
    double *most = calloc((size_t)width, sizeof *most), *filled = calloc((size_t)width, sizeof *filled);

    if (!most || !filled)
        abort();
    memset(row, '.', (size_t)width);
    for (int64_t i = 0; i < r->n; i++) {
        const struct ran *ran = &r->ran[i];
        if (s->ops[ran->op].stream != st || ran->end <= ran->start)
            continue;
        for (int c = (int)(ran->start / cell); c < width && c * cell < ran->end; c++) {
            double from = ran->start > c * cell ? ran->start : c * cell;
            double to = ran->end < (c + 1) * cell ? ran->end : (c + 1) * cell;
            filled[c] += to - from;
            if (to - from > most[c]) {
                most[c] = to - from;
                row[c] = letter(&s->ops[ran->op]);
            }
        }
    }
    for (int c = 0; c < width; c++)
        if (filled[c] < cell / 16)
            row[c] = '.';
    free(most);
    free(filled);
}

void trace_gantt_print(const struct schedules *s, const struct run *r, int width, FILE *to)
{
    char *row = calloc((size_t)width + 1, 1);

    if (!row)
        abort();
    for (int st = 1; st < NSTREAM; st++) {
        gantt_row(s, r, (enum stream)st, width, row);
        if (strspn(row, ".") < (size_t)width)
            fprintf(to, r->total.busy_s[st] < 1e-3 ? "%10s |%s| %.3g us\n" : "%10s |%s| %.4g s\n", stream_name((enum stream)st), row,
                    r->total.busy_s[st] * (r->total.busy_s[st] < 1e-3 ? 1e6 : 1));
    }
    fprintf(to, "%10s  0%*.4g s\n%11s F forward, B backward, O optimizer, G all-gather, S reduce-scatter, R all-reduce, c copy\n",
            "", width + 1, r->total.step_s, "");
    free(row);
}
