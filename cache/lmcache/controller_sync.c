/*
 * controller_sync.c - reports all chunks that the cache holds to a controller.
 *
 * A sync sends Start for a location; once that is accepted, all batches and an End; then it asks
 * for Status until the controller has all batches. It sends missing batches again, each time with
 * another End. The keys are those at the moment of Start: later changes wait (a stock worker stores
 * nothing meanwhile) and are sent afterwards, in their order, so that in the end the controller
 * knows the true contents. One location follows the other.
 *
 * A controller of a version without full syncs gets all keys as new ones.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lmcache/controller_parts.h"

#define STARTS        3 /* tries */
#define STOCK_WAIT_NS INT64_C(2000000000)
#define POLLS         60
#define POLL_NS       INT64_C(200000000)
#define POLL_MOST_NS  INT64_C(5000000000)
#define FAILED_NS     INT64_C(5000000000) /* time after which a failed sync is tried again */
#define STUCK_NS      INT64_C(20000000)   /* time after which a full socket is tried again */
#define TURN_BATCHES  32

void kvt_controller_sync_end(struct kvt_controller_link *link)
{
	free(link->sync.keys);
	link->sync = (struct kvt_controller_sync){0};
}

static void failed(struct kvt_controller_link *link, int64_t now_ns)
{
	kvt_controller_sync_end(link);
	link->stats.syncs_failed++;
	if (link->config.stock)
		return;
	link->resync = true;
	link->resync_ns = now_ns + FAILED_NS;
}

static void send_start(struct kvt_controller_link *link, int64_t now_ns)
{
	struct kvt_controller_sync *sync = &link->sync;

	kvt_controller_put_sync_start(&link->out, &link->sender,
		kvt_controller_location(sync->location), sync->id, sync->count, sync->batches);
	kvt_controller_ask(link, link->request);
	sync->tries++;
	sync->again_ns = now_ns + (link->config.stock ? STOCK_WAIT_NS : link->config.answer_ns);
}

/* Sends Start for the next location. Returns false if the sync could not begin. */
static bool begin_location(struct kvt_controller_link *link, uint32_t location, int64_t now_ns)
{
	const struct kvt_controller_link_user *user = &link->config.user;
	struct kvt_controller_sync *sync = &link->sync;
	uint32_t batch = link->config.sync_batch;

	kvt_controller_sync_end(link);
	sync->location = location;
	if (!link->config.stock)
		link->changes[location].count = 0; /* the listed keys include these changes */
	if (!user->keys(user->self, location, &sync->keys, &sync->count))
		return false;
	sync->batches = (sync->count + batch - 1) / batch;
	snprintf(sync->id, sizeof(sync->id), "%s_%u_%08x", link->instance, link->sender.worker,
		++link->sync_number);
	if (kvt_controller_is_old(link)) {
		sync->state = KVT_CONTROLLER_SYNC_SENDING;
		return true;
	}
	sync->state = KVT_CONTROLLER_SYNC_ASKED;
	send_start(link, now_ns);
	return true;
}

void kvt_controller_sync_begin(struct kvt_controller_link *link, int64_t now_ns)
{
	if (link->sync.state != KVT_CONTROLLER_NO_SYNC)
		return;
	kvt_controller_link_flush(link);
	link->resync = false;
	link->stats.syncs++;
	if (!begin_location(link, 0, now_ns))
		failed(link, now_ns);
}

static void location_done(struct kvt_controller_link *link, int64_t now_ns)
{
	uint32_t next = link->sync.location + 1;

	link->stats.sync_keys += link->sync.count;
	if (next < link->config.locations) {
		if (!begin_location(link, next, now_ns))
			failed(link, now_ns);
		return;
	}
	kvt_controller_sync_end(link);
	kvt_controller_link_flush(link);
}

static bool send_batch(struct kvt_controller_link *link, uint32_t batch)
{
	const struct kvt_controller_sync *sync = &link->sync;
	const char *location = kvt_controller_location(sync->location);
	uint32_t size = link->config.sync_batch, from = batch * size;
	uint32_t count = sync->count - from < size ? sync->count - from : size;
	struct kvt_controller_changes *changes = &link->changes[sync->location];
	struct kvt_controller_operation *admits;

	if (!kvt_controller_is_old(link)) {
		kvt_controller_put_sync_batch(&link->out, &link->sender, location, sync->id, batch,
			sync->keys + from, count);
		return kvt_controller_push(link, false);
	}
	admits = malloc(((size_t)count + 1) * sizeof(*admits));
	if (admits == NULL)
		return false;
	for (uint32_t i = 0; i < count; i++)
		admits[i] = (struct kvt_controller_operation){
			sync->keys[from + i], changes->next_number + i, true};
	kvt_controller_put_operations(&link->out, &link->sender, location, admits, count);
	free(admits);
	if (!kvt_controller_push(link, false))
		return false;
	changes->next_number += count;
	return true;
}

static bool send_end(struct kvt_controller_link *link, int64_t now_ns)
{
	struct kvt_controller_sync *sync = &link->sync;

	kvt_controller_put_sync_end(&link->out, &link->sender,
		kvt_controller_location(sync->location), sync->id, sync->count);
	if (!kvt_controller_push(link, false))
		return false;
	sync->again_ns = now_ns + POLL_NS;
	return true;
}

/* Sends as much as the socket takes; a later call sends the rest. */
static void go_on_sending(struct kvt_controller_link *link, int64_t now_ns)
{
	struct kvt_controller_sync *sync = &link->sync;
	uint32_t sent = 0;

	sync->again_ns = now_ns + STUCK_NS;
	while (sync->next_batch < sync->batches) {
		if (!link->config.stock && sent == TURN_BATCHES) {
			sync->again_ns = now_ns;
			return;
		}
		if (!send_batch(link, sync->next_batch))
			return;
		sync->next_batch++;
		sent++;
	}
	if (kvt_controller_is_old(link)) {
		location_done(link, now_ns);
		return;
	}
	if (!send_end(link, now_ns))
		return;
	sync->state = KVT_CONTROLLER_SYNC_SENT;
	sync->tries = 0;
}

void kvt_controller_sync_started(struct kvt_controller_link *link, bool accepted, int64_t now_ns)
{
	if (link->sync.state != KVT_CONTROLLER_SYNC_ASKED)
		return;
	if (!accepted) {
		failed(link, now_ns);
		return;
	}
	link->sync.state = KVT_CONTROLLER_SYNC_SENDING;
	go_on_sending(link, now_ns);
}

void kvt_controller_sync_status(
	struct kvt_controller_link *link, const struct kvt_controller_message *m, int64_t now_ns)
{
	bool sent = true;

	if (link->sync.state != KVT_CONTROLLER_SYNC_SENT)
		return;
	if (m->can_exit_freeze || (m->is_complete && !link->config.stock)) {
		location_done(link, now_ns);
		return;
	}
	for (uint32_t i = 0; i < m->missing_count && sent; i++)
		if (m->missing[i] < link->sync.batches)
			sent = send_batch(link, m->missing[i]);
	if (m->missing_count > 0 && sent)
		(void)send_end(link, now_ns);
}

static void ask_status(struct kvt_controller_link *link, int64_t now_ns)
{
	struct kvt_controller_sync *sync = &link->sync;
	int64_t pause = POLL_NS;

	kvt_controller_put_sync_status(&link->out, &link->sender, sync->id);
	kvt_controller_ask(link, link->request);
	sync->tries++;
	for (uint32_t i = 5; i < sync->tries && pause < POLL_MOST_NS && !link->config.stock; i++)
		pause *= 2;
	sync->again_ns = now_ns + pause;
}

bool kvt_controller_sync_tick(struct kvt_controller_link *link, int64_t now_ns)
{
	struct kvt_controller_sync *sync = &link->sync;

	if (sync->state == KVT_CONTROLLER_NO_SYNC) {
		if (link->resync && now_ns >= link->resync_ns)
			kvt_controller_sync_begin(link, now_ns);
		return true;
	}
	if (now_ns < sync->again_ns)
		return true;
	if (sync->state == KVT_CONTROLLER_SYNC_SENDING) {
		go_on_sending(link, now_ns);
	} else if (sync->state == KVT_CONTROLLER_SYNC_SENT) {
		if (sync->tries >= POLLS)
			failed(link, now_ns);
		else
			ask_status(link, now_ns);
	} else if (!link->config.stock) {
		return false;
	} else if (sync->tries >= STARTS) {
		failed(link, now_ns);
	} else {
		send_start(link, now_ns);
	}
	return true;
}
