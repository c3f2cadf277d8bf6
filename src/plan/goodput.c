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
