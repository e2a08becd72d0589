#!/bin/sh
# tests/sim/test_cmd_help.sh -- what a newcomer types first: bare dpxplan, help, version; every printed example runs; no line is over 80 columns.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none COLUMNS=200
export XDG_DATA_HOME COLUMNS

commands='fit search limits init import export eval explain sweep bill phases admit serve mcp schema list collectives estimators'

# Examples are the lines before the usage: two columns in, a backslash at the end goes on.
examples() { sed '/^usage:/,$d' "$1" | sed ':a;/\\$/{N;s/ *\\\n */ /;ba}' | sed -n 's/^  \(dpx[a-z]*\) /\1 /p'; }

# The tree stands beside them, as it does where the pages' commands run; what they write stays here.
mkdir "$tmp/run" && ln -s "$PWD/demo" "$tmp/run/demo" && ln -s "$(cd "$B" && pwd)"/dpx* "$tmp/" || exit 1
runs() {
    examples "$1" >"$tmp/examples"
    [ -s "$tmp/examples" ] || echo "$1: no example"
    while read -r line; do
        # It goes on until Ctrl-C; where it was built without its library it says so, which tests/page/test_serve.sh counts as skipped.
        case $line in
        'dpxplan serve'*)
            "$B/dpxplan" serve --port 70000 2>&1 | grep -q 'built without libmicrohttpd' && continue
            line="timeout --preserve-status -s INT 1 $line" ;;
        esac
        (cd "$tmp/run" && PATH=$tmp:$PATH sh -c "$line" >"$tmp/out" 2>"$tmp/err" </dev/null) || { echo "$line: exit $?"; tail -3 "$tmp/err"; }
    done <"$tmp/examples"
}

"$B/dpxplan" >"$tmp/bare" 2>"$tmp/err"
check 'bare dpxplan says what it is for, and is no error' "$(
    "$B/dpxplan" >"$tmp/out" 2>"$tmp/err" || echo "exit $?"
    [ -s "$tmp/err" ] && cat "$tmp/err"
    for word in help --help -h; do
        "$B/dpxplan" $word | diff "$tmp/bare" - || echo "dpxplan $word"
    done)"
check 'it has three examples' "$(n=$(examples "$tmp/bare" | wc -l); [ "$n" = 3 ] || echo "$n")"
check 'they run' "$(runs "$tmp/bare")"
check 'every command is in a group' "$(
    for c in $commands; do
        grep -q "^  $c " "$tmp/bare" || echo "$c is not listed"
    done
    [ "$(sed -n '/^usage/,$p' "$tmp/bare" | grep -c '^  [a-z]')" = 18 ] || echo 'the list of this test lacks one'
    [ "$(sed -n '/^usage/,$p' "$tmp/bare" | grep -c '^[A-Z][a-z ]*$')" = 4 ] || echo 'not four groups')"
check 'version is --version' "$("$B/dpxplan" version >"$tmp/a"; "$B/dpxplan" --version | diff "$tmp/a" -; grep -q '^dpxplan [0-9]' "$tmp/a" || cat "$tmp/a")"

check 'help version is the version' "$("$B/dpxplan" help version | diff "$tmp/a" -)"
check '--color decides, whatever the environment says' "$(
    ink=$(printf '\033')
    coloured() { "$B/dpxplan" eval demo/8b-fsdp.json "$@" | grep -c "$ink"; }
    [ "$(NO_COLOR=1 coloured --color always)" -ge 1 ] || echo 'none with always'
    [ "$(coloured --color=never)" = 0 ] && [ "$(coloured)" = 0 ] || echo 'some without'
    "$B/dpxplan" list gpus --color blue 2>&1 | grep -q "is one of auto, always, never" || echo 'blue is taken')"

for c in $commands; do
    "$B/dpxplan" "$c" --help >"$tmp/$c" 2>&1
    check "$c --help begins with examples that run" "$(sed -n 1p "$tmp/$c" | grep -q "^  dpxplan $c" || head -1 "$tmp/$c"; runs "$tmp/$c")"
    check "help $c, $c -h are the same" "$("$B/dpxplan" help "$c" | diff "$tmp/$c" -; "$B/dpxplan" "$c" -h | diff "$tmp/$c" -)"
    # Few enough to read at a glance.
    check "$c --help names at most seven options first" "$(
        n=$(sed -n '/^What most people use/,/^$/p' "$tmp/$c" | grep -c '^  \(-., \)\{0,1\}--')
        [ "$n" -le 7 ] && { [ "$n" -ge 1 ] || [ "$c" = list ] || [ "$c" = collectives ] || [ "$c" = mcp ] || [ "$c" = schema ]; } || echo "$n")"
done
for width in 60 80 200; do
    check "no line of help is over 80 columns, nor wider than a terminal of $width" "$(
        for c in '' $commands; do
            # shellcheck disable=SC2086
            COLUMNS=$width "$B/dpxplan" help $c | awk -v w="$width" -v c="$c" '
                length($0) > 80 || (length($0) > w && !/^ *dpxplan / && !/^ +--[^ ]+( [^ ]+)?$/) { print c ": " $0 }'
        done)"
done

# The other programs: no plan is needed to ask what they are for.
for p in dpxrun dpxreport dpxcal; do
    check "bare $p says what it is for, and is no error" "$(
        "$B/$p" >"$tmp/bare" 2>"$tmp/err" || echo "exit $?"
        [ -s "$tmp/err" ] && cat "$tmp/err"
        grep -q "^usage: $p" "$tmp/bare" || head -3 "$tmp/bare"
        n=$(examples "$tmp/bare" | wc -l)
        [ "$n" = 3 ] || echo "$n examples")"
    check "$p version is --version, $p help is --help and -h" "$(
        "$B/$p" version >"$tmp/a"; "$B/$p" --version | diff "$tmp/a" -; grep -q "^$p [0-9]" "$tmp/a" || cat "$tmp/a"
        "$B/$p" help >"$tmp/a"; "$B/$p" --help | diff "$tmp/a" -; "$B/$p" -h | diff "$tmp/a" -)"
done
helps() {       # PROGRAM [COMMAND]: examples first, at most seven options next
    "$B/$1" $2 --help >"$tmp/help" 2>&1 || echo "exit $?"
    sed -n 1p "$tmp/help" | grep -q "^  $1 $2" || head -1 "$tmp/help"
    [ "$(sed -n '/^What most people use/,/^$/p' "$tmp/help" | grep -c '^  \(-., \)\{0,1\}--')" -le 7 ] || echo 'more than seven options first'
    awk -v c="$*" 'length($0) > 80 { print c ": " $0 }' "$tmp/help"
}
check 'helps of dpxrun, dpxreport and dpxcal begin with examples' "$(
    helps dpxrun
    helps dpxreport
    for c in run show import export fit probe; do helps dpxcal $c; done)"
check 'the first example of dpxrun runs, and says so within the page' "$(
    (cd "$tmp/run" && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 COLUMNS=80 "$tmp/dpxrun" demo/10m/fsdp.json --steps 2 --no-db >"$tmp/out" 2>&1) ||
        { echo "exit $?"; tail -3 "$tmp/out"; }
    head -1 "$tmp/out" | grep -q '^FSDP2, ' || head -1 "$tmp/out"
    awk 'length($0) > 80' "$tmp/out")"

# says WORDS COMMAND...: exit 2, and one line with the words.
says() {
    words=$1
    shift
    "$B/dpxplan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "dpxplan $*: exit $rc, not 2"
    [ "$(wc -l <"$tmp/err")" = 1 ] || cat "$tmp/err"
    grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}
check 'an unknown option is named in our words' "$(
    says '--micro-batch or --global-batch\|--global-batch or --micro-batch' search --batch 4
    says '--global-batch' eval x.json --batch 4
    says '--set micro_batch=2' eval x.json --micro-batch 4
    says 'here it is --seq' search --seq-len 4096
    says 'here it is --seq' fit gpt2 --max_seq_length 4096
    says '--cluster 8xh100' search --gpus 8
    says 'dpxplan fit MODEL h100' fit gpt2 --cluster 8xh100
    says '--batch' fit gpt2 --global-batch 4
    says '--grid' search --tp 2
    says '--set parallel.tensor=2' eval x.json --tp 2
    says '--base-dtype nf4' search --qlora
    says 'here it is --lora 16' search --train lora
    says '--lora 16 or --train lora' fit gpt2 --peft
    says '--set recompute=full' eval x.json --checkpointing
    says '--set strategy=zero1, zero2 or zero3' explain x.json --zero 3
    says '--batch: samples of a whole step' fit gpt2 --gradient_accumulation_steps 4
    says 'as a cluster it is --cluster 8xh100' init 8xh100
    says 'did you mean --recompute' search --recompte full)"
check 'an unknown command, model and GPU name what is near' "$(
    says 'did you mean fit' fti
    says 'did you mean eval' help evl
    says 'did you mean gpt2' fit gpt22
    says 'similar names: h100' fit gpt2 h1000
    says 'did you mean llama-3' eval llama-3.1-8bb --cluster 8xh100)"

check 'eval and explain plan a model by its name as search recommends' "$(
    "$B/dpxplan" search --model gpt2-xl --cluster 4xa100-40gb --seq 1k --global-batch 32 -o "$tmp/best.json" >/dev/null 2>&1
    "$B/dpxplan" eval "$tmp/best.json" >"$tmp/a" 2>&1
    "$B/dpxplan" eval gpt2-xl --cluster 4xa100-40gb --seq 1k --global-batch 32 2>"$tmp/err" | diff "$tmp/a" -
    grep -q '32 samples of 1024 tokens' "$tmp/err" || cat "$tmp/err"
    "$B/dpxplan" explain "$tmp/best.json" >"$tmp/a" 2>&1
    "$B/dpxplan" explain openai-community/gpt2-xl --cluster 4xa100-40gb --seq 1k --global-batch 32 2>/dev/null | diff "$tmp/a" -
    "$B/dpxplan" eval "$tmp/best.json" --set clip=null nodes=2 >"$tmp/a" 2>&1
    "$B/dpxplan" eval gpt2-xl --cluster 4xa100-40gb --seq 1k --global-batch 32 --set clip=null nodes=2 2>/dev/null | diff "$tmp/a" -
    says 'on which GPUs: --cluster' eval gpt2-xl
    says 'leave out --model' eval gpt2 --model gpt2 --cluster 8xh100
    says 'a plan has its own model' eval "$tmp/best.json" --global-batch 8
    "$B/dpxplan" eval llama-3.1-70b --cluster 1xt4 >"$tmp/out" 2>&1
    rc=$?
    [ $rc = 3 ] || { echo "exit $rc, not 3"; tail -3 "$tmp/out"; })"
check 'a config.json is a model, too' "$(
    echo '{"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}' >"$tmp/config.json"
    "$B/dpxplan" eval gpt2 --cluster 2xa100 --json 2>/dev/null | grep '"step_s"\|"params_bytes"' >"$tmp/a"
    "$B/dpxplan" eval "$tmp/config.json" --cluster 2xa100 --json 2>/dev/null | grep '"step_s"\|"params_bytes"' | diff "$tmp/a" -
    [ -s "$tmp/a" ] || echo 'no figures')"
check 'answers in JSON carry the version of the program, and plans do not' "$(
    version=$("$B/dpxplan" version | sed 's/^dpxplan //')
    for of in 'fit gpt2 h100' 'eval gpt2 --cluster 2xa100' 'explain gpt2 --cluster 2xa100' 'limits --states-only --memory 80GB --world 8 --dialect paper' \
            'search --model gpt2 --cluster 2xa100 --seq 1k --global-batch 4 --top 1' 'list gpus' \
            'sweep --over seq=512,1k --model gpt2 --cluster 2xa100 --global-batch 4' 'collectives --op all_reduce --bytes 1GB --cluster 8xh100' \
            'estimators --params 1B --largest-layer 1M'; do
        # shellcheck disable=SC2086
        "$B/dpxplan" $of --json 2>/dev/null | grep -qF "\"version\": \"$version\"" || echo "$of"
    done
    "$B/dpxplan" init --model gpt2 --cluster 2xa100 --seq 1k --global-batch 4 2>/dev/null | grep '"version"'
    "$B/dpxplan" import demo/qwen3-sft.yaml --cluster 8xh100 2>/dev/null | grep '"version"')"

# asks_first TOOL: what init says of it on a terminal, and what export makes of the plan.
asks_first() {
    python3 tests/sim/init_terminal.py "$B/dpxplan" "$tmp/init.json" "$1" llama-3.2-1b 8xh100 2k 16 >"$tmp/out" || { echo "init: exit $?"; cat "$tmp/out"; }
    head -1 "$tmp/out" | grep -q '^What runs it: .*deepspeed' || head -1 "$tmp/out"
    "$B/dpxplan" export "$tmp/init.json" --to "$1" >"$tmp/config" 2>"$tmp/err" || { echo "export: exit $?"; cat "$tmp/err"; }
    [ -s "$tmp/config" ] || echo 'an empty config'
}
for tool in accelerate torchtitan fsdp deepspeed megatron; do
    if command -v python3 >/dev/null; then
        check "init asks what runs it first, and its plan is one that $tool takes" "$(asks_first $tool)"
    else
        skip "init asks what runs it first, and its plan is one that $tool takes" 'no python3, which makes the terminal'
    fi
done
finish
