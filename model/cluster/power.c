/* power.c -- the board power of GPU types: the most that a board may draw, not what a run draws. */
#include "model/cluster/cluster.h"

#include <strings.h>

static const struct { const char *name; double watts; const char *source; } table[] = {
    { "v100-16gb",      300,  "NVIDIA V100 datasheet, SXM2" },
    { "v100-32gb",      300,  "NVIDIA V100 datasheet, SXM2" },
    { "v100-pcie-16gb", 250,  "NVIDIA V100 datasheet, PCIe" },
    { "v100-pcie-32gb", 250,  "NVIDIA V100 datasheet, PCIe" },
    { "a100-40gb",      400,  "NVIDIA A100 datasheet, SXM" },
    { "a100-80gb",      400,  "NVIDIA A100 datasheet, SXM" },
    { "a100-pcie-40gb", 250,  "NVIDIA A100 datasheet, 40GB PCIe" },
    { "a100-pcie-80gb", 300,  "NVIDIA A100 datasheet, 80GB PCIe" },
    { "a800",           400,  "NVIDIA A800 datasheet, SXM" },
    { "h100",           700,  "NVIDIA H100 datasheet, SXM: up to 700 W" },
    { "h100-pcie",      350,  "NVIDIA H100 datasheet, PCIe: 300 to 350 W" },
    { "h100-nvl",       400,  "NVIDIA H100 NVL datasheet: 350 to 400 W" },
    { "h20",            400,  "NVIDIA H20 datasheet as reported in the press" },
    { "h200",           700,  "NVIDIA H200 datasheet, SXM: up to 700 W" },
    { "b200",           1000, "NVIDIA HGX B200 datasheet: up to 1000 W" },
    { "gh200",          1000, "NVIDIA GH200 datasheet: 450 to 1000 W for GPU, Grace and memory together" },
    { "gb200",          1350, "NVIDIA GB200 Superchip: up to 2700 W for two GPUs and a Grace; half of it" },
    { "b300",           1100, "NVIDIA HGX B300 datasheet: up to 1100 W" },
    { "gb300",          1400, "NVIDIA GB300 NVL72 datasheet: up to 1400 W" },
    { "l4",             72,   "NVIDIA L4 datasheet" },
    { "l40s",           350,  "NVIDIA L40S datasheet" },
    { "a10g",           300,  "the limit that nvidia-smi shows on AWS g5" },
    { "rtx3090",        350,  "NVIDIA GeForce RTX 3090 specifications" },
    { "rtx4090",        450,  "NVIDIA GeForce RTX 4090 specifications" },
    { "mi250x",         280,  "AMD MI250X datasheet: 560 W peak for a module of two GCDs; half of it" },
    { "mi300x",         750,  "AMD MI300X datasheet" },
    { "h800",           700,  "as H100" },
    { "t4",             70,   "NVIDIA T4 datasheet" },
    { "a10",            150,  "NVIDIA A10 datasheet" },
    { "a40",            300,  "NVIDIA A40 datasheet" },
    { "a6000",          300,  "NVIDIA RTX A6000 datasheet" },
    { "l40",            300,  "NVIDIA L40 datasheet" },
    { "rtx6000-ada",    300,  "NVIDIA RTX 6000 Ada datasheet" },
    { "rtx-pro-6000",   600,  "NVIDIA RTX PRO 6000 Blackwell Workstation datasheet" },
    { "titan-rtx",      280,  "NVIDIA TITAN RTX specifications" },
    { "rtx2080ti",      250,  "NVIDIA GeForce RTX 2080 Ti specifications" },
    { "rtx3080",        320,  "NVIDIA GeForce RTX 3080 specifications" },
    { "rtx3090ti",      450,  "NVIDIA GeForce RTX 3090 Ti specifications" },
    { "rtx4080",        320,  "NVIDIA GeForce RTX 4080 specifications" },
    { "rtx5080",        360,  "NVIDIA GeForce RTX 5080 specifications" },
    { "rtx5090",        575,  "NVIDIA GeForce RTX 5090 specifications" },
    { "mi325x",         1000, "AMD MI325X datasheet" },
    { "mi355x",         1400, "AMD MI355X datasheet" },
};

/* NVIDIA GB200 NVL72 datasheet: "configurable up to 1,200 W" a GPU.  Of GH200's 1000 W no share is stated. */
static const struct { const char *name; double watts; } alone[] = { { "gb200", 1200 }, { "gh200", 0 } };

double power_gpu_watts(const char *name)
{
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (!strcasecmp(alone[i].name, name))
            return alone[i].watts;
    return power_watts(name, NULL);
}

double power_watts(const char *name, const char **source)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcasecmp(table[i].name, name)) {
            if (source)
                *source = table[i].source;
            return table[i].watts;
        }
    return 0;
}
