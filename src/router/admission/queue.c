/* queue.c - waiting requests in the order of sending, and the choice of those to give up. */
#include "admission/queue.h"

#include <stdlib.h>
#include <string.h>

void kvw_queue_finish(struct kvw_queue *queue)
{
	free(queue->slots);
	free(queue->heap);
	*queue = (struct kvw_queue){0};
}

/* Moves the items to the middle of the array. */
static void center(struct kvw_queue *queue)
{
	struct kvw_waiter **items = queue->slots + (queue->room - queue->count) / 2;

	if (queue->count > 0)
		memmove(items, queue->items, queue->count * sizeof(items[0]));
	queue->items = items;
}

static enum kvw_err grow(struct kvw_queue *queue)
{
	size_t room = queue->room == 0 ? 64 : queue->room * 2;
	size_t first = queue->room == 0 ? 0 : (size_t)(queue->items - queue->slots);
	struct kvw_waiter **slots = realloc(queue->slots, room * sizeof(slots[0]));
	struct kvw_waiter **heap = NULL;

	if (slots == NULL)
		return KVW_ENOMEM;
	queue->slots = slots;
	queue->items = slots + first;
	heap = realloc(queue->heap, room * sizeof(heap[0]));
	if (heap == NULL)
		return KVW_ENOMEM;
	queue->heap = heap;
	queue->room = room;
	return KVW_OK;
}

/* Counts those of the first `count` items that come before `waiter`; with_equal: also those that
 * are equal to it. */
static size_t count_before(struct kvw_waiter *const *items, size_t count,
	const struct kvw_waiter *waiter, bool with_equal)
{
	size_t from = 0;

	while (from < count) {
		size_t middle = from + (count - from) / 2;

		if (with_equal ? !kvw_waiter_before(waiter, items[middle])
			       : kvw_waiter_before(items[middle], waiter))
			from = middle + 1;
		else
			count = middle;
	}
	return from;
}

/* Index of a waiter. */
static size_t place_of(const struct kvw_queue *queue, const struct kvw_waiter *waiter)
{
	size_t place = count_before(queue->items, queue->count, waiter, false);

	while (queue->items[place] != waiter)
		place++;
	return place;
}

/* Moves the items before `place` one place towards the front. */
static void shift_front(struct kvw_queue *queue, size_t place)
{
	queue->items--;
	memmove(queue->items, queue->items + 1, place * sizeof(queue->items[0]));
}

static void shift_back(struct kvw_queue *queue, size_t place)
{
	memmove(queue->items + place + 1, queue->items + place,
		(queue->count - place) * sizeof(queue->items[0]));
}

enum kvw_err kvw_queue_add(struct kvw_queue *queue, struct kvw_waiter *waiter)
{
	size_t place = count_before(queue->items, queue->count, waiter, true);
	bool front = place < queue->count / 2;

	if (queue->room == 0 ||
		(front ? queue->items == queue->slots
		       : queue->items + queue->count == queue->slots + queue->room)) {
		if (queue->count * 2 >= queue->room && grow(queue) != KVW_OK)
			return KVW_ENOMEM;
		center(queue);
	}
	if (front)
		shift_front(queue, place);
	else
		shift_back(queue, place);
	queue->items[place] = waiter;
	queue->count++;
	waiter->waits = true;
	waiter->given_up = false;
	return KVW_OK;
}

void kvw_queue_remove(struct kvw_queue *queue, struct kvw_waiter *waiter)
{
	struct kvw_waiter **items = queue->items;
	size_t place = 0;

	if (!waiter->waits)
		return;
	place = place_of(queue, waiter);
	queue->count--;
	if (place < queue->count / 2)
		memmove(++queue->items, items, place * sizeof(items[0]));
	else
		memmove(items + place, items + place + 1,
			(queue->count - place) * sizeof(items[0]));
	queue->given_up -= waiter->given_up;
	waiter->waits = false;
}

void kvw_queue_promote(struct kvw_queue *queue, struct kvw_waiter *waiter)
{
	struct kvw_waiter **items = queue->items;
	size_t place = place_of(queue, waiter);
	size_t to = 0;

	waiter->class--;
	to = count_before(items, place, waiter, true);
	memmove(items + to + 1, items + to, (place - to) * sizeof(items[0]));
	items[to] = waiter;
}

/* Returns whether request a is given up before request b. */
static bool dearer(const struct kvw_waiter *a, const struct kvw_waiter *b)
{
	return a->class != b->class ? a->class > b->class
				    : kvw_waiter_price(a) > kvw_waiter_price(b);
}

static void heap_push(struct kvw_waiter **heap, size_t at, struct kvw_waiter *waiter)
{
	for (; at > 0 && dearer(waiter, heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = waiter;
}

/* Removes the request of the highest price from a heap of `count`. */
static struct kvw_waiter *heap_pop(struct kvw_waiter **heap, size_t count)
{
	struct kvw_waiter *dearest = heap[0];
	struct kvw_waiter *last = heap[count - 1];
	size_t at = 0;

	for (size_t child = 1; child < count - 1; child = 2 * at + 1) {
		if (child + 1 < count - 1 && dearer(heap[child + 1], heap[child]))
			child++;
		if (!dearer(heap[child], last))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return dearest;
}

void kvw_queue_plan(struct kvw_queue *queue, int64_t now_ns, double rate, double ahead_ns)
{
	struct kvw_waiter **heap = queue->heap;
	double work = ahead_ns;
	size_t kept = 0;
	/* The kept requests are put in heap order only when one must be given up, which is rare. */
	size_t ordered = 0;

	queue->given_up = 0;
	for (size_t i = 0; i < queue->count; i++) {
		struct kvw_waiter *waiter = queue->items[i];
		double slack = (double)(waiter->start_ns - now_ns) * rate;

		waiter->given_up = false;
		if (waiter->late != KVW_LATE_NEVER && slack < 0) {
			/* No other request is given up for one that is late already. */
			work += (double)waiter->work_ns;
			continue;
		}
		heap[kept++] = waiter;
		work += (double)waiter->work_ns;
		/* Too late: the queued work without this request takes longer than until its latest
		 * time of sending. So requests are given up, the dearest first. */
		while (!waiter->given_up && work - (double)waiter->work_ns > slack && kept > 0) {
			struct kvw_waiter *dearest = NULL;

			for (; ordered < kept; ordered++)
				heap_push(heap, ordered, heap[ordered]);
			dearest = heap_pop(heap, kept--);
			ordered--;
			dearest->given_up = true;
			queue->given_up++;
			work -= (double)dearest->work_ns;
		}
	}
}
