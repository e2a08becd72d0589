/* cmd_collectives.c -- dpxplan collectives: the algorithms of one operation side by side. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/columns.h"
#include "base/fail.h"
#include "base/opts.h"
#include "base/page.h"
#include "base/size.h"
#include "sim/plan/answer_words.h"
#include "sim/plan/commands.h"
#include "sim/price/coll_algo.h"
#include "sim/price/coll_cost.h"
#include "sim/price/nccl_cost.h"

static const char *seconds(double s, char out[24])
{
    if (s < 1e-3)
        snprintf(out, 24, "%.2f us", s * 1e6);
    else if (s < 1)
        snprintf(out, 24, "%.3f ms", s * 1e3);
    else
        snprintf(out, 24, "%.3f s", s);
    return out;
}

static struct size_text bytes_text(double bytes)
{
    return size_text(bytes < (double)SIZE_LIMIT ? llround(bytes) : SIZE_LIMIT);
}

/* Bytes/s, 0 where nothing was moved. */
static double rate(double bytes, double time)
{
    return time > 0 ? bytes / time : 0;
}

static const struct column columns[] = {
    { "algorithm", false, 0 }, { "time", true, 0 }, { "steps", true, 2 }, { "sent/rank", true, 1 }, { "peak node", true, 4 }, { "total", true, 3 },
    { "algbw", true, 5 }, { "busbw", true, 1 }, { "latency", false, 2 }, { "bytes", false, 2 },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_head(const struct coll_net *net, enum coll_op op, int64_t bytes, FILE *to)
{
    fprintf(to, "%s of %s over %.0f ranks", coll_name(op), size_text(bytes).s, net->ranks);
    if (net->nodes > 1)
        fprintf(to, ", %.0f a node on %.0f nodes", net->per_node, net->nodes);
    fprintf(to, "\nalpha %.2f us, beta 1/%.1f GB/s", net->alpha_intra * 1e6, net->beta_intra > 0 ? 1e-9 / net->beta_intra : 0);
    if (net->nodes > 1)
        fprintf(to, "; between nodes %.2f us, %s a node", net->alpha_inter * 1e6, answer_network(net->nic * net->nics).s);
    fprintf(to, "; gamma %.1f ps/B\n\n", net->gamma * 1e12);
}

static void add_row(struct columns *t, const struct coll_algo *a, const struct coll_figures *f, double bytes, double factor)
{
    char time[24];

    columns_cell(t, "%s", a->name);
    columns_cell(t, "%s", seconds(f->time_s, time));
    columns_cell(t, "%.0f", f->steps);
    columns_cell(t, "%s", bytes_text(f->sent).s);
    columns_cell(t, "%s", bytes_text(f->peak).s);
    columns_cell(t, "%s", bytes_text(f->total).s);
    columns_cell(t, "%.2f", rate(bytes, f->time_s) / 1e9);
    columns_cell(t, "%.2f", factor * rate(bytes, f->time_s) / 1e9);
    columns_cell(t, "%s", a->latency);
    columns_cell(t, "%s", a->bandwidth);
}

static json_t *row_json(const struct coll_algo *a, const struct coll_figures *f, double bytes, double factor)
{
    return json_pack("{s:s, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s}", "name", a->name, "time_s", f->time_s,
                     "steps", (json_int_t)llround(f->steps), "sent_bytes_per_rank", (json_int_t)llround(f->sent),
                     "peak_node_bytes", (json_int_t)llround(f->peak), "total_bytes", (json_int_t)llround(f->total),
                     "algbw", rate(bytes, f->time_s), "busbw", factor * rate(bytes, f->time_s),
                     "latency_growth", a->latency, "bandwidth_growth", a->bandwidth);
}

/* What the library on this cluster would run, and how long coll_cost() expects it to take. */
static void print_choice(const struct cluster *c, const struct nccl_choice *nccl, enum coll_op op, int64_t ranks, const struct cost *cost, FILE *to)
{
    char t[24], low[24], high[24];

    if (ranks < 2) {
        fputs("\nOne rank: nothing moves.\n", to);
        return;
    }
    fputs("\nBandwidths (bw) are GB/s; latency and bytes: how either grows with the number of ranks N.\n", to);
    if (!c->is_host)
        fprintf(to, "%s would run %s with protocol %s here. ", c->gpu.sm_arch ? "NCCL" : "RCCL", nccl_algo_name(nccl->algo),
                nccl_proto_name(nccl->proto));
    fprintf(to, "Expected: %s (90 %% between %s and %s; %s).\n", seconds(cost->s, t), seconds(cost->low_s, low), seconds(cost->high_s, high),
            basis_name(cost->basis));
    if (op == COLL_ALL_REDUCE)
        fputs("O(1) in bytes: each rank moves about 2S however many ranks there are. A server's port moves S for each worker, O(N). "
              "A ring is O(1) while bandwidth binds and O(N) once 2(N-1) latencies do.\n", to);
}

/* "all_reduce" as the schedules print it, or "all-reduce". */
static int parse_op(const char *text)
{
    char word[32];
    size_t n = strlen(text);

    if (n >= sizeof word)
        return -1;
    for (size_t i = 0; i <= n; i++)
        word[i] = text[i] == '-' ? '_' : text[i];
    for (int op = 0; op < NCOLL; op++)
        if (!strcmp(word, coll_name((enum coll_op)op)))
            return op;
    return -1;
}

struct args { const char *op, *cluster; int64_t ranks, bytes; bool json; };

/* Of one question: what the wires are, what the library chooses, and how long it would take. */
struct compared { int64_t per_node; struct coll_net wires; struct nccl_choice nccl; struct cost cost; };

static int prepare(const struct args *a, const struct cluster *c, enum coll_op op, struct compared *out)
{
    struct nccl_net net;

    *out = (struct compared){ .per_node = a->ranks < c->gpus_per_node ? a->ranks : c->gpus_per_node };
    if (coll_cost(c, op, a->ranks, out->per_node, a->bytes, &out->cost) < 0)
        return -1;
    coll_net_of(c, a->ranks, out->per_node, &out->wires);
    if (!c->is_host) {
        nccl_net_of(c, a->ranks, out->per_node, &net);
        nccl_choose(&net, op, a->bytes, &out->nccl);
    }
    return 0;
}

static int print(const struct args *a, const struct cluster *c, enum coll_op op, const struct compared *of)
{
    static const struct column legend[] = { { "", false, 0 }, { "", false, 0 } };
    struct columns *t = columns_new(columns, COLUMNS), *what = columns_new(legend, 2);
    FILE *to = page_open(stdout);
    const struct coll_algo *algo;
    struct coll_figures f;

    if (!to)
        return EXIT_FAILED;
    print_head(&of->wires, op, a->bytes, to);
    for (int i = 0; (algo = coll_algo_at(i)); i++)
        if (algo->op == op && coll_algo_cost(algo, &of->wires, (double)a->bytes, &f)) {
            add_row(t, algo, &f, (double)a->bytes, coll_bus_factor(op, a->ranks));
            columns_cell(what, "%s", algo->name);
            columns_cell(what, "%s", algo->about ? algo->about : "");
        }
    columns_print(t, to, page_width(stdout));
    fputc('\n', to);
    columns_print(what, to, page_width(stdout));
    print_choice(c, &of->nccl, op, a->ranks, &of->cost, to);
    page_close(to);
    return EXIT_DONE;
}

static int print_json(const struct args *a, const struct cluster *c, enum coll_op op, const struct compared *of)
{
    bool chosen = !c->is_host && a->ranks > 1;
    json_t *rows = json_array();
    const struct coll_algo *algo;
    struct coll_figures f;

    for (int i = 0; (algo = coll_algo_at(i)); i++)
        if (algo->op == op && coll_algo_cost(algo, &of->wires, (double)a->bytes, &f))
            json_array_append_new(rows, row_json(algo, &f, (double)a->bytes, coll_bus_factor(op, a->ranks)));
    return dpxplan_print_json(json_pack("{s:s, s:I, s:I, s:I, s:o, s:s?, s:s?, s:{s:f, s:f, s:f, s:s}}", "op", a->op,
                                "ranks", (json_int_t)a->ranks, "per_node", (json_int_t)of->per_node,
                                "bytes", (json_int_t)a->bytes, "algorithms", rows,
                                "library_algorithm", chosen ? nccl_algo_name(of->nccl.algo) : NULL,
                                "library_protocol", chosen ? nccl_proto_name(of->nccl.proto) : NULL,
                                "expected", "time_s", of->cost.s, "low_s", of->cost.low_s, "high_s", of->cost.high_s,
                                "basis", basis_name(of->cost.basis)), EXIT_DONE);
}

int cmd_collectives(int argc, char **argv)
{
    struct args a = { .op = "all_reduce" };
    struct compared of;
    struct cluster c;
    const struct opt opts[] = {
        OPTS_EXAMPLE("dpxplan collectives --op all_reduce --bytes 1GB --cluster 4x8xh100"),
        { "op",      "all_reduce, all_gather, reduce_scatter, broadcast, reduce, scatter, gather, barrier, "
                     "all_to_all, send, recv",               .str = &a.op },
        { "ranks",   "ranks that take part (default: all of the cluster)", .i = &a.ranks, .min = 1 },
        { "bytes",   "the full buffer, such as 25MiB",       .bytes = &a.bytes, .required = true },
        { "cluster", "such as 4x8xh100, a file, localhost:4", .str = &a.cluster, .required = true },
        { "json",    "print one JSON document",              .flag = &a.json },
        { 0 }
    };
    int rc = opts_parse("dpxplan collectives", "The algorithms of one collective side by side: time, what a rank sends (in a tree the "
                        "busiest, of a parameter server a worker), what all send.", opts, argc, argv), op;

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    op = parse_op(a.op);
    if (op < 0) {
        fail("--op \"%s\": expected all_reduce, all_gather, reduce_scatter, broadcast, reduce, scatter, gather, "
             "barrier, all_to_all, send or recv", a.op);
        return EXIT_MISUSE;
    }
    if (cluster_load(a.cluster, &c) < 0)
        return EXIT_MISUSE;
    if (!a.ranks)
        a.ranks = c.world_size;
    if (a.ranks > c.world_size) {
        fail("--ranks %" PRId64 ": the cluster '%s' has %" PRId64, a.ranks, a.cluster, c.world_size);
        return EXIT_MISUSE;
    }
    if (prepare(&a, &c, (enum coll_op)op, &of) < 0)
        return EXIT_MISUSE;
    return a.json ? print_json(&a, &c, (enum coll_op)op, &of) : print(&a, &c, (enum coll_op)op, &of);
}
