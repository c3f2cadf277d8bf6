/* metrics.c -- see metrics.h. */
#include "train/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/json_out.h"
#include "report/tensorboard.h"

#define LINES_BYTES ((size_t)16 << 10) /* reserved: a line takes about 1 KB, so that none is lost for want of memory */

typedef struct {
    int64_t later, later_bytes;    /* of steps after the one that is resumed from */
    int64_t bad, bad_bytes, first_bad;
} dropped_lines;

/* Steps of which there is no line. */
typedef struct {
    int64_t last;                  /* the latest step that has one */
    int64_t num, first, end;       /* how many have none, and the first of them that follow each other: [first, end) */
} missing_steps;

static void miss_up_to(missing_steps *m, int64_t step)
{
    if (step <= m->last)
        return;
    if (m->num == 0 && step > m->last + 1) {
        m->first = m->last + 1;
        m->end = step;
    }
    m->num += step - m->last - 1;
    m->last = step;
}

/* Losses of other targets do not compare. The end scores all, and before it train.eval_batches are scored: the fewer targets are those scored often. */
static void note_evaluation(orth_metrics *m, int64_t step, double loss, double targets)
{
    m->evaluated_step = step;
    m->other_targets = m->other_targets || (m->best_step >= 0 && targets != m->best_targets);
    if (isfinite(loss) && (m->best_step < 0 || targets < m->best_targets || (targets == m->best_targets && loss < m->best_eval))) {
        m->best_eval = loss;
        m->best_targets = targets;
        m->best_step = step;
    }
}

/* The line of an evaluation begins {"step": N, "eval_loss": X, where X is null if it is not finite. */
static void take_evaluation(orth_metrics *m, const char *line, int64_t step)
{
    static const char key[] = "\"eval_targets\": ";
    double loss = NAN, targets = 0;
    int at = 0;
    sscanf(line, "{\"step\": %*d, \"eval_loss\": %n%lf", &at, &loss);
    const char *given = strstr(line, key);
    if (given)
        sscanf(given + sizeof key - 1, "%lf", &targets);
    if (at > 0)
        note_evaluation(m, step, loss, targets);
}

/* The line of a step begins {"step": N, "loss": */
static bool is_of_step(const char *line)
{
    int at = 0;
    sscanf(line, "{\"step\": %*d, \"loss\": %n", &at);
    return at > 0;
}

/* Keeps, in place, the lines of steps up to and including `step`; their bytes. Every line starts with {"step": N and ends with }; *m takes their evaluations. */
static size_t keep_lines(orth_metrics *m, char *text, size_t size, int64_t step, dropped_lines *dropped, missing_steps *missing)
{
    size_t keep = 0;
    int64_t number = 0;
    for (size_t at = 0, n; at < size; at += n) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        int64_t of = 0;
        char head[256]; /* sscanf would look for the end of all lines in each of them */
        n = end ? (size_t)(end - line) + 1 : size - at;
        number++;
        snprintf(head, sizeof head, "%.*s", (int)ORTH_MIN(n, sizeof head), line);
        const bool good = end && n > 2 && end[-1] == '}' && !memchr(line, '\0', n) && sscanf(head, "{\"step\": %" SCNd64, &of) == 1;
        if (good && of <= step) {
            take_evaluation(m, head, of);
            if (is_of_step(head))
                miss_up_to(missing, of);
            memmove(text + keep, line, n);
            keep += n;
        } else if (good) {
            dropped->later++;
            dropped->later_bytes += (int64_t)n;
        } else {
            dropped->first_bad = dropped->bad++ ? dropped->first_bad : number;
            dropped->bad_bytes += (int64_t)n;
        }
    }
    miss_up_to(missing, step + 1);
    return keep;
}

/* Nothing writes them again: the steps are done. */
static void tell_missing(orth_ctx *ctx, const char *path, const missing_steps *m)
{
    if (m->num == 0)
        return;
    char more[64] = "";
    const int64_t others = m->num - (m->end - m->first);
    if (others > 0)
        snprintf(more, sizeof more, ", and of %" PRId64 " later ones", others);
    if (m->end - m->first == 1)
        orth_log(ctx, ORTH_LOG_WARN, "metrics", "%s: the line of step %" PRId64 " is missing%s", path, m->first, more);
    else
        orth_log(ctx, ORTH_LOG_WARN, "metrics", "%s: lines of steps %" PRId64 " to %" PRId64 " are missing%s", path, m->first, m->end - 1, more);
}

static orth_status trim(orth_ctx *ctx, orth_metrics *m, const char *path, int64_t step)
{
    char *text;
    size_t size;
    dropped_lines d = {.later = 0};
    missing_steps missing = {.last = 0};
    if (!orth_path_exists(path)) {
        orth_log(ctx, ORTH_LOG_WARN, "metrics", "%s is gone: it begins anew after step %" PRId64, path, step);
        return ORTH_OK;
    }
    ORTH_TRY(orth_file_read(ctx, path, &text, &size));
    const size_t keep = keep_lines(m, text, size, step, &d, &missing);
    const orth_status s = keep < size ? orth_file_write(ctx, path, text, keep) : ORTH_OK;
    orth_mem_free(ctx, text);
    if (s == ORTH_OK && d.later > 0)
        orth_log(ctx, ORTH_LOG_INFO, "metrics", "%s: lines dropped: %" PRId64 " (%" PRId64 " bytes) of steps after %" PRId64 ", from "
                 "which the run goes on", path, d.later, d.later_bytes, step);
    if (s == ORTH_OK && d.bad > 0)
        orth_log(ctx, ORTH_LOG_WARN, "metrics", "%s: lines dropped: %" PRId64 " (%" PRId64 " bytes) that are cut short or damaged, "
                 "from line %" PRId64 " on", path, d.bad, d.bad_bytes, d.first_bad);
    if (s == ORTH_OK)
        tell_missing(ctx, path, &missing);
    return s;
}

/* The run goes on to its next checkpoint; the first failure is kept. */
static void keep_failure(orth_ctx *ctx, orth_metrics *m, const char *what)
{
    m->failed = ctx->error;
    orth_ctx_clear_error(ctx);
    const size_t n = strlen(m->failed.message);
    snprintf(m->failed.message + n, sizeof m->failed.message - n, " (%s)", what);
    orth_log(ctx, ORTH_LOG_WARN, "metrics", "%s: the run saves a checkpoint and ends", m->failed.message);
}

/* ---- lines of metrics.jsonl ---- */

static orth_json_out begin_json(orth_ctx *ctx, orth_metrics *m, int64_t step)
{
    orth_json_out j = {ctx, &m->lines};
    orth_json_open(&j, NULL, '{');
    orth_json_print(&j, "step", "%" PRId64, step);
    return j;
}

/* Of the wall clock, in seconds since 1970, and since this process opened the file. */
static void add_time(orth_json_out *j, const orth_metrics *m)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    orth_json_print(j, "time", "%.3f", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    orth_json_print(j, "elapsed_s", "%.3f", orth_clock_s() - m->opened_s);
}

/* Lines that could not be written stay, and go with the next one. */
static orth_status write_lines(orth_ctx *ctx, orth_metrics *m)
{
    if (m->lines.failed) { /* with what was in it: the next ones are whole again */
        orth_text_clear(&m->lines);
        return ORTH_ERR_NOMEM;
    }
    ORTH_TRY(orth_file_append(ctx, m->file, m->path, m->lines.s, m->lines.num_bytes));
    orth_text_clear(&m->lines);
    return ORTH_OK;
}

static void append(orth_json_out *j, orth_metrics *m, const char *what)
{
    orth_json_close(j, '}');
    orth_text_add(j->ctx, &m->lines, "\n");
    if (write_lines(j->ctx, m) == ORTH_OK)
        return;
    if (m->failed.code == ORTH_OK)
        keep_failure(j->ctx, m, what);
    else
        orth_ctx_clear_error(j->ctx);
}

static void add_events(orth_ctx *ctx, orth_metrics *m, int64_t step, const orth_scalar *scalars, int n)
{
    if (m->events && m->failed.code == ORTH_OK && orth_tensorboard_add(ctx, m->events, step, scalars, n) != ORTH_OK)
        keep_failure(ctx, m, "the event file for TensorBoard");
}

orth_status orth_metrics_finish(orth_ctx *ctx, orth_metrics *m)
{
    if (m->file && m->lines.num_bytes > 0 && write_lines(ctx, m) != ORTH_OK) /* the disk may have room again */
        orth_ctx_clear_error(ctx);                                           /* m->failed is the first failure */
    if (m->file && m->failed.code == ORTH_OK && orth_file_sync(ctx, fileno(m->file), m->path) != ORTH_OK)
        return ctx->error.code;
    const bool closed = !m->file || fclose(m->file) == 0;
    m->file = NULL;
    if (m->failed.code != ORTH_OK)
        return orth_fail(ctx, m->failed.code, m->failed.file, m->failed.line, "%s", m->failed.message);
    return closed ? ORTH_OK : orth_file_fail(ctx, m->path, "close");
}

static size_t terminal_columns(const orth_metrics *m)
{
    return m->print.write ? m->print.columns(m->print.user) : 0;
}

static void print_text(const orth_metrics *m, bool progress, const char *text)
{
    if (m->print.write && text[0])
        m->print.write(m->print.user, progress, text);
}

orth_status orth_metrics_open(orth_ctx *ctx, orth_metrics *m, const char *path, int64_t resume_step)
{
    m->best_step = m->evaluated_step = -1;
    if (resume_step >= 0)
        ORTH_TRY(trim(ctx, m, path, resume_step));
    m->path = path;
    if (!orth_text_reserve(ctx, &m->lines, LINES_BYTES))
        return ORTH_ERR_NOMEM;
    m->file = orth_file_stream(ctx, path, resume_step >= 0 ? "a" : "w");
    if (!m->file)
        return ctx->error.code;
    m->live = terminal_columns(m) > 0;
    m->opened_s = orth_clock_s();
    return ORTH_OK;
}

orth_status orth_metrics_open_events(orth_ctx *ctx, orth_metrics *m, const char *dir, int64_t steps_done)
{
    return orth_tensorboard_open(ctx, &m->events, dir, steps_done + 1);
}

/* What comes after the live line begins on a line of its own. */
static void end_line(orth_metrics *m)
{
    print_text(m, false, m->width > 0 ? "\n" : "");
    m->width = 0;
}

void orth_metrics_free_lines(orth_ctx *ctx, orth_metrics *m)
{
    orth_mem_free(ctx, m->lines.s);
    m->lines = (orth_text){0};
}

void orth_metrics_close(orth_metrics *m)
{
    if (m->file)
        fclose(m->file);
    if (m->events)
        fclose(m->events);
    m->file = m->events = NULL;
    end_line(m);
}

double orth_metrics_shown(double x)
{
    return isnan(x) ? (double)NAN : x;
}

/* ---- the line for people ---- */

enum { F_STEP, F_LOSS, F_NORM, F_LR, F_RATE, F_MFU, F_MEM, F_LEFT, F_SCALE, F_SKIPPED, NUM_FIELDS };
typedef char line_fields[NUM_FIELDS][48];

typedef struct {
    double tokens_per_s, mfu, hfu; /* mfu, hfu 0: not known */
    int64_t left_s;
} line_rates;

static void write_fields(const orth_metrics *m, const orth_step_result *r, const line_rates *t, line_fields f)
{
    const int64_t left = t->left_s;
    char mfu_text[32] = "     -";
    if (t->mfu > 0)
        snprintf(mfu_text, sizeof mfu_text, "%5.1f%%", 100 * t->mfu);
    snprintf(f[F_STEP], sizeof f[0], "step %6" PRId64 "/%" PRId64, r->step, m->steps);
    snprintf(f[F_LOSS], sizeof f[0], "  loss %8.4f", orth_metrics_shown(r->loss));
    snprintf(f[F_NORM], sizeof f[0], "  norm %8.3f", orth_metrics_shown(r->grad_norm));
    snprintf(f[F_LR], sizeof f[0], "  lr %.2e", r->lr);
    snprintf(f[F_RATE], sizeof f[0], "  %8.0f tok/s", t->tokens_per_s);
    snprintf(f[F_MFU], sizeof f[0], "  mfu %s", mfu_text);
    snprintf(f[F_MEM], sizeof f[0], "  mem %.0f MiB", ceil((double)m->peak_bytes / (double)(1 << 20)));
    snprintf(f[F_LEFT], sizeof f[0], "  left %" PRId64 ":%02" PRId64 ":%02" PRId64, left / 3600, left / 60 % 60, left % 60);
    if (r->loss_scale > 0)
        snprintf(f[F_SCALE], sizeof f[0], "  scale %g", r->loss_scale);
    snprintf(f[F_SKIPPED], sizeof f[0], "%s", r->skipped ? "  skipped" : "");
}

/* The same in few characters: all of it on the 80 columns that a terminal usually has. */
static void write_short_fields(const orth_metrics *m, const orth_step_result *r, const line_rates *t, line_fields f)
{
    const int64_t left = t->left_s;
    const double mib = (double)m->peak_bytes / (double)(1 << 20);
    snprintf(f[F_STEP], sizeof f[0], "%" PRId64 "/%" PRId64, r->step, m->steps);
    snprintf(f[F_LOSS], sizeof f[0], " loss %.4f", orth_metrics_shown(r->loss));
    snprintf(f[F_NORM], sizeof f[0], " norm %.3g", orth_metrics_shown(r->grad_norm));
    snprintf(f[F_LR], sizeof f[0], " lr %.2g", r->lr);
    snprintf(f[F_RATE], sizeof f[0], " %.0f tok/s", t->tokens_per_s);
    snprintf(f[F_MFU], sizeof f[0], t->mfu > 0 ? " mfu %.0f%%" : "", 100 * t->mfu);
    snprintf(f[F_MEM], sizeof f[0], mib < 1000 ? " %.0fMiB" : " %.1fGiB", mib < 1000 ? ceil(mib) : mib / 1024);
    if (left < 3600)
        snprintf(f[F_LEFT], sizeof f[0], " left %" PRId64 ":%02" PRId64, left / 60, left % 60);
    else
        snprintf(f[F_LEFT], sizeof f[0], " left %" PRId64 "h%02" PRId64, left / 3600, left / 60 % 60);
}

static size_t line_width(line_fields f)
{
    size_t width = 0;
    for (int i = 0; i < NUM_FIELDS; i++)
        width += strlen(f[i]);
    return width;
}

/* A line that wraps cannot be rewritten, so a narrow terminal gets shorter fields, and a narrower one fewer. It may
 * be resized at any time. Returns its columns. */
static size_t fit_terminal(const orth_metrics *m, const orth_step_result *r, const line_rates *t, line_fields f)
{
    static const int8_t less_and_less_important[] = {F_MEM, F_MFU, F_SCALE, F_LR, F_NORM, F_RATE, F_LEFT, F_LOSS};
    const size_t columns = terminal_columns(m);
    if (line_width(f) >= columns)
        write_short_fields(m, r, t, f);
    for (int i = 0; i < ORTH_COUNT(less_and_less_important) && line_width(f) >= columns; i++)
        f[less_and_less_important[i]][0] = '\0';
    return columns;
}

/* `stays`: the line ends, and what comes next goes below it; else, on a terminal, it is rewritten by the next one. */
static void print_line(orth_metrics *m, const orth_step_result *r, const line_rates *t, bool stays)
{
    line_fields f = {""};
    write_fields(m, r, t, f);
    const size_t columns = m->live ? fit_terminal(m, r, t, f) : 0;
    char line[NUM_FIELDS * sizeof f[0] + 512];
    size_t at = (size_t)snprintf(line, sizeof line, "%s", m->live ? "\r" : "");
    for (int i = 0; i < NUM_FIELDS; i++)
        at += (size_t)snprintf(line + at, sizeof line - at, "%s", f[i]);
    if (m->live) { /* what is left of a longer line goes under spaces: not every terminal knows how to clear */
        const size_t width = line_width(f), end = ORTH_MIN(m->width, columns - 1);
        at += (size_t)snprintf(line + at, sizeof line - at, "%*s", end > width ? (int)(end - width) : 0, "");
        m->width = stays ? 0 : width;
    }
    snprintf(line + at, sizeof line - at, "%s", stays ? "\n" : "");
    print_text(m, r->step < m->steps, line);
}

#define REFRESH_S 0.25 /* between two states of the live line */

/* A line every log_every steps, with means since the one before it; on a terminal also the state in between. */
static void show_step(orth_metrics *m, const orth_step_result *r, double seconds)
{
    const double now = orth_clock_s();
    m->window_loss += r->loss;
    m->window_s += seconds;
    m->window_steps++;
    const bool stays = r->step % m->log_every == 0 || r->step == m->steps;
    if (!m->print.write || (!stays && !(m->live && now - m->refreshed_s >= REFRESH_S)))
        return;
    const double mean_s = m->window_s / (double)m->window_steps;
    orth_step_result mean = *r;
    mean.loss = m->window_loss / (double)m->window_steps;
    const line_rates t = {.tokens_per_s = (double)m->plan.tokens / mean_s,
                          .mfu = m->peak_flops > 0 ? m->plan.cost.model_flops / mean_s / m->peak_flops : 0,
                          .left_s = (int64_t)((double)(m->steps - r->step) * m->smooth_s + 0.5)};
    print_line(m, &mean, &t, stays);
    m->refreshed_s = now;
    if (stays) {
        m->window_loss = m->window_s = 0;
        m->window_steps = 0;
    }
}

/* Bytes that were sent hardly ever change: they are written when they do. */
static void add_traffic(orth_json_out *j, orth_metrics *m, const orth_traffic *sent, const orth_traffic *sent_by_all)
{
    if (m->has_told && memcmp(sent, &m->told_sent, sizeof *sent) == 0 && memcmp(sent_by_all, &m->told_sent_by_all, sizeof *sent) == 0)
        return;
    orth_traffic_json(j, "comm_bytes", sent, false);
    orth_traffic_json(j, "comm_bytes_total", sent_by_all, false);
    orth_traffic_json(j, "comm_ring_total", sent_by_all, true);
    m->told_sent = *sent;
    m->told_sent_by_all = *sent_by_all;
    m->has_told = true;
}

/* Likewise. */
static void add_peak(orth_json_out *j, orth_metrics *m)
{
    if (m->peak_bytes != m->told_peak_bytes)
        orth_json_print(j, "peak_bytes", "%zu", m->peak_bytes);
    m->told_peak_bytes = m->peak_bytes;
}

/* Groups that took time. */
static void add_exposed(orth_json_out *j, const double exposed_s[ORTH_NUM_GROUPS])
{
    orth_json_open(j, "exposed_comm_s", '{');
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (exposed_s[g] > 0)
            orth_json_print(j, orth_group_name((orth_group)g), "%.6f", exposed_s[g]);
    orth_json_close(j, '}');
}

static void add_step(orth_json_out *j, const orth_metrics *m, const orth_step_result *r, double seconds, const line_rates *t)
{
    orth_json_number(j, "loss", r->loss);
    orth_json_hex(j, "loss_hex", orth_metrics_shown(r->loss));
    orth_json_number(j, "grad_norm", r->grad_norm);
    orth_json_number(j, "lr", r->lr);
    if (r->loss_scale > 0)
        orth_json_number(j, "loss_scale", r->loss_scale);
    orth_json_print(j, "tokens", "%" PRId64, m->plan.tokens);
    orth_json_print(j, "step_time_s", "%.6f", seconds);
    add_time(j, m);
    orth_json_print(j, "tokens_per_s", "%.1f", t->tokens_per_s);
    orth_json_print(j, "mfu", "%.4f", t->mfu);
    orth_json_print(j, "hfu", "%.4f", t->hfu);
}

void orth_metrics_step(orth_ctx *ctx, orth_metrics *m, const orth_step_result *r, double seconds, int64_t first, int64_t end,
                       const orth_traffic *sent, const orth_traffic *sent_by_all, const double exposed_s[ORTH_NUM_GROUPS])
{
    const double peak = m->peak_flops > 0 ? m->peak_flops : INFINITY;
    const line_rates rates = {.tokens_per_s = (double)m->plan.tokens / seconds,
                              .mfu = m->plan.cost.model_flops / seconds / peak, .hfu = m->plan.cost.hardware_flops / seconds / peak};
    char what[48];
    orth_json_out j = begin_json(ctx, m, r->step);
    m->smooth_s = m->smooth_s > 0 ? 0.9 * m->smooth_s + 0.1 * seconds : seconds;
    for (int g = 0; g < ORTH_NUM_GROUPS && m->num_steps > 0; g++)
        m->exposed_s[g] += exposed_s[g];
    m->after_first_s += m->num_steps++ > 0 ? seconds : 0;
    add_step(&j, m, r, seconds, &rates);
    add_peak(&j, m);
    add_traffic(&j, m, sent, sent_by_all);
    add_exposed(&j, exposed_s);
    orth_json_bool(&j, "skipped", r->skipped);
    orth_json_print(&j, "samples", "[%" PRId64 ", %" PRId64 "]", first, end);
    snprintf(what, sizeof what, "the line of step %" PRId64, r->step);
    append(&j, m, what);
    const orth_scalar scalars[] = {{"loss", r->loss}, {"grad_norm", r->grad_norm}, {"lr", r->lr}, {"tokens_per_s", rates.tokens_per_s},
                                   {"mfu", rates.mfu}, {"loss_scale", r->loss_scale}};
    add_events(ctx, m, r->step, scalars, ORTH_COUNT(scalars) - !(r->loss_scale > 0));
    show_step(m, r, seconds);
}

void orth_metrics_evaluation(orth_ctx *ctx, orth_metrics *m, const orth_eval_figures *e)
{
    char text[256];
    orth_json_out j = begin_json(ctx, m, e->step);
    orth_json_number(&j, "eval_loss", e->loss);
    orth_json_hex(&j, "eval_loss_hex", e->loss);
    orth_json_number(&j, "eval_bits_per_byte", e->bits_per_byte);
    orth_json_print(&j, "eval_targets", "%.0f", e->num_targets);
    add_time(&j, m);
    append(&j, m, "an evaluation");
    snprintf(text, sizeof text, "eval %6" PRId64 "  loss %8.4f  perplexity %.3f  bits per byte %.4f  (%.0f targets)", e->step, e->loss,
             exp(e->loss), e->bits_per_byte, e->num_targets);
    note_evaluation(m, e->step, e->loss, e->num_targets);
    const orth_scalar scalars[] = {{"eval/loss", e->loss}, {"eval/bits_per_byte", e->bits_per_byte}};
    add_events(ctx, m, e->step, scalars, ORTH_COUNT(scalars));
    orth_metrics_event(m, text);
}

void orth_metrics_override(orth_ctx *ctx, orth_metrics *m, int64_t step, const char *key, const char *was, const char *now)
{
    char text[512];
    orth_json_out j = begin_json(ctx, m, step);
    orth_json_string(&j, "override", key);
    orth_json_string(&j, "was", was);
    orth_json_string(&j, "now", now);
    add_time(&j, m);
    append(&j, m, "an override");
    snprintf(text, sizeof text, "override after step %" PRId64 ": %s is %.150s, was %.150s", step, key, now, was);
    orth_metrics_event(m, text);
}

void orth_metrics_communication(orth_metrics *m)
{
    char text[512], parts[384] = "";
    double sum = 0;
    size_t at = 0;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        if (m->exposed_s[g] <= 0)
            continue;
        sum += m->exposed_s[g];
        at += (size_t)snprintf(parts + at, sizeof parts - at, "%s%s %.2f %%", at ? ", " : "",
                               orth_group_name((orth_group)g), 100 * m->exposed_s[g] / m->after_first_s);
    }
    if (at == 0)
        return;
    snprintf(text, sizeof text, "rank 0 waited for communication in %.2f %% of the time of the steps after the first (%s)",
             100 * sum / m->after_first_s, parts);
    orth_metrics_event(m, text);
}

void orth_metrics_summary(orth_metrics *m, const char *dir, int64_t steps_done)
{
    char text[512], best[160] = "", of[64] = "";
    const int64_t s = (int64_t)(orth_clock_s() - m->opened_s + 0.5);
    if (m->other_targets)
        snprintf(of, sizeof of, " (of those over %.0f targets)", m->best_targets);
    if (m->best_step >= 0)
        snprintf(best, sizeof best, "; best evaluation: loss %.4f after step %" PRId64 "%s", m->best_eval, m->best_step, of);
    snprintf(text, sizeof text, "done: step %" PRId64 "; %" PRId64 " steps, %" PRId64 " tokens in %" PRId64 ":%02" PRId64 ":%02" PRId64 "%s",
             steps_done, m->num_steps, m->num_steps * m->plan.tokens, s / 3600, s / 60 % 60, s % 60, best);
    orth_metrics_event(m, text);
    snprintf(text, sizeof text, "next: orthant generate %.200s --prompt='...'", dir);
    orth_metrics_event(m, text);
}

void orth_metrics_event(orth_metrics *m, const char *text)
{
    char line[2048];
    orth_text_escape(line, sizeof line - 1, text);
    strcat(line, "\n");
    end_line(m);
    print_text(m, false, line);
}
