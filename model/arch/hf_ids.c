/* hf_ids.c -- models by the ids that they have on the Hugging Face hub.
 *
 * An id stands here when its config.json has the built-in's shape: tuned versions have their base's, with the same
 * vocabulary and ties.  Not here, since they differ: Llama 3 (8192 positions, no scaling), Mistral 7B v0.2 and v0.3
 * (no window; 32,768 tokens), Phi-3 mini 128k. */
#include "model/arch/builtin.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/opts.h"

static const struct { const char *id, *builtin; } ids[] = {
    { "openai-community/gpt2", "gpt2" }, { "openai-community/gpt2-medium", "gpt2-medium" },
    { "openai-community/gpt2-large", "gpt2-large" }, { "openai-community/gpt2-xl", "gpt2-xl" },
    { "facebook/opt-125m", "opt-125m" }, { "facebook/opt-350m", "opt-350m" }, { "facebook/opt-1.3b", "opt-1.3b" },
    { "facebook/opt-2.7b", "opt-2.7b" }, { "facebook/opt-6.7b", "opt-6.7b" }, { "facebook/opt-13b", "opt-13b" },
    { "facebook/opt-30b", "opt-30b" }, { "facebook/opt-66b", "opt-66b" },
    { "meta-llama/Llama-2-7b", "llama-2-7b" }, { "meta-llama/Llama-2-7b-hf", "llama-2-7b" },
    { "meta-llama/Llama-2-7b-chat-hf", "llama-2-7b" }, { "meta-llama/Llama-2-13b-hf", "llama-2-13b" },
    { "meta-llama/Llama-2-13b-chat-hf", "llama-2-13b" }, { "meta-llama/Llama-2-70b-hf", "llama-2-70b" },
    { "meta-llama/Llama-2-70b-chat-hf", "llama-2-70b" },
    { "meta-llama/Llama-3.1-8B", "llama-3.1-8b" }, { "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b" },
    { "meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b" }, { "meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b" },
    { "meta-llama/Llama-3.1-70B", "llama-3.1-70b" }, { "meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b" },
    { "meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b" }, { "meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b" },
    { "meta-llama/Llama-3.1-405B", "llama-3.1-405b" }, { "meta-llama/Llama-3.1-405B-Instruct", "llama-3.1-405b" },
    { "meta-llama/Meta-Llama-3.1-405B", "llama-3.1-405b" },
    { "meta-llama/Llama-3.2-1B", "llama-3.2-1b" }, { "meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b" },
    { "meta-llama/Llama-3.2-3B", "llama-3.2-3b" }, { "meta-llama/Llama-3.2-3B-Instruct", "llama-3.2-3b" },
    { "meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b" },
    { "Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b" }, { "Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b" },
    { "Qwen/Qwen2.5-1.5B", "qwen2.5-1.5b" }, { "Qwen/Qwen2.5-1.5B-Instruct", "qwen2.5-1.5b" },
    { "Qwen/Qwen2.5-3B", "qwen2.5-3b" }, { "Qwen/Qwen2.5-3B-Instruct", "qwen2.5-3b" },
    { "Qwen/Qwen2.5-7B", "qwen2.5-7b" }, { "Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b" },
    { "Qwen/Qwen2.5-14B", "qwen2.5-14b" }, { "Qwen/Qwen2.5-14B-Instruct", "qwen2.5-14b" },
    { "Qwen/Qwen2.5-32B", "qwen2.5-32b" }, { "Qwen/Qwen2.5-32B-Instruct", "qwen2.5-32b" },
    { "Qwen/Qwen2.5-72B", "qwen2.5-72b" }, { "Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b" },
    { "Qwen/Qwen3-0.6B", "qwen3-0.6b" }, { "Qwen/Qwen3-1.7B", "qwen3-1.7b" }, { "Qwen/Qwen3-4B", "qwen3-4b" },
    { "Qwen/Qwen3-8B", "qwen3-8b" }, { "Qwen/Qwen3-14B", "qwen3-14b" }, { "Qwen/Qwen3-32B", "qwen3-32b" },
    { "Qwen/Qwen3-0.6B-Base", "qwen3-0.6b" }, { "Qwen/Qwen3-1.7B-Base", "qwen3-1.7b" },
    { "Qwen/Qwen3-4B-Base", "qwen3-4b" }, { "Qwen/Qwen3-8B-Base", "qwen3-8b" }, { "Qwen/Qwen3-14B-Base", "qwen3-14b" },
    { "mistralai/Mistral-7B-v0.1", "mistral-7b" }, { "mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b" },
    { "mistralai/Mistral-Nemo-Base-2407", "mistral-nemo-12b" }, { "mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b" },
    { "mistralai/Mistral-Small-24B-Base-2501", "mistral-small-3-24b" },
    { "mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-3-24b" },
    { "mistralai/Ministral-8B-Instruct-2410", "ministral-8b" },
    { "google/gemma-2b", "gemma-2b" }, { "google/gemma-2b-it", "gemma-2b" }, { "google/gemma-7b", "gemma-7b" },
    { "google/gemma-7b-it", "gemma-7b" }, { "google/gemma-2-2b", "gemma-2-2b" }, { "google/gemma-2-2b-it", "gemma-2-2b" },
    { "google/gemma-2-9b", "gemma-2-9b" }, { "google/gemma-2-9b-it", "gemma-2-9b" },
    { "google/gemma-2-27b", "gemma-2-27b" }, { "google/gemma-2-27b-it", "gemma-2-27b" },
    { "google/gemma-3-1b-pt", "gemma-3-1b" }, { "google/gemma-3-1b-it", "gemma-3-1b" },
    { "google/gemma-3-4b-pt", "gemma-3-4b" }, { "google/gemma-3-4b-it", "gemma-3-4b" },
    { "google/gemma-3-12b-pt", "gemma-3-12b" }, { "google/gemma-3-12b-it", "gemma-3-12b" },
    { "google/gemma-3-27b-pt", "gemma-3-27b" }, { "google/gemma-3-27b-it", "gemma-3-27b" },
    { "allenai/OLMo-2-0425-1B", "olmo-2-1b" }, { "allenai/OLMo-2-1124-7B", "olmo-2-7b" },
    { "allenai/OLMo-2-1124-13B", "olmo-2-13b" }, { "allenai/OLMo-2-0325-32B", "olmo-2-32b" },
    { "ibm-granite/granite-3.1-8b-base", "granite-3.1-8b" }, { "ibm-granite/granite-3.1-8b-instruct", "granite-3.1-8b" },
    { "HuggingFaceTB/SmolLM3-3B", "smollm3-3b" }, { "HuggingFaceTB/SmolLM3-3B-Base", "smollm3-3b" },
    { "stabilityai/stablelm-3b-4e1t", "stablelm-3b" }, { "stabilityai/stablelm-2-1_6b", "stablelm-2-1.6b" },
    { "stabilityai/stablelm-2-12b", "stablelm-2-12b" },
    { "CohereForAI/c4ai-command-r-v01", "command-r-35b" }, { "CohereLabs/c4ai-command-r-v01", "command-r-35b" },
    { "CohereForAI/c4ai-command-r-plus", "command-r-plus-104b" }, { "CohereLabs/c4ai-command-r-plus", "command-r-plus-104b" },
    { "CohereForAI/c4ai-command-r7b-12-2024", "command-r7b" }, { "CohereLabs/c4ai-command-r7b-12-2024", "command-r7b" },
    { "THUDM/glm-4-9b-hf", "glm-4-9b" }, { "zai-org/glm-4-9b-hf", "glm-4-9b" },
    { "THUDM/GLM-4-9B-0414", "glm-4-9b-0414" }, { "zai-org/GLM-4-9B-0414", "glm-4-9b-0414" },
    { "THUDM/GLM-4-32B-0414", "glm-4-32b-0414" }, { "zai-org/GLM-4-32B-0414", "glm-4-32b-0414" },
    { "nvidia/Minitron-4B-Base", "minitron-4b" }, { "ByteDance-Seed/Seed-OSS-36B-Base", "seed-oss-36b" },
    { "ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss-36b" }, { "LGAI-EXAONE/EXAONE-4.0-32B", "exaone-4.0-32b" },
    { "baidu/ERNIE-4.5-0.3B-PT", "ernie-4.5-0.3b" },
    { "microsoft/phi-1_5", "phi-1.5" }, { "microsoft/phi-2", "phi-2" }, { "microsoft/Phi-3-mini-4k-instruct", "phi-3-mini" },
    { "microsoft/phi-4", "phi-4" },
    { "tiiuae/falcon-7b", "falcon-7b" }, { "tiiuae/falcon-7b-instruct", "falcon-7b" }, { "tiiuae/falcon-40b", "falcon-40b" },
    { "tiiuae/falcon-180B", "falcon-180b" }, { "EleutherAI/gpt-neox-20b", "gpt-neox-20b" },
    { "bigscience/bloom-560m", "bloom-560m" }, { "bigscience/bloom-7b1", "bloom-7b1" }, { "bigscience/bloom", "bloom-176b" },
    { "bigcode/starcoder2-3b", "starcoder2-3b" }, { "bigcode/starcoder2-7b", "starcoder2-7b" },
    { "bigcode/starcoder2-15b", "starcoder2-15b" },
    { "mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b" }, { "mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b" },
    { "mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b" },
    { "Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b" }, { "Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b" },
    { "deepseek-ai/DeepSeek-V3", "deepseek-v3" }, { "deepseek-ai/DeepSeek-V3-Base", "deepseek-v3" },
    { "deepseek-ai/DeepSeek-R1", "deepseek-v3" }, { "moonshotai/Moonlight-16B-A3B", "moonlight-16b-a3b" },
    { "moonshotai/Moonlight-16B-A3B-Instruct", "moonlight-16b-a3b" },
    { "openai/gpt-oss-20b", "gpt-oss-20b" }, { "openai/gpt-oss-120b", "gpt-oss-120b" },
    { "meta-llama/Llama-4-Scout-17B-16E", "llama-4-scout" }, { "meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout" },
    { "meta-llama/Llama-4-Maverick-17B-128E", "llama-4-maverick" },
    { "meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick" },
    { "ibm-granite/granite-3.0-1b-a400m-base", "granite-3.0-1b-a400m" },
    { "ibm-granite/granite-3.0-1b-a400m-instruct", "granite-3.0-1b-a400m" },
    { "ibm-granite/granite-3.0-3b-a800m-base", "granite-3.0-3b-a800m" },
    { "ibm-granite/granite-3.0-3b-a800m-instruct", "granite-3.0-3b-a800m" },
    { "allenai/OLMoE-1B-7B-0924", "olmoe-1b-7b" }, { "allenai/OLMoE-1B-7B-0924-Instruct", "olmoe-1b-7b" },
};
#define NIDS ((int)(sizeof ids / sizeof *ids))

const char *hf_ids_find(const char *name)
{
    const char *known;

    for (int i = 0; (known = model_builtin(i, NULL)); i++)
        if (!strcasecmp(known, name))
            return known;
    for (int i = 0; i < NIDS; i++) {
        const char *own = strchr(ids[i].id, '/') + 1;
        if (!strcasecmp(ids[i].id, name) || (!strchr(name, '/') && !strcasecmp(own, name)))
            return ids[i].builtin;
    }
    return NULL;
}

/* Are all letters of `typed` in `word`, in their order, and at most two more? */
static bool leaves_out(const char *typed, const char *word)
{
    if (strlen(word) > strlen(typed) + 2)
        return false;
    for (; *word; word++)
        typed += *typed == *word;
    return !*typed;
}

const char *hf_ids_nearest(const char *name)
{
    enum { MOST = 512 };
    char lower[MOST][64];
    const char *words[MOST + 1], *known;
    char typed[64];
    int n = 0, builtins;

    for (; n < MOST && (known = model_builtin(n, NULL)); n++)
        words[n] = known;
    builtins = n;
    for (int i = 0; i < NIDS && n < MOST; i++, n++) {
        for (int k = 0; k == 0 || lower[n][k - 1]; k++)
            lower[n][k] = (char)(ids[i].id[k] >= 'A' && ids[i].id[k] <= 'Z' ? ids[i].id[k] + 32 : ids[i].id[k]);
        words[n] = lower[n];
    }
    words[n] = NULL;
    snprintf(typed, sizeof typed, "%s", name);
    for (char *c = typed; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
    const char *near = opts_nearest_word(typed, words);
    for (int i = 0; near && i < builtins && !leaves_out(typed, near); i++)      /* llama-3-8b: of 3.1, not 2-7b */
        if (leaves_out(typed, words[i]))
            near = words[i];
    for (int i = 0; near && i < n; i++)
        if (words[i] == near)
            return i < builtins ? near : ids[i - builtins].id;
    return NULL;
}
