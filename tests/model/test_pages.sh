#!/bin/sh
# tests/model/test_pages.sh -- manual pages and completion say what --help says, and the programs
# that read them find nothing wrong.  Runs from the root of the tree; $B is where it was built.
. tests/check.sh
B=${B:-build}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# Each program's commands, one a line; an empty line where it has none.
commands() {
    "$B/$1" --help | awk '/^usage:/ { several = / COMMAND / } several && /^  [a-z]/ { print $1; n++ } END { if (!n) print "" }'
}

# Options of one command, as --help lists them.
options() {
    # shellcheck disable=SC2086
    "$B/$1" $2 --help | grep -oE -- '^  (-[a-zA-Z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+'
}

# missing PROGRAM FILE: options that the file does not have.
missing() {
    commands "$1" | while read -r c; do
        options "$1" "$c" | while read -r o; do
            grep -qE -- "$o([^a-z0-9-]|\$)" "$2" || echo "$1 $c: $o is missing"
        done
    done
}

bash_completes() {      # PROGRAM EXPECTED WORD...
    bash -c 'source "$1"; program=$2; want=$3; shift 3
        COMP_WORDS=("$program" "$@"); COMP_CWORD=$#
        "_$program"; [[ " ${COMPREPLY[*]} " == *" $want "* ]] || echo "$program $*: got ${COMPREPLY[*]}, not $want"' \
        - "$tmp/$1.bash" "$@" 2>&1
}

for program in dpxplan dpxcal dpxrun dpxreport; do
    if [ ! -x "$B/$program" ]; then
        skip "$program has a manual page and completion" 'it was not built'
        continue
    fi
    for format in man bash zsh; do
        "$B/$program" --help-format=$format >"$tmp/$program.$format" 2>"$tmp/err"
        check "$program prints itself for $format" "$([ $? = 0 ] || cat "$tmp/err"; [ -s "$tmp/$program.$format" ] || echo 'nothing')"
    done
    sed 's/\\-/-/g; s/\\f[BIR]//g' "$tmp/$program.man" >"$tmp/plain"
    check "the manual page of $program has every option"  "$(missing "$program" "$tmp/plain")"
    check "bash completion of $program has every option"  "$(missing "$program" "$tmp/$program.bash")"
    check "zsh completion of $program has every option"   "$(missing "$program" "$tmp/$program.zsh")"
    if command -v man >/dev/null && command -v groff >/dev/null; then
        check "man has nothing to say about the page of $program" \
            "$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$tmp/$program.man" 2>&1 >/dev/null)"
    else
        skip "man has nothing to say about the page of $program" 'there is no man'
    fi
    if command -v mandoc >/dev/null; then
        # A date would change with every build.
        check "mandoc has nothing to say about the page of $program" \
            "$(mandoc -Tlint -Wwarning "$tmp/$program.man" | grep -v 'missing date')"
    else
        skip "mandoc has nothing to say about the page of $program" 'there is no mandoc'
    fi
    check "the NAME of $program is one line, for apropos" \
        "$(sed -n '/^.SH NAME/,/^.SH SYN/p' "$tmp/$program.man" | grep -c . | grep -vx 3)"
    check "bash reads the completion of $program" "$(bash -n "$tmp/$program.bash" 2>&1)"
    if command -v zsh >/dev/null; then
        check "zsh reads the completion of $program" "$(zsh -n "$tmp/$program.zsh" 2>&1)"
    else
        skip "zsh reads the completion of $program" 'there is no zsh'
    fi
done

check 'the manual page of dpxplan has every key of a plan' \
    "$(sed 's/\\-/-/g; s/\\f[BIR]//g' "$tmp/dpxplan.man" >"$tmp/plain"
       "$B/dpxplan" list keys | sed -n 's/^\([a-z][a-z0-9_.]*\): .*/\1/p' | sort -u >"$tmp/keys"
       [ "$(wc -l <"$tmp/keys")" -ge 45 ] || echo "only $(wc -l <"$tmp/keys") keys are listed"
       while read -r key; do grep -qx "$key" "$tmp/plain" || echo "$key"; done <"$tmp/keys")"

check 'a format that there is not is refused' \
    "$("$B/dpxplan" --help-format=html >/dev/null 2>"$tmp/err"; [ $? = 2 ] || echo 'not 2'
       grep -q "'html' is not one of man, bash, zsh" "$tmp/err" || cat "$tmp/err")"

check 'bash completes commands'           "$(bash_completes dpxplan search s)"
check 'bash completes options'            "$(bash_completes dpxplan --strategy search --str)"
check 'bash completes words'              "$(bash_completes dpxplan bf16 search --precision b)"
check 'bash completes words after a sign' "$(bash_completes dpxplan bf16 search --precision = b)"
check 'bash completes words in a list'    "$(bash_completes dpxplan ddp,fsdp search --strategy ddp,fs)"
check 'bash completes what is listed'    "$(bash_completes dpxplan keys list k)"
check 'bash leaves files to bash'         "$(bash_completes dpxplan '' eval plan)"

if [ -z "$(command -v make)" ]; then
    skip 'make install puts pages and completion in their places' 'there is no make'
else
    check 'make install puts pages and completion in their places' \
        "$(make -s B="$B" DESTDIR="$tmp/root" PREFIX=/usr install >"$tmp/log" 2>&1 || tail -n 5 "$tmp/log"
           for f in bin/dpxplan share/man/man1/dpxplan.1 share/bash-completion/completions/dpxplan \
                    share/zsh/site-functions/_dpxplan; do
               [ -s "$tmp/root/usr/$f" ] || echo "$f was not installed"
           done)"
    check 'what is installed has no debug information' \
        "$(for f in bin/dpxplan lib/libdpx.so.0; do
               installed=$(wc -c <"$tmp/root/usr/$f") built=$(wc -c <"$B/${f##*/}")
               [ "$installed" -lt $((built / 2)) ] || echo "$f: $installed of $built bytes"
           done)"
fi
finish
