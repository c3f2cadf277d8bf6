/* hf_tokens.c -- generation_config.json and tokenizer_config.json of a folder for Transformers. See hf.h. */
#include "ckpt/hf.h"

static json_t *id_or_null(int64_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

void orth_hf_put_special(json_t **object, const orth_special_tokens *special)
{
    const orth_special_tokens none = ORTH_NO_SPECIAL_TOKENS, *s = special ? special : &none;
    json_t *eos = s->num_eos > 1 ? json_array() : id_or_null(orth_special_tokens_eos(s));
    for (int i = 0; s->num_eos > 1 && i < s->num_eos; i++)
        orth_json_append(&eos, json_integer(s->eos[i]));
    orth_json_add(object, "bos_token_id", id_or_null(s->bos));
    orth_json_add(object, "eos_token_id", eos);
    orth_json_add(object, "pad_token_id", id_or_null(s->pad));
}

/* Takes the object, which is NULL where there was no memory. */
static char *text_of(orth_ctx *ctx, json_t *object)
{
    char *text = orth_json_lines(ctx, object);
    json_decref(object);
    return text;
}

char *orth_hf_generation_text(orth_ctx *ctx, const orth_special_tokens *special)
{
    json_t *root = json_object();
    orth_special_tokens s = special ? *special : ORTH_NO_SPECIAL_TOKENS;
    if (s.pad < 0)
        s.pad = orth_special_tokens_eos(&s);
    orth_hf_put_special(&root, &s);
    return text_of(ctx, root);
}

/* The content of a token, if there is such a token. */
static void put_content(json_t **object, const char *key, const orth_tokenizer *tok, int32_t id)
{
    size_t n;
    const char *content = orth_tokenizer_content(tok, id, &n);
    if (content)
        orth_json_add(object, key, json_stringn(content, n));
}

char *orth_hf_tokenizer_text(orth_ctx *ctx, const orth_tokenizer *tok, const orth_special_tokens *special,
                             int64_t max_seq)
{
    const int32_t eos = orth_special_tokens_eos(special);
    json_t *root = json_pack("{s:s, s:I, s:b, s:s}", "tokenizer_class", "PreTrainedTokenizerFast", "model_max_length",
                             (json_int_t)max_seq, "clean_up_tokenization_spaces", 0, "padding_side", "left");
    put_content(&root, "bos_token", tok, special->bos);
    put_content(&root, "eos_token", tok, eos);
    put_content(&root, "pad_token", tok, special->pad >= 0 ? special->pad : eos);
    return text_of(ctx, root);
}
