/* The commands of a script, as a shell would have them: expected words were read off the scripts by hand. */
#include "tests/check.h"

#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/shell.h"

/* The last command's words with a bar between them. */
static void last_is(const char *script, const char *words)
{
    struct shell_script s;
    char has[2048] = "";
    size_t n = 0;

    assert_int_equal(shell_read(script, "t.sh", &s), 0);
    const json_t *last = json_array_get(s.commands, json_array_size(s.commands) - 1);
    for (size_t i = 0; i < json_array_size(last); i++)
        n += (size_t)snprintf(has + n, sizeof has - n, "%s%s", i ? "|" : "", json_string_value(json_array_get(last, i)));
    assert_string_equal(has, words);
    shell_free(&s);
}

static void words_are_cut_as_a_shell_cuts_them(void **state)
{
    (void)state;
    last_is("a b  c", "a|b|c");
    last_is("a 'b  $c' \"d e\" f\\ g", "a|b  $c|d e|f g");
    last_is("a \\\n  --b 1 \\\n  --c 2\n", "a|--b|1|--c|2");
    last_is("# nothing\na b # c\n", "a|b");
    last_is("a > log.txt 2>&1 &\n", "a");
    last_is("a; b c && d\n", "d");
    last_is("a \"\" b", "a||b");
    last_is("M=m\nread -r -d '' C <<EOF\na.b --x 1 \\\n --y $M\nEOF\nrun $C\n", "run|a.b|--x|1|--y|m");
    last_is("cat <<EOF > f\nx y\nEOF\nrun it\n", "run|it");
    /* bash 5.2 prints the same: `for w in ...; do printf '%s|' "$w"; done` */
    last_is("run --a 1 `# don't stop` \\\n `# here` --b 2 \\\n `# nor` \\\n --c", "run|--a|1|--b|2|--c");
    last_is("run --t $'Q: {}\\n\\nLet\\'s go\\tx' --n 1", "run|--t|Q: {}\n\nLet's go\tx|--n|1");
    last_is("run \"$'a'\" `date +%s` x", "run|$'a'|`date +%s`|x");
}

static void variables_have_the_values_that_the_script_gives(void **state)
{
    (void)state;
    last_is("N=8\nrun --n $N --m ${N} --x \"$N\"", "run|--n|8|--m|8|--x|8");
    last_is("N=${N:-16}\nrun $N", "run|16");
    last_is("export A=1 B=2\nrun $A $B", "run|1|2");
    last_is("run $MASTER_ADDR ${RANK}", "run|$MASTER_ADDR|${RANK}");
    last_is("P=$((1024 * 2))\nR=$((1024 * 8))\nrun $(((P + R) * 2)) $((2 * (P - (R - 4)) + 1))", "run|20480|-12279");
    last_is("G=8 N=4\nW=$(($G*$N))\nV=$((G * N + 2))\nrun $W $V", "run|32|34");
    last_is("A=\"--x 1 \\\n --y 2\"\nrun $A --z", "run|--x|1|--y|2|--z");
    last_is("A=\"--x 1\"\nrun \"$A\"", "run|--x 1");
    last_is("A=a\nA+=b\nrun $A", "run|ab");
    last_is("H=$(hostname -f)\nrun $H x", "run|$(hostname|-f)|x");
    last_is("A=${1:-7}\nrun $A", "run|7");
    last_is("TP=2 PP=4 ./run.sh $TP", "./run.sh|2");
}

static void has_variable(const char *script, const char *value)
{
    struct shell_script s;

    assert_int_equal(shell_read(script, "t.sh", &s), 0);
    const char *has = json_string_value(json_object_get(s.variables, "A"));
    if (!has != !value || (has && strcmp(has, value)))
        fail_msg("%s: A is %s, expected %s", script, has ? has : "not set", value ? value : "none");
    shell_free(&s);
}

/* Each as bash prints $A with `... bash -c 'echo $A'` in the command's place. */
static void variables_are_given_by_env_and_taken_by_unset(void **state)
{
    (void)state;
    has_variable("env A=3 run --x 1", "3");
    has_variable("env -i B=1 A=3 run", "3");
    has_variable("env -u B A=3 run", "3");
    has_variable("/usr/bin/env A=3 run", "3");
    has_variable("nohup env A=3 run &", "3");
    has_variable("srun --ntasks 2 env A='3 4' run", "3 4");
    has_variable("run env A=3", NULL);
    has_variable("env run A=3", NULL);
    has_variable("export A=1\nunset A\nrun", NULL);
    has_variable("export A=1 B=2\nunset B A; run", NULL);
    has_variable("export A=1\nunset B\nrun", "1");
    has_variable("export A=1\nunset -v A\nexport A=2\nrun", "2");
    has_variable("export A=1\nenv -u A run", NULL);
    has_variable("N=2\nexport A=1\nif [ $N = 1 ]; then unset A; fi\nrun", "1");
    has_variable("export A=1\nif [ -f x ]; then unset A; fi\nrun", "1");
    last_is("env A=3 run $A", "env|run|3");
}

/* As Megatron-LM's examples have them (examples/gpt3/train_gpt3_175b_distributed.sh). */
static void arrays_become_the_options_that_they_hold(void **state)
{
    (void)state;
    last_is("GPUS=8\nDISTRIBUTED_ARGS=(\n    --nproc_per_node $GPUS # each\n    --nnodes 2\n)\nMODEL=( --num-layers 96 )\nMODEL+=( --seq-length 2048 )\n"
            "torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\\n    ${MODEL[@]} \\\n    \"${MODEL[@]}\"\n",
            "torchrun|--nproc_per_node|8|--nnodes|2|pretrain_gpt.py|--num-layers|96|--seq-length|2048|--num-layers|96|--seq-length|2048");
    last_is("A=( \"x y\" z )\nrun \"${A[@]}\"", "run|x y|z");
    last_is("CMD=\"torchrun a.py --b 1\"\neval $CMD\n", "eval|torchrun|a.py|--b|1");
}

static void conditions_on_what_the_script_sets_are_decided(void **state)
{
    (void)state;
    last_is("D=${1:-fp8}\nA=( --a )\nif [[ \"$D\" == \"fp8\" ]]; then\n A+=( --b 1 )\nelse\n A+=( --c )\nfi\nrun ${A[@]}", "run|--a|--b|1");
    last_is("D=bf16\nif [ $D = fp8 ]; then\n X=1\nelif [ $D = bf16 ]; then\n X=2\nelse\n X=3\nfi\nrun $X", "run|2");
    last_is("D=x\nif [ $D != x ]; then\n run a\nelse\n run b\nfi", "run|b");
    last_is("X=\nif [ -z \"$X\" ]; then\n X=5\nfi\nrun $X", "run|5");
    last_is("X=3\n[ -z \"$X\" ] && X=5\nrun $X", "run|3");
    last_is("X=3\n[ $X = 4 ] || X=5\nrun $X", "run|5");
    last_is("if [ a = a ]; then\n if [ b = c ]; then\n  X=1\n fi\n Y=2\nfi\nrun $X $Y", "run|$X|2");
}

static void what_a_condition_sets_is_said(void **state)
{
    struct shell_script s;

    (void)state;
    assert_int_equal(shell_read("TP=1\nif [ $M = 70 ]; then\n  TP=8\n  PP=4\nfi\nrun $TP $PP\n", "t.sh", &s), 0);
    const json_t *last = json_array_get(s.commands, json_array_size(s.commands) - 1);
    assert_string_equal(json_string_value(json_array_get(last, 1)), "1");       /* the earlier value stays */
    assert_string_equal(json_string_value(json_array_get(last, 2)), "4");
    assert_int_equal(json_array_size(s.uncertain), 2);
    shell_free(&s);
    assert_int_equal(shell_read("if a; then X=3; fi\nX=1\nrun $X\n", "t.sh", &s), 0);     /* behind it nothing is uncertain */
    assert_int_equal(json_array_size(s.uncertain), 0);
    shell_free(&s);
}

static void options_have_values_of_their_kind(void **state)
{
    struct shell_script s;

    (void)state;
    assert_int_equal(shell_read("torchrun train.py --model-name x --lr=1e-4 --bf16 True --fp16 --n 3 --s q_proj v_proj\n", "t.sh", &s), 0);
    json_t *o = shell_options(json_array_get(s.commands, 0), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(o, ""), 0)), "train.py");
    assert_string_equal(json_string_value(json_object_get(o, "model_name")), "x");
    assert_close(json_real_value(json_object_get(o, "lr")), 1e-4, 0);
    assert_true(json_is_true(json_object_get(o, "bf16")));
    assert_true(json_is_true(json_object_get(o, "fp16")));
    assert_int_equal(json_integer_value(json_object_get(o, "n")), 3);
    assert_int_equal(json_array_size(json_object_get(o, "s")), 2);
    json_decref(o);
    shell_free(&s);
}

/* argparse's --name=VALUE takes that one value: what follows is no second one. */
static void an_option_with_its_value_takes_no_more(void **state)
{
    json_t *words = json_pack("[s, s, s]", "--config-name=ppo_trainer", "rest", "--bf16"), *o = shell_options(words, 0);

    (void)state;
    assert_string_equal(json_string_value(json_object_get(o, "config_name")), "ppo_trainer");
    assert_string_equal(json_string_value(json_array_get(json_object_get(o, ""), 0)), "rest");
    json_decref(o);
    json_decref(words);
}

static void options_alone_are_words(void **state)
{
    json_t *w = shell_words("--window-size (127,0) --layout t|t*2L\n--spec \"a b\" \\\n# no\n--bf16\n");

    (void)state;
    assert_int_equal(json_array_size(w), 7);
    assert_string_equal(json_string_value(json_array_get(w, 1)), "(127,0)");
    assert_string_equal(json_string_value(json_array_get(w, 3)), "t|t*2L");
    assert_string_equal(json_string_value(json_array_get(w, 5)), "a b");
    json_decref(w);
    w = shell_words("--name=\"a b\" 'c'd don't");
    assert_int_equal(json_array_size(w), 3);
    assert_string_equal(json_string_value(json_array_get(w, 0)), "--name=a b");
    assert_string_equal(json_string_value(json_array_get(w, 1)), "cd");
    assert_string_equal(json_string_value(json_array_get(w, 2)), "don't");
    json_decref(w);
    assert_null(shell_words("--a\x84 1"));
}

static void refuses(const char *script, const char *because)
{
    struct shell_script s;
    char why[512];

    fail_capture(why, sizeof why);
    int rc = shell_read(script, "t.sh", &s);
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    if (!strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
}

static void what_does_not_end_is_refused(void **state)
{
    char deep[4096] = "A=1\n";

    (void)state;
    refuses("a\nb 'c", "t.sh:2");
    refuses("a\nb --c\x84 1\n", "t.sh:2: a word is not UTF-8");
    refuses("a \"b", "is not closed");
    refuses("A=( b", "an array is not closed");
    refuses("a ${b", "is not closed");
    for (int i = 0; i < 40; i++)                /* each twice the one before */
        snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "A=\"$A$A\"\n");
    refuses(deep, "more than 1 MiB of words");
}

/* Every text of up to four of the letters that mean something is read to its end or refused: none is waited for. */
static void every_text_comes_to_an_end(void **state)
{
    static const char letters[] = "a= \n\r\\'\"$({})#<>&|;`";
    enum { N = sizeof letters - 1 };
    char why[512];

    (void)state;
    alarm(120);
    fail_capture(why, sizeof why);
    for (int i = 0; i < N * N * N * N; i++) {
        const char text[] = { letters[i % N], letters[i / N % N], letters[i / N / N % N], letters[i / N / N / N], '\0' };
        struct shell_script s;
        shell_read(text, "t.sh", &s);
        shell_free(&s);
    }
    fail_capture(NULL, 0);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_cut_as_a_shell_cuts_them),
        cmocka_unit_test(variables_are_given_by_env_and_taken_by_unset),
        cmocka_unit_test(variables_have_the_values_that_the_script_gives),
        cmocka_unit_test(arrays_become_the_options_that_they_hold),
        cmocka_unit_test(conditions_on_what_the_script_sets_are_decided),
        cmocka_unit_test(what_a_condition_sets_is_said),
        cmocka_unit_test(options_have_values_of_their_kind),
        cmocka_unit_test(an_option_with_its_value_takes_no_more),
        cmocka_unit_test(options_alone_are_words),
        cmocka_unit_test(what_does_not_end_is_refused),
        cmocka_unit_test(every_text_comes_to_an_end),
    };
    return cmocka_run_group_tests_name("base/shell", tests, NULL, NULL);
}
