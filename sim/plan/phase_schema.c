/* phase_schema.c -- see phase_schema.h.  Its keys are those of sim/phases/phase_plan.c (tests/sim/test_cmd_phases.sh compares them). */
#include "sim/plan/phase_schema.h"

#include <stdlib.h>

#define COUNT  "{\"type\":\"integer\",\"minimum\":1}"
#define FLAG   "{\"type\":\"boolean\"}"
#define SHARE  "{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}"
#define NAME   "{\"type\":\"string\"}"
#define NAMED  "{\"type\":[\"string\",\"object\"]}"
#define DTYPE  "{\"enum\":[\"bf16\",\"fp16\",\"fp32\"]}"
#define PLACE  "{\"enum\":[\"device\",\"states on host\",\"host\",\"weights on host\"]}"
#define NOTES  "\"patternProperties\":{\"^//\":true},\"additionalProperties\":false"

static const char engine[] =
    "{\"type\":\"object\",\"required\":[\"engine\"]," NOTES ",\"properties\":{\"engine\":{\"enum\":[\"vllm\",\"sglang\"]},\"version\":" NAME ",\"model\":" NAMED
    ",\"cluster\":" NAMED ",\"tensor\":" COUNT ",\"gpu_memory_utilization\":" SHARE ",\"mem_fraction_static\":" SHARE ",\"dtype\":" DTYPE
    ",\"kv_cache_dtype\":{\"enum\":[\"bf16\",\"fp16\",\"fp32\",\"fp8\"]},\"max_num_seqs\":" COUNT ",\"max_num_batched_tokens\":" COUNT ",\"block_size\":" COUNT
    ",\"enforce_eager\":" FLAG ",\"sleep\":{\"enum\":[0,1,2]},\"own_process\":" FLAG ",\"driven\":{\"enum\":[\"process\",\"within\",\"async\",\"server\"]},\"async_scheduling\":" FLAG
    ",\"pipeline\":" COUNT ",\"expert\":" COUNT ",\"quantization\":{\"enum\":[\"none\",\"fp8\",\"fp8-block\",\"awq\",\"gptq\"]}}}";

static const char model[] =
    "{\"type\":\"object\"," NOTES ",\"properties\":{\"train\":" NAMED ",\"infer\":" NAMED ",\"between\":" PLACE ",\"empties_cache\":" FLAG ",\"frees_gradients\":" FLAG
    ",\"pageable\":{\"enum\":[\"none\",\"states\",\"all\"]},\"shares_weights\":" FLAG ",\"own_process\":" FLAG ",\"place\":" NAME ",\"unpadded\":" FLAG ",\"packed\":" FLAG
    ",\"even_experts\":" FLAG "}}";

static const char step[] =
    "{\"type\":\"object\"," NOTES ",\"properties\":{\"name\":" NAME ",\"generate\":" NAME ",\"forward\":" NAME ",\"update\":" NAME ",\"hand_over\":" NAME ",\"to\":" NAME
    ",\"micro_batch\":" COUNT ",\"epochs\":" COUNT ",\"bucket_bytes\":" COUNT ",\"samples\":" COUNT ",\"where\":{\"type\":\"object\",\"additionalProperties\":" PLACE "}"
    ",\"time\":" NAME ",\"beside\":" NAME ",\"beside_forwards\":" COUNT ",\"held_bytes\":" COUNT ",\"with_before\":" FLAG ",\"swaps_weights\":" FLAG ",\"overlapped\":" FLAG "}}";

static const char top[] =
    "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"title\":\"phases of dpxplan\",\"type\":\"object\"," NOTES
    ",\"required\":[\"dpx_phases\",\"cluster\",\"samples\",\"roles\",\"phases\"],\"properties\":{\"$schema\":" NAME ",\"dpx_phases\":{\"const\":1},\"cluster\":" NAMED
    ",\"framework\":" NAME ",\"samples\":" COUNT ",\"of_prompt\":" COUNT ",\"prompt\":{\"type\":\"number\",\"minimum\":0},\"asynchronous\":" FLAG ",\"ahead\":" COUNT ",\"places\":{\"type\":\"object\",\"maxProperties\":3,\"additionalProperties\":" NAMED "}"
    ",\"response\":{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"mean\",\"longest\"],\"properties\":{\"mean\":{\"type\":\"number\",\"minimum\":1},"
    "\"longest\":{\"type\":\"number\",\"minimum\":1}}}}}";

static json_t *part(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);

    if (!j)
        abort();                    /* a constant of this file */
    return j;
}

json_t *phase_schema(void)
{
    json_t *schema = part(top), *keys = json_object_get(schema, "properties");

    json_object_set_new(keys, "roles", json_pack("{s:s, s:i, s:{s:[o, o]}}", "type", "object", "minProperties", 1, "additionalProperties", "oneOf", part(engine),
                                                 part(model)));
    json_object_set_new(keys, "phases", json_pack("{s:s, s:i, s:o}", "type", "array", "minItems", 1, "items", part(step)));
    return schema;
}
