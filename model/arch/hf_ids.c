/* hf_ids.c -- models by the ids that they have on the Hugging Face hub.
 *
 * An id stands here when its config.json has the built-in's shape: tuned versions have their base's, with the same
 * vocabulary and ties; copies under other names (NousResearch, unsloth, in 4 bits too) are their models.  The longest
 * sample and the base of positions may differ, which change no size.  Not here, since they differ: Phi-3 mini 128k. */
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
    { "nvidia/Nemotron-H-4B-Base-8K", "nemotron-h-4b" }, { "nvidia/Nemotron-H-4B-Instruct-128K", "nemotron-h-4b" },
    { "nvidia/Nemotron-H-8B-Base-8K", "nemotron-h-8b" }, { "nvidia/Nemotron-H-8B-Reasoning-128K", "nemotron-h-8b" },
    { "nvidia/Nemotron-H-47B-Base-8K", "nemotron-h-47b" }, { "nvidia/Nemotron-H-47B-Reasoning-128K", "nemotron-h-47b" },
    { "nvidia/Nemotron-H-56B-Base-8K", "nemotron-h-56b" },
    { "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2" }, { "nvidia/NVIDIA-Nemotron-Nano-9B-v2-Base", "nemotron-nano-9b-v2" },
    { "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b" },
    { "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-Base-BF16", "nemotron-3-nano-30b-a3b" },
    { "nvidia/NVIDIA-Nemotron-Nano-12B-v2", "nemotron-nano-12b-v2" }, { "nvidia/NVIDIA-Nemotron-Nano-12B-v2-Base", "nemotron-nano-12b-v2" },
    { "nvidia/Minitron-4B-Base", "minitron-4b" }, { "ByteDance-Seed/Seed-OSS-36B-Base", "seed-oss-36b" },
    { "ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss-36b" }, { "LGAI-EXAONE/EXAONE-4.0-32B", "exaone-4.0-32b" },
    { "baidu/ERNIE-4.5-0.3B-PT", "ernie-4.5-0.3b" },
    { "microsoft/phi-1_5", "phi-1.5" }, { "microsoft/phi-2", "phi-2" }, { "microsoft/Phi-3-mini-4k-instruct", "phi-3-mini" },
    { "microsoft/phi-4", "phi-4" },
    { "tiiuae/falcon-7b", "falcon-7b" }, { "tiiuae/falcon-7b-instruct", "falcon-7b" }, { "tiiuae/falcon-40b", "falcon-40b" },
    { "tiiuae/falcon-180B", "falcon-180b" }, { "EleutherAI/gpt-neox-20b", "gpt-neox-20b" },
    { "EleutherAI/gpt-j-6b", "gpt-j-6b" }, { "EleutherAI/gpt-j-6B", "gpt-j-6b" },
    { "bigscience/bloom-560m", "bloom-560m" }, { "bigscience/bloom-7b1", "bloom-7b1" }, { "bigscience/bloom", "bloom-176b" },
    { "bigcode/starcoder2-3b", "starcoder2-3b" }, { "bigcode/starcoder2-7b", "starcoder2-7b" },
    { "bigcode/starcoder2-15b", "starcoder2-15b" },
    { "mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b" }, { "mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b" },
    { "mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b" },
    { "Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b" }, { "Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b" },
    { "deepseek-ai/DeepSeek-V3", "deepseek-v3" }, { "deepseek-ai/DeepSeek-V3-Base", "deepseek-v3" },
    { "deepseek-ai/DeepSeek-R1", "deepseek-v3" }, { "moonshotai/Moonlight-16B-A3B", "moonlight-16b-a3b" },
    { "moonshotai/Moonlight-16B-A3B-Instruct", "moonlight-16b-a3b" },
    { "moonshotai/Kimi-K2-Base", "kimi-k2" }, { "moonshotai/Kimi-K2-Instruct", "kimi-k2" }, { "moonshotai/Kimi-K2-Instruct-0905", "kimi-k2" },
    { "zai-org/GLM-4.5", "glm-4.5" }, { "zai-org/GLM-4.5-Base", "glm-4.5" }, { "zai-org/GLM-4.6", "glm-4.5" },
    { "zai-org/GLM-4.5-Air", "glm-4.5-air" }, { "zai-org/GLM-4.5-Air-Base", "glm-4.5-air" },
    { "openai/gpt-oss-20b", "gpt-oss-20b" }, { "openai/gpt-oss-120b", "gpt-oss-120b" },
    { "meta-llama/Llama-4-Scout-17B-16E", "llama-4-scout" }, { "meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout" },
    { "meta-llama/Llama-4-Maverick-17B-128E", "llama-4-maverick" },
    { "meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick" },
    { "ibm-granite/granite-3.0-1b-a400m-base", "granite-3.0-1b-a400m" },
    { "ibm-granite/granite-3.0-1b-a400m-instruct", "granite-3.0-1b-a400m" },
    { "ibm-granite/granite-3.0-3b-a800m-base", "granite-3.0-3b-a800m" },
    { "ibm-granite/granite-3.0-3b-a800m-instruct", "granite-3.0-3b-a800m" },
    { "allenai/OLMoE-1B-7B-0924", "olmoe-1b-7b" }, { "allenai/OLMoE-1B-7B-0924-Instruct", "olmoe-1b-7b" },
    { "distilbert/distilgpt2", "distilgpt2" }, { "microsoft/DialoGPT-medium", "gpt2-medium" }, { "microsoft/DialoGPT-small", "gpt2" },
    { "microsoft/DialoGPT-large", "gpt2-large" }, { "huggyllama/llama-7b", "llama-7b" }, { "openlm-research/open_llama_7b", "llama-7b" },
    { "openlm-research/open_llama_7b_v2", "llama-7b" }, { "decapoda-research/llama-7b-hf", "llama-7b" },
    { "lmsys/vicuna-7b-v1.3", "llama-7b" }, { "huggyllama/llama-13b", "llama-13b" }, { "openlm-research/open_llama_13b", "llama-13b" },
    { "lmsys/vicuna-13b-v1.3", "llama-13b" }, { "huggyllama/llama-30b", "llama-30b" }, { "garage-bAInd/Platypus-30B", "llama-30b" },
    { "lmsys/vicuna-33b-v1.3", "llama-30b" }, { "huggyllama/llama-65b", "llama-65b" },
    { "openlm-research/open_llama_3b", "open-llama-3b" }, { "openlm-research/open_llama_3b_v2", "open-llama-3b" },
    { "meta-llama/Meta-Llama-3-8B", "llama-3-8b" }, { "meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b" },
    { "meta-llama/Llama-3-8B", "llama-3-8b" }, { "NousResearch/Meta-Llama-3-8B", "llama-3-8b" },
    { "NousResearch/Meta-Llama-3-8B-Instruct", "llama-3-8b" }, { "unsloth/llama-3-8b", "llama-3-8b" },
    { "unsloth/llama-3-8b-Instruct", "llama-3-8b" }, { "unsloth/llama-3-8b-bnb-4bit", "llama-3-8b" },
    { "unsloth/llama-3-8b-Instruct-bnb-4bit", "llama-3-8b" }, { "OpenRLHF/Llama-3-8b-sft-mixture", "llama-3-8b" },
    { "OpenRLHF/Llama-3-8b-rm-700k", "llama-3-8b" }, { "OpenRLHF/Llama-3-8b-rm-mixture", "llama-3-8b" },
    { "sfairXC/FsfairX-LLaMA3-RM-v0.1", "llama-3-8b" }, { "meta-llama/Meta-Llama-Guard-2-8B", "llama-3-8b" },
    { "meta-llama/Meta-Llama-3-70B", "llama-3-70b" }, { "meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b" },
    { "NousResearch/Meta-Llama-3-70B", "llama-3-70b" }, { "NousResearch/Meta-Llama-3-70B-Instruct", "llama-3-70b" },
    { "unsloth/llama-3-70b-bnb-4bit", "llama-3-70b" }, { "NousResearch/Llama-2-7b-hf", "llama-2-7b" },
    { "NousResearch/Llama-2-7b-chat-hf", "llama-2-7b" }, { "meta-llama/Llama-2-7b-chat", "llama-2-7b" },
    { "unsloth/llama-2-7b", "llama-2-7b" }, { "unsloth/llama-2-7b-bnb-4bit", "llama-2-7b" }, { "lmsys/vicuna-7b-v1.5", "llama-2-7b" },
    { "togethercomputer/LLaMA-2-7B-32K", "llama-2-7b" }, { "garage-bAInd/Platypus2-7B", "llama-2-7b" },
    { "daryl149/llama-2-7b-chat-hf", "llama-2-7b" }, { "TheBloke/Llama-2-7B-fp16", "llama-2-7b" },
    { "NousResearch/Llama-2-13b-hf", "llama-2-13b" }, { "NousResearch/Llama-2-13b-chat-hf", "llama-2-13b" },
    { "unsloth/llama-2-13b-bnb-4bit", "llama-2-13b" }, { "lmsys/vicuna-13b-v1.5", "llama-2-13b" },
    { "garage-bAInd/Platypus2-13B", "llama-2-13b" }, { "meta-llama/Llama-2-13b", "llama-2-13b" },
    { "meta-llama/Llama-2-13b-chat", "llama-2-13b" }, { "NousResearch/Llama-2-70b-hf", "llama-2-70b" },
    { "meta-llama/Llama-2-70b", "llama-2-70b" }, { "meta-llama/Llama-2-70b-chat", "llama-2-70b" },
    { "garage-bAInd/Camel-Platypus2-70B", "llama-2-70b" }, { "stabilityai/FreeWilly2", "llama-2-70b" },
    { "NousResearch/Meta-Llama-3.1-8B", "llama-3.1-8b" }, { "NousResearch/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b" },
    { "unsloth/Meta-Llama-3.1-8B", "llama-3.1-8b" }, { "unsloth/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b" },
    { "unsloth/Meta-Llama-3.1-8B-bnb-4bit", "llama-3.1-8b" }, { "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama-3.1-8b" },
    { "unsloth/Llama-3.1-8B", "llama-3.1-8b" }, { "unsloth/Llama-3.1-8B-Instruct", "llama-3.1-8b" },
    { "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b" }, { "unsloth/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b" },
    { "NousResearch/Hermes-3-Llama-3.1-8B", "llama-3.1-8b" }, { "meta-llama/Llama-Guard-3-8B", "llama-3.1-8b" },
    { "nvidia/Llama-3.1-Nemotron-Nano-8B-v1", "llama-3.1-8b" }, { "NousResearch/Meta-Llama-3.1-70B", "llama-3.1-70b" },
    { "NousResearch/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b" }, { "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama-3.1-70b" },
    { "NousResearch/Hermes-3-Llama-3.1-70B", "llama-3.1-70b" }, { "unsloth/Meta-Llama-3.1-70B-bnb-4bit", "llama-3.1-70b" },
    { "unsloth/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b" }, { "meta-llama/Meta-Llama-3.1-405B-Instruct", "llama-3.1-405b" },
    { "NousResearch/Hermes-3-Llama-3.1-405B", "llama-3.1-405b" }, { "hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "llama-3.1-405b" },
    { "NousResearch/Llama-3.2-1B", "llama-3.2-1b" }, { "unsloth/Llama-3.2-1B", "llama-3.2-1b" },
    { "unsloth/Llama-3.2-1B-Instruct", "llama-3.2-1b" }, { "unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "llama-3.2-1b" },
    { "meta-llama/Llama-Guard-3-1B", "llama-3.2-1b" }, { "NousResearch/Llama-3.2-3B", "llama-3.2-3b" },
    { "unsloth/Llama-3.2-3B", "llama-3.2-3b" }, { "unsloth/Llama-3.2-3B-Instruct", "llama-3.2-3b" },
    { "unsloth/Llama-3.2-3B-Instruct-bnb-4bit", "llama-3.2-3b" }, { "NousResearch/Hermes-3-Llama-3.2-3B", "llama-3.2-3b" },
    { "meta-llama/Llama-3.3-70B", "llama-3.3-70b" }, { "unsloth/Llama-3.3-70B-Instruct", "llama-3.3-70b" },
    { "unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "llama-3.3-70b" }, { "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama-3.3-70b" },
    { "unsloth/DeepSeek-R1-Distill-Llama-70B", "llama-3.3-70b" }, { "codellama/CodeLlama-7b-hf", "codellama-7b" },
    { "codellama/CodeLlama-7b-Instruct-hf", "codellama-7b" }, { "codellama/CodeLlama-7b-Python-hf", "codellama-7b-python" },
    { "codellama/CodeLlama-13b-hf", "codellama-13b" }, { "codellama/CodeLlama-13b-Instruct-hf", "codellama-13b" },
    { "codellama/CodeLlama-13b-Python-hf", "codellama-13b-python" }, { "codellama/CodeLlama-34b-hf", "codellama-34b" },
    { "codellama/CodeLlama-34b-Python-hf", "codellama-34b" }, { "codellama/CodeLlama-34b-Instruct-hf", "codellama-34b" },
    { "codellama/CodeLlama-70b-hf", "codellama-70b" }, { "codellama/CodeLlama-70b-Python-hf", "codellama-70b" },
    { "codellama/CodeLlama-70b-Instruct-hf", "codellama-70b" }, { "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b" },
    { "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", "tinyllama-1.1b" }, { "TinyLlama/TinyLlama_v1.1", "tinyllama-1.1b" },
    { "TinyLlama/TinyLlama-1.1B-step-50K-105b", "tinyllama-1.1b" }, { "unsloth/tinyllama", "tinyllama-1.1b" },
    { "unsloth/tinyllama-bnb-4bit", "tinyllama-1.1b" }, { "mistral-community/Mistral-7B-v0.1", "mistral-7b" },
    { "HuggingFaceH4/zephyr-7b-alpha", "mistral-7b" }, { "HuggingFaceH4/zephyr-7b-beta", "mistral-7b" },
    { "alignment-handbook/zephyr-7b-sft-full", "mistral-7b" }, { "HuggingFaceH4/mistral-7b-sft-beta", "mistral-7b" },
    { "unsloth/mistral-7b", "mistral-7b" }, { "unsloth/mistral-7b-bnb-4bit", "mistral-7b" },
    { "Intel/neural-chat-7b-v3-1", "mistral-7b" }, { "mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2" },
    { "unsloth/Mistral-7B-v0.2", "mistral-7b-v0.2" }, { "mistral-community/Mistral-7B-v0.2", "mistral-7b-v0.2" },
    { "alpindale/Mistral-7B-v0.2-hf", "mistral-7b-v0.2" }, { "unsloth/mistral-7b-instruct-v0.2-bnb-4bit", "mistral-7b-v0.2" },
    { "mistralai/Mistral-7B-v0.3", "mistral-7b-v0.3" }, { "mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3" },
    { "mistralai/mathstral-7B-v0.1", "mistral-7b-v0.3" }, { "mistralai/Mathstral-7B-v0.1", "mistral-7b-v0.3" },
    { "unsloth/mistral-7b-v0.3", "mistral-7b-v0.3" }, { "unsloth/mistral-7b-v0.3-bnb-4bit", "mistral-7b-v0.3" },
    { "unsloth/mistral-7b-instruct-v0.3-bnb-4bit", "mistral-7b-v0.3" }, { "mistralai/Mistral-Large-Instruct-2407", "mistral-large-123b" },
    { "mistralai/Mistral-Large-Instruct-2411", "mistral-large-123b" }, { "HuggingFaceTB/SmolLM2-135M", "smollm2-135m" },
    { "HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m" }, { "unsloth/SmolLM2-135M", "smollm2-135m" },
    { "unsloth/SmolLM2-135M-Instruct", "smollm2-135m" }, { "HuggingFaceTB/SmolLM2-360M", "smollm2-360m" },
    { "HuggingFaceTB/SmolLM-135M", "smollm2-135m" }, { "HuggingFaceTB/SmolLM-135M-Instruct", "smollm2-135m" },
    { "HuggingFaceTB/SmolLM-360M", "smollm2-360m" }, { "HuggingFaceTB/SmolLM-360M-Instruct", "smollm2-360m" },
    { "HuggingFaceTB/SmolLM-1.7B", "smollm2-1.7b" }, { "HuggingFaceTB/SmolLM-1.7B-Instruct", "smollm2-1.7b" },
    { "loubnabnl/smollm2-360M-sft", "smollm2-360m" }, { "loubnabnl/smollm2-1.7B-sft", "smollm2-1.7b" },
    { "HuggingFaceTB/SmolLM3-3B-checkpoints", "smollm3-3b" }, { "alignment-handbook/zephyr-7b-sft-qlora", "mistral-7b" },
    { "mistralai/Magistral-Small-2506", "mistral-small-3-24b" }, { "mistralai/Magistral-Small-2507", "mistral-small-3-24b" },
    { "mistralai/Devstral-Small-2505", "mistral-small-3-24b" }, { "mistralai/Devstral-Small-2507", "mistral-small-3-24b" },
    { "neuralmagic/Sparse-Llama-3.1-8B-2of4", "llama-3.1-8b" }, { "nvidia/Nemotron-Mini-4B-Instruct", "minitron-4b" },
    { "allenai/Olmo-3-7B-Instruct-SFT", "olmo-3-7b" }, { "allenai/Olmo-3-7B-Instruct-DPO", "olmo-3-7b" },
    { "allenai/Olmo-3-7B-Think-SFT", "olmo-3-7b" }, { "allenai/Olmo-3-7B-Think-DPO", "olmo-3-7b" },
    { "HuggingFaceTB/SmolLM2-360M-Instruct", "smollm2-360m" }, { "unsloth/SmolLM2-360M", "smollm2-360m" },
    { "unsloth/SmolLM2-360M-Instruct", "smollm2-360m" }, { "HuggingFaceTB/SmolLM2-1.7B", "smollm2-1.7b" },
    { "HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2-1.7b" }, { "unsloth/SmolLM2-1.7B", "smollm2-1.7b" },
    { "unsloth/SmolLM2-1.7B-Instruct", "smollm2-1.7b" }, { "tiiuae/Falcon3-1B-Base", "falcon3-1b" },
    { "tiiuae/Falcon3-1B-Instruct", "falcon3-1b" }, { "tiiuae/Falcon3-3B-Base", "falcon3-3b" },
    { "tiiuae/Falcon3-3B-Instruct", "falcon3-3b" }, { "tiiuae/Falcon3-7B-Base", "falcon3-7b" },
    { "tiiuae/Falcon3-7B-Instruct", "falcon3-7b" }, { "tiiuae/Falcon3-10B-Base", "falcon3-10b" },
    { "tiiuae/Falcon3-10B-Instruct", "falcon3-10b" }, { "tiiuae/falcon-40b-instruct", "falcon-40b" },
    { "tiiuae/falcon-180B-chat", "falcon-180b" }, { "EleutherAI/pythia-14m", "pythia-14m" }, { "EleutherAI/pythia-70m", "pythia-70m" },
    { "EleutherAI/pythia-70m-deduped", "pythia-70m" }, { "EleutherAI/pythia-160m", "pythia-160m" },
    { "EleutherAI/pythia-160m-deduped", "pythia-160m" }, { "EleutherAI/pythia-410m", "pythia-410m" },
    { "EleutherAI/pythia-410m-deduped", "pythia-410m" }, { "EleutherAI/pythia-1b", "pythia-1b" },
    { "EleutherAI/pythia-1b-deduped", "pythia-1b" }, { "EleutherAI/pythia-1.4b", "pythia-1.4b" },
    { "EleutherAI/pythia-1.4b-deduped", "pythia-1.4b" }, { "EleutherAI/pythia-2.8b", "pythia-2.8b" },
    { "EleutherAI/pythia-2.8b-deduped", "pythia-2.8b" }, { "EleutherAI/pythia-6.9b", "pythia-6.9b" },
    { "EleutherAI/pythia-6.9b-deduped", "pythia-6.9b" }, { "EleutherAI/pythia-12b", "pythia-12b" },
    { "EleutherAI/pythia-12b-deduped", "pythia-12b" }, { "trl-lib/pythia-1b-deduped-tldr-sft", "pythia-1b" },
    { "Qwen/Qwen2-0.5B", "qwen2.5-0.5b" }, { "Qwen/Qwen2-0.5B-Instruct", "qwen2.5-0.5b" }, { "Qwen/Qwen2-1.5B", "qwen2.5-1.5b" },
    { "Qwen/Qwen2-1.5B-Instruct", "qwen2.5-1.5b" }, { "Qwen/Qwen2-7B", "qwen2.5-7b" }, { "Qwen/Qwen2-7B-Instruct", "qwen2.5-7b" },
    { "Qwen/Qwen2-72B", "qwen2.5-72b" }, { "Qwen/Qwen2-72B-Instruct", "qwen2.5-72b" }, { "Qwen/Qwen2.5-Coder-0.5B", "qwen2.5-0.5b" },
    { "Qwen/Qwen2.5-Coder-0.5B-Instruct", "qwen2.5-0.5b" }, { "Qwen/Qwen2.5-Coder-1.5B", "qwen2.5-1.5b" },
    { "Qwen/Qwen2.5-Coder-1.5B-Instruct", "qwen2.5-1.5b" }, { "Qwen/Qwen2.5-Coder-3B", "qwen2.5-3b" },
    { "Qwen/Qwen2.5-Coder-3B-Instruct", "qwen2.5-3b" }, { "Qwen/Qwen2.5-Coder-7B", "qwen2.5-7b" },
    { "Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-7b" }, { "Qwen/Qwen2.5-Coder-14B", "qwen2.5-14b" },
    { "Qwen/Qwen2.5-Coder-14B-Instruct", "qwen2.5-14b" }, { "Qwen/Qwen2.5-Coder-32B", "qwen2.5-32b" },
    { "Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b" }, { "unsloth/Qwen2.5-0.5B", "qwen2.5-0.5b" },
    { "unsloth/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b" }, { "unsloth/Qwen2.5-0.5B-bnb-4bit", "qwen2.5-0.5b" },
    { "unsloth/Qwen2.5-0.5B-Instruct-bnb-4bit", "qwen2.5-0.5b" }, { "unsloth/Qwen2.5-1.5B", "qwen2.5-1.5b" },
    { "unsloth/Qwen2.5-1.5B-Instruct", "qwen2.5-1.5b" }, { "unsloth/Qwen2.5-1.5B-bnb-4bit", "qwen2.5-1.5b" },
    { "unsloth/Qwen2.5-1.5B-Instruct-bnb-4bit", "qwen2.5-1.5b" }, { "unsloth/Qwen2.5-3B", "qwen2.5-3b" },
    { "unsloth/Qwen2.5-3B-Instruct", "qwen2.5-3b" }, { "unsloth/Qwen2.5-3B-bnb-4bit", "qwen2.5-3b" },
    { "unsloth/Qwen2.5-3B-Instruct-bnb-4bit", "qwen2.5-3b" }, { "unsloth/Qwen2.5-7B", "qwen2.5-7b" },
    { "unsloth/Qwen2.5-7B-Instruct", "qwen2.5-7b" }, { "unsloth/Qwen2.5-7B-bnb-4bit", "qwen2.5-7b" },
    { "unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "qwen2.5-7b" }, { "unsloth/Qwen2.5-14B", "qwen2.5-14b" },
    { "unsloth/Qwen2.5-14B-Instruct", "qwen2.5-14b" }, { "unsloth/Qwen2.5-14B-bnb-4bit", "qwen2.5-14b" },
    { "unsloth/Qwen2.5-14B-Instruct-bnb-4bit", "qwen2.5-14b" }, { "unsloth/Qwen2.5-32B", "qwen2.5-32b" },
    { "unsloth/Qwen2.5-32B-Instruct", "qwen2.5-32b" }, { "unsloth/Qwen2.5-32B-bnb-4bit", "qwen2.5-32b" },
    { "unsloth/Qwen2.5-32B-Instruct-bnb-4bit", "qwen2.5-32b" }, { "unsloth/Qwen2.5-72B", "qwen2.5-72b" },
    { "unsloth/Qwen2.5-72B-Instruct", "qwen2.5-72b" }, { "unsloth/Qwen2.5-72B-bnb-4bit", "qwen2.5-72b" },
    { "unsloth/Qwen2.5-72B-Instruct-bnb-4bit", "qwen2.5-72b" }, { "Qwen/Qwen2.5-Math-1.5B", "qwen2.5-1.5b" },
    { "Qwen/Qwen2.5-Math-1.5B-Instruct", "qwen2.5-1.5b" }, { "Qwen/Qwen2.5-Math-7B", "qwen2.5-7b" },
    { "Qwen/Qwen2.5-Math-7B-Instruct", "qwen2.5-7b" }, { "Qwen/Qwen2.5-Math-72B", "qwen2.5-72b" },
    { "Qwen/Qwen2.5-Math-72B-Instruct", "qwen2.5-72b" }, { "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2.5-7b" },
    { "Qwen/Qwen2.5-7B-Instruct-1M", "qwen2.5-7b" }, { "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "qwen2.5-14b" },
    { "Qwen/Qwen2.5-14B-Instruct-1M", "qwen2.5-14b" }, { "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b" },
    { "Qwen/QwQ-32B", "qwen2.5-32b" }, { "Qwen/QwQ-32B-Preview", "qwen2.5-32b" }, { "simplescaling/s1-32B", "qwen2.5-32b" },
    { "open-thoughts/OpenThinker-32B", "qwen2.5-32b" }, { "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen-1.5b" },
    { "agentica-org/DeepScaleR-1.5B-Preview", "deepseek-r1-distill-qwen-1.5b" }, { "Qwen/Qwen1.5-0.5B", "qwen1.5-0.5b" },
    { "Qwen/Qwen1.5-0.5B-Chat", "qwen1.5-0.5b" }, { "Qwen/Qwen1.5-1.8B", "qwen1.5-1.8b" }, { "Qwen/Qwen1.5-1.8B-Chat", "qwen1.5-1.8b" },
    { "Qwen/Qwen1.5-4B", "qwen1.5-4b" }, { "Qwen/Qwen1.5-4B-Chat", "qwen1.5-4b" }, { "Qwen/Qwen1.5-7B", "qwen1.5-7b" },
    { "Qwen/Qwen1.5-7B-Chat", "qwen1.5-7b" }, { "Qwen/Qwen1.5-14B", "qwen1.5-14b" }, { "Qwen/Qwen1.5-14B-Chat", "qwen1.5-14b" },
    { "trl-lib/qwen1.5-1.8b-sft", "qwen1.5-1.8b" }, { "unsloth/Qwen3-0.6B", "qwen3-0.6b" },
    { "PrimeIntellect/Qwen3-0.6B", "qwen3-0.6b" }, { "PrimeIntellect/Qwen3-1.7B", "qwen3-1.7b" },      /* Qwen's with another template, */
    { "PrimeIntellect/Qwen3-0.6B-Reverse-Text-SFT", "qwen3-0.6b" }, { "PrimeIntellect/Qwen3-1.7B-Wordle-SFT", "qwen3-1.7b" },  /* tuned */
    { "unsloth/Qwen3-0.6B-unsloth-bnb-4bit", "qwen3-0.6b" }, { "unsloth/Qwen3-0.6B-bnb-4bit", "qwen3-0.6b" },
    { "unsloth/Qwen3-1.7B", "qwen3-1.7b" }, { "unsloth/Qwen3-1.7B-unsloth-bnb-4bit", "qwen3-1.7b" },
    { "unsloth/Qwen3-1.7B-bnb-4bit", "qwen3-1.7b" }, { "unsloth/Qwen3-4B", "qwen3-4b" },
    { "unsloth/Qwen3-4B-unsloth-bnb-4bit", "qwen3-4b" }, { "unsloth/Qwen3-4B-bnb-4bit", "qwen3-4b" }, { "unsloth/Qwen3-8B", "qwen3-8b" },
    { "unsloth/Qwen3-8B-unsloth-bnb-4bit", "qwen3-8b" }, { "unsloth/Qwen3-8B-bnb-4bit", "qwen3-8b" },
    { "unsloth/Qwen3-14B", "qwen3-14b" }, { "unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b" },
    { "unsloth/Qwen3-14B-bnb-4bit", "qwen3-14b" }, { "unsloth/Qwen3-32B", "qwen3-32b" },
    { "unsloth/Qwen3-32B-unsloth-bnb-4bit", "qwen3-32b" }, { "unsloth/Qwen3-32B-bnb-4bit", "qwen3-32b" },
    { "unsloth/Qwen3-0.6B-Base", "qwen3-0.6b" }, { "unsloth/Qwen3-1.7B-Base", "qwen3-1.7b" }, { "unsloth/Qwen3-4B-Base", "qwen3-4b" },
    { "unsloth/Qwen3-8B-Base", "qwen3-8b" }, { "unsloth/Qwen3-14B-Base", "qwen3-14b" },
    { "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3-8b" }, { "Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b-2507" },
    { "Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b-2507" }, { "unsloth/Qwen3-4B-Instruct-2507", "qwen3-4b-2507" },
    { "unsloth/Qwen3-4B-Thinking-2507", "qwen3-4b-2507" }, { "Qwen/Qwen3-30B-A3B-Base", "qwen3-30b-a3b" },
    { "Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-2507" }, { "Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b-2507" },
    { "Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b-2507" }, { "Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b-2507" },
    { "Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3-235b-a22b-2507" }, { "deepseek-ai/deepseek-llm-7b-base", "deepseek-llm-7b" },
    { "deepseek-ai/deepseek-llm-7b-chat", "deepseek-llm-7b" }, { "deepseek-ai/deepseek-math-7b-base", "deepseek-llm-7b" },
    { "deepseek-ai/deepseek-math-7b-instruct", "deepseek-llm-7b" }, { "deepseek-ai/deepseek-math-7b-rl", "deepseek-llm-7b" },
    { "deepseek-ai/deepseek-llm-67b-base", "deepseek-llm-67b" }, { "deepseek-ai/deepseek-llm-67b-chat", "deepseek-llm-67b" },
    { "deepseek-ai/deepseek-coder-1.3b-base", "deepseek-coder-1.3b" },
    { "deepseek-ai/deepseek-coder-1.3b-instruct", "deepseek-coder-1.3b" },
    { "deepseek-ai/deepseek-coder-6.7b-base", "deepseek-coder-6.7b" },
    { "deepseek-ai/deepseek-coder-6.7b-instruct", "deepseek-coder-6.7b" },
    { "deepseek-ai/deepseek-coder-33b-base", "deepseek-coder-33b" }, { "deepseek-ai/deepseek-coder-33b-instruct", "deepseek-coder-33b" },
    { "deepseek-ai/DeepSeek-V3-0324", "deepseek-v3" }, { "deepseek-ai/DeepSeek-R1-0528", "deepseek-v3" },
    { "deepseek-ai/DeepSeek-R1-Zero", "deepseek-v3" }, { "deepseek-ai/DeepSeek-V3.1", "deepseek-v3" },
    { "deepseek-ai/DeepSeek-V3.1-Base", "deepseek-v3" }, { "unsloth/DeepSeek-V3", "deepseek-v3" }, { "01-ai/Yi-6B", "yi-6b" },
    { "01-ai/Yi-6B-Chat", "yi-6b" }, { "01-ai/Yi-1.5-6B", "yi-6b" }, { "01-ai/Yi-1.5-6B-Chat", "yi-6b" }, { "01-ai/Yi-34B", "yi-34b" },
    { "01-ai/Yi-34B-Chat", "yi-34b" }, { "01-ai/Yi-1.5-34B", "yi-34b" }, { "01-ai/Yi-1.5-34B-Chat", "yi-34b" },
    { "upstage/SOLAR-10.7B-v1.0", "solar-10.7b" }, { "upstage/SOLAR-10.7B-Instruct-v1.0", "solar-10.7b" },
    { "BSC-LT/salamandra-2b", "salamandra-2b" }, { "BSC-LT/salamandra-2b-instruct", "salamandra-2b" },
    { "BSC-LT/salamandra-7b", "salamandra-7b" }, { "BSC-LT/salamandra-7b-instruct", "salamandra-7b" },
    { "google/gemma-1.1-2b-it", "gemma-2b" }, { "google/codegemma-2b", "gemma-2b" }, { "unsloth/gemma-2b", "gemma-2b" },
    { "unsloth/gemma-2b-bnb-4bit", "gemma-2b" }, { "google/gemma-1.1-7b-it", "gemma-7b" }, { "google/codegemma-7b", "gemma-7b" },
    { "google/codegemma-7b-it", "gemma-7b" }, { "unsloth/gemma-7b", "gemma-7b" }, { "unsloth/gemma-7b-bnb-4bit", "gemma-7b" },
    { "mhenrichsen/gemma-7b", "gemma-7b" }, { "HuggingFaceH4/zephyr-7b-gemma-v0.1", "gemma-7b" },
    { "HuggingFaceH4/zephyr-7b-gemma-sft-v0.1", "gemma-7b" }, { "unsloth/gemma-2-2b", "gemma-2-2b" },
    { "unsloth/gemma-2-2b-it", "gemma-2-2b" }, { "unsloth/gemma-2-2b-bnb-4bit", "gemma-2-2b" },
    { "unsloth/gemma-2-2b-it-bnb-4bit", "gemma-2-2b" }, { "unsloth/gemma-2-9b", "gemma-2-9b" }, { "unsloth/gemma-2-9b-it", "gemma-2-9b" },
    { "unsloth/gemma-2-9b-bnb-4bit", "gemma-2-9b" }, { "unsloth/gemma-2-9b-it-bnb-4bit", "gemma-2-9b" },
    { "unsloth/gemma-2-27b", "gemma-2-27b" }, { "unsloth/gemma-2-27b-it", "gemma-2-27b" },
    { "unsloth/gemma-2-27b-bnb-4bit", "gemma-2-27b" }, { "unsloth/gemma-2-27b-it-bnb-4bit", "gemma-2-27b" },
    { "unsloth/gemma-3-1b-it", "gemma-3-1b" }, { "unsloth/gemma-3-1b-pt", "gemma-3-1b" }, { "unsloth/gemma-3-4b-it", "gemma-3-4b" },
    { "unsloth/gemma-3-4b-pt", "gemma-3-4b" }, { "unsloth/gemma-3-12b-it", "gemma-3-12b" }, { "unsloth/gemma-3-12b-pt", "gemma-3-12b" },
    { "unsloth/gemma-3-27b-it", "gemma-3-27b" }, { "unsloth/gemma-3-27b-pt", "gemma-3-27b" }, { "google/gemma-3-270m", "gemma-3-270m" },
    { "google/gemma-3-270m-it", "gemma-3-270m" }, { "unsloth/gemma-3-270m-it", "gemma-3-270m" },
    { "google/functiongemma-270m-it", "gemma-3-270m" }, { "microsoft/phi-1", "phi-1.5" }, { "unsloth/phi-4", "phi-4" },
    { "unsloth/phi-4-bnb-4bit", "phi-4" }, { "unsloth/phi-4-unsloth-bnb-4bit", "phi-4" },
    { "unsloth/Phi-3-mini-4k-instruct", "phi-3-mini" }, { "unsloth/Phi-3-mini-4k-instruct-bnb-4bit", "phi-3-mini" },
    { "stabilityai/stablelm-zephyr-3b", "stablelm-3b" }, { "stabilityai/stablelm-2-zephyr-1_6b", "stablelm-2-1.6b" },
    { "stabilityai/stablelm-2-1_6b-chat", "stablelm-2-1.6b" }, { "stabilityai/stablelm-2-12b-chat", "stablelm-2-12b" },
    { "ibm-granite/granite-3.1-2b-base", "granite-3.1-2b" }, { "ibm-granite/granite-3.1-2b-instruct", "granite-3.1-2b" },
    { "bigscience/bloomz-560m", "bloom-560m" }, { "bigscience/bloomz-7b1", "bloom-7b1" }, { "bigscience/bloomz", "bloom-176b" },
    { "allenai/OLMo-2-1124-7B-SFT", "olmo-2-7b" }, { "allenai/OLMo-2-1124-7B-DPO", "olmo-2-7b" },
    { "allenai/OLMo-2-1124-7B-Instruct", "olmo-2-7b" }, { "allenai/OLMo-2-1124-13B-SFT", "olmo-2-13b" },
    { "allenai/OLMo-2-1124-13B-DPO", "olmo-2-13b" }, { "allenai/OLMo-2-1124-13B-Instruct", "olmo-2-13b" },
    { "allenai/OLMo-2-0425-1B-SFT", "olmo-2-1b" }, { "allenai/OLMo-2-0425-1B-DPO", "olmo-2-1b" },
    { "allenai/OLMo-2-0425-1B-Instruct", "olmo-2-1b" }, { "allenai/OLMo-2-0325-32B-Instruct", "olmo-2-32b" },
    { "allenai/OLMo-2-0325-32B-SFT", "olmo-2-32b" }, { "allenai/OLMo-2-0325-32B-DPO", "olmo-2-32b" },
    { "allenai/Olmo-3-1025-7B", "olmo-3-7b" }, { "allenai/Olmo-3-7B-Instruct", "olmo-3-7b" }, { "allenai/Olmo-3-7B-Think", "olmo-3-7b" },
    { "allenai/Olmo-3-7B-Think-SFT", "olmo-3-7b" }, { "allenai/Olmo-3-1125-32B", "olmo-3-32b" },
    { "allenai/Olmo-3-32B-Think", "olmo-3-32b" }, { "mistral-community/Mixtral-8x7B-v0.1", "mixtral-8x7b" },
    { "unsloth/gpt-oss-20b", "gpt-oss-20b" }, { "unsloth/gpt-oss-20b-BF16", "gpt-oss-20b" },
    { "openai/gpt-oss-safeguard-20b", "gpt-oss-20b" }, { "unsloth/gpt-oss-120b", "gpt-oss-120b" },
    { "unsloth/gpt-oss-120b-BF16", "gpt-oss-120b" }, { "openai/gpt-oss-safeguard-120b", "gpt-oss-120b" },
    { "stabilityai/stablelm-base-alpha-3b", "stablelm-alpha-3b" }, { "stabilityai/stablelm-tuned-alpha-3b", "stablelm-alpha-3b" },
    { "togethercomputer/RedPajama-INCITE-Base-3B-v1", "redpajama-3b" },
    { "togethercomputer/RedPajama-INCITE-Chat-3B-v1", "redpajama-3b" },
    { "togethercomputer/RedPajama-INCITE-Instruct-3B-v1", "redpajama-3b" }, { "keeeeenw/MicroLlama", "microllama-300m" },
    { "micro-llama/micro-llama-300M", "microllama-300m" }, { "microsoft/Phi-3.5-mini-instruct", "phi-3.5-mini" },
    { "unsloth/Phi-3.5-mini-instruct", "phi-3.5-mini" }, { "ibm-granite/granite-3.3-2b-base", "granite-3.3-2b" },
    { "ibm-granite/granite-3.3-2b-instruct", "granite-3.3-2b" }, { "ibm-granite/granite-3.3-8b-base", "granite-3.3-8b" },
    { "ibm-granite/granite-3.3-8b-instruct", "granite-3.3-8b" }, { "ByteDance-Seed/Seed-Coder-8B-Base", "seed-coder-8b" },
    { "ByteDance-Seed/Seed-Coder-8B-Instruct", "seed-coder-8b" }, { "ByteDance-Seed/Seed-Coder-8B-Reasoning", "seed-coder-8b" },
    { "canopylabs/orpheus-3b-0.1-pretrained", "orpheus-3b" }, { "canopylabs/orpheus-3b-0.1-ft", "orpheus-3b" },
    { "unsloth/orpheus-3b-0.1-ft", "orpheus-3b" }, { "mistralai/Ministral-3-3B-Base-2512", "ministral-3-3b" },
    { "mistralai/Ministral-3-3B-Reasoning-2512", "ministral-3-3b" }, { "mistralai/Ministral-3-3B-Instruct-2512-BF16", "ministral-3-3b" },
    { "mistralai/Ministral-3-3B-Instruct-2512", "ministral-3-3b" },
    { "mistralai/Ministral-3-8B-Base-2512", "ministral-3-8b" }, { "mistralai/Ministral-3-8B-Reasoning-2512", "ministral-3-8b" },
    { "mistral-community/Mixtral-8x22B-v0.1", "mixtral-8x22b-v0.1" }, { "mosaicml/mpt-7b", "mosaicml-mpt-7b" },
    { "mosaicml/mpt-7b-instruct", "mosaicml-mpt-7b" }, { "mosaicml/mpt-7b-chat", "mosaicml-mpt-7b" },
    { "Salesforce/xgen-7b-8k-base", "xgen-7b" }, { "cerebras/Cerebras-GPT-1.3B", "cerebras-gpt-1.3b" },
    { "teknium/OpenHermes-2.5-Mistral-7B", "openhermes-2.5-mistral-7b" }, { "zai-org/glm-4-9b-chat-hf", "glm-4-9b" },
    { "THUDM/glm-4-9b-chat-hf", "glm-4-9b" }, { "agentica-org/DeepCoder-14B-Preview", "qwen2.5-14b" },
    { "deepcogito/cogito-v1-preview-llama-3B", "llama-3.2-3b" }, { "deepcogito/cogito-v1-preview-llama-8B", "llama-3.1-8b" },
    { "deepcogito/cogito-v1-preview-qwen-14B", "qwen2.5-14b" }, { "casperhansen/llama-3-70b-fp16", "llama-3-70b" },
    { "axolotl-ai-co/gpt-oss-120b-dequantized", "gpt-oss-120b" }, { "Skywork/Skywork-Reward-V2-Qwen3-8B", "qwen3-8b" },
    { "deepseek-ai/DeepSeek-V3-0324-BF16", "deepseek-v3" }, { "alignment-handbook/mistral-7b-sft-constitutional-ai", "mistral-7b" },
};
#define NIDS ((int)(sizeof ids / sizeof *ids))

const char *hf_ids_of(const char *builtin)
{
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (!strcmp(ids[i].builtin, builtin))
            return ids[i].id;
    return NULL;
}

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
    enum { MOST = 1024 };
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
