/* memory.h -- how the C library manages memory: of a run, and where one program is compiled after the other. Before other threads. */
#ifndef ORTH_CLI_MEMORY_H
#define ORTH_CLI_MEMORY_H

/* Blocks of a MiB and more go back when they are freed. Left alone, the C library takes such blocks from heaps, too, once a large one was freed;
 * every thread has a heap, which keeps what is free at its end: 20 MB for each rank while weights were given their first values. */
void orth_return_freed_memory(void);

/* What the last program freed is used again, instead of being mapped and zeroed anew, which took a third of the time; and large pages where
 * offered, without which a quarter of a large plan was faults of pages. */
void orth_keep_freed_memory(void);

#endif
