/* gemm_library.h -- products that a library multiplies (numerics.mode: fast): oneDNN, where CMake found it.
 *
 * The products of a program are announced while it is set up; orth_gemm then sends each of them to the
 * library if that is the faster one, cut into tasks that the rank's pool shares out. The sums are in the
 * library's order, so their bits are those of no definition here; the epilogue is Orthant's.
 * Nothing is allocated after set-up. One library per rank: ranks share nothing.
 */
#ifndef ORTH_KERNELS_GEMM_LIBRARY_H
#define ORTH_KERNELS_GEMM_LIBRARY_H

#include "kernels/gemm.h"

typedef enum {
    ORTH_GEMM_LIBRARY_FASTER,       /* only products that it is known to multiply faster */
    ORTH_GEMM_LIBRARY_ALL           /* tests and benchmarks */
} orth_gemm_library_use;

#if defined(ORTH_HAVE_DNNL)

/* Sets ctx->gemm_library. ORTH_ERR_NOMEM. */
orth_status orth_gemm_library_open(orth_ctx *ctx, orth_gemm_library_use use);
void orth_gemm_library_close(orth_ctx *ctx);            /* also where none is open */

/* Announces a product: sizes, strides, types and which pointers are NULL count, addresses do not. Without
 * an open library it does nothing. ORTH_ERR_NOMEM. */
orth_status orth_gemm_library_add(orth_ctx *ctx, const orth_gemm_desc *g);

/* Runs g if it was announced and taken: *done says so. */
orth_status orth_gemm_library_run(orth_ctx *ctx, const orth_gemm_desc *g, bool *done);

/* What the library holds for scratch, on all threads together; and how many products it has taken. */
size_t orth_gemm_library_bytes(const orth_ctx *ctx);
int orth_gemm_library_products(const orth_ctx *ctx);

/* "oneDNN 2.6.3"; "" without one. */
void orth_gemm_library_version(char *out, size_t num_bytes);

#else

static inline orth_status orth_gemm_library_open(orth_ctx *ctx, orth_gemm_library_use use)
{
    (void)ctx;
    (void)use;
    return ORTH_OK;
}
static inline void orth_gemm_library_close(orth_ctx *ctx) { (void)ctx; }
static inline orth_status orth_gemm_library_add(orth_ctx *ctx, const orth_gemm_desc *g)
{
    (void)ctx;
    (void)g;
    return ORTH_OK;
}
static inline orth_status orth_gemm_library_run(orth_ctx *ctx, const orth_gemm_desc *g, bool *done)
{
    (void)ctx;
    (void)g;
    *done = false;
    return ORTH_OK;
}
static inline size_t orth_gemm_library_bytes(const orth_ctx *ctx) { (void)ctx; return 0; }
static inline int orth_gemm_library_products(const orth_ctx *ctx) { (void)ctx; return 0; }
static inline void orth_gemm_library_version(char *out, size_t num_bytes) { snprintf(out, num_bytes, "%s", ""); }

#endif
#endif
