/*
 * history.h - random histories of a whole cache, through the public header only, against the oracle.
 *
 * Time and files are the test's own. Every answer is judged: bytes must be those that were committed
 * under that key and not erased since; a miss is right unless the oracle knows better. A history is
 * a function of its profile and its seed.
 */
#ifndef MODEL_HISTORY_H
#define MODEL_HISTORY_H

#include "oracle.h"

/* Files and time that outlive a cache, as the test owns them. */
struct files;

struct profile {
	const char *name;
	uint32_t chains, depth; /* chunks: chains * depth */
	uint64_t least, most;   /* bytes of a chunk */
	uint64_t l1_capacity;
	uint64_t nvme_capacity; /* 0: no such tier */
	const char *policy;
	const char *keys; /* file of protection keys; NULL: plain */
	uint64_t ttl_ns;
	bool roomy;   /* everything fits: what was put and not lost by a fault must be there */
	bool faults;  /* the disk fails now and then */
	bool crashes; /* and forgets */
	uint32_t operations;
};

/* Aborts the test, naming the seed, on a wrong answer. */
void history_run(const struct profile *profile, uint64_t seed);

#endif
