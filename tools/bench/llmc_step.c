/* llmc_step.c -- llm.c's CPU step of GPT-2 124M behind the go protocol. README.md says how to build it.
 *
 * Includes train_gpt2.c from the user's own clone (-I), without its main. Random weights in memory in
 * place of its checkpoint file. argv: sequences, tokens of each.
 */
#define TESTING
#include "train_gpt2.c"
#include <sys/resource.h>

static uint32_t random_bits(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Time of one optimizer step, the n-th. */
static double timed_step(GPT2 *m, int *tokens, int B, int T, int n)
{
    const double start = seconds();
    gpt2_forward(m, tokens, tokens + 1, B, T);
    gpt2_zero_grad(m);
    gpt2_backward(m);
    gpt2_update(m, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, n);
    return seconds() - start;
}

static void make_model(GPT2 *m)
{
    m->config = (GPT2Config){.max_seq_len = 1024, .vocab_size = 50257, .padded_vocab_size = 50304,
                             .num_layers = 12, .num_heads = 12, .channels = 768};
    fill_in_parameter_sizes(m->param_sizes, m->config);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        m->num_parameters += m->param_sizes[i];
    m->params_memory = malloc_and_point_parameters(&m->params, m->param_sizes);
    uint64_t state = 1;
    for (size_t i = 0; i < m->num_parameters; i++)
        m->params_memory[i] = 0.07f * ((float)(random_bits(&state) & 0xffffff) / 16777216.0f - 0.5f);
    for (int i = 0; i < 12 * 768; i++)
        m->params.ln1w[i] = m->params.ln2w[i] = 1.0f;
    for (int i = 0; i < 768; i++)
        m->params.lnfw[i] = 1.0f;
    m->mean_loss = -1.0f;
}

int main(int argc, char **argv)
{
    const int B = argc > 1 ? atoi(argv[1]) : 1, T = argc > 2 ? atoi(argv[2]) : 1024;
    static GPT2 m;
    make_model(&m);
    int *tokens = mallocCheck((size_t)(B * T + 1) * sizeof *tokens), n = 0;
    uint64_t state = 2;
    for (int i = 0; i <= B * T; i++)
        tokens[i] = (int)(random_bits(&state) % 50257);
    const double first = timed_step(&m, tokens, B, T, ++n);
    printf("ready\n");
    fflush(stdout);
    for (char line[64]; fgets(line, sizeof line, stdin);) {
        printf("%.6f\n", timed_step(&m, tokens, B, T, ++n));
        fflush(stdout);
    }
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"what\": \"llm.c\", \"tokens\": %d, \"flops\": %.0f, \"peak_rss_mb\": %.1f, \"first_step_s\": %.3f}\n",
           B * T, B * T * (6.0 * 124439808 + 6.0 * 12 * 768 * T), (double)u.ru_maxrss / 1024, first);
    return 0;
}
