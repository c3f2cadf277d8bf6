/* test_input.c -- bad input and bad luck, as the user of the program meets them: message and exit code. */
#include <sys/stat.h>

#include "run_case.h"

TEST(a_model_that_does_not_fit_is_refused_with_figures_before_anything_is_allocated)
{
    run_case *r = run_begin();
    RUN(r, 3, "limit 3.00 MiB (memory.limit)", "train run.yaml memory.limit=3MiB model.layers=3");
    assert_non_null(strstr(r->out, "nothing was allocated"));
    assert_non_null(strstr(r->out, "optimizer"));
    assert_false(run_has(r, "a/metrics.jsonl"));
    static const char *const big[] = {"plan --require-fit", "train", "bench step"};
    for (int i = 0; i < 3; i++)
        RUN(r, 3, "limit 64.00 MiB (memory.limit); nothing was allocated",
            "%s run.yaml memory.limit=64MiB model.preset=gpt2-124m model.vocab=auto", big[i]);
    RUN(r, 0, "does not fit", "plan run.yaml model.preset=llama3-405b model.vocab=auto data.seq_len=8192");
    assert_non_null(strstr(r->out, "`plan --ladder` with the same words lists them"));
    assert_non_null(strstr(r->out, "parameters       405"));
    RUN(r, 3, "on the rank that needs the most", "plan run.yaml --cluster=a100-40gb-1 precision.compute=bf16 model.preset=llama3-3b "
        "model.vocab=auto --require-fit");
    RUN(r, 2, "the layout has 1 ranks", "plan run.yaml --cluster=h100-64");
    RUN(r, 2, "cluster 'h101' is not known", "plan run.yaml --cluster=h101");
    RUN(r, 3, "the run does not fit", "train run.yaml model.preset=llama3-405b model.layers=1 model.vocab=auto checkpoint.dir=refused");
    assert_false(run_has(r, "refused"));
    run_end(r);
}

/* Sanitizers map more than any such limit. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ULIMIT_KIB 2000000

/* Runs `orthant ARGS` with that many KiB of addresses. */
static int orthant_within_ulimit(run_case *r, const char *args)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && (ulimit -v %d; exec %s %s) 2>&1", r->dir, ULIMIT_KIB, ORTH_BINARY, args);
    return run_shell(command, r->out, sizeof r->out);
}

TEST(a_limit_of_the_shell_counts_as_memory)
{
    run_case *r = run_begin();
    double limit = 0;
    assert_int_equal(orthant_within_ulimit(r, "train run.yaml model.preset=gpt2-124m model.vocab=auto train.global_batch=32 "
                                              "train.micro_batch=32"), 3);
    const char *refused = strstr(r->out, "the run does not fit"), *said = refused ? strstr(refused, "limit ") : NULL;
    assert_true(said && sscanf(said, "limit %lf MiB (memory.limit)", &limit) == 1);
    assert_true(limit > 0 && limit < ULIMIT_KIB / 1024.0);
    /* Said to be enough, it still is not. */
    assert_int_equal(orthant_within_ulimit(r, "train run.yaml model.preset=gpt2-124m model.vocab=auto train.global_batch=32 "
                                              "train.micro_batch=32 memory.limit=1TB"), 3);
    assert_non_null(strstr(r->out, "MiB of memory: the process may map "));
    assert_non_null(strstr(r->out, "MiB more (ulimit -v)"));
    run_end(r);
}
#endif

TEST(what_is_wrong_with_the_data_is_named)
{
    run_case *r = run_begin();
    run_write(r, "empty.txt", "", 0);
    run_write(r, "short.txt", "too short", 9);
    RUN(r, 5, "orthant: nowhere.txt: no such file or folder (data.path)",
        "train run.yaml data.path=nowhere.txt");
    RUN(r, 5, "empty.txt: ", "train run.yaml data.path=empty.txt");
    RUN(r, 2, "10 tokens are fewer than the 33 of a sequence (data.seq_len=32 and one to predict)",
        "train run.yaml data.path=short.txt data.tokenizer=bytes");
    RUN(r, 2, "data.path is not set", "train model.preset=gpt2-tiny");
    RUN(r, 2, "the tokenizer has 300 tokens, the model's vocabulary only 256",
        "train run.yaml model.vocab=256");
    /* Before text is prepared, which may take minutes. */
    run_write(r, "some.txt", "Twelve words of text that nobody prepares for a model without room.", 68);
    RUN(r, 2, "the tokenizer has 257 tokens, the model's vocabulary only 256",
        "train run.yaml checkpoint.dir=no-room data.path=some.txt data.tokenizer=bytes model.vocab=256");
    assert_false(run_has(r, "no-room/data"));
    RUN(r, 2, "data.seq_len=4 is less than numerics.parts=8", "train run.yaml data.seq_len=4");
    RUN(r, 2, "257", "train run.yaml data.seq_len=257");
    RUN(r, 2, "train.micro_batch=4 does not divide train.global_batch=6",
        "train run.yaml train.micro_batch=4");
    run_end(r);
}

TEST(pipes_and_devices_are_refused_without_waiting_for_them)
{
    run_case *r = run_begin();
    char path[256];
    snprintf(path, sizeof path, "%s/pipe", r->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    RUN(r, 5, "pipe: is not a regular file", "train run.yaml data.path=pipe");
    RUN(r, 5, "/dev/null: is not a regular file", "train run.yaml data.path=/dev/null");
    RUN(r, 2, "pipe: is not a regular file", "train pipe"); /* configuration */
    run_end(r);
}

TEST(what_the_layout_cannot_be_is_said_before_text_is_prepared)
{
    run_case *r = run_begin();
    RUN(r, 2, "command line: parallel.tp=3 does not divide heads", "train run.yaml data.path=text.txt parallel.tp=3");
    assert_false(run_has(r, "a"));
    static const char yaml[] = "model: {preset: gpt2-tiny}\ndata: {path: text.txt, seq_len: 32}\nparallel: {pipeline: nope}\n";
    run_write(r, "nope.yaml", yaml, strlen(yaml));
    for (int i = 0; i < 3; i++)
        RUN(r, 2, "nope.yaml:3:22: parallel.pipeline=nope: unknown; there are naive", "%s nope.yaml model.vocab=300",
            (const char *[]){"train", "plan", "explain"}[i]);
    /* A setting that is a default has no place: that of the other one stands there. */
    RUN(r, 2, "command line: numerics.parts=8 does not divide seq_len=36", "plan nope.yaml model.vocab=300 parallel.pipeline=1f1b data.seq_len=36 parallel.cp=2");
    RUN(r, 2, "model.preset=gpt3 is unknown", "train run.yaml data.path=text.txt model.preset=gpt3");
    assert_false(run_has(r, "a"));
    run_end(r);
}

/* A folder that was not made by `data prepare` is somebody's own. */
TEST(data_prepare_replaces_nothing_but_prepared_folders)
{
    run_case *r = run_begin();
    RUN(r, 2, "text.txt: exists already and is no prepared folder",
        "data prepare --tokenizer=bytes --overwrite --out=text.txt text.txt");
    RUN(r, 2, "exists already and is no prepared folder", "data prepare --tokenizer=bytes --overwrite --out=. text.txt");
    RUN(r, 2, "shards: exists already; --overwrite replaces it", "data prepare --tokenizer=bytes --out=shards text.txt");
    RUN(r, 0, "tokens", "data prepare --tokenizer=bytes --overwrite --out=shards text.txt");
    assert_true(run_has(r, "text.txt"));
    run_end(r);
}

TEST(weights_of_another_model_than_the_run_file_says_are_refused)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 2, "command line: model.layers=3: the weights in a/checkpoints/step-00000001 have",
        "train run.yaml checkpoint.dir=b --init=a model.layers=3");
    RUN(r, 2, "model.tied=false: the weights in", "train run.yaml checkpoint.dir=b --init=a model.tied=false");
    RUN(r, 2, "model.preset=gpt2-124m and the keys beside it make layers=12: the weights in", "train run.yaml checkpoint.dir=b --init=a model.preset=gpt2-124m");
    assert_false(run_has(r, "b"));
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=b --init=a train.steps=1");
    assert_null(strstr(r->out, "init_std"));
    RUN(r, 0, "model.init_std=0.1 has no effect: the run begins from weights (--init)",
        "train run.yaml checkpoint.dir=c --init=a train.steps=1 model.init_std=0.1");
#define SCALED "train run.yaml model.preset=llama-tiny train.steps=1 model.rope_factor=8 model.rope_low_freq=1 model.rope_high_freq=4 model.rope_original_seq=16 "
    RUN(r, 0, "saved", SCALED "checkpoint.dir=d");
    RUN(r, 0, "saved", SCALED "--init=d checkpoint.dir=e");
    RUN(r, 0, "saved", "train run.yaml model.preset=llama-tiny train.steps=1 model.rope_original_seq=16 checkpoint.dir=g"); /* without a factor */
    RUN(r, 0, "saved", "train run.yaml model.preset=llama-tiny train.steps=1 model.rope_original_seq=16 --init=g checkpoint.dir=h");
    static const char *const others[][2] = {{"rope_low_freq=2", "1"}, {"rope_high_freq=5", "4"}, {"rope_original_seq=32", "16"}};
    for (int i = 0; i < 3; i++) {
        char said[128];
        snprintf(said, sizeof said, "model.%s: the weights in d/checkpoints/step-00000001 have %s", others[i][0], others[i][1]);
        RUN(r, 2, said, SCALED "--init=d checkpoint.dir=f model.%s", others[i][0]);
    }
    RUN(r, 2, "exceeds the model's longest sequence", "eval a data.seq_len=9999");
    run_end(r);
}

/* The lock goes with the process, so a killed run leaves none behind. */
TEST(a_run_folder_belongs_to_one_process_at_a_time)
{
    run_case *r = run_begin();
    char path[256];
    snprintf(path, sizeof path, "%s/a", r->dir);
    CHECK_OK(r->ctx, orth_path_make_dirs(r->ctx, path));
    int fd = -1;
    CHECK_OK(r->ctx, orth_path_lock(r->ctx, path, "taken", &fd));
    RUN(r, 2, "a: another process is training in this run folder", "train run.yaml train.steps=1");
    close(fd);
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    run_end(r);
}

TEST(progress_that_nobody_reads_ends_no_run_and_reaches_no_file)
{
    run_case *r = run_begin();
    RUN(r, 0, "model", "train run.yaml | head -1");
    assert_true(run_has(r, "a/checkpoints/step-00000008"));
    RUN(r, 5, "", "help >/dev/null; (%s train run.yaml checkpoint.dir=b >&- 2>&- <&-)", ORTH_BINARY);
    assert_true(run_has(r, "b/checkpoints/step-00000008"));
    size_t n;
    char *metrics = run_read(r, "b/metrics.jsonl", &n);
    assert_true(n > 0);
    for (const char *line = metrics; *line; line = strchr(line, '\n') + 1)
        assert_int_equal(*line, '{');
    free(metrics);
    static const char *const outputs[] = {"--version", "help", "help options", "train --help"}; /* shorter and longer than a buffer */
    for (int i = 0; i < ORTH_COUNT(outputs); i++)
        RUN(r, 3, "standard output: cannot write: No space left on device", "help >/dev/null; (%s %s >/dev/full)", ORTH_BINARY, outputs[i]);
    run_end(r);
}

TEST(the_live_line_fits_its_terminal)
{
    run_case *r = run_begin();
    static const int columns[] = {20, 50, 80, 200};
    for (int i = 0; i < ORTH_COUNT(columns); i++) {
        RUN(r, 0, "8/8", "help >/dev/null; script -qec 'stty cols %d; %s train run.yaml checkpoint.dir=w%d' /dev/null",
            columns[i], ORTH_BINARY, columns[i]);
        int lines = 0;
        assert_null(strchr(r->out, '\033'));
        for (char *line = strtok(r->out, "\r\n"); line; line = strtok(NULL, "\r\n")) {
            if (!strstr(line, "/8"))
                continue;
            assert_true((int)strlen(line) < columns[i]);
            assert_true((strstr(line, "mem ") != NULL) == (columns[i] > 110));
            static const char *const all[] = {"/8", "loss ", "norm ", "lr ", "tok/s", "mfu ", "MiB", "left "};
            for (int k = 0; k < ORTH_COUNT(all) && columns[i] >= 80; k++)
                assert_non_null(strstr(line, all[k]));
            lines++;
        }
        assert_int_equal(lines, 8);
    }
    run_end(r);
}

TEST(shards_that_are_cut_short_while_they_are_read_end_the_run_in_words)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 5, "was cut short while it was being read", "help >/dev/null; (timeout 100 %s train run.yaml train.steps=100000 --resume --quiet & "
        "i=0; while [ $i -lt 900 ] && ! grep -q '\"step\": 3,' a/metrics.jsonl; do i=$((i+1)); sleep 0.1; done; "
        ": >shards/train-00000.orts; wait $!)", ORTH_BINARY);
    RUN(r, 0, "step-00000001: valid", "ckpt verify a");
    run_end(r);
}

TEST(text_that_is_not_utf8_is_trained_on_as_bytes)
{
    run_case *r = run_begin();
    unsigned char noise[6000];
    for (int i = 0; i < (int)sizeof noise; i++)
        noise[i] = (unsigned char)test_rand_int(5, (uint64_t)i, 0, 255);
    run_write(r, "noise.txt", noise, sizeof noise);
    RUN(r, 5, "noise.txt: is binary, not text", "train run.yaml data.path=noise.txt train.steps=2");
    RUN(r, 0, "saved", "train run.yaml data.path=noise.txt data.format=text train.steps=2");
    RUN(r, 0, "loss", "eval a --text=noise.txt");
    RUN(r, 0, "", "generate a --tokens=4 --prompt=\"$(printf '\\377\\376')\"");
    run_end(r);
}

/* Puts `byte` into a file at `at`; at < 0: counted from the end. */
static void damage(run_case *r, const char *name, long at, int byte)
{
    size_t n;
    char *bytes = run_read(r, name, &n);
    bytes[at < 0 ? (long)n + at : at] ^= (char)byte;
    run_write(r, name, bytes, n);
    free(bytes);
}

static void truncate_by(run_case *r, const char *name, size_t less)
{
    size_t n;
    char *bytes = run_read(r, name, &n);
    run_write(r, name, bytes, n - less);
    free(bytes);
}

TEST(a_tokenizer_that_does_not_match_is_refused)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "data prepare --train-tokenizer=280 --out=other text.txt");
    RUN(r, 5, "tokenizer", "train run.yaml data.tokenizer=other/tokenizer.json");
    RUN(r, 5, "tokenizer", "train run.yaml 'data.path=[shards, other]'");
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 5, "was trained with tokenizer", "train run.yaml data.path=other --resume train.steps=2");
    /* The same shards in one set have another order than in two. */
    RUN(r, 0, "saved", "help >/dev/null; cp -r shards two; cp -r shards one; sed -i 's/^    \\({\"file\": \"train.*}\\)$/    \\1,\\n    \\1/' one/dataset.json; "
        "%s train run.yaml 'data.path=[shards, two]' train.steps=1 checkpoint.dir=s", ORTH_BINARY);
    RUN(r, 2, "data.path names 1 data sets, s/checkpoints/step-00000001 was trained on 2", "train run.yaml data.path=one train.steps=2 checkpoint.dir=s --resume");
    RUN(r, 5, "other: tokenizer", "eval a data.path=other");
    run_end(r);
}

TEST(damaged_files_are_named_with_exit_5)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=2 checkpoint.every_steps=1");
    RUN(r, 2, "a: belongs to a run (it holds run.yaml)", "ckpt export a a");
    RUN(r, 2, "a/checkpoints/step-00000001: belongs to a run", "ckpt export a a/checkpoints/step-00000001");
    RUN(r, 0, "parameters", "ckpt export a hf");
    RUN(r, 2, "a: belongs to a run", "ckpt import hf a");
    RUN(r, 2, "hf: exists already, and nothing in it is replaced", "ckpt export a hf");
    damage(r, "a/checkpoints/step-00000002/model.safetensors", -5, 1);
    RUN(r, 5, "model.safetensors", "ckpt verify a");
    /* The older one is taken, and that is said. */
    RUN(r, 0, "step-00000002", "train run.yaml train.steps=2 checkpoint.every_steps=1 --resume");
    assert_non_null(strstr(r->out, "step      2/2"));
    RUN(r, 0, "valid", "ckpt verify a");
    RUN(r, 0, "step-00000002: valid\n", "ckpt verify a/checkpoints/step-00000002");
    RUN(r, 0, "hf: valid (no checksums in this form)", "ckpt verify hf");
    run_remove(r, "a/checkpoints/step-00000002/state.json"); /* what is left reads as a Hugging Face folder */
    RUN(r, 5, "step-00000002: DAMAGED: a/checkpoints/step-00000002/state.json", "ckpt verify a");
    RUN(r, 5, "a/checkpoints/step-00000002/state.json", "ckpt verify a/checkpoints/step-00000002");
    truncate_by(r, "a/checkpoints/step-00000002/optimizer.safetensors", 100);
    truncate_by(r, "a/checkpoints/step-00000001/state.json", 30);
    RUN(r, 5, "no valid checkpoint to resume from", "train run.yaml --resume");
    RUN(r, 5, "shards: holds no valid checkpoint", "ckpt verify shards");
    RUN(r, 5, "nowhere: there is no such folder", "ckpt verify nowhere");
    truncate_by(r, "hf/model.safetensors", 10);
    RUN(r, 5, "hf/model.safetensors", "train run.yaml checkpoint.dir=b --init=hf");
    run_write(r, "hf/config.json", "{\"a\": [[[[", 10);
    RUN(r, 5, "hf/config.json", "train run.yaml checkpoint.dir=b --init=hf");
    RUN(r, 5, "config.json", "generate hf");
    damage(r, "shards/train-00000.orts", 1000, 1);
    RUN(r, 5, "shards/train-00000.orts: offset 128: checksum of block 0", "train run.yaml checkpoint.dir=d");
    damage(r, "shards/train-00000.orts", -3, 4);
    RUN(r, 5, "train-00000.orts", "data verify shards");
    truncate_by(r, "shards/train-00000.orts", 2);
    RUN(r, 5, "train-00000.orts", "train run.yaml checkpoint.dir=c");
    run_write(r, "shards/dataset.json", "{}", 2);
    RUN(r, 5, "dataset.json", "train run.yaml checkpoint.dir=c");
    run_end(r);
}

/* A name that holds no weights is said to; a folder is not taken for an empty one because its run is damaged. */
TEST(what_weights_are_looked_for_in_is_named)
{
    run_case *r = run_begin();
    RUN(r, 5, "orthant: nowhere: there is no such folder", "generate nowhere");
    RUN(r, 5, "orthant: shards: holds no valid checkpoint", "eval shards");
    RUN(r, 5, "orthant: nowhere: there is no such folder", "train run.yaml --init=nowhere");
    RUN(r, 5, "no valid checkpoint to resume from", "train run.yaml checkpoint.dir=none --resume");
    assert_false(run_has(r, "none"));
    RUN(r, 0, "saved", "train run.yaml train.steps=2");
    damage(r, "a/checkpoints/step-00000002/model.safetensors", -9, 1);
    RUN(r, 5, "orthant: a: holds no valid checkpoint", "generate a");
    RUN(r, 2, "holds a run whose checkpoints are all damaged", "train run.yaml train.steps=2");
    RUN(r, 0, "command line: memory.offload_sub_group=2000 has no effect: memory.offload_optimizer=none", "plan run.yaml memory.offload_sub_group=2000");
    RUN(r, 0, "parameters", "plan run.yaml memory.offload_sub_group=2000 memory.offload_optimizer=host");
    assert_null(strstr(r->out, "has no effect"));
    RUN(r, 0, "parameters", "plan run.yaml memory.offload_sub_group=4194304");
    assert_null(strstr(r->out, "has no effect"));
    RUN(r, 0, "comm.prefetch=4 has no effect: comm.overlap=false", "plan run.yaml parallel.dp=2 train.global_batch=8 parallel.zero=3 comm.prefetch=4 comm.overlap=false");
    RUN(r, 0, "precision.grad_reduce=bf16 has no effect: parallel.dp=1", "plan run.yaml precision.grad_reduce=bf16 numerics.mode=fast");
    RUN(r, 0, "parallel.reshard_after_forward=false has no effect: it is of parallel.zero=3", "plan run.yaml parallel.dp=2 train.global_batch=8 parallel.zero=2 "
        "parallel.reshard_after_forward=false");
    RUN(r, 0, "train.eval_batches=3 has no effect: train.eval_every=0", "plan run.yaml train.eval_batches=3");
    RUN(r, 0, "parallel.cp_kind=ring has no effect: parallel.cp=1", "plan run.yaml parallel.cp_kind=ring");
    RUN(r, 0, "numerics.parts=16 has no effect: numerics.mode=fast", "plan run.yaml numerics.mode=fast numerics.parts=16");
    RUN(r, 0, "", "plan run.yaml numerics.mode=fast data.seq_len=4");
    RUN(r, 0, "model.rope_high_freq=8 has no effect: model.rope_factor=1", "plan run.yaml model.preset=llama-tiny model.rope_high_freq=8");
    RUN(r, 0, "model.rope_theta=500 has no effect: model.family=gpt2 has learned positions", "plan run.yaml model.rope_theta=500");
    RUN(r, 0, "schedule.warmup_steps=20 is more than the run has, train.steps=4: the learning rate ends at 0.2 of its peak",
        "plan run.yaml train.steps=4 schedule.warmup_steps=20");
    RUN(r, 0, "schedule.decay_steps=9 and schedule.warmup_steps=2 are more than train.steps=10: wsd ends at 0.2 of its peak, not at schedule.min_lr_ratio=0.1",
        "plan run.yaml train.steps=10 schedule.name=wsd schedule.warmup_steps=2 schedule.decay_steps=9");
    RUN(r, 0, "", "plan run.yaml train.steps=10 schedule.name=wsd schedule.warmup_steps=9");
    assert_null(strstr(r->out, "of its peak"));
    RUN(r, 0, "", "help >/dev/null; sed 's/steps: 8, /epochs: 500, /' run.yaml >e.yaml");
    RUN(r, 0, "", "plan e.yaml schedule.warmup_steps=105"); /* more than the 100 of a run that says nothing */
    assert_null(strstr(r->out, "of its peak"));
    RUN(r, 0, "has no effect: optimizer.weight_decay=0", "plan run.yaml optimizer.weight_decay=0 optimizer.weight_decay_factors=embed.weight=0.5");
    RUN(r, 0, "data.separator=line has no effect: data.path is prepared already", "plan run.yaml data.separator=line");
    RUN(r, 0, "data.valid_fraction=0.5 has no effect: data.path is prepared already", "train run.yaml checkpoint.dir=t train.steps=1 data.valid_fraction=0.5");
    RUN(r, 2, "memory.limit_device=1XB: must be auto or a size such as", "plan run.yaml memory.limit_device=1XB");
    RUN(r, 2, "memory.offload_min_bytes=auto: must be a size such as", "plan run.yaml memory.offload_min_bytes=auto");
    RUN(r, 2, "cluster.name=moon: must be this-machine", "plan run.yaml cluster.name=moon");
    RUN(r, 2, "shards: belongs to prepared data (it holds dataset.json): give another folder", "ckpt export a shards");
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=own train.steps=1 model.preset=llama-tiny model.mlp_bias=true model.qk_norm=true");
    RUN(r, 0, "no family of Transformers has these biases and norms", "ckpt export own hf-own");
    RUN(r, 0, "ab", "generate hf-own --prompt=ab --tokens=3");
    run_end(r);
}

#define MOVES "memory.offload_activations=host "

/* Only the plan shows it. Told by plan and train, with the place; not told where there is an effect. */
TEST(keys_that_change_nothing_in_the_plan_are_named)
{
    static const struct { const char *words, *text; } cases[] = {
        {MOVES "memory.offload_min_bytes=1GB", "command line: memory.offload_activations=host has no effect: no activation is as large as "
                                               "memory.offload_min_bytes, 1000000000 bytes; the largest has "},
        {MOVES "memory.offload_min_bytes=1KiB model.layers=1 memory.recompute=full", "memory.offload_activations=host has no effect: no "
                                               "activation of at least memory.offload_min_bytes, 1024 bytes, is unused for as long"},
        {"memory.recompute=ops memory.recompute_ops=[add]", "command line: memory.recompute=ops has no effect: the backward reads nothing of what would "
                                                            "be made again"},
        {"'optimizer.freeze=[layers.0.*]' 'optimizer.lr_factors=[layers.0.*=0.5,embed.*=0.5]'",
         "optimizer.lr_factors: 'layers.0.*=0.5' has no effect: all parameters that it matches are frozen"},
        {"'optimizer.freeze=[embed.*]' 'optimizer.weight_decay_factors=[embed.*=0]'", "optimizer.weight_decay_factors: 'embed.*=0' has no effect"},
        {"memory.offload_optimizer=host optimizer.name=sgd optimizer.momentum=0", "command line: memory.offload_optimizer=host has no effect on memory: this "
                                                                                  "optimizer keeps no state, and no masters"},
        {"memory.offload_optimizer=file memory.offload_ratio=0", "memory.offload_optimizer=file has no effect on memory: memory.offload_ratio lets no parameter leave"},
        {"optimizer.name=sgd optimizer.momentum=0 precision.moments=bf16", "precision.moments=bf16 has no effect: optimizer.name=sgd with optimizer.momentum=0"},
    };
    static const char *const fine[] = {MOVES "memory.offload_min_bytes=1KiB", "memory.recompute=ops memory.recompute_ops=[norm]", "memory.recompute=full",
                                       "'optimizer.freeze=[layers.0.*]' optimizer.lr_factors=layers.*=0.5", "memory.offload_optimizer=host memory.offload_ratio=0.5",
                                       "optimizer.name=sgd optimizer.momentum=0 memory.offload_optimizer=host precision.compute=bf16"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        RUN(r, 0, cases[i].text, "plan run.yaml %s", cases[i].words);
    RUN(r, 0, cases[0].text, "train run.yaml train.steps=1 %s", cases[0].words);
    for (int i = 0; i < ORTH_COUNT(fine); i++) {
        RUN(r, 0, "parameters", "plan run.yaml %s", fine[i]);
        if (strstr(r->out, "has no effect"))
            fail_msg("%s:\n%.2000s", fine[i], r->out);
    }
    run_end(r);
}

/* A class of layers stands for the unit of gathering only where the model has it. */
TEST(classes_of_another_family_are_refused_with_those_that_the_model_has)
{
    run_case *r = run_begin();
#define ZERO_3 "plan run.yaml parallel.dp=2 parallel.zero=3 train.global_batch=8 "
    RUN(r, 2, "command line: parallel.gather_unit=LlamaDecoderLayer: models of the family gpt2 have no such layers; their classes are GPT2Block, "
        "GPT2Attention, GPT2MLP, TransformerBlock, TransformerLayer", ZERO_3 "parallel.gather_unit=LlamaDecoderLayer");
    RUN(r, 2, "models of the family llama have no such layers; their classes are LlamaDecoderLayer, ", ZERO_3 "model.preset=llama-tiny parallel.gather_unit=GPT2MLP");
    RUN(r, 0, "parameters", ZERO_3 "parallel.gather_unit=GPT2MLP");
    RUN(r, 0, "parameters", ZERO_3 "parallel.gather_unit=TransformerBlock");
    RUN(r, 0, "parameters", ZERO_3 "parallel.gather_unit=LlamaDecoderLayer parallel.gather_unit=half");
    const char wraps[] = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_auto_wrap_policy: "
                         "TRANSFORMER_BASED_WRAP, fsdp_transformer_layer_cls_to_wrap: \"LlamaMLP,LlamaDecoderLayer\"}\n";
    run_write(r, "accelerate.yaml", wraps, sizeof wraps - 1);
    RUN(r, 2, "parallel.gather_unit=LlamaMLP: models of the family gpt2 have no such layers",
        "plan run.yaml --accelerate=accelerate.yaml train.global_batch=8");
    const char list[] = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_auto_wrap_policy: "
                        "TRANSFORMER_BASED_WRAP, fsdp_transformer_layer_cls_to_wrap: [LlamaDecoderLayer, Qwen3DecoderLayer]}\n";
    run_write(r, "list.yaml", list, sizeof list - 1); /* the second of a list counts, too */
    RUN(r, 2, "fsdp_transformer_layer_cls_to_wrap: parallel.gather_unit=Qwen3DecoderLayer: models of the family llama have no such layers; their classes are "
        "LlamaDecoderLayer, LlamaAttention, LlamaMLP, MistralDecoderLayer",
        "plan run.yaml model.preset=llama-tiny --accelerate=list.yaml train.global_batch=8");
    RUN(r, 2, "parallel.gather_unit=LlamaDecoderLayer: models of the family llama with model.qk_norm have no such layers; their classes are Qwen3DecoderLayer, ",
        "plan run.yaml model.preset=qwen3-tiny --accelerate=list.yaml train.global_batch=8");
    RUN(r, 0, "parameters", "plan run.yaml model.preset=qwen3-tiny --accelerate=list.yaml train.global_batch=8 parallel.gather_unit=layer");
    RUN(r, 2, "parallel.gather_unit=Qwen3MLP: models of the family llama have no such layers", ZERO_3 "model.preset=llama-tiny parallel.gather_unit=Qwen3MLP");
    RUN(r, 2, "with model.qkv_bias alone have no such layers; their classes are Qwen2DecoderLayer",
        ZERO_3 "model.preset=llama-tiny model.qkv_bias=true parallel.gather_unit=LlamaMLP");
    RUN(r, 0, "parameters", ZERO_3 "model.preset=llama-tiny model.qkv_bias=true parallel.gather_unit=Qwen2MLP");
    run_end(r);
}

/* A file may hold this much: enough for the data and the metrics, not for a checkpoint. */
TEST(a_write_that_fails_leaves_the_older_checkpoint)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=2");
    static const char *const ways[] = {"", "checkpoint.every_steps=2 train.steps=400"}; /* between steps, beside them */
    for (int i = 0; i < 2; i++) {
        static char command[1024];
        snprintf(command, sizeof command,
                 "cd %s && (ulimit -f 400; exec %s train run.yaml train.steps=4 --resume %s) > log.txt 2>&1",
                 r->dir, ORTH_BINARY, ways[i]);
        int status = system(command);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 3);
        char *log = run_read(r, "log.txt", NULL);
        if (!strstr(log, ".tmp-step-00000004/model.safetensors: cannot write: File too large"))
            fail_msg("it said: %s", log);
        free(log);
        assert_false(run_has(r, "a/checkpoints/.tmp-step-00000004"));
        RUN(r, 0, "step-00000002: valid", "ckpt verify a");
    }
    RUN(r, 0, "step      4/4", "train run.yaml train.steps=4 --resume");
    RUN(r, 0, "saved", "train run.yaml train.steps=4 checkpoint.dir=whole");
    run_same(r, "a", "whole", 4);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_does_not_fit_is_refused_with_figures_before_anything_is_allocated),
#ifdef ULIMIT_KIB
        cmocka_unit_test(a_limit_of_the_shell_counts_as_memory),
#endif
        cmocka_unit_test(what_is_wrong_with_the_data_is_named),
        cmocka_unit_test(pipes_and_devices_are_refused_without_waiting_for_them),
        cmocka_unit_test(what_the_layout_cannot_be_is_said_before_text_is_prepared),
        cmocka_unit_test(data_prepare_replaces_nothing_but_prepared_folders),
        cmocka_unit_test(weights_of_another_model_than_the_run_file_says_are_refused),
        cmocka_unit_test(a_run_folder_belongs_to_one_process_at_a_time),
        cmocka_unit_test(progress_that_nobody_reads_ends_no_run_and_reaches_no_file),
        cmocka_unit_test(the_live_line_fits_its_terminal),
        cmocka_unit_test(shards_that_are_cut_short_while_they_are_read_end_the_run_in_words),
        cmocka_unit_test(text_that_is_not_utf8_is_trained_on_as_bytes),
        cmocka_unit_test(a_tokenizer_that_does_not_match_is_refused),
        cmocka_unit_test(damaged_files_are_named_with_exit_5),
        cmocka_unit_test(what_weights_are_looked_for_in_is_named),
        cmocka_unit_test(keys_that_change_nothing_in_the_plan_are_named),
        cmocka_unit_test(classes_of_another_family_are_refused_with_those_that_the_model_has),
        cmocka_unit_test(a_write_that_fails_leaves_the_older_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
