/* fit_model.h -- the MODEL of dpxplan fit: a name, a config.json, or a recipe, as the options that `search` would be asked with.
 *
 *     struct fit_model m;
 *     if (fit_model_read(path, doc, &m) < 0)
 *         return EXIT_MISUSE;
 *     ... m.ask.model, m.ask.seq, m.ask.tuned, m.batch ... */
#ifndef DPX_FIT_MODEL_H
#define DPX_FIT_MODEL_H

#include "sim/plan/search_args.h"

struct fit_model {
    struct search_args ask;         /* model, and what a recipe says of seq, precision, what trains and the optimizer */
    bool     recipe;
    int64_t  batch;                 /* samples of a step that the recipe states; 0: none */
    bool     batch_a_gpu;           /* they are of one GPU: more GPUs take more */
    char     name[512], targets[TRAINING_LIST], saves[TRAINING_LIST];   /* ask points to them */
};

/* 0, or -1 with the reason reported: no such model, a recipe that trains what `search` has no option for. */
int fit_model_read(const char *path, const struct json_t *doc, struct fit_model *out);

#endif
