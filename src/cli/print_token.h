/* print_token.h -- the bytes of a token as a part of a line. */
#ifndef ORTH_CLI_PRINT_TOKEN_H
#define ORTH_CLI_PRINT_TOKEN_H

#include <stddef.h>

/* Prints them to standard output; double quotes, backslashes and all but printable ASCII become \xNN. */
void orth_print_token(const char *bytes, size_t num_bytes);

#endif
