/*
 * programs.h - recognizes the turns of programs (agents, conversations), and limits the running
 * ones.
 *
 * The context of a program grows with each turn, and stays in a worker's cache until the next turn.
 * With more programs than fit into the caches, each turn evicts another program's context, which is
 * then recomputed as a whole, and no program progresses. So a new program, or a program whose
 * context is lost already, waits while the running programs have more context than the limit. The
 * limit is learned from the share of prefill that recomputes lost contexts: while that share is
 * large and the workers are fully loaded, the limit is set below the present running context;
 * otherwise it is raised. A fleet whose programs seldom come back, or late, loses little and has no
 * limit.
 *
 * A program is known by the key that a request names (a header, a session), or by its prompt: the
 * prompt of its next turn begins with that of its last turn. The table maps the hash of a prompt's
 * last full chunk, which covers all chunks before it, to the program; each turn moves the entry to
 * its own last chunk. A look-up begins at the prompt's end.
 *
 * A program runs while it has a request under way or is expected back: it has been away for at most
 * PATIENCE times the usual time, or its own. A program that is away longer gives up its place.
 *
 * Threads: any; one short lock each for the parts of the table.
 */
#ifndef KVW_PROGRAMS_H
#define KVW_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/route_request.h"
#include "kvway/slice.h"

struct kvw_programs;

/* The program of a request, at the request's arrival. */
struct kvw_turn {
	uint64_t key;         /* key of the program from this turn on; 0: none */
	uint64_t before;      /* key of the program up to this turn; 0: a new program */
	uint32_t turns;       /* turns before this one; 0: a new program */
	uint32_t context;     /* tokens of the last turn's prompt */
};

struct kvw_programs *kvw_programs_create(size_t most); /* NULL: no memory */
void kvw_programs_destroy(struct kvw_programs *programs); /* NULL is allowed */

/* Hash of the program name in a request; 0: none. */
uint64_t kvw_program_named(struct kvw_slice name);
/* Combines the hash of a program's name with a client's key, so that programs of one name under two
 * keys differ. key: the key's name; len 0: no key. */
uint64_t kvw_program_of_key(uint64_t named, struct kvw_slice key);

/* Finds the program of a new request. named: from kvw_program_named. Changes nothing. */
struct kvw_turn kvw_programs_find(struct kvw_programs *programs,
	const struct kvw_route_request *request, uint64_t named);

/* Records that the request is sent, so that its program is running. tokens: length of the
 * prompt. */
void kvw_programs_sent(struct kvw_programs *programs, const struct kvw_turn *turn, uint32_t tokens,
	int64_t now_ns);
/* Counts a sent request's work_ns of prefill, of which lost_ns recompute lost context. */
void kvw_programs_lost(struct kvw_programs *programs, int64_t lost_ns, int64_t work_ns);
/* Records that the program's request has ended. */
void kvw_programs_ended(struct kvw_programs *programs, const struct kvw_turn *turn, int64_t now_ns);

struct kvw_programs_stats {
	uint64_t known, running;
	uint64_t context;     /* tokens of the running programs' contexts */
	double limit;         /* limit of `context`, beyond which no other program may begin */
	double lost;          /* share of all prefill that recomputes lost contexts */
	double returning;     /* share of turns that were followed by another */
	int64_t away_ns;      /* most programs come back within this time */
};
/* Returns the numbers that the last kvw_programs_look computed. */
void kvw_programs_stats(const struct kvw_programs *programs, struct kvw_programs_stats *out);

/* Updates the sums over a sixteenth of the table. Any thread calls this about every 10 ms. full:
 * the workers are fully loaded, so that recomputing lost contexts takes time from others. */
void kvw_programs_look(struct kvw_programs *programs, bool full, int64_t now_ns);

#endif
