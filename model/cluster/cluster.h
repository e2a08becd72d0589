/* cluster.h -- the machines: GPUs, nodes, memory, links.
 *
 *     struct cluster c;
 *     if (cluster_load("4x8xh100", &c) < 0)
 *         return 2;
 *
 * Bandwidths are bytes/s in one direction, rates FLOP/s, memory bytes. */
#ifndef DPX_CLUSTER_H
#define DPX_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"

/* Shared by the GPUs of a node: its processors, their memory and its own disks.  0: not known; a plan that needs
 * the figure is refused with the name of its key. */
struct cluster_node {
    int64_t     memory;             /* DRAM, bytes */
    double      dram;               /* bandwidth of that, all sockets together */
    int         sockets;
    int64_t     disk;               /* bytes for files */
    double      disk_read, disk_write;      /* of all its disks together */
    int         cores;              /* of all its processors */
    int         links;              /* from its GPUs to host memory, gpu.pcie each; 0: as many as GPUs */
    double      issue;              /* seconds that a thread takes to issue a kernel of PyTorch's without gradients, on average
                                     * (tests/bench/issue_gpu.py); 0: not known, and taken as published (sim/price/issue_cost.c) */
};

/* What a run of weeks needs beyond its steps (sim/bill/, dpxplan bill); 0 and "": not stated.  Rates bytes/s, times seconds. */
struct cluster_runs {
    double  storage, storage_node;  /* where checkpoints go: of all nodes together, of one at most */
    bool    storage_by_training;    /* it is reached over the network that training uses */
    char    rate[16];               /* published interruptions by name (sim/bill/failures.h), or */
    double  mtbf;                   /* how long one GPU with its share of the node runs until it interrupts the job; beside the next two the GPU alone */
    double  node_mtbf, network_mtbf;        /* so long one node without its GPUs, and the network between nodes */
    double  recover, repair;        /* until ranks load a checkpoint; until a node that failed is back */
    double  warm_up;                /* from the loaded checkpoint to steps as usual: compile, first step, data */
    int     spares;                 /* nodes that stand by, where repair is stated */
};

/* A GPU type, from its datasheet.  0 means that the datasheet has no such
 * figure (V100 has no bf16 tensor cores). */
struct gpu {
    char    name[32];               /* "h100", "a100-80gb" ... as on the command line */
    char    title[64];              /* "H100 SXM5 80GB" */
    int64_t memory;                 /* bytes as the driver reports them, not the marketing GB */
    double  hbm;                    /* memory bandwidth */
    double  fp32, tf32, fp16, bf16, fp8;    /* dense peaks, FLOP/s */
    int     sms;
    double  link;                   /* GPU-to-GPU link (NVLink, xGMI) per direction, 0: PCIe only */
    double  pcie;
    int     sm_arch;                /* compute capability x10 (80, 90 ...), 0 for other vendors */
    char    source[160];            /* where memory, peaks and bandwidths come from */

    /* Of `memory`, what no framework gets: the driver's own reserve, and what one process
     * loses to its context and loaded kernels. */
    int64_t reserved, context;

    /* The usual node: so many GPUs, so many network adapters, so many bytes/s each. */
    int     node_gpus, nics;
    double  nic;
    char    fabric[96];             /* that node, in words, with its source */
    struct cluster_node node;               /* of node_gpus GPUs; sources: gpu.c */
    double  fp4;                    /* dense peak of 4-bit floats, as fp8 */
    int     most;                   /* GPUs of the largest node or NVLink domain that has it; 0: node_gpus (cluster_most()) */
};

/* What is larger is refused as a mistake.  The largest NVLink domains announced have 576
 * GPUs. */
#define CLUSTER_MAX_RANKS 10000000
#define CLUSTER_MAX_GPUS_PER_NODE 1024
/* Kept free for fragmentation and what is not modelled, unless stated. */
#define CLUSTER_HEADROOM 0.05

/* NCCL_NVLS_ENABLE: NVLink SHARP where there is any (2, NCCL's default), required (1), or not used (0). */
enum nccl_nvls { NVLS_AUTO, NVLS_REQUIRED, NVLS_OFF };

/* NCCL's environment, of the plan (environment.h): all 0 is NCCL's own. */
struct cluster_nccl {
    enum nccl_nvls nvls;
    int64_t        buffsize;        /* NCCL_BUFFSIZE; 0: 4 MiB */
};

struct cluster {
    char       name[64];            /* as given: "4x8xh100", "localhost:4", a file's name */
    char       calibration[80];     /* whose measurements predictions rest on, by name; CLUSTER_UNCALIBRATED: no one's;
                                     * "": as calib/store/belongs.h says */
    int64_t    nodes, gpus_per_node, world_size;
    struct gpu gpu;
    double     intra;               /* link between GPUs of a node, bytes/s per direction */
    double     inter;               /* all network adapters of a node together, per direction */
    int        nics;                /* network adapters per node */
    double     alpha_intra, alpha_inter;    /* seconds per message; 0: not stated */
    int64_t    memory;              /* per rank, as the driver reports */
    int64_t    context;             /* outside every allocator: gpu.reserved + gpu.context */
    double     headroom;            /* share of memory kept free, 0.05 */
    double     power_limit_w;       /* of each GPU, as nvidia-smi -pl sets it; 0: its board's own */
    struct cluster_node node;               /* each */
    struct cluster_runs runs;
    struct cluster_nccl nccl;
    int        is_host;             /* ranks are processes on CPU cores: of this machine (localhost), or of
                                     * several like it; "host": true in a file */

    /* What was measured on these machines, for the precision at hand; NULL: nothing.  Set by main
     * programs, whose it stays; in no file. */
    const struct measured_device *measured;
};

/* No measurements, in struct cluster's calibration. */
#define CLUSTER_UNCALIBRATED "none"

/* `4x8xh100`, `8xh100`, a GPU name (one GPU), a built-in cluster name (`dgx-h100`; four
 * of them: `4xdgx-h100`), a JSON file, `localhost`, `localhost:4`.  Case does not matter.
 * More GPUs than a node of that type has are refused, with the shape that was probably meant.
 * Behind each of them `@NAME` may say whose calibration is meant (`4x8xh100@atlas`).
 * 0, or -1 with the reason reported. */
int cluster_load(const char *spec, struct cluster *out);

/* Is it written as a number of GPUs, a GPU, a built-in cluster or localhost, and no file?  Whether there is such a GPU is left to cluster_load(). */
bool cluster_is_spec(const char *word);

/* From the JSON object of a cluster file or of a plan (or a string: a spec as above);
 * `where` names it in messages.  What is left out takes the GPU type's usual node.
 * Unknown keys, zero or NaN bandwidth, nodes*gpus_per_node != world_size and so
 * on are refused with the field named. */
int cluster_from_json(const json_t *j, const char *where, struct cluster *out);

/* Is its name more than a number of GPUs, a built-in cluster or ranks of this host? */
bool cluster_has_own_name(const struct cluster *c);

/* Complete description that cluster_from_json() reads back (new reference). */
json_t *cluster_to_json(const struct cluster *c);

/* memory - context - headroom*memory, at least 0: what a plan may use. */
int64_t cluster_available(const struct cluster *c);

/* Bytes of a node's DRAM (what is assumed where it is not known) and of its disks that its ranks may use together.  0, or -1
 * with the missing key reported.  The share of DRAM kept free is that of device memory; where ranks are processes on cores, device
 * memory is part of DRAM. */
int cluster_host_memory(const struct cluster *c, int64_t *bytes);
int cluster_disk(const struct cluster *c, int64_t *bytes);
/* What is assumed of a node's DRAM, bytes; 0: it is known.  And a note (notes.h) that says so. */
int64_t cluster_assumed_memory(const struct cluster *c);
void    cluster_say_assumed(const struct cluster *c);
/* Where this machine's files of offloaded buffers go unless dpxrun --offload-dir says otherwise: $TMPDIR, else
 * /var/tmp; and the bytes that are free there.  0: not known. */
const char *cluster_host_folder(void);
int64_t     cluster_host_disk(void);

/* GPUs of the largest node of a type; 0: not known (a type described in a file). */
int cluster_most(const struct gpu *g);
/* 0, or -1 reported: a node of that type has fewer GPUs.  `where` begins the message. */
int cluster_node_check(const struct gpu *g, int64_t nodes, int64_t gpus, const char *where);

/* The usual node of a GPU type, in proportion for another number of GPUs. */
struct cluster_node cluster_usual_node(const struct gpu *g, int64_t gpus);

/* The GPU table; NULL after the last. */
const struct gpu *gpu_at(int i);
/* By name or alias ("a100", "h100-sxm"), in any case; NULL if unknown. */
const struct gpu *gpu_find(const char *name);
/* Dense peak, FLOP/s, of products whose operands have a narrower format; 0: the type has no units for it. */
double gpu_scaled_peak(const struct gpu *g, enum scaled s);
/* Why a type does not multiply in a format; NULL where it does.  By block from Hopper on, in blocks of 32 and 16 from Blackwell on
 * (Transformer Engine d0067d0d, pytorch/quantization.py: _compute_*_support()). */
const char *gpu_lacks_scaled(const struct gpu *g, enum scaled s);
/* Watts of a board at its limit, by the table's name, and where that is stated (`source` may be NULL); 0: not known. */
double power_watts(const char *name, const char **source);
/* Watts of the GPU alone at its limit: of a superchip without its Grace; 0: not known. */
double power_gpu_watts(const char *name);
/* The least share of it that a limit may be: published sweeps go no lower. */
#define POWER_LEAST (200.0 / 700)
/* The names nearest to an unknown one, "h100, h200, h20", into `out`. */
void gpu_nearest(const char *name, char *out, size_t size);

/* `nodes` of `gpus` GPUs of one type, with the links of its usual node; bounds are the
 * caller's to check. */
void cluster_of_gpu(struct cluster *c, const struct gpu *g, int64_t nodes, int64_t gpus);
/* Of logical CPUs that are dealt out to a machine's ranks, `each` to one, or one to several: the first that a rank has. */
static inline int64_t cluster_first_core(int64_t cores, int64_t each, int64_t rank, int64_t ranks)
{
    return rank * (cores / each) / ranks * each;
}

/* This machine's cores as `ranks` ranks. */
int cluster_of_host(struct cluster *c, int64_t ranks);

/* The ranks of c, which are processes on cores (is_host), spread evenly over so many machines: fewer share
 * what was available on one (cluster_of_host()), and unstated links are assumed.  `nodes`
 * divides c->world_size. */
void cluster_over_machines(struct cluster *c, int64_t nodes);

/* Built-in cluster names with a description; NULL after the last. */
const char *cluster_builtin(int i, const char **about);

#endif
