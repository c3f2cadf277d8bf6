/* file_time.c -- see file_time.h. */
#include "plan/file_time.h"

static bool is_write(const orth_program *p, const orth_instr *n)
{
    return p->buffers[n->out[0].buffer].space == ORTH_SPACE_FILE;
}

orth_file_moves orth_file_moves_of(const orth_program *p)
{
    orth_file_moves m = {0, 0};
    for (int32_t i = 0; p->space_bytes[ORTH_SPACE_FILE] > 0 && i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (orth_instr_moves_file(p, n))
            *(is_write(p, n) ? &m.written : &m.read) += (int64_t)orth_operand_bytes(&n->out[0]);
    }
    return m;
}

orth_file_rates orth_file_rates_of(const orth_hardware *h, int64_t sharers)
{
    const bool known = h->node_file_GBps > 0;
    const double part = (double)(known || h->has_host ? sharers : 1);
    const double read = 1e9 * (known ? h->node_file_GBps : ORTH_FILE_ASSUMED_GBPS) / part;
    const double write = known && h->node_file_write_GBps > 0 ? 1e9 * h->node_file_write_GBps / part : read;
    return (orth_file_rates){read, write, !known};
}

orth_file_rates orth_file_rates_times(const orth_file_rates *r, double factor)
{
    return (orth_file_rates){r->read * factor, r->write * factor, r->assumed};
}

double orth_file_seconds(const orth_file_rates *r, const orth_program *p, const orth_instr *n)
{
    return (double)orth_operand_bytes(&n->out[0]) / (is_write(p, n) ? r->write : r->read);
}

double orth_file_floor(const orth_file_rates *r, const orth_file_moves *m)
{
    return (m->read > 0 ? (double)m->read / r->read : 0) + (m->written > 0 ? (double)m->written / r->write : 0);
}
