#!/bin/sh
# test_validate.sh -- dpxplan search --validate: the commands it prints name plans that are there, each for the engine that runs it.
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export XDG_DATA_HOME="$dir/none"
mkdir "$dir/a folder"
"$B/dpxplan" search --model gpt2 --cluster localhost:2 --seq 64 --global-batch 8 --framework any --kernels torch-sdpa --top 4 --validate -o "$dir/a folder/p.json" \
    >"$dir/out" 2>"$dir/err" </dev/null
check 'it answers' "$([ $? = 0 ] || cat "$dir/err")"
grep '^  dpxrun ' "$dir/out" >"$dir/commands"
# dpxrun, played: each plan is one that dpxplan reads, of a dialect that the engine has.
cat >"$dir/dpxrun" <<END
#!/bin/sh
for a; do
    case \$a in *.json) "$PWD/$B/dpxplan" eval "\$a" --json >"$dir/eval" 2>&1 || cat "$dir/eval"; d=\$(sed -n 's/.*"dialect": *"\([^"]*\)".*/\1/p' "\$a") dialects="\$dialects \$d" ;; esac
    [ "\$was" = --engine ] && engine=\$a
    was=\$a
done
[ "\$dialects" ] || echo "no plan: \$*"
for d in \$dialects; do case \$engine\$d in torchtorch* | deepspeeddeepspeed) ;; *) echo "\$engine is to run \$d" ;; esac; done
END
chmod +x "$dir/dpxrun"
check 'its commands are a shell'"'"'s, and name plans of their engine' "$([ -s "$dir/commands" ] || cat "$dir/out"; PATH="$dir:$PATH" sh "$dir/commands" 2>&1)"
# Searches of many kinds: dpxrun itself takes each command as far as the question whether Python has the framework; each plan that none
# of them names is one that dpxrun refuses.
printf '#!/bin/sh\necho "{ }"\n' >"$dir/bare"
chmod +x "$dir/bare"
accepted() {    # search's words...
    rm -f "$dir"/v*.json
    "$B/dpxplan" search "$@" --validate -o "$dir/v.json" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    [ $got = 0 ] || [ $got = 3 ] || { echo "search $*: exit status $got"; cat "$dir/err"; }
    [ $got = 3 ] || grep -q 'To measure' "$dir/out" || echo "search $*: no word of what measures it"
    sed -n 's/^  dpxrun //p' "$dir/out" >"$dir/commands"
    while read -r command; do
        commands=$((commands + 1))
        "$B/dpxrun" $command --python "$dir/bare" --no-db >"$dir/said" 2>&1 </dev/null
        got=$(grep '^dpx: ' "$dir/said" | grep -c 'has no torch: install it there') && [ "$got" = "$(grep -c '^dpx: ' "$dir/said")" ] &&
            [ "$got" = "$(echo "$command" | tr ' ' '\n' | grep -c 'json$')" ] || { echo "search $*: dpxrun $command"; grep '^dpx: ' "$dir/said"; }
    done <"$dir/commands"
    for n in $(sed -n 's/^plan \([0-9]\) of --validate is run by no engine.*/\1/p' "$dir/err"); do
        refused=$((refused + 1))
        [ "$n" = 1 ] || [ ! -e "$dir/v-$n.json" ] || echo "search $*: v-$n.json is written, though no engine runs it"
    done
}
commands=0 refused=0
for framework in torch deepspeed megatron any; do
    for words in '--model gpt2 --cluster localhost:2' '--model llama-3.1-8b --cluster 8xh100 --no-grid' '--model qwen3-30b-a3b --cluster 8xh200 --no-grid' \
        '--model llama-3.1-8b --cluster 8xh100 --no-grid --lora 16' '--model llama-3.1-8b --cluster 8xh100 --no-grid --kernels torch-compile'; do
        case $framework$words in megatron*gpt2* | megatron*lora* | megatron*compile* | deepspeed*compile*) continue ;; esac
        case $framework$words in *gpt2*) kernels='--kernels torch-sdpa' ;; *) kernels= ;; esac
        accepted $words --seq 512 --global-batch 16 --framework $framework $kernels >>"$dir/wrong"
    done
done
for words in '--export-to accelerate' '--export-to torchtitan' '--export-to axolotl' '--price 2 --tokens 1e9'; do
    accepted --model llama-3.2-1b --cluster 4xa100-80gb --no-grid --seq 512 --global-batch 16 $words >>"$dir/wrong"
done
check "each of $commands commands of 20 searches is one that dpxrun takes; of $refused plans no engine runs, it says so" "$(cat "$dir/wrong"
    [ $commands -ge 20 ] || echo "$commands commands"; [ $refused -gt 0 ] || echo 'none refused')"

"$B/dpxplan" search --model gpt2 --cluster localhost:2 --seq 64 --global-batch 8 --validate -o "$dir/own.json" >"$dir/out" 2>"$dir/err"
check "of dpxrun's own kernels it prints no command, and says so" "$(grep -q 'search with --kernels torch-sdpa' "$dir/out" && ! grep '^  dpxrun ' "$dir/out" || cat "$dir/out" "$dir/err")"
"$B/dpxplan" search --model gpt2 --cluster localhost:2 --seq 64 --global-batch 8 --validate >"$dir/out" 2>"$dir/err"
check 'without -o it says what is missing' "$([ $? = 2 ] && grep -q 'give -o' "$dir/err" && [ ! -s "$dir/out" ] || cat "$dir/err")"
finish
