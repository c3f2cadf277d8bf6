/* survey.c -- see survey.h. */
#include "data/survey.h"

#include <string.h>
#include <sys/stat.h>

#include "data/corpus.h"
#include "data/inputs.h"

#define BATCH 256

/* What was read of the files so far, and how many bytes on the disk that was: the others are taken to be alike. */
typedef struct {
    double disk_bytes, text_bytes, documents;
} sample;

static double file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (double)st.st_size : 0;
}

/* Reads the present input to its end, or until enough was read in all. */
static orth_status read_input(orth_ctx *ctx, orth_reader *r, const char *path, sample *s)
{
    orth_document docs[BATCH];
    orth_bytes line = {0};
    orth_status status = ORTH_OK;
    double lines = 0, text = 0, documents = 0;
    const int64_t before = orth_reader_bytes(r);
    int64_t n = 1;
    while (status == ORTH_OK && n > 0 && orth_reader_bytes(r) < ORTH_SURVEY_BYTES) {
        status = orth_reader_next(ctx, r, docs, BATCH, &n);
        for (int64_t i = 0; status == ORTH_OK && i < n; i++) {
            const char *at;
            size_t num_bytes;
            status = orth_reader_text(ctx, r, &docs[i], &line, &at, &num_bytes);
            lines += (double)docs[i].num_bytes + 1;
            text += (double)num_bytes;
            documents += !docs[i].goes_on;
        }
    }
    orth_bytes_free(ctx, &line);
    ORTH_TRY(status);
    /* Cut short: what was read is that part of the file which its bytes are; a compressed file is taken to hold four times its size. */
    double part = 1;
    if (n > 0) {
        const double whole = file_bytes(path) * (strstr(path, ".gz") || strstr(path, ".zst") ? 4 : 1);
        part = lines / ORTH_MAX(whole, (double)(orth_reader_bytes(r) - before));
    }
    s->disk_bytes += file_bytes(path);
    s->text_bytes += text / ORTH_MAX(part, 1e-9);
    s->documents += documents / ORTH_MAX(part, 1e-9);
    return ORTH_OK;
}

/* The files of one path, files->v[first ... end), as part of all files: `texts` has the bytes of text of each, below 0 if it was not read. */
static double text_of_path(const orth_inputs *files, int first, int end, const double *texts, const sample *s)
{
    double sum = 0;
    for (int i = first; i < end; i++)
        sum += texts[i] >= 0 ? texts[i] : file_bytes(files->v[i]) * s->text_bytes / ORTH_MAX(s->disk_bytes, 1);
    return sum;
}

/* ends[num_paths]: where the files of each path end; a prepared one has none. */
static void find_least(orth_survey *out, const orth_inputs *files, const int *ends, int num_paths, const double *texts, const sample *s)
{
    for (int i = 0; i < num_paths; i++) {
        const int first = i ? ends[i - 1] : 0;
        const double bytes = text_of_path(files, first, ends[i], texts, s);
        if (ends[i] > first && (out->least_text_bytes == 0 || bytes < out->least_text_bytes))
            out->least_text_bytes = bytes;
    }
}

static orth_status survey_files(orth_ctx *ctx, orth_survey *out, const orth_inputs *files, const int *ends, int num_paths,
                                const orth_text_options *text)
{
    orth_reader *r = NULL;
    sample s = {0};
    double rest = 0;
    ORTH_TRY(orth_reader_check(ctx, text, (const char *const *)files->v, files->num));
    double *texts = ORTH_NEW_ARRAY(ctx, double, files->num);
    orth_status status = texts ? orth_reader_create(ctx, &r, text, files->num) : ORTH_ERR_NOMEM;
    for (int i = 0; status == ORTH_OK && i < files->num; i++) {
        if (orth_reader_bytes(r) >= ORTH_SURVEY_BYTES) {
            rest += file_bytes(files->v[i]);
            texts[i] = -1;
            continue;
        }
        status = orth_reader_input(ctx, r, files->v[i]);
        if (status != ORTH_OK)
            break;
        out->num_jsonl += orth_reader_is_jsonl(r);
        out->num_text += !orth_reader_is_jsonl(r);
        const double before = s.text_bytes;
        status = read_input(ctx, r, files->v[i], &s);
        texts[i] = s.text_bytes - before;
    }
    if (status == ORTH_OK)
        orth_reader_tell_invalid(ctx, r);
    orth_reader_free(ctx, r);
    if (status == ORTH_OK)
        find_least(out, files, ends, num_paths, texts, &s);
    orth_mem_free(ctx, texts);
    const double all = 1 + rest / ORTH_MAX(s.disk_bytes, 1);
    out->num_files = files->num;
    out->text_bytes = s.text_bytes * all;
    out->documents += s.documents * all;
    return status;
}

static orth_status survey_prepared(orth_ctx *ctx, orth_survey *out, const char *path)
{
    orth_dataset *d;
    ORTH_TRY(orth_dataset_open(ctx, &d, path));
    out->vocab_size = out->num_prepared++ ? out->vocab_size : d->vocab_size;
    out->least_tokens = out->tokens ? ORTH_MIN(out->least_tokens, d->train.num_tokens) : d->train.num_tokens;
    out->tokens += d->train.num_tokens;
    out->documents += (double)d->train.num_docs;
    orth_dataset_close(ctx, d);
    return ORTH_OK;
}

orth_status orth_survey_data(orth_ctx *ctx, orth_survey *out, const char *const *paths, int num_paths,
                             const orth_text_options *text)
{
    orth_inputs files = {0};
    int *ends = ORTH_NEW_ARRAY(ctx, int, num_paths);
    orth_status status = ends ? ORTH_OK : ORTH_ERR_NOMEM;
    *out = (orth_survey){0};
    for (int i = 0; status == ORTH_OK && i < num_paths; i++) {
        if (strcmp(paths[i], "-") == 0)
            status = ORTH_FAIL(ctx, ORTH_ERR_ARG, "standard input (-) can be read once, a run reads its text itself: save it to a file, "
                               "or give it to `orthant data prepare`");
        else if (orth_dataset_exists(paths[i]))
            status = survey_prepared(ctx, out, paths[i]);
        else
            status = orth_inputs_add(ctx, &files, paths[i]);
        ends[i] = files.num;
    }
    if (status == ORTH_OK && files.num > 0)
        status = survey_files(ctx, out, &files, ends, num_paths, text);
    orth_inputs_free(ctx, &files);
    orth_mem_free(ctx, ends);
    return status;
}
