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
"$B/dpxplan" search --model gpt2 --cluster localhost:2 --seq 64 --global-batch 8 --validate >"$dir/out" 2>"$dir/err"
"$B/dpxplan" search --model gpt2 --cluster localhost:2 --seq 64 --global-batch 8 --validate -o "$dir/own.json" >"$dir/out" 2>"$dir/err"
check "of dpxrun's own kernels it prints no command, and says so" "$(grep -q 'search with --kernels torch-sdpa' "$dir/out" && ! grep '^  dpxrun ' "$dir/out" || cat "$dir/out" "$dir/err")"
check 'without -o it says what is missing' "$([ $? = 2 ] && grep -q 'give -o' "$dir/err" && [ ! -s "$dir/out" ] || cat "$dir/err")"
finish
