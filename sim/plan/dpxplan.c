/* dpxplan.c -- what would this plan cost, before a GPU is booked? */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/answer.h"
#include "base/fail.h"
#include "base/opts.h"
#include "model/plan/modelled.h"
#include "sim/plan/commands.h"

int dpxplan_print_json(json_t *doc, int status)
{
    bool answer = !json_object_get(doc, "dpx_plan") && !json_object_get(doc, "$schema");        /* else a file of the user's */

    return answer ? answer_print(doc, status) : answer_print_file(doc, status);
}

struct line { const char *name, *text; };

static bool line_at(const struct line *lines, int i, const char **name, const char **text)
{
    *name = lines[i].name;
    *text = lines[i].text;
    return lines[i].name != NULL;
}

static bool cluster_key_entry(int i, const char **name, const char **text)
{
    static const struct line keys[] = {
        { "nodes, gpus_per_node", "how many." },
        { "gpu", "a type of `dpxplan list gpus`, or an object: name, memory_bytes, hbm_gb_per_s, bf16_tflops, fp32_tflops, "
          "fp16_tflops, sms, sm_arch, link_gb_per_s, pcie_gb_per_s." },
        { "intra", "between GPUs of a node: gb_per_s (gigabytes a second of one GPU in one direction), alpha_us "
          "(microseconds a message)." },
        { "inter", "between nodes: gbit_per_s (gigabits) or gb_per_s (gigabytes) a second of all adapters of a node "
          "together in one direction, alpha_us, nics." },
        { "memory_bytes, context_bytes, headroom", "of a GPU: as nvidia-smi shows it; what no framework gets of it; the "
          "share that is kept free." },
        { "power_limit_w", "of a GPU, watts, as nvidia-smi -pl sets it; left out: the board's own (`dpxplan list gpus`)." },
        { "calibration", "the name of the cluster or host whose measurements (`dpxcal`) predictions rest on, or \"none\"; also written "
          "4x8xh100@NAME.  Left out: those of the cluster's own name, or this host's." },
        { "storage", "gb_per_s that all nodes write checkpoints at, node_gb_per_s of one at most, training_network: true where they go over the "
          "network that training uses; for bill." },
        { "failures", "rate (a published one by name), or gpu_hours between interruptions of one GPU, all causes; beside node_hours (of one node) and "
          "network_hours (between nodes) gpu_hours is the GPU alone.  recover_s, warm_up_s, repair_hours, spares; for bill." },
        { "node", "memory_bytes, dram_gb_per_s, sockets, disk_bytes, disk_read_gb_per_s, disk_write_gb_per_s of a node, for "
          "offloading; issue_us, which a thread takes to issue a kernel of PyTorch's (tests/bench/issue_gpu.py measures it; else 12.8)." },
        { NULL, NULL }
    };

    return line_at(keys, i, name, text);
}

static bool example_entry(int i, const char **name, const char **text)
{
    static const struct line examples[] = {
        { "dpxplan search llama-3.1-8b 4x8xh100 --seq 8k --global-batch 512", "the fastest plan that fits." },
        { "dpxplan search ... --export-to torchtitan -o plan.json", "of those that torchtitan can run; the best is written." },
        { "dpxplan search ... --tokens 15T --price 2.10 --days 60", "days, cost, and the fewest GPUs for 60 days." },
        { "dpxplan init -o plan.json", "asks, and writes a first plan with a comment on each key." },
        { "dpxplan eval plan.json --set seq=16k nodes=8", "every figure of the plan with two keys changed." },
        { "dpxplan sweep plan.json --over nodes=1..64*2 seq=4k,8k -o scaling.svg", "how it scales, as a table and a figure." },
        { "dpxplan explain plan.json --oom log.txt", "why a run died of memory, and what would make it fit." },
        { "dpxplan export --to torchtitan plan.json", "the plan in the words of a tool." },
        { NULL, NULL }
    };

    return line_at(examples, i, name, text);
}

static const char about[] =
    "Plans how to spread the training of a model over GPUs: whether it fits, which plan is fastest, how long it takes and what it costs.  It needs no GPU.\n"
    "\n"
    "  dpxplan fit llama-3.1-8b\n"
    "      does it fit, and what is the least I need?\n"
    "  dpxplan search llama-3.1-8b 8xh100\n"
    "      --global-batch 64\n"
    "      which plan is fastest on these GPUs?\n"
    "  dpxplan eval llama-3.1-8b 8xh100\n"
    "      what does it hold, send and take?\n";

/* A search asks for the same rooms again and again: what is given back to the system each time is asked of it as zeroed pages, two fifths of the
 * page faults of 8b-on-8.  Above that much it is given back. */
static void keep_rooms(void)
{
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

int main(int argc, char **argv)
{
    const struct command commands[] = {
        OPTS_COMMANDS("Without a plan"),
        { "fit",        "does it fit, and what is the least I need?  One table of GPUs", cmd_fit },
        { "search",     "the fastest plan among those that fit", cmd_search },
        { "limits",     "per strategy the largest model, the largest micro-batch, the fewest GPUs", cmd_limits },
        OPTS_COMMANDS("Get a plan"),
        { "init",       "a first plan with a comment on each key, from a few answers", cmd_init },
        { "import",     "a plan from what you have: a recipe, a config or a command of a framework", cmd_import },
        { "export",     "a plan as the config of a framework", cmd_export },
        OPTS_COMMANDS("Understand a plan"),
        { "eval",       "every figure of one plan", cmd_eval },
        { "explain",    "its memory over time, why its peak is where it is, two plans beside each other, an out-of-memory message", cmd_explain },
        { "bill",       "a whole training with checkpoints and interruptions: when it ends, what it costs", cmd_bill },
        { "phases",     "post-training: models that take turns on the same GPUs, memory and time by phase", cmd_phases },
        { "admit",      "would a job fit that waits in a queue?  A Kubeflow TrainJob or an sbatch script", cmd_admit },
        { "sweep",      "a plan or a search at many points: scaling, sequence lengths, networks, GPUs", cmd_sweep },
        { "serve",      "all of these as a page in this machine's browser, with what was measured and run here", cmd_serve },
        { "schema",     "plan.json as a JSON Schema, for editors and checks", cmd_schema },
        { "mcp",        "the questions as tools for an agent (Model Context Protocol)", cmd_mcp },
        OPTS_COMMANDS("Look things up"),
        { "list",       "what dpx knows: models, clusters, GPUs, strategies, keys of plans", cmd_list },
        { "collectives", "the algorithms of one collective side by side", cmd_collectives },
        { "estimators", "DeepSpeed's and Megatron-LM's own memory estimates, and what they leave out", cmd_estimators },
        { 0 }
    };
    static const struct opts_section keys = {
        "KEYS OF PLAN.JSON", "What is left out takes its default; dpx_plan, model, cluster and strategy must be there.",
        list_plan_key_entry,
    };
    static const struct opts_section cluster = {
        "KEYS OF A CLUSTER FILE", "JSON; all but gpu may be left out and take the GPU's usual node.  `dpxplan list clusters "
        "--example` prints one.  In plans and cluster files keys that begin with // are for people.", cluster_key_entry,
    };
    static const struct opts_section examples = { "EXAMPLES", "", example_entry };
    opts_manual_section(&keys);
    opts_manual_section(&cluster);
    opts_manual_section(&examples);
    keep_rooms();
    answers_begin(argc, argv, modelled_add);
    int rc = answers_end(opts_command_run("dpxplan", about, commands, argc, argv));
    /* A full disk shows only now; an answer that cannot be read is a failure. */
    bool lost = ferror(stdout) != 0;
    if ((fflush(stdout) != 0 || lost) && (rc == EXIT_DONE || rc == EXIT_NO)) {
        fail("cannot write to standard output");
        return EXIT_FAILED;
    }
    return rc;
}
