/* room.c - how many prompt tokens in flight fit a worker's KV memory, learned from its metrics. */
#include "fleet/room.h"

#include <math.h>

#define LEARN      0.25        /* weight of a page after the first one */
#define LEAST_USE  0.1         /* a page teaches nothing if less of the KV memory is in use */
#define EACH_LEAST (1.0 / 64)  /* least q: 64 running requests share a prefix */
#define EACH_MOST  64.0        /* greatest q: answers of 64 times their prompts */
/* largest part of the memory in use that is attributed to foreign requests */
#define FOREIGN_MOST 0.9

static double clamp_value(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

/* Returns the tokens that one running request uses; 0: unknown. */
static double used_by_one(const struct kvw_room_page *page)
{
	return page->usage >= 0 && page->running > 0
		       ? page->usage * (double)page->capacity_tokens / page->running
		       : 0;
}

static void learn(struct kvw_room *room, const struct kvw_room_page *page)
{
	double running = page->running - page->foreign_running;
	double waiting = page->waiting > 0 ? page->waiting - page->foreign_waiting : 0;
	double context = 0, each = 0;

	if (page->usage < LEAST_USE || running <= 0 || page->context <= 0)
		return;
	context = page->context * running / (running + (waiting > 0 ? waiting : 0));
	each = clamp_value(used_by_one(page) * running / context, EACH_LEAST, EACH_MOST);
	room->each = room->each > 0 ? room->each + LEARN * (each - room->each) : each;
}

double kvw_room_read(struct kvw_room *room, const struct kvw_room_page *page)
{
	double size = (double)page->capacity_tokens;
	double foreign = 0;

	if (page->capacity_tokens == 0)
		return INFINITY;
	learn(room, page);
	if (page->foreign_running > 0)
		foreign = clamp_value(
			page->foreign_running * used_by_one(page), 0, FOREIGN_MOST * size);
	return (size - foreign) / (room->each > 0 ? room->each : 1);
}
