/* hf_act.c -- see hf_act.h. */
#include "model/arch/hf_act.h"

#include <string.h>

/* activations.py, ACT2CLS of transformers 5.23.  The first name of an activation is the one written. */
static const struct { const char *name; enum activation act; enum activation_code code; } acts[] = {
    { "gelu", ACT_GELU, ACT_ONE_KERNEL }, { "gelu_python", ACT_GELU, ACT_OF_ERF },
    { "gelu_pytorch_tanh", ACT_GELU_TANH, ACT_ONE_KERNEL }, { "gelu_new", ACT_GELU_TANH, ACT_OF_POWER },
    { "gelu_fast", ACT_GELU_TANH, ACT_OF_PRODUCTS }, { "gelu_python_tanh", ACT_GELU_TANH, ACT_OF_POWER },
    { "gelu_accurate", ACT_GELU_TANH, ACT_OF_POWER },
    { "relu", ACT_RELU, ACT_ONE_KERNEL }, { "silu", ACT_SILU, ACT_ONE_KERNEL }, { "swish", ACT_SILU, ACT_ONE_KERNEL },
    { "relu2", ACT_RELU2, ACT_ONE_KERNEL },
};

int hf_act_parse(const char *name, enum activation *act, enum activation_code *code)
{
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(acts[i].name, name)) {
            *act = acts[i].act;
            *code = acts[i].code;
            return 0;
        }
    return -1;
}

const char *hf_act_name(enum activation act, enum activation_code code)
{
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (acts[i].act == act && acts[i].code == code)
            return acts[i].name;
    return "?";
}
