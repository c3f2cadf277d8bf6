/* print_token.c -- see print_token.h. */
#include "cli/print_token.h"

#include <stdio.h>

void orth_print_token(const char *bytes, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c < 0x20 || c >= 0x7F || c == '"' || c == '\\')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}
