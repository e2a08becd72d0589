# check.sh -- for test scripts: source it, call check() for each thing that must
# hold, end with `finish`.  Speaks as cmocka does, so that tests/run.sh can count.
#
#     check 'what must hold' "$complaints"       passes when there are none
#     skip  'what must hold' 'why it cannot be tested here'
# shellcheck shell=sh
passed=0 failed=0 skipped=0 held_in=

# Makes $held_in/answers, where what finish() holds is put; false where there is no jsonschema.
can_hold() {
    "${PYTHON:-python3}" -c 'import jsonschema, referencing' 2>/dev/null || {
        skip 'answers have the shapes of docs/schemas' "${PYTHON:-python3} has no jsonschema"
        return 1
    }
    held_in=$(mktemp -d) || exit 1
    mkdir "$held_in/answers"
}

# keep_answers: what the programs of $B print under --json from now on must have the shapes of docs/schemas; finish() holds it.  $B becomes
# a folder that links to what was built, with programs that keep their answers; BUILT is the folder itself.  ANSWERS=FOLDER keeps them (make schemas).
keep_answers() {
    BUILT=$B
    can_hold || return
    mkdir "$held_in/built"
    ln -s "$(realpath "$B")"/* "$held_in/built/"
    for program in dpxplan dpxrun dpxcal dpxreport; do
        [ -x "$B/$program" ] || continue
        rm "$held_in/built/$program"
        cat >"$held_in/built/$program" <<END
#!/bin/sh
case " \$* " in
' serve '* | ' mcp '*) exec '$(realpath "$B")/$program' "\$@" ;;
*' --json '*) ;;
*) exec '$(realpath "$B")/$program' "\$@" ;;
esac
n=\$(mktemp '$held_in/answers/XXXXXXXX') || exit 1
{ echo $program; printf '%s\n' "\$@"; } >"\$n.words"
'$(realpath "$B")/$program' "\$@" >"\$n.json"
rc=\$?
cat "\$n.json" || exit 1
exit \$rc
END
        chmod +x "$held_in/built/$program"
    done
    B=$held_in/built
}

# hold_answer FILE PROGRAM [WORD...]: behind can_hold, so must what PROGRAM itself printed to FILE when it was asked with these words.
hold_answer() {
    [ -n "$held_in" ] && [ -s "$1" ] || return 0
    kept=$(mktemp "$held_in/answers/XXXXXXXX") || exit 1
    cp "$1" "$kept.json"
    shift
    printf '%s\n' "$@" >"$kept.words"
}

check() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
        echo "[       OK ] $1"
    else
        failed=$((failed + 1))
        printf '%s\n' "$2"
        echo "[  FAILED  ] $1"
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "[  SKIPPED ] $1: $2"
}

finish() {
    if [ -n "$held_in" ] && [ $((passed + failed)) = 0 ]; then       # all were skipped: there are none
        rm -rf "$held_in"
    elif [ -n "$held_in" ]; then
        said=$("${PYTHON:-python3}" tools/schemas.py - hold "$held_in/answers" 2>&1)
        check "answers have the shapes of docs/schemas: $(echo "$said" | sed -n '$s/^held //p') held" \
            "$(echo "$said" | grep -v '^held [1-9]' | head -n 20; echo "$said" | tail -n 1 | grep -q '^held [1-9]' || echo 'none was held')"
        [ -z "$ANSWERS" ] || cp "$held_in"/answers/* "$ANSWERS/"
        rm -rf "$held_in"
    fi
    echo "[==========] $((passed + failed + skipped)) test(s) run."
    echo "[  PASSED  ] $passed test(s)."
    [ $skipped = 0 ] || echo "[  SKIPPED ] $skipped test(s), listed below:"
    [ $failed = 0 ] || echo "[  FAILED  ] $failed test(s), listed below:"
    [ $failed = 0 ]
    exit
}
