/*
 * gates.h - the requests of a loop that wait, by model; admit.h works on them.
 */
#ifndef KVW_GATES_H
#define KVW_GATES_H

#include "admission/gate.h"

/* The gates of a loop; zeroed: none yet. */
struct kvw_gates {
	struct kvw_gate **items; /* by model: 0: none is named, else its index + 1; NULL: not used yet */
	size_t room;
	size_t waiting;          /* requests in all of them */
	int64_t turned_ns;       /* when kvw_admit_turn asked them last */
	int64_t faded_ns;        /* when gates without waiting requests were asked last */
	int64_t counted_ns;      /* when programs were counted */
	struct kvw_cost *costs;  /* of explain; [KVW_MAX_WORKERS] */
};

#endif
