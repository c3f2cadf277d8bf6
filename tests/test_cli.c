/* test_cli.c -- mistakes, files, and what single verbs say. */
#include "cli_case.h"

#include <unistd.h>

#include "base/files.h"

TEST(mistakes_are_named_with_exit_2)
{
    static const struct { const char *args, *message; } cases[] = {
        {"", "tokenizer  train and use BPE tokenizers"}, /* the help, and then */
        {"", "orthant: no verb given"},
        {"trian", "orthant: unknown verb 'trian'; did you mean 'train'?"},
        {"zzzzzz", "orthant: unknown verb 'zzzzzz'; `orthant help` lists the verbs"},
        {"train --resum", "orthant: train: unknown flag '--resum'; did you mean '--resume'?"},
        {"ckpt verify x precision.compute=bf16", "orthant: command line: precision.compute: `orthant ckpt` reads no such key"},
        {"eval x model.hidden=3", "orthant: command line: model.hidden: `orthant eval` reads no such key"},
        {"plot x train.steps=3", "orthant: command line: train.steps: `orthant plot` reads no such key"},
        {"plan --compare parallel.dp=[1,2] --out=x.yaml", "orthant: plan: --out is for one run, --compare plans many"},
        {"plan --compare parallel.dp=[1,2] --peak", "orthant: plan: --peak is for one run, --compare plans many"},
        {"plan --compare parallel.dp=[1,2] --pareto", "orthant: plan: --compare and --pareto: one at a time"},
        {"plan --compare parallel.dp=[1,2] --ladder", "orthant: plan: --ladder and --compare: one at a time"},
        {"plan --compare parallel.dp=[1,2] --cases=x.json", "orthant: plan: --cases and --compare: one at a time"},
        {"plan --cases=x.json --cluster=h100-8", "orthant: plan: --cluster is not read with --cases, whose file says all of its runs"},
        {"plan --fit=seq_len --out=x.yaml", "orthant: plan: --out is for one run, --fit plans many"},
        {"plan --scaling --limit=1GiB", "orthant: plan: --limit is for --fit and --ladder"},
        {"train --lr=3", "orthant: train: unknown flag '--lr'; a setting is written KEY=VALUE without dashes, and this one is optimizer.lr"},
        {"plan --max-steps 3", "a setting is written KEY=VALUE without dashes, and this one is train.steps"},
        {"plan --train.steps=3", "a setting is written KEY=VALUE without dashes, and this one is train.steps"},
        {"init --bf16", "a setting is written KEY=VALUE without dashes, and this one is precision.compute=bf16"},
        {"tokenizer --lr=3", "orthant: tokenizer: unknown flag '--lr'; `orthant tokenizer --help` lists its flags"},
        {"doctor --xyzxyz", "orthant: doctor: unknown flag '--xyzxyz'; `orthant doctor --help` lists its flags"},
        {"doctor --json=1", "orthant: doctor: --json takes no value"},
        {"train --help=all", "orthant: train: --help takes no value"},
        {"train --init", "orthant: train: --init needs a value: --init=DIR"},
        {"eval x --text=a.txt --text=b.txt", "orthant: eval: --text is given twice, with 'a.txt' and with 'b.txt': it takes one value"},
        {"generate x --tokens 4 --seed=1 --tokens=5", "orthant: generate: --tokens is given twice, with '4' and with '5'"},
        {"doctor --calibrate --calibrate=x.yaml", "orthant: doctor: --calibrate is given twice"},
        {"train --quiet --init=a --init=a --quiet /nonexistent.yaml", "orthant: /nonexistent.yaml: there is no such run file"},
        {"data", "orthant: data: say which: prepare, inspect, verify"},
        {"ckpt what", "orthant: ckpt: 'what' is not one of inspect, verify, import, export"},
        {"doctor word", "orthant: doctor: unexpected word 'word'; options are given as key=value"},
        {"explain run.yaml --memory out.svg", "orthant: explain: unexpected word 'out.svg'; did you mean --svg=out.svg?"},
        {"explain run.yaml --memory out.txt", "orthant: explain: unexpected word 'out.txt'; options are given as key=value"},
        {"train /nonexistent.yaml", "orthant: /nonexistent.yaml: there is no such run file"},
        {"doctor train.step=5", "orthant: command line: unknown key 'train.step'; did you mean 'train.steps'?"},
        {"doctor steps=5", "orthant: command line: unknown key 'steps'; did you mean 'train.steps'?"},
        {"plan train.steps=x", "orthant: command line: train.steps=x: must be a whole number"},
        {"plan train.micro_batch=3 train.global_batch=32",
         "orthant: command line: train.micro_batch=3 does not divide train.global_batch=32"},
        {"doctor train=5", "orthant: command line: 'train' is a section: `orthant help options train` lists its keys"},
        {"plan checkpoint.dir=", "orthant: command line: checkpoint.dir is empty"},
        {"plan comm.bucket_mb=-1", "orthant: command line: comm.bucket_mb=-1"},
        {"help options optimiser", "orthant: help: 'optimiser' is no verb, section or key; did you mean 'optimizer'?"},
        {"help optimiser.lr", "orthant: help: unknown key 'optimiser.lr'; did you mean 'optimizer.lr'?"},
        {"help learning_rate", "orthant: help: unknown key 'learning_rate'; here it is optimizer.lr"},
        /* a key of another section, and what other programs call a key */
        {"plan train.lr=1", "orthant: command line: unknown key 'train.lr'; did you mean 'optimizer.lr'?"},
        {"plan training.learning_rate=1", "unknown key 'training.learning_rate'; here it is optimizer.lr"},
        {"doctor gradient_accumulation_steps=4", "here it is train.global_batch, which is train.micro_batch * parallel.dp * accumulation steps"},
        {"doctor per_device_train_batch_size=4", "here it is train.micro_batch"},
        {"doctor gradient_checkpointing=on", "command line: gradient_checkpointing=on: must be true or false"},
        {"doctor use_reentrant=yes", "use_reentrant=yes: must be true or false"},
        {"plan train.use_reentrant=false", "here it is memory.recompute=full, for which both values mean the same"},
        {"doctor resume_from_checkpoint=true", "here it is `orthant train RUN.yaml --resume`"},
        {"doctor memory.number_of_layers=2", "here it is memory.recompute_layers"},
        {"doctor memory.recompute=block", "auto, or by the names of other programs gradient_checkpointing; 'block' is a value of memory.recompute_method"},
        {"plan train.gradient_checkpointing=true", "here it is memory.recompute=full"},
        {"doctor max_steps=4", "here it is train.steps"},
        {"doctor warmup_ratio=4", "here it is schedule.warmup_steps"},
        {"plan optimizer.beta=4", "did you mean 'optimizer.betas'?"},
        {"plan opt.bettas=4", "did you mean 'optimizer.betas'?"},
        {"doctor memory=1", "'memory' is a section"},
        {"doctor sub_group_size=1000", "here it is memory.offload_sub_group"},
        {"plan comm.compress=int8", "command line: comm.compress=int8: must be none"},
        {"plan model.preset=gpt3", "model.preset=gpt3 is unknown; there are gpt2-124m, "},
        {"plan --compare model.preset=llama-tiny", "orthant: --compare needs the values to compare"},
        {"plan --compare --timeline=t.json parallel.zero=[1,2] model.preset=llama-tiny", "--compare plans many"},
        {"plan configs/none.yaml --model=llama-tiny", "there is no such run file"},
        {"plan --model=nothere.json", "model.preset=nothere.json is unknown"},
        {"train", "orthant: train: no run file is given, and data.path is not set: `orthant init book.txt` writes"},
        {"search", "orthant: search needs a cluster: --cluster=h100-64, for example"},
        {"search --model=llama-tiny --cluster=h100", "names no number of devices: say h100-64"},
        {"search --model=llama-huge --cluster=h100-8", "is unknown; there are gpt2-124m"},
        {"search --model=llama-tiny --cluster=h100 --gpus=0", "--gpus=0 is not a whole number in [1, "},
        {"search --model=llama-tiny --cluster=h100-8 --gpus=8", "search: --gpus=8: --cluster=h100-8 names a number of devices already: say --cluster=h100-8\n"},
        {"search --model=llama-tiny --cluster=h100-64 --gpus=16", "--cluster=h100-64 names a number of devices already: say --cluster=h100-16\n"},
        {"search --model=llama-tiny --cluster=mine.yaml-64 --gpus=16", "say --cluster=mine.yaml-16\n"},
        {"search --model=llama-tiny --cluster=h100-8 train.micro_batch=3", "orthant: command line: train.micro_batch=3 does not divide train.global_batch=128"},
        {"search --model=llama-tiny --cluster=h100-8 parallel.zero=2 parallel.max_live=5", "orthant: command line: parallel.max_live=5 with parallel.zero=2: only zero=3 gathers"},
        {"search --model=llama-tiny --cluster=h100-8 --goal=fun", "--goal=fun: must be time, cost or memory"},
        {"search --model=llama-tiny --cluster=h100-8 --plans=0", "--plans=0 is not a whole number in [1, "},
        {"search --model=gpt2-124m --cluster=h100-8 parallel.tp=5", "search: no layout is valid with the keys that are given: tp * cp * pp * dp must be 8, tp divide heads=12"},
        {"search --model=gpt2-124m --cluster=h100-8 parallel.zero=3 parallel.pp=2 parallel.pipeline=pipedream", "search: no layout is valid with the keys that are given: "},
        {"plan --model=gpt2-124m --timeline=", "plan: --timeline= is empty: FILE is needed"},
        {"plan --model=gpt2-124m --cluster=", "plan: --cluster= is empty: NAME|FILE is needed"},
        {"search --model=llama-tiny --cluster=h100-8 --plans=3x", "--plans=3x is not a whole number in [1, "},
        {"plan --model=llama-huge --cluster=h100-8", "model.preset=llama-huge is unknown; there are gpt2-124m"},
        {"tokenizer encode --tokenizer=t.json --vocab-size=3 x.txt", "orthant: tokenizer encode: --vocab-size is not for it but for `tokenizer train`"},
        {"tokenizer train --tokenizer=t.json x.txt", "is not for it but for `tokenizer encode, decode, inspect`"},
        {"bench gemm --ranks=2", "orthant: bench gemm: --ranks is not for it but for `bench collectives`"},
        {"explain --memory --schedule x.yaml", "there is no such run file"},
        {"explain --memory --schedule", "orthant: explain: --schedule and --memory: one at a time"},
        {"explain --mesh --svg=x.svg", "orthant: explain: --svg draws what --memory or --schedule shows: give one of them"},
        {"explain --memory --width=80", "orthant: explain: --width is for --schedule in the terminal"},
        {"explain --memory --layer=1", "orthant: explain: --layer chooses instructions of the program, --memory shows none"},
        {"explain --gradient=embed.weight --mesh", "orthant: explain: --mesh and --gradient: one at a time"},
        {"explain model.preset=gpt2-tiny data.seq_len=32 --gradient=embed.wieght",
         "explain --gradient=embed.wieght: the model has no such weight; did you mean 'embed.weight'"},
        {"explain model.preset=gpt2-tiny data.seq_len=32 --gradient=embed.weight --rank=1", "rank 1 is not one of the 1 of this layout"},
        {"explain model.preset=gpt2-tiny data.seq_len=32 train.global_batch=2 parallel.pp=2 --gradient=pos.weight --rank=1",
         "explain --gradient=pos.weight: rank 1 does not have this weight"},
        {"generate . x --prompt a=b --stop c=d", "orthant: generate takes one CHECKPOINT"},
        {"plan model.preset=gpt2-tiny data.seq_len=32 memory.recompute=full memory.recompute_layers=99",
         "command line: memory.recompute_layers=99: the model has 2 layers"},
        {"plan model.preset=gpt2-tiny data.seq_len=32 --pareto --require-fit", "--timeline, --html, --require-fit and --peak are for one choice"},
        {"help --completion=tcsh", "orthant: help: --completion=tcsh: must be one of bash, zsh, fish"},
    };
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        expect(cases[i].args, 2, cases[i].message);
}

/* Whatever a file of configuration is of, it is no data: what is wrong in it, or that it is not there, ends with 2. */
TEST(a_bad_file_of_configuration_ends_with_2_and_is_named)
{
#define SIZES "\"num_hidden_layers\": 2, \"hidden_size\": 64, \"intermediate_size\": 96, \"vocab_size\": 48, \"max_position_embeddings\": 64"
#define MAKE "model.preset=gpt2-tiny data.seq_len=32 train.global_batch=4"
    static const struct { const char *text, *args, *message; } cases[] = {
        {"{\"model_type\": \"mamba\"}", "plan --model=cli_bad.json", "orthant: cli_bad.json: model_type=\"mamba\" is not one of gpt2, llama"},
        {"{\"model_type\": \"mamba\"}", "search --cluster=h100-2 --model=cli_bad.json", "orthant: cli_bad.json: model_type=\"mamba\" is not one of"},
        {"{\"model_type\": \"mixtral\"}", "search --cluster=h100-2 --model=cli_bad.json", "orthant: cli_bad.json: model_type=\"mixtral\": a mixture of experts"},
        {"{\"model_type\": \"llama\", \"num_attention_heads\": 5, " SIZES "}", "plan --model=cli_bad.json", "cli_bad.json: heads=5 does not divide hidden=64"},
        {"{\"model_type\": \"llama\", \"num_attention_heads\": 0, " SIZES "}", "plan --model=cli_bad.json", "cli_bad.json: heads=0 is not between 1"},
        {"{\"model_type\": ", "plan --model=cli_bad.json", "orthant: cli_bad.json:1:"},
        {"", "plan --model=cli_bad_none", "model.preset=cli_bad_none is unknown"},
        {"", "plan --model=.", "orthant: ./config.json: cannot open"},
        {"", "plan .", "orthant: .: cannot read: Is a directory"},
        {"", "plan --megatron=. " MAKE, "orthant: .: cannot read: Is a directory"},
        {"", "plan " MAKE " --cluster=cli_none.yaml-1", "orthant: cli_none.yaml: cannot open"},
        {"", "search " MAKE " --cluster=cli_none.yaml-2", "orthant: cli_none.yaml: cannot open"},
        {"", "plan --cases=cli_none.json", "orthant: cli_none.json: cannot open"},
        {"", "plan --cases=cli_bad.json --software=cli_none.yaml", "orthant: cli_none.yaml: cannot open"},
        {"orthant-schedule 1\nranks 3\n", "plan " MAKE " parallel.pp=2 parallel.pipeline=file:cli_bad.json", "orthant: cli_bad.json:2:"},
        {"", "plan " MAKE " parallel.pp=2 parallel.pipeline=file:cli_none", "orthant: cli_none: cannot open"},
        {"model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 3, vocab: 300}\ndata: {seq_len: 32}\n", "plan cli_bad.json",
         "orthant: cli_bad.json:1:67: model.kv_heads=3 does not divide heads=4"},
        {"model: {family: llama, layers: 2, hidden: 64, heads: 5, vocab: 300}\ndata: {seq_len: 32}\n", "search cli_bad.json --cluster=h100-2",
         "orthant: cli_bad.json:1:54: model.heads=5 does not divide hidden=64, and head_dim is not given"},
    };
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        write_file("cli_bad.json", cases[i].text);
        expect(cases[i].args, 2, cases[i].message);
    }
    remove("cli_bad.json");
}

TEST(what_follows_from_a_configuration_of_another_program_follows_from_keys_of_the_command_line_too)
{
    write_file("cli_ds.json", "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 4}");
    expect("plan --deepspeed=cli_ds.json model.preset=gpt2-tiny data.seq_len=32 parallel.dp=8", 0, "gradient_accumulation_steps is train.global_batch=32");
    remove("cli_ds.json");
}

/* Every file that a command writes is held against every file that it reads, whatever path leads there. */
TEST(a_file_that_is_read_is_never_written)
{
    static const char run_text[] = "model: {preset: gpt2-tiny}\ndata: {seq_len: 32}\ntrain: {global_batch: 4}\n";
    static const char cluster[] = "device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\n";
    static const struct { const char *args, *message; } cases[] = {
        {"plan cli_run.yaml --out=cli_run.yaml", "--out=cli_run.yaml: is the run file that is read, and would be overwritten"},
        {"plan cli_run.yaml --out=../$(basename $PWD)/cli_run.yaml", "is the run file that is read"},
        {"plan cli_run.yaml --out=cli_link.yaml", "is the run file that is read"},
        {"plan cli_run.yaml --html=cli_run.yaml", "--html=cli_run.yaml: is the run file that is read"},
        {"plan cli_run.yaml --timeline=cli_run.yaml", "--timeline=cli_run.yaml: is the run file that is read"},
        {"plan cli_run.yaml --cluster=cli_cluster.yaml --out=cli_cluster.yaml", "--out=cli_cluster.yaml: is the file of --cluster"},
        {"plan cli_run.yaml --cluster=cli_cluster.yaml-1 --out=cli_cluster.yaml", "--out=cli_cluster.yaml: is the file of --cluster"},
        {"plan cli_run.yaml run.hardware=cli_cluster.yaml --out=cli_cluster.yaml", "--out=cli_cluster.yaml: is the file of run.hardware"},
        {"search cli_run.yaml --cluster=cli_cluster.yaml-1 --out=cli_run.yaml", "--out=cli_run.yaml: is the run file that is read"},
        {"search cli_run.yaml --cluster=cli_cluster.yaml-1 --out=cli_cluster.yaml", "--out=cli_cluster.yaml: is the file of --cluster"},
        {"explain cli_run.yaml --memory --svg=cli_run.yaml", "--svg=cli_run.yaml: is the run file that is read"},
    };
    orth_ctx *ctx = test_ctx(1);
    CHECK_OK(ctx, orth_file_write(ctx, "cli_run.yaml", run_text, strlen(run_text)));
    CHECK_OK(ctx, orth_file_write(ctx, "cli_cluster.yaml", cluster, strlen(cluster)));
    unlink("cli_link.yaml");
    assert_int_equal(symlink("cli_run.yaml", "cli_link.yaml"), 0);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char *text;
        size_t bytes;
        expect(cases[i].args, 2, cases[i].message);
        CHECK_OK(ctx, orth_file_read(ctx, "cli_run.yaml", &text, &bytes));
        assert_string_equal(text, run_text);
        orth_mem_free(ctx, text);
        CHECK_OK(ctx, orth_file_read(ctx, "cli_cluster.yaml", &text, &bytes));
        assert_string_equal(text, cluster);
        orth_mem_free(ctx, text);
    }
    expect("plan cli_run.yaml --out=cli_out.yaml", 0, "cli_out.yaml: train.steps was not given; the file has the default, 100");
    remove("cli_out.yaml");
    remove("cli_link.yaml");
    remove("cli_run.yaml");
    remove("cli_cluster.yaml");
    test_ctx_free(ctx);
}

TEST(a_run_file_is_quoted_with_line_and_column)
{
    orth_ctx *ctx = test_ctx(1);
    char path[128], args[256], message[256];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld.yaml", (long)getpid());
    CHECK_OK(ctx, orth_file_write(ctx, path, "train:\n  step: 5\n", 17));
    snprintf(message, sizeof message, "orthant: %s:2:3: unknown key 'train.step'; did you mean 'train.steps'?", path);
    snprintf(args, sizeof args, "train %s", path);
    expect(args, 2, message);
    CHECK_OK(ctx, orth_path_remove(ctx, path));
    test_ctx_free(ctx);
}

TEST(doctor_reports_the_machine)
{
    expect("doctor --no-peaks", 0, "back ends    cpu           on");
    expect("doctor --no-peaks", 0, " busy threads in the last minute\n");
    expect("doctor --no-peaks --json", 0, "\"isa_best\"");
    expect("doctor --no-peaks run.threads=1 run.isa=base", 0, "; using base (run.isa)");
    expect_with("ORTHANT_THREADS=1 ORTHANT_ISA=base", "doctor --no-peaks", 0, "; 1 thread in use");
    expect_with("ORTHANT_THREADS=2", "doctor --no-peaks run.threads=1", 0, "; 1 thread in use");
    expect("bench peak run.isa=avx2 precision.fp32_products=bf16x6", 2, "precision.fp32_products=bf16x6 needs AMX, run.isa is ");
    expect_with("ORTHANT_ISA=sse9", "doctor", 2, "orthant: environment: ORTHANT_ISA: run.isa=sse9: must be one of");
}

TEST(explain_shows_the_mesh_and_the_schedule)
{
    expect("explain model.preset=gpt2-tiny data.seq_len=32 parallel.dp=2 parallel.tp=2 parallel.ranks_per_host=2 --mesh", 0,
           "mesh of 4 ranks on 2 hosts of 2");
    expect("explain model.preset=gpt2-tiny data.seq_len=32 parallel.dp=2 parallel.tp=2 --mesh", 0, "  dp             2 ranks, as in 0 2");
    expect("explain model.preset=gpt2-tiny data.seq_len=32 parallel.dp=2 parallel.order=tp,tp --mesh", 2, "tp");
    expect("explain model.preset=gpt2-tiny data.seq_len=32 train.global_batch=4 parallel.pp=2 parallel.pipeline=gpipe "
           "--schedule", 0, "rank 1 |");
    expect("explain model.preset=gpt2-tiny data.seq_len=32 comm.algorithm=ring", 2,
           "comm.algorithm=ring needs numerics.mode=fast");
}

/* A tied weight on two stages has a path on each. */
TEST(explain_shows_the_path_of_a_gradient)
{
    static const char two_stages[] = "explain model.preset=gpt2-tiny data.seq_len=32 train.global_batch=2 parallel.pp=2 --gradient=embed.weight";
    expect(two_stages, 0, "on rank 0 of 2 (stage 0 of 2)\nused by the embedding:");
    expect(two_stages, 0, "on rank 1 of 2 (stage 1 of 2)\nused by the head:");
    expect(two_stages, 0, "all_reduce over embed (2 ranks): the sums of embedding and head");
}

TEST(bench_times_steps_of_layouts_and_collectives)
{
    expect("bench collectives --rounds=1 --max-mb=1 --json", 0, "{\"what\": \"all_reduce\", \"bytes\": 1048576");
    expect("bench collectives --ranks=65", 2, "--ranks=65");
    expect("bench step model.preset=gpt2-tiny data.seq_len=32 train.global_batch=2 train.micro_batch=1 parallel.dp=2 "
           "--steps=2 --json", 0, "\"tokens\": 64");
    expect("bench step model.preset=gpt2-tiny data.seq_len=32 parallel.tp=3", 2, "tp=3 does not divide");
    expect("plan model.preset=gpt2-tiny data.seq_len=32 parallel.pp=2 parallel.stage_layers=[1,2]", 2,
           "command line: parallel.stage_layers adds up to 3, not to layers=2");
    expect("bench flops", 2, "bench: 'flops' is not one of peak, gemm, attention, collectives, step");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named_with_exit_2),
        cmocka_unit_test(a_bad_file_of_configuration_ends_with_2_and_is_named),
        cmocka_unit_test(what_follows_from_a_configuration_of_another_program_follows_from_keys_of_the_command_line_too),
        cmocka_unit_test(a_file_that_is_read_is_never_written),
        cmocka_unit_test(a_run_file_is_quoted_with_line_and_column),
        cmocka_unit_test(doctor_reports_the_machine),
        cmocka_unit_test(explain_shows_the_mesh_and_the_schedule),
        cmocka_unit_test(explain_shows_the_path_of_a_gradient),
        cmocka_unit_test(bench_times_steps_of_layouts_and_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
