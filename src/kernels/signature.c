/* signature.c -- see signature.h.
 *
 * The strings are ours: a malformed one fails an assertion, and a test parses all of them.
 */
#include "kernels/signature.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "kernels/moments8.h"
#include "tensor/q8.h"

static const struct {
    const char *in, *out;
} rows[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, ...) [ORTH_OP_##name] = {in, out},
#define COMM(name, in, out, ...) [ORTH_OP_##name] = {in, out},
#define GRAPH(name, in, out, ...) [ORTH_OP_##name] = {in, out},
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

/* ---- letters of the attributes ---- */

static const char *const attr_letters[] = {"B", "T", "P", "H", "KV", "D", "R", "F", "M", "Q", "L", "E", "U", "X", "TR", "TC", "TM", "TO", "YK", "YN", "NR", "NC", "YR", "YC", "Q8"};

static int64_t length_of(const orth_split *split)
{
    return split->parts > 0 ? orth_split_bound(split, orth_split_leaves(split)) : 0;
}

static int64_t tiles_of(const orth_split *split, int32_t tile)
{
    return orth_num_tiles(&(orth_tile_axis){.n = length_of(split), .tile = tile, .split = split});
}

/* In the order of attr_letters. */
int64_t orth_signature_attr(const orth_attr *a, int which)
{
    switch (which) {
    case 0: return a->num_seqs;
    case 1: return a->seq_len;
    case 2: return a->token_parts;
    case 3: return a->heads;
    case 4: return a->kv_heads;
    case 5: return a->head_dim;
    case 6: return ((int64_t)a->heads + 2 * (int64_t)a->kv_heads) * a->head_dim;
    case 7: return a->full_len;
    case 8: return a->num_keys;
    case 9: return a->shares_kv ? a->slot_count : 1;
    case 10: return length_of(&a->split);
    case 11: return a->replica_rows;
    case 12: return a->block_rows;
    case 14: return a->tile_rows;
    case 15: return a->tile_cols;
    case 16: return orth_recipe_of(a->recipe)->tile_k ? 1 : a->seq_len;
    case 17: return orth_recipe_of(a->recipe)->tile_k ? 1 : INT32_MAX;
    case 18: return tiles_of(&a->split, orth_recipe_of(a->recipe)->tile_k);
    case 19: return tiles_of(&a->split_out, orth_recipe_of(a->recipe)->tile_w);
    case 20: return length_of(&a->row_split);
    case 21: return length_of(&a->col_split);
    case 22: return tiles_of(&a->row_split, a->tile_rows);
    case 23: return tiles_of(&a->col_split, a->tile_cols);
    case 24: return ORTH_Q8_NUM;
    default: return a->split.parts > 0 ? orth_moment_row_blocks(&a->split) : 0;
    }
}

/* ---- parsing ---- */

static int8_t letter_of(orth_signature *s, const char **at)
{
    const char *begin = *at;
    assert(isalpha((unsigned char)*begin));
    while (isalnum((unsigned char)**at))
        ++*at;
    const int8_t size = (int8_t)(*at - begin);
    for (int8_t i = 0; i < s->num_letters; i++)
        if (s->letter[i].size == size && memcmp(s->letter[i].name, begin, (size_t)size) == 0)
            return i;
    assert(s->num_letters < ORTH_SIG_LETTERS);
    const int8_t fresh = (int8_t)s->num_letters++;
    s->letter[fresh].name = begin;
    s->letter[fresh].size = size;
    s->letter[fresh].attr = -1;
    for (int8_t i = 0; i < ORTH_COUNT(attr_letters); i++)
        if (strlen(attr_letters[i]) == (size_t)size && memcmp(attr_letters[i], begin, (size_t)size) == 0)
            s->letter[fresh].attr = i;
    return fresh;
}

static void parse_term(orth_signature *s, orth_sig_dim *d, const char **at)
{
    assert(d->num_terms < 2);
    const int term = d->num_terms++;
    do {
        if (d->num_factors[term] > 0)
            ++*at;
        assert(d->num_factors[term] < ORTH_SIG_FACTORS);
        int8_t *factor = &d->factor[term][d->num_factors[term]++];
        if (isdigit((unsigned char)**at))
            *factor = (int8_t)('0' - *(*at)++);
        else
            *factor = letter_of(s, at);
    } while (**at == '*');
}

static void parse_dim(orth_signature *s, orth_sig_dim *d, const char **at)
{
    *d = (orth_sig_dim){.letter = -1, .pieces = -1, .text = *at};
    parse_term(s, d, at);
    if (**at == '=') {
        d->letter = d->factor[0][0];
        d->num_terms = 0;
        d->num_factors[0] = 0;
        d->text = ++*at;
        parse_term(s, d, at);
    }
    if (**at == '+') {
        ++*at;
        parse_term(s, d, at);
    }
    if (**at == '/') {
        ++*at;
        d->pieces = letter_of(s, at);
    }
    if (d->letter < 0 && d->num_terms == 1 && d->num_factors[0] == 1 && d->factor[0][0] >= 0 && d->pieces < 0) {
        d->letter = d->factor[0][0];
        d->num_terms = 0;
    }
    d->text_size = (int8_t)(*at - d->text);
    d->rest = strncmp(*at, "..", 2) == 0;
    *at += d->rest ? 2 : 0;
}

static void parse_type(orth_signature *s, orth_sig_operand *o, const char **at)
{
    int n = 0;
    do {
        *at += n > 0;
        assert(n < 3 && strchr("cfhdiuqt", **at));
        o->type[n++] = *(*at)++;
    } while (**at == '|');
    if (**at == '<') {
        ++*at;
        o->below = letter_of(s, at);
    }
}

static void parse_operand(orth_signature *s, orth_sig_operand *o, const char **at)
{
    *o = (orth_sig_operand){.name = *at, .below = -1};
    while (isalnum((unsigned char)**at) || **at == '_')
        ++*at;
    o->name_size = (int8_t)(*at - o->name);
    o->step = o->name_size == 4 && memcmp(o->name, "step", 4) == 0;
    if (o->step)
        return;
    o->optional = **at == '?';
    *at += o->optional;
    assert(**at == '[');
    do {
        ++*at;
        assert(o->num_dims < ORTH_COUNT(o->dim));
        parse_dim(s, &o->dim[o->num_dims++], at);
    } while (**at == ',');
    assert(**at == ']');
    ++*at;
    parse_type(s, o, at);
}

static int32_t parse_list(orth_signature *s, const char *text, orth_sig_operand *o, int max)
{
    int32_t n = 0;
    while (*text) {
        if (strncmp(text, "acc..", 5) == 0) {
            s->addends = true;
            text += 5;
        } else {
            assert(n < max);
            parse_operand(s, &o[n++], &text);
        }
        assert(*text == ' ' || *text == '\0');
        text += *text == ' ';
    }
    return n;
}

void orth_signature_of(orth_op op, orth_signature *s)
{
    s->op = op;
    s->addends = false;
    s->num_letters = 0;
    s->num_in = parse_list(s, rows[op].in, s->in, ORTH_COUNT(s->in));
    s->num_out = parse_list(s, rows[op].out, s->out, ORTH_COUNT(s->out));
}

static int find(const orth_sig_operand *o, int num, const char *name)
{
    for (int k = 0; k < num; k++)
        if (strlen(name) == (size_t)o[k].name_size && memcmp(name, o[k].name, strlen(name)) == 0)
            return k;
    return -1;
}

int orth_signature_input(const orth_signature *s, const char *name)
{
    return find(s->in, s->num_in, name);
}

int orth_signature_leaf(const orth_signature *s)
{
    int k = 0;
    while (s->in[k].type[0] == 'i')
        k++;
    return k;
}

int orth_op_output(orth_op op, const char *name)
{
    orth_signature s;
    orth_signature_of(op, &s);
    return find(s.out, s.num_out, name);
}

/* ---- fitting ---- */

#define UNKNOWN INT64_MIN

typedef struct {
    const orth_signature *s;
    const orth_tensor *in, *out;
    int num_in, num_out;
    int64_t value[ORTH_SIG_LETTERS];
    const orth_sig_operand *from[ORTH_SIG_LETTERS]; /* what bound it; NULL: the attributes */
    int type[2];                                    /* what c and t are; -1: not known yet */
    char *why;
    size_t size;
} fitting;

static const orth_sig_operand *operand(const fitting *f, int k)
{
    return k < f->s->num_in ? &f->s->in[k] : &f->s->out[k - f->s->num_in];
}

/* NULL: absent. */
static const orth_tensor *tensor(const fitting *f, int k)
{
    const bool in = k < f->s->num_in;
    const int i = in ? k : k - f->s->num_in;
    const orth_tensor *t = in ? (i < f->num_in ? &f->in[i] : NULL) : (i < f->num_out ? &f->out[i] : NULL);
    return t && t->num_dims > 0 ? t : NULL;
}

/* "linear: operand 'w' [24, 20]: " and then the rule that is broken; false. */
__attribute__((format(printf, 4, 5)))
static bool refuse(const fitting *f, const orth_sig_operand *o, const orth_tensor *t, const char *rule, ...)
{
    char dims[96] = "";
    size_t at = 0;
    for (int i = 0; t && i < t->num_dims && at < sizeof dims; i++)
        at += (size_t)snprintf(dims + at, sizeof dims - at, "%s%" PRId64, i ? ", " : " [", t->dim[i]);
    int used = snprintf(f->why, f->size, "%s: operand '%.*s'%s%s: ", orth_op_name(f->s->op), o->name_size, o->name, dims,
                        at ? "]" : "");
    va_list args;
    va_start(args, rule);
    if (used >= 0 && (size_t)used < f->size)
        vsnprintf(f->why + used, f->size - (size_t)used, rule, args);
    va_end(args);
    return false;
}

static int64_t size_of(const orth_sig_operand *o, const orth_tensor *t, int i)
{
    int64_t n = i < t->num_dims ? t->dim[i] : 1;
    for (int k = i + 1; o->dim[i].rest && k < t->num_dims; k++)
        n *= t->dim[k];
    return n;
}

static bool fits_letter(fitting *f, const orth_sig_operand *o, const orth_tensor *t, int i)
{
    const int8_t x = o->dim[i].letter;
    const int64_t n = size_of(o, t, i);
    if (x < 0)
        return true;
    if (f->value[x] == UNKNOWN) {
        f->value[x] = n;
        f->from[x] = o;
        return true;
    }
    if (f->value[x] == n)
        return true;
    const orth_sig_operand *by = f->from[x];
    return refuse(f, o, t, "%.*s is %" PRId64 " here, but %" PRId64 " by %s%.*s%s", f->s->letter[x].size,
                  f->s->letter[x].name, n, f->value[x], by ? "operand '" : "the attributes", by ? by->name_size : 0,
                  by ? by->name : "", by ? "'" : "");
}

/* The product of the known factors; *missing: the one that is not, -1: none, -2: several. */
static int64_t product(const fitting *f, const orth_sig_dim *d, int term, int *missing)
{
    int64_t n = 1;
    for (int i = 0; i < d->num_factors[term]; i++) {
        const int8_t x = d->factor[term][i];
        if (x < 0)
            n *= -x;
        else if (f->value[x] != UNKNOWN)
            n *= f->value[x];
        else
            *missing = *missing == -1 ? x : -2;
    }
    return n;
}

/* *open: it cannot be decided yet. */
static bool fits_sum(fitting *f, const orth_sig_operand *o, const orth_tensor *t, int i, bool *open)
{
    const orth_sig_dim *d = &o->dim[i];
    const int64_t n = size_of(o, t, i);
    int missing = -1;
    int64_t want = 0;
    for (int term = 0; term < d->num_terms; term++)
        want += product(f, d, term, &missing);
    if (missing >= 0 && d->num_terms == 1 && d->pieces < 0 && want > 0 && n % want == 0) {
        f->value[missing] = n / want;
        f->from[missing] = o;
        return true;
    }
    if (missing >= 0 && d->num_terms == 1 && d->pieces < 0)
        return refuse(f, o, t, "%" PRId64 " is not %.*s for any %.*s", n, d->text_size, d->text, f->s->letter[missing].size,
                      f->s->letter[missing].name);
    if (missing != -1) {
        *open = true;
        return true;
    }
    if (d->pieces >= 0)
        want = f->value[d->pieces] > 0 ? (want + f->value[d->pieces] - 1) / f->value[d->pieces] : -1;
    return n == want || refuse(f, o, t, "%" PRId64 " is not %.*s, which is %" PRId64, n, d->text_size, d->text, want);
}

static bool is_type(fitting *f, char letter, orth_dtype type)
{
    static const struct {
        char letter;
        orth_dtype type;
    } fixed[] = {{'f', ORTH_F32}, {'d', ORTH_F64}, {'i', ORTH_I32}, {'u', ORTH_U8}, {'q', ORTH_Q8}};
    for (int i = 0; i < ORTH_COUNT(fixed); i++)
        if (fixed[i].letter == letter)
            return fixed[i].type == type;
    int *bound = &f->type[letter == 't'];
    const bool half = type == ORTH_BF16 || type == ORTH_F16;
    if (letter == 'h')
        return half;
    if (letter == 'c' && type != ORTH_F32 && !half)
        return false;
    if (*bound < 0)
        *bound = (int)type;
    return *bound == (int)type;
}

static bool fits_type(fitting *f, const orth_sig_operand *o, const orth_tensor *t)
{
    for (int i = 0; i < ORTH_COUNT(o->type) && o->type[i]; i++)
        if (is_type(f, o->type[i], t->dtype))
            return true;
    const int bound = f->type[o->type[0] == 't'];
    const bool by_another = (o->type[0] == 'c' || o->type[0] == 't') && bound >= 0;
    return refuse(f, o, t, "type %s, but must be %.3s%s%s", orth_dtype_name(t->dtype), o->type, by_another ? " = " : "",
                  by_another ? orth_dtype_name((orth_dtype)bound) : "");
}

/* Types, number of dims, and letters that stand alone. */
static bool fits_alone(fitting *f, const orth_sig_operand *o, const orth_tensor *t)
{
    if (!t)
        return o->optional || refuse(f, o, t, "must not be absent");
    if (o->step)
        return (t->dtype == ORTH_U8 && t->num_dims == 1 && t->dim[0] == (int64_t)sizeof(orth_step_values)) ||
               refuse(f, o, t, "must be %zu bytes of step values", sizeof(orth_step_values));
    const bool rest = o->num_dims > 0 && o->dim[o->num_dims - 1].rest;
    if (t->num_dims != o->num_dims && !(rest && t->num_dims >= o->num_dims - 1))
        return refuse(f, o, t, "%d dims, but must have %d", t->num_dims, o->num_dims);
    for (int i = 0; i < o->num_dims; i++)
        if (!fits_letter(f, o, t, i))
            return false;
    return fits_type(f, o, t);
}

static bool fits_sums(fitting *f)
{
    bool open = true;
    for (int pass = 0; pass <= ORTH_SIG_LETTERS && open; pass++) {
        open = false;
        for (int k = 0; k < f->s->num_in + f->s->num_out; k++) {
            const orth_sig_operand *o = operand(f, k);
            const orth_tensor *t = tensor(f, k);
            for (int i = 0; t && i < o->num_dims; i++)
                if (o->dim[i].num_terms > 0 && !fits_sum(f, o, t, i, &open))
                    return false;
        }
    }
    assert(!open); /* a row whose operands do not say what a letter is */
    return true;
}

static bool fits_addends(const fitting *f)
{
    const orth_tensor *out = &f->out[0];
    for (int k = f->s->num_in; k < f->num_in; k++) {
        const orth_tensor *t = &f->in[k];
        const orth_sig_operand acc = {.name = "acc", .name_size = 3};
        if (t->num_dims == 0)
            return refuse(f, &acc, NULL, "must not be absent");
        if (t->dtype != out->dtype || orth_tensor_elems(t) != orth_tensor_elems(out))
            return refuse(f, &acc, t, "%" PRId64 " elements of type %s for %" PRId64 " of type %s", orth_tensor_elems(t),
                          orth_dtype_name(t->dtype), orth_tensor_elems(out), orth_dtype_name(out->dtype));
    }
    return true;
}

/* As many operands as the row has; those at the end that may be absent may be left out. */
static bool fits_number(const fitting *f, const orth_attr *attr)
{
    const int addends = f->s->addends ? attr->num_addends : 0;
    int num = f->num_in - addends;
    if (addends < 0 || f->num_in > ORTH_OP_MAX_IN || num > f->s->num_in || (addends > 0 && num < f->s->num_in)) {
        snprintf(f->why, f->size, "%s: %d inputs, but takes %d and %d addends", orth_op_name(f->s->op), f->num_in,
                 f->s->num_in, addends);
        return false;
    }
    if (f->num_out > f->s->num_out) {
        snprintf(f->why, f->size, "%s: %d outputs, but makes %d", orth_op_name(f->s->op), f->num_out, f->s->num_out);
        return false;
    }
    return true;
}

bool orth_signature_fits(const orth_signature *s, const orth_attr *attr, const orth_tensor *in, int num_in,
                         const orth_tensor *out, int num_out, char *why, size_t size)
{
    fitting f = {.s = s, .in = in, .out = out, .num_in = num_in, .num_out = num_out, .type = {-1, -1}, .why = why,
                 .size = size};
    for (int i = 0; i < s->num_letters; i++)
        f.value[i] = s->letter[i].attr >= 0 ? orth_signature_attr(attr, s->letter[i].attr) : UNKNOWN;
    if (!fits_number(&f, attr))
        return false;
    for (int k = 0; k < s->num_in + s->num_out; k++)
        if (!fits_alone(&f, operand(&f, k), tensor(&f, k)))
            return false;
    return fits_sums(&f) && fits_addends(&f);
}
