/* hf_unplanned.c -- models of the hub of which their id alone says that a plan has no such model: what they are made of, for a refusal that says
 * more than that the name is not known.  transformers 5.24's models of these names; model cards of those packed before training. */
#include "model/arch/builtin.h"

#include <ctype.h>
#include <string.h>

#include "model/arch/recorded.h"

static const char packed[] = "its weights are packed before training, which is not planned";
static const char pictures[] = "a model of pictures or sound, which is not planned (the text model of its config.json may be, --model)" RECORDED_WAY;
static const char linear[] = "its layers of linear attention are not planned" RECORDED_WAY;
static const char spaces[] = "its layers with state spaces or convolutions are not planned" RECORDED_WAY;
static const char diffusion[] = "training by diffusion is not planned";
static const char experts[] = "its mixture of experts is not planned" RECORDED_WAY;
static const char sparse[] = "its sparse attention is not planned" RECORDED_WAY;
static const char encoder[] = "a model with an encoder, which is not planned" RECORDED_WAY;
static const char layers[] = "its layers are not planned" RECORDED_WAY;

/* What an id has in it, in small letters; the first that fits says. */
static const struct { const char *part, *why; } parts[] = {
    { "-gptq", packed }, { "-awq", packed }, { "-aqlm", packed }, { "-nvfp4", packed }, { "-gguf", packed }, { "prequantized", packed },
    { "-nf4-", packed },
    { "flux.", diffusion }, { "qwen-image", diffusion }, { "wan2.", diffusion }, { "hunyuanvideo", diffusion }, { "ltx-", diffusion },
    { "stable-diffusion", diffusion }, { "diffusion", diffusion }, { "llada", diffusion }, { "-dflash", diffusion },
    { "-vl-", pictures }, { "-vl/", pictures }, { "internvl", pictures }, { "llava", pictures }, { "pixtral", pictures }, { "smolvlm", pictures },
    { "paligemma", pictures }, { "idefics", pictures }, { "vision", pictures }, { "omni", pictures }, { "voxtral", pictures }, { "whisper", pictures },
    { "openvla", pictures }, { "glm-4.1v", pictures }, { "glm-4.5v", pictures }, { "glm-4.6v", pictures }, { "minicpm-o", pictures },
    { "minicpm-v", pictures }, { "molmo", pictures }, { "phi-4-multimodal", pictures }, { "gemma-3n", pictures }, { "bagel", pictures },
    { "nemotron-parse", pictures },
    { "qwen3.5", linear }, { "qwen3.6", linear }, { "qwen3-next", linear }, { "qwen3.8", linear }, { "kimi-linear", linear },
    { "nemotron-3-super", experts }, { "nemotron-3-ultra", experts }, { "nemotron-3.5", experts }, { "nemotron-flash", spaces },
    { "falcon-h1", spaces }, { "jamba", spaces }, { "mamba", spaces }, { "granite-4.0-tiny", spaces }, { "granite-4.0-h", spaces }, { "bamba", spaces },
    { "zamba", spaces }, { "lfm2", spaces }, { "rwkv", spaces },
    { "deepseek-v3.2", sparse }, { "deepseek-v4", sparse }, { "glm-5", sparse },
    { "dbrx", experts }, { "deepseek-v2", experts }, { "glm-4.7-flash", experts }, { "qwen1.5-moe", experts },
    { "qwen2-57b", experts }, { "ernie-4.5-21b", experts }, { "minimax-m", experts }, { "grok-", experts }, { "arctic", experts }, { "phi-3.5-moe", experts },
    { "t5-", encoder }, { "roberta", encoder }, { "bert-", encoder },
    { "gemma-4", layers }, { "apertus", layers }, { "baichuan", layers }, { "btlm", layers }, { "replit-code", layers },
};

const char *hf_unplanned(const char *id)
{
    char small[160];
    size_t n = 0;

    for (; id[n] && n < sizeof small - 1; n++)
        small[n] = (char)tolower((unsigned char)id[n]);
    small[n] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(small, parts[i].part))
            return parts[i].why;
    return NULL;
}
