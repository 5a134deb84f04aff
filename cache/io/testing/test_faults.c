/*
 * test_faults.c - a layer that fails, corrupts and delays by rules.
 *
 * The layer passes on a copy of every operation, so that it can cut a copy short without touching
 * the caller's. Finished operations that are to be late wait in a list of their own, ordered by due
 * time.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "io/testing/disk_state.h"
#include "io/queue.h"
#include "io/testing/test_faults.h"

#define RULES 64
#define KINDS 4

struct active_rule {
	struct kvt_fault_rule rule;
	uint64_t seen, hit;
};

struct kvt_faults {
	pthread_mutex_t lock; /* guards all members below */
	struct kvt_io_layer inner;
	struct kvt_test_clock *clock;
	uint64_t random;
	uint64_t cleared; /* how often the rules have been cleared */
	struct active_rule rules[RULES];
	size_t rule_count;
	uint64_t struck[KINDS];
};

/* A file of the inner layer, with its name. */
struct fault_file {
	struct kvt_file *inner;
	char name[];
};

/* A copied operation under way. */
struct carried {
	struct kvt_io_op op; /* the inner layer's copy */
	struct kvt_io_op *outer;
	bool strikes;
	bool sent; /* the copy was submitted to the inner layer */
	struct kvt_fault_rule rule;
	uint64_t dice;
	int64_t due_ns;
	uint64_t cleared; /* the layer's `cleared` when the operation was held back */
	struct carried *next;
};

struct fault_io {
	struct kvt_io base;
	struct kvt_faults *faults;
	struct kvt_io *inner;
	struct carried *held; /* finished and held back */
	struct kvt_io_queue refused;
	bool broken; /* the last failure was caused by a rule */
	char why[KVT_REASON_BYTES];
};

static struct fault_io *of(struct kvt_io *io)
{
	return (struct fault_io *)io;
}

static struct fault_file *file_of(struct kvt_file *file)
{
	return (struct fault_file *)file;
}

/* --- rules
 * -------------------------------------------------------------------------------------- */

static bool applies(const struct active_rule *a, uint32_t on, const char *name)
{
	const char *begin = a->rule.name;

	return (a->rule.on & on) != 0 &&
		(begin == NULL || (name != NULL && strncmp(name, begin, strlen(begin)) == 0));
}

/* Returns whether a rule makes this call fail. */
static bool strike(struct kvt_faults *f, uint32_t on, const char *name,
	struct kvt_fault_rule *rule, uint64_t *dice)
{
	bool strikes = false;

	pthread_mutex_lock(&f->lock);
	for (size_t i = 0; !strikes && i < f->rule_count; i++) {
		struct active_rule *a = &f->rules[i];
		double chance = a->rule.chance == 0 ? 1.0 : a->rule.chance;

		if (!applies(a, on, name) || a->seen++ < a->rule.skip ||
			(a->rule.count > 0 && a->hit >= a->rule.count))
			continue;
		if (kvw_random_fraction(&f->random) >= chance)
			continue;
		a->hit++;
		*rule = a->rule;
		*dice = kvw_random(&f->random);
		f->struck[rule->kind]++;
		strikes = true;
	}
	pthread_mutex_unlock(&f->lock);
	return strikes;
}

static uint64_t clearings(struct kvt_faults *f)
{
	uint64_t cleared;

	pthread_mutex_lock(&f->lock);
	cleared = f->cleared;
	pthread_mutex_unlock(&f->lock);
	return cleared;
}

static void pause_for(struct kvt_faults *f, int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	if (f->clock != NULL)
		kvt_test_clock_advance(f->clock, ns);
	else
		(void)nanosleep(&t, NULL);
}

/* Checks a call that is not an operation. KVT_OK: the call may go on. */
static enum kvt_status pass(struct fault_io *io, uint32_t on, const char *name)
{
	struct kvt_fault_rule rule;
	uint64_t dice;

	io->broken = false;
	if (!strike(io->faults, on, name, &rule, &dice))
		return KVT_OK;
	if (rule.kind == KVT_FAULT_STALL && rule.delay_ns != INT64_MAX)
		pause_for(io->faults, rule.delay_ns);
	if (rule.kind != KVT_FAULT_ERROR)
		return KVT_OK;
	io->broken = true;
	(void)snprintf(io->why, sizeof(io->why), "a fault was asked for: %.64s",
		name == NULL ? "folder" : name);
	return rule.error == ENOSPC ? KVT_FULL : KVT_EIO;
}

/* --- files and names
 * ---------------------------------------------------------------------------- */

static enum kvt_status fault_open(struct kvt_io *io, const char *name, enum kvt_open_how how,
	bool direct, struct kvt_file **out)
{
	struct fault_io *f = of(io);
	enum kvt_status status = pass(f, KVT_ON_OPEN, name);
	struct fault_file *file;

	if (status != KVT_OK)
		return status;
	file = calloc(1, sizeof(*file) + strlen(name) + 1);
	if (file == NULL)
		return KVT_ENOMEM;
	memcpy(file->name, name, strlen(name) + 1);
	status = f->inner->ops->open(f->inner, name, how, direct, &file->inner);
	if (status == KVT_OK)
		*out = (struct kvt_file *)file;
	else
		free(file);
	return status;
}

static void fault_close(struct kvt_io *io, struct kvt_file *handle)
{
	struct fault_file *file = file_of(handle);

	of(io)->inner->ops->close(of(io)->inner, file->inner);
	free(file);
}

static enum kvt_status fault_info(
	struct kvt_io *io, struct kvt_file *handle, struct kvt_io_file_info *out)
{
	enum kvt_status status = pass(of(io), KVT_ON_INFO, file_of(handle)->name);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->info(inner, file_of(handle)->inner, out);
}

static enum kvt_status fault_reserve(struct kvt_io *io, struct kvt_file *handle, uint64_t bytes)
{
	enum kvt_status status = pass(of(io), KVT_ON_RESERVE, file_of(handle)->name);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->reserve(inner, file_of(handle)->inner, bytes);
}

static enum kvt_status fault_truncate(struct kvt_io *io, struct kvt_file *handle, uint64_t bytes)
{
	enum kvt_status status = pass(of(io), KVT_ON_TRUNCATE, file_of(handle)->name);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->truncate(inner, file_of(handle)->inner, bytes);
}

static enum kvt_status fault_remove(struct kvt_io *io, const char *name)
{
	enum kvt_status status = pass(of(io), KVT_ON_REMOVE, name);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->remove(inner, name);
}

static enum kvt_status fault_rename(struct kvt_io *io, const char *from, const char *to)
{
	enum kvt_status status = pass(of(io), KVT_ON_RENAME, from);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->rename(inner, from, to);
}

static enum kvt_status fault_sync_folder(struct kvt_io *io)
{
	enum kvt_status status = pass(of(io), KVT_ON_SYNC_FOLDER, NULL);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->sync_folder(inner);
}

static enum kvt_status fault_list(
	struct kvt_io *io, void (*each)(void *self, const char *name), void *self)
{
	enum kvt_status status = pass(of(io), KVT_ON_LIST, NULL);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->list(inner, each, self);
}

static enum kvt_status fault_free_bytes(struct kvt_io *io, uint64_t *out)
{
	enum kvt_status status = pass(of(io), KVT_ON_FREE_BYTES, NULL);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->free_bytes(inner, out);
}

static enum kvt_status fault_lock(struct kvt_io *io, int64_t *owner)
{
	enum kvt_status status = pass(of(io), KVT_ON_LOCK, NULL);
	struct kvt_io *inner = of(io)->inner;

	return status != KVT_OK ? status : inner->ops->lock(inner, owner);
}

/* --- operations
 * --------------------------------------------------------------------------------- */

static uint32_t mask_of(enum kvt_io_kind kind)
{
	return kind == KVT_IO_READ ? KVT_ON_READ : kind == KVT_IO_WRITE ? KVT_ON_WRITE : KVT_ON_SYNC;
}

/* Shortens an operation to its first `bytes`. */
static void cut(struct kvt_io_op *op, uint64_t bytes)
{
	uint32_t count = 0;

	while (count < op->piece_count && bytes > 0) {
		struct iovec *piece = &op->pieces[count++];

		if (piece->iov_len > bytes)
			piece->iov_len = bytes;
		bytes -= piece->iov_len;
	}
	op->piece_count = count;
}

/* Returns a number of bytes, fewer than all, that is possible for the file's alignment. */
static uint64_t a_part(struct fault_io *io, struct kvt_io_op *op, uint64_t dice)
{
	struct kvt_io_file_info info = {.alignment = 1};
	uint64_t bytes = kvt_io_bytes(op);

	if (io->inner->ops->info(io->inner, op->file, &info) != KVT_OK || bytes == 0)
		return 0;
	bytes = dice % bytes;
	return bytes - bytes % info.alignment;
}

/* Returns true if the operation is to go to the inner layer, as a whole or in part. */
static bool prepare(struct fault_io *io, struct carried *c)
{
	bool cuts = c->strikes && c->rule.kind == KVT_FAULT_SHORT;

	if (c->strikes && c->rule.kind == KVT_FAULT_ERROR) {
		if (c->op.kind != KVT_IO_WRITE || c->dice % 3 == 0)
			return false;
		cuts = c->dice % 3 == 1;
	}
	if (cuts && c->op.kind != KVT_IO_SYNC) {
		cut(&c->op, a_part(io, &c->op, c->dice >> 8));
		if (c->op.piece_count == 0)
			return false;
	}
	return true;
}

static int error_of(const struct kvt_fault_rule *rule)
{
	return rule->error == 0 ? EIO : rule->error;
}

static void hold(struct fault_io *io, struct carried *c, int64_t delay_ns)
{
	int64_t now = kvt_test_clock_now(io->faults->clock);

	c->cleared = clearings(io->faults);
	c->due_ns = delay_ns > INT64_MAX - now ? INT64_MAX : now + delay_ns;
	c->next = io->held;
	io->held = c;
}

static void refuse(struct fault_io *io, struct kvt_io_op *op, int64_t result)
{
	op->result = result;
	kvt_io_queue_add(&io->refused, op);
}

/* Returns whether a stalled operation is executed late. A stalled read gets its bytes late, into
 * memory for which its user may no longer wait; a stalled write may have happened long before it is
 * reported. */
static bool begins_late(const struct carried *c)
{
	return c->op.kind == KVT_IO_READ || c->dice % 2 == 0;
}

static void send(struct fault_io *io, struct kvt_io_op *op)
{
	struct fault_file *file = file_of(op->file);
	struct carried *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		refuse(io, op, -ENOMEM);
		return;
	}
	c->op = *op;
	c->op.file = file->inner;
	c->op.user = c;
	c->op.next = NULL;
	c->outer = op;
	c->strikes = strike(io->faults, mask_of(op->kind), file->name, &c->rule, &c->dice);
	if (c->strikes && c->rule.kind == KVT_FAULT_STALL && begins_late(c)) {
		hold(io, c, c->rule.delay_ns);
		return;
	}
	if (prepare(io, c)) {
		c->sent = true;
		io->inner->ops->submit(io->inner, &c->op);
		return;
	}
	refuse(io, op, c->rule.kind == KVT_FAULT_SHORT ? 0 : -error_of(&c->rule));
	free(c);
}

static void fault_submit(struct kvt_io *io, struct kvt_io_op *list)
{
	while (list != NULL) {
		struct kvt_io_op *op = list;

		list = op->next;
		send(of(io), op);
	}
}

static void flip(struct kvt_io_op *op, uint64_t dice)
{
	uint64_t bit;

	if (op->result <= 0)
		return;
	bit = dice % ((uint64_t)op->result * 8);
	for (uint32_t i = 0; i < op->piece_count; i++) {
		uint64_t bits = (uint64_t)op->pieces[i].iov_len * 8;

		if (bit < bits) {
			((uint8_t *)op->pieces[i].iov_base)[bit / 8] ^= (uint8_t)(1u << bit % 8);
			return;
		}
		bit -= bits;
	}
}

/* Handles an operation that the inner layer has finished. Returns the operation of which it is a
 * copy, or NULL if that is held back. */
static struct kvt_io_op *arrive(struct fault_io *io, struct carried *c)
{
	struct kvt_io_op *outer = c->outer;

	outer->result = c->op.result;
	outer->next = NULL;
	if (c->strikes && c->rule.kind == KVT_FAULT_STALL) {
		c->strikes = false;
		hold(io, c, c->rule.delay_ns);
		return NULL;
	}
	if (c->strikes && c->rule.kind == KVT_FAULT_ERROR)
		outer->result = -error_of(&c->rule);
	if (c->strikes && c->rule.kind == KVT_FAULT_FLIP && outer->kind == KVT_IO_READ)
		flip(outer, c->dice);
	free(c);
	return outer;
}

static struct kvt_io_op *take_due(struct fault_io *io)
{
	int64_t now = kvt_test_clock_now(io->faults->clock);
	uint64_t cleared = clearings(io->faults);

	for (struct carried **at = &io->held; *at != NULL;) {
		struct carried *c = *at;

		if (c->due_ns > now && c->cleared == cleared) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		if (c->sent)
			return arrive(io, c);
		c->sent = true;
		c->strikes = false;
		io->inner->ops->submit(io->inner, &c->op);
	}
	return NULL;
}

static size_t collect(struct fault_io *io, struct kvt_io_op **out, size_t max, int64_t wait_ns)
{
	struct kvt_io_op *back[64];
	size_t n = 0, got;

	while (n < max && (out[n] = kvt_io_queue_take(&io->refused)) != NULL)
		n++;
	while (n < max && (out[n] = take_due(io)) != NULL)
		n++;
	if (n == max)
		return n;
	got = io->inner->ops->reap(
		io->inner, back, max - n < 64 ? max - n : 64, n > 0 ? 0 : wait_ns);
	for (size_t i = 0; i < got; i++) {
		out[n] = arrive(io, back[i]->user);
		n += out[n] != NULL;
	}
	return n;
}

/* Time until the next held-back operation is due, at most `most`. */
static int64_t until_due(const struct fault_io *io, int64_t most)
{
	int64_t now = kvt_test_clock_now(io->faults->clock);

	for (const struct carried *c = io->held; c != NULL; c = c->next)
		if (c->due_ns - now < most)
			most = c->due_ns > now ? c->due_ns - now : 0;
	return most;
}

static size_t fault_reap(struct kvt_io *io, struct kvt_io_op **out, size_t max, int64_t wait_ns)
{
	struct fault_io *f = of(io);
	int64_t before = kvt_test_clock_now(f->faults->clock);
	int64_t wait = wait_ns > 0 ? until_due(f, wait_ns) : 0;
	size_t n = collect(f, out, max, wait);

	if (n > 0 || wait == 0)
		return n;
	/* The inner layer may not know the test's clock. */
	if (f->faults->clock != NULL && kvt_test_clock_now(f->faults->clock) == before)
		kvt_test_clock_advance(f->faults->clock, wait);
	return collect(f, out, max, 0);
}

static void fault_wake(struct kvt_io *io)
{
	of(io)->inner->ops->wake(of(io)->inner);
}

static const struct kvt_io_mode *fault_mode(struct kvt_io *io)
{
	return of(io)->inner->ops->mode(of(io)->inner);
}

static const char *fault_why(struct kvt_io *io)
{
	return of(io)->broken ? of(io)->why : of(io)->inner->ops->why(of(io)->inner);
}

static void fault_destroy(struct kvt_io *io)
{
	if (io == NULL)
		return;
	of(io)->inner->ops->destroy(of(io)->inner);
	free(io);
}

static const struct kvt_io_ops fault_ops = {
	.open = fault_open,
	.close = fault_close,
	.info = fault_info,
	.reserve = fault_reserve,
	.truncate = fault_truncate,
	.remove = fault_remove,
	.rename = fault_rename,
	.sync_folder = fault_sync_folder,
	.list = fault_list,
	.free_bytes = fault_free_bytes,
	.lock = fault_lock,
	.submit = fault_submit,
	.reap = fault_reap,
	.wake = fault_wake,
	.mode = fault_mode,
	.why = fault_why,
	.destroy = fault_destroy,
};

/* --- the layer
 * ---------------------------------------------------------------------------------- */

static enum kvt_status fault_create(void *self, const char *folder,
	const struct kvt_io_options *options, struct kvt_io **out)
{
	struct kvt_faults *faults = self;
	struct fault_io *io = calloc(1, sizeof(*io));
	enum kvt_status status;

	if (io == NULL)
		return KVT_ENOMEM;
	io->base.ops = &fault_ops;
	io->faults = faults;
	status = pass(io, KVT_ON_CREATE, NULL);
	if (status == KVT_OK)
		status = faults->inner.create(faults->inner.self, folder, options, &io->inner);
	if (status != KVT_OK) {
		free(io);
		return status;
	}
	*out = &io->base;
	return KVT_OK;
}

enum kvt_status kvt_faults_create(struct kvt_io_layer inner, uint64_t seed,
	struct kvt_test_clock *clock, struct kvt_faults **out)
{
	struct kvt_faults *faults = calloc(1, sizeof(*faults));

	if (faults == NULL)
		return KVT_ENOMEM;
	pthread_mutex_init(&faults->lock, NULL);
	faults->inner = inner;
	faults->clock = clock;
	faults->random = seed;
	*out = faults;
	return KVT_OK;
}

void kvt_faults_destroy(struct kvt_faults *faults)
{
	if (faults == NULL)
		return;
	pthread_mutex_destroy(&faults->lock);
	free(faults);
}

struct kvt_io_layer kvt_faults_layer(struct kvt_faults *faults)
{
	return (struct kvt_io_layer){.create = fault_create, .self = faults};
}

enum kvt_status kvt_faults_add(struct kvt_faults *faults, const struct kvt_fault_rule *rule)
{
	enum kvt_status status = KVT_FULL;

	pthread_mutex_lock(&faults->lock);
	if (faults->rule_count < RULES) {
		faults->rules[faults->rule_count++] = (struct active_rule){.rule = *rule};
		status = KVT_OK;
	}
	pthread_mutex_unlock(&faults->lock);
	return status;
}

void kvt_faults_clear(struct kvt_faults *faults)
{
	pthread_mutex_lock(&faults->lock);
	faults->rule_count = 0;
	faults->cleared++;
	pthread_mutex_unlock(&faults->lock);
}

uint64_t kvt_faults_struck(struct kvt_faults *faults, enum kvt_fault_kind kind)
{
	uint64_t struck;

	pthread_mutex_lock(&faults->lock);
	struck = faults->struck[kind];
	pthread_mutex_unlock(&faults->lock);
	return struck;
}
