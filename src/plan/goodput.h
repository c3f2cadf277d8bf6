/* goodput.h -- what interruptions cost a long run: checkpoints as often as they are worth, work that is lost, restarts.
 *
 * With a time M between interruptions and s seconds for a checkpoint, one every sqrt(2 s M) seconds loses the least: s of each interval to the
 * checkpoint, half an interval and the restart to each interruption. (Young, "A first order approximation to the optimum checkpoint
 * interval", 1974; Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", 2006.)
 */
#ifndef ORTH_PLAN_GOODPUT_H
#define ORTH_PLAN_GOODPUT_H

#include "plan/hardware.h"

typedef struct {
    double between_s;     /* interruptions */
    double save_s;        /* a checkpoint */
    double interval_s;    /* between checkpoints, best */
    double share;         /* of the time that makes progress, 0 .. 1 */
} orth_goodput;

/* All in seconds, > 0 but for restart_s. */
orth_goodput orth_goodput_of(double between_s, double save_s, double restart_s);

/* Whether interruptions leave no time for progress; false of zero, which is not known. */
bool orth_goodput_is_none(const orth_goodput *g);

/* Of num_devices devices of `h`, which must say how often they fail (failures.device_hours > 0), for a checkpoint of so many bytes. spot: price.spot_share of
 * the nodes are also taken away (failures.spot_hours > 0). */
orth_goodput orth_goodput_on(const orth_hardware *h, double num_devices, double checkpoint_bytes, bool spot);

/* USD for a device and hour where price.spot_share of the nodes are bought at price.spot; 0: not known. */
double orth_spot_price(const orth_hardware *h);

/* What devices take to compute for an hour, with what interruptions add to it where they are known. */
typedef struct {
    orth_goodput goodput, spot_goodput;   /* zero: not known */
    double hours;                         /* INFINITY: they make no progress */
    double on_demand_usd, spot_usd;       /* of all devices; 0: not known, or no progress */
} orth_rent;
/* Of num_devices devices of `h` that train num_elems parameters, whose checkpoints have weights and moments in fp32. */
orth_rent orth_rent_of(const orth_hardware *h, int64_t num_devices, int64_t num_elems);

#endif
