#!/bin/sh
# tools/reference.sh [--check] -- writes docs/reference/, the pages that the programs make of themselves.
#
# Keys, models, GPUs, what is refused: `dpxplan list`.  Commands: their --help.  JSON documents: one of each command,
# its keys and their types.  --check changes nothing: it prints what differs, and fails.  Runs from the root of the
# tree; $B is where the programs were built.
check=
[ "$1" = --check ] && { check=1; shift; }
B=$(cd "${B:-build}" && pwd) || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none LC_ALL=C.UTF-8 COLUMNS=100
export XDG_DATA_HOME LC_ALL COLUMNS
unset NO_COLOR
out=$tmp/reference
mkdir -p "$out/commands"

bad() { echo "reference.sh: $*" >&2; exit 1; }
plan() { COLUMNS=9999 "$B/dpxplan" "$@"; }         # a row a line
cell() { sed 's/|/\\|/g'; }

head_of() {     # TITLE WHAT: how a page of this folder begins
    printf '# %s\n\n' "$1"
    printf '%s\n\n' "$2"
    printf 'Written by `tools/reference.sh`; `make pages` brings it up to date.\n\n'
}

# ---- keys of plan.json ----

keys() {        # REGEX: the keys whose object it matches, a table an object
    plan list keys | cell | awk -v which="$1" '
        /^[a-z]/ { i = index($0, ": "); key = substr($0, 1, i - 1); about = substr($0, i + 2)
                   object = key; if (!sub(/\.[^.]*$/, "", object)) object = "" }
        /^    values / { values = $0; sub(/^    values /, "", values); i = match(values, /; default /)
                   usual = substr(values, i + 10); values = substr(values, 1, i - 1) }
        /^    / && !/^    values / && object ~ which {
                   if (!(object in rows)) order[++n] = object
                   sub(/^ */, ""); rows[object] = rows[object] sprintf("| `%s` | %s | %s | %s | %s |\n", key, about, values, usual, $0) }
        END { for (i = 1; i <= n; i++)
                   printf "%s## %s\n\n| key | what it is | values | default | where |\n|---|---|---|---|---|\n%s", (i > 1 ? "\n" : ""),
                          (order[i] == "" ? "The plan itself" : "`\"" order[i] "\"`"), rows[order[i]] }'
}

where='*Where*: the strategies and dialects that have the key, as `strategy/dialect`. A dialect alone
means all of its strategies.'
{
    head_of 'Keys of a plan' 'Every key of `plan.json` but the objects `"deepspeed"` and `"megatron"`: what `dpxplan list keys` prints.'
    printf '%s\nThose two objects: [DeepSpeed](keys-deepspeed.md), [Megatron-LM](keys-megatron.md).\n\n' "$where"
    keys '^($|[^dm]|ddp|dp|model)'
} >"$out/keys.md"
{
    head_of 'Keys of a plan: DeepSpeed' 'The object `"deepspeed"`, in the words of `ds_config.json`.'
    printf '%s\n[All other keys](keys.md).\n\n' "$where"
    keys '^deepspeed'
} >"$out/keys-deepspeed.md"
{
    head_of 'Keys of a plan: Megatron-LM' 'The object `"megatron"`, in the words of its command line.'
    printf '%s\n[All other keys](keys.md).\n\n' "$where"
    keys '^megatron'
} >"$out/keys-megatron.md"
listed=$(plan list keys | grep -c '^[a-z]')
shown=$(cat "$out"/keys*.md | grep -c '^| `')
[ "$listed" = "$shown" ] && [ "$listed" -ge 45 ] || bad "dpxplan list keys has $listed keys, the pages $shown"

# ---- what it knows by name ----

{
    head_of 'Models' 'What `dpxplan list models` knows by name, by the family whose code computes them.'
    printf 'A Hugging Face id, a `config.json` or its folder is taken as well, for any of these families.\n\n'
    printf '| family | models |\n|---|---|\n'
    plan list models | awk '
        { if (!($3 in all)) order[++n] = $3; all[$3] = all[$3] (all[$3] == "" ? "" : ", ") "`" $1 "` " $2 }
        END { for (i = 1; i <= n; i++) printf "| %s | %s |\n", order[i], all[order[i]] }'
} >"$out/models.md"
{
    head_of 'GPUs and clusters' 'What `dpxplan list gpus` and `dpxplan list clusters` know by name.'
    printf '## GPUs\n\n`NxGxGPU` makes a cluster of them: `4x8xh100` is four nodes of eight. TFLOP/s are of dense\n'
    printf 'bf16 matrix products. A link is one GPU'"'"'s, in one direction. A dash: it has none.\n\n'
    printf '| name | GPU | memory | bandwidth | bf16 | link | board |\n|---|---|---|---|---|---|---|\n'
    plan list gpus | tail -n +2 | cell |
        sed -E 's/^ +([a-z0-9-]+) +(.*[^ ]) +([0-9.]+ GiB) +([0-9]+ GB\/s) +([0-9.]+ TFLOP\/s|-) +([0-9]+ GB\/s|-) +([0-9]+ W)$/| `\1` | \2 | \3 | \4 | \5 | \6 | \7 |/'
    printf '\n## Clusters\n\n| name | what it is |\n|---|---|\n'
    plan list clusters | cell | sed -E 's/^ +([^ ]+) +(.*)$/| `\1` | \2 |/'
    printf '\n## A cluster file\n\nWhat `dpxplan list clusters --example` prints; see [your own cluster](../howto/own-cluster.md).\n\n'
    plan list clusters --example | sed 's/^/    /'
} >"$out/gpus.md"
[ "$(plan list gpus | tail -n +2 | wc -l)" = "$(sed -n '/^## GPUs/,/^## Clusters/p' "$out/gpus.md" | grep -c '^| `')" ] || bad 'a GPU is not in the table'
{
    head_of 'Strategies and parallelism' 'What `dpxplan list strategies` and `dpxplan list parallel` print.'
    printf '## Strategies\n\n| strategy | dialects |\n|---|---|\n'
    plan list strategies | awk '{ if (!($1 in d)) order[++n] = $1; d[$1] = d[$1] (d[$1] == "" ? "" : ", ") "`" $2 "`" }
        END { for (i = 1; i <= n; i++) printf "| `%s` | %s |\n", order[i], d[order[i]] }'
    printf '\n## Parallelism beside them\n\nKeys of `"parallel"`, and the dialects or `strategy/dialect` that have them.\n\n'
    printf '| what | keys | where |\n|---|---|---|\n'
    plan list parallel | cell | sed -E 's/^  ([^"]*[^ ]) +(".*[^ ])  +([^" ].*)$/| \1 | `\2` | \3 |/'
} >"$out/strategies.md"
{
    head_of 'What is not modelled' 'What frameworks have and plans do not: `dpxplan list refused`, the table that makes the refusals.'
    printf 'A plan or an imported file that asks for one of these is refused, with the sentence of the row.\n'
    printf 'Effects that no key asks for, and that predictions leave out: [what predictions leave out](../how/left-out.md).\n\n'
    printf '| key | why |\n|---|---|\n'
    plan list refused | cell | sed -E 's/^([^ ]+): (.*)$/| `\1` | \2 |/'
} >"$out/not-modelled.md"

# ---- commands ----

help_page() {   # FILE PROGRAM [COMMAND]
    page=$out/commands/$1 program=$2
    shift 2
    text=$("$B/$program" "$@" --help) || bad "$program $*: --help fails"
    {
        head_of "$program${1:+ $1}" "What \`$program${1:+ $1} --help\` prints. [All commands](../commands.md)."
        printf '%s\n' "$text" | sed 's/^/    /; s/[[:space:]]*$//'
    } >"$page"
}
# The first paragraph after the usage, in one line.
about_program() { awk '/^usage:/ { on = 1; next } on == 1 && /^$/ { on = 2; next } on == 2 && /^$/ { exit } on == 2 { text = text (text == "" ? "" : " ") $0 } END { print text }'; }
# What the list of commands says of one, its lines joined.
about_command() {
    awk -v start="^  $1  +" '/^usage:/ { list = 1 } !list { next } on && /^          / { sub(/^ +/, ""); text = text " " $0; next } on { exit }
        $0 ~ start { on = 1; sub(start, ""); text = $0 } END { print text }'
}
index=$out/index
: >"$index"
for program in dpxplan dpxrun dpxcal dpxreport; do
    [ -x "$B/$program" ] || bad "$B/$program is not built: make"
    about=$("$B/$program" --help | about_program | cell)
    commands=$("$B/$program" --help | awk '/^usage:/ && / COMMAND/ { several = 1 } several && /^  [a-z]+  +[^ ]/ { print $1 }')
    if [ -z "$commands" ]; then
        help_page "$program.md" "$program"
        printf '| [`%s`](commands/%s.md) | %s |\n' "$program" "$program" "$about" >>"$index"
    fi
    for command in $commands; do
        case $command in help|version) continue ;; esac
        help_page "$program-$command.md" "$program" "$command"
        about=$("$B/$program" --help | about_command "$command" | cell)
        printf '| [`%s %s`](commands/%s-%s.md) | %s |\n' "$program" "$command" "$program" "$command" "$about" >>"$index"
    done
done
{
    head_of 'Commands' 'Every command, with what its `--help` prints.'
    printf 'Exit status of all: 0 done, 1 something failed, 2 wrong usage or input, 3 the answer is no (nothing fits).\n\n'
    printf '| command | what it does |\n|---|---|\n'
    cat "$index"
} >"$out/commands.md"
rm "$index"

# ---- JSON documents ----

# JSON with a value a line, indented by two blanks a level, whatever its own lines are.
pretty() {
    awk '
    function line(text) { printf "%*s%s\n", 2 * level, "", text }
    function flush() { if (word != "") line(word); word = "" }
    {
        n = length($0)
        for (i = 1; i <= n; i++) {
            c = substr($0, i, 1)
            if (string) { word = word c; if (c == "\\") word = word substr($0, ++i, 1); else if (c == "\"") string = 0 }
            else if (c == "\"") { word = word c; string = 1 }
            else if (c == ":") word = word ": "
            else if (c == ",") flush()
            else if (c == "{" || c == "[") {
                rest = substr($0, i + 1); close_by = c == "{" ? "}" : "]"
                if (substr(rest, 1, 1) == close_by) { word = word c close_by; i++ }
                else { line(word c); word = ""; level++ }
            }
            else if (c == "}" || c == "]") { flush(); level--; line(c) }
            else if (c != " ") word = word c
        }
    }
    END { flush() }'
}

# The objects of documents on standard input, each with its keys and their types.  A plan within is plan.json: keys.md.
# "short": memory, comm and time of a plan are those of eval, and left out.
document() {    # [short]
    awk -v short="$1" '
    function type(v) {
        if (v ~ /^"/) return "text"
        if (v ~ /^(true|false)/) return "true or false"
        if (v ~ /^null/) return "null"
        if (v ~ /^\[\]/) return "list"
        if (v ~ /^\{\}/) return "object"
        return v ~ /[.eE]/ ? "number" : "integer"
    }
    function note(path, key, t,    known) {
        if (path ~ /(^|\.)(plan|best_plan|plan_a|plan_b)(\.|$)/) return
        if (short && path ~ /^((plans\[\]|first|second)\.)?(memory|comm|time)(\.|\[|$)|^options\[\]\.(first|second)/) return
        if (!(path in seen)) { seen[path] = 1; order[++n] = path }
        if (!((path, key) in kind)) { keys[path] = keys[path] (keys[path] == "" ? "" : "\n") key; kind[path, key] = t; return }
        known = kind[path, key]
        if (known == t || index(known, t) && t != "number" && t != "integer") return
        if (known == "integer" && t == "number" || known == "null") { kind[path, key] = t (known == "null" ? " or null" : ""); return }
        if (known ~ /number/ && t == "integer") return
        if (t == "null" && known !~ /null/) kind[path, key] = known " or null"
    }
    {
        match($0, /^ */); level = RLENGTH / 2; line = substr($0, RLENGTH + 1); sub(/,$/, "", line)
        if (line ~ /^[]}]/) next
        key = ""
        if (match(line, /^"[^"]*": /)) { key = substr(line, 2, RLENGTH - 4); line = substr(line, RLENGTH + 1) }
        at = level > 0 ? path[level] : ""
        if (line == "{") { path[level + 1] = key == "" ? at : (at == "" ? "" : at ".") key; if (key != "") note(at, key, "object"); next }
        if (line == "[") { path[level + 1] = (at == "" ? "" : at ".") key "[]"; if (key != "") note(at, key, "list"); next }
        if (key != "") note(at, key, type(line))
    }
    END {
        for (i = 1; i <= n; i++) {
            m = split(keys[order[i]], k, "\n")
            printf "| %s | ", (order[i] == "") ? "the document" : "`" order[i] "`"
            for (j = 1; j <= m; j++) printf "%s`%s` %s", (j > 1 ? ", " : ""), k[j], kind[order[i], k[j]]
            print " |"
        }
    }'
}
json_of() {     # TITLE, then commands of dpxplan, a line each
    printf '## %s\n\n' "$1"
    short=
    case $1 in search|explain*) short=short; printf '`memory`, `comm` and `time` of a plan are as in [eval](#eval).\n\n' ;; esac
    printf '| object | keys |\n|---|---|\n'
    while read -r line; do
        # shellcheck disable=SC2086 # words of a command
        plan $line --json 2>/dev/null
        [ $? -lt 4 ] || bad "dpxplan $line"
    done | pretty | document $short
    printf '\n'
}
{
    head_of 'JSON documents' 'What `--json` prints: the objects of each command'"'"'s document, and the type of each key.'
    printf 'Units are in the names: `_bytes`, `_s` (seconds). `"dpx"` is the version of the form: keys are added,\n'
    printf 'and keep their meaning. An integer above 2^53 is written as a number with an exponent. `null`\n'
    printf 'is a figure that there is not.\n'
    printf 'A `plan` within a document is a plan.json, whose keys are [here](keys.md).\n\n'
    json_of eval <<'END'
eval demo/8b-fsdp.json --tokens 1T --price 2 --days 90
eval demo/8b-pipeline.json
eval demo/8b-fsdp.json --set cluster=rtx4090
eval demo/70b-qlora.json
END
    json_of search <<'END'
search --model gpt2 --cluster 8xh100 --seq 1024 --global-batch 64 --top 2
search --model llama-2-7b --cluster rtx4090 --seq 2048 --global-batch 1 --no-offload --top 1
END
    json_of explain <<'END'
explain demo/8b-fsdp.json
explain demo/8b-pipeline.json
explain demo/8b-fsdp.json --oom demo/oom.txt
END
    json_of 'explain of two plans' <<'END'
explain demo/8b-fsdp.json demo/8b-zero2.json
END
    json_of sweep <<'END'
sweep demo/8b-fsdp.json --over nodes=1,2 --tokens 1T --price 2
END
    json_of bill <<'END'
bill demo/8b-fsdp.json --set nodes=8 --tokens 1T --price 2 --mtbf llama3 --storage 20GB/s --worlds
END
    json_of phases <<'END'
phases demo/grpo.json
END
    json_of limits <<'END'
limits --cluster 8xh100 --model llama-3.1-8b --seq 8192 --recompute full --dialect torch
END
    json_of estimators <<'END'
estimators --params 2851M --largest-layer 32M --gpus-per-node 8
END
    json_of collectives <<'END'
collectives --op all_reduce --bytes 1GiB --cluster 2x8xh100
END
    json_of list <<'END'
list models
list clusters
list gpus
list strategies
list parallel
list keys
list refused
END
} | sed '$d' >"$out/json.md"

# Prose at the pages' width.
find "$out" -name '*.md' | while read -r page; do
    awk '/^(\||    |#|$)/ || length($0) <= 100 { print; next }
         { n = split($0, word, " "); line = word[1]
           for (i = 2; i <= n; i++) if (length(line " " word[i]) > 100) { print line; line = word[i] } else line = line " " word[i]
           print line }' "$page" >"$tmp/page" && mv "$tmp/page" "$page"
done

if [ "$check" ]; then
    diff -r docs/reference "$out"
else
    rm -rf docs/reference
    mkdir -p docs
    cp -r "$out" docs/reference
fi
