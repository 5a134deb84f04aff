/*
 * controller_send.c - what a link sends: single messages, and changes of the chunks that the cache
 * holds.
 *
 * Changes wait while the link asks for its registration, and while a full sync is under way;
 * changes beyond the limit are dropped, and a full sync follows.
 */
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "lmcache/controller_parts.h"

#define STOCK_WAITING 100000 /* most changes that a stock worker keeps waiting */
#define FRAME_MOST    200    /* changes of one message */
#define STOCK_FRAMES  50     /* messages of one multipart */
#define OWN_FRAMES    4

const char *kvt_controller_location(uint32_t location)
{
	return location == 0 ? KVT_CONTROLLER_CPU : KVT_CONTROLLER_DISK;
}

/* --- messages --------------------------------------------------------------------------------- */

void kvt_controller_ask(struct kvt_controller_link *link, void *socket)
{
	if (socket != NULL && !link->out.failed &&
		zmq_send(socket, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
		(void)!zmq_send(socket, link->out.data, link->out.len, ZMQ_DONTWAIT);
	kvt_controller_buf_clear(&link->out);
}

bool kvt_controller_push(struct kvt_controller_link *link, bool more)
{
	bool sent = !link->out.failed && zmq_send(link->push, link->out.data, link->out.len,
						 ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;

	kvt_controller_buf_clear(&link->out);
	link->stats.messages += sent;
	return sent;
}

/* --- changes ---------------------------------------------------------------------------------- */

/* Makes room for one more change. Returns false if the limit is reached, or memory is short. */
static bool make_room(struct kvt_controller_link *link, struct kvt_controller_changes *c)
{
	uint32_t most = link->config.stock ? STOCK_WAITING : link->config.queue;
	uint32_t room = c->room == 0 ? 256 : 2 * c->room;
	struct kvt_controller_operation *grown;

	if (c->count < c->room)
		return true;
	room = room < most ? room : most;
	if (room <= c->count)
		return false;
	grown = realloc(c->at, (size_t)room * sizeof(*grown));
	if (grown == NULL)
		return false;
	c->at = grown;
	c->room = room;
	return true;
}

void kvt_controller_link_change(
	struct kvt_controller_link *link, uint32_t location, bool admit, uint64_t key)
{
	struct kvt_controller_changes *c = &link->changes[location];

	link->stats.changes++;
	if (link->state != KVT_CONTROLLER_SILENT && make_room(link, c)) {
		c->at[c->count++] = (struct kvt_controller_operation){key, c->next_number, admit};
		c->next_number += link->config.stock;
		return;
	}
	link->stats.dropped++;
	/* counted with `stock`, so that the controller sees a gap in the numbers */
	c->next_number += link->config.stock;
	link->resync |= !link->config.stock;
}

/* Sends one message with the first changes. Returns their number. */
static uint32_t send_changes(struct kvt_controller_link *link, uint32_t location)
{
	struct kvt_controller_changes *c = &link->changes[location];
	uint32_t frames = link->config.stock ? STOCK_FRAMES : OWN_FRAMES;
	uint32_t most = c->count < frames * FRAME_MOST ? c->count : frames * FRAME_MOST;
	uint32_t done = 0;

	for (uint32_t i = 0; !link->config.stock && i < most; i++)
		c->at[i].number =
			/* counts sent changes, so there are no gaps */
			c->next_number + i;
	while (done < most) {
		uint32_t now = most - done < FRAME_MOST ? most - done : FRAME_MOST;

		kvt_controller_put_operations(&link->out, &link->sender,
			kvt_controller_location(location), c->at + done, now);
		if (!kvt_controller_push(link, done + now < most))
			/* if the socket is full, already the first frame fails, so nothing was
			 * sent */
			break;
		done += now;
	}
	c->next_number += link->config.stock ? 0 : done;
	return done;
}

void kvt_controller_link_flush(struct kvt_controller_link *link)
{
	if (link->state != KVT_CONTROLLER_UP ||
		(!link->config.stock && link->sync.state != KVT_CONTROLLER_NO_SYNC))
		return;
	for (uint32_t i = 0; i < link->config.locations; i++) {
		struct kvt_controller_changes *c = &link->changes[i];
		uint32_t gone = 1;

		while (c->count > 0 && gone > 0) {
			gone = send_changes(link, i);
			c->count -= gone;
			memmove(c->at, c->at + gone, c->count * sizeof(*c->at));
		}
	}
}
