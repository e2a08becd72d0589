/* megatron_graphs.c -- see megatron_graphs.h.  --cuda-graph-impl and --cuda-graph-scope (core 0.16.1); the older --enable-cuda-graph and
 * --external-cuda-graph; of later versions --cuda-graph-modules, and full_iteration as an implementation. */
#include "model/exchange/megatron_graphs.h"

#include <string.h>

#include "base/fail.h"

/* "attn,mlp", a list of them, or "full": whole layers. */
static int read_scope(const struct import *in, const char *option)
{
    const json_t *v = json_object_get(in->from, option);
    char *out = in->p->megatron.cuda_graph_scope;
    size_t n = 0, parts = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v);

    for (size_t i = 0; i < parts; i++) {
        const char *s = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!s || !*s || n + strlen(s) + 2 > PLAN_MAX_MODULES)
            return fail("%s: %s: expected names such as attn, mlp, moe_router", in->where, option);
        n += (size_t)sprintf(out + n, "%s%s", i ? "," : "", s);
    }
    if (!strcmp(out, "full"))
        *out = '\0';
    return 0;
}

int megatron_read_graphs(struct import *in)
{
    struct megatron_options *o = &in->p->megatron;
    bool has = import_has(in, "cuda_graph_impl"), step = import_says(in, "cuda_graph_impl", "full_iteration");
    bool enable = import_has(in, "enable_cuda_graph"), external = import_has(in, "external_cuda_graph");

    if (has && (enable || external) && !import_says(in, "cuda_graph_impl", "none"))
        return fail("%s: cuda_graph_impl: Do not use enable_cuda_graph or external_cuda_graph with cuda_graph_impl.", in->where);
    if (enable && external)
        return fail("%s: enable_cuda_graph and external_cuda_graph cannot be enabled at the same time.", in->where);
    if (has && !step && !import_says(in, "cuda_graph_impl", "none") && !import_says(in, "cuda_graph_impl", "local") &&
        !import_says(in, "cuda_graph_impl", "transformer_engine"))
        return fail("%s: cuda_graph_impl: expected none, local, transformer_engine, or full_iteration", in->where);
    if (external || import_says(in, "cuda_graph_impl", "transformer_engine"))
        o->cuda_graph_impl = GRAPHS_TE;
    else if (enable || step || import_says(in, "cuda_graph_impl", "local"))
        o->cuda_graph_impl = GRAPHS_LOCAL;
    else
        return 0;
    if (step)
        strcpy(o->cuda_graph_scope, "full_iteration");
    else if (read_scope(in, import_has(in, "cuda_graph_modules") ? "cuda_graph_modules" : "cuda_graph_scope") < 0)
        return -1;
    return 0;
}

void megatron_write_graphs(const struct plan *p, FILE *to)
{
    const struct megatron_options *o = &p->megatron;

    if (o->cuda_graph_impl == GRAPHS_NONE)
        return;
    fprintf(to, "--cuda-graph-impl %s\n", o->cuda_graph_impl == GRAPHS_LOCAL ? "local" : "transformer_engine");
    if (o->cuda_graph_scope[0])
        fprintf(to, "--cuda-graph-scope ");
    for (const char *at = o->cuda_graph_scope; *at; at++)
        fputc(*at == ',' ? ' ' : *at, to);
    fprintf(to, "%s--te-rng-tracker\n", o->cuda_graph_scope[0] ? "\n" : "");
    if (o->cuda_graph_impl == GRAPHS_LOCAL && p->parallel.expert > 1)       /* training/arguments.py asks for it; a training reads it nowhere */
        fprintf(to, "--moe-pad-experts-for-cuda-graph-inference\n");
}
