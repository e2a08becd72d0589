/* titan_registry.c -- the configs that torchtitan keeps under a name: CONFIG=llama3_70b ./run_train.sh.
 *
 * Values of torchtitan/models/NAME/config_registry.py, April 2026 (00d1c0e4).  There "selective" has no option any more:
 * what selective checkpoints save goes by operators. */
#include "model/exchange/titan_registry.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts.h"

#define TRAIN(batch, seq) "'training':{'local_batch_size':" #batch ",'seq_len':" #seq "}"
#define SELECTIVE "'activation_checkpoint':{'mode':'selective','selective_ac_option':'op'}"
#define FULL      "'activation_checkpoint':{'mode':'full'}"

/* With ' for ". */
static const struct { const char *name, *config; } registry[] = {
    { "llama3_8b",        "{" TRAIN(1, 8192) "," SELECTIVE "}" },
    { "llama3_70b",       "{" TRAIN(8, 8192) "," FULL ",'parallelism':{'tensor_parallel_degree':8}}" },
    { "llama3_405b",      "{" TRAIN(2, 8192) "," FULL ",'parallelism':{'tensor_parallel_degree':8,'enable_async_tensor_parallel':true},"
                          "'compile':{'enable':true},'model':{'converters':['float8']},'float8':{'enable_fsdp_float8_all_gather':true,"
                          "'precompute_float8_dynamic_scale_for_fsdp':true,'filter_fqns':['output']}}" },
    { "llama3_debugmodel", "{" TRAIN(8, 2048) "," SELECTIVE ",'parallelism':{'pipeline_parallel_schedule':'Interleaved1F1B'}}" },
    { "llama3_debugmodel_float8", "{" TRAIN(8, 2048) "," SELECTIVE ",'parallelism':{'pipeline_parallel_schedule':'Interleaved1F1B'},"
                          "'model':{'converters':['float8']},'float8':{'enable_fsdp_float8_all_gather':true,'precompute_float8_dynamic_scale_for_fsdp':true}}" },
    { "qwen3_debugmodel", "{" TRAIN(8, 2048) "," SELECTIVE "}" },
    { "qwen3_debugmodel_param_groups", "{" TRAIN(8, 2048) "," SELECTIVE "}" },
    { "qwen3_0_6b",       "{" TRAIN(4, 4096) "," SELECTIVE "}" },
    { "qwen3_1_7b",       "{" TRAIN(4, 4096) "," SELECTIVE "}" },
    { "qwen3_14b",        "{" TRAIN(4, 4096) "," FULL "}" },
    { "qwen3_32b",        "{" TRAIN(2, 4096) "," FULL "}" },
    { "sft_qwen3_8b_math", "{" TRAIN(1, 2048) "," SELECTIVE "}" },
    { "llama4_17bx16e",   "{" TRAIN(8, 8192) "," FULL ",'parallelism':{'tensor_parallel_degree':8,'expert_tensor_parallel_degree':8}}" },
    { "llama4_17bx128e",  "{" TRAIN(1, 8192) "," FULL ",'parallelism':{'tensor_parallel_degree':8,'pipeline_parallel_degree':4,"
                          "'expert_tensor_parallel_degree':8}}" },
    { "deepseek_v3_671b", "{" TRAIN(4, 4096) "," SELECTIVE ",'parallelism':{'pipeline_parallel_schedule':'Interleaved1F1B'},"
                          "'compile':{'enable':true,'components':['loss']},'model':{'converters':['float8']},"
                          "'float8':{'filter_fqns':['output','router.gate'],'moe_fqns_prototype':['experts']}}" },
    { "gpt_oss_20b",      "{" TRAIN(1, 8192) "," FULL "}" },
    { "gpt_oss_120b",     "{" TRAIN(1, 8192) "," FULL "}" },
};
enum { N = sizeof registry / sizeof *registry };

json_t *titan_registry_parse(const char *config)
{
    char *text = strdup(config);
    json_t *j;

    if (!text)
        abort();
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    j = json_loads(text, 0, NULL);
    free(text);
    return j;
}

/* torchtitan looks for a config in its module's registry alone: llama3's, of any other module another config has that name. */
static int check_module(const json_t *config, const char *name, const char *where)
{
    const char *module = json_string_value(json_object_get(config, "module"));
    size_t n = module ? strlen(module) : 0;
    const char *own = !strncmp(name, "sft_", 4) ? name + 4 : name;

    if (module && (strncmp(own, module, n) != 0 || own[n] != '_'))
        return fail("%s: module: %.60s has no config %s: its registry is not known", where, module, name);
    return 0;
}

json_t *titan_registry(const json_t *config, const char *where)
{
    const char *name = json_string_value(json_object_get(config, "config")), *words[N + 1], *near;
    json_t *out = NULL;

    if (!name)
        return json_incref((json_t *)(uintptr_t)config);
    if (*name == '$') {
        fail("%s: config: the script does not say the value of %s: write the config's name in its place", where, name);
        return NULL;
    }
    if (check_module(config, name, where) < 0)
        return NULL;
    for (int i = 0; i < N; i++) {
        words[i] = registry[i].name;
        if (!strcmp(name, registry[i].name))
            out = titan_registry_parse(registry[i].config);
    }
    words[N] = NULL;
    if (out) {
        json_object_update_recursive(out, (json_t *)(uintptr_t)config);
        return out;
    }
    near = opts_nearest_word(name, words);
    fail("%s: config: the values of %s are in torchtitan's config_registry.py, and are not known: give them as options%s%s%s", where, name,
         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return NULL;
}
