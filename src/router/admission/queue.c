/* queue.c - see queue.h. */
#include "admission/queue.h"

#include <stdlib.h>

void kvw_queue_finish(struct kvw_queue *queue)
{
	free(queue->items);
	free(queue->heap);
	*queue = (struct kvw_queue){0};
}

static enum kvw_err grow(struct kvw_queue *queue)
{
	size_t room = queue->room == 0 ? 64 : queue->room * 2;
	struct kvw_waiter **items = realloc(queue->items, room * sizeof(items[0]));
	struct kvw_waiter **heap = NULL;

	if (items == NULL)
		return KVW_ENOMEM;
	queue->items = items;
	heap = realloc(queue->heap, room * sizeof(heap[0]));
	if (heap == NULL)
		return KVW_ENOMEM;
	queue->heap = heap;
	queue->room = room;
	return KVW_OK;
}

static void put(struct kvw_queue *queue, size_t place, struct kvw_waiter *waiter)
{
	queue->items[place] = waiter;
	waiter->place = place;
}

static bool before(const struct kvw_waiter *a, const struct kvw_waiter *b)
{
	return a->class != b->class ? a->class < b->class : a->start_ns < b->start_ns;
}

void kvw_queue_moved(struct kvw_queue *queue, struct kvw_waiter *waiter)
{
	size_t place = waiter->place;

	for (; place > 0 && before(waiter, queue->items[place - 1]); place--)
		put(queue, place, queue->items[place - 1]);
	for (; place + 1 < queue->count && before(queue->items[place + 1], waiter); place++)
		put(queue, place, queue->items[place + 1]);
	put(queue, place, waiter);
}

enum kvw_err kvw_queue_add(struct kvw_queue *queue, struct kvw_waiter *waiter)
{
	if (queue->count == queue->room && grow(queue) != KVW_OK)
		return KVW_ENOMEM;
	put(queue, queue->count++, waiter);
	waiter->waits = true;
	waiter->given_up = false;
	kvw_queue_moved(queue, waiter);
	return KVW_OK;
}

void kvw_queue_remove(struct kvw_queue *queue, struct kvw_waiter *waiter)
{
	if (!waiter->waits)
		return;
	for (size_t place = waiter->place; place + 1 < queue->count; place++)
		put(queue, place, queue->items[place + 1]);
	queue->count--;
	waiter->waits = false;
}

/* To be given up before the other. */
static bool dearer(const struct kvw_waiter *a, const struct kvw_waiter *b)
{
	return a->class != b->class ? a->class > b->class : kvw_waiter_price(a) > kvw_waiter_price(b);
}

static void heap_push(struct kvw_waiter **heap, size_t at, struct kvw_waiter *waiter)
{
	for (; at > 0 && dearer(waiter, heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = waiter;
}

/* Takes the dearest of `count` out. */
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
	double work = ahead_ns;
	size_t kept = 0;

	for (size_t i = 0; i < queue->count; i++) {
		struct kvw_waiter *waiter = queue->items[i];
		double slack = (double)(waiter->start_ns - now_ns) * rate;

		waiter->given_up = false;
		if (waiter->late != KVW_LATE_NEVER && slack < 0) {
			/* No other is given up for what is late already. */
			work += (double)waiter->work_ns;
			continue;
		}
		heap_push(queue->heap, kept++, waiter);
		work += (double)waiter->work_ns;
		/* What is before it has to be done when it must be sent. */
		while (!waiter->given_up && work - (double)waiter->work_ns > slack && kept > 0) {
			struct kvw_waiter *dearest = heap_pop(queue->heap, kept--);

			dearest->given_up = true;
			work -= (double)dearest->work_ns;
		}
	}
}
