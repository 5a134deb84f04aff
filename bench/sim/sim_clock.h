/*
 * sim_clock.h - computes simulated time from real time, as a linear function.
 *
 * This is the only place where --speed has an effect.
 */
#ifndef KVB_SIM_CLOCK_H
#define KVB_SIM_CLOCK_H

#include <stdint.h>

struct kvb_sim_clock {
	int64_t origin_ns; /* real time at simulated 0 */
	double speed;      /* simulated seconds per real second, above 0 */
};

static inline int64_t kvb_sim_of_real(const struct kvb_sim_clock *clock, int64_t real_ns)
{
	return (int64_t)((double)(real_ns - clock->origin_ns) * clock->speed);
}

static inline int64_t kvb_real_of_sim(const struct kvb_sim_clock *clock, int64_t sim_ns)
{
	return clock->origin_ns + (int64_t)((double)sim_ns / clock->speed);
}

#endif
