#!/bin/sh
# tests/test_questions.sh -- the pages that docs/questions.md lists: every question has a source, a command that prints
# what the page shows, and an answer; figures "by hand" are evaluated and must occur in the output.
. tests/check.sh
index=docs/questions.md
pages=$(sed -n 's/^## .*](\(questions\/[a-z-]*\.md\))$/docs\/\1/p' $index)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# shellcheck disable=SC2086 # a list of pages
cat $pages >"$tmp/all"
questions=$(grep -c '^### ' "$tmp/all")
check 'docs/questions.md lists every page of docs/questions, and their questions in order' "$(
    for f in docs/questions/*.md; do case " $(echo $pages) " in *" $f "*) ;; *) echo "$f is not listed" ;; esac; done
    grep -E '^[0-9]+\. ' $index >"$tmp/listed"
    sed -n 's/^### \([0-9]\)/\1/p' "$tmp/all" | diff "$tmp/listed" -)"
check 'there are at least 40 questions' "$([ "$questions" -ge 40 ] || echo "$questions")"

# One file a question; a paragraph, which a page breaks into lines, is one line.
awk -v tmp="$tmp" '
function flush() { if (text != "") print text >f; text = "" }
/^#/      { if (f) flush(); f = "" }
/^### /   { n++; f = sprintf("%s/%03d", tmp, n); print >f; next }
!f        { next }
/^    /   { flush(); print >f; next }
/^$/      { flush(); print >f; next }
          { text = text == "" ? $0 : text " " $0 }
END       { if (f) flush() }' "$tmp/all"
wrong=
for q in "$tmp"/[0-9]*; do
    title=$(sed -n 1p "$q")
    say() { wrong="$wrong$title: $*
"; }
    n=$((${n:-0} + 1))
    case $title in "### $n. "*\?|"### $n. "*) ;; *) say "is number $n" ;; esac
    grep -q '?' "$q" || say 'asks nothing'
    sed -n 2p "$q" | grep -Eq '^(Asked|Suggested) .*\]\(https://[^ )]+\).*\.$' || say 'the second line has no source'
    # Nothing measures a time that is written there by hand.
    sed -n 2p "$q" | grep -Eq '\. [0-9.]+ s\.$' && say 'the second line has a time'
    [ "$(grep -c '^    \$ dpxplan ' "$q")" -ge 1 ] || say 'there is no command'
    [ "$(grep '^    ' "$q" | grep -vc '^    \$ ')" -ge 1 ] || say 'there is no output'
    tail -n +3 "$q" | grep -q '^[A-Z0-9`].*[^ ]' || say 'there is no answer'
    # `EXPRESSION = FIGURE` or `EXPRESSION < FIGURE`: true, and the figure is in the output.
    grep '^    ' "$q" | grep -v '^    \$ ' | tr -d , >"$tmp/output"
    sed -n '/By hand/s/.*By hand: //p' "$q" | grep -o '`[^`]*[=<] [0-9.]*`' | tr -d '\140' >"$tmp/by-hand"
    while IFS= read -r line; do
        figure=${line##* } rest=${line% *} relation=${line% *}
        relation=${rest##* } expression=${rest% *}
        case $expression in *[!-0-9e.+*/\(\)^\ ]*) say "not arithmetic: $expression"; continue ;; esac
        fraction=${figure#"${figure%.*}"}
        digits=$((${#fraction} > 0 ? ${#fraction} - 1 : 0))
        value=$(awk "BEGIN { printf \"%.${digits}f\", $expression }")
        if [ "$relation" = '=' ]; then
            [ "$value" = "$figure" ] || say "$expression is $value, not $figure"
        else
            awk "BEGIN { exit !($value < $figure) }" || say "$expression is $value, not below $figure"
        fi
        grep -qF -- "$figure" "$tmp/output" || say "$figure is not in the output"
    done <"$tmp/by-hand"
    said=$(awk -f tests/answers.awk "$q")
    [ -z "$said" ] || wrong="$wrong$said
"
done
check 'each has its source, command, output and answer, and answer and arithmetic agree with the output' "$wrong"
figures=$(cat "$tmp"/[0-9]* | grep -o '`[^`]*[=<] [0-9.]*`' | grep -c .)
check 'arithmetic repeats a figure of at least 30' "$([ "$figures" -ge 30 ] || echo "$figures")"

# The gate sees a sentence that its own table refutes, and a figure that nothing shows.
cat >"$tmp/wrong" <<'END'
### 1. What is the longest sequence?
    $ dpxplan sweep demo/8b-fsdp.json --over seq=16k,32k
    16384        8    2.767 s   42.14 GiB  fsdp torch b1x1
    32768        8          -   70.13 GiB  fsdp torch b1x1, does not fit
32k on these GPUs, in 39.1 GiB.
END
check 'a wrong sentence is found, and a wrong figure' "$(
    [ "$(awk -f tests/answers.awk "$tmp/wrong" | wc -l)" = 2 ] || awk -f tests/answers.awk "$tmp/wrong"
    sed 's/^32k.*/16k on these GPUs, in 42.1 GiB; 32k does not fit./' "$tmp/wrong" | awk -f tests/answers.awk)"
# shellcheck disable=SC2086
check 'every command prints what the page shows' "$(tools/pages.sh --check $pages)"
# Processor seconds, which do not depend on what else runs: "times" prints the shell's, then its children's.
seconds=$(times | awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, "m"); s += 60 * t[1] + t[2] } print int(s) }')
check 'all of them take less than 30 s of one core' "$([ "$seconds" -lt 30 ] || echo "$seconds s")"
finish
