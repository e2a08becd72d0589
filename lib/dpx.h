/* dpx.h -- libdpx: what dpxplan answers, for programs.
 *
 *     #include <dpx.h>                                     cc ... $(pkg-config --cflags --libs dpx)
 *
 *     char *answer;
 *     int status = dpx_search("{\"model\": \"llama-3.1-8b\", \"cluster\": \"2x8xh100\", \"seq\": \"8k\","
 *                             " \"global_batch\": 128}", NULL, &answer);
 *     if (status == DPX_DONE)
 *         ... answer is a JSON document ...
 *     else
 *         fprintf(stderr, "%s\n", answer);
 *     dpx_free(answer);
 *
 * Each function takes a request and gives an answer, both JSON as UTF-8 text.  The keys of a request are the options of
 * the dpxplan command of the same name, with _ for - (--global-batch is "global_batch"), and their values what a command
 * line takes: a text ("8k", "80GB"), a number, true or false; of a list an array or words with commas; of "set" an
 * object.  "plan", "other", "model", "cluster", "ds_config", "accelerate" and "oom" are the name of a file or the
 * document itself; docs/howto/library.md lists all keys.  The answer is the document that the command prints with --json, the
 * library's "version" in it, and "notes": what the command says on standard error beside it.
 *
 * Nothing is printed, no signal handler is set, no state is kept between calls: any number of threads may call at once.
 * What is read: the files that a request names, the database of calibrations ("db", or the usual one of the user), and
 * the environment ($HOME, $XDG_DATA_HOME, $OMP_NUM_THREADS).  Nothing is written.  Memory that runs out ends the
 * process (abort()), as in the programs. */
#ifndef DPX_H
#define DPX_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* The form of requests and answers: the "dpx" of every answer.  It changes only where a caller would have to. */
#define DPX_API 1

enum dpx_status {
    DPX_DONE = 0,
    DPX_FAILED = 1,             /* something of the machine failed; *answer is one line of text */
    DPX_MISUSE = 2,             /* the request, or a file that it names, is wrong; *answer is one line of text */
    DPX_NO = 3,                 /* the answer is no: nothing fits; *answer is a document all the same */
    DPX_CANCELLED = 4           /* progress() asked to stop; *answer is one line of text */
};

/* How far a long call is: `done` of `total` steps, of which there may be more later.  Called from time to time by the
 * thread that called, so a call that takes less may never call it.  Anything but 0 ends the call with DPX_CANCELLED. */
struct dpx_watch {
    int (*progress)(void *data, long long done, long long total);
    void *data;
};

/* Each sets *answer, in every case, to memory that is to be given to dpx_free(). */

/* The least number of each of some types of GPU that holds a model, with the plan that search recommends there. */
int dpx_fit(const char *request, char **answer);
/* The fastest plan among those that fit, and those next to it.  `watch` may be NULL. */
int dpx_search(const char *request, const struct dpx_watch *watch, char **answer);
/* Every figure of one plan. */
int dpx_eval(const char *request, char **answer);
/* Why a plan holds what it holds; what differs between two; what an out-of-memory message was. */
int dpx_explain(const char *request, char **answer);
/* One plan, or one search, at each point of the axes of "over": {"nodes": [1, 2, 4], "seq": "4k..32k*2"}.  All points are in the
 * answer, so that its size grows with them. */
int dpx_sweep(const char *request, const struct dpx_watch *watch, char **answer);
/* A whole training with its checkpoints and interruptions: when it ends, what it costs. */
int dpx_bill(const char *request, char **answer);
/* Models that take turns on the same GPUs (post-training): memory and time of each phase.  "file" is a phase plan, or a config of TRL or verl. */
int dpx_phases(const char *request, char **answer);
/* Per strategy the largest model, the largest micro-batch, the fewest GPUs. */
int dpx_limits(const char *request, char **answer);
/* What dpx knows by name: "what" is models, clusters, gpus, strategies, parallel, keys, options (of the commands: the keys of a
 * request) or refused. */
int dpx_list(const char *request, char **answer);
/* A plan from a DeepSpeed or accelerate config: {"dpx", "plan", "label"}. */
int dpx_import(const char *request, char **answer);
/* A plan as the config of a framework: {"dpx", "to", "text"}. */
int dpx_export(const char *request, char **answer);

/* Accepts NULL. */
void dpx_free(char *answer);

/* "0.2.0 (3fa9c21)"; static. */
const char *dpx_version(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
