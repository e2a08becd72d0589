/* gpu.c -- the GPU table.
 *
 * Peaks are dense (datasheets print 2:4 sparse figures, twice these, from Ampere on), links
 * and PCIe are per direction (datasheets print both together).  Memory is what the driver
 * calls the total, as nvidia-smi and rocm-smi print it.  `reserved` is how much less than
 * that CUDA offers a process: total less the "total capacity" of PyTorch's out-of-memory
 * messages, the smaller one where drivers differ.  Sources: README.md. */
#include "model/cluster/cluster.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MiB ((int64_t)1 << 20)
#define T   1e12
#define G   1e9
#define GiB ((int64_t)1 << 30)
#define GB  ((int64_t)1000000000)
#define GBIT (1e9 / 8)          /* network adapters are named in Gb/s */

/* What a process's context and kernels take, before any allocation; kernels load lazily
 * since CUDA 11.7, so that it grows with what is used (on A100 from 0.47 to 0.92 GiB when
 * all is loaded: stas00/ml-engineering).  Measure where it matters. */
#define CTX_VOLTA     (400 * MiB)   /* "around 400MB": pytorch/pytorch#109888 */
#define CTX_AMPERE    (482 * MiB)   /* 0.47 GiB, A100, torch 2.1.1: stas00/ml-engineering */
#define CTX_ADA       (426 * MiB)   /* RTX 6000 Ada, torch 2.10, CUDA 13: unsloth-zoo#1053 */
#define CTX_HOPPER    (832 * MiB)   /* H200, torch 2.11+cu130, 11 trainings without NCCL: 828 to 832 (tests/gpu/h200); older logs: README.md */
#define CTX_BLACKWELL (616 * MiB)   /* 8-GPU node, type not stated: LMCache#4019 */
#define CTX_AMD       (400 * MiB)   /* not measured: taken as CUDA's */

/* The host side of a node: DRAM, its bandwidth (sockets x channels x 8 bytes x transfers/s of the processor's
 * datasheet), sockets, disks for files, cores, links from GPUs to host memory.  Memory, disks, cores and links are those
 * of NVIDIA's DGX datasheets and user guides; DIMMs count in GiB.  They do not say how fast these disks are.  In DGX-1
 * and DGX A100 two GPUs share a PCIe switch and its link (nvidia-smi topo: PIX, PXB); DGX H100 has one for each GPU
 * (504 GB/s for 8 H200, MLPerf Inference v4.1, NVIDIA's system description). */
#define HOST_DGX_A100_40 { 1024 * GiB, 2 * 8 * 8 * 3.2 * G,   2, 4 * 3840 * GB, 0, 0, 128, 4, 0 }  /* 2 EPYC 7742, DDR4-3200 */
#define HOST_DGX_A100    { 2048 * GiB, 2 * 8 * 8 * 3.2 * G,   2, 8 * 3840 * GB, 0, 0, 128, 4, 0 }
#define HOST_DGX_H100    { 2048 * GiB, 2 * 8 * 8 * 4.8 * G,   2, 8 * 3840 * GB, 0, 0, 112, 8, 0 }  /* 2 Xeon 8480C, DDR5-4800 */
#define HOST_DGX_B200    { 2048 * GiB, 2 * 8 * 8 * 5.6 * G,   2, 8 * 3840 * GB, 0, 0, 112, 8, 0 }  /* 2 Xeon 8570, DDR5-5600 */
#define HOST_DGX_1       { 512 * GiB,  2 * 4 * 8 * 2.133 * G, 2, 4 * 1920 * GB, 0, 0, 40, 4, 0 }   /* 2 E5-2698 v4, DDR4-2133 */
/* A thread of GB200's Grace issues kernels slower than one of a Xeon 8480C: a Linear's forward, of PyTorch, takes 37.08 us there and 13.48 on DGX H100
 * (NVIDIA/TransformerEngine issue 2053: CPU runtime, bf16, 8192 tokens of 2048).  Times the 12.8 us that are usual (sim/price/issue_cost.c).  The same
 * source has 33.17 us on GH200, and small models train there faster than that allows (baraql/lai-proj, tests/accuracy/offload.jsonl): it has the usual. */
#define GB200_ISSUE      (12.8e-6 * 37.08 / 13.48)
#define HOST_UNKNOWN     { 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#define DGX_A100_40 8, 8, 200 * GBIT, "DGX A100: 8 ConnectX-6 HDR 200 Gb/s (NVIDIA DGX A100 datasheet)", HOST_DGX_A100_40, 0, 0
#define DGX_A100 8, 8, 200 * GBIT, "DGX A100: 8 ConnectX-6 HDR 200 Gb/s (NVIDIA DGX A100 datasheet)", HOST_DGX_A100, 0, 0
#define DGX_H100 8, 8, 400 * GBIT, "DGX H100: 8 ConnectX-7 NDR 400 Gb/s (NVIDIA DGX BasePOD docs)", HOST_DGX_H100, 0, 0
#define DGX_B200 8, 8, 400 * GBIT, "DGX B200: 8 ConnectX-7 NDR 400 Gb/s (NVIDIA DGX BasePOD docs)", HOST_DGX_B200
#define DGX_1    8, 4, 100 * GBIT, "DGX-1: 4 ConnectX-4 EDR 100 Gb/s (NVIDIA DGX-1 datasheet)", HOST_DGX_1, 0, 0
#define ONE_100  8, 1, 100 * GBIT, "no reference node: one 100 Gb/s adapter assumed, as AWS g5/g6", HOST_UNKNOWN, 0, BOARDS

/* The largest nodes where they are not the usual ones: PCIe boards of two slots in one server (Supermicro SYS-322GB-NR: ten),
 * and the NVLink domain of a rack (NVIDIA GB200 and GB300 NVL72 datasheets). */
#define BOARDS 10
#define RACK   72

static const struct gpu table[] = {
    { "v100-16gb", "V100 SXM2 16GB", 16160 * MiB, 900 * G,
      15.7 * T, 0, 125 * T, 0, 0, 80, 150 * G, 16 * G, 70,
      "NVIDIA V100 datasheet; nvidia-smi 16160MiB (16384 from R510), torch 16130 MiB",
      30 * MiB, CTX_VOLTA, DGX_1 },
    { "v100-32gb", "V100 SXM2 32GB", 32510 * MiB, 900 * G,
      15.7 * T, 0, 125 * T, 0, 0, 80, 150 * G, 16 * G, 70,
      "NVIDIA V100 datasheet; nvidia-smi 32510MiB, torch 31.73 GiB",
      19 * MiB, CTX_VOLTA, DGX_1 },
    { "v100-pcie-16gb", "V100 PCIe 16GB", 16160 * MiB, 900 * G,
      14 * T, 0, 112 * T, 0, 0, 80, 0, 16 * G, 70,
      "NVIDIA V100 datasheet; memory as v100-16gb",
      30 * MiB, CTX_VOLTA, ONE_100 },
    { "v100-pcie-32gb", "V100 PCIe 32GB", 32510 * MiB, 900 * G,
      14 * T, 0, 112 * T, 0, 0, 80, 0, 16 * G, 70,
      "NVIDIA V100 datasheet; nvidia-smi 32510MiB, torch 31.73 GiB",
      19 * MiB, CTX_VOLTA, ONE_100 },
    { "a100-40gb", "A100 SXM4 40GB", 40960 * MiB, 1555 * G,
      19.5 * T, 156 * T, 312 * T, 312 * T, 0, 108, 300 * G, 31 * G, 80,
      "NVIDIA A100 datasheet; nvidia-smi 40960MiB, torch 39.38 GiB",
      635 * MiB, CTX_AMPERE, DGX_A100_40 },
    { "a100-80gb", "A100 SXM4 80GB", 81920 * MiB, 2039 * G,
      19.5 * T, 156 * T, 312 * T, 312 * T, 0, 108, 300 * G, 31 * G, 80,
      "NVIDIA A100 datasheet; nvidia-smi 81920MiB, torch 79.14 GiB",
      881 * MiB, CTX_AMPERE, DGX_A100 },
    { "a100-pcie-40gb", "A100 PCIe 40GB", 40960 * MiB, 1555 * G,
      19.5 * T, 156 * T, 312 * T, 312 * T, 0, 108, 0, 31 * G, 80,
      "NVIDIA A100 datasheet; nvidia-smi 40960MiB, torch 39.38 GiB; no NVLink bridge",
      635 * MiB, CTX_AMPERE, ONE_100 },
    { "a100-pcie-80gb", "A100 PCIe 80GB", 81920 * MiB, 1935 * G,
      19.5 * T, 156 * T, 312 * T, 312 * T, 0, 108, 0, 31 * G, 80,
      "NVIDIA A100 datasheet; nvidia-smi 81920MiB, torch 79.14 GiB; no NVLink bridge",
      881 * MiB, CTX_AMPERE, ONE_100 },
    /* The export version: NVLink cut from 12 links to 8. */
    { "a800", "A800 SXM4 80GB", 81920 * MiB, 2039 * G,
      19.5 * T, 156 * T, 312 * T, 312 * T, 0, 108, 200 * G, 31 * G, 80,
      "NVIDIA A800 datasheet (A100 with 400 GB/s NVLink); nvidia-smi 81920MiB, reserve as A100",
      881 * MiB, CTX_AMPERE, DGX_A100 },
    { "h100", "H100 SXM5 80GB", 81559 * MiB, 3350 * G,
      67 * T, 494.5 * T, 989 * T, 989 * T, 1979 * T, 132, 450 * G, 63 * G, 90,
      "NVIDIA H100 datasheet; nvidia-smi 81559MiB, torch 79.11 GiB",
      551 * MiB, CTX_HOPPER, DGX_H100 },
    { "h100-pcie", "H100 PCIe 80GB", 81559 * MiB, 2000 * G,
      51 * T, 378 * T, 756 * T, 756 * T, 1513 * T, 114, 0, 63 * G, 90,
      "NVIDIA H100 datasheet and PB-11133; nvidia-smi 81559MiB; no NVLink bridge",
      551 * MiB, CTX_HOPPER, ONE_100 },
    { "h100-nvl", "H100 NVL 94GB", 95830 * MiB, 3900 * G,
      60 * T, 417.5 * T, 835 * T, 835 * T, 1670 * T, 132, 0, 63 * G, 90,
      "NVIDIA H100 NVL datasheet; nvidia-smi 95830MiB, torch 93.00 GiB; bridges join pairs only",
      598 * MiB, CTX_HOPPER, ONE_100 },
    { "h20", "H20 96GB", 97871 * MiB, 4000 * G,
      44 * T, 74 * T, 148 * T, 148 * T, 296 * T, 78, 450 * G, 63 * G, 90,
      "NVIDIA H20 datasheet as reported in the press; nvidia-smi 97871MiB, torch 95.00 GiB",
      591 * MiB, CTX_HOPPER, DGX_H100 },
    { "h200", "H200 SXM 141GB", 143771 * MiB, 4800 * G,
      67 * T, 494.5 * T, 989 * T, 989 * T, 1979 * T, 132, 450 * G, 63 * G, 90,
      "NVIDIA H200 datasheet; nvidia-smi 143771MiB, torch 139.72 GiB",
      698 * MiB, CTX_HOPPER, DGX_H100 },
    /* pcie: NVLink-C2C to its own Grace; copies reach what the LPDDR5X gives (512 GB/s for up to 120 GB: NVIDIA GH200
     * datasheet; measured 346 GB/s of a 480 GB module's 384, NVIDIA/nvbandwidth#23). */
    { "gh200", "GH200 96GB", 97871 * MiB, 4000 * G,
      67 * T, 494.5 * T, 989 * T, 989 * T, 1979 * T, 132, 450 * G, 450 * G, 90,
      "NVIDIA GH200 datasheet; nvidia-smi 97871MiB, torch 94.50 GiB",
      1103 * MiB, CTX_HOPPER,
      4, 4, 200 * GBIT, "Alps: 4 GH200, 4 x Slingshot-11 200 Gb/s (CSCS user guide)",
      { 4 * 120 * GB, 4 * 512 * G, 4, 0, 0, 0, 4 * 72, 4, 0 }, 0, 0 },
    { "b200", "B200 SXM 180GB", 183359 * MiB, 8000 * G,
      75 * T, 1125 * T, 2250 * T, 2250 * T, 4500 * T, 148, 900 * G, 63 * G, 100,
      "NVIDIA HGX B200 datasheet; nvidia-smi 183359MiB, torch 178.35 GiB",
      729 * MiB, CTX_BLACKWELL, DGX_B200, 9000 * T, 0 },
    { "b300", "B300 SXM 270GB", 275040 * MiB, 8000 * G,
      75 * T, 1125 * T, 2250 * T, 2250 * T, 4500 * T, 148, 900 * G, 126 * G, 103,
      "NVIDIA HGX B300 datasheet (144 PFLOPS FP4 sparse, 108 dense, 72 FP8 sparse, 2.1 TB for 8); nvidia-smi 275040MiB, torch 267.69 GiB",
      925 * MiB, CTX_BLACKWELL, 8, 8, 800 * GBIT, "DGX B300: 8 ConnectX-8 800 Gb/s (NVIDIA DGX B300 datasheet)", HOST_DGX_B200, 13500 * T, 0 },
    /* pcie: NVLink-C2C to Grace, 450 GB/s per direction, shared by the two GPUs of a
     * superchip.  The node is a compute tray; a rack is one NVLink domain of 72. */
    { "gb200", "GB200 186GB", 189471 * MiB, 8000 * G,
      80 * T, 1250 * T, 2500 * T, 2500 * T, 5000 * T, 152, 900 * G, 225 * G, 100,
      "NVIDIA GB200 NVL72 datasheet, per GPU; nvidia-smi 189471MiB, torch 184.31 GiB",
      738 * MiB, CTX_BLACKWELL,
      4, 4, 400 * GBIT, "GB200 NVL72 tray: 4 GPUs, 4 ConnectX-7 400 Gb/s (NVIDIA)",
      /* 2 Grace with 480 GB of LPDDR5X, up to 512 GB/s, 72 cores (NVIDIA GB200 NVL72 datasheet). */
      { 2 * 480 * GB, 2 * 512 * G, 2, 0, 0, 0, 2 * 72, 4, GB200_ISSUE }, 10000 * T, RACK },
    { "gb300", "GB300 279GB", 284208 * MiB, 8000 * G,
      80 * T, 1250 * T, 2500 * T, 2500 * T, 5000 * T, 152, 900 * G, 225 * G, 103,
      "NVIDIA GB300 NVL72 datasheet over 72 (1,080 PFLOPS FP4 dense, 720 FP8 sparse, 20 TB); nvidia-smi 284208MiB, torch 276.50 GiB",
      1072 * MiB, CTX_BLACKWELL,
      4, 4, 800 * GBIT, "GB300 NVL72 tray: 4 GPUs, 4 ConnectX-8 800 Gb/s (NVIDIA)",
      { 2 * 480 * GB, 2 * 512 * G, 2, 0, 0, 0, 2 * 72, 4, GB200_ISSUE }, 15000 * T, RACK },
    { "l4", "L4 24GB", 23034 * MiB, 300 * G,
      30.3 * T, 60 * T, 121 * T, 121 * T, 242.5 * T, 58, 0, 31 * G, 89,
      "NVIDIA L4 datasheet; nvidia-smi 23034MiB, torch 22.03 GiB",
      476 * MiB, CTX_ADA, ONE_100 },
    { "l40s", "L40S 48GB", 46068 * MiB, 864 * G,
      91.6 * T, 183 * T, 362 * T, 362 * T, 733 * T, 142, 0, 31 * G, 89,
      "NVIDIA L40S datasheet; nvidia-smi 46068MiB, torch 44.39 GiB",
      613 * MiB, CTX_ADA, ONE_100 },
    { "a10g", "A10G 24GB", 23028 * MiB, 600 * G,
      31.5 * T, 35 * T, 70 * T, 70 * T, 0, 80, 0, 31 * G, 86,
      "NVIDIA A10G datasheet (AWS g5); nvidia-smi 23028MiB, torch 22.05 GiB",
      449 * MiB, CTX_AMPERE, ONE_100 },
    /* GeForce: half-precision products with fp32 accumulation, as training has them. */
    { "rtx3090", "GeForce RTX 3090", 24576 * MiB, 936 * G,
      35.6 * T, 35.6 * T, 71 * T, 71 * T, 0, 82, 0, 31 * G, 86,
      "NVIDIA GA102 whitepaper; nvidia-smi 24576MiB, torch 23.68 GiB; its bridge joins pairs only",
      328 * MiB, CTX_AMPERE, ONE_100 },
    { "rtx4090", "GeForce RTX 4090", 24564 * MiB, 1008 * G,
      82.6 * T, 82.6 * T, 165.2 * T, 165.2 * T, 330.3 * T, 128, 0, 31 * G, 89,
      "NVIDIA Ada whitepaper; nvidia-smi 24564MiB, torch 23.64 GiB",
      357 * MiB, CTX_ADA, ONE_100 },
    /* One GCD, half a module: the system shows two devices per MI250X, and each is a rank.
     * link: one xGMI link between two GCDs; the mesh is not complete. */
    { "mi250x", "MI250X (one GCD of two) 64GB", 65520 * MiB, 1638 * G,
      23.95 * T, 0, 191.5 * T, 191.5 * T, 0, 110, 50 * G, 31 * G, 0,
      "AMD MI250X datasheet, halved; rocm-smi 68702699520 B, torch 63.98 GiB",
      5 * MiB, CTX_AMD,
      8, 4, 200 * GBIT, "Frontier: 8 GCDs, 4 Slingshot-11 200 Gb/s (OLCF user guide)",
      { 512 * GiB, 205 * G, 1, 2 * 1920 * GB, 0, 0, 64, 8, 0 }, 0, 0 },   /* OLCF user guide */
    /* link: seven xGMI links of 64 GB/s together, one to each other GPU of the node. */
    { "mi300x", "MI300X OAM 192GB", 196592 * MiB, 5300 * G,
      163.4 * T, 653.7 * T, 1307.4 * T, 1307.4 * T, 2614.9 * T, 304, 448 * G, 63 * G, 0,
      "AMD MI300X datasheet; rocm-smi 206141652992 B, torch 191.98 GiB",
      5 * MiB, CTX_AMD,
      8, 8, 400 * GBIT, "8 GPUs, 8 x 400 Gb/s, as OCI BM.GPU.MI300X and Azure ND MI300X v5 (1850 GiB)",
      { 1850 * GiB, 0, 0, 0, 0, 0, 0, 0, 0 }, 0, 0 },
    /* The export version of H100: NVLink cut to 400 GB/s. */
    { "h800", "H800 SXM5 80GB", 81559 * MiB, 3350 * G,
      67 * T, 494.5 * T, 989 * T, 989 * T, 1979 * T, 132, 200 * G, 63 * G, 90,
      "NVIDIA H800 datasheet as reported in the press (H100 with 400 GB/s NVLink); memory and reserve as H100",
      551 * MiB, CTX_HOPPER, DGX_H100 },
    { "t4", "T4 16GB", 15360 * MiB, 320 * G,
      8.1 * T, 0, 65 * T, 0, 0, 40, 0, 16 * G, 75,
      "NVIDIA T4 datasheet; nvidia-smi 15360MiB, torch 14.75 GiB",
      256 * MiB, CTX_VOLTA, ONE_100 },
    { "a10", "A10 24GB", 23028 * MiB, 600 * G,
      31.2 * T, 62.5 * T, 125 * T, 125 * T, 0, 72, 0, 31 * G, 86,
      "NVIDIA A10 datasheet; nvidia-smi 23028MiB, torch 22.06 GiB",
      438 * MiB, CTX_AMPERE, ONE_100 },
    { "a40", "A40 48GB", 46068 * MiB, 696 * G,
      37.4 * T, 74.8 * T, 149.7 * T, 149.7 * T, 0, 84, 0, 31 * G, 86,
      "NVIDIA A40 datasheet; nvidia-smi 46068MiB, torch 44.35 GiB; its bridge joins pairs only",
      654 * MiB, CTX_AMPERE, ONE_100 },
    { "a6000", "RTX A6000 48GB", 49140 * MiB, 768 * G,
      38.7 * T, 77.4 * T, 154.8 * T, 154.8 * T, 0, 84, 0, 31 * G, 86,
      "NVIDIA RTX A6000 datasheet; nvidia-smi 49140MiB, torch 47.54 GiB; its bridge joins pairs only",
      459 * MiB, CTX_AMPERE, ONE_100 },
    { "l40", "L40 48GB", 46068 * MiB, 864 * G,
      90.5 * T, 90.5 * T, 181 * T, 181 * T, 362 * T, 142, 0, 31 * G, 89,
      "NVIDIA L40 datasheet; nvidia-smi 46068MiB, reserve as L40S",
      613 * MiB, CTX_ADA, ONE_100 },
    { "rtx6000-ada", "RTX 6000 Ada 48GB", 49140 * MiB, 960 * G,
      91.1 * T, 182.1 * T, 364.2 * T, 364.2 * T, 728.5 * T, 142, 0, 31 * G, 89,
      "NVIDIA RTX 6000 Ada datasheet; nvidia-smi 49140MiB, torch 47.50 GiB",
      500 * MiB, CTX_ADA, ONE_100 },
    { "rtx-pro-6000", "RTX PRO 6000 Blackwell 96GB", 97887 * MiB, 1792 * G,
      125 * T, 251.9 * T, 503.8 * T, 503.8 * T, 1007.6 * T, 188, 0, 63 * G, 120,
      "NVIDIA RTX PRO 6000 Blackwell Workstation datasheet and RTX Blackwell PRO whitepaper; nvidia-smi 97887MiB, torch 94.97 GiB",
      638 * MiB, CTX_BLACKWELL, ONE_100 },
    /* Turing: products of 16-bit numbers with sums in fp32, at half rate on GeForce. */
    { "titan-rtx", "TITAN RTX 24GB", 24220 * MiB, 672 * G,
      16.3 * T, 0, 130.5 * T, 0, 0, 72, 0, 16 * G, 75,
      "NVIDIA Turing whitepaper; nvidia-smi 24220MiB, reserve as RTX 3090; its bridge joins pairs only",
      328 * MiB, CTX_VOLTA, ONE_100 },
    { "rtx2080ti", "GeForce RTX 2080 Ti", 11019 * MiB, 616 * G,
      13.4 * T, 0, 53.8 * T, 0, 0, 68, 0, 16 * G, 75,
      "NVIDIA Turing whitepaper; nvidia-smi 11019MiB, torch 10.76 GiB",
      1 * MiB, CTX_VOLTA, ONE_100 },
    { "rtx3080", "GeForce RTX 3080", 10240 * MiB, 760 * G,
      29.8 * T, 29.8 * T, 59.5 * T, 59.5 * T, 0, 68, 0, 31 * G, 86,
      "NVIDIA GA102 whitepaper; nvidia-smi 10240MiB, reserve as RTX 3090",
      328 * MiB, CTX_AMPERE, ONE_100 },
    { "rtx3090ti", "GeForce RTX 3090 Ti", 24564 * MiB, 1008 * G,
      40 * T, 40 * T, 80 * T, 80 * T, 0, 84, 0, 31 * G, 86,
      "NVIDIA GeForce RTX 3090 Ti specifications, tensor rates as GA102's by clock and units; nvidia-smi 24564MiB, reserve as RTX 3090",
      328 * MiB, CTX_AMPERE, ONE_100 },
    { "rtx4080", "GeForce RTX 4080", 16376 * MiB, 716.8 * G,
      48.7 * T, 48.7 * T, 97.5 * T, 97.5 * T, 194.9 * T, 76, 0, 31 * G, 89,
      "NVIDIA Ada whitepaper; nvidia-smi 16376MiB, reserve as RTX 4090",
      357 * MiB, CTX_ADA, ONE_100 },
    { "rtx5080", "GeForce RTX 5080", 16303 * MiB, 960 * G,
      56.3 * T, 56.3 * T, 112.6 * T, 112.6 * T, 225.1 * T, 84, 0, 63 * G, 120,
      "NVIDIA RTX Blackwell whitepaper; nvidia-smi 16303MiB, reserve as RTX 5090",
      485 * MiB, CTX_BLACKWELL, ONE_100 },
    { "rtx5090", "GeForce RTX 5090", 32607 * MiB, 1792 * G,
      104.8 * T, 104.8 * T, 209.5 * T, 209.5 * T, 419 * T, 170, 0, 63 * G, 120,
      "NVIDIA RTX Blackwell whitepaper; nvidia-smi 32607MiB, torch 31.37 GiB",
      485 * MiB, CTX_BLACKWELL, ONE_100 },
    { "mi325x", "MI325X OAM 256GB", 262128 * MiB, 6000 * G,
      163.4 * T, 653.7 * T, 1307.4 * T, 1307.4 * T, 2614.9 * T, 304, 448 * G, 63 * G, 0,
      "AMD MI325X datasheet; amd-smi 262128 MB, torch 255.98 GiB",
      5 * MiB, CTX_AMD,
      8, 8, 400 * GBIT, "8 GPUs, 8 x 400 Gb/s, as MI300X's reference node", HOST_UNKNOWN, 0, 0 },
    { "mi355x", "MI355X OAM 288GB", 294896 * MiB, 8000 * G,
      157.3 * T, 0, 2516.6 * T, 2516.6 * T, 5033.2 * T, 256, 537.6 * G, 63 * G, 0,
      "AMD MI355X datasheet; torch 287.98 GiB, reserve as MI300X",
      5 * MiB, CTX_AMD,
      8, 8, 400 * GBIT, "8 GPUs, 8 x 400 Gb/s, as MI300X's reference node", HOST_UNKNOWN, 10066.3 * T, 0 },
};

#define NGPU ((int)(sizeof table / sizeof table[0]))

/* Other names.  A bare family name means its larger or commoner version. */
static const struct { const char *alias, *name; } aliases[] = {
    { "v100", "v100-16gb" }, { "v100-sxm2-16gb", "v100-16gb" }, { "v100-sxm2-32gb", "v100-32gb" },
    { "v100-pcie", "v100-pcie-16gb" },
    { "a100", "a100-80gb" }, { "a100-sxm", "a100-80gb" }, { "a100-80", "a100-80gb" },
    { "a100-sxm4-80gb", "a100-80gb" }, { "a100-sxm-80gb", "a100-80gb" },
    { "a100-40", "a100-40gb" }, { "a100-sxm4-40gb", "a100-40gb" }, { "a100-sxm-40gb", "a100-40gb" },
    { "a100-pcie", "a100-pcie-80gb" }, { "a100-80gb-pcie", "a100-pcie-80gb" },
    { "a100-40gb-pcie", "a100-pcie-40gb" }, { "a800-80gb", "a800" }, { "a800-sxm", "a800" },
    { "h100-sxm", "h100" }, { "h100-sxm5", "h100" }, { "h100-80gb", "h100" },
    { "h100-80gb-hbm3", "h100" }, { "h100-pcie-80gb", "h100-pcie" }, { "h100-94gb", "h100-nvl" },
    { "h20-96gb", "h20" }, { "h200-sxm", "h200" }, { "h200-141gb", "h200" }, { "gh200-96gb", "gh200" },
    { "b200-sxm", "b200" }, { "b200-180gb", "b200" }, { "gb200-186gb", "gb200" }, { "b300-sxm", "b300" },
    { "l4-24gb", "l4" }, { "l40s-48gb", "l40s" }, { "a10g-24gb", "a10g" },
    { "3090", "rtx3090" }, { "rtx-3090", "rtx3090" }, { "rtx3090-24gb", "rtx3090" },
    { "4090", "rtx4090" }, { "rtx-4090", "rtx4090" }, { "rtx4090-24gb", "rtx4090" },
    { "h800-sxm", "h800" }, { "h800-80gb", "h800" }, { "a10-24gb", "a10" }, { "a40-48gb", "a40" }, { "t4-16gb", "t4" }, { "l40-48gb", "l40" },
    { "rtx-a6000", "a6000" }, { "rtxa6000", "a6000" }, { "a6000-48gb", "a6000" }, { "rtx6000ada", "rtx6000-ada" }, { "6000-ada", "rtx6000-ada" },
    { "rtx-6000-ada", "rtx6000-ada" }, { "a6000-ada", "rtx6000-ada" }, { "pro6000", "rtx-pro-6000" }, { "rtxpro6000", "rtx-pro-6000" },
    { "rtx-pro6000", "rtx-pro-6000" }, { "rtx6000-pro", "rtx-pro-6000" }, { "titanrtx", "titan-rtx" },
    { "2080ti", "rtx2080ti" }, { "rtx-2080ti", "rtx2080ti" }, { "rtx-2080-ti", "rtx2080ti" }, { "3080", "rtx3080" }, { "rtx-3080", "rtx3080" },
    { "3090ti", "rtx3090ti" }, { "rtx-3090ti", "rtx3090ti" }, { "rtx-3090-ti", "rtx3090ti" }, { "4080", "rtx4080" }, { "rtx-4080", "rtx4080" },
    { "5080", "rtx5080" }, { "rtx-5080", "rtx5080" }, { "5090", "rtx5090" }, { "rtx-5090", "rtx5090" }, { "rtx5090-32gb", "rtx5090" },
    { "mi325x-256gb", "mi325x" }, { "mi355x-288gb", "mi355x" },
    { "mi250x-gcd", "mi250x" }, { "mi250x-64gb", "mi250x" }, { "mi300x-192gb", "mi300x" },
};

#define NALIAS ((int)(sizeof aliases / sizeof aliases[0]))

const struct gpu *gpu_at(int i)
{
    return i >= 0 && i < NGPU ? &table[i] : NULL;
}

static const struct gpu *by_name(const char *name)
{
    for (int i = 0; i < NGPU; i++)
        if (!strcasecmp(name, table[i].name))
            return &table[i];
    return NULL;
}

const struct gpu *gpu_find(const char *name)
{
    for (int i = 0; i < NALIAS; i++)
        if (!strcasecmp(name, aliases[i].alias))
            return by_name(aliases[i].name);
    return by_name(name);
}

double gpu_scaled_peak(const struct gpu *g, enum scaled s)
{
    return s == SCALED_NONE ? 0 : s == SCALED_NVFP4 ? g->fp4 : g->fp8;
}

const char *gpu_lacks_scaled(const struct gpu *g, enum scaled s)
{
    if (s == SCALED_NONE)
        return NULL;
    if (!(gpu_scaled_peak(g, s) > 0))
        return s == SCALED_NVFP4 ? "it has no units for 4-bit floats" : "it has no units for 8-bit floats";
    if (s >= SCALED_MXFP8 && g->sm_arch < 100)
        return "scales of 32 and of 16 numbers are multiplied from Blackwell on";
    return s == SCALED_FP8_BLOCK && g->sm_arch < 90 ? "scales by block are multiplied from Hopper on" : NULL;
}

/* Insertions, deletions and replacements that turn a into b, case aside. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    int row[MAX + 1] = { 0 }, n = 0;

    for (; n < MAX && b[n]; n++)
        row[n + 1] = n + 1;
    for (int i = 0; i < MAX && a[i]; i++) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 1; j <= n; j++) {
            int replace = diagonal + !!strncasecmp(a + i, b + j - 1, 1);
            int least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = replace < least ? replace : least;
        }
    }
    return row[n];
}

void gpu_nearest(const char *name, char *out, size_t size)
{
    int    best[3] = { -1, -1, -1 }, far[3] = { 99, 99, 99 };
    size_t n = 0;

    for (int i = 0; i < NGPU; i++) {
        int d = distance(name, table[i].name), at = 3;

        while (at > 0 && d < far[at - 1])
            at--;
        if (at == 3)
            continue;
        memmove(&best[at + 1], &best[at], (size_t)(2 - at) * sizeof best[0]);
        memmove(&far[at + 1], &far[at], (size_t)(2 - at) * sizeof far[0]);
        best[at] = i;
        far[at] = d;
    }
    out[0] = '\0';
    for (int k = 0; k < 3 && n < size; k++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", k ? ", " : "", table[best[k]].name);
}
