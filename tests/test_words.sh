#!/bin/sh
# tests/test_words.sh -- what programs print to people: lines that fit the page, no code that nothing explains, short sentences, no
# percentage above 999.
#
# Runs commands of README.md and docs/, without the filters behind them, at 80 and 120 columns: those of README.md and the start page, with
# WORDS=all (make words, 2 minutes of two cores) those of every page.  Documents (--json) keep their codes, and files that a command writes
# for a framework their lines.  What refuses is held, too: its one line is a sentence that a terminal breaks.
. tests/check.sh
B=$(cd "${B:-build}" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
PATH=$B:$PATH
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
LC_ALL=C.UTF-8
export XDG_DATA_HOME LC_ALL
pages='README.md docs/start.md docs/teach-lab.md'
least=15
[ "$WORDS" = all ] && pages='' least=120

# The commands up to the first filter; each in the folder of its page, for later ones read what earlier ones wrote.
# shellcheck disable=SC2086 # a list of pages
tools/pages.sh --list $pages | grep -v -- ' --json' | sed 's/ 2>&1//; s/ 2>\/dev\/null//; s/ | \(head\|tail\|grep\|sed\|awk\) .*//' |
    awk '!seen[$0]++' >"$tmp/commands"
cat >>"$tmp/commands" <<'END'
dpxrun
dpxrun demo/10m/fsdp.json --steps 2 --db run.db
dpxrun demo/10m/ddp.json --memory 200MB
dpxreport
dpxcal
dpxcal show --db run.db
dpxcal show --model demo/10m --seq 128 --db run.db
END
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
check 'there are commands to run' "$([ "$(grep -c . "$tmp/commands")" -ge $least ] || wc -l "$tmp/commands")"

run_all() {     # COLUMNS
    rm -rf "$tmp/run" && mkdir "$tmp/run" "$tmp/$1" && ln -s "$PWD/demo" "$PWD/docs" "$tmp/run/" || exit 1
    n=0
    while IFS= read -r command; do
        n=$((n + 1))
        (cd "$tmp/run" && COLUMNS=$1 sh -c "$command") >"$tmp/$1/$n" 2>&1 </dev/null
    done <"$tmp/commands"
}

# Columns of each line, a letter of UTF-8 one; a word that is wider than the page stays whole.
too_wide() {    # COLUMNS
    for f in "$tmp/$1"/*; do
        LC_ALL=C awk -v most="$1" -v command="$(sed -n "${f##*/}p" "$tmp/commands")" \
            '{ line = $0; gsub(/[\200-\277]/, "", line) }
             length(line) > most && !/^ *[^ ]+$/ && !/^dpx: / { print command; print "    " length(line) ": " $0 }' "$f"
    done
}

# What only a label has.  A line that begins with it, or says it behind "label:", explains it.
CODES='b[0-9]+x[0-9]+|recompute [a-z_,]+/[0-9]+|and [0-9]+ variants?|\(t\*[0-9]|qwZ|qgZ|hpZ [0-9]|no_sync|(zero[123]|ddp|fsdp|dp) (deepspeed|torch|torch-fsdp1|megatron|paper)( |$)'
unexplained() { # COLUMNS
    for f in "$tmp/$1"/*; do
        command=$(sed -n "${f##*/}p" "$tmp/commands")
        grep -oE -- "$CODES" "$f" | sed 's/ *$//; s/and [0-9]* variants*/and N variants/; s/(t\*[0-9]/layout/' | sort -u | while IFS= read -r code; do
            case $code in
            layout) grep -q '^  In a layout E is the embedding' "$f" && continue ;;
            *) grep -qF -- "  $code " "$f" && grep -E -- '^  [^ ]' "$f" | cut -c3- | grep -qF -- "$code " && continue
               grep -qF -- "  $code:" "$f" && continue ;;
            esac
            echo "$command: $code"
        done
    done
}

# Lines that a page wrapped are joined: the next word had no room.  Rows of tables, pictures and lists (a plan in words) are no sentences,
# nor are comments and lines of a file that a framework reads.
long_sentences() {      # COLUMNS
    for f in "$tmp/$1"/*; do
        awk -v most="$1" -v command="$(sed -n "${f##*/}p" "$tmp/commands")" '
            function say(    n, i, sentence, word) {
                if (text !~ /[^ ]  +[^ ].*[^ ]  +[^ ]/ && text !~ /[|│└]/) {
                    n = split(text, sentence, /[.:;!?)(] +/)
                    for (i = 1; i <= n; i++)
                        if (split(sentence[i], word, / +/) > 30 && gsub(/,/, ",", sentence[i]) < 3) { print command; print "    " sentence[i] }
                }
                text = ""
            }
            { line = $0; sub(/^ +/, "", line)
              if (text != "" && /^ +/ && last + 1 + length($1) > most) text = text " " line
              else { if (text != "") say(); text = line }
              last = length($0) }
            END { say() }' "$f"
    done
}

# A larger ratio is said in times: "17.7 times".
large_percentages() {   # COLUMNS
    for f in "$tmp/$1"/*; do
        grep -E '(^|[^0-9.])[0-9]{4,}(\.[0-9]+)? ?%' "$f" | sed "s|^|$(sed -n "${f##*/}p" "$tmp/commands" | sed 's/[|&\\]/./g'): |"
    done
}

for columns in 80 120; do run_all $columns; done
for columns in 80 120; do check "no line is wider than $columns columns" "$(too_wide $columns)"; done
check 'no code that nothing explains' "$(unexplained 120)"
check 'no sentence has more than 30 words' "$(long_sentences 120)"
check 'no percentage is above 999' "$(large_percentages 120)"

# The gates see a wide line, a code that nothing explains, and a long sentence.
mkdir "$tmp/9" && echo wrong >"$tmp/commands" && cat >"$tmp/9/1" <<'END'
a line of many words
fsdp torch b1x4 is fastest
idle 0.1 s +1766.3 %
This sentence goes on and on and on and on and on and on and on and on and on and on and on and on and on and on and on and on
END
check 'each gate finds what is wrong' "$(
    [ "$(too_wide 9 | grep -c ': ')" = 4 ] || too_wide 9
    [ "$(large_percentages 9 | grep -c 1766)" = 1 ] || large_percentages 9
    [ "$(unexplained 9 | grep -c b1x4)" = 1 ] || unexplained 9
    [ "$(long_sentences 9 | grep -c 'goes on')" = 1 ] || long_sentences 9)"
finish
