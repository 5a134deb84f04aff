/*
 * scale.c - computes the frequencies of a rotary model from the numbers of its configuration.
 *
 * Engines compute frequencies in single precision and multiply positions by the rounded result. A
 * long move repeats that rounding thousands of times, so a frequency here is a float as well; all
 * steps before it use double.
 */
#include "fragments/scale.h"

#include <math.h>

#define TURN 6.283185307179586 /* a whole turn, radians */

/* Returns the pair, as a real number, that makes `turns` turns over the positions of the model's
 * training. */
static double yarn_pair(const struct kvt_rope_scale *s, uint32_t rotated, double turns)
{
	return rotated * log(s->original / (turns * TURN)) / (2 * log(s->theta));
}

static double clamp(double x, double low, double high)
{
	return x < low ? low : x > high ? high : x;
}

static double yarn(const struct kvt_rope_scale *s, uint32_t rotated, uint32_t pair, double plain)
{
	double low = yarn_pair(s, rotated, s->beta_fast);
	double high = yarn_pair(s, rotated, s->beta_slow);
	double divided;

	if (s->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = low < 0 ? 0 : low;
	high = high > rotated - 1 ? rotated - 1 : high;
	if (low == high)
		high += 0.001; /* avoids a division by zero: the ramp becomes a step */
	divided = clamp((pair - low) / (high - low), 0, 1);
	return plain / s->factor * divided + plain * (1 - divided);
}

static double llama3(const struct kvt_rope_scale *s, double plain)
{
	double wave = TURN / plain;
	double stays;

	if (wave < s->original / s->high)
		return plain;
	if (wave > s->original / s->low)
		return plain / s->factor;
	stays = s->low == s->high ? 0 : (s->original / wave - s->low) / (s->high - s->low);
	return (1 - stays) * plain / s->factor + stays * plain;
}

void kvt_rope_scale(const struct kvt_rope_scale *s, uint32_t rotated, float *frequency)
{
	double theta = s->scheme == KVT_ROPE_NTK ? s->theta * s->factor : s->theta;

	for (uint32_t i = 0; i < rotated / 2; i++) {
		double f = pow(theta, -2.0 * i / rotated);

		switch (s->scheme) {
		case KVT_ROPE_PLAIN:
			break;
		case KVT_ROPE_LINEAR:
			f /= s->factor;
			break;
		case KVT_ROPE_NTK:
			f /= pow(s->factor, 2.0 / rotated);
			break;
		case KVT_ROPE_YARN:
			f = yarn(s, rotated, i, f);
			break;
		case KVT_ROPE_LLAMA3:
			f = llama3(s, f);
			break;
		}
		frequency[i] = (float)f;
	}
}
