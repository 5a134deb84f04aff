/*
 * queue.h - lists of operations, and how many bytes an operation moves.
 */
#ifndef KVT_QUEUE_H
#define KVT_QUEUE_H

#include "kvtier/kvtier_io.h"

/* Operations in order, linked by their member `next`. */
struct kvt_io_queue {
	struct kvt_io_op *first, *last;
};

static inline void kvt_io_queue_add(struct kvt_io_queue *q, struct kvt_io_op *op)
{
	op->next = NULL;
	if (q->last == NULL)
		q->first = op;
	else
		q->last->next = op;
	q->last = op;
}

/* NULL: empty. */
static inline struct kvt_io_op *kvt_io_queue_take(struct kvt_io_queue *q)
{
	struct kvt_io_op *op = q->first;

	if (op == NULL)
		return NULL;
	q->first = op->next;
	if (q->first == NULL)
		q->last = NULL;
	op->next = NULL;
	return op;
}

/* Returns the number of bytes in all pieces of an operation. */
static inline uint64_t kvt_io_bytes(const struct kvt_io_op *op)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < op->piece_count; i++)
		bytes += op->pieces[i].iov_len;
	return bytes;
}

#endif
