/* cluster.c -- from a word on the command line to a cluster.
 *
 * A spec is tried as: localhost, a built-in cluster, [nodes x] GPUs x type, a GPU, a file.
 * Names win over files of the same name; `./h100` is the file. */
#include "model/cluster/cluster.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/notes.h"
#include "base/opts.h"
#include "base/printable.h"
#include "base/size.h"

#define GBIT (1e9 / 8)
#define G    1e9
#define GB   ((int64_t)1000000000)
#define GiB  ((int64_t)1 << 30)
#define USUAL { 0, 0, 0, 0, 0, 0, 0, 0, 0 }      /* the node of its GPUs in gpu.c */

/* Nodes whose network is published.  Those of clouds count what an instance has, which
 * may be less than the same GPUs have in a DGX.
 *
 * Host memory, and disks for files: NVIDIA's datasheets of DGX-1 (512 GB), DGX-2 (1.5 TB; 8 x 3.84 TB NVMe), DGX A100
 * (2 TB; 8 x 3.84 TB), DGX H100 and H200 (2 TB; 8 x 3.84 TB), DGX B200 (2 TB; 8 x 3.84 TB), GB200 NVL72 (480 GB of
 * LPDDR5X for each of 36 Grace); AWS's instance types (memory in GiB, local NVMe); Google's accelerator-optimized
 * machines (A2: 1360, A3: 1872 GB of 2^30, A3: 16 local SSDs of 375 GiB); OLCF's Frontier user guide (512 GB, 205 GB/s, 2 x 1.92 TB).
 * Disks' rates: p4d's reads alone, about 16 GB/s in a RAID 0 of its drives (AWS Compute Blog, "Amazon EC2 P4d instances
 * deep dive").  Processors of DGX-2: 2 Xeon 8168; its GPUs together read 16 x 3.0 GB/s from host memory, hence 4 links
 * (ZeRO-Infinity, arXiv 2104.07857, figure 2b).  GPUs on a PCIe switch of p4d, p5: aws-ofi-nccl's topology files.  What a
 * source does not say is 0. */
static const struct builtin {
    const char *name, *gpu;
    int         gpus, nics;
    double      nic;
    const char *about;
    struct cluster_node node;
} builtins[] = {
    { "dgx-1", "v100-32gb", 8, 4, 100 * GBIT, "DGX-1: 8 V100, 4 x 100 Gb/s EDR", USUAL },
    { "dgx-2", "v100-32gb", 16, 8, 100 * GBIT, "DGX-2: 16 V100, 8 x 100 Gb/s EDR",
      { 1536 * GiB, 2 * 6 * 8 * 2.666 * G, 2, 8 * 3840 * GB, 0, 0, 48, 4, 0 } },
    { "dgx-a100", "a100-80gb", 8, 8, 200 * GBIT, "DGX A100 640GB: 8 A100, 8 x 200 Gb/s HDR", USUAL },
    { "dgx-h100", "h100", 8, 8, 400 * GBIT, "DGX H100: 8 H100, 8 x 400 Gb/s NDR", USUAL },
    { "dgx-h200", "h200", 8, 8, 400 * GBIT, "DGX H200: 8 H200, 8 x 400 Gb/s NDR", USUAL },
    { "dgx-b200", "b200", 8, 8, 400 * GBIT, "DGX B200: 8 B200, 8 x 400 Gb/s NDR", USUAL },
    { "gb200-nvl72", "gb200", 72, 72, 400 * GBIT,
      "one rack: 72 GPUs in one NVLink domain, 72 x 400 Gb/s",
      { 36 * 480 * GB, 36 * 512 * G, 36, 0, 0, 0, 36 * 72, 72, 0 } },
    { "gb300-nvl72", "gb300", 72, 72, 800 * GBIT,
      "one rack: 72 GPUs in one NVLink domain, 72 x 800 Gb/s",
      { 36 * 480 * GB, 36 * 512 * G, 36, 0, 0, 0, 36 * 72, 72, 0 } },
    { "p3dn", "v100-32gb", 8, 1, 100 * GBIT, "AWS p3dn.24xlarge: 8 V100, 100 Gb/s EFA",
      { 768 * GiB, 0, 0, 2 * 900 * GB, 0, 0, 0, 0, 0 } },
    { "p4d", "a100-40gb", 8, 4, 100 * GBIT, "AWS p4d.24xlarge: 8 A100 40GB, 4 x 100 Gb/s EFA",
      { 1152 * GiB, 0, 0, 8 * 1000 * GB, 16 * G, 0, 0, 4, 0 } },
    { "p4de", "a100-80gb", 8, 4, 100 * GBIT, "AWS p4de.24xlarge: 8 A100 80GB, 4 x 100 Gb/s EFA",
      { 1152 * GiB, 0, 0, 8 * 1000 * GB, 0, 0, 0, 4, 0 } },
    { "p5", "h100", 8, 32, 100 * GBIT, "AWS p5.48xlarge: 8 H100, 32 x 100 Gb/s EFA",
      { 2048 * GiB, 0, 0, 8 * 3840 * GB, 0, 0, 0, 8, 0 } },
    { "p5e", "h200", 8, 32, 100 * GBIT, "AWS p5e.48xlarge: 8 H200, 32 x 100 Gb/s EFA",
      { 2048 * GiB, 0, 0, 8 * 3840 * GB, 0, 0, 0, 8, 0 } },
    { "p5en", "h200", 8, 16, 200 * GBIT, "AWS p5en.48xlarge: 8 H200, 16 x 200 Gb/s EFA",
      { 2048 * GiB, 0, 0, 8 * 3840 * GB, 0, 0, 0, 8, 0 } },
    { "p6-b200", "b200", 8, 8, 400 * GBIT, "AWS p6-b200.48xlarge: 8 B200, 8 x 400 Gb/s EFA",
      { 2048 * GiB, 0, 0, 8 * 3840 * GB, 0, 0, 0, 8, 0 } },
    { "g5", "a10g", 8, 1, 100 * GBIT, "AWS g5.48xlarge: 8 A10G, 100 Gb/s",
      { 768 * GiB, 0, 0, 2 * 3800 * GB, 0, 0, 0, 0, 0 } },
    { "a2-megagpu-16g", "a100-40gb", 16, 1, 100 * GBIT, "Google a2-megagpu-16g: 16 A100 40GB, 100 Gb/s",
      { 1360 * GiB, 0, 0, 0, 0, 0, 0, 0, 0 } },
    { "a3-high", "h100", 8, 4, 200 * GBIT, "Google a3-highgpu-8g: 8 H100, 4 x 200 Gb/s",
      { 1872 * GiB, 0, 0, 16 * 375 * GiB, 0, 0, 0, 0, 0 } },
    { "a3-mega", "h100", 8, 8, 200 * GBIT, "Google a3-megagpu-8g: 8 H100, 8 x 200 Gb/s",
      { 1872 * GiB, 0, 0, 16 * 375 * GiB, 0, 0, 0, 0, 0 } },
    { "frontier", "mi250x", 8, 4, 200 * GBIT, "Frontier node: 8 GCDs, 4 x 200 Gb/s Slingshot", USUAL },
};

#define NBUILTIN ((int)(sizeof builtins / sizeof builtins[0]))

const char *cluster_builtin(int i, const char **about)
{
    if (i < 0 || i >= NBUILTIN)
        return NULL;
    if (about)
        *about = builtins[i].about;
    return builtins[i].name;
}

static const struct builtin *builtin_find(const char *name)
{
    for (int i = 0; i < NBUILTIN; i++)
        if (!strcasecmp(name, builtins[i].name))
            return &builtins[i];
    return NULL;
}

int64_t cluster_available(const struct cluster *c)
{
    int64_t left = c->memory - c->context - (int64_t)(c->headroom * (double)c->memory);

    return left > 0 ? left : 0;
}

int cluster_host_memory(const struct cluster *c, int64_t *bytes)
{
    int64_t all = c->is_host && !c->node.memory ? c->memory * c->gpus_per_node
                : c->node.memory ? c->node.memory : cluster_assumed_memory(c);

    *bytes = all - (int64_t)(c->headroom * (double)all);
    return 0;
}

/* The least share that a reference node of this table with such boards has: DGX-1, 512 GB for 8 x 32 GB. */
#define HOST_SHARE 2

int64_t cluster_assumed_memory(const struct cluster *c)
{
    return c->is_host || c->node.memory ? 0 : HOST_SHARE * c->gpu.memory * c->gpus_per_node;
}

void cluster_say_assumed(const struct cluster *c)
{
    int64_t bytes = cluster_assumed_memory(c);

    if (bytes)
        notes_say_once("dpx: host memory of a node of %s is not known: %s assumed, %d times that of its GPUs; --host-memory, or "
                       "node.memory_bytes, says otherwise", c->gpu.name, size_text(bytes).s, HOST_SHARE);
}

int cluster_disk(const struct cluster *c, int64_t *bytes)
{
    *bytes = c->is_host && !c->node.disk ? cluster_host_disk() : c->node.disk;
    if (*bytes > 0)
        return 0;
    return fail("cluster '%s': the disk space of a node is not known: give \"node\": {\"disk_bytes\": ...} in a "
                "cluster file", c->name);
}

int cluster_most(const struct gpu *g) { return g->most ? g->most : g->node_gpus; }

/* A built-in cluster whose nodes have so many of them; NULL: none. */
static const struct builtin *larger_node(const struct gpu *g, int64_t gpus)
{
    for (int i = 0; i < NBUILTIN; i++)
        if (!strcmp(builtins[i].gpu, g->name) && gpus <= builtins[i].gpus)
            return &builtins[i];
    return NULL;
}

int cluster_node_check(const struct gpu *g, int64_t nodes, int64_t gpus, const char *where)
{
    int most = cluster_most(g);
    char write[96] = "";
    const struct builtin *b;

    if (!most || gpus <= most)
        return 0;
    if (gpus % most == 0)
        snprintf(write, sizeof write, ": write %" PRId64 "x%dx%s", nodes * (gpus / most), most, g->name);
    if ((b = larger_node(g, gpus)))
        return fail("%s: %" PRId64 " GPUs in a node, but a node of %s has %d%s, or %s for %d in one (%s)", where, gpus, g->name, most,
                    write, b->name, b->gpus, b->about);
    return fail("%s: %" PRId64 " GPUs in a node, but a node of %s has %d%s (a larger node: a cluster file that states "
                "\"gpus_per_node\" and \"intra\")", where, gpus, g->name, most, write);
}

struct cluster_node cluster_usual_node(const struct gpu *g, int64_t gpus)
{
    struct cluster_node n = g->node;

    if (!g->node_gpus || gpus == g->node_gpus)
        return n;
    double share = (double)gpus / (double)g->node_gpus;
    n.memory = (int64_t)(share * (double)n.memory);
    n.disk = (int64_t)(share * (double)n.disk);
    n.dram *= share;
    n.disk_read *= share;
    n.disk_write *= share;
    n.sockets = (int)ceil_div(gpus * n.sockets, g->node_gpus);
    n.cores = (int)ceil_div(gpus * n.cores, g->node_gpus);
    n.links = (int)ceil_div(gpus * n.links, g->node_gpus);
    return n;
}

void cluster_of_gpu(struct cluster *c, const struct gpu *g, int64_t nodes, int64_t gpus)
{
    int64_t nics = g->node_gpus ? ceil_div(gpus * g->nics, g->node_gpus) : 0;

    memset(c, 0, sizeof *c);
    c->gpu = *g;
    c->nodes = nodes;
    c->gpus_per_node = gpus;
    c->world_size = nodes * gpus;
    c->intra = g->link > 0 ? g->link : g->pcie;
    /* A node of another size has adapters in proportion, at least one. */
    c->nics = (int)nics;
    c->inter = (double)nics * g->nic;
    c->memory = g->memory;
    c->context = g->reserved + g->context;
    c->headroom = CLUSTER_HEADROOM;
    c->node = cluster_usual_node(g, gpus);
}

static void of_builtin(struct cluster *c, const struct builtin *b, int64_t nodes)
{
    cluster_of_gpu(c, gpu_find(b->gpu), nodes, b->gpus);
    c->nics = b->nics;
    c->inter = b->nics * b->nic;
    if (b->node.memory > 0) {
        double issue = c->node.issue;           /* the processor's, whatever else a node has */
        c->node = b->node;
        c->node.issue = b->node.issue > 0 ? b->node.issue : issue;
    }
}

/* A copy fit for a one-line message: cut, and nothing unprintable. */
static struct shown { char s[64]; } shown(const char *spec)
{
    struct shown text;
    size_t n = 0;

    for (; spec[n] && n < sizeof text.s - 1; n++)
        text.s[n] = isprint((unsigned char)spec[n]) ? spec[n] : '?';
    text.s[n] = '\0';
    return text;
}

/* A leading "<digits>x" of *spec into *n, and *spec moved past it.  1 if there was one,
 * 0 if not. */
static int leading_count(const char **spec, int64_t *n)
{
    const char *s = *spec;
    int64_t     value = 0;

    if (!isdigit((unsigned char)*s))
        return 0;
    for (; isdigit((unsigned char)*s); s++)
        if (value <= CLUSTER_MAX_RANKS)
            value = value * 10 + (*s - '0');
    if (*s != 'x' && *s != 'X')
        return 0;
    *n = value;
    *spec = s + 1;
    return 1;
}

static int count_ok(const char *spec, const char *what, int64_t n, int max)
{
    if (n >= 1 && n <= max)
        return 0;
    return fail("cluster '%s': %s must be between 1 and %d (nodes x GPUs x type, as in 4x8xh100)",
                shown(spec).s, what, max);
}

static int counts_ok(const char *spec, int64_t nodes, int64_t gpus)
{
    if (count_ok(spec, "nodes", nodes, CLUSTER_MAX_RANKS) < 0
        || count_ok(spec, "GPUs per node", gpus, CLUSTER_MAX_GPUS_PER_NODE) < 0)
        return -1;
    return count_ok(spec, "world size", nodes * gpus, CLUSTER_MAX_RANKS);
}

static int load_host(const char *spec, struct cluster *out)
{
    const char *s = spec + strlen("localhost");
    int64_t     ranks = 1;
    char        end;

    if (*s == ':' && (!isdigit((unsigned char)s[1]) || strlen(s) > 8
                      || sscanf(s + 1, "%" SCNd64 "%c", &ranks, &end) != 1))
        return fail("cluster '%s': a number of ranks must follow the colon, as in localhost:4",
                    shown(spec).s);
    if (ranks < 1 || ranks > CLUSTER_MAX_GPUS_PER_NODE)
        return fail("cluster '%s': ranks must be between 1 and %d", shown(spec).s,
                    CLUSTER_MAX_GPUS_PER_NODE);
    return cluster_of_host(out, ranks);
}

static int is_file(const char *spec)
{
    size_t      n = strlen(spec);
    struct stat st;

    if (strchr(spec, '/') || (n > 5 && !strcasecmp(spec + n - 5, ".json")))
        return 1;
    return stat(spec, &st) == 0 && S_ISREG(st.st_mode);
}

static int load_file(const char *path, struct cluster *out)
{
    json_t     *j = files_read_json_file(path);
    const char *slash = strrchr(path, '/');
    int         rc;

    if (!j)
        return -1;
    if (json_is_object(j))
        rc = cluster_from_json(j, path, out);
    else
        rc = fail("%s: a cluster file must hold one JSON object", path);
    if (rc == 0 && !out->name[0])
        snprintf(out->name, sizeof out->name, "%s", shown(slash ? slash + 1 : path).s);
    json_decref(j);
    return rc;
}

/* Counts and a type, or a built-in.  0, -1, or 1: it is neither. */
static int load_named(const char *spec, struct cluster *out)
{
    const char *name = spec;
    int64_t     n[2] = { 1, 1 };
    int         counts = leading_count(&name, &n[0]);
    const struct builtin *b;
    const struct gpu     *g;

    if (counts)
        counts += leading_count(&name, &n[1]);
    if ((b = builtin_find(name)) && counts < 2) {
        if (counts_ok(spec, n[0], b->gpus) < 0)
            return -1;
        of_builtin(out, b, n[0]);
        return 0;
    }
    if (!(g = gpu_find(name)))
        return 1;
    if (counts < 2) {
        n[1] = n[0];
        n[0] = 1;
    }
    if (counts_ok(spec, n[0], n[1]) < 0)
        return -1;
    char where[96];
    snprintf(where, sizeof where, "cluster '%s'", shown(spec).s);
    if (cluster_node_check(g, n[0], n[1], where) < 0)
        return -1;
    cluster_of_gpu(out, g, n[0], n[1]);
    return 0;
}

/* ---- other ways to write it ---- */

static bool is_known(const char *name) { return gpu_find(name) || builtin_find(name); }

static bool is_number(const char *word) { return *word && !word[strspn(word, "0123456789")]; }

/* "h100x8": the count behind the name, cut off; NULL: none. */
static const char *trailing_count(char *word)
{
    size_t n = strlen(word), digits = 0;

    while (digits < n && isdigit((unsigned char)word[n - 1 - digits]))
        digits++;
    if (!digits || digits + 1 >= n || tolower((unsigned char)word[n - 1 - digits]) != 'x' || is_known(word))
        return NULL;
    word[n - 1 - digits] = '\0';
    return is_known(word) ? word + n - digits : NULL;
}

/* What `8 x H100`, `8*h100`, `8 h100`, `h100x8` and `2 8 a100 80gb` mean: "8xh100"; a count behind 8xh100 is one of nodes.  false: none of these. */
static bool respell(const char *spec, char *out, size_t size)
{
    char text[128], counts[64] = "", before[44], more[16], name[64] = "", *rest = text;
    int ncounts = 0;

    if (snprintf(text, sizeof text, "%s", spec) >= (int)sizeof text)
        return false;
    for (char *word; (word = strtok_r(rest, " \t*,\xc3\x97", &rest)); ) {       /* the last two: the sign of multiplication in UTF-8 */
        const char *from = word, *behind;
        int64_t n;
        while (leading_count(&from, &n)) {
            ncounts++;
            snprintf(counts + strlen(counts), sizeof counts - strlen(counts), "%" PRId64 "x", n);
        }
        word += from - word;
        if (!*word || !strcasecmp(word, "x"))
            continue;
        behind = trailing_count(word);
        if (behind || (is_number(word) && !is_known(word))) {
            ncounts++;
            snprintf(more, sizeof more, "%.12sx", behind ? behind : word);
            snprintf(before, sizeof before, "%s", counts);
            snprintf(counts, sizeof counts, "%s%s", behind ? more : before, behind ? before : more);
        }
        if (behind || !is_number(word) || is_known(word))
            snprintf(name + strlen(name), sizeof name - strlen(name), "%s%.30s", name[0] ? "-" : "", word);
    }
    snprintf(out, size, "%s%s", counts, name);
    for (char *c = out; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return is_known(name) && ncounts <= (gpu_find(name) ? 2 : 1) && strcasecmp(spec, out) != 0;
}

bool cluster_is_spec(const char *word)
{
    char text[128], better[160];
    const char *name = text;
    int64_t n;

    snprintf(text, sizeof text, "%.*s", (int)strcspn(word, "@"), word);
    if (is_file(word))
        return false;
    return !strcasecmp(text, "localhost") || !strncasecmp(text, "localhost:", 10) || is_known(text) || leading_count(&name, &n) ||
           respell(text, better, sizeof better);
}

static int unknown(const char *spec)
{
    char better[160], why[512];
    struct cluster ignored;

    if (respell(spec, better, sizeof better)) {
        struct fail_sink before = fail_divert(why, sizeof why);     /* 64 x h100: what it says of 64xh100 is said at once */
        int rc = cluster_load(better, &ignored);
        fail_restore(before);
        return rc < 0 ? fail("%s", why) : fail("cluster '%s': write %s%s", shown(spec).s, better, ignored.nodes > 1 ? ": nodes x GPUs of a node x type" : "");
    }

    const char *name = spec;
    char        nearest[128];
    int64_t     n;

    if (!*spec)
        return fail("cluster: an empty name; give 4x8xh100, localhost:4, a file or a name of "
                    "`dpxplan list clusters`");
    while (leading_count(&name, &n))
        ;
    gpu_nearest(name, nearest, sizeof nearest);
    const char *words[NBUILTIN + 1], *near;
    for (int i = 0; i < NBUILTIN; i++)
        words[i] = builtins[i].name;
    words[NBUILTIN] = NULL;
    near = opts_nearest_word(name, words);
    return fail("cluster '%s': no such GPU, cluster or file%s%s; GPUs with a similar name: %s",
                shown(spec).s, near ? "; did you mean " : "", near ? near : "", nearest);
}

bool cluster_has_own_name(const struct cluster *c)
{
    char said[256];
    struct cluster any;
    bool host = !strcasecmp(c->name, "localhost") || !strncasecmp(c->name, "localhost:", 10);
    struct fail_sink before = fail_divert(said, sizeof said);
    int of_type = host ? 0 : load_named(c->name, &any);         /* 1: it is no such word */

    fail_restore(before);
    return c->name[0] && of_type == 1;
}

static int load_uncalibrated(const char *spec, struct cluster *out)
{
    int rc;

    if (!strcasecmp(spec, "localhost") || !strncasecmp(spec, "localhost:", 10))
        rc = load_host(spec, out);
    else if ((rc = load_named(spec, out)) == 1)
        return is_file(spec) ? load_file(spec, out) : unknown(spec);
    if (rc == 0)
        snprintf(out->name, sizeof out->name, "%.63s", spec);
    return rc;
}

/* What follows the last @, unless that is part of a file's path; NULL: nothing. */
static const char *calibration_in(const char *spec)
{
    const char *at = strrchr(spec, '@');
    struct stat st;

    return at && !strchr(at, '/') && stat(spec, &st) < 0 ? at : NULL;
}

int cluster_load(const char *spec, struct cluster *out)
{
    const char *at = calibration_in(spec);
    char before[4096];

    if (!at)
        return load_uncalibrated(spec, out);
    if (!at[1] || strlen(at + 1) >= sizeof out->calibration || !printable(at + 1) || at - spec >= (int)sizeof before)
        return fail("cluster '%s': the name of a calibration must follow the @, at most %zu characters", shown(spec).s,
                    sizeof out->calibration - 1);
    snprintf(before, sizeof before, "%.*s", (int)(at - spec), spec);
    if (load_uncalibrated(before, out) < 0)
        return -1;
    snprintf(out->calibration, sizeof out->calibration, "%s", at + 1);
    return 0;
}
