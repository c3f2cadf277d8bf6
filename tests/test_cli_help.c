/* test_cli_help.c -- help, manual page and completion, which come from tables. */
#include "cli_case.h"

TEST(help_comes_from_the_tables)
{
    expect("--help", 0, "tokenizer  train and use BPE tokenizers");
    expect("help", 0, "`orthant help options` the keys of a run file");
    expect("--version", 0, "orthant " ORTH_VERSION);
    expect("help options", 0, "train.steps  (N, at least 0, default 100)");
    expect("help optimizer", 0, "optimizer.eps");
    expect("help optimizer.lr", 0, "optimizer.lr  (X, 0 to 1000, default 6.0e-4, the same on --resume)");
    expect("help model", 0, "qwen3-32b");
    expect("help model.preset", 0, "llama3-405b");
    expect("help options schedule", 0, "schedule.name  (constant|linear|cosine|wsd, default cosine, the same on --resume)");
    expect("help train", 0, "--resume");
    expect("help options model", 0, "says. auto: as\n      the preset has it"); /* wrapped */
    /* Each verb has a description, an example and a flag list. */
    static const char *const verbs[] = {
#define VERB(name, words, summary) #name,
#include "cli/verbs.def"
#undef VERB
    };
    for (int i = 0; i < ORTH_COUNT(verbs); i++) {
        char args[64], example[64];
        snprintf(args, sizeof args, "%s --help", verbs[i]);
        snprintf(example, sizeof example, "Examples\n  orthant %s", verbs[i]);
        expect(args, 0, example);
        expect(args, 0, "Exit codes");
    }
}

/* What is offered at the end of `line` fits `condition`. */
static void completes(const char *line, const char *condition)
{
    char command[1024];
    snprintf(command, sizeof command, "bash -c 'source <(" ORTH_BINARY " help --completion=bash);"
             "compopt() { :; }; COMP_LINE=\"%s\"; COMP_WORDS=($COMP_LINE); COMP_POINT=${#COMP_LINE};"
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _orthant orthant \"${COMP_WORDS[COMP_CWORD]##*=}\" \"${COMP_WORDS[COMP_CWORD-1]}\";"
             "[[ %s ]]'", line, condition);
    if (system(command) != 0)
        fail_msg("%s: not %s", line, condition);
}

TEST(the_manual_page_and_the_completion_are_well_formed)
{
    expect("help --man", 0, ".TH ORTHANT 1");
    expect("help --completion=bash", 0, "complete -F _orthant orthant");
    assert_int_equal(system("bash -n -c \"$(" ORTH_BINARY " help --completion=bash)\""), 0);
    /* The completion, asked as bash asks it. */
    completes("orthant train optimizer.l", "\"${COMPREPLY[*]}\" == *optimizer.lr=*");
    completes("orthant ckpt m", "\"${COMPREPLY[*]}\" != *model.*");
    completes("orthant ckpt im", "\"${COMPREPLY[*]}\" == *import*");
    completes("orthant help options para", "\"${COMPREPLY[*]}\" == \"parallel parallel.dp \"*");
    completes("orthant help optimizer.l", "\"${COMPREPLY[*]}\" == \"optimizer.lr \"*");
    completes("orthant train run.yaml parallel.cp_kind=r", "\"${COMPREPLY[*]}\" == ring");
    completes("orthant train run.yaml parallel.pipeline=zb", "\"${COMPREPLY[*]}\" == \"zb-h1 zb-v\"");
    completes("orthant train run.yaml model.preset=llama3-4", "\"${COMPREPLY[*]}\" == llama3-405b");
    completes("orthant tokenizer train --kind=", "\"${COMPREPLY[*]}\" == \"gpt2 llama3 qwen\"");
    completes("orthant tokenizer train --kind l", "\"${COMPREPLY[*]}\" == llama3");
    completes("orthant ckpt export a b --dtype=b", "\"${COMPREPLY[*]}\" == bf16");
    completes("orthant help --completion=", "\"${COMPREPLY[*]}\" == \"bash zsh fish\"");
    completes("orthant generate a --samples=", "-z \"${COMPREPLY[*]}\""); /* a number: no file of this folder */
    completes("orthant train run.yaml train.steps=", "-z \"${COMPREPLY[*]}\"");
    completes("orthant train run.yaml data.path=/et", "\"${COMPREPLY[*]}\" == /etc");
    completes("orthant eval a --text=/et", "\"${COMPREPLY[*]}\" == /etc");
    completes("orthant help t", "\"${COMPREPLY[*]}\" == \"train tokenizer \"*");
    completes("orthant doctor /", "-z \"${COMPREPLY[*]}\"");
    completes("orthant train --init=/bi", "\"${COMPREPLY[*]}\" == */bin*");
}

/* What zsh would offer: the function as zsh runs it, with what it would add printed instead. */
static void zsh_offers(const char *words, int current, const char *offered)
{
    char command[2048];
    snprintf(command, sizeof command, "zsh -f -c 'compdef() { :; }; compset() { :; }; _files() { print FILES; };"
             "compadd() { while [[ $1 == -* ]]; do [[ $1 == -S ]] && shift; [[ $1 == -- ]] && { shift; break; }; shift; done; print -l -- $@; };"
             "source <(" ORTH_BINARY " help --completion=zsh); words=(%s); CURRENT=%d; _orthant' | grep -qx -- '%s'", words, current,
             offered);
    if (system(command) != 0)
        fail_msg("zsh: %s: does not offer %s", words, offered);
}

static void fish_offers(const char *line, const char *offered)
{
    char command[1024];
    snprintf(command, sizeof command, "fish --no-config -c '" ORTH_BINARY " help --completion=fish | source; complete -C \"%s\"' | grep -q -- '^%s'",
             line, offered);
    if (system(command) != 0)
        fail_msg("fish: %s: does not offer %s", line, offered);
}

TEST(zsh_and_fish_complete_from_the_same_tables)
{
    if (system("command -v zsh fish >/dev/null") != 0) {
        print_message("NOT TESTED: zsh and fish are not installed (tools/deps.sh test)\n");
        skip();
    }
    zsh_offers("orthant tr", 2, "train");
    zsh_offers("orthant train optimizer.l", 3, "optimizer.lr=");
    zsh_offers("orthant train run.yaml parallel.cp_kind=r", 4, "ring");
    zsh_offers("orthant train run.yaml data.path=x", 4, "FILES");
    zsh_offers("orthant ckpt im", 3, "import");
    zsh_offers("orthant ckpt export a b --dtype=b", 6, "bf16");
    zsh_offers("orthant train --re", 3, "--resume");
    zsh_offers("orthant help opti", 3, "optimizer.lr");
    fish_offers("orthant tr", "train");
    fish_offers("orthant train optimizer.l", "optimizer.lr=");
    fish_offers("orthant train parallel.cp_kind=r", "parallel.cp_kind=ring");
    fish_offers("orthant ckpt im", "import");
    fish_offers("orthant ckpt export --dtype=", "--dtype=bf16");
    fish_offers("orthant train --re", "--resume");
}

/* What --help prints fits a screen or two: keys are explained by `orthant help SECTION`. */
TEST(the_help_of_a_verb_is_short)
{
    static const char *const verbs[] = {
#define VERB(name, words, summary) #name,
#include "cli/verbs.def"
#undef VERB
    };
    for (int i = 0; i < ORTH_COUNT(verbs); i++) {
        char command[256];
        snprintf(command, sizeof command, "test $(" ORTH_BINARY " %s --help | wc -l) -le 75", verbs[i]);
        if (system(command) != 0)
            fail_msg("%s --help: more than 75 lines", verbs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_comes_from_the_tables),
        cmocka_unit_test(the_manual_page_and_the_completion_are_well_formed),
        cmocka_unit_test(zsh_and_fish_complete_from_the_same_tables),
        cmocka_unit_test(the_help_of_a_verb_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
