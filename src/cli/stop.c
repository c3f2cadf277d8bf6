/* stop.c -- see stop.h. */
#include "cli/stop.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Verbs that end at a place of their own, with the word that comes first; NULL: any. */
static const struct {
    const char *verb, *word;
} asked[] = {{"train", NULL}, {"verify", NULL}, {"eval", NULL}, {"data", "prepare"}, {"tokenizer", "train"}};

static int pending(void *user)
{
    orth_stop *s = user;
    const struct timespec now = {0, 0};
    const int got = s->got ? s->got : sigtimedwait(&s->set, NULL, &now);
    if (got > 0)
        s->got = got;
    return s->got;
}

void orth_stop_watch(orth_ctx *ctx, orth_stop *stop, const orth_cmd *cmd)
{
    const char *word = cmd->num_words > 0 ? cmd->words[0] : "";
    int i = 0;
    while (i < ORTH_COUNT(asked) && (strcmp(asked[i].verb, cmd->verb) != 0 || (asked[i].word && strcmp(asked[i].word, word) != 0)))
        i++;
    if (i == ORTH_COUNT(asked))
        return;
    stop->got = 0;
    sigemptyset(&stop->set);
    sigaddset(&stop->set, SIGINT);
    sigaddset(&stop->set, SIGTERM);
    sigaddset(&stop->set, SIGUSR1);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* which nohup has it be */
        sigaddset(&stop->set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &stop->set, NULL);
    ctx->stop = pending;
    ctx->stop_user = stop;
}
