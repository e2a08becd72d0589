/* megatron_stages.c -- see megatron_stages.h. */
#include "model/exchange/megatron_stages.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/pipeline_layout.h"

#define LAYOUT "pipeline_model_parallel_layout"

/* A list of stages, each a list of "embedding", "decoder", "loss", as megatron-core takes it beside the string: Megatron-Bridge's recipes
 * have it so. */
static int text_of_list(const json_t *list, const char *where, char *out, size_t size)
{
    static const struct { const char *name; char letter; } of[] = { { "embedding", 'E' }, { "decoder", 't' }, { "loss", 'L' }, { "mtp", 'm' } };
    const json_t *stage, *layer;
    size_t s, l, n = 0;

    json_array_foreach((json_t *)(uintptr_t)list, s, stage) {
        if (!json_is_array(stage))
            return fail("%s: " LAYOUT ": expected a text such as \"Et*4|t*4L\", or a list of lists of embedding, decoder, mtp, loss", where);
        if (s > 0 && n + 1 < size)
            out[n++] = '|';
        json_array_foreach((json_t *)(uintptr_t)stage, l, layer) {
            const char *name = json_string_value(layer);
            char letter = '\0';
            for (size_t i = 0; name && i < sizeof of / sizeof *of; i++)
                if (!strcmp(name, of[i].name))
                    letter = of[i].letter;
            if (!letter)
                return fail("%s: " LAYOUT ": \"%s\": expected embedding, decoder, mtp or loss", where, name ? name : "?");
            if (n + 2 > size)
                return fail("%s: " LAYOUT ": longer than %d layers and stages", where, (int)size);
            out[n++] = letter;
        }
    }
    out[n] = '\0';
    return 0;
}

/* The text of the option, 1; 0: there is none; -1 reported. */
static int layout_of(const json_t *options, const char *where, char out[4096])
{
    const json_t *v = json_object_get(options, LAYOUT);

    if (!v)
        return 0;
    if (json_is_array(v))
        return text_of_list(v, where, out, 4096) < 0 ? -1 : 1;
    if (!json_is_string(v) || strlen(json_string_value(v)) >= 4096)
        return fail("%s: " LAYOUT ": expected a text such as \"Et*4|t*4L\"", where);
    strcpy(out, json_string_value(v));
    return 1;
}

/* The layers of an end of the pipeline, 0 where it is not said; -1 reported. */
static int64_t layers_of(const json_t *options, const char *where, const char *name, int64_t most)
{
    const json_t *v = json_object_get(options, name);
    int64_t n = json_integer_value(v);

    if (v && (n < 1 || n > most))
        return fail("%s: %s: expected a number from 1 to %" PRId64, where, name, most);
    return n;
}

int64_t megatron_stages_chunks(const json_t *options, const char *where, int64_t ranks)
{
    struct pipeline_layout l;
    char text[4096];
    int is = layout_of(options, where, text);

    if (is <= 0)
        return is;
    if (json_object_get(options, "num_layers_per_virtual_pipeline_stage") || json_object_get(options, "num_virtual_stages_per_pipeline_rank"))
        return fail("%s: " LAYOUT ": no more than one of it, num_layers_per_virtual_pipeline_stage, num_virtual_stages_per_pipeline_rank", where);
    if (pipeline_layout_read(text, where, &l) < 0)
        return -1;
    if (l.stages % ranks)
        return fail("%s: " LAYOUT ": its %d stages do not divide by pipeline_model_parallel_size %" PRId64, where, l.stages, ranks);
    return l.stages / ranks;
}

/* The ends have so many blocks, over all their chunks; the other ranks share the rest evenly. */
static int ends(const json_t *options, const char *where, int64_t ranks, int64_t chunks, const struct plan *p, struct pipeline_layout *out)
{
    int64_t first = layers_of(options, where, "decoder_first_pipeline_num_layers", p->model.layers);
    int64_t last = first < 0 ? -1 : layers_of(options, where, "decoder_last_pipeline_num_layers", p->model.layers);
    int64_t left = ranks - (first > 0) - (last > 0), rest = p->model.layers - first - last;

    if (last < 0)
        return -1;
    if (p->parallel.first_stage_less || p->parallel.last_stage_less)
        return fail("%s: decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers: not beside account_for_embedding_in_pipeline_split, "
                    "account_for_loss_in_pipeline_split", where);
    if (rest < 0 || (left > 0 ? rest % left : rest) != 0)
        return fail("%s: decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers: the %" PRId64 " other layers of %s do not divide by %" PRId64
                    " other stages", where, rest, p->model.name, left);
    if (ranks * chunks > LAYOUT_STAGES)
        return fail("%s: virtual stages: more than %d", where, (int)LAYOUT_STAGES);
    out->stages = (int)(ranks * chunks);
    out->mtp = (int)p->megatron.mtp_num_layers;
    for (int s = 0; s < out->stages; s++) {
        int64_t rank = s % ranks, blocks = rank == 0 && first ? first : rank == ranks - 1 && last ? last : rest / left;
        if (blocks % chunks)
            return fail("%s: the %" PRId64 " layers of a pipeline's rank do not divide by its %" PRId64 " virtual stages", where, blocks, chunks);
        out->blocks[s] = blocks / chunks;
    }
    return 0;
}

int megatron_stages_read(const json_t *options, const char *where, int64_t ranks, int64_t chunks, struct plan *p)
{
    bool uneven = json_object_get(options, "decoder_first_pipeline_num_layers") || json_object_get(options, "decoder_last_pipeline_num_layers");
    struct pipeline_layout l;
    char text[4096];
    int is = layout_of(options, where, text);

    p->megatron.pipeline_layout[0] = '\0';
    if (is < 0 || (!is && !uneven))
        return is;
    if (is && uneven)
        return fail("%s: " LAYOUT ": not beside decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers", where);
    if (ranks == 1)
        return fail("%s: %s: it needs pipeline_model_parallel_size", where, is ? LAYOUT : "decoder_first_pipeline_num_layers");
    if ((is ? pipeline_layout_read(text, where, &l) : ends(options, where, ranks, chunks, p, &l)) < 0)
        return -1;
    if (is && strlen(text) < sizeof p->megatron.pipeline_layout)
        strcpy(p->megatron.pipeline_layout, text);
    else if (pipeline_layout_text(&l, p->megatron.pipeline_layout, sizeof p->megatron.pipeline_layout) < 0)
        return fail("%s: " LAYOUT ": longer than the %d letters that a plan has for it", where, (int)sizeof p->megatron.pipeline_layout - 1);
    return 0;
}
