/* amx_emulator.h -- AMX for processors that have none: each tile instruction traps (SIGILL) and is done here.
 *
 * So the very machine code of the AMX kernels is tested where it cannot run. The state is the thread's, the checks
 * are the processor's (Intel SDM, volume 2: LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TILERELEASE, TDPBF16PS):
 * what would fault there ends the test program with a message. Arithmetic is that of SSE with denormals as
 * zero, not that of gemm_chain.h. x86-64 Linux with AVX2.
 */
#ifndef ORTH_TESTS_AMX_EMULATOR_H
#define ORTH_TESTS_AMX_EMULATOR_H

#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <ucontext.h>
#include <unistd.h>

#define AMX_TILES 8
#define AMX_NO_DENORMALS 0x8040u            /* MXCSR: FTZ, DAZ */

typedef struct {
    bool configured;
    uint8_t rows[AMX_TILES];
    uint16_t row_bytes[AMX_TILES];
    uint8_t data[AMX_TILES][16][64];
} amx_state;

/* One tile instruction: VEX, three bytes, map 0F38. */
typedef struct {
    int prefix, opcode, reg, rm, vvvv, mod; /* prefix: 0 none, 1 66, 2 F3, 3 F2 */
    uint64_t base, stride, next;            /* memory operand, without its index; index; rip after it */
} amx_instruction;

static _Thread_local amx_state amx_tiles;
static _Atomic long amx_num_products;       /* TDPBF16PS that were emulated, on all threads */
static struct sigaction amx_before;

static _Noreturn void amx_fault(const char *what)
{
    static const char text[] = "amx_emulator: the processor would fault: ";
    (void)!write(2, text, sizeof text - 1);
    (void)!write(2, what, strlen(what));
    (void)!write(2, "\n", 1);
    _exit(99);
}

static void amx_require(bool holds, const char *what)
{
    if (!holds)
        amx_fault(what);
}

/* ---- decoding ---- */

static uint64_t amx_register(const ucontext_t *u, int number)
{
    static const int where[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)u->uc_mcontext.gregs[where[number]];
}

/* False: not a tile instruction. */
static bool amx_decode(const ucontext_t *u, amx_instruction *i)
{
    const uint8_t *p = (const uint8_t *)u->uc_mcontext.gregs[REG_RIP];
    if (p[0] != 0xc4 || (p[1] & 0x1f) != 2 || p[2] & 0x84 || (p[3] != 0x49 && p[3] != 0x4b && p[3] != 0x5c))
        return false;
    const int x = p[1] & 0x40 ? 0 : 8, b = p[1] & 0x20 ? 0 : 8;
    *i = (amx_instruction){.prefix = p[2] & 3, .opcode = p[3], .vvvv = ~(p[2] >> 3) & 15,
                           .mod = p[4] >> 6, .reg = p[4] >> 3 & 7, .rm = p[4] & 7};
    p += 5;
    if (i->mod < 3) {
        int from = i->rm + b;
        bool based = i->rm != 5 || i->mod != 0;
        if (i->rm == 4) {
            const int index = (*p >> 3 & 7) + x;
            from = (*p & 7) + b;
            based = (*p & 7) != 5 || i->mod != 0;
            i->stride = index == 4 ? 0 : amx_register(u, index) << (*p >> 6);
            p++;
        }
        const int bytes = i->mod == 1 ? 1 : i->mod == 2 || !based ? 4 : 0;
        int32_t displacement = 0;
        memcpy(&displacement, p, (size_t)bytes);
        p += bytes;
        i->base = (bytes == 1 ? (uint64_t)(int64_t)(int8_t)displacement : (uint64_t)(int64_t)displacement) +
                  (based ? amx_register(u, from) : i->rm == 4 ? 0 : (uint64_t)(uintptr_t)p);
    }
    i->next = (uint64_t)(uintptr_t)p;
    return true;
}

/* ---- instructions ---- */

static void amx_configure(const uint8_t *c)
{
    amx_tiles = (amx_state){.configured = true};
    amx_require(c[0] == 1 && c[1] == 0, "palette 1, first row 0");
    for (int i = 0; i < 64; i++)
        amx_require(c[i] == 0 || i < 2 || (i >= 16 && i < 32) || (i >= 48 && i < 56), "reserved bytes are 0");
    for (int t = 0; t < AMX_TILES; t++) {
        memcpy(&amx_tiles.row_bytes[t], c + 16 + 2 * t, 2);
        amx_tiles.rows[t] = c[48 + t];
        amx_require(amx_tiles.rows[t] <= 16 && amx_tiles.row_bytes[t] <= 64, "at most 16 rows of 64 bytes");
        amx_require(!amx_tiles.rows[t] == !amx_tiles.row_bytes[t], "rows and bytes of a row are both 0 or neither");
    }
}

static void amx_require_tile(int t)
{
    amx_require(t < AMX_TILES && amx_tiles.configured && amx_tiles.rows[t] > 0, "a tile that is not configured");
}

static void amx_move(const amx_instruction *i, bool store)
{
    amx_require_tile(i->reg);
    amx_require(i->rm == 4, "a tile is loaded and stored by base and index");
    if (!store)
        memset(amx_tiles.data[i->reg], 0, sizeof amx_tiles.data[0]);
    for (int r = 0; r < amx_tiles.rows[i->reg]; r++) {
        void *memory = (void *)(uintptr_t)(i->base + (uint64_t)r * i->stride), *tile = amx_tiles.data[i->reg][r];
        memcpy(store ? memory : tile, store ? tile : memory, amx_tiles.row_bytes[i->reg]);
    }
}

static float amx_bf16(const uint8_t *p)
{
    uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

__attribute__((target("fma"))) static void amx_product(int c, int a, int b)
{
    amx_require_tile(c);
    amx_require_tile(a);
    amx_require_tile(b);
    amx_require(a != b && a != c && b != c, "three different tiles");
    const int rows = amx_tiles.rows[c], cols = amx_tiles.row_bytes[c] / 4, pairs = amx_tiles.row_bytes[a] / 4;
    amx_require(amx_tiles.rows[a] == rows && amx_tiles.row_bytes[b] == 4 * cols && amx_tiles.rows[b] == pairs &&
                    amx_tiles.row_bytes[a] % 4 == 0 && amx_tiles.row_bytes[c] % 4 == 0, "sizes of the tiles agree");
    const unsigned was = _mm_getcsr();
    _mm_setcsr(0x1f80u | AMX_NO_DENORMALS);
    for (int m = 0; m < rows; m++) {
        for (int n = 0; n < cols; n++) {
            __m128 sum[2] = {_mm_setzero_ps(), _mm_setzero_ps()}, old;
            for (int k = 0; k < 2 * pairs; k++)
                sum[k & 1] = _mm_fmadd_ss(_mm_set_ss(amx_bf16(amx_tiles.data[a][m] + 2 * k)),
                                          _mm_set_ss(amx_bf16(amx_tiles.data[b][k / 2] + 4 * n + 2 * (k & 1))),
                                          sum[k & 1]);
            float *at = (float *)(void *)amx_tiles.data[c][m] + n;
            old = _mm_load_ss(at);
            _mm_store_ss(at, _mm_add_ss(old, _mm_add_ss(sum[0], sum[1])));
        }
    }
    _mm_setcsr(was);
    atomic_fetch_add(&amx_num_products, 1);
}

static void amx_on_trap(int signal_number, siginfo_t *info, void *context)
{
    ucontext_t *u = context;
    amx_instruction i;
    (void)info;
    if (!amx_decode(u, &i)) {
        sigaction(signal_number, &amx_before, NULL); /* not ours: the instruction traps again */
        return;
    }
    if (i.opcode == 0x5c && i.prefix == 2 && i.mod == 3)
        amx_product(i.reg, i.rm, i.vvvv);
    else if (i.opcode == 0x4b && i.prefix != 0 && i.mod < 3)
        amx_move(&i, i.prefix == 2);
    else if (i.opcode == 0x49 && i.prefix == 0 && i.mod < 3)
        amx_configure((const uint8_t *)(uintptr_t)i.base);
    else if (i.opcode == 0x49 && i.prefix == 0)
        amx_tiles = (amx_state){0};
    else if (i.opcode == 0x49 && i.prefix == 3 && i.mod == 3) {
        amx_require_tile(i.reg);
        memset(amx_tiles.data[i.reg], 0, sizeof amx_tiles.data[0]);
    } else
        amx_fault("a tile instruction that is not emulated");
    u->uc_mcontext.gregs[REG_RIP] = (greg_t)i.next;
}

/* From here to amx_emulator_stop, threads of this process have AMX. */
static void amx_emulator_start(void)
{
    struct sigaction a = {.sa_sigaction = amx_on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    amx_num_products = 0;
    sigaction(SIGILL, &a, &amx_before);
}

static void amx_emulator_stop(void)
{
    sigaction(SIGILL, &amx_before, NULL);
}

#endif
