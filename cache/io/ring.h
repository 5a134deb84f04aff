/*
 * ring.h - an engine that uses io_uring.
 */
#ifndef KVT_RING_H
#define KVT_RING_H

#include "io/engine.h"

/* Why something is not available, as errno values; 0: it is. */
struct kvt_ring_report {
	int setup;      /* why no ring could be created */
	/* why the caller's memory is not registered; ENODATA: not all of its pages are present */
	int registered;
};

/* KVT_ENOTSUP: io_uring cannot be used here (report->setup has the cause). KVT_ENOMEM. */
enum kvt_status kvt_ring_create(const struct kvt_io_options *options, struct kvt_engine **out,
	struct kvt_ring_report *report);

#endif
