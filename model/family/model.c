/* model.c -- see model.h. */
#include "model/family/model.h"

bool model_windowed(const struct model *m, int64_t layer)
{
    bool full = m->full_every > 0 && (layer + 1) % m->full_every == 0;

    return m->window > 0 && layer >= m->window_from && !full;
}

int64_t model_windowed_layers(const struct model *m)
{
    int64_t n = 0;

    for (int64_t i = 0; m->window > 0 && i < m->layers; i++)       /* asked for each plan, of models of thousands of blocks */
        n += model_windowed(m, i);
    return n;
}
