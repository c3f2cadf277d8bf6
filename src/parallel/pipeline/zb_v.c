/* zb_v.c -- two chunks per rank, down the ranks and up again, weight gradients in the gaps.
 *
 * Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, appendix (ZB-V), and "Pipeline
 * Parallelism with Controllable Memory", arXiv:2405.15362 (schedules as a repeated building block).
 *
 *   placement, p = 3:   rank 0: chunks 0, 5    rank 1: 1, 4    rank 2: 2, 3
 *
 * The last rank has both the middle chunks, the first one has embedding and head.
 *
 * 1. Order of F and BI. A building block says when each of the four happens to micro-batch 0, in units of
 *    one action; micro-batch j follows 6*j later (an action of each kind on each chunk: 6 units of work):
 *        F down  at r               F up  at p + 5*(p-1-r)
 *        BI up   one after F up on rank 0, then + r
 *        BI down one after BI up on rank p-1, then + 5*(p-1-r)
 *    Modulo 6 these are r, r+1, r+2, r+3: blocks never collide. F to BI down takes 12*p units in all, so 2*p
 *    chunks (p stages: as 1F1B) are in flight on each rank.
 * 2. W goes where the rank would otherwise wait, or when 2*p chunks are in flight: found by running the
 *    order of step 1 in unit time.
 *
 * Bubble: (p-1)*t_F of a chunk (half a stage), for m >= p and t_F = t_BI = t_W: the least that this placement
 * allows, since the last rank has nothing to do before. In flight: at most min(2*m, 2*p) chunks.
 */
#include "parallel/pipeline/emit.h"

typedef struct {
    orth_emitter *e;
    int p, m;
    int32_t *clock;      /* [p] where each rank is in the building blocks */
    int32_t *in_flight;  /* [p] */
    int32_t *num_w;      /* [p] weight gradients emitted */
    int32_t *num_bi;     /* [p] */
    orth_action *queue;  /* [p][2*m] input gradients in the order they were made */
    int32_t *done_f;     /* [2*p][m] time from which the output can be used; 0: not done */
    int32_t *done_bi;    /* [2*p][m] */
} zb_v;

/* Step 1: the next F or BI of rank r in the order of the building blocks; false past the last. */
static bool next_ordered(const zb_v *z, int r, orth_action *out)
{
    const int p = z->p, up = 2 * p - 1 - r;
    const int f_up_first = p + 5 * (p - 1), bi_up_last = f_up_first + p;
    const struct {
        orth_action_kind kind;
        int chunk, begin;
    } block[4] = {{ORTH_ACTION_F, r, r},
                  {ORTH_ACTION_F, up, p + 5 * (p - 1 - r)},
                  {ORTH_ACTION_BI, up, f_up_first + 1 + r},
                  {ORTH_ACTION_BI, r, bi_up_last + 1 + 5 * (p - 1 - r)}};
    const int end = block[3].begin + 6 * z->m; /* BI down is last for every micro-batch */
    for (; z->clock[r] < end; z->clock[r]++) {
        for (int k = 0; k < 4; k++) {
            const int since = z->clock[r] - block[k].begin;
            if (since >= 0 && since % 6 == 0 && since / 6 < z->m) {
                *out = (orth_action){block[k].kind, block[k].chunk, since / 6, 0};
                return true;
            }
        }
    }
    return false;
}

/* Whether a's input is there at `now`, and its memory. */
static bool can_run(const zb_v *z, int r, const orth_action *a, int now)
{
    const int m = z->m, last = 2 * z->p - 1;
    int32_t ready;
    if (a->kind == ORTH_ACTION_F) {
        if (z->in_flight[r] >= 2 * z->p)
            return false;
        if (a->chunk == 0)
            return true;
        ready = z->done_f[(a->chunk - 1) * m + a->micro_batch];
    } else {
        ready = a->chunk == last ? z->done_f[a->chunk * m + a->micro_batch]
                                 : z->done_bi[(a->chunk + 1) * m + a->micro_batch];
    }
    return ready > 0 && ready <= now;
}

static void run(zb_v *z, int r, const orth_action *a, int now)
{
    orth_emit(z->e, r, a->kind, a->chunk, a->micro_batch);
    if (a->kind == ORTH_ACTION_W) {
        z->in_flight[r]--;
        return;
    }
    const int64_t i = (int64_t)a->chunk * z->m + a->micro_batch;
    z->clock[r]++;
    if (a->kind == ORTH_ACTION_F) {
        z->in_flight[r]++;
        z->done_f[i] = now + 1;
    } else {
        z->queue[(int64_t)r * 2 * z->m + z->num_bi[r]++] = *a;
        z->done_bi[i] = now + 1;
    }
}

/* Step 2. */
static orth_status fill(orth_ctx *ctx, zb_v *z)
{
    const int p = z->p, m = z->m;
    int64_t left = (int64_t)6 * p * m;
    for (int now = 1; left > 0; now++) {
        /* No order can wait longer than this; the check of the lists would name the place. */
        if (now > 6 * m * p + 12 * p)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "zb-v: the schedule of p=%d, m=%d does not terminate", p, m);
        for (int r = 0; r < p; r++) {
            orth_action a;
            bool found = next_ordered(z, r, &a) && can_run(z, r, &a, now);
            if (!found && z->num_w[r] < z->num_bi[r]) {
                a = z->queue[(int64_t)r * 2 * m + z->num_w[r]++];
                a.kind = ORTH_ACTION_W;
                found = true;
            }
            if (!found)
                continue;
            run(z, r, &a, now);
            left--;
        }
    }
    return ORTH_OK;
}

orth_status orth_emit_zb_v(orth_ctx *ctx, orth_emitter *e)
{
    const int64_t p = e->num_ranks, m = e->num_micro_batches;
    orth_arena scratch = {0};
    zb_v z = {.e = e, .p = (int)p, .m = (int)m};
    for (int c = (int)p; c < 2 * p; c++)
        e->chunk_rank[c] = (int)(2 * p - 1 - c);
    z.clock = ORTH_ARENA_ARRAY(ctx, &scratch, int32_t, p);
    z.in_flight = ORTH_ARENA_ARRAY(ctx, &scratch, int32_t, p);
    z.num_w = ORTH_ARENA_ARRAY(ctx, &scratch, int32_t, p);
    z.num_bi = ORTH_ARENA_ARRAY(ctx, &scratch, int32_t, p);
    z.queue = ORTH_ARENA_ARRAY(ctx, &scratch, orth_action, 2 * p * m);
    z.done_f = ORTH_ARENA_ARRAY(ctx, &scratch, int32_t, 2 * p * m);
    z.done_bi = ORTH_ARENA_ARRAY(ctx, &scratch, int32_t, 2 * p * m);
    orth_status status = ORTH_ERR_NOMEM;
    if (z.clock && z.in_flight && z.num_w && z.num_bi && z.queue && z.done_f && z.done_bi)
        status = fill(ctx, &z);
    orth_arena_release(ctx, &scratch);
    return status;
}
