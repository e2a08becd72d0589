/* Requests to libdpx, changed by their structure: {"eval": {request}}, the function by the name of the only member.
 * Every answer is a document that keeps dpx.h's promises, or one line. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <jansson.h>

#include "lib/dpx.h"

const char *const fuzz_words[] = {
    "\"strategy\": \"ddp\"", "\"strategy\": \"zero2\"", "\"strategy\": \"zero3\"", "\"strategy\": \"fsdp\"",
    "\"strategy\": [\"ddp\", \"fsdp\"]", "\"dialect\": \"paper\"", "\"dialect\": \"torch\"", "\"dialect\": \"deepspeed\"",
    "\"precision\": \"bf16\"", "\"precision\": \"fp32\"", "\"recompute\": \"full\"", "\"framework\": \"torch\"",
    "\"set\": {\"nodes\": 2}", "\"set\": {\"seq\": \"2k\", \"clip\": null}", "\"set\": {\"strategy\": \"zero3\"}",
    "\"set\": {\"global_batch\": 64}", "\"set\": {\"gpu\": \"h100\"}", "\"set\": {\"network\": 400}", "\"schedule\": true",
    "\"tokens\": \"1T\"", "\"price\": 2.5", "\"watts\": 700", "\"jitter\": \"0.03,20e-6\"", "\"jitter\": \"0.03\"",
    "\"alloc_conf\": \"expandable_segments:True\"", "\"top\": 1", "\"threads\": 1", "\"no_offload\": true",
    "\"memory\": \"16GB\"", "\"headroom\": 0.1", "\"global_batch\": 8", "\"micro_batch\": 1", "\"accumulation\": 2",
    "\"export_to\": \"torchtitan\"", "\"to\": \"accelerate\"", "\"to\": \"fsdp\"",
    "\"model\": {\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 3, \"n_head\": 2, \"vocab_size\": 65}",
    "\"cluster\": \"2xa100\"", "\"cluster\": {\"gpu\": \"h100\", \"nodes\": 2, \"gpus_per_node\": 2}",
    "\"oom_text\": \"Tried to allocate 2.00 GiB.\"", "\"oom\": {\"allocated_bytes.all.peak\": 1, \"reserved_bytes.all.peak\": 2}",
    "\"over\": {\"nodes\": [1, 2], \"seq\": \"512..1024*2\"}", "\"over\": {\"gpu\": \"a100,h100\"}", "\"what\": \"gpus\"",
    "\"states_only\": true", "\"world\": 4", "\"offload\": \"optimizer\"",
    "\"ds_config\": {\"zero_optimization\": {\"stage\": 2}}", "\"accelerate\": {\"distributed_type\": \"FSDP\"}", NULL
};

static bool small_numbers(const json_t *v)
{
    const char *key;
    json_t *x;
    size_t i;
    bool ok = !json_is_integer(v) || (json_integer_value(v) <= 1LL << 53 && json_integer_value(v) >= -(1LL << 53));

    json_object_foreach((json_t *)v, key, x)
        ok = ok && small_numbers(x);
    json_array_foreach((json_t *)v, i, x)
        ok = ok && small_numbers(x);
    return ok;
}

/* Stops a search soon: eval tries what comes after it. */
static int stop(void *data, long long done, long long total)
{
    must_hold(done >= 0 && done <= total);
    return ++*(int *)data == 8;
}

static int ask(const char *name, const char *request, char **answer)
{
    int calls = 0;
    struct dpx_watch w = { stop, &calls };

    return !strcmp(name, "search") ? dpx_search(request, &w, answer) : !strcmp(name, "explain") ? dpx_explain(request, answer)
         : !strcmp(name, "sweep") ? dpx_sweep(request, &w, answer) : !strcmp(name, "limits") ? dpx_limits(request, answer)
         : !strcmp(name, "fit") ? dpx_fit(request, answer)
         : !strcmp(name, "list") ? dpx_list(request, answer)
         : !strcmp(name, "import") ? dpx_import(request, answer) : !strcmp(name, "export") ? dpx_export(request, answer)
         : dpx_eval(request, answer);
}

static bool check(int status, const char *answer)
{
    must_hold(answer);
    if (status == DPX_DONE || status == DPX_NO) {
        json_t *doc = json_loads(answer, JSON_REJECT_DUPLICATES, NULL);
        must_hold(doc && json_integer_value(json_object_get(doc, "dpx")) == DPX_API);
        must_hold(json_is_array(json_object_get(doc, "notes")) && small_numbers(doc));
        json_decref(doc);
        return true;
    }
    must_hold(status == DPX_FAILED || status == DPX_MISUSE || status == DPX_CANCELLED);
    must_hold(answer[0] && !strchr(answer, '\n'));
    return status == DPX_CANCELLED;
}

/* Blocks are alike: a thousand of them only take longer. */
static bool is_deep(const json_t *v)
{
    static const char *const layers[] = { "n_layer", "num_hidden_layers", "n_layers" };
    const char *key;
    json_t *x;
    size_t i;
    bool deep = false;

    for (size_t k = 0; k < sizeof layers / sizeof *layers; k++)
        deep |= json_integer_value(json_object_get(v, layers[k])) > 100;
    json_object_foreach((json_t *)v, key, x)
        deep |= is_deep(x);
    json_array_foreach((json_t *)v, i, x)
        deep |= is_deep(x);
    return deep;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *j = json_loadb((const char *)data, size, 0, NULL), *request;
    const char *name;
    bool taken = false;
    char *answer;

    setenv("DPX_MEASURED", "/nonexistent", 1);
    setenv("XDG_DATA_HOME", "/nonexistent", 1);
    if (!j) {                           /* not even JSON: as it is */
        char *text = fuzz_string(data, size);
        int status = dpx_eval(text, &answer);
        check(status, answer);
        dpx_free(answer);
        free(text);
    }
    json_object_foreach(j, name, request) {
        if (is_deep(request) || (!strcmp(name, "fit") && !json_is_object(json_object_get(request, "model"))))
            break;                      /* the second: many searches, of a model that is not tiny */
        char *text = json_dumps(request, JSON_ENCODE_ANY);
        must_hold(text);
        int status = ask(name, text, &answer);
        taken |= check(status, answer);
        dpx_free(answer);
        free(text);
        break;
    }
    json_decref(j);
    return fuzz_count(data, size, taken);
}
