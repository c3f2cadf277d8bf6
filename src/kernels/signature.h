/* signature.h -- what an op takes and makes: the strings of ops.def, parsed, and held against operands.
 *
 * operand    name '?' '[' dim,dim.. ']' type      `?`: may be absent. `step` alone: an orth_step_values.
 *            acc..                                 the last inputs: attr.num_addends of the type and size of output 0
 * dim        letter | sum | letter=sum            sum: products joined by +, and /x: in pieces of x, rounded up
 *            ending in `..`                       all remaining dims, as one
 * type       c compute type (fp32, bf16 or fp16, the same one wherever an instruction says c), f fp32, h bf16 or fp16, d fp64,
 *            i int32, u bytes, q blocks of int8 (tensor/q8.h), t any (the same one wherever it says t);
 *            alternatives by |
 *            i<x: integers below x (what tests draw; nothing looks at data)
 * letter     of the attributes: B num_seqs, T seq_len, P token_parts, H heads, KV kv_heads, D head_dim,
 *            R = (H + 2*KV)*D, F full_len, M num_keys, Q = slot_count if shares_kv, else 1, L length of split,
 *            E replica_rows, U block_rows, X blocks of a row of moments in
 *            8 bits, TR tile_rows, TC tile_cols; of a product's recipe (recipe.h) TM rows of an activation
 *            with one scale and TO its columns where these are no contraction, YK tiles of split, YN of split_out; of
 *            a quantiser NR length and YR tiles of row_split, NC and YC of col_split. Q8: numbers of a block of int8.
 *            Any other is what the first operand says where it stands.
 *
 * A letter that stands in a product only (x[N,2*A]) is solved for; what does not divide is refused.
 */
#ifndef ORTH_KERNELS_SIGNATURE_H
#define ORTH_KERNELS_SIGNATURE_H

#include "kernels/op.h"

#define ORTH_SIG_LETTERS 16
#define ORTH_SIG_FACTORS 6

typedef struct {
    int8_t letter;                      /* what stands before '=', or alone; -1 */
    int8_t num_terms, num_factors[2];
    int8_t factor[2][ORTH_SIG_FACTORS]; /* a letter; below 0: the number -factor */
    int8_t pieces;                      /* divides the sum, rounded up; -1: nothing does */
    bool rest;                          /* all remaining dims */
    const char *text;                   /* the sum as ops.def has it, */
    int8_t text_size;                   /* of so many characters */
} orth_sig_dim;

typedef struct {
    const char *name;
    int8_t name_size, num_dims, below;  /* below: letter that bounds integers; -1 */
    bool optional, step;
    char type[3];                       /* alternatives */
    orth_sig_dim dim[3];
} orth_sig_operand;

typedef struct {
    orth_op op;
    int32_t num_in, num_out;            /* addends apart */
    bool addends;
    orth_sig_operand in[ORTH_OP_MAX_IN / 2], out[ORTH_OP_MAX_OUT];
    int32_t num_letters;
    struct {
        const char *name;
        int8_t size, attr;              /* attr: which of the attributes; -1: none */
    } letter[ORTH_SIG_LETTERS];
} orth_signature;

/* The signature of a row of ops.def. */
void orth_signature_of(orth_op op, orth_signature *s);

/* Whether operands fit; num_dims 0: absent. If not, `why` says so: op, operand, letter, both values. */
bool orth_signature_fits(const orth_signature *s, const orth_attr *attr, const orth_tensor *in, int num_in,
                         const orth_tensor *out, int num_out, char *why, size_t size);

/* What the attributes say of a letter: `attr` of one. */
int64_t orth_signature_attr(const orth_attr *a, int attr);

/* The place of an input of this name; -1: the op has none. */
int orth_signature_input(const orth_signature *s, const char *name);
/* Of an op with addends: the input that is the leaf of a sum, after those that only say where it belongs (tokens). */
int orth_signature_leaf(const orth_signature *s);

/* The place of an output of this name; -1: the op has none. */
int orth_op_output(orth_op op, const char *name);

#endif
