/* goodput.c -- see goodput.h. */
#include "plan/goodput.h"

#include <math.h>

orth_goodput orth_goodput_of(double between_s, double save_s, double restart_s)
{
    orth_goodput g = {.between_s = between_s, .save_s = save_s, .interval_s = sqrt(2 * save_s * between_s)};
    g.share = fmax(0, 1 - save_s / g.interval_s - (g.interval_s / 2 + restart_s) / between_s);
    return g;
}

bool orth_goodput_is_none(const orth_goodput *g)
{
    return g->between_s > 0 && g->share == 0;
}

orth_goodput orth_goodput_on(const orth_hardware *h, double num_devices, double checkpoint_bytes, bool spot)
{
    double in_an_hour = num_devices / h->failures_device_hours;
    if (spot)
        in_an_hour += ceil(h->price_spot_share * num_devices / h->node_devices) / h->failures_spot_hours;
    return orth_goodput_of(3600 / in_an_hour, checkpoint_bytes / (1e9 * h->failures_storage_GBps), h->failures_restart_s);
}

double orth_spot_price(const orth_hardware *h)
{
    return h->price_spot > 0 ? h->price_spot_share * h->price_spot + (1 - h->price_spot_share) * h->price_on_demand : 0;
}

orth_rent orth_rent_of(const orth_hardware *h, int64_t num_devices, int64_t num_elems)
{
    const double n = (double)num_devices, checkpoint = 12.0 * (double)num_elems;
    orth_rent r = {.hours = 1};
    if (h->failures_device_hours > 0)
        r.goodput = orth_goodput_on(h, n, checkpoint, false);
    if (h->failures_device_hours > 0 && h->failures_spot_hours > 0)
        r.spot_goodput = orth_goodput_on(h, n, checkpoint, true);
    if (h->failures_device_hours > 0)
        r.hours = r.goodput.share > 0 ? 1 / r.goodput.share : INFINITY;
    if (isinf(r.hours))
        return r;
    r.on_demand_usd = r.hours * n * h->price_on_demand;
    if (!orth_goodput_is_none(&r.spot_goodput))
        r.spot_usd = (r.spot_goodput.share > 0 ? 1 / r.spot_goodput.share : r.hours) * n * orth_spot_price(h);
    return r;
}
