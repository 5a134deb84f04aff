/* price.c - the highest price at which the workers can do all cheaper requests. */
#include "admission/price.h"

#include <math.h>
#include <string.h>

#define FADE_NS  60e9 /* work offered this long ago counts 1/e */
#define FILL     0.85 /* usable part of the workers' rate: requests come in bursts */
#define STEP_NS  1e6  /* price of the first step */
#define PER_OCTAVE 8

void kvw_price_init(struct kvw_price *price)
{
	memset(price, 0, sizeof(*price));
	for (size_t class = 0; class < KVW_CLASSES; class ++)
		price->limit[class] = INFINITY;
}

static size_t step_of(double price_ns)
{
	double step = price_ns > 0 ? PER_OCTAVE * log2(price_ns / STEP_NS + 1) : 0;

	return step < KVW_PRICE_STEPS - 1 ? (size_t)step : KVW_PRICE_STEPS - 1;
}

/* The highest price of a step. */
static double price_of(size_t step)
{
	return (exp2((double)(step + 1) / PER_OCTAVE) - 1) * STEP_NS;
}

/* Returns the factor by which the sums have faded since they were last updated. */
static double faded(const struct kvw_price *price, int64_t now_ns)
{
	return exp(-(double)(now_ns - price->from_ns) / FADE_NS);
}

static void fade(struct kvw_price *price, int64_t now_ns)
{
	double left = faded(price, now_ns);
	double *sums = &price->offered[0][0];

	for (size_t i = 0; i < (size_t)KVW_CLASSES * KVW_PRICE_STEPS; i++)
		sums[i] *= left;
	price->total *= left;
	price->from_ns = now_ns;
}

void kvw_price_offer(struct kvw_price *price, const struct kvw_waiter *waiter, int64_t now_ns)
{
	double work = (double)waiter->work_ns;

	if (price->from_ns == 0)
		price->from_ns = now_ns;
	if (now_ns - price->from_ns > (int64_t)FADE_NS / 60)
		fade(price, now_ns);
	price->offered[waiter->class][step_of(kvw_waiter_price(waiter))] += work;
	price->total += work;
}

double kvw_price_offered(const struct kvw_price *price, int64_t now_ns)
{
	return price->from_ns == 0 ? 0 : price->total * faded(price, now_ns) / FADE_NS;
}

void kvw_price_limits(struct kvw_price *price, double rate, int64_t now_ns)
{
	double room = rate * FILL * FADE_NS / (price->from_ns == 0 ? 1 : faded(price, now_ns));

	for (size_t class = 0; class < KVW_CLASSES; class ++) {
		size_t step = 0;

		price->limit[class] = 0;
		if (room <= 0)
			continue;
		while (step < KVW_PRICE_STEPS && price->offered[class][step] <= room)
			room -= price->offered[class][step++];
		price->limit[class] = step == KVW_PRICE_STEPS ? INFINITY : price_of(step);
		if (step < KVW_PRICE_STEPS)
			room = 0;
	}
}
