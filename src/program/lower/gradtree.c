/* gradtree.c -- see gradtree.h. */
#include "program/lower/gradtree.h"

int64_t orth_gradtree_run(int64_t begin, int64_t end)
{
    int64_t run = 1;
    while (begin % (2 * run) == 0 && begin + 2 * run <= end)
        run *= 2;
    return run;
}

int32_t orth_gradtree_push(orth_gradtree *t, int64_t size, bool last, int32_t *addends, int32_t *num_addends)
{
    int32_t n = 0;
    int64_t begin = t->next;
    t->next += size;
    while (t->depth > 0 && (last || (t->size[t->depth - 1] == size && begin % (2 * size) == size))) {
        addends[n++] = --t->depth;
        begin -= t->size[t->depth];
        size += t->size[t->depth];
    }
    *num_addends = n;
    t->size[t->depth] = size;
    return t->depth++;
}

int32_t orth_gradtree_push_running(orth_gradtree *t, int64_t size, int32_t *addends, int32_t *num_addends)
{
    *num_addends = t->next > 0;
    addends[0] = 0;
    t->next += size;
    t->size[0] = t->next;
    t->depth = 1;
    return 0;
}
