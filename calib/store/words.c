/* words.c -- the words that the database uses for kernels, passes and overheads. */
#include "calib/store/words.h"

#include <string.h>

#include "model/schedule/measured.h"

const char *const fn_words[NKERNEL_FN + 1] = {
    [FN_NONE] = "none", [FN_EMBED] = "embed", [FN_POSITIONS] = "positions", [FN_NORM] = "norm",
    [FN_LINEAR] = "linear", [FN_ROTARY] = "rotary", [FN_ATTENTION] = "attention",
    [FN_ACTIVATION] = "activation", [FN_LOSS] = "loss", [FN_EMBED_BACK] = "embed_back",
    [FN_POSITIONS_BACK] = "positions_back", [FN_NORM_BACK] = "norm_back", [FN_LINEAR_DW] = "linear_dw",
    [FN_LINEAR_DX] = "linear_dx", [FN_ROTARY_BACK] = "rotary_back", [FN_ATTENTION_BACK] = "attention_back",
    [FN_ACTIVATION_BACK] = "activation_back", [FN_OUTPUT_BACK] = "output_back", [FN_Q_NORM] = "q_norm",
    [FN_Q_NORM_BACK] = "q_norm_back", [FN_EMBED_ROWS] = "embed_rows", [FN_EMBED_ROWS_BACK] = "embed_rows_back",
    [FN_LINEAR_PART] = "linear_part", [FN_RESIDUAL] = "residual", [FN_LINEAR_DB] = "linear_db",
    [FN_LOGITS_MOST] = "logits_most", [FN_LOGITS_LABEL] = "logits_label", [FN_LOGITS_SUM] = "logits_sum",
    [FN_LOGITS_LOSS] = "logits_loss", [FN_LOGITS_WHOLE] = "logits_whole", [FN_KEYS] = "keys", [FN_ATTENTION_PART] = "attention_part",
    [FN_ATTENTION_SUM] = "attention_sum", [FN_ATTENTION_DELTA] = "attention_delta",
    [FN_ATTENTION_PART_BACK] = "attention_part_back", [FN_DKEYS_ADD] = "dkeys_add", [FN_DKEYS_JOIN] = "dkeys_join",
    [FN_DEAL] = "deal", [FN_COLLECT] = "collect",
    [FN_NORM_BACK_KEPT] = "norm_back_kept", [FN_GRAD_KEPT] = "grad_kept", [FN_UNPACK] = "unpack",
    [FN_ADAPTER_DROP] = "adapter_drop", [FN_ADAPTER_DROP_BACK] = "adapter_drop_back",
    [FN_FLOAT8_X] = "float8_x", [FN_FLOAT8_W] = "float8_w", [FN_FLOAT8_DY] = "float8_dy",
};

const char *const class_words[NKERNEL_CLASS + 1] = {
    [KC_GEMM] = "gemm", [KC_ATTENTION] = "attention", [KC_NORM] = "norm", [KC_ELEMENTWISE] = "elementwise",
    [KC_SOFTMAX] = "softmax", [KC_EMBEDDING] = "embedding", [KC_LOSS] = "loss", [KC_COPY] = "copy",
};

const char *const pass_words[NMEASURED_PASS + 1] = {
    [MP_COPY] = "copy", [MP_SCALE] = "scale", [MP_RESCALE] = "rescale", [MP_ADD] = "add", [MP_CAST] = "cast", [MP_ZERO] = "zero",
    [MP_ADAMW] = "adamw", [MP_SQUARES] = "squares", [MP_TO_HOST] = "to_host", [MP_FROM_HOST] = "from_host",
    [MP_HOST_ADAMW] = "host_adamw", [MP_DISK_READ] = "disk_read", [MP_DISK_WRITE] = "disk_write",
    [MP_CAST_FP16] = "cast_fp16", [MP_QUANTIZE8] = "quantize8", [MP_DEQUANTIZE8] = "dequantize8", [MP_QUANTIZE4] = "quantize4",
    [MP_DEQUANTIZE4] = "dequantize4", [MP_REQUANTIZE4] = "requantize4", [MP_MEAN_FP16] = "mean_fp16",
    [MP_NARROW_P] = "narrow_p", [MP_NARROW_Q] = "narrow_q", [MP_NARROW_M] = "narrow_m", [MP_ORTHOGONAL] = "orthogonal",
};

const char *const own_words[NOWN_WORD + 1] = {
    [OWN_ISSUE_KERNEL] = "issue_kernel", [OWN_ISSUE_ENTRY] = "issue_entry", [OWN_HANDOVER] = "handover", [OWN_WAKE] = "wake",
    [OWN_COLD] = "cold", [OWN_STEP] = "step", [OWN_ALONE] = "alone", [OWN_TOGETHER] = "together",
};

const char *const traced_words[] = { "issue_forward", "issue_backward", "issue_coll", "hooked_forward", "hooked_backward", "hooked_coll", NULL };

int word_find(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], word))
            return i;
    return -1;
}
