/* survey.h -- how much there is to train on: inputs are looked at, not prepared. */
#ifndef ORTH_DATA_SURVEY_H
#define ORTH_DATA_SURVEY_H

#include "data/reader.h"

/* Bytes of text that are read before the rest is estimated from the sizes of files. */
#define ORTH_SURVEY_BYTES ((int64_t)64 << 20)

typedef struct {
    int num_prepared, num_text, num_jsonl; /* data sets, and files of each kind among those that were read */
    int num_files;                         /* of text and JSONL, read or not */
    int64_t tokens;                        /* training tokens of prepared data sets */
    int64_t vocab_size;                    /* of the first prepared data set; 0: none */
    double text_bytes;                     /* of documents that are not prepared */
    int64_t least_tokens;                  /* of the prepared data set that has the fewest; 0: none is */
    double least_text_bytes;               /* of the path that is not prepared and has the fewest; 0: none is */
    double documents;                      /* of all inputs; estimated like text_bytes where not all was read */
} orth_survey;

/* `paths`: what data.path may hold: files, folders of them, prepared data sets. Not collective. ORTH_ERR_ARG: standard
 * input, which cannot be read twice; ORTH_ERR_IO; ORTH_ERR_DATA: not text, damaged, JSONL without the field; ORTH_ERR_NOMEM. */
orth_status orth_survey_data(orth_ctx *ctx, orth_survey *out, const char *const *paths, int num_paths,
                             const orth_text_options *text);

#endif
