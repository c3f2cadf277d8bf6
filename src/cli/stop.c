/* stop.c -- see stop.h. */
#include "cli/stop.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "ckpt/folder.h"

#define LOOK_MOST_NS 1000000000ll /* at the folder of checkpoints, whose file system may hang, which may be why the run is to end */
#define SECOND_NS 1000000000ll    /* nearer together, two signals are one: launchers and terminals both send it */

/* Verbs that end at a place of their own, with the word that comes first; NULL: any. */
static const struct {
    const char *verb, *word;
} asked[] = {{"train", NULL}, {"verify", NULL}, {"eval", NULL}, {"data", "prepare"}, {"tokenizer", "train"}};

static int pending(void *user)
{
    orth_stop *s = user;
    return s->got;
}

/* A look at the checkpoints by a thread of its own, which may not come back. */
typedef struct {
    const orth_stop *stop;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool done;                    /* under mutex */
    char newest[1024];            /* what a run that is cut off leaves: "the newest checkpoint is ..."; of the thread until it is done */
} look;

static void put_newest(const orth_stop *s, char *text, size_t n)
{
    orth_ctx ctx = {.rank = 0}; /* of this thread */
    int64_t *steps = NULL, num = 0;
    char *dir = s->run_dir ? orth_path_join(&ctx, s->run_dir, "checkpoints") : NULL;
    if (!dir)
        snprintf(text, n, "nothing of the work is kept");
    else if (orth_checkpoint_list(&ctx, dir, &steps, &num) != ORTH_OK || num == 0)
        snprintf(text, n, "there is no checkpoint in %s yet", dir);
    else
        snprintf(text, n, "the newest checkpoint is %s/step-%08" PRId64 ", --resume continues from it", dir, steps[0]);
    orth_mem_free(&ctx, steps);
    orth_mem_free(&ctx, dir);
}

static void *look_main(void *arg)
{
    look *l = arg;
    put_newest(l->stop, l->newest, sizeof l->newest);
    pthread_mutex_lock(&l->mutex);
    l->done = true;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* False: it is not known within LOOK_MOST_NS. */
static bool find_newest(look *l)
{
    pthread_t thread;
    const struct timespec until = orth_clock_deadline(LOOK_MOST_NS);
    pthread_mutex_init(&l->mutex, NULL);
    orth_clock_cond_init(&l->ended);
    if (pthread_create(&thread, NULL, look_main, l) != 0)
        return false;
    pthread_mutex_lock(&l->mutex);
    while (!l->done && pthread_cond_timedwait(&l->ended, &l->mutex, &until) == 0)
        ;
    const bool done = l->done;
    pthread_mutex_unlock(&l->mutex);
    return done;
}

/* Whoever sends a signal twice does not want to wait for a reader, or for a disk, either. */
static void end_at_once(const orth_stop *s, int signal)
{
    char line[1200];
    look l = {.stop = s};
    const char *newest = find_newest(&l) ? l.newest : "its checkpoints cannot be listed: their file system does not answer, --resume continues from the newest";
    const int n = snprintf(line, sizeof line, "orthant: ended at once by a second %s; %s\n", orth_signal_name(signal), newest);
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t written = poll(&err, 1, 100) > 0 ? write(STDERR_FILENO, line, (size_t)n) : 0;
    (void)written;
    _exit(signal == SIGINT ? 130 : 143);
}

static void *listen_main(void *arg)
{
    orth_stop *s = arg;
    int64_t first_ns = 0;
    for (int got; sigwait(&s->set, &got) == 0;) {
        if (s->got == 0) {
            first_ns = orth_clock_ns();
            s->got = got;
        } else if ((got == SIGINT || got == SIGTERM) && orth_clock_ns() - first_ns >= SECOND_NS) {
            end_at_once(s, got);
        }
    }
    return NULL;
}

orth_status orth_stop_on_signals(orth_ctx *ctx, orth_stop *stop, const orth_cmd *cmd)
{
    const char *word = cmd->num_words > 0 ? cmd->words[0] : "";
    pthread_t listener;
    int i = 0;
    while (i < ORTH_COUNT(asked) && (strcmp(asked[i].verb, cmd->verb) != 0 || (asked[i].word && strcmp(asked[i].word, word) != 0)))
        i++;
    if (i == ORTH_COUNT(asked))
        return ORTH_OK;
    stop->got = 0;
    stop->run_dir = strcmp(cmd->verb, "train") == 0 ? cmd->config.checkpoint_dir : NULL;
    sigemptyset(&stop->set);
    sigaddset(&stop->set, SIGINT);
    sigaddset(&stop->set, SIGTERM);
    sigaddset(&stop->set, SIGUSR1);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup has the signal ignored: keep that */
        sigaddset(&stop->set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &stop->set, NULL);
    if (pthread_create(&listener, NULL, listen_main, stop) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused the thread that waits for signals");
    pthread_detach(listener);
    ctx->stop = pending;
    ctx->stop_user = stop;
    return ORTH_OK;
}
