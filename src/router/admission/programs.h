/*
 * programs.h - agents and conversations: which requests are turns of one, and which of those run.
 *
 * The context of a program grows with each turn and lies in a worker's cache until the next. With
 * more programs than fit there, each turn pushes out the context of another program's, all of it is
 * computed again, and none gets on. So a new program, or a program whose context is lost already,
 * waits while the running programs have more context than the limit. The limit is learned from the
 * share of prefill that computes lost contexts again: while it is large and the workers have all
 * that they can do, the limit goes down from what runs; else it goes up. A fleet whose programs
 * seldom come back, or late, loses little by that and has no limit.
 *
 * A program is known by the key that a request names (a header, a session), or by its prompt: the
 * next turn's begins with the last one's. The table maps the hash of a prompt's last full chunk,
 * which stands for all before it, to the program; each turn moves the entry to its own last chunk.
 * A look-up begins at the prompt's end.
 *
 * A program runs while it has a request under way or is expected back: it has been away for no
 * longer than PATIENCE times what programs take in general or this one took before. A program that
 * is away longer yields its place.
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

/* The program of a request, as known when the request comes. */
struct kvw_turn {
	uint64_t key;         /* of the program, from this turn on; 0: none */
	uint64_t before;      /* until now; 0: it is new */
	uint32_t turns;       /* before this one; 0: it is new */
	uint32_t context;     /* tokens of the last turn's prompt */
};

struct kvw_programs *kvw_programs_create(size_t most); /* NULL: no memory */
void kvw_programs_destroy(struct kvw_programs *programs); /* NULL is allowed */

/* Hash of the key that a request names; 0: it names none. */
uint64_t kvw_program_named(struct kvw_slice name);
/* The same for a client's key: two keys' programs of one name differ. key: the key's name; len 0:
 * none. */
uint64_t kvw_program_of_key(uint64_t named, struct kvw_slice key);

/* A request has come. named: as kvw_program_named says. Changes nothing. */
struct kvw_turn kvw_programs_find(struct kvw_programs *programs,
	const struct kvw_route_request *request, uint64_t named);

/* The request is sent: its program runs. tokens: length of the prompt. */
void kvw_programs_sent(struct kvw_programs *programs, const struct kvw_turn *turn, uint32_t tokens,
	int64_t now_ns);
/* Of work_ns of prefill of a sent request, lost_ns compute context again that was computed
 * before. */
void kvw_programs_lost(struct kvw_programs *programs, int64_t lost_ns, int64_t work_ns);
/* The request has ended. */
void kvw_programs_ended(struct kvw_programs *programs, const struct kvw_turn *turn, int64_t now_ns);

struct kvw_programs_stats {
	uint64_t known, running;
	uint64_t context;     /* tokens of those that run */
	double limit;         /* of that, beyond which no other may begin */
	double lost;          /* share of all prefill that computes lost contexts again */
	double returning;     /* share of turns that were followed by another */
	int64_t away_ns;      /* time between turns, as most take at most */
};
/* Numbers of the last kvw_programs_look. */
void kvw_programs_stats(const struct kvw_programs *programs, struct kvw_programs_stats *out);

/* Counts a sixteenth of the programs. Any thread calls it about every 10 ms. full: the workers have
 * as much work as they can do, so that computing lost contexts takes time from others. */
void kvw_programs_look(struct kvw_programs *programs, bool full, int64_t now_ns);

#endif
