/*
 * ops.c - operations, their table and their completions.
 *
 * The table has as many slots as config.ops; a slot is taken from begin until the operation is
 * polled and its lease taken. An operation's number is its slot and a count of the slot's uses, so
 * that an old number finds nothing. Running operations are in a list by deadline. Nearly all have
 * the same duration, so that the place of a new one is found quickly from the end.
 *
 * The first waiting completion writes the eventfd and the poll of the last one reads it, so that it
 * is readable exactly while completions wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/ops.h"

#define NO_SLOT UINT32_MAX

struct kvt_op_slot {
	struct kvt_op *op;
	uint32_t uses;
	uint32_t next_free;
};

/* --- table ------------------------------------------------------------------------------------ */

enum kvt_status kvt_ops_init(struct kvt *k)
{
	struct kvt_ops *ops = &k->ops;

	ops->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (ops->eventfd < 0)
		return errno == ENOMEM ? KVT_ENOMEM : KVT_EIO;
	ops->slot_count = k->config.ops;
	ops->slots = calloc(ops->slot_count, sizeof(*ops->slots));
	if (ops->slots == NULL)
		return KVT_ENOMEM;
	for (uint32_t i = 0; i < ops->slot_count; i++)
		ops->slots[i].next_free = i + 1 < ops->slot_count ? i + 1 : NO_SLOT;
	ops->free_slot = 0;
	return KVT_OK;
}

static struct kvt_op_slot *slot_of(struct kvt *k, uint64_t id)
{
	uint32_t number = (uint32_t)id - 1;
	struct kvt_op_slot *slot;

	if (id == 0 || number >= k->ops.slot_count)
		return NULL;
	slot = &k->ops.slots[number];
	return slot->op != NULL && slot->op->id == id ? slot : NULL;
}

static void free_slot(struct kvt *k, struct kvt_op_slot *slot)
{
	struct kvt_op *op = slot->op;

	kvt_hold_give(&k->leases, k->l1, op->hold);
	free(op);
	slot->op = NULL;
	slot->next_free = k->ops.free_slot;
	k->ops.free_slot = (uint32_t)(slot - k->ops.slots);
}

void kvt_ops_finish(struct kvt *k)
{
	for (uint32_t i = 0; k->ops.slots != NULL && i < k->ops.slot_count; i++)
		if (k->ops.slots[i].op != NULL)
			free_slot(k, &k->ops.slots[i]);
	free(k->ops.slots);
	k->ops.slots = NULL;
	if (k->ops.eventfd >= 0)
		close(k->ops.eventfd);
	k->ops.eventfd = -1;
}

/* --- life of one ------------------------------------------------------------------------------ */

static void insert_by_deadline(struct kvt_ops *ops, struct kvt_op *op)
{
	struct kvt_op *before = ops->last;

	while (before != NULL && before->deadline_ns > op->deadline_ns)
		before = before->prev;
	op->prev = before;
	op->next = before != NULL ? before->next : ops->first;
	*(op->prev != NULL ? &op->prev->next : &ops->first) = op;
	*(op->next != NULL ? &op->next->prev : &ops->last) = op;
}

enum kvt_status kvt_op_begin(
	struct kvt *k, struct kvt_op *op, const struct kvt_op_want *want, int64_t deadline_ns)
{
	struct kvt_ops *ops = &k->ops;
	struct kvt_op_slot *slot;

	if (k->closing)
		return KVT_ECANCELED;
	if (want->id != NULL) {
		if (ops->free_slot == NO_SLOT)
			return KVT_BUSY;
		slot = &ops->slots[ops->free_slot];
		op->id = (uint64_t)++slot->uses << 32 | (ops->free_slot + 1);
		op->user = want->user;
		ops->free_slot = slot->next_free;
		slot->op = op;
		*want->id = op->id;
	}
	op->deadline_ns = deadline_ns;
	insert_by_deadline(ops, op);
	if (ops->first == op)
		kvt_kick(k);
	return KVT_OK;
}

static void signal_completion(struct kvt_ops *ops)
{
	uint64_t one = 1;

	if (!ops->signalled && write(ops->eventfd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		ops->signalled = true;
}

void kvt_op_done(struct kvt *k, struct kvt_op *op, enum kvt_status status, uint64_t count)
{
	struct kvt_ops *ops = &k->ops;

	*(op->prev != NULL ? &op->prev->next : &ops->first) = op->next;
	*(op->next != NULL ? &op->next->prev : &ops->last) = op->prev;
	op->next = op->prev = NULL;
	op->status = status;
	op->count = count;
	op->done = true;
	if (op->id == 0) {
		pthread_cond_broadcast(&k->changed);
		return;
	}
	*(ops->done_last != NULL ? &ops->done_last->next : &ops->done_first) = op;
	ops->done_last = op;
	signal_completion(ops);
}

size_t kvt_ops_expire(struct kvt *k, int64_t now_ns, int64_t *next_ns)
{
	size_t count = 0;

	while (k->ops.first != NULL && k->ops.first->deadline_ns <= now_ns) {
		k->ops.first->expire(k, k->ops.first, KVT_MISS);
		count++;
	}
	if (k->ops.first != NULL && k->ops.first->deadline_ns < *next_ns)
		*next_ns = k->ops.first->deadline_ns;
	return count;
}

void kvt_ops_stop(struct kvt *k)
{
	while (k->ops.first != NULL)
		k->ops.first->expire(k, k->ops.first, KVT_ECANCELED);
}

/* --- public ----------------------------------------------------------------------------------- */

enum kvt_status kvt_cancel(struct kvt *k, uint64_t id)
{
	enum kvt_status status = kvt_usable(k);
	struct kvt_op_slot *slot;

	if (status != KVT_OK)
		return status;
	pthread_mutex_lock(&k->lock);
	slot = slot_of(k, id);
	if (slot == NULL)
		status = KVT_MISS;
	else if (!slot->op->done)
		slot->op->expire(k, slot->op, KVT_ECANCELED);
	pthread_mutex_unlock(&k->lock);
	return status;
}

int kvt_eventfd(struct kvt *k)
{
	return kvt_usable(k) == KVT_OK ? k->ops.eventfd : -1;
}

static struct kvt_op *take_completion(struct kvt *k, struct kvt_completion *out)
{
	struct kvt_op *op = k->ops.done_first;

	if (op == NULL)
		return NULL;
	k->ops.done_first = op->next;
	if (op->next == NULL)
		k->ops.done_last = NULL;
	op->next = NULL;
	op->polled = true;
	*out = (struct kvt_completion){op->id, op->user, op->kind, op->status, op->count};
	return op;
}

size_t kvt_poll(struct kvt *k, struct kvt_completion *out, size_t max)
{
	struct kvt_op *op;
	size_t count = 0;
	uint64_t value;

	if (kvt_usable(k) != KVT_OK || out == NULL)
		return 0;
	pthread_mutex_lock(&k->lock);
	while (count < max && (op = take_completion(k, &out[count])) != NULL) {
		count++;
		if (op->hold == NULL)
			free_slot(k, slot_of(k, op->id));
	}
	if (k->ops.done_first == NULL && k->ops.signalled &&
		read(k->ops.eventfd, &value, sizeof(value)) == (ssize_t)sizeof(value))
		k->ops.signalled = false;
	pthread_mutex_unlock(&k->lock);
	return count;
}

enum kvt_status kvt_get_take(struct kvt *k, uint64_t id, struct kvt_lease **lease)
{
	enum kvt_status status = kvt_usable(k);
	struct kvt_op_slot *slot;

	if (status == KVT_OK && lease == NULL)
		status = KVT_EINVAL;
	if (status != KVT_OK)
		return status;
	pthread_mutex_lock(&k->lock);
	slot = slot_of(k, id);
	if (slot == NULL || slot->op->kind != KVT_OP_GET) {
		status = KVT_MISS;
	} else if (!slot->op->done) {
		status = KVT_BUSY;
	} else if (slot->op->hold == NULL) {
		status = slot->op->status == KVT_OK ? KVT_MISS : (enum kvt_status)slot->op->status;
	} else {
		*lease = &slot->op->hold->lease;
		slot->op->hold = NULL;
		if (slot->op->polled)
			free_slot(k, slot);
	}
	pthread_mutex_unlock(&k->lock);
	return status;
}
