/* lives.c - keeps statistics of how long chunks wait until they are used again, and how often. */
#include "policies/lives.h"

#define STEPS       KVT_LIFE_STEPS
#define FADING      0.98f  /* factor by which a count fades in each epoch */
#define PRIOR_USE   0.1f   /* assumed hazard at the age of one epoch, while nothing is known */
#define PRIOR_LIVES 0.008f /* weight of that assumption, per chunk in the tier */

/* Ages 0 to 3 are steps of their own; then an octave has two steps. */
static unsigned step_of(uint32_t age)
{
	unsigned octave;

	if (age < 4)
		return age;
	if (age >= KVT_LIFE_EPOCHS)
		age = KVT_LIFE_EPOCHS - 1;
	octave = 31 - (unsigned)__builtin_clz(age);
	return 4 + (octave - 2) * 2 + (age >> (octave - 1) & 1);
}

_Static_assert(KVT_LIFE_EPOCHS == 128 && STEPS == 14, "four single ages and five octaves");

/* Returns the number of epochs in a step. */
static float width_of(unsigned step)
{
	return step < 4 ? 1 : (float)(1u << (step - 4) / 2) * 2;
}

/* Computes the chance of a use per epoch, for each step. */
static void hazards(const struct kvt_lives *l, unsigned class_, float lives, float hazard[STEPS])
{
	float from = 0;

	for (unsigned s = 0; s < STEPS; s++) {
		const float width = width_of(s);
		const float usual = PRIOR_USE * l->prior[class_] / (from + (width + 1) / 2);
		const float weight = lives * width;

		hazard[s] = (l->used[class_][s] + usual * weight) / (l->stood[class_][s] + weight);
		from += width;
	}
}

/* Returns the best quotient of uses by epochs for a chunk that waits from the beginning of step
 * `from` on. */
static float best_wait(const float hazard[STEPS], unsigned from)
{
	float left = 1, uses = 0, epochs = 0, best = 0;

	for (unsigned s = from; s < STEPS; s++) {
		const float width = width_of(s);
		const float expected = hazard[s] * width;
		const float stay = left / (1 + expected); /* chance that this step brings no use */

		uses += left - stay;
		epochs += stay * width;
		left = stay;
		if (uses > best * epochs)
			best = uses / epochs;
	}
	return best;
}

static void judge(struct kvt_lives *l, uint32_t entries)
{
	const float lives = PRIOR_LIVES * (float)(entries > 0 ? entries : 1);
	float hazard[STEPS];

	for (unsigned c = 0; c < KVT_LIFE_CLASSES; c++) {
		hazards(l, c, lives, hazard);
		for (unsigned s = 0; s < STEPS; s++)
			l->worth[c][s] = best_wait(hazard, s);
	}
}

void kvt_lives_init(struct kvt_lives *l, uint64_t capacity_units, const float *prior)
{
	*l = (struct kvt_lives){.length = capacity_units / KVT_LIFE_EPOCH_PER, .prior = prior};
	if (l->length == 0)
		l->length = 1;
	judge(l, 1);
}

static void end_epoch(struct kvt_lives *l)
{
	for (unsigned c = 0; c < KVT_LIFE_CLASSES; c++) {
		for (unsigned s = 0; s < STEPS; s++) {
			l->used[c][s] *= FADING;
			l->stood[c][s] *= FADING;
		}
		for (uint32_t age = 0; age < KVT_LIFE_EPOCHS; age++)
			l->stood[c][step_of(age)] +=
				(float)l->open[c][(l->epoch - age) % KVT_LIFE_EPOCHS];
		/* Lives that began KVT_LIFE_EPOCHS ago are no longer counted. */
		l->open[c][(l->epoch + 1) % KVT_LIFE_EPOCHS] = 0;
	}
	l->epoch++;
}

void kvt_lives_pass(struct kvt_lives *l, uint64_t units, uint32_t entries)
{
	l->passed += units;
	if (l->passed < l->length)
		return;
	/* If more epochs have passed than are distinguished, only that many are counted. */
	for (unsigned i = 0; i < KVT_LIFE_EPOCHS && l->passed >= l->length; i++) {
		l->passed -= l->length;
		end_epoch(l);
	}
	l->passed %= l->length;
	judge(l, entries);
}

void kvt_lives_begin(struct kvt_lives *l, unsigned class_)
{
	l->open[class_][l->epoch % KVT_LIFE_EPOCHS]++;
}

void kvt_lives_end(struct kvt_lives *l, unsigned class_, uint32_t began, bool with_use)
{
	const uint32_t age = l->epoch - began;

	if (age >= KVT_LIFE_EPOCHS)
		return;
	l->open[class_][began % KVT_LIFE_EPOCHS]--;
	if (with_use)
		l->used[class_][step_of(age)] += 1;
}

float kvt_lives_worth(const struct kvt_lives *l, unsigned class_, uint32_t began)
{
	return l->worth[class_][step_of(l->epoch - began)];
}
