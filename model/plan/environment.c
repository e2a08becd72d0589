/* environment.c -- see environment.h.
 *
 * Sources: c10/core/AllocatorConfig.h and CublasHandlePool.cpp of PyTorch 2.15; NCCL 2.30's docs/env and src;
 * TORCH_NCCL_AVOID_RECORD_STREAMS is ignored since the spring of 2025 (pytorch/pytorch#150398, "Launch kernel on current
 * stream & remove record_stream entirely"; #194701), and what it changed before is in no version that plans follow: DDP's buckets stay, and
 * FSDP1 and ZeRO-3 record streams themselves.  Megatron-core's training/arguments.py asks for CUDA_DEVICE_MAX_CONNECTIONS. */
#include "model/plan/environment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/allocator/caching_allocator.h"
#include "model/plan/framework.h"
#include "model/plan/knob.h"

enum kind { NOTHING, ALIAS, BACKEND, THREADS, UNCOMPILED, LEFT, ZERO_LEFT, BUT_ZERO, REFUSED };      /* ZERO_LEFT: its 0 matters; BUT_ZERO: all but its 0 do */

/* `of`: the row's name (ALIAS), or why it is left or, but for a value that says no, refused. */
struct variable { const char *name; enum kind kind; const char *of; };

static const char of_channels[] = "NCCL's own number of channels is modelled";
static const char of_choice[] = "NCCL's own choice of algorithm and protocol is modelled";
static const char of_waiting[] = "the issuing thread would wait for every kernel or collective: that is not modelled";

static const char of_accelerates[] = "accelerate's variables are not read: give its config with --accelerate";

static const struct variable variables[] = {
    { "ACCELERATE_USE_FSDP", REFUSED, of_accelerates }, { "ACCELERATE_USE_DEEPSPEED", REFUSED, of_accelerates },
    { "ACCELERATE_USE_PARALLELISM_CONFIG", REFUSED, of_accelerates }, { "ACCELERATE_USE_MEGATRON_LM", REFUSED, of_accelerates },
    { "ACCELERATE_MIXED_PRECISION", REFUSED, of_accelerates }, { "ACCELERATE_DYNAMO_BACKEND", REFUSED, of_accelerates },
    { "ACCELERATE_DEEPSPEED_ZERO_STAGE", LEFT, of_accelerates }, { "ACCELERATE_DEEPSPEED_CONFIG_FILE", LEFT, of_accelerates },
    { "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", LEFT, of_accelerates },
    { "FSDP_VERSION", LEFT, of_accelerates }, { "FSDP_SHARDING_STRATEGY", LEFT, of_accelerates }, { "FSDP_RESHARD_AFTER_FORWARD", LEFT, of_accelerates },
    { "FSDP_OFFLOAD_PARAMS", LEFT, of_accelerates }, { "FSDP_AUTO_WRAP_POLICY", LEFT, of_accelerates }, { "FSDP_MIN_NUM_PARAMS", LEFT, of_accelerates },
    { "FSDP_TRANSFORMER_CLS_TO_WRAP", LEFT, of_accelerates }, { "FSDP_BACKWARD_PREFETCH", LEFT, of_accelerates },
    { "FSDP_FORWARD_PREFETCH", LEFT, of_accelerates }, { "FSDP_USE_ORIG_PARAMS", LEFT, of_accelerates }, { "FSDP_ACTIVATION_CHECKPOINTING", LEFT, of_accelerates },
    { "PYTORCH_CUDA_ALLOC_CONF", ALIAS, "PYTORCH_ALLOC_CONF" }, { "PYTORCH_HIP_ALLOC_CONF", ALIAS, "PYTORCH_ALLOC_CONF" },
    { "NVTE_FLASH_ATTN", BACKEND, NULL }, { "NVTE_FUSED_ATTN", BACKEND, NULL }, { "NVTE_UNFUSED_ATTN", BACKEND, NULL },
    { "CUDA_LAUNCH_BLOCKING", BUT_ZERO, of_waiting }, { "TORCH_NCCL_BLOCKING_WAIT", BUT_ZERO, of_waiting }, { "NCCL_BLOCKING_WAIT", BUT_ZERO, of_waiting },
    { "PYTORCH_NO_CUDA_MEMORY_CACHING", LEFT, "every request would go to the driver: that is not modelled" },
    { "NCCL_ALGO", LEFT, of_choice }, { "NCCL_PROTO", LEFT, of_choice }, { "NCCL_MIN_CTAS", LEFT, of_channels }, { "NCCL_MAX_CTAS", LEFT, of_channels },
    { "NCCL_MIN_NCHANNELS", LEFT, of_channels }, { "NCCL_MAX_NCHANNELS", LEFT, of_channels }, { "NCCL_P2P_DISABLE", BUT_ZERO, "peers reach each other" },
    { "NCCL_IB_DISABLE", BUT_ZERO, "state the network that is left: cluster.inter.gb_per_s" }, { "NCCL_NTHREADS", LEFT, of_channels },
    { "NCCL_P2P_NET_CHUNKSIZE", LEFT, "NCCL's own chunks of messages are modelled" }, { "NCCL_NET_GDR_LEVEL", LEFT, "GPUDirect RDMA is modelled" },
    { "NVTE_FWD_LAYERNORM_SM_MARGIN", BUT_ZERO, "norms are modelled on every SM" }, { "NVTE_BWD_LAYERNORM_SM_MARGIN", BUT_ZERO, "norms are modelled on every SM" },
    { "TORCH_NCCL_HIGH_PRIORITY", BUT_ZERO, "streams of one priority are modelled" },
    { "TORCH_NCCL_AVOID_RECORD_STREAMS", NOTHING, NULL }, { "NCCL_AVOID_RECORD_STREAMS", NOTHING, NULL },
    { "CUBLASLT_WORKSPACE_SIZE", LEFT, "its own 1 MiB is modelled" },
    { "CUDA_DEVICE_ORDER", NOTHING, NULL }, { "CUDA_HOME", NOTHING, NULL }, { "CUDA_VISIBLE_DEVICES", NOTHING, NULL }, { "GLOO_SOCKET_IFNAME", NOTHING, NULL },
    { "GPUS_PER_NODE", NOTHING, NULL }, { "HF_DATASETS_CACHE", NOTHING, NULL }, { "HF_HOME", NOTHING, NULL }, { "HF_HUB_OFFLINE", NOTHING, NULL },
    { "HF_TOKEN", NOTHING, NULL }, { "HYDRA_FULL_ERROR", NOTHING, NULL }, { "MASTER_ADDR", NOTHING, NULL }, { "MASTER_PORT", NOTHING, NULL },
    { "NCCL_ASYNC_ERROR_HANDLING", NOTHING, NULL }, { "NCCL_DEBUG", NOTHING, NULL }, { "NCCL_DEBUG_FILE", NOTHING, NULL }, { "NCCL_DEBUG_SUBSYS", NOTHING, NULL },
    { "NCCL_IB_GID_INDEX", NOTHING, NULL }, { "NCCL_IB_HCA", NOTHING, NULL }, { "NCCL_IB_RETRY_CNT", NOTHING, NULL }, { "NCCL_IB_SL", NOTHING, NULL },
    { "NCCL_IB_TC", NOTHING, NULL }, { "NCCL_IB_TIMEOUT", NOTHING, NULL }, { "NCCL_SOCKET_IFNAME", NOTHING, NULL }, { "NCCL_TIMEOUT", NOTHING, NULL },
    { "NCCL_TOPO_FILE", NOTHING, NULL }, { "NVTE_DEBUG", NOTHING, NULL }, { "NVTE_DEBUG_LEVEL", NOTHING, NULL }, { "N_REPEAT", NOTHING, NULL },
    { "OMP_NUM_THREADS", THREADS, NULL }, { "PYTHONPATH", NOTHING, NULL }, { "SKIP_PYTEST", NOTHING, NULL }, { "TOKENIZERS_PARALLELISM", NOTHING, NULL },
    { "TORCH_DISTRIBUTED_DEBUG", NOTHING, NULL }, { "TORCH_NCCL_ASYNC_ERROR_HANDLING", NOTHING, NULL }, { "TORCH_NCCL_ENABLE_MONITORING", NOTHING, NULL },
    { "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", NOTHING, NULL }, { "TORCH_SHOW_CPP_STACKTRACES", NOTHING, NULL }, { "TRANSFORMERS_OFFLINE", NOTHING, NULL },
    { "TRITON_CACHE_DIR", NOTHING, NULL }, { "WANDB_API_KEY", NOTHING, NULL }, { "WANDB_MODE", NOTHING, NULL }, { "WANDB_PROJECT", NOTHING, NULL },
    { "TORCHDYNAMO_DISABLE", UNCOMPILED, NULL }, { "TORCH_COMPILE_DISABLE", UNCOMPILED, NULL },
    { "NVTE_ALLOW_NONDETERMINISTIC_ALGO", ZERO_LEFT, "attention's backward takes deterministic kernels, which take longer" },       /* 1 is its default */
};

static const struct variable *variable_of(const char *name)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (!strcmp(variables[i].name, name))
            return &variables[i];
    return NULL;
}

bool environment_is_variable(const char *name)
{
    static const char *const beginnings[] = { "CUBLAS", "CUDA_", "NCCL_", "NVTE_", "PYTORCH_", "TORCH_" };

    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
            return true;
    return variable_of(name) != NULL;
}

bool environment_is_idle(const char *name)
{
    const struct variable *v = variable_of(name);

    return v && v->kind == NOTHING;
}

/* The value as the row's type has it in JSON; new reference. */
static json_t *typed(const struct knob *k, const char *value)
{
    char *end;

    errno = 0;
    long long n = strtoll(value, &end, 10);
    return k->type == KNOB_INT && *value && !*end && !errno ? json_integer(n) : json_string(value);
}

/* Transformer Engine's get_attention_backend(): a backend whose variable is 0 is out.  Another value leaves it in, as by default. */
static enum environment_answer backend(struct plan *p, const char *name, const char *value, const char **why)
{
    const struct knob *k = knob_find("megatron", "attention_backend", knob_cell(p));
    enum attention_backend *b = &p->megatron.attention_backend;

    if (strcmp(value, "0") || !k || p->kernels != KERNELS_TE)
        return ENVIRONMENT_TAKEN;
    if (!strcmp(name, "NVTE_UNFUSED_ATTN"))
        return *b == BACKEND_UNFUSED ? (*why = "the other backends are 0, too: no attention is left", ENVIRONMENT_LEFT) : ENVIRONMENT_TAKEN;
    enum attention_backend left = !strcmp(name, "NVTE_FLASH_ATTN") ? BACKEND_FUSED : BACKEND_FLASH;
    if (*b == BACKEND_AUTO || *b == left || *b == BACKEND_UNFUSED)
        *b = *b == BACKEND_AUTO ? left : *b;
    else
        *b = BACKEND_UNFUSED;
    return ENVIRONMENT_TAKEN;
}

static bool says_no(const char *value)
{
    static const char *const words[] = { "", "0", "no", "false", "n", "f", "off" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(value, words[i]))
            return true;
    return false;
}

/* Threads of a rank's optimizer on the host; without one there they compute nothing. */
static enum environment_answer threads(struct plan *p, const char *where, const char *name, const char *value)
{
    const struct knob *k = knob_find("", "host_threads", knob_cell(p));
    char *end;

    if (!k || knob_idle(p, k))
        return ENVIRONMENT_TAKEN;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (end == value || *end || errno || n < 1 || n > 1 << 12) {
        fail("%s: %s=%.60s: expected a number of threads from 1 to 4096", where, name, value);
        return ENVIRONMENT_REFUSED;
    }
    p->host_threads = n;
    return ENVIRONMENT_TAKEN;
}

/* torch/_dynamo (eval_frame.py; config.py): 1 alone turns torch.compile off; a loss that is compiled with the model is then the framework's own in fp32. */
static enum environment_answer uncompiled(struct plan *p, const char *where, const char *value, const char **why)
{
    if (strcmp(value, "1"))
        return ENVIRONMENT_TAKEN;
    if (p->kernels != KERNELS_TORCH_COMPILE) {
        *why = "what torch.compile makes beside blocks, such as flex_attention() or a fused loss, is planned as compiled";
        return ENVIRONMENT_LEFT;
    }
    p->kernels = KERNELS_TORCH_SDPA;
    p->compile_mode = COMPILE_DEFAULT;
    p->loss = p->loss == LOSS_COMPILED ? LOSS_FP32 : p->loss;
    *why = "nothing is compiled, whatever is said before: planned as kernels \"torch-sdpa\"";
    return plan_check(p, where) < 0 ? ENVIRONMENT_REFUSED : ENVIRONMENT_CHANGED;
}

enum environment_answer environment_give(struct plan *p, const char *where, const char *name, const char *value, const char **why)
{
    const struct variable *v = variable_of(name);
    const char *row = v && v->kind == ALIAS ? v->of : name;
    const struct knob *k = knob_find("environment", row, knob_cell(p));

    if (k) {
        json_t *j = typed(k, value);
        int rc = knob_read(j, where, k, p);
        json_decref(j);
        return rc < 0 ? ENVIRONMENT_REFUSED : ENVIRONMENT_TAKEN;
    }
    if (knob_cells("environment", row) || (v && v->kind == NOTHING))     /* of another framework */
        return ENVIRONMENT_TAKEN;
    if (v && (v->kind == ZERO_LEFT || v->kind == BUT_ZERO) && (v->kind == BUT_ZERO) == !strcmp(value, "0"))
        return ENVIRONMENT_TAKEN;
    if (v && v->kind == BACKEND)
        return backend(p, name, value, why);
    if (v && v->kind == UNCOMPILED)
        return uncompiled(p, where, value, why);
    if (v && v->kind == THREADS)
        return threads(p, where, name, value);
    if (v && v->kind == REFUSED && says_no(value))
        return ENVIRONMENT_TAKEN;
    if (v && v->kind == REFUSED) {
        fail("%s: %s=%.60s: %s", where, name, value, v->of);
        return ENVIRONMENT_REFUSED;
    }
    if (!v)
        return ENVIRONMENT_UNKNOWN;
    *why = v->of;
    return ENVIRONMENT_LEFT;
}

void environment_each(const struct plan *p, void (*take)(void *to, const char *name, const char *value), void *to)
{
    const struct knob *k;
    char text[32];

    for (int i = 0; (k = knob_at(i)); i++) {
        if (strcmp(k->object, "environment") || !(k->cells & knob_cell(p)) || knob_idle(p, k))
            continue;
        json_t *j = knob_write(p, k);
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
        take(to, k->name, json_is_string(j) ? json_string_value(j) : text);
        json_decref(j);
    }
}

/* ":4096:2:16:8": pairs of KiB and how many (parseChosenWorkspaceSize()). */
int64_t environment_workspace(const struct plan *p)
{
    int64_t bytes = 0;
    const char *at = p->environment.cublas_workspace;

    if (!*at)
        return -1;
    for (int n; *at; at += n) {
        long long kib, count;
        n = 0;
        if (sscanf(at, ":%lld:%lld%n", &kib, &count, &n) < 2 || kib < 0 || count < 0 || kib > 1 << 24 || count > 1 << 16)
            return -2;
        bytes += (int64_t)kib * 1024 * count;
    }
    return bytes;
}

static int check_connections(const struct plan *p, const char *where)
{
    bool splits = p->parallel.tensor > 1 || p->parallel.context > 1;

    if (!framework_of(p)->megatron_layers || !splits || p->environment.max_connections <= 1 || p->cluster.gpu.sm_arch >= 100)
        return 0;
    return fail("%s: environment.CUDA_DEVICE_MAX_CONNECTIONS: Using tensor model parallelism or context parallelism require setting the environment "
                "variable CUDA_DEVICE_MAX_CONNECTIONS to 1", where);
}

int environment_check(const struct plan *p, const char *where)
{
    struct caching_options o = caching_allocator_defaults();

    if (*p->environment.alloc_conf && caching_allocator_configure(&o, p->environment.alloc_conf) < 0)
        return -1;
    if (environment_workspace(p) < -1)
        return fail("%s: environment.CUBLAS_WORKSPACE_CONFIG: expected :KIB:COUNT, once or more, such as :4096:2:16:8", where);
    return check_connections(p, where);
}
