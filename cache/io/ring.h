/*
 * ring.h - the engine that uses io_uring.
 */
#ifndef KVT_RING_H
#define KVT_RING_H

#include "io/engine.h"

/* Causes of missing parts, as errno values; 0: nothing is missing. */
struct kvt_ring_report {
	int setup;      /* why there is no ring */
	/* why the caller's memory is not registered; ENODATA: not all of it is present */
	int registered;
};

/* KVT_ENOTSUP: no io_uring here (report->setup). KVT_ENOMEM. */
enum kvt_status kvt_ring_create(const struct kvt_io_options *options, struct kvt_engine **out,
	struct kvt_ring_report *report);

#endif
