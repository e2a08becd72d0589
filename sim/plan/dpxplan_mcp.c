/* dpxplan_mcp.c -- dpxplan mcp: the questions of libdpx as tools of the Model Context Protocol, over standard input and output.
 *
 * One JSON-RPC 2.0 message a line (MCP's stdio transport).  A tool is a command; its schema is the table that reads its options, its
 * answer the document that --json prints.  What is wrong with a question is a result with isError, so that a model can mend it; what is
 * wrong with a message is a JSON-RPC error. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/input.h"
#include "base/opts.h"
#include "base/version.h"
#include "lib/dpx.h"
#include "sim/plan/commands.h"
#include "sim/plan/list.h"

/* ---- tools ---- */

static int call_search(const char *q, char **a) { return dpx_search(q, NULL, a); }
static int call_sweep(const char *q, char **a)  { return dpx_sweep(q, NULL, a); }

static const struct tool { const char *name, *about; int (*ask)(const char *request, char **answer); } tools[] = {
    { "fit", "Does a model's training fit on a GPU type, and what is the least number of each that holds it?  No plan needed.", dpx_fit },
    { "search", "The fastest plan (strategy, sharding, micro-batch, recompute, parallel sizes) for a model on a cluster, among those that fit.", call_search },
    { "evaluate", "Memory of each rank, bytes of each collective and time of a step of one plan.  `plan` is a plan's document or file.", dpx_eval },
    { "explain", "Where the memory peak of a plan is and what would lower it; what an out-of-memory message means.", dpx_explain },
    { "sweep", "A plan or a search at many points: nodes, sequence lengths, networks, GPUs.", call_sweep },
    { "bill", "A whole training with checkpoints and interruptions: when it ends, what it costs, how often to save.", dpx_bill },
    { "phases", "Post-training (GRPO, DPO and their like): models that take turns on the same GPUs; memory and time of each phase.", dpx_phases },
    { "limits", "Per strategy the largest model, the largest micro-batch, the fewest GPUs.", dpx_limits },
    { "import", "A plan from a recipe, config or command of a training framework.", dpx_import },
    { "export", "A plan as the config of a training framework.", dpx_export },
    { "list", "What is known: models, clusters, GPUs, strategies, keys of plans, what is refused.", dpx_list },
    { NULL, NULL, NULL }
};

static const struct tool *tool_named(const char *name)
{
    for (const struct tool *t = tools; name && t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

/* The JSON types that opts_json() takes for a kind of option. */
static json_t *types_of(const char *kind)
{
    static const struct { const char *kind, *types[3]; } rows[] = {
        { "flag", { "boolean" } }, { "document", { "object", "string" } }, { "texts", { "array", "string" } }, { "words", { "array", "string" } },
        { "pairs", { "object" } }, { "text", { "string" } }, { "word", { "string" } },
    };
    json_t *types = json_array();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; strcmp(rows[i].kind, kind) == 0 && k < 3 && rows[i].types[k]; k++)
            json_array_append_new(types, json_string(rows[i].types[k]));
    if (json_array_size(types) == 0) {              /* a number, or its text: 8192, "8k", "80GiB" */
        json_array_append_new(types, json_string("number"));
        json_array_append_new(types, json_string("string"));
    }
    return types;
}

static json_t *property_of(const json_t *row)
{
    const char *kind = json_string_value(json_object_get(row, "kind"));
    json_t *words = json_object_get(row, "words"), *fallback = json_object_get(row, "default");
    json_t *p = json_pack("{s:o, s:O}", "type", types_of(kind), "description", json_object_get(row, "about"));

    if (words && strcmp(kind, "word") == 0)
        json_object_set(p, "enum", words);
    if (fallback && !json_is_null(fallback))
        json_object_set(p, "default", fallback);
    return p;
}

/* {"type": "object", "properties": {...}, "required": [...]} of a command's rows among `options`. */
static json_t *schema_of(const char *command, const json_t *options)
{
    json_t *properties = json_object(), *required = json_array(), *row;
    size_t i;

    json_array_foreach((json_t *)options, i, row)
        if (strcmp(json_string_value(json_object_get(row, "command")), command) == 0) {
            json_object_set_new(properties, json_string_value(json_object_get(row, "key")), property_of(row));
            if (json_is_true(json_object_get(row, "required")))
                json_array_append(required, json_object_get(row, "key"));
        }
    if (strcmp(command, "list") == 0) {
        json_t *words = json_array();
        for (int k = 0; list_words[k]; k++)
            json_array_append_new(words, json_string(list_words[k]));
        json_object_set_new(properties, "what", json_pack("{s:s, s:o}", "type", "string", "enum", words));
        json_array_append_new(required, json_string("what"));
    }
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required", required, "additionalProperties", false);
}

static json_t *list_tools(void)
{
    json_t *all = json_array();
    char *answer;

    if (dpx_list("{\"what\": \"options\"}", &answer) != DPX_DONE)
        abort();
    json_t *doc = json_loads(answer, 0, NULL), *options = json_object_get(doc, "options");
    dpx_free(answer);
    for (const struct tool *t = tools; t->name; t++)
        json_array_append_new(all, json_pack("{s:s, s:s, s:o}", "name", t->name, "description", t->about, "inputSchema",
                                             schema_of(strcmp(t->name, "evaluate") == 0 ? "eval" : t->name, options)));
    json_decref(doc);
    return json_pack("{s:o}", "tools", all);
}

/* What a tool answers; an answer of DPX_NO ("nothing fits") is one. */
static json_t *call_tool(const struct tool *t, const json_t *arguments)
{
    char *request = arguments ? json_dumps(arguments, JSON_COMPACT) : strdup("{}"), *answer;

    if (!request)
        abort();
    int status = t->ask(request, &answer);
    bool wrong = status != DPX_DONE && status != DPX_NO;
    json_t *text = json_string(answer), *structured = wrong ? NULL : json_loads(answer, 0, NULL);
    json_t *result = json_pack("{s:[{s:s, s:o}], s:b}", "content", "type", "text", "text", text ? text : json_string("the answer is not UTF-8"), "isError", wrong);
    if (structured)
        json_object_set_new(result, "structuredContent", structured);
    dpx_free(answer);
    free(request);
    return result;
}

/* ---- JSON-RPC ---- */

enum { PARSE_ERROR = -32700, INVALID_REQUEST = -32600, METHOD_NOT_FOUND = -32601, INVALID_PARAMS = -32602 };

static void send_message(json_t *message)
{
    char *line = json_dumps(message, JSON_COMPACT);

    if (!line)
        abort();
    puts(line);
    fflush(stdout);
    free(line);
    json_decref(message);
}

static void send_error(const json_t *id, int code, const char *why)
{
    send_message(json_pack("{s:s, s:O?, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id ? id : json_null(), "error", "code", code, "message", why));
}

/* The version that the client asks for where it is one of these, else the newest. */
static json_t *initialize(const json_t *params)
{
    static const char *const versions[] = { "2025-06-18", "2025-03-26", "2024-11-05" };
    const char *asked = json_string_value(json_object_get(params, "protocolVersion")), *version = versions[0];

    for (int i = 0; asked && i < 3; i++)
        if (strcmp(asked, versions[i]) == 0)
            version = versions[i];
    return json_pack("{s:s, s:{s:{}}, s:{s:s, s:s}, s:s}", "protocolVersion", version, "capabilities", "tools", "serverInfo", "name", "dpxplan", "version",
                     version_text(), "instructions",
                     "dpx predicts memory, collectives and time of a training before a GPU is booked.  Begin with fit (does it fit, what is the least?) or "
                     "search (which plan is fastest?); give the plan that search returns to evaluate, explain or export.  fits: false is an answer.");
}

/* A request's result (new reference), or NULL with an error sent. */
static json_t *result_of(const json_t *id, const char *method, const json_t *params)
{
    if (strcmp(method, "initialize") == 0)
        return initialize(params);
    if (strcmp(method, "ping") == 0)
        return json_object();
    if (strcmp(method, "tools/list") == 0)
        return list_tools();
    if (strcmp(method, "tools/call") != 0) {
        send_error(id, METHOD_NOT_FOUND, "there are initialize, ping, tools/list and tools/call");
        return NULL;
    }
    const struct tool *t = tool_named(json_string_value(json_object_get(params, "name")));
    const json_t *arguments = json_object_get(params, "arguments");
    if (!t || (arguments && !json_is_object(arguments))) {
        send_error(id, INVALID_PARAMS, !t ? "there are the tools fit, search, evaluate, explain, sweep, bill, phases, limits, import, export and list"
                                          : "arguments must be an object");
        return NULL;
    }
    return call_tool(t, arguments);
}

static void take_message(const char *line)
{
    json_error_t why;
    json_t *message = json_loads(line, 0, &why);
    const json_t *id = json_object_get(message, "id");
    const char *method = json_string_value(json_object_get(message, "method"));

    if (!message) {
        send_error(NULL, PARSE_ERROR, why.text);
    } else if (id && !json_is_string(id) && !json_is_number(id)) {
        send_error(NULL, INVALID_REQUEST, "an id is a text or a number");
    } else if (!method) {
        if (!json_object_get(message, "result") && !json_object_get(message, "error"))      /* an answer to nothing that was asked */
            send_error(id, INVALID_REQUEST, "no method");
    } else if (id) {                                /* without one it is a notification, which has no answer */
        json_t *result = result_of(id, method, json_object_get(message, "params"));
        if (result)
            send_message(json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
    }
    json_decref(message);
}

enum { LONGEST = 64 << 20 };

/* The next line in *line, of *room bytes, without its end and with a NUL behind: its bytes; LONGEST + 1: longer than LONGEST, and passed over.
 * Never holds more than twice LONGEST.  -1: there is none. */
static long next_line(char **line, size_t *room)
{
    size_t n = 0;
    int c;

    while ((c = getc_unlocked(stdin)) != EOF && c != '\n') {
        if (n < LONGEST && n + 1 >= *room && !(*line = realloc(*line, *room = *room ? *room * 2 : 4096)))
            abort();
        if (n < LONGEST)
            (*line)[n] = (char)c;
        n += n <= LONGEST;
    }
    if (c == EOF && n == 0)
        return -1;
    if (*line)
        (*line)[n < LONGEST ? n : LONGEST] = '\0';
    return (long)n;
}

static void take_line(const char *line, size_t n)
{
    if (n > LONGEST)
        send_error(NULL, INVALID_REQUEST, "a message has at most 64 MiB");
    else if (n > 0 && strlen(line) != n)
        send_error(NULL, PARSE_ERROR, "a byte that is 0");
    else if (n > 0 && line[strspn(line, " \t\r")])
        take_message(line);
}

int cmd_mcp(int argc, char **argv)
{
    bool json = false;                          /* its messages are JSON in any case */
    const struct opt opts[] = { OPTS_EXAMPLE("dpxplan mcp </dev/null"), { "json", "as without it: every message is one JSON document", .flag = &json }, { 0 } };
    int rc = opts_parse("dpxplan mcp", "The questions as tools for an agent: a server of the Model Context Protocol on standard input and output, until "
                        "its end.  Nothing is written but answers.", opts, argc, argv);
    char *line = NULL;
    size_t room = 0;
    long n;

    if (rc != OPTS_OK)
        return rc < 0 ? EXIT_MISUSE : EXIT_DONE;
    input_own(STDIN_FILENO);
    while ((n = next_line(&line, &room)) >= 0)
        take_line(line, (size_t)n);
    free(line);
    return EXIT_DONE;
}
