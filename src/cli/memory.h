/* memory.h -- how the C library manages memory where one program is compiled after the other. */
#ifndef ORTH_CLI_MEMORY_H
#define ORTH_CLI_MEMORY_H

/* What the last program freed is used again, instead of being mapped and zeroed anew, which took a third of the time; and large pages where
 * offered, without which a quarter of a large plan was faults of pages. Before other threads. */
void orth_keep_freed_memory(void);

#endif
