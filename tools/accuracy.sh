#!/bin/sh
# tools/accuracy.sh [--check] -- the tables of docs/evidence/ that `make accuracy-public` prints as rows.
#
# A page has "<!-- accuracy: NAME -->" before such a table.  What stands behind it up to the next empty line is written
# anew.  --check changes nothing: it prints what differs, and fails.  Runs from the root of the tree; $B is where
# tests/accuracy was built.  It takes minutes: `make accuracy-pages`.
check=
[ "$1" = --check ] && check=1
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
LC_ALL=C.UTF-8 XDG_DATA_HOME=$tmp/none
export LC_ALL XDG_DATA_HOME

for what in public memory offload; do
    "$B/tests/accuracy/accuracy_$what" >"$tmp/$what" 2>&1 || { echo "accuracy.sh: accuracy_$what failed" >&2; exit 1; }
done

# The lines between two headings of a report, the second left out.
part() { awk -v from="$2" -v to="$3" 'index($0, to) == 1 && on { exit } index($0, from) == 1 { on = 1 } on' "$tmp/$1"; }

# GPU's and other names, as people write them.
title() {
    sed -e 's/a100-40gb/A100 40 GB/; s/a100-80gb/A100 80 GB/; s/h100/H100/; s/gb200/GB200/; s/b200/B200/' \
        -e 's/NVIDIA, together, /NVIDIA'"'"'s guides, /; s/papers, together, /two papers, /'
}

# rows FIRST-COLUMN...: of a table of MAPE, by names at a line's beginning.
by_gpu() {
    echo '| | rows | mean error | bias | worst | inside |'
    echo '|---|---|---|---|---|---|'
    for name; do
        awk -v name="$name" '{ line = $0; sub(/^ +/, "", line) }
            index(line, name " ") == 1 && line !~ /one median/ { sub(name, "", line); split(line, n, " ")
                inside = line ~ /^ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[-+][0-9.]+ +[-+][0-9.]+ +[-0-9.]+ +[-0-9.]+ +[0-9]+ +[0-9]+/ ? n[9] " %" : ""
                printf "| %s | %s | %s %% | %s %% | %s %% | %s |\n", name, n[1], n[2], n[6], n[5], inside; exit }' "$tmp/part"
    done | title
}
together() {    # rows with "together", of Megatron-LM's tables
    echo '| source | rows | mean error | bias | worst | within 8 % (fp8, experts: 12 %) |'
    echo '|---|---|---|---|---|---|'
    sed -n 's/^  \(NVIDIA, together, [^ ]*, [a-z0-9]*\( bits\)*\|papers, together, [^ ]*, 16 bits\)  *\([0-9]*\) *\([0-9.]*\) *\([-+0-9.]*\) *\([-+0-9.]*\) *\([0-9]*\)$/| \1 | \3 | \4 % | \5 % | \6 % | \7 |/p' "$tmp/part" | title
}
group() {       # TITLE REGEX: rows of accuracy_offload
    awk -v title="$1" -v which="$2" '
        $0 ~ which && match($0, /[0-9.]+ +[0-9.]+ +[0-9.]+-[0-9.]+ +[-+][0-9]+ %/) {
            split(substr($0, RSTART, RLENGTH), f, " "); split(f[3], range, "-")
            e = 100 * (f[2] / f[1] - 1); n++; sum += e < 0 ? -e : e; bias += e
            if ((e < 0 ? -e : e) > (worst < 0 ? -worst : worst)) worst = e
            if (f[1] + 0 >= range[1] + 0 && f[1] + 0 <= range[2] + 0) inside++
        }
        END { if (n) printf "| %s | %d | %.1f %% | %+.1f %% | %+.1f %% | %d |\n", title, n, sum / n, bias / n, worst, inside }' "$tmp/part"
}

table() {       # NAME
    case $1 in
        llm-foundry)
            part public 'llm-foundry:' '  skipped' >"$tmp/part"
            by_gpu a100-40gb a100-80gb h100 together ;;
        torchtitan)
            part public 'torchtitan:' '  skipped' >"$tmp/part"
            by_gpu eager torch.compile a100-80gb h100 together ;;
        megatron)
            part public 'Megatron-LM: dense' '  activations of' >"$tmp/part"
            together ;;
        experts)
            part public 'Megatron-LM: mixtures' 'Megatron-LM: LoRA' >"$tmp/part"
            together ;;
        adapters)
            part public 'Megatron-LM: LoRA' '====' >"$tmp/part"
            together ;;
        pairs)
            part public 'pairs of rows' 'Megatron-LM' >"$tmp/part"
            echo '| the choice | pairs | right |'
            echo '|---|---|---|'
            sed -n 's/^  \([a-zA-Z][a-zA-Z -]*[a-z]\)  *\([0-9]*\) pairs *\([0-9]*\) right.*/| \1 | \2 | \3 |/p' "$tmp/part" ;;
        kinds)
            part public 'all by framework' '  no plan:' >"$tmp/part"
            echo '| framework, kind, GPU | rows | no plan | refused | mean error | bias | worst | inside | width | one MFU |'
            echo '|---|---|---|---|---|---|---|---|---|---|'
            awk '/^  [a-zA-Z].* [-+][0-9.]+ +[-+][0-9.]+ +[0-9]+ +[0-9]+( +[0-9.]+)?$/ {
                n = split($0, f, " "); naive = f[n] ~ /\./ ? f[n--] : ""
                what = f[1]; for (i = 2; i <= n - 8; i++) what = what " " f[i]
                printf "| %s | %s | %s | %s | %s %% | %s %% | %s %% | %s %% | %s %% | %s |\n", what, f[n-7], f[n-6], f[n-5], f[n-4], f[n-3], f[n-2], f[n-1], f[n], naive == "" ? "" : naive " %" }' "$tmp/part" | title ;;
        choices)
            part public '  several plans for the same work' '====' >"$tmp/part"
            echo '| framework, kind, GPU | problems | the best is chosen | mean regret | worst |'
            echo '|---|---|---|---|---|'
            awk '/^  [a-zA-Z].* [0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+$/ {
                n = split($0, f, " "); what = f[1]; for (i = 2; i <= n - 4; i++) what = what " " f[i]
                printf "| %s | %s | %s | %s %% | %s %% |\n", what, f[n-3], f[n-2], f[n-1], f[n] }' "$tmp/part" | title ;;
        trainings)
            echo '| machine, bound by | rows | mean error | bias | worst | inside |'
            echo '|---|---|---|---|---|---|'
            awk '/^trainings of PyTorch on one/ { machine = $6 }
                 /^bound by/ { line = $0; sub(/:.*/, "", line); sub(/^bound by /, "", line); rest = $0; sub(/.*: /, "", rest); gsub(/[,;]/, "", rest)
                     split(rest, f, " "); printf "| %s, %s | %s | %s %% | %s %% | %s %% | %s |\n", machine, line, f[1], f[4], f[7], f[9], f[10] }' "$tmp/offload" ;;
        steps)
            echo '| source | rows | mean error | bias | worst | inside |'
            echo '|---|---|---|---|---|---|'
            part offload 'other published steps' 'steps of fine-tuning' >"$tmp/part"
            group 'FSDP paper, 175B, 128 to 512 A100, FSDP1' '^minGPT-175B'
            group 'torchtitan'"'"'s logs of June and July 2024' '^Llama-3-8B, 8 GPUs'
            group 'GPT-2 XL, 1 to 16 H100, DDP and FSDP2' '^(gpt2-xl|nanoGPT)'
            group 'one B200, torchtitan' 'one B200,'
            group 'Megatron-LM 6.9B, 1 to 16 B200, DDP' '^Megatron-LM GPT'
            part offload 'steps of fine-tuning' 'trainings of' >"$tmp/part"
            group 'QLoRA, 2 RTX 4090, FSDP' 'RTX 4090'
            group 'QLoRA, 2 to 8 A100, FSDP' 'A100'
            group 'QLoRA, 4 H100, FSDP' 'H100' ;;
        offload)
            echo '| what | rows | mean error | bias | worst | inside |'
            echo '|---|---|---|---|---|---|'
            part offload 'offload:' 'other published' >"$tmp/part"
            group 'DeepSpeed, steps' 'ZeRO-'
            group 'FSDP with CPU offload, steps' 'FSDP, CPU offload'
            group 'AdamW on the host alone' '^AdamW' ;;
        memory-published|memory-own)
            echo '| meter | rows | median error | worst |'
            echo '|---|---|---|---|'
            [ "$1" = memory-own ] && who='own runs ' || who=published
            sed -n "s/^  $who *\([a-z]*\) *\([0-9]*\) rows *median *\([0-9.]*\) % *worst *\([-+0-9.]*\) %/| \1 | \2 | \3 % | \4 % |/p" "$tmp/memory" ;;
        *) echo "accuracy.sh: no table is called '$1'" >&2; exit 1 ;;
    esac
}

bad=0
for page in docs/evidence/*.md; do
    grep -q '^<!-- accuracy: ' "$page" || continue
    for name in $(sed -n 's/^<!-- accuracy: \([a-z-]*\) -->$/\1/p' "$page"); do
        table "$name" >"$tmp/table.$name"
        [ "$(wc -l <"$tmp/table.$name")" -ge 3 ] || { echo "accuracy.sh: $name has no rows" >&2; exit 1; }
    done
    awk -v tmp="$tmp" '
        /^<!-- accuracy: / { print; f = tmp "/table." $3; while ((getline line <f) > 0) print line; skip = 1; next }
        skip && /^$/ { skip = 0 }
        !skip' "$page" >"$tmp/page"
    if [ "$check" ]; then
        diff "$page" "$tmp/page" || { echo "$page differs"; bad=1; }
    else
        cmp -s "$page" "$tmp/page" || cp "$tmp/page" "$page"
    fi
done
exit $bad
