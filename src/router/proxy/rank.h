/*
 * rank.h - the field X-data-parallel-rank of requests to a data-parallel rank (fleet/ranks.h).
 *
 * Each request to a rank has this field, with the number of the rank that was chosen; a field of
 * that name from the client is dropped, since the client does not know which server its request
 * goes to (x-kvway-pin names a rank). A server that refuses the number with 400 has done nothing:
 * the request is sent once more, with the other number, and after two refusals without the field. A
 * request that cannot be sent once more has the field only where the server is known to take it. A
 * prefill (leg.h) has it, too: after a refusal the decoder serves the request whole.
 *
 * SGLang's /generate does not look at the field: there the number is the body's first member,
 * `routed_dp_rank`, unless the body names a rank itself. The body stays as it is: what stands
 * before its first member is repeated behind the head, with the new member, and the body is sent
 * from its first member on. A body that is not kept whole has no such member.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_RANK_H
#define KVW_RANK_H

#include "http/write.h"
#include "proxy/exchange.h"

#define KVW_RANK_FIELD_ROOM 48 /* bytes of the field */
#define KVW_RANK_LEAD_ROOM  64 /* bytes of a body's beginning with the member for a rank */

/* Drops the client's field from the head, and writes the field for a rank. Returns the rank's
 * number; KVW_RANK_NONE: no field was written. */
int64_t kvw_rank_write(struct kvw_worker *worker, struct kvw_head *head, bool sure, int64_t now_ns,
	struct kvw_writer *w);

/* Writes the field for the attempt, if its worker is a rank. */
void kvw_rank_write_field(struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w);

/* Returns x->rank_at, once the body is scanned. */
uint8_t kvw_rank_place(const struct kvw_exchange *x);
/* Called after kvw_rank_write_field: writes how the body begins with the member for the rank. A
 * chunked body loses its framing. False: the body is sent as it is. */
bool kvw_rank_lead(struct kvw_exchange *x, struct kvw_writer *w);

/* Handles the head of an answer: decides whether its body must be read. */
void kvw_rank_answered(struct kvw_exchange *x, int status);
/* Called when the answer's body says that the server refuses the number: notes that as the
 * attempt's failure, after which the request is sent again. */
void kvw_rank_leave(struct kvw_exchange *x);

#endif
