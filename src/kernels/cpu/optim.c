/* optim.c -- optimizer steps: one pass over memory, in ranges shared out dynamically.
 *
 * What is kept in 16 bits goes through a tile of fp32, on which the same loop runs; moments in 8 bits, block by block.
 */
#include "base/pool.h"
#include "kernels/cpu/rows.h"
#include "kernels/moments8.h"
#include "kernels/round.h"

#define CHUNK 16384 /* elements: 0.5 MB of traffic under AdamW */
#define TILE 256    /* elements; even, and a block of moments fits */

typedef struct {
    void (*step)(const rows_optim_args *a, int64_t begin, int64_t n);
    rows_optim_args args;
    int64_t n;
    const orth_op_call *call;
    const orth_rows *rows;
    bool narrow;               /* some of p, m, v have 16 bits */
    int num_kept;              /* p, m (of sgd without momentum absent), and of Adam v: the first outputs */
    const orth_dynamic_map *map; /* of m and v in 8 bits; NULL: they are numbers */
    int64_t blocks, task_rows; /* then: of a row; of a task */
} optim_job;

_Static_assert(ORTH_MOMENT_BLOCK <= TILE, "a block is a tile");

/* Elements [first, first + n) of the whole parameter; bits[0] is for the first of them. */
static void round_at_random(orth_bf16 *kept, const float *x, const uint16_t *bits, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        uint32_t u;
        memcpy(&u, x + k, sizeof u);
        const bool finite = (u & 0x7f800000u) != 0x7f800000u; /* orth_bf16_stochastic, for vectors */
        const uint32_t nan = (u & 0x7fffffffu) > 0x7f800000u ? 0x400000u : 0;
        kept[k] = (orth_bf16)((finite ? u + bits[k] : u | nan) >> 16);
    }
}

/* Draws of COUNTERS pairs: bits[what][e] is for element 2*first + e. */
#define COUNTERS 16
static void draw_pairs(uint16_t bits[3][2 * COUNTERS], const orth_step_values *step, int64_t param, int64_t first)
{
    for (int l = 0; l < COUNTERS; l++) {
        const orth_rand4 draw = orth_round_draw(step, param, first + l);
        for (int e = 0; e < 2; e++)
            for (int what = 0; what < 3; what++)
                bits[what][2 * l + e] = (uint16_t)orth_round_bits(&draw, e, (orth_round_what)what);
    }
}

/* Branches outside of the loop, which a compiler then makes vectors of. */
static void widen(float *x, const orth_tensor *t, int64_t i, int64_t n)
{
    if (t->dtype == ORTH_F32)
        memcpy(x, (const float *)t->data + i, (size_t)n * sizeof *x);
    else if (t->dtype == ORTH_BF16)
        for (int64_t k = 0; k < n; k++)
            x[k] = orth_bf16_to_f32(((const orth_bf16 *)t->data)[i + k]);
    else
        for (int64_t k = 0; k < n; k++)
            x[k] = orth_f16_to_f32(((const orth_f16 *)t->data)[i + k]);
}

static void round_to_nearest(const optim_job *j, const orth_tensor *t, const float *x, int64_t i, int64_t n)
{
    if (t->dtype == ORTH_F32)
        memcpy((float *)t->data + i, x, (size_t)n * sizeof *x);
    else
        j->rows->cast((uint16_t *)t->data + i, x, n, t->dtype);
}

/* What a tile has computed, back to elements [i, i + n). */
static void keep(const optim_job *j, float tile[3][TILE], int64_t i, int64_t n)
{
    const orth_attr *a = j->call->attr;
    for (int64_t done = 0; done < n;) {
        int64_t run;
        const int64_t first = a->stochastic ? orth_elem_in_whole(&a->place, i + done, &run) : (run = n, 0);
        uint16_t bits[3][2 * COUNTERS];
        const int skip = (int)(first & 1);
        run = ORTH_MIN(run, n - done);
        if (a->stochastic) {
            run = ORTH_MIN(run, 2 * COUNTERS - skip);
            draw_pairs(bits, j->call->in[1].data, a->place.param, first / 2);
        }
        for (int t = 0; t < (j->map ? 1 : j->num_kept); t++) {
            const orth_tensor *out = &j->call->out[t];
            if (!out->data)
                continue;
            if (a->stochastic && out->dtype == ORTH_BF16)
                round_at_random((orth_bf16 *)out->data + i + done, tile[t] + done, bits[t] + skip, run);
            else
                round_to_nearest(j, out, tile[t] + done, i + done, run);
        }
        done += run;
    }
}

static void decode(float *x, const orth_dynamic_map *map, const uint8_t *code, float scale, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        x[k] = orth_dynamic_value(map, code[k], scale);
}

/* scales: of the block that these elements are; NULL: moments are numbers. */
static void narrow_step(const optim_job *j, int64_t i, int64_t n, float *scales)
{
    float tile[3][TILE];
    rows_optim_args args = j->args;
    for (int t = 0; t < j->num_kept; t++)
        if (scales && t > 0)
            decode(tile[t], &j->map[t - 1], (const uint8_t *)j->call->out[t].data + i, scales[t - 1], n);
        else if (j->call->out[t].data)
            widen(tile[t], &j->call->out[t], i, n);
    args.g += i;
    args.p = tile[ORTH_ROUND_WEIGHT];
    args.m = args.m ? tile[ORTH_ROUND_M] : NULL;
    args.v = j->num_kept > ORTH_ROUND_V ? tile[ORTH_ROUND_V] : NULL;
    args.copy = args.copy ? (char *)args.copy + (size_t)i * rows_bytes(args.copy_type) : NULL;
    j->step(&args, 0, n);
    keep(j, tile, i, n);
    for (int t = 1; scales && t < j->num_kept; t++) {
        scales[t - 1] = j->rows->amax(tile[t], n, ORTH_F32);
        orth_dynamic_codes(&j->map[t - 1], (uint8_t *)j->call->out[t].data + i, tile[t], n, scales[t - 1]);
    }
}

static void blocks_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const optim_job *j = arg;
    const int64_t rows = j->call->out[0].dim[0], cols = j->call->out[0].dim[1];
    const int64_t from = t * j->task_rows, to = ORTH_MIN(rows, from + j->task_rows);
    for (int64_t b = from * j->blocks; b < to * j->blocks; b++) {
        int64_t begin, end;
        orth_moment_block(&j->call->attr->split, b % j->blocks, &begin, &end);
        narrow_step(j, b / j->blocks * cols + begin, end - begin, (float *)j->call->out[4].data + b * ORTH_BLOCK_SCALES);
    }
}

/* The step is left out: the copy is what it was made of, tile by tile. */
static void copy_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const optim_job *j = arg;
    const int64_t end = ORTH_MIN(j->n, (t + 1) * CHUNK);
    float tile[TILE];
    for (int64_t i = t * CHUNK; i < end; i += TILE) {
        const int64_t n = ORTH_MIN(TILE, end - i);
        widen(tile, &j->call->out[0], i, n);
        j->rows->cast((uint16_t *)j->args.copy + i, tile, n, j->args.copy_type);
    }
}

static void optim_task(void *arg, int64_t t, int worker)
{
    (void)worker;
    const optim_job *j = arg;
    const int64_t end = ORTH_MIN(j->n, (t + 1) * CHUNK);
    if (!j->narrow)
        j->step(&j->args, t * CHUNK, end - t * CHUNK);
    for (int64_t i = t * CHUNK; j->narrow && i < end; i += TILE)
        narrow_step(j, i, ORTH_MIN(TILE, end - i), NULL);
}

static orth_status blocks_run(orth_ctx *ctx, optim_job *job)
{
    orth_dynamic_map map[2];
    orth_dynamic_map_make(&map[0], true);
    orth_dynamic_map_make(&map[1], false);
    job->map = map;
    job->blocks = orth_moment_row_blocks(&job->call->attr->split);
    job->task_rows = ORTH_MAX(CHUNK / job->call->out[0].dim[1], 1);
    orth_pool_run(ctx->pool, orth_div_up(job->call->out[0].dim[0], job->task_rows), blocks_task, job);
    return ORTH_OK;
}

/* p, m and perhaps v, then `copy` at out[copy]; moments in 8 bits: and scales. */
static orth_status optim_run(orth_ctx *ctx, const orth_op_call *call, int copy,
                             void (*fn)(const rows_optim_args *, int64_t, int64_t))
{
    const orth_step_values *step = call->in[1].data;
    optim_job job = {
        fn,
        {.o = orth_optim_values_make(call->attr, step), .g = call->in[0].data, .p = call->out[0].data,
         .m = call->out[1].data, .v = copy == 3 ? call->out[2].data : NULL, .copy = call->out[copy].data, .copy_type = call->out[copy].dtype},
        orth_tensor_elems(&call->out[0]),
        .call = call, .rows = orth_rows_for(ctx->isa), .num_kept = copy,
    };
    if (step->skip || step->bad) {
        if (call->out[copy].data)
            orth_pool_run(ctx->pool, orth_div_up(job.n, CHUNK), copy_task, &job);
        return ORTH_OK;
    }
    if (copy == 3 && call->num_out == 5)
        return blocks_run(ctx, &job);
    for (int t = 0; t < copy; t++)
        job.narrow = job.narrow || (call->out[t].data && call->out[t].dtype != ORTH_F32);
    orth_pool_run(ctx->pool, orth_div_up(job.n, CHUNK), optim_task, &job);
    return ORTH_OK;
}

orth_status orth_cpu_adamw(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 3, orth_rows_for(ctx->isa)->adamw);
}

orth_status orth_cpu_adam(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 3, orth_rows_for(ctx->isa)->adam);
}

orth_status orth_cpu_sgd(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 2, orth_rows_for(ctx->isa)->sgd);
}

orth_status orth_cpu_adamw_8bit(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 3, orth_rows_for(ctx->isa)->adamw);
}

orth_status orth_cpu_adam_8bit(orth_ctx *ctx, const orth_op_call *call)
{
    return optim_run(ctx, call, 3, orth_rows_for(ctx->isa)->adam);
}
