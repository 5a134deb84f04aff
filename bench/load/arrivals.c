/*
 * arrivals.c - calls a function at given moments, however late the loop is. One timer, set again
 * for each arrival that is not due yet.
 */
#include "bench/load/arrivals.h"

#include <event2/event.h>

#include "base/clock.h"

static void set_timer(struct kvb_arrivals *arrivals, int64_t wait_ns)
{
	struct timeval wait = {.tv_sec = (time_t)(wait_ns / KVW_NS_PER_S),
		.tv_usec = (suseconds_t)(wait_ns % KVW_NS_PER_S / 1000)};

	event_add(arrivals->timer, &wait);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_arrivals *arrivals = arg;

	(void)fd;
	(void)what;
	while (arrivals->next < arrivals->total) {
		int64_t due = arrivals->start_ns + arrivals->next_offset_ns;
		int64_t from = due > arrivals->not_before_ns ? due : arrivals->not_before_ns;
		int64_t wait = from - kvw_clock_ns();
		uint64_t n = arrivals->next;

		if (wait > 0) {
			/* Rounded up: a timer that fires early would only be set again. */
			set_timer(arrivals, wait + 1000);
			return;
		}
		arrivals->next++;
		arrivals->arrive(arrivals->arg, n, due);
		arrivals->not_before_ns =
			arrivals->pause_ns > 0 ? kvw_clock_ns() + arrivals->pause_ns : 0;
		if (arrivals->next < arrivals->total)
			arrivals->next_offset_ns = arrivals->when(arrivals->arg, arrivals->next);
	}
}

void kvb_arrivals_begin(struct kvb_arrivals *arrivals, struct event_base *base)
{
	arrivals->timer = event_new(base, -1, 0, on_timer, arrivals);
	arrivals->next = 0;
	if (arrivals->total > 0)
		arrivals->next_offset_ns = arrivals->when(arrivals->arg, 0);
	arrivals->start_ns = kvw_clock_ns();
	set_timer(arrivals, 0);
}

void kvb_arrivals_finish(struct kvb_arrivals *arrivals)
{
	if (arrivals->timer != NULL)
		event_free(arrivals->timer);
	arrivals->timer = NULL;
}
